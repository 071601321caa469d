//! Values too large for a leaf: each lives outside, in chunks, and its record holds a reference.
//!
//! The reference is owned by the record: it moves with the record from landing to body and from body to body,
//! and the merge that drops the record releases it, by way of the epoch. Whoever reads a large value takes a share
//! of it first and lets the epoch go before it copies.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::blocks::Effort;
use crate::coding::Coding;
use crate::image_files::OwnedPieces;
use crate::memory::{Gauges, allocated_bytes, arc_bytes};
use crate::record::array;
use crate::sync::Mutex;
use ziptier_codec::token::Encoder;

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
    chunks: Box<[Chunk]>,
    /// Where a checkpoint has its pieces.
    places: Mutex<Option<Arc<OwnedPieces>>>,
}

enum Chunk {
    Raw(Box<[u8]>),
    Coded(Box<[u8]>),
}

impl Large {
    /// Cuts and codes `value`. The scratch, six times a chunk, is not worth keeping.
    pub(crate) fn new(value: &[u8], coding: Option<&Coding>, gauges: &Arc<Gauges>) -> Self {
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
                        return Chunk::Coded(coded.as_slice().into());
                    }
                }
                Chunk::Raw(raw.into())
            })
            .collect();
        let large = Self {
            gauges: gauges.clone(),
            len: value.len() as u64,
            coding: coding.filter(|_| any_coded).cloned(),
            chunks,
            places: Mutex::default(),
        };
        gauges.large.add_held(large.held_bytes());
        large
    }

    /// Pieces that it is written in.
    pub(crate) fn pieces(&self) -> usize {
        self.chunks.len().div_ceil(PIECE_CHUNKS)
    }

    /// Writes piece `index` in place of what is in `out`: of each chunk its bytes, behind their number times two, odd if they
    /// are coded.
    pub(crate) fn write_piece(&self, index: usize, out: &mut Vec<u8>) {
        out.clear();
        for chunk in self.chunks.iter().skip(index * PIECE_CHUNKS).take(PIECE_CHUNKS) {
            let (bytes, coded) = match chunk {
                Chunk::Raw(bytes) => (bytes, 0),
                Chunk::Coded(bytes) => (bytes, 1),
            };
            let head = 2 * u32::try_from(bytes.len()).expect("a chunk is about 64 KiB") + coded;
            out.extend_from_slice(&head.to_le_bytes());
            out.extend_from_slice(bytes);
        }
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

    /// Raw bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The generation its chunks are coded with.
    pub(crate) fn generation(&self) -> Option<u32> {
        self.coding.as_ref().map(Coding::generation)
    }

    /// Bytes held for an `Arc` of this value.
    pub(crate) fn held_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|chunk| allocated_bytes(chunk.stored_bytes())).sum();
        arc_bytes(size_of::<Self>()) + allocated_bytes(self.chunks.len() * size_of::<Chunk>()) + chunks
    }

    /// Appends up to `len` bytes from `offset` on to `out`.
    ///
    /// # Errors
    /// What the decoder says of a damaged chunk.
    pub(crate) fn read_at(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let end = offset.saturating_add(len as u64).min(self.len);
        let mut at = offset;
        let mut raw = Vec::new();
        while at < end {
            let index = (at / CHUNK_BYTES as u64) as usize;
            let skip = (at % CHUNK_BYTES as u64) as usize;
            let take = (CHUNK_BYTES - skip).min((end - at) as usize);
            match (&self.chunks[index], &self.coding) {
                (Chunk::Raw(bytes), _) => out.extend_from_slice(&bytes[skip..skip + take]),
                (Chunk::Coded(coded), Some(coding)) => {
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
                    out.extend_from_slice(part.ok_or_else(|| format!("chunk {index} is too short"))?);
                }
                (Chunk::Coded(_), None) => return Err(format!("chunk {index} has no dictionary")),
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
pub(crate) struct LargePieces {
    len: u64,
    coding: Option<Coding>,
    chunks: Vec<Chunk>,
}

impl LargePieces {
    /// For a value of `len` bytes, at least one.
    pub(crate) fn new(len: u64, coding: Option<Coding>) -> Self {
        Self { len, coding, chunks: Vec::new() }
    }

    /// Pieces of a value of `len` bytes.
    pub(crate) fn count(len: u64) -> usize {
        (len as usize).div_ceil(PIECE_CHUNKS * CHUNK_BYTES)
    }

    /// Adds the next piece.
    pub(crate) fn push(&mut self, mut piece: &[u8]) -> Result<(), &'static str> {
        let ends = "a chunk of a large value ends too early";
        while !piece.is_empty() {
            let (head, rest) = piece.split_first_chunk().ok_or(ends)?;
            let head = u32::from_le_bytes(*head);
            let (bytes, rest) = rest.split_at_checked(head as usize / 2).ok_or(ends)?;
            piece = rest;
            let before = (self.chunks.len() * CHUNK_BYTES) as u64;
            let raw_bytes = self.len.saturating_sub(before).min(CHUNK_BYTES as u64) as usize;
            self.chunks.push(match head % 2 {
                0 if bytes.len() == raw_bytes && raw_bytes > 0 => Chunk::Raw(bytes.into()),
                1 if self.coding.is_some() && raw_bytes > 0 => Chunk::Coded(bytes.into()),
                _ => return Err("a chunk of a large value does not fit it"),
            });
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
            places: Mutex::new(Some(places)),
        };
        gauges.large.add_held(large.held_bytes());
        Ok(large)
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.gauges.large.take_held(self.held_bytes());
    }
}

impl Chunk {
    fn stored_bytes(&self) -> usize {
        match self {
            Chunk::Raw(bytes) | Chunk::Coded(bytes) => bytes.len(),
        }
    }
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
