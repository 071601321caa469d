//! Samples of a store's own records, which dictionaries are trained on.

use crate::read::{Copied, copy_found};
use crate::record::{Found, Payload};
use crate::tree::Tree;

/// A sample has one value for so many of its bytes at most: the lists of small values would take more than they do.
pub(super) const SAMPLE_BYTES_PER_VALUE: usize = 32;
/// Of a value, at most this much goes into a sample.
pub(super) const SAMPLE_VALUE_BYTES_MAX: usize = 4096;

impl Tree {
    /// Values of random leaves, about `bytes` of them in all.
    pub(super) fn sample(&self, bytes: usize) -> Sample {
        let mut sample = Sample::with_room(bytes);
        let mut random = Random::new(self.stats.trainings.get() + 1);
        // Leaves may be empty or hold large values only: a bound on looks ends the search.
        for _ in 0..bytes / 256 {
            if sample.is_full(bytes) {
                break;
            }
            let guard = self.pin();
            let state = self.index.random_leaf(|| random.next(), &guard).state(&guard);
            for _ in 0..state.body.len().div_ceil(4).min(16) {
                let index = random.next() as usize % state.body.len();
                let found = state.body.found(index, &state.form);
                sample.take(found);
                if sample.is_full(bytes) {
                    break;
                }
            }
        }
        sample
    }
}

/// Values one behind the other: as many allocations as values would take more than the values.
pub(super) struct Sample {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// A value on its way here.
    value: Vec<u8>,
}

impl Sample {
    fn with_room(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes + SAMPLE_VALUE_BYTES_MAX),
            ends: Vec::with_capacity(bytes / SAMPLE_BYTES_PER_VALUE),
            value: Vec::new(),
        }
    }

    fn is_full(&self, bytes: usize) -> bool {
        self.bytes.len() >= bytes || self.ends.len() >= bytes / SAMPLE_BYTES_PER_VALUE
    }

    fn take(&mut self, found: Found<'_>) {
        sample_value(found, &mut self.value);
        if !self.value.is_empty() {
            self.bytes.extend_from_slice(&self.value);
            self.ends.push(self.bytes.len());
        }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

/// The part of a value that a sample takes: all of an inline one, the beginning of a large one, nothing of a damaged
/// one.
fn sample_value(found: Found<'_>, value: &mut Vec<u8>) {
    value.clear();
    let read = match found.payload {
        // No epoch waits for the SSD.
        Payload::Large(large) => {
            large.read_in_memory(SAMPLE_VALUE_BYTES_MAX, value).is_some_and(|read| read.is_ok())
        }
        _ => matches!(copy_found(found, value), Copied::Inline(_)),
    };
    if !read {
        value.clear();
    }
}

/// SplitMix64: which leaves a sample takes need not be secret, only spread.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use crate::codec_options::CodecChoice;
    use crate::core::Core;
    use crate::options::Options;
    use crate::record::PutMeta;

    #[test]
    fn a_sample_has_whole_values_and_nothing_else() {
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let core = Core::new(&options);
        for n in 0..5_000_u32 {
            core.put(&n.to_be_bytes(), &n.to_le_bytes().repeat(25), PutMeta::default())
                .expect("no limit is set");
        }
        core.settle();
        let sample = core.tree.sample(64 << 10);
        assert!(sample.values().count() > 500);
        for value in sample.values() {
            assert!(value.len() == 100 && value.chunks(4).all(|part| part == &value[..4]), "{value:?}");
        }
    }
}
