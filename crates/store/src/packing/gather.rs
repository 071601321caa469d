//! The first step of a plan: the records of adjacent leaves are merged with their landings, and the changes counted.
//!
//! Not for readers, which `merge` one leaf and count nothing.

use super::{Pieces, tokens};
use crate::body::Entry;
use crate::leaf::LeafState;
use crate::merge::{Newest, Source, merge};
use crate::record::{Kind, array};

/// Leaves that a plan takes together, from left to right, with what their landings say.
pub(crate) type Leaves<'a> = &'a [(&'a LeafState, Newest<'a>)];

/// By record of a body: where its decoded value lies in the scratch. `None` if it is not coded, or damaged.
pub(super) type Spans = Vec<Option<(usize, usize)>>;

/// Where a gathered record comes from.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    /// The number of its leaf.
    pub(super) leaf: usize,
    /// Its place in the body of that leaf; `None` for a record of a landing.
    pub(super) place: Option<usize>,
}

/// The records that adjacent leaves have from now on.
pub(super) struct Gathered<'a> {
    pub(super) leaves: Leaves<'a>,
    /// In key order.
    pub(super) entries: Vec<Entry<'a>>,
    /// The origin of each entry.
    pub(super) origins: Vec<Origin>,
    /// Records of bodies that go: the number of the leaf and the place. [`Gathered::count_replaced`] counts them.
    pub(super) replaced: Vec<(usize, usize)>,
    /// What the merge changes.
    pub(super) pieces: Pieces,
}

impl<'a> Gathered<'a> {
    /// Merges `leaves`. In a cold leaf a record that ends leaves a tombstone, because the record that it shadowed lies
    /// below.
    pub(super) fn of(leaves: Leaves<'a>) -> Self {
        let records = leaves.iter().map(|(state, newest)| state.body.len() + newest.pending.len()).sum();
        let mut gathered = Self {
            leaves,
            entries: Vec::with_capacity(records),
            origins: Vec::with_capacity(records),
            replaced: Vec::new(),
            pieces: Pieces::default(),
        };
        let is_weighed = leaves.iter().all(|(_, newest)| newest.is_weighed);
        (0..leaves.len()).for_each(|leaf| gathered.add_leaf(leaf, is_weighed));
        gathered
    }

    fn add_leaf(&mut self, leaf: usize, is_weighed: bool) {
        let (state, newest) = &self.leaves[leaf];
        let pieces = &mut self.pieces;
        merge(&state.body, &newest.pending, newest.expired_by_ms, |merged| {
            self.replaced.extend(merged.replaced.map(|place| (leaf, place)));
            pieces.released.extend(merged.released.map(array));
            if !merged.exists() && state.below.is_none() {
                return;
            }
            let (place, mark) = match merged.source {
                Source::Body(place) => (Some(place), newest.mark(place)),
                Source::Landing(mark) => {
                    pieces.count_added(&merged.entry);
                    (None, mark)
                }
            };
            if is_weighed {
                pieces.marks.push(mark);
            }
            self.entries.push(merged.entry);
            self.origins.push(Origin { leaf, place });
        });
        pieces.released.extend(newest.shadowed.iter().map(|reference| array(reference)));
        pieces.evicted += newest.evicted;
    }

    /// Counts the records that go. The packed ones among them have their values in the `decoded` ones of their leaf.
    pub(super) fn count_replaced(&mut self, decoded: &[Spans]) {
        for (leaf, place) in &self.replaced {
            let state = self.leaves[*leaf].0;
            let entry = state.body.entry(*place);
            let span = decoded[*leaf].get(*place).copied().flatten().filter(|_| entry.kind == Kind::Packed);
            self.pieces.count_removed(&entry, tokens(state), span.map_or(0, |(start, end)| end - start));
        }
    }

    /// Whether bodies are cut into full ones and a rest: neighbours are taken together to fill the left one, and a load
    /// in key order leaves full bodies behind.
    pub(super) fn fills(&self) -> bool {
        let is_fresh = |origin: &&Origin| origin.place.is_none();
        let at_end = self.origins.iter().rev().take_while(is_fresh).count();
        self.leaves.len() > 1 || 2 * at_end > self.origins.iter().filter(is_fresh).count()
    }

    /// Records of the leaves that were coded fast.
    pub(super) fn loose(&self) -> usize {
        self.leaves.iter().map(|(state, _)| usize::from(state.loose)).sum()
    }
}
