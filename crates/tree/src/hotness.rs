//! How often a leaf's records are read: counts of two bits per record that decay. And for how long nobody used
//! the leaf.
//!
//! Not for facts: counts are hints. Readers raise them without synchronisation, and a merge that shifts records leaves
//! them where they were.
//!
//! 1. One read in [`SAMPLE`] raises its record's count.
//! 2. The host halves or forgets all counts from time to time.
//! 3. The host visits all leaves in laps, and notes those that nobody used. It sums the counts of a condensed leaf
//!    since.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering::Relaxed};

/// One read in this many is counted.
pub const SAMPLE: u32 = 8;

/// Records with a count of their own. Records behind these share their counts with records before: packed bodies may
/// have twice as many.
const PLACES: usize = 224;
const WORDS: usize = PLACES / 32;
const LOW_BITS: u64 = 0x5555_5555_5555_5555;

/// Two bits for each record of a leaf.
#[derive(Debug, Default)]
pub struct ReadCounts([AtomicU64; WORDS]);

impl ReadCounts {
    /// Counts a read of the record at `place`.
    #[inline]
    pub fn touch(&self, place: usize) {
        let word = &self.0[place / 32 % WORDS];
        let shift = place % 32 * 2;
        let counts = word.load(Relaxed);
        let count = counts >> shift & 0b11;
        if count < 0b11 {
            word.store(counts + (1 << shift), Relaxed);
        }
    }

    /// Counts a read of a record that has no place here, by the hash of its key.
    #[inline]
    pub(crate) fn touch_by(&self, hash: u64) {
        self.touch((hash >> 32) as usize % PLACES);
    }

    /// The sum of all counts.
    pub fn counts(&self) -> u32 {
        self.0
            .iter()
            .map(|word| {
                let counts = word.load(Relaxed);
                (counts & LOW_BITS).count_ones() + 2 * (counts >> 1 & LOW_BITS).count_ones()
            })
            .sum()
    }

    /// Takes over the counts of the records from `from` on of a leaf that they leave: here they lie from `to` on.
    pub(crate) fn inherit(&self, other: &Self, from: usize, to: usize) {
        for (from, to) in (from..PLACES).zip(to..PLACES) {
            let count = other.0[from / 32].load(Relaxed) >> (from % 32 * 2) & 0b11;
            let (word, shift) = (&self.0[to / 32], to % 32 * 2);
            word.store(word.load(Relaxed) & !(0b11 << shift) | count << shift, Relaxed);
        }
    }

    /// Halves every count, or forgets them all.
    pub fn decay(&self, wholly: bool) {
        for word in &self.0 {
            let counts = word.load(Relaxed);
            if counts != 0 {
                word.store(if wholly { 0 } else { counts >> 1 & LOW_BITS }, Relaxed);
            }
        }
    }
}

/// For how long nobody used a leaf, and how often it was read since.
#[derive(Debug, Default)]
pub struct Usage {
    /// Laps in a row that found the leaf unused.
    laps: AtomicU8,
    /// Read counts of the leaf since such a lap, summed over rounds of the host that found the leaf condensed.
    counts: AtomicU16,
}

impl Usage {
    /// Notes a lap of the host that found the leaf unused, or not: read or written to. Returns how many noted ones in
    /// a row found it unused.
    pub fn note_lap(&self, is_unused: bool) -> u8 {
        let laps = if is_unused { self.laps.load(Relaxed).saturating_add(1) } else { 0 };
        self.laps.store(laps, Relaxed);
        if is_unused {
            self.counts.store(0, Relaxed);
        }
        laps
    }

    /// Adds the counts of a round, and returns the sum since the leaf was unused.
    pub fn add_counts(&self, counts: u32) -> u32 {
        let sum = u32::from(self.counts.load(Relaxed)).saturating_add(counts).min(u16::MAX.into());
        self.counts.store(sum as u16, Relaxed);
        sum
    }

    /// Begins anew: both are 0.
    pub fn reset(&self) {
        self.laps.store(0, Relaxed);
        self.counts.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_unused_until_somebody_uses_it() {
        let usage = Usage::default();
        assert_eq!([true, true, false, true].map(|unused| usage.note_lap(unused)), [1, 2, 0, 1]);
        (0..300).for_each(|_| _ = usage.note_lap(true));
        assert_eq!(usage.note_lap(true), u8::MAX);
    }

    #[test]
    fn counts_add_up_until_the_leaf_is_unused() {
        let usage = Usage::default();
        assert_eq!([3, 4].map(|counts| usage.add_counts(counts)), [3, 7]);
        usage.note_lap(false);
        assert_eq!(usage.add_counts(u32::MAX - 7), u16::MAX.into());
        usage.note_lap(true);
        assert_eq!(usage.add_counts(1), 1);
    }

    #[test]
    fn counts_saturate_and_decay() {
        let reads = ReadCounts::default();
        (0..10).for_each(|_| reads.touch(127));
        reads.touch(0);
        assert_eq!(reads.counts(), 4);
        reads.decay(false);
        assert_eq!(reads.counts(), 1);
        reads.decay(false);
        assert_eq!(reads.counts(), 0);
    }

    #[test]
    fn counts_go_with_their_records() {
        let reads = ReadCounts::default();
        for place in 0..PLACES {
            (0..place % 4).for_each(|_| reads.touch(place));
        }
        let count =
            |reads: &ReadCounts, place: usize| reads.0[place / 32].load(Relaxed) >> (place % 32 * 2) & 0b11;
        for (from, to) in [(0, 0), (1, 0), (33, 0), (191, 0), (PLACES, 0), (0, 5), (0, 100), (7, 32)] {
            let moved = ReadCounts::default();
            moved.touch(to);
            moved.inherit(&reads, from, to);
            let arrived = (from..PLACES).zip(to..PLACES);
            let counts: u64 = arrived
                .map(|(from, to)| {
                    assert_eq!(count(&moved, to), from as u64 % 4);
                    count(&moved, to)
                })
                .sum();
            assert_eq!(u64::from(moved.counts()), counts + u64::from(from == PLACES));
        }
    }
}
