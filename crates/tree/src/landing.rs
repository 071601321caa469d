//! A leaf's landing: a small append-only buffer of the newest writes.
//!
//! Not for settled records, which lie in the body.
//!
//! 1. One writer at a time, the holder of the leaf's writer lock, appends a record and publishes it by raising a count.
//! 2. Readers load the count and look at published records only, newest first, without any lock.
//!
//! ```text
//! slots grow up ──►                                  ◄── records grow down
//! ┌────────┬────────┬────────┬──────────────┬──────────┬──────────┬──────────┐
//! │ slot 0 │ slot 1 │ slot 2 │     free     │ record 2 │ record 1 │ record 0 │
//! └────────┴────────┴────────┴──────────────┴──────────┴──────────┴──────────┘
//! slot: u32 offset of the record, u32 high half of the key's hash
//! record: tag u8, key length varint, value length varint, optional fields, key, value
//! ```

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::commits::Commits;
use crate::large::LargeHandle;
use crate::memory::{Gauges, allocated_bytes, arc_bytes, prefetch};
use crate::numbers::{array, read_varint, write_varint};
use crate::record::{Fields, Found, Kind, Lookup, Payload, Tag};
use crate::sync::interleave;

const SLOT_BYTES: usize = 8;
/// Bytes below the last record that are asked for ahead of the next one.
const PREFETCHED_BYTES: usize = 192;
/// The half of a hash that a slot keeps: the one that a body's fingerprint is part of.
const HASH_MASK: u64 = 0xffff_ffff_0000_0000;

#[cfg(any(test, all(feature = "testing", debug_assertions)))]
std::thread_local! {
    /// Slots that this thread has compared in search of keys.
    pub static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Append-only buffer of records. See the module.
pub struct Landing {
    /// Records that readers may look at.
    published: AtomicU32,
    /// Start of the lowest record: written by the writer only; others take it for advice.
    floor: AtomicU32,
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: `bytes` below the published slots and above `floor` are written once, before the release store of
// `published`, and never again; readers touch only those, after an acquire load. The rest is touched only by the
// one writer that holds the leaf's lock.
unsafe impl Sync for Landing {}

/// A record of a landing.
#[derive(Clone, Copy)]
pub struct LandingRecord<'a> {
    /// Its kind, and which optional fields it has.
    pub tag: Tag,
    /// Its optional fields.
    pub fields: Fields,
    /// Its key.
    pub key: &'a [u8],
    /// The bytes that the kind asks for: a value, a large value's reference, or nothing.
    pub value: &'a [u8],
}

/// Scratch in which a record is laid out before it is appended.
#[derive(Default)]
pub struct RecordBytes(Vec<u8>);

impl RecordBytes {
    /// Lays out a record; `value` is what the kind asks for (bytes, or a large value's reference, or nothing).
    pub fn lay_out(&mut self, kind: Kind, fields: &Fields, key: &[u8], value: &[u8]) {
        self.0.clear();
        self.0.push(Tag::new(kind, fields).0);
        write_varint(key.len() as u32, &mut self.0);
        write_varint(value.len() as u32, &mut self.0);
        fields.write(&mut self.0);
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value);
    }

    /// The record.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Bytes of landing that the record needs.
    pub fn landing_bytes(&self) -> usize {
        self.0.len() + SLOT_BYTES
    }
}

