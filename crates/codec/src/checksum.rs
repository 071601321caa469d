//! CRC32C, and the 16-bit check that every coded value carries.
//!
//! The checksum is CRC32C (Castagnoli) because x86-64 (SSE4.2) and aarch64 (CRC) compute it in hardware, eight bytes
//! per instruction. The code detects the instruction at run time; without it, a table of 8 x 256 entries does the same.
//! The 16-bit check is the exclusive-or of the two halves of a CRC32C. A fold of a CRC is linear. So a single flipped
//! bit changes the check by a value that depends only on the bit's distance from the end. A test computes all these
//! values and shows that none is zero up to [`SINGLE_BIT_SURE_BYTES`].

/// Up to this many coded bytes *every* single flipped bit changes the 16-bit check.
///
/// Longer inputs are checked, too. The chance to miss an error is then one in 65,536.
pub const SINGLE_BIT_SURE_BYTES: usize = 128 * 1024;

/// From this length on, several stretches of the input are checked side by side, because each step of one waits for the
/// step before.
const SIDE_BY_SIDE_BYTES: usize = 1024;

/// The Castagnoli polynomial, bit-reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// CRC32C of `bytes`, as it is used by iSCSI, ext4 and RocksDB.
///
/// ```
/// assert_eq!(ziptier_codec::checksum::crc32c(b"123456789"), 0xE306_9283);
/// ```
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// CRC32C of some bytes, whose checksum is `before`, and of `bytes` after them.
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// The 16-bit check of `bytes` under a `seed` (the fingerprint of a dictionary).
///
/// The check covers the length, so that it notices added or removed zero bytes at the end.
#[inline]
pub fn check16(seed: u32, bytes: &[u8]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has SSE4.2.
        return unsafe { check16_sse42(seed, bytes) };
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("crc") {
        // SAFETY: the processor has the CRC instructions.
        return unsafe { check16_crc(seed, bytes) };
    }
    check16_by(seed, bytes, step_by_tables)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn check16_sse42(seed: u32, bytes: &[u8]) -> u16 {
    check16_by(seed, bytes, |state, word| core::arch::x86_64::_mm_crc32_u64(u64::from(state), word) as u32)
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "crc")]
fn check16_crc(seed: u32, bytes: &[u8]) -> u16 {
    check16_by(seed, bytes, |state, word| core::arch::aarch64::__crc32cd(state, word))
}

/// The check by a `step` that advances the CRC register by eight bytes, the first in the lowest bits.
#[inline(always)]
fn check16_by(seed: u32, bytes: &[u8], step: impl Fn(u32, u64) -> u32) -> u16 {
    let mut state = seed ^ (bytes.len() as u32).wrapping_mul(0x9E37_79B1);
    let (words, rest) = bytes.as_chunks::<8>();
    if bytes.len() < SIDE_BY_SIDE_BYTES {
        words.iter().for_each(|word| state = step(state, u64::from_le_bytes(*word)));
    } else {
        state = !crc32c_append(!state, words.as_flattened());
    }
    if !rest.is_empty() {
        // The last bytes, padded with zeros to a word: positions stay distinct, so the argument above holds.
        let tail = match bytes.len().checked_sub(8) {
            Some(at) => le_u64(&bytes[at..]) >> (64 - 8 * rest.len()),
            None => rest.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte)),
        };
        state = step(state, tail);
    }
    fold(state)
}

#[inline]
fn fold(state: u32) -> u16 {
    (state ^ (state >> 16)) as u16
}

#[inline]
fn le_u64(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

fn step_by_tables(state: u32, word: u64) -> u32 {
    let bytes = (word ^ u64::from(state)).to_le_bytes();
    (0..8).fold(0, |next, i| next ^ TABLES[7 - i][bytes[i] as usize])
}

/// `TABLES[k][b]` is the register after byte `b` and `k` zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = (state >> 1) ^ ((state & 1) * POLYNOMIAL);
            bit += 1;
        }
        tables[0][byte] = state;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_of_known_texts() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xff; 32]), 0x62A8_AB43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46DD_794E);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn hardware_and_tables_agree() {
        let bytes: Vec<u8> = (0..100_u8).map(|i| i.wrapping_mul(151)).collect();
        for len in 0..=bytes.len() {
            let seed = len as u32 * 0x9E37;
            assert_eq!(check16(seed, &bytes[..len]), check16_by(seed, &bytes[..len], step_by_tables));
        }
    }

    /// Blocks that were stored hold the check that one step after the other gives, also where they are long.
    #[test]
    fn long_inputs_have_the_check_of_single_steps() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in (SIDE_BY_SIDE_BYTES - 9..SIDE_BY_SIDE_BYTES + 9).chain([4097, 16_384, 19_999]) {
            let (seed, mut padded) = (len as u32 ^ 0x5EED, bytes[..len].to_vec());
            padded.resize(len.next_multiple_of(8), 0);
            let begin = seed ^ (len as u32).wrapping_mul(0x9E37_79B1);
            let steps = padded.chunks_exact(8).fold(begin, |state, word| step_by_tables(state, le_u64(word)));
            assert_eq!(check16(seed, &bytes[..len]), fold(steps), "{len} bytes");
        }
    }

    #[test]
    fn checks_are_those_that_were_stored() {
        // These values are the folds of CRC32C registers that begin with the seed and the length. Bodies and files hold
        // them.
        assert_eq!(check16(0, b""), 0);
        let register = !crc32c_append(!(7 ^ 8_u32.wrapping_mul(0x9E37_79B1)), b"12345678");
        assert_eq!(check16(7, b"12345678"), fold(register));
    }

    /// The register after one wrong bit and `k` further zero bits, for every `k`: the fold of none is zero.
    #[test]
    fn no_single_bit_error_vanishes() {
        let mut syndrome = 1u32;
        // The last word is padded to eight bytes, so an error may lie seven bytes further away.
        for distance in 0..(SINGLE_BIT_SURE_BYTES + 8) * 8 {
            syndrome = (syndrome >> 1) ^ ((syndrome & 1) * POLYNOMIAL);
            assert_ne!(fold(syndrome), 0, "a flipped bit {distance} bits before the end would go unnoticed");
        }
    }

    #[test]
    fn every_flipped_bit_changes_the_check() {
        for len in [1, 2, 7, 8, 9, 15, 16, 17, 50, 63] {
            let mut bytes: Vec<u8> = (0..len).map(|i| (i * 37) as u8).collect();
            let check = check16(7, &bytes);
            for bit in 0..len * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(check16(7, &bytes), check, "bit {bit} of {len} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn seed_and_length_take_part() {
        assert_ne!(check16(1, b"abc"), check16(2, b"abc"));
        assert_ne!(check16(1, b"abc"), check16(1, b"abc\0"));
        assert_ne!(check16(1, b""), check16(1, b"\0"));
    }
}
