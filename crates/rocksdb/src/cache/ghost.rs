//! Who was here before: flash wears by every write, so a block is stored when it is evicted for the second time.
//!
//! A table of 32-bit marks, each in the place that its key's hash names. A newer key takes the place of an older one,
//! so that a mark lives for about as many evictions as the table has places.

use std::sync::atomic::{AtomicU32, Ordering};

pub(super) struct Ghosts {
    marks: Vec<AtomicU32>,
}

/// Bytes of the cache for which the table has one place: a few places for each block, so that four of five marks live
/// until as many blocks were evicted as the cache holds.
const BYTES_PER_PLACE: u64 = 1024;

impl Ghosts {
    /// For a cache of so many bytes: 4 KiB to 32 MiB of marks.
    pub(super) fn new(capacity_bytes: u64) -> Ghosts {
        let places = (capacity_bytes / BYTES_PER_PLACE).clamp(1 << 10, 1 << 23).next_power_of_two();
        Ghosts { marks: (0..places).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Whether the key came before; it has from now on.
    pub(super) fn knows(&self, hash: u64) -> bool {
        let mark = &self.marks[hash as usize & (self.marks.len() - 1)];
        let tag = (hash >> 32) as u32 | 1;
        mark.swap(tag, Ordering::Relaxed) == tag
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.marks.len() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_counts() {
        let ghosts = Ghosts::new(1 << 20);
        let hash = |i: u64| xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes());
        let first = (0..256).filter(|&i| ghosts.knows(hash(i))).count();
        let second = (0..256).filter(|&i| ghosts.knows(hash(i))).count();
        assert_eq!(first, 0);
        assert!(second > 180, "{second}");
    }
}
