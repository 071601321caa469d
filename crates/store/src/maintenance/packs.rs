//! The packs of threads in the engine: the policy that they ask, and leaves on SSD, whose overlays alone are packed.
//!
//! Not for the packs themselves, which are `packing`, nor for the choice of leaves.

use crossbeam_epoch::Guard;

use crate::core::Core;
use crate::leaf::{Leaf, LeafState};
use crate::marks::Mark;
use crate::packing::{Goal, Packs, Policy, Scratch};
use crate::retention::Retention;

impl Policy for Core {
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
        self.remember(leaf, marks, guard);
    }

    fn seal_left(&self, leaf: &Leaf, guard: &Guard) {
        self.seal_left(leaf, guard);
    }
}

impl Core {
    /// Runs `work` with the packs of this thread.
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
        self.pack_above(leaf, guard).unwrap_or_else(|| {
            self.with_packs(retention, guard, |packs| packs.pack(leaf, goal));
            true
        })
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
        self.pack_above(leaf, guard).unwrap_or_else(|| {
            self.with_packs(retention, guard, |packs| packs.pack_while(leaf, goal, meanwhile))
        })
    }

    /// Packs the overlay of `leaf` if the leaf is on SSD, and says whether it has room for the landing.
    fn pack_above(&self, leaf: &Leaf, guard: &Guard) -> Option<bool> {
        #[cfg(test)]
        self.pressure.count_merge();
        leaf.state(guard).below.is_some().then(|| self.pack_upper(leaf, guard))
    }
}
