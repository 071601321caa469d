//! The blocks of a packed body, behind its records.
//!
//! ```text
//! 0        u8  blocks b
//! 1        u8  records of each block [b]
//! 1+b      u16 where each block's frame ends, from the first frame on [b]
//! 1+3b     frames
//! ```
//!
//! Every record belongs to a block, also those whose value lies elsewhere: see `blocks`.

use super::{Body, PACKED};
use crate::blocks::BegunBlock;
use crate::numbers::array;

/// Blocks of a body at most.
pub(crate) const BLOCKS_MAX: usize = 255;

/// A block of a body.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    /// Its first record.
    pub first: usize,
    /// Its records.
    pub count: usize,
    /// Its frame; empty if all its values are empty.
    pub frame: &'a [u8],
}

impl Block<'_> {
    /// Bytes of its contents, as the head of its frame says.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.frame.get(1..5).map_or(0, |len| u32::from_le_bytes(array(len)) as usize)
    }
}

/// Blocks on their way into bodies; kept from one to the next.
#[derive(Default)]
pub struct Blocks {
    counts: Vec<u8>,
    ends: Vec<u32>,
    /// The frames, one behind the other.
    pub frames: Vec<u8>,
    /// Blocks without a frame so far, by their index: a device packs them.
    begun: Vec<(usize, BegunBlock)>,
}

impl Blocks {
    /// Forgets all blocks, and keeps the memory for the next ones.
    pub(crate) fn clear(&mut self) {
        self.counts.clear();
        self.ends.clear();
        self.frames.clear();
        self.begun.clear();
    }

    /// Adds a block of `count` records whose frame comes later, by [`Blocks::fill_in`].
    pub(crate) fn push_begun(&mut self, block: BegunBlock, count: usize) {
        self.begun.push((self.counts.len(), block));
        self.push(count);
    }

    /// Whether blocks are without a frame so far.
    pub(crate) fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Gives the blocks that were begun the frames that `finish` makes of them, and returns the bytes of these frames.
    pub(crate) fn fill_in(&mut self, finish: impl FnOnce(Vec<BegunBlock>) -> Vec<Vec<u8>>) -> usize {
        let (places, begun): (Vec<usize>, Vec<_>) = std::mem::take(&mut self.begun).into_iter().unzip();
        let made = finish(begun);
        let old = std::mem::take(&mut self.frames);
        let mut made = places.into_iter().zip(&made).peekable();
        let (mut start, mut bytes) = (0, 0);
        for (index, end) in self.ends.iter_mut().enumerate() {
            match made.next_if(|(place, _)| *place == index) {
                Some((_, frame)) => {
                    self.frames.extend_from_slice(frame);
                    bytes += frame.len();
                }
                None => self.frames.extend_from_slice(&old[start..*end as usize]),
            }
            start = *end as usize;
            *end = u32::try_from(self.frames.len()).expect("frames of two leaves are below 4 GiB");
        }
        bytes
    }

    /// Adds a block of `count` records, whose frame was appended to `frames`.
    pub fn push(&mut self, count: usize) {
        self.counts.push(u8::try_from(count).expect("a block has fewer records than a body"));
        self.ends.push(u32::try_from(self.frames.len()).expect("frames of two leaves are below 4 GiB"));
    }

    /// Adds a block as it lies in another body.
    pub fn copy(&mut self, block: Block<'_>) {
        self.frames.extend_from_slice(block.frame);
        self.push(block.count);
    }

    /// Adds the blocks from `from` to `to` of others.
    pub(crate) fn copy_blocks(&mut self, others: &Self, from: usize, to: usize) {
        for index in from..to {
            self.frames.extend_from_slice(others.frame(index));
            self.push(others.count(index));
        }
    }

    /// Blocks, those without a frame so far included.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// The frame of block `index`; empty for a block without a frame so far.
    pub(crate) fn frame(&self, index: usize) -> &[u8] {
        &self.frames[self.end(index)..self.end(index + 1)]
    }

    /// Records of block `index`.
    pub(crate) fn count(&self, index: usize) -> usize {
        usize::from(self.counts[index])
    }

    /// The blocks from `from` to `to`.
    pub(crate) fn section(&self, from: usize, to: usize) -> Section<'_> {
        Section { blocks: self, from, to }
    }

    /// All blocks.
    pub fn all(&self) -> Section<'_> {
        self.section(0, self.len())
    }

    /// The end of the frames of the first `index` blocks.
    fn end(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |last| self.ends[last] as usize)
    }
}

/// Consecutive blocks that stand in one body.
#[derive(Clone, Copy)]
pub struct Section<'b> {
    blocks: &'b Blocks,
    from: usize,
    to: usize,
}

