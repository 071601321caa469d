//! [`Dictionary`]: the tokens, their matcher, and the surface of the format.

use super::decode::{Pass, Table};
use super::encode::{Effort, Encoder};
use super::entropy::Codes;
use super::error::{DecodeError, DictionaryError, TrainError};
use super::matcher::Matcher;
use super::{CHECK_BYTES, TOKEN_BYTES_MAX, numbers, serial, train};
use crate::checksum::check16;
use std::collections::TryReserveError;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that tell sets of tokens apart.
static LINEAGES: AtomicU64 = AtomicU64::new(0);

/// An output buffer gets this size without a measurement of the value's length, and as much beyond a measured length.
const RESERVE_FREELY_BYTES: usize = 4096;

/// A set of tokens, with the tables for coding and decoding.
///
/// Immutable and shared by all threads (put it in an `Arc`); the state of encoding lives in an [`Encoder`].
pub struct Dictionary {
    table: Table,
    matcher: Matcher,
    generation: u32,
    fingerprint: u32,
    /// Shared by dictionaries of one set of tokens, whatever their generation.
    lineage: u64,
    codes: Option<Codes>,
}

impl Dictionary {
    /// Trains a dictionary of at most 2^bits tokens on `samples`, which should look like the values to come.
    ///
    /// `bits` is 10 to 16; `generation` is the caller's number for this dictionary and is stored with it. The bytes of
    /// the samples bound the time (60 to 200 ms per MB, most for 16 bits). The caller caps the samples; 1 to 4 MB are
    /// plenty. Samples without repetition, or none at all, give a dictionary of the 256 single bytes. The same samples
    /// give the same dictionary.
    pub fn train(samples: &[&[u8]], bits: u32, generation: u32) -> Result<Dictionary, TrainError> {
        if !super::BITS.contains(&bits) {
            return Err(TrainError::Bits { bits });
        }
        train::train(samples, bits)
            .and_then(|tokens| Dictionary::from_tokens(&tokens, bits, generation))
            .map_err(|_| TrainError::Unindexable)
    }

    /// Lays out tokens that are valid one by one. Only completeness and distinctness are checked here.
    pub(super) fn from_tokens<T: AsRef<[u8]>>(
        tokens: &[T],
        bits: u32,
        generation: u32,
    ) -> Result<Dictionary, DictionaryError> {
        let table = Table::new(tokens.iter().map(T::as_ref), bits);
        let matcher = Matcher::new(&table)?;
        let fingerprint = serial::fingerprint(&table);
        let lineage = LINEAGES.fetch_add(1, Ordering::Relaxed);
        Ok(Dictionary { table, matcher, generation, fingerprint, lineage, codes: None })
    }

    /// The same tokens, without codes, under the number of another generation.
    ///
    /// # Errors
    /// None for a dictionary that was trained.
    pub fn renumbered(&self, generation: u32) -> Result<Dictionary, DictionaryError> {
        let tokens: Vec<&[u8]> = (0..self.tokens()).map(|number| self.table.token(number)).collect();
        let same = Dictionary::from_tokens(&tokens, self.bits(), generation)?;
        Ok(Dictionary { lineage: self.lineage, ..same })
    }

    /// Whether one of the two is the other one [renumbered](Self::renumbered), or both are: each decodes what the other
    /// has coded.
    pub fn is_renumbered(&self, other: &Dictionary) -> bool {
        self.lineage == other.lineage
    }

    /// The same tokens under other numbers. The first `kept` tokens keep their numbers; in a trained dictionary they
    /// are the most used. The rest are sorted by their bytes, so that neighbours begin alike and the stored form packs
    /// better. Values coded by the old numbers cannot be decoded by the new ones.
    ///
    /// # Errors
    /// None for a dictionary that was trained.
    pub fn sorted_behind(&self, kept: usize) -> Result<Dictionary, DictionaryError> {
        let mut tokens: Vec<&[u8]> = (0..self.tokens()).map(|number| self.table.token(number)).collect();
        let kept = kept.min(tokens.len());
        tokens[kept..].sort_unstable();
        Dictionary::from_tokens(&tokens, self.bits(), self.generation)
    }

