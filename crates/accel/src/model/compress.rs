//! Compress jobs: tokens of the match finder, written with the state's codes or counted.

use super::checksum::Checksums;
use super::matches::Matches;
use super::sink::BitSink;
use crate::aecs::{
    CompressState, DISTANCES, Histogram, LITERALS, fixed_distance_lengths, fixed_literal_lengths,
};
use crate::completion::ErrorCode;
use crate::descriptor::compress;
use ziptier_deflate::BlockCodes;

/// A literal, or a length in bits 16-24 and a distance below.
type Token = u32;

/// The result of a compress job.
pub(super) struct Compressed<'a> {
    pub(super) output: &'a [u8],
    /// Valid bits of the last byte, 0 for all.
    pub(super) last_bits: u8,
}

pub(super) struct Compressor {
    matches: Matches,
    tokens: Vec<Token>,
    sink: BitSink,
    output: Vec<u8>,
}

impl Compressor {
    pub(super) fn new() -> Compressor {
        Compressor {
            matches: Matches::new(),
            tokens: Vec::new(),
            sink: BitSink::default(),
            output: Vec::new(),
        }
    }

    /// Compresses a source. `state` holds the state that the job reads, and afterwards the one that it would write.
    pub(super) fn run(
        &mut self,
        source: &[u8],
        flags: u16,
        state: &mut CompressState,
        sums: &mut Checksums,
    ) -> Result<Compressed<'_>, ErrorCode> {
        sums.add(source);
        self.parse(source, flags & compress::LITERALS_ONLY != 0);
        let appended = flags & compress::APPEND_MASK;
        match flags & compress::HEADER_MASK {
            0 if flags & compress::STATISTICS != 0 => return Ok(self.count_into_output(appended != 0)),
            0 => {}
            header => {
                let (literals, distances) = self.counts(appended != 0);
                set_own_codes(state, &literals, &distances, header & (1 << 12) != 0);
                if flags & compress::STATISTICS != 0 {
                    return Ok(Compressed { output: &[], last_bits: 0 });
                }
            }
        }
        self.write(state)?;
        self.append(state, appended)?;
        Ok(self.finish(flags, state))
    }

    fn parse(&mut self, source: &[u8], literals_only: bool) {
        self.tokens.clear();
        if literals_only {
            self.tokens.extend(source.iter().map(|&byte| u32::from(byte)));
        } else {
            let tokens = &mut self.tokens;
            self.matches.parse(source, |length, value| tokens.push((length << 16 | value) as u32));
        }
    }

    fn counts(&self, has_end: bool) -> ([u32; LITERALS], [u32; DISTANCES]) {
        let (mut literals, mut distances) = ([0; LITERALS], [0; DISTANCES]);
        for &token in &self.tokens {
            match (token >> 16) as usize {
                0 => literals[token as usize & 255] += 1,
                length => {
                    literals[257 + length_symbol(length).0] += 1;
                    distances[distance_symbol(token as usize & 0xFFFF).0] += 1;
                }
            }
        }
        literals[256] += u32::from(has_end);
        (literals, distances)
    }

    fn count_into_output(&mut self, has_end: bool) -> Compressed<'_> {
        let (literals, distances) = self.counts(has_end);
        let mut histogram = Histogram::new();
        histogram.set(&literals, &distances);
        self.output.clear();
        self.output.extend_from_slice(histogram.as_bytes());
        Compressed { output: &self.output, last_bits: 0 }
    }

    fn write(&mut self, state: &CompressState) -> Result<(), ErrorCode> {
        let sink = &mut self.sink;
        sink.clear();
        let early = state.accumulator_bits() as usize;
        if early > 8 * CompressState::ACCUMULATOR_BYTES {
            return Err(ErrorCode::BadState);
        }
        sink.put_bytes(state.accumulator(), early);
        let words: [u32; LITERALS] = std::array::from_fn(|symbol| stream_word(state.literal_code(symbol)));
        let distances: [u32; DISTANCES] =
            std::array::from_fn(|symbol| stream_word(state.distance_code(symbol)));
        for &token in &self.tokens {
            match (token >> 16) as usize {
                0 => put_code(sink, words[token as usize & 255])?,
                length => {
                    let (symbol, extra, bits) = length_symbol(length);
                    put_code(sink, words[257 + symbol])?;
                    sink.put(extra, bits);
                    let (symbol, extra, bits) = distance_symbol(token as usize & 0xFFFF);
                    put_code(sink, distances[symbol])?;
                    sink.put(extra, bits);
                }
            }
        }
        Ok(())
    }

    /// Ends the block, and perhaps begins and ends an empty stored one behind it.
    fn append(&mut self, state: &CompressState, appended: u16) -> Result<(), ErrorCode> {
        if appended == 0 {
            return Ok(());
        }
        put_code(&mut self.sink, stream_word(state.literal_code(256)))?;
        if appended != compress::APPEND_END_OF_BLOCK {
            self.sink.put(u64::from(appended == compress::APPEND_FINAL_STORED), 3);
            self.sink.align(8);
            self.sink.put(0xFFFF_0000, 32);
        }
        Ok(())
    }

    fn finish(&mut self, flags: u16, state: &mut CompressState) -> Compressed<'_> {
        let is_flushed = flags & compress::FLUSH_OUTPUT != 0;
        let swaps = flags & compress::BIG_ENDIAN_16 != 0;
        let unit = if swaps { 16 } else { 8 };
        let last_bits = (self.sink.bits() % 8) as u8;
        if is_flushed {
            self.sink.align(unit);
        }
        let (bytes, rest, rest_bits) = self.sink.finish(unit);
        if swaps {
            bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|pair| pair.swap(0, 1));
        }
        state.set_accumulator_bits(rest_bits as u32);
        state.accumulator_mut().fill(0);
        state.accumulator_mut()[..8].copy_from_slice(&rest.to_le_bytes());
        Compressed { output: bytes, last_bits: if is_flushed { last_bits } else { 0 } }
    }
}

