//! Visits of leaves: what a leaf needs, and the laps over all leaves.
//!
//! Not for when laps begin, which `laps` says, nor for leaves that were just written to, which `backlog` lists.

use std::time::Duration;

use crossbeam_epoch::Guard;
use ziptier_tree::clock::{since, steady};
use ziptier_tree::leaf::{Leaf, Place};
use ziptier_tree::packing::Goal;
use ziptier_tree::sync::back_off;

use super::{LEAVES_AHEAD_MAX, Upkeep, is_plain};

/// Quiet leaves are filled while this share of all of them is empty. Filling one takes from all to its right, so that a
/// single half-empty leaf is not worth it.
const ROOM_PCT: usize = 3;
/// Right neighbours that one leaf is filled from in a row.
const FILLS_MAX: usize = 8;
/// A leaf is condensed after so many laps that count (`laps.rs`) and found it neither read nor written to. No lap
/// between them found it read or written to.
const UNUSED_LAPS: u8 = 2;

/// The position of the sweep.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Lowest key of the next leaf.
    cursor: Vec<u8>,
    /// Treat every leaf as quiet.
    all_quiet: bool,
    /// The lap counts for leaves that nobody uses.
    pub(crate) counts: bool,
    /// Whether a leaf was found that is, or was lately, out of its form.
    pub(crate) worked: bool,
    /// The time that changing leaves took.
    pub(crate) busy: Duration,
    /// Whether a leaf of this cycle has records that are going to expire.
    pub(crate) has_expiring: bool,
    /// Quiet leaves seen in this cycle, and how full they were.
    fullness: Fullness,
    /// Whether quiet leaves are filled in this cycle.
    fills: bool,
    /// The cycle before found so much room that the next one fills leaves.
    pub(crate) found_room: bool,
}

impl Sweep {
    /// A sweep that brings every leaf to its form, even if writers append there.
    pub(crate) fn of_all() -> Self {
        Self { all_quiet: true, ..Self::default() }
    }
}

/// How the visit of a leaf ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visited {
    /// The leaf needs nothing, or another thread does it.
    Idle,
    /// The visit did what the leaf needed, if there was room for that.
    Done,
    /// The leaf has to be settled, and another thread maintains it: the sweep comes back, and holds no epoch meanwhile.
    Busy,
}

/// How full the quiet leaves of a cycle were.
#[derive(Default)]
struct Fullness {
    leaves: usize,
    room_pct: usize,
}

impl Fullness {
    fn add(&mut self, full_pct: usize) {
        self.leaves += 1;
        self.room_pct += 100_usize.saturating_sub(full_pct);
    }

    /// Whether so much room is left that filling leaves pays.
    fn is_low(&self) -> bool {
        self.room_pct > ROOM_PCT * self.leaves
    }
}

