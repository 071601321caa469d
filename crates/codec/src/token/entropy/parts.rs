//! Blocks in parts: codes that are decoded side by side.
//!
//! A reader of one value waits for each step of the table before it can look up the next one. A block that is unpacked
//! whole may have its tokens in [`PARTS`] parts instead, each of which begins like a value does. The decoder takes
//! one number of each part in turn, so that it waits for all of them together. A value that is read alone is too short
//! for that.
//!
//! # A block in parts
//!
//! ```text
//! group | group | ... | a set bit | zero bits up to a byte | check (2 bytes)
//! ```
//!
//! A group has up to [`PARTS`] * [`TURNS_MAX`] tokens:
//!
//! ```text
//! w | bits of part 0 | of part 1 | of part 2 | codes of part 0 | of part 1 | of part 2 | of part 3
//! ```
//!
//! - The number w has [`WIDTH_BITS`], and the three lengths have w each. Part 3 has no length.
//! - Each part begins in the context where a value begins.
//! - A group with [`TURNS_MAX`] tokens in each part has no others, and the next group follows. Any other group is the
//!   last one. Its parts have a quarter of its tokens each, and the last part also has the tokens that are left.
//!
//! # How the decoder stays in bounds
//!
//! Only part 0 tells how many turns there are: they end where its codes do. All parts take as many, and each must then
//! stand where the next one begins. Meanwhile a part of hostile bytes may run beyond its end, and behind the end of the
//! block it finds bits without a meaning. The numbers of the group wait in a list of a fixed length, and become bytes
//! only after the check.

use super::reader::{LOADED_BITS_MIN, Lane, Reader, load, unknown};
use super::table::TOKEN_BITS_MAX;
use crate::token::error::DecodeError;
use crate::token::{TOKEN_BYTES_MAX, decode};
use std::mem::MaybeUninit;

/// Parts of a group. Two took 1.13 to 1.27 times as long, and eight 0.98 to 1.14 times (`examples/parts_table.rs`).
pub(super) const PARTS: usize = 4;

/// The most tokens of a part that are read by turns. A block of 16 KiB mostly has fewer, and their numbers take 8 KiB.
pub(super) const TURNS_MAX: usize = 1024;

/// Bits of the width of the lengths in front of a group.
pub(super) const WIDTH_BITS: u32 = 4;

/// The most bits in front of a group.
pub(super) const HEADER_BITS_MAX: u32 = WIDTH_BITS + (PARTS as u32 - 1) * WIDTH_MAX;

const WIDTH_MAX: u32 = (1 << WIDTH_BITS) - 1;

/// A block with fewer tokens has no parts: the lengths of parts would be more than a fiftieth of it.
const TOKENS_MIN: usize = 256;

const _: () = assert!(TURNS_MAX * (TOKEN_BITS_MAX as usize) < 1 << WIDTH_MAX, "every part has a length");
const _: () = assert!(HEADER_BITS_MAX <= LOADED_BITS_MIN, "one load gives all lengths");

/// A number of each part.
pub(super) type Turn = [u16; PARTS];

/// The numbers of a group while it is decoded.
pub(super) type Numbers = [Turn; TURNS_MAX];

/// Whether a block of so many tokens is better in parts.
pub(super) fn pay(tokens: usize) -> bool {
    tokens >= TOKENS_MIN
}

/// The tokens of each part of a group.
pub(super) fn parts_of<T>(group: &[T]) -> [&[T]; PARTS] {
    let turns = group.len() / PARTS;
    std::array::from_fn(|part| match part + 1 {
        PARTS => &group[part * turns..],
        next => &group[part * turns..next * turns],
    })
}

/// The groups of a block's tokens.
pub(super) fn groups_of<T>(tokens: &[T]) -> impl Iterator<Item = &[T]> {
    tokens.chunks(PARTS * TURNS_MAX)
}

