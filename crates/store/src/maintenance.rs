//! Background work: threads that settle, recode and fill leaves, make room, and train dictionaries.
//!
//! Not for work that a call needs to go on: writers pack and make room themselves if the background is late.
//!
//! 1. A background thread packs leaves of the queue first, because their writers may wait.
//! 2. The first thread also makes room, evicts, and runs the tierer.
//! 3. When nothing of that is due, it settles the leaves that were written to, a few times a second (`unsettled`).
//! 4. It sweeps all leaves in key order, more and more seldom while it finds nothing to do.
//! 5. A leaf is *quiet* if nothing was appended to it since the visit before. A visit settles a quiet leaf, and others
//!    wait for the next one.

mod queue;
mod sweep;
mod unsettled;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_epoch::Guard;

pub(crate) use self::queue::Queue;
pub(crate) use self::sweep::Sweep;
pub(crate) use self::unsettled::{Rounds, Unsettled};
use crate::Error;
use crate::body::Body;
use crate::clock::{since, steady};
use crate::core::Core;
use crate::form::Form;
use crate::host::Journal;
use crate::laps::Laps;
use crate::leaf::{Leaf, LeafState};
use crate::merge::large_references;
use crate::operation::Operation;
use crate::packing::{Pieces, Scratch, all_settled};
use crate::places::Place;
use crate::tierer::Tierer;

/// How long a packer sleeps after work, and at most.
const NAP_MIN: Duration = Duration::from_millis(1);
const NAP_MAX: Duration = Duration::from_millis(64);
/// The same while much is read, so that the tierer is not late.
const NAP_READ: Duration = Duration::from_millis(8);
/// Leaves that the sweep visits before it looks at the queue again.
const SWEEP_LEAVES: usize = 64;
/// Packs between two looks at the dictionary.
const DICTIONARY_PACKS: u32 = 128;

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
    nap: Duration,
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
            nap: NAP_MIN,
        }
    }

    /// Whether nothing is left to do for what was written.
    fn has_done_all(&self, core: &Core) -> bool {
        self.rounds.are_done(core)
            && !self.has_settled
            && self.laps.have_found_nothing()
            && self.generation == core.tree.dictionaries.generation()
    }
}

impl Core {
    fn pack_in_background(&self, is_first: bool) {
        Scratch::work_in_background();
        let mut work = Background::new(is_first, steady());
        while !self.queue.stopping.load(Ordering::Acquire) {
            if self.loading.load(Ordering::Acquire) {
                std::thread::park_timeout(NAP_MAX);
                continue;
            }
            if self.do_next(&mut work, steady()) {
                if is_first && !work.laps.look_in_vain() {
                    self.rests.store(false, Ordering::Relaxed);
                }
                continue;
            }
            self.tree.reclaim();
            self.maintain_dictionary();
            self.note_rest(&work);
            std::thread::park_timeout(work.nap);
            let longest = if is_first && work.tierer.is_awaited(self) { NAP_READ } else { NAP_MAX };
            work.nap = (work.nap * 2).min(longest);
        }
    }

    /// Notes, for a thread that found nothing due, whether anything is left.
    fn note_rest(&self, work: &Background) {
        if work.is_first {
            self.rests.store(work.has_done_all(self), Ordering::Relaxed);
        }
    }

    /// Whether the background has settled all that was written, and a lap since then found nothing to do. True without
    /// a background. Leaves that nobody uses for some time may become denser later.
    pub(crate) fn is_settled(&self) -> bool {
        // A round takes the leaves of the list only once it says that there is work.
        !self.has_background || self.unsettled.is_empty() && self.rests.load(Ordering::Relaxed)
    }

    /// Does the first part of the work that is due `now`; `false` if none is, so that the thread may rest.
    pub(crate) fn do_next(&self, work: &mut Background, now: Instant) -> bool {
        if work.is_first && self.relieve() {
            work.packs += 1;
            if work.packs.is_multiple_of(DICTIONARY_PACKS) {
                self.maintain_dictionary();
            }
            return true;
        }
        if let Some(leaf) = self.queue.pop() {
            let guard = self.tree.pin();
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
        if self.room().is_eviction_due() {
            return false;
        }
        if work.rounds.is_due(self, now) {
            work.has_settled |= work.rounds.take_new();
            work.has_settled |= self.settle_some(&mut work.rounds, SWEEP_LEAVES);
            return true;
        }
        if !work.laps.is_due(now, work.has_settled, work.rounds.are_done(self)) {
            return false;
        }
        work.has_settled &= work.laps.has_begun();
        if !work.laps.has_begun() {
            work.generation = self.tree.dictionaries.generation();
        }
        let began = steady();
        work.sweep.counts = work.laps.counts(began);
        let ended = self.sweep(&mut work.sweep, SWEEP_LEAVES);
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

    /// Merges every landing that is there now, and brings every leaf to its form, as far as there is room for that.
    pub(crate) fn settle(&self) {
        self.maintain_dictionary();
        // The first cycle settles every leaf, the second fills each from a neighbour that is settled, too.
        let mut sweep = Sweep::of_all();
        for _lap in 0..2 {
            while !self.sweep(&mut sweep, SWEEP_LEAVES) {}
        }
        if self.tree.heats {
            let mut tierer = Tierer::of_settled();
            while !self.tier(&mut tierer, SWEEP_LEAVES) {}
        }
        // Contexts that worked just now are idle at the second call.
        (0..2).for_each(|_| self.tree.dictionaries.release_idle());
        Scratch::release();
        // Retired bytes are free three steps of the epoch later, once their readers of this moment are done.
        (0..3).for_each(|_| self.tree.pin().flush());
        self.wait_for_retired();
        self.tree.reclaim();
    }

    /// Takes every record out of `leaf`, which the caller owns.
    ///
    /// # Errors
    /// The log's; the leaf is as it was then.
    pub(crate) fn empty(&self, leaf: &Leaf, guard: &Guard) -> Result<(), Error> {
        let state = leaf.close(guard);
        let (records, logical_bytes) = all_settled(state);
        let mut new = LeafState::new(Body::empty(), state.high.clone(), state.right);
        new.form = Form::of(state.form.coding());
        let writer = leaf.lock_writer();
        if let Some(journal) = self.journal.get() {
            let range = Operation::DeleteRange { low: &leaf.low(), high: state.high.as_deref() };
            if let Err(error) = journal.append(&range) {
                leaf.reopen(state, guard);
                return Err(error);
            }
        }
        self.tree.account(&Pieces { records: -records, logical_bytes: -logical_bytes, ..Pieces::default() });
        let published = leaf.publish(state, new, guard);
        assert!(published, "nobody changes a closed leaf but its owner");
        // A thread that decided on an update from the former records must look again.
        leaf.note_append();
        drop(writer);
        self.tree.settle_large(Vec::new(), large_references(state), guard);
        Ok(())
    }

    /// Empties every leaf and joins them.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        let mut cursor: Vec<u8> = Vec::new();
        loop {
            let high = self.tree.with_leaf_of(&cursor, |leaf, guard| {
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
            let retention = &mut self.background_retention();
            self.with_packs(retention, &guard, |packs| packs.fill_from_right(first));
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
