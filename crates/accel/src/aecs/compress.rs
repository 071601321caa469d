//! The state of compress jobs, and the histogram that such jobs can write instead of output.

use super::{CodeLengthError, DISTANCES, LITERALS, state, words_of};
use super::{fixed_distance_lengths, fixed_literal_lengths};

/// State of a compress job.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0x000 | 4 | CRC so far |
/// | 0x004 | 4 | XOR checksum so far |
/// | 0x008 | 20 | reserved |
/// | 0x01C | 4 | valid bits of the output accumulator |
/// | 0x020 | 256 | output accumulator: bits that come first in the output |
/// | 0x120 | 286 × 4 | code words of literals and lengths |
/// | 0x598 | 8 | reserved |
/// | 0x5A0 | 30 × 4 | code words of distances |
/// | 0x618 | 8 | reserved |
///
/// A code word holds the code in bits 0 to 14, first bit highest, and its length in bits 15 to 18. The word 0 marks a
/// symbol without a code. A job that needs this symbol ends with
/// [`NoCodeForSymbol`](crate::ErrorCode::NoCodeForSymbol).
#[derive(Clone, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct CompressState([u8; 0x620]);

state!(CompressState, 0x620, 32);

const ACCUMULATOR: usize = 0x20;
const LITERAL_CODES: usize = 0x120;
const DISTANCE_CODES: usize = 0x5A0;

impl CompressState {
    /// Bytes that the output accumulator holds.
    pub const ACCUMULATOR_BYTES: usize = 256;

    /// A state without codes.
    pub const fn new() -> CompressState {
        CompressState([0; 0x620])
    }

    /// A block with the codes of RFC 1951, section 3.2.6. Its header is in the accumulator.
    pub fn fixed(is_final: bool) -> CompressState {
        let mut state = CompressState::canned(&fixed_literal_lengths(), &fixed_distance_lengths())
            .expect("the fixed codes are codes");
        state.push_bits(&[0b010 | u8::from(is_final)], 3).expect("the accumulator is empty");
        state
    }

    /// A block with codes of these lengths and no header. Its reader gets the codes by another way.
    pub fn canned(literals: &[u8], distances: &[u8]) -> Result<CompressState, CodeLengthError> {
        let mut state = CompressState::new();
        state.set_codes(literals, distances)?;
        Ok(state)
    }

    /// A block with codes of these lengths, behind a header of `header_bits` bits. The header begins with the three
    /// bits of the block's type.
    pub fn dynamic(
        literals: &[u8],
        distances: &[u8],
        header: &[u8],
        header_bits: usize,
    ) -> Result<CompressState, CodeLengthError> {
        let mut state = CompressState::canned(literals, distances)?;
        state.push_bits(header, header_bits)?;
        Ok(state)
    }

    /// Sets the codes of both alphabets, from the lengths of their symbols.
    pub fn set_codes(&mut self, literals: &[u8], distances: &[u8]) -> Result<(), CodeLengthError> {
        let literals = words_of::<{ LITERALS + 2 }>(literals)?;
        let distances = words_of::<{ DISTANCES + 2 }>(distances)?;
        (0..LITERALS).for_each(|symbol| self.set_literal_code(symbol, literals[symbol]));
        (0..DISTANCES).for_each(|symbol| self.set_distance_code(symbol, distances[symbol]));
        Ok(())
    }

    /// Adds bits to the beginning of the output. The first is the lowest of the first byte.
    pub fn push_bits(&mut self, bytes: &[u8], bits: usize) -> Result<(), CodeLengthError> {
        let filled = self.accumulator_bits() as usize;
        if bytes.len() * 8 < bits || bits > (8 * Self::ACCUMULATOR_BYTES).saturating_sub(filled) {
            return Err(CodeLengthError::HeaderTooLong);
        }
        for bit in 0..bits {
            let value = bytes[bit / 8] >> (bit % 8) & 1;
            let at = filled + bit;
            let byte = &mut self.0[ACCUMULATOR + at / 8];
            *byte = *byte & !(1 << (at % 8)) | value << (at % 8);
        }
        self.set_accumulator_bits((filled + bits) as u32);
        Ok(())
    }

    /// The bits at the beginning of the output. [`accumulator_bits`](Self::accumulator_bits) of them are valid.
    pub fn accumulator(&self) -> &[u8] {
        &self.0[ACCUMULATOR..LITERAL_CODES]
    }

    /// The same, to be changed.
    pub fn accumulator_mut(&mut self) -> &mut [u8] {
        &mut self.0[ACCUMULATOR..LITERAL_CODES]
    }

    /// The code word of a literal, of the end of a block (256) or of a length.
    ///
    /// # Panics
    ///
    /// If there is no such symbol; the same holds for the three methods below.
    pub fn literal_code(&self, symbol: usize) -> u32 {
        assert!(symbol < LITERALS, "no such symbol");
        self.dword(LITERAL_CODES + 4 * symbol)
    }

    /// Sets a code word.
    pub fn set_literal_code(&mut self, symbol: usize, word: u32) {
        assert!(symbol < LITERALS, "no such symbol");
        self.set_dword(LITERAL_CODES + 4 * symbol, word);
    }

