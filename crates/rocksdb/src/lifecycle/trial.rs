//! Packs some blocks of a file in every way, to compare the savings of a dictionary with its cost.

use super::{SAMPLE_BYTES, SAMPLE_BYTES_MIN, Way};
use crate::generation::Generation;
use crate::rows;
use crate::tokens::TokenCoder;
use std::ops::RangeInclusive;
use std::sync::Arc;
use ziptier_codec::block::{self, Contexts};
use ziptier_codec::format::Format;
use ziptier_codec::token::{Dictionary, Effort, packed};

/// Bytes of samples for each token. With fewer, files after the sampled one pay for unused tokens.
const SAMPLE_BYTES_PER_TOKEN: usize = 48;

/// Widths of tokens: the fewest are for files of 0.1 MB. More than the most made strangers larger at 16 KiB, and files
/// carry them.
const TOKEN_BITS: RangeInclusive<u32> = 10..=14;

/// Bytes of a zstd dictionary.
const ZSTD_DICTIONARY_BYTES: usize = 16 << 10;

/// Bytes of history behind canned codes: the most possible.
const CANNED_HISTORY_BYTES: usize = 4 << 10;

/// Codes of tokens must save one byte of the file in so many: each block is unpacked in four to five times the time.
const CODES_SAVE_ONE_IN: usize = 20;

/// Memory for training codes, beside blocks and their numbers: enough for half a million tokens.
const CODES_TRAINING_BYTES: usize = 16 << 20;

/// Blocks of the samples that are packed in every way, to see which is best: an eighth of them, between these.
const TRIAL_BLOCKS: RangeInclusive<usize> = 8..=64;
const TRIAL_SHARE: usize = 8;

/// A zstd dictionary is tried if the samples have this many times its bytes.
const SAMPLES_PER_ZSTD_DICTIONARY: usize = 20;

/// Some blocks, packed in every way.
pub(super) struct Trial<'a> {
    pub(super) chosen: Vec<&'a [u8]>,
    /// One block in so many was chosen.
    step: usize,
    /// Bytes of all blocks: of the file, if it is small.
    pub(super) sample_bytes: usize,
    /// Bytes of the chosen blocks.
    raw_bytes: usize,
    /// Bytes of each chosen block alone, without a dictionary.
    alone: Vec<usize>,
    way: Way,
}

/// A generation, and its effect on a file.
pub(super) struct Weighed {
    pub(super) generation: Arc<Generation>,
    /// Packed bytes of 1,024 of the chosen blocks.
    pub(super) packed_per_1024: u64,
    /// Bytes of the file with the generation in it.
    pub(super) file_bytes: usize,
    /// Whether the generation pays, compared with a file of blocks that are packed alone.
    pub(super) is_worth: bool,
}

impl Weighed {
    /// The generation, if the file is to have it.
    pub(super) fn worthy(self) -> Option<Arc<Generation>> {
        self.is_worth.then_some(self.generation)
    }

    /// Bytes of the file without the generation.
    fn block_bytes(&self) -> usize {
        self.file_bytes - self.generation.as_bytes().len()
    }
}

/// Whether a generation was made for files that are each sampled: its tokens are narrow.
pub(super) fn is_for_small_files(generation: &Generation) -> bool {
    generation.tokens().is_some_and(|tokens| tokens.bits() < *TOKEN_BITS.end())
}

/// The widest tokens whose number is not too large for samples of `sample_bytes` bytes.
fn token_bits(sample_bytes: usize) -> u32 {
    let fits = |bits: &u32| sample_bytes >> *bits >= SAMPLE_BYTES_PER_TOKEN;
    TOKEN_BITS.rev().find(fits).unwrap_or(*TOKEN_BITS.start())
}

