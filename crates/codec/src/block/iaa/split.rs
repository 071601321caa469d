//! The parts of a block as jobs of a device, side by side.
//!
//! To compress, each part becomes a job. The stream of the block is their outputs, one behind the other.
//!
//! To decompress, the block is cut behind each mark that could end a part:
//!
//! 1. Each piece but the last gets an *ending*: a last, stored block of a few random bytes. The device decodes the
//!    piece as a stream without history.
//! 2. The output ends with the random bytes, but not with the whole ending, only if the device read the piece's last
//!    bit as the end of a block, and no block in it as the last one. Then a decoder of the whole block is there at the
//!    same position, and has made the same bytes. A stored block that goes on behind the piece has the whole ending for
//!    its data.
//! 3. If every piece passes, their outputs are the block. Otherwise the mark was another's or mere data, and the caller
//!    decompresses the block as a whole.
//!
//! The bytes are random because the author of a block could otherwise end a piece in them.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use memchr::memmem::Finder;
use ziptier_accel::{JobError, PART_ROOM_BYTES};
use ziptier_deflate::PART_END;

use super::sessions::{Part, Sessions};
use super::{Operations, bound};
use crate::block::ContextCounters;
use crate::block::split::{PART_BYTES_MIN, PARTS, parts};
use crate::scratch::trim;

/// Random bytes of an ending.
const NONCE_BYTES: usize = 8;

/// A context's means to work on parts.
pub(super) struct Split<'a> {
    operations: &'a Operations,
    split: u32,
    end_of_part: Finder<'static>,
    nonce: [u8; NONCE_BYTES],
    /// A last, stored block of the nonce.
    ending: Vec<u8>,
    /// The compressed parts.
    packed: Vec<Vec<u8>>,
}

impl<'a> Split<'a> {
    /// For a setting of more than one part.
    pub(super) fn new(operations: &'a Operations, split: u32) -> Split<'a> {
        let nonce = RandomState::new().hash_one(0).to_le_bytes();
        let length = NONCE_BYTES as u16;
        let ending = [&[1][..], &length.to_le_bytes(), &(!length).to_le_bytes(), &nonce].concat();
        let packed = vec![Vec::new(); split as usize];
        Split { operations, split, end_of_part: Finder::new(&PART_END), nonce, ending, packed }
    }

    /// The parts of a block that is to be compressed.
    pub(super) fn parts(&self, raw_bytes: usize) -> usize {
        parts(raw_bytes, self.split)
    }

    /// Compresses a block of several parts to at most `room` bytes.
    pub(super) fn compress(
        &mut self,
        sessions: &mut Sessions,
        raw: &[u8],
        room: usize,
        out: &mut Vec<u8>,
        counters: &mut ContextCounters<'_>,
    ) -> Result<usize, JobError> {
        let (operations, part_bytes) = (self.operations, raw.len().div_ceil(self.parts(raw.len())));
        let output_bytes_max = room.min(bound(part_bytes)) + PART_ROOM_BYTES;
        let mut jobs: Vec<Part<'_>> = raw
            .chunks(part_bytes)
            .map(|part| Part {
                operation: &operations.compress_part,
                source: [part, &[]],
                output_bytes_max: sessions.transferable(output_bytes_max),
            })
            .collect();
        if let Some(last) = jobs.last_mut() {
            last.operation = &operations.compress;
        }
        sessions.submit_parts(&jobs, counters)?;
        let packed = &mut self.packed;
        let reaped = sessions.reap_parts(counters, |part, output| {
            packed[part].clear();
            packed[part].extend_from_slice(output);
        });
        reaped.map_err(|error| sessions.limited(error, output_bytes_max))?;
        let packed = &mut packed[..jobs.len()];
        let length = packed.iter().map(Vec::len).sum();
        let fits = length <= room;
        if fits {
            out.reserve(length);
            packed.iter().for_each(|part| out.extend_from_slice(part));
        }
        packed.iter_mut().for_each(trim);
        if fits { Ok(length) } else { Err(JobError::DoesNotFit) }
    }

    /// Appends a block of at most `raw_bytes_max` bytes to `out` and returns its length. `None` if the block has no
    /// parts, or if they do not decompress by themselves, for whatever reason; `out` is unchanged then.
    pub(super) fn decompress(
        &self,
        sessions: &mut Sessions,
        packed: &[u8],
        raw_bytes_max: usize,
        out: &mut Vec<u8>,
        counters: &mut ContextCounters<'_>,
    ) -> Option<usize> {
        let pieces = self.pieces(packed, raw_bytes_max)?;
        let (part_bytes, last) = (raw_bytes_max.div_ceil(pieces.len()), pieces.len() - 1);
        let jobs = pieces.iter().enumerate().map(|(part, &piece)| Part {
            operation: &self.operations.decompress,
            source: [piece, if part < last { &self.ending[..] } else { &[] }],
            output_bytes_max: match part < last {
                true => part_bytes + NONCE_BYTES,
                false => raw_bytes_max - last * part_bytes,
            },
        });
        sessions.submit_parts(&jobs.collect::<Vec<_>>(), counters).ok()?;
        let start = out.len();
        out.resize(start + raw_bytes_max, 0);
        let mut lengths = vec![None; pieces.len()];
        let reaped = sessions.reap_parts(counters, |part, output| {
            let raw = if part < last { self.without_ending(output) } else { Some(output) };
            let begin = start + part * part_bytes;
            lengths[part] = raw.map(|raw| {
                out[begin..begin + raw.len()].copy_from_slice(raw);
                raw.len()
            });
        });
        let lengths: Option<Vec<usize>> = lengths.into_iter().collect();
        let Some(lengths) = lengths.filter(|_| reaped.is_ok()) else {
            out.truncate(start);
            return None;
        };
        // Parts of a block that is shorter than the room for it lie apart.
        let mut end = start;
        for (part, length) in lengths.into_iter().enumerate() {
            let begin = start + part * part_bytes;
            out.copy_within(begin..begin + length, end);
            end += length;
        }
        out.truncate(end);
        Some(end - start)
    }

    /// The bytes of a piece; `None` if the device did not read the ending as a block.
    fn without_ending<'o>(&self, output: &'o [u8]) -> Option<&'o [u8]> {
        let head = &self.ending[..self.ending.len() - NONCE_BYTES];
        output.strip_suffix(&self.nonce[..]).filter(|raw| !raw.ends_with(head))
    }

    /// The pieces of a block with marks, if they could all be parts of such a block.
    fn pieces<'p>(&self, packed: &'p [u8], raw_bytes_max: usize) -> Option<Vec<&'p [u8]>> {
        let (mut pieces, mut start) = (Vec::new(), 0);
        for mark in self.end_of_part.find_iter(packed) {
            if pieces.len() == *PARTS.end() as usize {
                return None;
            }
            let end = mark + PART_END.len();
            pieces.push(&packed[start..end]);
            start = end;
        }
        pieces.push(&packed[start..]);
        let count = pieces.len();
        // Entry points for the CPU begin with an empty stored block, which ends like a part.
        let is_plausible = (2..=*PARTS.end() as usize).contains(&count)
            && pieces[0].len() > 1 + PART_END.len()
            && raw_bytes_max >= count * PART_BYTES_MIN
            && start < packed.len();
        is_plausible.then_some(pieces)
    }
}
