//! Codes as an encoder writes them, and what they cost.

use crate::bits::BitWriter;
use crate::error::Fault;
use crate::huffman::Canonical;
use crate::symbols::{
    DISTANCE_BASE, DISTANCE_EXTRA, DISTANCES, END_OF_BLOCK, LENGTH_BASE, LENGTH_EXTRA, LENGTH_MAX,
    LENGTH_MIN, distance_symbol, length_symbol,
};

/// Bits from 0 on, how many they are from bit 24 on. A length has its extra bits.
#[derive(Clone)]
pub(crate) struct Codes {
    /// Literals and the end of the block.
    pub(crate) literals: [u32; 257],
    lengths: [u32; LENGTH_MAX - LENGTH_MIN + 1],
    distances: [u32; DISTANCES],
}

impl Codes {
    /// Codes of these lengths, which make complete codes.
    pub(crate) fn new(literals: &[u8], distances: &[u8]) -> Codes {
        let mut codes = Codes { literals: [0; 257], lengths: [0; 256], distances: [0; DISTANCES] };
        for_each_code(literals, |symbol, code, bits| {
            if symbol <= END_OF_BLOCK {
                codes.literals[symbol] = code | bits << 24;
            } else if let Some(&base) = LENGTH_BASE.get(symbol - 257) {
                let (base, extra_bits) =
                    (usize::from(base) - LENGTH_MIN, u32::from(LENGTH_EXTRA[symbol - 257]));
                // Length 258 has a symbol of its own, which comes last.
                let slots = codes.lengths.iter_mut().skip(base).take(1 << extra_bits);
                slots
                    .zip(0..)
                    .for_each(|(slot, extra)| *slot = code | extra << bits | (bits + extra_bits) << 24);
            }
        });
        if literals.len() > 285 && literals[285] == 0 {
            codes.lengths[LENGTH_MAX - LENGTH_MIN] = 0;
        }
        for_each_code(distances, |symbol, code, bits| {
            if symbol < DISTANCES {
                codes.distances[symbol] = code | bits << 24;
            }
        });
        codes
    }

    /// Adds a literal or [`END_OF_BLOCK`], at most 15 bits.
    #[inline(always)]
    pub(crate) fn put_literal(&self, target: &mut BitWriter<'_>, symbol: usize) {
        let code = self.literals[symbol];
        target.put(u64::from(code & 0x00FF_FFFF), code >> 24);
    }

    /// Adds a match, at most 20 and 25 bits.
    #[inline(always)]
    pub(crate) fn put_match(&self, target: &mut BitWriter<'_>, length: usize, distance: usize) {
        let code = self.lengths[(length - LENGTH_MIN) & 255];
        target.put(u64::from(code & 0x00FF_FFFF), code >> 24);
        let symbol = distance_symbol(distance);
        let code = self.distances[symbol];
        let extra = (distance - usize::from(DISTANCE_BASE[symbol])) as u64;
        let bits = u64::from(code & 0x00FF_FFFF) | extra << (code >> 24);
        target.put(bits, (code >> 24) + u32::from(DISTANCE_EXTRA[symbol]));
    }
}

/// Calls `each` with symbol, code (first bit lowest) and bits.
fn for_each_code(lengths: &[u8], mut each: impl FnMut(usize, u32, u32)) {
    let code = Canonical::new(lengths, Fault::OverSubscribed, Fault::Incomplete);
    let code = code.expect("an encoder's codes are complete");
    code.for_each(|symbol, bits, reversed| each(symbol, reversed as u32, bits as u32));
}

/// What symbols cost in bits, extra bits included.
#[derive(Clone)]
pub(crate) struct Costs {
    pub(crate) literals: [u8; 256],
    /// By length less 3.
    pub(crate) lengths: [u8; LENGTH_MAX - LENGTH_MIN + 1],
    /// By symbol less 257, without extra bits.
    pub(crate) length_symbols: [u8; 29],
    /// By symbol.
    pub(crate) distances: [u8; DISTANCES],
}

impl Costs {
    /// Costs of codes with these lengths; a symbol without a code costs more than any other.
    pub(crate) fn new(literals: &[u8], distances: &[u8]) -> Costs {
        let bits = |lengths: &[u8], symbol: usize| match lengths.get(symbol) {
            None | Some(0) => 16,
            Some(&bits) => bits,
        };
        Costs {
            literals: std::array::from_fn(|literal| bits(literals, literal)),
            lengths: std::array::from_fn(|less| {
                let symbol = length_symbol(less + LENGTH_MIN);
                bits(literals, 257 + symbol) + LENGTH_EXTRA[symbol]
            }),
            length_symbols: std::array::from_fn(|symbol| bits(literals, 257 + symbol)),
            distances: std::array::from_fn(|symbol| bits(distances, symbol) + DISTANCE_EXTRA[symbol]),
        }
    }
}
