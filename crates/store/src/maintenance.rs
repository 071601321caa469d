//! Background work: the packers' queue, and the sweep that settles, recodes and fills leaves.
//!
//! Not for work that a call needs to go on: writers pack and make room themselves if the background is late.
//!
//! 1. A background thread packs leaves of the queue first, because their writers may wait.
//! 2. The first thread also makes room, evicts, and runs the tierer.
//! 3. When nothing of that is due, it sweeps the leaves in key order, a few times a second while it finds something to
//!    do.
//! 4. A leaf is *quiet* if nothing was appended to it since the cycle before. The sweep settles quiet leaves and comes
//!    back to the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crossbeam_epoch::Guard;

use crate::Error;
use crate::coding::Coding;
use crate::core::Core;
use crate::laps::Laps;
use crate::leaf::{Leaf, LeafState, Ownership};
use crate::packing::{Goal, generation};
use crate::sync::{Mutex, back_off};
use crate::tierer::Tierer;
use crate::together::LEAVES_AHEAD_MAX;

/// Leaves that wait at most; above this, writers pack themselves.
const QUEUE_LEAVES_MAX: usize = 512;
/// A sleeping packer is woken when this many wait; fewer are found when it looks by itself.
const QUEUE_LEAVES_WAKE: usize = 64;
/// How long a packer sleeps after work, and at most.
const NAP_MIN: Duration = Duration::from_millis(1);
const NAP_MAX: Duration = Duration::from_millis(64);
/// The same while much is read, so that the tierer is not late.
const NAP_READ: Duration = Duration::from_millis(8);
/// Leaves that the sweep visits before it looks at the queue again.
const SWEEP_LEAVES: usize = 64;
/// Packs between two looks at the dictionary.
const DICTIONARY_PACKS: u32 = 128;
/// A quiet leaf below this share of a full body is filled from its right neighbours.
const FULL_PCT: usize = 97;
/// Quiet leaves are filled while this share of all of them is empty. Filling one takes from all to its right, so that a
/// single half-empty leaf is not worth it.
const ROOM_PCT: usize = 3;
/// Right neighbours that one leaf is filled from in a row.
const FILLS_MAX: usize = 8;
/// Two neighbours that are written to are joined when together they stay below this share of a full body. The halves of
/// a split are well above it.
const JOINED_PCT: usize = 85;
/// A quiet leaf is recoded when more than one record in this many was coded fast. It is condensed when more than one in
/// this many has token numbers of one width. So what is packed again pays for copying the rest.
const LOOSE_SHARE: usize = 4;
/// A leaf is condensed after so many laps that count (`laps.rs`) and found it neither read nor written to. No lap
/// between them found it read or written to.
const UNUSED_LAPS: u8 = 2;

/// Leaves with a sealed landing, first come first served. The queue keeps no leaf alive that was joined with its
/// neighbour.
#[derive(Default)]
pub(crate) struct Queue {
    leaves: Mutex<VecDeque<Weak<Leaf>>>,
    packers: Mutex<Vec<Thread>>,
    stopping: AtomicBool,
}

impl Queue {
    /// Hands `leaf` to the packers; `false` when too many wait already.
    pub(crate) fn push(&self, leaf: &Leaf) -> bool {
        if !leaf.enqueue() {
            return true;
        }
        let waiting = {
            let mut leaves = self.leaves.lock();
            if leaves.len() >= QUEUE_LEAVES_MAX {
                leaf.dequeue();
                return false;
            }
            leaves.push_back(leaf.share_weakly());
            leaves.len()
        };
        if waiting.is_multiple_of(QUEUE_LEAVES_WAKE)
            && let Some(packer) = self.packers.lock().get(waiting / QUEUE_LEAVES_WAKE - 1)
        {
            packer.unpark();
        }
        true
    }

    /// Wakes the thread that makes room.
    pub(crate) fn wake(&self) {
        if let Some(packer) = self.packers.lock().first() {
            packer.unpark();
        }
    }

    /// The leaf that waits longest.
    pub(crate) fn pop(&self) -> Option<Arc<Leaf>> {
        let leaf = {
            let mut leaves = self.leaves.lock();
            std::iter::from_fn(|| leaves.pop_front()).find_map(|leaf| leaf.upgrade())?
        };
        leaf.dequeue();
        Some(leaf)
    }
}

