//! Samples of a tree's values.

use crate::dictionaries::{SAMPLE_VALUE_BYTES_MAX, Sample};
use crate::read::{Copied, copy_found};
use crate::record::{Found, Payload};
use crate::tree::Tree;

impl Tree {
    /// Values of random leaves, about `bytes` of them in all.
    pub fn sample(&self, bytes: usize) -> Sample {
        let mut sample = Sample::with_room(bytes);
        let mut value = Vec::new();
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
                sample_value(found, &mut value);
                sample.take(&value);
                if sample.is_full(bytes) {
                    break;
                }
            }
        }
        sample
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

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(any(miri, shuttle))))]
mod tests {
    use crate::alone::Alone;
    use crate::codec_options::CodecChoice;
    use crate::record::PutMeta;

    #[test]
    fn a_sample_has_whole_values_and_nothing_else() {
        let alone = Alone::new(CodecChoice::None);
        for n in 0..5_000_u32 {
            alone
                .put(&n.to_be_bytes(), &n.to_le_bytes().repeat(25), PutMeta::default())
                .expect("no limit is set");
        }
        alone.settle();
        let sample = alone.tree.sample(64 << 10);
        assert!(sample.values().count() > 500);
        for value in sample.values() {
            assert!(value.len() == 100 && value.chunks(4).all(|part| part == &value[..4]), "{value:?}");
        }
    }
}
