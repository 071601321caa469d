//! The decoder of streams with [entry points](crate::entries): four parts side by side.
//!
//! 1. The symbols. Each part is a *lane*, and every turn of one loop takes three steps of each lane. A step is the same
//!    for a literal, a length and a distance, without a branch. It looks the symbol up, stores the literal, stores the
//!    symbol's bits in a slot, and advances the literals, the slots, or neither.
//! 2. The matches. Literals and slots of all parts, in order, become the block.
//!
//! The decoder accepts only streams with a valid trailer, and only if every part ended where the next one began. All
//! other streams are for another decoder, which names their fault.

use crate::decoder::Bits;
use crate::entries::{Entries, LITERAL_BITS, PART_STEPS_MAX, PARTS};
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
const _: () = assert!(2 * (DISTANCE_BITS + 10) + LITERAL_BITS + 5 <= 57);
const _: () = assert!(DISTANCE_BITS + 10 + 2 * (LITERAL_BITS + 5) <= 57);

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

/// A decoder for one thread, to be kept. It holds 170 KiB.
#[derive(Default)]
pub struct PartsDecoder(Box<Work>);

/// The decoded symbols of a stream.
struct Work {
    /// Of literals and lengths, then of distances.
    tables: [u32; 2 * TABLE],
    literals: [[u8; LANE]; PARTS],
    /// The slots of each lane, from [`PART_STEPS_MAX`] down: the bits of a length, then those of its distance, and so
    /// on. Each slot also has the number of the lane's literals in front of it.
    slots: [[[u32; 2]; LANE]; PARTS],
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
        Work { tables: [0; 2 * TABLE], literals: [[0; LANE]; PARTS], slots: [[[0; 2]; LANE]; PARTS] }
    }
}

impl PartsDecoder {
    /// Fills the target with the block of a stream with a trailer. `false` means only that another decoder must read
    /// the bytes. The contents of the target are then undefined.
    ///
    /// With `true` the whole target was written, and holds the same block as from any other decoder.
    pub fn decompress(&mut self, packed: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
        self.0.lanes(packed).is_some_and(|ends| self.0.execute(&ends, target))
    }
}

impl Work {
    /// Decodes all symbols: for each part the number of its steps and of its literals.
    fn lanes(&mut self, packed: &[u8]) -> Option<[(usize, usize); PARTS]> {
        let (stream, entries) = Entries::split(packed)?;
        let mut bits = Bits::new(stream);
        // A last block with codes of its own.
        bits.number(3).filter(|&header| header == 0b101)?;
        let mut reader = HeaderReader::new();
        let (literals, distances) = reader.read(&mut bits).ok()??;
        self.build(literals, distances)?;
        let mut lanes = [Lane { bit: bits.bit(), literals: 0, table: 0 }; PARTS];
        for part in 1..PARTS {
            lanes[part].bit = lanes[part - 1].bit + entries.bits(part - 1);
        }
        let begins = lanes;
        let mut steps: [usize; PARTS] = std::array::from_fn(|part| match part + 1 < PARTS {
            true => entries.begin(part + 1) - entries.begin(part),
            false => 0,
        });
        let least = steps[0].min(steps[1]).min(steps[2]);
        if least > PART_STEPS_MAX - 1 {
            return None;
        }
        let turns = least.saturating_sub(1) / STEPS;
        self.turns(packed, &mut lanes, turns)?;
        for part in 0..PARTS - 1 {
            for step in turns * STEPS..steps[part] {
                let entry = self.step(packed, &mut lanes[part], part, step)?;
                if entry & IS_SPECIAL != 0 {
                    return None;
                }
            }
            if lanes[part].bit != begins[part + 1].bit || lanes[part].table != 0 {
                return None;
            }
        }
        let last = PARTS - 1;
        steps[last] = turns * STEPS;
        loop {
            let entry = self.step(packed, &mut lanes[last], last, steps[last])?;
            if entry & IS_END != 0 {
                break;
            }
            if entry & IS_SPECIAL != 0 {
                return None;
            }
            steps[last] += 1;
        }
        (lanes[last].bit <= 8 * stream.len())
            .then(|| std::array::from_fn(|part| (steps[part], lanes[part].literals)))
    }

    /// Fills the tables, if codes are complete and short enough.
    fn build(&mut self, literals: &[u8], distances: &[u8]) -> Option<()> {
        let (table, table_of_distances) = self.tables.split_at_mut(TABLE);
        fill_table::<LITERAL_BITS>(table, literals, LITERAL_BITS, literal_entry)?;
        fill_table::<LITERAL_BITS>(table_of_distances, distances, DISTANCE_BITS, distance_entry)
    }

    /// One step by itself, at the number `step` of its part; `None` beyond the input or the room for steps.
    fn step(&mut self, packed: &[u8], lane: &mut Lane, part: usize, step: usize) -> Option<u32> {
        if step >= PART_STEPS_MAX || lane.literals > step {
            return None;
        }
        let bytes = packed.get(lane.bit / 8..)?.first_chunk::<8>()?;
        let word = u64::from_le_bytes(*bytes) >> (lane.bit % 8);
        let entry = self.tables[lane.table + (word as usize & (TABLE - 1))];
        self.slots[part][PART_STEPS_MAX - step + lane.literals] = [word as u32, lane.literals as u32];
        self.literals[part][lane.literals] = (entry >> 16) as u8;
        if entry & IS_SPECIAL == 0 {
            lane.literals += (entry >> LITERAL_SHIFT) as usize;
        }
        lane.bit += (entry & 63) as usize;
        lane.table = (entry & IS_LENGTH) as usize;
        Some(entry)
    }

