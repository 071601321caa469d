//! Packing: merging a leaf's landings into its body, and the splits and joins of leaves that follow from it.
//!
//! Not for choosing leaves: writers and the host do that. The caller owns the leaf.
//!
//! 1. A pack merges the sealed landing over the body. The open landing goes on taking writes.
//! 2. If one body is enough, the pack publishes it beside whatever landing is open by then.
//! 3. Otherwise the pack closes the leaf, takes the open landing in, and cuts the records into as many leaves as they
//!    need. A join closes two neighbours and does the same.
//! 4. The pack counts what it changed, releases large values that no record refers to any more, and gives new leaves
//!    the marks that the retention has for their records.
//!
//! | module | claim |
//! |---|---|
//! | `amend` | the common case: a few records change, and the body keeps its layout |
//! | `goal` | the form that a pack gives a body |
//! | `coded` | values on their way to tokens, and from one kind of token numbers to the other |
//! | `gather` | the merged records of several leaves |
//! | `plan` | the general case: gather, decode, encode, cut |
//! | `revise_blocks`, `plan_blocks` | the same for bodies whose values are packed in blocks |
//! | `open_blocks` | which of these blocks are unpacked, and where their values lie |
//! | `cut` | cutting records into bodies |
//! | `fill_blocks` | cutting a block so that a body is full |
//! | `restructure` | closing leaves, splits and joins |
//! | `scratch` | the memory in which a thread packs |

mod amend;
mod coded;
mod cut;
mod fill_blocks;
mod gather;
mod goal;
mod open_blocks;
mod plan;
mod plan_blocks;
mod restructure;
mod revise_blocks;
mod scratch;

use std::sync::Arc;

use crossbeam_epoch::Guard;
use ziptier_codec::token::Dictionary;

use self::gather::{Gathered, Spans};
pub use self::goal::Goal;
pub use self::scratch::Scratch;
use self::scratch::{PackedScratch, emptied};
use crate::blocks::{BlockCoding, Effort as BlockEffort, ReadAhead, Unpacked};
use crate::body::Body;
use crate::codec_options::CodecChoice;
use crate::form::Form;
use crate::host::Host;
use crate::landing::Landing;
use crate::large::Large;
use crate::leaf::{Leaf, LeafState};
use crate::marks::Mark;
use crate::memory::allocated_bytes;
use crate::merge::{Merged, merge};
use crate::numbers::array;
use crate::pending::{Newest, newest};
use crate::reclaim::Unreachable;
use crate::record::{Kind, Payload};
use crate::retention::Retention;
use crate::tree::Tree;

/// The coding and the effort with which blocks are packed.
#[derive(Clone, Copy)]
struct Packer<'a> {
    coding: &'a BlockCoding,
    effort: BlockEffort,
}

impl Packer<'_> {
    /// Bytes of values in a block.
    fn block_bytes(&self) -> usize {
        self.coding.block_bytes(self.effort)
    }

    /// How many of `records` packed so could be smaller.
    fn loose(&self, records: usize) -> usize {
        if self.effort == BlockEffort::Fast { records } else { 0 }
    }
}

/// Whether a pack may take bytes that the memory limit has no room for. A body grows by a size class of the allocator
/// at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// It may: a thread waits for the pack, or the body is on its way out of memory.
    Accepted,
    /// It may not, and is given up: nobody waits, and the landing holds the writes.
    Limited,
}

/// The terms of a pack.
#[derive(Clone, Copy)]
struct Terms {
    goal: Goal,
    growth: Growth,
}

/// The work of a pack: what it needs, besides the leaf.
pub struct Packs<'p> {
    tree: &'p Tree,
    host: &'p dyn Host,
    /// Decides which records stay.
    retention: &'p mut dyn Retention,
    guard: &'p Guard,
    scratch: &'p mut Scratch,
}

