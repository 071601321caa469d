//! The life of dictionaries, of tokens and of blocks: when one is trained, adopted, replaced and freed.
//!
//! * None is trained before the raw data is 20 times what it will cost: 1 MB of keys and values for tokens of 10 bits.
//! * A training takes a few MB (`Candidate::training_bytes`). A store whose memory is too small for that stays raw.
//! * The next size is trained as soon as the data is large enough for it. After a rejection it waits until the store
//!   has grown fourfold. A table that outgrows the cache takes the longest training and seldom pays, so it waits for
//!   32-fold growth.
//! * When fresh values are coded worse than the dictionary promised, a sample tells whether the data has changed. They
//!   may only have come to bodies of a former dictionary. A candidate is trained if the sample is coded worse, too.
//!   Otherwise, and after a rejection, the next look waits for twice as many bytes, up to a quarter of the store.
//! * It is adopted only if, on records it was not trained on, it saves 5 % of all bytes, its own cost included.
//! * Blocks begin without dictionary, as generation 0. They have one size of dictionary; what growth gives them is a
//!   sample of more of the data.
//! * While one is trained, what that takes is counted as held; without room for it nothing is trained.
//! * A store that evicts is full for ever, and its data may become other data. Its writers evict for the room of a
//!   training, once a small sample has told that the data has changed. The training itself evicts nothing.
//! * Bodies keep the generation they were coded with until an idle thread recodes them; a generation is freed with
//!   its last body. At most [`GENERATIONS_MAX`] live.

mod candidate;
mod counted;
mod host;
mod sample;
mod trial;

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use ziptier_codec::token::entropy::Codes;
use ziptier_codec::token::{self, Dictionary, Encoder};

use crate::blocks::BlockCoding;
use crate::codec_options::{CodecChoice, CodecOptions};
use crate::coding::{BITS_CACHED, Coding};
use crate::memory::{Gauges, Total};
use crate::sync::Mutex;
use candidate::Candidate;
use counted::Counted;
pub use host::TrainingHost;
pub(crate) use sample::SAMPLE_VALUE_BYTES_MAX;
pub use sample::Sample;
pub use trial::coded_share;
use trial::recoded_bytes;

/// Generations that live at the same time.
pub const GENERATIONS_MAX: usize = 8;
/// Raw data must be this many times a dictionary's cost.
const COST_FACTOR: u64 = 20;
/// The same for a larger dictionary of tokens, which saves less: at 20 times its cost it would be refused.
const COST_FACTOR_LARGER: u64 = 32;
/// A candidate must save this share of all bytes.
const SAVING_MIN: f64 = 0.05;
/// The same for one whose table outgrows a processor's second cache: then a read takes an eighth longer.
const SAVING_MIN_UNCACHED: f64 = 0.1;
/// A store has grown when it is so many times as large as at the last training.
const GROWTH: u64 = 4;
/// The same for tables that outgrow a processor's second cache. With 14 bits from 23 MB on, that is half a second for
/// each 740 MB.
const GROWTH_UNCACHED: u64 = 32;
/// Fresh values may be coded this much worse than promised before a sample is looked at.
const DRIFT_MAX: f64 = 1.08;
/// Coded bytes that make a judgement of drift: at least, and at most one part in so many of the store.
pub const DRIFT_BYTES_MIN: u64 = 1 << 20;
const DRIFT_PART: u64 = 4;
/// Codes of tokens must save this share of coded bytes: a value is decoded in three to six times the time. They must
/// also save so many times their own bytes.
const CODES_SAVING_MIN: f64 = 0.15;
const CODES_GAIN_MIN: f64 = 2.0;
/// What another dictionary has to save of what is written, before records go to make room for its training.
const EVICTING_SAVING_MIN: f64 = 0.25;
/// Bytes of the sample that is looked at before. So much worse is told by few values.
const EVICTING_SAMPLE_BYTES: usize = 64 << 10;
const BITS: [u32; 4] = [10, 12, 14, 16];