    /// The code word of a distance.
    pub fn distance_code(&self, symbol: usize) -> u32 {
        assert!(symbol < DISTANCES, "no such symbol");
        self.dword(DISTANCE_CODES + 4 * symbol)
    }

    /// Sets a code word.
    pub fn set_distance_code(&mut self, symbol: usize, word: u32) {
        assert!(symbol < DISTANCES, "no such symbol");
        self.set_dword(DISTANCE_CODES + 4 * symbol, word);
    }

    fields! {
        /// CRC of the bytes of earlier jobs, 0 for none.
        crc set_crc 0 u32;
        /// XOR checksum of the bytes of earlier jobs.
        xor set_xor 4 u32;
        /// Valid bits of the output accumulator.
        accumulator_bits set_accumulator_bits 0x1C u32;
    }
}

impl Default for CompressState {
    fn default() -> CompressState {
        CompressState::new()
    }
}

/// The number of occurrences of each symbol: the destination of a counting compress job.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0x000 | 286 × 4 | literals, end of block, lengths |
/// | 0x478 | 8 | reserved |
/// | 0x480 | 30 × 4 | distances |
/// | 0x4F8 | 8 | reserved |
#[derive(Clone, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Histogram([u8; 0x500]);

state!(Histogram, 0x500, 64);

impl Histogram {
    /// A histogram of nothing.
    pub const fn new() -> Histogram {
        Histogram([0; 0x500])
    }

    /// Counts of literals, the end of the block and lengths.
    pub fn literals(&self) -> [u32; LITERALS] {
        std::array::from_fn(|symbol| self.dword(4 * symbol))
    }

    /// Counts of distances.
    pub fn distances(&self) -> [u32; DISTANCES] {
        std::array::from_fn(|symbol| self.dword(0x480 + 4 * symbol))
    }

    /// Sets all counts.
    pub fn set(&mut self, literals: &[u32; LITERALS], distances: &[u32; DISTANCES]) {
        literals.iter().enumerate().for_each(|(symbol, &count)| self.set_dword(4 * symbol, count));
        distances.iter().enumerate().for_each(|(symbol, &count)| self.set_dword(0x480 + 4 * symbol, count));
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_state_has_the_bytes_of_the_interface() {
        let state = CompressState::fixed(true);
        let bytes = state.as_bytes();
        assert_eq!(bytes[..0x1C], [0; 0x1C]);
        assert_eq!(bytes[0x1C..0x22], [3, 0, 0, 0, 0b011, 0]);
        // Literal 0: code 0x30, 8 bits. Literal 144: code 0x190, 9 bits. End of block: code 0, 7 bits. Symbol 280:
        // 0xC0.
        assert_eq!(bytes[0x120..0x124], (0x30u32 | 8 << 15).to_le_bytes());
        assert_eq!(bytes[0x120 + 4 * 144..][..4], [0x90, 0x81, 0x04, 0]);
        assert_eq!(bytes[0x120 + 4 * 256..][..4], [0, 0x80, 0x03, 0]);
        assert_eq!(bytes[0x120 + 4 * 280..][..4], [0xC0, 0, 0x04, 0]);
        assert_eq!(bytes[0x598..0x5A0], [0; 8]);
        // Distance 29: code 29, 5 bits.
        assert_eq!(bytes[0x5A0 + 4 * 29..][..4], [29, 0x80, 0x02, 0]);
        assert_eq!(bytes[0x618..], [0; 8]);
        assert_eq!(CompressState::fixed(false).accumulator()[0], 0b010);
    }

    #[test]
    fn bits_follow_one_another() {
        let mut state = CompressState::new();
        state.push_bits(&[0b101], 3).unwrap();
        state.push_bits(&[0xFF, 0x01], 9).unwrap();
        assert_eq!((state.accumulator()[0], state.accumulator()[1]), (0b1111_1101, 0b1111));
        assert_eq!(state.accumulator_bits(), 12);
        assert_eq!(state.push_bits(&[0; 255], 8 * 255), Err(CodeLengthError::HeaderTooLong));
        assert_eq!(state.push_bits(&[0], 9), Err(CodeLengthError::HeaderTooLong));
    }

    #[test]
    fn seeds_and_counts_have_their_places() {
        let mut state = CompressState::new();
        state.set_crc(0x0403_0201).set_xor(0x0605);
        assert_eq!(state.as_bytes()[..8], [1, 2, 3, 4, 5, 6, 0, 0]);
        let mut histogram = Histogram::new();
        let (mut literals, mut distances) = ([0; LITERALS], [0; DISTANCES]);
        (literals[285], distances[0], distances[29]) = (7, 8, 9);
        histogram.set(&literals, &distances);
        assert_eq!([histogram.as_bytes()[0x474], histogram.as_bytes()[0x480]], [7, 8]);
        assert_eq!(histogram.as_bytes()[0x4F4], 9);
        assert_eq!((histogram.literals(), histogram.distances()), (literals, distances));
    }
}
