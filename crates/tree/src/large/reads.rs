//! Reading large values, in memory or on SSD, where several pieces are read at the same time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use super::chunks::{ChunkPlace, Chunks};
use super::pieces::{LargePieces, PIECE_CHUNKS, chunks_of};
use super::{Large, OwnedPieces, Whereabouts};
use crate::coding::Coding;
use crate::memory::Reserved;
use crate::sizes::CHUNK_BYTES;

/// Bytes of pieces that one call has read ahead, at most, if there is more than one.
const AHEAD_BYTES: u64 = 4 << 20;
/// Raw bytes of a piece.
const PIECE_BYTES: u64 = (PIECE_CHUNKS * CHUNK_BYTES) as u64;

#[cfg(test)]
std::thread_local! {
    /// Chunks that this thread has decoded.
    static DECODED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The piece of a value that was read last, and its index.
pub(crate) type LastPiece = Option<(usize, Vec<u8>)>;

/// The source of a read, which stays where it is as long as this is held.
pub(super) enum View {
    Memory(Arc<Chunks>),
    Ssd(Arc<OwnedPieces>),
}

/// Reads of pieces from SSD, which come in the order in which they were asked for.
#[derive(Default)]
pub(crate) struct PieceReads {
    wanted: VecDeque<(Arc<OwnedPieces>, usize)>,
    ahead: VecDeque<Ahead>,
    ahead_bytes: u64,
}

struct Ahead {
    /// The piece stays where it is meanwhile.
    pieces: Arc<OwnedPieces>,
    index: usize,
    /// Nothing if who waits for it reads it.
    read: Option<Receiver<Result<Vec<u8>, String>>>,
}

impl PieceReads {
    /// Asks for the pieces `indices` of a value.
    fn want(&mut self, pieces: &Arc<OwnedPieces>, indices: impl Iterator<Item = usize>) {
        self.wanted.extend(indices.map(|index| (pieces.clone(), index)));
    }

    /// Asks for all pieces of values that lie on SSD; where they lie, by value.
    fn want_all<'a>(&mut self, larges: impl Iterator<Item = &'a Large>) -> Vec<Option<Arc<OwnedPieces>>> {
        let want = |large: &Large| match large.view() {
            View::Memory(_) => None,
            View::Ssd(pieces) => {
                self.want(&pieces, 0..large.pieces());
                Some(pieces)
            }
        };
        larges.map(want).collect()
    }

    /// The next piece.
    fn next(&mut self) -> Result<Vec<u8>, String> {
        self.begin();
        let Some(Ahead { pieces, index, read }) = self.ahead.pop_front() else {
            return Err("a piece was not asked for".to_owned());
        };
        self.ahead_bytes -= u64::from(pieces.places()[index].bytes);
        match read {
            None => pieces.read(index),
            Some(read) => read.recv().unwrap_or_else(|_| Err("the read was not answered".to_owned())),
        }
    }

    /// Has reads begin as long as there is room for what they give.
    fn begin(&mut self) {
        while let Some((pieces, index)) = self.wanted.front() {
            let bytes = u64::from(pieces.places()[*index].bytes);
            if !self.ahead.is_empty() && self.ahead_bytes + bytes > AHEAD_BYTES {
                return;
            }
            let (pieces, index) = self.wanted.pop_front().expect("there is a first one");
            let is_alone = self.ahead.is_empty() && self.wanted.is_empty();
            let read = (!is_alone).then(|| {
                let (sender, receiver) = sync_channel(1);
                // Nobody waits any more if the call has failed.
                pieces.read_later(index, Box::new(move |read| drop(sender.send(read))));
                receiver
            });
            pieces.note_read();
            self.ahead_bytes += bytes;
            self.ahead.push_back(Ahead { pieces, index, read });
        }
    }
}

