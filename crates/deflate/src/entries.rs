//! Entry points: where the parts of a stream begin.
//!
//! A DEFLATE stream is decoded symbol by symbol, and each look-up waits for the one before. A decoder that knows the
//! starts of the second, third and fourth quarter decodes all four side by side. The format has no field for these
//! starts. They stand in one of two places, neither of which other readers look at:
//!
//! - a *trailer* behind the end of the stream, for readers that stop at that end;
//! - a *preamble* of empty stored blocks in front, in the bits that pad the header of such a block to a whole byte. RFC
//!   1951, section 3.2.4, has every reader ignore them.
//!
//! Entry points are a hint. The [decoder](crate::PartsDecoder) accepts a part only if the part before ends at its
//! start. So whatever they say, the bytes are those of the stream.
//!
//! A part is a number of *steps*: a literal is one, a match two. A stream with entry points is one block with codes of
//! its own, of at most [`LITERAL_BITS`] and [`DISTANCE_BITS`](crate::tables::DISTANCE_BITS), behind the preamble.
//!
//! The trailer:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | bits 0 to 12: *n*, a quarter of the stream's steps; bit 12 + *k*: part *k* (1 to 3) begins after *k n* + 1 steps, not *k n*, which would be inside of a match |
//! | 2 | 6 | bits of the parts 0, 1 and 2, two bytes each; part 0 begins behind the block's header |
//! | 8 | 2 | check: the highest 16 bits of the product of the first 8 bytes, as a number, and [`CHECK_FACTOR`], of which 64 bits count |
//!
//! The preamble: nine blocks of five bytes. The highest five bits of the first byte of each are the next ones, from the
//! lowest on, of a number of 45 bits: 15 bits for each of the parts 0, 1 and 2.

use crate::PART_END;
use crate::matches::SEGMENT_BYTES;

/// Parts of a stream.
pub(crate) const PARTS: usize = 4;

/// The longest code of a literal or length in a stream with a trailer. (Streams with 12 bits are 0.1 % shorter, their
/// tables twice as long.)
pub(crate) const LITERAL_BITS: usize = 11;

/// Bytes of the trailer.
pub(crate) const TRAILER_BYTES: usize = 10;

/// With fewer steps the trailer would be more than a hundredth of the stream.
pub(crate) const STEPS_MIN: usize = 1024;

/// Bits that pad an empty stored block at the start of a byte, behind its header of three bits.
const PADDING_BITS: usize = 5;

/// Bytes of an empty stored block: header and padding, then [`PART_END`].
const STORED_BYTES: usize = 1 + PART_END.len();

/// Bits of the preamble for each part but the last.
const PREAMBLE_BITS: usize = 15;

/// Bytes of the preamble.
pub(crate) const PREAMBLE_BYTES: usize = PREAMBLE_BITS * (PARTS - 1) / PADDING_BITS * STORED_BYTES;

/// With fewer steps the preamble would be more than a fiftieth of the stream.
const PREAMBLE_STEPS_MIN: usize = 2048;

/// Where a step makes more bytes, four parts side by side are no faster than one.
const STEP_BYTES_MAX: usize = 4;

/// Bits of *n*.
const QUARTER_BITS: u32 = 13;

/// The longest part: all but the last have *n* steps, one more or one less. A literal is one step for a byte, a match
/// two for three bytes or more.
pub(crate) const PART_STEPS_MAX: usize = SEGMENT_BYTES / PARTS + 8;

/// 2^64 divided by the golden ratio (Knuth's multiplicative hashing).
const CHECK_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The contents of the trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entries {
    marks: u16,
    bits: [u16; PARTS - 1],
}

impl Entries {
    /// Divides the stream; `None` if a trailer does not pay.
    pub(crate) fn divide(steps: usize) -> Option<Entries> {
        let quarter = steps / PARTS;
        let worth = steps >= STEPS_MIN && quarter + PARTS <= PART_STEPS_MAX;
        worth.then_some(Entries { marks: quarter as u16, bits: [0; PARTS - 1] })
    }

    /// Steps in front of a part: exact once the part is [passed](Self::pass).
    pub(crate) fn begin(&self, part: usize) -> usize {
        let is_late = part > 0 && self.marks >> (QUARTER_BITS as usize + part - 1) & 1 == 1;
        part * self.quarter() + usize::from(is_late)
    }

    fn quarter(&self) -> usize {
        usize::from(self.marks) & ((1 << QUARTER_BITS) - 1)
    }

