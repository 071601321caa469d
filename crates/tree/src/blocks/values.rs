//! Values in blocks, and how several blocks are read: one after the other, or together by a device.

use super::BlockCoding;
use super::contents::span;

/// A value in a block.
#[derive(Clone, Copy)]
pub struct PackedValue<'a> {
    /// The frame of its block; empty if all values of the block are empty.
    pub frame: &'a [u8],
    /// Which of the block's values.
    pub place: usize,
    /// Values in the block.
    pub count: usize,
    /// The coding that unpacks the block.
    pub coding: &'a BlockCoding,
}

const NOT_A_BLOCK: &str = "the block's lengths do not add up";

impl PackedValue<'_> {
    /// Appends the value to `out`, which is as it was after an error.
    #[inline]
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) -> Result<(), String> {
        if self.frame.is_empty() {
            return Ok(());
        }
        let appended = self.coding.unpacked(self.frame, |raw| {
            span(raw, self.place, self.count).map(|(start, end)| out.extend_from_slice(&raw[start..end]))
        })?;
        appended.ok_or_else(|| NOT_A_BLOCK.to_owned())
    }

    /// Bytes of the value.
    pub(crate) fn raw_len(&self) -> Result<u64, String> {
        if self.frame.is_empty() {
            return Ok(0);
        }
        let len = self.coding.unpacked(self.frame, |raw| {
            span(raw, self.place, self.count).map(|(start, end)| (end - start) as u64)
        })?;
        len.ok_or_else(|| NOT_A_BLOCK.to_owned())
    }
}

/// The place of a frame, whose body is alive as long as this is known.
type Address = (usize, usize);

fn address(frame: &[u8]) -> Address {
    (frame.as_ptr().addr(), frame.len())
}

/// Blocks that a device unpacked together, before they are asked for one by one. Of engines on the CPU there are none:
/// what they unpack is used while it is in the cache.
#[derive(Default)]
pub struct ReadAhead(Vec<(Address, Result<Vec<u8>, String>)>);

impl ReadAhead {
    /// The blocks of these frames, of one coding, if a device unpacks them.
    pub fn of<'a>(coding: &BlockCoding, frames: impl IntoIterator<Item = &'a [u8]>) -> Self {
        if !coding.unpacks_in_batches() {
            return Self::default();
        }
        let mut frames: Vec<&[u8]> = frames.into_iter().filter(|frame| !frame.is_empty()).collect();
        frames.sort_unstable_by_key(|frame| address(frame));
        frames.dedup_by_key(|frame| address(frame));
        let blocks = coding.unpack_batch(&frames);
        Self(frames.into_iter().map(address).zip(blocks).collect())
    }

    fn find(&self, frame: &[u8]) -> Option<Result<&[u8], String>> {
        let index = self.0.binary_search_by_key(&address(frame), |(address, _)| *address).ok()?;
        Some(self.0[index].1.as_deref().map_err(Clone::clone))
    }

    /// Appends the contents of a block, which is unpacked now if it was not before.
    ///
    /// # Errors
    /// The fault of the frame; `raw` is as it was then.
    pub fn append(&self, coding: &BlockCoding, frame: &[u8], raw: &mut Vec<u8>) -> Result<(), String> {
        match self.find(frame) {
            Some(block) => block.map(|block| raw.extend_from_slice(block)),
            None => coding.unpack(frame, raw),
        }
    }
}

/// Hands `take` the value of each, from blocks that a device unpacks together. Values come in any order, with the index
/// that was given with them, until `take` returns an error.
pub(crate) fn take_values<'a, E>(
    packed: &mut Vec<(usize, PackedValue<'a>)>,
    mut take: impl FnMut(usize, Result<&[u8], String>) -> Result<(), E>,
) -> Result<(), E> {
    // A few keys have a few generations.
    while let Some(coding) = packed.first().map(|(_, value)| value.coding) {
        let is_own = |value: &PackedValue<'_>| std::ptr::eq(value.coding, coding);
        let own = packed.iter().filter(|(_, value)| is_own(value));
        let mut unpacked = Unpacked::with(ReadAhead::of(coding, own.clone().map(|(_, value)| value.frame)));
        for (index, value) in own {
            take(*index, unpacked.value(value))?;
        }
        packed.retain(|(_, value)| !is_own(value));
    }
    Ok(())
}

fn value_in<'r>(raw: &'r [u8], packed: &PackedValue<'_>) -> Result<&'r [u8], String> {
    let (start, end) = span(raw, packed.place, packed.count).ok_or(NOT_A_BLOCK)?;
    Ok(&raw[start..end])
}

/// One block at a time, unpacked once for all its values that are asked for in a row; or several ahead.
#[derive(Default)]
pub(crate) struct Unpacked {
    /// All values must come from bodies that are alive as long as this is.
    frame: Option<Address>,
    raw: Vec<u8>,
    ahead: ReadAhead,
}

impl Unpacked {
    /// With blocks that a device unpacked before.
    pub(crate) fn with(ahead: ReadAhead) -> Self {
        Self { ahead, ..Self::default() }
    }

    /// The value, as long as no other block is asked for.
    pub(crate) fn value(&mut self, packed: &PackedValue<'_>) -> Result<&[u8], String> {
        if packed.frame.is_empty() {
            return Ok(&[]);
        }
        let wanted = Some(address(packed.frame));
        if self.frame != wanted {
            self.frame = None;
            self.raw.clear();
            self.ahead.append(packed.coding, packed.frame, &mut self.raw)?;
            self.frame = wanted;
        }
        value_in(&self.raw, packed)
    }
}