impl Landing {
    /// An empty landing of `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        let capacity = allocated_bytes(capacity.max(64));
        let bytes: Box<[u8]> = vec![0; capacity].into_boxed_slice();
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`, so the same allocation serves.
        let bytes = unsafe { Box::from_raw(Box::into_raw(bytes) as *mut [UnsafeCell<u8>]) };
        let floor = u32::try_from(capacity).expect("a batch that would outgrow a landing is refused");
        Self { published: AtomicU32::new(0), floor: AtomicU32::new(floor), bytes }
    }

    /// Bytes the allocator holds for an `Arc` of this landing.
    pub(crate) fn held_bytes(&self) -> usize {
        arc_bytes(size_of::<Self>()) + self.bytes.len()
    }

    /// Counts this landing in (or out).
    pub(crate) fn count(&self, gauges: &Gauges, add: bool) {
        for bytes in [size_of::<Self>() + 16, self.bytes.len()] {
            if add { gauges.landing.add(bytes) } else { gauges.landing.take(bytes) }
        }
    }

    /// Published records.
    #[inline]
    pub fn len(&self) -> usize {
        self.published.load(Ordering::Acquire) as usize
    }

    /// Whether a record changes the expiry of another one.
    pub(crate) fn touches(&self) -> bool {
        (0..self.len()).any(|index| self.record(index).tag.kind() == Kind::Touch)
    }

    /// Whether no record is published.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it has for slots and records, free or in use.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of slots and records.
    pub fn used_bytes(&self) -> usize {
        self.len() * SLOT_BYTES + self.bytes.len() - self.floor.load(Ordering::Relaxed) as usize
    }

    /// Asks for the memory that the next record goes to.
    pub(crate) fn prefetch_end(&self) {
        let base = self.bytes.as_ptr().addr();
        let floor = self.floor.load(Ordering::Relaxed) as usize;
        let slot = self.published.load(Ordering::Relaxed) as usize * SLOT_BYTES;
        prefetch(base + slot, SLOT_BYTES);
        prefetch(base + floor.saturating_sub(PREFETCHED_BYTES), PREFETCHED_BYTES);
    }

    /// Whether the record fits. The caller holds the leaf's writer lock.
    pub(crate) fn fits(&self, record: &RecordBytes) -> bool {
        let slot = self.published.load(Ordering::Relaxed) as usize * SLOT_BYTES;
        self.floor.load(Ordering::Relaxed) as usize - slot >= record.landing_bytes()
    }

    /// Appends a record and publishes it; `false` when it does not fit. The caller holds the leaf's writer lock.
    pub fn append(&self, record: &RecordBytes, hash: u64) -> bool {
        let count = self.published.load(Ordering::Relaxed);
        let floor = self.floor.load(Ordering::Relaxed) as usize;
        let slot = count as usize * SLOT_BYTES;
        if !self.fits(record) {
            return false;
        }
        let at = floor - record.0.len();
        let header = u64::from(at as u32) | hash & HASH_MASK;
        // SAFETY: `slot + SLOT_BYTES <= at` and `at + record <= floor <= capacity` by the check above, so both
        // ranges lie in `bytes`, apart from each other and from everything published; only this writer, under
        // the leaf's lock, touches unpublished bytes.
        unsafe {
            let base = self.bytes.as_ptr() as *mut u8;
            base.add(at).copy_from_nonoverlapping(record.0.as_ptr(), record.0.len());
            base.add(slot).copy_from_nonoverlapping(header.to_le_bytes().as_ptr(), SLOT_BYTES);
        }
        self.floor.store(at as u32, Ordering::Relaxed);
        interleave();
        self.published.store(count + 1, Ordering::Release);
        true
    }

    /// A landing of at least `capacity` bytes with the same records, in the same order. The caller holds the
    /// leaf's writer lock.
    pub(crate) fn grown(&self, capacity: usize) -> Self {
        let larger = Self::new(capacity.max(self.bytes.len()));
        let mut record = RecordBytes::default();
        for index in 0..self.len() {
            record.0.clear();
            record.0.extend_from_slice(self.record_bytes(index));
            let fits = larger.append(&record, self.hash(index));
            assert!(fits, "a larger landing holds what a smaller one held");
        }
        larger
    }

    /// The newest value of `key` among published records; `below` answers for what lies under this landing.
    #[inline]
    pub fn find<'a>(
        &'a self,
        key: &[u8],
        hash: u64,
        commits: &Commits,
        below: impl FnOnce() -> Lookup<'a>,
    ) -> Lookup<'a> {
        let mut touched: Option<Option<u64>> = None;
        for index in (0..self.len()).rev() {
            #[cfg(any(test, all(feature = "testing", debug_assertions)))]
            STEPS.set(STEPS.get() + 1);
            if self.slot(index).1 != hash & HASH_MASK {
                continue;
            }
            let record = self.record(index);
            if record.key != key || record.fields.batch.is_some_and(|number| !commits.has(number)) {
                continue;
            }
            match record.tag.kind() {
                Kind::Tombstone => return Lookup::Deleted,
                Kind::Touch => touched = touched.or(Some(record.fields.expires_at_ms)),
                _ => {
                    let found = Found {
                        payload: record.payload(),
                        expires_at_ms: touched.unwrap_or(record.fields.expires_at_ms),
                        flags: record.fields.flags,
                    };
                    return Lookup::Found(found);
                }
            }
        }
        match (below(), touched) {
            (Lookup::Found(found), Some(expires_at_ms)) => Lookup::Found(Found { expires_at_ms, ..found }),
            (lookup, _) => lookup,
        }
    }

    /// Record `index` in order of writing.
    pub fn record(&self, index: usize) -> LandingRecord<'_> {
        let bytes = self.record_bytes_from(index);
        let tag = Tag(bytes[0]);
        let (key_len, bytes) = read_varint(&bytes[1..]);
        let (value_len, bytes) = read_varint(bytes);
        let (fields, bytes) = Fields::read(tag, bytes);
        let (key, bytes) = bytes.split_at(key_len as usize);
        LandingRecord { tag, fields, key, value: &bytes[..value_len as usize] }
    }

    /// The high half of the hash of record `index`'s key.
    pub(crate) fn hash(&self, index: usize) -> u64 {
        self.slot(index).1
    }

    #[inline]
    fn slot(&self, index: usize) -> (u32, u64) {
        assert!(index < self.len(), "only published records are read");
        // SAFETY: the slot is published, so it is written, immutable and in bounds.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.bytes.as_ptr().add(index * SLOT_BYTES) as *const u8, SLOT_BYTES)
        };
        let header = u64::from_le_bytes(array(bytes));
        (header as u32, header & HASH_MASK)
    }

    #[inline]
    fn record_bytes_from(&self, index: usize) -> &[u8] {
        let at = self.slot(index).0 as usize;
        assert!(at <= self.bytes.len(), "a slot points into its landing");
        // SAFETY: `at` is in bounds, and everything from a published record upwards is published and immutable.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().add(at) as *const u8, self.bytes.len() - at) }
    }

    fn record_bytes(&self, index: usize) -> &[u8] {
        let end = if index == 0 { self.bytes.len() } else { self.slot(index - 1).0 as usize };
        let bytes = self.record_bytes_from(index);
        &bytes[..end - self.slot(index).0 as usize]
    }
}

impl<'a> LandingRecord<'a> {
    fn payload(&self) -> Payload<'a> {
        match self.tag.kind() {
            // SAFETY: a record of this kind holds a reference that it owns until a merge releases it, and a merge
            // releases it only after the last reader of this landing is gone.
            Kind::Large => Payload::Large(unsafe { LargeHandle::borrow(self.value) }),
            _ => Payload::Raw(self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::key_hash;

    fn append(landing: &Landing, kind: Kind, fields: Fields, key: &[u8], value: &[u8]) -> bool {
        let mut record = RecordBytes::default();
        record.lay_out(kind, &fields, key, value);
        landing.append(&record, key_hash(key))
    }

    fn find<'a>(landing: &'a Landing, key: &[u8], committed: u64) -> Option<(&'a [u8], Option<u64>)> {
        match landing.find(key, key_hash(key), &Commits::all_up_to(committed), || Lookup::Absent) {
            Lookup::Found(Found { payload: Payload::Raw(value), expires_at_ms, .. }) => {
                Some((value, expires_at_ms))
            }
            _ => None,
        }
    }

    #[test]
    fn the_newest_record_wins_until_the_landing_is_full() {
        let landing = Landing::new(256);
        let mut written = 0u64;
        while append(&landing, Kind::Raw, Fields::default(), b"key", &written.to_le_bytes()) {
            written += 1;
            assert_eq!(find(&landing, b"key", 0).unwrap().0, (written - 1).to_le_bytes());
            assert!(find(&landing, b"kez", 0).is_none());
        }
        assert!(written > 5);
        let one = landing.used_bytes() / landing.len();
        assert!(landing.used_bytes() <= 256 && landing.used_bytes() + one > 256);
        let larger = landing.grown(1024);
        assert_eq!(larger.len(), landing.len());
        assert_eq!(find(&larger, b"key", 0).unwrap().0, (written - 1).to_le_bytes());
        assert!(append(&larger, Kind::Tombstone, Fields::default(), b"key", b""));
        assert!(find(&larger, b"key", 0).is_none());
    }

    #[test]
    fn a_touch_changes_the_expiry_of_what_lies_below() {
        let landing = Landing::new(512);
        let touch = Fields { expires_at_ms: Some(77), ..Fields::default() };
        append(&landing, Kind::Raw, Fields::default(), b"key", b"value");
        append(&landing, Kind::Touch, touch, b"key", b"");
        assert_eq!(find(&landing, b"key", 0), Some((&b"value"[..], Some(77))));
        append(&landing, Kind::Touch, Fields::default(), b"key", b"");
        assert_eq!(find(&landing, b"key", 0), Some((&b"value"[..], None)));
    }

    #[test]
    fn records_of_a_batch_exist_once_it_is_committed() {
        let landing = Landing::new(512);
        append(&landing, Kind::Raw, Fields::default(), b"key", b"old");
        append(&landing, Kind::Raw, Fields { batch: Some(3), ..Fields::default() }, b"key", b"new");
        assert_eq!(find(&landing, b"key", 2).unwrap().0, b"old");
        assert_eq!(find(&landing, b"key", 3).unwrap().0, b"new");
    }

    #[test]
    fn readers_beside_a_writer_see_whole_records() {
        let landing = Landing::new(2048);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0u8..40 {
                    append(&landing, Kind::Raw, Fields::default(), b"key", &[round; 24]);
                }
            });
            scope.spawn(|| {
                let mut last = 0;
                while last < 20 {
                    if let Some((value, _)) = find(&landing, b"key", 0) {
                        assert!(value.len() == 24 && value.iter().all(|byte| *byte == value[0]));
                        assert!(value[0] >= last);
                        last = value[0];
                    }
                    std::thread::yield_now();
                }
            });
        });
    }
}
