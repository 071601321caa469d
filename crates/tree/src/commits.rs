//! Which batches exist.
//!
//! A batch takes a number before it appends its records, which carry it, and makes all of them exist at once by
//! committing that number. A long batch appends for longer than a short one, so numbers are committed in any order.
//!
//! 1. `all_to` is the number up to which all batches exist. Nearly all records carry a number below it.
//! 2. Each of the `WINDOW` numbers behind `all_to` has a bit, which says that its batch exists.
//! 3. A commit sets the batch's bit, raises `all_to` over the bits that follow it without a gap, and then clears these
//!    bits for later numbers.
//!
//! A lock makes the steps of a commit one. It also keeps a number from being given out while its bit may be an older
//! number's. Readers take no lock.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::sync::{Mutex, MutexGuard, back_off, interleave};

/// How many numbers may be given out beyond the oldest that is not committed. When a batch takes very long, later ones
/// wait here.
const WINDOW: u64 = 4096;
const WORD_BITS: u64 = u64::BITS as u64;

/// The batches that exist. See the module.
pub struct Commits {
    all_to: AtomicU64,
    bits: [AtomicU64; (WINDOW / WORD_BITS) as usize],
    /// Odd while a commit is made.
    version: AtomicU64,
    /// The newest number that was given out. Its lock is held for each step that changes anything here.
    newest: Mutex<u64>,
}

impl Default for Commits {
    fn default() -> Self {
        Self::all_up_to(0)
    }
}

impl Commits {
    /// The batches up to `number` exist.
    pub(crate) fn all_up_to(number: u64) -> Self {
        Self {
            all_to: AtomicU64::new(number),
            bits: [const { AtomicU64::new(0) }; (WINDOW / WORD_BITS) as usize],
            version: AtomicU64::new(0),
            newest: Mutex::new(number),
        }
    }

    /// Whether the batch of this number, which was given out, exists.
    #[inline]
    pub fn has(&self, number: u64) -> bool {
        number <= self.all_to.load(Acquire) || self.is_ahead(number)
    }

    /// The same of a number that `all_to` had not reached a moment ago.
    fn is_ahead(&self, number: u64) -> bool {
        interleave();
        let (word, bit) = self.bit(number);
        // A bit that was cleared meanwhile is one that `all_to` has passed.
        word.load(Acquire) & bit != 0 || number <= self.all_to.load(Acquire)
    }

    /// The number of a batch that is about to append its records. The caller holds the locks of all its leaves and
    /// needs no other lock until it commits the number. It commits the number for certain, because later batches may
    /// wait for that.
    pub(crate) fn begin(&self) -> u64 {
        let mut round = 0;
        loop {
            let mut newest = self.newest.lock();
            if *newest - self.all_to.load(Relaxed) < WINDOW {
                *newest += 1;
                return *newest;
            }
            drop(newest);
            back_off(round);
            round += 1;
        }
    }

    /// Makes the batch of this number exist. All its records were published before.
    pub(crate) fn commit(&self, number: u64) {
        let newest = self.newest.lock();
        let version = self.version.load(Relaxed);
        self.version.store(version + 1, Relaxed);
        let (word, bit) = self.bit(number);
        // The order of this store shows whoever sees the bit that the version is odd, and the records.
        word.fetch_or(bit, Release);
        interleave();
        let before = self.all_to.load(Relaxed);
        let is_set = |&number: &u64| {
            let (word, bit) = self.bit(number);
            word.load(Acquire) & bit != 0
        };
        let passed = (before + 1..=*newest).take_while(is_set).last().unwrap_or(before);
        self.all_to.store(passed, Release);
        interleave();
        for number in before + 1..=passed {
            let (word, bit) = self.bit(number);
            word.fetch_and(!bit, Release);
        }
        self.version.store(version + 2, Release);
    }

    /// A number that is another one after each commit; `None` while one is made.
    pub(crate) fn version(&self) -> Option<u64> {
        let version = self.version.load(Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// Keeps batches from being committed, and from beginning to append. The holder takes no lock of a leaf.
    pub(crate) fn hold(&self) -> MutexGuard<'_, u64> {
        self.newest.lock()
    }

    fn bit(&self, number: u64) -> (&AtomicU64, u64) {
        let at = number % WINDOW;
        (&self.bits[(at / WORD_BITS) as usize], 1 << (at % WORD_BITS))
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn batches_exist_in_the_order_in_which_they_are_committed() {
        let commits = Commits::default();
        let numbers: Vec<u64> = (0..3).map(|_| commits.begin()).collect();
        assert_eq!(numbers, [1, 2, 3]);
        let exist = || numbers.iter().map(|&number| commits.has(number)).collect::<Vec<_>>();
        assert_eq!(exist(), [false, false, false]);
        let before = commits.version();
        commits.commit(3);
        assert_eq!(exist(), [false, false, true]);
        commits.commit(1);
        assert_eq!(exist(), [true, false, true]);
        commits.commit(2);
        assert_eq!(exist(), [true, true, true]);
        assert_eq!(commits.all_to.load(Relaxed), 3);
        assert!(commits.bits.iter().all(|word| word.load(Relaxed) == 0));
        assert!(before.is_some() && commits.version() > before);
    }

    #[test]
    fn a_bit_is_never_that_of_another_number() {
        let commits = Commits::default();
        // One batch takes long; others fill the window, and wait then.
        let long = commits.begin();
        for _ in 1..WINDOW {
            commits.commit(commits.begin());
        }
        assert_eq!(*commits.hold(), WINDOW);
        assert!(!commits.has(long) && commits.has(WINDOW));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| commits.begin());
            commits.commit(long);
            assert_eq!(next.join().expect("it ends"), WINDOW + 1);
        });
        assert!(commits.has(long) && !commits.has(WINDOW + 1));
    }
}
