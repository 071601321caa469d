//! Values: which corpus bytes belong to (key, version).
//!
//! A value is a slice of the corpus, so writing one copies nothing and checking one is a single `memcmp`. The slice
//! begins at a hashed offset of (key, version). The hash is a bijection, so as long as the corpus has at least as many
//! bytes as there are keys, no two keys of equal version share an offset, and no key meets an offset again before
//! it has used them all: a wrong, stale or swapped value differs from what is expected, except where the corpus
//! itself repeats.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::permutation::{Permutation, mix64};

/// Lengths of values: fixed, or spread evenly over a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueBytes {
    /// Shortest.
    pub min: u64,
    /// Longest.
    pub max: u64,
}

impl FromStr for ValueBytes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || {
            Error::invalid(
                "--value-bytes",
                text,
                "give a number of bytes such as 128, or a range such as 16..512",
            )
        };
        let (min, max) = match text.split_once("..") {
            Some((min, max)) => (min.parse().map_err(|_| bad())?, max.parse().map_err(|_| bad())?),
            None => {
                let bytes = text.parse().map_err(|_| bad())?;
                (bytes, bytes)
            }
        };
        if min > max || max == 0 || max > u64::from(u32::MAX) {
            return Err(bad());
        }
        Ok(ValueBytes { min, max })
    }
}

impl fmt::Display for ValueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{}..{}", self.min, self.max) }
    }
}

/// Which part of the corpus a key's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueOrder {
    /// Some part: neighbouring keys have nothing to do with each other.
    Strangers,
    /// The part after that of the key before, as long as nobody overwrites either.
    Neighbours,
}

impl FromStr for ValueOrder {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "strangers" => Ok(ValueOrder::Strangers),
            "neighbours" => Ok(ValueOrder::Neighbours),
            _ => {
                let known = "strangers, neighbours".into();
                Err(Error::Unknown { what: "--value-order", given: name.into(), known })
            }
        }
    }
}

impl fmt::Display for ValueOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueOrder::Strangers => "strangers",
            ValueOrder::Neighbours => "neighbours",
        })
    }
}

/// The values of one key space, cut from one region of a corpus.
#[derive(Debug, Clone)]
pub struct Values {
    corpus: Arc<Vec<u8>>,
    start: usize,
    offsets: Offsets,
    offset_count: u64,
    version_stride: u64,
    bytes: ValueBytes,
}

/// Bijections from steps to offsets, both below the number of offsets.
#[derive(Debug, Clone)]
enum Offsets {
    Strangers(Permutation),
    /// Each lies so many bytes behind the one before; coprime to their number, so that none is met again before all were.
    Neighbours {
        apart: u64,
    },
}

impl Values {
    /// Values of the given lengths from `region` of `corpus`, those of neighbouring keys strangers to each other; nothing when the region
    /// is shorter than a value.
    pub fn new(corpus: Arc<Vec<u8>>, region: Range<usize>, bytes: ValueBytes, seed: u64) -> Option<Self> {
        let region_bytes = region.len() as u64;
        if region.end > corpus.len() || region_bytes < bytes.max || region_bytes == 0 {
            return None;
        }
        let offset_count = region_bytes - bytes.max + 1;
        let offsets = Offsets::Strangers(Permutation::new(offset_count, seed));
        Some(Self::with(corpus, region.start, bytes, offsets, offset_count))
    }

    /// The same values for other keys: each begins where that of the key before ends (where the longest would end, if lengths vary).
    pub fn in_order(self) -> Self {
        let (bytes, mut offset_count) = (self.bytes, self.offset_count);
        while gcd(bytes.max, offset_count) != 1 {
            offset_count -= 1;
        }
        Self::with(self.corpus, self.start, bytes, Offsets::Neighbours { apart: bytes.max }, offset_count)
    }

    fn with(
        corpus: Arc<Vec<u8>>,
        start: usize,
        bytes: ValueBytes,
        offsets: Offsets,
        offset_count: u64,
    ) -> Self {
        // The golden section spreads the versions of a key; coprime, so that it meets every offset before any twice.
        let mut version_stride = (offset_count as f64 * 0.618_033_988_749_895) as u64;
        while gcd(version_stride.max(1), offset_count) != 1 {
            version_stride += 1;
        }
        Values { corpus, start, offsets, offset_count, version_stride: version_stride.max(1), bytes }
    }

