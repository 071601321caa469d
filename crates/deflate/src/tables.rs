//! Look-up tables for decoding.
//!
//! A look-up takes the next [`LITERAL_BITS`] or [`DISTANCE_BITS`] bits of the stream. Longer codes continue in a second
//! table. Tables that serve many blocks are *paired*: the entry of a literal also holds the next symbols within the
//! same bits. So one look-up gives up to two literals and the length of a match.
//!
//! An entry for literals and lengths:
//!
//! | bits | |
//! |---|---|
//! | 0-5 | bits to take from the stream |
//! | 6-7 | literals, 0 to 2; 3 for something else, see [`Special`] |
//! | 8-15, 16-23 | the literals |
//! | 24-30 | the length of the match that follows them, 0 for none |
//! | 31 | no match follows |

use crate::error::Fault;
use crate::huffman::Canonical;
use crate::symbols::{
    DISTANCE_BASE, DISTANCE_EXTRA, DISTANCES, DISTANCES_ANY, END_OF_BLOCK, LENGTH_BASE, LENGTH_EXTRA,
    LITERALS,
};

/// Bits of a look-up of literals and lengths: a table of 16 KiB. (11 bits decode 5 % slower.)
pub(crate) const LITERAL_BITS: usize = 12;

/// The longest match in an ordinary entry.
const LENGTH_BAKED_MAX: usize = 127;

/// Bits of a look-up of distances.
pub(crate) const DISTANCE_BITS: usize = 8;

/// The most entries that a code of 288 symbols needs, rounded up. A second table has at most three bits, and a complete
/// one at most two entries for each of its symbols.
const LITERAL_ENTRIES: usize = 5_000;

/// Likewise for 32 symbols: 402.
const DISTANCE_ENTRIES: usize = 416;

/// The bits that are set in an entry with a [`Special`] meaning, and in no other.
pub(crate) const SPECIAL: u32 = 3 << 6;

/// A distance entry that is none.
pub(crate) const NO_DISTANCE: u32 = 1 << 6;

/// The meaning of an entry that is neither literals nor a match: the number in bits 8-9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// The block ends.
    End,
    /// A match whose length is the number in bits 16-31 and as many extra bits of the stream as bits 12-15 say.
    Length,
    /// The code continues: bits 12-15 are the bits of the next look-up, bits 16-31 where its table begins.
    Longer,
    /// No symbol has this code.
    Undefined,
}

impl Special {
    #[inline]
    pub(crate) fn of(entry: u32) -> Special {
        match entry >> 8 & 3 {
            0 => Special::End,
            1 => Special::Length,
            2 => Special::Longer,
            _ => Special::Undefined,
        }
    }

    const fn entry(self, bits: usize, next_bits: usize, value: usize) -> u32 {
        SPECIAL | bits as u32 | (self as u32) << 8 | (next_bits as u32) << 12 | (value as u32) << 16
    }
}

/// Tables of a code for literals and lengths, and of one for distances.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) literals: [u32; LITERAL_ENTRIES],
    /// Entries: bits 0-5 are the bits to take, 8-11 the number of code bits among them, bit 6 [`NO_DISTANCE`], 16-31
    /// the base.
    pub(crate) distances: [u32; DISTANCE_ENTRIES],
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { literals: [0; LITERAL_ENTRIES], distances: [0; DISTANCE_ENTRIES] }
    }
}

impl Tables {
    /// Fills the tables for codes of these lengths, one symbol for each entry.
    pub(crate) fn build(&mut self, literals: &[u8], distances: &[u8]) -> Result<(), Fault> {
        let code = Canonical::new(literals, Fault::OverSubscribed, Fault::Incomplete)?;
        fill::<LITERAL_BITS>(
            &mut self.literals,
            &code,
            literal_entry,
            Special::Undefined.entry(1, 0, 0),
            longer,
        );
        bake_lengths(&mut self.literals, &code);
        let code = Canonical::new(distances, Fault::OverSubscribed, Fault::Incomplete)?;
        let undefined = NO_DISTANCE | NoDistance::Undefined as u32;
        fill::<DISTANCE_BITS>(&mut self.distances, &code, distance_entry, undefined, |next_bits, start| {
            NO_DISTANCE | NoDistance::Longer as u32 | (next_bits as u32) << 12 | (start as u32) << 16
        });
        Ok(())
    }

