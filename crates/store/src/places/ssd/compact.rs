//! Compaction: the overlay of a cold leaf is merged with the images that its records lie above, and those images are
//! written anew.
//!
//! Other images stay where they are. So does an image that cannot be read, with the records above it.

use std::sync::Arc;

use ziptier_media::segments::SegmentError;
use ziptier_tree::below::{Below, Image, Part};
use ziptier_tree::body::{Builder, Entry};
use ziptier_tree::coding::Coding;
use ziptier_tree::extent::Extent;
use ziptier_tree::leaf::{Leaf, LeafState};
use ziptier_tree::merge::merge;
use ziptier_tree::packing::{Pieces, Scratch, upper_records};
use ziptier_tree::pending::{Newest, Pending};
use ziptier_tree::read::{Copied, copy_found};
use ziptier_tree::record::{Fields, Found, Kind, Payload};
use ziptier_tree::retention::KeepsAll;

use super::demote::{Written, image_state, merge_goal, overlay_state};
use crate::places::Moves;

/// Records of an overlay on their way down, their values raw.
pub(super) struct Upper {
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    kinds: Vec<(Kind, Fields, u8)>,
}

impl Upper {
    /// All records of `state`'s body; a value that is damaged is the error.
    pub(super) fn of(state: &LeafState) -> Result<Self, String> {
        let body = &state.body;
        let mut upper = Self { keys: Vec::new(), values: Vec::new(), kinds: Vec::new() };
        for index in 0..body.len() {
            let Entry { key, fingerprint, kind, fields, payload } = body.entry(index);
            let mut value = Vec::new();
            let kind = match kind {
                Kind::Coded | Kind::Recoded => match copy_found(body.found(index, &state.form), &mut value) {
                    Copied::Damaged(reason) => return Err(reason),
                    _ => Kind::Raw,
                },
                kind => {
                    value.extend_from_slice(payload);
                    kind
                }
            };
            upper.keys.push(key.to_vec());
            upper.values.push(value);
            upper.kinds.push((kind, fields, fingerprint));
        }
        Ok(upper)
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn key(&self, index: usize) -> &[u8] {
        &self.keys[index]
    }

    /// Record `index` as a landing would have it.
    pub(super) fn pending(&self, index: usize) -> Pending<'_> {
        let (kind, fields, fingerprint) = self.kinds[index];
        Pending { key: &self.keys[index], fingerprint, kind, fields, value: &self.values[index] }
    }

    /// A record as an image is merged with it. A large value stays above, so that nothing of it is wanted below.
    fn pending_below(&self, index: usize) -> Pending<'_> {
        let pending = self.pending(index);
        match pending.kind {
            Kind::Large => Pending::tombstone(pending.key, pending.fingerprint),
            _ => pending,
        }
    }
}

/// A list of images after a compaction.
struct Compacted<'t> {
    written: Written<'t>,
    /// The end of the leaf.
    high: Option<Arc<[u8]>>,
    /// The codings of the images that were written anew.
    codings: Vec<Coding>,
    replaced: Vec<Extent>,
    /// Indices of upper records that stay above.
    staying: Vec<usize>,
    changed: Pieces,
}