    /// How many different offsets there are: more keys than this must share.
    pub fn offset_count(&self) -> u64 {
        self.offset_count
    }

    /// The value that version `version` of key number `key` has.
    #[inline]
    pub fn slice(&self, key: u64, version: u32) -> &[u8] {
        self.at(&self.place(key, version))
    }

    #[inline]
    pub(crate) fn at(&self, place: &Range<usize>) -> &[u8] {
        &self.corpus[place.start..place.end]
    }

    /// Touches the first cache lines of a value; the hardware fetches the rest of a long one by itself.
    #[inline]
    pub(crate) fn warm(&self, place: &Range<usize>) {
        for at in [0, 64, 127].map(|at| place.start + at) {
            std::hint::black_box(self.corpus.get(at).copied());
        }
    }

    /// Where that value lies in the corpus.
    #[inline]
    pub(crate) fn place(&self, key: u64, version: u32) -> Range<usize> {
        let step = key.wrapping_add(u64::from(version).wrapping_mul(self.version_stride)) % self.offset_count;
        let offset = match &self.offsets {
            Offsets::Strangers(offsets) => offsets.at(step),
            // Both factors are below 2^32: a corpus has at most so many bytes.
            Offsets::Neighbours { apart } => step * apart % self.offset_count,
        };
        let start = self.start + offset as usize;
        start..start + self.len(key, version)
    }

    /// The length of that value.
    #[inline]
    pub fn len(&self, key: u64, version: u32) -> usize {
        let ValueBytes { min, max } = self.bytes;
        if min == max {
            return min as usize;
        }
        let hash = mix64(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(version) << 40));
        (min + ((u128::from(hash) * u128::from(max - min + 1)) >> 64) as u64) as usize
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn counting_corpus(values: u32) -> Arc<Vec<u8>> {
        Arc::new((0..values).flat_map(|i| i.to_le_bytes()).collect())
    }

    #[test]
    fn no_two_keys_share_a_value_and_every_write_differs() {
        let corpus = counting_corpus(5_000);
        let region = 0..corpus.len();
        let values = Values::new(corpus, region, ValueBytes { min: 16, max: 16 }, 3).unwrap();
        for version in 1..4 {
            let all: HashSet<&[u8]> = (0..10_000).map(|key| values.slice(key, version)).collect();
            assert_eq!(all.len(), 10_000);
        }
        let one: HashSet<&[u8]> = (1..10_000).map(|version| values.slice(77, version)).collect();
        assert_eq!(one.len(), 9_999);
    }

    #[test]
    fn neighbours_have_neighbouring_values_and_still_none_twice() {
        let corpus = counting_corpus(5_000);
        let region = 0..corpus.len();
        let strangers = Values::new(corpus.clone(), region, ValueBytes { min: 16, max: 16 }, 3).unwrap();
        let values = strangers.in_order();
        assert_eq!([0, 1, 2].map(|key| values.slice(key, 0)), [0, 16, 32].map(|at| &corpus[at..at + 16]));
        for version in 0..3 {
            let all: HashSet<&[u8]> = (0..10_000).map(|key| values.slice(key, version)).collect();
            assert_eq!(all.len(), 10_000);
        }
    }

    #[test]
    fn lengths_fill_the_range() {
        let corpus = counting_corpus(1_000);
        let region = 0..corpus.len();
        let values = Values::new(corpus, region, ValueBytes { min: 0, max: 9 }, 3).unwrap();
        let lengths: HashSet<usize> = (0..1_000).map(|key| values.slice(key, 1).len()).collect();
        assert_eq!(lengths, (0..10).collect());
    }

    #[test]
    fn a_region_shorter_than_a_value_is_refused() {
        let corpus = counting_corpus(10);
        assert!(Values::new(corpus.clone(), 0..20, ValueBytes { min: 1, max: 21 }, 0).is_none());
        assert!(Values::new(corpus, 0..20, ValueBytes { min: 1, max: 20 }, 0).is_some());
    }
}
