//! Cold leaves whose overlay has outgrown their images: the leaf is promoted if memory has room, or its overlay is
//! merged with the images. A leaf with many large values is promoted in any case, and cut.

use ziptier_tree::placement::Side;

use super::upper::has_grown;
use crate::image_files::ssd_bytes;
use crate::places::{Moves, Pick};

impl Moves<'_> {
    /// Takes a leaf whose overlay has outgrown its images, and promotes the leaf if memory has room, or merges the two.
    /// `true` if there was such a leaf. The caller holds no guard.
    pub(crate) fn merge_grown(&self) -> bool {
        let Some(cold) = &self.cold else { return false };
        let next = || {
            let mut grown = cold.grown.lock();
            std::iter::from_fn(|| grown.pop_front()).find_map(|leaf| leaf.upgrade())
        };
        let Some(leaf) = next() else { return false };
        if leaf.is_owned() {
            // One that was joined with its left neighbour is never free again.
            let is_gone = self.tree.index.has_let_go_of(&leaf, &self.tree.pin());
            if !is_gone {
                cold.note_grown(&leaf);
            }
            return is_gone;
        }
        let (bytes, is_crowded) = {
            let guard = self.tree.pin();
            let state = leaf.state(&guard);
            if !has_grown(state) {
                return true;
            }
            (state.below.as_ref().map_or(0, |below| 2 * ssd_bytes(below)), state.is_crowded())
        };
        // An overlay that cannot be written now stays in memory, and is noted again when it grows on.
        if !((is_crowded || self.host.has_memory_for(bytes)) && self.promote_from_ssd(&leaf)) {
            let _ = self.write_to_ssd(&leaf, Pick::Unread, Side::Dram);
            // Each attempt noted a leaf whose landing has no room, and a thread would try that leaf for ever. The next
            // pack notes it again.
            cold.grown.lock().retain(|noted| !std::ptr::eq(noted.as_ptr(), &raw const *leaf));
        }
        true
    }
}

