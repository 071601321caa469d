//! Eviction: a store at its memory limit evicts records by the rules of S3-FIFO. `switch` begins and ends it.
//!
//! Not for a store with room in a place below DRAM: such a store demotes first (`pressure`).
//!
//! S3-FIFO (Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023):
//!
//! 1. New records go on *probation*, a queue of a tenth of all bytes.
//! 2. A record that was read before its end there moves to the *main* queue. Other records go, and their keys are
//!    remembered.
//! 3. A remembered key that comes back soon goes to the main queue at once.
//! 4. In the main queue, a record that was read since its last turn gets another turn.
//!
//! The leaves hold records in key order, so no list can link them in queue order. Instead:
//!
//! 1. Each record has a [`Mark`] with its queue and the epoch in which it entered that queue. An epoch is an eighth of
//!    what a queue holds.
//! 2. Leaves wait by the oldest epoch of their records. A thread that needs room visits the leaf whose records came
//!    first.
//! 3. Records go when their leaf is packed anew: each pack asks which of its records stay (`s3fifo`).
//! 4. Above [`FULL_PCT`] of the limit, records leave at the end of probation, in any pack of a writer. Writers that
//!    pack visit leaves. Above [`GOAL_PCT`] such a visit takes records of the main queue, too.
//! 5. At the limit a writer visits leaves until its record has room. Above the limit the background visits leaves.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use crossbeam_epoch::Guard;

use crate::core::Core;
use crate::ghosts::Ghosts;
use crate::leaf::{Leaf, LeafState, NOWHERE};
use crate::marks::{Mark, STAMPS};
use crate::packing::Goal;
use crate::record::Payload;
use crate::sync::Mutex;

/// Per cent of the limit above which probation ends.
const FULL_PCT: u64 = 95;
/// Per cent of the limit that eviction keeps the store at.
pub(crate) const GOAL_PCT: u64 = 97;
/// Epochs from a queue's end to the other.
const EPOCHS: u32 = 8;
/// Per cent of all bytes that are on probation.
const PROBATION_PCT: u64 = 10;
/// Records of the main queue that one visit evicts.
const EVICTED_PER_VISIT: usize = 32;
/// Leaves that a writer visits after a pack, which brought a handful of records.
const VISITS_PER_PACK: usize = 4;
/// Right neighbours that a leaf is joined with in one visit.
const JOINS_PER_VISIT: usize = 4;

/// One of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Probation,
    Main,
}

/// Time as a queue counts it: by the bytes or records that enter it.
#[derive(Debug, Default)]
struct Epochs {
    number: AtomicU32,
    left: AtomicI64,
}

impl Epochs {
    fn now(&self) -> u32 {
        self.number.load(Relaxed)
    }

    /// So much came into the queue, whose epochs are `length` long.
    fn advance(&self, by: u64, length: u64) {
        let length = length.max(1) as i64;
        let left = self.left.fetch_sub(by as i64, Relaxed) - by as i64;
        if left <= 0 {
            let passed = 1 + -left / length;
            self.left.fetch_add(passed * length, Relaxed);
            self.number.fetch_add(passed as u32, Relaxed);
        }
    }
}

/// Leaves by the stamp of their oldest record in a queue.
///
/// The queue keeps no leaf alive. A leaf that was joined with its neighbour would otherwise hold its body until its
/// turn came. Eviction would then take other records to make room for that body.
#[derive(Default)]
struct Waiting(Mutex<[Vec<Weak<Leaf>>; STAMPS as usize]>);

impl Waiting {
    fn push(&self, stamp: u32, leaf: &Leaf, which: Which) {
        let mut stamps = self.0.lock();
        let leaves = &mut stamps[(stamp % STAMPS) as usize];
        if leaves.len() == leaves.capacity() {
            // Leaves that are gone, or wait elsewhere by now, leave their places to others before the list grows.
            let waits_here =
                |leaf: Arc<Leaf>| u32::from(leaf.waits[which as usize].load(Relaxed)) == stamp % STAMPS;
            leaves.retain(|leaf| leaf.upgrade().is_some_and(waits_here));
        }
        leaves.push(leaf.share_weakly());
    }

    /// A leaf whose oldest record is `age_min` epochs old at least, of those the oldest, and its age.
    fn pop(&self, now: u32, age_min: u32) -> Option<(Arc<Leaf>, u32)> {
        let mut stamps = self.0.lock();
        (age_min..STAMPS).rev().find_map(|age| {
            let leaves = &mut stamps[usize::from(stamp_of(now, age))];
            let leaf = std::iter::from_fn(|| leaves.pop()).find_map(|leaf| leaf.upgrade())?;
            Some((leaf, age))
        })
    }
}

