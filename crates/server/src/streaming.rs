//! Replies that are made or sent in pieces: large values, `MGET`s whose values add up, `KEYS`.
//!
//! The next piece is read only when the socket has taken the one before, so a client that asks for much and takes
//! little holds one piece of memory, and other clients are served in between.

use std::collections::VecDeque;
use std::mem;

use crate::backend::{Backend, BackendError, ValueReader};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::shared::{Counters, Shared};
use crate::walk::Walk;

/// Values up to this size are answered at once; larger ones are sent in pieces of it.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Keys that one step of `KEYS` looks at. A turn has several steps and takes some milliseconds.
const KEYS_PER_STEP: usize = 512;
/// Keys of one `MGET` that are looked up together: as many as a store overlaps the cache misses of.
const GROUP: usize = 16;

/// The unsent rest of a reply.
#[derive(Default)]
pub(crate) struct Streaming {
    value: Option<Value>,
    /// Keys whose values follow, each as an element of the array that has begun.
    keys: VecDeque<Box<[u8]>>,
    /// A walk over all keys, and those that it has found, as bulk strings.
    walk: Option<(Walk, Vec<u8>)>,
    /// Bytes of the value being sent that this reply alone holds.
    owned_bytes: usize,
}

struct Value {
    reader: Box<dyn ValueReader>,
    offset: u64,
    end: u64,
}

impl Streaming {
    /// A reply of one large value, whose header is written here.
    pub(crate) fn value(reader: Box<dyn ValueReader>, reply: &mut Reply) -> Self {
        let end = reader.len();
        Self::range(reader, 0, end, reply)
    }

    /// A reply of the bytes `offset..end` of a value, whose header is written here.
    pub(crate) fn range(reader: Box<dyn ValueReader>, offset: u64, end: u64, reply: &mut Reply) -> Self {
        reply.bulk_header(end - offset);
        Self { value: Some(Value { reader, offset, end }), ..Self::default() }
    }

    /// A reply of one large value that nobody else holds any more.
    pub(crate) fn owned(value: Vec<u8>, reply: &mut Reply) -> Self {
        let owned_bytes = value.capacity();
        Self { owned_bytes, ..Self::value(Box::new(value), reply) }
    }

    /// The values of `keys`, one after the other.
    pub(crate) fn keys<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Self {
        Self { keys: keys.map(Box::from).collect(), ..Self::default() }
    }

    /// The keys that match `pattern`.
    pub(crate) fn matching(pattern: &[u8]) -> Self {
        Self { walk: Some((Walk::new(pattern, None), Vec::new())), ..Self::default() }
    }

