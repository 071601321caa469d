//! Replies that leave in pieces: large values, and `MGET`s whose values add up.
//!
//! The next piece is read only when the socket has taken the one before, so a client that asks for much and takes
//! little holds one piece of memory, and other clients are served in between.

use std::collections::VecDeque;

use crate::backend::{Backend, BackendError, ValueReader};
use crate::reply::Reply;

/// Values up to this size are answered at once; larger ones are sent in pieces of it.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// The unsent rest of a reply.
#[derive(Default)]
pub(crate) struct Streaming {
    value: Option<Value>,
    /// Keys whose values follow, each as an element of the array that has begun.
    keys: VecDeque<Box<[u8]>>,
}

struct Value {
    reader: Box<dyn ValueReader>,
    offset: u64,
}

impl Streaming {
    /// A reply of one large value, whose header is written here.
    pub(crate) fn value(reader: Box<dyn ValueReader>, reply: &mut Reply) -> Self {
        reply.bulk_header(reader.len());
        Self { value: Some(Value { reader, offset: 0 }), keys: VecDeque::new() }
    }

    /// The values of `keys`, one after the other.
    pub(crate) fn keys<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Self {
        Self { value: None, keys: keys.map(Box::from).collect() }
    }

    /// Appends about one piece to `reply`; `false` when that was the last one. `scratch` is overwritten.
    ///
    /// # Errors
    ///
    /// When a value whose length has been announced can't be read on. Nothing but closing the connection helps.
    pub(crate) fn next(
        &mut self,
        backend: &dyn Backend,
        reply: &mut Reply,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, BackendError> {
        let mut written = 0;
        while written < PIECE_BYTES {
            if let Some(value) = &mut self.value {
                let rest = value.reader.len() - value.offset;
                let len = rest.min(PIECE_BYTES as u64) as usize;
                scratch.clear();
                value.reader.read_at(value.offset, len, scratch)?;
                reply.raw(scratch);
                value.offset += len as u64;
                written += len;
                if len as u64 == rest {
                    reply.raw(b"\r\n");
                    self.value = None;
                }
                continue;
            }
            let Some(key) = self.keys.pop_front() else { return Ok(false) };
            match lookup(backend, &key, scratch) {
                Ok(Found::Small) => reply.bulk(scratch),
                Ok(Found::Large(reader)) => {
                    reply.bulk_header(reader.len());
                    self.value = Some(Value { reader, offset: 0 });
                }
                Ok(Found::Nothing) => reply.null(),
                Err(error) => reply.error(&error.into()),
            }
            written += scratch.len() + 16;
        }
        Ok(self.value.is_some() || !self.keys.is_empty())
    }
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
