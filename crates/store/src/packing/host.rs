//! What packs ask of the engine around the tree, and what they tell it.
//!
//! Not for which records stay: a pack asks [`Retention`](crate::retention::Retention) of each.

use crossbeam_epoch::Guard;

use crate::leaf::{Leaf, LeafState};
use crate::marks::Mark;

/// The engine, as packs see it. See the module.
pub(crate) trait Host {
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
    /// Each look-up would compare its key with all of its records for as long as it stays open.
    ///
    /// A batch that holds the writer lock seals the landing itself.
    fn seal_left(&self, leaf: &Leaf, guard: &Guard);
}
