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
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::Error;
use crate::below::Below;
use crate::large::Large;
use crate::leaf::{Leaf, LeafState};
use crate::read::{Copied, copy_found, found_len};
use crate::record::{Fields, Found, Kind, Lookup, Meta, Payload, PutMeta, check_key, key_hash};
use crate::sync::{Mutex, MutexGuard, back_off};
use crate::tree::Tree;
use crate::write::{Expected, NewValue, Writes};

crate::sync::thread_local! {
    static VALUE: RefCell<Vec<u8>> = RefCell::default();
}

/// Attempts of an update before it gets its turn.
pub(crate) const ATTEMPTS_MAX: u32 = 8;

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

/// The part of a value that is read before its change is decided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Neither its bytes nor their number, so that a lost value can be deleted. The length in the meta is 0.
    Presence,
    Meta,
    /// Its bytes if it is inline, and a share of it if it is large.
    Opened,
    Bytes,
}

impl Wanted {
    fn reads_bytes(self) -> bool {
        matches!(self, Self::Opened | Self::Bytes)
    }

    /// The meta of a value whose bytes are not wanted.
    fn meta_of(self, found: &Found<'_>) -> Result<Meta, String> {
        let len = if self == Self::Presence { 0 } else { found_len(found)? };
        Ok(Meta { len, ..found.meta() })
    }
}

/// The place where a key was found.
enum Source {
    /// Memory says that there is none, and nothing lies below.
    Nowhere,
    /// In the leaf.
    Leaf,
    /// In a large value. The weak share keeps the address from being used for another one.
    Large(Weak<Large>),
    /// Memory says nothing, and this lies below.
    Below(Arc<Below>),
}

/// The read of a key that its change is decided from.
pub(crate) struct Seen {
    meta: Option<Meta>,
    /// The value if it is large and was not read.
    large: Option<Arc<Large>>,
    source: Source,
    /// The leaf's append count before that, which no other leaf ever has.
    appends: u64,
    /// The value lies in a leaf with something below, where a touch may lose what it touches.
    is_cold: bool,
    /// The key has a record, which has expired.
    has_expired: bool,
}

/// The read that a write was decided from.
#[derive(Clone, Copy)]
pub(crate) struct Decided<'a> {
    seen: &'a Seen,
    wanted: Wanted,
    /// The value, if it was wanted.
    value: &'a [u8],
    has_turn: bool,
}

/// The key that has its turn.
#[derive(Default)]
pub(crate) struct Turns {
    one_at_a_time: Mutex<()>,
    /// The key's hash with its lowest bit set; 0 for none. Keys with the same hash wait, too.
    hash: AtomicU64,
    /// Writers that wait.
    waiting: AtomicU32,
}

/// A turn; it ends on drop.
pub(crate) struct Turn<'t> {
    turns: &'t Turns,
    _one_at_a_time: MutexGuard<'t, ()>,
}

impl Turns {
    pub(crate) fn take(&self, hash: u64) -> Turn<'_> {
        let one_at_a_time = self.one_at_a_time.lock();
        self.hash.store(hash | 1, Ordering::Release);
        Turn { turns: self, _one_at_a_time: one_at_a_time }
    }

    /// Waits while a key of this hash has its turn, unless the write is part of it or no write. The caller holds no
    /// guard and no lock: the turn may need memory or an SSD.
    #[inline]
    pub(crate) fn wait_for(&self, hash: u64, expected: &Expected<'_>) {
        if self.hash.load(Ordering::Acquire) == hash | 1 {
            let is_exempt = match expected {
                Expected::AsSeen(decided) => decided.has_turn,
                Expected::Below(_) => true,
                Expected::Anything => false,
            };
            if !is_exempt {
                self.wait(hash);
            }
        }
    }

    /// Whether a writer of one of these keys would wait now.
    pub(crate) fn holds_up<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) -> bool {
        let hash = self.hash.load(Ordering::Acquire);
        hash != 0 && keys.any(|key| key_hash(key) | 1 == hash)
    }

    /// As [`Turns::wait_for`], for several keys.
    #[inline]
    pub(crate) fn wait_for_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.hash.load(Ordering::Acquire) != 0 {
            keys.for_each(|key| self.wait(key_hash(key)));
        }
    }

    #[cold]
    fn wait(&self, hash: u64) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut round = 0;
        while self.hash.load(Ordering::Acquire) == hash | 1 {
            back_off(round);
            round += 1;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Writers that wait for a turn to end.
    #[cfg(all(test, not(shuttle), not(miri)))]
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.hash.store(0, Ordering::Release);
    }
}

