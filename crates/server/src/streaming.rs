//! Replies that are made or sent in pieces: large values, `MGET`s whose values add up, `COMMAND DOCS` of many names,
//! `KEYS`, `ZT.RANGE`.
//!
//! The server makes the next piece only when the socket has taken the one before. So a client that requests much and
//! reads little holds one piece of memory, and other clients are served in between.

use std::mem;
use std::sync::Arc;

use crate::backend::{Backend, BackendError, ValueReader};
use crate::command::Session;
use crate::range::Range;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::request::OwnedArgs;
use crate::shared::Counters;
use crate::walk::Walk;

/// Values up to this size are answered at once; larger ones are sent in pieces of it.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Keys that one step of `KEYS` visits. A turn has several steps and takes some milliseconds.
const KEYS_PER_STEP: usize = 512;
/// Bytes that a row counts besides its own, for the time that it takes.
const ROW_BYTES: usize = 16;
/// Keys of one `MGET` that are looked up together: as many lookups as a store overlaps.
const GROUP: usize = 16;

/// Makes the next piece of the reply that the session's client waits for, or a step towards it.
///
/// # Errors
///
/// [`BackendError::TakesLong`] if a thread with more patience has to do so. After any other error the caller can only
/// close the connection.
pub(crate) fn go_on(session: &mut Session<'_>) -> Result<(), BackendError> {
    let Some(mut streaming) = session.client.streaming.take() else { return Ok(()) };
    // The piece may tell of writes that are not durable yet, whatever was released before.
    session.client.rests_on_log |= session.shared.backend.waits_for_disk();
    let more = streaming.next(session);
    if more != Ok(false) {
        session.client.streaming = Some(streaming);
    }
    more.map(drop)
}

/// The unsent rest of a reply.
#[derive(Default)]
pub(crate) struct Streaming {
    value: Option<Value>,
    rows: Option<Rows>,
    /// A walk, and what it has found, as bulk strings.
    walk: Option<(Gathering, Vec<u8>)>,
    /// Bytes of the value being sent that this reply alone holds.
    owned_bytes: usize,
}

/// A walk whose reply begins with the number of its findings, so that it has to end first.
enum Gathering {
    Keys(Walk),
    Records(Range),
}

impl Gathering {
    /// Makes a step that ends when `found` has about `bytes_max` bytes. `false` at the end of the walk.
    fn advance(
        &mut self,
        session: &Session<'_>,
        bytes_max: usize,
        found: &mut Vec<u8>,
    ) -> Result<bool, BackendError> {
        let Session { shared, backend, client, patience, .. } = session;
        match self {
            Self::Keys(walk) => {
                let more = walk.advance(*backend, *patience, KEYS_PER_STEP, bytes_max, found)?;
                if found.len() > shared.budget.limit_bytes() / 2 {
                    // Growing further would copy the list.
                    let bytes = found.len();
                    return Err(BackendError::Refused(format!(
                        "the keys found so far have {bytes} bytes, more than there is room for; use SCAN"
                    )));
                }
                Ok(more)
            }
            Self::Records(range) => {
                range.advance(*backend, shared, &client.info, *patience, bytes_max, found)
            }
        }
    }

    /// Bulk strings found.
    fn found(&self) -> usize {
        match self {
            Self::Keys(walk) => walk.found,
            Self::Records(range) => 2 * range.found,
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Self::Keys(walk) => walk.held_bytes(),
            Self::Records(range) => range.held_bytes(),
        }
    }
}

/// Arguments of a request that are answered one after the other.
struct Rows {
    request: Arc<OwnedArgs>,
    next: usize,
    /// The next value may be too long for a group. RocksDB would read it there only to tell its length.
    opens_next: bool,
    /// Writes the answer to one; keys are looked up without.
    write: Option<WriteRow>,
}

type WriteRow = fn(&mut Reply, &[u8]);

/// A value, or a part of one, that is read piece by piece.
pub(crate) struct Value {
    reader: Box<dyn ValueReader>,
    offset: u64,
    end: u64,
}

