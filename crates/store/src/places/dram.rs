//! DRAM, the first place: promotes bodies from far memory, and says where new large values lie.
//!
//! Not for leaves that come from SSD, which `ssd::promote` reads, nor for the choice of leaves, which `tierer` makes.

use crate::large::{ChunkPlace, Large};
use crate::leaf::Leaf;
use crate::places::Moves;
use crate::tree::Tree;

impl Tree {
    /// The place for the chunks of a large value that replaces `old`.
    pub(crate) fn place_like(&self, old: &Large) -> ChunkPlace<'_> {
        match self.far.as_ref().map(|far| (far, far.placement())) {
            Some((far, Some(placement))) => ChunkPlace::Ratio(far, placement),
            Some((far, None)) if !old.is_in_dram() => ChunkPlace::Far(far),
            _ => ChunkPlace::Dram,
        }
    }
}

impl Moves<'_> {
    /// Copies the body of a leaf from far memory to DRAM; `false` when it stays.
    pub(super) fn promote_from_far(&self, leaf: &Leaf) -> bool {
        let Some(_ownership) = leaf.try_own() else { return false };
        let guard = &self.tree.pin();
        let state = leaf.state(guard);
        if state.closed || !state.body.is_far() {
            return false;
        }
        let Some(body) = state.body.to_dram() else {
            self.tree.stats.damaged.raise();
            return false;
        };
        leaf.publish_body(&body, guard);
        self.tree.stats.raised_from_far.raise();
        true
    }
}