impl Tree {
    /// The contents of `key`.
    fn read_versioned(&self, key: &[u8], wanted: Wanted, bytes: &mut Vec<u8>) -> Result<Seen, Error> {
        let mut failed: Option<(Arc<Below>, String)> = None;
        loop {
            let (seen, below) = self.read_memory_versioned(key, wanted, bytes)?;
            let Some(below) = below else { return Ok(seen) };
            if let Some((before, reason)) = failed
                && Arc::ptr_eq(&before, &below)
            {
                return Err(self.unread(key, reason));
            }
            match self.read_image(&below, below.image_of(key)) {
                Ok(image) => {
                    let Some(found) = image.find(key) else { return Ok(seen) };
                    if self.is_gone(found.expires_at_ms) {
                        return Ok(Seen { has_expired: true, ..seen });
                    }
                    if !wanted.reads_bytes() {
                        let meta = wanted.meta_of(&found).map_err(|reason| self.damaged(key, reason))?;
                        return Ok(Seen { meta: Some(meta), ..seen });
                    }
                    let meta = match copy_found(found, bytes) {
                        Copied::Inline(meta) => Meta { len: bytes.len() as u64, ..meta },
                        Copied::Large(..) => unreachable!("references to large values stay in memory"),
                        Copied::Damaged(reason) => return Err(self.damaged(key, reason)),
                    };
                    return Ok(Seen { meta: Some(meta), ..seen });
                }
                Err(reason) => failed = Some((below, reason)),
            }
        }
    }

    /// The record of `key` in memory, and the list to look in further if there is none.
    fn read_memory_versioned(
        &self,
        key: &[u8],
        wanted: Wanted,
        bytes: &mut Vec<u8>,
    ) -> Result<(Seen, Option<Arc<Below>>), Error> {
        bytes.clear();
        let guard = self.pin();
        let (seen, below, found) = loop {
            let (leaf, _) = self.locate(key, &guard);
            // The count is read first: an append in between makes the write fail, never succeed on an old value.
            let appends = leaf.appends();
            let state = leaf.state(&guard);
            if !state.covers(key) {
                continue;
            }
            let lookup = state.find(key, key_hash(key), &self.commits).0;
            let below = state.below.as_ref().filter(|_| matches!(lookup, Lookup::Absent)).cloned();
            let (found, has_expired): (Option<Found<'_>>, bool) = match lookup {
                Lookup::Found(found) if self.is_gone(found.expires_at_ms) => (None, true),
                Lookup::Found(found) => (Some(found), false),
                _ => (None, false),
            };
            let is_large = found.is_some_and(|found| matches!(found.payload, Payload::Large(_)));
            let is_cold = state.below.is_some() && !is_large;
            let source = match (&found, &below) {
                (Some(Found { payload: Payload::Large(large), .. }), _) => {
                    Source::Large(Arc::downgrade(&large.share()))
                }
                (Some(_), _) => Source::Leaf,
                (None, Some(below)) => Source::Below(below.clone()),
                (None, None) => Source::Nowhere,
            };
            break (Seen { meta: None, large: None, source, appends, is_cold, has_expired }, below, found);
        };
        let Some(found) = found else { return Ok((seen, below)) };
        if !wanted.reads_bytes() {
            let meta = wanted.meta_of(&found).map_err(|reason| self.damaged(key, reason))?;
            return Ok((Seen { meta: Some(meta), ..seen }, None));
        }
        let copied = copy_found(found, bytes);
        drop(guard);
        let meta = match copied {
            Copied::Inline(meta) => Meta { len: bytes.len() as u64, ..meta },
            Copied::Large(large, meta) if wanted == Wanted::Opened => {
                return Ok((Seen { meta: Some(meta), large: Some(large), ..seen }, None));
            }
            Copied::Large(large, meta) => {
                self.read_large(key, &large, bytes)?;
                meta
            }
            Copied::Damaged(reason) => return Err(self.damaged(key, reason)),
        };
        Ok((Seen { meta: Some(meta), ..seen }, None))
    }