// No unsafe code comes this way, and there is an SSD: not for Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    use ziptier_media::disk::RealDisk;
    use ziptier_tree::batch::{Batch, Transferred};
    use ziptier_tree::codec_options::CodecChoice;
    use ziptier_tree::leaf::{Leaf, LeafState};
    use ziptier_tree::memory::Gauges;
    use ziptier_tree::record::PutMeta;

    use crate::Error;
    use crate::core::Core;
    use crate::options::Options;
    use crate::places::ssd::tests::with_cold_neighbours;
    use crate::places::ssd::{Cold, SsdOptions};

    /// More records than a body can count.
    const CROWD: u32 = u16::MAX as u32 + 10;

    #[test]
    fn a_grown_leaf_that_is_joined_with_its_neighbour_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let gauges = Arc::new(Gauges::new(None));
        let ssd = SsdOptions { path: Some(folder.path().join("ssd")), limit_bytes: 16 << 20 };
        let cold = Cold::open(Arc::new(RealDisk), &ssd, &gauges, |_, _| Ok(())).expect("the folder is empty");
        let core = Core::with_places(&options, gauges, None, Some(cold));
        for n in 0..40u8 {
            core.put(&[n], &[n; 1000], PutMeta::default()).expect("no limit is set");
        }
        core.settle();
        assert!(core.moves().send_some_to_ssd(|| true).expect("there is room") > 2);
        let cold = core.cold.as_ref().expect("it was given");
        let guard = core.tree.pin();
        let left = core.tree.locate(&[0], &guard).0;
        let right = left.state(&guard).right(&guard).expect("there are more than two leaves");
        cold.note_grown(right);
        let ownership = left.try_own().expect("nobody maintains it");
        assert!(core.moves().join_cold(left, &guard));
        drop(ownership);
        drop(guard);
        for _ in 0..100 {
            core.moves().merge_grown();
        }
        assert!(cold.grown.lock().is_empty());
        let mut value = Vec::new();
        core.read(&[20], &mut value).expect("it is whole").expect("it is there");
        assert_eq!(value, [20; 1000]);
    }

    fn key(n: u32) -> Vec<u8> {
        [[0].as_slice(), &n.to_be_bytes()].concat()
    }

    /// A store whose first leaf has an image that cannot be read as its own, and more records in its landing than its
    /// overlay has room for.
    fn with_crowded_leaf() -> Core {
        let (core, [leaf, right], _) = with_cold_neighbours();
        let guard = core.tree.pin();
        let below = |leaf: &Leaf| leaf.state(&guard).below.clone().expect("it is cold");
        let (own, of_right) = (below(&leaf), below(&right));
        let forged = own.elsewhere(&of_right.parts(&leaf.low()));
        [&own, &of_right, &forged].iter().for_each(|below| below.hand_on());
        let state = leaf.state(&guard);
        assert!(leaf.publish(state, LeafState { below: Some(forged), ..state.clone() }, &guard));
        drop(guard);
        let put = |batch: Batch, n: u32| batch.put(&key(n), b"above");
        assert_eq!(core.write(&(0..CROWD).fold(Batch::new(), put)), Ok(true));
        assert!(leaf.state(&core.tree.pin()).sealed.is_some(), "the overlay had room");
        core
    }

    /// An image that cannot be read keeps its leaf on SSD, and the landing has no room in the overlay.
    #[test]
    fn a_leaf_without_room_that_cannot_be_promoted_is_not_tried_for_ever() {
        let core = with_crowded_leaf();
        assert!((0..100).any(|_| !core.moves().merge_grown()), "it goes on for ever");
        let mut value = Vec::new();
        core.read(&key(CROWD - 1), &mut value).expect("it is in memory").expect("it is there");
        assert_eq!(value, b"above");
    }

    /// The landing of such a leaf would grow with each one.
    #[test]
    fn batches_above_a_crowded_leaf_that_cannot_be_promoted_are_refused() {
        let core = with_crowded_leaf();
        let write = |n: u32| core.write(&Batch::new().put(&key(n), &[7; 1000]));
        let (taken, refusal) =
            (0..1000).find_map(|n| Some((n, write(n).err()?))).expect("a landing grows without end");
        assert!(matches!(refusal, Error::Unread { .. }) && taken > 0, "{refusal} after {taken}");
        let mut value = Vec::new();
        core.read(&key(0), &mut value).expect("it is in memory").expect("it is there");
        assert_eq!(value, [7; 1000]);
    }

    /// So would the landing of a key that a copy or a rename writes.
    #[test]
    fn copies_above_a_crowded_leaf_that_cannot_be_promoted_are_refused() {
        let core = with_crowded_leaf();
        core.put(b"source", &[7; 1000], PutMeta::default()).expect("its leaf has room");
        let copy = |n: u32| core.writes().transfer(b"source", &key(n), true, true);
        let (taken, refusal) =
            (0..1000).find_map(|n| Some((n, copy(n).err()?))).expect("a landing grows without end");
        assert!(
            matches!(refusal, ziptier_tree::Error::Unread { .. }) && taken > 0,
            "{refusal} after {taken}"
        );
        // Nothing is written there when such a key is copied, but when it gets another name.
        assert_eq!(core.writes().transfer(&key(0), b"copy", true, true), Ok(Transferred::Done));
        let renamed = core.writes().transfer(&key(0), b"name", false, true);
        assert!(matches!(renamed, Err(ziptier_tree::Error::Unread { .. })), "{renamed:?}");
        let mut value = Vec::new();
        core.read(b"copy", &mut value).expect("it is in memory").expect("it is there");
        assert_eq!(value, [7; 1000]);
    }

    /// A start was refused at the first one without room.
    #[test]
    fn large_values_above_a_crowded_leaf_that_cannot_be_promoted_are_redone() {
        let core = with_crowded_leaf();
        core.tree.recovering.store(true, Relaxed);
        for n in 0..100 {
            core.put(&key(n), &[7; 3000], PutMeta::default()).expect("it needs no image");
        }
        core.tree.recovering.store(false, Relaxed);
        for n in 0..100 {
            let mut value = Vec::new();
            core.read(&key(n), &mut value).expect("it is in memory").expect("it is there");
            assert_eq!(value, [7; 3000]);
        }
    }
}
