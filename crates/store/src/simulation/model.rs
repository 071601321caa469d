//! What the store must answer, and what may be lost.

use std::collections::{BTreeMap, VecDeque};

use ziptier_media::log::Lsn;
use ziptier_tree::record::Meta;

/// The newest value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) value: Vec<u8>,
    pub(super) expires_at_ms: Option<u64>,
    pub(super) flags: u32,
}

impl Entry {
    /// Whether a key exists with this.
    fn lives(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_none_or(|at| at > now_ms)
    }

    /// Whether a store that tells this tells the truth.
    pub(super) fn is(&self, value: &[u8], meta: Meta) -> bool {
        let Meta { len, expires_at_ms, flags, .. } = meta;
        self.value == value
            && (len, expires_at_ms, flags) == (self.value.len() as u64, self.expires_at_ms, self.flags)
    }
}

/// A key as it was before a write.
struct Before {
    lsn: Lsn,
    key: Vec<u8>,
    entry: Option<Entry>,
}

/// All keys that were written, and how to take back the writes that a power cut may undo.
#[derive(Default)]
pub(super) struct Model {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// In the order of the writes.
    before: VecDeque<Before>,
}

impl Model {
    /// A write with number `lsn`.
    pub(super) fn write(&mut self, lsn: Lsn, key: &[u8], entry: Option<Entry>) {
        let before = match entry {
            Some(entry) => self.entries.insert(key.to_vec(), entry),
            None => self.entries.remove(key),
        };
        self.before.push_back(Before { lsn, key: key.to_vec(), entry: before });
    }

    /// The key, if it exists.
    pub(super) fn get(&self, key: &[u8], now_ms: u64) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.lives(now_ms))
    }

    /// All keys that exist, in order.
    pub(super) fn live(&self, now_ms: u64) -> impl Iterator<Item = (&Vec<u8>, &Entry)> {
        self.entries.iter().filter(move |(_, entry)| entry.lives(now_ms))
    }

    /// Writes up to `lsn` cannot be lost any more.
    pub(super) fn keep(&mut self, lsn: Lsn) {
        while self.before.front().is_some_and(|before| before.lsn <= lsn) {
            self.before.pop_front();
        }
    }

    /// Takes back the writes behind `lsn`.
    pub(super) fn lose_behind(&mut self, lsn: Lsn) {
        while self.before.back().is_some_and(|before| before.lsn > lsn) {
            let Before { key, entry, .. } = self.before.pop_back().expect("there is one");
            match entry {
                Some(entry) => drop(self.entries.insert(key, entry)),
                None => drop(self.entries.remove(&key)),
            }
        }
    }

    /// Everything is lost: the store has no folder.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
