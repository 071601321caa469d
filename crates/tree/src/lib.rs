//! The compressed B+tree of ziptier: leaves hold records in key order, and are read, written to and packed.
//!
//! The tree is a mechanism: it opens no medium, makes no room, chooses no record to evict, and writes no log. It asks
//! its host by the traits of [`host`], [`retention`], [`dictionaries`], [`below`], [`far`] and [`large`].
//!
//! This crate is a part of `ziptier`, whose public API is the store. Its interface serves that store alone and may
//! change in every release.
//!
//! | module | claim |
//! |---|---|
//! | `tree`, `host`, `retention` | what reads, packs and batches share; what they ask of the host: the log, room, and which records a pack keeps |
//! | `read`, `multi_get`, `range`, `open_value` | one key, several keys at once, iteration, a value in pieces |
//! | `write`, `update`, `batch` | one write, one that depends on what is there, several at once |
//! | `seen`, `turns`, `commits` | what an update has read; keys that one writer has for itself; which batches exist |
//! | `operation` | what a write changes, for the log |
//! | `index` | from a key to its leaf, without locks |
//! | `leaf` | one pointer to an immutable state, who may replace it, and the places of a leaf |
//! | `landing`, `body`, `large` | where bytes lie: newest, settled, too large for a leaf |
//! | `form`, `coding`, `blocks`, `codec_options` | how a body holds its values; tokens, or blocks and each thread's contexts |
//! | `dictionaries`, `sampling` | the life of dictionaries; samples of values to train them on |
//! | `far`, `placement` | far memory and the bytes that lie there; which chunks go there at a set ratio |
//! | `below`, `extent` | the images of a leaf on SSD, and the keys between them; where bytes lie in files |
//! | `pending`, `merge`, `packing` | what landings say; landings over bodies; coding, splitting, joining |
//! | `hotness`, `marks` | which records are read, and the memory of eviction for each |
//! | `record`, `numbers`, `fields`, `sizes` | records; numbers as bytes; fields of bytes that may be anything; bounds on keys and values |
//! | `memory`, `stats`, `clock` | bytes held, work counted, the clock by which everything expires |
//! | `reclaim`, `sync` | the epochs of a tree; locks, and the points at which a schedule explorer may interrupt |

#![deny(missing_docs)]

#[cfg(all(test, not(shuttle)))]
mod alone;
pub mod batch;
pub mod below;
pub mod blocks;
pub mod body;
pub mod clock;
pub mod codec_options;
pub mod coding;
pub mod commits;
pub mod dictionaries;
pub mod error;
pub mod extent;
pub mod far;
#[cfg(any(test, feature = "testing"))]
pub mod faults;
mod few;
pub mod fields;
pub mod form;
pub mod host;
pub mod hotness;
pub mod index;
pub mod landing;
pub mod large;
pub mod leaf;
pub mod marks;
pub mod memory;
pub mod merge;
#[cfg(all(test, not(shuttle)))]
mod model;
pub mod multi_get;
pub mod numbers;
pub mod open_value;
pub mod operation;
pub mod packing;
pub mod pending;
pub mod placement;
pub mod range;
pub mod read;
pub mod reclaim;
pub mod record;
pub mod retention;
mod sampling;
pub mod seen;
pub mod sizes;
pub mod stats;
pub mod sync;
pub mod tree;
pub mod turns;
pub mod update;
pub mod write;

pub use error::{Error, HostError};
