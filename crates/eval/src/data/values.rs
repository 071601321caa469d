//! Values: which corpus bytes belong to (key, version).
//!
//! A value is a slice of the corpus, so writing one copies nothing and checking one is a single `memcmp`. A bijective
//! hash of (key, version) chooses the slice. With as many slices as keys, no two keys of equal version share a slice.
//! No key meets a slice again before it has used them all. A wrong, stale or swapped value therefore differs from the
//! expected one, except where the corpus itself repeats.
//!
//! Slices at every offset overlap. With many keys each byte of a small corpus is in many values, and a dictionary
//! trained on some values knows the others. `coverage` in the results gives the number. Separate slices, and records,
//! never overlap.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::workload::permutation::{Permutation, mix64};

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

/// The choice of the part of the corpus that is a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueOrder {
    /// Some part: neighbouring keys have nothing to do with each other.
    Strangers,
    /// The part after that of the key before, as long as nobody overwrites either.
    Neighbours,
    /// Some part, and no two parts overlap.
    Apart,
    /// Some line of the corpus, cut where the longest value ends.
    Records,
    /// Some part of the first eighth of the corpus; each new version of a key comes from the next eighth.
    Drift,
}

/// Each order and its name.
const ORDERS: [(ValueOrder, &str); 5] = [
    (ValueOrder::Strangers, "strangers"),
    (ValueOrder::Neighbours, "neighbours"),
    (ValueOrder::Apart, "apart"),
    (ValueOrder::Records, "records"),
    (ValueOrder::Drift, "drift"),
];

impl ValueOrder {
    /// Whether no byte of the corpus is in the values of two keys.
    pub fn never_overlaps(self) -> bool {
        matches!(self, ValueOrder::Apart | ValueOrder::Records)
    }
}

impl FromStr for ValueOrder {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = ORDERS.iter().find(|(_, known)| *known == name);
        found.map(|(order, _)| *order).ok_or_else(|| Error::Unknown {
            what: "--value-order",
            given: name.into(),
            known: ORDERS.map(|(_, name)| name).join(", "),
        })
    }
}

impl fmt::Display for ValueOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ORDERS.iter().find(|(order, _)| order == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

/// Parts that values drift through.
const DRIFT_PARTS: usize = 8;

/// The values of one key space, cut from one region of a corpus.
#[derive(Debug, Clone)]
pub struct Values {
    corpus: Arc<Vec<u8>>,
    region: Range<usize>,
    slices: Slices,
    slice_count: u64,
    version_stride: u64,
    bytes: ValueBytes,
}

/// Bijections from steps to slices, both below the number of slices.
#[derive(Debug, Clone)]
enum Slices {
    /// At every offset.
    Strangers(Permutation),
    /// Each lies so many bytes behind the one before; coprime to their number, so that none is met again before all
    /// were.
    Neighbours { apart: u64 },
    /// One behind the other.
    Apart(Permutation),
    /// Lines.
    Records(Permutation, Arc<Vec<Line>>),
    /// At every offset of a part, and so many bytes on for the next version.
    Drift { offsets: Permutation, part: usize },
}

/// The start of a line in the corpus, and its bytes.
#[derive(Debug, Clone, Copy)]
struct Line {
    start: u32,
    bytes: u32,
}

impl Values {
    /// Values of the given lengths from `region` of `corpus`, those of neighbouring keys strangers to each other;
    /// nothing when the region is shorter than a value.
    pub fn new(corpus: Arc<Vec<u8>>, region: Range<usize>, bytes: ValueBytes, seed: u64) -> Option<Self> {
        Self::ordered(corpus, region, bytes, ValueOrder::Strangers, seed)
    }

    /// The same in any order.
    pub fn ordered(
        corpus: Arc<Vec<u8>>,
        region: Range<usize>,
        bytes: ValueBytes,
        order: ValueOrder,
        seed: u64,
    ) -> Option<Self> {
        let part = if order == ValueOrder::Drift { region.len() / DRIFT_PARTS } else { region.len() };
        if region.end > corpus.len() || (part as u64) < bytes.max || part == 0 {
            return None;
        }
        let mut slice_count = part as u64 - bytes.max + 1;
        let shuffled = |count| Permutation::new(count, seed);
        let slices = match order {
            ValueOrder::Strangers => Slices::Strangers(shuffled(slice_count)),
            ValueOrder::Neighbours => {
                while gcd(bytes.max, slice_count) != 1 {
                    slice_count -= 1;
                }
                Slices::Neighbours { apart: bytes.max }
            }
            ValueOrder::Apart => {
                slice_count = part as u64 / bytes.max;
                Slices::Apart(shuffled(slice_count))
            }
            ValueOrder::Records => {
                let lines = lines(&corpus, &region, bytes.max);
                slice_count = lines.len() as u64;
                if lines.is_empty() {
                    return None;
                }
                Slices::Records(shuffled(slice_count), lines)
            }
            ValueOrder::Drift => Slices::Drift { offsets: shuffled(slice_count), part },
        };
        // The golden section spreads the versions of a key; coprime, so that it meets every slice before any twice.
        let mut version_stride = ((slice_count as f64 * 0.618_033_988_749_895) as u64).max(1);
        while gcd(version_stride, slice_count) != 1 {
            version_stride += 1;
        }
        Some(Values { corpus, region, slices, slice_count, version_stride, bytes })
    }

    /// Bytes of the longest value.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes.max as usize
    }

    /// How many different values there are: more keys than this must share.
    pub fn slice_count(&self) -> u64 {
        self.slice_count
    }

    /// Bytes of the corpus that the first versions of all keys are cut from.
    pub fn source_bytes(&self) -> u64 {
        match &self.slices {
            Slices::Drift { part, .. } => *part as u64,
            _ => self.region.len() as u64,
        }
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

    /// The position of that value in the corpus.
    #[inline]
    pub(crate) fn place(&self, key: u64, version: u32) -> Range<usize> {
        let step = self.step(key, version);
        let offset = match &self.slices {
            Slices::Strangers(slices) => slices.at(step) as usize,
            // Both factors are below 2^32: a corpus has at most so many bytes.
            Slices::Neighbours { apart } => (step * apart % self.slice_count) as usize,
            Slices::Apart(slices) => (slices.at(step) * self.bytes.max) as usize,
            Slices::Records(order, lines) => {
                let line = lines[order.at(step) as usize];
                return line.start as usize..line.start as usize + line.bytes as usize;
            }
            Slices::Drift { offsets, part } => {
                // Keys are loaded with version 1.
                offsets.at(step) as usize + (version as usize).wrapping_sub(1) % DRIFT_PARTS * part
            }
        };
        let start = self.region.start + offset;
        start..start + self.len(key, version)
    }

    #[inline]
    fn step(&self, key: u64, version: u32) -> u64 {
        key.wrapping_add(u64::from(version).wrapping_mul(self.version_stride)) % self.slice_count
    }

    /// The length of that value.
    #[inline]
    pub fn len(&self, key: u64, version: u32) -> usize {
        if let Slices::Records(order, lines) = &self.slices {
            return lines[order.at(self.step(key, version)) as usize].bytes as usize;
        }
        let ValueBytes { min, max } = self.bytes;
        if min == max {
            return min as usize;
        }
        let hash = mix64(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(version) << 40));
        (min + ((u128::from(hash) * u128::from(max - min + 1)) >> 64) as u64) as usize
    }
}

