//! [`Recoder`]: from coded values to entropy-coded ones.

use super::Codes;
use super::contexts::CONTEXTS_MAX;
use super::parts::{self, HEADER_BITS_MAX, PARTS, TURNS_MAX, WIDTH_BITS};
use super::table::{CODE_BITS_MAX, Table};
use crate::token::error::DecodeError;
use crate::token::{CHECK_BYTES, Dictionary, numbers};
use std::collections::TryReserveError;

/// A code below its length, in the highest bits. Zero means that the token has no code of its own.
#[derive(Clone, Copy, Debug, Default)]
struct Code(u16);

impl Code {
    fn new(code: u32, bits: u32) -> Code {
        Code((code | bits << CODE_BITS_MAX) as u16)
    }

    fn code(self) -> u32 {
        u32::from(self.0) & ((1 << CODE_BITS_MAX) - 1)
    }

    fn bits(self) -> u32 {
        u32::from(self.0) >> CODE_BITS_MAX
    }
}

/// Scratch for recoding: one per thread, for any codes. It holds 512 KB for 14 bits and is fast for many values of the
/// same codes.
#[derive(Debug, Default)]
pub struct Recoder {
    /// The number of the codes that the scratch is of.
    number: Option<u64>,
    laid: Laid,
    numbers: Vec<u16>,
}

/// Codes, laid out by token.
#[derive(Debug, Default)]
struct Laid {
    /// By context and number.
    codes: Vec<Code>,
    escapes: [Code; CONTEXTS_MAX],
}

impl Laid {
    /// Gives the bits of each code and their count to `take`, and those of the number behind each escape.
    #[inline]
    fn each(&self, table: &Table, numbers: impl Iterator<Item = u16>, mut take: impl FnMut(u32, u32)) {
        let bits = table.number_bits();
        let mut state = table.first();
        for number in numbers {
            let code = self.codes[state.context() << bits | usize::from(number)];
            if code.bits() == 0 {
                let escape = self.escapes[state.context()];
                take(escape.code(), escape.bits());
                take(number.into(), bits);
            } else {
                take(code.code(), code.bits());
            }
            state = table.state(number);
        }
    }
}

impl Recoder {
    /// A recoder that has allocated nothing yet.
    pub fn new() -> Recoder {
        Recoder::default()
    }

    /// Bytes of heap that the scratch holds.
    pub fn memory_bytes(&self) -> usize {
        self.laid.codes.capacity() * size_of::<Code>() + self.numbers.capacity() * size_of::<u16>()
    }

    /// Gets all memory that [`recode`](Self::recode) or [`recode_block`](Self::recode_block) takes for a value of
    /// `coded_bytes`, or says that it was refused.
    ///
    /// # Errors
    ///
    /// Memory was refused. Nothing was appended to `out`.
    pub fn try_reserve(
        &mut self,
        codes: &Codes,
        coded_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), TryReserveError> {
        let bits = codes.table.number_bits();
        let entries = CONTEXTS_MAX << bits;
        self.laid.codes.try_reserve_exact(entries.saturating_sub(self.laid.codes.len()))?;
        let tokens = coded_bytes * 8 / bits as usize;
        self.numbers.clear();
        self.numbers.try_reserve(tokens)?;
        // Each token is an escape at worst. A set bit and the check lie behind the tokens.
        let headers = tokens.div_ceil(PARTS * TURNS_MAX) * HEADER_BITS_MAX as usize;
        out.try_reserve((tokens * (CODE_BITS_MAX + bits) as usize + headers + 1).div_ceil(8) + CHECK_BYTES)
    }

    /// Appends the entropy-coded value of the same tokens to `out`. `coded` is as the dictionary coded it.
    ///
    /// # Errors
    ///
    /// `coded` is damaged, hostile or of another dictionary; `out` is unchanged then.
    pub fn recode(
        &mut self,
        codes: &Codes,
        dictionary: &Dictionary,
        coded: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        dictionary.raw_len(coded)?;
        self.prepare(codes);
        let (start, mut writer) = (out.len(), Writer::new(out));
        writer.codes(&self.laid, &codes.table, numbers_of(coded, dictionary.bits()));
        writer.finish();
        codes.seal(start, out);
        Ok(())
    }

