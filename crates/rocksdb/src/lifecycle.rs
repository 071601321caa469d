//! When a database gets a new generation of dictionaries, and what a block is packed with.
//!
//! A database that has a generation goes on with it. Otherwise the first file is sampled, and the generation that is made of it
//! serves the files after it without sampling and buffering. When files shrink less than the samples did, or the samples were few, the next file is sampled anew; what
//! comes of it must save a twentieth against the old one on the same samples, or the old one stays and is asked about again
//! after twice as many bytes.

use crate::codec::Guidance;
use crate::contexts::Contexts;
use crate::generation::Generation;
use crate::rows;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use ziptier_codec::block;
use ziptier_codec::format::Format;
use ziptier_codec::token::{Dictionary, Effort, Encoder};

/// What is asked of a file: enough for tokens of 14 bits.
const SAMPLE_BYTES: usize = 2 << 20;

/// With fewer samples than this a dictionary costs more than a twentieth of what it codes.
const SAMPLE_BYTES_MIN: usize = 400 << 10;

/// Bytes of a zstd dictionary.
const ZSTD_DICTIONARY_BYTES: usize = 16 << 10;

/// One token in so many keeps its place among the most used, which share cache lines; the others are sorted, so that the dictionary packs
/// better.
const HOT_SHARE: usize = 16;

/// Blocks of the samples that are packed in every way, to see which is best.
const TRIAL_BLOCKS: usize = 64;

/// Tokens may be longer than zstd's bytes by this many per cent: they unpack four times faster.
const WORTH_PCT: usize = 25;

/// Of so many blocks that tokens suit worse, one is tried with zstd while zstd keeps losing.
const TRY_EVERY: u32 = 8;

/// Losses in a row after which zstd is tried less often.
const LOSSES_MAX: u32 = 8;

/// Raw bytes after which a generation is looked at again.
const REVIEW_BYTES: u64 = 64 << 20;

/// The same for one that was made of few samples.
const REVIEW_BYTES_PROVISIONAL: u64 = 8 << 20;

/// The most bytes at which zstd is taken instead of so many bytes of tokens.
pub(crate) fn zstd_bytes_worth(token_bytes: usize) -> usize {
    token_bytes * 100 / (100 + WORTH_PCT)
}

/// The dictionaries of one manager's new files.
#[derive(Default)]
pub(crate) struct Lifecycle {
    dense: bool,
    state: Mutex<State>,
    /// Raw and packed bytes since the generation was looked at last.
    raw_bytes: AtomicU64,
    packed_bytes: AtomicU64,
    /// Bytes that zstd made of 1,024 bytes of the samples; 0 if none were seen.
    zstd_per_1024: AtomicU32,
    losses: AtomicU32,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Generation>>,
    /// Packed bytes of 1,024 bytes of the samples.
    packed_per_1024: u64,
    review_after: u64,
}

impl Lifecycle {
    pub(crate) fn new(level: i32) -> Lifecycle {
        Lifecycle { dense: level > 1, ..Lifecycle::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the next file is to be packed with.
    pub(crate) fn guidance(&self) -> Guidance {
        let state = self.state();
        let raw = self.raw_bytes.load(Ordering::Relaxed);
        match &state.current {
            Some(_) if raw >= state.review_after && self.is_worse(&state, raw) => {
                Guidance::Sample(SAMPLE_BYTES)
            }
            Some(current) => Guidance::Use(Arc::clone(current)),
            None => Guidance::Sample(SAMPLE_BYTES),
        }
    }

    /// Whether files shrink less than the samples by a tenth, or the samples were few.
    fn is_worse(&self, state: &State, raw: u64) -> bool {
        let packed_per_1024 = self.packed_bytes.load(Ordering::Relaxed) * 1024 / raw.max(1);
        let worse = packed_per_1024 * 10 > state.packed_per_1024 * 11;
        worse || state.review_after == REVIEW_BYTES_PROVISIONAL
    }

    /// Takes the generation of a file that was opened for new files, if there is none yet. How it does is not known, so that it is
    /// looked at soon.
    pub(crate) fn adopt(&self, generation: &Arc<Generation>) {
        let mut state = self.state();
        if state.current.is_none() {
            state.current = Some(Arc::clone(generation));
            state.review_after = REVIEW_BYTES_PROVISIONAL;
        }
    }

    /// Notes what became of a block.
    pub(crate) fn packed(&self, raw_bytes: usize, packed_bytes: usize) {
        self.raw_bytes.fetch_add(raw_bytes as u64, Ordering::Relaxed);
        self.packed_bytes.fetch_add(packed_bytes as u64, Ordering::Relaxed);
    }

    /// Whether zstd is likely to be so much shorter than these tokens that it is worth trying.
    pub(crate) fn suspects(&self, token_bytes: usize, raw_bytes: usize) -> bool {
        let expected = raw_bytes * self.zstd_per_1024.load(Ordering::Relaxed) as usize / 1024;
        if zstd_bytes_worth(token_bytes) <= expected {
            return false;
        }
        let losses = self.losses.load(Ordering::Relaxed);
        if losses < LOSSES_MAX {
            return true;
        }
        self.losses.fetch_add(1, Ordering::Relaxed);
        losses.is_multiple_of(TRY_EVERY)
    }

    /// Notes whether zstd was worth trying.
    pub(crate) fn tried_zstd(&self, won: bool) {
        if won {
            self.losses.store(0, Ordering::Relaxed);
        } else {
            self.losses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The generation for a file that was sampled: a new one, the one before, or none.
    pub(crate) fn train(&self, blocks: &[&[u8]], plain: &Contexts) -> Option<Arc<Generation>> {
        let sample_bytes: usize = blocks.iter().map(|block| block.len()).sum();
        let trial = Trial::new(blocks, plain, self.dense);
        let candidate = (sample_bytes >= SAMPLE_BYTES_MIN).then(|| trial.generation(sample_bytes)).flatten();
        let mut state = self.state();
        let review = if sample_bytes < SAMPLE_BYTES / 2 { REVIEW_BYTES_PROVISIONAL } else { REVIEW_BYTES };
        let cost = |generation: &Arc<Generation>| trial.packed_bytes(generation);
        let chosen = match (state.current.clone(), candidate) {
            (Some(current), Some(candidate)) if cost(&candidate) * 20 > cost(&current) * 19 => {
                state.review_after = (state.review_after * 2).max(review);
                Some(current)
            }
            (current, None) => current,
            (_, candidate) => {
                state.review_after = review;
                candidate
            }
        };
        if let Some(chosen) = &chosen {
            state.packed_per_1024 = (cost(chosen) * 1024 / trial.raw_bytes.max(1)) as u64;
            state.current = Some(Arc::clone(chosen));
        }
        self.zstd_per_1024
            .store((trial.zstd_bytes() * 1024 / trial.raw_bytes.max(1)) as u32, Ordering::Relaxed);
        self.raw_bytes.store(0, Ordering::Relaxed);
        self.packed_bytes.store(0, Ordering::Relaxed);
        chosen
    }
}

/// Some blocks, packed in every way.
struct Trial<'a> {
    blocks: &'a [&'a [u8]],
    chosen: Vec<&'a [u8]>,
    raw_bytes: usize,
    /// Bytes of each chosen block by zstd without a dictionary.
    zstd: Vec<usize>,
    effort: Effort,
}

impl<'a> Trial<'a> {
    fn new(blocks: &'a [&'a [u8]], plain: &Contexts, dense: bool) -> Trial<'a> {
        let step = (blocks.len() / TRIAL_BLOCKS).max(1);
        let chosen: Vec<&[u8]> = blocks.iter().copied().step_by(step).collect();
        Trial {
            blocks,
            raw_bytes: chosen.iter().map(|block| block.len()).sum(),
            zstd: chosen.iter().map(|block| zstd_bytes(plain, block)).collect(),
            chosen,
            effort: if dense { Effort::Dense } else { Effort::Fast },
        }
    }

