//! A walk over all keys in order, a bounded part at a time.

use std::ops::Bound;

use crate::backend::{Backend, BackendError};
use crate::glob::Pattern;
use crate::range::bulk_header;
use crate::refusal::Refusal;

/// Keys requested from the store at a time: several leaves, because each leaf is read whole.
const GROUP: usize = 512;
/// Bytes of keys of a group, about. Groups of long keys have fewer keys.
const GROUP_BYTES: usize = 1 << 20;
/// Bytes of keys times words of the pattern that one call processes, about: some milliseconds.
const WORK_MAX: usize = 4 << 20;

/// The state of a walk over the keys that match a pattern.
#[derive(Debug)]
pub(crate) struct Walk {
    pattern: Pattern,
    /// Scratch of the matches.
    states: Vec<u64>,
    /// The last key that was looked at.
    after: Option<Box<[u8]>>,
    /// Keys of the next group.
    group: usize,
    /// Matching keys so far.
    pub(crate) found: usize,
}

impl Walk {
    /// Begins behind the key `after`, or with the first key.
    ///
    /// # Errors
    ///
    /// If the pattern is too long.
    pub(crate) fn new(pattern: &[u8], after: Option<Box<[u8]>>) -> Result<Self, Refusal> {
        Ok(Self { pattern: Pattern::new(pattern)?, states: Vec::new(), after, group: GROUP / 8, found: 0 })
    }

    /// The last key looked at.
    pub(crate) fn after(&self) -> Option<&[u8]> {
        self.after.as_deref()
    }

    /// Bytes of memory held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.pattern.held_bytes() + self.after.as_ref().map_or(0, |after| after.len())
    }

    /// Visits up to `count` keys, stops when `out` has `bytes_max` bytes, and visits fewer if the pattern is slow.
    /// Appends matching keys to `out` as bulk strings. `false` at the end of the walk.
    pub(crate) fn advance(
        &mut self,
        backend: &dyn Backend,
        count: usize,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, BackendError> {
        let (mut seen, mut work) = (0, 0);
        while seen < count && out.len() < bytes_max && work < WORK_MAX {
            let limit = self.group.min(count - seen);
            let (pattern, states, found) = (&self.pattern, &mut self.states, &mut self.found);
            // Keys come in order, so a pattern that starts with plain text needs only the keys that do.
            let prefix = pattern.prefix();
            let (mut beyond, mut stopped) = (false, false);
            let mut last = Vec::new();
            let mut bytes = 0;
            let from = match &self.after {
                Some(after) => Bound::Excluded(&after[..]),
                None if prefix.is_empty() => Bound::Unbounded,
                None => Bound::Included(prefix),
            };
            let group = backend.keys_from(from, limit, &mut |key| {
                bytes += key.len();
                stopped = stopped || work >= WORK_MAX || out.len() >= bytes_max;
                beyond = beyond || (!stopped && key > prefix && !key.starts_with(prefix));
                if stopped || beyond {
                    return;
                }
                work += key.len() * pattern.words();
                if pattern.matches(key, states) {
                    *found += 1;
                    bulk_header(key.len(), out);
                    out.extend_from_slice(key);
                    out.extend_from_slice(b"\r\n");
                }
                last.clear();
                last.extend_from_slice(key);
            })?;
            seen += group;
            if beyond || (group < limit && !stopped) {
                return Ok(false);
            }
            self.after = Some(last.into());
            self.group = (GROUP_BYTES * group / bytes.max(1)).clamp(GROUP / 32, GROUP);
        }
        Ok(true)
    }
}