    /// Whether a record that changes the expiry of `key` would lie above the one that it changes. The caller holds the
    /// writer lock.
    pub(crate) fn is_touchable(&self, state: &LeafState, key: &[u8], hash: u64) -> bool {
        match state.find(key, hash, &self.commits).0 {
            // It may have expired since it was read, or have gone to SSD.
            Lookup::Found(found) => {
                let is_large = matches!(found.payload, Payload::Large(_));
                !self.is_gone(found.expires_at_ms) && (state.below.is_none() || is_large)
            }
            _ => false,
        }
    }
}

impl Writes<'_> {
    /// Replaces, deletes or keeps `key` as `decide` says of what is `wanted` of its value. `decide` is called once, and
    /// again for each time that the key was written meanwhile: about [`ATTEMPTS_MAX`] times at most.
    pub(crate) fn modify(
        &self,
        key: &[u8],
        wanted: Wanted,
        mut decide: impl FnMut(Option<(&[u8], Meta)>) -> Update,
    ) -> Result<Update, Error> {
        self.modify_seen(key, wanted, |seen, _| decide(seen))
    }

    /// As [`Writes::modify`]. `decide` gets the bytes, if they are wanted and not those of a large value that is only
    /// opened.
    pub(crate) fn modify_seen(
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
        #[cfg(test)]
        if crate::faults::has(crate::faults::Fault::TombstoneForgotten) {
            return false;
        }
        self.journal.is_some() && (self.host.has_evicted() || seen.has_expired || self.tree.has_dropped())
    }

    /// Whether `key` is what a write was decided on. The caller holds the writer lock of its leaf.
    pub(crate) fn is_as_seen(
        &self,
        leaf: &Leaf,
        state: &LeafState,
        key: &[u8],
        hash: u64,
        decided: Decided<'_>,
    ) -> bool {
        let seen = decided.seen;
        let is_unwritten = seen.appends == leaf.appends();
        // Eviction and expiry take records away and append nothing.
        let may_be_gone =
            seen.meta.is_some_and(|meta| self.host.has_evicted() || meta.expires_at_ms.is_some());
        if is_unwritten && !may_be_gone {
            return true;
        }
        match (state.find(key, hash, &self.tree.commits).0, &seen.source) {
            (Lookup::Found(found), source) if !self.tree.is_gone(found.expires_at_ms) => {
                match (found.payload, source) {
                    (Payload::Large(large), Source::Large(seen_large)) => {
                        std::ptr::eq(&*large, seen_large.as_ptr()) && has_fields_of(&found, seen)
                    }
                    (Payload::Large(_), _) | (_, Source::Large(_)) => false,
                    (_, Source::Leaf) if is_unwritten => true,
                    _ => has_fields_of(&found, seen) && has_value_of(found, decided),
                }
            }
            (Lookup::Absent, source) if state.below.is_some() => match source {
                Source::Below(below) => {
                    let is_same = state.below.as_ref().is_some_and(|now| Arc::ptr_eq(now, below));
                    is_same && !seen.meta.is_some_and(|meta| self.tree.is_gone(meta.expires_at_ms))
                }
                _ => false,
            },
            _ => seen.meta.is_none(),
        }
    }
}

/// Whether a record has the expiry and the flags that were seen.
fn has_fields_of(found: &Found<'_>, seen: &Seen) -> bool {
    seen.meta.is_some_and(|meta| (meta.expires_at_ms, meta.flags) == (found.expires_at_ms, found.flags))
}

/// Whether an inline value agrees with what a write was decided from: the value, its length, or that it was there. A
/// value that cannot be read is looked at anew.
fn has_value_of(found: Found<'_>, decided: Decided<'_>) -> bool {
    let Decided { seen, wanted, value, .. } = decided;
    if wanted == Wanted::Presence {
        return true;
    }
    let is_as_long = found_len(&found).is_ok_and(|len| seen.meta.is_some_and(|meta| meta.len == len));
    if !is_as_long || wanted == Wanted::Meta {
        return is_as_long;
    }
    let mut now = Vec::with_capacity(value.len());
    matches!(copy_found(found, &mut now), Copied::Inline(_)) && now == value
}