/// Bodies that take the place of one or two leaves' contents, each with the lowest key it owns, and what that
/// changes.
#[derive(Default)]
pub struct Pieces {
    /// The bodies in key order, each after the lowest key it owns. That of the first body is empty: its leaf has it.
    pub bodies: Vec<(Vec<u8>, Body)>,
    /// The form of all bodies, without counts. `Pieces::form_of` gives each body its share of those here.
    pub form: Form,
    /// Records that were coded fast, those of the leaves before included.
    pub loose: usize,
    /// Records whose token numbers have one width, and were not tried by entropy, those of the leaves before included.
    pub plain: usize,
    /// Records that come, less those that go.
    pub records: i64,
    /// Bytes of keys and values, as the user sees them, that come, less those that go.
    pub logical_bytes: i64,
    /// Large values coded anew, which the bodies refer to and own once they are published.
    pub recoded: Vec<Arc<Large>>,
    /// Large values that no record refers to any more.
    pub released: Vec<[u8; 8]>,
    /// Bytes of the values given to the encoder.
    pub coded_raw_bytes: u64,
    /// Bytes of them as coded, or raw if that was smaller; of tokens, by numbers of one width; of blocks, their frames.
    pub coded_bytes: u64,
    /// Bytes that values grew by because they were relaxed.
    pub relaxed_bytes: u64,
    /// Blocks packed fast.
    pub blocks_packed_fast: u64,
    /// Blocks packed densely.
    pub blocks_packed_dense: u64,
    /// Blocks unpacked for their values.
    pub blocks_unpacked: u64,
    /// Marks of all bodies' records, if the retention gives marks.
    pub marks: Vec<Mark>,
    /// Records that a retention dropped.
    pub dropped: u64,
}

impl Pieces {
    /// Counts the records that come and go by a merge, and releases the large values that go. Of records that go, those
    /// with a packed value have that among the decoded `values` of their leaf.
    fn count(&mut self, merged: &Merged<'_>, values: &Spans) {
        let tokens = tokens(merged.state);
        for entry in merged.fresh() {
            self.records += 1;
            self.logical_bytes += entry.logical_bytes(None) as i64;
        }
        for (place, entry) in merged.gone() {
            let span = values.get(place).copied().flatten().filter(|_| entry.kind == Kind::Packed);
            let packed_bytes = span.map_or(0, |(start, end)| end - start);
            self.records -= 1;
            self.logical_bytes -= entry.logical_bytes(tokens) as i64 + packed_bytes as i64;
        }
        self.released.extend(merged.released().map(array));
        self.dropped += merged.dropped;
    }

    /// The marks of one of the bodies, whose first record is `first` of all.
    fn marks_of(&self, first: usize, body: &Body) -> &[Mark] {
        self.marks.get(first..first + body.len()).unwrap_or_default()
    }

    /// The form of one of the bodies. Nobody knows in which bodies the loose and the plain records lie, nor the damaged
    /// value.
    fn form_of(&self, body: &Body) -> Form {
        let records: usize = self.bodies.iter().map(|(_, body)| body.len()).sum();
        let share = |count: usize| (count.min(records) * body.len()).div_ceil(records.max(1)) as u16;
        let form = if self.bodies.len() > 1 { self.form.renewed() } else { self.form.clone() };
        form.with_counts(share(self.loose), share(self.plain))
    }
}

/// Plans the bodies of packs. A plan changes nothing.
#[derive(Clone, Copy)]
pub struct Planner<'e> {
    tree: &'e Tree,
}

impl Planner<'_> {
    /// Whether coding a value pays. With `auto` it must save an eighth of the bytes, or a read costs more than the
    /// bytes are worth.
    fn pays(&self, raw_bytes: usize, coded_bytes: usize) -> bool {
        match self.tree.codec {
            CodecChoice::Auto => coded_bytes + raw_bytes / 8 < raw_bytes,
            CodecChoice::Token => coded_bytes < raw_bytes,
            _ => false,
        }
    }
}

