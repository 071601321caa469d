//! State of decompress jobs and of filters.

use super::packed::{pack, unpack};
use super::{BITS_MAX, CodeLengthError, DISTANCES, LITERALS, state, words_of};

/// History that a stream may refer to.
pub const HISTORY_BYTES: usize = 4096;

/// State of a decompress job, in format 1.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0x000 | 4 | CRC so far |
/// | 0x004 | 4 | XOR checksum so far |
/// | 0x008 | 4 | filters: low parameter |
/// | 0x00C | 4 | filters: high parameter |
/// | 0x010 | 4 | filters: index of the first output element |
/// | 0x014 | 4 | decompressed bytes to drop before filtering, at most 65,535 |
/// | 0x018 | 144 | reserved |
/// | 0x0A8 | 8 | output accumulator |
/// | 0x0B0 | 4 | its valid bits; bit 0 is the format |
/// | 0x0B4 | 4 | bit offset for indexing |
/// | 0x0B8 | 32 × 8 | input accumulator: bits that come before source 1 |
/// | 0x1B8 | 32 × 1 | valid bits of each of its words |
/// | 0x1D8 | 4 | code word of the end of a block |
/// | 0x1DC | 1 | initial bits to drop |
/// | 0x1DD | 1 | bit 0: format 2 |
/// | 0x1E0 | 20 | for each code length, where its symbols begin in the mapping table |
/// | 0x1F4 | 20 | for each code length, how many codes of the mapping table have it |
/// | 0x208 | 20 | for each code length, the first of them |
/// | 0x21C | 20 | for each code length, the first code that is no literal; all ones if there is none |
/// | 0x230 | 23 × 4 | code words of symbols 265 to 287: lengths with extra bits, and the two that mean nothing *(place chosen here)* |
/// | 0x28C | 32 × 4 | code words of distances, with the two that mean nothing *(place chosen here)* |
/// | 0x30C | 4 | shortest code of a length *(place chosen here)* |
/// | 0x328 | 268 | mapping table: the low 8 bits of symbols 0 to 264, by code length and number |
/// | 0x434 | 2 | parser state |
/// | 0x436 | 2 | bits not processed |
/// | 0x438 | 4 | bytes of a stored block to come |
/// | 0x43C | 4 | length (bits 0-8) and distance (bits 16-28) of a match whose bytes are to come *(chosen here)* |
/// | 0x4E4 | 2 | where the next byte goes in the history; bit 15: it has been filled once |
/// | 0x4E8 | 4096 | history |
/// | 0x14E8 | 24 | padding |
///
/// A code word holds the code in bits 0 to 14, first bit highest, and its length in bits 15 to 18. *(The form in this
/// state is chosen here, after that of [`CompressState`](super::CompressState).)* All codes of one length are in the
/// order of their symbols. So those of the mapping table come first, and among them the literals. Numbers for code
/// lengths are packed into five double words. Length *i* has *i* + 1 bits: lengths 1-6 from bit 0 of the first double
/// word up, then 7-9, 10-11, 12-13, 14-15.
#[derive(Clone, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct DecompressState([u8; 0x1500]);

state!(DecompressState, 0x1500, 64);

const INPUT: usize = 0xB8;
const INPUT_BITS: usize = 0x1B8;
const END_OF_BLOCK: usize = 0x1D8;
const FIRST_INDEX: usize = 0x1E0;
const COUNTS: usize = 0x1F4;
const FIRST_CODE: usize = 0x208;
const FIRST_LENGTH_CODE: usize = 0x21C;
const LENGTH_CODES: usize = 0x230;
const DISTANCE_CODES: usize = 0x28C;
const SHORTEST_LENGTH: usize = 0x30C;
const MAPPING: usize = 0x328;
const PARSER: usize = 0x434;
const HISTORY: usize = 0x4E8;

/// The first symbol that the mapping table does not have.
const MAPPED: usize = 265;

/// The item that the parser expects next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parser {
    /// A literal, a length or the end of the block.
    Token {
        /// Whether the block is the last one of its stream.
        is_final: bool,
    },
    /// The header of a block.
    Header,
    /// Bytes of a stored block.
    Stored {
        /// Whether the block is the last one of its stream.
        is_final: bool,
    },
    /// Nothing: the stream has ended.
    Ended,
}

