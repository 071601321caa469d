//! The queues of S3-FIFO, and the turns of leaves in them.
//!
//! Not for when a store evicts, nor for the visits of leaves: `reclaimer::evict` does that.
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
//! 3. Records go when their leaf is packed anew: each pack asks which of its records stay (`retention`).

mod retention;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use crossbeam_epoch::Guard;

use crate::ghosts::Ghosts;
pub(crate) use retention::S3Fifo;
use ziptier_tree::leaf::{Leaf, NOWHERE};
use ziptier_tree::marks::{Mark, STAMPS};
use ziptier_tree::memory::Gauges;
use ziptier_tree::sync::Mutex;
use ziptier_tree::tree::Tree;

/// Epochs from a queue's end to the other.
pub(crate) const EPOCHS: u32 = 8;
/// Per cent of all bytes that are on probation.
const PROBATION_PCT: u64 = 10;

/// One of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Probation,
    Main,
}

/// Time as a queue counts it: by the bytes or records that enter it.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    pub(crate) number: AtomicU32,
    left: AtomicI64,
}

impl Epochs {
    pub(crate) fn now(&self) -> u32 {
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
pub(crate) struct Waiting(Mutex<[Vec<Weak<Leaf>>; STAMPS as usize]>);

impl Waiting {
    /// Takes all leaves out.
    fn clear(&self) {
        *self.0.lock() = Default::default();
    }

    pub(crate) fn push(&self, stamp: u32, leaf: &Leaf, which: Which) {
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
    /// So little room is left that probation ends.
    pub(crate) full: AtomicBool,
    /// A training waits for so many bytes of room.
    pub(crate) training_bytes: AtomicU64,
    /// Counts bytes.
    probation: Epochs,
    /// Counts records.
    pub(crate) main: Epochs,
    on_probation: Waiting,
    in_main: Waiting,
    pub(crate) ghosts: Mutex<Ghosts>,
    /// Lowest key of the next leaf whose landing is merged, when nothing else is left to visit.
    pub(crate) cursor: Mutex<Vec<u8>>,
}

impl Eviction {
    /// Of a store that evicts from the start on, or does not.
    pub(crate) fn new(begun: bool) -> Self {
        Self { begun: AtomicBool::new(begun), ..Self::default() }
    }

    /// The queues, while the store evicts.
    pub(crate) fn while_on(&self, tree: &Tree) -> Option<&Self> {
        tree.evicts().then_some(self)
    }

    /// The store begins to evict.
    pub(crate) fn begin(&self) {
        self.full.store(false, Relaxed);
        self.begun.store(true, Relaxed);
    }

    /// The store has ended evicting: forgets the keys that went, and whose turn it is.
    pub(crate) fn end(&self, gauges: &Gauges) {
        self.ghosts.lock().forget(gauges);
        self.on_probation.clear();
        self.in_main.clear();
    }

    /// Whether records may have been evicted since the store was opened.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    pub(crate) fn epochs(&self, which: Which) -> &Epochs {
        if which == Which::Main { &self.main } else { &self.probation }
    }

    pub(crate) fn waiting(&self, which: Which) -> &Waiting {
        if which == Which::Main { &self.in_main } else { &self.on_probation }
    }

    /// So many of the store's `all_records` came into the main queue.
    pub(crate) fn came_to_main(&self, records: u64, all_records: u64) {
        if records > 0 {
            let main_records = all_records * (100 - PROBATION_PCT) / 100;
            self.main.advance(records, main_records / u64::from(EPOCHS));
        }
    }

    /// Has `leaf` wait in both queues for the turn of its oldest record.
    pub(crate) fn line_up(&self, leaf: &Leaf, marks: impl Iterator<Item = Mark>, guard: &Guard) {
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
    pub(crate) fn next_leaf(&self, must: bool) -> Option<Turn> {
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
pub(crate) struct Turn {
    pub(crate) leaf: Arc<Leaf>,
    pub(crate) which: Which,
    pub(crate) age: u32,
    /// The stamp that it waited under: epochs may pass before the visit.
    pub(crate) stamp: u8,
}

/// Marks and turns of a leaf whose records came or went.
impl Eviction {
    /// Takes `marks` for the records of `leaf`, which the caller owns and whose body is new. A pack that began before
    /// eviction did has none.
    pub(crate) fn take_marks(&self, tree: &Tree, leaf: &Leaf, marks: &[Mark], guard: &Guard) {
        let Some(eviction) = self.while_on(tree) else { return };
        if marks.len() < leaf.state(guard).body.len() {
            return self.take_up(tree, leaf, guard);
        }
        leaf.marks.set(marks, &tree.gauges, guard);
        eviction.line_up(leaf, marks.iter().copied(), guard);
    }

    /// Puts the records of a leaf without marks in the main queue, as if they had come there one after the other. Their
    /// earlier reads are not known. The caller owns the leaf.
    pub(crate) fn take_up(&self, tree: &Tree, leaf: &Leaf, guard: &Guard) {
        let Some(eviction) = self.while_on(tree) else { return };
        let now = eviction.main.now() + STAMPS;
        let marks: Vec<Mark> = (0..leaf.state(guard).body.len() as u32)
            .map(|place| Mark::new(true, now - place % EPOCHS))
            .collect();
        self.take_marks(tree, leaf, &marks, guard);
    }

    /// Has a leaf with a fresh landing wait for its turn, if it does not yet: records that stay there for a whole
    /// probation are merged then.
    pub(crate) fn wait_on_probation(&self, tree: &Tree, leaf: &Leaf) {
        let Some(eviction) = self.while_on(tree) else { return };
        let stamp = eviction.probation.now() % STAMPS;
        if leaf.waits[0].compare_exchange(NOWHERE, stamp as u8, Relaxed, Relaxed).is_ok() {
            eviction.on_probation.push(stamp, leaf, Which::Probation);
        }
    }
}

/// The stamp of what is `age` epochs old, below [`STAMPS`].
fn stamp_of(now: u32, age: u32) -> u8 {
    ((now % STAMPS + STAMPS - age) % STAMPS) as u8
}
