//! The large values that leave a place together with a leaf, or without it.

use std::sync::Arc;

use ziptier_tree::large::{Large, LargeHandle};
use ziptier_tree::leaf::LeafState;
use ziptier_tree::placement::Side;

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
