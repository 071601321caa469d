//! Large values as they are written to a medium: in pieces of several chunks.
//!
//! A piece is, of each chunk, the number of its bytes times two, odd if they are coded, and the bytes.

use std::sync::Arc;

use super::chunks::{Chunk, ChunkPlace, Chunks};
use super::reads::View;
use super::{Large, OwnedPieces, Whereabouts};
use crate::coding::Coding;
use crate::extent::Extent;
use crate::memory::{Gauges, Reserved};
use crate::sizes::CHUNK_BYTES;

/// Chunks that are written to a medium and read from it together.
pub(super) const PIECE_CHUNKS: usize = 16;

impl Large {
    /// Pieces that it is written in.
    pub fn pieces(&self) -> usize {
        LargePieces::count(self.len())
    }

    /// Writes all pieces with `append`, which gives their places as it goes. Pieces of a value that lies on SSD alone
    /// come from `read`, which reads the files that own them.
    ///
    /// # Errors
    /// The errors of `append` and `read`.
    pub fn write_pieces<E>(
        &self,
        mut read: impl FnMut(Extent) -> Result<Vec<u8>, E>,
        mut append: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut piece = Vec::new();
        for index in 0..self.pieces() {
            match self.view() {
                View::Memory(chunks) => lay_out(&chunks, index, &mut piece),
                View::Ssd(pieces) => piece = read(pieces.places()[index])?,
            }
            append(&piece)?;
        }
        Ok(())
    }
}

/// Lays piece `index` out in place of what is in `out`.
fn lay_out(chunks: &[Chunk], index: usize, out: &mut Vec<u8>) {
    out.clear();
    for chunk in chunks.iter().skip(index * PIECE_CHUNKS).take(PIECE_CHUNKS) {
        let bytes = chunk.bytes();
        let head = 2 * u32::try_from(bytes.len()).expect("a chunk is about 64 KiB") + u32::from(chunk.coded);
        out.extend_from_slice(&head.to_le_bytes());
        out.extend_from_slice(bytes);
    }
}

/// A large value that is put together from its pieces, which may be any bytes.
pub struct LargePieces<'a> {
    len: u64,
    coding: Option<Coding>,
    chunks: Vec<Chunk>,
    place: ChunkPlace<'a>,
}

impl<'a> LargePieces<'a> {
    /// For a value of `len` bytes, at least one.
    pub fn new(len: u64, coding: Option<Coding>, place: ChunkPlace<'a>) -> Self {
        Self { len, coding, chunks: Vec::new(), place }
    }

    /// Pieces of a value of `len` bytes.
    pub fn count(len: u64) -> usize {
        (len as usize).div_ceil(PIECE_CHUNKS * CHUNK_BYTES)
    }

    /// Adds the next piece.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), &'static str> {
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

    /// Its chunks, counted instead of what was reserved for them.
    pub(super) fn chunks(
        self,
        reserved: Reserved<'_>,
        gauges: &Arc<Gauges>,
    ) -> Result<Arc<Chunks>, &'static str> {
        if self.chunks.len() as u64 != self.len.div_ceil(CHUNK_BYTES as u64) {
            return Err("a large value has too few chunks");
        }
        Ok(Chunks::new(self.chunks, self.place, reserved, gauges))
    }

    /// The value, whose pieces lie in `places`.
    pub fn finish(mut self, places: Arc<OwnedPieces>, gauges: &Arc<Gauges>) -> Result<Large, &'static str> {
        let (len, coding) = (self.len, self.coding.take());
        let chunks = self.chunks(gauges.reserve(0), gauges)?;
        Ok(Large::of(gauges, len, coding, Whereabouts::Memory { chunks, pieces: Some(places) }))
    }
}

/// The chunks of a piece, which may be any bytes, and whether each is coded; `None` where one ends too early.
pub(super) fn chunks_of(piece: &[u8]) -> impl Iterator<Item = Option<(bool, &[u8])>> {
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
