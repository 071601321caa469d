//! Planning a pack: merging, coding and cutting records, of one leaf or of two neighbours.

use std::sync::Arc;

use ziptier_codec::token::Effort;

use super::{Goal, INLINE_LIMIT, Pieces, Scratch, generation, has_dictionary, raw_len, read_ahead, tokens};
use crate::blocks::Unpacked;
use crate::body::{Body, BodyLimits, Builder, Entry, EntryKey};
use crate::coding::Coding;
use crate::core::Core;
use crate::large::{Large, LargeHandle};
use crate::leaf::LeafState;
use crate::merge::{Merged, Newest, merge};
use crate::record::{Kind, Payload, array};

/// Large values above this keep the coding they were written with: recoding one would take a thread for seconds.
const RECODED_BYTES_MAX: u64 = 64 << 20;

impl Core {
    /// Whether the merged records of a leaf stay within one body, counting updates once. Sizes are taken before
    /// coding, so a leaf close to the limit may be closed for nothing.
    pub(super) fn fits_one_body(&self, state: &LeafState, newest: &Newest<'_>, goal: Goal) -> bool {
        let mut records = 0;
        // Of a packed body, all that is there now.
        let mut bytes = match (state.body.is_packed(), goal) {
            (false, _) => 0,
            (true, Goal::Heat) => state.body.raw_bytes(),
            (true, _) => state.body.asked_bytes(),
        };
        merge(&state.body, &newest.pending, newest.expired_by_ms, |merged| match merged {
            Merged::Kept(_, entry) => {
                records += 1;
                bytes += match (goal, tokens(state), entry.kind) {
                    _ if state.body.is_packed() => return,
                    (Goal::Heat, Some(dictionary), Kind::Coded) => {
                        dictionary.raw_len(entry.payload).unwrap_or(entry.payload.len())
                    }
                    _ => entry.payload.len(),
                } + 8
            }
            Merged::Fresh(entry, _) => {
                records += 1;
                bytes += entry.payload.len() + entry.key.len() + 8;
            }
            Merged::Dropped(_) | Merged::Expired(_) => {}
        });
        records <= self.limits.records_max && bytes <= self.limits.bytes_max
    }