/// The data that an evicting store keeps beside its leaves.
#[derive(Default)]
pub(crate) struct Eviction {
    /// Eviction began, and may have ended since: a key that is not there may have been evicted.
    begun: AtomicBool,
    /// Held by the thread that begins or ends it.
    switching: Mutex<()>,
    /// So little room is left that probation ends.
    full: AtomicBool,
    /// A training waits for so many bytes of room.
    training_bytes: AtomicU64,
    /// Counts bytes.
    probation: Epochs,
    /// Counts records.
    main: Epochs,
    on_probation: Waiting,
    in_main: Waiting,
    ghosts: Mutex<Ghosts>,
    /// Lowest key of the next leaf whose landing is merged, when nothing else is left to visit.
    cursor: Mutex<Vec<u8>>,
}

impl Eviction {
    /// Of a store that evicts from the start on, or does not.
    pub(crate) fn new(begun: bool) -> Self {
        Self { begun: AtomicBool::new(begun), ..Self::default() }
    }

    fn epochs(&self, which: Which) -> &Epochs {
        if which == Which::Main { &self.main } else { &self.probation }
    }

    fn waiting(&self, which: Which) -> &Waiting {
        if which == Which::Main { &self.in_main } else { &self.on_probation }
    }

    /// So many of the store's `all_records` came into the main queue.
    fn came_to_main(&self, records: u64, all_records: u64) {
        if records > 0 {
            let main_records = all_records * (100 - PROBATION_PCT) / 100;
            self.main.advance(records, main_records / u64::from(EPOCHS));
        }
    }

    /// Has `leaf` wait in both queues for the turn of its oldest record.
    fn line_up(&self, leaf: &Leaf, marks: impl Iterator<Item = Mark>, guard: &Guard) {
        let mut oldest = [None; 2];
        for mark in marks {
            let which = usize::from(mark.is_main());
            let now = if mark.is_main() { self.main.now() } else { self.probation.now() };
            oldest[which] = oldest[which].max(Some(mark.age(now)));
        }
        if leaf.state(guard).is_unsettled() {
            oldest[0] = oldest[0].max(Some(0));
        }
        for (which, oldest) in [Which::Probation, Which::Main].into_iter().zip(oldest) {
            let Some(age) = oldest else { continue };
            let stamp = stamp_of(self.epochs(which).now(), age);
            let waits = &leaf.waits[which as usize];
            if waits.swap(stamp, Relaxed) != stamp {
                self.waiting(which).push(stamp.into(), leaf, which);
            }
        }
    }

    /// The leaf whose turn it is: one with records at the end of probation. If there `must` be one, the leaf whose
    /// records came first.
    fn next_leaf(&self, must: bool) -> Option<Turn> {
        let pop = |which: Which, age_min| {
            let now = self.epochs(which).now();
            let (leaf, age) = self.waiting(which).pop(now, age_min)?;
            Some(Turn { leaf, which, age, stamp: stamp_of(now, age) })
        };
        pop(Which::Probation, EPOCHS)
            .or_else(|| if must { pop(Which::Main, 0) } else { None })
            .or_else(|| if must { pop(Which::Probation, 0) } else { None })
    }
}

/// A leaf whose turn it is, for records that are so many epochs old.
struct Turn {
    leaf: Arc<Leaf>,
    which: Which,
    age: u32,
    /// The stamp that it waited under: epochs may pass before the visit.
    stamp: u8,
}

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

impl Core {
    /// Takes `marks` for the records of `leaf`, which the caller owns and whose body is new. A pack that began before
    /// eviction did has none.
    pub(crate) fn take_marks(&self, leaf: &Leaf, marks: &[Mark], guard: &Guard) {
        let Some(eviction) = self.evicting() else { return };
        if marks.len() < leaf.state(guard).body.len() {
            return self.take_up(leaf, guard);
        }
        leaf.marks.set(marks, &self.tree.gauges, guard);
        eviction.line_up(leaf, marks.iter().copied(), guard);
    }

    /// Puts the records of a leaf without marks in the main queue, as if they had come there one after the other. Their
    /// earlier reads are not known. The caller owns the leaf.
    pub(crate) fn take_up(&self, leaf: &Leaf, guard: &Guard) {
        let Some(eviction) = self.evicting() else { return };
        let now = eviction.main.now() + STAMPS;
        let marks: Vec<Mark> = (0..leaf.state(guard).body.len() as u32)
            .map(|place| Mark::new(true, now - place % EPOCHS))
            .collect();
        self.take_marks(leaf, &marks, guard);
    }

    /// Has a leaf with a fresh landing wait for its turn, if it does not yet: records that stay there for a whole
    /// probation are merged then.
    pub(crate) fn wait_on_probation(&self, leaf: &Leaf) {
        let Some(eviction) = self.evicting() else { return };
        let stamp = eviction.probation.now() % STAMPS;
        if leaf.waits[0].compare_exchange(NOWHERE, stamp as u8, Relaxed, Relaxed).is_ok() {
            eviction.on_probation.push(stamp, leaf, Which::Probation);
        }
    }

