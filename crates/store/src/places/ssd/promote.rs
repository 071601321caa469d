//! Promotes a cold leaf from SSD: all its images are read, merged with the overlay and landings, and cut into ordinary
//! leaves.

use std::ops::Range;
use std::sync::Arc;

use crossbeam_epoch::Guard;
use ziptier_tree::below::{Below, Image};
use ziptier_tree::leaf::{Leaf, LeafState};
use ziptier_tree::merge::{Merged, merge, merge_all};
use ziptier_tree::numbers::array;
use ziptier_tree::packing::{Goal, Scratch, settled, upper_records};
use ziptier_tree::pending::{Newest, Pending};
use ziptier_tree::retention::KeepsAll;

use super::compact::Upper;
use super::demote::image_state;
use crate::Error;
use crate::places::Moves;

impl Moves<'_> {
    /// Makes ordinary leaves of a cold one, of which the caller has a share. `false` if another thread maintains it, or
    /// a part of it cannot be read or is not its own. The caller holds no guard.
    pub(in crate::places) fn promote_from_ssd(&self, leaf: &Leaf) -> bool {
        leaf.try_own().is_some_and(|_ownership| self.promote_owned(leaf) == Ok(true))
    }

    /// Makes ordinary leaves of the cold leaf of `key`, whose overlay has no room for its landing, unless another
    /// thread maintains it. The caller holds no guard.
    ///
    /// # Errors
    /// A part of it cannot be read, or is not its own.
    pub(crate) fn promote_crowded(&self, key: &[u8]) -> Result<(), Error> {
        let (leaf, _) = self.tree.share_at(key);
        let Some(_ownership) = leaf.try_own() else { return Ok(()) };
        self.promote_owned(&leaf).map_err(|reason| self.tree.unread(key, reason))?;
        Ok(())
    }

    /// As [`Moves::promote_from_ssd`], of a leaf that the caller owns. `false` if it is not cold; the error says why it
    /// stays where it is.
    fn promote_owned(&self, leaf: &Leaf) -> Result<bool, String> {
        let (state, below) = {
            let guard = self.tree.pin();
            let state = leaf.state(&guard);
            let Some(below) = state.below.clone().filter(|_| !state.closed) else { return Ok(false) };
            self.pack_sealed(leaf, &guard);
            (leaf.state(&guard).clone(), below)
        };
        let upper = Upper::of(&state)?;
        let wanted: Vec<_> = (0..below.len()).map(|index| (below.clone(), index)).collect();
        let images = self.tree.read_images(&wanted).into_iter().collect::<Result<Vec<_>, String>>()?;
        let lie_within = |image: &Image| image.body.lies_within(&leaf.low(), state.high.as_deref());
        if !images.iter().all(lie_within) {
            return Err("an image has keys of another leaf".to_owned());
        }
        let states: Vec<_> = images.iter().map(|image| image_state(&image.body, &image.form)).collect();
        let guard = self.tree.pin();
        let closed = leaf.close(&guard);
        self.publish_promoted(leaf, closed, &below, &states, &upper, &guard);
        self.tree.stats.raised_from_ssd.raise();
        guard.flush();
        Ok(true)
    }

    /// Cuts everything that a closed leaf holds into leaves.
    fn publish_promoted(
        &self,
        leaf: &Leaf,
        closed: &LeafState,
        below: &Arc<Below>,
        images: &[LeafState],
        upper: &Upper,
        guard: &Guard,
    ) {
        // A record that has expired may have others below.
        let merged = merge_all(closed, &self.tree.commits, 0);
        let pending = above_images(&merged, upper);
        let parts = images.iter().zip(ranges(&pending, below)).map(|(state, range)| {
            let mut newest = Newest::from(pending[range].to_vec());
            newest.expired_by_ms = self.tree.drops_expired_by_ms(&newest, &state.body);
            merge(state, newest, &mut KeepsAll)
        });
        let parts: Vec<_> = parts.collect();
        let mut pieces =
            Scratch::with(|scratch| self.tree.planner().plan(&parts, Goal::Keep, scratch, &mut || ()));
        pieces.released.extend(merged.released().map(array));
        let (records, bytes) = upper_records(closed);
        pieces.records -= records;
        // The figures of the list are exact only in the sum over all lists.
        let below_bytes: i64 = images.iter().map(|image| settled(image).1).sum();
        pieces.logical_bytes += below_bytes - below.logical_bytes() as i64 - bytes;
        self.tree.note_damage(&[closed]);
        self.tree.account(&pieces);
        self.with_packs(guard, |packs| packs.replace(leaf, closed, None, &pieces, |_, _| {}));
        self.tree.settle_large(pieces.recoded, pieces.released, guard);
    }
}