    /// Runs `turns` turns of three steps of every lane.
    #[inline(never)]
    fn turns(&mut self, packed: &[u8], lanes: &mut [Lane; PARTS], turns: usize) -> Option<()> {
        assert!(turns * STEPS <= PART_STEPS_MAX);
        let input_end = 8 * packed.len().checked_sub(8)?;
        let mut all = *lanes;
        for turn in 0..turns {
            for (part, lane) in all.iter_mut().enumerate() {
                if lane.bit > input_end {
                    return None;
                }
                // SAFETY: eight bytes are there, since the first of them is at most eight before the end.
                let mut word =
                    unsafe { packed.as_ptr().add(lane.bit / 8).cast::<u64>().read_unaligned() }.to_le();
                word >>= lane.bit % 8;
                let mut sum = 0;
                for step in 0..STEPS {
                    let step = turn * STEPS + step;
                    debug_assert!(lane.literals <= step + PADDING / 2);
                    // SAFETY: `lane.table` is 0 or `IS_LENGTH`, which is `TABLE`.
                    let entry =
                        unsafe { *self.tables.get_unchecked(lane.table + (word as usize & (TABLE - 1))) };
                    // SAFETY: there are at most as many literals as steps, and twelve more for a special step. No turn
                    // follows one with a special step. So the index is within the lane and the padding behind it.
                    unsafe {
                        let slot = PART_STEPS_MAX - step + lane.literals;
                        *self.slots[part].get_unchecked_mut(slot) = [word as u32, lane.literals as u32];
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
        }
        *lanes = all;
        Some(())
    }

    /// Makes the block of literals and slots; `false` if it has another length, or a match goes back to before its
    /// beginning.
    #[inline(never)]
    fn execute(&self, ends: &[(usize, usize); PARTS], target: &mut [MaybeUninit<u8>]) -> bool {
        let mut output = Output { start: target.as_mut_ptr().cast(), at: 0, end: target.len() };
        for (part, &(steps, literals)) in ends.iter().enumerate() {
            let mut done = 0;
            let texts = &self.literals[part];
            let slots = &self.slots[part][..=PART_STEPS_MAX];
            for pair in slots.rchunks_exact(2).take((steps - literals) / 2) {
                let [distance, length] = pair else { return false };
                let before = (length[1] as usize).min(PART_STEPS_MAX);
                let run = before.wrapping_sub(done);
                let length = value(self.tables[length[0] as usize & (TABLE - 1)], length[0]);
                let distance = value(self.tables[TABLE + (distance[0] as usize & (TABLE - 1))], distance[0]);
                // SAFETY: literals up to `before` and padding are in the lane.
                if before < done || !unsafe { output.extend(texts.as_ptr().add(done), run, length, distance) }
                {
                    return false;
                }
                done = before;
            }
            if !output.literals(&texts[done..literals]) {
                return false;
            }
        }
        output.at == output.end
    }
}

/// The number that an entry and the bits behind its code make.
#[inline(always)]
fn value(entry: u32, bits: u32) -> usize {
    let taken = bits & ((1 << (entry & 31)) - 1);
    ((entry >> 16) + (taken >> (entry >> 6 & 15))) as usize
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
        let is_whole = PartsDecoder::default().decompress(packed, &mut target);
        // SAFETY: all of the target was written.
        is_whole.then(|| target.iter().map(|byte| unsafe { byte.assume_init() }).collect())
    }

    #[test]
    fn parts_make_the_block_and_nothing_else() {
        // A little more than the shortest that has a trailer.
        let raw = text(if cfg!(miri) { 2750 } else { 4000 });
        let dictionary = Dictionary::new(b"");
        let mut packed = Vec::new();
        let level = if cfg!(miri) { Level::Lazy } else { Level::Deep };
        let mut encoder = Encoder::new(&dictionary, level);
        encoder.compress_with_entries(&raw, &mut packed, raw.len()).expect("it shrinks");
        let stream = stream_of(&packed).len();
        assert_eq!(packed.len() - stream, crate::entries::TRAILER_BYTES);
        assert_eq!(unpacked(&packed, raw.len()), Some(raw.clone()));
        assert_eq!(unpacked(&packed, raw.len() - 1), None);
        assert_eq!(unpacked(&packed, raw.len() + 1), None);
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
            encoder.compress_with_entries(&raw, &mut packed, raw.len()).expect("it shrinks");
            assert_eq!(packed.len() - stream_of(&packed).len(), crate::entries::TRAILER_BYTES);
            assert_eq!(unpacked(&packed, raw.len()).as_ref(), Some(&raw));
        }
    }

    #[test]
    fn what_does_not_pay_has_no_trailer() {
        let dictionary = Dictionary::new(b"");
        let mut encoder = Encoder::new(&dictionary, Level::Lazy);
        for raw in [text(0), text(500), vec![7; 16_384], text(16_385)] {
            let (mut with, mut without) = (Vec::new(), Vec::new());
            encoder.compress_with_entries(&raw, &mut with, 2 * raw.len() + 64).expect("fits");
            encoder.compress(Huffman::Dynamic, &raw, &mut without, 2 * raw.len() + 64).expect("fits");
            assert_eq!(with, without);
            assert_eq!(unpacked(&with, raw.len()), None);
        }
        // A limit that fits the stream without the trailer.
        let (raw, mut packed) = (text(4000), Vec::new());
        let length = encoder.compress(Huffman::Dynamic, &raw, &mut packed, raw.len());
        let mut tight = Vec::new();
        assert_eq!(encoder.compress_with_entries(&raw, &mut tight, packed.len() + 9), length);
        assert_eq!(tight, packed);
    }
}