impl Parser {
    fn number(self) -> u16 {
        match self {
            Parser::Token { is_final } => 4 * u16::from(is_final),
            Parser::Header => 1,
            Parser::Stored { is_final } => 2 + 4 * u16::from(is_final),
            Parser::Ended => 8,
        }
    }

    fn of(number: u16) -> Option<Parser> {
        let is_final = number & 4 != 0;
        match number {
            0 | 4 => Some(Parser::Token { is_final }),
            1 => Some(Parser::Header),
            2 | 6 => Some(Parser::Stored { is_final }),
            8 => Some(Parser::Ended),
            _ => None,
        }
    }
}

impl DecompressState {
    /// Bytes of the state that are read if no history is needed and the device can load a part
    /// ([`PARTIAL_STATE`](crate::device::iaa_cap::PARTIAL_STATE)).
    pub const PARTIAL_BYTES: usize = 0x4E0;

    /// A state at the header of a stream's first block, without history.
    pub fn new() -> DecompressState {
        let mut state = DecompressState([0; 0x1500]);
        state.set_parser(Parser::Header);
        state
    }

    /// A state inside a stream's last block, whose codes have these lengths. It decompresses a canned block.
    pub fn canned(literals: &[u8], distances: &[u8]) -> Result<DecompressState, CodeLengthError> {
        let mut state = DecompressState::new();
        state.set_codes(literals, distances)?;
        state.set_parser(Parser::Token { is_final: true });
        Ok(state)
    }

    /// The item that the parser expects next; `None` for a number without a meaning.
    pub fn parser(&self) -> Option<Parser> {
        Parser::of(u16::from_le_bytes([self.0[PARSER], self.0[PARSER + 1]]))
    }

    /// Sets the item that the parser expects next.
    pub fn set_parser(&mut self, parser: Parser) -> &mut DecompressState {
        self.0[PARSER..PARSER + 2].copy_from_slice(&parser.number().to_le_bytes());
        self
    }

    /// Sets the codes of both alphabets, from the lengths of their symbols, in format 1.
    pub fn set_codes(&mut self, literals: &[u8], distances: &[u8]) -> Result<(), CodeLengthError> {
        let (literals, distances) =
            (words_of::<{ LITERALS + 2 }>(literals)?, words_of::<{ DISTANCES + 2 }>(distances)?);
        self.set_code_words(&literals, &distances);
        Ok(())
    }

    /// Sets canonical codes, in format 1.
    pub(crate) fn set_code_words(
        &mut self,
        literals: &[u32; LITERALS + 2],
        distances: &[u32; DISTANCES + 2],
    ) {
        let [mut first_index, mut counts, mut first_code] = [[0u16; BITS_MAX]; 3];
        let mut first_length_code = [u16::MAX; BITS_MAX];
        literals[..MAPPED]
            .iter()
            .filter(|&&word| word != 0)
            .for_each(|word| counts[(word >> 15) as usize - 1] += 1);
        (1..BITS_MAX).for_each(|at| first_index[at] = first_index[at - 1] + counts[at - 1]);
        let mut next = first_index;
        let mut mapping = [0; MAPPED];
        for (symbol, &word) in literals[..MAPPED].iter().enumerate().filter(|(_, word)| **word != 0) {
            let (at, code) = ((word >> 15) as usize - 1, word as u16 & 0x7FFF);
            if next[at] == first_index[at] {
                first_code[at] = code;
            }
            if symbol >= 256 {
                first_length_code[at] = first_length_code[at].min(code);
            }
            mapping[usize::from(next[at])] = symbol as u8;
            next[at] += 1;
        }
        self.set_packed(FIRST_INDEX, &first_index);
        self.set_packed(COUNTS, &counts);
        self.set_packed(FIRST_CODE, &first_code);
        self.set_packed(FIRST_LENGTH_CODE, &first_length_code);
        self.0[MAPPING..MAPPING + MAPPED].copy_from_slice(&mapping);
        self.set_dword(END_OF_BLOCK, literals[256]);
        for (at, &word) in literals[MAPPED..].iter().enumerate() {
            self.set_dword(LENGTH_CODES + 4 * at, word);
        }
        for (at, &word) in distances.iter().enumerate() {
            self.set_dword(DISTANCE_CODES + 4 * at, word);
        }
        let lengths = literals[257..LITERALS].iter().map(|word| word >> 15);
        self.set_dword(SHORTEST_LENGTH, lengths.filter(|&length| length > 0).min().unwrap_or(0));
        (self.0[0xB0], self.0[0x1DD]) = (self.0[0xB0] & !1, self.0[0x1DD] & !1);
    }

