//! Demotes a leaf to SSD: the body of a settled leaf becomes an image below it.
//!
//! Not for the choice of leaves, which `reclaimer::hand` makes. A leaf that is cold already goes on to `compact`, which
//! merges its overlay with its images.
//!
//! 1. The owner settles the leaf and writes its image, without a guard and without a lock. A current image of a
//!    checkpoint is taken instead.
//! 2. It publishes the image under the writer lock if nothing was appended meanwhile.
//! 3. That counts as an append: an update that read the leaf before must look again.
//!
//! Of large values only the references stay above. The values themselves go when no reader has read them of late,
//! wherever their records are.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_epoch::Guard;
use ziptier_media::segments::{Purpose, SegmentError};
use ziptier_tree::below::{Below, Part};
use ziptier_tree::body::{Body, Builder, Entry};
use ziptier_tree::coding::Coding;
use ziptier_tree::extent::Extent;
use ziptier_tree::form::Form;
use ziptier_tree::large::{Large, OwnedPieces};
use ziptier_tree::leaf::{Leaf, LeafState, Ownership, RightSibling};
use ziptier_tree::merge::merge;
use ziptier_tree::packing::{Goal, Pieces, Scratch, settled};
use ziptier_tree::pending::{Newest, Pending};
use ziptier_tree::placement::Side;
use ziptier_tree::record::Kind;
use ziptier_tree::retention::KeepsAll;
use ziptier_tree::sizes::CHUNK_BYTES;
use ziptier_tree::tree::Tree;

use super::Cold;
use super::image::encode;
use super::tier::Tier;
use crate::image_files::place_of;
use crate::leaf_image::{Plain, Stored};
use crate::places::{Demoted, Moves, Parts, Pick};

/// Images that were written and that no list owns yet: they are released unless one takes them.
pub(super) struct Written<'t> {
    tier: &'t Arc<Tier>,
    pub(super) parts: Vec<Part>,
    fresh: Vec<Extent>,
    bytes: Vec<u8>,
    shrinks: bool,
}

impl<'t> Written<'t> {
    /// For images of a leaf that becomes smaller by it, or not.
    pub(super) fn new(tier: &'t Arc<Tier>, shrinks: bool) -> Self {
        Self { tier, parts: Vec::new(), fresh: Vec::new(), bytes: Vec::new(), shrinks }
    }

    /// Writes a body, which owns its keys from `low` on; the bytes of its keys and values.
    pub(super) fn add(&mut self, low: Vec<u8>, body: &Body, form: &Form) -> Result<i64, SegmentError> {
        let logical_bytes = settled(&image_state(body, form)).1;
        encode(&low, body, form, logical_bytes as u64, &mut self.bytes);
        let place = match self.tier.append(&self.bytes, Purpose::New) {
            // An image that makes the leaf smaller may use the room that is kept for cleaning.
            Err(SegmentError::Full { .. }) if self.shrinks => {
                self.tier.append(&self.bytes, Purpose::Cleaning)?
            }
            appended => appended?,
        };
        self.fresh.push(place);
        self.parts.push(Part { low, place, records: body.len() as u16 });
        Ok(logical_bytes)
    }

    /// Whether an image of so many bytes would be taken.
    pub(super) fn ask(&self, image_bytes: usize) -> Result<(), SegmentError> {
        self.tier.ask(image_bytes, self.shrinks)
    }

    /// Takes over an image that is there already.
    pub(super) fn keep(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// A list has taken over the images.
    pub(super) fn owned(mut self) {
        self.fresh.clear();
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        self.fresh.iter().for_each(|place| self.tier.files.segments.release(place_of(*place)));
    }
}

/// The parts of a leaf: bodies that go down, each with the lowest key that it owns, and the body that stays.
struct Division {
    lower: Vec<(Vec<u8>, Body)>,
    form: Form,
    upper: Body,
    /// The records that expired on the way.
    pieces: Pieces,
}

/// A leaf that is owned and settled: its state, and how often it was appended to.
struct Settled<'l> {
    state: LeafState,
    appends: u64,
    _ownership: Ownership<'l>,
}

/// The parts of a leaf that went to the SSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Went {
    /// The records of the leaf.
    pub(super) leaf: bool,
    /// Bytes of large values that are free when their last reader is gone.
    pub(super) large_bytes: u64,
}

impl Went {
    /// Whether anything went.
    pub(super) fn any(self) -> bool {
        self.leaf || self.large_bytes > 0
    }
}

