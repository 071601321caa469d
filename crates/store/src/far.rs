//! Far memory as a place for bytes that never change: bodies, and chunks of large values.
//!
//! Not for bytes that must outlive the process: blocks that an earlier process left are freed when the medium is
//! opened.
//!
//! 1. The store copies bytes here once. Readers use them in place, as they use bytes in DRAM.
//! 2. The space is given back with the last owner. A body's owner is the state of its leaf, which the epoch frees.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ziptier_media::far::{Block, Far, FarKind, FarOptions, FarUsage, Fit};
use ziptier_media::placement::Placement;

use crate::Error;
use crate::sizes::CHUNK_BYTES;

/// DRAM to far memory, as a ratio of bytes; `1:3` in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarRatio {
    dram: u32,
    far: u32,
}

impl FarRatio {
    /// So many parts of DRAM to so many of far memory; `None` if both are 0.
    pub fn new(dram: u32, far: u32) -> Option<Self> {
        (dram > 0 || far > 0).then_some(Self { dram, far })
    }

    fn parts(self) -> (u32, u32) {
        (self.dram, self.far)
    }
}

impl FromStr for FarRatio {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let part = |part: &str| part.trim().parse::<u32>().ok();
        let parts = text.split_once(':').and_then(|(dram, far)| Some((part(dram)?, part(far)?)));
        let ratio = parts.and_then(|(dram, far)| Self::new(dram, far));
        ratio.ok_or_else(|| Error::FarRatio { ratio: text.to_owned() })
    }
}

/// The state of a store's far memory, from [`Store::far`](crate::Store::far).
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
pub(crate) struct FarMemory {
    medium: Medium,
    /// Blocks that were ever freed.
    freed: AtomicU64,
    /// So many were freed when a block that found no room began to look for it; [`NEVER`] if none did.
    full_at: AtomicU64,
    /// Places chunks of large values, if their ratio is set.
    placement: Option<Placement>,
    /// Whether a block takes a slot of any size where none of its own is free.
    takes_any: AtomicBool,
    /// A body was made from bytes here that were no longer what was put.
    damaged: AtomicBool,
}

/// The seam: what is mapped cannot run under Miri.
enum Medium {
    Mapped(Far),
    #[cfg(test)]
    Heap(heap::Heap),
}

/// Bytes in far memory, freed when this is dropped.
pub(crate) struct FarBytes {
    memory: Arc<FarMemory>,
    held: ManuallyDrop<Held>,
}

enum Held {
    Block(Block),
    #[cfg(test)]
    Heap(Box<[u8]>),
}

const NEVER: u64 = u64::MAX;

/// Bytes of DRAM for a share of bytes in far memory.
pub(crate) const FAR_SHARE_BYTES: usize = size_of::<FarBytes>() + 2 * size_of::<usize>();

impl FarMemory {
    /// Opens the medium empty, whatever an earlier process left there.
    pub(crate) fn open(options: &FarOptions, ratio: Option<FarRatio>, fit: Fit) -> Result<Arc<Self>, Error> {
        let far = Far::open_empty(options).map_err(|error| Error::Far { reason: error.to_string() })?;
        Ok(Self::over(Medium::Mapped(far), ratio, fit))
    }

    /// Memory of the test's own.
    #[cfg(test)]
    pub(crate) fn on_heap(capacity_bytes: u64) -> Arc<Self> {
        Self::over(Medium::Heap(heap::Heap::new(capacity_bytes)), None, Fit::Any)
    }

    fn over(medium: Medium, ratio: Option<FarRatio>, fit: Fit) -> Arc<Self> {
        let placement = ratio.map(FarRatio::parts).map(|(dram, far)| Placement::new(dram, far));
        let takes_any = AtomicBool::new(fit == Fit::Any);
        let (freed, full_at, damaged) = (AtomicU64::new(0), AtomicU64::new(NEVER), AtomicBool::new(false));
        Arc::new(Self { medium, freed, full_at, placement, takes_any, damaged })
    }

    fn fit(&self) -> Fit {
        if self.takes_any.load(Relaxed) { Fit::Any } else { Fit::Close }
    }

    /// Changes how much more than a slot of its own size a block may take.
    pub(crate) fn set_fit(&self, fit: Fit) {
        self.takes_any.store(fit == Fit::Any, Relaxed);
    }

    /// The placement of chunks of large values at a set ratio.
    pub(crate) fn placement(&self) -> Option<&Placement> {
        self.placement.as_ref()
    }

    /// Whether large values lie at a set ratio, and are not to be moved.
    pub(crate) fn is_placing(&self) -> bool {
        self.placement.is_some()
    }

    /// A copy of `bytes`; `None` when there is no room.
    pub(crate) fn put(self: &Arc<Self>, bytes: &[u8]) -> Option<FarBytes> {
        let freed = self.freed.load(Relaxed);
        let held = match &self.medium {
            Medium::Mapped(far) => far.put_fitting(bytes, self.fit()).ok().map(Held::Block),
            #[cfg(test)]
            Medium::Heap(heap) => heap.put(bytes).map(Held::Heap),
        };
        if held.is_none() {
            self.full_at.store(freed, Relaxed);
        }
        held.map(|held| FarBytes { memory: self.clone(), held: ManuallyDrop::new(held) })
    }

    /// Whether the chunks of a large value of `bytes` bytes fit for sure.
    pub(crate) fn has_room_for_chunks(&self, bytes: usize) -> bool {
        self.has_room_for_bodies(bytes.min(CHUNK_BYTES), bytes.div_ceil(CHUNK_BYTES))
    }

