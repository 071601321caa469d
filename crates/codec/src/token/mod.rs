//! Token coding: the densest form in which *one* small value can be read without decoding its neighbours.
//!
//! A [`Dictionary`] holds up to 2^16 byte strings, the *tokens*, of 1 to 16 bytes each. A coded value is a run of token
//! numbers of a fixed width (10 to 16 bits) and a 16-bit check. Decoding copies 16 bytes per token and advances by the
//! token's length. There are no matches, no entropy codes and no neighbours. The method is known as OnPair (F. Gargiulo
//! and R. Venturini, "OnPair: Short Strings Compression for Fast Random Access", arXiv 2508.02280); training and
//! matching differ here, see [`Dictionary::train`].
//!
//! Text, JSON, log lines and tables with repeating fields shrink to a half or a sixth. Incompressible bytes *grow* (to
//! at most twice their size, and the check). A store compares the lengths and keeps the raw bytes if they are shorter.
//! Long-range repetition (source code, wide rows) is better served by a block format.
//!
//! A coded value can be made denser by prefix codes of its token numbers, see [`entropy`].
//!
//! # A coded value
//!
//! ```text
//! number 0 | number 1 | ... | zero bits up to a byte | check (2 bytes)
//! ```
//!
//! - Numbers take `bits` bits each, the lowest bit first, from the lowest bit of the first byte upwards. As `bits` is
//!   at least 10, the coded length alone says how many there are.
//! - The check, little-endian, covers the numbers *as stored* and is seeded with the fingerprint of the dictionary and
//!   the length. Up to 128 KiB, every single flipped bit is found. Other damage, truncation and the wrong dictionary
//!   escape once in 65,536 times.
//! - The empty value is a check alone.

mod decode;
mod dictionary;
mod encode;
pub mod entropy;
mod error;
#[cfg(feature = "zstd")]
mod front_coding;
mod matcher;
mod merge;
mod numbers;
#[cfg(feature = "zstd")]
pub mod packed;
mod parse;
mod serial;
mod train;

pub use dictionary::Dictionary;
pub use encode::{Effort, Encoder};
pub use error::{CodesError, DecodeError, DictionaryError, TrainError};

/// The longest token, in bytes: the width of one unconditional vector store.
pub const TOKEN_BYTES_MAX: usize = 16;

/// The supported widths of token numbers, in bits. Widths below 12 are for small data that carries its own dictionary.
pub const BITS: std::ops::RangeInclusive<u32> = 10..=16;

/// Bytes of the check at the end of every coded value.
pub const CHECK_BYTES: usize = 2;

/// The most tokens that a dictionary of this width has.
///
/// It is 2^bits. For 16 bits it is one less, because earlier versions kept the highest number for an empty slot.
pub(crate) const fn tokens_max(bits: u32) -> usize {
    if bits < 16 { 1 << bits } else { u16::MAX as usize }
}
