//! The tierer: it keeps leaves raw that are read far more than others, and promotes hot leaves and large values from
//! far memory.
//!
//! Not for demotion: the clock hands of the `reclaimer` do that, by the border that the tierer measures.
//!
//! 1. A round is due when enough was read for the clocks to mean something, or a second after any read. A store that
//!    nobody reads costs nothing.
//! 2. The first walk over the leaves measures how heat is spread. If there is none, the round ends.
//! 3. The second walk cools raw leaves that are no longer hot: they take their form again. Without raw leaves there is
//!    no such walk.
//! 4. The third walk heats hot leaves within the room that became free, promotes leaves and values, and lets the counts
//!    decay. It relaxes leaves that are read: their token numbers get one width again.
//!
//! A hot set that moves is raw again after one or two rounds. A round that nobody read before forgets all counts.

use std::time::{Duration, Instant};

use crossbeam_epoch::Guard;
use ziptier_tree::clock::{since, steady};
use ziptier_tree::form::Form;
use ziptier_tree::leaf::{Leaf, LeafState, Place};
use ziptier_tree::packing::Goal;
use ziptier_tree::placement::Side;
use ziptier_tree::tree::Tree;

use crate::reclaimer::Pressure;
use crate::spread::Spread;
use crate::upkeep::{LEAVES_AHEAD_MAX, Upkeep};

/// A round is due after one read for so many records, and so many reads at least: one in eight of them is counted.
const RECORDS_PER_READ: u64 = 2;
const READS_MIN: u64 = 100_000;
/// After fewer reads it is due after this time.
const ROUND_MAX: Duration = Duration::from_secs(1);
/// The pause between two rounds is at least so many times the time of the walks, and of changing leaves. Walks take 2 %
/// of one processor at most.
const WALK_PAUSE_FACTOR: u32 = 50;
const CHANGE_PAUSE_FACTOR: u32 = 4;
/// Heated leaves may take one part in this many of all bodies.
const HEATED_SHARE: u64 = 32;
/// Too few leaves to tell what is usual.
const LEAVES_MIN: u64 = 16;
/// Counted reads that make a leaf hot at least: fewer may be chance.
const COUNTS_MIN: u32 = 8;
/// A leaf is relaxed once one read was counted for so many of its records. Decoding entropy has then taken about as
/// long as relaxing and condensing the leaf takes.
const RECORDS_PER_COUNT: usize = 4;
/// A leaf that is relaxed grows by one part in so many of its body at most, about.
const RELAXED_PART: usize = 2;
/// A leaf is promoted from far memory when it is so many times as hot as the leaves that are demoted.
const RAISING_FACTOR: f64 = 2.0;
/// Bytes of large values of a leaf that come back from there at a time, the last one's not counted.
const RAISED_BYTES_MAX: u64 = 1 << 20;
/// Colder leaves make room for hot ones of so many parts of the limit in a round at most.
const WANTED_PART: u64 = 16;

/// The position of a round.
#[derive(Default)]
pub(crate) struct Tierer {
    /// Lowest key of the next leaf.
    cursor: Vec<u8>,
    pass: Pass,
    /// No leaf is relaxed, since the caller settles the store.
    settles: bool,
    heats: Heats,
    /// The same of bytes, to tell which leaves belong in DRAM.
    spread: Spread,
    /// Bytes of hot leaves that found no room in DRAM.
    wanted_bytes: u64,
    /// Bytes of heated bodies.
    heated_bytes: u64,
    /// The count of reads when the round began.
    reads: u64,
    /// So much was read that older counts mean nothing any more, or nothing.
    forgets: bool,
    /// The time that the round took: in all, and to change leaves.
    busy: Duration,
    changing: Duration,
    ended: Option<Instant>,
}

/// The work of a walk over the leaves. Leaves are cooled before others are heated, so that there is room for these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pass {
    #[default]
    Measure,
    Cool,
    Heat,
}

/// Counted reads per record, over the records of all leaves.
#[derive(Clone, Copy, Default)]
struct Heats {
    leaves: u64,
    records: f64,
    sum: f64,
    squares: f64,
}

/// In counted reads per record. A leaf is heated above `hot` and cooled below `cool`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Thresholds {
    hot: f64,
    cool: f64,
}

impl Heats {
    /// Adds a leaf with so many counted reads.
    fn add(&mut self, counts: u32, records: usize) {
        let (counts, records) = (f64::from(counts), records.max(1) as f64);
        self.leaves += 1;
        self.records += records;
        self.sum += counts;
        self.squares += counts * counts / records;
    }

