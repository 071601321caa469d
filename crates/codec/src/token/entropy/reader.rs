//! The hot path: from codes to the bytes of a value.
//!
//! A code begins where the one before ends, so a processor waits for each step of the table before it can look up the
//! next one. Nothing else is waited for:
//!
//! - No branch depends on the codes but the one at their end. What an escape would say is looked up beside the step.
//! - The next bits are loaded while the step is looked up. They reach behind the token, up to the end of the next one.

use super::table::{State, TOKEN_BITS_MAX, Table};
use crate::token::TOKEN_BYTES_MAX;
use crate::token::decode;
use crate::token::error::DecodeError;
use std::hint::select_unpredictable;
use std::mem::MaybeUninit;

/// The fewest bits that a load gives: those of a word without the rest of a byte.
pub(super) const LOADED_BITS_MIN: u32 = 64 - 7;

const _: () = assert!(2 * TOKEN_BITS_MAX <= LOADED_BITS_MIN, "a load gives the bits of two tokens");

/// A place in the codes: all that is one's own where several parts of a block are read side by side.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    /// The next bits, lowest first: those of a token or more.
    word: u64,
    /// The place of the word's first bit.
    pub(super) at: usize,
    state: State,
}

impl Lane {
    /// The place of bit `at` of `bytes`, where a value or a part begins.
    pub(super) fn new(table: &Table, bytes: &[u8], at: usize) -> Lane {
        Lane { word: load(bytes, at), at, state: table.first() }
    }

    /// The number at this place. The lane moves on to the next one.
    #[inline(always)]
    pub(super) fn number(&mut self, table: &Table, bytes: &[u8]) -> u16 {
        let (step, number) = table.step(self.state, self.word);
        let (escaped, behind) = table.escaped(self.state, self.word);
        self.state = select_unpredictable(step.escapes(), behind, step.state());
        self.word = load(bytes, self.at) >> step.bits();
        self.at += step.bits() as usize;
        select_unpredictable(step.escapes(), escaped, number)
    }
}

/// The bits from `at` on: [`LOADED_BITS_MIN`], or all that are left and zeros behind them. Behind the end of the bytes
/// they mean nothing. There are eight bytes or more.
#[inline(always)]
pub(super) fn load(bytes: &[u8], at: usize) -> u64 {
    let from = (at / 8).min(bytes.len() - 8);
    let word = bytes[from..from + 8].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    word.wrapping_shr((at - from * 8) as u32)
}

/// Reads the codes of one value.
#[derive(Clone)]
pub(super) struct Reader<'c> {
    pub(super) table: &'c Table,
    /// The codes and whatever lies behind them, eight bytes or more.
    pub(super) bytes: &'c [u8],
    pub(super) lane: Lane,
    /// Where the codes end.
    pub(super) end: usize,
    /// Tokens that were read.
    pub(super) tokens: usize,
    /// Bytes of the codes and their check.
    coded_bytes: usize,
}

impl<'c> Reader<'c> {
    /// A reader of the codes in the first `end` bits of `bytes`, which has eight bytes or more.
    pub(super) fn new(table: &'c Table, bytes: &'c [u8], end: usize, coded_bytes: usize) -> Reader<'c> {
        debug_assert!(bytes.len() >= 8 && end <= bytes.len() * 8);
        Reader { table, bytes, lane: Lane::new(table, bytes, 0), end, tokens: 0, coded_bytes }
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.lane.at >= self.end
    }

    /// Bytes of the codes that are left, and of their check.
    pub(super) fn left_bytes(&self) -> usize {
        self.coded_bytes.saturating_sub(self.lane.at / 8)
    }

    /// The next number of a reader that is not done.
    #[inline(always)]
    pub(super) fn number(&mut self) -> u16 {
        self.tokens += 1;
        self.lane.number(self.table, self.bytes)
    }

    /// The next token with zeros behind its bytes, and their number.
    #[inline(always)]
    fn token<'t>(
        &mut self,
        tokens: &'t decode::Table,
    ) -> Result<(&'t [u8; TOKEN_BYTES_MAX], usize), DecodeError> {
        let number = self.number();
        match tokens.padded(number) {
            (_, 0) => Err(unknown(self.tokens - 1, number)),
            token => Ok(token),
        }
    }

    /// Writes whole tokens to the start of `target` while they have room, and returns their bytes. Fails at the first
    /// number that the dictionary does not have.
    #[inline]
    pub(super) fn decode(
        &mut self,
        tokens: &decode::Table,
        target: &mut [MaybeUninit<u8>],
    ) -> Result<usize, DecodeError> {
        // A copy that nothing points to stays in registers.
        let mut reader = self.clone();
        let mut written = 0;
        while !reader.is_done()
            && let Some(room) = target[written..].first_chunk_mut::<TOKEN_BYTES_MAX>()
        {
            let (token, length) = reader.token(tokens)?;
            room.write_copy_of_slice(token);
            written += length;
        }
        // The last tokens may have less room than a whole one takes.
        while !reader.is_done() {
            let before = reader.clone();
            let (token, length) = reader.token(tokens)?;
            let Some(room) = target[written..].get_mut(..length) else {
                reader = before;
                break;
            };
            room.write_copy_of_slice(&token[..length]);
            written += length;
        }
        *self = reader;
        Ok(written)
    }

    /// The bytes of all tokens that are left.
    pub(super) fn measure(mut self, tokens: &decode::Table) -> Result<usize, DecodeError> {
        let mut raw_bytes = 0;
        while !self.is_done() {
            raw_bytes += self.token(tokens)?.1;
        }
        self.finish()?;
        Ok(raw_bytes)
    }

    /// Tells whether the last code ended where the codes end.
    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        match self.lane.at == self.end {
            true => Ok(()),
            false => Err(self.misplaced()),
        }
    }

    /// Codes do not end where they should.
    #[cold]
    pub(super) fn misplaced(&self) -> DecodeError {
        DecodeError::Length { coded_bytes: self.coded_bytes }
    }
}