impl Value {
    /// All of a value.
    pub(crate) fn whole(reader: Box<dyn ValueReader>) -> Self {
        Self { offset: 0, end: reader.len(), reader }
    }

    /// Bytes of memory that the store holds for this reader alone.
    pub(crate) fn own_bytes(&self) -> usize {
        self.reader.own_bytes()
    }

    /// Appends the next piece to `out`. `false` if it was the last one.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be read.
    pub(crate) fn next_piece(&mut self, out: &mut Vec<u8>) -> Result<bool, BackendError> {
        let len = (self.end - self.offset).min(PIECE_BYTES as u64);
        self.reader.read_at(self.offset, len as usize, out)?;
        self.offset += len;
        Ok(self.offset < self.end)
    }
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

    /// A long text for people, whose header is written here.
    pub(crate) fn text(text: String, reply: &mut Reply) -> Self {
        reply.text_header(text.len());
        Self::owned(text.into_bytes())
    }

    /// Bytes of a bulk string whose header has been written.
    fn owned(bytes: Vec<u8>) -> Self {
        let owned_bytes = bytes.capacity();
        Self { owned_bytes, value: Some(Value::whole(Box::new(bytes))), ..Self::default() }
    }

    /// The values of the keys that are the arguments of `request` from `next` on, the first that [`answer_keys`] left.
    pub(crate) fn values(request: Arc<OwnedArgs>, next: usize) -> Self {
        Self { rows: Some(Rows { request, next, opens_next: true, write: None }), ..Self::default() }
    }

    /// The output of `write` for the arguments of `request` from `next` on.
    pub(crate) fn rows(request: Arc<OwnedArgs>, next: usize, write: WriteRow) -> Self {
        let rows = Rows { request, next, opens_next: false, write: Some(write) };
        Self { rows: Some(rows), ..Self::default() }
    }

    /// The keys that match `pattern`.
    ///
    /// # Errors
    ///
    /// If the pattern is too long.
    pub(crate) fn matching(pattern: &[u8]) -> Result<Self, Refusal> {
        Ok(Self { walk: Some((Gathering::Keys(Walk::new(pattern, None)?), Vec::new())), ..Self::default() })
    }

    /// The records of `range`, the first of which are in `found`.
    pub(crate) fn records(range: Range, found: Vec<u8>) -> Self {
        Self { walk: Some((Gathering::Records(range), found)), ..Self::default() }
    }

    /// Bytes of memory that this reply holds beside the store's, and those of a value that no key has any more.
    pub(crate) fn held_bytes(&self) -> usize {
        let rows = self.rows.as_ref().map_or(0, |rows| rows.request.held_bytes());
        let walk = self.walk.as_ref().map_or(0, |(walk, _)| walk.held_bytes());
        let retired = self.value.as_ref().map_or(0, Value::own_bytes);
        rows + self.owned_bytes() + walk + retired
    }

    /// Whether a part of the reply was written. A walk writes nothing before its end.
    pub(crate) fn has_begun(&self) -> bool {
        self.walk.is_none()
    }

    /// Bytes of what the reply is made of: keys, or a list of clients.
    pub(crate) fn owned_bytes(&self) -> usize {
        self.owned_bytes + self.walk.as_ref().map_or(0, |(_, found)| found.capacity())
    }

    /// Refuses what has not been answered yet, if nothing of it has.
    pub(crate) fn refuse(&mut self, counters: &Counters, reply: &mut Reply) {
        if self.walk.take().is_some() {
            counters.errors.add(1);
            reply.error(&Refusal::OUT_OF_MEMORY);
        }
    }

