//! The right answers of a trace: which value each key has that a request has written so far.
//!
//! Keys are not kept, so a trace may have more of them than memory has room for. A key is known by its hash, XXH3 in 64
//! bits: of a hundred million keys, two share one with a chance of 1 in 3,700. A value is a part of the corpus that
//! follows from the hash and the number of the write. One thread owns a key, so nobody writes while it reads.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::data::oracle::Live;
use crate::workload::permutation::mix64;

/// What a key is known by.
#[inline]
pub(crate) fn hash(key: &[u8]) -> u64 {
    // 0 stands for a slot without a key.
    xxh3_64(key).max(1)
}

/// The values of a trace.
#[derive(Debug, Clone)]
pub(crate) struct TraceValues(pub(crate) Arc<Vec<u8>>);

impl TraceValues {
    /// The value that a write has put.
    #[inline]
    pub(crate) fn slice(&self, hash: u64, entry: &Entry) -> &[u8] {
        let len = entry.value_bytes as usize;
        // Traces with longer values than the corpus are refused.
        let places = (self.0.len() - len + 1) as u128;
        let random = mix64(hash ^ u64::from(entry.writes) << 32);
        let start = ((u128::from(random) * places) >> 64) as usize;
        &self.0[start..start + len]
    }
}

/// What is known of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// How often it was written.
    pub(crate) writes: u32,
    /// Bytes of its value.
    pub(crate) value_bytes: u32,
    /// Whether it has a value.
    pub(crate) is_live: bool,
    /// Whether the last check has looked at it.
    pub(crate) is_checked: bool,
}

/// A key's entry in 16 bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    hash: u64,
    /// Of the entry: live, checked, and the number of writes.
    state: u32,
    value_bytes: u32,
}

const LIVE: u32 = 1 << 31;
const CHECKED: u32 = 1 << 30;
const WRITES: u32 = CHECKED - 1;

impl Slot {
    fn entry(&self) -> Entry {
        Entry {
            writes: self.state & WRITES,
            value_bytes: self.value_bytes,
            is_live: self.state & LIVE != 0,
            is_checked: self.state & CHECKED != 0,
        }
    }
}

/// The entries of the keys that one thread owns: a table with open addressing, of a power of two of slots.
#[derive(Debug)]
pub(crate) struct Ledger {
    slots: Vec<Slot>,
    used: usize,
    live: Live,
}

/// Bytes of an empty ledger, which are allocated before memory is measured.
const EMPTY_SLOTS: usize = 1 << 12;

impl Default for Ledger {
    fn default() -> Self {
        Ledger { slots: vec![Slot::default(); EMPTY_SLOTS], used: 0, live: Live::default() }
    }
}

impl Ledger {
    /// The keys that have a value.
    pub(crate) fn live(&self) -> Live {
        self.live
    }

    /// Bytes that were allocated since it was empty.
    pub(crate) fn grown_bytes(&self) -> u64 {
        ((self.slots.len() - EMPTY_SLOTS) * size_of::<Slot>()) as u64
    }

    /// The slot of a key, or the empty one where it belongs.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        // The low bits choose the thread.
        let mut at = (hash >> 16) as usize & mask;
        while self.slots[at].hash != hash && self.slots[at].hash != 0 {
            at = (at + 1) & mask;
        }
        at
    }

    /// What is known of a key.
    #[inline]
    pub(crate) fn entry(&self, hash: u64) -> Entry {
        self.slots[self.place(hash)].entry()
    }

    /// Enters what is known of a key from now on.
    pub(crate) fn set(&mut self, hash: u64, key_bytes: usize, entry: Entry) {
        let at = self.place(hash);
        let before = self.slots[at].entry();
        for (entry, sign) in [(before, u64::MAX), (entry, 1)] {
            if entry.is_live {
                let add = |sum: &mut u64, bytes: u64| *sum = sum.wrapping_add(bytes.wrapping_mul(sign));
                add(&mut self.live.keys, 1);
                add(&mut self.live.key_bytes, key_bytes as u64);
                add(&mut self.live.value_bytes, u64::from(entry.value_bytes));
            }
        }
        self.used += usize::from(self.slots[at].hash == 0);
        let flags = if entry.is_live { LIVE } else { 0 } | if entry.is_checked { CHECKED } else { 0 };
        let state = (entry.writes & WRITES) | flags;
        self.slots[at] = Slot { hash, state, value_bytes: entry.value_bytes };
        if self.used * 4 > self.slots.len() * 3 {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let twice = vec![Slot::default(); 2 * self.slots.len()];
        let old = std::mem::replace(&mut self.slots, twice);
        for slot in old.into_iter().filter(|slot| slot.hash != 0) {
            let at = self.place(slot.hash);
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_ledger_knows_what_a_map_knows() {
        let (mut ledger, mut model) = (Ledger::default(), HashMap::new());
        let key = |number: u64| format!("key {}", mix64(number) % 20_000);
        for number in 0..60_000 {
            let key = key(number);
            let before = ledger.entry(hash(key.as_bytes()));
            assert_eq!(before, model.get(&key).copied().unwrap_or_default());
            let entry = Entry {
                writes: before.writes + 1,
                value_bytes: number as u32,
                is_live: number % 3 != 0,
                is_checked: number % 5 == 0,
            };
            ledger.set(hash(key.as_bytes()), key.len(), entry);
            model.insert(key, entry);
        }
        let live =
            model.iter().filter(|(_, entry)| entry.is_live).fold(Live::default(), |sum, (key, entry)| {
                let value_bytes = u64::from(entry.value_bytes);
                sum.plus(Live { keys: 1, key_bytes: key.len() as u64, value_bytes })
            });
        assert_eq!(ledger.live(), live);
        assert_eq!(ledger.grown_bytes(), (32_768 - 4_096) * 16);
    }

    #[test]
    fn each_write_of_a_key_has_another_value() {
        let corpus: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let values = TraceValues(Arc::new(corpus));
        let entry = |writes, value_bytes| Entry { writes, value_bytes, is_live: true, is_checked: false };
        let different = |all: Vec<&[u8]>| all.iter().collect::<std::collections::HashSet<_>>().len();
        let (one, other) = (hash(b"one"), hash(b"other"));
        assert!(different((0..100).map(|writes| values.slice(one, &entry(writes, 8))).collect()) > 98);
        assert!(different([one, other].map(|key| values.slice(key, &entry(1, 8))).to_vec()) == 2);
        assert_eq!(values.slice(one, &entry(1, 400_000)).len(), 400_000);
    }
}