    /// Bytes of memory that this reply holds beside the store's.
    pub(crate) fn held_bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(|key| key.len() + size_of::<Box<[u8]>>()).sum();
        keys + self.owned_bytes + self.walk.as_ref().map_or(0, |(_, found)| found.capacity())
    }

    /// Appends about one piece to `reply`, or makes a step towards it; `false` when that was the last one. `scratch`
    /// is overwritten.
    ///
    /// # Errors
    ///
    /// When a value whose length has been announced can't be read on. Nothing but closing the connection helps.
    pub(crate) fn next(
        &mut self,
        shared: &Shared,
        counters: &Counters,
        reply: &mut Reply,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, BackendError> {
        if self.walk.is_some() {
            return Ok(self.walk_on(shared, counters, reply));
        }
        let backend = &*shared.backend;
        let mut written = 0;
        while written < PIECE_BYTES {
            if let Some(value) = &mut self.value {
                let rest = value.end - value.offset;
                let len = rest.min(PIECE_BYTES as u64) as usize;
                scratch.clear();
                value.reader.read_at(value.offset, len, scratch)?;
                reply.raw(scratch);
                value.offset += len as u64;
                written += len;
                if len as u64 == rest {
                    reply.raw(b"\r\n");
                    self.value = None;
                    self.owned_bytes = 0;
                }
                continue;
            }
            if self.keys.is_empty() {
                return Ok(false);
            }
            let mut group = [&b""[..]; GROUP];
            let count = GROUP.min(self.keys.len());
            for (slot, key) in group.iter_mut().zip(&self.keys) {
                *slot = key;
            }
            let (answered, bytes) = answer_group(backend, counters, reply, &group[..count]);
            written += bytes;
            self.keys.drain(..answered);
            if answered < count
                && let Some(key) = self.keys.pop_front()
            {
                // It may have been deleted or replaced since.
                match lookup(backend, &key, scratch) {
                    Ok(Found::Small) => reply.bulk(scratch),
                    Ok(Found::Large(reader)) => {
                        reply.bulk_header(reader.len());
                        self.value = Some(Value { offset: 0, end: reader.len(), reader });
                    }
                    Ok(Found::Nothing) => reply.null(),
                    Err(error) => reply.error(&error.into()),
                }
                counters.hits.add(1);
            }
        }
        Ok(self.value.is_some() || !self.keys.is_empty())
    }

    /// Looks at some more keys. The reply begins when all have been seen, because it begins with their number.
    fn walk_on(&mut self, shared: &Shared, counters: &Counters, reply: &mut Reply) -> bool {
        let Some((walk, found)) = &mut self.walk else { return false };
        let outcome = walk.advance(&*shared.backend, KEYS_PER_STEP, usize::MAX, found);
        let refusal = match outcome {
            Ok(_) if found.len() > shared.config.client_bytes_max || shared.clients_over_budget() => {
                let bytes = found.len();
                Refusal::said(format!(
                    "ERR the keys found so far have {bytes} bytes, more than there is room for; use SCAN"
                ))
            }
            Ok(true) => return true,
            Ok(false) => {
                reply.array(walk.found);
                let mut found = mem::take(found);
                self.walk = None;
                if found.is_empty() {
                    return false;
                }
                // The line end is written behind the last piece.
                found.truncate(found.len() - 2);
                self.owned_bytes = found.capacity();
                self.value = Some(Value { offset: 0, end: found.len() as u64, reader: Box::new(found) });
                return true;
            }
            Err(error) => error.into(),
        };
        counters.errors.add(1);
        reply.error(&refusal);
        self.walk = None;
        false
    }
}

/// Answers `keys` in turn until a value must be sent in pieces. Returns how many were answered, and their bytes.
fn answer_group(
    backend: &dyn Backend,
    counters: &Counters,
    reply: &mut Reply,
    keys: &[&[u8]],
) -> (usize, usize) {
    let (mut answered, mut written, mut large) = (0, 0, false);
    backend.multi_get(keys, PIECE_BYTES, &mut |found| {
        if large {
            return;
        }
        match found {
            Ok(Some((meta, _))) if meta.len > PIECE_BYTES as u64 => {
                large = true;
                return;
            }
            Ok(Some((_, value))) => {
                counters.hits.add(1);
                reply.bulk(value);
                written += value.len();
            }
            Ok(None) => {
                counters.misses.add(1);
                reply.null();
            }
            Err(error) => reply.error(&error.into()),
        }
        answered += 1;
        written += 16;
    });
    (answered, written)
}

/// Answers the first of `keys`, a group at a time, until about one piece is written; the rest, if any.
pub(crate) fn answer_keys<'a>(
    backend: &dyn Backend,
    counters: &Counters,
    reply: &mut Reply,
    mut keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
) -> Option<Streaming> {
    let mut written = 0;
    while keys.len() > 0 {
        let mut group = [&b""[..]; GROUP];
        let count = GROUP.min(keys.len());
        for (slot, key) in group.iter_mut().zip(keys.clone()) {
            *slot = key;
        }
        let (answered, bytes) = answer_group(backend, counters, reply, &group[..count]);
        written += bytes;
        keys.by_ref().take(answered).for_each(drop);
        if answered < count || (written >= PIECE_BYTES && keys.len() > 0) {
            return Some(Streaming::keys(keys));
        }
    }
    None
}

/// What a key has.
pub(crate) enum Found {
    /// No value.
    Nothing,
    /// A value, which is in the caller's buffer.
    Small,
    /// A value to be sent in pieces.
    Large(Box<dyn ValueReader>),
}

/// Looks a key up for a reply.
pub(crate) fn lookup(backend: &dyn Backend, key: &[u8], value: &mut Vec<u8>) -> Result<Found, BackendError> {
    match backend.get_into(key, PIECE_BYTES, value)? {
        None => Ok(Found::Nothing),
        Some(meta) if meta.len <= PIECE_BYTES as u64 => Ok(Found::Small),
        // It may have gone since.
        Some(_) => Ok(backend.open_value(key)?.map_or(Found::Nothing, Found::Large)),
    }
}
