//! A walk over all keys in order, a bounded part at a time.

use crate::backend::{Backend, BackendError, Patience};
use crate::glob::Pattern;
use crate::range::bulk_header;
use crate::refusal::Refusal;

/// Keys requested from the store at a time: several leaves, because each leaf is read whole.
const GROUP: usize = 512;
/// Bytes of keys of a group, about. Groups of long keys have fewer keys.
const GROUP_BYTES: usize = 1 << 20;
/// Bytes of keys times words of the pattern that one call processes, about: some milliseconds.
const WORK_MAX: usize = 4 << 20;
/// Work that each call of the store counts as.
const CALL_WORK: usize = WORK_MAX / 64;
/// The same for a call that finds no key: the store has passed many leaves of expired keys.
const VAIN_CALL_WORK: usize = WORK_MAX / 8;
/// Work that takes as long as a byte of a request or reply. A turn of a connection has about [`WORK_MAX`] then.
const WORK_PER_BYTE: usize = 32;

/// Work that a call of the store counts as, beside that for its keys.
fn call_work(keys: usize) -> usize {
    if keys > 0 { CALL_WORK } else { VAIN_CALL_WORK }
}

/// The same as bytes of requests and replies that take as long.
pub(crate) fn call_bytes(keys: usize) -> u64 {
    (call_work(keys) / WORK_PER_BYTE) as u64
}

/// The state of a walk over the keys that match a pattern.
#[derive(Debug)]
pub(crate) struct Walk {
    pattern: Pattern,
    /// Scratch of the matches.
    states: Vec<u64>,
    /// Where the walk goes on; `None` at its end.
    from: Option<Box<[u8]>>,
    /// Keys of the next group.
    group: usize,
    /// Work of the last call.
    work: usize,
    /// Matching keys so far.
    pub(crate) found: usize,
}

impl Walk {
    /// Begins with the key `from`, or with the first one that may match.
    ///
    /// # Errors
    ///
    /// If the pattern is too long.
    pub(crate) fn new(pattern: &[u8], from: Option<Box<[u8]>>) -> Result<Self, Refusal> {
        let pattern = Pattern::new(pattern)?;
        let from = from.unwrap_or_else(|| pattern.prefix().into());
        Ok(Self { pattern, states: Vec::new(), from: Some(from), group: GROUP / 8, work: 0, found: 0 })
    }

    /// Where the walk goes on; `None` at its end.
    pub(crate) fn place(&self) -> Option<&[u8]> {
        self.from.as_deref()
    }

    /// Bytes of memory held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.pattern.held_bytes() + self.from.as_ref().map_or(0, |from| from.len())
    }

    /// Work of the last call, as bytes of requests and replies that take as long.
    pub(crate) fn worked_bytes(&self) -> u64 {
        (self.work / WORK_PER_BYTE) as u64
    }

    /// Visits up to `count` keys, stops when `out` has `bytes_max` bytes, and visits fewer if the pattern is slow or
    /// the store reads much. Appends matching keys to `out` as bulk strings. `false` at the end of the walk.
    ///
    /// # Errors
    ///
    /// The store's, at the first key. After [`BackendError::TakesLong`] the walk can go on.
    pub(crate) fn advance(
        &mut self,
        backend: &dyn Backend,
        patience: Patience,
        count: usize,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, BackendError> {
        let (mut seen, mut work) = (0, 0);
        while seen < count && out.len() < bytes_max && work < WORK_MAX {
            let Some(from) = self.from.take() else { return Ok(false) };
            let limit = self.group.min(count - seen);
            let (pattern, states, found) = (&self.pattern, &mut self.states, &mut self.found);
            // Keys come in order, so a pattern that starts with plain text needs only the keys that do.
            let prefix = pattern.prefix();
            let (mut beyond, mut stopped_at) = (false, None);
            let (mut keys, mut bytes) = (0, 0);
            let read_before = backend.thread_read_bytes();
            let walked = backend.keys_from(&from, limit, patience, &mut |key| {
                if beyond || stopped_at.is_some() {
                    return;
                }
                if work >= WORK_MAX || out.len() >= bytes_max {
                    stopped_at = Some(key.into());
                    return;
                }
                beyond = key > prefix && !key.starts_with(prefix);
                if beyond {
                    return;
                }
                (keys, bytes) = (keys + 1, bytes + key.len());
                work += key.len() * pattern.words();
                if pattern.matches(key, states) {
                    *found += 1;
                    bulk_header(key.len(), out);
                    out.extend_from_slice(key);
                    out.extend_from_slice(b"\r\n");
                }
            });
            let read_bytes = backend.thread_read_bytes().saturating_sub(read_before) as usize;
            work += call_work(keys).max(WORK_PER_BYTE * read_bytes);
            self.work = work;
            let next = match walked {
                Err(error) => {
                    self.from = Some(from);
                    // The keys before are told first, and the next call comes to the error at once.
                    return if seen > 0 && keys == 0 { Ok(true) } else { Err(error) };
                }
                Ok(next) => next,
            };
            if beyond {
                return Ok(false);
            }
            self.from = stopped_at.or_else(|| next.map(Vec::into_boxed_slice));
            seen += keys;
            if keys > 0 {
                self.group = (GROUP_BYTES * keys / bytes.max(1)).clamp(GROUP / 32, GROUP);
            }
        }
        Ok(self.from.is_some())
    }
}
