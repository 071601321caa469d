//! Choosing history and codes from samples.

use crate::dictionary::Dictionary;
use crate::encoder::{Counts, Encoder};
use crate::huffman::limited_lengths;
use crate::shared::{CANNED_DISTANCE_BITS, CANNED_LITERAL_BITS, CannedLengths, SharedCodes};
use crate::symbols::{DISTANCES, LITERALS};
use crate::{Level, WINDOW_BYTES};

/// Bytes of samples for making codes. An optimal parse of all samples would take seconds.
const PARSED_BYTES: usize = 256 << 10;

/// Parses for the costs of the codes that the parse before gave.
const ROUNDS: usize = 3;

/// Weight of a symbol that occurs against one that does not: a code for each is kept.
const WEIGHT: u32 = 8;

/// Chooses canned codes for blocks like these samples, behind this history.
pub(crate) fn train_codes(history: &[u8], samples: &[&[u8]]) -> CannedLengths {
    let dictionary = Dictionary::new(history);
    let mut encoder = Encoder::new(&dictionary, Level::Dense);
    let bytes: usize = samples.iter().map(|sample| sample.len()).sum();
    let step = bytes.div_ceil(PARSED_BYTES).max(1);
    let mut costs = SharedCodes::fixed().costs.clone();
    let mut lengths = lengths_of(&Counts::new());
    for _ in 0..ROUNDS {
        let mut counts = Counts::new();
        for sample in samples.iter().step_by(step) {
            counts.add(encoder.counts(sample, &costs));
        }
        lengths = lengths_of(&counts);
        costs = crate::codes::Costs::new(&lengths.literals, &lengths.distances);
    }
    lengths
}

fn lengths_of(counts: &Counts) -> CannedLengths {
    let mut lengths = CannedLengths { literals: [0; LITERALS], distances: [0; DISTANCES] };
    let weigh = |count: u32| count.saturating_mul(WEIGHT) + 1;
    limited_lengths(&counts.literals.map(weigh), CANNED_LITERAL_BITS, &mut lengths.literals);
    limited_lengths(&counts.distances.map(weigh), CANNED_DISTANCE_BITS, &mut lengths.distances);
    lengths
}

/// Bytes of a run whose occurrences are counted.
const RUN_BYTES: usize = 6;

/// Bytes of a part that is taken from the samples: 24 to 64 differ by 1 % or less.
const PART_BYTES: usize = 48;

/// Runs in a part.
const PART_RUNS: usize = PART_BYTES - RUN_BYTES + 1;

/// Bits of a run's hash.
const HASH_BITS: u32 = 18;

/// Chooses at most `max_bytes`, and no more than the window, of bytes that occur in many samples, the most useful last.
///
/// The samples are cut into as many epochs as parts are wanted. Of each epoch, the part is taken whose new runs occur
/// in most samples. Source of the method: COVER (Liao, Petri, Moffat, Wirth, "Effective Construction of Relative
/// Lempel-Ziv Dictionaries", WWW 2016), with counts by hash.
pub(crate) fn train_history(samples: &[&[u8]], max_bytes: usize) -> Vec<u8> {
    let max_bytes = max_bytes.min(WINDOW_BYTES);
    let mut worth = count_runs(samples);
    let joined = samples.concat();
    let epoch_bytes = joined.len() / (max_bytes / PART_BYTES).max(1);
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut bytes = 0;
    let mut scratch = Scratch { hashes: Vec::new(), inside: vec![0; 1 << HASH_BITS] };
    while bytes < max_bytes && epoch_bytes > 0 {
        let before = parts.len();
        for epoch in joined.chunks(epoch_bytes) {
            if let Some(part) = best_part(epoch, &mut worth, &mut scratch) {
                parts.push(part);
                bytes += part.len();
            }
            if bytes >= max_bytes {
                break;
            }
        }
        if parts.len() == before {
            break;
        }
    }
    parts.reverse();
    let mut history = parts.concat();
    history.split_off(history.len().saturating_sub(max_bytes))
}

/// The number of samples beyond the first in which each run occurs.
fn count_runs(samples: &[&[u8]]) -> Vec<u32> {
    let mut counts = vec![0u32; 1 << HASH_BITS];
    let mut last_seen = vec![0u32; 1 << HASH_BITS];
    for (sample, number) in samples.iter().zip(1..) {
        for run in sample.windows(RUN_BYTES) {
            let hash = hash_of(run);
            counts[hash] += u32::from(last_seen[hash] != number);
            last_seen[hash] = number;
        }
    }
    counts.iter_mut().for_each(|count| *count = count.saturating_sub(1));
    counts
}

struct Scratch {
    hashes: Vec<usize>,
    /// The number of times each run occurs in the current part.
    inside: Vec<u16>,
}

/// The most useful part of the bytes, if any is useful. The worth of its runs is then taken from `worth`.
fn best_part<'a>(bytes: &'a [u8], worth: &mut [u32], scratch: &mut Scratch) -> Option<&'a [u8]> {
    let Scratch { hashes, inside } = scratch;
    hashes.clear();
    hashes.extend(bytes.windows(RUN_BYTES).map(hash_of));
    let (mut sum, mut best, mut best_start) = (0u64, 0, 0);
    for (at, &hash) in hashes.iter().enumerate() {
        if let Some(start) = at.checked_sub(PART_RUNS) {
            let left = hashes[start];
            inside[left] -= 1;
            sum -= if inside[left] == 0 { u64::from(worth[left]) } else { 0 };
        }
        sum += if inside[hash] == 0 { u64::from(worth[hash]) } else { 0 };
        inside[hash] += 1;
        if sum > best {
            (best, best_start) = (sum, (at + 1).saturating_sub(PART_RUNS));
        }
    }
    hashes.iter().rev().take(PART_RUNS).for_each(|&hash| inside[hash] = 0);
    let chosen = &hashes[best_start..hashes.len().min(best_start + PART_RUNS)];
    // Runs at either end that are worth nothing are left out.
    let first = chosen.iter().position(|&hash| worth[hash] > 0)?;
    let last = chosen.iter().rposition(|&hash| worth[hash] > 0)?;
    chosen.iter().for_each(|&hash| worth[hash] = 0);
    Some(&bytes[best_start + first..best_start + last + RUN_BYTES])
}

fn hash_of(run: &[u8]) -> usize {
    let word = run.iter().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    (word.wrapping_mul(0x9E37_79B1_85EB_CA87) >> (64 - HASH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_what_samples_share() {
        let samples: Vec<String> = (0..400u32)
            .map(|i| {
                format!("{:08x}, a phrase that all of them have, {:08x}", i * 7919 % 1009, i * 104_729 % 997)
            })
            .collect();
        let samples: Vec<&[u8]> = samples.iter().map(|sample| sample.as_bytes()).collect();
        let history = train_history(&samples, 100);
        assert!(history.len() <= 100);
        assert!(String::from_utf8_lossy(&history).contains("phrase that all of them"));
        assert!(train_history(&[], 4096).is_empty());
        assert!(train_history(&[b"abc"], 4096).is_empty());
    }
}
