//! State of compress jobs whose streams refer to a dictionary's history (generation 2).
//!
//! Behind the codes of a [`CompressState`] lie the text and a hash table of it:
//!
//! | level | bytes of text | bytes of table | positions for each of its 1,024 hashes |
//! |---|---|---|---|
//! | 1 | 2,048 | 4,096 | 2 |
//! | 3 | 4,096 | 8,192 | 4 |
//!
//! (Level 2 has the text of level 3 and the table of level 1.) The text ends where its room ends. A hash covers three
//! bytes. Each position has a check of four bits over the two bytes behind those three. An entry holds the checks
//! first, then the positions of 12 bits, in both cases with the newest lowest. Source: Intel's QPL library, which
//! builds the same for the device.

use crate::aecs::CompressState;

/// The largest: codes, text and table.
const BYTES_MAX: usize = CompressState::BYTES + 0x3000;

/// Codes, history and its hash table.
#[repr(C, align(64))]
pub(crate) struct BehindState {
    bytes: [u8; BYTES_MAX],
    level: u8,
}

const TEXT: usize = CompressState::BYTES;
const HASHES: usize = 1024;

impl BehindState {
    /// A state with the codes and the first bits of another state, and with at most 4,096 bytes of this history.
    pub(crate) fn new(codes: &CompressState, history: &[u8]) -> Box<BehindState> {
        let level = if history.len() <= 2048 { 1 } else { 3 };
        let mut state = Box::new(BehindState { bytes: [0; BYTES_MAX], level });
        state.bytes[..TEXT].copy_from_slice(codes.as_bytes());
        let text_bytes = state.text_bytes();
        let start = text_bytes - history.len();
        state.bytes[TEXT + start..TEXT + text_bytes].copy_from_slice(history);
        let mut buckets = [0u64; HASHES];
        for (at, run) in history.windows(3).enumerate() {
            let next = history.get(at + 3..at + 5);
            let check = next.map_or(0, |next| fold(next[0]) | fold(next[1]) << 2);
            let bucket = &mut buckets[hash(run)];
            *bucket = *bucket << 16 | ((start + at) as u64) << 4 | check;
        }
        let table = &mut state.bytes[TEXT + text_bytes..];
        for (at, bucket) in buckets.into_iter().enumerate() {
            if level == 3 {
                table[8 * at..8 * at + 8].copy_from_slice(&entry(bucket, 4).to_le_bytes());
            } else {
                table[4 * at..4 * at + 4].copy_from_slice(&(entry(bucket, 2) as u32).to_le_bytes());
            }
        }
        state
    }

    fn text_bytes(&self) -> usize {
        if self.level == 1 { 2048 } else { 4096 }
    }

    /// The level in the descriptor's flags.
    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// Bytes that the device reads.
    pub(crate) fn used_bytes(&self) -> u32 {
        let table_bytes = if self.level == 1 { 4096 } else { 8192 };
        (TEXT + self.text_bytes() + table_bytes) as u32
    }
}

/// Three bytes, lowest bit first, as a polynomial over two elements: its rest by x^10 + x^3 + 1.
fn hash(run: &[u8]) -> usize {
    let bits = u32::from(run[0]) | u32::from(run[1]) << 8 | u32::from(run[2]) << 16;
    let rest =
        (10..24).rev().fold(bits, |rest, bit| rest ^ ((rest >> bit & 1) * (0b100_0000_1001 << (bit - 10))));
    rest as usize
}

/// The four pairs of a byte's bits, added without carry.
fn fold(byte: u8) -> u64 {
    u64::from((byte ^ byte >> 2 ^ byte >> 4 ^ byte >> 6) & 3)
}

/// Pairs of position and check, the newest lowest, as the table has them.
fn entry(bucket: u64, count: u32) -> u64 {
    let pairs = (0..count).map(|newness| (newness, bucket >> (16 * newness) & 0xFFFF));
    pairs.fold(0, |entry, (newness, pair)| {
        entry | (pair & 15) << (4 * newness) | (pair >> 4) << (4 * count + 12 * newness)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_linear_over_the_bits() {
        let golden = [
            0x001, 0x002, 0x004, 0x008, 0x010, 0x020, 0x040, 0x080, 0x100, 0x200, 0x009, 0x012, 0x024, 0x048,
            0x090, 0x120, 0x240, 0x089, 0x112, 0x224, 0x041, 0x082, 0x104, 0x208,
        ];
        for (bit, golden) in golden.into_iter().enumerate() {
            assert_eq!(hash(&(1u32 << bit).to_le_bytes()), golden, "{bit}");
        }
        assert_eq!(hash(b"\x01\x02\x04"), 0x001 ^ 0x200 ^ 0x112);
    }

    #[test]
    fn text_ends_where_its_room_ends_and_positions_are_found() {
        let state = BehindState::new(&CompressState::fixed(true), b"abcde abcxy");
        assert_eq!((state.level(), state.used_bytes(), state.used_bytes() % 32), (1, 0x620 + 0x1800, 0));
        assert_eq!(&state.bytes[TEXT + 2048 - 11..TEXT + 2048], b"abcde abcxy");
        assert!(state.bytes[TEXT..TEXT + 2048 - 11].iter().all(|&byte| byte == 0));
        let at = TEXT + 2048 + 4 * hash(b"abc");
        let entry = u32::from_le_bytes(state.bytes[at..at + 4].try_into().unwrap());
        // 'd' and 'e' are 01 10 01 00 and 01 10 01 01; 'x' and 'y' 01 11 10 00 and 01 11 10 01.
        assert_eq!([b'd', b'e', b'x', b'y'].map(fold), [0b10, 0b11, 0b00, 0b01]);
        assert_eq!((entry & 15, entry >> 4 & 15), (0b01_00, 0b11_10));
        assert_eq!((entry >> 8 & 0xFFF, entry >> 20), (2048 - 11 + 6, 2048 - 11));
        // The last run has no two bytes behind it, and no check.
        let at = TEXT + 2048 + 4 * hash(b"cxy");
        assert_eq!(state.bytes[at] & 15, 0);
    }

    #[test]
    fn a_long_history_has_four_positions_each() {
        let history: Vec<u8> = b"abc--".iter().copied().cycle().take(4096).collect();
        let state = BehindState::new(&CompressState::fixed(true), &history);
        assert_eq!((state.level(), state.used_bytes()), (3, 0x620 + 0x3000));
        let at = TEXT + 4096 + 8 * hash(b"abc");
        let entry = u64::from_le_bytes(state.bytes[at..at + 8].try_into().unwrap());
        assert_eq!([16, 28, 40, 52].map(|shift| entry >> shift & 0xFFF), [4090, 4085, 4080, 4075]);
        assert_eq!(entry & 0xFFFF, 0xFFFF & (0x1111 * (fold(b'-') | fold(b'-') << 2)));
    }
}
