//! Codes of one block, for whoever writes its symbols elsewhere: an accelerator counts symbols, we make the codes and the
//! header, and the accelerator writes the block.

use crate::bits::{BitWriter, SLACK_BYTES};
use crate::header::{HEADER_BITS_MAX, Header};
use crate::huffman::{BITS_MAX, limited_lengths};
use crate::symbols::{DISTANCE_EXTRA, DISTANCES_ANY, END_OF_BLOCK, LENGTH_EXTRA, LITERALS};

/// Lengths of the codes of one block, by symbol: none is longer than 15 bits, 0 for symbols without a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockCodes {
    /// Literals, the end of the block (256) and lengths.
    pub literals: [u8; LITERALS],
    /// Distances.
    pub distances: [u8; DISTANCES_ANY],
}

impl BlockCodes {
    /// The codes that make a block with so many of each symbol shortest. The end of the block is given a code in any case.
    pub fn of_counts(literals: &[u32; LITERALS], distances: &[u32; DISTANCES_ANY]) -> BlockCodes {
        let mut codes = BlockCodes { literals: [0; LITERALS], distances: [0; DISTANCES_ANY] };
        let mut literals = *literals;
        literals[END_OF_BLOCK] = literals[END_OF_BLOCK].max(1);
        limited_lengths(&literals, BITS_MAX, &mut codes.literals);
        limited_lengths(distances, BITS_MAX, &mut codes.distances);
        codes
    }

    /// Writes the header of a block with these codes, the three bits of its type first, and returns how many bits it has; no more
    /// than `8 * BlockCodes::HEADER_BYTES`. What stands behind them is of no meaning.
    pub fn write_header(&self, is_final: bool, header: &mut [u8; BlockCodes::HEADER_BYTES]) -> usize {
        let mut target = BitWriter::new(header);
        target.put(0b100 | u64::from(is_final), 3);
        let fits = Header::new(&self.literals, &self.distances).write(&mut target);
        assert!(fits && target.flush(), "a header has bounded length");
        target.bits()
    }

    /// Bytes that a header needs at most, and some more.
    pub const HEADER_BYTES: usize = HEADER_BITS_MAX / 8 + 1 + 2 * SLACK_BYTES;

    /// Bits of a block with so many of each symbol, less its header.
    pub fn data_bits(&self, literals: &[u32; LITERALS], distances: &[u32; DISTANCES_ANY]) -> u64 {
        let cost = |counts: &[u32], lengths: &[u8]| -> u64 {
            counts.iter().zip(lengths).map(|(&count, &length)| u64::from(count) * u64::from(length)).sum()
        };
        cost(literals, &self.literals)
            + cost(&literals[257..], &LENGTH_EXTRA)
            + cost(distances, &self.distances)
            + cost(distances, &DISTANCE_EXTRA)
    }

    /// The codes of RFC 1951, section 3.2.6.
    pub fn fixed() -> BlockCodes {
        let literals = std::array::from_fn(|symbol| match symbol {
            0..144 => 8,
            144..256 => 9,
            256..280 => 7,
            _ => 8,
        });
        BlockCodes { literals, distances: [5; DISTANCES_ANY] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, Dictionary, Huffman};

    fn counts() -> ([u32; LITERALS], [u32; DISTANCES_ANY]) {
        let (mut literals, mut distances) = ([0; LITERALS], [0; DISTANCES_ANY]);
        b"abracadabra".iter().for_each(|&byte| literals[usize::from(byte)] += 1);
        (literals[258], distances[3]) = (2, 2);
        (literals, distances)
    }

    #[test]
    fn a_block_with_these_codes_is_read_by_our_decoder() {
        let (literals, distances) = counts();
        let codes = BlockCodes::of_counts(&literals, &distances);
        let mut header = [0; BlockCodes::HEADER_BYTES];
        let bits = codes.write_header(true, &mut header);
        // Behind the header, only the end of the block.
        let mut target = vec![0; header.len() + SLACK_BYTES];
        let mut writer = BitWriter::new(&mut target);
        (0..bits).for_each(|bit| {
            writer.put(u64::from(header[bit / 8] >> (bit % 8) & 1), 1);
            assert!(writer.flush());
        });
        crate::codes::Codes::new(&codes.literals, &codes.distances).put_literal(&mut writer, END_OF_BLOCK);
        let length = writer.finish().unwrap();
        let mut raw = Vec::new();
        let dictionary = Dictionary::new(&[]);
        Decoder::new(&dictionary).decompress(Huffman::Dynamic, &target[..length], &mut raw, 10).unwrap();
        assert!(raw.is_empty());
    }

    #[test]
    fn the_end_of_a_block_has_a_code_and_own_codes_are_shorter() {
        let (literals, distances) = counts();
        let codes = BlockCodes::of_counts(&literals, &distances);
        assert!(codes.literals[256] > 0);
        assert!(
            codes.data_bits(&literals, &distances) < BlockCodes::fixed().data_bits(&literals, &distances)
        );
        let fixed = BlockCodes::fixed().data_bits(&literals, &distances);
        // 11 literals of 8 bits, twice a length of 7 bits and a distance of 5.
        assert_eq!(fixed, 11 * 8 + 2 * (7 + 5));
    }

    #[test]
    fn no_header_is_too_long() {
        let mut header = [0; BlockCodes::HEADER_BYTES];
        let literals = std::array::from_fn(|symbol| 1 << (symbol * 7 % 19));
        let distances = std::array::from_fn(|symbol| 1 << (symbol * 5 % 13));
        let bits = BlockCodes::of_counts(&literals, &distances).write_header(false, &mut header);
        assert!(bits < 8 * BlockCodes::HEADER_BYTES);
        assert_eq!(header[0] & 7, 0b100);
    }
}