    /// Joins the entries of literals with the next symbols within the bits of the same look-up.
    pub(crate) fn pair(&mut self) {
        let single: [u32; 1 << LITERAL_BITS] = std::array::from_fn(|at| self.literals[at]);
        let joined = |at: usize, entry: u32| {
            let bits = entry as usize & 63;
            let next = single[at >> bits];
            let all_bits = bits + (next as usize & 63);
            let (literals, next_literals) = (entry >> 6 & 3, next >> 6 & 3);
            let is_run = !is_special(entry) && entry & NO_MATCH != 0;
            if !is_run || is_special(next) || literals + next_literals > 2 || all_bits > LITERAL_BITS {
                return entry;
            }
            let texts = entry & 0x00FF_FF00 | (next & 0x0000_FF00) << (8 * literals);
            texts | next & 0xFF00_0000 | (literals + next_literals) << 6 | all_bits as u32
        };
        for (at, entry) in self.literals[..1 << LITERAL_BITS].iter_mut().enumerate() {
            *entry = joined(at, joined(at, *entry));
        }
    }
}

/// Whether the entry has a [`Special`] meaning.
#[inline(always)]
pub(crate) fn is_special(entry: u32) -> bool {
    entry & SPECIAL == SPECIAL
}

/// The length of the match in an ordinary entry, 0 if there is none.
#[inline(always)]
pub(crate) fn match_length(entry: u32) -> usize {
    (entry >> 24 & 127) as usize
}

/// 32 if no match follows in an ordinary entry, otherwise 0. Shifting by this number turns other numbers into 0. (A
/// condition would become a branch that is hardly ever predicted.)
#[inline(always)]
pub(crate) fn shift_without_match(entry: u32) -> u32 {
    entry >> 26 & 32
}

/// An ordinary entry with neither literal nor match.
pub(crate) const NO_MATCH: u32 = 1 << 31;

/// The meaning of an entry with [`NO_DISTANCE`], in bits 8-9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoDistance {
    Longer = 0,
    BeyondWindow = 1 << 8,
    Undefined = 2 << 8,
}

impl NoDistance {
    #[inline]
    pub(crate) fn of(entry: u32) -> NoDistance {
        match entry >> 8 & 3 {
            0 => NoDistance::Longer,
            1 => NoDistance::BeyondWindow,
            _ => NoDistance::Undefined,
        }
    }
}

fn longer(next_bits: usize, start: usize) -> u32 {
    Special::Longer.entry(LITERAL_BITS, next_bits, start)
}

/// The entry of a symbol whose code ends after so many bits of this look-up.
fn literal_entry(symbol: usize, bits: usize) -> u32 {
    if symbol < END_OF_BLOCK {
        return NO_MATCH | (symbol as u32) << 8 | 1 << 6 | bits as u32;
    }
    if symbol == END_OF_BLOCK {
        return Special::End.entry(bits, 0, 0);
    }
    if symbol >= LITERALS {
        return Special::Undefined.entry(bits, 0, 0);
    }
    let (base, extra) = (usize::from(LENGTH_BASE[symbol - 257]), usize::from(LENGTH_EXTRA[symbol - 257]));
    if extra == 0 && base <= LENGTH_BAKED_MAX {
        match_entry(base, bits)
    } else {
        Special::Length.entry(bits, extra, base)
    }
}

fn match_entry(length: usize, bits: usize) -> u32 {
    (length as u32) << 24 | bits as u32
}

fn distance_entry(symbol: usize, bits: usize) -> u32 {
    match symbol {
        0..DISTANCES => {
            let (base, extra) = (u32::from(DISTANCE_BASE[symbol]), u32::from(DISTANCE_EXTRA[symbol]));
            base << 16 | (bits as u32) << 8 | (bits as u32 + extra)
        }
        DISTANCES..DISTANCES_ANY => NO_DISTANCE | NoDistance::BeyondWindow as u32 | bits as u32,
        _ => NO_DISTANCE | NoDistance::Undefined as u32 | bits as u32,
    }
}

