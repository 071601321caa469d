//! When a database gets a new generation of dictionaries, and what a block is packed with, in any private format.
//!
//! A database that has a generation goes on with it. Otherwise the first file is sampled, and the generation that is made of it
//! serves the files after it without sampling and buffering. When files shrink less than the samples did, or the samples were few, the next file is sampled anew; what
//! comes of it must save a twentieth against the old one on the same samples, or the old one stays and is asked about again
//! after twice as many bytes.

use crate::codec::Guidance;
use crate::contexts::Contexts;
use crate::generation::Generation;
use crate::rows;
use crate::settings::{Private, Settings};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use ziptier_codec::block;
use ziptier_codec::format::Format;
use ziptier_codec::token::{Dictionary, Effort, Encoder};

/// What is asked of a file: enough for tokens of 14 bits.
const SAMPLE_BYTES: usize = 2 << 20;

/// With fewer samples than this a dictionary costs more than a twentieth of what it codes: 60 KB of tokens, 4 KB of history and codes.
const SAMPLE_BYTES_MIN: usize = 400 << 10;
const SAMPLE_BYTES_MIN_CANNED: usize = 96 << 10;

/// Bytes of a zstd dictionary.
const ZSTD_DICTIONARY_BYTES: usize = 16 << 10;

/// Bytes of history behind canned codes: the most there is.
const CANNED_HISTORY_BYTES: usize = 4 << 10;

/// One token in so many keeps its place among the most used, which share cache lines; the others are sorted, so that the dictionary packs
/// better.
const HOT_SHARE: usize = 16;

/// Blocks of the samples that are packed in every way, to see which is best.
const TRIAL_BLOCKS: usize = 64;

/// Tokens may be longer than zstd's bytes by this many per cent: they unpack four times faster.
const WORTH_PCT: usize = 25;

/// The same for canned codes against codes of the block's own: there are no tables to build.
const WORTH_PCT_CANNED: usize = 10;

/// Of so many blocks that the dictionary suits worse, one is tried without while that keeps losing.
const TRY_EVERY: u32 = 8;

/// Losses in a row after which it is tried less often.
const LOSSES_MAX: u32 = 8;

/// Raw bytes after which a generation is looked at again.
const REVIEW_BYTES: u64 = 64 << 20;

/// The same for one that was made of few samples.
const REVIEW_BYTES_PROVISIONAL: u64 = 8 << 20;

/// The ways in which a private format packs a block: by what files share, or *alone*, by a format that is slower to read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// By tokens, alone by zstd.
    Tokens(Effort),
    /// By deflate with canned codes, alone with codes of its own.
    Canned,
}

impl Way {
    pub(crate) fn of(settings: &Settings) -> Way {
        match settings.private() {
            Some(Private::Canned) => Way::Canned,
            _ if settings.token_level() == 1 => Way::Tokens(Effort::Fast),
            _ => Way::Tokens(Effort::Dense),
        }
    }

    fn private(self) -> Private {
        match self {
            Way::Tokens(_) => Private::Tokens,
            Way::Canned => Private::Canned,
        }
    }

    /// The most bytes at which a block is better alone than by so many of what is shared.
    pub(crate) fn bytes_worth(self, shared_bytes: usize) -> usize {
        let pct = match self {
            Way::Tokens(_) => WORTH_PCT,
            Way::Canned => WORTH_PCT_CANNED,
        };
        shared_bytes * 100 / (100 + pct)
    }

    fn sample_bytes_min(self) -> usize {
        match self {
            Way::Tokens(_) => SAMPLE_BYTES_MIN,
            Way::Canned => SAMPLE_BYTES_MIN_CANNED,
        }
    }
}

/// The dictionaries of one manager's new files.
pub(crate) struct Lifecycle {
    way: Way,
    state: Mutex<State>,
    /// Raw and packed bytes since the generation was looked at last.
    raw_bytes: AtomicU64,
    packed_bytes: AtomicU64,
    /// Bytes that 1,024 bytes of the samples took alone; 0 if none were seen.
    alone_per_1024: AtomicU32,
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
    pub(crate) fn new(way: Way) -> Lifecycle {
        Lifecycle {
            way,
            state: Mutex::default(),
            raw_bytes: AtomicU64::new(0),
            packed_bytes: AtomicU64::new(0),
            alone_per_1024: AtomicU32::new(0),
            losses: AtomicU32::new(0),
        }
    }

