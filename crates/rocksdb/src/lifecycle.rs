//! Decides when a database gets a new generation of dictionaries, and how each block is packed, in any private format.
//!
//! A database with a generation keeps it. Otherwise the manager samples the first file, and the new generation serves
//! later files without sampling and buffering. When files shrink less than the samples did, the manager samples the
//! next file. The new generation must save a twentieth against the old one on the same samples. Otherwise the old one
//! stays, and is reviewed again after twice as many bytes. Where no dictionary pays for a large file, the next one is
//! sampled after twice as many bytes, too.
//!
//! In small files, a dictionary is a good part of the file. So the manager samples each small file as a whole and
//! *weighs* it. It compares the dictionary plus some blocks packed with it to the same blocks packed alone. The file
//! gets the dictionary if that pays. The smaller the files, the fewer and narrower the tokens. The manager gathers
//! these blocks over the files. With four times as many as the generation was made of, it makes a new generation of
//! them all. That one knows more families of records, and all files share it.

mod trial;

use crate::codec::Guidance;
use crate::generation::Generation;
use crate::settings::{Private, Settings};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trial::{Trial, Weighed};
use ziptier_codec::block::Contexts;
use ziptier_codec::token::Effort;

/// Bytes of samples of a file: enough for tokens of 14 bits.
const SAMPLE_BYTES: usize = 2 << 20;

/// A file with fewer samples than this is too small for any dictionary.
const SAMPLE_BYTES_MIN: usize = 32 << 10;

/// A generation for small files is made anew when this many times its bytes of samples have been gathered since.
const GROWTH: usize = 3;

/// Of each small file, one byte in this many is gathered.
const GATHERED_SHARE: usize = 8;

/// Tokens may be longer than zstd's bytes by this many per cent: they unpack four times faster. Tokens with codes do
/// not, so they may not be longer.
const WORTH_PCT: usize = 25;

/// The same for canned codes against the block's own codes: canned codes need no tables to be built.
const WORTH_PCT_CANNED: usize = 10;

/// Of this many blocks that the dictionary suits badly, one is tried alone while such tries keep losing.
const TRY_EVERY: u32 = 8;

/// Losses in a row after which tries become rarer.
const LOSSES_MAX: u32 = 8;

/// Raw bytes after which a generation is reviewed.
const REVIEW_BYTES: u64 = 64 << 20;

/// The same for a generation that was found in a file.
const REVIEW_BYTES_PROVISIONAL: u64 = 8 << 20;

/// The most raw bytes after which a large file is sampled again where no dictionary paid.
const SAMPLE_AFTER_MAX: u64 = 16 * REVIEW_BYTES;

/// The ways in which a private format packs a block: by shared dictionaries, or *alone*, in a format that is slower to
/// read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// By tokens, alone by zstd.
    Tokens(Effort),
    /// Shared: deflate with canned codes. Alone: deflate with the block's own codes.
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

    /// Whether tokens may get codes. Files of other managers do not have the name under which codes are read.
    fn has_codes(self) -> bool {
        matches!(self, Way::Tokens(Effort::Dense))
    }

    /// Whether new files can be packed by a generation.
    fn takes(self, generation: &Generation) -> bool {
        generation.serves(self.private()) && (self.has_codes() || !generation.has_codes())
    }

    /// The most bytes at which a block is better alone than with `shared_bytes` bytes by shared dictionaries. The
    /// dictionary of tokens has codes, or not.
    pub(crate) fn bytes_worth(self, shared_bytes: usize, has_codes: bool) -> usize {
        let pct = match self {
            Way::Tokens(_) if has_codes => 0,
            Way::Tokens(_) => WORTH_PCT,
            Way::Canned => WORTH_PCT_CANNED,
        };
        shared_bytes * 100 / (100 + pct)
    }

    /// The most bytes of a file by shared dictionaries that are worth it. They depend on the file's bytes alone and on
    /// the part that is better shared. Tokens without codes may cost a sixth of the part that they serve, because other
    /// files save it.
    pub(crate) fn file_bytes_worth(
        self,
        alone_bytes: usize,
        suited: usize,
        blocks: usize,
        has_codes: bool,
    ) -> usize {
        match self {
            Way::Tokens(_) if !has_codes => alone_bytes + alone_bytes * suited / (blocks * 6).max(1),
            _ => alone_bytes,
        }
    }
}

