//! The chunks of a large value in memory: each in DRAM or in far memory, raw or coded.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::far::{FarBytes, FarMemory};
use crate::few::Few;
use crate::memory::{Gauge, Gauges, Reserved, allocated_bytes, arc_bytes};
use crate::placement::{Placement, Side};

/// All chunks of a value. They never change; a value that moves gets others.
///
/// They are counted as held from their making until their last share is dropped, by whichever reader that is.
pub(crate) struct Chunks {
    list: Few<Chunk>,
    far: Option<Arc<FarMemory>>,
    gauges: Arc<Gauges>,
    /// No value has them any more: they count as retired.
    is_retired: AtomicBool,
}

pub(crate) struct Chunk {
    pub(super) coded: bool,
    bytes: ChunkBytes,
}

enum ChunkBytes {
    Dram(Box<[u8]>),
    Far(FarBytes),
}

/// The place for the chunks of a large value.
#[derive(Clone, Copy)]
pub enum ChunkPlace<'a> {
    /// In DRAM.
    Dram,
    /// In far memory as long as it has room.
    Far(&'a Arc<FarMemory>),
    /// At the ratio that far memory is set to.
    Ratio(&'a Arc<FarMemory>, &'a Placement),
}

impl Chunks {
    /// Of chunks that were put where `place` says, and are counted instead of what was reserved for them.
    pub(super) fn new(
        list: Vec<Chunk>,
        place: ChunkPlace<'_>,
        reserved: Reserved<'_>,
        gauges: &Arc<Gauges>,
    ) -> Arc<Self> {
        Self::of(list, place.far(), reserved, gauges)
    }

    fn of(
        list: Vec<Chunk>,
        far: Option<&Arc<FarMemory>>,
        reserved: Reserved<'_>,
        gauges: &Arc<Gauges>,
    ) -> Arc<Self> {
        let is_retired = AtomicBool::new(false);
        let chunks = Self { list: list.into(), far: far.cloned(), gauges: gauges.clone(), is_retired };
        if let Some(placement) = chunks.placement() {
            placement.count(Side::Dram, chunks.beside_bytes() as u64);
        }
        reserved.becomes(chunks.beside_bytes() + chunks.bytes_on(Side::Dram));
        gauges.far_large.add_held(chunks.bytes_on(Side::Far));
        Arc::new(chunks)
    }

    /// A copy of which no chunk is in DRAM.
    ///
    /// # Errors
    /// There is no room. So many chunks were copied, and their blocks are free again.
    pub(super) fn to_far(&self, far: &Arc<FarMemory>) -> Result<Arc<Self>, u64> {
        let mut list = Vec::with_capacity(self.len());
        for chunk in self.iter() {
            let Some(bytes) = far.put(chunk.bytes()) else { return Err(list.len() as u64) };
            list.push(Chunk { coded: chunk.coded, bytes: ChunkBytes::Far(bytes) });
        }
        Ok(Self::of(list, Some(far), self.gauges.reserve(0), &self.gauges))
    }

    /// A copy in DRAM; `None` when its bytes are no longer what was put.
    pub(super) fn to_dram(&self) -> Option<Arc<Self>> {
        let put = |chunk: &Chunk| Chunk::new(chunk.coded, chunk.bytes(), ChunkPlace::Dram);
        let copy = || Self::of(self.iter().map(put).collect(), None, self.gauges.reserve(0), &self.gauges);
        self.is_whole().then(copy)
    }

    /// Whether they are what was put, as far as the places where they lie can tell.
    pub(super) fn is_whole(&self) -> bool {
        self.iter().all(|chunk| match &chunk.bytes {
            ChunkBytes::Dram(_) => true,
            ChunkBytes::Far(bytes) => bytes.is_whole(),
        })
    }

    /// The value is gone, or lies elsewhere: they wait for their last reader, and count for no ratio.
    pub(super) fn retire(&self) {
        if self.is_retired.load(Relaxed) {
            return;
        }
        self.uncount_placed();
        self.count(false);
        self.is_retired.store(true, Relaxed);
        self.count(true);
    }

    /// Bytes on a side of memory.
    pub(super) fn bytes_on(&self, side: Side) -> usize {
        self.iter().filter(|chunk| chunk.side() == side).map(Chunk::held_bytes).sum()
    }

    /// The placement that chose their sides.
    pub(super) fn placement(&self) -> Option<&Placement> {
        self.far.as_ref()?.placement()
    }

    /// Bytes held in DRAM.
    pub(super) fn dram_bytes(&self) -> usize {
        self.beside_bytes() + self.bytes_on(Side::Dram)
    }

    /// Bytes held in DRAM besides what chunks hold.
    fn beside_bytes(&self) -> usize {
        arc_bytes(size_of::<Self>()) + self.list.boxed_bytes()
    }

    /// Adds (or takes) what they hold to (or from) the gauges.
    fn count(&self, add: bool) {
        let (dram, far) = match self.is_retired.load(Relaxed) {
            false => (&self.gauges.large, &self.gauges.far_large),
            true => (&self.gauges.retired, &self.gauges.far_retired),
        };
        let change = if add { Gauge::add_held } else { Gauge::take_held };
        change(dram, self.beside_bytes() + self.bytes_on(Side::Dram));
        change(far, self.bytes_on(Side::Far));
    }

    /// Takes what was placed at a ratio off again.
    fn uncount_placed(&self) {
        let Some(placement) = self.placement() else { return };
        placement.uncount(Side::Dram, self.beside_bytes() as u64);
        for chunk in self.iter() {
            placement.uncount(chunk.side(), chunk.held_bytes() as u64);
        }
    }
}

impl Deref for Chunks {
    type Target = [Chunk];

    fn deref(&self) -> &[Chunk] {
        &self.list
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.count(false);
        if !*self.is_retired.get_mut() {
            self.uncount_placed();
        }
    }
}

impl<'a> ChunkPlace<'a> {
    fn far(self) -> Option<&'a Arc<FarMemory>> {
        match self {
            Self::Dram => None,
            Self::Far(far) | Self::Ratio(far, _) => Some(far),
        }
    }
}

impl Chunk {
    pub(super) fn new(coded: bool, bytes: &[u8], place: ChunkPlace<'_>) -> Self {
        let in_far = match place {
            ChunkPlace::Dram => None,
            ChunkPlace::Far(far) => far.put(bytes),
            ChunkPlace::Ratio(far, placement) => put_at_ratio(bytes, far, placement),
        };
        Self { coded, bytes: in_far.map_or_else(|| ChunkBytes::Dram(bytes.into()), ChunkBytes::Far) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            ChunkBytes::Dram(bytes) => bytes,
            ChunkBytes::Far(bytes) => bytes.bytes(),
        }
    }

    fn side(&self) -> Side {
        match self.bytes {
            ChunkBytes::Dram(_) => Side::Dram,
            ChunkBytes::Far(_) => Side::Far,
        }
    }

    fn held_bytes(&self) -> usize {
        allocated_bytes(self.bytes().len())
    }
}

/// A copy in far memory, if it is its turn and there is room; counted where it is then.
fn put_at_ratio(bytes: &[u8], far: &Arc<FarMemory>, placement: &Placement) -> Option<FarBytes> {
    let counted = allocated_bytes(bytes.len()) as u64;
    let put = match placement.place(counted) {
        Side::Dram => return None,
        Side::Far => far.put(bytes),
    };
    if put.is_none() {
        placement.uncount(Side::Far, counted);
        placement.count(Side::Dram, counted);
    }
    put
}
