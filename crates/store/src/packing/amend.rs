//! The common pack: a few records of a body are replaced, added or removed, and the rest is copied as it lies.

use ziptier_codec::token::Dictionary;

use super::revise_blocks::revise_blocks;
use super::{Goal, Pieces, Scratch, has_dictionary, tokens};
use crate::body::{Blocks, Body, Edit};
use crate::coding::Coding;
use crate::core::Core;
use crate::leaf::LeafState;
use crate::merge::{Newest, Pending};
use crate::record::{Kind, array};

impl Core {
    /// The body of `state` amended by `newest`; `None` when that needs a plan.
    pub(super) fn amend(
        &self,
        state: &LeafState,
        newest: &Newest<'_>,
        goal: Goal,
        scratch: &mut Scratch,
        meanwhile: &mut dyn FnMut(),
    ) -> Option<Pieces> {
        if !self.is_amendable(state, newest) {
            return None;
        }
        let mut pieces = Pieces {
            coding: state.coding.clone(),
            loose: usize::from(state.loose),
            plain: usize::from(state.plain),
            heated: state.heated,
            evicted: newest.evicted,
            ..Pieces::default()
        };
        let blocks = state.coding.as_ref().and_then(Coding::blocks);
        let packer = blocks.map(|coding| scratch.packer(goal, coding));
        let Scratch { builder, encoder, coded, packed, .. } = scratch;
        let mut edits = edits(&state.body, newest, tokens(state), &mut pieces);
        if let Some(Coding::Tokens(dictionary)) = &state.coding {
            let entries = edits.iter_mut().filter_map(|edit| edit.entry.as_mut());
            let uncoded: Vec<_> = entries.filter(|entry| entry.kind == Kind::Raw).collect();
            pieces.loose += goal.loose(uncoded.len());
            pieces.plain += goal.plain(uncoded.len(), dictionary);
            self.code_values(uncoded, dictionary, goal.effort(), encoder, coded, &mut pieces);
        }
        let blocks = match packer {
            Some(packer) => {
                Some(revise_blocks(&state.body, packer, &mut edits, &mut pieces, packed, meanwhile)?)
            }
            None => None,
        };
        let amended = state.body.revised(&edits, blocks.map(Blocks::all), self.limits, &mut builder.bytes)?;
        pieces.released.extend(newest.shadowed.iter().map(|reference| array(reference)));
        pieces.bodies.push((Vec::new(), amended));
        Some(pieces)
    }

    /// Whether the body may keep its layout: it has records, few new ones come, and no expiry changes.
    fn is_amendable(&self, state: &LeafState, newest: &Newest<'_>) -> bool {
        let is_simple = |record: &Pending<'_>| {
            record.fields.expires_at_ms.is_none()
                && matches!(record.kind, Kind::Raw | Kind::Large | Kind::Tombstone)
        };
        // A leaf without a dictionary is coded whole as soon as there is one.
        let is_codable = has_dictionary(state) || state.heated || !self.dictionaries.has_current();
        is_codable
            && !state.body.is_empty()
            && newest.pending.len() <= self.limits.records_max
            && newest.pending.iter().all(is_simple)
    }
}

/// The changes that `newest` makes to `body`, and what they change of the figures. A value in a block is counted when
/// its block is unpacked.
fn edits<'a>(
    body: &Body,
    newest: &'a Newest<'_>,
    tokens: Option<&Dictionary>,
    pieces: &mut Pieces,
) -> Vec<Edit<'a>> {
    let mut edits = Vec::with_capacity(newest.pending.len());
    let mut from = 0;
    for record in &newest.pending {
        // Most writes replace: the fingerprints find that record without a search through the body.
        let (place, replaces) = match body.find_by(record.fingerprint, record.key) {
            Some(place) => (place, true),
            None => body.seek_from(from, record.key),
        };
        let entry = (record.kind != Kind::Tombstone).then(|| record.entry());
        if newest.is_weighed {
            pieces.marks.extend_from_slice(&newest.marks[from..place]);
            pieces.marks.extend(entry.map(|_| record.mark));
        }
        from = place + usize::from(replaces);
        if replaces {
            pieces.count_removed(&body.entry(place), tokens, 0);
        }
        if let Some(entry) = &entry {
            pieces.count_added(entry);
        }
        if replaces || entry.is_some() {
            edits.push(Edit { place, replaces, entry });
        }
    }
    pieces.marks.extend_from_slice(newest.marks.get(from..).unwrap_or_default());
    edits
}
