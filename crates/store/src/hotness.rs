//! How often a leaf's records are read: a clock of two bits per record that decays.
//!
//! One read in [`SAMPLE`] raises its record's count; each sweep halves them all. Counts are advice: they are raised
//! without synchronisation, and a merge that shifts records leaves them where they were.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::body::RECORDS_MAX;

/// One read in this many is counted.
pub(crate) const SAMPLE: u32 = 8;

const WORDS: usize = RECORDS_MAX / 32;
const LOW_BITS: u64 = 0x5555_5555_5555_5555;

/// Two bits for each record of a leaf.
#[derive(Debug, Default)]
pub(crate) struct Clock([AtomicU64; WORDS]);

impl Clock {
    /// Counts a read of the record at `place`.
    #[inline]
    pub(crate) fn touch(&self, place: usize) {
        let word = &self.0[place / 32 % WORDS];
        let shift = place % 32 * 2;
        let counts = word.load(Relaxed);
        let count = counts >> shift & 0b11;
        if count < 0b11 {
            word.store(counts + (1 << shift), Relaxed);
        }
    }

    /// The sum of all counts.
    pub(crate) fn heat(&self) -> u32 {
        self.0
            .iter()
            .map(|word| {
                let counts = word.load(Relaxed);
                (counts & LOW_BITS).count_ones() + 2 * (counts >> 1 & LOW_BITS).count_ones()
            })
            .sum()
    }

    /// Halves every count.
    pub(crate) fn decay(&self) {
        for word in &self.0 {
            let counts = word.load(Relaxed);
            if counts != 0 {
                word.store(counts >> 1 & LOW_BITS, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_saturate_and_decay() {
        let clock = Clock::default();
        (0..10).for_each(|_| clock.touch(127));
        clock.touch(0);
        assert_eq!(clock.heat(), 4);
        clock.decay();
        assert_eq!(clock.heat(), 1);
        clock.decay();
        assert_eq!(clock.heat(), 0);
    }
}
