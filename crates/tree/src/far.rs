//! Far memory as a place for bytes that never change: bodies, and chunks of large values.
//!
//! Not for bytes that must outlive the process: blocks that an earlier process left are freed when the medium is
//! opened.
//!
//! 1. The store copies bytes here once. Readers use them in place, as they use bytes in DRAM.
//! 2. The space is given back with the last owner. A body's owner is the state of its leaf, which the epoch frees.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::placement::Placement;
use crate::sizes::CHUNK_BYTES;

/// A medium whose bytes can be read in place.
///
/// # Safety
/// `put` returns as many bytes as it was given, and these bytes. Any thread may read them, no other block has them, and
/// they neither move nor change until the block is freed, wherever the medium itself is moved.
pub unsafe trait FarMedium: Send + Sync {
    /// A copy of `bytes`; `None` if the medium has no room or fails.
    fn put(&self, bytes: &[u8]) -> Option<NonNull<[u8]>>;

    /// Gives back the space of a block.
    ///
    /// # Safety
    /// This medium gave `block`, which was not freed, and which nobody reads any more.
    unsafe fn free(&self, block: NonNull<[u8]>);

    /// Whether a block is what was put, as far as the medium can tell.
    ///
    /// # Safety
    /// This medium gave `block`, which was not freed.
    unsafe fn is_whole(&self, block: NonNull<[u8]>) -> bool;

    /// Whether `blocks` blocks of `bytes` bytes each, at most [`CHUNK_BYTES`], certainly fit.
    fn has_room(&self, bytes: usize, blocks: usize) -> bool;

    /// Whether a block may take a slot of any size, where none of its own size is free. Otherwise the slot may have
    /// twice the size of the block at most: a larger slot serves no other block until this one is freed.
    fn set_takes_any(&self, takes_any: bool);

    /// How full it is.
    fn usage(&self) -> FarUsage;

    /// Its kind, in words.
    fn kind(&self) -> String;

    /// The means by which bytes become durable there, in words.
    fn persistence(&self) -> String;

    /// Whether the system counts its bytes as anonymous memory of this process.
    fn is_anonymous(&self) -> bool;
}

/// How full a medium is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarUsage {
    /// Bytes of the medium.
    pub capacity_bytes: u64,
    /// Bytes that blocks take, rounding included.
    pub used_bytes: u64,
}

/// The state of far memory, as `Store::far` tells it: its kind, and how full it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FarStatus {
    /// The kind of the medium, in words.
    pub kind: String,
    /// The means by which bytes become durable there, in words. The store does not rely on it yet.
    pub persistence: String,
    /// Bytes of the medium.
    pub limit_bytes: u64,
    /// Bytes that blocks take, rounding and what waits for its last reader included.
    pub used_bytes: u64,
    /// Bytes that are no DRAM, but that the system counts as anonymous memory of this process: all bytes of a NUMA
    /// node, none of a file.
    pub anonymous_bytes: u64,
}

impl fmt::Display for FarStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.kind, self.persistence)
    }
}

/// The medium of a store.
pub struct FarMemory {
    medium: Box<dyn FarMedium>,
    /// Blocks that were ever freed.
    freed: AtomicU64,
    /// The count of freed blocks when the last refused block began its search; [`NEVER`] before the first refusal.
    full_at: AtomicU64,
    /// Places chunks of large values, if their ratio is set.
    placement: Option<Placement>,
    /// A body was made from bytes here that were no longer what was put.
    damaged: AtomicBool,
}

/// Bytes in far memory, freed when this is dropped.
pub struct FarBytes {
    memory: Arc<FarMemory>,
    block: Block,
}

/// A block of a medium.
struct Block(NonNull<[u8]>);

// SAFETY: any thread may read and free it, by the contract of the medium.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

const NEVER: u64 = u64::MAX;

/// Bytes of DRAM of an `Arc<FarBytes>`, its counts included.
pub const FAR_SHARE_BYTES: usize = size_of::<FarBytes>() + 2 * size_of::<usize>();

