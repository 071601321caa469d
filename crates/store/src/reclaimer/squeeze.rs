//! Packing everything that a store holds raw, before it evicts or refuses anything.
//!
//! A store with a place below demotes leaves first. It packs when its places take nothing more.
//!
//! 1. A store that is large enough for a dictionary and has none trains one, or waits for the thread that does.
//! 2. A thread that needs room walks the leaves once for each dictionary. It packs those that are raw or have an older
//!    dictionary. It passes by a leaf whose body would come up from full far memory.
//! 3. A store that would refuse settles and fills all leaves, too. It does so once, and again when a part of its limit
//!    lies in landings, was deleted, or went to leaves that were relaxed, since.
//! 4. A start that holds more than its limit packs the landings above full far memory.
//!
//! One thread walks at a time, and others that need room wait for its next step. Writers are thus slowed down to the
//! speed at which the store packs, by work and never by time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ziptier_tree::leaf::{LeafState, Place};
use ziptier_tree::packing::Goal;
use ziptier_tree::sync::Mutex;
use ziptier_tree::tree::Tree;

use super::{Moved, Reclaimer};
use crate::upkeep::Sweep;

/// Leaves that are looked at, and packed, in a step.
const STEP_LEAVES: usize = 256;
const STEP_PACKS: usize = 4;
/// Leaves that are settled in a step.
const STEP_SETTLED: usize = 16;
/// All leaves are settled again when one part in so many of the limit may be gained. With less, a store that is really
/// full would settle its leaves for every few hundred writes.
const GAIN_PART: u64 = 8;
/// A start packs beyond its limit while that takes less than one part in so many of the limit, or so many bodies.
const BEYOND_PART: u64 = 16;
const BEYOND_BODIES: u64 = 8;
/// Cycles that settle all leaves: the second fills each from a neighbour that is settled, too.
const LAPS: u32 = 2;

/// The positions of the walks.
#[derive(Default)]
pub(super) struct Squeeze {
    /// One more than the number of the dictionary of the last lap of `stale` that ended, 0 for none.
    packed_for: AtomicU64,
    stale: Mutex<Walk<Stale>>,
    loose: Mutex<Walk<Loose>>,
}

/// A walk that is free, or one that a thread takes a step of.
#[derive(Default)]
enum Walk<T> {
    #[default]
    New,
    Resting(T),
    Taken,
}

/// The walk that packs raw and older bodies.
#[derive(Default)]
struct Stale {
    cursor: Vec<u8>,
    /// The dictionary that was in use when the cycle began.
    wanted: u32,
}

/// The walk that settles and fills all leaves.
#[derive(Default)]
struct Loose {
    sweep: Sweep,
    /// Laps of the walk that have ended; `None` between two walks.
    laps: Option<u32>,
    /// Bytes of relaxed values when the walk began. Later ones may lie where the walk has been.
    relaxed_bytes: u64,
    /// The state of the store after the last walk.
    done: Option<Settled>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Settled {
    generation: Option<u32>,
    landing_bytes: u64,
    logical_bytes: u64,
    relaxed_bytes: u64,
}

impl Settled {
    fn now(tree: &Tree) -> Self {
        Self {
            generation: tree.dictionaries.generation(),
            landing_bytes: tree.gauges.landing.held(),
            logical_bytes: tree.gauges.logical.get(),
            relaxed_bytes: tree.stats.relaxed_bytes.get(),
        }
    }

    /// Whether another walk may gain anything.
    fn has_gains(&self, tree: &Tree) -> bool {
        let (now, part_bytes) = (Self::now(tree), tree.gauges.limit() / GAIN_PART);
        now.generation != self.generation
            || now.landing_bytes > self.landing_bytes + part_bytes
            || now.logical_bytes + part_bytes < self.logical_bytes
            || now.relaxed_bytes > self.relaxed_bytes + part_bytes
    }
}

impl<T: Default> Walk<T> {
    /// `None` while another thread takes a step.
    fn take(walk: &Mutex<Self>) -> Option<T> {
        match std::mem::replace(&mut *walk.lock(), Self::Taken) {
            Self::New => Some(T::default()),
            Self::Resting(walk) => Some(walk),
            Self::Taken => None,
        }
    }