    fn zstd_bytes(&self) -> usize {
        self.zstd.iter().sum()
    }

    /// What each chosen block takes in tokens.
    fn token_bytes(&self, tokens: &Dictionary) -> Vec<usize> {
        let (mut encoder, mut cut, mut coded) = (Encoder::new(), Vec::new(), Vec::new());
        let coded_bytes = self.chosen.iter().map(|block| {
            coded.clear();
            rows::cut(block, &mut cut);
            tokens.encode_rows(&mut encoder, self.effort, &cut, &mut coded);
            coded.len()
        });
        coded_bytes.collect()
    }

    /// Dictionaries for the ways that at least a tenth of the blocks is best packed in.
    fn generation(&self, sample_bytes: usize) -> Option<Arc<Generation>> {
        let mut rows_of_all = Vec::new();
        let mut cut = Vec::new();
        for block in self.blocks {
            rows::cut(block, &mut cut);
            rows_of_all.extend_from_slice(&cut);
        }
        let bits = if sample_bytes >= SAMPLE_BYTES * 3 / 4 { 14 } else { 12 };
        let tokens = Dictionary::train(&rows_of_all, bits, 0).ok()?;
        let tokens = tokens.sorted_behind(tokens.tokens() / HOT_SHARE).ok()?;
        let token_bytes = self.token_bytes(&tokens);
        let pairs = token_bytes.iter().zip(&self.zstd);
        let suited = pairs.filter(|(tokens, zstd)| zstd_bytes_worth(**tokens) <= **zstd).count();
        let tokens = (suited * 10 >= self.chosen.len()).then_some(tokens);
        let zstd = if (self.chosen.len() - suited) * 10 >= self.chosen.len() {
            block::Dictionary::train(Format::Zstd, self.blocks, ZSTD_DICTIONARY_BYTES, 0).ok()
        } else {
            None
        };
        if tokens.is_none() && zstd.is_none() {
            return None;
        }
        Generation::new(tokens.as_ref(), zstd.as_ref()).ok()
    }

    /// What the chosen blocks take with a generation.
    fn packed_bytes(&self, generation: &Arc<Generation>) -> usize {
        let zstd: Vec<usize> = match generation.zstd() {
            Some(contexts) => self.chosen.iter().map(|block| zstd_bytes(contexts, block)).collect(),
            None => self.zstd.clone(),
        };
        match generation.tokens() {
            None => zstd.iter().sum(),
            Some(tokens) => {
                let tokens = self.token_bytes(tokens);
                let best = |(&tokens, zstd): (&usize, usize)| {
                    if zstd <= zstd_bytes_worth(tokens) { zstd } else { tokens }
                };
                tokens.iter().zip(zstd).map(best).sum()
            }
        }
    }
}

/// What a block takes by zstd; its own length where it does not shrink.
fn zstd_bytes(contexts: &Contexts, block: &[u8]) -> usize {
    let mut out = Vec::new();
    let packed = contexts.with(|codec| codec.compress(block, &mut out, block.len()));
    packed.ok().flatten().unwrap_or(block.len())
}
