//! Holds stored blocks that are not yet written: a segment that is filled in memory, and chunks of it that wait for the
//! writer.

use super::format::{self, PAGE_BYTES};
use super::index::Place;
use super::slots::Slot;
use std::collections::VecDeque;
use std::sync::Arc;
use ziptier_media::aligned::AlignedBytes;

/// Bytes of a usual write.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// Pages that go to one place of a segment.
pub(super) struct Chunk {
    pub(super) slot: u32,
    pub(super) start: usize,
    bytes: AlignedBytes,
    filled: usize,
}

impl Chunk {
    /// Its bytes, with zeros up to a page.
    pub(super) fn pages(&self) -> &[u8] {
        &self.bytes[..self.filled.next_multiple_of(PAGE_BYTES)]
    }

    pub(super) fn end(&self) -> usize {
        self.start + self.filled.next_multiple_of(PAGE_BYTES)
    }

    fn get(&self, place: Place) -> Option<&[u8]> {
        let start = place.offset().checked_sub(self.start).filter(|_| place.slot() == self.slot)?;
        self.bytes[..self.filled].get(start..start + place.bytes())
    }
}

/// The end of the log.
pub(super) struct Tail {
    segment_bytes: usize,
    limit_bytes: usize,
    open: Option<Chunk>,
    sealed: VecDeque<Arc<Chunk>>,
    sealed_bytes: usize,
    /// A segment that was begun as the successor of the open one.
    pub(super) ready: Option<u32>,
    /// Whether slots are left that were never used.
    pub(super) is_growing: bool,
    pub(super) is_stopping: bool,
    pub(super) has_failed: bool,
}

impl Tail {
    pub(super) fn new(segment_bytes: usize, limit_bytes: usize) -> Tail {
        Tail {
            segment_bytes,
            limit_bytes,
            open: None,
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            ready: None,
            is_growing: false,
            is_stopping: false,
            has_failed: false,
        }
    }

    /// Continues a segment behind its written bytes.
    pub(super) fn resume(&mut self, slot: u32, start: usize) {
        let start = start.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        if start < self.segment_bytes {
            self.open = self.chunk(slot, start, 0);
        }
    }

    /// An empty chunk with room for an entry; `None` if the allocator refuses the memory.
    fn chunk(&self, slot: u32, start: usize, entry_bytes: usize) -> Option<Chunk> {
        let usual = CHUNK_BYTES.min(self.segment_bytes / 4).max(entry_bytes);
        let bytes = usual.next_multiple_of(PAGE_BYTES).min(self.segment_bytes - start);
        Some(Chunk { slot, start, bytes: AlignedBytes::try_zeroed(bytes)?, filled: 0 })
    }

    /// Places an entry and seals it; `None` if there is no room now.
    pub(super) fn append(&mut self, slots: &[Slot], entry: &mut [u8]) -> Option<Place> {
        if self.has_failed || !self.make_room(entry.len()) {
            return None;
        }
        let open = self.open.as_mut()?;
        let offset = open.start + open.filled;
        format::seal(entry, slots[open.slot as usize].salt(), offset);
        open.bytes[open.filled..open.filled + entry.len()].copy_from_slice(entry);
        open.filled += entry.len();
        Some(Place::new(open.slot, offset, entry.len()))
    }

    fn make_room(&mut self, bytes: usize) -> bool {
        if self.open.as_ref().is_some_and(|open| open.filled + bytes <= open.bytes.len()) {
            return true;
        }
        if self.sealed_bytes + bytes.max(CHUNK_BYTES) > self.limit_bytes {
            return false;
        }
        let next = self.open.as_ref().map(|open| (open.slot, open.end()));
        let place = match next {
            Some((slot, end)) if end + bytes <= self.segment_bytes => Some((slot, end)),
            _ => {
                self.ready.filter(|_| PAGE_BYTES + bytes <= self.segment_bytes).map(|slot| (slot, PAGE_BYTES))
            }
        };
        let Some((slot, start)) = place else { return false };
        let Some(chunk) = self.chunk(slot, start, bytes) else { return false };
        if self.ready == Some(slot) {
            self.ready = None;
        }
        self.seal();
        self.open = Some(chunk);
        true
    }

    /// Hands the bytes in memory to the writer.
    fn seal(&mut self) {
        if let Some(chunk) = self.open.take_if(|open| open.filled > 0) {
            self.sealed_bytes += chunk.pages().len();
            self.sealed.push_back(Arc::new(chunk));
        }
    }

    /// [`Tail::seal`], and goes on behind it.
    pub(super) fn flush(&mut self) {
        let Some((slot, end)) = self.open.as_ref().map(|open| (open.slot, open.end())) else { return };
        self.seal();
        if self.open.is_none() {
            self.resume(slot, end);
        }
    }

    /// The chunk that is to be written next. It can be read until it is [taken away](Tail::written).
    pub(super) fn next(&self) -> Option<Arc<Chunk>> {
        self.sealed.front().cloned()
    }

    pub(super) fn written(&mut self) {
        if let Some(chunk) = self.sealed.pop_front() {
            self.sealed_bytes -= chunk.pages().len();
        }
    }

    /// Whether another segment should be begun: at once if that costs no entry, otherwise when the open one is three
    /// quarters full.
    pub(super) fn wants_segment(&self) -> bool {
        let is_far =
            self.open.as_ref().is_some_and(|open| open.start + open.filled < self.segment_bytes / 4 * 3);
        !self.has_failed && !self.is_stopping && self.ready.is_none() && (self.is_growing || !is_far)
    }

    /// Whether anything of a segment waits to be written.
    pub(super) fn holds(&self, slot: u32) -> bool {
        self.open.as_ref().is_some_and(|open| open.slot == slot)
            || self.ready == Some(slot)
            || self.sealed.iter().any(|chunk| chunk.slot == slot)
    }

    /// Bytes in memory that are not written.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.sealed_bytes + self.open.as_ref().map_or(0, |open| open.filled)
    }

    /// An entry that was not written yet.
    pub(super) fn get(&self, place: Place) -> Option<&[u8]> {
        let sealed = || self.sealed.iter().find_map(|chunk| chunk.get(place));
        self.open.as_ref().and_then(|open| open.get(place)).or_else(sealed)
    }

    /// Refuses further entries, and drops waiting ones.
    pub(super) fn fail(&mut self) {
        self.has_failed = true;
        self.sealed.clear();
        self.sealed_bytes = 0;
        self.open = None;
        self.ready = None;
    }
}
