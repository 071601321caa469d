//! Demotes a leaf's body, and its large values, from DRAM to far memory.
//!
//! Not for the choice of leaves, which `reclaimer::hand` makes.
//!
//! 1. The demotion owns the leaf. If the body goes, the demotion asks for room, and then merges the landings.
//! 2. It copies the large values, and then the body.
//! 3. It publishes a state with the copy, beside whatever landings the leaf has by then.

use std::sync::Arc;

use crossbeam_epoch::Guard;
use ziptier_tree::far::{FAR_SHARE_BYTES, FarMemory};
use ziptier_tree::leaf::{Leaf, LeafState};
use ziptier_tree::packing::Goal;
use ziptier_tree::placement::Side;

use crate::places::{Demoted, Moves, Parts};

/// A body of so many bytes is not worth what DRAM would hold for it.
const SMALL_BYTES: usize = 2 * FAR_SHARE_BYTES;

impl Moves<'_> {
    /// Demotes `parts` of a leaf, of which the caller has a share, from DRAM to far memory.
    pub(in crate::places) fn demote_to_far(&self, leaf: &Leaf, parts: Parts) -> Demoted {
        let Some(far) = &self.tree.far else { return Demoted::Full };
        let guard = &self.tree.pin();
        // Another thread may have joined it with its neighbour since the caller took the share.
        let Some(state) = leaf.open_state(guard) else { return Demoted::Kept };
        let Some(_ownership) = leaf.try_own() else { return Demoted::Busy };
        let mut freed_bytes = 0;
        if parts.records && state.is_unsettled() {
            let frees = far.frees();
            if !self.may_settle(far, state) {
                far.note_no_room(frees);
                return Demoted::Full;
            }
            freed_bytes += state.landing_bytes();
            self.host.settle_leaf(leaf, Goal::Keep, guard);
        } else if parts.records
            && parts.densely
            && let Some(goal) = self.host.denser(state)
        {
            self.host.settle_leaf(leaf, goal, guard);
        }
        let Some(copied_bytes) = self.copy_to_far(leaf, far, parts, guard) else { return Demoted::Full };
        match freed_bytes + copied_bytes {
            0 => Demoted::Kept,
            bytes => Demoted::Freed(bytes),
        }
    }

    /// Whether the body of a leaf has a place once it is merged with its landings.
    fn may_settle(&self, far: &FarMemory, state: &LeafState) -> bool {
        match state.body.is_far() {
            true => self.host.has_place_for(&[state]),
            // A leaf that cannot move would only become larger.
            false => self.tree.takes_bodies_of(far, state.body.dram_bytes() + state.landing_bytes() as usize),
        }
    }

    /// Copies parts of a leaf, which the caller owns, as far as far memory has room. Returns the bytes of DRAM that are
    /// free after their last reader, `None` if far memory had no room for any part.
    fn copy_to_far(&self, leaf: &Leaf, far: &Arc<FarMemory>, parts: Parts, guard: &Guard) -> Option<u64> {
        let state = leaf.state(guard);
        if state.closed || state.body.is_empty() {
            return Some(0);
        }
        let mut freed_bytes = 0;
        // Nothing larger is tried after a refusal. A large value that is refused gives back its first chunks.
        let (mut frees, mut refused_bytes) = (far.frees(), usize::MAX);
        let larges = if far.is_placing() { Vec::new() } else { parts.larges.of(state, Side::Dram) };
        for large in larges {
            let bytes = large.stored_bytes();
            if bytes >= refused_bytes {
                continue;
            }
            match large.to_far(far) {
                Ok(bytes) => freed_bytes += bytes as u64,
                Err(given_back) => {
                    frees += given_back;
                    refused_bytes = bytes;
                }
            }
        }
        if parts.records && !state.body.is_far() && state.body.dram_bytes() > SMALL_BYTES {
            match state.body.to_far(far) {
                Some(body) => {
                    freed_bytes += state.body.dram_bytes().saturating_sub(body.dram_bytes()) as u64;
                    leaf.publish_body(&body, guard);
                }
                None => refused_bytes = refused_bytes.min(state.body.dram_bytes()),
            }
        }
        let is_full = freed_bytes == 0 && refused_bytes < usize::MAX;
        if is_full {
            far.note_no_room(frees);
        }
        if freed_bytes > 0 {
            self.tree.stats.sent_to_far.raise();
        }
        (!is_full).then_some(freed_bytes)
    }
}
