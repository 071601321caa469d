//! The hot path: from codes to the bytes of a value.

use super::table::{TOKEN_BITS_MAX, Table};
use crate::token::TOKEN_BYTES_MAX;
use crate::token::decode;
use crate::token::error::DecodeError;
use std::mem::MaybeUninit;

/// Reads the codes of one value.
#[derive(Clone)]
pub(super) struct Reader<'c> {
    table: &'c Table,
    /// The codes and whatever lies behind them, eight bytes or more.
    bytes: &'c [u8],
    /// The next bits, lowest first, and how many of them are loaded.
    word: u64,
    loaded: u32,
    /// The place of the word's first bit.
    at: usize,
    /// Where the codes end.
    end: usize,
    /// Tokens that were read.
    tokens: usize,
    context: u8,
    /// The place and the number of the first token that the dictionary does not have.
    unknown: Option<(usize, u16)>,
    /// Bytes of the codes and their check.
    coded_bytes: usize,
}

impl<'c> Reader<'c> {
    /// A reader of the codes in the first `end` bits of `bytes`, which has eight bytes or more.
    pub(super) fn new(table: &'c Table, bytes: &'c [u8], end: usize, coded_bytes: usize) -> Reader<'c> {
        debug_assert!(bytes.len() >= 8 && end <= bytes.len() * 8);
        let context = table.first();
        Reader {
            table,
            bytes,
            word: 0,
            loaded: 0,
            at: 0,
            end,
            tokens: 0,
            context,
            unknown: None,
            coded_bytes,
        }
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.at >= self.end
    }

    /// Loads bits until a token's are there.
    #[inline]
    fn load(&mut self) {
        let from = (self.at / 8).min(self.bytes.len() - 8);
        let word = self.bytes[from..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        // Behind the last byte there are zeros. Only damaged codes reach so far.
        let passed = (self.at - from * 8) as u32;
        self.word = word.checked_shr(passed).unwrap_or(0);
        self.loaded = 64u32.saturating_sub(passed).max(TOKEN_BITS_MAX);
    }

    /// The next number.
    #[inline]
    pub(super) fn number(&mut self) -> u16 {
        if self.loaded < TOKEN_BITS_MAX {
            self.load();
        }
        let entry = self.table.entry(self.context, self.word);
        let bits = entry.bits();
        let number = if entry.escapes() {
            let number_bits = self.table.number_bits();
            let number = (self.word >> (bits - number_bits)) as u32 & ((1 << number_bits) - 1);
            self.context = self.table.context(number as u16);
            number as u16
        } else {
            self.context = entry.context();
            entry.number()
        };
        self.word >>= bits;
        self.loaded -= bits;
        self.at += bits as usize;
        self.tokens += 1;
        number
    }

    /// The next token with zeros behind its bytes, and their number.
    #[inline]
    fn token(&mut self, tokens: &decode::Table) -> ([u8; TOKEN_BYTES_MAX], usize) {
        let number = self.number();
        let (token, length) = tokens.padded(number);
        if length == 0 {
            self.unknown.get_or_insert((self.tokens - 1, number));
        }
        (token, length)
    }

    /// Writes whole tokens to the start of `target` while they have room, and returns their bytes.
    #[inline]
    pub(super) fn decode(&mut self, tokens: &decode::Table, target: &mut [MaybeUninit<u8>]) -> usize {
        let mut written = 0;
        while !self.is_done()
            && let Some(room) = target[written..].first_chunk_mut::<TOKEN_BYTES_MAX>()
        {
            let (token, length) = self.token(tokens);
            *room = token.map(MaybeUninit::new);
            written += length;
        }
        // The last tokens may have less room than a whole one takes.
        while !self.is_done() {
            let before = self.clone();
            let (token, length) = self.token(tokens);
            let Some(room) = target[written..].get_mut(..length) else {
                *self = before;
                break;
            };
            room.write_copy_of_slice(&token[..length]);
            written += length;
        }
        written
    }

    /// The bytes of all tokens that are left.
    pub(super) fn measure(mut self, tokens: &decode::Table) -> Result<usize, DecodeError> {
        let mut raw_bytes = 0;
        while !self.is_done() {
            raw_bytes += self.token(tokens).1;
        }
        self.finish()?;
        Ok(raw_bytes)
    }

    /// Tells whether all numbers were those of tokens, and the last code ended where the codes end.
    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        match self.unknown {
            Some((position, number)) => Err(DecodeError::Token { position, number: number.into() }),
            None if self.at == self.end => Ok(()),
            None => Err(DecodeError::Length { coded_bytes: self.coded_bytes }),
        }
    }
}