/// The background threads of a store; they end when this is dropped.
pub(crate) struct Packers {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
}

impl Packers {
    pub(crate) fn start(core: &Arc<Core>, threads: usize) -> Result<Self, Error> {
        let mut packers = Self { core: core.clone(), threads: Vec::new() };
        for index in 0..threads {
            let core = core.clone();
            let thread = std::thread::Builder::new()
                .name(format!("ziptier-pack-{index}"))
                .spawn(move || core.pack_in_background(index == 0))
                .map_err(|error| Error::Thread { reason: error.to_string() })?;
            packers.core.queue.packers.lock().push(thread.thread().clone());
            packers.threads.push(thread);
        }
        Ok(packers)
    }
}

impl Drop for Packers {
    fn drop(&mut self) {
        self.core.queue.stopping.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a packer panicked");
        }
    }
}

/// The work of a background thread, and how far it has come.
struct Background {
    /// It also makes room, evicts, tiers and sweeps.
    is_first: bool,
    sweep: Sweep,
    laps: Laps,
    tierer: Tierer,
    /// Packs since the thread looked whether a dictionary is due.
    packs: u32,
    nap: Duration,
}

impl Background {
    fn new(is_first: bool, now: Instant) -> Self {
        let (sweep, laps, tierer) = (Sweep::default(), Laps::new(now), Tierer::default());
        Self { is_first, sweep, laps, tierer, packs: 0, nap: NAP_MIN }
    }
}

/// The position of the sweep.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Lowest key of the next leaf.
    cursor: Vec<u8>,
    /// Treat every leaf as quiet.
    all_quiet: bool,
    /// The lap counts for leaves that nobody uses.
    counts: bool,
    /// Whether a leaf was found that is, or was lately, out of its form.
    worked: bool,
    /// Whether a leaf of this cycle has records that are going to expire.
    has_expiring: bool,
    /// Quiet leaves seen in this cycle, and how full they were.
    fullness: Fullness,
    /// Whether quiet leaves are filled in this cycle.
    fills: bool,
}

impl Sweep {
    /// A sweep that brings every leaf to its form, even if writers append there.
    pub(crate) fn of_all() -> Self {
        Self { all_quiet: true, ..Self::default() }
    }
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

impl Core {
    fn pack_in_background(&self, is_first: bool) {
        Self::work_in_background();
        let mut work = Background::new(is_first, Instant::now());
        while !self.queue.stopping.load(Ordering::Acquire) {
            if self.loading.load(Ordering::Acquire) {
                std::thread::park_timeout(NAP_MAX);
                continue;
            }
            if self.do_next(&mut work, Instant::now()) {
                continue;
            }
            self.reclaim();
            self.maintain_dictionary();
            std::thread::park_timeout(work.nap);
            let longest = if is_first && work.tierer.is_awaited(self) { NAP_READ } else { NAP_MAX };
            work.nap = (work.nap * 2).min(longest);
        }
    }

    /// Does the first part of the work that is due `now`; `false` if none is, so that the thread may rest.
    fn do_next(&self, work: &mut Background, now: Instant) -> bool {
        if work.is_first && self.relieve() {
            work.packs += 1;
            if work.packs.is_multiple_of(DICTIONARY_PACKS) {
                self.maintain_dictionary();
            }
            return true;
        }
        if let Some(leaf) = self.queue.pop() {
            let guard = self.pin();
            work.packs += self.pack_queued(&leaf, &guard);
            guard.flush();
            work.nap = NAP_MIN;
            if work.packs >= DICTIONARY_PACKS {
                work.packs = 0;
                drop(guard);
                self.maintain_dictionary();
            }
            return true;
        }
        if !work.is_first {
            return false;
        }
        if self.evict_in_background() {
            return true;
        }
        if work.tierer.is_due(self) {
            self.tier(&mut work.tierer, SWEEP_LEAVES);
            return true;
        }
        // Eviction comes before the sweep. If it is still due, it found nothing that could go.
        if !work.laps.is_due(now, self.gauges.landing.held() > 0) || self.is_eviction_due() {
            return false;
        }
        let began = Instant::now();
        work.sweep.counts = work.laps.counts(began);
        let ended = self.sweep(&mut work.sweep, SWEEP_LEAVES);
        work.laps.note_part(began.elapsed(), std::mem::take(&mut work.sweep.worked));
        if ended {
            work.laps.end(Instant::now(), std::mem::take(&mut work.sweep.has_expiring));
            self.dictionaries.release_idle();
            Self::release_scratch();
        }
        true
    }