/// The dictionary does not have this number.
#[cold]
pub(super) fn unknown(position: usize, number: u16) -> DecodeError {
    DecodeError::Token { position, number: number.into() }
}

#[cfg(test)]
mod tests {
    use super::super::contexts::CONTEXTS_MAX;
    use super::super::table::{CODE_BITS_MAX, Symbol};
    use super::*;

    /// The numbers in the first `end` bits of `bytes`, and where the last code ends: each code is looked for by its
    /// definition, one bit after the other.
    fn bit_by_bit(table: &Table, codes: &[Vec<Symbol>], bytes: &[u8], end: usize) -> (Vec<u16>, usize) {
        let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| u32::from(byte >> (at % 8) & 1));
        let (mut numbers, mut at, mut state) = (Vec::new(), 0, table.first());
        while at < end {
            let next = (0..CODE_BITS_MAX as usize).fold(0, |next, i| next << 1 | bit(at + i));
            let mut below = 0;
            let symbol = codes[state.context()].iter().find(|symbol| {
                below += 1 << (CODE_BITS_MAX - u32::from(symbol.bits));
                next < below
            });
            let symbol = symbol.expect("the code is complete");
            at += usize::from(symbol.bits);
            let number = symbol.token.unwrap_or_else(|| {
                let number_bits = table.number_bits() as usize;
                let number = (0..number_bits).fold(0, |number, i| number | bit(at + i) << i);
                at += number_bits;
                number as u16
            });
            numbers.push(number);
            state = table.state(number);
        }
        (numbers, at)
    }

    /// Codes whose escapes have other lengths in each context, up to the longest, and bytes in which all lengths come.
    #[test]
    fn numbers_are_those_that_the_bits_say_one_by_one() {
        let contexts: Vec<u8> = (0..=1000).map(|token| (token % CONTEXTS_MAX) as u8).collect();
        let code = |context: usize| -> Vec<Symbol> {
            let lengths = (1..=CODE_BITS_MAX as u8).chain([CODE_BITS_MAX as u8]);
            let token = |at: usize| (at != context % 12).then_some((context * 37 + at) as u16);
            lengths.enumerate().map(|(at, bits)| Symbol { token: token(at), bits }).collect()
        };
        let codes: Vec<Vec<Symbol>> = (0..CONTEXTS_MAX).map(code).collect();
        let mut random = fastrand::Rng::with_seed(6);
        let mut longest = 0;
        for number_bits in crate::token::BITS {
            let table = Table::with_codes(&contexts, number_bits, codes.clone());
            for _ in 0..1000 {
                let byte = |random: &mut fastrand::Rng| [0, 0xff, random.u8(..)][random.usize(0..3)];
                let bytes: Vec<u8> = (0..random.usize(8..60)).map(|_| byte(&mut random)).collect();
                let end = random.usize(0..=bytes.len() * 8);
                let mut reader = Reader::new(&table, &bytes, end, bytes.len());
                let mut numbers = Vec::new();
                while !reader.is_done() {
                    let before = reader.lane.at;
                    numbers.push(reader.number());
                    longest = longest.max(reader.lane.at - before);
                }
                assert_eq!((numbers, reader.lane.at), bit_by_bit(&table, &codes, &bytes, end));
                assert_eq!(reader.finish().is_ok(), reader.lane.at == end);
            }
        }
        assert_eq!(longest, TOKEN_BITS_MAX as usize);
    }
}
