//! The places of all entries. Key and place take 12 bytes in a table that is 70 to 88 % full, so 14 to 17 bytes per
//! entry.
//!
//! The index identifies a key by 38 bits of its hash. If two keys share them, the later entry replaces the earlier,
//! which is no longer found. A reader of an entry compares the stored key.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tables with a lock of their own.
const SHARDS: usize = 64;

/// Offsets and lengths of entries are multiples of this.
pub(super) const UNIT_BYTES: usize = 16;

/// The longest segment: an offset has 24 bits.
pub(super) const SEGMENT_BYTES_MAX: u64 = UNIT_BYTES as u64 * (1 << 24);

/// The most segments: the number has 16 bits, and the last one stands for no place.
pub(super) const SLOTS_MAX: u64 = 0xffff;

const EMPTY: u64 = u64::MAX;
const READ: u64 = 1;

/// The place of an entry: segment, offset and length, and whether the entry was read there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    pub(super) fn new(slot: u32, offset: usize, bytes: usize) -> Place {
        let (offset, units) = ((offset / UNIT_BYTES) as u64, (bytes / UNIT_BYTES) as u64);
        debug_assert!(u64::from(slot) < SLOTS_MAX && offset < 1 << 24 && units < 1 << 23);
        Place(u64::from(slot) << 48 | offset << 24 | units << 1)
    }

    /// From bits that were read from a file; `None` for those that stand for no place.
    pub(super) fn from_bits(bits: u64) -> Option<Place> {
        (bits >> 48 < SLOTS_MAX).then_some(Place(bits & !READ))
    }

    pub(super) fn slot(self) -> u32 {
        (self.0 >> 48) as u32
    }

    pub(super) fn offset(self) -> usize {
        (self.0 >> 24 & 0xff_ffff) as usize * UNIT_BYTES
    }

    pub(super) fn bytes(self) -> usize {
        (self.0 >> 1 & 0x7f_ffff) as usize * UNIT_BYTES
    }

    pub(super) fn end(self) -> usize {
        self.offset() + self.bytes()
    }

    fn was_read(self) -> bool {
        self.0 & READ != 0
    }

    fn without_mark(self) -> Place {
        Place(self.0 & !READ)
    }
}

/// Places by the hash of their key.
pub(super) struct Index {
    shards: Vec<Mutex<Table>>,
}

