//! The compression formats of ziptier, the engines behind them, and their dictionaries.
//!
//! The resident form of a value is a run of *token numbers*. A [`token::Dictionary`] is trained on samples of the data
//! and codes every value alone, so that reading one value decodes nothing else. Formats for blocks of many records
//! (LZ4, zstd, deflate) stand behind the traits of [`block`]; [`block::Setting`] chooses among them.
//!
//! ```
//! use ziptier_codec::token::{Dictionary, Encoder};
//!
//! let values: Vec<String> = (0..2000).map(|i| format!("{{\"user\":{i},\"state\":\"active\"}}")).collect();
//! let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
//! let dictionary = Dictionary::train(&values, 12, 1)?;
//!
//! let (mut coded, mut ends) = (Vec::new(), Vec::new());
//! dictionary.encode_group(&mut Encoder::new(), &values[..8], &mut coded, &mut ends);
//! assert!(coded.len() * 2 < values[..8].iter().map(|value| value.len()).sum());
//!
//! // The value at 3 lies between the second and the third end, and needs none of its neighbours.
//! let mut value = Vec::new();
//! dictionary.decode_append(&coded[ends[2] as usize..ends[3] as usize], &mut value, 1 << 16)?;
//! assert_eq!(value, values[3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! Tokens are always included. The features `lz4`, `zstd` and `deflate`, on by default, are the formats of blocks.
//! `libdeflate`, `zlib`, `qpl` and `iaa` are engines of `deflate`. `analytics` and `doctor` are the modules of those
//! names, and `all` is everything. The error for a missing feature names it.
//!
//! # Map
//!
//! | module | what it owns |
//! |---|---|
//! | [`analytics`] | scan, extract, select and expand over packed integers, on a CPU or a device |
//! | [`format`](mod@format) | the names of the formats |
//! | [`token`] | single values as token numbers: training, encoding, decoding, stored dictionaries |
//! | [`block`] | blocks in `lz4`, `zstd`, `deflate`: engines, contexts, batches, frames, dictionaries, counters; the seam for accelerators |
//! | [`checksum`] | CRC32C, and the 16-bit check of a coded value |
//! | [`doctor`] | libraries that engines need, and the path that each codec takes on this machine |
//! | [`conformance`] | the suite that every format and engine passes |

#![deny(missing_docs)]

#[cfg(feature = "analytics")]
pub mod analytics;
pub mod block;
pub mod checksum;
pub mod conformance;
#[cfg(feature = "doctor")]
pub mod doctor;
mod envelope;
pub mod format;
mod scratch;
pub mod token;