    /// The caller's number of this dictionary.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The width of a token number, 10 to 16.
    pub fn bits(&self) -> u32 {
        self.table.bits()
    }

    /// How many tokens there are: at least 256, at most 2^bits.
    pub fn tokens(&self) -> usize {
        self.table.tokens()
    }

    /// A checksum of the tokens and their width: equal for dictionaries that code alike, whatever their generation.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// The bytes of a token; `None` if no token has this number.
    pub fn token(&self, number: usize) -> Option<&[u8]> {
        (number < self.tokens()).then(|| self.table.token(number))
    }

    /// Bytes of heap that the dictionary holds: decode table, lengths, matcher, and codes if it has any.
    pub fn memory_bytes(&self) -> usize {
        let codes = self.codes.as_ref().map_or(0, Codes::memory_bytes);
        self.table.memory_bytes() + self.matcher.memory_bytes() + codes
    }

    /// The same dictionary with codes, which were trained for it.
    pub fn with_codes(self, codes: Codes) -> Dictionary {
        Dictionary { codes: Some(codes), ..self }
    }

    /// The codes that it was given.
    pub fn codes(&self) -> Option<&Codes> {
        self.codes.as_ref()
    }

    /// As [`decode_append`](Self::decode_append), of a value that was [recoded](super::entropy::Recoder::recode).
    ///
    /// # Errors
    ///
    /// As of [`Codes::decode_append`], and the dictionary has no codes.
    pub fn decode_recoded(
        &self,
        coded: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<usize, DecodeError> {
        self.codes.as_ref().ok_or(DecodeError::NoCodes)?.decode_append(self, coded, out, max_bytes)
    }

    /// As [`decode_recoded`](Self::decode_recoded), of a block that was recoded in
    /// [parts](super::entropy::Recoder::recode_block).
    ///
    /// # Errors
    ///
    /// As of [`Codes::decode_parts`], and the dictionary has no codes.
    pub fn decode_parts(
        &self,
        coded: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<usize, DecodeError> {
        self.codes.as_ref().ok_or(DecodeError::NoCodes)?.decode_parts(self, coded, out, max_bytes)
    }

    /// As [`raw_len`](Self::raw_len), of a value that was [recoded](super::entropy::Recoder::recode).
    ///
    /// # Errors
    ///
    /// As of [`Codes::raw_len`], and the dictionary has no codes.
    pub fn recoded_raw_len(&self, coded: &[u8]) -> Result<usize, DecodeError> {
        self.codes.as_ref().ok_or(DecodeError::NoCodes)?.raw_len(self, coded)
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) of a dictionary of this width will be.
    pub fn memory_bytes_expected(bits: u32) -> usize {
        Table::memory_bytes_expected(bits)
            + Matcher::memory_bytes_of(train::nodes_max(bits), super::tokens_max(bits))
    }

    /// The most memory that [`train`](Self::train) holds for `samples` samples of any length, the dictionary included.
    /// The samples themselves belong to the caller.
    pub fn training_bytes_expected(bits: u32, samples: usize) -> usize {
        train::memory_bytes_expected(bits, samples)
    }

    /// The dictionary as self-describing bytes: version, width, generation, tokens, CRC32C.
    pub fn to_bytes(&self) -> Vec<u8> {
        serial::to_bytes(&self.table, self.generation)
    }

    /// Loads a stored dictionary, ready for decoding *and* encoding.
    ///
    /// The bytes may be any: the loader checks lengths before it allocates.
    /// [`memory_bytes_expected`](Self::memory_bytes_expected) holds for trained tokens. Crafted tokens that share no
    /// prefixes take more: up to a few hundred bytes per token while loading. The worst of them are refused.
    pub fn from_bytes(bytes: &[u8]) -> Result<Dictionary, DictionaryError> {
        let stored = serial::parse(bytes)?;
        Dictionary::from_tokens(&stored.tokens, stored.bits, stored.generation)
    }

    /// Codes `values` densely: appends the coded bytes of each to `coded`, and their end in `coded` to `ends`.
    ///
    /// Every value can be decoded alone, and its coded bytes do not depend on its neighbours. The result is the same on
    /// every machine.
    ///
    /// # Panics
    ///
    /// If `coded` grows past 4 GiB.
    pub fn encode_group(
        &self,
        encoder: &mut Encoder,
        values: &[&[u8]],
        coded: &mut Vec<u8>,
        ends: &mut Vec<u32>,
    ) {
        self.encode_group_with(encoder, Effort::Dense, values, coded, ends);
    }

    /// As [`Dictionary::encode_group`], with an effort. Groups of eight and more are faster than single values.
    ///
    /// # Panics
    ///
    /// If `coded` grows past 4 GiB.
    pub fn encode_group_with(
        &self,
        encoder: &mut Encoder,
        effort: Effort,
        values: &[&[u8]],
        coded: &mut Vec<u8>,
        ends: &mut Vec<u32>,
    ) {
        self.parse(encoder, effort, values, |numbers| self.append(numbers, coded, ends));
    }

    /// Codes the rows of a block as one value: appends it to `coded`. It decodes to the rows, one after the other.
    ///
    /// The decoder does not know the rows. The encoder begins anew at each row. So it codes several rows at once, and
    /// rows that begin alike give the same tokens. Each row costs about half a token.
    pub fn encode_rows(&self, encoder: &mut Encoder, effort: Effort, rows: &[&[u8]], coded: &mut Vec<u8>) {
        let mut numbers = encoder.take_joined();
        self.join(encoder, effort, rows, &mut numbers);
        self.seal(&numbers, coded);
        encoder.give_back_joined(numbers);
    }

    /// As [`encode_rows`](Self::encode_rows), for callers whose process must not end where memory is refused.
    ///
    /// # Errors
    ///
    /// Memory was refused. Nothing was appended.
    pub fn try_encode_rows(
        &self,
        encoder: &mut Encoder,
        effort: Effort,
        rows: &[&[u8]],
        coded: &mut Vec<u8>,
    ) -> Result<(), TryReserveError> {
        encoder.try_reserve(rows)?;
        let (mut numbers, mut reserved) = (encoder.take_joined(), Ok(()));
        encoder.parse(&self.matcher, effort, rows, |row| {
            if reserved.is_ok() {
                reserved = numbers.try_reserve(row.len());
            }
            if reserved.is_ok() {
                numbers.extend_from_slice(row);
            }
        });
        let reserved =
            reserved.and_then(|()| coded.try_reserve(numbers::room_bytes(numbers.len(), self.bits())));
        if reserved.is_ok() {
            self.seal(&numbers, coded);
        }
        encoder.give_back_joined(numbers);
        reserved
    }

    /// As [`encode_rows`](Self::encode_rows), for a block of unknown rows: cuts it into rows of `row_bytes`. Allocates
    /// nothing once `encoder` is warm.
    ///
    /// # Panics
    ///
    /// If `row_bytes` is 0.
    pub fn encode_block(
        &self,
        encoder: &mut Encoder,
        effort: Effort,
        block: &[u8],
        row_bytes: usize,
        coded: &mut Vec<u8>,
    ) {
        const ROWS: usize = 32;
        let mut numbers = encoder.take_joined();
        for part in block.chunks(row_bytes * ROWS) {
            let mut rows: [&[u8]; ROWS] = [&[]; ROWS];
            rows.iter_mut().zip(part.chunks(row_bytes)).for_each(|(row, cut)| *row = cut);
            self.join(encoder, effort, &rows[..part.len().div_ceil(row_bytes)], &mut numbers);
        }
        self.seal(&numbers, coded);
        encoder.give_back_joined(numbers);
    }

    /// Appends the numbers of rows.
    fn join(&self, encoder: &mut Encoder, effort: Effort, rows: &[&[u8]], numbers: &mut Vec<u16>) {
        self.parse(encoder, effort, rows, |row| numbers.extend_from_slice(row));
    }

    /// Appends a coded value and its end.
    fn append(&self, numbers: &[u16], coded: &mut Vec<u8>, ends: &mut Vec<u32>) {
        self.seal(numbers, coded);
        ends.push(u32::try_from(coded.len()).expect("a group is coded into less than 4 GiB"));
    }

    /// The tokens, for decoders of other forms.
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Gives the token numbers of each value to `take`.
    pub(super) fn parse(
        &self,
        encoder: &mut Encoder,
        effort: Effort,
        values: &[&[u8]],
        take: impl FnMut(&[u16]),
    ) {
        encoder.parse(&self.matcher, effort, values, take);
    }

    /// Appends numbers and their check.
    pub(super) fn seal(&self, numbers: &[u16], coded: &mut Vec<u8>) {
        let start = coded.len();
        numbers::pack(numbers, self.bits(), coded);
        let check = check16(self.fingerprint, &coded[start..]);
        coded.extend_from_slice(&check.to_le_bytes());
    }

    /// The spare capacity with which [`decode_append`](Self::decode_append) needs no first pass to measure the value:
    /// 16 bytes for each number in `coded_bytes`.
    pub fn spare_bytes(&self, coded_bytes: usize) -> usize {
        Table::spare_bytes(coded_bytes * 8 / self.bits() as usize * TOKEN_BYTES_MAX)
    }

    /// Appends the value to `out` and returns its length.
    ///
    /// An error leaves the length of `out` unchanged. `out` grows by at most `max_bytes` and a few KiB, apart from the
    /// doubling of a `Vec`.
    #[inline]
    pub fn decode_append(
        &self,
        coded: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<usize, DecodeError> {
        let count = self.count(coded)?;
        let spare_bytes = Table::spare_bytes(count * TOKEN_BYTES_MAX);
        if out.capacity() - out.len() < spare_bytes {
            if spare_bytes > RESERVE_FREELY_BYTES {
                return self.decode_measured(coded, count, out, max_bytes);
            }
            out.reserve(spare_bytes);
        }
        let start = out.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: `count` was derived from the length of `coded`, and there is room for 16 bytes per number.
        let pass = || unsafe { self.table.decode_roomily(coded, count, start) };
        let raw_bytes = self.checked(coded, count, max_bytes, pass)?;
        // SAFETY: that many bytes were written behind the old end, within the capacity.
        unsafe { out.set_len(out.len() + raw_bytes) };
        Ok(raw_bytes)
    }

    /// As [`decode_append`](Self::decode_append), for a value whose measured length may be much less than 16 bytes per
    /// number.
    #[cold]
    fn decode_measured(
        &self,
        coded: &[u8],
        count: usize,
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<usize, DecodeError> {
        let raw_bytes = self.table.measure(coded, count).raw_bytes;
        if raw_bytes > max_bytes {
            return Err(DecodeError::TooLong { raw_bytes, max_bytes });
        }
        if out.capacity() - out.len() < Table::spare_bytes(raw_bytes) {
            // With room to spare, few numbers go through a buffer.
            out.reserve(raw_bytes + RESERVE_FREELY_BYTES);
        }
        let raw_bytes = self.decode(coded, count, out.spare_capacity_mut(), max_bytes)?;
        // SAFETY: that many bytes were written behind the old end, within the capacity.
        unsafe { out.set_len(out.len() + raw_bytes) };
        Ok(raw_bytes)
    }

    /// As [`decode_append`](Self::decode_append), to the start of `target`, whose length is the limit. Returns the
    /// value.
    ///
    /// All bytes of `target` may change. A target with [`spare_bytes`](Self::spare_bytes) is fastest.
    pub fn decode_into<'t>(
        &self,
        coded: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<&'t mut [u8], DecodeError> {
        let max_bytes = target.len();
        let raw_bytes = self.decode(coded, self.count(coded)?, target, max_bytes)?;
        // SAFETY: `decode` wrote that many bytes.
        Ok(unsafe { target[..raw_bytes].assume_init_mut() })
    }

    /// The token numbers in a coded value.
    #[inline]
    fn count(&self, coded: &[u8]) -> Result<usize, DecodeError> {
        numbers::count(coded.len(), self.bits()).ok_or(DecodeError::Length { coded_bytes: coded.len() })
    }

    /// Writes the value of `count` numbers, as [`count`](Self::count) says, to the start of `target`. Returns its
    /// length, which is at most that of `target`.
    fn decode(
        &self,
        coded: &[u8],
        count: usize,
        target: &mut [MaybeUninit<u8>],
        max_bytes: usize,
    ) -> Result<usize, DecodeError> {
        debug_assert_eq!(self.count(coded), Ok(count));
        let max_bytes = max_bytes.min(target.len());
        // SAFETY: `count` was derived from the length of `coded`.
        self.checked(coded, count, max_bytes, || unsafe { self.table.decode(coded, count, target) })
    }

    /// The length of the value that `pass` decodes, at most `max_bytes`.
    #[inline]
    fn checked(
        &self,
        coded: &[u8],
        count: usize,
        max_bytes: usize,
        pass: impl FnOnce() -> Pass,
    ) -> Result<usize, DecodeError> {
        let payload_bytes = coded.len() - CHECK_BYTES;
        // Computed first, and tested last: the latency of the check hides behind the copies.
        let computed = check16(self.fingerprint, &coded[..payload_bytes]);
        let stored = u16::from_le_bytes([coded[payload_bytes], coded[payload_bytes + 1]]);
        let pass = pass();
        let sound = stored == computed
            && pass.valid
            && pass.raw_bytes <= max_bytes
            && numbers::padding_is_zero(&coded[..payload_bytes], count, self.bits());
        match sound {
            true => Ok(pass.raw_bytes),
            false => Err(self.explain(coded, count, stored, computed, pass.raw_bytes, max_bytes)),
        }
    }

    /// The length of the value, without its bytes. The check is verified as in decoding.
    pub fn raw_len(&self, coded: &[u8]) -> Result<usize, DecodeError> {
        let count = self.count(coded)?;
        let (payload, stored) = coded.split_at(coded.len() - CHECK_BYTES);
        let stored = u16::from_le_bytes([stored[0], stored[1]]);
        let computed = check16(self.fingerprint, payload);
        let pass = self.table.measure(coded, count);
        if stored == computed && pass.valid && numbers::padding_is_zero(payload, count, self.bits()) {
            Ok(pass.raw_bytes)
        } else {
            Err(self.explain(coded, count, stored, computed, pass.raw_bytes, usize::MAX))
        }
    }

    /// Names the first reason why a value was refused.
    #[cold]
    fn explain(
        &self,
        coded: &[u8],
        count: usize,
        stored: u16,
        computed: u16,
        raw_bytes: usize,
        max_bytes: usize,
    ) -> DecodeError {
        if stored != computed {
            return DecodeError::Check { stored, computed };
        }
        let payload = &coded[..coded.len() - CHECK_BYTES];
        let unknown = (0..count)
            .map(|position| (position, numbers::get(payload, position, self.bits())))
            .find(|&(_, number)| number as usize >= self.tokens());
        if let Some((position, number)) = unknown {
            return DecodeError::Token { position, number };
        }
        if raw_bytes > max_bytes {
            return DecodeError::TooLong { raw_bytes, max_bytes };
        }
        DecodeError::Padding
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary")
            .field("generation", &self.generation)
            .field("bits", &self.bits())
            .field("tokens", &self.tokens())
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