impl Index {
    pub(super) fn new() -> Index {
        Index { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Table> {
        lock(&self.shards[(hash >> 58) as usize])
    }

    /// The place of a key's entry. Marks the entry as read.
    pub(super) fn get(&self, hash: u64) -> Option<Place> {
        let mut table = self.shard(hash);
        let at = table.find(hash as u32)?;
        table.places[at] |= READ;
        Some(Place(table.places[at]).without_mark())
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.shard(hash).find(hash as u32).is_some()
    }

    /// Enters a key's entry. Without memory for that, the entry is not found.
    pub(super) fn put(&self, hash: u64, place: Place) {
        self.shard(hash).put(hash as u32, place.0);
    }

    pub(super) fn remove(&self, hash: u64) -> bool {
        let mut table = self.shard(hash);
        let found = table.find(hash as u32);
        found.inspect(|&at| table.remove_at(at)).is_some()
    }

    /// Removes the key's entry if it still lies at `place`, and returns whether it did.
    pub(super) fn remove_at(&self, hash: u64, place: Place) -> bool {
        let mut table = self.shard(hash);
        let found = table.find(hash as u32).filter(|&at| Place(table.places[at]).without_mark() == place);
        found.inspect(|&at| table.remove_at(at)).is_some()
    }

    /// Forgets every entry of a segment, and returns the places of entries that were read there.
    pub(super) fn evict(&self, slot: u32) -> Vec<Place> {
        let mut read = Vec::new();
        for shard in &self.shards {
            lock(shard).evict(slot, &mut read);
        }
        read.iter().map(|place| place.without_mark()).collect()
    }

    pub(super) fn clear(&self) {
        self.shards.iter().for_each(|shard| *lock(shard) = Table::default());
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len).sum()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).tags.capacity() * 12).sum()
    }

    /// Number of tables, for writing them one by one.
    pub(super) const TABLES: usize = SHARDS;

    /// Tags and places of one table.
    pub(super) fn entries(&self, table: usize) -> Vec<(u32, u64)> {
        let table = lock(&self.shards[table]);
        let pairs = table.tags.iter().copied().zip(table.places.iter().copied());
        pairs.filter(|&(_, place)| place != EMPTY).collect()
    }

    /// Puts what [`Index::entries`] gave back into a table.
    pub(super) fn restore(&self, table: usize, tag: u32, place: Place) {
        lock(&self.shards[table]).put(tag, place.0);
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Open addressing with linear probing. A tag's home follows from the tag, so that entries can move when others go.
#[derive(Default)]
struct Table {
    tags: Vec<u32>,
    places: Vec<u64>,
    len: usize,
}

impl Table {
    /// An empty table; `None` if the allocator refuses the memory.
    fn try_sized(capacity: usize) -> Option<Table> {
        let (mut tags, mut places) = (Vec::new(), Vec::new());
        tags.try_reserve_exact(capacity).ok()?;
        places.try_reserve_exact(capacity).ok()?;
        tags.resize(capacity, 0);
        places.resize(capacity, EMPTY);
        Some(Table { tags, places, len: 0 })
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.tags.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.tags.len() { 0 } else { at + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.tags.len() - from }
    }

    fn find(&self, tag: u32) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut at = self.home(tag);
        while self.places[at] != EMPTY {
            if self.tags[at] == tag {
                return Some(at);
            }
            at = self.after(at);
        }
        None
    }

    /// Enters an entry, unless the table is full and cannot grow: then the entry is not found.
    fn put(&mut self, tag: u32, place: u64) {
        if (self.len + 1) * 8 > self.tags.len() * 7 && !self.grow() {
            return;
        }
        let mut at = self.home(tag);
        while self.places[at] != EMPTY && self.tags[at] != tag {
            at = self.after(at);
        }
        self.len += usize::from(self.places[at] == EMPTY);
        (self.tags[at], self.places[at]) = (tag, place);
    }

    /// Closes the gap, so that no search ends early.
    fn remove_at(&mut self, at: usize) {
        let (mut hole, mut next) = (at, self.after(at));
        while self.places[next] != EMPTY {
            if self.distance(self.home(self.tags[next]), next) >= self.distance(hole, next) {
                (self.tags[hole], self.places[hole]) = (self.tags[next], self.places[next]);
                hole = next;
            }
            next = self.after(next);
        }
        self.places[hole] = EMPTY;
        self.len -= 1;
    }

    fn evict(&mut self, slot: u32, read: &mut Vec<Place>) {
        let of_slot = |place: u64| place >> 48 == u64::from(slot);
        read.extend(
            self.places
                .iter()
                .map(|&place| Place(place))
                .filter(|place| of_slot(place.0) && place.was_read()),
        );
        for at in 0..self.places.len() {
            // A removal may move a later entry here.
            while of_slot(self.places[at]) {
                self.remove_at(at);
            }
        }
    }

    /// Moves all entries to a larger table; false if the allocator refuses the memory.
    fn grow(&mut self) -> bool {
        let capacity = (self.tags.len() + self.tags.len() / 4).max(16);
        let Some(larger) = Table::try_sized(capacity) else { return false };
        let old = std::mem::replace(self, larger);
        for (tag, place) in old.tags.into_iter().zip(old.places) {
            if place != EMPTY {
                self.put(tag, place);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn hash(i: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes())
    }

    #[test]
    fn places_keep_what_they_are_made_of() {
        let place = Place::new(0xfffe, (1 << 28) - 16, (1 << 27) - 16);
        assert_eq!((place.slot(), place.offset(), place.bytes()), (0xfffe, (1 << 28) - 16, (1 << 27) - 16));
        assert_eq!(Place::from_bits(place.0), Some(place));
        assert_eq!(Place::from_bits(u64::MAX), None);
    }

    #[test]
    fn behaves_like_a_map() {
        let (index, mut model) = (Index::new(), HashMap::new());
        for i in 0..60_000_u64 {
            let (key, other) = (hash(i % 20_000), hash(i * 7919 % 25_000));
            let place = Place::new((i % 50) as u32, (i % 1000) as usize * 16, 64);
            index.put(key, place);
            model.insert(key, place);
            assert_eq!(index.remove(other), model.remove(&other).is_some());
            if i % 5000 == 4999 {
                let read = index.evict(3);
                assert!(read.iter().all(|place| place.slot() == 3));
                model.retain(|_, place| place.slot() != 3);
            }
        }
        assert_eq!(index.len(), model.len());
        for (&key, &place) in &model {
            assert_eq!(index.get(key), Some(place));
        }
        assert!(model.iter().all(|(&key, &place)| index.remove_at(key, place)));
        assert_eq!(index.len(), 0);
    }

    #[test]
    fn an_entry_takes_at_most_eighteen_bytes() {
        let index = Index::new();
        for i in 0..100_000 {
            index.put(hash(i), Place::new(1, 0, 16));
        }
        let bytes = index.memory_bytes() as f64 / index.len() as f64;
        assert!((13.0..18.0).contains(&bytes), "{bytes}");
    }

    #[test]
    fn evicting_tells_what_was_read() {
        let index = Index::new();
        for i in 0..100 {
            index.put(hash(i), Place::new((i % 2) as u32, i as usize * 16, 16));
        }
        assert_eq!(index.get(hash(4)), Some(Place::new(0, 64, 16)));
        assert_eq!(index.evict(0), [Place::new(0, 64, 16)]);
        assert_eq!(index.len(), 50);
        assert!(index.evict(1).is_empty());
    }
}
