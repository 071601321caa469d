//! Joins two neighbours on SSD into one leaf, and cuts a leaf that has grown in two. Lists are joined or cut, and
//! nothing is read or written.

use std::sync::{Arc, Weak};

use crossbeam_epoch::Guard;
use ziptier_tree::below::{Below, Part};
use ziptier_tree::body::{Body, Builder};
use ziptier_tree::form::Form;
use ziptier_tree::leaf::{Leaf, LeafState, RightSibling};

use super::compact::add_coding;
use super::demote::overlay_state;
use super::upper::are_sparse;
use crate::image_files::ssd_bytes;
use crate::places::Moves;

/// A leaf has at most so many bytes on SSD, of a list that was joined.
pub(crate) const JOINED_BYTES_MAX: u64 = 64 << 10;

impl Moves<'_> {
    /// Joins a cold leaf, which the caller owns, with its right neighbour, if that is cold, too, and free; `false` when
    /// not.
    pub(crate) fn join_cold(&self, leaf: &Leaf, guard: &Guard) -> bool {
        if !fits(leaf.state(guard), guard) {
            return false;
        }
        let Some(right) = leaf.state(guard).right(guard) else { return false };
        let Some(ownership) = right.try_own() else { return false };
        if right.state(guard).closed || right.state(guard).below.is_none() {
            return false;
        }
        // A thread that deletes a range owns the leaves at its bounds after it has said so, and cuts them.
        if self.host.deletes_range() {
            return false;
        }
        for leaf in [leaf, right] {
            leaf.seal(guard);
            self.pack_sealed(leaf, guard);
        }
        let left_state = leaf.close(guard);
        let right_state = right.close(guard);
        if !fits(left_state, guard) || left_state.is_unsettled() || right_state.is_unsettled() {
            leaf.reopen(left_state, guard);
            right.reopen(right_state, guard);
            return false;
        }
        let (Some(left_below), Some(right_below)) = (&left_state.below, &right_state.below) else {
            unreachable!("both were cold, and only their owner changes that");
        };
        let mut parts = left_below.parts(&leaf.low());
        parts.extend(right_below.parts(&right.low()));
        let mut codings = left_below.codings().to_vec();
        right_below.codings().iter().for_each(|coding| add_coding(&mut codings, coding));
        let below = Below::new(
            left_below.files().clone(),
            &parts,
            codings,
            left_below.logical_bytes() + right_below.logical_bytes(),
        );
        let body = joined(&left_state.body, &right_state.body);
        self.tree.note_damage(&[left_state, right_state]);
        let coding = left_state.form.coding().or_else(|| right_state.form.coding());
        let state = LeafState {
            below: Some(below),
            high: right_state.high.clone(),
            right: right_state.right,
            ..overlay_state(&body, &Form::of(coding))
        };
        let _writer = leaf.note_absorbed();
        let published = leaf.publish(left_state, state, guard);
        assert!(published, "nobody changes a closed leaf but its owner");
        left_below.hand_on();
        right_below.hand_on();
        self.tree.index.change(Some(right), Vec::new(), guard);
        // The ownership of a leaf that is gone is never given back.
        std::mem::forget(ownership);
        self.tree.stats.merges.raise();
        true
    }

    /// Joins a leaf with the one before it, if both are cold; what the next one may be joined with. The caller holds no
    /// guard. What it remembers until the next leaf keeps no leaf alive.
    pub(crate) fn join_with(&self, before: &Weak<Leaf>, leaf: &Arc<Leaf>) -> Weak<Leaf> {
        let Some(before) = before.upgrade() else { return leaf.share_weakly() };
        let guard = self.tree.pin();
        let joined = before.try_own().is_some_and(|_ownership| {
            before.state(&guard).below.is_some()
                && !before.state(&guard).closed
                && self.join_cold(&before, &guard)
        });
        if joined { before.share_weakly() } else { leaf.share_weakly() }
    }
}