    /// Merges and codes the records of adjacent leaves and cuts them into bodies. Other work is done `meanwhile`, if a
    /// device packs their blocks.
    pub(crate) fn plan<'a>(
        &self,
        leaves: &'a [(&'a LeafState, Newest<'a>)],
        goal: Goal,
        scratch: &mut Scratch,
        meanwhile: &mut dyn FnMut(),
    ) -> Pieces {
        let current = self.dictionaries.current();
        let first = leaves[0].0;
        let same_dictionary = leaves.iter().all(|(state, _)| generation(state) == generation(first));
        let heated = goal == Goal::Heat || (goal == Goal::Keep && first.heated);
        let target = match (goal, &first.coding) {
            _ if heated => None,
            (Goal::Keep, Some(own))
                if same_dictionary && (has_dictionary(first) || !self.dictionaries.has_current()) =>
            {
                Some(own.clone())
            }
            _ => current,
        };
        if let Some(Coding::Blocks(coding)) = &target {
            return self.plan_packed(leaves, coding, goal, scratch, meanwhile);
        }
        let target_generation = target.as_ref().map(Coding::generation);
        let mut pieces = Pieces { coding: target.clone(), heated, ..Pieces::default() };

        // Values that must change their coding are decoded first. A damaged value keeps the whole leaf as it is. Its
        // bytes are never lost, and a get of it names the damage.
        scratch.raw.clear();
        let mut decoded: Vec<Vec<Option<(usize, usize)>>> = Vec::with_capacity(leaves.len());
        for (state, _) in leaves {
            let mut spans = Vec::new();
            if heated || goal == Goal::Recode || generation(state) != target_generation {
                let mut unpacked = Unpacked::with(read_ahead(state));
                for index in 0..state.body.len() {
                    let payload = state.body.found(index, state.coding.as_ref()).payload;
                    spans.push(match payload {
                        Payload::Coded(..) | Payload::Packed(_) => {
                            match decode(&payload, &mut unpacked, &mut scratch.raw) {
                                None if leaves.len() == 1 && goal != Goal::Keep => {
                                    self.stats.damaged.raise();
                                    return self.plan(leaves, Goal::Keep, scratch, meanwhile);
                                }
                                span => span,
                            }
                        }
                        _ => None,
                    });
                }
            }
            decoded.push(spans);
        }

        let mut entries: Vec<Entry<'_>> = Vec::with_capacity(self.limits.records_max + 16);
        let mut uncoded: Vec<usize> = Vec::new();
        // Entries of large values that change their coding, if the merge keeps them.
        let mut larges: Vec<usize> = Vec::new();
        let mut fresh = 0;
        let mut fresh_at_end = 0;
        let evicts = leaves.iter().all(|(_, newest)| newest.is_weighed);
        for ((state, newest), spans) in leaves.iter().zip(&decoded) {
            let dictionary = tokens(state);
            pieces.evicted += newest.evicted;
            merge(&state.body, &newest.pending, newest.expired_by_ms, |merged| match merged {
                Merged::Kept(index, mut entry) => {
                    if evicts {
                        pieces.marks.push(newest.mark(index));
                    }
                    if entry.kind == Kind::Packed {
                        // A value that could not be unpacked has no place in a body without blocks.
                        entry.kind = Kind::Lost;
                    }
                    if let Some((start, end)) = spans.get(index).copied().flatten() {
                        entry.kind = Kind::Raw;
                        entry.payload = &scratch.raw[start..end];
                    }
                    if entry.kind == Kind::Large && !spans.is_empty() {
                        larges.push(entries.len());
                    }
                    if entry.kind == Kind::Raw && !spans.is_empty() {
                        uncoded.push(entries.len());
                    }
                    entries.push(entry);
                    fresh_at_end = 0;
                }
                Merged::Fresh(entry, mark) => {
                    if evicts {
                        pieces.marks.push(mark);
                    }
                    if entry.kind == Kind::Raw {
                        uncoded.push(entries.len());
                    }
                    pieces.records += 1;
                    pieces.logical_bytes +=
                        (entry.key.len() as u64 + raw_len(entry.kind, entry.payload, None)) as i64;
                    entries.push(entry);
                    fresh += 1;
                    fresh_at_end += 1;
                }
                Merged::Dropped(index) => {
                    let record = state.body.record(index);
                    let key_bytes = state.body.prefix().len() + record.suffix.len();
                    let value_bytes = match (record.tag.kind(), spans.get(index).copied().flatten()) {
                        (Kind::Packed, Some((start, end))) => (end - start) as u64,
                        (kind, _) => raw_len(kind, record.payload, dictionary),
                    };
                    pieces.records -= 1;
                    pieces.logical_bytes -= (key_bytes as u64 + value_bytes) as i64;
                    if record.tag.kind() == Kind::Large {
                        pieces.released.push(array(record.payload));
                    }
                }
                Merged::Expired(pending) => {
                    if pending.kind == Kind::Large {
                        pieces.released.push(array(pending.value));
                    }
                }
            });
            pieces.released.extend(newest.shadowed.iter().map(|reference| array(reference)));
        }

        let references: Vec<Option<[u8; 8]>> = larges
            .iter()
            .map(|index| self.recode_reference(entries[*index].payload, target.as_ref(), &mut pieces))
            .collect();
        for (index, reference) in larges.iter().zip(&references) {
            if let Some(reference) = reference {
                entries[*index].payload = reference;
            }
        }

        if let Some(Coding::Tokens(dictionary)) = &target {
            let values: Vec<&[u8]> = uncoded.iter().map(|index| entries[*index].payload).collect();
            let effort = if goal == Goal::Recode { Effort::Dense } else { Effort::Fast };
            if effort == Effort::Fast {
                pieces.loose =
                    leaves.iter().map(|(state, _)| usize::from(state.loose)).sum::<usize>() + values.len();
            }
            scratch.coded.encode(dictionary, &mut scratch.encoder, effort, &values);
            for (index, coded) in uncoded.iter().zip(scratch.coded.values()) {
                self.code_entry(&mut entries[*index], coded, &mut pieces);
            }
        }
        // Neighbours are taken together to fill the left one, and a load in key order leaves full bodies behind.
        let fill = leaves.len() > 1 || 2 * fresh_at_end > fresh;
        pieces.bodies = cut(&entries, fill, self.limits, &mut scratch.builder);
        pieces
    }

    /// Codes the large value of a record that stays with another dictionary: its new reference, or `None` when it stays
    /// as it is. The old one goes with the pack.
    pub(super) fn recode_reference(
        &self,
        reference: &[u8],
        target: Option<&Coding>,
        pieces: &mut Pieces,
    ) -> Option<[u8; 8]> {
        // SAFETY: the record of a readable state owns its reference.
        let old = unsafe { LargeHandle::borrow(reference) };
        let new = recode_large(old, target, self)?;
        let recoded = LargeHandle::to(&new).reference();
        pieces.recoded.push(new);
        pieces.released.push(array(reference));
        Some(recoded)
    }
}