    /// As [`recode`](Self::recode), for a block that is decoded whole, in [parts](Dictionary::decode_parts) if it has
    /// tokens enough. Returns whether it has parts.
    ///
    /// # Errors
    ///
    /// As of [`recode`](Self::recode).
    pub fn recode_block(
        &mut self,
        codes: &Codes,
        dictionary: &Dictionary,
        coded: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, DecodeError> {
        let has_parts = parts::pay(numbers_of(coded, dictionary.bits()).len());
        match has_parts {
            true => self.recode_parts(codes, dictionary, coded, out)?,
            false => self.recode(codes, dictionary, coded, out)?,
        }
        Ok(has_parts)
    }

    /// As [`recode`](Self::recode), in parts, however few tokens there are.
    pub(super) fn recode_parts(
        &mut self,
        codes: &Codes,
        dictionary: &Dictionary,
        coded: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        dictionary.raw_len(coded)?;
        self.prepare(codes);
        self.numbers.clear();
        self.numbers.extend(numbers_of(coded, dictionary.bits()));
        let (start, mut writer) = (out.len(), Writer::new(out));
        for group in parts::groups_of(&self.numbers) {
            let parts = parts::parts_of(group);
            let mut lengths = [0; PARTS - 1];
            for (length, part) in lengths.iter_mut().zip(parts) {
                self.laid.each(&codes.table, part.iter().copied(), |_, bits| *length += bits);
            }
            let width = u32::BITS - lengths.iter().fold(0, |all, length| all | length).leading_zeros();
            writer.put(width, WIDTH_BITS);
            lengths.iter().for_each(|&length| writer.put(length, width));
            for part in parts {
                writer.codes(&self.laid, &codes.table, part.iter().copied());
            }
        }
        writer.finish();
        codes.seal(start, out);
        Ok(())
    }

    /// Appends the coded value of the same tokens to `out`, as the dictionary decodes it. `coded` is entropy-coded.
    ///
    /// # Errors
    ///
    /// `coded` is damaged, hostile or of other codes; `out` is unchanged then.
    pub fn restore(
        &mut self,
        codes: &Codes,
        dictionary: &Dictionary,
        coded: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        codes.raw_len(dictionary, coded)?;
        let mut short = [0; 8];
        let mut reader = codes.reader(coded, &mut short)?;
        self.numbers.clear();
        while !reader.is_done() {
            self.numbers.push(reader.number());
        }
        dictionary.seal(&self.numbers, out);
        Ok(())
    }

    /// Lays the codes out by token.
    fn prepare(&mut self, codes: &Codes) {
        if self.number == Some(codes.number) {
            return;
        }
        let table = &codes.table;
        let bits = table.number_bits();
        self.laid.codes.clear();
        self.laid.codes.resize(CONTEXTS_MAX << bits, Code::default());
        for context in 0..CONTEXTS_MAX {
            for (symbol, code) in table.codes(context) {
                let code = Code::new(code, symbol.bits.into());
                match symbol.token {
                    None => self.laid.escapes[context] = code,
                    Some(token) => self.laid.codes[context << bits | usize::from(token)] = code,
                }
            }
        }
        self.number = Some(codes.number);
    }
}

/// The numbers of a coded value.
fn numbers_of(coded: &[u8], bits: u32) -> impl ExactSizeIterator<Item = u16> {
    let payload = &coded[..coded.len().saturating_sub(CHECK_BYTES)];
    let count = payload.len() * 8 / bits as usize;
    (0..count).map(move |position| numbers::get(payload, position, bits) as u16)
}

/// Writes bits, the lowest first.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
    word: u64,
    filled: u32,
}

impl<'o> Writer<'o> {
    fn new(out: &'o mut Vec<u8>) -> Writer<'o> {
        Writer { out, word: 0, filled: 0 }
    }

    /// Appends the codes of numbers that begin where a value or a part does.
    fn codes(&mut self, laid: &Laid, table: &Table, numbers: impl Iterator<Item = u16>) {
        laid.each(table, numbers, |bits, count| self.put(bits, count));
    }

    /// Appends at most 16 bits.
    #[inline]
    fn put(&mut self, bits: u32, count: u32) {
        self.word |= u64::from(bits) << self.filled;
        self.filled += count;
        if self.filled >= 32 {
            self.out.extend_from_slice(&(self.word as u32).to_le_bytes());
            self.word >>= 32;
            self.filled -= 32;
        }
    }

    /// Appends a set bit, and zeros up to a byte.
    fn finish(mut self) {
        self.put(1, 1);
        let bytes = self.filled.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.word.to_le_bytes()[..bytes]);
    }
}
