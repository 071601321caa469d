//! Values too large for a leaf: each lives outside, in chunks, and its record holds a reference.
//!
//! The reference is owned by the record: it moves with the record from landing to body and from body to body,
//! and the merge that drops the record releases it, by way of the epoch. Whoever reads a large value takes a share
//! of it first and lets the epoch go before it copies.
//!
//! Chunks lie in DRAM or in far memory, one by one, or in pieces on SSD, all of them.

mod pieces;
mod reads;

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ziptier_codec::token::Encoder;
use ziptier_media::placement::{Placement, Side};

use crate::blocks::Effort;
use crate::coding::Coding;
use crate::far::{FarBytes, FarMemory};
use crate::few::Few;
use crate::image_files::OwnedPieces;
use crate::memory::{Gauge, Gauges, allocated_bytes, arc_bytes};
use crate::record::array;
use crate::sync::Mutex;
pub(crate) use pieces::LargePieces;
pub(crate) use reads::LastPiece;

/// Values up to this many bytes live in their leaf.
pub(crate) const INLINE_BYTES_MAX: usize = 2048;

/// Raw bytes of a chunk: what a read at an offset decodes at most beyond what it was asked for.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes of a reference in a record.
pub(crate) const REFERENCE_BYTES: usize = 8;

/// A value in chunks of 64 KiB, each raw or coded, whichever is smaller.
///
/// It is counted as held from its making until its last share is dropped, by whichever reader that is.
pub(crate) struct Large {
    gauges: Arc<Gauges>,
    len: u64,
    coding: Option<Coding>,
    /// Nothing if the value lies on SSD alone, in its pieces.
    chunks: Option<Box<Chunks>>,
    /// No record refers to it any more: its bytes in DRAM count as retired.
    is_retired: AtomicBool,
    /// Where its pieces lie, if they were written.
    places: Mutex<Option<Arc<OwnedPieces>>>,
}

struct Chunks {
    list: Few<Chunk>,
    far: Option<Arc<FarMemory>>,
}

struct Chunk {
    coded: bool,
    bytes: ChunkBytes,
}

enum ChunkBytes {
    Dram(Box<[u8]>),
    Far(FarBytes),
}

/// Where the chunks of a large value are to lie.
#[derive(Clone, Copy)]
pub(crate) enum ChunkPlace<'a> {
    Dram,
    /// In far memory as long as it has room.
    Far(&'a Arc<FarMemory>),
    /// At the ratio that far memory is set to.
    Ratio(&'a Arc<FarMemory>, &'a Placement),
}

impl Large {
    /// Cuts and codes `value`. The scratch, six times a chunk, is not worth keeping.
    pub(crate) fn new(
        value: &[u8],
        coding: Option<&Coding>,
        place: ChunkPlace<'_>,
        gauges: &Arc<Gauges>,
    ) -> Self {
        let mut encoder = Encoder::new();
        let mut coded = Vec::new();
        let mut any_coded = false;
        let chunks = value
            .chunks(CHUNK_BYTES)
            .map(|raw| {
                if let Some(coding) = coding {
                    coded.clear();
                    match coding {
                        Coding::Tokens(tokens) => {
                            tokens.encode_group(&mut encoder, &[raw], &mut coded, &mut Vec::with_capacity(1))
                        }
                        Coding::Blocks(blocks) => blocks.pack(Effort::Fast, raw, &mut coded),
                    }
                    if coded.len() < raw.len() - raw.len() / 8 {
                        any_coded = true;
                        return Chunk::new(true, &coded, place);
                    }
                }
                Chunk::new(false, raw, place)
            })
            .collect::<Vec<_>>();
        let coding = coding.filter(|_| any_coded).cloned();
        let chunks = Chunks { list: chunks.into(), far: place.far().cloned() };
        Self::of(gauges, value.len() as u64, coding, Some(chunks), None)
    }

    /// One whose chunks were placed, or that lies in `places`.
    fn of(
        gauges: &Arc<Gauges>,
        len: u64,
        coding: Option<Coding>,
        chunks: Option<Chunks>,
        places: Option<Arc<OwnedPieces>>,
    ) -> Self {
        let (gauges, chunks, places) = (gauges.clone(), chunks.map(Box::new), Mutex::new(places));
        let large = Self { gauges, len, coding, chunks, is_retired: AtomicBool::default(), places };
        if let Some(placement) = large.placement() {
            placement.count(Side::Dram, large.own_bytes() as u64);
        }
        large.count(large.places.lock().as_deref(), true);
        large
    }

    /// Whether it lies on SSD alone: who reads it then waits for that.
    pub(crate) fn is_on_ssd(&self) -> bool {
        self.chunks.is_none()
    }

