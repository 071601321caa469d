//! Reading one key: the look-up of its record, and its value copied out.
//!
//! Not for several keys at once (`multi_get`), nor for what an image on SSD says, which is `below`.
//!
//! 1. The reader pins an epoch and looks into the landings of the key's leaf, and then into its body.
//! 2. It copies or decodes an inline value while it is pinned, and takes a share of a large one.
//! 3. It ends its guard. Only then it copies the large value, or goes on to the SSD if memory says nothing of the key.

mod below;

use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::Error;
use crate::below::Below;
use crate::commits::Commits;
use crate::host::ReadHost;
use crate::hotness::SAMPLE;
use crate::index::GROUP_KEYS;
use crate::large::Large;
use crate::leaf::Leaf;
use crate::record::{Found, Lookup, Meta, Payload, key_hash};
use crate::sizes::INLINE_BYTES_MAX;
use crate::tree::Tree;

pub use below::IMAGES_MAX;
#[cfg(all(any(test, feature = "testing"), not(miri), not(shuttle)))]
pub use below::IMAGES_READ;

/// The outcome of a look-up in memory.
pub(crate) enum Looked<R> {
    Found(R),
    Absent,
    /// Memory says nothing: the answer lies here.
    Below(Arc<Below>),
}

/// A value as far as it could be copied under the guard.
pub enum Copied {
    /// The value was appended; the length is not filled in.
    Inline(Meta),
    /// A share, to be copied without the guard.
    Large(Arc<Large>, Meta),
    /// The value cannot be decoded or unpacked, or is lost: the reason.
    Damaged(String),
}

impl Tree {
    /// Looks `key` up and hands its record to `take`, under the guard.
    #[inline]
    pub(crate) fn look_up<'g, R>(
        &self,
        key: &[u8],
        guard: &'g Guard,
        commits: &Commits,
        take: impl FnOnce(Found<'g>) -> R,
    ) -> Looked<R> {
        let leaf = self.index.find(key, guard);
        self.look_up_from(leaf, key, key_hash(key), guard, commits, take)
    }

    /// As [`Tree::look_up`], from a leaf on that [`Index::find`](crate::index::Index::find) gave.
    #[inline]
    pub(crate) fn look_up_from<'g, R>(
        &self,
        mut leaf: &'g Leaf,
        key: &[u8],
        hash: u64,
        guard: &'g Guard,
        commits: &Commits,
        take: impl FnOnce(Found<'g>) -> R,
    ) -> Looked<R> {
        let counters = self.stats.own();
        loop {
            leaf.prefetch_body();
            let state = leaf.state(guard);
            match state.find(key, hash, commits) {
                (Lookup::Found(found), place) if !self.is_over(found.expires_at_ms) => {
                    let reads = match (&found.payload, place) {
                        (Payload::Large(large), _) => {
                            large.note_read();
                            counters.reads_large.raise()
                        }
                        (_, None) => counters.reads_landing.raise(),
                        (Payload::Coded(..) | Payload::Recoded(..), _) => counters.reads_coded.raise(),
                        (Payload::Packed(_), _) => counters.reads_packed.raise(),
                        (Payload::Raw(_) | Payload::Lost, _) => counters.reads_raw.raise(),
                    };
                    if let Some(place) = place {
                        if (reads as u32).is_multiple_of(SAMPLE) {
                            leaf.reads.touch(place);
                        }
                        if self.evicts() {
                            leaf.marks.touch(place, guard);
                        }
                    }
                    return Looked::Found(take(found));
                }
                (Lookup::Absent, _) if !state.covers(key) => {
                    leaf = state.right(guard).expect("a leaf with an upper fence has a right sibling");
                }
                (lookup, _) => match &state.below {
                    Some(below) if matches!(lookup, Lookup::Absent) => {
                        leaf.reads.touch_by(hash);
                        counters.reads_below.raise();
                        return Looked::Below(below.clone());
                    }
                    _ => {
                        counters.misses.raise();
                        return Looked::Absent;
                    }
                },
            }
        }
    }

