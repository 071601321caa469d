//! A dictionary that may be trained: its kind and size, the bytes of its sample, and the memory of its training.
//!
//! Not for when one is trained or adopted: [`Dictionaries`](super::Dictionaries) tells that.

use std::sync::Arc;

use ziptier_codec::token::Dictionary;

use super::sample::{SAMPLE_BYTES_PER_VALUE, SAMPLE_VALUE_BYTES_MAX};
use super::trial::packed_bytes;
use crate::blocks::{BlockCoding, Effort};
use crate::coding::Coding;

/// Bytes of a sample: at least, where there is room; at least, where memory is short; and at most.
const SAMPLE_BYTES_MIN: usize = 512 << 10;
const SAMPLE_BYTES_SHORT: usize = 128 << 10;
const SAMPLE_BYTES_MAX: usize = 4 << 20;
/// Bytes that the lists of a sample take for each of its values: its end, and a slice.
const SAMPLE_LIST_BYTES: usize = size_of::<usize>() + size_of::<&[u8]>();
/// Values that tell whether packing densely pays.
const DENSE_SAMPLES: usize = 2048;
/// The tables for packing densely are weighed as if they were there for one part in so many of the time.
const DENSE_COST_SHARE: f64 = 4.0;

/// The candidate to be trained.
pub(super) enum Candidate {
    /// Tokens of so many bits.
    Tokens(u32),
    /// A dictionary for blocks like these.
    Blocks(Arc<BlockCoding>),
}

impl Candidate {
    pub(super) fn train(&self, samples: &[&[u8]], logical_bytes: u64, generation: u32) -> Option<Coding> {
        match self {
            Self::Tokens(bits) => {
                let dictionary = Dictionary::train(samples, *bits, generation).ok()?;
                Some(Coding::Tokens(Arc::new(dictionary)))
            }
            Self::Blocks(blocks) => {
                let trained = blocks.trained(samples, generation)?;
                // In a small store an encoder's tables for a dense level may cost more than they save. They are there
                // only while leaves become quiet.
                let some = &samples[..samples.len().min(DENSE_SAMPLES)];
                let raw = some.iter().map(|value| value.len()).sum::<usize>().max(1) as f64;
                let [fast, dense] = [Effort::Fast, Effort::Dense]
                    .map(|effort| packed_bytes(&trained, effort, some) as f64 / raw);
                let cost = trained.dense_memory_bytes() as f64 / DENSE_COST_SHARE;
                let pays = (fast - dense) * logical_bytes as f64 > cost;
                let keeps = pays || trained.has_background_codec();
                Some(Coding::Blocks(Arc::new(if keeps { trained } else { trained.without_dense() })))
            }
        }
    }

    /// Bytes that the training takes at most while it lasts, a sample of `sample_bytes` included.
    ///
    /// Blocks use zstd's fast cover, whose table of 6 MiB is most of what it needs: 20 times a small sample was
    /// measured.
    pub(super) fn training_bytes(&self, sample_bytes: usize) -> u64 {
        let values = sample_bytes / SAMPLE_BYTES_PER_VALUE;
        let bytes = match self {
            Self::Tokens(bits) => {
                let lists = values * SAMPLE_LIST_BYTES + SAMPLE_VALUE_BYTES_MAX;
                sample_bytes + lists + Dictionary::training_bytes_expected(*bits, values)
            }
            Self::Blocks(_) => 20 * sample_bytes.max(SAMPLE_BYTES_MIN),
        };
        bytes as u64
    }

    /// Bytes of the sample of a store of `logical_bytes` whose training has `room_bytes`: less where memory is short.
    /// `None` where it has no room for any.
    pub(super) fn sample_bytes(&self, logical_bytes: u64, room_bytes: u64) -> Option<usize> {
        let wanted_bytes =
            (logical_bytes / 8).clamp(SAMPLE_BYTES_MIN as u64, self.sample_bytes_max() as u64) as usize;
        let halves = std::iter::successors(Some(wanted_bytes), |bytes| Some(bytes / 2));
        halves
            .take_while(|bytes| *bytes >= SAMPLE_BYTES_SHORT)
            .find(|bytes| self.training_bytes(*bytes) <= room_bytes)
    }

    fn sample_bytes_max(&self) -> usize {
        match self {
            Self::Tokens(16) => SAMPLE_BYTES_MAX,
            Self::Tokens(14) => SAMPLE_BYTES_MAX >> 1,
            Self::Tokens(_) => SAMPLE_BYTES_MAX >> 3,
            Self::Blocks(_) => SAMPLE_BYTES_MAX >> 1,
        }
    }
}
