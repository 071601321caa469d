//! The memory limit, and what happens there.

use super::Store;
use crate::Error;
#[cfg(doc)]
use crate::Options;

/// # Memory limit and eviction
impl Store {
    /// Sends leaves to far memory or SSD, or evicts records, until `bytes` more may be held, which are the caller's to
    /// use for a moment; `false` when so much is not to be had, when others are as quick to use what becomes free, or
    /// when the store may do neither.
    pub fn make_room(&self, bytes: u64) -> bool {
        self.core.room().can_make_room()
            && self.core.reclaimer().make_room(usize::try_from(bytes).unwrap_or(usize::MAX)).is_ok()
    }

    /// Whether the store evicts records at its memory limit.
    pub fn evicts(&self) -> bool {
        self.core.tree.evicts()
    }

    /// Whether the store may evict.
    ///
    /// # Errors
    /// It has an SSD, where a store that evicts keeps nothing.
    pub fn may_evict(&self) -> Result<(), Error> {
        self.core.reclaimer().may_evict()
    }

    /// Begins or ends eviction at the memory limit; [`Options::eviction`] says what a store begins with. Records that
    /// are there count as not read so far. Once the call has ended eviction nothing is evicted, and writes are refused
    /// at the limit. It visits every leaf.
    ///
    /// # Errors
    /// As [`Store::may_evict`].
    pub fn set_eviction(&self, evicts: bool) -> Result<(), Error> {
        self.core.reclaimer().set_eviction(evicts)
    }

    /// Changes the memory limit; `None` lifts it.
    pub fn set_memory_limit(&self, bytes: Option<u64>) {
        self.core.reclaimer().set_memory_limit(bytes);
    }
}
