//! Blocks of format `deflate` in parts that can be compressed and decompressed side by side.
//!
//! A split block is one ordinary stream, and every decoder reads it. No part of it refers to bytes of another, and each
//! but the last ends with `ziptier_deflate::PART_END` at the end of a byte. These marks are the index: nothing else is
//! stored. A reader that finds no mark, or a wrong one, decodes the block as a whole.

use std::ops::RangeInclusive;

/// The parts that a block may have.
pub const PARTS: RangeInclusive<u32> = 1..=16;

/// A block has at most one part for each so many bytes. The codes of a smaller part and the work for a job cost more
/// than parts gain.
#[cfg(feature = "deflate")]
pub(super) const PART_BYTES_MIN: usize = 1024;

/// The parts of a block, of `split` parts at most.
#[cfg(feature = "deflate")]
pub(super) fn parts(raw_bytes: usize, split: u32) -> usize {
    (raw_bytes / PART_BYTES_MIN).clamp(1, split as usize)
}
