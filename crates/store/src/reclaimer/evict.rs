//! Eviction: a store at its memory limit evicts records by the rules of S3-FIFO. `switch` begins and ends it.
//!
//! Not for a store with room in a place below DRAM: such a store demotes first.
//!
//! 1. Above [`FULL_PCT`] of the limit, records leave at the end of probation, in any pack of a writer. Writers that
//!    pack visit leaves. Above [`GOAL_PCT`] such a visit takes records of the main queue, too.
//! 2. At the limit a writer visits leaves until its record has room. Above the limit the background visits leaves.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_epoch::Guard;
use ziptier_tree::leaf::{Leaf, LeafState, NOWHERE};
use ziptier_tree::marks::Mark;
use ziptier_tree::packing::Goal;
use ziptier_tree::record::Payload;
use ziptier_tree::tree::Tree;

use super::Reclaimer;
use crate::room::GOAL_PCT;
use crate::s3fifo::{EPOCHS, Eviction, Turn, Which};
use crate::upkeep::Upkeep;

/// Per cent of the limit above which probation ends.
const FULL_PCT: u64 = 95;
/// Records of the main queue that one visit evicts.
const EVICTED_PER_VISIT: usize = 32;
/// Leaves that a writer visits after a pack, which brought a handful of records.
const VISITS_PER_PACK: usize = 4;
/// Right neighbours that a leaf is joined with in one visit.
const JOINS_PER_VISIT: usize = 4;

/// The outcome of visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relief {
    /// There is room.
    Enough,
    /// Not yet, but leaves were visited.
    Some,
    /// Not yet, and nobody is there to be visited.
    None,
}

impl Reclaimer<'_> {
    /// Keeps an evicting store below its limit; a few visits at most. The caller holds no guard and no lock.
    pub(super) fn evict_some(&self) {
        let Some(eviction) = self.eviction.while_on(self.tree) else { return };
        let wanted_bytes = eviction.training_bytes.load(Relaxed);
        if self.is_nearly_full(eviction, wanted_bytes) && !self.squeeze_stale() {
            self.evict(eviction, wanted_bytes, VISITS_PER_PACK);
        }
    }

    /// Has the writers evict until a training has so many bytes of room. While nobody writes nothing is evicted, so a
    /// training evicts nothing itself. `false` if the store makes room in another way.
    pub(crate) fn ask_for_training_room(&self, bytes: u64) -> bool {
        let eviction = self.eviction.while_on(self.tree).filter(|_| !self.room.has_room_below());
        eviction.map(|eviction| eviction.training_bytes.store(bytes, Relaxed)).is_some()
    }

    /// Whether there is little room for `wanted_bytes` more. Packing leaves that are not coded as new ones are comes
    /// before eviction then. The same look at memory decides on both, because others write meanwhile.
    fn is_nearly_full(&self, eviction: &Eviction, wanted_bytes: u64) -> bool {
        let limit = self.tree.gauges.limit();
        let is_nearly_full = limit < u64::MAX
            && self.tree.gauges.live_bytes() + wanted_bytes > limit / 100 * FULL_PCT
            && !self.room.has_room_below();
        if !is_nearly_full {
            eviction.full.store(false, Relaxed);
        }
        is_nearly_full
    }

    /// Packs and evicts until `bytes` more may be held, however many visits that takes; `false` when so much is not to
    /// be had. The caller holds no guard and no lock.
    pub(crate) fn evict_for_all(&self, bytes: u64) -> bool {
        let Some(eviction) = self.eviction.while_on(self.tree) else { return true };
        if bytes > self.tree.gauges.limit() / 2 {
            return false;
        }
        while self.is_nearly_full(eviction, bytes) {
            // Evicted bytes count until they are freed. With more visits at a time too much would go.
            if !self.squeeze_stale() && self.evict(eviction, bytes, 1) != Relief::Some {
                break;
            }
            self.tree.reclaim();
        }
        true
    }

    /// Evicts in the background, only above the limit, down to [`GOAL_PCT`]; whether there is more to do.
    pub(crate) fn evict_in_background(&self) -> bool {
        let Some(eviction) = self.eviction.while_on(self.tree).filter(|_| self.room.is_eviction_due()) else {
            return false;
        };
        if self.squeeze_stale() {
            return true;
        }
        let relief = self.evict(eviction, 0, 4 * VISITS_PER_PACK);
        if relief != Relief::Enough {
            self.tree.reclaim();
        }
        relief == Relief::Some
    }

    /// Evicts towards `bytes` more that may be held; `false` when so much is not to be had that way. The caller holds
    /// no guard and no lock.
    pub(super) fn evict_for(&self, bytes: u64) -> bool {
        let Some(eviction) = self.eviction.while_on(self.tree) else { return false };
        if bytes > self.tree.gauges.limit() / 2 {
            return false;
        }
        self.evict(eviction, bytes, VISITS_PER_PACK) != Relief::None
    }

    fn evict(&self, eviction: &Eviction, wanted_bytes: u64, visits: usize) -> Relief {
        let limit = self.tree.gauges.limit();
        if limit == u64::MAX || self.room.has_room_below() {
            eviction.full.store(false, Relaxed);
            return Relief::Enough;
        }
        let goal = (limit / 100 * GOAL_PCT).min(limit.saturating_sub(wanted_bytes));
        for _ in 0..visits {
            // The new body of a visit and the old one are held beside each other until no reader has the old one.
            self.room.wait_for_retired();
            let live = self.tree.gauges.live_bytes();
            let full = live > (limit / 100 * FULL_PCT).min(goal);
            eviction.full.store(full, Relaxed);
            if !full {
                return Relief::Enough;
            }
            let mut ghosts = eviction.ghosts.lock();
            if !self.tree.evicts() {
                return Relief::None;
            }
            ghosts.resize(self.tree.gauges.records.get(), &self.tree.gauges);
            drop(ghosts);
            let excess_bytes = live.saturating_sub(goal);
            match eviction.next_leaf(excess_bytes > 0) {
                Some(turn) => self.visits().visit_waiting(eviction, &turn, excess_bytes),
                None if live <= goal => return Relief::Enough,
                None if self.visits().merge_next_landing(eviction) => {}
                None => return Relief::None,
            }
        }
        Relief::Some
    }
}

