//! The two alphabets of DEFLATE (RFC 1951, section 3.2.5).
//!
//! Literals, the end of a block and lengths share one alphabet, distances have the other. A length or distance is a
//! symbol and some extra bits.

/// The symbol that ends a block.
pub(crate) const END_OF_BLOCK: usize = 256;

/// Symbols of literals, end of block and lengths that may be used.
pub(crate) const LITERALS: usize = 286;

/// Symbols of distances that RFC 1951 knows.
pub(crate) const DISTANCES_ANY: usize = 30;

/// Symbols of distances up to [`WINDOW_BYTES`](crate::WINDOW_BYTES).
pub(crate) const DISTANCES: usize = 24;

/// The shortest and the longest match.
pub(crate) const LENGTH_MIN: usize = 3;
pub(crate) const LENGTH_MAX: usize = 258;

/// The shortest length of each symbol from 257 on.
pub(crate) const LENGTH_BASE: [u16; 29] = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
    227, 258,
];

/// The extra bits of each symbol from 257 on.
pub(crate) const LENGTH_EXTRA: [u8; 29] =
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];

/// The shortest distance of each symbol.
pub(crate) const DISTANCE_BASE: [u16; DISTANCES_ANY] = [
    1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073,
    4097, 6145, 8193, 12289, 16385, 24577,
];

/// The extra bits of each distance symbol.
pub(crate) const DISTANCE_EXTRA: [u8; DISTANCES_ANY] =
    [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];

/// For each length less 3, its symbol less 257.
const LENGTH_SYMBOL: [u8; 256] = {
    let mut symbols = [0; 256];
    let mut length = LENGTH_MIN;
    let mut symbol = 0;
    while length < LENGTH_MAX {
        if symbol < 27 && length >= LENGTH_BASE[symbol + 1] as usize {
            symbol += 1;
        }
        symbols[length - LENGTH_MIN] = symbol as u8;
        length += 1;
    }
    symbols[LENGTH_MAX - LENGTH_MIN] = 28;
    symbols
};

/// The symbol of a length, less 257.
#[inline]
pub(crate) fn length_symbol(length: usize) -> usize {
    usize::from(LENGTH_SYMBOL[(length - LENGTH_MIN) & 255])
}

/// The symbol of a distance from 1 to 32,768.
#[inline]
pub(crate) fn distance_symbol(distance: usize) -> usize {
    let less = distance - 1;
    if less < 4 {
        return less;
    }
    let top = less.ilog2() as usize;
    2 * top + (less >> (top - 1) & 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_distance_lies_in_its_symbol() {
        for length in LENGTH_MIN..=LENGTH_MAX {
            let symbol = length_symbol(length);
            let extra = length - usize::from(LENGTH_BASE[symbol]);
            assert!(extra < 1 << LENGTH_EXTRA[symbol], "{length}");
        }
        for distance in 1..=32_768 {
            let symbol = distance_symbol(distance);
            let extra = distance - usize::from(DISTANCE_BASE[symbol]);
            assert!(extra < 1 << DISTANCE_EXTRA[symbol], "{distance}");
        }
        assert_eq!(length_symbol(258), 28);
        assert_eq!(distance_symbol(crate::WINDOW_BYTES), DISTANCES - 1);
    }
}
