//! Codes that serve many blocks: the fixed ones of RFC 1951 and the canned ones of a dictionary.

use crate::bits::{BitWriter, SLACK_BYTES};
use crate::codes::{Codes, Costs};
use crate::error::Fault;
use crate::header::{HEADER_BITS_MAX, Header};
use crate::huffman::SYMBOLS_MAX;
use crate::symbols::{DISTANCES, DISTANCES_ANY, LITERALS};
use crate::tables::Tables;
use std::sync::LazyLock;

/// Codes with the tables for both directions.
pub(crate) struct SharedCodes {
    pub(crate) codes: Codes,
    pub(crate) costs: Costs,
    /// For whole blocks.
    pub(crate) paired: Box<Tables>,
    /// For symbol by symbol.
    pub(crate) single: Box<Tables>,
}

impl SharedCodes {
    /// Prepares codes that give each symbol its length.
    pub(crate) fn new(literals: &[u8], distances: &[u8]) -> Result<SharedCodes, Fault> {
        let mut single = Box::<Tables>::default();
        single.build(literals, distances)?;
        let mut paired = single.clone();
        paired.pair();
        let codes = Codes::new(literals, distances);
        Ok(SharedCodes { costs: Costs::new(literals, distances), codes, paired, single })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.paired) + size_of_val(&*self.single)
    }

    /// The fixed codes.
    pub(crate) fn fixed() -> &'static SharedCodes {
        static FIXED: LazyLock<SharedCodes> = LazyLock::new(|| {
            let literals: [u8; SYMBOLS_MAX] = std::array::from_fn(|symbol| match symbol {
                0..144 => 8,
                144..256 => 9,
                256..280 => 7,
                _ => 8,
            });
            SharedCodes::new(&literals, &[5; 32]).expect("the fixed codes are complete")
        });
        &FIXED
    }
}

/// The lengths of canned codes: every symbol that a block within the window may need has a code.
#[derive(Clone, PartialEq, Eq)]
pub struct CannedLengths {
    pub(crate) literals: [u8; LITERALS],
    pub(crate) distances: [u8; DISTANCES],
}

/// The longest canned code of a literal or length.
pub(crate) const CANNED_LITERAL_BITS: usize = 15;

/// The longest canned code of a distance: one look-up finds any.
pub(crate) const CANNED_DISTANCE_BITS: usize = crate::tables::DISTANCE_BITS;

impl CannedLengths {
    /// Bytes of the stored form: four bits for each symbol.
    pub const BYTES: usize = (LITERALS + DISTANCES) / 2;

    /// Bits of the codes of literals, the end of the block (256) and lengths.
    pub fn literals(&self) -> &[u8] {
        &self.literals
    }

    /// Bits of the codes of distances up to the window.
    pub fn distances(&self) -> &[u8] {
        &self.distances
    }

    /// The stored form.
    pub fn to_bytes(&self) -> [u8; CannedLengths::BYTES] {
        let mut all = self.literals.iter().chain(&self.distances);
        std::array::from_fn(|_| all.next().map_or(0, |low| low | all.next().map_or(0, |high| high << 4)))
    }

    /// Reads the stored form. Codes that are not complete, or lack a symbol, are an error.
    pub fn from_bytes(bytes: &[u8; CannedLengths::BYTES]) -> Result<CannedLengths, Fault> {
        let mut all = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
        let mut next = || all.next().unwrap_or(0);
        let literals = std::array::from_fn(|_| next());
        let distances = std::array::from_fn(|_| next());
        let lengths = CannedLengths { literals, distances };
        let has_all =
            |lengths: &[u8], max: usize| lengths.iter().all(|&bits| (1..=max).contains(&usize::from(bits)));
        if !has_all(&lengths.literals, CANNED_LITERAL_BITS)
            || !has_all(&lengths.distances, CANNED_DISTANCE_BITS)
        {
            return Err(Fault::Incomplete);
        }
        let mut tables = Tables::default();
        tables.build(&lengths.literals, &lengths.distances)?;
        Ok(lengths)
    }

    /// The header of a final block with these codes: bytes, and the number of valid bits. A canned block behind these
    /// bits is an ordinary DEFLATE stream.
    pub fn header(&self) -> (Vec<u8>, usize) {
        let mut bytes = vec![0; HEADER_BITS_MAX / 8 + 1 + SLACK_BYTES];
        let mut target = BitWriter::new(&mut bytes);
        target.put(0b101, 3);
        let mut distances = [0; DISTANCES_ANY];
        distances[..DISTANCES].copy_from_slice(&self.distances);
        let fits = Header::new(&self.literals, &distances).write(&mut target);
        debug_assert!(fits, "a header has bounded length");
        let bits = target.bits();
        let length = target.finish().unwrap_or(0);
        bytes.truncate(length);
        (bytes, bits)
    }
}

impl std::fmt::Debug for CannedLengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CannedLengths")
            .field("literals", &&self.literals[..])
            .field("distances", &self.distances)
            .finish()
    }
}