/// The lines of a region that are not empty, up to so many bytes of each. Counted first: a list that grows would leave
/// free pages behind, which a store could fill without its resident memory growing.
fn lines(corpus: &[u8], region: &Range<usize>, bytes_max: u64) -> Arc<Vec<Line>> {
    let all = || corpus[region.clone()].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut lines = Vec::with_capacity(all().count());
    let first = corpus.as_ptr() as usize;
    lines.extend(all().map(|line| Line {
        start: (line.as_ptr() as usize - first) as u32,
        bytes: (line.len() as u64).min(bytes_max) as u32,
    }));
    Arc::new(lines)
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
        let bytes = ValueBytes { min: 16, max: 16 };
        let values = Values::ordered(corpus.clone(), region, bytes, ValueOrder::Neighbours, 3).unwrap();
        assert_eq!([0, 1, 2].map(|key| values.slice(key, 0)), [0, 16, 32].map(|at| &corpus[at..at + 16]));
        for version in 0..3 {
            let all: HashSet<&[u8]> = (0..10_000).map(|key| values.slice(key, version)).collect();
            assert_eq!(all.len(), 10_000);
        }
    }

    #[test]
    fn values_that_lie_apart_never_overlap() {
        let corpus = counting_corpus(5_000);
        let bytes = ValueBytes { min: 10, max: 16 };
        let region = 20..corpus.len();
        let values = Values::ordered(corpus, region.clone(), bytes, ValueOrder::Apart, 3).unwrap();
        assert_eq!(values.slice_count(), (20_000 - 20) / 16);
        for version in 1..4 {
            let mut taken = vec![false; region.end];
            for at in (0..values.slice_count()).flat_map(|key| values.place(key, version)) {
                assert!(region.contains(&at) && !std::mem::replace(&mut taken[at], true));
            }
        }
    }

    #[test]
    fn records_are_whole_lines_up_to_the_longest_value() {
        let text = b"cut\nfirst\n\nthe second line\nthird".to_vec();
        let region = 4..text.len();
        let bytes = ValueBytes { min: 1, max: 9 };
        let values = Values::ordered(Arc::new(text), region, bytes, ValueOrder::Records, 3).unwrap();
        let mut all: Vec<&[u8]> = (0..values.slice_count()).map(|key| values.slice(key, 1)).collect();
        all.sort_unstable();
        assert_eq!(all, [&b"first"[..], b"the secon", b"third"]);
        assert!((0..3).all(|key| values.len(key, 2) == values.slice(key, 2).len()));
    }

    #[test]
    fn values_drift_through_the_corpus_version_by_version() {
        let corpus = counting_corpus(8_000);
        let bytes = ValueBytes { min: 16, max: 16 };
        let values = Values::ordered(corpus, 0..32_000, bytes, ValueOrder::Drift, 3).unwrap();
        assert_eq!(values.source_bytes(), 4_000);
        for version in 1..20 {
            let part = (version as usize - 1) % 8 * 4_000;
            let places: Vec<_> = (0..3_000).map(|key| values.place(key, version)).collect();
            assert!(places.iter().all(|place| place.start >= part && place.end <= part + 4_000));
            assert_eq!(places.iter().map(|place| place.start).collect::<HashSet<_>>().len(), 3_000);
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
