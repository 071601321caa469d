//! The records that S3-FIFO keeps when their leaf is packed, and their marks.
//!
//! Not for choosing the leaf or the records of the main queue that go: `reclaimer` visits leaves and chooses.
//!
//! 1. A pack asks of each record of its leaves. It may find then that it has to close a leaf, and asks of all again.
//! 2. A pack in the background may be given up.
//! 3. So the answers change nothing but this object. Ghosts and epochs change when the pack is certain to come about.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_epoch::Guard;
use ziptier_tree::body::Body;
use ziptier_tree::leaf::Leaf;
use ziptier_tree::marks::Mark;
use ziptier_tree::pending::Pending;
use ziptier_tree::record::key_hash;
use ziptier_tree::retention::Retention;
use ziptier_tree::tree::Tree;

use super::{EPOCHS, Eviction, PROBATION_PCT};

/// The answers to one pack. See the module.
pub(crate) struct S3Fifo<'c> {
    tree: &'c Tree,
    eviction: &'c Eviction,
    /// Probation may end: in a pack of a writer or of eviction, not in one that no thread waits for.
    may_end: bool,
    /// The epochs of both queues when the merge began.
    probation: u32,
    main: u32,
    /// The marks of the leaf's body, and spare ones behind the last record's.
    old: Vec<Mark>,
    /// Probation ends in this leaf.
    ends: bool,
    answers: Answers,
}

/// The answers to a merge, and the changes that follow from them.
#[derive(Default)]
struct Answers {
    /// The marks of the records that stay and come.
    marks: Vec<Mark>,
    /// The keys among them that are new.
    new: Vec<NewKey>,
    /// Hashes of keys that go at the end of probation, and leave ghosts.
    gone: Vec<u64>,
    /// Records that come to the main queue from probation, or get another turn.
    spared: u64,
}

/// A key that the leaf did not have.
struct NewKey {
    /// The index of its mark.
    index: usize,
    hash: u64,
    bytes: u64,
}

impl<'c> S3Fifo<'c> {
    /// The retention of a pack in which probation `may_end`, while the store evicts.
    pub(crate) fn of(tree: &'c Tree, eviction: &'c Eviction, may_end: bool) -> Option<Self> {
        let eviction = eviction.while_on(tree)?;
        let (old, answers) = (Vec::new(), Answers::default());
        Some(Self { tree, eviction, may_end, probation: 0, main: 0, old, ends: false, answers })
    }

    /// The mark of the body's record at `place`. One without a mark came on probation just now.
    fn old_mark(&self, place: usize) -> Mark {
        self.old.get(place).copied().unwrap_or_else(|| Mark::new(false, self.probation))
    }
}

impl Retention for S3Fifo<'_> {
    fn decides(&self) -> bool {
        true
    }

    fn begin(&mut self) {
        (self.probation, self.main) = (self.eviction.probation.now(), self.eviction.main.now());
        self.answers = Answers::default();
    }

    fn begin_leaf(&mut self, leaf: &Leaf, body: &Body, expired_by_ms: u64, guard: &Guard) {
        self.old.clear();
        self.old.extend(leaf.marks.all(guard).iter().map(|mark| Mark(mark.load(Relaxed))));
        // Expired records go first: this pack drops them.
        let expires = body.earliest_expiry_ms().is_some_and(|at| at <= expired_by_ms);
        self.ends = self.may_end && self.eviction.full.load(Relaxed) && !expires;
    }

    fn keeps(&mut self, body: &Body, place: usize) -> bool {
        let mark = self.old_mark(place);
        let ended = self.ends && !mark.is_main() && mark.age(self.probation) >= EPOCHS;
        if mark.is_going() || (ended && !mark.was_going() && mark.reads() == 0) {
            if !mark.is_main() {
                self.answers.gone.push(key_hash(&body.entry(place).key.to_vec()));
            }
            return false;
        }
        let is_spared = mark.was_going() || ended;
        self.answers.spared += u64::from(is_spared);
        self.answers.marks.push(if is_spared { Mark::new(true, self.main) } else { mark });
        true
    }

    fn writes(&mut self, record: &Pending<'_>, place: Option<usize>) {
        let mark = match place.map(|place| self.old_mark(place)) {
            Some(mark) if mark.was_going() => Mark::new(true, self.main),
            Some(mark) => mark.read(),
            None => {
                let (index, hash) = (self.answers.marks.len(), key_hash(record.key));
                let bytes = record.entry().logical_bytes(None);
                self.answers.new.push(NewKey { index, hash, bytes });
                Mark::new(false, self.probation)
            }
        };
        self.answers.marks.push(mark);
    }

    fn commit(&mut self) -> Vec<Mark> {
        let Answers { mut marks, new, gone, spared } = std::mem::take(&mut self.answers);
        let (tree, eviction) = (self.tree, self.eviction);
        // Eviction that ended meanwhile has dropped its ghosts.
        if !tree.evicts() {
            return marks;
        }
        let (mut came_bytes, mut came_to_main) = (0, spared);
        if !(new.is_empty() && gone.is_empty()) {
            let mut ghosts = eviction.ghosts.lock();
            for key in &new {
                if ghosts.take(key.hash) {
                    marks[key.index] = Mark::new(true, self.main);
                    came_to_main += 1;
                } else {
                    came_bytes += key.bytes;
                }
            }
            gone.iter().for_each(|hash| ghosts.put(*hash));
        }
        if came_bytes > 0 {
            let probation_bytes = tree.gauges.logical.get() * PROBATION_PCT / 100;
            eviction.probation.advance(came_bytes, probation_bytes / u64::from(EPOCHS));
        }
        eviction.came_to_main(came_to_main, tree.gauges.records.get());
        marks
    }
}