impl Large {
    pub(super) fn view(&self) -> View {
        match &self.held.lock().whereabouts {
            Whereabouts::Memory { chunks, .. } => View::Memory(chunks.clone()),
            Whereabouts::Ssd(pieces) => View::Ssd(pieces.clone()),
        }
    }

    /// Appends up to `len` bytes from `offset` on to `out`.
    ///
    /// # Errors
    /// The error of the decoder for a damaged chunk, or of the SSD for a piece that it cannot read.
    pub fn read_at(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), String> {
        self.read_through(offset, len, out, &mut None)
    }

    /// As [`Large::read_at`], in several calls: `last` is `None` at first.
    pub(crate) fn read_through(
        &self,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
        last: &mut LastPiece,
    ) -> Result<(), String> {
        let (view, end) = (self.view(), self.end_of(offset, len));
        let mut reads = PieceReads::default();
        if let View::Ssd(pieces) = &view {
            let first = (offset / PIECE_BYTES) as usize;
            let is_known = last.as_ref().is_some_and(|(index, _)| *index == first);
            reads.want(pieces, first + usize::from(is_known)..end.div_ceil(PIECE_BYTES) as usize);
        }
        self.decode(&view, offset, end, out, last, &mut reads)
    }

    /// As [`Large::read_at`], but `None` if that would wait for the SSD.
    pub(crate) fn read_in_memory(&self, len: usize, out: &mut Vec<u8>) -> Option<Result<(), String>> {
        let view = View::Memory(self.in_memory()?);
        Some(self.decode(&view, 0, self.end_of(0, len), out, &mut None, &mut PieceReads::default()))
    }

    /// Appends several values to `out`, which `each` is told the end of after each one.
    ///
    /// # Errors
    /// As [`Large::read_at`], and the index of the value.
    pub(crate) fn read_several<'a>(
        larges: impl Iterator<Item = &'a Self> + Clone,
        out: &mut Vec<u8>,
        mut each: impl FnMut(usize, usize),
    ) -> Result<(), (usize, String)> {
        let mut reads = PieceReads::default();
        let on_ssd = reads.want_all(larges.clone());
        for (index, (large, pieces)) in larges.zip(on_ssd).enumerate() {
            let read = match pieces {
                Some(pieces) => large.decode(&View::Ssd(pieces), 0, large.len, out, &mut None, &mut reads),
                None => large.read_at(0, usize::MAX, out),
            };
            read.map_err(|reason| (index, reason))?;
            each(index, out.len());
        }
        Ok(())
    }

    /// Copies values that lie on SSD to memory, each to its place; how many. Of one that cannot be read, its reader
    /// will say so.
    pub fn raise(larges: Vec<(&Self, ChunkPlace<'_>, Reserved<'_>)>) -> u64 {
        let mut reads = PieceReads::default();
        let on_ssd = reads.want_all(larges.iter().map(|(large, ..)| *large));
        let mut raised = 0;
        for ((large, place, reserved), pieces) in larges.into_iter().zip(on_ssd) {
            if pieces.is_none() {
                continue;
            }
            // The reads behind one that failed belong to others.
            let Ok(chunks) = large.copy_pieces(place, reserved, &mut reads) else { break };
            raised += u64::from(large.come_to_memory(chunks));
        }
        raised
    }

    fn copy_pieces(
        &self,
        place: ChunkPlace<'_>,
        reserved: Reserved<'_>,
        reads: &mut PieceReads,
    ) -> Result<Arc<Chunks>, String> {
        let mut pieces = LargePieces::new(self.len, self.coding.clone(), place);
        for _ in 0..self.pieces() {
            pieces.push(&reads.next()?)?;
        }
        Ok(pieces.chunks(reserved, &self.gauges)?)
    }

    /// The end of what up to `len` bytes from `offset` on are.
    fn end_of(&self, offset: u64, len: usize) -> u64 {
        offset.saturating_add(len as u64).min(self.len)
    }

    fn decode(
        &self,
        view: &View,
        offset: u64,
        end: u64,
        out: &mut Vec<u8>,
        last: &mut LastPiece,
        reads: &mut PieceReads,
    ) -> Result<(), String> {
        let mut at = offset;
        let mut raw = Vec::new();
        while at < end {
            let index = (at / CHUNK_BYTES as u64) as usize;
            let skip = (at % CHUNK_BYTES as u64) as usize;
            let take = (CHUNK_BYTES - skip).min((end - at) as usize);
            let (is_coded, bytes) = view.chunk(index, last, reads)?;
            #[cfg(test)]
            DECODED.set(DECODED.get() + 1);
            let short = || format!("chunk {index} is too short");
            match (is_coded, &self.coding) {
                (false, _) => out.extend_from_slice(bytes.get(skip..skip + take).ok_or_else(short)?),
                (true, Some(coding)) => {
                    raw.clear();
                    let decoded = match coding {
                        Coding::Tokens(tokens) => tokens
                            .decode_append(bytes, &mut raw, CHUNK_BYTES)
                            .map(|_| ())
                            .map_err(|error| error.to_string()),
                        Coding::Blocks(blocks) => blocks.unpack(bytes, &mut raw),
                    };
                    decoded.map_err(|reason| format!("chunk {index}: {reason}"))?;
                    out.extend_from_slice(raw.get(skip..skip + take).ok_or_else(short)?);
                }
                (true, None) => return Err(format!("chunk {index} has no dictionary")),
            }
            at += take as u64;
        }
        Ok(())
    }
}

