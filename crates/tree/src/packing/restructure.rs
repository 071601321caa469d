//! Splits and joins: closing leaves, and cutting their records into leaves anew.

use std::sync::Arc;

use super::{Goal, Growth, Packs, Pieces, Planner, Terms};
use crate::coding::Coding;
use crate::leaf::{Leaf, LeafState, Ownership, RightSibling};
use crate::pending::newest;

/// Which leaves a pack may cut or join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    /// The records of one leaf.
    One,
    /// The records of a leaf and its right neighbour, if nobody writes to either.
    QuietPair,
    /// The records of a leaf and its right neighbour, written to or not.
    Pair,
}

impl Planner<'_> {
    /// The form of the parts of a leaf that is split by a pack with `goal`. They come to the current dictionary of
    /// tokens: all leaves of a store that grows come from its first ones, whose dictionary was small. Large values keep
    /// their leaf in its coding, since coding them takes long, and writers split leaves.
    fn goal_of_parts(&self, state: &LeafState, goal: Goal) -> Goal {
        let current = self.tree.dictionaries.current();
        let newer = (state.form.tokens())
            .zip(current.as_ref().and_then(Coding::tokens))
            .is_some_and(|(own, current)| own.generation() != current.generation());
        let stays = state.form.keeps_damage() || state.body.larges().next().is_some();
        match goal {
            Goal::Keep if newer && !stays => Goal::Renew,
            Goal::Settle if newer && !stays => Goal::Recode,
            _ => goal,
        }
    }
}

impl<'p> Packs<'p> {
    /// Fills `leaf`, which the caller owns, from its right neighbour, if that one is free. The rest of the neighbour
    /// becomes a leaf of its own. `false` if nothing changed.
    pub fn fill_from_right(&mut self, leaf: &Leaf) -> bool {
        self.restructure(leaf, Span::QuietPair, Terms { goal: Goal::Keep, growth: Growth::Limited })
    }

    /// Joins `leaf`, which the caller owns, with its right neighbour, if that one is free. Both are small and may be
    /// written to all the time. `false` if nothing changed.
    pub fn join_right(&mut self, leaf: &Leaf) -> bool {
        self.restructure(leaf, Span::Pair, Terms { goal: Goal::Keep, growth: Growth::Limited })
    }

    /// Closes `leaf`, which the caller owns, and cuts its records into leaves anew; `false` when it is as it was.
    pub(super) fn split(&mut self, leaf: &Leaf, terms: Terms) -> bool {
        let goal = self.tree.planner().goal_of_parts(leaf.state(self.guard), terms.goal);
        // The limit may have no room for values that were condensed and are not any more.
        self.restructure(leaf, Span::One, Terms { goal, ..terms })
            || goal != terms.goal && self.restructure(leaf, Span::One, terms)
    }

    /// Closes `leaf` (and its right neighbour), and cuts all their records into leaves anew; `false` when nothing
    /// changed.
    fn restructure(&mut self, leaf: &Leaf, span: Span, terms: Terms) -> bool {
        let guard = self.guard;
        let Some(right) = self.free_right(leaf, span) else { return false };
        let leaves = std::iter::once(leaf).chain(right.as_ref().map(|(right, _)| *right));
        let closed: Vec<_> = leaves.map(|leaf| (leaf, leaf.close(guard))).collect();
        let Some(pieces) = self.plan_closed(&closed, span, terms) else {
            closed.iter().for_each(|(leaf, state)| leaf.reopen(state, guard));
            return false;
        };
        self.publish_cut(&closed, span, pieces);
        // The ownership of a leaf that is gone is never given back: nobody may maintain it again.
        if let Some((_, ownership)) = right {
            std::mem::forget(ownership);
        }
        true
    }

    /// The right neighbour that `span` takes besides `leaf`, if it takes one. `None` if a leaf is cold, or the
    /// neighbour is not free, or one leaf has no place for both.
    #[expect(clippy::option_option, reason = "a span of one leaf takes no neighbour, and that is no failure")]
    fn free_right(&self, leaf: &Leaf, span: Span) -> Option<Option<(&'p Leaf, Ownership<'p>)>> {
        let guard = self.guard;
        let is_warm = |leaf: &Leaf| leaf.state(guard).below.is_none();
        if span == Span::One {
            return is_warm(leaf).then_some(None);
        }
        let right = leaf.state(guard).right(guard)?;
        let ownership = right.try_own()?;
        let is_free = !right.state(guard).closed
            && is_warm(leaf)
            && is_warm(right)
            && self.host.has_place_for(&[leaf.state(guard), right.state(guard)]);
        is_free.then_some(Some((right, ownership)))
    }

