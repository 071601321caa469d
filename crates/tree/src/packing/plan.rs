//! Planning a pack: coding and cutting merged records, of one leaf or of two neighbours.

use std::sync::Arc;

use ziptier_codec::token::Effort;

use super::cut::Uncut;
use super::gather::{Gathered, Leaves, Origin, Spans};
use super::{Goal, Pieces, Planner, Scratch, read_ahead, tokens};
use crate::blocks::Unpacked;
use crate::body::Entry;
use crate::coding::Coding;
use crate::form::Form;
use crate::large::{Large, LargeHandle};
use crate::leaf::LeafState;
use crate::merge::Merged;
use crate::numbers::array;
use crate::record::{Kind, Payload};
use crate::sizes::INLINE_BYTES_MAX;
use crate::tree::Tree;

/// Large values above this keep the coding they were written with: recoding one would take a thread for seconds.
const RECODED_BYTES_MAX: u64 = 64 << 20;

impl Planner<'_> {
    /// Whether merged records of one leaf stay within one body, counting updates once. Sizes are taken before coding,
    /// so a leaf close to the limit may be closed for nothing.
    pub(super) fn fits_one_body(&self, gathered: &Gathered<'_>, goal: Goal) -> bool {
        let state = gathered.leaves[0].state;
        let is_packed = state.body.is_packed();
        // Of a packed body, all that is there now.
        let mut bytes = match (is_packed, goal) {
            (false, _) => 0,
            (true, Goal::Heat) => state.body.raw_bytes(),
            (true, _) => state.body.asked_bytes(),
        };
        for (entry, origin) in gathered.entries.iter().zip(&gathered.origins) {
            bytes += match (origin.place, goal, tokens(state), entry.kind) {
                (None, ..) => entry.payload.len() + entry.key.len() + 8,
                (Some(_), ..) if is_packed => 0,
                (Some(_), Goal::Heat, Some(dictionary), Kind::Coded) => {
                    dictionary.raw_len(entry.payload).unwrap_or(entry.payload.len()) + 8
                }
                (Some(_), Goal::Heat, Some(dictionary), Kind::Recoded) => {
                    dictionary.recoded_raw_len(entry.payload).unwrap_or(entry.payload.len()) + 8
                }
                (Some(_), ..) => entry.payload.len() + 8,
            };
        }
        gathered.entries.len() <= self.tree.limits.records_max && bytes <= self.tree.limits.bytes_max
    }

    /// Codes the records of adjacent leaves and cuts them into bodies. Other work is done `meanwhile`, if a
    /// device packs their blocks.
    pub fn plan(
        &self,
        leaves: Leaves<'_>,
        goal: Goal,
        scratch: &mut Scratch,
        meanwhile: &mut dyn FnMut(),
    ) -> Pieces {
        self.plan_gathered(Gathered::of(leaves), goal, scratch, meanwhile)
    }

    /// Codes the new records of one cold leaf and builds its overlay, which stays one body.
    pub(super) fn plan_upper(&self, merged: Merged<'_>, scratch: &mut Scratch) -> Pieces {
        let current = || self.tree.dictionaries.current().filter(|current| current.tokens().is_some());
        let form = Form::of(merged.state.form.coding().or_else(current));
        let leaves = [merged];
        // An overlay keeps its coding, so nothing is decoded.
        let decoded = [Spans::new()];
        let mut pieces = counted(&leaves, &decoded);
        let Gathered { mut entries, origins, .. } = Gathered::of(&leaves);
        if let Some(dictionary) = form.tokens() {
            let uncoded = take_decoded(&mut entries, &origins, &decoded, &[]);
            let Scratch { encoder, coded, .. } = scratch;
            self.code_values(uncoded, dictionary, Effort::Fast, encoder, coded, &mut pieces);
        }
        let body = scratch.builder.build(&entries, None);
        pieces.form = if body.is_empty() { Form::Raw } else { form };
        pieces.bodies = vec![(Vec::new(), body)];
        pieces
    }

    /// As [`Planner::plan`], of records that are merged already.
    pub(super) fn plan_gathered(
        &self,
        gathered: Gathered<'_>,
        goal: Goal,
        scratch: &mut Scratch,
        meanwhile: &mut dyn FnMut(),
    ) -> Pieces {
        let target = self.target(gathered.leaves, goal);
        if let Some(coding) = target.blocks() {
            return self.plan_packed(gathered, coding, goal, scratch, meanwhile);
        }
        let Some(decoded) = decode_all(gathered.leaves, &target, goal, &mut scratch.raw) else {
            self.tree.stats.damaged.raise();
            // A landing may take the place of the damaged value.
            let keeps_damage = gathered.leaves.iter().all(|merged| merged.gone().next().is_none());
            let mut kept = self.plan_gathered(gathered, Goal::Keep, scratch, meanwhile);
            if keeps_damage {
                kept.form.keep_damage();
            }
            return kept;
        };
        let mut pieces = counted(gathered.leaves, &decoded);
        let fill = gathered.fills();
        let stays = gathered.leaves.iter().zip(&decoded).filter(|(_, spans)| spans.is_empty());
        let stays = stays.map(|(merged, _)| merged.state);
        let plain: usize = stays.clone().map(|state| usize::from(state.form.plain())).sum();
        let loose: usize = stays.map(|state| usize::from(state.form.loose())).sum();
        let Gathered { mut entries, origins, .. } = gathered;
        let is_decoded = |origin: &Origin| !decoded[origin.leaf].is_empty();
        let references =
            self.recode_larges(&entries, &origins, is_decoded, target.coding().as_ref(), &mut pieces);
        references.iter().for_each(|(index, reference)| entries[*index].payload = reference);
        let Scratch { builder, encoder, coded, renumbered, raw, .. } = scratch;
        if let Some(dictionary) = target.tokens() {
            pieces.relaxed_bytes = coded.renumber(&mut entries, goal, dictionary, renumbered);
        }
        let uncoded = take_decoded(&mut entries, &origins, &decoded, raw);
        if let Some(dictionary) = target.tokens() {
            pieces.loose = loose + goal.loose(uncoded.len());
            pieces.plain = match goal {
                Goal::Condense => 0,
                Goal::Relax => origins.len(),
                _ => plain + goal.plain(uncoded.len(), dictionary),
            };
            self.code_values(uncoded, dictionary, goal.effort(), encoder, coded, &mut pieces);
        }
        let uncut = Uncut { entries: &entries, blocks: None, limits: self.tree.limits };
        pieces.bodies = uncut.cut(fill, builder);
        pieces.form = target;
        pieces
    }

    /// The form that a plan gives the bodies.
    fn target(&self, leaves: Leaves<'_>, goal: Goal) -> Form {
        let first = &leaves[0].state.form;
        let generation = first.generation();
        let stays = || {
            goal.keeps_tokens()
                && leaves.iter().all(|merged| merged.state.form.generation() == generation)
                && (first.has_dictionary() || !self.tree.dictionaries.has_current())
        };
        match first {
            _ if goal == Goal::Heat => Form::Hot,
            Form::Hot if goal.keeps_form() => Form::Hot,
            Form::Coded { .. } | Form::Packed { .. } if stays() => first.renewed(),
            _ => Form::of(self.tree.dictionaries.current()),
        }
    }

    /// Codes the large values of those bodies' records that `picks` picks with another dictionary. Returns the new
    /// references of the entries that change.
    pub(super) fn recode_larges(
        &self,
        entries: &[Entry<'_>],
        origins: &[Origin],
        picks: impl Fn(&Origin) -> bool,
        target: Option<&Coding>,
        pieces: &mut Pieces,
    ) -> Vec<(usize, [u8; 8])> {
        let mut recode = |reference: &[u8]| {
            // SAFETY: the record of a readable state owns its reference.
            let old = unsafe { LargeHandle::borrow(reference) };
            let new = recode_large(old, target, self.tree)?;
            let recoded = LargeHandle::to(&new).reference();
            pieces.recoded.push(new);
            // The old one goes with the pack.
            pieces.released.push(array(reference));
            Some(recoded)
        };
        let records = entries.iter().zip(origins).enumerate();
        records
            .filter(|(_, (entry, origin))| {
                entry.kind == Kind::Large && origin.place.is_some() && picks(origin)
            })
            .filter_map(|(index, (entry, _))| Some((index, recode(entry.payload)?)))
            .collect()
    }
}