/// Appends a coded or packed value to `raw`, and says where it lies there; `None` if it is damaged.
fn decode(payload: &Payload<'_>, unpacked: &mut Unpacked, raw: &mut Vec<u8>) -> Option<(usize, usize)> {
    let start = raw.len();
    match payload {
        Payload::Coded(coded, dictionary) => {
            dictionary.decode_append(coded, raw, INLINE_LIMIT).ok()?;
        }
        Payload::Packed(packed) => raw.extend_from_slice(unpacked.value(packed).ok()?),
        _ => return None,
    }
    Some((start, raw.len()))
}

/// A large value coded with another dictionary; `None` when it stays as it is.
fn recode_large(old: LargeHandle<'_>, target: Option<&Coding>, core: &Core) -> Option<Arc<Large>> {
    let target = target?;
    let generation = target.generation();
    if old.generation() == Some(generation) || old.len() > RECODED_BYTES_MAX {
        return None;
    }
    if let Some(known) = old.recoded(generation) {
        return known;
    }
    // A copy of a value on SSD keeps its coding, so that its pieces need not be written again. A raw value that several
    // names share stays raw, so that they need no second one.
    if old.is_copied() || old.generation().is_none() && old.is_shared() {
        return None;
    }
    let mut raw = Vec::new();
    // No epoch waits for the SSD.
    old.read_in_memory(usize::MAX, &mut raw)?.ok()?;
    let new = Large::new(&raw, Some(target), core.place_like(&old), core.gauges.reserve(0), &core.gauges);
    // One that was coded before must change, so that its dictionary can go.
    let changes = old.generation().is_some() || new.stored_bytes() < old.stored_bytes();
    old.note_recoded(generation, changes.then(|| Arc::new(new)))
}

/// Cuts sorted entries into bodies, at least one, each with the lowest key that its leaf is to own. With `fill` the
/// bodies are full ones and a rest. Otherwise they are of like size, if one body is not enough.
fn cut(entries: &[Entry<'_>], fill: bool, limits: BodyLimits, builder: &mut Builder) -> Vec<(Vec<u8>, Body)> {
    if entries.is_empty() {
        return vec![(Vec::new(), Body::empty())];
    }
    if !fill && entries.len() <= limits.records_max && Builder::size(entries) <= limits.bytes_max {
        return vec![(Vec::new(), builder.build(entries))];
    }
    let mut bodies = Vec::new();
    let mut start = 0;
    while start < entries.len() {
        let rest = &entries[start..];
        let mut count = Builder::fitting(&rest[..rest.len().min(limits.records_full)], limits.bytes_full);
        if !fill {
            count = count.min(rest.len().div_ceil(rest.len().div_ceil(count)));
        }
        let low = if start == 0 { Vec::new() } else { separator(entries[start - 1].key, rest[0].key) };
        bodies.push((low, builder.build(&rest[..count])));
        start += count;
    }
    bodies
}

/// The shortest key that is above `below` and not above `first`.
pub(super) fn separator(below: EntryKey<'_>, first: EntryKey<'_>) -> Vec<u8> {
    let mut separator = first.to_vec();
    separator.truncate(below.shared(&first) + 1);
    separator
}
