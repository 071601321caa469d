//! A walk over all keys in order, a bounded part at a time.

use std::ops::Bound;

use crate::backend::{Backend, BackendError};
use crate::glob;

/// Keys asked of the store at a time: several leaves, for each is read whole.
const GROUP: usize = 512;

/// Where a walk over the keys that match a pattern stands.
#[derive(Debug)]
pub(crate) struct Walk {
    pattern: Box<[u8]>,
    /// The last key that was looked at.
    after: Option<Box<[u8]>>,
    /// Matching keys so far.
    pub(crate) found: usize,
}

impl Walk {
    /// Begins behind the key `after`, or with the first key.
    pub(crate) fn new(pattern: &[u8], after: Option<Box<[u8]>>) -> Self {
        Self { pattern: pattern.into(), after, found: 0 }
    }

    /// The last key looked at.
    pub(crate) fn after(&self) -> Option<&[u8]> {
        self.after.as_deref()
    }

    /// Looks at up to `count` keys, and at no more once `out` has `bytes_max` bytes. Appends those that match to `out`
    /// as bulk strings. `false` when the walk has come to its end.
    pub(crate) fn advance(
        &mut self,
        backend: &dyn Backend,
        count: usize,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, BackendError> {
        // Keys come in order, so a pattern that starts with plain text needs only the keys that do.
        let prefix = glob::literal_prefix(&self.pattern);
        let mut seen = 0;
        while seen < count && out.len() < bytes_max {
            let limit = GROUP.min(count - seen);
            let mut beyond = false;
            let mut last = Vec::new();
            let from = match &self.after {
                Some(after) => Bound::Excluded(&after[..]),
                None if prefix.is_empty() => Bound::Unbounded,
                None => Bound::Included(prefix),
            };
            let group = backend.keys_from(from, limit, &mut |key| {
                beyond = beyond || (key > prefix && !key.starts_with(prefix));
                if !beyond && glob::matches(&self.pattern, key) {
                    self.found += 1;
                    out.push(b'$');
                    out.extend_from_slice(itoa::Buffer::new().format(key.len()).as_bytes());
                    out.extend_from_slice(b"\r\n");
                    out.extend_from_slice(key);
                    out.extend_from_slice(b"\r\n");
                }
                last.clear();
                last.extend_from_slice(key);
            })?;
            seen += group;
            if beyond || group < limit {
                return Ok(false);
            }
            self.after = Some(last.into());
        }
        Ok(true)
    }
}