impl Moves<'_> {
    /// Demotes `parts` of a leaf, of which the caller has a share, to the SSD. The caller holds no guard.
    pub(in crate::places) fn demote_to_ssd(&self, leaf: &Leaf, parts: Parts) -> Demoted {
        let Some(cold) = &self.cold else { return Demoted::Full };
        let (pick, side) = (parts.larges, parts.from);
        let leaf_bytes = {
            let guard = self.tree.pin();
            let state = leaf.state(&guard);
            let body_bytes = match side {
                Side::Dram => state.body.dram_bytes(),
                Side::Far => state.body.far_bytes(),
            };
            body_bytes as u64 + state.landing_bytes()
        };
        let went = match parts.records {
            true => self.write_to_ssd(leaf, pick, side),
            false => {
                self.demote_larges(leaf, pick, side).map(|large_bytes| Went { leaf: false, large_bytes })
            }
        };
        match went {
            Ok(went) if went.any() => {
                if went.leaf {
                    cold.is_refused.store(false, Relaxed);
                }
                Demoted::Freed(went.large_bytes + if went.leaf { leaf_bytes } else { 0 })
            }
            Ok(_) if leaf.is_owned() => Demoted::Busy,
            Ok(_) => Demoted::Kept,
            // The SSD is full or failed, so memory keeps the leaf.
            Err(_) => Demoted::Full,
        }
    }

    /// Writes a leaf to the SSD: all records that are not large, and the large values that `pick` picks. The caller has
    /// a share of the leaf. The caller holds no guard.
    ///
    /// # Errors
    /// A full SSD, or one that failed; what did not go is as it was.
    pub(super) fn write_to_ssd(&self, leaf: &Leaf, pick: Pick, side: Side) -> Result<Went, SegmentError> {
        self.ask_ssd(leaf)?;
        let Some(mut settled) = self.own_settled(leaf) else { return Ok(Went::default()) };
        let mut large_bytes = 0;
        if pick.any(&settled.state, side) {
            // Writers with two full landings wait for the owner, so that there must be none while large values are
            // written.
            drop(settled);
            large_bytes = self.demote_larges(leaf, pick, side)?;
            match self.own_settled(leaf) {
                Some(again) => settled = again,
                None => return Ok(Went { leaf: false, large_bytes }),
            }
        }
        let Settled { state, appends, .. } = &settled;
        let has_body = state.body.larges().count() < state.body.len();
        // References stay.
        let went = has_body && self.demote_records(leaf, state, *appends)?;
        Ok(Went { leaf: went, large_bytes })
    }

    /// Owns a leaf that goes to the SSD, and settles it. `None` if another thread owns or writes to it, or its body is
    /// damaged.
    fn own_settled<'l>(&self, leaf: &'l Leaf) -> Option<Settled<'l>> {
        let ownership = leaf.try_own()?;
        let (state, appends) = self.settle_owned(leaf)?;
        if !state.body.is_whole() {
            // An image of it would be taken for sound.
            self.tree.stats.damaged.raise();
            return None;
        }
        Some(Settled { state, appends, _ownership: ownership })
    }

    /// Demotes the records of a leaf that are not large. The caller owns the leaf, whose state is `state`. `false` if
    /// another thread writes to it, or nothing is left to demote.
    fn demote_records(&self, leaf: &Leaf, state: &LeafState, appends: u64) -> Result<bool, SegmentError> {
        let Some(cold) = &self.cold else { return Ok(false) };
        if state.below.is_some() {
            return self.compact(leaf, state);
        }
        if let Some(went) = self.demote_stored(cold, leaf, state, appends)? {
            return Ok(went);
        }
        let division = self.divide(leaf, state);
        if division.lower.iter().all(|(_, body)| body.is_empty()) {
            return Ok(false);
        }
        let mut logical_bytes = 0;
        let mut written = Written::new(&cold.tier, false);
        for (low, body) in &division.lower {
            logical_bytes += written.add(low.clone(), body, &division.form)?;
        }
        let codings = division.form.coding().into_iter().collect();
        let below = Below::new(cold.tier.clone(), &written.parts, codings, logical_bytes as u64);
        let guard = self.tree.pin();
        if !publish_below(leaf, state, appends, division.upper, below.clone(), &guard) {
            below.hand_on();
            return Ok(false);
        }
        written.owned();
        self.tree.account(&division.pieces);
        self.tree.stats.sent_to_ssd.raise();
        guard.flush();
        Ok(true)
    }

    /// Demotes large values of a leaf's body from a side of memory. Returns how many bytes are free there when their
    /// last reader is gone. They are written, unless they were before, and their chunks leave memory. The caller holds
    /// no guard and does not own the leaf: its records may go meanwhile.
    pub(super) fn demote_larges(&self, leaf: &Leaf, pick: Pick, side: Side) -> Result<u64, SegmentError> {
        let Some(cold) = &self.cold else { return Ok(0) };
        let larges = leaf.open_state(&self.tree.pin()).map_or_else(Vec::new, |state| pick.of(state, side));
        let (mut freed_bytes, mut failure) = (0, None);
        // One whose record is gone has no share but this.
        for large in larges.iter().filter(|large| Arc::strong_count(large) > 1) {
            if let Err(error) = self.write_large(cold, large) {
                // Others may have been written before.
                failure = Some(error);
                continue;
            }
            freed_bytes += large.leave_memory(side) as u64;
        }
        failure.filter(|_| freed_bytes == 0).map_or(Ok(freed_bytes), Err)
    }

    /// Has the pieces of a large value on SSD, if it is whole.
    fn write_large(&self, cold: &Cold, large: &Large) -> Result<(), SegmentError> {
        match large.places() {
            Some(_) if large.is_copied() => return Ok(()),
            Some(_) => return self.check_kept(cold),
            None => {}
        }
        // The first piece has the first chunk at least.
        let bytes = large.bytes_on(Side::Dram) + large.bytes_on(Side::Far);
        cold.tier.ask(bytes.min(CHUNK_BYTES), false)?;
        if !large.is_whole() {
            // Its pieces would be taken for sound.
            self.tree.stats.damaged.raise();
            return Ok(());
        }
        let mut places = Vec::with_capacity(large.pieces());
        let read = |place| cold.tier.files.segments.read(place_of(place));
        let written = large.write_pieces(read, |piece| {
            places.push(cold.tier.append(piece, Purpose::New)?);
            Ok::<(), SegmentError>(())
        });
        // The written pieces are released if not all were written.
        let pieces = Arc::new(OwnedPieces::new(cold.tier.files.source(), places));
        written?;
        large.set_first_places(pieces);
        cold.is_refused.store(false, Relaxed);
        Ok(())
    }

    /// Demotes a leaf, which the caller owns, whose image a checkpoint wrote: nothing is written. `None` when there is
    /// none that says what the leaf says, and nothing else.
    fn demote_stored(
        &self,
        cold: &Cold,
        leaf: &Leaf,
        state: &LeafState,
        appends: u64,
    ) -> Result<Option<bool>, SegmentError> {
        let current = Stored::of(state).and_then(|stored| {
            #[cfg(test)]
            if ziptier_tree::faults::has(ziptier_tree::faults::InjectedFault::LostDemotion) {
                return stored.at();
            }
            stored.current(appends, state.form.generation())
        });
        let Some((at, Plain { records, logical_bytes })) = current.and_then(|at| Some((at, at.plain()?)))
        else {
            return Ok(None);
        };
        self.check_kept(cold)?;
        let part = Part { low: leaf.low().to_vec(), place: at.place(), records };
        let codings = state.form.coding().into_iter().collect();
        let below = Below::new(cold.tier.clone(), &[part], codings, logical_bytes);
        let guard = self.tree.pin();
        if !publish_below(leaf, state, appends, Body::empty(), below.clone(), &guard) {
            below.hand_on();
            return Ok(Some(false));
        }
        at.hand_on();
        // The image still has records that expired since.
        let (settled_records, settled_bytes) = settled(state);
        self.tree.account(&Pieces {
            records: i64::from(records) - settled_records,
            logical_bytes: logical_bytes as i64 - settled_bytes,
            ..Pieces::default()
        });
        self.tree.stats.sent_to_ssd.raise();
        guard.flush();
        Ok(Some(true))
    }

    /// As [`Tier::check_kept`]. Nothing comes instead while the store recovers.
    fn check_kept(&self, cold: &Cold) -> Result<(), SegmentError> {
        if self.tree.recovering.load(Relaxed) { Ok(()) } else { cold.tier.check_kept() }
    }

    /// Packs the landings of a leaf, which the caller owns. Returns its state then, and its append count, unless
    /// another thread writes to it.
    pub(crate) fn settle_owned(&self, leaf: &Leaf) -> Option<(LeafState, u64)> {
        let guard = self.tree.pin();
        if leaf.state(&guard).closed {
            return None;
        }
        for _ in 0..2 {
            if leaf.state(&guard).is_unsettled() {
                leaf.seal(&guard);
                self.host.pack_landings(leaf, &guard);
            }
        }
        let appends = leaf.appends();
        let state = leaf.state(&guard);
        (!state.is_unsettled()).then(|| (state.clone(), appends))
    }

    /// Parts the records of a leaf that the caller owns into those that go down and the large ones, which stay.
    fn divide(&self, leaf: &Leaf, state: &LeafState) -> Division {
        let body = &state.body;
        let large: Vec<Entry<'_>> = (0..body.len())
            .filter(|index| body.record(*index).tag.kind() == Kind::Large)
            .map(|index| body.entry(index))
            .collect();
        let low = leaf.low().to_vec();
        if large.is_empty() {
            let lower = vec![(low, body.clone())];
            let form = state.form.clone();
            return Division { lower, form, upper: Body::empty(), pieces: Pieces::default() };
        }
        let upper = Builder::default().build(&large, None);
        let (above, above_bytes) = settled(&image_state(&upper, &Form::Raw));
        let keys: Vec<Vec<u8>> = large.iter().map(|entry| entry.key.to_vec()).collect();
        let gone = keys.iter().zip(&large).map(|(key, entry)| Pending::tombstone(key, entry.fingerprint));
        let newest = Newest::from(gone.collect::<Vec<_>>());
        let pieces = Scratch::with(|scratch| {
            self.tree.planner().plan(&[merge(state, newest, &mut KeepsAll)], Goal::Keep, scratch, &mut || ())
        });
        let mut lower = pieces.bodies;
        lower[0].0 = low;
        let form = pieces.form;
        let changed = Pieces {
            records: pieces.records + above,
            logical_bytes: pieces.logical_bytes + above_bytes,
            ..Pieces::default()
        };
        Division { lower, form, upper, pieces: changed }
    }
}