/// Fills a table of `BITS` bits, and behind it the tables of codes that are longer.
#[inline(always)]
pub(crate) fn fill<const BITS: usize>(
    table: &mut [u32],
    code: &Canonical,
    entry: impl Fn(usize, usize) -> u32,
    undefined: u32,
    longer: impl Fn(usize, usize) -> u32,
) {
    if code.used < 2 {
        table[..1 << BITS].fill(undefined);
        code.for_each(|symbol, _, _| {
            table[..1 << BITS].iter_mut().step_by(2).for_each(|slot| *slot = entry(symbol, 1));
        });
        return;
    }
    // Entries of short codes repeat: the table doubles with each length, and codes of that length fill what is free.
    let mut doubled = 0;
    let (mut next_table, mut next_bits, mut prefix) = (1 << BITS, 0, usize::MAX);
    let mut left_of_length = code.of_length;
    code.for_each(|symbol, length, reversed| {
        while doubled < length.min(BITS) {
            table.copy_within(0..1 << doubled, 1 << doubled);
            doubled += 1;
        }
        if length <= BITS {
            table[reversed] = entry(symbol, length);
            return;
        }
        let low = reversed & ((1 << BITS) - 1);
        if low != prefix {
            next_table += if prefix == usize::MAX { 0 } else { 1 << next_bits };
            prefix = low;
            next_bits = table_bits(&left_of_length, length, BITS);
            table[low] = longer(next_bits, next_table);
        }
        left_of_length[length] -= 1;
        let rest = length - BITS;
        let slots = table[next_table..next_table + (1 << next_bits)].iter_mut();
        slots.skip(reversed >> BITS).step_by(1 << rest).for_each(|slot| *slot = entry(symbol, rest));
    });
    while doubled < BITS {
        table.copy_within(0..1 << doubled, 1 << doubled);
        doubled += 1;
    }
}

/// Bits of a second table that begins with a code of `length`. The next codes fill a table of that size.
fn table_bits(left_of_length: &[u16], length: usize, first_bits: usize) -> usize {
    let mut bits = length - first_bits;
    let mut free = 1i32 << bits;
    loop {
        free -= i32::from(left_of_length[first_bits + bits]);
        if free <= 0 || first_bits + bits + 1 == left_of_length.len() {
            return bits;
        }
        bits += 1;
        free *= 2;
    }
}

/// Puts lengths into the entries of those codes whose extra bits are within the look-up.
fn bake_lengths(table: &mut [u32], code: &Canonical) {
    code.for_each(|symbol, length, reversed| {
        if !(257..LITERALS).contains(&symbol) {
            return;
        }
        let (base, extra) = (usize::from(LENGTH_BASE[symbol - 257]), usize::from(LENGTH_EXTRA[symbol - 257]));
        let bits = length + extra;
        let longest = base + (1 << extra) - 1;
        if extra == 0 || bits > LITERAL_BITS || longest > LENGTH_BAKED_MAX || code.used < 2 {
            return;
        }
        let slots = table[..1 << LITERAL_BITS].iter_mut().skip(reversed).step_by(1 << length);
        slots.enumerate().for_each(|(at, slot)| *slot = match_entry(base + (at & ((1 << extra) - 1)), bits));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_hold_two_literals_and_a_match() {
        // 'a' 1 bit, 'b' 2 bits, length 3 3 bits, end of block 3 bits.
        let mut lengths = [0u8; 286];
        lengths[usize::from(b'a')] = 1;
        lengths[usize::from(b'b')] = 2;
        lengths[256] = 3;
        lengths[257] = 3;
        let mut tables = Tables::default();
        tables.build(&lengths, &[1, 1]).unwrap();
        tables.pair();
        // Codes, first bit lowest: a 0, b 01, length 3 111.
        let entry = tables.literals[0b11_1010];
        assert_eq!(entry, 6 | 2 << 6 | u32::from(b'a') << 8 | u32::from(b'b') << 16 | 3 << 24);
        assert_eq!(match_length(entry), 3);
        let entry = tables.literals[0];
        assert_eq!((entry & 63, entry >> 6 & 3, match_length(entry)), (2, 2, 0));
        let entry = tables.literals[0b011];
        assert_eq!((is_special(entry), Special::of(entry)), (true, Special::End));
    }
}