/// The dictionaries of a store.
pub struct Dictionaries {
    codec: CodecChoice,
    current: Mutex<Option<Coding>>,
    /// Every generation that may still live, with the bytes counted for it.
    live: Mutex<Vec<(Weak<dyn Any + Send + Sync>, usize)>>,
    /// When the next dictionary is due.
    pub schedule: Mutex<Schedule>,
    /// A store without a dictionary looks for one from so many bytes of keys and values on.
    pub first_bytes: AtomicU64,
    /// A writer packed a body, and no writer looked since whether a dictionary is due.
    packed: AtomicBool,
    /// How often a thread waited for another one's training.
    #[cfg(any(test, feature = "testing"))]
    pub waits: AtomicU64,
    /// Bytes given to the encoder, and what it made of them.
    coded_raw: Total,
    coded: Total,
    /// The same of fresh values, which tell how well the dictionary suits the data.
    pub fresh_raw: Total,
    fresh_coded: Total,
    gauges: Arc<Gauges>,
}

/// What is known of the dictionaries so far, and when the next one is due.
#[derive(Debug, Default)]
pub struct Schedule {
    generation: u32,
    /// Logical bytes when a first dictionary or a larger one was last trained.
    pub trained_at_bytes: u64,
    /// That was rejected, or nobody knows what it saved: the next size waits for growth.
    waits: bool,
    /// Coded over raw bytes that the current dictionary reached on its trial sample.
    pub promised: f64,
    /// Raw and coded bytes at the last look for drift.
    pub seen: (u64, u64),
    /// The next look for drift waits until this many raw bytes were coded.
    pub drift_bytes: u64,
    /// Raw bytes of fresh values when records last went to make room for another dictionary.
    made_room_at: u64,
    /// The part that a dictionary as good as promised would save of fresh values, if that is worth a training.
    pub drift: Option<f64>,
    /// A small sample has told of that drift that the data has changed.
    is_confirmed: bool,
}

impl Schedule {
    /// Whether values of a sample, coded to this share of their bytes, are coded worse than was promised.
    fn is_worse(&self, share: f64) -> bool {
        self.promised <= share * (1.0 - SAVING_MIN)
    }

    /// After a look in vain the next one waits for twice as many bytes, but for no more than a part of the store: so
    /// much other data is worth a dictionary.
    fn back_off(&mut self, logical_bytes: u64) {
        self.drift_bytes = (2 * self.drift_bytes).min(logical_bytes / DRIFT_PART).max(DRIFT_BYTES_MIN);
    }
}

/// The codings of a store that was kept in a folder, as this store can use them.
pub struct Restored {
    /// There is a dictionary for new bodies.
    pub has_own: bool,
    /// Numbers of codings of another kind than this store's.
    pub foreign: BTreeSet<u32>,
}

/// Why a candidate is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    First,
    Growth,
    Drift,
}

impl Dictionaries {
    /// The dictionaries of a new store: none, or blocks without one. Panics on options that [`BlockCoding::first`]
    /// refuses.
    pub(crate) fn new(gauges: Arc<Gauges>, options: &CodecOptions) -> Self {
        let blocks =
            BlockCoding::first(options).expect("options are checked before anything is made of them");
        let first_bytes = match options.codec {
            CodecChoice::None => u64::MAX,
            _ => COST_FACTOR * Dictionary::memory_bytes_expected(BITS[0]) as u64,
        };
        Self {
            codec: options.codec,
            current: Mutex::new(blocks.map(Coding::Blocks)),
            live: Mutex::default(),
            schedule: Mutex::new(Schedule { drift_bytes: DRIFT_BYTES_MIN, ..Schedule::default() }),
            first_bytes: AtomicU64::new(first_bytes),
            packed: AtomicBool::new(false),
            #[cfg(any(test, feature = "testing"))]
            waits: AtomicU64::new(0),
            coded_raw: Total::default(),
            coded: Total::default(),
            fresh_raw: Total::default(),
            fresh_coded: Total::default(),
            gauges,
        }
    }