/// The records of an overlay merged with its landings, as landings above the images would have them.
fn above_images<'a>(merged: &Merged<'a>, upper: &'a Upper) -> Vec<Pending<'a>> {
    let records = merged.records().map(|(entry, place)| match place {
        Some(place) => Pending { fields: entry.fields, ..upper.pending(place) },
        None => Pending::of(&entry),
    });
    records.collect()
}

/// Which records lie above which image.
fn ranges(pending: &[Pending<'_>], below: &Below) -> Vec<Range<usize>> {
    let mut from = 0;
    (0..below.len())
        .map(|image| {
            let count =
                pending[from..].iter().take_while(|record| below.image_of(record.key) == image).count();
            from += count;
            from - count..from
        })
        .collect()
}

#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use ziptier_media::testing::RecordingDisk;
    use ziptier_tree::placement::Side;
    use ziptier_tree::record::PutMeta;

    use super::*;
    use crate::core::Core;
    use crate::places::Pick;
    use crate::places::ssd::tests::core_over;

    /// Puts `forged` below `leaf`.
    fn forge(core: &Core, leaf: &Leaf, forged: &Arc<Below>) {
        let guard = core.tree.pin();
        let state = leaf.state(&guard);
        assert!(leaf.publish(state, LeafState { below: Some(forged.clone()), ..state.clone() }, &guard));
    }

    /// A dump, or the folder of a stranger, may say of an image that it is another leaf's.
    #[test]
    fn images_of_others_are_neither_merged_nor_read() {
        let core = core_over(RecordingDisk::new());
        let put = |n: u8, bytes| core.put(&[n], &vec![n; bytes], PutMeta::default());
        (0..40).for_each(|n| put(n, 1000).expect("no limit is set"));
        core.settle();
        assert!(core.moves().send_some_to_ssd(|| true).expect("there is room") > 2);
        let (left, high) = core.tree.share_at(&[]);
        let (right, _) = core.tree.share_at(&high.expect("there are several leaves"));
        let below = |leaf: &Leaf| leaf.state(&core.tree.pin()).below.clone().expect("it is cold");
        let (of_left, of_right) = (below(&left), below(&right));
        [&of_left, &of_right].iter().for_each(|below| below.hand_on());
        let put_and_send = || {
            put(0, 20).expect("no limit is set");
            core.moves().write_to_ssd(&left, Pick::All, Side::Dram).expect("there is room")
        };
        // All images of another leaf.
        let forged = of_left.elsewhere(&of_right.parts(&left.low()));
        forged.hand_on();
        forge(&core, &left, &forged);
        assert!(!core.moves().promote_from_ssd(&left) && !put_and_send().any());
        assert!(Arc::ptr_eq(&below(&left), &forged));
        // Two images of the same leaf that changed places.
        forge(&core, &left, &of_left);
        let guard = core.tree.pin();
        let ownership = left.try_own().expect("nobody maintains it");
        assert!(core.moves().join_cold(&left, &guard));
        drop((ownership, guard));
        let joined = below(&left);
        joined.hand_on();
        let mut parts = joined.parts(&left.low());
        let last = parts.len() - 1;
        (parts[0].place, parts[last].place) = (parts[last].place, parts[0].place);
        let forged = joined.elsewhere(&parts);
        forged.hand_on();
        forge(&core, &left, &forged);
        assert!(!core.moves().promote_from_ssd(&left) && !put_and_send().any());
        assert!(Arc::ptr_eq(&below(&left), &forged));
        let refusal = core.read(&[1], &mut Vec::new()).expect_err("its image is another one's");
        assert!(matches!(&refusal, Error::Unread { .. }), "{refusal}");
        assert!(refusal.to_string().contains("keys of another one"), "{refusal}");
    }
}
