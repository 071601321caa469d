//! The work of the background, step by step: settling, recoding and filling leaves, making room, training dictionaries.
//!
//! Not for the threads, which are `store::packers`, nor for work that a call needs to go on: writers pack and make room
//! themselves if the background is late.
//!
//! 1. A background thread packs leaves of the queue first, because their writers may wait.
//! 2. The first thread also makes room, evicts, and runs the tierer.
//! 3. When nothing of that is due, it settles the leaves that were written to, a few times a second (`unsettled`).
//! 4. It sweeps all leaves in key order, more and more seldom while it finds nothing to do.
//! 5. A leaf is *quiet* if nothing was appended to it since the visit before. A visit settles a quiet leaf, and others
//!    wait for the next one.

mod unsettled;

use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam_epoch::Guard;

use crate::Error;
use crate::backlog::Backlog;
use crate::laps::Laps;
use crate::reclaimer::Reclaimer;
use crate::room::Room;
use crate::tierer::{Tierer, Tiering};
use crate::upkeep::{Sweep, Upkeep};
pub(crate) use unsettled::Rounds;
use ziptier_tree::clock::{since, steady};
use ziptier_tree::leaf::{Leaf, Place};
use ziptier_tree::packing::{Goal, Scratch};
use ziptier_tree::tree::Tree;
use ziptier_tree::write::Writes;

/// Leaves that the sweep visits before it looks at the queue again.
const SWEEP_LEAVES: usize = 64;
/// Leaves of the queue that a thread looks at while a device has one: their writers may fill another landing, and then
/// wait.
const QUEUED_AHEAD_MAX: usize = 3;
/// Packs between two looks at the dictionary.
const DICTIONARY_PACKS: u32 = 128;

/// The work of a background thread, and how far it has come.
pub(crate) struct Background {
    /// It also makes room, evicts, tiers and sweeps.
    is_first: bool,
    rounds: Rounds,
    sweep: Sweep,
    laps: Laps,
    /// Leaves were settled or written to since the last lap began, or that lap found room to fill.
    has_settled: bool,
    tierer: Tierer,
    /// Packs since the thread looked whether a dictionary is due.
    packs: u32,
    /// The dictionary when the last lap began.
    generation: Option<u32>,
    /// Leaves of the queue were packed since the thread last asked.
    packed_queued: bool,
}

impl Background {
    pub(crate) fn new(is_first: bool, now: Instant) -> Self {
        Self {
            is_first,
            rounds: Rounds::new(now),
            sweep: Sweep::default(),
            laps: Laps::new(now),
            has_settled: false,
            tierer: Tierer::default(),
            packs: 0,
            generation: None,
            packed_queued: false,
        }
    }

    /// Whether leaves of the queue were packed since the last call: the thread need not sleep long.
    pub(crate) fn take_packed(&mut self) -> bool {
        std::mem::take(&mut self.packed_queued)
    }

    /// Whether a round of the tierer may soon be due.
    pub(crate) fn may_tier_soon(&self, tree: &Tree) -> bool {
        self.is_first && self.tierer.is_awaited(tree)
    }

    /// Whether nothing is left to do for what was written.
    fn has_done_all(&self, backlog: &Backlog, tree: &Tree) -> bool {
        self.rounds.are_done(backlog)
            && !self.has_settled
            && self.laps.have_found_nothing()
            && self.generation == tree.dictionaries.generation()
    }
}

/// Does the background's work. See the module.
#[derive(Clone, Copy)]
pub(crate) struct Maintenance<'e> {
    pub(crate) tree: &'e Tree,
    pub(crate) upkeep: Upkeep<'e>,
    pub(crate) room: Room<'e>,
    pub(crate) reclaimer: Reclaimer<'e>,
    pub(crate) tiering: Tiering<'e>,
    pub(crate) backlog: &'e Backlog,
    pub(crate) writes: Writes<'e>,
}