    /// Plans the leaves that replace `closed` ones. `None` if these are better left as they are.
    fn plan_closed(&mut self, closed: &[(&Leaf, &LeafState)], span: Span, terms: Terms) -> Option<Pieces> {
        if span == Span::QuietPair && closed.iter().any(|(_, state)| state.is_unsettled()) {
            // A thread writes here after all, and only quiet leaves are worth filling.
            return None;
        }
        let tree = self.tree;
        let landed = closed.iter().map(|(leaf, state)| {
            let mut newest = newest(state.landings(), &tree.commits);
            newest.expired_by_ms = tree.drops_expired_by_ms(&newest, &state.body);
            (*leaf, *state, newest)
        });
        let leaves = self.merge(landed);
        let mut pieces = self.tree.planner().plan(&leaves, terms.goal, self.scratch, &mut || ());
        let states: Vec<&LeafState> = closed.iter().map(|(_, state)| *state).collect();
        if span == Span::QuietPair
            && pieces.bodies.len() > 1
            && pieces.bodies[0].1.len() == states[0].body.len()
            && pieces.recoded.is_empty()
        {
            // The neighbour's first record does not fit.
            return None;
        }
        self.keep_place(&states, &mut pieces);
        let landing_bytes = states.iter().map(|state| state.landing_bytes()).sum();
        let has_room = terms.growth == Growth::Accepted || self.may_grow(&states, landing_bytes, &pieces);
        if !has_room {
            return None;
        }
        pieces.marks = self.retention.commit();
        Some(pieces)
    }

    /// Publishes `pieces` in place of `closed` leaves, and hands on what is known of their records.
    fn publish_cut(&self, closed: &[(&Leaf, &LeafState)], span: Span, pieces: Pieces) {
        closed.iter().for_each(|(_, state)| self.tree.note_damage(&[*state]));
        self.tree.account(&pieces);
        let (leaf, state) = closed[0];
        let removed = closed.get(1).copied();
        let before = state.body.len();
        let added = self.replace(leaf, state, removed, &pieces, |new, first_record| {
            new.reads.inherit(&leaf.reads, first_record, 0);
            if let Some((right, _)) = removed {
                let (from, to) = (first_record.saturating_sub(before), before.saturating_sub(first_record));
                new.reads.inherit(&right.reads, from, to);
            }
            if span == Span::QuietPair {
                // Both were quiet, so this one is.
                new.is_quiet();
            }
        });
        match removed {
            Some((right, _)) => {
                leaf.reads.inherit(&right.reads, 0, before);
                self.tree.stats.merges.raise();
            }
            None if added > 0 => self.tree.stats.splits.raise(),
            None => {}
        }
        self.tree.settle_large(pieces.recoded, pieces.released, self.guard);
    }

    /// Publishes the bodies of `pieces` in place of `leaf`, closed in state `closed`, and brings the index up to date.
    /// `removed` is the right sibling that is replaced, too, with its closed state. `each` sees each new leaf, and the
    /// number of its first record, before any other thread comes to it. Returns how many leaves are new.
    pub fn replace(
        &self,
        leaf: &Leaf,
        closed: &LeafState,
        removed: Option<(&Leaf, &LeafState)>,
        pieces: &Pieces,
        each: impl Fn(&Leaf, usize),
    ) -> usize {
        let guard = self.guard;
        let last = removed.map_or(closed, |(_, state)| state);
        // New leaves from right to left, so that each knows its neighbour.
        let mut high = last.high.clone();
        let mut neighbour = last.right;
        let mut added = Vec::with_capacity(pieces.bodies.len());
        let mut first_record: usize = pieces.bodies.iter().map(|(_, body)| body.len()).sum();
        for (low, body) in pieces.bodies[1..].iter().rev() {
            first_record -= body.len();
            let low: Arc<[u8]> = Arc::from(low.as_slice());
            let state = with_form(LeafState::new(body.clone(), high, neighbour), pieces);
            high = Some(low.clone());
            let new = Leaf::new(low, state, self.tree.gauges.clone());
            new.set_warm(leaf.is_warm());
            each(&new, first_record);
            self.host.remember(&new, pieces.marks_of(first_record, body), guard);
            neighbour = RightSibling::to(&new);
            added.push(new);
        }
        let state = with_form(LeafState::new(pieces.bodies[0].1.clone(), high, neighbour), pieces);
        // Readers come to the new leaves before the index has them; who maintains leaves must not.
        let new_leaves = added.clone();
        let _owned: Vec<_> = new_leaves.iter().map(|new| new.try_own()).collect();
        // A new leaf may have keys of both former leaves: the index leads to it for some of them and to the removed
        // leaf for others.
        let _writers: Vec<_> =
            new_leaves.iter().filter(|_| removed.is_some()).map(|new| new.lock_writer()).collect();
        let _writer = removed.map(|_| leaf.note_absorbed());
        let published = leaf.publish(closed, state, guard);
        assert!(published, "nobody changes a closed leaf but its owner");
        self.host.remember(leaf, pieces.marks_of(0, &pieces.bodies[0].1), guard);
        if removed.is_some() || !added.is_empty() {
            self.tree.index.change(removed.map(|(leaf, _)| leaf), added, guard);
        }
        if let Some((leaf, state)) = removed {
            leaf.retire(state);
        }
        new_leaves.len()
    }
}

/// `state`, which has one of the bodies of `pieces`, in their form.
fn with_form(state: LeafState, pieces: &Pieces) -> LeafState {
    LeafState { form: pieces.form_of(&state.body), ..state }
}