    fn rest(walk: &Mutex<Self>, taken: T) {
        *walk.lock() = Self::Resting(taken);
    }
}

impl Reclaimer<'_> {
    /// Takes a step of packing before anything is evicted or refused; `Stuck` when there is nothing to gain. The caller
    /// holds no guard.
    pub(super) fn squeeze(&self, over_bytes: u64) -> Moved {
        if over_bytes > self.tree.gauges.limit() / 2 {
            // So much is not to be had by packing.
            return Moved::Stuck;
        }
        match self.pack_stale() {
            Moved::Stuck if !self.tree.evicts() => self.pack_loose(),
            moved => moved,
        }
    }

    /// Packs some leaves that are not coded as new ones are, or leaves that to the thread that does; `false` when a
    /// whole lap has left none. The caller holds no guard.
    pub(super) fn squeeze_stale(&self) -> bool {
        self.pack_stale() != Moved::Stuck
    }

    fn pack_stale(&self) -> Moved {
        // What is loaded from images was packed before.
        if self.room.has_room_below() || self.loading.load(Relaxed) {
            return Moved::Stuck;
        }
        if self.tree.dictionaries.lacks_first(self.tree.gauges.logical.get()) {
            self.maintain_dictionary();
        }
        if !self.tree.dictionaries.has_current() {
            // Another thread's training, if there is one, gives more room than it takes: nothing may be evicted for it.
            // A thread that trains holds the lock before it moves the size that `lacks_first` compares with, so that
            // this look, behind that one, misses no training.
            self.tree.dictionaries.wait_for_training();
        }
        let Some(current) = self.tree.dictionaries.generation() else { return Moved::Stuck };
        let squeeze = &self.pressure.squeeze;
        if squeeze.packed_for.load(Relaxed) == u64::from(current) + 1 {
            return Moved::Stuck;
        }
        let Some(mut walk) = Walk::take(&squeeze.stale) else { return Moved::Taken };
        self.step_stale(&mut walk, current);
        Walk::rest(&squeeze.stale, walk);
        Moved::On
    }

    fn step_stale(&self, walk: &mut Stale, current: u32) {
        if walk.cursor.is_empty() {
            walk.wanted = current;
        }
        let mut packs = 0;
        for _ in 0..STEP_LEAVES {
            let guard = self.tree.pin();
            let (leaf, state) = self.tree.locate(&walk.cursor, &guard);
            if is_stale(state, current)
                && let Some(_ownership) = leaf.try_own()
                && !leaf.state(&guard).closed
                && self.room.has_place_for(&[leaf.state(&guard)])
            {
                // Raw leaves are many, and the writer waits: dense blocks would take four times the time.
                let goal = if state.form.generation().is_none() { Goal::Keep } else { Goal::Renew };
                self.upkeep.settle_leaf(leaf, goal, &guard);
                self.upkeep.count_settled(goal, false);
                packs += 1;
            }
            walk.cursor.clear();
            walk.cursor.extend_from_slice(leaf.state(&guard).high.as_deref().unwrap_or_default());
            guard.flush();
            drop(guard);
            if walk.cursor.is_empty() {
                self.pressure.squeeze.packed_for.store(u64::from(walk.wanted) + 1, Relaxed);
                return;
            }
            if packs == STEP_PACKS {
                return;
            }
            // New bodies and old ones are held beside each other until no reader has the old ones.
            self.room.wait_for_retired();
        }
    }

    /// Packs the landings of a start that holds more than its limit, and demotes leaves meanwhile. Bodies of full far
    /// memory come to DRAM for that, and others go down to where they lay. Nobody but a recovery may hold so much, and
    /// a recovery gives up before it holds much more.
    ///
    /// With an SSD, or where records may go, [`Reclaimer::make_room`] is enough.
    pub(crate) fn pack_beyond_limit(&self) {
        if self.tree.far.is_none() || self.moves.cold.is_some() || self.tree.evicts() {
            return;
        }
        let held = || {
            self.tree.reclaim();
            self.tree.gauges.held()
        };
        let (limit, before) = (self.tree.gauges.limit(), held());
        if before <= limit {
            return;
        }
        let most = before + (limit / BEYOND_PART).max(BEYOND_BODIES * self.tree.limits.bytes_max as u64);
        let (mut cursor, mut packs) = (Some(Vec::new()), 0);
        while let Some(low) = cursor {
            let guard = self.tree.pin();
            let (leaf, state) = self.tree.locate(&low, &guard);
            if state.is_unsettled()
                && let Some(_ownership) = leaf.try_own()
                && !leaf.state(&guard).closed
            {
                self.upkeep.settle_leaf(leaf, Goal::Keep, &guard);
                packs += 1;
            }
            cursor = leaf.state(&guard).high.as_deref().map(<[u8]>::to_vec);
            guard.flush();
            drop(guard);
            if packs == STEP_PACKS || cursor.is_none() {
                packs = 0;
                self.keep_to_limit();
                let held = held();
                if held <= limit || held > most {
                    return;
                }
            }
        }
    }

