//! Finds the whole part of a log from its records alone.
//!
//! ```text
//! block of 32 KiB                                                        the next one
//! ├ check 4 │ length 2 │ kind 1 │ (number 4) │ bytes ┤ ... ┤ zeros where no record fits ┤├ check ...
//! ```
//!
//! The check is a masked CRC32C of what follows the length. In logs whose files are reused, records carry the log's
//! number (its low four bytes), which tells them from the rest of a former log. A user's batch is one record, or a
//! first, some middle and a last one. Only the records determine the end of a log: behind it lie any bytes of the file.

use super::BLOCK_BYTES;

const HEAD_BYTES: usize = 7;
const NUMBERED_HEAD_BYTES: usize = 11;

/// RocksDB's kinds of records that are told apart here.
mod kind {
    pub(super) const ZERO: u8 = 0;
    pub(super) const FIRST: u8 = 2;
    pub(super) const MIDDLE: u8 = 3;
    pub(super) const LAST: u8 = 4;
    pub(super) const NUMBERED_FULL: u8 = 5;
    pub(super) const NUMBERED_FIRST: u8 = 6;
    pub(super) const NUMBERED_MIDDLE: u8 = 7;
    pub(super) const NUMBERED_LAST: u8 = 8;
    pub(super) const COMPRESSION: u8 = 9;
    pub(super) const NUMBERED_TIMESTAMPS: u8 = 11;
    pub(super) const NUMBERED_PREDECESSOR: u8 = 131;
}

/// A walk over the records of one log, which goes on where it came to as the log grows.
#[derive(Debug)]
pub struct Walk {
    number: u32,
    /// Behind the last record that is whole.
    at: u64,
    /// Behind the last record that ends a batch.
    whole: u64,
    /// Whether the log's records carry its number, once one is known.
    is_numbered: Option<bool>,
    block: Box<[u8]>,
    next: Box<[u8]>,
}

impl Walk {
    /// A walk over the log of this number (its low four bytes), from its beginning.
    pub fn new(number: u32) -> Walk {
        let block = || vec![0; BLOCK_BYTES].into_boxed_slice();
        Walk::with(number, block(), block())
    }

    /// As [`Walk::new`]; `None` where memory is refused.
    pub(super) fn try_new(number: u32) -> Option<Walk> {
        Some(Walk::with(number, try_block()?, try_block()?))
    }

    fn with(number: u32, block: Box<[u8]>, next: Box<[u8]>) -> Walk {
        Walk { number, at: 0, whole: 0, is_numbered: None, block, next }
    }

    /// Bytes up to the last batch that was found whole.
    pub fn whole_bytes(&self) -> u64 {
        self.whole
    }

    /// Walks on to the first record that is not whole. Returns the bytes of the log up to the last whole batch, never
    /// fewer than before.
    ///
    /// `read` fills a buffer from an offset, as far as the file goes, and returns how many bytes it read.
    ///
    /// # Errors
    ///
    /// The errors of `read`. The walk can continue after one.
    pub fn advance<E>(&mut self, mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, E>) -> Result<u64, E> {
        loop {
            let gap = gap_at(self.at);
            let found = read(self.at, &mut self.block[..gap])?;
            let mut from = 0;
            while let Some(record) = Record::of(&self.block[from..found], self.number)
                && self.takes(&record)
            {
                from += record.bytes;
                self.at += record.bytes as u64;
                if record.ends_batch() {
                    self.whole = self.at;
                }
            }
            let is_used_up = from == gap;
            let goes_on = is_used_up
                || found == gap && is_zero(&self.block[from..gap]) && self.pass_padding(&mut read)?;
            if !goes_on {
                return Ok(self.whole);
            }
        }
    }

    /// All records of a log carry its number, or none does. The exception is the first record that names the
    /// compression of the others.
    fn takes(&mut self, record: &Record) -> bool {
        if record.kind == kind::COMPRESSION {
            return self.at == 0;
        }
        *self.is_numbered.get_or_insert(record.is_numbered()) == record.is_numbered()
    }

    /// Passes zeros up to the end of the block if they are padding: then the next block begins with a record that did
    /// not fit here. A writer may be ahead of this walk, so the zeros are read again after that record was seen.
    fn pass_padding<E>(
        &mut self,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<bool, E> {
        let gap = gap_at(self.at);
        let found = read(self.at + gap as u64, &mut self.next)?;
        let follower = Record::of(&self.next[..found], self.number);
        if follower.is_none_or(|record| record.fits(gap)) {
            return Ok(false);
        }
        let found = read(self.at, &mut self.block[..gap])?;
        let is_padding = found == gap && is_zero(&self.block[..gap]);
        if is_padding {
            self.at += gap as u64;
        }
        Ok(is_padding)
    }
}

/// The zeros of a block; `None` where memory is refused.
fn try_block() -> Option<Box<[u8]>> {
    let mut block = Vec::new();
    block.try_reserve_exact(BLOCK_BYTES).ok()?;
    block.resize(BLOCK_BYTES, 0);
    Some(block.into_boxed_slice())
}

/// Bytes from an offset to the end of its block.
fn gap_at(offset: u64) -> usize {
    BLOCK_BYTES - (offset % BLOCK_BYTES as u64) as usize
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// A record that is whole.
#[derive(Debug, Clone, Copy)]
struct Record {
    kind: u8,
    /// With its head.
    bytes: usize,
}

impl Record {
    /// The record that `bytes` begin with, if all of it is there and it is of this log.
    fn of(bytes: &[u8], number: u32) -> Option<Record> {
        let head = bytes.first_chunk::<HEAD_BYTES>()?;
        let kind = head[6];
        let length = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let record = Record { kind, bytes: head_bytes(kind) + length };
        let whole = bytes.get(..record.bytes)?;
        let is_of_log =
            !record.is_numbered() || whole[HEAD_BYTES..NUMBERED_HEAD_BYTES] == number.to_le_bytes();
        let check = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        (kind != kind::ZERO && is_of_log && masked(crc32c::crc32c(&whole[6..])) == check).then_some(record)
    }

    fn is_numbered(&self) -> bool {
        head_bytes(self.kind) == NUMBERED_HEAD_BYTES
    }

    fn ends_batch(&self) -> bool {
        !matches!(self.kind, kind::FIRST | kind::MIDDLE | kind::NUMBERED_FIRST | kind::NUMBERED_MIDDLE)
    }

    /// Whether the writer would have begun the record in a gap of `gap` bytes. Batches are cut to fit, other records
    /// are not.
    fn fits(&self, gap: usize) -> bool {
        let is_of_batch = self.kind <= kind::NUMBERED_LAST;
        gap >= if is_of_batch { head_bytes(self.kind) } else { self.bytes }
    }
}

/// Whether a record that is not the first of its batch begins here. False if its head is not whole.
pub(super) fn continues_batch(bytes: &[u8]) -> bool {
    let kind = bytes.get(HEAD_BYTES - 1);
    kind.is_some_and(|kind| {
        matches!(*kind, kind::MIDDLE | kind::LAST | kind::NUMBERED_MIDDLE | kind::NUMBERED_LAST)
    })
}

fn head_bytes(kind: u8) -> usize {
    match kind {
        kind::NUMBERED_FULL..=kind::NUMBERED_LAST
        | kind::NUMBERED_TIMESTAMPS
        | kind::NUMBERED_PREDECESSOR => NUMBERED_HEAD_BYTES,
        _ => HEAD_BYTES,
    }
}

/// A check as it is stored, so that a check of bytes with checks in them stays one.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests;
