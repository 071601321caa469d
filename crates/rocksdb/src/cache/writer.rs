//! The thread that writes: chunks as they are sealed, and the next segment before it is needed.

use super::format::Entry;
use super::index::Place;
use super::tail::Tail;
use super::{Shared, hash_of, try_copied};
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use ziptier_media::aligned::AlignedBytes;
use ziptier_media::disk::DiskError;

/// Stored blocks are written after this time at the latest.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    shared: Arc<Shared>,
    /// Segments in use, the oldest first.
    order: VecDeque<u32>,
    /// Slots that were never used.
    fresh: Vec<u32>,
    sequence: u64,
}

/// The hash of a key, and the entry.
type Kept = (u64, Vec<u8>);

enum Work {
    Begin,
    Write,
    Wait,
    Stop,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, order: VecDeque<u32>, sequence: u64) -> Writer {
        let mut fresh: Vec<u32> =
            (0..shared.slots.len() as u32).filter(|slot| !order.contains(slot)).collect();
        fresh.reverse();
        shared.tail().is_growing = !fresh.is_empty();
        Writer { shared, order, fresh, sequence }
    }

    /// Begins a segment if one is wanted, so that the first block finds room.
    pub(super) fn prepare(&mut self) {
        let tail = self.shared.tail();
        if let Work::Begin = self.work(&tail) {
            drop(tail);
            if let Err(error) = self.begin() {
                self.shared.fail(&error);
            }
        }
    }

    pub(super) fn run(&mut self) {
        loop {
            let tail = self.shared.tail();
            let done = match self.work(&tail) {
                Work::Stop => return,
                Work::Wait => {
                    self.wait(tail);
                    Ok(())
                }
                Work::Begin => {
                    drop(tail);
                    self.begin()
                }
                Work::Write => {
                    drop(tail);
                    self.write_next()
                }
            };
            if let Err(error) = done {
                self.shared.fail(&error);
            }
        }
    }

    fn work(&self, tail: &Tail) -> Work {
        let has_work = tail.next().is_some();
        let can_begin =
            !self.fresh.is_empty() || self.order.front().is_some_and(|&oldest| !tail.holds(oldest));
        if tail.is_stopping && !has_work {
            Work::Stop
        } else if tail.wants_segment() && can_begin {
            Work::Begin
        } else if has_work {
            Work::Write
        } else {
            Work::Wait
        }
    }

    fn wait(&self, tail: MutexGuard<'_, Tail>) {
        let waited = self.shared.wake.wait_timeout(tail, FLUSH_AFTER);
        let (mut tail, result) = waited.unwrap_or_else(PoisonError::into_inner);
        if result.timed_out() {
            tail.flush();
        }
    }

    fn write_next(&self) -> Result<(), DiskError> {
        let Some(chunk) = self.shared.tail().next() else { return Ok(()) };
        let slot = &self.shared.slots[chunk.slot as usize];
        slot.write(chunk.start, chunk.pages())?;
        slot.set_written(chunk.end());
        let mut tail = self.shared.tail();
        tail.written();
        self.shared.counters.written_bytes.add(chunk.pages().len() as u64);
        self.shared.counters.buffered_bytes.set(tail.buffered_bytes());
        drop(tail);
        self.shared.idle.notify_all();
        Ok(())
    }

    /// Begins the next segment: a new file while there is room for one, then the oldest again.
    fn begin(&mut self) -> Result<(), DiskError> {
        // A file may claim the last number. Segments of equal age do no harm.
        self.sequence = self.sequence.saturating_add(1);
        if let Some(slot) = self.fresh.pop() {
            match self.shared.folder.begin(&self.shared.slots, slot, self.sequence) {
                Ok(()) => {
                    self.offer(slot, VecDeque::new());
                    return Ok(());
                }
                // On a full disk the cache stays smaller, if it has at least two segments.
                Err(DiskError::Full { .. }) if self.order.len() >= 2 => self.fresh.clear(),
                Err(error) => return Err(error),
            }
        }
        let Some(slot) = self.order.pop_front() else { return Ok(()) };
        if self.shared.tail().holds(slot) {
            self.order.push_front(slot);
            return Ok(());
        }
        let kept = self.read_kept(&self.shared.index.evict(slot));
        self.shared.folder.begin(&self.shared.slots, slot, self.sequence)?;
        let rest = self.offer(slot, kept);
        self.move_on(rest)
    }

    /// Offers a segment to all threads, and appends entries before another thread can fill the segment. Returns the
    /// entries that the buffer had no room for.
    fn offer(&mut self, slot: u32, mut kept: VecDeque<Kept>) -> VecDeque<Kept> {
        self.order.push_back(slot);
        let mut tail = self.shared.tail();
        tail.ready = Some(slot);
        tail.is_growing = !self.fresh.is_empty();
        while let Some((hash, entry)) = kept.front_mut() {
            if !self.shared.append_to(&mut tail, *hash, entry) {
                break;
            }
            self.shared.counters.kept.one();
            kept.pop_front();
        }
        kept
    }

    /// Entries of the segment that comes to its end, half of it at most, the youngest first.
    fn read_kept(&self, places: &[Place]) -> VecDeque<Kept> {
        let mut places = places.to_vec();
        places.sort_by_key(|place| std::cmp::Reverse(place.offset()));
        let (mut pages, mut room, mut kept) =
            (AlignedBytes::zeroed(0), self.shared.folder.segment_bytes / 2, VecDeque::new());
        for place in places {
            let slot = &self.shared.slots[place.slot() as usize];
            let Some(rest) = room.checked_sub(place.bytes()) else { break };
            let Ok(bytes) = slot.read(place.offset(), place.bytes(), &mut pages) else { continue };
            if let Some((entry, _)) = Entry::decode(bytes, slot.salt(), place.offset()) {
                let Some(copied) = try_copied(bytes) else { break };
                kept.push_back((hash_of(entry.key), copied));
                room = rest;
            } else {
                self.shared.counters.damaged.one();
            }
        }
        kept
    }

    /// Appends entries anew, and writes whatever that needs.
    fn move_on(&self, kept: VecDeque<Kept>) -> Result<(), DiskError> {
        for (hash, mut entry) in kept {
            while !self.shared.append(hash, &mut entry) {
                if self.shared.tail().next().is_none() {
                    return Ok(());
                }
                self.write_next()?;
            }
            self.shared.counters.kept.one();
        }
        Ok(())
    }
}