/// Publishes that `below` lies under `leaf` now, which the caller owns, unless that was appended to.
fn publish_below(
    leaf: &Leaf,
    planned: &LeafState,
    appends: u64,
    upper: Body,
    below: Arc<Below>,
    guard: &Guard,
) -> bool {
    let _writer = leaf.lock_writer();
    let state = leaf.state(guard);
    if leaf.appends() != appends || state.is_unsettled() || !state.body.is_same(&planned.body) {
        return false;
    }
    let overlay = LeafState::new(upper, state.high.clone(), state.right);
    let new = LeafState { below: Some(below), closed: state.closed, ..overlay };
    let published = leaf.publish(state, new, guard);
    assert!(published, "under the writer lock only the owner publishes");
    leaf.note_append();
    true
}

/// An image as a leaf of its own, for those that merge.
pub(super) fn image_state(body: &Body, form: &Form) -> LeafState {
    let form = form.renewed().with_counts(0, body.plain() as u16);
    LeafState { form, ..LeafState::new(body.clone(), None, RightSibling::none()) }
}

/// A leaf of `body`, which has records of an overlay of this form.
pub(super) fn overlay_state(body: &Body, form: &Form) -> LeafState {
    image_state(body, if body.is_empty() { &Form::Raw } else { form })
}

