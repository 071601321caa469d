//! Places: DRAM, far memory and SSD. This module demotes a leaf's body from DRAM to far memory, and promotes it back.
//!
//! Not for leaves on SSD, which `ssd` moves, and not for the decision to move, which `pressure` and `tierer` make.
//!
//! 1. The owner of the leaf copies the body to the other place.
//! 2. It publishes a state with the copy, beside whatever landings the leaf has by then.
//! 3. The epoch frees the old bytes after their last reader.
//!
//! Large values move by themselves, one by one, because no record knows where they lie.

pub(crate) mod far;
pub(crate) mod ssd;

use std::sync::Arc;

use crossbeam_epoch::Guard;
use ziptier_media::placement::Side;

use crate::body::Body;
use crate::core::Core;
use crate::large::{Large, LargeHandle};
use crate::leaf::{Leaf, LeafState};
use crate::places::far::FAR_SHARE_BYTES;
use crate::pressure::Sent;

/// A body of so many bytes is not worth what DRAM would hold for it.
const SMALL_BYTES: usize = 2 * FAR_SHARE_BYTES;

impl Core {
    /// Demotes `leaf`, which the caller owns, to far memory: its body, if `with_body`, and the large values that `pick`
    /// picks.
    pub(crate) fn send_to_far(&self, leaf: &Leaf, with_body: bool, pick: Pick, guard: &Guard) -> Sent {
        let Some(far) = &self.far else { return Sent::Kept };
        let state = leaf.state(guard);
        if state.closed || state.body.is_empty() {
            return Sent::Kept;
        }
        let mut freed_bytes = 0;
        let larges = if far.is_placing() { Vec::new() } else { pick.of(state, Side::Dram) };
        for large in larges {
            let Some(bytes) = large.to_far(far) else { return Sent::Full };
            freed_bytes += bytes as u64;
        }
        if with_body && !state.body.is_far() && state.body.dram_bytes() > SMALL_BYTES {
            let Some(body) = state.body.to_far(far) else { return Sent::Full };
            freed_bytes += state.body.dram_bytes().saturating_sub(body.dram_bytes()) as u64;
            self.publish_body(leaf, body, guard);
        }
        if freed_bytes == 0 {
            return Sent::Kept;
        }
        self.stats.sent_to_far.raise();
        Sent::Freed(freed_bytes)
    }

    /// Brings `leaf`, which the caller owns, back to DRAM; `false` when it stays.
    pub(crate) fn raise_from_far(&self, leaf: &Leaf, guard: &Guard) -> bool {
        let state = leaf.state(guard);
        if state.closed || !state.body.is_far() {
            return false;
        }
        let Some(body) = state.body.to_dram() else {
            self.stats.damaged.raise();
            return false;
        };
        self.publish_body(leaf, body, guard);
        self.stats.raised_from_far.raise();
        true
    }

    /// Publishes `body` beside whatever landings `leaf`, which the caller owns, has by now.
    pub(crate) fn publish_body(&self, leaf: &Leaf, body: Body, guard: &Guard) {
        loop {
            let current = leaf.state(guard);
            if leaf.publish(current, LeafState { body: body.clone(), ..current.clone() }, guard) {
                return;
            }
        }
    }
}

/// The large values of a leaf that leave a side of memory. Values at a set ratio never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Values that were not read since the last visit.
    Unread,
    /// Values that were read least since the last visit.
    LeastRead,
    All,
}

impl Pick {
    /// Shares of them.
    pub(crate) fn of(self, state: &LeafState, side: Side) -> Vec<Arc<Large>> {
        self.picked(state, side).map(LargeHandle::share).collect()
    }

    /// Whether there are any.
    pub(crate) fn any(self, state: &LeafState, side: Side) -> bool {
        self.picked(state, side).next().is_some()
    }

    fn picked(self, state: &LeafState, side: Side) -> impl Iterator<Item = LargeHandle<'_>> {
        let may_move = move |large: &LargeHandle<'_>| large.movable_bytes(side) > 0;
        let reads_max = match self {
            Self::Unread => 0,
            Self::LeastRead => {
                state.body.larges().filter(may_move).map(|large| large.reads()).min().unwrap_or(0)
            }
            Self::All => u8::MAX,
        };
        state.body.larges().filter(move |large| large.reads() <= reads_max && may_move(large))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