/// Sets codes for these counts and their header, behind the bits in the accumulator. If the header does not fit, sets
/// the fixed codes.
fn set_own_codes(
    state: &mut CompressState,
    literals: &[u32; LITERALS],
    distances: &[u32; DISTANCES],
    is_final: bool,
) {
    let codes = BlockCodes::new(literals, distances, is_final);
    let is_set = state.set_codes(&codes.literals, &codes.distances).is_ok()
        && state.push_bits(&codes.header, codes.header_bits).is_ok();
    if !is_set {
        // Both are valid codes. The writer finds an accumulator without room for three bits.
        let _ = state.set_codes(&fixed_literal_lengths(), &fixed_distance_lengths());
        let _ = state.push_bits(&[0b010 | u8::from(is_final)], 3);
    }
}

/// A code word as it stands in a stream: first bit lowest, its length from bit 16 on.
fn stream_word(word: u32) -> u32 {
    match word >> 15 & 15 {
        0 => 0,
        bits => (word & 0x7FFF).reverse_bits() >> (32 - bits) | bits << 16,
    }
}

#[inline]
fn put_code(sink: &mut BitSink, word: u32) -> Result<(), ErrorCode> {
    if word == 0 {
        return Err(ErrorCode::NoCodeForSymbol);
    }
    sink.put(u64::from(word & 0xFFFF), word >> 16);
    Ok(())
}

/// Symbol (less 257), extra bits and their count of a length.
#[inline]
fn length_symbol(length: usize) -> (usize, u64, u32) {
    match length {
        258 => (28, 0, 0),
        3..=10 => (length - 3, 0, 0),
        _ => {
            let less = length - 3;
            let bits = less.ilog2() - 2;
            (4 * bits as usize + (less >> bits), (less & ((1 << bits) - 1)) as u64, bits)
        }
    }
}

/// Symbol, extra bits and their count of a distance.
#[inline]
fn distance_symbol(distance: usize) -> (usize, u64, u32) {
    let less = distance - 1;
    if less < 4 {
        return (less, 0, 0);
    }
    let bits = less.ilog2() - 1;
    (2 * bits as usize + (less >> bits), (less & ((1 << bits) - 1)) as u64, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_distances_have_the_symbols_of_the_rfc() {
        let symbols = [3, 10, 11, 12, 13, 114, 115, 226, 227, 257, 258].map(length_symbol);
        let expected = [
            (0, 0, 0),
            (7, 0, 0),
            (8, 0, 1),
            (8, 1, 1),
            (9, 0, 1),
            (22, 15, 4),
            (23, 0, 4),
            (26, 31, 5),
            (27, 0, 5),
            (27, 30, 5),
            (28, 0, 0),
        ];
        assert_eq!(symbols, expected);
        let symbols = [1, 4, 5, 6, 7, 3072, 3073, 4096].map(distance_symbol);
        let expected = [
            (0, 0, 0),
            (3, 0, 0),
            (4, 0, 1),
            (4, 1, 1),
            (5, 0, 1),
            (22, 1023, 10),
            (23, 0, 10),
            (23, 1023, 10),
        ];
        assert_eq!(symbols, expected);
    }
}
