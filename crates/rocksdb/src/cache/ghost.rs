//! Remembers evicted keys. Every write wears flash, so a block is stored when it is evicted for the second time.
//!
//! A table of 32-bit marks, in sets of four: a key's hash names its set, and the newest mark of a set comes first. Four
//! marks and not one, because two blocks that are evicted in turns would push out each other's mark for ever.

use std::sync::atomic::{AtomicU32, Ordering};

pub(super) struct Ghosts {
    sets: Vec<[AtomicU32; 4]>,
}

/// Bytes of the cache per set of the table. With blocks of 4 KiB there is a mark for each block that the cache can
/// hold, and a few for blocks that it turned away.
const BYTES_PER_SET: u64 = 4096;

impl Ghosts {
    /// For a cache of so many bytes: 4 KiB to 32 MiB of marks.
    pub(super) fn new(capacity_bytes: u64) -> Ghosts {
        let sets = (capacity_bytes / BYTES_PER_SET).clamp(1 << 8, 1 << 21).next_power_of_two();
        Ghosts { sets: (0..sets).map(|_| Default::default()).collect() }
    }

    /// Whether the key came before. Notes the key.
    ///
    /// Two threads in one set may lose a mark to each other: its block is turned away once more.
    pub(super) fn knows(&self, hash: u64) -> bool {
        let set = &self.sets[hash as usize & (self.sets.len() - 1)];
        let tag = (hash >> 32) as u32 | 1;
        let mut moved = tag;
        set.iter().any(|mark| {
            moved = mark.swap(moved, Ordering::Relaxed);
            moved == tag
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&self.sets[..])
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
        assert!(second > 240, "{second}");
    }

    #[test]
    fn blocks_that_are_evicted_in_turns_keep_each_others_marks() {
        let ghosts = Ghosts::new(1 << 20);
        let of_one_set = [1, 2, 3, 4].map(|tag: u64| tag << 33);
        assert_eq!(of_one_set.map(|hash| ghosts.knows(hash)), [false; 4]);
        assert_eq!(of_one_set.map(|hash| ghosts.knows(hash)), [true; 4]);
        // A fifth pushes out the one that was evicted longest ago.
        assert!(!ghosts.knows(5 << 33));
        assert!(!ghosts.knows(of_one_set[0]));
    }
}
