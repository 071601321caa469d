//! The read of a key that an update decides on, and the question whether the key is still the same.
//!
//! Not for what becomes of the key: `update` asks its caller for that, and `write` appends it.

use std::sync::{Arc, Weak};

use crate::Error;
use crate::below::Below;
use crate::large::Large;
use crate::leaf::{Leaf, LeafState};
use crate::read::{Copied, copy_found, found_len};
use crate::record::{Found, Lookup, Meta, Payload, key_hash};
use crate::tree::Tree;

/// The part of a value that is read before its change is decided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Neither its bytes nor their number, so that a lost value can be deleted. The length in the meta is 0.
    Presence,
    /// Its length, expiry and flags.
    Meta,
    /// Its bytes if it is inline, and a share of it if it is large.
    Opened,
    /// Its bytes, whether it is inline or large.
    Bytes,
}

impl Wanted {
    pub(crate) fn reads_bytes(self) -> bool {
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
pub struct Seen {
    /// The properties of the value; `None` if the key does not exist.
    pub meta: Option<Meta>,
    /// The value if it is large and was not read.
    pub large: Option<Arc<Large>>,
    source: Source,
    /// The leaf's append count before that, which no other leaf ever has.
    appends: u64,
    /// The value lies in a leaf with something below, where a touch may lose what it touches.
    pub is_cold: bool,
    /// The key has a record, which has expired.
    pub(crate) has_expired: bool,
}

/// The read that a write was decided from.
#[derive(Clone, Copy)]
pub struct Decided<'a> {
    /// The read.
    pub seen: &'a Seen,
    /// The part of the value that was asked for.
    pub wanted: Wanted,
    /// The value, if it was wanted.
    pub value: &'a [u8],
    pub(crate) has_turn: bool,
}

impl Tree {
    /// The contents of `key`.
    pub(crate) fn read_versioned(
        &self,
        key: &[u8],
        wanted: Wanted,
        bytes: &mut Vec<u8>,
    ) -> Result<Seen, Error> {
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

    /// Whether `key` is what a write was decided on. With `may_have_evicted`, a record that was seen may be gone. The
    /// caller holds the writer lock of its leaf.
    pub(crate) fn is_as_seen(
        &self,
        leaf: &Leaf,
        state: &LeafState,
        key: &[u8],
        hash: u64,
        decided: Decided<'_>,
        may_have_evicted: bool,
    ) -> bool {
        let seen = decided.seen;
        let is_unwritten = seen.appends == leaf.appends();
        // Eviction and expiry take records away and append nothing.
        let may_be_gone = seen.meta.is_some_and(|meta| may_have_evicted || meta.expires_at_ms.is_some());
        if is_unwritten && !may_be_gone {
            return true;
        }
        match (state.find(key, hash, &self.commits).0, &seen.source) {
            (Lookup::Found(found), source) if !self.is_gone(found.expires_at_ms) => {
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
                    is_same && !seen.meta.is_some_and(|meta| self.is_gone(meta.expires_at_ms))
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
