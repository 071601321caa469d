//! Reading large values, in memory or on SSD, where several pieces are read at the same time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use ziptier_media::segments::SegmentError;

use super::pieces::{PIECE_CHUNKS, chunks_of};
use super::{CHUNK_BYTES, Large};
use crate::coding::Coding;
use crate::image_files::OwnedPieces;

/// Bytes of pieces that one call has read ahead, at most, if there is more than one.
const AHEAD_BYTES: u64 = 4 << 20;
/// Raw bytes of a piece.
const PIECE_BYTES: u64 = (PIECE_CHUNKS * CHUNK_BYTES) as u64;

/// The piece of a value that was read last, and its index.
pub(crate) type LastPiece = Option<(usize, Vec<u8>)>;

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
    read: Option<Receiver<Result<Vec<u8>, SegmentError>>>,
}

impl PieceReads {
    /// Asks for the pieces `indices` of a value, if it lies on SSD.
    fn want(&mut self, large: &Large, indices: impl Iterator<Item = usize>) {
        if let Some(pieces) = large.places().filter(|_| large.is_on_ssd()) {
            self.wanted.extend(indices.map(|index| (pieces.clone(), index)));
        }
    }

    /// The next piece.
    fn next(&mut self) -> Result<Vec<u8>, String> {
        self.begin();
        let Some(Ahead { pieces, index, read }) = self.ahead.pop_front() else {
            return Err("a piece was not asked for".to_owned());
        };
        self.ahead_bytes -= u64::from(pieces.places()[index].bytes);
        let piece = match read {
            None => pieces.read(index),
            Some(read) => read.recv().map_err(|_| "the read was not answered".to_owned())?,
        };
        piece.map_err(|error| error.to_string())
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
                pieces.read_later(index, move |read| drop(sender.send(read)));
                receiver
            });
            self.ahead_bytes += bytes;
            self.ahead.push_back(Ahead { pieces, index, read });
        }
    }
}

impl Large {
    /// Appends up to `len` bytes from `offset` on to `out`.
    ///
    /// # Errors
    /// What the decoder says of a damaged chunk, or the SSD of a piece that it cannot read.
    pub(crate) fn read_at(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), String> {
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
        let mut reads = PieceReads::default();
        let end = self.end_of(offset, len);
        let known = last.as_ref().map(|(index, _)| *index);
        let indices = (offset / PIECE_BYTES) as usize..end.div_ceil(PIECE_BYTES) as usize;
        reads.want(self, indices.filter(|index| Some(*index) != known));
        self.decode(offset, end, out, last, &mut reads)
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
        larges.clone().for_each(|large| reads.want(large, 0..large.pieces()));
        for (index, large) in larges.enumerate() {
            large.decode(0, large.len, out, &mut None, &mut reads).map_err(|reason| (index, reason))?;
            each(index, out.len());
        }
        Ok(())
    }

    /// The end of what up to `len` bytes from `offset` on are.
    fn end_of(&self, offset: u64, len: usize) -> u64 {
        offset.saturating_add(len as u64).min(self.len)
    }

    fn decode(
        &self,
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
            let (is_coded, bytes) = self.chunk(index, last, reads)?;
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

    /// Chunk `index`, and whether it is coded.
    fn chunk<'a>(
        &'a self,
        index: usize,
        last: &'a mut LastPiece,
        reads: &mut PieceReads,
    ) -> Result<(bool, &'a [u8]), String> {
        if let Some(chunk) = self.chunks().get(index) {
            return Ok((chunk.coded, chunk.bytes()));
        }
        let piece = index / PIECE_CHUNKS;
        if last.as_ref().is_none_or(|(known, _)| *known != piece) {
            *last = Some((piece, reads.next()?));
        }
        let bytes = last.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        let found = chunks_of(bytes).nth(index % PIECE_CHUNKS);
        found.flatten().ok_or_else(|| format!("chunk {index} is not in its piece"))
    }
}