    /// Takes over the codings of a store that was kept in a folder, in the order of their numbers, before anything is
    /// coded. The newest that is of this store's kind is what new bodies are coded with.
    pub fn restore<'c>(
        &self,
        codings: impl Iterator<Item = &'c Coding>,
        left_out: &BTreeSet<u32>,
    ) -> Restored {
        let mut schedule = self.schedule.lock();
        schedule.generation = schedule.generation.max(left_out.last().copied().unwrap_or(0));
        let first = self.current();
        let is_own = |coding: &Coding| match (coding, first.as_ref().and_then(Coding::blocks)) {
            (Coding::Tokens(_), None) => self.codec != CodecChoice::None,
            (Coding::Blocks(blocks), Some(first)) => blocks.packs_like(first),
            _ => false,
        };
        let mut foreign = BTreeSet::new();
        for coding in codings {
            schedule.generation = schedule.generation.max(coding.generation());
            if is_own(coding) {
                self.adopt(coding.clone());
            } else {
                foreign.insert(coding.generation());
                self.count(coding);
            }
        }
        let has_own = self.has_current();
        let is_taken = !foreign.is_empty() || left_out.contains(&0);
        if let (true, Some(first)) = (is_taken, first.as_ref().and_then(Coding::blocks))
            && !has_own
        {
            // Blocks without dictionary of two formats must not have one number; and there is no dictionary yet.
            schedule.generation += 1;
            self.adopt(Coding::Blocks(Arc::new(first.renumbered(schedule.generation))));
        }
        Restored { has_own, foreign }
    }

    /// Notes how large the store was when it was filled: another dictionary is not due before it has grown.
    pub fn loaded(&self, logical_bytes: u64) {
        let mut schedule = self.schedule.lock();
        schedule.trained_at_bytes = logical_bytes;
        schedule.waits = true;
        self.first_bytes.fetch_max(2 * logical_bytes, Relaxed);
    }

    /// The coding of new bodies.
    pub fn current(&self) -> Option<Coding> {
        self.current.lock().clone()
    }

    /// The number of what new bodies are coded with.
    pub fn generation(&self) -> Option<u32> {
        self.current.lock().as_ref().map(Coding::generation)
    }

    /// Frees what threads that were idle since the last call keep for blocks.
    pub fn release_idle(&self) {
        let current = self.current();
        if let Some(blocks) = current.as_ref().and_then(Coding::blocks) {
            blocks.release_idle();
        }
    }

    /// Whether new bodies are coded with a dictionary.
    pub fn has_current(&self) -> bool {
        self.current.lock().as_ref().is_some_and(|coding| coding.generation() > 0)
    }

    /// Notes how values were coded; `fresh` values tell whether the data is still what the dictionary was trained for.
    pub(crate) fn note_coded(&self, raw_bytes: u64, coded_bytes: u64, fresh: bool) {
        self.coded_raw.change(raw_bytes as i64);
        self.coded.change(coded_bytes as i64);
        if fresh {
            self.fresh_raw.change(raw_bytes as i64);
            self.fresh_coded.change(coded_bytes as i64);
        }
    }

    /// Raw bytes that were ever given to the encoder, and what it, or the raw value where that was smaller, made of
    /// them.
    pub fn coded_bytes(&self) -> (u64, u64) {
        (self.coded_raw.get(), self.coded.get())
    }

    /// Whether there is no dictionary, and the store is large enough for one.
    pub fn lacks_first(&self, logical_bytes: u64) -> bool {
        logical_bytes >= self.first_bytes.load(Relaxed) && !self.has_current()
    }

    /// Waits for another thread's training, whose memory is room again afterwards. `false` when no thread trains.
    pub fn wait_for_training(&self) -> bool {
        if self.schedule.try_lock().is_some() {
            return false;
        }
        #[cfg(any(test, feature = "testing"))]
        self.waits.fetch_add(1, Relaxed);
        drop(self.schedule.lock());
        true
    }

    /// Notes that a writer packed a body.
    pub fn note_packed(&self) {
        self.packed.store(true, Relaxed);
    }

    /// Whether a writer packed a body since the last call.
    pub fn take_packed(&self) -> bool {
        self.packed.load(Relaxed) && self.packed.swap(false, Relaxed)
    }

    /// Stops counting the generations whose last body is gone; returns how many live.
    pub fn count_live(&self) -> usize {
        let mut live = self.live.lock();
        live.retain(|(coding, bytes)| {
            let alive = coding.strong_count() > 0;
            if !alive {
                self.gauges.dictionary.take_held(*bytes);
            }
            alive
        });
        live.len()
    }

    /// Takes a dictionary of `samples` into use, whether or not one is due, unless `live_max` live. For simulations,
    /// whose stores are too small for one.
    #[cfg(all(any(test, feature = "testing"), not(miri), not(shuttle)))]
    pub fn adopt_one_of(&self, samples: &[&[u8]], live_max: usize) -> bool {
        const LOGICAL_BYTES: u64 = 1 << 30;
        let mut schedule = self.schedule.lock();
        let wanted = match self.current() {
            Some(Coding::Blocks(blocks)) => Candidate::Blocks(blocks),
            _ => Candidate::Tokens(BITS[0]),
        };
        if self.count_live() >= live_max {
            return false;
        }
        let Some(trained) = wanted.train(samples, LOGICAL_BYTES, schedule.generation + 1) else {
            return false;
        };
        schedule.generation += 1;
        self.adopt(with_codes(trained, samples, samples, LOGICAL_BYTES));
        true
    }

    /// Takes a coding into use for new bodies, and counts its bytes until it is freed.
    pub fn adopt(&self, coding: Coding) {
        self.count(&coding);
        *self.current.lock() = Some(coding);
    }

    /// Counts what a coding holds until it is freed.
    fn count(&self, coding: &Coding) {
        let bytes = coding.memory_bytes();
        self.gauges.dictionary.add_held(bytes);
        let share: Weak<dyn Any + Send + Sync> = match coding {
            Coding::Tokens(dictionary) => {
                let share: Weak<Dictionary> = Arc::downgrade(dictionary);
                share
            }
            Coding::Blocks(blocks) => {
                let share: Weak<BlockCoding> = Arc::downgrade(blocks);
                share
            }
        };
        self.live.lock().push((share, bytes));
    }

    /// Whether it is time for a candidate, and of which kind; a training may take `room_bytes`.
    fn due(
        &self,
        schedule: &Schedule,
        logical_bytes: u64,
        room_bytes: u64,
        has_drifted: bool,
    ) -> Option<(Reason, Candidate)> {
        let current = self.current();
        let first_look = logical_bytes >= 2 * schedule.trained_at_bytes;
        let bits_now = current.as_ref().and_then(Coding::tokens).map(|current| current.bits());
        let affordable = |candidate: &Candidate, memory_bytes: usize| {
            let is_larger =
                matches!(candidate, Candidate::Tokens(bits) if bits_now.is_some_and(|now| *bits > now));
            let cost_factor = if is_larger { COST_FACTOR_LARGER } else { COST_FACTOR };
            logical_bytes >= cost_factor * memory_bytes as u64
                && candidate.sample_bytes(logical_bytes, room_bytes).is_some()
        };
        if let Some(Coding::Blocks(blocks)) = &current {
            let candidate = Candidate::Blocks(blocks.clone());
            if !affordable(&candidate, blocks.memory_bytes_expected()) || !blocks.wants_dictionary() {
                return None;
            }
            if blocks.generation() == 0 {
                return first_look.then_some((Reason::First, candidate));
            }
            if has_drifted {
                return Some((Reason::Drift, candidate));
            }
            return has_grown(schedule, logical_bytes, GROWTH).then_some((Reason::Growth, candidate));
        }
        let current = current.as_ref().and_then(Coding::tokens);
        // One size after the other, so that each is compared with the one before.
        let most =
            if current.is_some_and(|current| current.bits() >= BITS_CACHED) { 16 } else { BITS_CACHED };
        let bits = BITS.into_iter().rev().find(|bits| {
            *bits <= most && affordable(&Candidate::Tokens(*bits), Dictionary::memory_bytes_expected(*bits))
        })?;
        let Some(current) = current else {
            return first_look.then_some((Reason::First, Candidate::Tokens(bits)));
        };
        if has_drifted {
            let same = Candidate::Tokens(current.bits());
            let keeps =
                bits < current.bits() && affordable(&same, Dictionary::memory_bytes_expected(current.bits()));
            return Some((Reason::Drift, if keeps { same } else { Candidate::Tokens(bits) }));
        }
        let is_due = if bits > BITS_CACHED {
            has_grown(schedule, logical_bytes, GROWTH_UNCACHED)
        } else {
            !schedule.waits || has_grown(schedule, logical_bytes, GROWTH)
        };
        (bits > current.bits() && is_due).then_some((Reason::Growth, Candidate::Tokens(bits)))
    }

    /// Judges how fresh values were coded since the last look, once there are enough of them.
    fn look_for_drift(&self, schedule: &mut Schedule) {
        let (raw_ever, coded_ever) = (self.fresh_raw.get(), self.fresh_coded.get());
        let (raw, coded) = (raw_ever - schedule.seen.0, coded_ever - schedule.seen.1);
        if raw < schedule.drift_bytes || !self.has_current() {
            return;
        }
        schedule.seen = (raw_ever, coded_ever);
        let share = coded as f64 / raw as f64;
        if schedule.promised == 0.0 {
            // A dictionary that was there when the store was opened: what it does now is what it promises.
            schedule.promised = share;
        }
        schedule.drift = (share > schedule.promised * DRIFT_MAX).then(|| 1.0 - schedule.promised / share);
        schedule.is_confirmed = false;
    }
}

