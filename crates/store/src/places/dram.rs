//! DRAM, the first place: promotes bodies from far memory.
//!
//! Not for leaves that come from SSD, which `ssd::promote` reads, nor for the choice of leaves, which `tierer` makes.

use ziptier_tree::leaf::Leaf;

use crate::places::Moves;

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
