//! The decoder of streams with [entry points](crate::entries): four parts side by side.
//!
//! 1. The symbols. Each part is a *lane*, and every turn of one loop takes three steps of each lane. A step is the same
//!    for a literal, a length and a distance, without a branch. It looks the symbol up, stores the literal, stores the
//!    symbol's bits in a slot, and advances the literals, the slots, or neither.
//! 2. The matches. Literals and slots of all parts, in order, become the block.
//!
//! The decoder accepts only streams with entry points, and only if every part ended where the next one began. All other
//! streams are for another decoder, which names their fault.

use crate::decoder::Bits;
use crate::entries::{self, Entries, LITERAL_BITS, PART_STEPS_MAX, PARTS};
use crate::error::Fault;
use crate::header::{BitSource, HeaderReader};
use crate::huffman::Canonical;
use crate::symbols::{
    DISTANCE_BASE, DISTANCE_EXTRA, DISTANCES, END_OF_BLOCK, LENGTH_BASE, LENGTH_EXTRA, LITERALS,
};
use crate::tables::{DISTANCE_BITS, fill};
use std::mem::MaybeUninit;

/// Entries of one table. The table of distances is as long as that of literals, so that a look-up is the same in both.
const TABLE: usize = 1 << LITERAL_BITS;

/// Steps between two reads of the input. Two lengths and a distance, or two distances and a length, have at most 53
/// bits, and 57 are available.
const STEPS: usize = 3;
const TURN_BITS: usize = 57;
const _: () = assert!(2 * (DISTANCE_BITS + 10) + LITERAL_BITS + 5 <= TURN_BITS);
const _: () = assert!(DISTANCE_BITS + 10 + 2 * (LITERAL_BITS + 5) <= TURN_BITS);

/// Entries of a lane's literals or slots beyond its steps, for superfluous writes of a turn and for wide copies.
const PADDING: usize = 64;
const LANE: usize = PART_STEPS_MAX + PADDING;

/// Bytes of a match that are copied at once.
const WIDE_BYTES: usize = 16;

/// Literals that are copied at once: few runs are longer. (With 16 a mispredicted branch is more than the copy.)
const RUN_BYTES: usize = 32;
const _: () = assert!(PADDING >= 2 * RUN_BYTES);

/// An entry: bits 0-5 are the bits to take from the stream, 6-9 the number of code bits among them. Bits 16-27 are a
/// literal, or the base of a length or distance. Further bits:
const IS_LENGTH: u32 = TABLE as u32;
const LITERAL_SHIFT: u32 = 28;
const IS_END: u32 = 1 << 30;
/// Not a step: the end of the block, or no symbol. No sum of three others has this bit.
const IS_SPECIAL: u32 = 1 << 31;

/// A decoder for one thread, to be kept. It holds 100 KiB.
#[derive(Default)]
pub struct PartsDecoder(Box<Work>);

/// The decoded symbols of a stream.
struct Work {
    /// Of literals and lengths, then of distances.
    tables: [u32; 2 * TABLE],
    literals: [[u8; LANE]; PARTS],
    /// The slots of each lane, from [`PART_STEPS_MAX`] down: a length, then its distance, and so on.
    slots: [[u32; LANE]; PARTS],
}

/// The lowest bits of a slot are the number of the lane's literals in front of it. The others are the code, and what
/// follows the code in the stream.
const SLOT_LITERAL_BITS: usize = 14;
const _: () = assert!(PART_STEPS_MAX + PADDING < 1 << SLOT_LITERAL_BITS);
const _: () =
    assert!(SLOT_LITERAL_BITS + DISTANCE_BITS + 10 <= 32 && SLOT_LITERAL_BITS + LITERAL_BITS + 5 <= 32);

#[inline(always)]
fn slot_of(word: u64, literals: usize) -> u32 {
    (word as u32) << SLOT_LITERAL_BITS | literals as u32
}

/// The state of a part.
#[derive(Clone, Copy)]
struct Lane {
    /// The next bit of the input.
    bit: usize,
    /// Literals so far.
    literals: usize,
    /// The start of the table of the next step.
    table: usize,
}

