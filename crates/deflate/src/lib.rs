//! Raw DEFLATE (RFC 1951) for small blocks.
//!
//! A block of 512 bytes spends more on its Huffman header than on its data, and has little to repeat. Here blocks share
//! both through a [`Dictionary`]. Its *preset history* is text to which every block may refer as if it stood before the
//! block. Its *canned codes* write all its blocks. Such a block has no header, and its decoder builds no tables.
//! Intel's accelerator can read and write such blocks, because the window is its 4 KiB. Behind the bits of
//! [`CannedLengths::header`] a canned block is an ordinary stream. Blocks with fixed codes or their own codes always
//! are.
//!
//! ```
//! use ziptier_deflate::{Decoder, Dictionary, Encoder, Huffman, Level};
//!
//! let records: Vec<String> = (0..4000).map(|i| format!("{{\"user\":{i},\"state\":\"active\"}}")).collect();
//! let samples: Vec<&[u8]> = records.iter().map(|record| record.as_bytes()).collect();
//! let dictionary = Dictionary::train(&samples, 1024);
//!
//! let mut packed = Vec::new();
//! let mut encoder = Encoder::new(&dictionary, Level::Lazy); // one for each thread, to be kept
//! let length = encoder.compress(Huffman::Canned, samples[17], &mut packed, 100);
//! assert!(length.is_some_and(|length| length < 10));
//!
//! let mut raw = Vec::new();
//! Decoder::new(&dictionary).decompress(Huffman::Canned, &packed, &mut raw, 100)?;
//! assert_eq!(raw, samples[17]);
//! # Ok::<(), ziptier_deflate::DecodeError>(())
//! ```
//!
//! This crate is for blocks up to some 16 KiB. Larger blocks work, but would gain from a window of 32 KiB, which this
//! crate lacks. A stream that refers further back than [`WINDOW_BYTES`] is an error. The crate has no checksum and no
//! frame.
//!
//! # Map
//!
//! | module | what it owns |
//! |---|---|
//! | `encoder`, `parse`, `matches` | levels, from the newest match to the cheapest sequence |
//! | `decoder`, `tables` | the fast decoder and its look-ups |
//! | `entries`, `parts` | where the parts of a stream begin, behind it or in front, and the decoder that takes them side by side |
//! | `resumable` | the decoder that stops and resumes anywhere |
//! | `dictionary`, `train`, `shared` | what blocks share, and how it is found |
//! | `block` | codes of one block, for a writer elsewhere |
//! | `huffman`, `header`, `codes`, `symbols`, `bits` | the parts of the format |

#![deny(missing_docs)]
#![deny(unsafe_code)]

mod bits;
mod block;
mod codes;
mod decoder;
mod dictionary;
mod encoder;
mod entries;
mod error;
mod header;
mod huffman;
mod matches;
mod parse;
#[allow(unsafe_code, reason = "two loops without checks of bounds that were checked before")]
mod parts;
mod resumable;
mod shared;
mod symbols;
mod tables;
mod train;

pub use block::BlockCodes;
pub use decoder::Decoder;
pub use dictionary::Dictionary;
pub use encoder::{Encoder, Level};
pub use entries::{has_preamble, stream_of};
pub use error::{DecodeError, Fault};
pub use parts::PartsDecoder;
pub use resumable::{Progress, ResumableDecoder, Status};
pub use shared::CannedLengths;

/// The farthest distance: the history that Intel's accelerator has.
pub const WINDOW_BYTES: usize = 4096;

/// The last bytes of each part but the last of a stream that
/// [`compress_in_parts`](Encoder::compress_in_parts) made: both lengths of an empty stored block.
pub const PART_END: [u8; 4] = [0, 0, 0xFF, 0xFF];

/// Which Huffman codes a block has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Huffman {
    /// The codes of RFC 1951, section 3.2.6.
    Fixed,
    /// Codes made for each block and stored in front of it. If they do not pay, the fixed codes or a stored block.
    Dynamic,
    /// The codes of the dictionary, shared by all its blocks. The block has no header, and ends with its end-of-block
    /// symbol.
    Canned,
}