    /// A leaf is hot three deviations above the mean, as in the bypass of the ZipCache paper, and above four times the
    /// mean. A leaf that is read less is not worth its bytes. A leaf cools at one deviation, for hysteresis.
    fn thresholds(&self) -> Option<Thresholds> {
        if self.leaves < LEAVES_MIN || self.sum == 0.0 {
            return None;
        }
        let mean = self.sum / self.records;
        let deviation = (self.squares / self.records - mean * mean).max(0.0).sqrt();
        Some(Thresholds { hot: (mean + 3.0 * deviation).max(4.0 * mean), cool: mean + deviation })
    }
}

impl Tierer {
    /// A round of a store that is being settled.
    pub(crate) fn of_settled() -> Self {
        Self { settles: true, ..Self::default() }
    }

    /// Whether the next part of a round is due.
    pub(crate) fn is_due(&mut self, tree: &Tree) -> bool {
        if !tree.heats && tree.far.is_none() {
            return false;
        }
        if !self.cursor.is_empty() || self.pass != Pass::Measure {
            return true;
        }
        let reads = self.reads_since(tree);
        if reads == 0 && self.heats.sum == 0.0 {
            // The time begins with the first read.
            self.ended = Some(steady());
            return false;
        }
        let pause = self.ended.map_or(ROUND_MAX, since);
        // Counts decay until none is left, also when nobody reads any more.
        let due = reads >= reads_wanted(tree) || pause >= ROUND_MAX;
        due && pause >= (self.busy - self.changing) * WALK_PAUSE_FACTOR
            && pause >= self.changing * CHANGE_PAUSE_FACTOR
    }

    /// Whether a round may soon be due.
    pub(crate) fn is_awaited(&self, tree: &Tree) -> bool {
        (tree.heats || tree.far.is_some()) && self.reads_since(tree) >= reads_wanted(tree) / 4
    }

    fn reads_since(&self, tree: &Tree) -> u64 {
        tree.stats.body_reads() - self.reads
    }

    /// Notes that a walk over all leaves ended; `true` when that ended the round. Leaves that nobody read are warm no
    /// longer, which the last walk notes where there is a `place_below`.
    fn passed(&mut self, place_below: bool) -> bool {
        self.cursor.clear();
        self.pass = match self.pass {
            Pass::Measure if self.heats.sum == 0.0 && !place_below => {
                self.ended = Some(steady());
                Pass::Measure
            }
            Pass::Measure if self.heated_bytes == 0 => Pass::Heat,
            Pass::Measure => Pass::Cool,
            Pass::Cool => Pass::Heat,
            Pass::Heat => {
                self.ended = Some(steady());
                Pass::Measure
            }
        };
        self.pass == Pass::Measure
    }
}

fn reads_wanted(tree: &Tree) -> u64 {
    (tree.gauges.records.get() / RECORDS_PER_READ).max(READS_MIN)
}

/// Takes rounds. See the module.
#[derive(Clone, Copy)]
pub(crate) struct Tiering<'e> {
    pub(crate) tree: &'e Tree,
    pub(crate) upkeep: Upkeep<'e>,
    pub(crate) pressure: &'e Pressure,
}