/// Whether the store is `growth` times as large as at the last training.
fn has_grown(schedule: &Schedule, logical_bytes: u64, growth: u64) -> bool {
    logical_bytes >= growth * schedule.trained_at_bytes
}

/// The coding with codes for its tokens, if these save enough in a store of `logical_bytes`, as the values of a trial
/// tell.
fn with_codes(coding: Coding, training: &[&[u8]], trial: &[&[u8]], logical_bytes: u64) -> Coding {
    let Coding::Tokens(dictionary) = coding else { return coding };
    // The training of the dictionary has ended, and its room is counted still.
    let room_bytes = Dictionary::training_bytes_expected(dictionary.bits(), training.len());
    let effort = token::Effort::Dense;
    let codes = Codes::train(&dictionary, &mut Encoder::new(), effort, training, room_bytes);
    let [coded, recoded] = recoded_bytes(&dictionary, &codes, trial);
    let trial_bytes: usize = trial.iter().map(|value| value.len()).sum();
    let saved_bytes = (coded - recoded) as f64 / trial_bytes as f64 * logical_bytes as f64;
    let pays = (coded - recoded) as f64 >= coded as f64 * CODES_SAVING_MIN
        && saved_bytes >= CODES_GAIN_MIN * codes.memory_bytes() as f64;
    Coding::Tokens(match Arc::try_unwrap(dictionary) {
        Ok(dictionary) if pays => Arc::new(dictionary.with_codes(codes)),
        Ok(dictionary) => Arc::new(dictionary),
        Err(shared) => shared,
    })
}

