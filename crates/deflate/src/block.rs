//! Codes of one block, for an external writer: an accelerator counts symbols, and takes codes and header.

use crate::bits::{BitWriter, SLACK_BYTES};
use crate::header::{HEADER_BITS_MAX, Header};
use crate::huffman::limited_lengths;
use crate::symbols::{DISTANCE_EXTRA, DISTANCES_ANY, END_OF_BLOCK, LENGTH_EXTRA, LITERALS};
use crate::tables::{DISTANCE_BITS, LITERAL_BITS};

/// Huffman codes for one block, and the header that states them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockCodes {
    /// Lengths of the codes of literals, the end of the block (256) and lengths; 0 for a symbol that does not occur.
    pub literals: [u8; LITERALS],
    /// Lengths of the codes of distances.
    pub distances: [u8; DISTANCES_ANY],
    /// The header, with the three bits of the block's type; the first bit is the lowest of the first byte.
    pub header: [u8; BlockCodes::HEADER_BYTES],
    /// The number of valid bits of the header; the others are 0.
    pub header_bits: usize,
}

impl BlockCodes {
    /// Bytes that hold any header.
    pub const HEADER_BYTES: usize = HEADER_BITS_MAX / 8 + 1 + SLACK_BYTES;

    /// Codes for symbols with these counts. An uncounted end of the block counts as one. No code is longer than one
    /// look-up of this crate's decoder.
    pub fn new(literals: &[u32; LITERALS], distances: &[u32; DISTANCES_ANY], is_final: bool) -> BlockCodes {
        let mut counts = *literals;
        counts[END_OF_BLOCK] = counts[END_OF_BLOCK].max(1);
        let (mut lengths, mut distance_lengths) = ([0; LITERALS], [0; DISTANCES_ANY]);
        limited_lengths(&counts, LITERAL_BITS, &mut lengths);
        limited_lengths(distances, DISTANCE_BITS, &mut distance_lengths);
        let mut header = [0; BlockCodes::HEADER_BYTES];
        let mut target = BitWriter::new(&mut header);
        target.put(0b100 | u64::from(is_final), 3);
        let fits = Header::new(&lengths, &distance_lengths).write(&mut target);
        let header_bits = target.bits();
        assert!(fits && target.finish().is_some(), "a header has bounded length");
        BlockCodes { literals: lengths, distances: distance_lengths, header, header_bits }
    }

    /// The codes of RFC 1951, section 3.2.6.
    pub fn fixed(is_final: bool) -> BlockCodes {
        let literals = std::array::from_fn(|symbol| match symbol {
            0..144 => 8,
            144..256 => 9,
            256..280 => 7,
            _ => 8,
        });
        let mut header = [0; BlockCodes::HEADER_BYTES];
        header[0] = 0b010 | u8::from(is_final);
        BlockCodes { literals, distances: [5; DISTANCES_ANY], header, header_bits: 3 }
    }

    /// Bits of a block with these codes and these counts of symbols. The header is included, and the end if it was
    /// counted.
    pub fn block_bits(&self, literals: &[u32; LITERALS], distances: &[u32; DISTANCES_ANY]) -> u64 {
        let cost = |counts: &[u32], lengths: &[u8]| -> u64 {
            counts.iter().zip(lengths).map(|(&count, &length)| u64::from(count) * u64::from(length)).sum()
        };
        self.header_bits as u64
            + cost(literals, &self.literals)
            + cost(&literals[257..], &LENGTH_EXTRA)
            + cost(distances, &self.distances)
            + cost(distances, &DISTANCE_EXTRA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, Dictionary, Huffman};

    #[test]
    fn header_and_codes_make_a_block() {
        let mut literals = [0; LITERALS];
        (literals[65], literals[66]) = (2, 1);
        let codes = BlockCodes::new(&literals, &[0; DISTANCES_ANY], true);
        assert_eq!((codes.literals[65], codes.literals[66], codes.literals[256]), (1, 2, 2));
        // A, A, B, end: 0, 0, 10, 11.
        let mut packed = codes.header.to_vec();
        packed.push(0);
        for (bit, value) in [0, 0, 1, 0, 1, 1].into_iter().enumerate() {
            let at = codes.header_bits + bit;
            packed[at / 8] |= value << (at % 8);
        }
        packed.truncate((codes.header_bits + 6).div_ceil(8));
        let (dictionary, mut raw) = (Dictionary::new(b""), Vec::new());
        Decoder::new(&dictionary).decompress(Huffman::Dynamic, &packed, &mut raw, 10).unwrap();
        assert_eq!(raw, b"AAB");
        assert_eq!(codes.block_bits(&literals, &[0; DISTANCES_ANY]), codes.header_bits as u64 + 4);
    }

    #[test]
    fn fixed_codes_cost_what_the_rfc_says() {
        let (mut literals, mut distances) = ([0; LITERALS], [0; DISTANCES_ANY]);
        // 'a' and 0xFF have 8 and 9 bits, a length of 13 to 16 7 and two more, a distance of 5 or 6 5 and one more.
        (literals[97], literals[255], literals[266], distances[4]) = (1, 1, 1, 1);
        assert_eq!(BlockCodes::fixed(true).block_bits(&literals, &distances), 3 + 8 + 9 + 7 + 1 + 5 + 1);
        assert_eq!((BlockCodes::fixed(true).header[0], BlockCodes::fixed(false).header[0]), (3, 2));
    }

    #[test]
    fn no_header_is_too_long() {
        let literals = std::array::from_fn(|symbol| 1 << (symbol * 7 % 19));
        let distances = std::array::from_fn(|symbol| 1 << (symbol * 5 % 13));
        let codes = BlockCodes::new(&literals, &distances, false);
        assert!(codes.header_bits < 8 * BlockCodes::HEADER_BYTES);
        assert_eq!(codes.header[0] & 7, 0b100);
    }
}
