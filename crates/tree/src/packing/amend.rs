//! The common pack: a few records of a body are replaced, added or removed, and the rest is copied as it lies.

use super::gather::Spans;
use super::revise_blocks::revise_blocks;
use super::{Goal, Pieces, Planner, Scratch};
use crate::body::{Blocks, Edit};
use crate::merge::Merged;
use crate::record::Kind;

impl Planner<'_> {
    /// The body of a leaf amended by what its landing says; `None` when that needs a plan.
    pub(super) fn amend(
        &self,
        merged: &Merged<'_>,
        goal: Goal,
        scratch: &mut Scratch,
        meanwhile: &mut dyn FnMut(),
    ) -> Option<Pieces> {
        if !self.is_amendable(merged) {
            return None;
        }
        let state = merged.state;
        let mut pieces = Pieces {
            form: state.form.renewed(),
            loose: state.form.loose().into(),
            plain: state.form.plain().into(),
            ..Pieces::default()
        };
        let packer = state.form.blocks().map(|coding| scratch.packer(goal, coding));
        let Scratch { builder, encoder, coded, packed, .. } = scratch;
        let mut edits = merged.edits.clone();
        let blocks = match packer {
            Some(packer) => Some(revise_blocks(merged, packer, &mut edits, &mut pieces, packed, meanwhile)?),
            None => {
                pieces.count(merged, &Spans::new());
                None
            }
        };
        if let Some(dictionary) = state.form.tokens() {
            let entries = edits.iter_mut().filter_map(|edit| edit.entry.as_mut());
            let uncoded: Vec<_> = entries.filter(|entry| entry.kind == Kind::Raw).collect();
            pieces.loose += goal.loose(uncoded.len());
            pieces.plain += goal.plain(uncoded.len(), dictionary);
            self.code_values(uncoded, dictionary, goal.effort(), encoder, coded, &mut pieces);
        }
        let amended =
            state.body.revised(&edits, blocks.map(Blocks::all), self.tree.limits, &mut builder.bytes)?;
        pieces.bodies.push((Vec::new(), amended));
        Some(pieces)
    }

    /// Whether the body may keep its layout: it has records, few new ones come, and no expiry changes.
    fn is_amendable(&self, merged: &Merged<'_>) -> bool {
        let brings_value =
            |edit: &Edit<'_>| edit.entry.is_none_or(|entry| matches!(entry.kind, Kind::Raw | Kind::Large));
        // A leaf without a dictionary is coded whole as soon as there is one.
        let state = merged.state;
        let is_codable =
            state.form.is_hot() || state.form.has_dictionary() || !self.tree.dictionaries.has_current();
        is_codable
            && !state.body.is_empty()
            && merged.edits.iter().all(brings_value)
            && state.body.takes(&merged.edits, self.tree.limits)
    }
}