    /// The bytes that hold the codes.
    pub(crate) fn code_bytes(&self) -> &[u8] {
        &self.0[END_OF_BLOCK..MAPPING + MAPPED]
    }

    /// The code words that are set, by symbol, with those of the two unused symbols of each alphabet. `None` if the
    /// tables contradict themselves, or are in format 2.
    pub fn code_words(&self) -> Option<([u32; LITERALS + 2], [u32; DISTANCES + 2])> {
        if self.0[0x1DD] & 1 == 1 {
            return None;
        }
        let mut literals = [0; LITERALS + 2];
        let [first_index, counts, first_code, first_length_code] =
            [FIRST_INDEX, COUNTS, FIRST_CODE, FIRST_LENGTH_CODE].map(|at| self.packed(at));
        for at in 0..BITS_MAX {
            let none = (4 << at) - 1;
            for rank in 0..counts[at] {
                let index = usize::from(first_index[at]) + usize::from(rank);
                let low = *self.0[MAPPING..MAPPING + MAPPED].get(index)?;
                let code = u32::from(first_code[at]) + u32::from(rank);
                let first_length = u32::from(first_length_code[at]);
                let symbol =
                    usize::from(low) + if first_length != none && code >= first_length { 256 } else { 0 };
                let word =
                    literals[..MAPPED].get_mut(symbol).filter(|word| **word == 0 && code >> (at + 1) == 0)?;
                *word = code | (at as u32 + 1) << 15;
            }
        }
        if literals[256] != self.dword(END_OF_BLOCK) {
            return None;
        }
        let lengths = literals[MAPPED..].iter_mut().enumerate();
        lengths.for_each(|(symbol, word)| *word = self.dword(LENGTH_CODES + 4 * symbol));
        Some((literals, std::array::from_fn(|symbol| self.dword(DISTANCE_CODES + 4 * symbol))))
    }

    /// Presets history: bytes to which the stream may refer as if they stood before it. Of more than [`HISTORY_BYTES`]
    /// bytes, only the last ones count.
    pub fn set_history(&mut self, history: &[u8]) -> &mut DecompressState {
        let history = &history[history.len().saturating_sub(HISTORY_BYTES)..];
        self.0[HISTORY..HISTORY + HISTORY_BYTES].fill(0);
        self.0[HISTORY..HISTORY + history.len()].copy_from_slice(history);
        let is_full = history.len() == HISTORY_BYTES;
        self.set_history_offset(history.len() as u16 | u16::from(is_full) << 15)
    }

    /// The history, oldest byte first: a tail and a head of the ring.
    pub fn history(&self) -> (&[u8], &[u8]) {
        let offset = self.history_offset();
        let at = usize::from(offset & 0x7FFF);
        let ring = &self.0[HISTORY..HISTORY + HISTORY_BYTES];
        match offset >> 15 {
            0 => (&[], &ring[..at.min(HISTORY_BYTES)]),
            _ => (&ring[at % HISTORY_BYTES..], &ring[..at % HISTORY_BYTES]),
        }
    }

    /// Adds bits that come before source 1, such as the rest of a byte if a block begins inside a byte. The first is
    /// the lowest. `false` if the input accumulator has no free word.
    #[must_use]
    pub fn push_input(&mut self, bits: u64, count: u8) -> bool {
        let free = (0..32).rev().take_while(|&word| self.0[INPUT_BITS + word] == 0).last();
        let Some(word) = free.filter(|_| count <= 64) else { return false };
        let mask = if count == 64 { u64::MAX } else { (1 << count) - 1 };
        self.0[INPUT + 8 * word..INPUT + 8 * word + 8].copy_from_slice(&(bits & mask).to_le_bytes());
        self.0[INPUT_BITS + word] = count;
        true
    }