    /// Frees all retired bytes that nobody reads any more. The caller holds no guard.
    pub(crate) fn reclaim(&self) {
        // Retired bytes are free three steps of the epoch later, and each step frees only a little.
        let mut idle_steps = 0;
        while idle_steps < 4 {
            let before = self.gauges.retired.held();
            if before == 0 {
                return;
            }
            self.pin().flush();
            idle_steps = if self.gauges.retired.held() < before { 0 } else { idle_steps + 1 };
        }
    }

    /// Merges every landing that is there now, and brings every leaf to its form, as far as there is room for that.
    pub(crate) fn settle(&self) {
        self.maintain_dictionary();
        // The first cycle settles every leaf, the second fills each from a neighbour that is settled, too.
        let mut sweep = Sweep::of_all();
        for _lap in 0..2 {
            while !self.sweep(&mut sweep, SWEEP_LEAVES) {}
        }
        if self.heats {
            let mut tierer = Tierer::of_settled();
            while !self.tier(&mut tierer, SWEEP_LEAVES) {}
        }
        // Contexts that worked just now are idle at the second call.
        (0..2).for_each(|_| self.dictionaries.release_idle());
        Self::release_scratch();
        // Retired bytes are free three steps of the epoch later, once their readers of this moment are done.
        (0..3).for_each(|_| self.pin().flush());
        self.wait_for_retired();
        self.reclaim();
    }

    /// Visits up to `leaves` leaves; `true` when that ended a lap.
    pub(crate) fn sweep(&self, sweep: &mut Sweep, leaves: usize) -> bool {
        for _ in 0..leaves {
            // New bodies and old ones are held beside each other until no reader has the old ones.
            self.wait_for_retired();
            if !sweep.all_quiet && self.is_eviction_due() {
                break;
            }
            if sweep.all_quiet {
                self.make_room_to_pack(&sweep.cursor);
            }
            let guard = self.pin();
            let (leaf, _) = self.locate(&sweep.cursor, &guard);
            if !self.visit(leaf, sweep, &guard) {
                continue;
            }
            match &leaf.state(&guard).high {
                Some(high) => {
                    sweep.cursor.clear();
                    sweep.cursor.extend_from_slice(high);
                }
                None => {
                    sweep.cursor.clear();
                    sweep.fills = std::mem::take(&mut sweep.fullness).is_low();
                    return true;
                }
            }
        }
        self.pin().flush();
        false
    }

    /// Does for a leaf what its state asks for. `false` if the leaf has to be settled and another thread maintains it:
    /// the sweep comes back, and holds no epoch meanwhile.
    fn visit(&self, leaf: &Leaf, sweep: &mut Sweep, guard: &Guard) -> bool {
        let quiet = leaf.is_quiet() || sweep.all_quiet;
        let is_unused = quiet && leaf.clock.counts() == 0;
        // A lap that does not count may still find that somebody used the leaf.
        let rests = (sweep.counts || !is_unused) && leaf.usage.note_lap(is_unused) >= UNUSED_LAPS;
        sweep.worked |= !quiet;
        sweep.has_expiring |= leaf.state(guard).body.earliest_expiry_ms().is_some();
        let has_to_be_settled = || sweep.all_quiet && leaf.state(guard).is_unsettled();
        let mut round = 0;
        let ownership = loop {
            match leaf.try_own() {
                Some(ownership) => break ownership,
                None if has_to_be_settled() && round < 1000 => back_off(round),
                None => return !has_to_be_settled(),
            }
            round += 1;
        };
        let state = leaf.state(guard);
        if state.closed || !self.has_place_for(&[state]) {
            return true;
        }
        // In quiet times it would be cooled.
        let cools = sweep.all_quiet && state.heated && leaf.clock.counts() == 0;
        let mut goal = if cools { Some(Goal::Recode) } else { self.goal(state, quiet, sweep.all_quiet) };
        if goal.is_none() && rests && self.heats && state.below.is_none() && is_plain(state) {
            goal = Some(Goal::Condense);
        }
        if let Some(goal) = goal {
            sweep.worked |= if quiet {
                self.settle_with_next(leaf, goal, sweep.all_quiet, &mut { LEAVES_AHEAD_MAX }, guard)
            } else {
                self.settle_written(leaf, goal, guard)
            };
        }
        if leaf.state(guard).below.is_some() {
            if quiet {
                sweep.worked |= self.join_cold(leaf, guard);
            }
        } else if quiet {
            sweep.fullness.add(self.full_pct(leaf.state(guard)));
            for _ in 0..if self.is_short() { 1 } else { FILLS_MAX } {
                if !(sweep.fills || sweep.all_quiet)
                    || !self.has_room(leaf.state(guard), sweep.all_quiet, guard)
                {
                    break;
                }
                if !Self::with_scratch(|scratch| self.fill_from_right(leaf, guard, scratch)) {
                    break;
                }
                sweep.worked = true;
            }
        } else if self.is_small(leaf.state(guard), guard) {
            sweep.worked |= Self::with_scratch(|scratch| self.join_right(leaf, guard, scratch));
        }
        drop(ownership);
        true
    }

