//! Keys: how the number of a key becomes its bytes, and back.
//!
//! `decimal` is what redis-benchmark sends (`key:000000000042`): neighbours share long prefixes and front-code well.
//! `random` is the opposite: bytes without structure, the hardest case for an ordered index. `ycsb` and `ycsb-ordered`
//! are YCSB's own keys. All can be turned back into the number, so that a scan can be checked without a table of keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::data::fnv;
use crate::error::Error;
use crate::workload::permutation::{mix64, unmix64};

/// Bytes of a key, unless others are asked for or YCSB's keys are.
pub const KEY_BYTES: usize = 16;

/// Bytes of the longest key: those that memcached takes.
pub const KEY_BYTES_MAX: usize = 250;

/// Key numbers lie below this: twelve decimal digits.
pub(crate) const KEY_NUMBER_LIMIT: u64 = 1_000_000_000_000;

/// How keys look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyShape {
    /// `key:` and twelve digits or more.
    Decimal,
    /// Bytes from a bijective hash of the number.
    Random,
    /// `user` and YCSB's hash of the number: 1 to 19 digits. Numbers lie below 2^32.
    Ycsb,
    /// `user` and the number.
    YcsbOrdered,
}

/// Each shape and its name.
const SHAPES: [(KeyShape, &str); 4] = [
    (KeyShape::Decimal, "decimal"),
    (KeyShape::Random, "random"),
    (KeyShape::Ycsb, "ycsb"),
    (KeyShape::YcsbOrdered, "ycsb-ordered"),
];

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
const YCSB_PREFIX: &[u8; 4] = b"user";
/// Of YCSB's hash.
const YCSB_DIGITS_MAX: usize = 19;

/// The keys of a key space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    shape: KeyShape,
    /// Bytes of every key; of the shortest for YCSB's.
    bytes: usize,
}

impl Keys {
    /// Keys of this shape. Of YCSB's keys, `bytes` are those of the shortest: zeros before the digits fill it up.
    /// `None` is the shape's own length: 16 bytes, or YCSB's without zeros.
    pub fn new(shape: KeyShape, bytes: Option<usize>) -> Self {
        let own = match shape {
            KeyShape::Decimal | KeyShape::Random => KEY_BYTES,
            KeyShape::Ycsb | KeyShape::YcsbOrdered => YCSB_PREFIX.len() + 1,
        };
        Keys { shape, bytes: bytes.unwrap_or(own).clamp(own, KEY_BYTES_MAX) }
    }

    /// The lengths that keys of a shape may be asked to have.
    pub(crate) fn lengths(shape: KeyShape) -> std::ops::RangeInclusive<usize> {
        Keys::new(shape, None).bytes..=KEY_BYTES_MAX
    }

    /// How the keys look.
    pub fn shape(&self) -> KeyShape {
        self.shape
    }

    /// The length of every key, if all have one.
    pub fn bytes(&self) -> Option<usize> {
        let longest = match self.shape {
            KeyShape::Decimal | KeyShape::Random => self.bytes,
            KeyShape::Ycsb | KeyShape::YcsbOrdered => self.bytes_max(),
        };
        (self.bytes == longest).then_some(longest)
    }

    /// The length of the longest key.
    pub(crate) fn bytes_max(&self) -> usize {
        match self.shape {
            KeyShape::Decimal | KeyShape::Random => self.bytes,
            KeyShape::Ycsb | KeyShape::YcsbOrdered => self.bytes.max(YCSB_PREFIX.len() + YCSB_DIGITS_MAX),
        }
    }

    /// The length of a key.
    pub(crate) fn len(&self, number: u64) -> usize {
        let digits = |number: u64| YCSB_PREFIX.len() + number.checked_ilog10().unwrap_or(0) as usize + 1;
        match self.shape {
            KeyShape::Decimal | KeyShape::Random => self.bytes,
            KeyShape::Ycsb => self.bytes.max(digits(fnv::hash64(number))),
            KeyShape::YcsbOrdered => self.bytes.max(digits(number)),
        }
    }

    /// Whether the keys with numbers below this one are in the order of their numbers.
    pub(crate) fn are_in_order(&self, end: u64) -> bool {
        match self.shape {
            KeyShape::Decimal => true,
            KeyShape::Random | KeyShape::Ycsb => false,
            KeyShape::YcsbOrdered => self.len(end.saturating_sub(1)) == self.bytes,
        }
    }

    /// Room for one key at a time.
    pub fn room(&self) -> KeyRoom {
        let mut bytes = [b'0'; KEY_BYTES_MAX];
        let prefix = if self.shape == KeyShape::Decimal { b"key:" } else { YCSB_PREFIX };
        bytes[..prefix.len()].copy_from_slice(prefix);
        KeyRoom { keys: *self, len: self.bytes, bytes }
    }

