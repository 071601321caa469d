//! Fifteen numbers, one for each code length, in five double words.
//!
//! The number for length *i* has *i* + 1 bits. Lengths 1 to 6 lie in the first double word from bit 0 up, 7 to 9 in the
//! second. The others hold 10 and 11, 12 and 13, 14 and 15.

use super::BITS_MAX;

/// For each length from 1 on, its double word and first bit.
const PLACES: [(usize, u32); BITS_MAX] = [
    (0, 0),
    (0, 2),
    (0, 5),
    (0, 9),
    (0, 14),
    (0, 20),
    (1, 0),
    (1, 8),
    (1, 17),
    (2, 0),
    (2, 11),
    (3, 0),
    (3, 13),
    (4, 0),
    (4, 15),
];

/// Packs numbers of lengths 1 to 15.
pub(crate) fn pack(numbers: &[u16; BITS_MAX]) -> [u32; 5] {
    let mut words = [0; 5];
    for (length, (&number, (word, shift))) in (1..).zip(numbers.iter().zip(PLACES)) {
        words[word] |= (u32::from(number) & ((2 << length) - 1)) << shift;
    }
    words
}

/// The numbers of lengths 1 to 15.
pub(crate) fn unpack(words: &[u32; 5]) -> [u16; BITS_MAX] {
    std::array::from_fn(|i| {
        let (word, shift) = PLACES[i];
        (words[word] >> shift & ((4 << i) - 1)) as u16
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lie_where_the_interface_has_them() {
        // All bits set: what the interface calls "no codes for lengths".
        let all = pack(&[u16::MAX; BITS_MAX]);
        assert_eq!(all, [0x07FF_FFFF, 0x07FF_FFFF, 0x007F_FFFF, 0x07FF_FFFF, 0x7FFF_FFFF]);
        let first = pack(&[2, 1, 3, 0, 0, 64, 0x81, 0, 1, 5, 7, 0, 1, 1, 2]);
        assert_eq!(first[0], 2 | 1 << 2 | 3 << 5 | 64 << 20);
        assert_eq!(first[1..], [0x81 | 1 << 17, 5 | 7 << 11, 1 << 13, 1 | 2 << 15]);
    }

    #[test]
    fn numbers_come_back() {
        let numbers = std::array::from_fn(|i| ((1u32 << (i + 1)) - i as u32) as u16);
        assert_eq!(unpack(&pack(&numbers)), numbers);
    }
}