impl Tiering<'_> {
    /// Does the next part of a round, of up to `leaves` leaves; `true` when that ended it.
    pub(crate) fn tier(&self, tierer: &mut Tierer, leaves: usize) -> bool {
        let began = steady();
        if tierer.cursor.is_empty() && tierer.pass == Pass::Measure {
            let reads = tierer.reads_since(self.tree);
            *tierer = Tierer {
                reads: self.tree.stats.body_reads(),
                forgets: reads >= reads_wanted(self.tree) || reads == 0,
                settles: tierer.settles,
                ..Tierer::default()
            };
        }
        let thresholds = tierer.heats.thresholds();
        let guard = self.tree.pin();
        let (mut leaf, mut state) = self.tree.locate(&tierer.cursor, &guard);
        let mut left = leaves;
        let passed = loop {
            left -= 1;
            if tierer.pass == Pass::Measure {
                tierer.heats.add(leaf.reads.counts(), state.body.len());
                if self.tree.far.is_some() {
                    tierer.spread.add(leaf.heat(state), state.body.asked_bytes() as u64);
                }
                let is_hot = state.form.is_hot();
                tierer.heated_bytes += if is_hot { state.body.asked_bytes() as u64 } else { 0 };
            } else if self.judge(leaf, thresholds, tierer, &mut { LEAVES_AHEAD_MAX }, &guard) {
                // Nobody should hold the epoch for long.
                left = 0;
                state = leaf.state(&guard);
            }
            match (&state.high, state.right(&guard)) {
                (Some(_), Some(right)) if left > 0 => {
                    leaf = right;
                    state = right.state(&guard);
                }
                (Some(high), _) => {
                    tierer.cursor.clear();
                    tierer.cursor.extend_from_slice(high);
                    break false;
                }
                (None, _) => break true,
            }
        };
        guard.flush();
        tierer.busy += since(began);
        if passed && self.tree.far.is_some() {
            match tierer.pass {
                Pass::Measure => self.note_spread(&tierer.spread),
                Pass::Heat => {
                    self.pressure.want(tierer.wanted_bytes.min(self.tree.gauges.limit() / WANTED_PART))
                }
                Pass::Cool => {}
            }
        }
        passed && tierer.passed(self.tree.far.is_some())
    }

    /// From how hot on leaves belong in DRAM follows from how much room it has for bodies.
    fn note_spread(&self, spread: &Spread) {
        let others = self.tree.gauges.held().saturating_sub(self.tree.gauges.body_bytes());
        self.pressure.set_cold_below(spread.hottest(self.upkeep.room.low_mark().saturating_sub(others)));
    }

    /// Notes whether `leaf` belongs in DRAM, and brings it there if there is room; `true` when it came.
    fn rank(&self, leaf: &Leaf, counts: u32, heat: f64, tierer: &mut Tierer, guard: &Guard) -> bool {
        let cold_below = self.pressure.cold_below();
        leaf.set_warm(counts > 0 && heat >= cold_below);
        let state = leaf.state(guard);
        if !state.body.is_far() || counts < COUNTS_MIN || heat < RAISING_FACTOR * cold_below {
            return false;
        }
        let bytes = state.body.asked_bytes() as u64;
        if !self.upkeep.room.has_memory_for(bytes) {
            tierer.wanted_bytes += bytes;
            return false;
        }
        self.upkeep.moves.promote(leaf, Place::Far)
    }

    /// Promotes large values of `leaf` that are read in every round from far memory to DRAM, if there is room. It stops
    /// after so many bytes that no thread waits for it. `true` if any came.
    fn rank_larges(&self, leaf: &Leaf, tierer: &mut Tierer, guard: &Guard) -> bool {
        let mut came_bytes = 0;
        for large in leaf.state(guard).body.larges().filter(|large| large.reads() > 0) {
            let bytes = large.movable_bytes(Side::Far) as u64;
            match bytes > 0 && large.is_hot() {
                true if !self.upkeep.room.has_memory_for(bytes) => tierer.wanted_bytes += bytes,
                true if came_bytes < RAISED_BYTES_MAX => {
                    came_bytes += bytes;
                    self.tree.stats.values_raised.add(u64::from(large.to_dram()));
                }
                _ => {}
            }
            if bytes > 0 {
                large.forget_read();
            }
        }
        came_bytes > 0
    }

    /// Heats or cools `leaf`, if it is time to; `true` when its form was changed.
    ///
    /// A leaf that cools is packed: if a device does that, up to `left` leaves behind it are judged meanwhile.
    fn judge(
        &self,
        leaf: &Leaf,
        thresholds: Option<Thresholds>,
        tierer: &mut Tierer,
        left: &mut usize,
        guard: &Guard,
    ) -> bool {
        let counts = leaf.reads.counts();
        if tierer.pass == Pass::Heat {
            let came = self.tree.far.is_some()
                && (self.rank(leaf, counts, leaf.heat(leaf.state(guard)), tierer, guard)
                    | self.rank_larges(leaf, tierer, guard));
            leaf.reads.decay(tierer.forgets);
            if came {
                return true;
            }
        }
        if !self.tree.heats {
            return false;
        }
        let state = leaf.state(guard);
        let goal = thresholds.and_then(|thresholds| self.heat_goal(state, counts, thresholds, tierer));
        let Some(goal) = goal else { return self.relax(leaf, counts, tierer, guard) };
        let Some(_ownership) = leaf.try_own() else { return false };
        let state = leaf.state(guard);
        let is_hot = state.form.is_hot();
        if state.closed || state.place() == Place::Ssd || is_hot == (goal == Goal::Heat) {
            return false;
        }
        let (began, changing) = (steady(), tierer.changing);
        let bytes = raw_bytes(state);
        let mut meanwhile = || {
            let mut next = leaf.state(guard).right(guard);
            while let Some(leaf) = next
                && *left > 0
            {
                *left -= 1;
                next = leaf.state(guard).right(guard);
                self.judge(leaf, thresholds, tierer, left, guard);
            }
        };
        let retention = &mut self.upkeep.background_retention();
        let packed = self.upkeep.pack_while(leaf, goal, retention, guard, &mut meanwhile);
        if !packed {
            // There is no room for it.
        } else if leaf.state(guard).form.is_hot() {
            self.tree.stats.heated.raise();
            tierer.heated_bytes += bytes;
        } else if goal != Goal::Heat {
            // A leaf that was to be heated keeps its coding for a damaged value.
            self.tree.stats.cooled.raise();
            tierer.heated_bytes = tierer.heated_bytes.saturating_sub(bytes);
        }
        tierer.changing = changing + since(began);
        true
    }

    /// The pack that heats or cools a leaf in this pass of a round, if it is time to.
    fn heat_goal(
        &self,
        state: &LeafState,
        counts: u32,
        thresholds: Thresholds,
        tierer: &Tierer,
    ) -> Option<Goal> {
        let heat = || f64::from(counts) / state.body.len().max(1) as f64;
        let is_hot = state.form.is_hot();
        match tierer.pass {
            // Over the budget, a leaf must be hot to stay.
            Pass::Cool if is_hot && self.has_room_for_heat(tierer, 0) => {
                (heat() < thresholds.cool).then_some(Goal::Renew)
            }
            Pass::Cool if is_hot => (heat() < thresholds.hot).then_some(Goal::Renew),
            Pass::Heat if !is_hot && counts >= COUNTS_MIN && heat() > thresholds.hot => {
                let fits = state.body.is_compressed()
                    && !state.form.keeps_damage()
                    && self.has_room_for_heat(tierer, raw_bytes(state));
                fits.then_some(Goal::Heat)
            }
            _ => None,
        }
    }

    /// Gives the values of `leaf` token numbers of one width, if it was read so often that this pays and there is room;
    /// `true` when it tried. Only reads of a leaf that is condensed count: others paid for no decoding of entropy.
    fn relax(&self, leaf: &Leaf, counts: u32, tierer: &mut Tierer, guard: &Guard) -> bool {
        let state = leaf.state(guard);
        if tierer.pass != Pass::Heat || tierer.settles || !has_entropy(state) {
            return false;
        }
        let counted = leaf.usage.add_counts(counts) as usize;
        if counted * RECORDS_PER_COUNT < state.body.len()
            || state.body.is_far()
            || !self.upkeep.room.has_room_to_relax(state.body.asked_bytes() / RELAXED_PART)
        {
            return false;
        }
        let Some(_ownership) = leaf.try_own() else { return false };
        let state = leaf.state(guard);
        if state.closed || state.place() == Place::Ssd || !has_entropy(state) {
            return false;
        }
        let began = steady();
        let goal = Goal::Relax;
        let retention = &mut self.upkeep.background_retention();
        if self.upkeep.pack_while(leaf, goal, retention, guard, &mut || ()) {
            self.upkeep.count_settled(goal, false);
        }
        leaf.usage.reset();
        tierer.changing += since(began);
        true
    }

    fn has_room_for_heat(&self, tierer: &Tierer, bytes: u64) -> bool {
        tierer.heated_bytes + bytes <= self.tree.gauges.body_bytes() / HEATED_SHARE
    }
}

