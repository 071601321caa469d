//! The first step of a plan: the merged records of adjacent leaves, one after the other.

use crate::body::Entry;
use crate::merge::Merged;

/// Leaves that a plan takes together, from left to right.
pub(crate) type Leaves<'a> = &'a [Merged<'a>];

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
}

impl<'a> Gathered<'a> {
    pub(super) fn of(leaves: Leaves<'a>) -> Self {
        let records = leaves.iter().map(Merged::len).sum();
        let (mut entries, mut origins) = (Vec::with_capacity(records), Vec::with_capacity(records));
        for (leaf, merged) in leaves.iter().enumerate() {
            merged.records().for_each(|(entry, place)| {
                entries.push(entry);
                origins.push(Origin { leaf, place });
            });
        }
        Self { leaves, entries, origins }
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
        self.leaves.iter().map(|merged| usize::from(merged.state.form.loose())).sum()
    }
}