    /// One that lies on SSD alone, in `pieces`.
    pub(crate) fn on_ssd(
        len: u64,
        coding: Option<Coding>,
        pieces: Arc<OwnedPieces>,
        gauges: &Arc<Gauges>,
    ) -> Self {
        Self::of(gauges, len, coding, None, Some(pieces))
    }

    /// The same on SSD alone, in `pieces`.
    pub(crate) fn to_ssd(&self, pieces: Arc<OwnedPieces>) -> Self {
        Self::on_ssd(self.len, self.coding.clone(), pieces, &self.gauges)
    }

    fn chunks(&self) -> &[Chunk] {
        self.chunks.as_ref().map_or(&[], |chunks| &chunks.list)
    }

    /// Where its pieces lie, if they were written.
    pub(crate) fn places(&self) -> Option<Arc<OwnedPieces>> {
        self.places.lock().clone()
    }

    /// Its pieces lie in `places` now.
    pub(crate) fn set_places(&self, places: Arc<OwnedPieces>) {
        let mut known = self.places.lock();
        if known.is_none() {
            self.gauge().add_held(places.held_bytes());
        }
        let before = known.replace(places);
        drop(known);
        drop(before);
    }

    /// What its chunks are coded with, if any is.
    pub(crate) fn coding(&self) -> Option<&Coding> {
        self.coding.as_ref()
    }

    /// A copy of which no chunk is in DRAM; `None` when there is no room.
    pub(crate) fn to_far(&self, far: &Arc<FarMemory>) -> Option<Self> {
        let put = |chunk: &Chunk| {
            Some(Chunk { coded: chunk.coded, bytes: ChunkBytes::Far(far.put(chunk.bytes())?) })
        };
        let list = self.chunks().iter().map(put).collect::<Option<Vec<_>>>()?;
        let chunks = Chunks { list: list.into(), far: Some(far.clone()) };
        // The pieces of both are the same bytes.
        Some(Self::of(&self.gauges, self.len, self.coding.clone(), Some(chunks), self.places()))
    }

    /// Whether its chunks lie at a set ratio, and stay there.
    pub(crate) fn is_placed(&self) -> bool {
        self.placement().is_some()
    }

    /// Whether it may leave memory for the SSD.
    pub(crate) fn goes_to_ssd(&self) -> bool {
        !self.is_on_ssd() && !self.is_placed()
    }

    /// Whether its chunks are what was put, as far as the places where they lie can tell.
    pub(crate) fn is_whole(&self) -> bool {
        self.chunks().iter().all(|chunk| match &chunk.bytes {
            ChunkBytes::Dram(_) => true,
            ChunkBytes::Far(bytes) => bytes.is_whole(),
        })
    }

    /// Whether any chunk is in DRAM.
    pub(crate) fn is_in_dram(&self) -> bool {
        self.chunks().iter().any(|chunk| matches!(chunk.bytes, ChunkBytes::Dram(_)))
    }

    /// A record that referred to it is gone. With the last one it is retired: it waits for its last reader, and counts for no ratio.
    pub(crate) fn retire(self: &Arc<Self>) {
        if Arc::strong_count(self) > 1 {
            return;
        }
        let places = self.places.lock();
        if !self.is_retired.load(Relaxed) {
            self.uncount_placed();
            self.count(places.as_deref(), false);
            self.is_retired.store(true, Relaxed);
            self.count(places.as_deref(), true);
        }
    }

    /// What its bytes in DRAM are counted in: of one on SSD they are part of the index.
    fn gauge(&self) -> &Gauge {
        match (self.is_retired.load(Relaxed), self.is_on_ssd()) {
            (true, _) => &self.gauges.retired,
            (false, true) => &self.gauges.index,
            (false, false) => &self.gauges.large,
        }
    }

    /// Adds (or takes) what this holds to (or from) the gauges.
    fn count(&self, places: Option<&OwnedPieces>, add: bool) {
        let far = match self.is_retired.load(Relaxed) {
            false => &self.gauges.far_large,
            true => &self.gauges.far_retired,
        };
        let change = if add { Gauge::add_held } else { Gauge::take_held };
        let held_bytes = self.held_with(places);
        change(self.gauge(), held_bytes);
        change(far, self.far_bytes());
        if let Some(places) = places.filter(|_| self.is_on_ssd()) {
            places.count(held_bytes, add);
        }
    }

    /// Takes what was placed at a ratio off again.
    fn uncount_placed(&self) {
        let Some(placement) = self.placement() else { return };
        placement.uncount(Side::Dram, self.own_bytes() as u64);
        for chunk in self.chunks() {
            placement.uncount(chunk.side(), allocated_bytes(chunk.bytes().len()) as u64);
        }
    }

    /// Raw bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The generation its chunks are coded with.
    pub(crate) fn generation(&self) -> Option<u32> {
        self.coding.as_ref().map(Coding::generation)
    }