    /// Notes that part `part` begins after `steps` steps, [`begin`](Self::begin) or one more, and the bits of the part
    /// before. `false` if the bits are too many.
    pub(crate) fn pass(&mut self, part: usize, steps: usize, bits: usize) -> bool {
        self.marks |= u16::from(steps > self.begin(part)) << (QUARTER_BITS as usize + part - 1);
        self.bits[part - 1] = bits as u16;
        bits <= usize::from(u16::MAX)
    }

    /// Bits of each part but the last.
    pub(crate) fn bits(&self) -> [usize; PARTS - 1] {
        self.bits.map(usize::from)
    }

    /// The preamble of a block of so many bytes; `None` if it does not pay, or a part is too long for it.
    pub(crate) fn to_preamble(self, raw_bytes: usize) -> Option<[u8; PREAMBLE_BYTES]> {
        let steps = PARTS * self.quarter();
        let is_worth = steps >= PREAMBLE_STEPS_MIN && steps * STEP_BYTES_MAX >= raw_bytes;
        let fits = self.bits.iter().all(|&bits| bits >> PREAMBLE_BITS == 0);
        let number =
            self.bits.iter().rev().fold(0, |number, &bits| number << PREAMBLE_BITS | u64::from(bits));
        let mut bytes = [0; PREAMBLE_BYTES];
        for (at, block) in bytes.chunks_exact_mut(STORED_BYTES).enumerate() {
            block[0] = (number >> (PADDING_BITS * at) << (8 - PADDING_BITS)) as u8;
            block[1..].copy_from_slice(&PART_END);
        }
        (is_worth && fits).then_some(bytes)
    }

    pub(crate) fn to_bytes(self) -> [u8; TRAILER_BYTES] {
        let [first, second, third] = self.bits.map(u64::from);
        let word = u64::from(self.marks) | first << 16 | second << 32 | third << 48;
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..].copy_from_slice(&check(word).to_le_bytes());
        bytes
    }

    /// The stream and its trailer, if the last bytes look like a trailer. One stream in 65,536 without a trailer does.
    pub(crate) fn split(packed: &[u8]) -> Option<(&[u8], Entries)> {
        let (stream, trailer) = packed.split_last_chunk::<TRAILER_BYTES>()?;
        let (word, found) = trailer.split_first_chunk::<8>()?;
        let word = u64::from_le_bytes(*word);
        let entries = Entries { marks: word as u16, bits: [16, 32, 48].map(|shift| (word >> shift) as u16) };
        let is_one = found == check(word).to_le_bytes() && entries.quarter() > 0;
        is_one.then_some((stream, entries))
    }
}

/// The stream behind its preamble, and the bits of each part but the last.
pub(crate) fn split_preamble(packed: &[u8]) -> Option<(&[u8], [usize; PARTS - 1])> {
    let (preamble, stream) = packed.split_first_chunk::<PREAMBLE_BYTES>()?;
    let mut number = 0;
    for (at, block) in preamble.chunks_exact(STORED_BYTES).enumerate() {
        // A stored block that is not the last has a header of zeros.
        if block[0] << PADDING_BITS != 0 || block[1..] != PART_END {
            return None;
        }
        number |= u64::from(block[0] >> (8 - PADDING_BITS)) << (PADDING_BITS * at);
    }
    let bits = |part: usize| (number >> (PREAMBLE_BITS * part)) as usize & ((1 << PREAMBLE_BITS) - 1);
    Some((stream, std::array::from_fn(bits)))
}

/// Whether the stream has entry points in front.
pub fn has_preamble(packed: &[u8]) -> bool {
    split_preamble(packed).is_some()
}

fn check(word: u64) -> u16 {
    (word.wrapping_mul(CHECK_FACTOR) >> 48) as u16
}

/// The stream without a possible trailer, for a reader that expects no bytes behind the stream.
///
/// One stream in 65,536 without a trailer looks as if it had one. The result then lacks the last ten bytes, which every
/// reader notices.
pub fn stream_of(packed: &[u8]) -> &[u8] {
    Entries::split(packed).map_or(packed, |(stream, _)| stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_no_steps_are_no_trailer() {
        for late in 0..8 {
            for quarter in [0, 1, 4000] {
                let entries = Entries { marks: late << QUARTER_BITS | quarter, bits: [1, 2, 3] };
                let packed = [&[0; 5], &entries.to_bytes()[..]].concat();
                assert_eq!(Entries::split(&packed).is_some(), quarter > 0);
                assert!(
                    quarter == 0 || (1..PARTS).all(|part| entries.begin(part) >= entries.begin(part - 1))
                );
            }
        }
    }
}
