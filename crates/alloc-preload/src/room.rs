//! Room below a limit for large blocks, which threads take before they allocate.
//!
//! Between two ticks, threads compare the sizes of small blocks with one word: the next tick comes soon enough. Large
//! blocks of several threads would use the same room up several times.
//!
//! 1. A thread adds the bytes of a large block to those that were ever begun, unless they exceed what a tick allows.
//! 2. The thread allocates, and adds the bytes to those that were ever ended. It counts them once more for the step: a
//!    block that completes a step is followed by a tick, so that small blocks find the room that it left.
//! 3. A tick reads the bytes that were ended, then counts live bytes. It allows as many bytes to be begun as were ended
//!    and have room: the count may miss each block that was not ended.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use tikv_jemalloc_sys as jemalloc;

use crate::tick::{self, BLOCK_BYTES_MAX};

/// Larger blocks take room. A thread that allocates such a block settles at once.
pub(crate) const LARGE_ABOVE: usize = 64 << 10;

/// Other threads took the room that the last tick left, or had begun a block before that tick counted.
pub(crate) struct Taken;

/// Bytes of a large block: the ones asked for, and what jemalloc adds to these.
pub(crate) fn block_bytes(bytes: usize) -> u64 {
    // SAFETY: the size is not 0.
    unsafe { jemalloc::nallocx(bytes.min(BLOCK_BYTES_MAX as usize), 0) as u64 }
}

/// Bytes of large blocks in one medium since the process began.
pub(crate) struct Room {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Bytes that may be begun.
    allowed: AtomicU64,
}

/// DRAM's and far memory's, by [`ziptier_alloc::page::Medium`].
pub(crate) static ROOMS: [Room; 2] = [const { Room::new() }; 2];

impl Room {
    const fn new() -> Room {
        Room { begun: AtomicU64::new(0), ended: AtomicU64::new(0), allowed: AtomicU64::new(u64::MAX) }
    }

    /// Allocates a block of [`block_bytes`], for which the last tick left room.
    pub(crate) fn allocate(
        &self,
        bytes: u64,
        allocate: impl FnOnce() -> *mut c_void,
    ) -> Result<*mut c_void, Taken> {
        let is_allowed = |begun: &u64| *begun <= self.allowed.load(Acquire);
        let begin = |begun: u64| begun.checked_add(bytes).filter(is_allowed);
        if self.begun.fetch_update(AcqRel, Relaxed, begin).is_err() {
            return Err(Taken);
        }
        let block = allocate();
        self.end(bytes);
        if !block.is_null() {
            tick::count(None, bytes);
        }
        Ok(block)
    }

    /// Bytes of blocks that the next count of live bytes sees.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Acquire)
    }

    /// Allows as many bytes as have room by a count that began after `ended` bytes.
    pub(crate) fn allow(&self, ended: u64, room_bytes: u64) {
        self.allowed.store(ended.saturating_add(room_bytes), Release);
    }

    /// Ends the blocks of threads that a forked child does not have.
    pub(crate) fn end_all(&self) {
        self.end(u64::MAX);
    }

    /// Ends bytes, and never more than were begun: in a child, [`Room::end_all`] may have ended the block of a thread
    /// that is about to end the same block.
    fn end(&self, bytes: u64) {
        let end = |ended: u64| Some(ended.saturating_add(bytes).min(self.begun.load(Relaxed)));
        // Never fails: there is always a sum.
        let _ = self.ended.fetch_update(AcqRel, Acquire, end);
    }
}