/// The changes of a merge of leaves, some of whose values were decoded.
fn counted(leaves: Leaves<'_>, decoded: &[Spans]) -> Pieces {
    let mut pieces = Pieces::default();
    leaves.iter().zip(decoded).for_each(|(merged, values)| pieces.count(merged, values));
    pieces
}

/// Decodes the values of those leaves whose coding is not that of `target`. `None` if a value is damaged and the leaf
/// can stay as it is: the bytes of the value are never lost then, and a get of the value names the damage.
fn decode_all(leaves: Leaves<'_>, target: &Form, goal: Goal, raw: &mut Vec<u8>) -> Option<Vec<Spans>> {
    raw.clear();
    let may_stay = leaves.len() == 1 && !goal.keeps_form();
    let changes = |state: &LeafState| goal == Goal::Recode || !target.codes_as(&state.form);
    let mut decode_leaf = |state: &LeafState| {
        let mut unpacked = Unpacked::with(read_ahead(state));
        let mut decode_record = |place: usize| {
            let payload = state.body.found(place, &state.form).payload;
            if !matches!(payload, Payload::Coded(..) | Payload::Recoded(..) | Payload::Packed(_)) {
                return Some(None);
            }
            let span = decode(&payload, &mut unpacked, raw);
            (span.is_some() || !may_stay).then_some(span)
        };
        (0..state.body.len()).map(&mut decode_record).collect()
    };
    leaves
        .iter()
        .map(|merged| if changes(merged.state) { decode_leaf(merged.state) } else { Some(Spans::new()) })
        .collect()
}

