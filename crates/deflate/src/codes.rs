//! Codes as an encoder writes them, and their costs.

use crate::bits::BitWriter;
use crate::error::Fault;
use crate::huffman::Canonical;
use crate::parse::Token;
use crate::symbols::{
    DISTANCE_BASE, DISTANCE_EXTRA, DISTANCES, END_OF_BLOCK, LENGTH_BASE, LENGTH_EXTRA, LENGTH_MAX,
    LENGTH_MIN, distance_symbol, length_symbol,
};

/// Bits from 0 on, how many they are from bit 24 on. A length has its extra bits.
#[derive(Clone)]
pub(crate) struct Codes {
    /// Literals, the end of the block, and from [`LENGTHS`] on lengths.
    symbols: [u32; LENGTHS + LENGTH_MAX - LENGTH_MIN + 1],
    /// By symbol, and last nothing.
    distances: [u32; DISTANCES + 1],
}

/// The index of the shortest length.
const LENGTHS: usize = END_OF_BLOCK + 1;

/// Base and extra bits of distance symbols, and of nothing.
const DISTANCE: [(u16, u8); DISTANCES + 1] = {
    let mut all = [(0, 0); DISTANCES + 1];
    let mut symbol = 0;
    while symbol < DISTANCES {
        all[symbol] = (DISTANCE_BASE[symbol], DISTANCE_EXTRA[symbol]);
        symbol += 1;
    }
    all
};

impl Codes {
    /// Codes of these lengths, which make complete codes.
    pub(crate) fn new(literals: &[u8], distances: &[u8]) -> Codes {
        let mut codes =
            Codes { symbols: [0; LENGTHS + LENGTH_MAX - LENGTH_MIN + 1], distances: [0; DISTANCES + 1] };
        for_each_code(literals, |symbol, code, bits| {
            if symbol <= END_OF_BLOCK {
                codes.symbols[symbol] = code | bits << 24;
            } else if let Some(&base) = LENGTH_BASE.get(symbol - 257) {
                let (base, extra_bits) =
                    (usize::from(base) - LENGTH_MIN, u32::from(LENGTH_EXTRA[symbol - 257]));
                // Length 258 has a symbol of its own, which may come before or behind that of the lengths below it.
                let count = (1usize << extra_bits).min(LENGTH_MAX - LENGTH_MIN - base).max(1);
                let slots = codes.symbols[LENGTHS..].iter_mut().skip(base).take(count);
                slots
                    .zip(0..)
                    .for_each(|(slot, extra)| *slot = code | extra << bits | (bits + extra_bits) << 24);
            }
        });
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
        let code = self.symbols[symbol];
        target.put(u64::from(code & 0x00FF_FFFF), code >> 24);
    }

    /// Adds a match, at most 20 and 25 bits.
    #[inline(always)]
    pub(crate) fn put_match(&self, target: &mut BitWriter<'_>, length: usize, distance: usize) {
        self.put(target, LENGTHS + ((length - LENGTH_MIN) & 255), distance_symbol(distance), distance);
    }

    /// Adds a literal or a match. The order of literals and matches is unpredictable, so there is no branch.
    #[inline(always)]
    pub(crate) fn put_token(&self, target: &mut BitWriter<'_>, token: Token) {
        let (length, low) = ((token >> 16) as usize, token as usize & 0xFFFF);
        let is_match = length > 0;
        let symbol = if is_match { LENGTHS - LENGTH_MIN + (length & 511) } else { low & 255 };
        let distance = if is_match { low } else { 0 };
        let near = distance.wrapping_sub(1);
        let slot = if near < 256 { near } else { 256 + (near >> 7 & 127) };
        let of_distance = if is_match { usize::from(DISTANCE_SYMBOL[slot]) } else { DISTANCES };
        self.put(target, symbol, of_distance, distance);
    }

    #[inline(always)]
    fn put(&self, target: &mut BitWriter<'_>, symbol: usize, of_distance: usize, distance: usize) {
        let code = self.symbols[symbol];
        target.put(u64::from(code & 0x00FF_FFFF), code >> 24);
        let code = self.distances[of_distance];
        let (base, extra_bits) = DISTANCE[of_distance];
        let extra = (distance - usize::from(base)) as u64;
        let bits = u64::from(code & 0x00FF_FFFF) | extra << (code >> 24);
        target.put(bits, (code >> 24) + u32::from(extra_bits));
    }
}

/// The symbols of distances less one up to 255, and from 256 on those of every 128th one.
const DISTANCE_SYMBOL: [u8; 256 + 128] = {
    let mut symbols = [0; 256 + 128];
    let mut slot = 0;
    while slot < symbols.len() {
        let less = if slot < 256 { slot } else { (slot - 256) << 7 };
        let mut symbol = 0;
        while symbol + 1 < DISTANCES && less + 1 >= DISTANCE_BASE[symbol + 1] as usize {
            symbol += 1;
        }
        symbols[slot] = symbol as u8;
        slot += 1;
    }
    symbols
};

/// Calls `each` with symbol, code (first bit lowest) and bits.
fn for_each_code(lengths: &[u8], mut each: impl FnMut(usize, u32, u32)) {
    let code = Canonical::new(lengths, Fault::OverSubscribed, Fault::Incomplete);
    let code = code.expect("an encoder's codes are complete");
    code.for_each(|symbol, bits, reversed| each(symbol, reversed as u32, bits as u32));
}

/// The costs of symbols in bits, extra bits included.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::SLACK_BYTES;
    use crate::symbols::LITERALS;

    /// The extra bits of the symbol before the last one could express 258, too, and RFC 1951 has no such length there.
    #[test]
    fn the_longest_match_has_its_own_symbol_whichever_code_is_shorter() {
        for (before, last) in [(2, 1), (1, 2)] {
            let mut literals = [0; LITERALS];
            (literals[END_OF_BLOCK], literals[284], literals[285]) = (2, before, last);
            let codes = Codes::new(&literals, &[1, 1]);
            let bits = |length: usize| {
                let mut target = [0; 2 * SLACK_BYTES];
                let mut writer = BitWriter::new(&mut target);
                codes.put_match(&mut writer, length, 1);
                writer.bits()
            };
            assert_eq!(bits(LENGTH_MAX), usize::from(last) + 1);
            assert_eq!(bits(LENGTH_MAX - 1), usize::from(before) + 5 + 1);
        }
    }
}