    /// Keeps an evicting store below its limit; a few visits at most. The caller holds no guard and no lock.
    pub(crate) fn evict_some(&self) {
        let Some(eviction) = self.evicting() else { return };
        let wanted_bytes = eviction.training_bytes.load(Relaxed);
        if self.is_nearly_full(eviction, wanted_bytes) && !self.squeeze_stale() {
            self.evict(eviction, wanted_bytes, VISITS_PER_PACK);
        }
    }

    /// Has the writers evict until a training has so many bytes of room. While nobody writes nothing is evicted, so a
    /// training evicts nothing itself. `false` if the store makes room in another way.
    pub(crate) fn ask_for_training_room(&self, bytes: u64) -> bool {
        let eviction = self.evicting().filter(|_| !self.room().has_room_below());
        eviction.map(|eviction| eviction.training_bytes.store(bytes, Relaxed)).is_some()
    }

    #[cfg(all(test, not(miri), not(shuttle)))]
    pub(crate) fn wanted_training_bytes(&self) -> u64 {
        self.eviction.training_bytes.load(Relaxed)
    }

    /// Whether there is little room for `wanted_bytes` more. Packing leaves that are not coded as new ones are comes
    /// before eviction then. The same look at memory decides on both, because others write meanwhile.
    fn is_nearly_full(&self, eviction: &Eviction, wanted_bytes: u64) -> bool {
        let limit = self.tree.gauges.limit();
        let is_nearly_full = limit < u64::MAX
            && self.tree.gauges.live_bytes() + wanted_bytes > limit / 100 * FULL_PCT
            && !self.room().has_room_below();
        if !is_nearly_full {
            eviction.full.store(false, Relaxed);
        }
        is_nearly_full
    }

    /// Packs and evicts until `bytes` more may be held, however many visits that takes; `false` when so much is not to
    /// be had. The caller holds no guard and no lock.
    pub(crate) fn evict_for_all(&self, bytes: u64) -> bool {
        let Some(eviction) = self.evicting() else { return true };
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
        let Some(eviction) = self.evicting().filter(|_| self.room().is_eviction_due()) else { return false };
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
    pub(crate) fn evict_for(&self, bytes: u64) -> bool {
        let Some(eviction) = self.evicting() else { return false };
        if bytes > self.tree.gauges.limit() / 2 {
            return false;
        }
        self.evict(eviction, bytes, VISITS_PER_PACK) != Relief::None
    }

    fn evict(&self, eviction: &Eviction, wanted_bytes: u64, visits: usize) -> Relief {
        let limit = self.tree.gauges.limit();
        if limit == u64::MAX || self.room().has_room_below() {
            eviction.full.store(false, Relaxed);
            return Relief::Enough;
        }
        let goal = (limit / 100 * GOAL_PCT).min(limit.saturating_sub(wanted_bytes));
        for _ in 0..visits {
            // The new body of a visit and the old one are held beside each other until no reader has the old one.
            self.wait_for_retired();
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
                Some(turn) => self.visit_waiting(eviction, &turn, excess_bytes),
                None if live <= goal => return Relief::Enough,
                None if self.merge_next_landing(eviction) => {}
                None => return Relief::None,
            }
        }
        Relief::Some
    }

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
            self.pack(leaf, Goal::Keep, &mut self.retention(), &guard);
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
        let mut leaf = left.filter(|left| self.is_small(left.state(guard), guard)).unwrap_or(leaf);
        for _ in 0..JOINS_PER_VISIT {
            let Some(_ownership) = leaf.try_own() else { return };
            if leaf.state(guard).closed || !self.is_small(leaf.state(guard), guard) {
                return;
            }
            self.with_packs(&mut self.background_retention(), guard, |packs| packs.join_right(leaf));
            if let Some(left) = self.tree.index.find_below(&leaf.low(), guard)
                && self.is_small(left.state(guard), guard)
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
                self.pack(leaf, Goal::Keep, &mut self.retention(), &guard);
                return true;
            }
            if cursor.is_empty() && std::mem::replace(&mut wrapped, true) {
                return false;
            }
        }
    }
}

/// The stamp of what is `age` epochs old, below [`STAMPS`].
fn stamp_of(now: u32, age: u32) -> u8 {
    ((now % STAMPS + STAMPS - age) % STAMPS) as u8
}

/// Bytes stored for a record's value outside the leaf, in whatever place.
fn large_stored_bytes(state: &LeafState, index: usize) -> u64 {
    match state.body.found(index, &state.form).payload {
        Payload::Large(large) => large.stored_bytes() as u64,
        _ => 0,
    }
}

mod s3fifo;
mod switch;
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests;