/// Puts `decoded` values, which lie in `raw`, in place of coded ones. Returns the entries with raw values to be coded.
fn take_decoded<'e, 'a>(
    entries: &'e mut [Entry<'a>],
    origins: &[Origin],
    decoded: &[Spans],
    raw: &'a [u8],
) -> Vec<&'e mut Entry<'a>> {
    let mut uncoded = Vec::new();
    for (entry, origin) in entries.iter_mut().zip(origins) {
        let spans = &decoded[origin.leaf];
        if let Some((start, end)) = origin.place.and_then(|place| *spans.get(place)?) {
            (entry.kind, entry.payload) = (Kind::Raw, &raw[start..end]);
        } else if entry.kind == Kind::Packed || entry.kind.is_coded() && !spans.is_empty() {
            // A value that could not be decoded has no place in a body of another coding.
            (entry.kind, entry.payload) = (Kind::Lost, &[]);
        }
        if entry.kind == Kind::Raw && (origin.place.is_none() || !spans.is_empty()) {
            uncoded.push(entry);
        }
    }
    uncoded
}

/// Appends a coded or packed value to `raw`, and says where it lies there; `None` if it is damaged.
fn decode(payload: &Payload<'_>, unpacked: &mut Unpacked, raw: &mut Vec<u8>) -> Option<(usize, usize)> {
    let start = raw.len();
    match payload {
        Payload::Coded(coded, dictionary) => {
            dictionary.decode_append(coded, raw, INLINE_BYTES_MAX).ok()?;
        }
        Payload::Recoded(coded, dictionary) => {
            dictionary.decode_recoded(coded, raw, INLINE_BYTES_MAX).ok()?;
        }
        Payload::Packed(packed) => raw.extend_from_slice(unpacked.value(packed).ok()?),
        _ => return None,
    }
    Some((start, raw.len()))
}

/// A large value coded with another dictionary; `None` when it stays as it is.
fn recode_large(old: LargeHandle<'_>, target: Option<&Coding>, tree: &Tree) -> Option<Arc<Large>> {
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
    // What is damaged stays, since a coding of it would be taken for sound.
    if old.is_copied() || old.generation().is_none() && old.is_shared() || !old.is_whole() {
        return None;
    }
    let mut raw = Vec::new();
    // No epoch waits for the SSD.
    old.read_in_memory(usize::MAX, &mut raw)?.ok()?;
    let new = Large::new(&raw, Some(target), tree.place_like(&old), tree.gauges.reserve(0), &tree.gauges);
    // One that was coded before must change, so that its dictionary can go.
    let changes = old.generation().is_some() || new.stored_bytes() < old.stored_bytes();
    old.note_recoded(generation, changes.then(|| Arc::new(new)))
}

// A dictionary is trained, which takes Miri long.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use ziptier_codec::token::Dictionary;

    use super::*;
    use crate::alone::Alone;
    use crate::body::{Body, Builder, EntryKey, fingerprint};
    use crate::codec_options::CodecChoice;
    use crate::leaf::RightSibling;
    use crate::merge::merge;
    use crate::pending::Newest;
    use crate::record::{Fields, key_hash};
    use crate::retention::KeepsAll;

    fn state(key: &[u8], kind: Kind, payload: &[u8], coding: Option<Coding>) -> LeafState {
        let fingerprint = fingerprint(key_hash(key));
        let entry =
            Entry { key: EntryKey::whole(key), fingerprint, kind, fields: Fields::default(), payload };
        let state = LeafState::new(Builder::default().build(&[entry], None), None, RightSibling::none());
        LeafState { form: Form::of(coding), ..state }
    }

    /// Its bytes say nothing to another dictionary, and a body without one cannot have them at all.
    #[test]
    fn a_damaged_value_is_lost_when_its_leaf_is_joined_with_one_of_another_coding() {
        let alone = Alone::new(CodecChoice::Token);
        let coding = |generation| {
            let tokens = Dictionary::train(&[b"abcabcabcabc"], 12, generation).expect("the sample is sound");
            Some(Coding::Tokens(Arc::new(tokens)))
        };
        for left_coding in [None, coding(1)] {
            let mut left = state(b"a", Kind::Raw, b"value", left_coding);
            if left.form.coding().is_none() {
                left.form = Form::Hot;
            }
            let right = state(b"b", Kind::Coded, &[0xff; 9], coding(2));
            let leaves = [&left, &right].map(|state| merge(state, Newest::default(), &mut KeepsAll));
            let pieces =
                Scratch::with(|scratch| alone.tree.planner().plan(&leaves, Goal::Keep, scratch, &mut || ()));
            let found = |key: &[u8]| {
                let mut bodies = pieces.bodies.iter().map(|(_, body)| body);
                let place = |body: &Body| Some((body.find(key, key_hash(key))?, body.clone()));
                let (place, body) = bodies.find_map(place).expect("both keys are there");
                matches!(body.found(place, &pieces.form).payload, Payload::Lost)
            };
            assert_eq!((found(b"a"), found(b"b")), (false, true));
        }
    }
}