impl Moves<'_> {
    /// Merges the overlay of a leaf with its images. The caller owns the leaf, whose state is `state`. The caller holds
    /// no guard.
    pub(super) fn compact(&self, leaf: &Leaf, state: &LeafState) -> Result<bool, SegmentError> {
        let (Some(cold), Some(below)) = (&self.cold, &state.below) else { return Ok(false) };
        if state.body.is_empty() {
            return Ok(false);
        }
        let Ok(upper) = Upper::of(state) else { return Ok(false) };
        let deletes = (0..upper.len()).filter(|index| upper.pending(*index).kind == Kind::Tombstone).count();
        let mut compacted = Compacted {
            written: Written::new(&cold.tier, 2 * deletes > upper.len()),
            high: state.high.clone(),
            codings: Vec::new(),
            replaced: Vec::new(),
            staying: Vec::new(),
            changed: Pieces::default(),
        };
        let mut from = 0;
        for (image, part) in below.parts(&leaf.low()).into_iter().enumerate() {
            let mut to = from;
            while to < upper.len() && below.image_of(upper.key(to)) == image {
                to += 1;
            }
            self.compact_into(&upper, from..to, below, image, part, &mut compacted)?;
            from = to;
        }
        if compacted.staying.len() == upper.len() {
            return Ok(false);
        }
        self.publish_compacted(leaf, state, below, compacted);
        self.split_cold(leaf);
        self.tree.stats.merged_on_ssd.raise();
        Ok(true)
    }

    /// Merges records of the overlay with the image that they lie above.
    fn compact_into(
        &self,
        upper: &Upper,
        records: std::ops::Range<usize>,
        below: &Arc<Below>,
        index: usize,
        part: Part,
        compacted: &mut Compacted<'_>,
    ) -> Result<(), SegmentError> {
        let is_large = |index: &usize| upper.pending(*index).kind == Kind::Large;
        if records.clone().all(|index| is_large(&index)) {
            compacted.staying.extend(records);
            compacted.written.keep(part);
            return Ok(());
        }
        let image = self.tree.read_image(below, index);
        let Some(image) =
            image.ok().filter(|image| image.body.lies_within(&part.low, compacted.high.as_deref()))
        else {
            compacted.staying.extend(records);
            compacted.written.keep(part);
            return Ok(());
        };
        compacted.staying.extend(records.clone().filter(is_large));
        let pending: Vec<_> = records.map(|index| upper.pending_below(index)).collect();
        if pending.iter().all(|record| is_known(&image, record)) {
            compacted.written.keep(part);
            return Ok(());
        }
        let added_bytes: usize = pending.iter().map(|record| record.key.len() + record.value.len()).sum();
        compacted.written.ask((image.body.asked_bytes() + added_bytes).min(self.tree.limits.bytes_max))?;
        #[cfg(test)]
        self.tree.stats.tried_merges.raise();
        let state = image_state(&image.body, &image.form);
        let goal = merge_goal(self.tree, &state);
        // Only large values are touched above images, and those stay there.
        let mut newest = Newest::from(pending);
        newest.expired_by_ms = self.tree.drops_expired_by_ms(&newest, &image.body);
        let pieces = Scratch::with(|scratch| {
            self.tree.planner().plan(&[merge(&state, newest, &mut KeepsAll)], goal, scratch, &mut || ())
        });
        for (low, body) in pieces.bodies.iter().filter(|(_, body)| !body.is_empty()) {
            let low = if low.is_empty() { part.low.clone() } else { low.clone() };
            compacted.written.add(low, body, &pieces.form)?;
        }
        pieces.form.coding().iter().for_each(|coding| add_coding(&mut compacted.codings, coding));
        compacted.replaced.push(part.place);
        compacted.changed.records += pieces.records;
        compacted.changed.logical_bytes += pieces.logical_bytes;
        compacted.changed.coded_raw_bytes += pieces.coded_raw_bytes;
        compacted.changed.coded_bytes += pieces.coded_bytes;
        Ok(())
    }

    fn publish_compacted(
        &self,
        leaf: &Leaf,
        state: &LeafState,
        below: &Arc<Below>,
        mut compacted: Compacted<'_>,
    ) {
        let logical_bytes = below.logical_bytes() as i64 + compacted.changed.logical_bytes;
        if compacted.replaced.len() < below.len() {
            below.codings().iter().for_each(|coding| add_coding(&mut compacted.codings, coding));
        }
        let list = (!compacted.written.parts.is_empty()).then(|| {
            let Compacted { written, codings, .. } = &compacted;
            Below::new(below.files().clone(), &written.parts, codings.clone(), logical_bytes.max(0) as u64)
        });
        let entries: Vec<_> = compacted.staying.iter().map(|index| state.body.entry(*index)).collect();
        let upper = Builder::default().build(&entries, None);
        let (before, before_bytes) = upper_records(state);
        let staying = overlay_state(&upper, &state.form);
        let (after, after_bytes) = upper_records(&staying);
        compacted.changed.records += after - before;
        compacted.changed.logical_bytes += after_bytes - before_bytes;
        self.tree.account(&compacted.changed);
        let guard = self.tree.pin();
        // A thread that decides by the record of a key in memory holds this lock. It must not find the record gone
        // between two looks.
        let writer = leaf.lock_writer();
        loop {
            let current = leaf.state(&guard);
            let new = LeafState {
                body: upper.clone(),
                below: list.clone(),
                form: staying.form.clone(),
                // It would still say the same, but of what lies below now.
                stored: None,
                ..current.clone()
            };
            if leaf.publish(current, new, &guard) {
                break;
            }
        }
        leaf.note_append();
        drop(writer);
        compacted.written.owned();
        below.hand_on();
        compacted.replaced.iter().for_each(|place| below.files().release(*place));
        guard.flush();
    }
}

/// Adds a coding that is not there yet.
pub(crate) fn add_coding(codings: &mut Vec<Coding>, coding: &Coding) {
    if !codings.iter().any(|known| known.generation() == coding.generation()) {
        codings.push(coding.clone());
    }
}

/// Whether an image says the same as a record above it.
fn is_known(image: &Image, record: &Pending<'_>) -> bool {
    match image.find(record.key) {
        None => record.kind == Kind::Tombstone,
        Some(found) => record.kind == Kind::Raw && is_same(found, record),
    }
}

fn is_same(found: Found<'_>, record: &Pending<'_>) -> bool {
    let fields = (found.expires_at_ms, found.flags);
    if fields != (record.fields.expires_at_ms, record.fields.flags) {
        return false;
    }
    let mut value = Vec::new();
    match found.payload {
        Payload::Raw(bytes) => bytes == record.value,
        _ => matches!(copy_found(found, &mut value), Copied::Inline(_)) && value == record.value,
    }
}
