//! A key-value store that keeps more data in less memory: a B+tree whose leaves are compressed.
//!
//! Records live in leaves, ordered by key. A leaf is an append-only *landing* of the newest writes and an immutable
//! *body*. In the body every value is coded on its own, by tokens from a dictionary that the store trains on its own
//! records. Readers take no lock. A writer touches one leaf, and merges and codes the landing that it fills.
//!
//! ```
//! use ziptier::{Options, Store};
//!
//! let store = Store::open(Options::default())?;
//! store.put(b"user:1", b"Ada")?;
//! assert_eq!(store.get(b"user:1")?.as_deref(), Some(&b"Ada"[..]));
//! assert_eq!(store.prefix(b"user:").count(), 1);
//! # Ok::<(), ziptier::Error>(())
//! ```
//!
//! # The public API
//!
//! | items | for |
//! |---|---|
//! | [`Store`] | begin here: opening, every call, memory, durability, closing |
//! | [`Options`], [`BlockOptions`], [`CodecChoice`] | opening a store; the form of its values |
//! | [`DurableOptions`], [`Durability`] | a store in a folder |
//! | [`FarOptions`], [`FarPlace`], [`FarRatio`], [`SsdOptions`] | data that DRAM has no room for |
//! | [`Batch`], [`Condition`], [`Update`] | several keys at once; a value that depends on the old one |
//! | [`Range`], [`Keys`], [`Values`], [`OpenValue`] | iteration; keys alone; several keys; a long value in pieces |
//! | [`Meta`], [`PutMeta`], [`Clock`] | expiry and flags |
//! | [`Error`], [`ErrorKind`], [`LogError`], [`SegmentError`] | refusals and failures, by groups |
//! | [`MemoryUse`], [`Stats`], [`FarStatus`], [`SsdStatus`], [`DurableStats`], [`CheckpointStats`] | figures |
//! | [`Recovery`], [`Recovered`], [`TornTail`] | progress and findings of a start |
//! | [`check()`], [`check_with()`], [`dump()`], [`restore()`] | a folder without its store: verify, back up, bring back |
//! | [`Huffman`], [`Path`], [`DeviceSource`] | codes and devices of DEFLATE |
//! | [`OldValue`], [`Need`], [`Transferred`] | calls for servers, and the outcome of a rename |
//!
//! `examples/` beside the crate has whole programs.
//!
//! # Features
//!
//! Values that are coded one by one need no feature. A store that is asked for a form that was left out refuses to
//! open, and names the feature.
//!
//! | feature | default | builds |
//! |---|---|---|
//! | `lz4`, `zstd` | yes | packed bodies in these formats, by the C libraries; `lz4` needs `zstd`, whose trainer it uses |
//! | `deflate` | yes | packed bodies of DEFLATE, by a coder in Rust |
//! | `libdeflate` | no | libdeflate for blocks of DEFLATE without a dictionary |
//! | `zlib`, `qpl` | no | the system's libz, and Intel's QPL if it is installed |
//! | `iaa` | no | Intel's accelerator, and a model of it in software |
//! | `all` | no | everything above; the command and the server have it |
//!
//! The default build compiles two C libraries, zstd and LZ4, and needs a C compiler for them. A store that codes values
//! by tokens, or packs them as DEFLATE, needs neither: `default-features = false`, with `features = ["deflate"]` if
//! wanted, compiles no C.
//!
//! # Modules of the source
//!
//! For those who change the store; none is public. The tree is the crate `ziptier-tree`: its leaves, and how they are
//! read, written to and packed.
//!
//! | module | claim |
//! |---|---|
//! | `store` | the public API, a file for each group of calls |
//! | `core` | the parts of a store, shared by callers and background threads; its answers to reads, writes, packs and moves |
//! | `leaf_image` | a leaf as bytes that outlive the process |
//! | `image_files` | the segment files of leaves on SSD and of checkpoints, and when one is removed |
//! | `durable` | the folder of a store: its log, its checkpoints, dumps of it |
//! | `recovery`, `check` | from a folder to a store; whether a folder is as it was written |
//! | `backlog`, `maintenance` | the leaves that wait for the background; its work, step by step |
//! | `upkeep` | the form that a leaf needs, and the pack that gives it that form; visits of all leaves |
//! | `spread`, `tierer` | which leaves are kept raw or in DRAM, by how often their records are read |
//! | `room`, `reclaimer` | what room there is; making room: demotion by clock hands, then packing, then eviction |
//! | `places` | demotion to far memory and to SSD, and promotion from there; the files of the SSD |
//! | `s3fifo`, `ghosts` | the queues of S3-FIFO, and their memory for each record |

#![deny(missing_docs)]

mod backlog;
mod check;
mod core;
mod durable;
mod error;
mod ghosts;
mod image_files;
mod laps;
mod leaf_image;
mod maintenance;
mod options;
mod places;
#[cfg(all(test, not(shuttle), not(miri)))]
mod races;
mod reclaimer;
mod recovery;
mod room;
mod s3fifo;
#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(all(test, not(miri), not(shuttle)))]
mod simulation;
mod spread;
mod store;
mod tierer;
#[cfg(test)]
mod tree_tests;
mod upkeep;

pub use check::{CheckReport, Damage, check, check_with};
#[doc(hidden)]
pub use durable::DiskHandle;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use durable::fuzz_log_record;
pub use durable::{CheckpointStats, DumpSummary, dump, restore};
pub use durable::{Durability, DurableOptions, DurableStats, Recovered, Recovery};
pub use error::{Error, ErrorKind};
pub use options::{MEMORY_LIMIT_BYTES_MIN, Options};
pub use places::far_medium::FarRatio;
pub use places::ssd::{SsdOptions, SsdStatus};
#[cfg(fuzzing)]
#[doc(hidden)]
pub use recovery::fuzz_image;
pub use store::{OldValue, OpenValue, Range, Store};
#[cfg(feature = "iaa")]
pub use ziptier_codec::block::ModelOptions;
pub use ziptier_codec::block::{DeviceSource, Huffman, Path};
pub use ziptier_media::far::{FarOptions, FarPlace};
pub use ziptier_media::log::{LogError, TornTail};
pub use ziptier_media::segments::SegmentError;
pub use ziptier_media::size::ByteSize;
pub use ziptier_tree::batch::{Batch, Condition, Need, Transferred};
pub use ziptier_tree::clock::Clock;
pub use ziptier_tree::codec_options::{BlockOptions, CodecChoice, UnknownCodec};
pub use ziptier_tree::far::FarStatus;
pub use ziptier_tree::memory::MemoryUse;
pub use ziptier_tree::multi_get::Values;
pub use ziptier_tree::range::Keys;
pub use ziptier_tree::record::{Meta, PutMeta};
pub use ziptier_tree::sizes::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use ziptier_tree::stats::Stats;
pub use ziptier_tree::update::Update;