impl Maintenance<'_> {
    /// Notes, for a thread that did something, that it does not rest.
    pub(crate) fn note_work(&self, work: &Background) {
        if work.is_first && !work.laps.look_in_vain() {
            self.backlog.rests.store(false, Ordering::Relaxed);
        }
    }

    /// Notes, for a thread that found nothing due, whether anything is left.
    pub(crate) fn note_rest(&self, work: &Background) {
        if work.is_first {
            self.backlog.rests.store(work.has_done_all(self.backlog, self.tree), Ordering::Relaxed);
        }
    }

    /// Does the first part of the work that is due `now`; `false` if none is, so that the thread may rest.
    pub(crate) fn do_next(&self, work: &mut Background, now: Instant) -> bool {
        if work.is_first && self.reclaimer.relieve() {
            work.packs += 1;
            if work.packs.is_multiple_of(DICTIONARY_PACKS) {
                self.reclaimer.maintain_dictionary();
            }
            return true;
        }
        if let Some(leaf) = self.backlog.queue.pop() {
            let guard = self.tree.pin();
            work.packs += self.pack_queued(&leaf, &guard);
            guard.flush();
            work.packed_queued = true;
            if work.packs >= DICTIONARY_PACKS {
                work.packs = 0;
                drop(guard);
                self.reclaimer.maintain_dictionary();
            }
            return true;
        }
        if !work.is_first {
            return false;
        }
        if self.reclaimer.evict_in_background() {
            return true;
        }
        if work.tierer.is_due(self.tree) {
            self.tiering.tier(&mut work.tierer, SWEEP_LEAVES);
            return true;
        }
        // Eviction comes before the sweep. If it is still due, it found nothing that could go.
        if self.room.is_eviction_due() {
            return false;
        }
        if work.rounds.is_due(self.backlog, self.tree, now) {
            work.has_settled |= work.rounds.take_new();
            work.has_settled |= self.settle_some(&mut work.rounds, SWEEP_LEAVES);
            return true;
        }
        if !work.laps.is_due(now, work.has_settled, work.rounds.are_done(self.backlog)) {
            return false;
        }
        work.has_settled &= work.laps.has_begun();
        if !work.laps.has_begun() {
            work.generation = self.tree.dictionaries.generation();
        }
        let began = steady();
        work.sweep.counts = work.laps.counts(began);
        let ended = self.reclaimer.sweep(&mut work.sweep, SWEEP_LEAVES);
        let looked = since(began).saturating_sub(std::mem::take(&mut work.sweep.busy));
        work.laps.note_part(looked, std::mem::take(&mut work.sweep.worked));
        if ended {
            work.laps.end(steady(), std::mem::take(&mut work.sweep.has_expiring));
            work.has_settled |= std::mem::take(&mut work.sweep.found_room);
            self.tree.dictionaries.release_idle();
            Scratch::release();
        }
        true
    }

    /// Packs a leaf of the queue, and others while a device has its blocks; returns how many.
    pub(crate) fn pack_queued(&self, leaf: &Leaf, guard: &Guard) -> u32 {
        let (mut left, mut packs) = (QUEUED_AHEAD_MAX, 0);
        self.pack_queued_with(leaf, &mut left, &mut packs, guard);
        packs
    }

    fn pack_queued_with(&self, leaf: &Leaf, left: &mut usize, packs: &mut u32, guard: &Guard) {
        *packs += 1;
        if self.tree.is_over_watermark(leaf.state(guard)) {
            leaf.seal(guard);
        }
        let Some(_ownership) = leaf.try_own() else { return };
        let state = leaf.state(guard);
        if state.sealed.is_some() && self.room.has_place_for(&[state]) {
            let mut meanwhile = || {
                while *left > 0
                    && let Some(next) = self.backlog.queue.pop()
                {
                    *left -= 1;
                    self.pack_queued_with(&next, left, packs, guard);
                }
            };
            let retention = &mut self.upkeep.background_retention();
            let packed = self.upkeep.pack_while(leaf, Goal::Keep, retention, guard, &mut meanwhile);
            self.tree.stats.packs_background.add(u64::from(packed));
        }
    }

    /// Merges every landing that is there now, and brings every leaf to its form, as far as there is room for that.
    pub(crate) fn settle(&self) {
        self.reclaimer.maintain_dictionary();
        // The first cycle settles every leaf, the second fills each from a neighbour that is settled, too.
        let mut sweep = Sweep::of_all();
        for _lap in 0..2 {
            while !self.reclaimer.sweep(&mut sweep, SWEEP_LEAVES) {}
        }
        if self.tree.heats {
            let mut tierer = Tierer::of_settled();
            while !self.tiering.tier(&mut tierer, SWEEP_LEAVES) {}
        }
        // Contexts that worked just now are idle at the second call.
        (0..2).for_each(|_| self.tree.dictionaries.release_idle());
        Scratch::release();
        // Retired bytes are free three steps of the epoch later, once their readers of this moment are done.
        (0..3).for_each(|_| self.tree.pin().flush());
        self.room.wait_for_retired();
        self.tree.reclaim();
    }

    /// Empties every leaf and joins them.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        let mut cursor: Vec<u8> = Vec::new();
        loop {
            let high = self.tree.with_leaf_of(&cursor, |leaf, guard| {
                self.writes.empty(leaf, guard)?;
                guard.flush();
                Ok::<_, Error>(leaf.state(guard).high.clone())
            })?;
            match high {
                Some(high) => cursor = high.to_vec(),
                None => break,
            }
        }
        let mut leaves = 0;
        loop {
            let guard = self.tree.pin();
            let (first, state) = self.tree.locate(&[], &guard);
            let right_is_empty = state.right(&guard).is_some_and(|right| {
                let right = right.state(&guard);
                right.body.is_empty() && !right.is_unsettled() && right.place() != Place::Ssd
            });
            leaves += 1;
            if !right_is_empty || leaves > 1 << 24 {
                return Ok(());
            }
            let Some(_ownership) = first.try_own() else { return Ok(()) };
            if first.state(&guard).place() == Place::Ssd {
                return Ok(());
            }
            let high = first.state(&guard).high.clone();
            let retention = &mut self.upkeep.background_retention();
            self.upkeep.with_packs(retention, &guard, |packs| packs.fill_from_right(first));
            guard.flush();
            if first.state(&guard).high == high {
                // A thread writes there again.
                return Ok(());
            }
        }
    }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests;
#[cfg(all(test, not(miri), not(shuttle)))]
mod unused;
