//! Packing a landing into the overlay (the *upper* body) of a cold leaf.
//!
//! 1. The pack merges landing and overlay as in any leaf, but reads no image.
//! 2. A record that ends, deleted or expired, leaves a tombstone, because the record that it shadowed lies below.
//! 3. An overlay stays one body, because a cut needs the images. A landing with more records than a body can count
//!    stays a landing until the leaf is promoted.

use std::sync::Arc;

use crossbeam_epoch::Guard;
use ziptier_tree::below::Below;
use ziptier_tree::leaf::{CROWDED_RECORDS, LARGES_MAX, Leaf, LeafState, UPPER_RECORDS_MAX};
use ziptier_tree::pending::newest;

use crate::image_files::ssd_bytes;
use crate::places::Moves;

/// While memory is short, the overlay is merged with its images when it is larger than one part in so many of them. A
/// merge then writes about so many times the bytes that it frees.
const PAYING_SHARE: u64 = 4;
/// It may have so many bytes in any case.
const GROWN_BYTES_MIN: u64 = 4096;

/// Whether the overlay is large enough for a merge; a `factor` asks for so many times less.
pub(crate) fn pays(state: &LeafState, factor: u64) -> bool {
    let upper = merging_bytes(state);
    state.below.as_ref().is_some_and(|below| upper > ssd_bytes(below) / (PAYING_SHARE * factor))
}

/// Whether the overlay has outgrown the images.
pub(super) fn has_grown(state: &LeafState) -> bool {
    let upper = merging_bytes(state);
    let outgrows = |below: &Arc<Below>| upper > ssd_bytes(below).max(GROWN_BYTES_MIN);
    state.below.as_ref().is_some_and(outgrows) || state.is_crowded()
}

/// Whether two leaves together have few records above their images, and few references to large values.
pub(super) fn are_sparse(states: [&LeafState; 2]) -> bool {
    states.iter().map(|state| state.body.len()).sum::<usize>() <= CROWDED_RECORDS
        && states.iter().map(|state| state.body.larges().count()).sum::<usize>() <= LARGES_MAX
}

/// About the bytes of the overlay that a merge takes down: references to large values stay.
fn merging_bytes(state: &LeafState) -> u64 {
    let (records, larges) = (state.body.len(), state.body.larges().count());
    (state.body.asked_bytes() * (records - larges) / records.max(1)) as u64
}

impl Moves<'_> {
    /// Packs the sealed landing of a cold leaf, which the caller owns. `false` if the overlay has no room for it. The
    /// leaf is to be promoted then.
    pub(crate) fn pack_upper(&self, leaf: &Leaf, guard: &Guard) -> bool {
        let state = leaf.state(guard);
        let cold = self.cold.as_ref().expect("a cold leaf has an SSD");
        let mut newest = newest(state.sealed.as_deref().into_iter(), &self.tree.commits);
        if state.body.len() + newest.pending.len() > UPPER_RECORDS_MAX {
            cold.note_grown(leaf);
            return false;
        }
        newest.expired_by_ms = self.tree.expired_by_ms(leaf, state, &newest, guard);
        self.with_packs(guard, |packs| packs.pack_overlay(leaf, state, newest));
        if has_grown(leaf.state(guard)) {
            cold.note_grown(leaf);
        }
        true
    }

    /// Packs the sealed landing of a cold leaf, which the caller owns, if there is one and the overlay has room for it.
    pub(super) fn pack_sealed(&self, leaf: &Leaf, guard: &Guard) {
        if leaf.state(guard).sealed.is_some() {
            self.pack_upper(leaf, guard);
        }
    }
}

// No unsafe code comes this way, and there is an SSD: not for Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use ziptier_media::testing::RecordingDisk;
    use ziptier_tree::batch::Batch;
    use ziptier_tree::landing::RecordBytes;
    use ziptier_tree::record::{Fields, Kind, PutMeta, key_hash};

    use crate::places::ssd::tests::core_over;

    #[test]
    fn a_batch_of_more_records_than_a_body_can_count_is_written_above_one_image() {
        let core = core_over(RecordingDisk::new());
        core.put(b"key", b"below", PutMeta::default()).expect("no limit is set");
        assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
        let count = u32::from(u16::MAX) + 10;
        let put = |batch: Batch, n: u32| batch.put(&n.to_be_bytes(), &n.to_le_bytes());
        assert_eq!(core.write(&(0..count).fold(Batch::new(), put)), Ok(true));
        // No later write has to promote the leaf.
        let guard = core.tree.pin();
        assert!(core.tree.locate(b"key", &guard).1.below.is_none());
        drop(guard);
        assert_eq!(core.tree.ranges().count_keys(), u64::from(count) + 1);
        let get = |key: &[u8]| {
            let mut value = Vec::new();
            core.read(key, &mut value).expect("it is whole").map(|_| value)
        };
        assert_eq!(get(b"key").as_deref(), Some(&b"below"[..]));
        (0..count).for_each(|n| assert_eq!(get(&n.to_be_bytes()), Some(n.to_le_bytes().to_vec())));
    }

    #[test]
    fn who_writes_above_an_overlay_without_room_promotes_its_leaf() {
        let core = core_over(RecordingDisk::new());
        core.put(b"key", b"below", PutMeta::default()).expect("no limit is set");
        assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
        let (leaf, _) = core.tree.share_at(b"");
        let record = |n: u32| (n.to_be_bytes(), n.to_le_bytes());
        // As if nobody had come by to promote it.
        let count = u32::from(u16::MAX) + 10;
        {
            let guard = core.tree.pin();
            let locked = core.tree.lock_leaf(b"", &guard);
            let mut bytes = RecordBytes::default();
            for (key, value) in (0..count).map(record) {
                bytes.lay_out(Kind::Raw, &Fields::default(), &key, &value);
                core.writes().append_growing(&leaf, &bytes, key_hash(&key), &guard);
            }
            leaf.seal_locked(&guard);
            drop(locked);
        }
        for n in 0..100 {
            core.put(&[b'x', n], &[n; 100], PutMeta::default()).expect("no limit is set");
        }
        let guard = core.tree.pin();
        assert!(core.tree.locate(b"key", &guard).1.below.is_none());
        drop(guard);
        assert_eq!(core.tree.ranges().count_keys(), u64::from(count) + 101);
    }
}