/// The dictionaries of one manager's new files.
pub(crate) struct Lifecycle {
    way: Way,
    state: Mutex<State>,
    /// Raw and packed bytes since the last review of the generation.
    raw_bytes: AtomicU64,
    packed_bytes: AtomicU64,
    /// Raw bytes of all blocks since the last file that was sampled, those that do not shrink included.
    offered_bytes: AtomicU64,
    /// Bytes that 1,024 bytes of the samples took alone; 0 if none were seen.
    alone_per_1024: AtomicU32,
    losses: AtomicU32,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Generation>>,
    /// Packed bytes of 1,024 bytes of the samples.
    packed_per_1024: u64,
    /// Whether files are so small that each is sampled and weighed.
    files_are_small: bool,
    gathered: Gathered,
    /// Bytes to be gathered before a generation for small files is made.
    train_after: usize,
    review_after: u64,
    /// Without a generation: bytes to be offered before the next large file is sampled.
    sample_after: u64,
}

/// Blocks that a generation is made of, copied.
type Samples = Vec<Box<[u8]>>;

/// Blocks of small files, the last ones that were met.
#[derive(Default)]
struct Gathered {
    blocks: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// Bytes that came since a generation was made.
    new_bytes: usize,
}

impl Gathered {
    /// Adds the first blocks, up to `bytes_max` bytes and at least one block.
    fn add(&mut self, blocks: &[&[u8]], bytes_max: usize) {
        let end = self.new_bytes + bytes_max;
        for &block in blocks {
            self.bytes += block.len();
            self.new_bytes += block.len();
            self.blocks.push_back(block.into());
            if self.new_bytes >= end {
                break;
            }
        }
        while self.bytes > SAMPLE_BYTES {
            self.bytes -= self.blocks.pop_front().map_or(self.bytes, |block| block.len());
        }
    }
}