    /// A key by itself.
    pub fn key(&self, number: u64) -> Vec<u8> {
        self.room().key(number).to_vec()
    }

    /// The number of a key, or nothing if these bytes are no key of this space.
    #[inline]
    pub fn number(&self, key: &[u8]) -> Option<u64> {
        match self.shape {
            KeyShape::Decimal => match key.split_first_chunk() {
                Some((b"key:", digits)) if key.len() == self.bytes => {
                    let (zeros, digits) = digits.split_last_chunk::<12>()?;
                    zeros.iter().all(|byte| *byte == b'0').then(|| decimal(digits))?
                }
                _ => None,
            },
            KeyShape::Random => {
                let half = u64::from_le_bytes(*key.first_chunk()?);
                let number = unmix64(half).wrapping_sub(RANDOM_ADD);
                let is_key = number < KEY_NUMBER_LIMIT && key.len() == self.bytes && is_random(number, key);
                is_key.then_some(number)
            }
            KeyShape::YcsbOrdered => {
                decimal(key.strip_prefix(YCSB_PREFIX)?).filter(|&number| self.is(number, key))
            }
            KeyShape::Ycsb => {
                let hash = decimal(key.strip_prefix(YCSB_PREFIX)?)?;
                fnv::unhash64(hash).filter(|&number| self.is(number, key))
            }
        }
    }

    fn is(&self, number: u64, key: &[u8]) -> bool {
        number < KEY_NUMBER_LIMIT && self.room().key(number) == key
    }
}

/// The number that these digits are.
#[inline]
fn decimal(digits: &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    Some(number)
}

/// Room for one key at a time.
#[derive(Debug, Clone)]
pub struct KeyRoom {
    keys: Keys,
    /// Bytes of the key that is in it.
    len: usize,
    bytes: [u8; KEY_BYTES_MAX],
}

impl KeyRoom {
    /// The key with this number (below a million million).
    #[inline]
    pub fn key(&mut self, number: u64) -> &[u8] {
        match self.keys.shape {
            KeyShape::Decimal => {
                if let Some(last) = self.bytes[..self.len].last_chunk_mut() {
                    *last = twelve_digits(number);
                }
            }
            KeyShape::Random => random(number, &mut self.bytes[..self.len]),
            KeyShape::Ycsb => self.put_ycsb(fnv::hash64(number)),
            KeyShape::YcsbOrdered => self.put_ycsb(number),
        }
        &self.bytes[..self.len]
    }

    fn put_ycsb(&mut self, number: u64) {
        let mut text = itoa::Buffer::new();
        let digits = text.format(number).as_bytes();
        self.len = self.keys.bytes.max(YCSB_PREFIX.len() + digits.len());
        let (zeros, last) = self.bytes[YCSB_PREFIX.len()..self.len].split_at_mut(self.len - 4 - digits.len());
        zeros.fill(b'0');
        last.copy_from_slice(digits);
    }
}

#[inline]
fn twelve_digits(number: u64) -> [u8; 12] {
    let mut digits = [0; 12];
    let (high, low) = ((number / 1_000_000) as u32, (number % 1_000_000) as u32);
    for (at, six) in [(0, high), (6, low)] {
        digits[at..at + 2].copy_from_slice(&DIGIT_PAIRS[(six / 10_000 % 100) as usize]);
        digits[at + 2..at + 4].copy_from_slice(&DIGIT_PAIRS[(six / 100 % 100) as usize]);
        digits[at + 4..at + 6].copy_from_slice(&DIGIT_PAIRS[(six % 100) as usize]);
    }
    digits
}

/// The words of a random key, each from the one before.
#[inline]
fn words(number: u64) -> impl Iterator<Item = [u8; 8]> {
    let first = mix64(number.wrapping_add(RANDOM_ADD));
    std::iter::successors(Some(first), |word| Some(mix64(word ^ RANDOM_XOR))).map(u64::to_le_bytes)
}

#[inline]
fn random(number: u64, key: &mut [u8]) {
    let (parts, rest) = key.as_chunks_mut::<8>();
    let mut words = words(number);
    parts.iter_mut().zip(&mut words).for_each(|(part, word)| *part = word);
    rest.iter_mut().zip(words.next().unwrap_or_default()).for_each(|(byte, random)| *byte = random);
}

#[inline]
fn is_random(number: u64, key: &[u8]) -> bool {
    let (parts, rest) = key.as_chunks::<8>();
    let mut words = words(number);
    let is_right = parts.iter().zip(&mut words).all(|(part, word)| *part == word);
    is_right && words.next().unwrap_or_default().starts_with(rest)
}

