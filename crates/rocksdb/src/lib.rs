//! Ziptier's work in an unmodified RocksDB, without RocksDB's classes. The classes are C++ in `ziptier-rocksdb-plugin`,
//! and call this crate.
//!
//! ```
//! use ziptier_rocksdb::codec::{Codec, Packed, TOKENS};
//! use ziptier_rocksdb::settings::{Output, Settings};
//!
//! let codec = Codec::open(Settings { output: Output::Token, ..Settings::default() })?;
//! let blocks: Vec<Vec<u8>> = (0..200u32)
//!     .map(|block| (0..200).flat_map(|row| format!("user:{row} visits {};", row * block).into_bytes()).collect())
//!     .collect();
//! // Samples of a file's blocks make the dictionary that the file carries.
//! let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
//! let generation = codec.train(&samples).expect("the samples are alike");
//!
//! let block = &blocks[7];
//! let mut packed = Vec::new();
//! let made = codec.pack(TOKENS, Some(&generation), block, block.len(), |bytes| packed.extend_from_slice(bytes));
//! assert!(matches!(made, Packed::Into(TOKENS, bytes) if bytes < block.len() / 2));
//!
//! // A packed block begins with its length, which takes two bytes from 128 to 16,383.
//! codec.unpack(TOKENS, Some(&generation), &packed[2..], block.len(), |found| assert_eq!(found, block))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | [`settings`] | the options of a compression manager |
//! | [`codec`] | a compression manager at work: which block becomes what |
//! | [`generation`] | the dictionaries that files carry and share |
//! | [`cache`] | the block cache that survives a restart |
//! | `lifecycle` | when new files get a new generation |
//! | [`rows`] | how a block is cut for the token encoder |
//! | `tokens` | how the rows of a block become tokens, and these become codes |
//! | [`wal`] | the write-ahead log, in files with room, stored where memory persists |
//! | [`counters`] | what was done, counted |
//! | [`host`] | RocksDB itself, loaded at run time: its C API, and databases |

#![deny(missing_docs)]
#![deny(unsafe_code)]

pub mod cache;
pub mod codec;
pub mod counters;
pub mod generation;
#[allow(unsafe_code, reason = "RocksDB's C API")]
pub mod host;
mod lifecycle;
pub mod rows;
pub mod settings;
mod tokens;
pub mod wal;