    /// Packs `leaf`, which the caller owns and other threads write to; `false` if memory has no room for that.
    fn settle_written(&self, leaf: &Leaf, goal: Goal, guard: &Guard) -> bool {
        let was_heated = leaf.state(guard).heated;
        // Records of the open landing may change when others expire.
        self.seal(leaf, guard);
        let settled = Self::with_scratch(|scratch| self.pack_while(leaf, goal, guard, scratch, &mut || ()));
        if settled {
            self.count_settled(goal, was_heated);
        }
        settled
    }

    /// Merges both landings of `leaf`, which the caller owns, and gives the body the form of `goal`.
    pub(crate) fn settle_leaf(&self, leaf: &Leaf, goal: Goal, guard: &Guard) {
        let state = leaf.state(guard);
        // A landing that is sealed already is packed first, so that the open one can be.
        if state.sealed.is_some() && state.open.is_some() {
            Self::with_scratch(|scratch| self.pack(leaf, Goal::Keep, guard, scratch));
        }
        self.seal(leaf, guard);
        Self::with_scratch(|scratch| self.pack(leaf, goal, guard, scratch));
    }

    /// The pack that brings a leaf that nobody writes to to its dense form, if it would be smaller then.
    pub(crate) fn denser(&self, state: &LeafState) -> Option<Goal> {
        self.goal(state, true, true).filter(|goal| matches!(goal, Goal::Recode | Goal::Condense))
    }

    /// The pack that a leaf needs, if any. Where all leaves are to be `dense`, one whose values were coded fast needs
    /// another pack.
    pub(crate) fn goal(&self, state: &LeafState, quiet: bool, dense: bool) -> Option<Goal> {
        if quiet
            && !state.heated
            && !state.keeps_damage
            && !state.body.is_empty()
            && state.below.is_none()
            && let Some(current) = self.dictionaries.current()
        {
            // Dense tokens save 1 to 2 % in twice the time. Dense blocks save much more.
            let dense = dense || current.blocks().is_some();
            let is_loose = usize::from(state.loose) * LOOSE_SHARE > state.body.len();
            if dense && is_loose || generation(state) != Some(current.generation()) {
                return Some(if dense { Goal::Recode } else { Goal::Renew });
            }
            if dense && is_plain(state) {
                return Some(Goal::Condense);
            }
        }
        let expired = state.body.earliest_expiry_ms().is_some_and(|at| at <= self.expiry_now_ms());
        let settles = quiet && state.is_unsettled();
        let kept = if dense { Goal::Settle } else { Goal::Keep };
        (expired || settles || state.sealed.is_some()).then_some(kept)
    }

    /// Whether a leaf and its right neighbour, which may be written to, fit one body with room to grow.
    pub(crate) fn is_small(&self, state: &LeafState, guard: &Guard) -> bool {
        // Most leaves are large enough alone: the neighbour is looked at only where it may matter.
        let is_large = |bytes: usize, records: usize| {
            records * 100 >= self.limits.records_full * JOINED_PCT
                || bytes * 100 >= self.limits.bytes_full * JOINED_PCT
        };
        if is_large(state.body.asked_bytes(), state.body.len()) {
            return false;
        }
        let Some(right) = state.right(guard) else { return false };
        let pair = [state, right.state(guard)];
        let records = pair.iter().map(|state| state.body.len()).sum::<usize>();
        let bytes = pair.iter().map(|state| state.body.asked_bytes()).sum::<usize>();
        !is_large(bytes, records)
            && pair.iter().all(|state| !state.heated && !state.closed && state.below.is_none())
            && generation(pair[0]) == generation(pair[1])
    }