    /// Appends about one piece to the session's reply, or makes a step towards it; `false` when that was the last one.
    ///
    /// # Errors
    ///
    /// [`BackendError::TakesLong`] if a walk has to go on with more patience. Any other error says that a value whose
    /// length was announced cannot be read further. The caller can then only close the connection.
    fn next(&mut self, session: &mut Session<'_>) -> Result<bool, BackendError> {
        if self.walk.is_some() {
            return self.walk_on(session);
        }
        let (shared, backend, counters) = (session.shared, session.backend, session.counters);
        let (client, reply, scratch) = (&session.client.info, &mut *session.reply, &mut *session.value);
        let mut written = 0;
        while written < PIECE_BYTES {
            if let Some(value) = &mut self.value {
                scratch.clear();
                let more = value.next_piece(scratch)?;
                reply.raw(scratch);
                written += scratch.len();
                if !more {
                    reply.raw(b"\r\n");
                    self.value = None;
                    self.owned_bytes = 0;
                }
                continue;
            }
            match &mut self.rows {
                None => return Ok(false),
                Some(rows) if rows.next >= rows.request.args().len() => {
                    self.rows = None;
                    return Ok(false);
                }
                Some(Rows { request, next, write: Some(write), .. }) => {
                    let before = reply.output.unsent().len();
                    write(reply, request.args().at(*next));
                    *next += 1;
                    written += ROW_BYTES + reply.output.unsent().len() - before;
                }
                Some(rows) => {
                    let check_room = |reader: &dyn ValueReader| shared.check_room_for(client, reader);
                    let (bytes, large) = rows.answer_keys(backend, check_room, counters, reply, scratch);
                    written += bytes;
                    self.value = large;
                }
            }
        }
        Ok(true)
    }

    /// Makes a step of the walk. The reply begins after the last one, because it begins with a number.
    fn walk_on(&mut self, session: &mut Session<'_>) -> Result<bool, BackendError> {
        let Some((walk, found)) = &mut self.walk else { return Ok(false) };
        let bytes_max = found.len() + PIECE_BYTES;
        match walk.advance(session, bytes_max, found) {
            Ok(false) => {
                session.reply.array(walk.found());
                let mut found = mem::take(found);
                self.walk = None;
                if found.len() <= PIECE_BYTES {
                    session.reply.raw(&found);
                    return Ok(false);
                }
                // The line end is written behind the last piece.
                found.truncate(found.len() - 2);
                *self = Self::owned(found);
                Ok(true)
            }
            unfinished @ (Ok(true) | Err(BackendError::TakesLong)) => unfinished,
            Err(error) => {
                session.counters.errors.add(1);
                session.reply.error(&error.into());
                self.walk = None;
                Ok(false)
            }
        }
    }
}

impl Rows {
    /// Answers a group of keys, or the next key alone. Returns the bytes that were written, or read for a group, and
    /// the value that must be sent in pieces: one with room, as `check_room` tells.
    fn answer_keys(
        &mut self,
        backend: &dyn Backend,
        check_room: impl FnOnce(&dyn ValueReader) -> Result<(), Refusal>,
        counters: &Counters,
        reply: &mut Reply,
        scratch: &mut Vec<u8>,
    ) -> (usize, Option<Value>) {
        let args = self.request.args();
        let mut written = 0;
        if !self.opens_next {
            let mut group = [&b""[..]; GROUP];
            let count = GROUP.min(args.len() - self.next);
            for (slot, key) in group.iter_mut().zip(args.from(self.next)) {
                *slot = key;
            }
            let (answered, bytes) = answer_group(backend, counters, reply, &group[..count]);
            self.next += answered;
            if answered == count {
                return (bytes, None);
            }
            written = bytes;
        }
        let found = lookup_long(backend, args.at(self.next), scratch);
        self.next += 1;
        self.opens_next = matches!(found, Ok(Found::Large(_)));
        if let Ok(found) = &found {
            counters.note_lookup(!matches!(found, Found::Nothing));
        }
        let mut large = None;
        match found {
            Ok(Found::Small) => reply.bulk(scratch),
            Ok(Found::Large(reader)) => match check_room(&*reader) {
                Ok(()) => {
                    reply.bulk_header(reader.len());
                    large = Some(Value::whole(reader));
                }
                Err(refusal) => reply.error(&refusal),
            },
            Ok(Found::Nothing) => reply.null(),
            Err(error) => reply.error(&error.into()),
        }
        (written, large)
    }
}