impl Lifecycle {
    pub(crate) fn new(way: Way) -> Lifecycle {
        Lifecycle {
            way,
            state: Mutex::default(),
            raw_bytes: AtomicU64::new(0),
            packed_bytes: AtomicU64::new(0),
            offered_bytes: AtomicU64::new(0),
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

    /// The guidance for the next file.
    pub(crate) fn guidance(&self, may_sample: bool) -> Guidance {
        let state = self.state();
        match &state.current {
            Some(current) if !may_sample || !state.files_are_small && !self.is_due(&state) => {
                Guidance::Use(Arc::clone(current))
            }
            None if !may_sample || !state.files_are_small && self.is_vain(&state) => Guidance::Plain,
            _ => Guidance::Sample(SAMPLE_BYTES),
        }
    }

    /// Whether the generation needs a review: files shrink less than the samples by a tenth, or the generation was
    /// found in a file.
    fn is_due(&self, state: &State) -> bool {
        let raw = self.raw_bytes.load(Ordering::Relaxed);
        let packed_per_1024 = self.packed_bytes.load(Ordering::Relaxed) * 1024 / raw.max(1);
        let was_found = state.review_after == REVIEW_BYTES_PROVISIONAL;
        raw >= state.review_after && (was_found || packed_per_1024 * 10 > state.packed_per_1024 * 11)
    }

    /// Whether a large file would be sampled in vain, as one was not long ago. RocksDB buffers such a file, and a try
    /// takes as long as a training.
    fn is_vain(&self, state: &State) -> bool {
        self.offered_bytes.load(Ordering::Relaxed) < state.sample_after
    }

    /// Takes the generation of a file that was opened for new files, if it is one for them and there is none yet. Its
    /// worth is not known, so it is reviewed soon.
    pub(crate) fn adopt(&self, generation: &Arc<Generation>) {
        let mut state = self.state();
        if state.current.is_none() && self.way.takes(generation) {
            state.current = Some(Arc::clone(generation));
            state.files_are_small = trial::is_for_small_files(generation);
            state.review_after = REVIEW_BYTES_PROVISIONAL;
        }
    }

    /// Notes a block that comes to be packed.
    pub(crate) fn offered(&self, raw_bytes: usize) {
        self.offered_bytes.fetch_add(raw_bytes as u64, Ordering::Relaxed);
    }

    /// Notes the result of a block.
    pub(crate) fn packed(&self, raw_bytes: usize, packed_bytes: usize) {
        self.raw_bytes.fetch_add(raw_bytes as u64, Ordering::Relaxed);
        self.packed_bytes.fetch_add(packed_bytes as u64, Ordering::Relaxed);
    }

    /// Whether a block is likely to take at most [`worth`](Way::bytes_worth) bytes alone, so that a try pays.
    pub(crate) fn suspects(&self, worth: usize, raw_bytes: usize) -> bool {
        let expected = raw_bytes * self.alone_per_1024.load(Ordering::Relaxed) as usize / 1024;
        if worth <= expected {
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

    /// The generation for a file that was sampled: a new one, the one before, or none. `alone` packs blocks without
    /// one.
    pub(crate) fn train(&self, blocks: &[&[u8]], alone: &Contexts) -> Option<Arc<Generation>> {
        let trial = Trial::new(blocks, alone, self.way);
        self.alone_per_1024.store(trial.alone_per_1024() as u32, Ordering::Relaxed);
        let (current, samples) = self.begin(&trial);
        let current = current.map(|current| trial.weighed(current));
        let Some(samples) = samples else { return current.and_then(Weighed::worthy) };
        let samples: Vec<&[u8]> = samples.iter().map(|block| &**block).chain(trial.others(blocks)).collect();
        let candidate = trial.generation(&samples);
        // A try on a large file says nothing about the samples that small files gather.
        let wait_factor = if trial.is_small() { 2 } else { 1 };
        let mut state = self.state();
        let chosen = match (current, candidate) {
            (Some(current), candidate)
                if candidate
                    .as_ref()
                    .is_none_or(|candidate| candidate.file_bytes * 20 > current.file_bytes * 19) =>
            {
                state.review_after = (state.review_after * 2).max(REVIEW_BYTES);
                state.train_after *= wait_factor;
                Some(current)
            }
            (None, None) => {
                state.train_after *= wait_factor;
                if !trial.is_small() {
                    state.sample_after = (state.sample_after * 2).clamp(REVIEW_BYTES, SAMPLE_AFTER_MAX);
                }
                None
            }
            (_, candidate) => {
                state.review_after = REVIEW_BYTES;
                candidate
            }
        };
        let chosen = chosen?;
        state.packed_per_1024 = chosen.packed_per_1024;
        state.sample_after = 0;
        state.current = Some(Arc::clone(&chosen.generation));
        chosen.worthy()
    }

    /// Takes note of a sampled file. Returns the present generation. If a new one is due, also returns its further
    /// samples beside the file's own.
    fn begin(&self, trial: &Trial<'_>) -> (Option<Arc<Generation>>, Option<Samples>) {
        let mut state = self.state();
        self.raw_bytes.store(0, Ordering::Relaxed);
        self.packed_bytes.store(0, Ordering::Relaxed);
        self.offered_bytes.store(0, Ordering::Relaxed);
        state.files_are_small = trial.is_small();
        let mut samples = Some(Vec::new());
        if state.files_are_small {
            let is_time = state.gathered.new_bytes >= state.train_after;
            samples = is_time.then(|| state.gathered.blocks.iter().cloned().collect());
            if is_time {
                state.train_after = GROWTH * (state.gathered.bytes + trial.sample_bytes);
                state.gathered.new_bytes = 0;
            }
            state.gathered.add(&trial.chosen, trial.sample_bytes / GATHERED_SHARE);
        }
        (state.current.clone(), samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{CANNED, Codec, Packed};
    use ziptier_codec::block::{Dictionary, Path, Setting};
    use ziptier_codec::format::Format;

    /// Blocks, each with an alphabet of its own, so that no code suits two of them.
    fn strangers(count: usize) -> Vec<Vec<u8>> {
        const BLOCK_BYTES: usize = 4096;
        const LETTERS: usize = 64;
        let mut random = fastrand::Rng::with_seed(7);
        let mut letters: Vec<u8> = (0..=u8::MAX).collect();
        let block = |_| {
            random.shuffle(&mut letters);
            (0..BLOCK_BYTES).map(|_| letters[random.usize(..LETTERS)]).collect::<Vec<u8>>()
        };
        (0..count).map(block).collect()
    }

    fn alone() -> Contexts {
        let engine = Setting::new(Format::Deflate).with_path(Path::Software).engine().unwrap();
        Contexts::new(engine)
    }

    /// A generation that was found in a file was compared with none after every 8 MiB, for as long as none was made.
    #[test]
    fn a_generation_that_was_found_is_reviewed_once_where_no_other_is_made() {
        let rows: Vec<String> = (0..3000).map(|i| format!("row {} of the table", i * 7919 % 1000)).collect();
        let rows: Vec<&[u8]> = rows.iter().map(|row| row.as_bytes()).collect();
        let dictionary = Dictionary::train(Format::Deflate, &rows, 1024, 0).unwrap();
        let lifecycle = Lifecycle::new(Way::Canned);
        lifecycle.adopt(&Generation::new(None, Some(&dictionary)).unwrap());
        assert_eq!(lifecycle.state().review_after, REVIEW_BYTES_PROVISIONAL);
        let blocks = strangers(40);
        let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        lifecycle.train(&samples, &alone());
        assert_eq!(lifecycle.state().review_after, REVIEW_BYTES);
    }

    /// Tokens unpack faster than zstd, so they may be longer. Tokens with codes do not.
    #[test]
    fn tokens_with_codes_are_worth_no_more_than_their_bytes() {
        for effort in [Effort::Fast, Effort::Dense] {
            assert_eq!(Way::Tokens(effort).bytes_worth(1000, true), 1000);
            assert_eq!(Way::Tokens(effort).bytes_worth(1000, false), 800);
        }
    }

    #[test]
    fn large_files_are_sampled_more_and_more_seldom_where_no_dictionary_pays() {
        let (lifecycle, alone) = (Lifecycle::new(Way::Canned), alone());
        let blocks = strangers(400);
        let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        let is_sampled = || matches!(lifecycle.guidance(true), Guidance::Sample(_));
        for wait in [REVIEW_BYTES, 2 * REVIEW_BYTES] {
            assert!(is_sampled());
            assert!(lifecycle.train(&samples, &alone).is_none());
            lifecycle.offered(wait as usize - 1);
            assert!(!is_sampled());
            lifecycle.offered(1);
        }
        assert!(is_sampled());
        // Small files are sampled as before.
        assert!(lifecycle.train(&samples, &alone).is_none());
        assert!(lifecycle.train(&samples[..40], &alone).is_none() && is_sampled());
    }

    /// Otherwise no large file would be sampled again once a dictionary did not pay for one.
    #[test]
    fn a_codec_counts_the_blocks_that_it_packs_until_it_samples_again() {
        let codec = Codec::open(Settings::parse("deflate", "auto", "canned", 0, "").unwrap()).unwrap();
        let blocks = strangers(400);
        let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        let is_sampled = || matches!(codec.guidance(true), Guidance::Sample(_));
        assert!(is_sampled() && codec.train(&samples).is_none() && !is_sampled());
        let large = vec![0; REVIEW_BYTES as usize / 4];
        for _ in 0..4 {
            assert!(!is_sampled());
            // Blocks that do not shrink enough count, too.
            assert_eq!(codec.pack(CANNED, None, &large, 1, |_| ()), Packed::Declined);
        }
        assert!(is_sampled());
    }

    /// A try on a small file says nothing about large ones.
    #[test]
    fn tries_on_small_files_do_not_put_off_those_on_large_ones() {
        let (lifecycle, alone) = (Lifecycle::new(Way::Canned), alone());
        let blocks = strangers(400);
        let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        assert!(lifecycle.train(&samples[..40], &alone).is_none());
        assert!(lifecycle.train(&samples, &alone).is_none());
        lifecycle.offered(REVIEW_BYTES as usize);
        assert!(matches!(lifecycle.guidance(true), Guidance::Sample(_)));
    }

    /// Each large file without a generation doubled the samples that small ones had to gather for theirs.
    #[test]
    fn tries_on_large_files_do_not_put_off_those_on_small_ones() {
        const TRAIN_AFTER: usize = 1 << 20;
        let lifecycle = Lifecycle::new(Way::Canned);
        lifecycle.state().train_after = TRAIN_AFTER;
        let alone = alone();
        let blocks = strangers(400);
        let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        assert!(!Trial::new(&samples, &alone, Way::Canned).is_small());
        for _ in 0..2 {
            assert!(lifecycle.train(&samples, &alone).is_none());
            assert_eq!(lifecycle.state().train_after, TRAIN_AFTER);
        }
        // A small file that is tried waits twice as long as its samples ask for.
        lifecycle.state().train_after = 0;
        assert!(lifecycle.train(&samples[..40], &alone).is_none());
        assert_eq!(lifecycle.state().train_after, 2 * GROWTH * samples[..40].concat().len());
    }
}