    /// How full a leaf is, by records or by bytes.
    fn full_pct(&self, state: &LeafState) -> usize {
        let records_pct = state.body.len() * 100 / self.limits.records_full;
        records_pct.max(state.body.asked_bytes() * 100 / self.limits.bytes_full)
    }

    /// Whether a leaf has room that records of its right neighbour could fill. A neighbour that is to be recoded comes
    /// first, or its records would have both leaves recoded.
    fn has_room(&self, state: &LeafState, dense: bool, guard: &Guard) -> bool {
        let Some(right) = state.right(guard) else { return false };
        let right = right.state(guard);
        // A neighbour's first record may not fit, however much room there is; blocks are cut.
        let record_pct = right.body.asked_bytes() * 100 / self.limits.bytes_full / right.body.len().max(1);
        self.full_pct(state) < FULL_PCT
            && state.body.asked_bytes() * 100 / self.limits.bytes_full + record_pct < FULL_PCT
            && [state, right]
                .iter()
                .all(|state| !state.heated && !state.closed && !state.is_unsettled() && state.below.is_none())
            && generation(state) == generation(right)
            && self.goal(right, true, dense).is_none_or(Goal::keeps_form)
    }

    /// The leaf of `key`, owned, if no other thread owns it.
    pub(crate) fn try_own_leaf_of<'g>(
        &self,
        key: &[u8],
        guard: &'g Guard,
    ) -> Option<(&'g Leaf, Ownership<'g>)> {
        let (leaf, _) = self.locate(key, guard);
        let ownership = leaf.try_own()?;
        let state = leaf.state(guard);
        // A closed one was joined with its left neighbour or cut meanwhile: another one may have the key.
        (!state.closed && state.covers(key)).then_some((leaf, ownership))
    }

    /// Does `work` on the leaf of `key`, owned, once it is free. The caller holds no guard: the leaf's owner may wait
    /// for an SSD, and nothing would be freed meanwhile.
    pub(crate) fn with_leaf_of<R>(&self, key: &[u8], mut work: impl FnMut(&Leaf, &Guard) -> R) -> R {
        let mut round = 0;
        loop {
            let guard = self.pin();
            if let Some((leaf, _ownership)) = self.try_own_leaf_of(key, &guard) {
                return work(leaf, &guard);
            }
            drop(guard);
            back_off(round);
            round += 1;
        }
    }

    /// Empties every leaf and joins them.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        let mut cursor: Vec<u8> = Vec::new();
        loop {
            let high = self.with_leaf_of(&cursor, |leaf, guard| {
                self.empty(leaf, guard)?;
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
            let guard = self.pin();
            let (first, state) = self.locate(&[], &guard);
            let right_is_empty = state.right(&guard).is_some_and(|right| {
                let right = right.state(&guard);
                right.body.is_empty() && !right.is_unsettled() && right.below.is_none()
            });
            leaves += 1;
            if !right_is_empty || leaves > 1 << 24 {
                return Ok(());
            }
            let Some(_ownership) = first.try_own() else { return Ok(()) };
            if first.state(&guard).below.is_some() {
                return Ok(());
            }
            let high = first.state(&guard).high.clone();
            Self::with_scratch(|scratch| self.fill_from_right(first, &guard, scratch));
            guard.flush();
            if first.state(&guard).high == high {
                // A thread writes there again.
                return Ok(());
            }
        }
    }
}

/// Whether a leaf has enough values that could be coded by entropy. Values that tokens make no smaller lie raw, and the
/// state counts them, too. So the body has the last word.
fn is_plain(state: &LeafState) -> bool {
    let are_many = |values: usize| values * LOOSE_SHARE > state.body.len();
    let has_codes = || state.coding.as_ref().is_some_and(Coding::has_codes);
    are_many(state.plain.into()) && has_codes() && are_many(state.body.plain())
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests;
#[cfg(all(test, not(miri), not(shuttle)))]
mod unused;