impl Default for Work {
    fn default() -> Work {
        Work { tables: [0; 2 * TABLE], literals: [[0; LANE]; PARTS], slots: [[0; LANE]; PARTS] }
    }
}

impl PartsDecoder {
    /// Writes the block of a stream with a trailer to the start of the target, and returns its length. `None` means
    /// only that another decoder must read the bytes, or that the target is too short. The contents of the target are
    /// then undefined.
    ///
    /// A block that is returned is the same as from any other decoder.
    pub fn decompress_with_trailer(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Option<usize> {
        let (stream, entries) = Entries::split(packed)?;
        self.0.decompress(stream, entries.bits(), target)
    }

    /// The same for a stream with a preamble, behind which no bytes follow.
    pub fn decompress_with_preamble(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Option<usize> {
        let (stream, part_bits) = entries::split_preamble(packed)?;
        self.0.decompress(stream, part_bits, target)
    }
}

impl Work {
    /// Decodes one block, whose parts but the last have so many bits.
    fn decompress(
        &mut self,
        stream: &[u8],
        part_bits: [usize; PARTS - 1],
        target: &mut [MaybeUninit<u8>],
    ) -> Option<usize> {
        let ends = self.lanes(stream, part_bits)?;
        self.execute(&ends, target)
    }

    /// Decodes all symbols: for each part the number of its steps and of its literals.
    fn lanes(&mut self, stream: &[u8], part_bits: [usize; PARTS - 1]) -> Option<[(usize, usize); PARTS]> {
        let mut bits = Bits::new(stream);
        // A last block with codes of its own.
        bits.number(3).filter(|&header| header == 0b101)?;
        let mut reader = HeaderReader::new();
        let (literals, distances) = reader.read(&mut bits).ok()??;
        self.build(literals, distances)?;
        let mut lanes = [Lane { bit: bits.bit(), literals: 0, table: 0 }; PARTS];
        for part in 1..PARTS {
            lanes[part].bit = lanes[part - 1].bit + part_bits[part - 1];
        }
        let ends = std::array::from_fn(|part| lanes.get(part + 1).map_or(8 * stream.len(), |next| next.bit));
        let turns = self.turns(stream, &mut lanes, &ends)?;
        let mut steps = [turns * STEPS; PARTS];
        let mut has_ended = false;
        for part in 0..PARTS {
            while lanes[part].bit < ends[part] && !has_ended {
                let entry = self.step(stream, &mut lanes[part], part, steps[part])?;
                if entry & IS_SPECIAL == 0 {
                    steps[part] += 1;
                } else if entry & IS_END != 0 && part == PARTS - 1 {
                    has_ended = true;
                } else {
                    return None;
                }
            }
            // Behind the end of the block the last byte may have bits without a meaning.
            let found = if has_ended { lanes[part].bit.next_multiple_of(8) } else { lanes[part].bit };
            if found != ends[part] || lanes[part].table != 0 {
                return None;
            }
        }
        has_ended.then(|| std::array::from_fn(|part| (steps[part], lanes[part].literals)))
    }

    /// Fills the tables, if codes are complete and short enough.
    fn build(&mut self, literals: &[u8], distances: &[u8]) -> Option<()> {
        let (table, table_of_distances) = self.tables.split_at_mut(TABLE);
        fill_table::<LITERAL_BITS>(table, literals, LITERAL_BITS, literal_entry)?;
        fill_table::<LITERAL_BITS>(table_of_distances, distances, DISTANCE_BITS, distance_entry)
    }

    /// One step by itself, at the number `step` of its part; `None` beyond the input or the room for steps.
    fn step(&mut self, stream: &[u8], lane: &mut Lane, part: usize, step: usize) -> Option<u32> {
        if step >= PART_STEPS_MAX || lane.literals > step {
            return None;
        }
        let word = word(stream.get(lane.bit / 8..)?) >> (lane.bit % 8);
        let entry = self.tables[lane.table + (word as usize & (TABLE - 1))];
        self.slots[part][PART_STEPS_MAX - step + lane.literals] = slot_of(word, lane.literals);
        self.literals[part][lane.literals] = (entry >> 16) as u8;
        if entry & IS_SPECIAL == 0 {
            lane.literals += (entry >> LITERAL_SHIFT) as usize;
        }
        lane.bit += (entry & 63) as usize;
        lane.table = (entry & IS_LENGTH) as usize;
        Some(entry)
    }

    /// Runs turns of three steps of every lane, up to the first turn that a part might not have. Returns their number.
    #[inline(never)]
    fn turns(&mut self, stream: &[u8], lanes: &mut [Lane; PARTS], ends: &[usize; PARTS]) -> Option<usize> {
        let Some(input_end) = stream.len().checked_sub(8) else { return Some(0) };
        let starts = ends.map(|end| end.saturating_sub(TURN_BITS).min(8 * input_end));
        let mut all = *lanes;
        let mut turns = 0;
        while turns < PART_STEPS_MAX / STEPS
            && all.iter().zip(&starts).all(|(lane, &start)| lane.bit <= start)
        {
            for (part, lane) in all.iter_mut().enumerate() {
                // SAFETY: eight bytes are there, since the first of them is at most eight before the end.
                let mut word =
                    unsafe { stream.as_ptr().add(lane.bit / 8).cast::<u64>().read_unaligned() }.to_le();
                word >>= lane.bit % 8;
                let mut sum = 0;
                for step in 0..STEPS {
                    let step = turns * STEPS + step;
                    debug_assert!(lane.literals <= step + PADDING / 2);
                    // SAFETY: `lane.table` is 0 or `IS_LENGTH`, which is `TABLE`.
                    let entry =
                        unsafe { *self.tables.get_unchecked(lane.table + (word as usize & (TABLE - 1))) };
                    // SAFETY: there are at most as many literals as steps, and twelve more for a special step. No turn
                    // follows one with a special step. So the index is within the lane and the padding behind it.
                    unsafe {
                        let slot = PART_STEPS_MAX - step + lane.literals;
                        *self.slots[part].get_unchecked_mut(slot) = slot_of(word, lane.literals);
                        *self.literals[part].get_unchecked_mut(lane.literals) = (entry >> 16) as u8;
                    }
                    word >>= entry & 63;
                    lane.literals += (entry >> LITERAL_SHIFT) as usize;
                    lane.table = (entry & IS_LENGTH) as usize;
                    sum += u64::from(entry);
                }
                lane.bit += (sum & 63) as usize;
                if sum >= u64::from(IS_SPECIAL) {
                    return None;
                }
            }
            turns += 1;
        }
        *lanes = all;
        Some(turns)
    }

    /// Makes the block of literals and slots. `None` if the block is longer than the target, or a match goes back to
    /// before its beginning.
    #[inline(never)]
    fn execute(&self, ends: &[(usize, usize); PARTS], target: &mut [MaybeUninit<u8>]) -> Option<usize> {
        let mut output = Output { start: target.as_mut_ptr().cast(), at: 0, end: target.len() };
        for (part, &(steps, literals)) in ends.iter().enumerate() {
            let mut done = 0;
            let texts = &self.literals[part];
            let slots = &self.slots[part][..=PART_STEPS_MAX];
            for pair in slots.rchunks_exact(2).take((steps - literals) / 2) {
                let [distance, length] = pair else { return None };
                let before = (length & ((1 << SLOT_LITERAL_BITS) - 1)) as usize;
                let before = before.min(PART_STEPS_MAX);
                let run = before.wrapping_sub(done);
                let length = self.value(0, length >> SLOT_LITERAL_BITS);
                let distance = self.value(TABLE, distance >> SLOT_LITERAL_BITS);
                // SAFETY: literals up to `before` and padding are in the lane.
                if before < done || !unsafe { output.extend(texts.as_ptr().add(done), run, length, distance) }
                {
                    return None;
                }
                done = before;
            }
            if !output.literals(&texts[done..literals]) {
                return None;
            }
        }
        Some(output.at)
    }

    /// The number that a code of a table and the bits behind it make.
    #[inline(always)]
    fn value(&self, table: usize, bits: u32) -> usize {
        let entry = self.tables[table + (bits as usize & (TABLE - 1))];
        let taken = bits & ((1 << (entry & 31)) - 1);
        ((entry >> 16) + (taken >> (entry >> 6 & 15))) as usize
    }
}

/// The first eight bytes as a number, with zeros behind the end.
fn word(bytes: &[u8]) -> u64 {
    let whole = bytes.first_chunk().copied().unwrap_or_else(|| {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        whole
    });
    u64::from_le_bytes(whole)
}

/// The target, and the position in it.
struct Output {
    start: *mut u8,
    at: usize,
    end: usize,
}

impl Output {
    /// Appends `run` literals, then a match. `false` if there is no room or nothing to repeat.
    ///
    /// # Safety
    ///
    /// `run` bytes and [`RUN_BYTES`] behind them may be read at `literals`, which is not in the output.
    #[inline(always)]
    unsafe fn extend(&mut self, literals: *const u8, run: usize, length: usize, distance: usize) -> bool {
        let (begin, end) = (self.at + run, self.at + run + length);
        if end + RUN_BYTES > self.end || distance < WIDE_BYTES {
            // SAFETY: the same promise.
            return unsafe { self.extend_narrowly(literals, run, length, distance) };
        }
        if distance > begin {
            return false;
        }
        // SAFETY: the output has room for both and a wide copy behind them. The repeated bytes lie in front of the
        // match, at least a wide copy away.
        unsafe {
            let to = self.start.add(self.at);
            let mut copied = 0;
            loop {
                to.add(copied).copy_from_nonoverlapping(literals.add(copied), RUN_BYTES);
                copied += RUN_BYTES;
                if copied >= run {
                    break;
                }
            }
            let to = self.start.add(begin);
            let from = to.sub(distance);
            let mut copied = 0;
            loop {
                to.add(copied).copy_from_nonoverlapping(from.add(copied), WIDE_BYTES);
                copied += WIDE_BYTES;
                if copied >= length {
                    break;
                }
            }
        }
        self.at = end;
        true
    }

    /// The same near the end of the output, and for matches that overlap themselves.
    ///
    /// # Safety
    ///
    /// `run` bytes may be read at `literals`, which is not in the output.
    #[inline(never)]
    unsafe fn extend_narrowly(
        &mut self,
        literals: *const u8,
        run: usize,
        length: usize,
        distance: usize,
    ) -> bool {
        let (begin, end) = (self.at + run, self.at + run + length);
        if end > self.end || distance > begin || distance == 0 {
            return false;
        }
        // SAFETY: the output has room for both, and the repeated bytes were written.
        unsafe {
            self.start.add(self.at).copy_from_nonoverlapping(literals, run);
            let mut at = begin;
            // Copies in steps of the distance, which doubles.
            while at < end {
                let step = (at - begin + distance).min(end - at);
                self.start.add(at).copy_from_nonoverlapping(self.start.add(begin - distance), step);
                at += step;
            }
        }
        self.at = end;
        true
    }

    fn literals(&mut self, literals: &[u8]) -> bool {
        if literals.len() > self.end - self.at {
            return false;
        }
        // SAFETY: the output has room for as many bytes as the slice has, and they are not in it.
        unsafe { self.start.add(self.at).copy_from_nonoverlapping(literals.as_ptr(), literals.len()) };
        self.at += literals.len();
        true
    }
}

fn literal_entry(symbol: usize, bits: usize) -> u32 {
    match symbol {
        0..END_OF_BLOCK => 1 << LITERAL_SHIFT | (symbol as u32) << 16 | number_entry(0, 0, bits),
        END_OF_BLOCK => IS_SPECIAL | IS_END | bits as u32,
        257..LITERALS => {
            IS_LENGTH | number_entry(LENGTH_BASE[symbol - 257], LENGTH_EXTRA[symbol - 257], bits)
        }
        _ => IS_SPECIAL,
    }
}

fn distance_entry(symbol: usize, bits: usize) -> u32 {
    match symbol {
        0..DISTANCES => number_entry(DISTANCE_BASE[symbol], DISTANCE_EXTRA[symbol], bits),
        _ => IS_SPECIAL,
    }
}

fn number_entry(base: u16, extra: u8, bits: usize) -> u32 {
    u32::from(base) << 16 | (bits as u32) << 6 | (bits as u32 + u32::from(extra))
}

/// Fills a table by a code of so many bits at most. One of a single symbol, or of none, leaves entries without a
/// symbol.
fn fill_table<const BITS: usize>(
    table: &mut [u32],
    lengths: &[u8],
    bits_max: usize,
    entry: impl Fn(usize, usize) -> u32,
) -> Option<()> {
    let code = Canonical::new(lengths, Fault::OverSubscribed, Fault::Incomplete).ok()?;
    let is_short = code.of_length[bits_max + 1..].iter().all(|&codes| codes == 0);
    is_short.then(|| fill::<BITS>(table, &code, entry, IS_SPECIAL, |_, _| IS_SPECIAL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dictionary, Encoder, Huffman, Level, stream_of};

    /// Lines with a rhythm, and literals between them.
    fn text(bytes: usize) -> Vec<u8> {
        let mut seed = 5u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 16
        };
        let lines = std::iter::repeat_with(|| format!("item {} of {:x}, ", next() % 50, next()));
        lines.flat_map(String::into_bytes).take(bytes).collect()
    }

    fn unpacked(packed: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
        let mut target = vec![MaybeUninit::uninit(); raw_bytes];
        let mut decoder = PartsDecoder::default();
        let length = match crate::has_preamble(packed) {
            true => decoder.decompress_with_preamble(packed, &mut target),
            false => decoder.decompress_with_trailer(packed, &mut target),
        }?;
        // SAFETY: so many bytes were written.
        Some(target[..length].iter().map(|byte| unsafe { byte.assume_init() }).collect())
    }

    #[test]
    fn parts_make_the_block_and_nothing_else() {
        // A little more than the shortest that has a trailer.
        let raw = text(if cfg!(miri) { 2750 } else { 4000 });
        let dictionary = Dictionary::new(b"");
        let mut packed = Vec::new();
        let level = if cfg!(miri) { Level::Lazy } else { Level::Deep };
        let mut encoder = Encoder::new(&dictionary, level);
        encoder.compress_with_trailer(&raw, &mut packed, raw.len()).expect("it shrinks");
        let stream = stream_of(&packed).len();
        assert_eq!(packed.len() - stream, crate::entries::TRAILER_BYTES);
        assert_eq!(unpacked(&packed, raw.len()), Some(raw.clone()));
        assert_eq!(unpacked(&packed, raw.len() - 1), None);
        assert_eq!(unpacked(&packed, raw.len() + 1), Some(raw.clone()));
        assert_eq!(unpacked(&packed[..stream], raw.len()), None);
        // The end of the stream is missing, and the trailer is there.
        let short = [&packed[..stream - 1], &packed[stream..]].concat();
        assert_eq!(unpacked(&short, raw.len()), None);
        // Miri takes ten seconds for each.
        let step = if cfg!(miri) { packed.len() / 2 } else { 97 };
        for byte in (0..packed.len()).step_by(step) {
            let mut damaged = packed.clone();
            damaged[byte] ^= 1 << (byte % 8);
            let _ = unpacked(&damaged, raw.len());
        }
    }

    #[test]
    fn a_stream_with_a_preamble_ends_where_its_bytes_end() {
        let raw = text(8000);
        let dictionary = Dictionary::new(b"");
        let mut packed = Vec::new();
        let mut encoder = Encoder::new(&dictionary, Level::Lazy);
        let length = encoder.compress_with_preamble(&raw, &mut packed, raw.len());
        assert_eq!(length, Some(packed.len()));
        assert!(crate::has_preamble(&packed));
        assert_eq!(unpacked(&packed, raw.len()), Some(raw.clone()));
        assert_eq!(unpacked(&packed, raw.len() - 1), None);
        assert_eq!(unpacked(&packed[..packed.len() - 1], raw.len()), None);
        let longer = [&packed[..], &[0]].concat();
        assert_eq!(unpacked(&longer, raw.len()), None);
    }

    #[test]
    fn blocks_without_a_match_or_with_one_distance_are_taken() {
        let mut seed = 1u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 16
        };
        // Letters of which no four stand together twice.
        let mut seen = std::collections::HashSet::new();
        let mut letters: Vec<u8> = Vec::new();
        while letters.len() < if cfg!(miri) { 1300 } else { 4000 } {
            letters.push(b'a' + (next() % 5 * (next() % 5)) as u8);
            if letters.last_chunk::<3>().is_some_and(|&last| !seen.insert(last)) {
                letters.pop();
                letters.push(next() as u8);
            }
        }
        let same = letters.iter().enumerate();
        let one_distance = same.map(|(at, &letter)| if at / 8 % 50 == 1 { letters[at - 8] } else { letter });
        let one_distance: Vec<u8> = one_distance.collect();
        let dictionary = Dictionary::new(b"");
        // Miri takes half a minute for each.
        for raw in [letters, one_distance].into_iter().skip(usize::from(cfg!(miri))) {
            let mut packed = Vec::new();
            let mut encoder = Encoder::new(&dictionary, Level::Lazy);
            encoder.compress_with_trailer(&raw, &mut packed, raw.len()).expect("it shrinks");
            assert_eq!(packed.len() - stream_of(&packed).len(), crate::entries::TRAILER_BYTES);
            assert_eq!(unpacked(&packed, raw.len()).as_ref(), Some(&raw));
        }
    }

    #[test]
    fn what_does_not_pay_has_no_entry_points() {
        let dictionary = Dictionary::new(b"");
        let mut encoder = Encoder::new(&dictionary, Level::Lazy);
        for raw in [text(0), text(500), vec![7; 16_384], text(16_385)] {
            let (mut with, mut without) = (Vec::new(), Vec::new());
            encoder.compress_with_trailer(&raw, &mut with, 2 * raw.len() + 64).expect("fits");
            encoder.compress(Huffman::Dynamic, &raw, &mut without, 2 * raw.len() + 64).expect("fits");
            assert_eq!(with, without);
            assert_eq!(unpacked(&with, raw.len()), None);
            with.clear();
            encoder.compress_with_preamble(&raw, &mut with, 2 * raw.len() + 64).expect("fits");
            assert_eq!(with, without);
        }
        // Half of it is one long match after the other.
        let (raw, mut packed) = ([text(8000), vec![0; 8384]].concat(), Vec::new());
        encoder.compress_with_preamble(&raw[..8000], &mut packed, raw.len()).expect("it shrinks");
        assert!(crate::has_preamble(&packed));
        packed.clear();
        encoder.compress_with_preamble(&raw, &mut packed, raw.len()).expect("it shrinks");
        assert!(!crate::has_preamble(&packed));
        // A limit that fits the stream without the trailer.
        let (raw, mut packed) = (text(4000), Vec::new());
        let length = encoder.compress(Huffman::Dynamic, &raw, &mut packed, raw.len());
        let mut tight = Vec::new();
        assert_eq!(encoder.compress_with_trailer(&raw, &mut tight, packed.len() + 9), length);
        assert_eq!(tight, packed);
        // Likewise, behind what others have written.
        let raw = text(8000);
        let (mut packed, mut tight) = (vec![1, 2, 3], vec![1, 2, 3]);
        let length = encoder.compress(Huffman::Dynamic, &raw, &mut packed, raw.len()).expect("it shrinks");
        let room = length + crate::entries::PREAMBLE_BYTES;
        assert_eq!(encoder.compress_with_preamble(&raw, &mut tight, room - 1), Some(length));
        assert_eq!(tight, packed);
        tight.truncate(3);
        assert_eq!(encoder.compress_with_preamble(&raw, &mut tight, room), Some(room));
        assert_eq!([&tight[..3], &tight[3 + room - length..]].concat(), packed);
    }
}
