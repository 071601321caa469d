//! Where every `SCAN` in progress stands.
//!
//! Keys are walked in order, so a position is a key, and a cursor must be a number: this table maps one to the other.
//! A scan holds two entries at a time, its newest and the one before, so that a client whose reply got lost may ask
//! again. The table is bounded; when it overflows the entry that was made longest ago goes, and a scan that comes
//! back for it is told `invalid cursor` instead of being led past keys.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most positions kept.
const ENTRIES_MAX: usize = 8192;
/// Most bytes of keys kept.
const KEY_BYTES_MAX: usize = 16 << 20;

/// The positions of all scans.
#[derive(Debug)]
pub(crate) struct Cursors {
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    next: u64,
    key_bytes: usize,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The last key that was looked at.
    after: Box<[u8]>,
    /// The cursor that led here.
    previous: u64,
}

impl Cursors {
    pub(crate) fn new() -> Self {
        // Starting at the time of day keeps a cursor of an earlier server from meaning something in this one. It
        // stays below 2^53 because some clients hold cursors in doubles.
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let next = ((seconds & 0x7fff_ffff) << 21) | 1;
        Self { table: Mutex::new(Table { next, key_bytes: 0, entries: BTreeMap::new() }) }
    }

    /// The key after which the scan of `cursor` goes on. Its predecessor is forgotten.
    pub(crate) fn position(&self, cursor: u64) -> Option<Box<[u8]>> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = table.entries.get(&cursor)?;
        let (after, previous) = (entry.after.clone(), entry.previous);
        table.remove(previous);
        Some(after)
    }

    /// A new cursor for a scan that has come from `previous` (0 at its start) to the key `after`.
    pub(crate) fn advance(&self, previous: u64, after: &[u8]) -> u64 {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let cursor = table.next;
        table.next += 1;
        table.key_bytes += after.len();
        table.entries.insert(cursor, Entry { after: after.into(), previous });
        while table.entries.len() > ENTRIES_MAX || table.key_bytes > KEY_BYTES_MAX {
            let Some((&oldest, _)) = table.entries.first_key_value() else { break };
            table.remove(oldest);
        }
        cursor
    }
}

impl Table {
    fn remove(&mut self, cursor: u64) {
        if let Some(entry) = self.entries.remove(&cursor) {
            self.key_bytes -= entry.after.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_reply_can_be_asked_for_again() {
        let cursors = Cursors::new();
        let first = cursors.advance(0, b"a");
        let second = cursors.advance(first, b"b");
        assert_eq!(cursors.position(first).unwrap().as_ref(), b"a");
        assert_eq!(cursors.position(second).unwrap().as_ref(), b"b");
        assert!(cursors.position(first).is_none());
        assert!(second < 1 << 53);
    }

    #[test]
    fn abandoned_scans_do_not_pile_up() {
        let cursors = Cursors::new();
        let first = cursors.advance(0, b"first");
        for _ in 0..ENTRIES_MAX {
            cursors.advance(0, b"abandoned");
        }
        assert!(cursors.position(first).is_none());
        for _ in 0..1000 {
            cursors.advance(0, &[b'k'; 64 << 10]);
        }
        assert!(cursors.table.lock().unwrap().key_bytes <= KEY_BYTES_MAX);
    }
}