    /// The non-empty words of the input accumulator, each with its number of bits. More than 64 is not valid.
    pub fn input(&self) -> impl Iterator<Item = (u64, u8)> + '_ {
        let words = self.0[INPUT..INPUT_BITS].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        words.zip(self.0[INPUT_BITS..INPUT_BITS + 32].iter().copied()).filter(|&(_, bits)| bits > 0)
    }

    /// Empties the input accumulator.
    pub fn clear_input(&mut self) {
        self.0[INPUT..INPUT_BITS + 32].fill(0);
    }

    fn packed(&self, at: usize) -> [u16; BITS_MAX] {
        unpack(&std::array::from_fn(|word| self.dword(at + 4 * word)))
    }

    fn set_packed(&mut self, at: usize, numbers: &[u16; BITS_MAX]) {
        pack(numbers).into_iter().enumerate().for_each(|(word, value)| self.set_dword(at + 4 * word, value));
    }

    fields! {
        /// CRC of the bytes of earlier jobs, 0 for none.
        crc set_crc 0 u32;
        /// XOR checksum of the bytes of earlier jobs.
        xor set_xor 4 u32;
        /// Low parameter of a filter.
        filter_low set_filter_low 8 u32;
        /// High parameter of a filter.
        filter_high set_filter_high 0xC u32;
        /// Index of the first element, where a filter writes indices.
        output_index set_output_index 0x10 u32;
        /// Decompressed bytes to drop before filtering, at most 65,535.
        drop_initial_bytes set_drop_initial_bytes 0x14 u32;
        /// Output that did not fill a byte.
        output_accumulator set_output_accumulator 0xA8 u64;
        /// Valid bits of the output accumulator; bit 0 is the format of the state.
        output_bits set_output_bits 0xB0 u32;
        /// Initial bits to drop.
        drop_initial_bits set_drop_initial_bits 0x1DC u8;
        /// Bit 0: the state is in format 2.
        format set_format 0x1DD u8;
        /// Bits of the input that were not processed.
        unprocessed_bits set_unprocessed_bits 0x436 u16;
        /// Bytes of a stored block to come.
        stored_bytes set_stored_bytes 0x438 u32;
        /// Length (bits 0-8) and distance (bits 16-28) of a match whose bytes are to come.
        pending_match set_pending_match 0x43C u32;
        /// The position of the next byte in the history. Bit 15 is set once the history has been filled.
        history_offset set_history_offset 0x4E4 u16;
    }
}

impl Default for DecompressState {
    fn default() -> DecompressState {
        DecompressState::new()
    }
}

/// Parameters of a filter whose input is not compressed: the first 32 bytes of a [`DecompressState`].
#[derive(Clone, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct FilterState([u8; 0x20]);

state!(FilterState, 0x20, 32);

impl FilterState {
    /// Parameters that are all 0.
    pub const fn new() -> FilterState {
        FilterState([0; 0x20])
    }

    /// The two parameters: bounds of a scan's values, or first and last index of an extract.
    pub fn range(low: u32, high: u32) -> FilterState {
        let mut state = FilterState::new();
        state.set_low(low).set_high(high);
        state
    }

    fields! {
        /// CRC of the bytes of earlier jobs, 0 for none.
        crc set_crc 0 u32;
        /// XOR checksum of the bytes of earlier jobs.
        xor set_xor 4 u32;
        /// Low parameter.
        low set_low 8 u32;
        /// High parameter.
        high set_high 0xC u32;
        /// Index of the first element, where a filter writes indices.
        output_index set_output_index 0x10 u32;
        /// Bytes to drop before filtering, at most 65,535.
        drop_initial_bytes set_drop_initial_bytes 0x14 u32;
    }
}