impl Upkeep<'_> {
    /// Visits up to `leaves` leaves; `true` when that ended a lap. A sweep of all leaves has room made for the leaf of
    /// a key before it visits that leaf.
    pub(crate) fn sweep(&self, sweep: &mut Sweep, leaves: usize, make_room: impl Fn(&[u8])) -> bool {
        let mut left = leaves;
        while left > 0 {
            // New bodies and old ones are held beside each other until no reader has the old ones.
            self.room.wait_for_retired();
            if !sweep.all_quiet && self.room.is_eviction_due() {
                break;
            }
            if sweep.all_quiet {
                make_room(&sweep.cursor);
            }
            let guard = self.tree.pin();
            let (mut leaf, _) = self.tree.locate(&sweep.cursor, &guard);
            let visited = loop {
                left -= 1;
                let visited = self.visit(leaf, sweep, &guard);
                match leaf.state(&guard).right(&guard) {
                    Some(right) if visited == Visited::Idle && left > 0 && !sweep.all_quiet => leaf = right,
                    _ => break visited,
                }
            };
            let low = (visited == Visited::Busy).then(|| leaf.low());
            let next = low.or_else(|| leaf.state(&guard).high.clone());
            sweep.cursor.clear();
            let Some(next) = next else {
                let is_low = std::mem::take(&mut sweep.fullness).is_low();
                sweep.found_room |= is_low && !sweep.fills;
                sweep.fills = is_low;
                return true;
            };
            sweep.cursor.extend_from_slice(&next);
        }
        self.tree.pin().flush();
        false
    }

    /// Does for a leaf what its state asks for.
    pub(crate) fn visit(&self, leaf: &Leaf, sweep: &mut Sweep, guard: &Guard) -> Visited {
        sweep.has_expiring |= leaf.state(guard).body.earliest_expiry_ms().is_some();
        // A round settles those.
        if leaf.is_listed() && !sweep.all_quiet {
            return Visited::Idle;
        }
        let quiet = leaf.is_quiet() || sweep.all_quiet;
        let is_unused = quiet && leaf.reads.counts() == 0;
        // A lap that does not count may still find that somebody used the leaf.
        let rests = (sweep.counts || !is_unused) && leaf.usage.note_lap(is_unused) >= UNUSED_LAPS;
        sweep.worked |= !quiet;
        if self.needs_nothing(leaf, sweep, quiet, rests, guard) {
            return Visited::Idle;
        }
        let has_to_be_settled = || sweep.all_quiet && leaf.state(guard).is_unsettled();
        let mut round = 0;
        let _ownership = loop {
            match leaf.try_own() {
                Some(ownership) => break ownership,
                None if has_to_be_settled() && round < 1000 => back_off(round),
                None if has_to_be_settled() => return Visited::Busy,
                None => return Visited::Idle,
            }
            round += 1;
        };
        let state = leaf.state(guard);
        if !state.closed && self.room.has_place_for(&[state]) {
            let began = steady();
            if self.work_on(leaf, sweep, quiet, rests, guard) {
                sweep.worked = true;
                sweep.busy += since(began);
            }
        }
        Visited::Done
    }

    /// Whether a visit of a lap may pass the leaf by. A quiet one counts for how full leaves are.
    fn needs_nothing(&self, leaf: &Leaf, sweep: &mut Sweep, quiet: bool, rests: bool, guard: &Guard) -> bool {
        let state = leaf.state(guard);
        if state.closed {
            return true;
        }
        let is_joined = || match quiet {
            true => sweep.fills && self.has_room(state, false, guard),
            false => self.is_small(state, guard),
        };
        let needs = sweep.all_quiet
            || quiet && state.place() == Place::Ssd
            || self.wanted(leaf, sweep, quiet, rests, guard).is_some()
            || is_joined();
        if !needs && quiet {
            sweep.fullness.add(self.full_pct(state));
        }
        !needs
    }

    /// The pack that a visited leaf needs, if any.
    fn wanted(&self, leaf: &Leaf, sweep: &Sweep, quiet: bool, rests: bool, guard: &Guard) -> Option<Goal> {
        let state = leaf.state(guard);
        // In quiet times it would be cooled.
        if sweep.all_quiet && state.form.is_hot() && leaf.reads.counts() == 0 {
            return Some(Goal::Recode);
        }
        let condenses = || rests && self.tree.heats && state.place() != Place::Ssd && is_plain(state);
        self.goal(state, quiet, sweep.all_quiet).or_else(|| condenses().then_some(Goal::Condense))
    }

    /// Packs, fills or joins a leaf, which the caller owns; `true` if that changed it.
    fn work_on(&self, leaf: &Leaf, sweep: &mut Sweep, quiet: bool, rests: bool, guard: &Guard) -> bool {
        let mut worked = match self.wanted(leaf, sweep, quiet, rests, guard) {
            None => false,
            Some(goal) if quiet => {
                self.settle_with_next(leaf, goal, sweep.all_quiet, &mut { LEAVES_AHEAD_MAX }, guard)
            }
            Some(goal) => self.settle_written(leaf, goal, guard),
        };
        if leaf.state(guard).place() == Place::Ssd {
            return worked | (quiet && self.moves.join_cold(leaf, guard));
        }
        if !quiet {
            let retention = &mut self.background_retention();
            return worked
                | (self.is_small(leaf.state(guard), guard)
                    && self.with_packs(retention, guard, |packs| packs.join_right(leaf)));
        }
        sweep.fullness.add(self.full_pct(leaf.state(guard)));
        for _ in 0..if self.room.is_short() { 1 } else { FILLS_MAX } {
            let retention = &mut self.background_retention();
            let mut fill = || self.with_packs(retention, guard, |packs| packs.fill_from_right(leaf));
            if !(sweep.fills || sweep.all_quiet)
                || !self.has_room(leaf.state(guard), sweep.all_quiet, guard)
                || !fill()
            {
                break;
            }
            worked = true;
        }
        worked
    }
}
