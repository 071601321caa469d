//! Token numbers as a run of bits: lengths, and packing.

use super::CHECK_BYTES;

/// [`pack`] writes whole words, so up to so many bytes behind the last number.
const SLACK_BYTES: usize = 16;

/// Bytes that `count` numbers of `bits` bits and a check take.
pub(super) fn coded_len(count: usize, bits: u32) -> usize {
    (count * bits as usize).div_ceil(8) + CHECK_BYTES
}

/// Room behind a list for [`pack`] of `count` numbers, and a check.
pub(super) fn room_bytes(count: usize, bits: u32) -> usize {
    coded_len(count, bits) + SLACK_BYTES
}

/// How many numbers a coded value of this length holds; `None` if no value has this length.
#[inline]
pub(super) fn count(coded_bytes: usize, bits: u32) -> Option<usize> {
    let payload = coded_bytes.checked_sub(CHECK_BYTES)?;
    // Fewer than 8 bits of padding, at least 10 bits a number: the division leaves no doubt.
    let count = payload * 8 / bits as usize;
    (coded_len(count, bits) == coded_bytes).then_some(count)
}

/// The number at `position` of a payload (a coded value without its check).
pub(super) fn get(payload: &[u8], position: usize, bits: u32) -> u32 {
    let bit = position * bits as usize;
    let mut word = [0; 4];
    let from = &payload[bit / 8..];
    let have = from.len().min(4);
    word[..have].copy_from_slice(&from[..have]);
    (u32::from_le_bytes(word) >> (bit % 8)) & ((1 << bits) - 1)
}

/// Whether the bits after the last number are zero.
#[inline]
pub(super) fn padding_is_zero(payload: &[u8], count: usize, bits: u32) -> bool {
    let used = count * bits as usize % 8;
    used == 0 || payload.last().is_none_or(|&last| last >> used == 0)
}

/// Appends `numbers` to `coded`, without a check.
pub(super) fn pack(numbers: &[u16], bits: u32, coded: &mut Vec<u8>) {
    // Four numbers are at most 64 bits: every step writes a whole word, and the next one starts where the numbers end.
    let start = coded.len();
    let end = start + (numbers.len() * bits as usize).div_ceil(8);
    coded.resize(end + SLACK_BYTES, 0);
    let mut at = start * 8;
    let mut carry = 0u64;
    let mut pending = 0u32;
    let mut byte = start;
    for four in numbers.chunks(4) {
        let mut word = 0u64;
        for (i, &number) in four.iter().enumerate() {
            word |= u64::from(number) << (i as u32 * bits);
        }
        let wide = u128::from(carry) | u128::from(word) << pending;
        coded[byte..byte + 16].copy_from_slice(&wide.to_le_bytes());
        at += four.len() * bits as usize;
        let filled = at / 8 - byte;
        byte = at / 8;
        pending = (at % 8) as u32;
        carry = (wide >> (8 * filled)) as u64 & ((1 << pending) - 1);
    }
    coded.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_from_lengths() {
        for bits in super::super::BITS {
            for n in 0..2000 {
                assert_eq!(count(coded_len(n, bits), bits), Some(n));
            }
            assert_eq!(count(0, bits), None);
            assert_eq!(count(1, bits), None);
            assert_eq!(count(3, bits), None);
        }
    }

    #[test]
    fn numbers_come_back() {
        for bits in super::super::BITS {
            for n in 0..40usize {
                let mask = (1u32 << bits) - 1;
                let numbers: Vec<u16> =
                    (0..n).map(|i| ((i as u32 * 40_503 + 12_345) & mask) as u16).collect();
                let mut coded = vec![0xff; 3];
                pack(&numbers, bits, &mut coded);
                let payload = &coded[3..];
                assert_eq!(payload.len() + CHECK_BYTES, coded_len(n, bits));
                assert!(padding_is_zero(payload, n, bits));
                for (i, &number) in numbers.iter().enumerate() {
                    assert_eq!(get(payload, i, bits), u32::from(number), "number {i} of {n}, {bits} bits");
                }
            }
        }
    }
}
