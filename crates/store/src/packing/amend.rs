//! The common pack: a few records of a body are replaced, added or removed, and the rest is copied as it lies.

use ziptier_codec::token::Effort;

use super::revise_blocks::revise_blocks;
use super::{Goal, Pieces, Scratch, has_dictionary};
use crate::body::Edit;
use crate::coding::Coding;
use crate::core::Core;
use crate::leaf::LeafState;
use crate::merge::Newest;
use crate::record::{Kind, array};

impl Core {
    /// The body of `state` amended by `newest`; `None` when that needs a plan.
    pub(super) fn amend(
        &self,
        state: &LeafState,
        newest: &Newest<'_>,
        scratch: &mut Scratch,
        meanwhile: &mut dyn FnMut(),
    ) -> Option<Pieces> {
        let body = &state.body;
        let simple = newest.pending.iter().all(|record| {
            record.fields.expires_at_ms.is_none()
                && matches!(record.kind, Kind::Raw | Kind::Large | Kind::Tombstone)
        });
        // A leaf without a dictionary is coded whole as soon as there is one.
        let codable = has_dictionary(state) || state.heated || !self.dictionaries.has_current();
        if body.is_empty() || !simple || !codable || newest.pending.len() > self.limits.records_max {
            return None;
        }
        let mut pieces = Pieces {
            coding: state.coding.clone(),
            heated: state.heated,
            evicted: newest.evicted,
            ..Pieces::default()
        };
        let blocks = state.coding.as_ref().and_then(Coding::blocks);
        let dictionary = state.coding.as_ref().and_then(Coding::tokens);
        let packer = blocks.map(|coding| scratch.packer(Goal::Keep, coding));
        let Scratch { builder, encoder, coded, packed, .. } = scratch;
        let values: Vec<&[u8]> = newest
            .pending
            .iter()
            .filter(|record| record.kind == Kind::Raw)
            .map(|record| record.value)
            .collect();
        if let Some(dictionary) = dictionary {
            coded.encode(dictionary, encoder, Effort::Fast, &values);
        }
        pieces.loose = usize::from(state.loose) + dictionary.map_or(0, |_| values.len());
        let mut coded = dictionary.map(|_| coded.values());
        let mut edits = Vec::with_capacity(newest.pending.len());
        let mut from = 0;
        // The first mark that was not taken over yet.
        let mut marked = 0;
        for record in &newest.pending {
            // Most writes replace: the fingerprints find that record without a search through the body.
            let (place, replaces) = match body.find_by(record.fingerprint, record.key) {
                Some(place) => (place, true),
                None => body.seek_from(from, record.key),
            };
            from = place + usize::from(replaces);
            if newest.is_weighed {
                pieces.marks.extend_from_slice(&newest.marks[marked..place]);
                marked = from;
                if record.kind != Kind::Tombstone {
                    pieces.marks.push(record.mark);
                }
            }
            if replaces {
                // A value in a block is counted when its block is unpacked.
                pieces.count_removed(&body.entry(place), dictionary.map(|own| &**own), 0);
            }
            if record.kind == Kind::Tombstone {
                if replaces {
                    edits.push(Edit { place, replaces, entry: None });
                }
                continue;
            }
            let mut entry = record.entry();
            pieces.count_added(&entry);
            if record.kind == Kind::Raw
                && let Some(coded) = coded.as_mut().and_then(Iterator::next)
            {
                self.code_entry(&mut entry, coded, &mut pieces);
            }
            edits.push(Edit { place, replaces, entry: Some(entry) });
        }
        pieces.marks.extend_from_slice(newest.marks.get(marked..).unwrap_or_default());
        let blocks = match packer {
            Some(packer) => Some(revise_blocks(body, packer, &mut edits, &mut pieces, packed, meanwhile)?),
            None => None,
        };
        let amended = body.revised(&edits, blocks, self.limits, &mut builder.bytes)?;
        pieces.released.extend(newest.shadowed.iter().map(|reference| array(reference)));
        pieces.bodies.push((Vec::new(), amended));
        Some(pieces)
    }
}