    /// The leaves of the first [`GROUP_KEYS`] of `keys`, with the keys' hashes, and what look-ups from there will read
    /// on its way into the cache.
    ///
    /// A look-up waits for memory four or five times, each time for the address of the next. Here every step is
    /// taken for all keys before the next one, so that the waits overlap.
    pub fn approach<'g, K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        guard: &'g Guard,
    ) -> impl Iterator<Item = (&'g Leaf, u64)> {
        let leaves = self.index.find_group(keys, guard);
        for leaf in leaves.iter().flatten() {
            leaf.prefetch_state(guard);
            leaf.prefetch_body();
        }
        let mut hashes = [0; GROUP_KEYS];
        for ((hash, key), leaf) in hashes.iter_mut().zip(keys).zip(leaves.iter().flatten()) {
            *hash = key_hash(key.as_ref());
            leaf.state(guard).body.prefetch_record(*hash);
        }
        leaves.into_iter().flatten().zip(hashes)
    }

    /// Appends a large value, that of `key`. The caller holds no guard.
    pub(crate) fn read_large(&self, key: &[u8], large: &Large, value: &mut Vec<u8>) -> Result<(), Error> {
        let start = value.len();
        large.read_at(0, usize::MAX, value).map_err(|reason| {
            value.truncate(start);
            self.unread_large(key, large, reason)
        })
    }

    /// Counts a value that is damaged in memory. Returns the error for it.
    pub fn damaged(&self, key: &[u8], reason: String) -> Error {
        self.stats.damaged.raise();
        Error::Damaged { key_bytes: key.len(), reason }
    }

    /// The error for a large value that could not be read.
    pub fn unread_large(&self, key: &[u8], large: &Large, reason: String) -> Error {
        if large.is_on_ssd() { self.unread(key, reason) } else { self.damaged(key, reason) }
    }

    /// Counts a value, or an image, that could not be read from SSD. Returns the error for it.
    pub fn unread(&self, key: &[u8], reason: String) -> Error {
        self.stats.damaged.raise();
        Error::Unread { key_bytes: key.len(), reason }
    }
}

/// Reads of a tree.
#[derive(Clone, Copy)]
pub struct Reads<'t> {
    /// The tree that is read.
    pub tree: &'t Tree,
    /// The engine, which is told of reads.
    pub host: &'t dyn ReadHost,
}

impl Reads<'_> {
    /// Appends the value of `key` to `value`; `None` when there is none.
    #[inline]
    pub fn read(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        self.read_up_to(key, u64::MAX, value)
    }

    /// As [`Reads::read`], but of a large value longer than `len_max` nothing is appended.
    #[inline]
    pub fn read_up_to(&self, key: &[u8], len_max: u64, value: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        let start = value.len();
        match self.find_value(key, |found| copy_found(found, value))? {
            None => Ok(None),
            Some(Copied::Inline(meta)) => Ok(Some(Meta { len: (value.len() - start) as u64, ..meta })),
            Some(Copied::Large(_, meta)) if meta.len > len_max => Ok(Some(meta)),
            Some(Copied::Large(large, meta)) => {
                self.host.note_large_reads(&mut std::iter::once((key, &*large)));
                self.tree.read_large(key, &large, value).map(|()| Some(meta))
            }
            Some(Copied::Damaged(reason)) => Err(self.tree.damaged(key, reason)),
        }
    }

    /// Looks `key` up, on SSD if need be, and hands the record to `take`. The caller holds no guard.
    #[inline]
    pub fn find_value<R>(
        &self,
        key: &[u8],
        mut take: impl FnMut(Found<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        let guard = self.tree.pin();
        let looked = self.tree.look_up(key, &guard, &self.tree.commits, &mut take);
        drop(guard);
        match looked {
            Looked::Found(taken) => Ok(Some(taken)),
            Looked::Absent => Ok(None),
            Looked::Below(below) => self.find_below(key, below, take),
        }
    }
}

/// Appends an inline value to `value`, or takes a share of a large one. A coded value that is longer than an inline one
/// may be is damaged.
#[inline]
pub fn copy_found(found: Found<'_>, value: &mut Vec<u8>) -> Copied {
    let meta = found.meta();
    match found.payload {
        Payload::Raw(bytes) => value.extend_from_slice(bytes),
        Payload::Coded(coded, dictionary) => {
            if let Err(error) = dictionary.decode_append(coded, value, INLINE_BYTES_MAX) {
                return Copied::Damaged(error.to_string());
            }
        }
        Payload::Recoded(coded, dictionary) => {
            if let Err(error) = dictionary.decode_recoded(coded, value, INLINE_BYTES_MAX) {
                return Copied::Damaged(error.to_string());
            }
        }
        Payload::Packed(packed) => {
            if let Err(reason) = packed.append_to(value) {
                return Copied::Damaged(reason);
            }
        }
        Payload::Lost => return Copied::Damaged(LOST.to_owned()),
        Payload::Large(large) => return Copied::Large(large.share(), Meta { len: large.len(), ..meta }),
    }
    Copied::Inline(meta)
}

/// Bytes of a found value.
pub fn found_len(found: &Found<'_>) -> Result<u64, String> {
    match found.payload {
        Payload::Raw(bytes) => Ok(bytes.len() as u64),
        Payload::Coded(coded, dictionary) => {
            dictionary.raw_len(coded).map(|len| len as u64).map_err(|error| error.to_string())
        }
        Payload::Recoded(coded, dictionary) => {
            dictionary.recoded_raw_len(coded).map(|len| len as u64).map_err(|error| error.to_string())
        }
        Payload::Packed(packed) => packed.raw_len(),
        Payload::Lost => Err(LOST.to_owned()),
        Payload::Large(large) => Ok(large.len()),
    }
}

/// The error for a value that could not be unpacked when its leaf was packed anew, or read when its store was salvaged.
pub const LOST: &str =
    "its bytes failed their check when the leaf was packed anew or salvaged; write it again, or delete it";
