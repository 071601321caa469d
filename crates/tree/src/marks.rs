//! The memory of eviction: one byte for each record of a leaf. The bytes lie beside the leaf and not in its body,
//! because readers change them.
//!
//! ```text
//! bits 0-1  reads since the record was last judged, at most 3
//! bit  2    the queue: 0 probation, 1 main
//! bits 3-7  stamp: the epoch, modulo 31, in which the record came into its queue; 31 for a record that is to go
//! ```

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};

use crate::memory::{Gauges, allocated_bytes};

/// Stamps that are told apart.
pub const STAMPS: u32 = 31;
const READS: u8 = 0b11;
const MAIN: u8 = 1 << 2;
const STAMP_SHIFT: u32 = 3;
const GOING: u8 = (STAMPS as u8) << STAMP_SHIFT;

/// The byte of one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(pub u8);

impl Mark {
    /// A record that came into its queue in `epoch`, not read since.
    pub fn new(main: bool, epoch: u32) -> Self {
        let queue = if main { MAIN } else { 0 };
        Self(((epoch % STAMPS) as u8) << STAMP_SHIFT | queue)
    }

    /// Whether its queue is the main one; otherwise the record is on probation.
    pub fn is_main(self) -> bool {
        self.0 & MAIN != 0
    }

    /// Reads since the record was last judged, at most 3.
    pub fn reads(self) -> u8 {
        self.0 & READS
    }

    /// Whether it was chosen to go, and not read since.
    pub fn is_going(self) -> bool {
        self.0 & !MAIN == GOING
    }

    /// Whether it was chosen to go.
    pub fn was_going(self) -> bool {
        self.0 & GOING == GOING
    }

    /// The same record, chosen to go.
    pub fn going(self) -> Self {
        Self(GOING | self.0 & MAIN)
    }

    /// Epochs since it came into its queue, up to 30. `now` is that queue's epoch.
    pub fn age(self, now: u32) -> u32 {
        (now % STAMPS + STAMPS - u32::from(self.0 >> STAMP_SHIFT) % STAMPS) % STAMPS
    }

    /// The same record with one more read.
    #[must_use]
    pub fn read(self) -> Self {
        if self.reads() < READS { Self(self.0 + 1) } else { self }
    }

    /// A record of the main queue that begins its next turn in `epoch` with one read less.
    #[must_use]
    pub fn spared(self, epoch: u32) -> Self {
        Self(Self::new(true, epoch).0 | self.reads().saturating_sub(1))
    }
}

/// The marks of a leaf's records, in their order; none while the store does not evict.
///
/// Only the leaf's owner replaces them. A reader may see those of the body before: then it counts for another record.
#[derive(Debug)]
pub struct Marks(Atomic<[MaybeUninit<AtomicU8>]>);

impl Default for Marks {
    fn default() -> Self {
        Self(Atomic::null())
    }
}

/// Bytes asked of the allocator for `len` marks: they lie behind their number.
fn asked_bytes(len: usize) -> usize {
    size_of::<usize>() + len
}

/// The marks that the pointer leads to.
fn slice<'g>(shared: Shared<'g, [MaybeUninit<AtomicU8>]>) -> &'g [AtomicU8] {
    if shared.is_null() {
        return &[];
    }
    // SAFETY: the slice is reachable, or was when the guard was made; every byte was written before it was published,
    // and `MaybeUninit<AtomicU8>` has the layout of `AtomicU8`.
    unsafe { &*(std::ptr::from_ref(shared.deref()) as *const [AtomicU8]) }
}

