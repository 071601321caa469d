//! The engine as the host of its tree: its answers to reads, writes, packs and moves.
//!
//! Not for these themselves, nor for the choice of leaves to pack.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch::Guard;
use ziptier_tree::below::Below;
use ziptier_tree::host::{Admission, Host, ReadHost};
use ziptier_tree::landing::Landing;
use ziptier_tree::large::{ChunkPlace, Large};
use ziptier_tree::leaf::{Leaf, LeafState};
use ziptier_tree::marks::Mark;
use ziptier_tree::memory::{Reserved, allocated_bytes};
use ziptier_tree::packing::Goal;
use ziptier_tree::record::Found;
use ziptier_tree::sync::back_off;
use ziptier_tree::write::Writes;

use super::Core;
use crate::Error;
use crate::durable::Checkpointer;
use crate::places::MoveHost;

impl Admission for Core {
    fn admit(&self, bytes: usize) -> Result<(), ziptier_tree::Error> {
        Ok(self.room().admit(bytes)?)
    }

    fn admit_in_time(&self) -> Result<(), ziptier_tree::Error> {
        Ok(self.room().admit_in_time()?)
    }

    fn has_room_for_growth(&self, bytes: usize) -> bool {
        self.room().has_room_for_growth(bytes)
    }

    fn is_short(&self) -> bool {
        self.room().is_short()
    }

    fn has_place_for(&self, leaves: &[&LeafState]) -> bool {
        self.room().has_place_for(leaves)
    }

    fn chunk_place(&self, bytes: usize) -> ChunkPlace<'_> {
        self.room().chunk_place(bytes)
    }

    fn refusal(&self) -> ziptier_tree::Error {
        self.room().refusal(self.tree.gauges.limit(), self.tree.gauges.held()).into()
    }

    fn make_room(&self, bytes: usize) -> Result<(), ziptier_tree::Error> {
        Ok(self.reclaimer().make_room(bytes)?)
    }

    fn make_room_in_time(&self, bytes: usize) -> Result<(), ziptier_tree::Error> {
        Ok(self.reclaimer().make_room_in_time(bytes)?)
    }

    fn reserve(&self, bytes: usize) -> Result<Reserved<'_>, ziptier_tree::Error> {
        Ok(self.reclaimer().reserve(bytes)?)
    }

    fn wait_for_retired(&self) {
        self.room().wait_for_retired();
    }
}

impl Host for Core {
    fn note_landing(&self, leaf: &Leaf) {
        // Nobody would take leaves from the list without a thread in the background, or while the store is loaded.
        if self.has_background && !self.loading.load(Ordering::Relaxed) {
            self.backlog.unsettled.add(leaf);
        }
        self.eviction.wait_on_probation(&self.tree, leaf);
    }

    fn note_watermark(&self, leaf: &Leaf) {
        // A full queue is no harm: the landing is not full yet.
        self.backlog.queue.push(leaf);
    }

    fn sealed(&self, leaf: &Leaf, guard: &Guard) {
        if self.background_packing && self.backlog.queue.push(leaf) {
            return;
        }
        // A landing that finds no place now waits for the next writer, who may be refused.
        if let Unowned::Packed = self.pack_unowned(leaf, false, guard) {
            self.tree.stats.packs_foreground.raise();
            self.tree.dictionaries.note_packed();
            guard.flush();
        }
    }

    fn pack_full(&self, key: &[u8], anyway: bool, round: u32) -> Result<(), ziptier_tree::Error> {
        let guard = self.tree.pin();
        let (leaf, _) = self.tree.locate(key, &guard);
        match self.pack_unowned(leaf, anyway, &guard) {
            Unowned::Packed => {
                self.tree.stats.packs_foreground.raise();
                guard.flush();
            }
            Unowned::NoPlace { raised_bytes } => {
                drop(guard);
                self.reclaimer().make_room(raised_bytes)?;
            }
            Unowned::Crowded => {
                drop(guard);
                self.moves().promote_crowded(key)?;
                back_off(round);
            }
            Unowned::Busy => {
                drop(guard);
                back_off(round);
            }
        }
        Ok(())
    }

    fn has_evicted(&self) -> bool {
        self.eviction.has_begun()
    }

    fn after_packs(&self) {
        self.tend();
        self.reclaimer().ease();
    }

    fn after_batch(&self) {
        self.tend();
        if !self.has_background {
            // A leaf on SSD may have no room for the landing of a long batch until it is promoted.
            self.moves().merge_grown();
        }
    }

    fn remember(&self, leaf: &Leaf, marks: &[Mark], guard: &Guard) {
        self.eviction.take_marks(&self.tree, leaf, marks, guard);
    }