/// How an image is merged: with its own coding, unless another one is in use by now.
pub(super) fn merge_goal(tree: &Tree, state: &LeafState) -> Goal {
    let current = tree.dictionaries.current().as_ref().map(Coding::generation);
    if current.is_some() && state.form.generation() != current { Goal::Recode } else { Goal::Keep }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use std::os::unix::fs::FileExt;

    use ziptier_codec::token::Dictionary;
    use ziptier_media::testing::{PausingDisk, RecordingDisk};
    use ziptier_tree::body::{EntryKey, fingerprint};
    use ziptier_tree::codec_options::CodecChoice;
    use ziptier_tree::memory::Gauges;
    use ziptier_tree::record::{Fields, PutMeta, key_hash};

    use super::*;
    use crate::core::Core;
    use crate::options::Options;
    use crate::places::far_medium::open_far;
    use crate::places::ssd::SsdOptions;
    use crate::places::ssd::tests::core_over;
    use crate::{FarOptions, FarPlace};

    /// A leaf that comes back from SSD is condensed like any other.
    #[test]
    fn an_image_tells_which_values_could_be_coded_by_entropy() {
        let keys = [b"a", b"b", b"c", b"d"];
        let kinds = [Kind::Coded, Kind::Recoded, Kind::Raw, Kind::Coded];
        let entries = std::array::from_fn::<_, 4, _>(|at| Entry {
            key: EntryKey::whole(keys[at]),
            fingerprint: fingerprint(key_hash(keys[at])),
            kind: kinds[at],
            fields: Fields::default(),
            payload: b"value",
        });
        let tokens = Dictionary::train(&[b"abcabcabcabc"], 12, 1).expect("the sample is sound");
        let form = Form::of(Some(Coding::Tokens(Arc::new(tokens))));
        assert_eq!(image_state(&Builder::default().build(&entries, None), &form).form.plain(), 2);
    }

    /// A closed leaf names large values that are another leaf's, or gone: a share of it must not lead to them.
    #[test]
    fn large_values_of_a_closed_leaf_are_left_alone() {
        let core = core_over(PausingDisk::new());
        core.put(b"large", &[7; 10_000], PutMeta::default()).expect("no limit is set");
        let (leaf, _) = core.tree.share_at(b"");
        core.moves().settle_owned(&leaf).expect("nobody writes");
        let tier = &core.cold.as_ref().expect("it has an SSD").tier;
        let send = || core.moves().demote_larges(&leaf, Pick::All, Side::Dram).expect("there is room");
        let guard = core.tree.pin();
        let closed = leaf.close(&guard);
        assert_eq!(send(), 0);
        leaf.reopen(closed, &guard);
        assert!(send() > 10_000);
        let closed = leaf.close(&guard);
        let pieces = closed.body.larges().next().and_then(|large| large.places()).expect("it was written");
        let segment =
            (0..100).find(|number| pieces.lies_in(|found| found == *number)).expect("the first ones");
        let moved = || core.moves().move_larges(tier, &leaf, segment).expect("there is room");
        assert_eq!(moved(), 0);
        leaf.reopen(closed, &guard);
        assert_eq!(moved(), 1);
    }

    #[test]
    fn damage_in_far_memory_replaces_no_sound_copy_on_ssd() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let path = folder.path().join("far");
        let place = FarPlace::File(path.clone());
        let far = FarOptions { place, capacity_bytes: 4 << 20, require_dax: false };
        let far = open_far(&far, None, true).expect("there is room for the file");
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let gauges = Arc::new(Gauges::new(None));
        let ssd = SsdOptions { path: Some("/ssd".into()), limit_bytes: 16 << 20 };
        let cold = Cold::open(Arc::new(RecordingDisk::new()), &ssd, &gauges, |_, _| Ok(()))
            .expect("the folder is empty");
        let core = Core::with_places(&options, gauges, Some(far.clone()), Some(cold));
        core.put(b"large", &[7; 10_000], PutMeta::default()).expect("no limit is set");
        let (leaf, _) = core.tree.share_at(b"");
        core.moves().settle_owned(&leaf).expect("nobody writes");
        let larges =
            leaf.open_state(&core.tree.pin()).map_or_else(Vec::new, |state| Pick::All.of(state, Side::Dram));
        let large = larges.first().expect("it is there");
        let cold = core.cold.as_ref().expect("it has an SSD");
        core.moves().write_large(cold, large).expect("there is room");
        assert!(large.to_far(&far).is_ok_and(|bytes| bytes >= 10_000));

        let mut bytes = std::fs::read(&path).expect("it can be read");
        let at = bytes.windows(8).position(|bytes| bytes == [7; 8]).expect("the value lies there");
        bytes[at] ^= 1;
        // The file stays the one that is mapped.
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is there");
        file.write_all_at(&bytes, 0).expect("there is room");

        assert_eq!(large.to_far(&far), Ok(0));
        assert!(!large.is_whole(), "a copy of damage is no sound one");
        let pieces = large.places().expect("it was written");
        let segment =
            (0..100).find(|number| pieces.lies_in(|found| found == *number)).expect("the first ones");
        assert_eq!(core.moves().move_larges(&cold.tier, &leaf, segment), Ok(0));
        large.leave_memory(Side::Far);
        let mut value = Vec::new();
        assert_eq!(large.read_at(0, usize::MAX, &mut value), Ok(()));
        assert!(value == [7; 10_000]);
    }

    #[test]
    fn writers_do_not_wait_for_large_values_that_go_to_ssd() {
        let disk = PausingDisk::new();
        let core = core_over(disk.clone());
        let put = |key: &[u8], value: &[u8]| {
            core.put(key, value, PutMeta::default()).expect("no limit is set");
        };
        put(b"large", &[7; 10_000]);
        put(b"small", b"old");
        let (leaf, _) = core.tree.share_at(b"");
        let send = || {
            let went = core.moves().write_to_ssd(&leaf, Pick::All, Side::Dram).expect("there is room");
            assert!(went.large_bytes > 10_000);
        };
        disk.during("/ssd", send, || {
            assert!(!leaf.is_owned());
            // Both landings are full several times.
            (0..100u8).for_each(|n| put(&[b'k', n], &[n; 60]));
        });
        assert!(core.tree.stats.packs_foreground.get() > 10);
        let mut value = Vec::new();
        core.read(b"large", &mut value).expect("it is whole").expect("it is there");
        assert_eq!(value, [7; 10_000]);
    }
}
