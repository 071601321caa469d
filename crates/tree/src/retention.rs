//! Which records a pack keeps: the merge asks the policy above the tree.
//!
//! Not for expiry. A merge drops expired records by itself and asks of the others.
//!
//! 1. `begin` begins a merge of one leaf, or of two neighbours. A pack that has to close its leaf merges a second time,
//!    and the answers of the first time are void.
//! 2. `begin_leaf` names a leaf. `keeps` and `writes` follow for its records, in key order.
//! 3. `commit` ends a pack that comes about. A pack that is given up has no end.
//!
//! The caller of a pack passes the retention, or `None` while the store does not evict. [`KeepsAll`] is for merges that
//! no policy may change. A merge asks neither of the two: it passes over the records that stay.

use crossbeam_epoch::Guard;

use crate::body::Body;
use crate::leaf::Leaf;
use crate::marks::Mark;
use crate::pending::Pending;

/// Decides which records a pack keeps. See the module.
pub trait Retention {
    /// Whether it decides anything. Otherwise all records stay, and a merge asks about none.
    fn decides(&self) -> bool;

    /// A merge begins.
    fn begin(&mut self);

    /// The records of `leaf` follow. Those that expire by `expired_by_ms` are dropped.
    fn begin_leaf(&mut self, leaf: &Leaf, body: &Body, expired_by_ms: u64, guard: &Guard);

    /// Whether the record of `body` at `place` stays. No landing has a newer record of its key.
    fn keeps(&mut self, body: &Body, place: usize) -> bool;

    /// A landing has a new record of a key, or a new expiry. `place` is that of the body's record of the key.
    fn writes(&mut self, record: &Pending<'_>, place: Option<usize>);

    /// The pack comes about. Returns the marks of the records that stay and come, in their order.
    fn commit(&mut self) -> Vec<Mark>;
}

/// Keeps all records.
pub struct KeepsAll;

impl Retention for KeepsAll {
    fn decides(&self) -> bool {
        false
    }

    fn begin(&mut self) {}

    fn begin_leaf(&mut self, _: &Leaf, _: &Body, _: u64, _: &Guard) {}

    fn keeps(&mut self, _: &Body, _: usize) -> bool {
        true
    }

    fn writes(&mut self, _: &Pending<'_>, _: Option<usize>) {}

    fn commit(&mut self) -> Vec<Mark> {
        Vec::new()
    }
}

/// A retention that is there while the store evicts. Without it all records stay.
impl<R: Retention> Retention for Option<R> {
    fn decides(&self) -> bool {
        self.as_ref().is_some_and(R::decides)
    }

    fn begin(&mut self) {
        if let Some(retention) = self {
            retention.begin();
        }
    }

    fn begin_leaf(&mut self, leaf: &Leaf, body: &Body, expired_by_ms: u64, guard: &Guard) {
        if let Some(retention) = self {
            retention.begin_leaf(leaf, body, expired_by_ms, guard);
        }
    }

    fn keeps(&mut self, body: &Body, place: usize) -> bool {
        self.as_mut().is_none_or(|retention| retention.keeps(body, place))
    }

    fn writes(&mut self, record: &Pending<'_>, place: Option<usize>) {
        if let Some(retention) = self {
            retention.writes(record, place);
        }
    }

    fn commit(&mut self) -> Vec<Mark> {
        self.as_mut().map_or_else(Vec::new, R::commit)
    }
}