impl Marks {
    /// Every mark, and spare ones behind the last record's.
    #[inline]
    pub fn all<'g>(&self, guard: &'g Guard) -> &'g [AtomicU8] {
        slice(self.0.load(std::sync::atomic::Ordering::Acquire, guard))
    }

    /// Counts a read of the record at `place`.
    #[inline]
    pub(crate) fn touch(&self, place: usize, guard: &Guard) {
        if let Some(mark) = self.all(guard).get(place) {
            let seen = mark.load(Relaxed);
            if seen & READS < READS {
                mark.store(seen + 1, Relaxed);
            }
        }
    }

    /// Takes `marks` in place of what was there. The caller owns the leaf.
    pub fn set(&self, marks: &[Mark], gauges: &Gauges, guard: &Guard) {
        let old = self.all(guard);
        if marks.len() <= old.len() && old.len() <= 2 * marks.len() + 16 {
            old.iter().zip(marks).for_each(|(old, new)| old.store(new.0, Relaxed));
            return;
        }
        // The rest of the size class is room to grow.
        let len = allocated_bytes(asked_bytes(marks.len())) - asked_bytes(0);
        let mut new = Owned::<[MaybeUninit<AtomicU8>]>::init(len);
        for (index, place) in new.iter_mut().enumerate() {
            place.write(AtomicU8::new(marks.get(index).copied().unwrap_or_default().0));
        }
        gauges.eviction.add(asked_bytes(len));
        let old = self.0.swap(new, std::sync::atomic::Ordering::AcqRel, guard);
        gauges.eviction.take(held_by(old));
        if !old.is_null() {
            // SAFETY: it is no longer reachable, and who still reads it is pinned.
            unsafe { guard.defer_destroy(old) };
        }
    }

    /// Forgets them. The caller owns the leaf.
    pub fn forget(&self, gauges: &Gauges, guard: &Guard) {
        let old = self.0.swap(Shared::null(), std::sync::atomic::Ordering::AcqRel, guard);
        gauges.eviction.take(held_by(old));
        if !old.is_null() {
            // SAFETY: it is no longer reachable, and who still reads it is pinned.
            unsafe { guard.defer_destroy(old) };
        }
    }

    /// Frees them, when nobody else sees the leaf any more.
    pub(crate) fn free(&mut self, gauges: &Gauges) {
        let marks = std::mem::take(self).0;
        // SAFETY: the caller's exclusive borrow is the last way to them.
        if let Some(marks) = unsafe { marks.try_into_owned() } {
            gauges.eviction.take(asked_bytes(marks.len()));
        }
    }
}

fn held_by(marks: Shared<'_, [MaybeUninit<AtomicU8>]>) -> usize {
    if marks.is_null() { 0 } else { asked_bytes(slice(marks).len()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::Epochs;

    #[test]
    fn a_mark_tells_queue_reads_and_age() {
        for epoch in [0, 1, 30, 31, 32, 1000] {
            for main in [false, true] {
                let mark = Mark::new(main, epoch);
                assert_eq!((mark.is_main(), mark.reads(), mark.age(epoch + 7)), (main, 0, 7));
                let read = (0..9).fold(mark, |mark, _| mark.read());
                assert_eq!((read.is_main(), read.reads(), read.age(epoch)), (main, 3, 0));
                assert!(!read.is_going() && !read.was_going());
                assert!(read.going().is_going() && read.going().is_main() == main);
                assert!(!read.going().read().is_going() && read.going().read().was_going());
                assert_eq!(read.spared(epoch + 1).reads(), 2);
            }
        }
    }

    #[test]
    fn marks_grow_shrink_and_are_counted() {
        let gauges = Gauges::default();
        let mut marks = Marks::default();
        let epochs = Epochs::default();
        let guard = epochs.pin();
        marks.touch(0, &guard);
        for len in [1, 5, 150, 151, 149, 20, 0] {
            let new: Vec<Mark> = (0..len).map(|index| Mark::new(index % 2 == 0, index as u32)).collect();
            marks.set(&new, &gauges, &guard);
            let all = marks.all(&guard);
            assert!(all.len() >= len);
            assert!(all.iter().zip(&new).all(|(mark, new)| mark.load(Relaxed) == new.0));
            if len > 0 {
                marks.touch(len - 1, &guard);
                assert_eq!(Mark(all[len - 1].load(Relaxed)), new[len - 1].read());
            }
            assert!(gauges.eviction.held() as usize >= len);
        }
        marks.forget(&gauges, &guard);
        assert_eq!((marks.all(&guard).len(), gauges.eviction.held()), (0, 0));
        marks.set(&[Mark::default()], &gauges, &guard);
        marks.free(&gauges);
        assert_eq!(gauges.eviction.held(), 0);
    }
}