/// Visits of leaves whose turn it is, or of all.
#[derive(Clone, Copy)]
pub(super) struct Visits<'e> {
    pub(super) tree: &'e Tree,
    pub(super) upkeep: Upkeep<'e>,
}

impl Visits<'_> {
    /// Judges the records whose turn it is, and packs their leaf without those that go.
    fn visit_waiting(&self, eviction: &Eviction, turn: &Turn, excess_bytes: u64) {
        let &Turn { ref leaf, which, stamp, .. } = turn;
        let guard = self.tree.pin();
        let waits = &leaf.waits[which as usize];
        // One that waits elsewhere meanwhile was told so when it was pushed there.
        if waits.compare_exchange(stamp, NOWHERE, Relaxed, Relaxed).is_err() {
            return;
        }
        let Some(ownership) = leaf.try_own() else {
            // Its owner may have closed it for a moment only.
            if !self.tree.index.has_let_go_of(leaf, &guard) {
                waits.store(stamp, Relaxed);
                eviction.waiting(which).push(stamp.into(), leaf, which);
            }
            return;
        };
        let state = leaf.state(&guard);
        if state.closed {
            return;
        }
        let expires = state.body.earliest_expiry_ms().is_some_and(|at| at <= self.tree.expiry_now_ms());
        let goes = expires || self.choose(eviction, turn, state, excess_bytes, &guard);
        let lingers = which == Which::Probation && state.is_unsettled();
        if goes || lingers {
            if !goes || expires {
                leaf.seal(&guard);
            }
            self.upkeep.pack(leaf, Goal::Keep, &mut self.upkeep.retention(), &guard);
            drop(ownership);
            self.join_around(leaf, &guard);
        } else {
            let marks = leaf.marks.all(&guard).iter().take(state.body.len());
            eviction.line_up(leaf, marks.map(|mark| Mark(mark.load(Relaxed))), &guard);
        }
        guard.flush();
    }

    /// Joins a leaf that lost records with small neighbours. Records that were put in key order leave in key order,
    /// too: then it is the left one that is empty already.
    fn join_around(&self, leaf: &Leaf, guard: &Guard) {
        let left = self.tree.index.find_below(&leaf.low(), guard);
        let mut leaf = left.filter(|left| self.upkeep.is_small(left.state(guard), guard)).unwrap_or(leaf);
        for _ in 0..JOINS_PER_VISIT {
            let Some(_ownership) = leaf.try_own() else { return };
            if leaf.state(guard).closed || !self.upkeep.is_small(leaf.state(guard), guard) {
                return;
            }
            self.upkeep
                .with_packs(&mut self.upkeep.background_retention(), guard, |packs| packs.join_right(leaf));
            if let Some(left) = self.tree.index.find_below(&leaf.low(), guard)
                && self.upkeep.is_small(left.state(guard), guard)
            {
                leaf = left;
            }
        }
    }

    /// Gives every record of a queue whose turn it is another one, or marks it as going; whether one goes.
    fn choose(
        &self,
        eviction: &Eviction,
        turn: &Turn,
        state: &LeafState,
        excess_bytes: u64,
        guard: &Guard,
    ) -> bool {
        let (now, main) = (eviction.epochs(turn.which).now(), eviction.main.now());
        let age = if turn.which == Which::Probation { turn.age.min(EPOCHS) } else { turn.age };
        let ended = turn.which == Which::Probation && turn.age >= EPOCHS;
        let (mut going, mut large_bytes, mut came_to_main) = (0, 0, 0);
        for (index, place) in turn.leaf.marks.all(guard).iter().take(state.body.len()).enumerate() {
            let mark = Mark(place.load(Relaxed));
            // A reader may put back a mark that a pack has replaced. A record that is still to go then counts as read.
            if mark.is_main() != (turn.which == Which::Main) || mark.age(now) < age {
                continue;
            }
            if mark.reads() > 0 {
                let spared = if mark.is_main() { mark.spared(main) } else { Mark::new(true, main) };
                place.store(spared.0, Relaxed);
                came_to_main += 1;
            } else if ended
                || (going < EVICTED_PER_VISIT && (going == 0 || large_bytes < excess_bytes.max(1)))
            {
                place.store(mark.going().0, Relaxed);
                going += 1;
                large_bytes += large_stored_bytes(state, index);
            }
        }
        eviction.came_to_main(came_to_main, self.tree.gauges.records.get());
        going > 0
    }

    /// Merges the landing of the next leaf that has one; `false` when none has.
    fn merge_next_landing(&self, eviction: &Eviction) -> bool {
        let mut cursor = eviction.cursor.lock();
        let mut wrapped = false;
        loop {
            let guard = self.tree.pin();
            let (leaf, state) = self.tree.locate(&cursor, &guard);
            cursor.clear();
            cursor.extend_from_slice(state.high.as_deref().unwrap_or_default());
            if state.is_unsettled()
                && let Some(_ownership) = leaf.try_own()
                && !leaf.state(&guard).closed
            {
                if leaf.state(&guard).sealed.is_none() {
                    leaf.seal(&guard);
                }
                self.upkeep.pack(leaf, Goal::Keep, &mut self.upkeep.retention(), &guard);
                return true;
            }
            if cursor.is_empty() && std::mem::replace(&mut wrapped, true) {
                return false;
            }
        }
    }
}

/// Bytes stored for a record's value outside the leaf, in whatever place.
fn large_stored_bytes(state: &LeafState, index: usize) -> u64 {
    match state.body.found(index, &state.form).payload {
        Payload::Large(large) => large.stored_bytes() as u64,
        _ => 0,
    }
}

#[cfg(all(test, not(miri), not(shuttle)))]
mod tests;