impl Reader<'_> {
    /// Reads the turns of a group, and returns how many they were. Behind it the reader stands at the next group, or in
    /// the last part, as far as that is longer than the others.
    pub(super) fn group(&mut self, numbers: &mut Numbers) -> Result<usize, DecodeError> {
        let header = load(self.bytes, self.lane.at);
        let width = header as u32 & WIDTH_MAX;
        let mut lengths = header >> WIDTH_BITS;
        let mut starts = [self.lane.at + (WIDTH_BITS + (PARTS as u32 - 1) * width) as usize; PARTS];
        for part in 1..PARTS {
            starts[part] = starts[part - 1] + (lengths as usize & ((1 << width) - 1));
            lengths >>= width;
        }
        if starts[PARTS - 1] > self.end {
            return Err(self.misplaced());
        }
        let mut lanes = starts.map(|start| Lane::new(self.table, self.bytes, start));
        let turns = self.turns(&mut lanes, starts[1], numbers);
        if lanes.iter().zip(&starts[1..]).any(|(lane, &next)| lane.at != next) {
            return Err(self.misplaced());
        }
        self.tokens += turns * PARTS;
        let last = lanes[PARTS - 1];
        self.lane = if turns == TURNS_MAX { Lane::new(self.table, self.bytes, last.at) } else { last };
        Ok(turns)
    }

    /// Reads a number of each part in turn, up to the end of the first part. Returns the number of turns.
    #[inline(never)]
    fn turns(&self, lanes: &mut [Lane; PARTS], end: usize, numbers: &mut Numbers) -> usize {
        // Copies that nothing points to stay in registers.
        let (mut all, table, bytes) = (*lanes, self.table, self.bytes);
        let mut turns = 0;
        while all[0].at < end && turns < TURNS_MAX {
            for (number, lane) in numbers[turns].iter_mut().zip(&mut all) {
                *number = lane.number(table, bytes);
            }
            turns += 1;
        }
        *lanes = all;
        turns
    }

    /// The bytes of a block in parts, all of which are left.
    pub(super) fn measure_parts(mut self, tokens: &decode::Table) -> Result<usize, DecodeError> {
        let (mut numbers, mut raw_bytes) = ([[0; PARTS]; TURNS_MAX], 0);
        while !self.is_done() {
            let first = self.tokens;
            let turns = self.group(&mut numbers)?;
            let group = &numbers[..turns];
            let mut is_known = true;
            for length in group.iter().flatten().map(|&number| tokens.length(number)) {
                raw_bytes += length;
                is_known &= length != 0;
            }
            if !is_known {
                return Err(first_unknown(group, first, tokens));
            }
            if turns < TURNS_MAX {
                break;
            }
        }
        // The tokens of the last part alone, and whether the codes end where they should.
        Ok(raw_bytes + self.measure(tokens)?)
    }
}

/// Writes the tokens of a group to the start of `target`, and returns their bytes. They are all there only if they are
/// at most those of `target` without [`TOKEN_BYTES_MAX`]. `first` is the number of tokens in front.
pub(super) fn write(
    group: &[Turn],
    first: usize,
    tokens: &decode::Table,
    target: &mut [MaybeUninit<u8>],
) -> Result<usize, DecodeError> {
    let (mut written, mut is_known) = (0, true);
    for part in 0..PARTS {
        for turn in group {
            let (token, length) = tokens.padded(turn[part]);
            let rest = target.get_mut(written..).unwrap_or_default();
            if let Some(room) = rest.first_chunk_mut::<TOKEN_BYTES_MAX>() {
                room.write_copy_of_slice(token);
            }
            written += length;
            is_known &= length != 0;
        }
    }
    match is_known {
        true => Ok(written),
        false => Err(first_unknown(group, first, tokens)),
    }
}