/// Answers `keys` in turn until a value must be sent in pieces. Returns how many were answered, and the bytes that the
/// answers have, or that the store read for them where those are more.
fn answer_group(
    backend: &dyn Backend,
    counters: &Counters,
    reply: &mut Reply,
    keys: &[&[u8]],
) -> (usize, usize) {
    let (mut answered, mut written) = (0, 0);
    let read_before = backend.thread_read_bytes();
    backend.multi_get(keys, PIECE_BYTES, &mut |found| {
        match found {
            Ok(Some((meta, _))) if meta.len > PIECE_BYTES as u64 => return false,
            Ok(Some((_, value))) => {
                counters.note_lookup(true);
                reply.bulk(value);
                written += value.len();
            }
            Ok(None) => {
                counters.note_lookup(false);
                reply.null();
            }
            Err(error) => reply.error(&error.into()),
        }
        answered += 1;
        written += 16;
        true
    });
    let read_bytes = backend.thread_read_bytes().saturating_sub(read_before);
    (answered, written.max(read_bytes as usize))
}

/// Answers the first of `keys`, a group at a time, until about one piece is written, or as much is read for it. Returns
/// how many were answered.
pub(crate) fn answer_keys<'a>(
    backend: &dyn Backend,
    counters: &Counters,
    reply: &mut Reply,
    mut keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
) -> usize {
    let (mut written, mut all_answered) = (0, 0);
    while keys.len() > 0 && written < PIECE_BYTES {
        let mut group = [&b""[..]; GROUP];
        let count = GROUP.min(keys.len());
        for (slot, key) in group.iter_mut().zip(keys.clone()) {
            *slot = key;
        }
        let (answered, bytes) = answer_group(backend, counters, reply, &group[..count]);
        (written, all_answered) = (written + bytes, all_answered + answered);
        keys.by_ref().take(answered).for_each(drop);
        if answered < count {
            break;
        }
    }
    all_answered
}

/// The value of a key.
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

/// As [`lookup`], for a key whose value is probably long: such a value is looked up once.
fn lookup_long(backend: &dyn Backend, key: &[u8], value: &mut Vec<u8>) -> Result<Found, BackendError> {
    match backend.open_value(key)? {
        None => Ok(Found::Nothing),
        Some(mut reader) if reader.len() <= PIECE_BYTES as u64 => {
            value.clear();
            reader.read_at(0, reader.len() as usize, value)?;
            Ok(Found::Small)
        }
        Some(reader) => Ok(Found::Large(reader)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExpectedStore;
    use crate::opened::Opened;
    use crate::request::Parser;

    #[test]
    fn a_walk_that_finds_no_room_counts_one_error() {
        let (counters, mut reply) = (Counters::default(), Reply::default());
        let mut walk = Streaming::matching(b"*").unwrap();
        // At the second time nothing is left to be refused.
        (0..2).for_each(|_| walk.refuse(&counters, &mut reply));
        assert!(reply.output.unsent().starts_with(b"-OOM "));
        assert_eq!(counters.errors.get(), 1);
    }

    /// The store is not open yet.
    #[test]
    fn a_long_value_that_cannot_be_looked_up_is_neither_a_hit_nor_a_miss() {
        let mut parser = Parser::default();
        let args = parser.next(b"*2\r\n$4\r\nMGET\r\n$3\r\nkey\r\n").unwrap().unwrap();
        let request = Arc::new(OwnedArgs::copy(&args));
        let mut rows = Rows { request, next: 1, opens_next: true, write: None };
        let store = Opened::expecting(ExpectedStore::default(), 0);
        let (counters, mut reply) = (Counters::default(), Reply::default());
        let (_, large) = rows.answer_keys(&*store, |_| Ok(()), &counters, &mut reply, &mut Vec::new());
        assert!(large.is_none() && reply.output.unsent().starts_with(b"-"));
        assert_eq!((counters.hits.get(), counters.misses.get()), (0, 0));
    }
}