impl Tree {
    /// Plans packs of its leaves.
    #[inline]
    pub fn planner(&self) -> Planner<'_> {
        Planner { tree: self }
    }

    /// The time by which a pack of the sealed landing of `leaf`, planned with `state`, may drop expired records. It
    /// drops none while another landing changes an expiry: that change must not lie above nothing.
    pub fn expired_by_ms(&self, leaf: &Leaf, state: &LeafState, newest: &Newest<'_>, guard: &Guard) -> u64 {
        let now_ms = self.expiry_now_ms();
        if !newest.expires(&state.body, now_ms) {
            return 0;
        }
        self.note_dropped();
        // A writer that changes an expiry makes sure under this lock that the key is there. A writer that did so before
        // that time is seen here. A later one finds the key gone.
        drop(leaf.lock_writer());
        let is_merged =
            |landing: &Landing| state.sealed.as_deref().is_some_and(|sealed| std::ptr::eq(sealed, landing));
        let is_touched = leaf.state(guard).landings().any(|landing| !is_merged(landing) && landing.touches());
        if is_touched { 0 } else { now_ms }
    }

    /// Notes damage of bodies in far memory that others were made from, before these are published. A checkpoint would
    /// take them for sound, and the log that has their records would go.
    pub fn note_damage(&self, leaves: &[&LeafState]) {
        if let Some(far) = &self.far
            && !leaves.iter().all(|state| state.body.is_whole())
        {
            far.note_damage();
            self.stats.damaged.raise();
        }
    }

    /// Counts the changes of a pack, before the pack is published. A thread that then sees no landing left also sees
    /// its records counted.
    pub fn account(&self, pieces: &Pieces) {
        self.gauges.records.change(pieces.records);
        self.gauges.logical.change(pieces.logical_bytes);
        if pieces.coded_raw_bytes > 0 {
            // Dense blocks do not tell how well fresh values are packed.
            let fresh = pieces.blocks_packed_dense == 0;
            self.dictionaries.note_coded(pieces.coded_raw_bytes, pieces.coded_bytes, fresh);
        }
        self.stats.evicted.add(pieces.dropped);
        self.stats.relaxed_bytes.add(pieces.relaxed_bytes);
        self.stats.blocks_packed_fast.add(pieces.blocks_packed_fast);
        self.stats.blocks_packed_dense.add(pieces.blocks_packed_dense);
        self.stats.blocks_unpacked.add(pieces.blocks_unpacked);
    }

    /// The bodies were published. Their records own the values that were coded anew, and the values that no record
    /// refers to any more are released.
    pub fn settle_large(&self, recoded: Vec<Arc<Large>>, released: Vec<[u8; 8]>, guard: &Guard) {
        for large in recoded {
            let _owned_by_record = large.into_reference();
        }
        released.into_iter().for_each(|reference| self.release_large(reference, guard));
    }

    /// Releases the large value of a record that no state refers to any more.
    pub fn release_large(&self, reference: [u8; 8], guard: &Guard) {
        // SAFETY: the record is gone from the published state, and the share is dropped when its readers are.
        let large = unsafe { Large::from_reference(&reference) };
        large.retire();
        let large = Unreachable::new(Box::into_raw(Box::new(large)));
        // SAFETY: the box is owned by this closure alone.
        unsafe { guard.defer_unchecked(move || drop(Box::from_raw(large.into_raw()))) };
    }
}

impl<'p> Packs<'p> {
    /// Packs of leaves of `tree`. Records stay that `retention` keeps.
    pub fn new(
        tree: &'p Tree,
        host: &'p dyn Host,
        retention: &'p mut dyn Retention,
        guard: &'p Guard,
        scratch: &'p mut Scratch,
    ) -> Self {
        Self { tree, host, retention, guard, scratch }
    }

    /// Packs `leaf`, which the caller owns and which is not on SSD: merges the sealed landing and gives the body the
    /// form of `goal`.
    pub fn pack(&mut self, leaf: &Leaf, goal: Goal) -> bool {
        let packed = self.pack_with(leaf, Terms { goal, growth: Growth::Accepted }, &mut || ());
        debug_assert!(packed, "a pack that may grow is never given up");
        packed
    }