impl FarMemory {
    /// Over a medium. The ratio of `placement`, if it is set, holds for chunks of large values.
    pub fn new(medium: Box<dyn FarMedium>, placement: Option<Placement>) -> Arc<Self> {
        let (freed, full_at, damaged) = (AtomicU64::new(0), AtomicU64::new(NEVER), AtomicBool::new(false));
        Arc::new(Self { medium, freed, full_at, placement, damaged })
    }

    /// Far memory on the heap, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn on_heap(capacity_bytes: u64) -> Arc<Self> {
        Self::new(Box::new(Arc::new(heap::Heap::new(capacity_bytes))), None)
    }

    /// As [`FarMedium::set_takes_any`].
    pub fn set_takes_any(&self, takes_any: bool) {
        self.medium.set_takes_any(takes_any);
    }

    /// The placement of chunks of large values at a set ratio.
    pub fn placement(&self) -> Option<&Placement> {
        self.placement.as_ref()
    }

    /// Whether large values lie at a set ratio, and are not to be moved.
    pub fn is_placing(&self) -> bool {
        self.placement.is_some()
    }

    /// A copy of `bytes`; `None` when there is no room.
    pub fn put(self: &Arc<Self>, bytes: &[u8]) -> Option<FarBytes> {
        let freed = self.freed.load(Relaxed);
        let block = self.medium.put(bytes);
        if block.is_none() {
            self.full_at.store(freed, Relaxed);
        }
        block.map(|block| FarBytes { memory: self.clone(), block: Block(block) })
    }

    /// Whether the chunks of a large value of `bytes` bytes fit for sure.
    pub fn has_room_for_chunks(&self, bytes: usize) -> bool {
        self.has_room_for_bodies(bytes.min(CHUNK_BYTES), bytes.div_ceil(CHUNK_BYTES))
    }

    /// Whether so many bodies of `bytes` bytes each fit for sure.
    pub(crate) fn has_room_for_bodies(&self, bytes: usize, bodies: usize) -> bool {
        self.medium.has_room(bytes, bodies)
    }

    /// Blocks that were freed so far.
    pub fn frees(&self) -> u64 {
        self.freed.load(Relaxed)
    }

    /// Notes that there was no room, which holds until more than `frees` blocks were freed in all.
    pub fn note_no_room(&self, frees: u64) {
        self.full_at.store(frees, Relaxed);
    }

    /// Whether it had no room, and nothing was freed since.
    pub fn is_full(&self) -> bool {
        self.full_at.load(Relaxed) == self.freed.load(Relaxed)
    }

    /// Notes that a body was made from bytes that are no longer what was put. Its own checksum does not tell.
    pub(crate) fn note_damage(&self) {
        self.damaged.store(true, Relaxed);
    }

    /// Whether such a body was made since the store was opened.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Relaxed)
    }

    /// How full the medium is.
    pub fn usage(&self) -> FarUsage {
        self.medium.usage()
    }

    /// Whether about `bytes` bytes fit: blocks may take half more than their bytes.
    pub fn has_room(&self, bytes: usize) -> bool {
        let usage = self.usage();
        usage.capacity_bytes.saturating_sub(usage.used_bytes) > bytes as u64 / 2 * 3 + (2 << 20)
    }

    /// The kind of the medium, and how full it is.
    pub fn status(&self) -> FarStatus {
        let FarUsage { capacity_bytes: limit_bytes, used_bytes } = self.usage();
        let (kind, persistence) = (self.medium.kind(), self.medium.persistence());
        let anonymous_bytes = if self.medium.is_anonymous() { limit_bytes } else { 0 };
        FarStatus { kind, persistence, limit_bytes, used_bytes, anonymous_bytes }
    }
}