    pub(crate) fn way(&self) -> Way {
        self.way
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

    /// Takes the generation of a file that was opened for new files, if it is one for them and there is none yet. How it does is not known, so that it is
    /// looked at soon.
    pub(crate) fn adopt(&self, generation: &Arc<Generation>) {
        let mut state = self.state();
        if state.current.is_none() && generation.serves(self.way.private()) {
            state.current = Some(Arc::clone(generation));
            state.review_after = REVIEW_BYTES_PROVISIONAL;
        }
    }

    /// Notes what became of a block.
    pub(crate) fn packed(&self, raw_bytes: usize, packed_bytes: usize) {
        self.raw_bytes.fetch_add(raw_bytes as u64, Ordering::Relaxed);
        self.packed_bytes.fetch_add(packed_bytes as u64, Ordering::Relaxed);
    }

    /// Whether a block that takes so many bytes of what is shared is likely to be so much shorter alone that it is worth trying.
    pub(crate) fn suspects(&self, shared_bytes: usize, raw_bytes: usize) -> bool {
        let expected = raw_bytes * self.alone_per_1024.load(Ordering::Relaxed) as usize / 1024;
        if self.way.bytes_worth(shared_bytes) <= expected {
            return false;
        }
        let losses = self.losses.load(Ordering::Relaxed);
        if losses < LOSSES_MAX {
            return true;
        }
        self.losses.fetch_add(1, Ordering::Relaxed);
        losses.is_multiple_of(TRY_EVERY)
    }

    /// Notes whether that was worth trying.
    pub(crate) fn tried_alone(&self, won: bool) {
        if won {
            self.losses.store(0, Ordering::Relaxed);
        } else {
            self.losses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The generation for a file that was sampled: a new one, the one before, or none. `alone` packs blocks without one.
    pub(crate) fn train(&self, blocks: &[&[u8]], alone: &Contexts) -> Option<Arc<Generation>> {
        let sample_bytes: usize = blocks.iter().map(|block| block.len()).sum();
        let trial = Trial::new(blocks, alone, self.way);
        let candidate =
            (sample_bytes >= self.way.sample_bytes_min()).then(|| trial.generation(sample_bytes)).flatten();
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
        let alone: usize = trial.alone.iter().sum();
        self.alone_per_1024.store((alone * 1024 / trial.raw_bytes.max(1)) as u32, Ordering::Relaxed);
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
    /// Bytes of each chosen block alone, without a dictionary.
    alone: Vec<usize>,
    way: Way,
}

impl<'a> Trial<'a> {
    fn new(blocks: &'a [&'a [u8]], alone: &Contexts, way: Way) -> Trial<'a> {
        let step = (blocks.len() / TRIAL_BLOCKS).max(1);
        let chosen: Vec<&[u8]> = blocks.iter().copied().step_by(step).collect();
        let raw_bytes = chosen.iter().map(|block| block.len()).sum();
        Trial { blocks, raw_bytes, alone: bytes_by(alone, &chosen), chosen, way }
    }

    /// What each chosen block takes in tokens.
    fn token_bytes(&self, tokens: &Dictionary, effort: Effort) -> Vec<usize> {
        let (mut encoder, mut cut, mut coded) = (Encoder::new(), Vec::new(), Vec::new());
        let coded_bytes = self.chosen.iter().map(|block| {
            coded.clear();
            rows::cut(block, &mut cut);
            tokens.encode_rows(&mut encoder, effort, &cut, &mut coded);
            coded.len()
        });
        coded_bytes.collect()
    }

    /// How many of the chosen blocks are not better alone.
    fn suited(&self, shared: &[usize]) -> usize {
        let pairs = shared.iter().zip(&self.alone);
        pairs.filter(|(shared, alone)| self.way.bytes_worth(**shared) <= **alone).count()
    }

    fn is_a_tenth(&self, count: usize) -> bool {
        count * 10 >= self.chosen.len()
    }

    /// Dictionaries for the ways that at least a tenth of the blocks is best packed in.
    fn generation(&self, sample_bytes: usize) -> Option<Arc<Generation>> {
        match self.way {
            Way::Tokens(effort) => self.tokens_and_zstd(sample_bytes, effort),
            Way::Canned => self.canned(),
        }
    }

    fn tokens_and_zstd(&self, sample_bytes: usize, effort: Effort) -> Option<Arc<Generation>> {
        let mut rows_of_all = Vec::new();
        let mut cut = Vec::new();
        for block in self.blocks {
            rows::cut(block, &mut cut);
            rows_of_all.extend_from_slice(&cut);
        }
        let bits = if sample_bytes >= SAMPLE_BYTES * 3 / 4 { 14 } else { 12 };
        let tokens = Dictionary::train(&rows_of_all, bits, 0).ok()?;
        let tokens = tokens.sorted_behind(tokens.tokens() / HOT_SHARE).ok()?;
        let suited = self.suited(&self.token_bytes(&tokens, effort));
        let tokens = self.is_a_tenth(suited).then_some(tokens);
        let zstd = if self.is_a_tenth(self.chosen.len() - suited) {
            block::Dictionary::train(Format::Zstd, self.blocks, ZSTD_DICTIONARY_BYTES, 0).ok()
        } else {
            None
        };
        if tokens.is_none() && zstd.is_none() {
            return None;
        }
        Generation::new(tokens.as_ref(), zstd.as_ref()).ok()
    }

    fn canned(&self) -> Option<Arc<Generation>> {
        let trained = block::Dictionary::train(Format::Deflate, self.blocks, CANNED_HISTORY_BYTES, 0).ok()?;
        let generation = Generation::new(None, Some(&trained)).ok()?;
        let suited = self.suited(&bytes_by(generation.canned()?.on_cpu(), &self.chosen));
        self.is_a_tenth(suited).then_some(generation)
    }

    /// What the chosen blocks take with a generation.
    fn packed_bytes(&self, generation: &Generation) -> usize {
        let alone = match generation.zstd() {
            Some(contexts) => bytes_by(contexts, &self.chosen),
            None => self.alone.clone(),
        };
        let shared = match (self.way, generation.tokens(), generation.canned()) {
            (Way::Tokens(effort), Some(tokens), _) => self.token_bytes(tokens, effort),
            (Way::Canned, _, Some(canned)) => bytes_by(canned.on_cpu(), &self.chosen),
            _ => return alone.iter().sum(),
        };
        let best = |(shared, alone)| if alone <= self.way.bytes_worth(shared) { alone } else { shared };
        shared.into_iter().zip(alone).map(best).sum()
    }
}

/// What each block takes; its own length where it does not shrink.
fn bytes_by(contexts: &Contexts, blocks: &[&[u8]]) -> Vec<usize> {
    let mut out = Vec::new();
    let bytes = blocks.iter().map(|block| {
        out.clear();
        let packed = contexts.with(|codec| codec.compress(block, &mut out, block.len()));
        packed.ok().flatten().unwrap_or(block.len())
    });
    bytes.collect()
}