    /// Bytes held in DRAM for an `Arc` of this value.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_with(self.places.lock().as_deref())
    }

    fn held_with(&self, places: Option<&OwnedPieces>) -> usize {
        self.own_bytes() + self.dram_bytes() + places.map_or(0, OwnedPieces::held_bytes)
    }

    /// Bytes held in DRAM for chunks.
    pub(crate) fn dram_bytes(&self) -> usize {
        self.chunks().iter().map(Chunk::dram_bytes).sum()
    }

    /// Bytes held in far memory.
    pub(crate) fn far_bytes(&self) -> usize {
        self.chunks().iter().map(Chunk::far_bytes).sum()
    }

    /// Bytes held in DRAM besides the chunks and where its pieces lie.
    fn own_bytes(&self) -> usize {
        let chunks = self.chunks.as_ref();
        arc_bytes(size_of::<Self>())
            + chunks.map_or(0, |chunks| allocated_bytes(size_of::<Chunks>()) + chunks.list.boxed_bytes())
    }

    /// What placed its chunks.
    fn placement(&self) -> Option<&Placement> {
        self.chunks.as_ref()?.far.as_ref()?.placement()
    }

    /// Bytes of its chunks, wherever they lie.
    pub(crate) fn stored_bytes(&self) -> usize {
        if self.is_on_ssd() {
            let places = self.places();
            return places.iter().flat_map(|pieces| pieces.places()).map(|place| place.bytes as usize).sum();
        }
        self.chunks().iter().map(|chunk| chunk.bytes().len()).sum()
    }

    /// Turns a share into a reference that a record owns.
    pub(crate) fn into_reference(self: Arc<Self>) -> [u8; REFERENCE_BYTES] {
        (Arc::into_raw(self) as usize as u64).to_le_bytes()
    }

    /// Takes back what [`Large::into_reference`] gave.
    ///
    /// # Safety
    /// `reference` came from `into_reference`, and its record is gone for every reader.
    pub(crate) unsafe fn from_reference(reference: &[u8]) -> Arc<Self> {
        // SAFETY: by the contract this is the one owner of the share.
        unsafe { Arc::from_raw(pointer(reference)) }
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.count(self.places.lock().as_deref(), false);
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
    fn new(coded: bool, bytes: &[u8], place: ChunkPlace<'_>) -> Self {
        let in_far = match place {
            ChunkPlace::Dram => None,
            ChunkPlace::Far(far) => far.put(bytes),
            ChunkPlace::Ratio(far, placement) => put_at_ratio(bytes, far, placement),
        };
        Self { coded, bytes: in_far.map_or_else(|| ChunkBytes::Dram(bytes.into()), ChunkBytes::Far) }
    }

    fn bytes(&self) -> &[u8] {
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

    fn dram_bytes(&self) -> usize {
        match &self.bytes {
            ChunkBytes::Dram(bytes) => allocated_bytes(bytes.len()),
            ChunkBytes::Far(_) => 0,
        }
    }

    fn far_bytes(&self) -> usize {
        match &self.bytes {
            ChunkBytes::Dram(_) => 0,
            ChunkBytes::Far(bytes) => allocated_bytes(bytes.bytes().len()),
        }
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

fn pointer(reference: &[u8]) -> *const Large {
    u64::from_le_bytes(array(reference)) as usize as *const Large
}

/// A large value as long as its record can be read.
#[derive(Clone, Copy)]
pub(crate) struct LargeHandle<'a> {
    pointer: *const Large,
    record: PhantomData<&'a Large>,
}

impl<'a> LargeHandle<'a> {
    /// The value that `reference` refers to.
    ///
    /// # Safety
    /// `reference` came from [`Large::into_reference`] and stays owned by its record for `'a`.
    pub(crate) unsafe fn borrow(reference: &'a [u8]) -> Self {
        Self { pointer: pointer(reference), record: PhantomData }
    }

    /// The handle of a value that the caller holds.
    pub(crate) fn to(large: &'a Arc<Large>) -> Self {
        Self { pointer: Arc::as_ptr(large), record: PhantomData }
    }

    /// A share that outlives the record.
    pub(crate) fn share(self) -> Arc<Large> {
        // SAFETY: a record or the maker of this handle holds a share for its life, so the count is at least one.
        unsafe {
            Arc::increment_strong_count(self.pointer);
            Arc::from_raw(self.pointer)
        }
    }

    /// The reference's bytes, for a record that will own it.
    pub(crate) fn reference(self) -> [u8; REFERENCE_BYTES] {
        (self.pointer as usize as u64).to_le_bytes()
    }
}

impl Deref for LargeHandle<'_> {
    type Target = Large;

    fn deref(&self) -> &Large {
        // SAFETY: as in `share`.
        unsafe { &*self.pointer }
    }
}