impl FarBytes {
    /// The bytes, which stay where they are for as long as this lives.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the medium keeps the block as it is until `drop` frees it.
        unsafe { self.block.0.as_ref() }
    }

    /// Their address.
    pub fn start(&self) -> NonNull<[u8]> {
        NonNull::from(self.bytes())
    }

    /// Whether they are what was put, as far as the medium's checksum tells.
    pub fn is_whole(&self) -> bool {
        // SAFETY: the medium gave the block, which `drop` frees.
        unsafe { self.memory.medium.is_whole(self.block.0) }
    }
}

impl Drop for FarBytes {
    fn drop(&mut self) {
        // SAFETY: the medium gave the block, this is its one owner, and no borrow outlives the owner.
        unsafe { self.memory.medium.free(self.block.0) };
        self.memory.freed.fetch_add(1, Relaxed);
    }
}

impl fmt::Debug for FarMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn far_memory_with_a_block_that_was_freed_while_another_one_found_no_room_is_not_full() {
        let heap = Arc::new(heap::Heap::new(100));
        let far = FarMemory::new(Box::new(heap.clone()), None);
        let block = far.put(&[0; 80]).expect("there is room");
        assert!(far.put(&[0; 80]).is_none() && far.is_full());
        heap.free_at_refusal(block);
        // This block finds no room, and notes that once the other one is free.
        assert!(far.put(&[0; 80]).is_none());
        assert!(!far.is_full());
        assert!(far.put(&[0; 80]).is_some());
    }
}

/// A medium of heap memory with a capacity.
#[cfg(any(test, feature = "testing"))]
mod heap {
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};

    use super::{FarBytes, FarMedium, FarUsage};

    pub(super) struct Heap {
        capacity_bytes: u64,
        used_bytes: AtomicU64,
        /// A block that is freed as soon as another one has found no room.
        freed_at_refusal: Mutex<Option<FarBytes>>,
    }

    impl Heap {
        pub(super) fn new(capacity_bytes: u64) -> Self {
            Self { capacity_bytes, used_bytes: AtomicU64::new(0), freed_at_refusal: Mutex::new(None) }
        }

        #[cfg(all(test, not(shuttle)))]
        pub(super) fn free_at_refusal(&self, block: FarBytes) {
            *self.freed_at_refusal.lock().expect("no holder panics") = Some(block);
        }
    }

    // SAFETY: a block is a box of its own, which `free` drops.
    unsafe impl FarMedium for Arc<Heap> {
        fn put(&self, bytes: &[u8]) -> Option<NonNull<[u8]>> {
            let len = bytes.len() as u64;
            let fits = |used: u64| (used + len <= self.capacity_bytes).then_some(used + len);
            if self.used_bytes.fetch_update(Relaxed, Relaxed, fits).is_err() {
                let freed = self.freed_at_refusal.lock().expect("no holder panics").take();
                drop(freed);
                return None;
            }
            Some(NonNull::from(Box::leak(Box::<[u8]>::from(bytes))))
        }

        unsafe fn free(&self, block: NonNull<[u8]>) {
            self.used_bytes.fetch_sub(block.len() as u64, Relaxed);
            // SAFETY: `put` leaked the box, which by the contract nobody has freed or reads.
            drop(unsafe { Box::from_raw(block.as_ptr()) });
        }

        unsafe fn is_whole(&self, _: NonNull<[u8]>) -> bool {
            true
        }

        fn has_room(&self, bytes: usize, blocks: usize) -> bool {
            self.capacity_bytes >= self.usage().used_bytes + (bytes * blocks) as u64
        }

        fn set_takes_any(&self, _: bool) {}

        fn usage(&self) -> FarUsage {
            let used_bytes = self.used_bytes.load(Relaxed);
            FarUsage { capacity_bytes: self.capacity_bytes, used_bytes }
        }

        fn kind(&self) -> String {
            "memory of a test".to_owned()
        }

        fn persistence(&self) -> String {
            String::new()
        }

        fn is_anonymous(&self) -> bool {
            false
        }
    }
}