/// Whether a leaf has values whose token numbers are coded by entropy.
fn has_entropy(state: &LeafState) -> bool {
    let Form::Coded { tokens, plain, .. } = &state.form else { return false };
    tokens.codes().is_some() && usize::from(*plain) < state.body.len() && state.body.has_entropy()
}

/// About what the body takes if it is raw.
fn raw_bytes(state: &LeafState) -> u64 {
    let bytes = match &state.form {
        Form::Packed { .. } => state.body.raw_bytes(),
        Form::Coded { .. } => 2 * state.body.asked_bytes(),
        Form::Raw | Form::Hot => state.body.asked_bytes(),
    };
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(any(miri, shuttle)))]
    use crate::core::Core;

    #[test]
    fn a_few_leaves_far_above_the_others_are_hot_and_chance_is_not() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut heats = Heats::default();
        let even: Vec<u32> = (0..1_000).map(|_| (0..300).map(|_| random.u32(..30) / 29).sum()).collect();
        even.iter().for_each(|counts| heats.add(*counts, 150));
        let thresholds = heats.thresholds().unwrap();
        assert!(even.iter().all(|counts| f64::from(*counts) / 150.0 < thresholds.hot), "{thresholds:?}");

        (0..10).for_each(|_| heats.add(300, 150));
        let thresholds = heats.thresholds().unwrap();
        assert!(thresholds.hot < 2.0, "{thresholds:?}");
        assert!(thresholds.cool < thresholds.hot, "{thresholds:?}");
        assert!(even.iter().all(|counts| f64::from(*counts) / 150.0 < thresholds.cool), "{thresholds:?}");
        // A hot leaf that was cut into raw ones stays as hot.
        let cut = (0..30).fold(Heats::default(), |mut heats, _| {
            heats.add(100, 50);
            heats
        });
        let whole = (0..10).fold(Heats::default(), |mut heats, _| {
            heats.add(300, 150);
            heats
        });
        assert_eq!((cut.sum, cut.squares, cut.records), (whole.sum, whole.squares, whole.records));
    }

    #[cfg(not(any(miri, shuttle)))]
    #[test]
    fn a_leaf_that_a_damaged_value_keeps_in_its_coding_is_neither_heated_nor_cooled() {
        use ziptier_tree::body::{Builder, Entry, EntryKey, fingerprint};
        use ziptier_tree::coding::Coding;
        use ziptier_tree::record::{Fields, Kind, PutMeta, key_hash};

        use crate::options::Options;
        use std::sync::Arc;
        use ziptier_codec::token::Dictionary;

        let core = Core::new(&Options { background_threads: 0, ..Options::default() });
        // Of the bodies of these values, heated leaves may take a part.
        let mut random = fastrand::Rng::with_seed(7);
        for n in 0..4_000_u32 {
            let value: Vec<u8> = (0..100).map(|_| random.u8(..)).collect();
            core.put(&n.to_be_bytes(), &value, PutMeta::default()).unwrap();
        }
        let tokens = Dictionary::train(&[b"abcabcabcabc"], 12, 1).unwrap();
        let guard = core.tree.pin();
        let (leaf, before) = core.tree.locate(&[], &guard);
        let key = 0_u32.to_be_bytes();
        let entry = Entry {
            key: EntryKey::whole(&key),
            fingerprint: fingerprint(key_hash(&key)),
            kind: Kind::Coded,
            fields: Fields::default(),
            payload: &[0xff; 9],
        };
        let body = Builder::default().build(&[entry], None);
        let form = Form::of(Some(Coding::Tokens(Arc::new(tokens))));
        let damaged = LeafState { open: None, sealed: None, body, form, ..before.clone() };
        assert!(leaf.publish(before, damaged, &guard));
        (0..12).for_each(|read| leaf.reads.touch(read % 4));
        let mut tierer = Tierer { pass: Pass::Heat, heated_bytes: 1_000, ..Tierer::default() };
        let thresholds = Some(Thresholds { hot: 1.0, cool: 0.5 });
        assert!(
            core.tiering().judge(leaf, thresholds, &mut tierer, &mut 0, &guard),
            "it was hot, and packed"
        );
        assert!(core.tree.stats.damaged.get() > 0);
        assert_eq!((core.tree.stats.heated.get(), core.tree.stats.cooled.get()), (0, 0));
        assert_eq!(tierer.heated_bytes, 1_000);
        // It is as hot in the next round, and nothing has changed.
        (0..12).for_each(|read| leaf.reads.touch(read % 4));
        let damaged = core.tree.stats.damaged.get();
        assert!(!core.tiering().judge(leaf, thresholds, &mut tierer, &mut 0, &guard), "it was packed again");
        assert_eq!(core.tree.stats.damaged.get(), damaged);
    }

    #[cfg(not(any(miri, shuttle)))]
    #[test]
    fn a_round_ends_where_nothing_was_counted_and_forgets_what_nobody_read_again() {
        use ziptier_tree::record::PutMeta;

        use crate::options::Options;

        let core = Core::new(&Options { background_threads: 0, ..Options::default() });
        for n in 0..4_000_u32 {
            core.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).unwrap();
        }
        let mut tierer = Tierer::default();
        let mut walks = || 1 + (0..9).take_while(|_| !core.tiering().tier(&mut tierer, usize::MAX)).count();
        assert_eq!(walks(), 1, "nothing was counted");
        let guard = core.tree.pin();
        let leaf = core.tree.locate(&[], &guard).0;
        (0..12).for_each(|read| leaf.reads.touch(read % 4));
        assert_eq!((walks(), leaf.reads.counts()), (2, 0), "no leaf is raw");
        assert_eq!(walks(), 1);
    }

    #[test]
    fn nothing_is_hot_where_little_is_known() {
        let mut heats = Heats::default();
        (1..LEAVES_MIN).for_each(|_| heats.add(50, 100));
        assert_eq!(heats.thresholds(), None);
        let mut unread = Heats::default();
        (0..100).for_each(|_| unread.add(0, 100));
        assert_eq!(unread.thresholds(), None);
    }
}
