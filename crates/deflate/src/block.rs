//! Codes of a block's own, for a writer elsewhere: an accelerator counts symbols, and takes codes and header.

use crate::bits::{BitWriter, SLACK_BYTES};
use crate::header::{HEADER_BITS_MAX, Header};
use crate::huffman::limited_lengths;
use crate::symbols::{DISTANCES_ANY, END_OF_BLOCK, LITERALS};
use crate::tables::{DISTANCE_BITS, LITERAL_BITS};

/// Huffman codes for one block, and the header that states them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockCodes {
    /// Lengths of the codes of literals, the end of the block (256) and lengths; 0 for a symbol that does not occur.
    pub literals: [u8; LITERALS],
    /// Lengths of the codes of distances.
    pub distances: [u8; DISTANCES_ANY],
    /// The header, with the three bits of the block's type; the first bit is the lowest of the first byte.
    pub header: Vec<u8>,
    /// How many bits of the header count.
    pub header_bits: usize,
}

impl BlockCodes {
    /// Codes for symbols that occur so often; the end of the block is counted once where it was not. No code is longer than
    /// one look-up of this crate's decoder.
    pub fn new(literals: &[u32; LITERALS], distances: &[u32; DISTANCES_ANY], is_final: bool) -> BlockCodes {
        let mut counts = *literals;
        counts[END_OF_BLOCK] = counts[END_OF_BLOCK].max(1);
        let (mut lengths, mut distance_lengths) = ([0; LITERALS], [0; DISTANCES_ANY]);
        limited_lengths(&counts, LITERAL_BITS, &mut lengths);
        limited_lengths(distances, DISTANCE_BITS, &mut distance_lengths);
        let mut header = vec![0; HEADER_BITS_MAX / 8 + 1 + SLACK_BYTES];
        let mut target = BitWriter::new(&mut header);
        target.put(0b100 | u64::from(is_final), 3);
        let fits = Header::new(&lengths, &distance_lengths).write(&mut target);
        debug_assert!(fits, "a header has bounded length");
        let header_bits = target.bits();
        let bytes = target.finish().unwrap_or(0);
        header.truncate(bytes);
        BlockCodes { literals: lengths, distances: distance_lengths, header, header_bits }
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
        let mut packed = codes.header.clone();
        packed.push(0);
        for (bit, value) in [0, 0, 1, 0, 1, 1].into_iter().enumerate() {
            let at = codes.header_bits + bit;
            packed[at / 8] |= value << (at % 8);
        }
        packed.truncate((codes.header_bits + 6).div_ceil(8));
        let (dictionary, mut raw) = (Dictionary::new(b""), Vec::new());
        Decoder::new(&dictionary).decompress(Huffman::Dynamic, &packed, &mut raw, 10).unwrap();
        assert_eq!(raw, b"AAB");
    }
}