impl<'a> Trial<'a> {
    pub(super) fn new(blocks: &'a [&'a [u8]], alone: &Contexts, way: Way) -> Trial<'a> {
        let count = (blocks.len() / TRIAL_SHARE).clamp(*TRIAL_BLOCKS.start(), *TRIAL_BLOCKS.end());
        let step = (blocks.len() / count).max(1);
        let chosen: Vec<&[u8]> = blocks.iter().copied().step_by(step).collect();
        let bytes_of = |blocks: &[&[u8]]| blocks.iter().map(|block| block.len()).sum();
        let (sample_bytes, raw_bytes) = (bytes_of(blocks), bytes_of(&chosen));
        Trial { sample_bytes, raw_bytes, alone: bytes_by(alone, &chosen), chosen, step, way }
    }

    /// Whether the samples are all that the file has, so that the next ones are likely to be no larger.
    pub(super) fn is_small(&self) -> bool {
        self.sample_bytes < SAMPLE_BYTES * 3 / 4
    }

    /// The blocks that were not chosen, if they are the majority. A dictionary trained on them is then judged by unseen
    /// blocks.
    pub(super) fn others<'b>(&self, blocks: &'b [&'b [u8]]) -> impl Iterator<Item = &'b [u8]> {
        let step = self.step;
        blocks.iter().enumerate().filter(move |(at, _)| step < 3 || at % step != 0).map(|(_, block)| *block)
    }

    /// Bytes that 1,024 bytes of the chosen blocks take alone.
    pub(super) fn alone_per_1024(&self) -> usize {
        self.alone.iter().sum::<usize>() * 1024 / self.raw_bytes.max(1)
    }

    /// The bytes of each chosen block in tokens; its own length if memory for coding it is refused.
    fn token_bytes(&self, tokens: &Dictionary, effort: Effort) -> Vec<usize> {
        let (mut coder, mut coded) = (TokenCoder::default(), Vec::new());
        let coded_bytes = self.chosen.iter().map(|block| {
            coded.clear();
            coder.append(tokens, effort, block, &mut coded).map_or(block.len(), |_| coded.len())
        });
        coded_bytes.collect()
    }

    /// The number of chosen blocks that are not better alone.
    fn suited(&self, shared: &[usize], has_codes: bool) -> usize {
        let pairs = shared.iter().zip(&self.alone);
        pairs.filter(|(shared, alone)| self.way.bytes_worth(**shared, has_codes) <= **alone).count()
    }

    fn is_a_tenth(&self, count: usize) -> bool {
        count * 10 >= self.chosen.len()
    }

    /// Dictionaries made of `samples`, for the ways that at least a tenth of the chosen blocks is best packed in.
    pub(super) fn generation(&self, samples: &[&[u8]]) -> Option<Weighed> {
        if self.sample_bytes < SAMPLE_BYTES_MIN {
            return None;
        }
        match self.way {
            Way::Tokens(effort) => self.tokens_and_zstd(samples, effort),
            Way::Canned => self.canned(samples),
        }
    }

    fn tokens_and_zstd(&self, samples: &[&[u8]], effort: Effort) -> Option<Weighed> {
        let mut rows_of_all = Vec::new();
        let mut cut = Vec::new();
        for block in samples {
            rows::cut(block, &mut cut).ok()?;
            rows_of_all.extend_from_slice(&cut);
        }
        let tokens = Dictionary::train(&rows_of_all, token_bits(self.sample_bytes), 0).ok()?;
        let tokens = packed::in_order(&tokens).ok()?;
        let by_numbers = self.by_tokens(&tokens, samples, effort);
        if !self.way.has_codes() {
            return by_numbers;
        }
        let codes = TokenCoder::default().train(&tokens, effort, samples, CODES_TRAINING_BYTES);
        let by_codes = codes.and_then(|codes| self.by_tokens(&tokens.with_codes(codes), samples, effort));
        match (by_numbers, by_codes) {
            (Some(numbers), Some(codes)) if !self.codes_pay(&codes, &numbers) => Some(numbers),
            (numbers, codes) => codes.or(numbers),
        }
    }

    /// Whether codes save enough for the time that they take. Samples are a small part of a large file, so the bytes of
    /// the generation count for little there.
    fn codes_pay(&self, codes: &Weighed, numbers: &Weighed) -> bool {
        let bytes = |of: &Weighed| if self.is_small() { of.file_bytes } else { of.block_bytes() };
        codes.file_bytes < numbers.file_bytes
            && bytes(codes) * CODES_SAVE_ONE_IN <= bytes(numbers) * (CODES_SAVE_ONE_IN - 1)
    }

    /// Weighs a dictionary of tokens, with one of zstd for the blocks that it does not suit if that is better.
    fn by_tokens(&self, tokens: &Dictionary, samples: &[&[u8]], effort: Effort) -> Option<Weighed> {
        let suited = self.suited(&self.token_bytes(tokens, effort), tokens.codes().is_some());
        let tokens = self.is_a_tenth(suited).then_some(tokens);
        let zstd = self.is_a_tenth(self.chosen.len() - suited).then(|| self.zstd(samples)).flatten();
        let weighed = |tokens: Option<&Dictionary>, zstd: Option<&block::Dictionary>| {
            Some(self.weighed(Generation::new(tokens, zstd).ok()?))
        };
        let without = tokens.and_then(|tokens| weighed(Some(tokens), None));
        let with = zstd.as_ref().and_then(|zstd| weighed(tokens, Some(zstd)));
        [without, with].into_iter().flatten().min_by_key(|weighed| weighed.file_bytes)
    }

    fn zstd(&self, samples: &[&[u8]]) -> Option<block::Dictionary> {
        if self.sample_bytes < ZSTD_DICTIONARY_BYTES * SAMPLES_PER_ZSTD_DICTIONARY {
            return None;
        }
        block::Dictionary::train(Format::Zstd, samples, ZSTD_DICTIONARY_BYTES, 0).ok()
    }

    fn canned(&self, samples: &[&[u8]]) -> Option<Weighed> {
        let trained = block::Dictionary::train(Format::Deflate, samples, CANNED_HISTORY_BYTES, 0).ok()?;
        let generation = Generation::new(None, Some(&trained)).ok()?;
        let suited = self.suited(&bytes_by(generation.canned()?.on_cpu(), &self.chosen), false);
        self.is_a_tenth(suited).then(|| self.weighed(generation))
    }

    /// Weighs a generation for the file.
    pub(super) fn weighed(&self, generation: Arc<Generation>) -> Weighed {
        let alone = generation.zstd().map(|contexts| bytes_by(contexts, &self.chosen));
        let alone = alone.as_ref().unwrap_or(&self.alone);
        let shared = match (self.way, generation.tokens(), generation.canned()) {
            (Way::Tokens(effort), Some(tokens), _) => self.token_bytes(tokens, effort),
            (Way::Canned, _, Some(canned)) => bytes_by(canned.on_cpu(), &self.chosen),
            _ => vec![usize::MAX / 100; alone.len()],
        };
        let has_codes = generation.has_codes();
        let is_shared = |shared: usize, alone: usize| alone > self.way.bytes_worth(shared, has_codes);
        let pairs = || shared.iter().copied().zip(alone.iter().copied());
        let packed: usize =
            pairs().map(|(shared, alone)| if is_shared(shared, alone) { shared } else { alone }).sum();
        let suited = pairs().filter(|&(shared, alone)| is_shared(shared, alone)).count();
        let of_file = |bytes: usize| bytes * self.sample_bytes / self.raw_bytes.max(1);
        let file_bytes = of_file(packed) + generation.as_bytes().len();
        let alone_bytes = of_file(self.alone.iter().sum());
        let worth = self.way.file_bytes_worth(alone_bytes, suited, self.chosen.len(), has_codes);
        Weighed {
            packed_per_1024: (packed * 1024 / self.raw_bytes.max(1)) as u64,
            file_bytes,
            is_worth: file_bytes <= worth,
            generation,
        }
    }
}

/// The packed bytes of each block; its own length if it does not shrink.
fn bytes_by(contexts: &Contexts, blocks: &[&[u8]]) -> Vec<usize> {
    let mut out = Vec::new();
    let bytes = blocks.iter().map(|block| {
        out.clear();
        let packed = contexts.with(|codec| codec.compress(block, &mut out, block.len()));
        packed.ok().flatten().unwrap_or(block.len())
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_narrower_the_fewer_samples_there_are() {
        let widths = [32, 90, 100, 250, 500, 1_000, 2_000].map(|kib| token_bits(kib << 10));
        assert_eq!(widths, [10, 10, 11, 12, 13, 14, 14]);
    }
}