    /// As [`Packs::pack`], for work in the background. The packer drops the result if the memory limit has no room for
    /// the new body. It then returns `false`, and the leaf is as it was.
    ///
    /// While a device packs the blocks, the thread runs `meanwhile`. It does not if it packs the blocks itself, or if
    /// writers wait for the leaf.
    pub fn pack_while(&mut self, leaf: &Leaf, goal: Goal, meanwhile: &mut dyn FnMut()) -> bool {
        self.pack_with(leaf, Terms { goal, growth: Growth::Limited }, meanwhile)
    }

    /// Merges `newest` into the overlay of a leaf on SSD, which the caller owns and whose state is `state`. The packer
    /// reads no image.
    pub fn pack_overlay(&mut self, leaf: &Leaf, state: &LeafState, newest: Newest<'_>) {
        let mut pieces = self.tree.planner().plan_upper(merge(state, newest, self.retention), self.scratch);
        self.keep_place(&[state], &mut pieces);
        self.publish_one(leaf, state, pieces);
    }

    /// Merges what landings of leaves, from left to right, say over their bodies.
    fn merge<'l, 'a>(
        &mut self,
        leaves: impl Iterator<Item = (&'l Leaf, &'a LeafState, Newest<'a>)>,
    ) -> Vec<Merged<'a>> {
        self.retention.begin();
        let merge_leaf = |(leaf, state, newest): (&Leaf, &'a LeafState, Newest<'a>)| {
            self.retention.begin_leaf(leaf, &state.body, newest.expired_by_ms, self.guard);
            merge(state, newest, self.retention)
        };
        leaves.map(merge_leaf).collect()
    }

    fn pack_with(&mut self, leaf: &Leaf, terms: Terms, meanwhile: &mut dyn FnMut()) -> bool {
        let state = leaf.state(self.guard);
        // The pack copies the whole body. Most of it arrives in the cache while the landing is sorted and coded.
        state.body.prefetch();
        let mut newest = newest(state.sealed.as_deref().into_iter(), &self.tree.commits);
        newest.expired_by_ms = self.tree.expired_by_ms(leaf, state, &newest, self.guard);
        let goal = terms.goal;
        let leaves = self.merge(std::iter::once((leaf, state, newest)));
        if goal.keeps_form()
            && let Some(amended) = self.tree.planner().amend(&leaves[0], goal, self.scratch, meanwhile)
        {
            return self.publish_packed(leaf, state, amended, terms);
        }
        let gathered = Gathered::of(&leaves);
        if !self.tree.planner().fits_one_body(&gathered, goal) {
            return self.split(leaf, terms);
        }
        let pieces = self.tree.planner().plan_gathered(gathered, goal, self.scratch, meanwhile);
        match pieces.bodies.len() {
            1 => self.publish_packed(leaf, state, pieces, terms),
            _ => self.split(leaf, terms),
        }
    }

    /// Publishes the result of packing the sealed landing of `leaf`; `false` if the pack is given up.
    fn publish_packed(&mut self, leaf: &Leaf, planned: &LeafState, mut pieces: Pieces, terms: Terms) -> bool {
        self.keep_place(&[planned], &mut pieces);
        let landing_bytes = planned.sealed.as_ref().map_or(0, |landing| landing.held_bytes());
        if terms.growth == Growth::Limited && !self.may_grow(&[planned], landing_bytes as u64, &pieces) {
            return false;
        }
        pieces.marks = self.retention.commit();
        self.publish_one(leaf, planned, pieces);
        true
    }

    /// Whether DRAM has room for `pieces` in place of the bodies of `leaves` and of landings of so many bytes. Nothing
    /// is evicted for that.
    fn may_grow(&self, leaves: &[&LeafState], landing_bytes: u64, pieces: &Pieces) -> bool {
        let held_bytes = |body: &Body| allocated_bytes(body.dram_bytes());
        let before =
            landing_bytes as usize + leaves.iter().map(|state| held_bytes(&state.body)).sum::<usize>();
        let after: usize = pieces.bodies.iter().map(|(_, body)| held_bytes(body)).sum();
        after <= before || self.host.has_room_for_growth(after - before)
    }

