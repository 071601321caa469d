//! Key shapes: how the number of a key becomes its 16 bytes, and back.
//!
//! `decimal` is what redis-benchmark sends (`key:000000000042`): neighbours share long prefixes and front-code well.
//! `random` is the opposite: 16 bytes without structure, the hardest case for an ordered index. Both can be turned
//! back into the number, so that a scan can be checked without a table of keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::workload::permutation::{mix64, unmix64};

/// Bytes of every key.
pub const KEY_BYTES: usize = 16;

/// One key.
pub type Key = [u8; KEY_BYTES];

/// Key numbers lie below this: twelve decimal digits.
pub(crate) const KEY_NUMBER_LIMIT: u64 = 1_000_000_000_000;

/// How keys look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyShape {
    /// `key:` and twelve digits.
    Decimal,
    /// Sixteen bytes from a bijective hash of the number.
    Random,
}

const DIGIT_PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

const RANDOM_ADD: u64 = 0x6a09_e667_f3bc_c909;
const RANDOM_XOR: u64 = 0xbb67_ae85_84ca_a73b;

impl KeyShape {
    /// The key with this number (below a million million).
    #[inline]
    pub fn key(self, number: u64) -> Key {
        let mut key = *b"key:000000000000";
        match self {
            KeyShape::Decimal => {
                let (high, low) = ((number / 1_000_000) as u32, (number % 1_000_000) as u32);
                for (at, six) in [(4, high), (10, low)] {
                    key[at..at + 2].copy_from_slice(&DIGIT_PAIRS[(six / 10_000 % 100) as usize]);
                    key[at + 2..at + 4].copy_from_slice(&DIGIT_PAIRS[(six / 100 % 100) as usize]);
                    key[at + 4..at + 6].copy_from_slice(&DIGIT_PAIRS[(six % 100) as usize]);
                }
            }
            KeyShape::Random => {
                let first = mix64(number.wrapping_add(RANDOM_ADD));
                key[..8].copy_from_slice(&first.to_le_bytes());
                key[8..].copy_from_slice(&mix64(first ^ RANDOM_XOR).to_le_bytes());
            }
        }
        key
    }

    /// The number of a key, or nothing if these bytes are no key of this shape.
    #[inline]
    pub fn number(self, key: &[u8]) -> Option<u64> {
        let key: &Key = key.try_into().ok()?;
        match self {
            KeyShape::Decimal => {
                if key[..4] != *b"key:" {
                    return None;
                }
                let mut number = 0u64;
                for &byte in &key[4..] {
                    let digit = byte.wrapping_sub(b'0');
                    if digit > 9 {
                        return None;
                    }
                    number = number * 10 + u64::from(digit);
                }
                Some(number)
            }
            KeyShape::Random => {
                let mut half = [0; 8];
                half.copy_from_slice(&key[..8]);
                let number = unmix64(u64::from_le_bytes(half)).wrapping_sub(RANDOM_ADD);
                (number < KEY_NUMBER_LIMIT && self.key(number) == *key).then_some(number)
            }
        }
    }
}

impl FromStr for KeyShape {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "decimal" => Ok(KeyShape::Decimal),
            "random" => Ok(KeyShape::Random),
            _ => {
                Err(Error::Unknown { what: "key shape", given: name.into(), known: "decimal, random".into() })
            }
        }
    }
}

impl fmt::Display for KeyShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyShape::Decimal => "decimal",
            KeyShape::Random => "random",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_keys_are_those_of_redis_benchmark() {
        for number in [0, 7, 42, 999_999, 1_000_000, 123_456_789_012, KEY_NUMBER_LIMIT - 1] {
            assert_eq!(KeyShape::Decimal.key(number).as_slice(), format!("key:{number:012}").as_bytes());
        }
    }

    #[test]
    fn a_key_gives_its_number_back() {
        for shape in [KeyShape::Decimal, KeyShape::Random] {
            for number in (0..1_000).chain(KEY_NUMBER_LIMIT - 1_000..KEY_NUMBER_LIMIT) {
                assert_eq!(shape.number(&shape.key(number)), Some(number));
            }
            assert_eq!(shape.number(b"short"), None);
            assert_eq!(shape.number(&[b'x'; KEY_BYTES]), None);
        }
    }
}