/// Whether a candidate saves enough over the current coding. Each comes with the share of its bytes that a value takes.
fn saves_enough(candidate: (&Coding, f64), current: (Option<&Coding>, f64), logical_bytes: u64) -> bool {
    let cost = |coding: Option<&Coding>, share: f64| {
        let own = coding.map_or(0, Coding::memory_bytes);
        share + own as f64 / logical_bytes as f64
    };
    let outgrows = candidate.0.outgrows_cache() && current.0.is_none_or(|current| !current.outgrows_cache());
    let saving = if outgrows { SAVING_MIN_UNCACHED } else { SAVING_MIN };
    cost(Some(candidate.0), candidate.1) <= cost(current.0, current.1) * (1.0 - saving)
}

/// The tokens of a dictionary without codes under another number.
fn renumbered(coding: &Coding, generation: u32) -> Option<Coding> {
    let tokens = coding.tokens().filter(|tokens| tokens.codes().is_none())?;
    Some(Coding::Tokens(Arc::new(tokens.renumbered(generation).ok()?)))
}

/// Trainings.
impl Dictionaries {
    /// Trains a candidate on a sample of so many bytes. Adopts it if it saves enough, or else codes of the current
    /// dictionary's tokens that do; returns whether something was adopted.
    fn train(
        &self,
        schedule: &mut Schedule,
        reason: Reason,
        wanted: &Candidate,
        sample_bytes: usize,
        logical_bytes: u64,
        host: &dyn TrainingHost,
    ) -> bool {
        let sample = host.sample(sample_bytes);
        let part = |wanted: fn(usize) -> bool| -> Vec<&[u8]> {
            sample.values().enumerate().filter(|(index, _)| wanted(*index)).map(|(_, value)| value).collect()
        };
        let (training, trial) = (part(|index| index % 4 != 0), part(|index| index % 4 == 0));
        let trial_bytes: usize = trial.iter().map(|value| value.len()).sum();
        if trial_bytes == 0 {
            return false;
        }
        let current = self.current();
        let current_share = coded_share(current.as_ref(), &trial);
        if reason == Reason::Drift && !schedule.is_worse(current_share) {
            schedule.back_off(logical_bytes);
            return false;
        }
        host.counters().trainings.raise();
        let Some(candidate) = wanted.train(&training, logical_bytes, schedule.generation + 1) else {
            schedule.back_off(logical_bytes);
            return false;
        };
        let candidate_share = coded_share(Some(&candidate), &trial);
        if saves_enough((&candidate, candidate_share), (current.as_ref(), current_share), logical_bytes) {
            schedule.generation += 1;
            schedule.promised = candidate_share;
            schedule.waits = false;
            schedule.drift_bytes = DRIFT_BYTES_MIN;
            self.adopt(with_codes(candidate, &training, &trial, logical_bytes));
            host.counters().adoptions.raise();
            return true;
        }
        if reason == Reason::Drift {
            // The data became harder, and no dictionary helps: that is the new promise.
            schedule.promised = schedule.promised.max(current_share);
            schedule.back_off(logical_bytes);
        }
        drop(candidate);
        let renumbered = current.and_then(|current| renumbered(&current, schedule.generation + 1));
        let coded = renumbered.map(|same| with_codes(same, &training, &trial, logical_bytes));
        let Some(coded) = coded.filter(Coding::has_codes) else { return false };
        schedule.generation += 1;
        self.adopt(coded);
        host.counters().adoptions.raise();
        true
    }

