//! Entry points: a trailer behind a stream states where its parts begin.
//!
//! A DEFLATE stream is decoded symbol by symbol, and each look-up waits for the one before. A decoder that knows the
//! starts of the second, third and fourth quarter decodes all four side by side. The format has no field for these
//! starts, so they stand behind the end of the stream. A reader that stops at that end does not see them. The trailer
//! is a hint. The [decoder](crate::PartsDecoder) accepts a part only if the part before ends at its start. So whatever
//! the trailer says, the bytes are those of the stream.
//!
//! A part is a number of *steps*: a literal is one, a match two. A stream with a trailer is one block with codes of its
//! own, of at most [`LITERAL_BITS`] and [`DISTANCE_BITS`](crate::tables::DISTANCE_BITS).
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | bits 0 to 12: *n*, a quarter of the stream's steps; bit 12 + *k*: part *k* (1 to 3) begins after *k n* + 1 steps, not *k n*, which would be inside of a match |
//! | 2 | 6 | bits of the parts 0, 1 and 2, two bytes each; part 0 begins behind the block's header |
//! | 8 | 2 | check: the highest 16 bits of the product of the first 8 bytes, as a number, and [`CHECK_FACTOR`], of which 64 bits count |

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

    /// Bits of a part that is not the last.
    pub(crate) fn bits(&self, part: usize) -> usize {
        usize::from(self.bits[part])
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
