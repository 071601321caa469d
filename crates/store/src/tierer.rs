//! The tierer: leaves that are read far more than others are kept raw, and take their form again when they are not.
//!
//! It goes round the leaves when enough was read for their clocks to mean something, or a second after anything was
//! read: first it measures how heat is spread, then it judges every leaf by that. So a hot set that moves is raw again
//! after two or three rounds, which is some hundred thousand reads, and a store that nobody reads costs nothing.

use std::time::{Duration, Instant};

use crossbeam_epoch::{Guard, pin};

use crate::core::Core;
use crate::leaf::{Leaf, LeafState};
use crate::packing::Goal;

/// A round is due after so many reads for each leaf: one in eight of them is counted.
const READS_PER_LEAF: u64 = 64;
/// After fewer reads it is due after this time.
const ROUND_MAX: Duration = Duration::from_secs(1);
/// From the end of a round to the next, at least this many times what the round took: 3 % of one processor.
const PAUSE_FACTOR: u32 = 30;
/// Heated leaves may take one part in this many of all bodies.
const HEATED_SHARE: u64 = 32;
/// Too few leaves to tell what is usual.
const LEAVES_MIN: u64 = 16;
/// Counted reads that make a leaf hot at least: fewer may be chance.
const COUNTS_MIN: u32 = 8;

/// Where a round is.
#[derive(Default)]
pub(crate) struct Tierer {
    /// Lowest key of the next leaf.
    cursor: Vec<u8>,
    /// Leaves are judged, and not measured any more.
    judges: bool,
    heats: Heats,
    /// Bytes of heated bodies.
    heated_bytes: u64,
    /// What was read when the round began.
    reads: u64,
    /// Leaves of the last round.
    leaves: u64,
    /// What the round took.
    busy: Duration,
    ended: Option<Instant>,
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

    /// Three deviations above the mean, as the bypass of the ZipCache paper, but four times the mean: a leaf that is
    /// read less is not worth its bytes. Cooling at one deviation, for hysteresis.
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
    /// Whether the next part of a round is due.
    pub(crate) fn is_due(&self, core: &Core) -> bool {
        if !core.heats {
            return false;
        }
        if !self.cursor.is_empty() || self.judges {
            return true;
        }
        let pause = self.ended.map_or(ROUND_MAX, |ended| ended.elapsed());
        let reads = core.stats.body_reads() - self.reads;
        // Counts decay until none is left, also when nobody reads any more.
        let some = reads > 0 || self.heats.sum > 0.0;
        let due = reads >= READS_PER_LEAF * self.leaves || (some && pause >= ROUND_MAX);
        due && pause >= self.busy * PAUSE_FACTOR
    }
}

impl Core {
    /// Does the next part of a round, of up to `leaves` leaves; `true` when that ended it.
    pub(crate) fn tier(&self, tierer: &mut Tierer, leaves: usize) -> bool {
        let began = Instant::now();
        if tierer.cursor.is_empty() && !tierer.judges {
            tierer.reads = self.stats.body_reads();
            tierer.heats = Heats::default();
            tierer.heated_bytes = 0;
            tierer.busy = Duration::ZERO;
        }
        let thresholds = tierer.heats.thresholds();
        let guard = pin();
        let (mut leaf, mut state) = self.locate(&tierer.cursor, &guard);
        let mut left = leaves;
        let passed = loop {
            left -= 1;
            if tierer.judges {
                if self.judge(leaf, thresholds, tierer, &guard) {
                    // Nobody should hold the epoch for long.
                    left = 0;
                }
                state = leaf.state(&guard);
            } else {
                tierer.heats.add(leaf.clock.counts(), state.body.len());
                tierer.heated_bytes += heated_bytes(state);
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
                (None, _) => {
                    tierer.cursor.clear();
                    break true;
                }
            }
        };
        guard.flush();
        tierer.busy += began.elapsed();
        if !passed {
            return false;
        }
        tierer.leaves = tierer.heats.leaves;
        if tierer.judges {
            tierer.ended = Some(Instant::now());
        }
        tierer.judges = !tierer.judges;
        !tierer.judges
    }

    /// Heats or cools `leaf`, if it is time to, and lets its counts decay; `true` when its form was changed.
    fn judge(&self, leaf: &Leaf, thresholds: Option<Thresholds>, tierer: &mut Tierer, guard: &Guard) -> bool {
        let counts = leaf.clock.counts();
        leaf.clock.decay();
        let state = leaf.state(guard);
        let Some(thresholds) = thresholds else { return false };
        let heat = f64::from(counts) / state.body.len().max(1) as f64;
        let goal = if state.heated {
            // Over the budget, a leaf must be hot to stay.
            let cool = if self.has_room_for_heat(tierer, 0) { thresholds.cool } else { thresholds.hot };
            (heat < cool).then_some(Goal::Recode)
        } else {
            let hot = heat > thresholds.hot && counts >= COUNTS_MIN && is_compressed(state);
            (hot && self.has_room_for_heat(tierer, raw_bytes(state))).then_some(Goal::Heat)
        };
        let Some(goal) = goal else { return false };
        let Some(_ownership) = leaf.try_own() else { return false };
        let state = leaf.state(guard);
        if state.closed || state.heated == (goal == Goal::Heat) {
            return false;
        }
        let bytes = raw_bytes(state);
        Self::with_scratch(|scratch| self.pack(leaf, goal, guard, scratch));
        if leaf.state(guard).heated {
            self.stats.heated.raise();
            tierer.heated_bytes += bytes;
        } else {
            self.stats.cooled.raise();
            tierer.heated_bytes = tierer.heated_bytes.saturating_sub(bytes);
        }
        true
    }

    fn has_room_for_heat(&self, tierer: &Tierer, bytes: u64) -> bool {
        let bodies = [&self.gauges.raw_body, &self.gauges.coded_body, &self.gauges.packed_body];
        tierer.heated_bytes + bytes <= bodies.iter().map(|gauge| gauge.held()).sum::<u64>() / HEATED_SHARE
    }
}

fn is_compressed(state: &LeafState) -> bool {
    state.body.is_coded() || state.body.is_packed()
}

/// About what the body takes if it is raw.
fn raw_bytes(state: &LeafState) -> u64 {
    let bytes = match &state.body {
        body if body.is_packed() => body.raw_bytes(),
        body if body.is_coded() => 2 * body.asked_bytes(),
        body => body.asked_bytes(),
    };
    bytes as u64
}

fn heated_bytes(state: &LeafState) -> u64 {
    if state.heated { state.body.asked_bytes() as u64 } else { 0 }
}
