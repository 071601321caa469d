//! The blocks of a packed body, behind its records.
//!
//! ```text
//! 0        u8  blocks b
//! 1        u8  first record of each block [b]
//! 1+b      u16 where each block's frame ends, from the first frame on [b]
//! 1+3b     frames
//! ```
//!
//! Every record belongs to a block, also those whose value lies elsewhere: see `blocks`.

use super::{Body, PACKED};
use crate::record::array;

/// A block of a body.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    /// Its first record.
    pub(crate) first: usize,
    /// Its records.
    pub(crate) count: usize,
    pub(crate) frame: &'a [u8],
}

/// Blocks on their way into bodies; kept from one to the next.
#[derive(Default)]
pub(crate) struct Blocks {
    counts: Vec<u8>,
    ends: Vec<u32>,
    pub(crate) frames: Vec<u8>,
}

impl Blocks {
    pub(crate) fn clear(&mut self) {
        self.counts.clear();
        self.ends.clear();
        self.frames.clear();
    }

    /// Adds a block of `count` records, whose frame was appended to `frames`.
    pub(crate) fn push(&mut self, count: usize) {
        self.counts.push(u8::try_from(count).expect("a block has fewer records than a body"));
        self.ends.push(u32::try_from(self.frames.len()).expect("frames of two leaves are below 4 GiB"));
    }

    /// Adds a block as it lies in another body.
    pub(crate) fn copy(&mut self, block: Block<'_>) {
        self.frames.extend_from_slice(block.frame);
        self.push(block.count);
    }

    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Records of block `index`.
    pub(crate) fn count(&self, index: usize) -> usize {
        usize::from(self.counts[index])
    }

    /// What the blocks from `from` to `to` take in a body.
    pub(super) fn section_bytes(&self, from: usize, to: usize) -> usize {
        1 + 3 * (to - from) + self.end(to) - self.end(from)
    }

    /// Appends the blocks from `from` to `to`.
    pub(super) fn write(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        out.push(u8::try_from(to - from).expect("a body has more records than blocks"));
        let mut first = 0;
        for count in &self.counts[from..to] {
            out.push(first);
            first = first.checked_add(*count).expect("a body has at most 224 records");
        }
        let base = self.end(from);
        for index in from..to {
            let end = u16::try_from(self.end(index + 1) - base).expect("a packed body is below 64 KiB");
            out.extend_from_slice(&end.to_le_bytes());
        }
        out.extend_from_slice(&self.frames[base..self.end(to)]);
    }

    /// Where the frames of the first `index` blocks end.
    fn end(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |last| self.ends[last] as usize)
    }
}

impl Body {
    /// Whether its values are packed in blocks.
    #[inline]
    pub(crate) fn is_packed(&self) -> bool {
        self.layout() & PACKED != 0
    }

    /// Blocks, 0 if values are not packed.
    pub(crate) fn blocks(&self) -> usize {
        if self.is_packed() { usize::from(self.0[self.records_end()]) } else { 0 }
    }

    /// Block `index`.
    pub(crate) fn block(&self, index: usize) -> Block<'_> {
        self.block_in(&self.0[self.records_end()..], index)
    }

    /// Which block the record `index` of a packed body belongs to.
    pub(crate) fn block_of(&self, index: usize) -> usize {
        Self::block_at(&self.0[self.records_end()..], index)
    }

    /// The block of record `index`.
    #[inline]
    pub(super) fn block_around(&self, index: usize) -> Block<'_> {
        let section = &self.0[self.records_end()..];
        self.block_in(section, Self::block_at(section, index))
    }

    #[inline]
    fn block_at(section: &[u8], index: usize) -> usize {
        let firsts = &section[1..1 + usize::from(section[0])];
        firsts.partition_point(|first| usize::from(*first) <= index) - 1
    }

    #[inline]
    fn block_in<'a>(&self, section: &'a [u8], index: usize) -> Block<'a> {
        let blocks = usize::from(section[0]);
        let first = usize::from(section[1 + index]);
        let next = if index + 1 < blocks { usize::from(section[2 + index]) } else { self.len() };
        let end = |index: usize| usize::from(u16::from_le_bytes(array(&section[1 + blocks + 2 * index..])));
        let start = if index == 0 { 0 } else { end(index - 1) };
        let frames = 1 + 3 * blocks;
        Block { first, count: next - first, frame: &section[frames + start..frames + end(index)] }
    }
}
