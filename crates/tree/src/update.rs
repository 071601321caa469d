//! Updates: the new value of a key is decided from the old one.
//!
//! Not for writes that depend on several keys: those are batches.
//!
//! 1. The update reads the key without any lock, and the caller decides.
//! 2. Under the writer lock of the key's leaf, the update compares the key with what this attempt read. If the key is
//!    the same, it appends the record. Otherwise it begins anew.
//! 3. Other keys of the leaf may have been written meanwhile, and the leaf may have been packed, cut or joined. None of
//!    that costs another attempt. Reading and coding a large value takes so long that one of these is always the case.
//! 4. After a few attempts in vain a key gets its *turn*: other writers of that key wait until the update is made.

use std::cell::RefCell;
use std::sync::Arc;

use crate::Error;
use crate::large::Large;
use crate::record::{Fields, Kind, Meta, PutMeta, check_key, key_hash};
use crate::seen::{Decided, Seen, Wanted};
use crate::write::{Expected, NewValue, Writes};

crate::sync::thread_local! {
    static VALUE: RefCell<Vec<u8>> = RefCell::default();
}

/// Attempts of an update before it gets its turn.
pub const ATTEMPTS_MAX: u32 = 8;

/// The change of a key, decided from its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update {
    /// Put this value.
    Put(Vec<u8>, PutMeta),
    /// Delete the key.
    Delete,
    /// Give the key another expiry, and leave its value alone.
    Expire(Option<u64>),
    /// Leave the key as it is.
    Keep,
}

impl Writes<'_> {
    /// Replaces, deletes or keeps `key` as `decide` says of what is `wanted` of its value. `decide` is called once, and
    /// again for each time that the key was written meanwhile: about [`ATTEMPTS_MAX`] times at most.
    pub fn modify(
        &self,
        key: &[u8],
        wanted: Wanted,
        mut decide: impl FnMut(Option<(&[u8], Meta)>) -> Update,
    ) -> Result<Update, Error> {
        self.modify_seen(key, wanted, |seen, _| decide(seen))
    }

    /// As [`Writes::modify`]. `decide` gets the bytes, if they are wanted and not those of a large value that is only
    /// opened.
    pub fn modify_seen(
        &self,
        key: &[u8],
        mut wanted: Wanted,
        mut decide: impl FnMut(Option<(&[u8], Meta)>, Option<Arc<Large>>) -> Update,
    ) -> Result<Update, Error> {
        check_key(key)?;
        let mut bytes = VALUE.with(RefCell::take);
        let mut turn = None;
        let mut attempts = 0;
        let result = loop {
            if attempts == ATTEMPTS_MAX {
                turn = Some(self.tree.turns.take(key_hash(key)));
            }
            attempts += 1;
            let mut all_seen = match self.tree.read_versioned(key, wanted, &mut bytes) {
                Ok(seen) => seen,
                Err(error) => break Err(error),
            };
            let (seen, large, is_cold) = (all_seen.meta, all_seen.large.take(), all_seen.is_cold);
            let decided = Decided { seen: &all_seen, wanted, value: &bytes, has_turn: turn.is_some() };
            let expected = Expected::AsSeen(decided);
            let update = decide(seen.map(|meta| (bytes.as_slice(), meta)), large);
            let written = match &update {
                Update::Keep => break Ok(update),
                Update::Put(value, meta) => NewValue::new(self, value).and_then(|mut value| {
                    self.append(key, Kind::Raw, Fields::of(*meta), &mut value, expected)
                }),
                Update::Delete if seen.is_none() && !self.may_come_back(&all_seen) => break Ok(update),
                Update::Delete => {
                    self.append(key, Kind::Tombstone, Fields::default(), &mut NewValue::None, expected)
                }
                Update::Expire(_) if seen.is_none() => break Ok(Update::Keep),
                Update::Expire(expires_at_ms) => {
                    if is_cold && !wanted.reads_bytes() {
                        // The value is written anew: a touch would lie above what it touches.
                        wanted = Wanted::Bytes;
                        continue;
                    }
                    let flags = seen.filter(|_| is_cold).map_or(0, |meta| meta.flags);
                    let fields = Fields::of(PutMeta { expires_at_ms: *expires_at_ms, flags });
                    let (anew, touch) =
                        ((Kind::Raw, NewValue::Inline(&bytes)), (Kind::Touch, NewValue::None));
                    let (kind, mut value) = if is_cold { anew } else { touch };
                    self.append(key, kind, fields, &mut value, expected)
                }
            };
            match written {
                Ok(true) => break Ok(update),
                Ok(false) => continue,
                Err(error) => break Err(error),
            }
        };
        drop(turn);
        bytes.clear();
        if bytes.capacity() <= 1 << 20 {
            VALUE.with(|value| value.replace(bytes));
        }
        result
    }

    /// Whether a later start may find a key that is not there, for want of a delete in the log: the key was evicted, or
    /// it has expired and the clock may be behind by then. A key that has no record may have had one that expired.
    fn may_come_back(&self, seen: &Seen) -> bool {
        #[cfg(any(test, feature = "testing"))]
        if crate::faults::has(crate::faults::InjectedFault::TombstoneForgotten) {
            return false;
        }
        self.journal.is_some() && (self.host.has_evicted() || seen.has_expired || self.tree.has_dropped())
    }
}
