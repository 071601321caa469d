//! What packs ask of the engine around the tree, and what they tell it.
//!
//! Not for which records stay: a pack asks [`Retention`](crate::retention::Retention) of each.

use crossbeam_epoch::Guard;

use crate::leaf::{Leaf, LeafState};
use crate::marks::Mark;

/// Decides what room there is. See the module.
pub(crate) trait Policy {
    /// Whether the background may take so many bytes more without anything being evicted for them.
    fn has_room_for_growth(&self, bytes: usize) -> bool;

    /// Whether DRAM is so short that nothing should come there from far memory without need.
    fn is_short(&self) -> bool;

    /// Whether the new bodies of `leaves` have a place. They may not come up to DRAM that is full.
    fn has_place_for(&self, leaves: &[&LeafState]) -> bool;

    /// Takes `marks` for the records of `leaf`, which the caller owns and whose body is new. A pack that began before
    /// eviction did has none.
    fn remember(&self, leaf: &Leaf, marks: &[Mark], guard: &Guard);

    /// Seals the open landing of `leaf`, whose sealed one was packed, if it has more than single writes leave there.
    fn seal_left(&self, leaf: &Leaf, guard: &Guard);
}
