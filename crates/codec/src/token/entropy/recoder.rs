//! [`Recoder`]: from coded values to entropy-coded ones.

use super::Codes;
use super::contexts::CONTEXTS_MAX;
use super::table::CODE_BITS_MAX;
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
    /// By context and number.
    codes: Vec<Code>,
    escapes: [Code; CONTEXTS_MAX],
    numbers: Vec<u16>,
}

impl Recoder {
    /// A recoder that has allocated nothing yet.
    pub fn new() -> Recoder {
        Recoder::default()
    }

    /// Bytes of heap that the scratch holds.
    pub fn memory_bytes(&self) -> usize {
        self.codes.capacity() * size_of::<Code>() + self.numbers.capacity() * size_of::<u16>()
    }

    /// Gets all memory that [`recode`](Self::recode) takes for a value of `coded_bytes`, or says that it was refused.
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
        self.codes.try_reserve_exact(entries.saturating_sub(self.codes.len()))?;
        // Each token is an escape at worst. A set bit and the check lie behind the tokens.
        let tokens = coded_bytes * 8 / bits as usize;
        out.try_reserve((tokens * (CODE_BITS_MAX + bits) as usize + 1).div_ceil(8) + CHECK_BYTES)
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
        let bits = dictionary.bits();
        let payload = &coded[..coded.len() - CHECK_BYTES];
        let start = out.len();
        let mut writer = Writer { out, word: 0, filled: 0 };
        let mut state = codes.table.first();
        for position in 0..payload.len() * 8 / bits as usize {
            let number = numbers::get(payload, position, bits) as u16;
            let code = self.codes[state.context() << bits | usize::from(number)];
            if code.bits() == 0 {
                let escape = self.escapes[state.context()];
                writer.put(escape.code(), escape.bits());
                writer.put(number.into(), bits);
            } else {
                writer.put(code.code(), code.bits());
            }
            state = codes.table.state(number);
        }
        writer.put(1, 1);
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
        self.codes.clear();
        self.codes.resize(CONTEXTS_MAX << bits, Code::default());
        for context in 0..CONTEXTS_MAX {
            for (symbol, code) in table.codes(context) {
                let code = Code::new(code, symbol.bits.into());
                match symbol.token {
                    None => self.escapes[context] = code,
                    Some(token) => self.codes[context << bits | usize::from(token)] = code,
                }
            }
        }
        self.number = Some(codes.number);
    }
}

/// Writes bits, the lowest first.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
    word: u64,
    filled: u32,
}

impl Writer<'_> {
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

    /// Appends what is left, with zeros up to a byte.
    fn finish(self) {
        let bytes = self.filled.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.word.to_le_bytes()[..bytes]);
    }
}