impl Default for FilterState {
    fn default() -> FilterState {
        FilterState::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aecs::{CompressState, fixed_distance_lengths, fixed_literal_lengths};

    #[test]
    fn the_state_of_fixed_codes_has_the_bytes_of_the_interface() {
        let state = DecompressState::canned(&fixed_literal_lengths(), &fixed_distance_lengths()).unwrap();
        let bytes = state.as_bytes();
        let dwords = |at: usize| -> [u32; 5] {
            std::array::from_fn(|i| u32::from_le_bytes(bytes[at + 4 * i..][..4].try_into().unwrap()))
        };
        // Lengths 7, 8 and 9 have 9 (256 to 264), 144 and 112 codes of the mapping table.
        assert_eq!(dwords(0x1F4), [0, 9 | 144 << 8 | 112 << 17, 0, 0, 0]);
        // They begin at 0, 9 and 153 of the table; longer ones would begin behind them all.
        assert_eq!(dwords(0x1E0)[1], 9 << 8 | 153 << 17);
        assert_eq!(dwords(0x1E0)[2], 265 | 265 << 11);
        // The first codes are 0, 0x30 and 0x190; only those of length 7 begin with a length.
        assert_eq!(dwords(0x208), [0, 0x30 << 8 | 0x190 << 17, 0, 0, 0]);
        assert_eq!(
            dwords(0x21C),
            [0x07FF_FFFF, 0x1FF << 8 | 0x3FF << 17, 0x007F_FFFF, 0x07FF_FFFF, 0x7FFF_FFFF]
        );
        assert_eq!(bytes[0x328..0x328 + 11], [0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1]);
        assert_eq!(bytes[0x328 + 264], 255);
        assert_eq!(bytes[0x1D8..0x1DC], [0, 0x80, 0x03, 0]);
        assert_eq!(bytes[0x434..0x436], [4, 0]);
        let (literals, distances) = state.code_words().unwrap();
        let compress = CompressState::fixed(true);
        assert!((0..LITERALS).all(|symbol| literals[symbol] == compress.literal_code(symbol)));
        assert!((0..DISTANCES).all(|symbol| distances[symbol] == compress.distance_code(symbol)));
    }

    #[test]
    fn incomplete_and_empty_codes_come_back() {
        for (literals, distances) in
            [(vec![], vec![]), (vec![0, 1], vec![3]), ([vec![0; 256], vec![15]].concat(), vec![1])]
        {
            let state = DecompressState::canned(&literals, &distances).unwrap();
            let (words, distance_words) = state.code_words().unwrap();
            let length_of = |lengths: &[u8], symbol: usize| lengths.get(symbol).copied().map_or(0, u32::from);
            assert!((0..LITERALS).all(|symbol| words[symbol] >> 15 == length_of(&literals, symbol)));
            assert!(
                (0..DISTANCES).all(|symbol| distance_words[symbol] >> 15 == length_of(&distances, symbol))
            );
        }
    }

    #[test]
    fn tables_that_contradict_themselves_are_refused() {
        let mut state = DecompressState::canned(&fixed_literal_lengths(), &fixed_distance_lengths()).unwrap();
        state.as_mut_bytes()[0x329] = 0;
        assert_eq!(state.code_words(), None);
        let mut state = DecompressState::new();
        state.set_format(1);
        assert_eq!(state.code_words(), None);
    }

    #[test]
    fn history_is_written_from_the_beginning() {
        let mut state = DecompressState::new();
        state.set_history(b"abc");
        assert_eq!((state.history_offset(), &state.as_bytes()[0x4E8..0x4EC]), (3, &b"abc\0"[..]));
        assert_eq!(state.history(), (&b""[..], &b"abc"[..]));
        let long: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
        state.set_history(&long);
        assert_eq!(state.history_offset(), 0x9000);
        assert_eq!(state.history(), (&long[904..], &b""[..]));
        state.set_history_offset(0x8000 | 10);
        assert_eq!(state.history(), (&long[914..], &long[904..914]));
    }

    #[test]
    fn fields_lie_where_the_interface_has_them() {
        let mut state = DecompressState::new();
        assert_eq!((state.as_bytes()[0x434], state.parser()), (1, Some(Parser::Header)));
        state.set_crc(1).set_xor(2).set_filter_low(3).set_filter_high(4).set_output_index(5);
        state.set_drop_initial_bytes(6).set_output_accumulator(7).set_output_bits(8).set_drop_initial_bits(9);
        let bytes = state.as_bytes();
        assert_eq!(
            [0, 4, 8, 0xC, 0x10, 0x14, 0xA8, 0xB0, 0x1DC].map(|at| bytes[at]),
            [1, 2, 3, 4, 5, 6, 7, 8, 9]
        );
        assert!(state.push_input(0b10110, 3) && state.push_input(0xFF, 5));
        assert_eq!([0xB8, 0xC0, 0x1B8, 0x1B9].map(|at| state.as_bytes()[at]), [0b110, 0x1F, 3, 5]);
        assert_eq!(state.input().collect::<Vec<_>>(), [(0b110, 3), (0x1F, 5)]);
        state.set_parser(Parser::Stored { is_final: true });
        assert_eq!((state.as_bytes()[0x434], state.parser()), (6, Some(Parser::Stored { is_final: true })));
        let filter = FilterState::range(0x11, 0x22);
        assert_eq!([8, 0xC].map(|at| filter.as_bytes()[at]), [0x11, 0x22]);
    }
}