    fn seal_left(&self, leaf: &Leaf, guard: &Guard) {
        let is_long =
            |open: &Arc<Landing>| open.used_bytes() > allocated_bytes(self.tree.landing_bytes_max());
        if leaf.state(guard).open.as_ref().is_some_and(is_long)
            && let Some(_writer) = leaf.try_lock_writer()
        {
            leaf.seal_locked(guard);
            if self.background_packing {
                self.backlog.queue.push(leaf);
            }
        }
    }
}

impl MoveHost for Core {
    fn has_memory_for(&self, bytes: u64) -> bool {
        self.room().has_memory_for(bytes)
    }

    fn may_copy_up(&self) -> bool {
        self.room().may_copy_up()
    }

    fn has_hope(&self) -> bool {
        self.room().has_hope()
    }

    fn displace(&self, bytes: u64) -> bool {
        self.reclaimer().displace(bytes)
    }

    fn ease(&self) {
        self.reclaimer().ease();
    }

    fn try_reserve(&self, bytes: usize) -> Result<Reserved<'_>, Error> {
        self.reclaimer().try_reserve(bytes)
    }

    fn pack_landings(&self, leaf: &Leaf, guard: &Guard) {
        let upkeep = self.upkeep();
        upkeep.pack(leaf, Goal::Keep, &mut upkeep.retention(), guard);
    }

    fn settle_leaf(&self, leaf: &Leaf, goal: Goal, guard: &Guard) {
        self.upkeep().settle_leaf(leaf, goal, guard);
    }

    fn denser(&self, state: &LeafState) -> Option<Goal> {
        self.upkeep().denser(state)
    }

    fn asks_checkpoint_for_room(&self) -> bool {
        self.checkpointer.get().is_some_and(Checkpointer::want_room)
    }

    fn deletes_range(&self) -> bool {
        self.deletes_range.load(Ordering::Acquire)
    }

    fn writes(&self) -> Writes<'_> {
        self.writes()
    }
}

impl ReadHost for Core {
    #[inline]
    fn wait_for_seen(&self) -> Result<(), ziptier_tree::Error> {
        match self.journal.get() {
            Some(journal) if journal.waits() => Ok(journal.wait_for_seen()?),
            _ => Ok(()),
        }
    }

    fn note_read_below(&self, key: &[u8], found: Option<Found<'_>>, below: &Arc<Below>) {
        self.moves().copy_up_again(key, found, below);
    }

    fn note_large_reads<'a>(&self, larges: &mut dyn Iterator<Item = (&'a [u8], &'a Large)>) {
        self.moves().promote_again(larges);
    }
}

impl Core {
    /// The work of a writer for the store once landings were packed. The caller holds no guard: training a dictionary
    /// takes long, and nothing would be freed meanwhile.
    pub(crate) fn tend(&self) {
        self.room().wait_for_retired();
        // A store that is half full and still raw does not wait for a thread that may have no processor.
        let trains = !self.has_background
            || (self.tree.dictionaries.lacks_first(self.tree.gauges.logical.get())
                && self.tree.gauges.held() > self.tree.gauges.limit() / 2);
        if trains && self.tree.dictionaries.take_packed() {
            self.reclaimer().maintain_dictionary();
        }
    }

    /// Packs `leaf` if no other thread maintains it and its new body has a place. With `anyway` it need not have one,
    /// unless the leaf is on SSD.
    fn pack_unowned(&self, leaf: &Leaf, anyway: bool, guard: &Guard) -> Unowned {
        let Some(_ownership) = leaf.try_own() else { return Unowned::Busy };
        let state = leaf.state(guard);
        if state.sealed.is_some() {
            let raised_bytes = if anyway { 0 } else { self.room().bytes_to_raise(&[state]) };
            if raised_bytes > 0 && self.room().admit(raised_bytes).is_err() {
                return Unowned::NoPlace { raised_bytes };
            }
            let upkeep = self.upkeep();
            if !upkeep.pack(leaf, Goal::Keep, &mut upkeep.retention(), guard) {
                return Unowned::Crowded;
            }
        }
        Unowned::Packed
    }
}

/// The outcome of packing a leaf that the caller does not own yet.
enum Unowned {
    /// The landing that was sealed lies in its body.
    Packed,
    /// Another thread maintains it.
    Busy,
    /// Its body would come up from far memory, and DRAM is too full for that.
    NoPlace { raised_bytes: usize },
    /// It is on SSD, and its overlay has no room for the landing: `Moves::promote_crowded` makes some.
    Crowded,
}