impl Section<'_> {
    pub(super) fn len(&self) -> usize {
        self.to - self.from
    }

    /// Records of all its blocks.
    pub(super) fn records(&self) -> usize {
        (self.from..self.to).map(|index| self.blocks.count(index)).sum()
    }

    /// Its bytes in a body.
    pub(super) fn bytes(&self) -> usize {
        1 + 3 * self.len() + self.blocks.end(self.to) - self.blocks.end(self.from)
    }

    /// Appends it to a body.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let Self { blocks, from, to } = *self;
        out.push(u8::try_from(to - from).expect("a body is cut before it has 256 blocks"));
        out.extend_from_slice(&blocks.counts[from..to]);
        let base = blocks.end(from);
        for index in from..to {
            let end = u16::try_from(blocks.end(index + 1) - base).expect("a packed body is below 64 KiB");
            out.extend_from_slice(&end.to_le_bytes());
        }
        out.extend_from_slice(&blocks.frames[base..blocks.end(to)]);
    }
}

impl Body {
    /// Whether its values are packed in blocks.
    #[inline]
    pub fn is_packed(&self) -> bool {
        self.layout() & PACKED != 0
    }

    /// Blocks, 0 if values are not packed.
    pub fn blocks(&self) -> usize {
        if self.is_packed() { usize::from(self.0[self.records_end()]) } else { 0 }
    }

    /// About the bytes of the same records with raw values.
    pub fn raw_bytes(&self) -> usize {
        self.records_end() + self.each_block().map(|block| block.raw_bytes()).sum::<usize>()
    }

    /// Its blocks in order, none if values are not packed.
    pub fn each_block(&self) -> impl Iterator<Item = Block<'_>> {
        let section = if self.is_packed() { &self.0[self.records_end()..] } else { &[0] };
        let (counts, rest) = section[1..].split_at(usize::from(section[0]));
        let (ends, frames) = rest.split_at(2 * counts.len());
        let (mut first, mut start) = (0, 0);
        counts.iter().zip(ends.chunks_exact(2)).map(move |(count, end)| {
            let (count, end) = (usize::from(*count), usize::from(u16::from_le_bytes([end[0], end[1]])));
            let block = Block { first, count, frame: &frames[start..end] };
            (first, start) = (first + count, end);
            block
        })
    }

    /// The frame of each of these blocks.
    pub(crate) fn frames_of(&self, blocks: std::ops::Range<usize>) -> impl Iterator<Item = &[u8]> {
        self.each_block().take(blocks.end).skip(blocks.start).map(|block| block.frame)
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
        let mut next = 0;
        let ends = section[1..1 + usize::from(section[0])].iter().map(|count| {
            next += usize::from(*count);
            next
        });
        ends.take_while(|end| *end <= index).count()
    }

    #[inline]
    fn block_in<'a>(&self, section: &'a [u8], index: usize) -> Block<'a> {
        let blocks = usize::from(section[0]);
        let first = section[1..1 + index].iter().map(|count| usize::from(*count)).sum();
        let count = usize::from(section[1 + index]);
        let end = |index: usize| usize::from(u16::from_le_bytes(array(&section[1 + blocks + 2 * index..])));
        let start = if index == 0 { 0 } else { end(index - 1) };
        let frames = 1 + 3 * blocks;
        Block { first, count, frame: &section[frames + start..frames + end(index)] }
    }
}

#[cfg(all(test, not(miri)))]
impl Body {
    /// The same with one bit of the frames changed.
    pub(crate) fn with_flipped_bit(&self, index: usize, bit: u8) -> Self {
        let mut bytes = self.0.to_vec();
        let frames = self.records_end() + 1 + 3 * self.blocks();
        bytes[frames + index] ^= 1 << bit;
        Self(super::BodyBytes::from(bytes.as_slice()))
    }

    /// Bytes of all frames.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.0.len() - (self.records_end() + 1 + 3 * self.blocks())
    }
}