/// Keys that a target gets at once, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    /// Room for so many keys of this length.
    pub(crate) fn with_room(keys: usize, bytes_each: usize) -> Self {
        KeyList { bytes: Vec::with_capacity(keys * bytes_each), ends: Vec::with_capacity(keys) }
    }

    /// Forgets all keys and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(crate) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// An empty list in the memory of another one, whose elements may have borrowed from somewhere else.
pub(crate) fn emptied<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

impl FromStr for KeyShape {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = SHAPES.iter().find(|(_, known)| *known == name);
        found.map(|(shape, _)| *shape).ok_or_else(|| Error::Unknown {
            what: "key shape",
            given: name.into(),
            known: SHAPES.map(|(_, name)| name).join(", "),
        })
    }
}

impl fmt::Display for KeyShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SHAPES.iter().find(|(shape, _)| shape == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(shape: KeyShape, bytes: impl Into<Option<usize>>) -> Keys {
        Keys::new(shape, bytes.into())
    }

    #[test]
    fn decimal_keys_are_those_of_redis_benchmark() {
        for number in [0, 7, 42, 999_999, 1_000_000, 123_456_789_012, KEY_NUMBER_LIMIT - 1] {
            assert_eq!(keys(KeyShape::Decimal, None).key(number), format!("key:{number:012}").as_bytes());
            assert_eq!(keys(KeyShape::Decimal, 44).key(number), format!("key:{number:040}").as_bytes());
        }
    }

    /// As `CoreWorkload.buildKeyName` of YCSB 0.17.0 prints them.
    #[test]
    fn keys_of_ycsb_are_its_own() {
        let hashed = keys(KeyShape::Ycsb, None);
        for (number, own) in [
            (0, "user6284781860667377211"),
            (1, "user8517097267634966620"),
            (2, "user1820151046732198393"),
            (42, "user55488592825689361"),
            (1_000_000, "user1011632231655643464"),
            (u64::from(u32::MAX), "user5673037472935113441"),
        ] {
            assert_eq!(hashed.key(number), own.as_bytes());
        }
        let short = (0..10_000).find(|&number| hashed.len(number) == 22).unwrap();
        let padded = keys(KeyShape::Ycsb, 4 + 19).key(short);
        assert_eq!(padded, [b"user0", &hashed.key(short)[4..]].concat());
        assert_eq!(keys(KeyShape::YcsbOrdered, None).key(42), b"user42");
        assert_eq!(keys(KeyShape::YcsbOrdered, 16).key(42), b"user000000000042");
    }

    #[test]
    fn a_key_gives_its_number_back() {
        for (shape, _) in SHAPES {
            for bytes in [None, Some(16), Some(23), Some(24), Some(100), Some(KEY_BYTES_MAX)] {
                let keys = Keys::new(shape, bytes);
                let end = if shape == KeyShape::Ycsb { 1 << 32 } else { KEY_NUMBER_LIMIT };
                for number in (0..1_000).chain(99_999_500..100_000_500).chain(end - 1_000..end) {
                    let key = keys.key(number);
                    assert_eq!(keys.number(&key), Some(number), "{shape} {bytes:?}");
                    assert_eq!(keys.len(number), key.len());
                    assert!(keys.bytes().unwrap_or(key.len()) == key.len() && key.len() <= keys.bytes_max());
                }
                for other in [&b"short"[..], b"", b"user", b"key:", &[b'x'; KEY_BYTES], &[0; 300]] {
                    assert_eq!(keys.number(other), None, "{shape} {bytes:?}");
                }
            }
        }
        // A key of another length is another key.
        assert_eq!(keys(KeyShape::Decimal, 20).number(&keys(KeyShape::Decimal, None).key(7)), None);
        assert_eq!(keys(KeyShape::YcsbOrdered, None).number(b"user07"), None);
    }

    #[test]
    fn ordered_keys_are_in_order_where_they_say_so() {
        for (shape, bytes, end, expected) in [
            (KeyShape::Decimal, None, 2_000, true),
            (KeyShape::YcsbOrdered, None, 10, true),
            (KeyShape::YcsbOrdered, None, 11, false),
            (KeyShape::YcsbOrdered, Some(8), 2_000, true),
            (KeyShape::Ycsb, Some(23), 2_000, false),
        ] {
            let keys = Keys::new(shape, bytes);
            assert_eq!(keys.are_in_order(end), expected, "{shape} {bytes:?}");
            let all: Vec<_> = (0..end).map(|number| keys.key(number)).collect();
            assert_eq!(all.is_sorted(), expected, "{shape} {bytes:?}");
        }
    }
}