impl Moves<'_> {
    /// Cuts a cold leaf, which the caller owns, in two, if its list has become long and nobody writes to it at this
    /// moment. The caller holds no guard.
    pub(super) fn split_cold(&self, leaf: &Leaf) {
        let guard = self.tree.pin();
        let is_long = |below: &Arc<Below>| below.len() > 1 && ssd_bytes(below) > 2 * JOINED_BYTES_MAX;
        if let Some(below) = leaf.state(&guard).below.clone().filter(is_long) {
            self.cut_cold(leaf, &below, below.len() / 2, &guard);
        }
    }

    /// Cuts the cold leaf of `key`, if an image but its first one begins there or has it, so that this one begins a
    /// leaf. The caller holds no guard.
    pub(crate) fn begin_leaf_at_image_of(&self, key: &[u8]) {
        self.tree.with_leaf_of(key, |leaf, guard| {
            if let Some(below) = leaf.state(guard).below.clone()
                && below.image_of(key) > 0
            {
                self.pack_sealed(leaf, guard);
                self.cut_cold(leaf, &below, below.image_of(key), guard);
            }
        });
    }

    /// Cuts a cold leaf, which the caller owns, in two, unless another thread writes to it at this moment. The second
    /// part begins with image `from`.
    fn cut_cold(&self, leaf: &Leaf, below: &Arc<Below>, from: usize, guard: &Guard) {
        leaf.seal(guard);
        self.pack_sealed(leaf, guard);
        let closed = leaf.close(guard);
        if closed.is_unsettled() {
            return leaf.reopen(closed, guard);
        }
        let parts = below.parts(&leaf.low());
        let (left, right) = parts.split_at(from);
        let low: Arc<[u8]> = Arc::from(right[0].low.as_slice());
        let cut = closed.body.seek_from(0, &low).0;
        let half = |parts: &[Part], logical_bytes, from, to| {
            let entries: Vec<_> = (from..to).map(|index| closed.body.entry(index)).collect();
            let body = Builder::default().build(&entries, None);
            let below = Below::new(below.files().clone(), parts, below.codings().to_vec(), logical_bytes);
            LeafState { below: Some(below), ..overlay_state(&body, &closed.form) }
        };
        let left_bytes = below.logical_bytes() * left.len() as u64 / parts.len() as u64;
        let right_state = LeafState {
            high: closed.high.clone(),
            right: closed.right,
            ..half(right, below.logical_bytes() - left_bytes, cut, closed.body.len())
        };
        let new = Leaf::new(low.clone(), right_state, self.tree.gauges.clone());
        let left_state =
            LeafState { high: Some(low), right: RightSibling::to(&new), ..half(left, left_bytes, 0, cut) };
        self.tree.note_damage(&[closed]);
        let published = leaf.publish(closed, left_state, guard);
        assert!(published, "nobody changes a closed leaf but its owner");
        below.hand_on();
        self.tree.index.change(None, vec![new], guard);
        self.tree.stats.splits.raise();
        guard.flush();
    }
}

/// Whether a leaf and its right neighbour can be joined as they are.
fn fits(state: &LeafState, guard: &Guard) -> bool {
    let Some(right) = state.right(guard).map(|right| right.state(guard)) else { return false };
    let (Some(left_below), Some(right_below)) = (&state.below, &right.below) else { return false };
    let same_coding = [state, right].iter().any(|state| state.body.is_empty())
        || state.form.generation() == right.form.generation();
    ssd_bytes(left_below) + ssd_bytes(right_below) <= JOINED_BYTES_MAX
        && same_coding
        && are_sparse([state, right])
}

/// The records of two neighbours' upper bodies.
fn joined(left: &Body, right: &Body) -> Body {
    match (left.is_empty(), right.is_empty()) {
        (true, _) => right.clone(),
        (_, true) => left.clone(),
        _ => {
            let entries_of = |body| (0..Body::len(body)).map(move |index| body.entry(index));
            let entries: Vec<_> = entries_of(left).chain(entries_of(right)).collect();
            Builder::default().build(&entries, None)
        }
    }
}

// No unsafe code comes this way, and there is an SSD: not for Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use ziptier_tree::batch::Batch;

    use crate::places::ssd::tests::with_cold_neighbours;

    #[test]
    fn a_batch_in_a_leaf_on_ssd_that_absorbs_its_neighbour_is_read_at_once() {
        let (core, [leaf, right], key) = with_cold_neighbours();
        let batch = Batch::new().put(&[0], b"new").put(&key, b"new");
        let written = |waits| {
            let written = core.writes().write_waiting(&batch, waits).expect("no limit is set").is_some();
            let mut value = Vec::new();
            core.read(&key, &mut value).expect("it is whole");
            assert!(!written || value == b"new", "the value before was read");
            written
        };
        std::thread::scope(|scope| {
            let index = core.tree.index.hold();
            let joining = scope.spawn(|| core.moves().join_with(&leaf.share_weakly(), &right));
            while !leaf.state(&core.tree.pin()).covers(&key) && !joining.is_finished() {
                std::thread::yield_now();
            }
            // The leaf has the keys of its neighbour, and the index does not know yet.
            written(false);
            drop(index);
            let joined = joining.join().expect("it does not panic");
            assert!(std::ptr::eq(joined.as_ptr(), &raw const *leaf));
        });
        assert!(written(true));
    }
}