/// The error of the first number in a group that the dictionary does not have.
#[cold]
fn first_unknown(group: &[Turn], first: usize, tokens: &decode::Table) -> DecodeError {
    let numbers = (0..PARTS).flat_map(|part| group.iter().map(move |turn| turn[part]));
    let mut lacking = numbers.enumerate().filter(|&(_, number)| tokens.length(number) == 0);
    lacking.next().map_or(DecodeError::Padding, |(at, number)| unknown(first + at, number))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FEW_CODES, rows, trained};
    use super::super::{Codes, Recoder};
    use super::*;
    use crate::token::Dictionary;

    /// A block of these numbers in parts, and its bytes.
    fn block(
        dictionary: &Dictionary,
        codes: &Codes,
        recoder: &mut Recoder,
        numbers: &[u16],
    ) -> (Vec<u8>, Vec<u8>) {
        let (mut plain, mut packed) = (Vec::new(), Vec::new());
        dictionary.seal(numbers, &mut plain);
        recoder.recode_parts(codes, dictionary, &plain, &mut packed).expect("it was just coded");
        let raw = numbers.iter().flat_map(|&number| dictionary.table().token(number.into()));
        (packed, raw.copied().collect())
    }

    fn numbers(count: usize, below: u16, random: &mut fastrand::Rng) -> Vec<u16> {
        // Small ones come often.
        (0..count).map(|_| random.u16(..below) & random.u16(..)).collect()
    }

    fn come_back(dictionary: &Dictionary, codes: &Codes, recoder: &mut Recoder, numbers: &[u16]) {
        let (packed, raw) = block(dictionary, codes, recoder, numbers);
        assert_eq!(codes.parts_raw_len(dictionary, &packed), Ok(raw.len()));
        for room in [0, raw.len(), raw.len() + TOKEN_BYTES_MAX] {
            let mut out = Vec::with_capacity(room);
            assert_eq!(codes.decode_parts(dictionary, &packed, &mut out, raw.len()), Ok(raw.len()));
            assert!(out == raw, "{} numbers", numbers.len());
            if room > raw.len() {
                assert_eq!(out.capacity(), room, "no more room than that");
            }
        }
        if let Some(max_bytes) = raw.len().checked_sub(1) {
            let mut out = b"kept".to_vec();
            let error = DecodeError::TooLong { raw_bytes: raw.len(), max_bytes };
            assert_eq!(codes.decode_parts(dictionary, &packed, &mut out, max_bytes), Err(error));
            assert_eq!(out, b"kept");
        }
    }

    #[test]
    fn blocks_in_parts_come_back_however_many_tokens_they_have() {
        let group = PARTS * TURNS_MAX;
        let around = |count: usize| count.saturating_sub(5)..count + 6;
        let mut random = fastrand::Rng::with_seed(3);
        for bits in [10, 16] {
            let (dictionary, codes) = trained(bits);
            let mut recoder = Recoder::new();
            for count in [around(0), around(group), around(2 * group)].into_iter().flatten() {
                let numbers = numbers(count, dictionary.tokens() as u16, &mut random);
                come_back(&dictionary, &codes, &mut recoder, &numbers);
            }
        }
    }

    #[test]
    fn values_of_few_codes_in_parts_stay_within_their_room() {
        let (dictionary, codes) = &*FEW_CODES;
        let (mut random, mut recoder) = (fastrand::Rng::with_seed(4), Recoder::new());
        for count in [0, 1, 7, 40] {
            let mut numbers = numbers(count, 258, &mut random);
            come_back(dictionary, codes, &mut recoder, &numbers);
            // The longest tokens, and the shortest codes.
            numbers.fill(256);
            come_back(dictionary, codes, &mut recoder, &numbers);
        }
    }

    #[test]
    fn a_block_has_parts_if_it_has_tokens_enough() {
        let (dictionary, codes) = trained(12);
        for (count, has_parts) in [(0, false), (TOKENS_MIN - 1, false), (TOKENS_MIN, true), (5000, true)] {
            let (mut plain, mut packed) = (Vec::new(), Vec::new());
            dictionary.seal(&vec![b'a'.into(); count], &mut plain);
            let mut recoder = Recoder::new();
            assert_eq!(recoder.recode_block(&codes, &dictionary, &plain, &mut packed), Ok(has_parts));
            let (mut whole, mut parts) = (Vec::new(), Vec::new());
            recoder.recode(&codes, &dictionary, &plain, &mut whole).unwrap();
            recoder.recode_parts(&codes, &dictionary, &plain, &mut parts).unwrap();
            assert!(packed == if has_parts { parts } else { whole });
        }
    }

    /// Whatever the codes are, the decoder stays within its room, and its functions agree.
    #[test]
    fn crafted_parts_are_read_or_refused() {
        let (dictionary, codes) = trained(10);
        let (mut random, mut recoder) = (fastrand::Rng::with_seed(9), Recoder::new());
        let (mut read, mut refused) = (0, 0);
        for round in 0..3000 {
            let count = random.usize(0..if round % 100 == 0 { 9000 } else { 400 });
            let numbers = numbers(count, dictionary.tokens() as u16, &mut random);
            let mut crafted = block(&dictionary, &codes, &mut recoder, &numbers).0;
            crafted.truncate(crafted.len() - crate::token::CHECK_BYTES);
            for _ in 0..random.usize(1..4) {
                // Mostly the lengths.
                let at = random.usize(..crafted.len().min([6, 60, usize::MAX][round % 3]));
                crafted[at] ^= 1 << random.u32(..8);
            }
            if random.bool() {
                crafted.truncate(random.usize(..=crafted.len()));
            }
            codes.seal(0, &mut crafted);
            let length = codes.parts_raw_len(&dictionary, &crafted);
            let max_bytes = random.usize(0..1 << 14);
            let mut out = b"kept".to_vec();
            let decoded = codes.decode_parts(&dictionary, &crafted, &mut out, max_bytes);
            match length.clone() {
                Ok(raw_bytes) if raw_bytes > max_bytes => {
                    assert_eq!(decoded, Err(DecodeError::TooLong { raw_bytes, max_bytes }));
                }
                length => assert_eq!(decoded, length),
            }
            assert_eq!(out.len(), 4 + decoded.unwrap_or(0));
            *if length.is_ok() { &mut read } else { &mut refused } += 1;
        }
        assert!(read > 0 && refused > 0, "{read} were read, {refused} refused");
    }

    /// A check may be right by chance, or a stranger's. Parts that begin elsewhere would give other bytes.
    #[test]
    fn parts_begin_where_the_parts_before_end() {
        let (dictionary, codes) = trained(12);
        let numbers = numbers(600, dictionary.tokens() as u16, &mut fastrand::Rng::with_seed(8));
        let (packed, raw) = block(&dictionary, &codes, &mut Recoder::new(), &numbers);
        let width = u32::from(packed[0]) & WIDTH_MAX;
        for bit in 0..(WIDTH_BITS + (PARTS as u32 - 1) * width) as usize {
            let mut crafted = packed[..packed.len() - crate::token::CHECK_BYTES].to_vec();
            crafted[bit / 8] ^= 1 << (bit % 8);
            codes.seal(0, &mut crafted);
            let decoded = codes.decode_parts(&dictionary, &crafted, &mut Vec::new(), raw.len());
            assert_eq!(decoded, Err(DecodeError::Length { coded_bytes: packed.len() }), "bit {bit}");
        }
    }

    #[test]
    fn damage_of_a_block_in_parts_is_noticed() {
        let (dictionary, codes) = trained(12);
        let text = rows(200, 5).concat();
        let (mut plain, mut ends, mut packed) = (Vec::new(), Vec::new(), Vec::new());
        dictionary.encode_group(&mut crate::token::Encoder::new(), &[&text], &mut plain, &mut ends);
        let has_parts = Recoder::new().recode_block(&codes, &dictionary, &plain, &mut packed);
        assert_eq!(has_parts, Ok(true));
        for bit in 0..packed.len() * 8 {
            let mut damaged = packed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = codes.decode_parts(&dictionary, &damaged, &mut Vec::new(), text.len());
            assert!(matches!(error, Err(DecodeError::Check { .. })), "bit {bit}");
        }
    }
}
