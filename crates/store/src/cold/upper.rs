//! Packing a landing into the overlay (the *upper* body) of a cold leaf.
//!
//! 1. The pack merges landing and overlay as in any leaf, but reads no image.
//! 2. A record that ends, deleted or expired, leaves a tombstone, because the record that it shadowed lies below.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use super::Below;
use crate::core::Core;
use crate::leaf::{Leaf, LeafState};
use crate::merge::newest;
use crate::packing::Scratch;

/// While memory is short, the overlay is merged with its images when it is larger than one part in so many of them. A
/// merge then writes about so many times the bytes that it frees.
const PAYING_SHARE: u64 = 4;
/// It may have so many bytes in any case.
const GROWN_BYTES_MIN: u64 = 4096;

/// References to large values that leaves have together when they are joined. They are never merged: a leaf that has
/// twice as many is cut.
const LARGES_MAX: usize = 256;

/// Whether the overlay is large enough for a merge; a `factor` asks for so many times less.
pub(crate) fn pays(state: &LeafState, factor: u64) -> bool {
    let upper = merging_bytes(state);
    state.below.as_ref().is_some_and(|below| upper > below.ssd_bytes() / (PAYING_SHARE * factor))
}

/// Whether the overlay has outgrown the images.
pub(super) fn has_grown(state: &LeafState) -> bool {
    let upper = merging_bytes(state);
    let outgrows = |below: &Arc<Below>| upper > below.ssd_bytes().max(GROWN_BYTES_MIN);
    state.below.as_ref().is_some_and(outgrows) || is_crowded(state)
}

/// Whether a cold leaf has so many references to large values that it is to be cut, which takes its images.
pub(super) fn is_crowded(state: &LeafState) -> bool {
    state.below.is_some() && state.body.larges().count() > 2 * LARGES_MAX
}

/// Whether two leaves together have few references to large values.
pub(super) fn are_sparse(states: [&LeafState; 2]) -> bool {
    states.iter().map(|state| state.body.larges().count()).sum::<usize>() <= LARGES_MAX
}

/// About the bytes of the overlay that a merge takes down: references to large values stay.
fn merging_bytes(state: &LeafState) -> u64 {
    let (records, larges) = (state.body.len(), state.body.larges().count());
    (state.body.asked_bytes() * (records - larges) / records.max(1)) as u64
}

impl Core {
    /// Packs the sealed landing of a cold leaf, which the caller owns.
    pub(crate) fn pack_upper(&self, leaf: &Leaf, guard: &Guard, scratch: &mut Scratch) {
        let state = leaf.state(guard);
        let mut newest = newest(state.sealed.as_deref().into_iter(), &self.commits);
        newest.expired_by_ms = self.expired_by_ms(leaf, state, &newest, guard);
        let mut pieces = self.plan_upper(&[(state, newest)], scratch);
        self.keep_place(&[state], &mut pieces);
        self.publish_one(leaf, state, pieces, guard);
        let cold = self.cold.as_ref().expect("a cold leaf has an SSD");
        if has_grown(leaf.state(guard)) {
            cold.note_grown(leaf, guard);
        }
    }

    /// Packs the sealed landing of a cold leaf, which the caller owns, if there is one.
    pub(super) fn pack_sealed(&self, leaf: &Leaf, guard: &Guard) {
        if leaf.state(guard).sealed.is_some() {
            Self::with_scratch(|scratch| self.pack_upper(leaf, guard, scratch));
        }
    }
}