    /// Whether a small sample tells, too, that the data has changed. Records go for a training only then.
    fn confirms_drift(&self, schedule: &mut Schedule, logical_bytes: u64, host: &dyn TrainingHost) -> bool {
        if schedule.is_confirmed {
            return true;
        }
        // The lists of small values take nearly as much as the values.
        let _counted = Counted::new(&self.gauges, 2 * EVICTING_SAMPLE_BYTES);
        let sample = host.sample(EVICTING_SAMPLE_BYTES);
        let values: Vec<&[u8]> = sample.values().collect();
        schedule.is_confirmed = schedule.is_worse(coded_share(self.current().as_ref(), &values));
        if !schedule.is_confirmed {
            schedule.drift = None;
            schedule.back_off(logical_bytes);
        }
        schedule.is_confirmed
    }

    /// Trains and adopts a dictionary if it is time to; returns whether one was adopted.
    pub fn maintain(&self, host: &dyn TrainingHost) -> bool {
        let live = self.count_live();
        if self.codec == CodecChoice::None {
            return false;
        }
        if live >= GENERATIONS_MAX {
            // A thread that came before another one's adoption may have asked.
            host.ask_for_training_room(0);
            return false;
        }
        // Reads and packs never wait for this lock: it only keeps two threads from training at once.
        let mut schedule = self.schedule.lock();
        let logical_bytes = self.gauges.logical.get();
        self.look_for_drift(&mut schedule);
        // Records go for a training only when most of what is held lies raw, because the dictionary saves nothing of
        // it. That is so again only when as much was written as the store holds.
        let fresh_bytes = self.fresh_raw.get();
        let is_raw = 2 * self.gauges.raw_body.held() >= self.gauges.body_bytes();
        let has_turned = is_raw && fresh_bytes - schedule.made_room_at >= logical_bytes;
        let saving = schedule.drift.filter(|saving| has_turned && *saving >= EVICTING_SAVING_MIN);
        let room_bytes = host.training_room_bytes(saving);
        host.ask_for_training_room(0);
        let due = self.due(&schedule, logical_bytes, room_bytes, schedule.drift.is_some());
        let Some((reason, wanted)) = due else { return false };
        let Some(sample_bytes) = wanted.sample_bytes(logical_bytes, room_bytes) else { return false };
        let training_bytes = wanted.training_bytes(sample_bytes) as usize;
        if saving.is_some() && !self.confirms_drift(&mut schedule, logical_bytes, host)
            || !host.has_room_to_train(training_bytes)
        {
            return false;
        }
        schedule.drift = None;
        if saving.is_some() {
            schedule.made_room_at = fresh_bytes;
        }
        if reason != Reason::Drift {
            schedule.trained_at_bytes = logical_bytes;
            schedule.waits = true;
            self.first_bytes.store(2 * logical_bytes, Relaxed);
        }
        let _counted = Counted::new(&self.gauges, training_bytes);
        self.train(&mut schedule, reason, &wanted, sample_bytes, logical_bytes, host)
    }
}

// A dictionary is trained, which takes Miri long.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests;