    /// Publishes the one body of `pieces`, made from `planned`, beside whatever landings the leaf has by now. A landing
    /// that was sealed after the plan was made is not in the body.
    fn publish_one(&self, leaf: &Leaf, planned: &LeafState, pieces: Pieces) {
        let guard = self.guard;
        self.tree.note_damage(&[planned]);
        self.tree.account(&pieces);
        loop {
            let current = leaf.state(guard);
            let new = LeafState {
                sealed: if planned.sealed.is_some() { None } else { current.sealed.clone() },
                body: pieces.bodies[0].1.clone(),
                form: pieces.form_of(&pieces.bodies[0].1),
                // An image that still has dropped records is not current.
                stored: current.stored.clone().filter(|_| pieces.dropped == 0),
                ..current.clone()
            };
            if leaf.publish(current, new, guard) {
                break;
            }
        }
        self.host.remember(leaf, &pieces.marks, guard);
        self.tree.settle_large(pieces.recoded, pieces.released, guard);
        self.host.seal_left(leaf, guard);
    }

    /// Moves the bodies of `pieces` to far memory if the leaves that they were made from lie there, and far memory has
    /// room. If one of two leaves lies in DRAM, they go to far memory only while DRAM is short. A heated body belongs
    /// in DRAM.
    fn keep_place(&self, leaves: &[&LeafState], pieces: &mut Pieces) {
        let Some(far) = &self.tree.far else { return };
        if pieces.form.is_hot() || !leaves.iter().any(|state| state.body.is_far()) {
            return;
        }
        let in_dram = leaves.iter().any(|state| !state.body.is_far() && !state.body.is_empty());
        if in_dram && !self.host.is_short() {
            return;
        }
        for (_, body) in pieces.bodies.iter_mut().filter(|(_, body)| !body.is_empty()) {
            if let Some(moved) = body.to_far(far) {
                *body = moved;
            }
        }
    }
}

/// Records of a state's body and their bytes.
pub fn settled(state: &LeafState) -> (i64, i64) {
    let tokens = tokens(state);
    let mut unpacked = Unpacked::with(read_ahead(state));
    let bytes = (0..state.body.len()).map(|index| {
        let packed_bytes = match state.body.found(index, &state.form).payload {
            Payload::Packed(packed) => unpacked.value(&packed).map_or(0, <[u8]>::len),
            _ => 0,
        };
        state.body.entry(index).logical_bytes(tokens) as i64 + packed_bytes as i64
    });
    (state.body.len() as i64, bytes.sum())
}

/// Records of a leaf that were counted as settled, and their bytes: records below that something shadows are among
/// them.
pub(crate) fn all_settled(state: &LeafState) -> (i64, i64) {
    match &state.below {
        None => settled(state),
        Some(below) => {
            let (records, bytes) = upper_records(state);
            (records + i64::from(below.records()), bytes + below.logical_bytes() as i64)
        }
    }
}

/// Records of an overlay that are no tombstones, and their bytes.
pub fn upper_records(state: &LeafState) -> (i64, i64) {
    let (records, bytes) = settled(state);
    let tombstones = (0..state.body.len())
        .map(|index| state.body.entry(index))
        .filter(|entry| entry.kind == Kind::Tombstone);
    tombstones.fold((records, bytes), |(records, bytes), entry| (records - 1, bytes - entry.key.len() as i64))
}

/// All blocks of a leaf, if a device unpacks them.
fn read_ahead(state: &LeafState) -> ReadAhead {
    state.form.blocks().map_or_else(ReadAhead::default, |coding| {
        ReadAhead::of(coding, state.body.frames_of(0..state.body.blocks()))
    })
}

/// The token dictionary of a leaf.
fn tokens(state: &LeafState) -> Option<&Dictionary> {
    state.form.tokens().map(|tokens| &**tokens)
}

#[cfg(all(test, not(any(miri, shuttle))))]
mod tests;
