//! Packs in the engine: the engine is their host, and of leaves on SSD it packs the overlay alone.
//!
//! Not for the packs themselves, which are `packing`, nor for the choice of leaves.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::core::Core;
use crate::landing::Landing;
use crate::leaf::{Leaf, LeafState};
use crate::marks::Mark;
use crate::memory::allocated_bytes;
use crate::packing::{Goal, Host, Packs, Scratch};
use crate::retention::Retention;

impl Host for Core {
    fn has_room_for_growth(&self, bytes: usize) -> bool {
        self.room().has_room_for_growth(bytes)
    }

    fn is_short(&self) -> bool {
        self.room().is_short()
    }

    fn has_place_for(&self, leaves: &[&LeafState]) -> bool {
        self.room().has_place_for(leaves)
    }

    fn remember(&self, leaf: &Leaf, marks: &[Mark], guard: &Guard) {
        self.take_marks(leaf, marks, guard);
    }

    fn seal_left(&self, leaf: &Leaf, guard: &Guard) {
        let is_long =
            |open: &Arc<Landing>| open.used_bytes() > allocated_bytes(self.tree.landing_bytes_max());
        if leaf.state(guard).open.as_ref().is_some_and(is_long)
            && let Some(_writer) = leaf.try_lock_writer()
        {
            leaf.seal_locked(guard);
            if self.background_packing {
                self.queue.push(leaf);
            }
        }
    }
}

impl Core {
    /// Runs `work` with what packs of this thread need. Records stay that `retention` keeps.
    pub(crate) fn with_packs<R>(
        &self,
        retention: &mut dyn Retention,
        guard: &Guard,
        work: impl FnOnce(&mut Packs<'_>) -> R,
    ) -> R {
        Scratch::with(|scratch| work(&mut Packs::new(&self.tree, self, retention, guard, scratch)))
    }

    /// Packs `leaf`, which the caller owns, as [`Packs::pack`] does. `false` if the leaf is on SSD, and its overlay has
    /// no room for the landing.
    pub(crate) fn pack(&self, leaf: &Leaf, goal: Goal, retention: &mut dyn Retention, guard: &Guard) -> bool {
        self.count_merge();
        match leaf.state(guard).below {
            Some(_) => self.pack_upper(leaf, guard),
            None => self.with_packs(retention, guard, |packs| packs.pack(leaf, goal)),
        }
    }

    /// As [`Core::pack`], for work in the background: see [`Packs::pack_while`].
    pub(crate) fn pack_while(
        &self,
        leaf: &Leaf,
        goal: Goal,
        retention: &mut dyn Retention,
        guard: &Guard,
        meanwhile: &mut dyn FnMut(),
    ) -> bool {
        self.count_merge();
        match leaf.state(guard).below {
            Some(_) => self.pack_upper(leaf, guard),
            None => self.with_packs(retention, guard, |packs| packs.pack_while(leaf, goal, meanwhile)),
        }
    }

    /// Counts a pack for tests.
    #[inline]
    fn count_merge(&self) {
        #[cfg(test)]
        self.pressure.count_merge();
    }
}