impl View {
    /// Chunk `index`, and whether it is coded.
    fn chunk<'a>(
        &'a self,
        index: usize,
        last: &'a mut LastPiece,
        reads: &mut PieceReads,
    ) -> Result<(bool, &'a [u8]), String> {
        let missing = || format!("chunk {index} is not in its piece");
        if let Self::Memory(chunks) = self {
            return chunks.get(index).map(|chunk| (chunk.coded, chunk.bytes())).ok_or_else(missing);
        }
        let piece = index / PIECE_CHUNKS;
        if last.as_ref().is_none_or(|(known, _)| *known != piece) {
            *last = None;
            *last = Some((piece, reads.next()?));
        }
        let bytes = last.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        chunks_of(bytes).nth(index % PIECE_CHUNKS).flatten().ok_or_else(missing)
    }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(any(miri, shuttle))))]
mod tests {
    use super::*;
    use crate::alone::Alone;
    use crate::codec_options::CodecChoice;
    use crate::read::{Copied, copy_found};
    use crate::record::PutMeta;

    #[test]
    fn a_part_of_a_large_value_costs_the_chunks_that_it_lies_in() {
        for codec in [CodecChoice::None, CodecChoice::Lz4] {
            let alone = Alone::new(codec);
            let huge: Vec<u8> = (0..2u32 << 20).map(|n| (n / 7) as u8).collect();
            alone.put(b"key", &huge, PutMeta::default()).expect("no limit is set");
            let copied = alone.reads().find_value(b"key", |found| copy_found(found, &mut Vec::new()));
            let Ok(Some(Copied::Large(large, _))) = copied else {
                panic!("a value of this length is a large one")
            };
            let decoded = |offset: usize, len: usize| {
                let (before, mut part) = (DECODED.get(), Vec::new());
                large.read_at(offset as u64, len, &mut part).expect("it is whole");
                assert_eq!(part, &huge[offset..(offset + len).min(huge.len())]);
                DECODED.get() - before
            };
            let chunks = (huge.len() / CHUNK_BYTES) as u64;
            assert_eq!(decoded(0, huge.len()), chunks);
            assert_eq!(decoded(CHUNK_BYTES * 7 + 10, 100), 1);
            assert_eq!(decoded(CHUNK_BYTES * 8 - 10, 100), 2);
            assert_eq!(decoded(huge.len() - 5, 100), 1);
        }
    }
}
