//! Values too large for a leaf: each lives outside, in chunks, and its record holds a reference.
//!
//! The reference is owned by the record: it moves with the record from landing to body and from body to body,
//! and the merge that drops the record releases it, by way of the epoch. Whoever reads a large value takes a share
//! of it first and lets the epoch go before it copies.
//!
//! Chunks lie in DRAM or in far memory, one by one.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ziptier_codec::token::Encoder;
use ziptier_media::placement::{Placement, Side};
use ziptier_media::segments::SegmentError;

use crate::blocks::Effort;
use crate::coding::Coding;
use crate::far::{FarBytes, FarMemory};
use crate::image_files::OwnedPieces;
use crate::memory::{Gauges, allocated_bytes, arc_bytes};
use crate::record::array;
use crate::sync::Mutex;

/// Values up to this many bytes live in their leaf.
pub(crate) const INLINE_BYTES_MAX: usize = 2048;

/// Raw bytes of a chunk: what a read at an offset decodes at most beyond what it was asked for.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks that are written to a medium and read from it together.
const PIECE_CHUNKS: usize = 16;

/// Bytes of a reference in a record.
pub(crate) const REFERENCE_BYTES: usize = 8;

/// A value in chunks of 64 KiB, each raw or coded, whichever is smaller.
///
/// It is counted as held from its making until its last share is dropped, by whichever reader that is.
pub(crate) struct Large {
    gauges: Arc<Gauges>,
    len: u64,
    coding: Option<Coding>,
    /// None if the value lies on SSD alone, in its pieces.
    chunks: Box<[Chunk]>,
    far: Option<Arc<FarMemory>>,
    /// No record refers to it any more: its bytes in DRAM count as retired.
    is_retired: AtomicBool,
    /// Where a checkpoint has its pieces.
    places: Mutex<Option<Arc<OwnedPieces>>>,
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
            .collect();
        let large = Self {
            gauges: gauges.clone(),
            len: value.len() as u64,
            coding: coding.filter(|_| any_coded).cloned(),
            chunks,
            far: place.far().cloned(),
            is_retired: AtomicBool::default(),
            places: Mutex::default(),
        };
        large.count_new();
        large
    }

    /// Counts one whose chunks were placed.
    fn count_new(&self) {
        if let Some(placement) = self.placement() {
            placement.count(Side::Dram, self.own_bytes() as u64);
        }
        self.count(true);
    }

    /// Pieces that it is written in.
    pub(crate) fn pieces(&self) -> usize {
        LargePieces::count(self.len)
    }

    /// Whether it lies on SSD alone: who reads it then waits for that.
    pub(crate) fn is_on_ssd(&self) -> bool {
        self.chunks.is_empty()
    }

    /// One that lies on SSD alone, in `pieces`.
    pub(crate) fn on_ssd(
        len: u64,
        coding: Option<Coding>,
        pieces: Arc<OwnedPieces>,
        gauges: &Arc<Gauges>,
    ) -> Self {
        let places = Mutex::new(Some(pieces));
        let large = Self {
            gauges: gauges.clone(),
            len,
            coding,
            chunks: Box::default(),
            far: None,
            is_retired: AtomicBool::default(),
            places,
        };
        large.count_new();
        large
    }

    /// The same on SSD alone, in `pieces`.
    pub(crate) fn to_ssd(&self, pieces: Arc<OwnedPieces>) -> Self {
        Self::on_ssd(self.len, self.coding.clone(), pieces, &self.gauges)
    }

    /// Writes piece `index` in place of what is in `out`: of each chunk its bytes, behind their number times two, odd if they
    /// are coded.
    ///
    /// # Errors
    /// It lies on SSD and cannot be read there.
    pub(crate) fn write_piece(&self, index: usize, out: &mut Vec<u8>) -> Result<(), SegmentError> {
        out.clear();
        if self.is_on_ssd() {
            *out = self.read_piece(index)?;
            return Ok(());
        }
        for chunk in self.chunks.iter().skip(index * PIECE_CHUNKS).take(PIECE_CHUNKS) {
            let bytes = chunk.bytes();
            let head =
                2 * u32::try_from(bytes.len()).expect("a chunk is about 64 KiB") + u32::from(chunk.coded);
            out.extend_from_slice(&head.to_le_bytes());
            out.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Reads a piece from SSD. Nothing keeps it where it is meanwhile: a checkpoint may write it anew.
    fn read_piece(&self, index: usize) -> Result<Vec<u8>, SegmentError> {
        loop {
            let pieces = self.places().expect("what lies on SSD has its places");
            let failed = match pieces.read(index) {
                Ok(piece) => return Ok(piece),
                Err(error) => error,
            };
            if self.places().is_some_and(|now| Arc::ptr_eq(&now, &pieces)) {
                return Err(failed);
            }
        }
    }

    /// Chunk `index`, and whether it is coded; `cached` is the last piece that was read from SSD.
    fn chunk<'a>(
        &'a self,
        index: usize,
        cached: &'a mut Option<(usize, Vec<u8>)>,
    ) -> Result<(bool, &'a [u8]), String> {
        if let Some(chunk) = self.chunks.get(index) {
            return Ok((chunk.coded, chunk.bytes()));
        }
        let piece = index / PIECE_CHUNKS;
        if cached.as_ref().is_none_or(|(known, _)| *known != piece) {
            *cached = Some((piece, self.read_piece(piece).map_err(|error| error.to_string())?));
        }
        let bytes = cached.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        let found = chunks_of(bytes).nth(index % PIECE_CHUNKS);
        found.flatten().ok_or_else(|| format!("chunk {index} is not in its piece"))
    }

    /// Where its pieces lie, if they were in a checkpoint.
    pub(crate) fn places(&self) -> Option<Arc<OwnedPieces>> {
        self.places.lock().clone()
    }

    pub(crate) fn set_places(&self, places: Arc<OwnedPieces>) {
        *self.places.lock() = Some(places);
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
        let chunks = self.chunks.iter().map(put).collect::<Option<_>>()?;
        let (gauges, coding) = (self.gauges.clone(), self.coding.clone());
        // The pieces of both are the same bytes.
        let places = Mutex::new(self.places());
        let large = Self {
            gauges,
            len: self.len,
            coding,
            chunks,
            far: Some(far.clone()),
            is_retired: AtomicBool::default(),
            places,
        };
        large.count(true);
        Some(large)
    }

    /// Whether its chunks lie at a set ratio, and stay there.
    pub(crate) fn is_placed(&self) -> bool {
        self.placement().is_some()
    }

    /// Whether any chunk is in DRAM.
    pub(crate) fn is_in_dram(&self) -> bool {
        self.chunks.iter().any(|chunk| matches!(chunk.bytes, ChunkBytes::Dram(_)))
    }

    /// A record that referred to it is gone. With the last one it waits for its last reader, as other retired bytes do.
    pub(crate) fn retire(self: &Arc<Self>) {
        if Arc::strong_count(self) == 1 && !self.is_retired.swap(true, Relaxed) {
            self.gauges.large.take_held(self.held_bytes());
            self.gauges.retired.add_held(self.held_bytes());
        }
    }

    /// Adds (or takes) what this holds to (or from) the gauges.
    fn count(&self, add: bool) {
        let (large, far) = (&self.gauges.large, &self.gauges.far_large);
        let dram = if self.is_retired.load(Relaxed) { &self.gauges.retired } else { large };
        if add {
            dram.add_held(self.held_bytes())
        } else {
            dram.take_held(self.held_bytes())
        }
        for chunk in self.chunks.iter().filter(|chunk| matches!(chunk.bytes, ChunkBytes::Far(_))) {
            let bytes = allocated_bytes(chunk.bytes().len());
            if add { far.add_held(bytes) } else { far.take_held(bytes) }
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
        let chunks: usize = self.chunks.iter().map(Chunk::dram_bytes).sum();
        self.own_bytes() + chunks
    }

    /// Bytes held in DRAM besides the chunks.
    fn own_bytes(&self) -> usize {
        arc_bytes(size_of::<Self>()) + allocated_bytes(self.chunks.len() * size_of::<Chunk>())
    }

    /// What placed its chunks.
    fn placement(&self) -> Option<&Placement> {
        self.far.as_ref()?.placement()
    }

    /// Bytes of its chunks, wherever they lie.
    pub(crate) fn stored_bytes(&self) -> usize {
        if self.is_on_ssd() {
            let places = self.places();
            return places.iter().flat_map(|pieces| pieces.places()).map(|place| place.bytes as usize).sum();
        }
        self.chunks.iter().map(|chunk| chunk.bytes().len()).sum()
    }

    /// Appends up to `len` bytes from `offset` on to `out`.
    ///
    /// # Errors
    /// What the decoder says of a damaged chunk.
    pub(crate) fn read_at(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), String> {
        self.read_through(offset, len, out, &mut None)
    }

    /// As [`Large::read_at`], in several calls: `cached` is the last piece that was read from SSD, `None` at first.
    pub(crate) fn read_through(
        &self,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
        cached: &mut Option<(usize, Vec<u8>)>,
    ) -> Result<(), String> {
        let end = offset.saturating_add(len as u64).min(self.len);
        let mut at = offset;
        let mut raw = Vec::new();
        while at < end {
            let index = (at / CHUNK_BYTES as u64) as usize;
            let skip = (at % CHUNK_BYTES as u64) as usize;
            let take = (CHUNK_BYTES - skip).min((end - at) as usize);
            let (is_coded, bytes) = self.chunk(index, cached)?;
            let short = || format!("chunk {index} is too short");
            match (is_coded, &self.coding) {
                (false, _) => out.extend_from_slice(bytes.get(skip..skip + take).ok_or_else(short)?),
                (true, Some(coding)) => {
                    let coded = bytes;
                    raw.clear();
                    let decoded = match coding {
                        Coding::Tokens(tokens) => tokens
                            .decode_append(coded, &mut raw, CHUNK_BYTES)
                            .map(|_| ())
                            .map_err(|error| error.to_string()),
                        Coding::Blocks(blocks) => blocks.unpack(coded, &mut raw),
                    };
                    decoded.map_err(|reason| format!("chunk {index}: {reason}"))?;
                    let part = raw.get(skip..skip + take);
                    out.extend_from_slice(part.ok_or_else(short)?);
                }
                (true, None) => return Err(format!("chunk {index} has no dictionary")),
            }
            at += take as u64;
        }
        Ok(())
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

/// A large value that is put together from its pieces, which may be any bytes.
pub(crate) struct LargePieces<'a> {
    len: u64,
    coding: Option<Coding>,
    chunks: Vec<Chunk>,
    place: ChunkPlace<'a>,
}

impl<'a> LargePieces<'a> {
    /// For a value of `len` bytes, at least one.
    pub(crate) fn new(len: u64, coding: Option<Coding>, place: ChunkPlace<'a>) -> Self {
        Self { len, coding, chunks: Vec::new(), place }
    }

    /// Pieces of a value of `len` bytes.
    pub(crate) fn count(len: u64) -> usize {
        (len as usize).div_ceil(PIECE_CHUNKS * CHUNK_BYTES)
    }

    /// Adds the next piece.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), &'static str> {
        for chunk in chunks_of(piece) {
            let (coded, bytes) = chunk.ok_or("a chunk of a large value ends too early")?;
            let before = (self.chunks.len() * CHUNK_BYTES) as u64;
            let raw_bytes = self.len.saturating_sub(before).min(CHUNK_BYTES as u64) as usize;
            let fits = if coded { self.coding.is_some() } else { bytes.len() == raw_bytes };
            if !fits || raw_bytes == 0 {
                return Err("a chunk of a large value does not fit it");
            }
            self.chunks.push(Chunk::new(coded, bytes, self.place));
        }
        Ok(())
    }

    /// The value, which is at `places`.
    pub(crate) fn finish(
        self,
        places: Arc<OwnedPieces>,
        gauges: &Arc<Gauges>,
    ) -> Result<Large, &'static str> {
        if self.chunks.len() as u64 != self.len.div_ceil(CHUNK_BYTES as u64) {
            return Err("a large value has too few chunks");
        }
        let large = Large {
            gauges: gauges.clone(),
            len: self.len,
            coding: self.coding,
            chunks: self.chunks.into(),
            far: self.place.far().cloned(),
            is_retired: AtomicBool::default(),
            places: Mutex::new(Some(places)),
        };
        large.count_new();
        Ok(large)
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.count(false);
        let Some(placement) = self.placement() else { return };
        placement.uncount(Side::Dram, self.own_bytes() as u64);
        for chunk in &self.chunks {
            placement.uncount(chunk.side(), allocated_bytes(chunk.bytes().len()) as u64);
        }
    }
}

/// The chunks of a piece, which may be any bytes, and whether each is coded; `None` where one ends too early.
fn chunks_of(piece: &[u8]) -> impl Iterator<Item = Option<(bool, &[u8])>> {
    let mut rest = Some(piece);
    std::iter::from_fn(move || {
        let piece = rest.take().filter(|piece| !piece.is_empty())?;
        let split = || {
            let (head, behind) = piece.split_first_chunk()?;
            let head = u32::from_le_bytes(*head);
            Some((head % 2 == 1, behind.split_at_checked(head as usize / 2)?))
        };
        Some(split().map(|(is_coded, (bytes, behind))| {
            rest = Some(behind);
            (is_coded, bytes)
        }))
    })
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