// The C libraries do not run under Miri.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::blocks::{BlockCoding, Effort, lay_out};
    use crate::body::{BLOCKS_MAX, Builder, Entry, EntryKey, fingerprint};
    use crate::codec_options::{CodecChoice, CodecOptions};
    use crate::coding::Coding;
    use crate::form::Form;
    use crate::read::{Copied, copy_found};
    use crate::record::{Fields, Kind, key_hash};

    fn coding(codec: CodecChoice) -> Coding {
        let options = CodecOptions { codec, ..CodecOptions::default() };
        let coding = BlockCoding::first(&options).expect("the defaults are sound");
        Coding::Blocks(coding.expect("the codec packs blocks"))
    }

    /// A body of `values` in blocks of `per_block`, under the numbers from 0 on as keys.
    fn body(coding: &Coding, values: &[Vec<u8>], per_block: usize, effort: Effort) -> Body {
        let coding = coding.blocks().expect("the codec packs blocks");
        let keys: Vec<_> = (0..values.len()).map(key).collect();
        let entries: Vec<_> = keys
            .iter()
            .map(|key| Entry {
                key: EntryKey::whole(key),
                fingerprint: fingerprint(key_hash(key)),
                kind: Kind::Packed,
                fields: Fields::default(),
                payload: &[],
            })
            .collect();
        let (mut blocks, mut contents) = (Blocks::default(), Vec::new());
        for values in values.chunks(per_block) {
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            if lay_out(&values, &mut contents) {
                coding.pack(effort, &contents, &mut blocks.frames);
            }
            blocks.push(values.len());
        }
        let size = Builder::size(&entries, Some(blocks.all()));
        let body = Builder::default().build(&entries, Some(blocks.all()));
        assert_eq!(body.0.len(), size);
        body
    }

    const RECORDS: usize = 512;

    fn key(index: usize) -> Vec<u8> {
        format!("key:{index:012}").into_bytes()
    }

    fn read(body: &Body, index: usize, coding: &Coding) -> Result<Vec<u8>, String> {
        let place = body.find(&key(index), key_hash(&key(index))).expect("its key is whole");
        assert_eq!(place, index);
        let mut value = b"before".to_vec();
        let form = Form::of(Some(coding.clone()));
        match copy_found(body.found(place, &form), &mut value) {
            Copied::Inline(_) => Ok(value.split_off(6)),
            Copied::Damaged(reason) => {
                assert_eq!(value, b"before");
                Err(reason)
            }
            Copied::Large(..) => panic!("no value is large"),
        }
    }

    #[test]
    fn every_value_comes_back_whatever_its_size_and_block() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut noise = |bytes: usize| (0..bytes).map(|_| random.u8(..)).collect::<Vec<u8>>();
        let text = |n: usize| format!("value {n} of a block, ").repeat(n % 7).into_bytes();
        let cases: [Vec<Vec<u8>>; 6] = [
            vec![Vec::new(); 40],
            (0..RECORDS).map(text).collect(),
            (0..9).map(|n| text(6).repeat(if n == 4 { 16 } else { 1 })).collect(),
            (0..30).map(|_| noise(100)).collect(),
            vec![noise(2048)],
            (0..RECORDS).map(|n| if n % 50 == 3 { text(5) } else { Vec::new() }).collect(),
        ];
        for codec in [CodecChoice::Lz4, CodecChoice::Zstd, CodecChoice::Deflate] {
            let coding = coding(codec);
            for values in &cases {
                for (per_block, effort) in [(1, Effort::Fast), (5, Effort::Dense), (64, Effort::Fast)] {
                    let values = &values[..values.len().min(per_block * BLOCKS_MAX)];
                    let body = body(&coding, values, per_block, effort);
                    assert_eq!(body.blocks(), values.len().div_ceil(per_block));
                    for (index, value) in values.iter().enumerate() {
                        assert_eq!(body.block_of(index), index / per_block);
                        assert_eq!(read(&body, index, &coding).as_ref(), Ok(value), "{codec}");
                    }
                }
            }
        }
    }

    #[test]
    fn flipped_bits_are_an_error_for_their_block_and_nothing_to_the_others() {
        let values: Vec<Vec<u8>> =
            (0..20).map(|n| format!("some text, {n}; ").repeat(4).into_bytes()).collect();
        for codec in [CodecChoice::Lz4, CodecChoice::Zstd, CodecChoice::Deflate] {
            let coding = coding(codec);
            let body = body(&coding, &values, 5, Effort::Fast);
            for at in 0..body.frame_bytes() {
                let damaged = body.with_flipped_bit(at, (at % 8) as u8);
                let read: Vec<_> = (0..values.len()).map(|index| read(&damaged, index, &coding)).collect();
                assert_eq!(read.iter().filter(|value| value.is_err()).count(), 5, "{codec}, byte {at}");
                let right = |(value, wanted): (&Result<Vec<u8>, String>, _)| {
                    value.as_ref().map_or(true, |value| value == wanted)
                };
                assert!(read.iter().zip(&values).all(right));
            }
        }
    }

    #[test]
    fn a_generation_is_freed_with_the_contexts_of_all_threads() {
        let coding = coding(CodecChoice::Zstd);
        let body = body(&coding, &[b"value".repeat(20)], 1, Effort::Dense);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| read(&body, 0, &coding).unwrap());
            }
        });
        let blocks = Arc::downgrade(coding.blocks().unwrap());
        drop(coding);
        assert!(blocks.upgrade().is_none());
    }
}
