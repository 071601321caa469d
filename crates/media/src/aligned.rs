//! Bytes at an address that is a multiple of a page, as direct reads and writes need.

use crate::disk::DIRECT_ALIGNMENT_BYTES;
use std::ops::{Deref, DerefMut};

/// A fixed number of bytes at an aligned address. The bytes lie in a longer vector, behind an unused front.
#[derive(Debug)]
pub struct AlignedBytes {
    /// Never grown, so that the bytes stay where they are.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// So many zeros.
    pub fn zeroed(len: usize) -> AlignedBytes {
        AlignedBytes::of(vec![0; len + DIRECT_ALIGNMENT_BYTES], len)
    }

    /// So many zeros; `None` if the allocator refuses the memory.
    pub fn try_zeroed(len: usize) -> Option<AlignedBytes> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len + DIRECT_ALIGNMENT_BYTES).ok()?;
        bytes.resize(len + DIRECT_ALIGNMENT_BYTES, 0);
        Some(AlignedBytes::of(bytes, len))
    }

    fn of(bytes: Vec<u8>, len: usize) -> AlignedBytes {
        let start = bytes.as_ptr().align_offset(DIRECT_ALIGNMENT_BYTES).min(DIRECT_ALIGNMENT_BYTES);
        AlignedBytes { bytes, start, len }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