    /// Whether so many bodies of `bytes` bytes each fit for sure.
    pub(crate) fn has_room_for_bodies(&self, bytes: usize, bodies: usize) -> bool {
        match &self.medium {
            Medium::Mapped(far) => far.has_room(bytes, bodies, self.fit()),
            #[cfg(test)]
            Medium::Heap(heap) => {
                heap.usage().capacity_bytes >= heap.usage().used_bytes + (bytes * bodies) as u64
            }
        }
    }

    /// Blocks that were freed so far.
    pub(crate) fn frees(&self) -> u64 {
        self.freed.load(Relaxed)
    }

    /// Notes that there was no room, which holds until more than `frees` blocks were freed in all.
    pub(crate) fn note_no_room(&self, frees: u64) {
        self.full_at.store(frees, Relaxed);
    }

    /// Whether it had no room, and nothing was freed since.
    pub(crate) fn is_full(&self) -> bool {
        self.full_at.load(Relaxed) == self.freed.load(Relaxed)
    }

    /// Notes that a body was made from bytes that are no longer what was put. Its own checksum does not tell.
    pub(crate) fn note_damage(&self) {
        self.damaged.store(true, Relaxed);
    }

    /// Whether such a body was made since the store was opened.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Relaxed)
    }

    pub(crate) fn usage(&self) -> FarUsage {
        match &self.medium {
            Medium::Mapped(far) => far.usage(),
            #[cfg(test)]
            Medium::Heap(heap) => heap.usage(),
        }
    }

    /// Whether about so many bytes fit: blocks take up to a third more than their bytes.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let usage = self.usage();
        usage.capacity_bytes.saturating_sub(usage.used_bytes) > bytes as u64 / 2 * 3 + (2 << 20)
    }

    pub(crate) fn status(&self) -> FarStatus {
        let FarUsage { capacity_bytes, used_bytes } = self.usage();
        let (kind, persistence, on_node) = match &self.medium {
            Medium::Mapped(far) => {
                let on_node = matches!(far.kind(), FarKind::Node { .. });
                (far.kind().to_string(), far.persistence().to_string(), on_node)
            }
            #[cfg(test)]
            Medium::Heap(_) => ("memory of a test".to_owned(), String::new(), false),
        };
        let anonymous_bytes = if on_node { capacity_bytes } else { 0 };
        FarStatus { kind, persistence, limit_bytes: capacity_bytes, used_bytes, anonymous_bytes }
    }
}

impl FarBytes {
    /// The bytes, which stay where they are for as long as this lives.
    pub(crate) fn bytes(&self) -> &[u8] {
        match (&self.memory.medium, &*self.held) {
            (Medium::Mapped(far), Held::Block(block)) => far.get(block),
            #[cfg(test)]
            (_, Held::Heap(bytes)) => bytes,
            #[cfg(test)]
            _ => unreachable!("a block lies on the medium that gave it"),
        }
    }

    /// Their address.
    pub(crate) fn start(&self) -> NonNull<[u8]> {
        NonNull::from(self.bytes())
    }

    /// Whether they are what was put, as far as the medium's checksum tells.
    pub(crate) fn is_whole(&self) -> bool {
        match (&self.memory.medium, &*self.held) {
            (Medium::Mapped(far), Held::Block(block)) => far.verify(block).is_ok(),
            #[cfg(test)]
            _ => true,
        }
    }
}

impl Drop for FarBytes {
    fn drop(&mut self) {
        // SAFETY: it is taken once, here, and not touched afterwards.
        let held = unsafe { ManuallyDrop::take(&mut self.held) };
        match (&self.memory.medium, held) {
            (Medium::Mapped(far), Held::Block(block)) => far.free(block),
            #[cfg(test)]
            (Medium::Heap(heap), Held::Heap(bytes)) => heap.free(&bytes),
            #[cfg(test)]
            _ => unreachable!("a block lies on the medium that gave it"),
        }
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
        let far = FarMemory::on_heap(100);
        let block = far.put(&[0; 80]).expect("there is room");
        assert!(far.put(&[0; 80]).is_none() && far.is_full());
        let Medium::Heap(heap) = &far.medium else { unreachable!("it lies on the heap") };
        heap.free_at_refusal(block);
        // This block finds no room, and notes that once the other one is free.
        assert!(far.put(&[0; 80]).is_none());
        assert!(!far.is_full());
        assert!(far.put(&[0; 80]).is_some());
    }
}

/// A medium of heap memory with a capacity.
#[cfg(test)]
mod heap {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use ziptier_media::far::FarUsage;

    use super::FarBytes;

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

        #[cfg(not(shuttle))]
        pub(super) fn free_at_refusal(&self, block: FarBytes) {
            *self.freed_at_refusal.lock().expect("no holder panics") = Some(block);
        }

        pub(super) fn put(&self, bytes: &[u8]) -> Option<Box<[u8]>> {
            let len = bytes.len() as u64;
            let fits = |used: u64| (used + len <= self.capacity_bytes).then_some(used + len);
            if self.used_bytes.fetch_update(Relaxed, Relaxed, fits).is_err() {
                let freed = self.freed_at_refusal.lock().expect("no holder panics").take();
                drop(freed);
                return None;
            }
            Some(bytes.into())
        }

        pub(super) fn free(&self, bytes: &[u8]) {
            self.used_bytes.fetch_sub(bytes.len() as u64, Relaxed);
        }

        pub(super) fn usage(&self) -> FarUsage {
            let used_bytes = self.used_bytes.load(Relaxed);
            FarUsage { capacity_bytes: self.capacity_bytes, used_bytes }
        }
    }
}