    /// Settles and fills some leaves; `Stuck` when a walk through all of them has given what there was. The caller
    /// holds no guard.
    fn pack_loose(&self) -> Moved {
        if self.tree.recovering() {
            return Moved::Stuck;
        }
        let Some(mut walk) = Walk::take(&self.pressure.squeeze.loose) else { return Moved::Taken };
        // A walk that has begun ends, though its packs free blocks of far memory.
        let may_begin = walk.laps.is_none() && !self.room.has_room_below();
        if may_begin && walk.done.is_none_or(|done| done.has_gains(self.tree)) {
            walk.sweep = Sweep::of_all();
            walk.laps = Some(0);
            walk.relaxed_bytes = self.tree.stats.relaxed_bytes.get();
        }
        let goes_on = walk.laps.is_some();
        if let Some(laps) = &mut walk.laps {
            *laps += u32::from(self.sweep(&mut walk.sweep, STEP_SETTLED));
            if *laps == LAPS {
                walk.laps = None;
                walk.done = Some(Settled { relaxed_bytes: walk.relaxed_bytes, ..Settled::now(self.tree) });
            }
        }
        Walk::rest(&self.pressure.squeeze.loose, walk);
        if goes_on { Moved::On } else { Moved::Stuck }
    }
}

/// Whether a leaf is not coded as a new one would be.
fn is_stale(state: &LeafState, current: u32) -> bool {
    !state.form.is_hot()
        && !state.body.is_empty()
        && state.place() != Place::Ssd
        && state.form.generation() != Some(current)
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use std::sync::Arc;

    use ziptier_media::disk::Disk;
    use ziptier_media::testing::RecordingDisk;
    use ziptier_tree::codec_options::CodecChoice;
    use ziptier_tree::far::FarMemory;
    use ziptier_tree::record::PutMeta;

    use super::*;
    use crate::core::Core;
    use crate::options::Options;
    use crate::recovery::recover;
    use crate::{DiskHandle, DurableOptions};

    /// As a start does, whose log is replayed to landings.
    #[test]
    fn landings_are_packed_when_far_memory_is_full() {
        const FAR_BYTES: u64 = 64 << 10;
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let core = Core::with_far(&options, FarMemory::on_heap(FAR_BYTES));
        let put_each = |step: usize| {
            (0u32..20_000).step_by(step).for_each(|n| {
                core.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
            });
        };
        put_each(1);
        core.settle();
        let settled_bytes = core.tree.gauges.held();
        put_each(12);
        let landing_bytes = core.tree.gauges.landing.held();
        assert!(landing_bytes > FAR_BYTES + FAR_BYTES / 2, "{landing_bytes}");
        core.tree.gauges.set_limit(Some(settled_bytes));
        assert_eq!(core.reclaimer().make_room(0), Ok(()), "{:?}", core.tree.gauges.memory_use());
    }

    /// Landings above bodies in full far memory stayed there, for DRAM had no room for the bodies.
    #[test]
    fn a_start_packs_landings_above_full_far_memory() {
        const LIMIT_BYTES: u64 = 1 << 20;
        /// Two bodies, of which the last one found no slot.
        const BODIES_BYTES: u64 = 16 << 10;
        let mut durable = DurableOptions::new("/data");
        let disk: Arc<dyn Disk> = Arc::new(RecordingDisk::new());
        durable.disk = DiskHandle(disk.clone());
        let options = Options {
            memory_limit_bytes: Some(LIMIT_BYTES),
            codec: CodecChoice::None,
            background_threads: 0,
            durable: Some(durable.clone()),
            ..Options::default()
        };
        let start = || {
            let far = FarMemory::on_heap(4 * LIMIT_BYTES);
            let (core, folder) = Core::open(disk.clone(), &options, Some(far)).expect("the folder is sound");
            let folder = folder.expect("it has one");
            recover(&core, &options, &durable, folder, &mut |_| {}).expect("the folder is sound");
            core
        };
        let core = start();
        let value = |n: u32, version: u32| [n, version].map(u32::to_be_bytes).concat().repeat(12);
        let put =
            |core: &Core, n: u32, version| core.put(&n.to_be_bytes(), &value(n, version), PutMeta::default());
        let keys = (0..).take_while(|n| put(&core, *n, 0).is_ok()).count() as u32;
        let checkpointer = core.checkpointer.get().expect("it has a folder");
        let journal = core.journal.get().expect("it has a folder");
        checkpointer.checkpoint(core.moves(), journal).expect("the disk works");
        // What it takes to know the images of the checkpoint is held, too.
        core.tree.reclaim();
        let full_bytes = core.tree.gauges.held();
        core.set_memory_limit(None);
        (0..keys).step_by(25).for_each(|n| put(&core, n, 1).expect("no limit is set"));
        journal.wait().expect("the disk works");
        drop(core);

        let core = start();
        core.tree.reclaim();
        let held_bytes = core.tree.gauges.held();
        let memory = core.tree.gauges.memory_use();
        assert!(
            held_bytes <= full_bytes + BODIES_BYTES,
            "{held_bytes} bytes, {full_bytes} before, {memory:?}"
        );
        for n in 0..keys {
            let mut found = Vec::new();
            core.read(&n.to_be_bytes(), &mut found).expect("nothing is damaged");
            assert_eq!(found, value(n, u32::from(n.is_multiple_of(25))), "key {n}");
        }
    }

    /// They would come up to DRAM, which is full as well.
    #[test]
    fn a_walk_leaves_bodies_of_full_far_memory_where_they_lie() {
        let options = Options { codec: CodecChoice::Token, background_threads: 0, ..Options::default() };
        let far = FarMemory::on_heap(4 << 20);
        let core = Core::with_far(&options, far.clone());
        core.tree.gauges.set_limit(Some(1 << 20));
        for n in 0u32..10_000 {
            let value =
                format!("{n:>8} of the sheep in the parlour, and of the shepherd at her window").repeat(2);
            core.put(&n.to_be_bytes(), value.as_bytes(), PutMeta::default()).expect("far memory has room");
        }
        core.settle();
        assert!(core.tree.gauges.far_body.held() > 256 << 10, "{:?}", core.tree.gauges.memory_use());
        let fillers: Vec<_> = std::iter::from_fn(|| far.put(&[0; 2_000])).collect();
        core.tree.gauges.set_limit(None);
        assert!(core.reclaimer().maintain_dictionary(), "there is no dictionary to pack with");
        let limit_bytes = core.tree.gauges.held();
        core.tree.gauges.set_limit(Some(limit_bytes));
        while core.reclaimer().squeeze_stale() {
            core.tree.reclaim();
        }
        let held_bytes = core.tree.gauges.held();
        assert!(
            held_bytes <= limit_bytes,
            "{held_bytes} of {limit_bytes}, {:?}",
            core.tree.gauges.memory_use()
        );
        drop(fillers);
    }

    /// Each write that finds room after a step lets the walk rest, so readers have time to get leaves relaxed.
    #[test]
    fn leaves_that_are_relaxed_during_a_walk_are_for_the_next_one() {
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let core = Core::new(&options);
        for n in 0u32..5_000 {
            core.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
        }
        core.settle();
        core.tree.gauges.set_limit(Some(1 << 20));
        let walk = || {
            std::iter::repeat_with(|| core.reclaimer().pack_loose())
                .take_while(|moved| *moved == Moved::On)
                .count()
        };
        let steps = walk();
        assert!(steps > 2 && walk() == 0, "{steps}");
        core.tree.stats.relaxed_bytes.add(1 << 20);
        assert_eq!(core.reclaimer().pack_loose(), Moved::On, "there is something to gain");
        core.tree.stats.relaxed_bytes.add(1 << 20);
        assert!(walk() > steps, "the walk ended, and none came behind it");
        assert_eq!(walk(), 0);
    }
}
