//! Cleaning: it gives room on SSD back.
//!
//! 1. Segments without live images are removed.
//! 2. When the limit is near, the live images of the segment that has the fewest are appended anew, and their leaves
//!    get new lists. A segment from which nothing can move is passed over.
//! 3. The cleaner finds these leaves by a walk over all lists. The walk reads memory only and costs less than writing a
//!    segment.
//!
//! In a store with a folder, checkpoints clean in their walk (`clean_leaf`), because the manifest in force still names
//! the old images.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_epoch::Guard;
use ziptier_media::segments::{Purpose, SegmentError};
use ziptier_tree::below::{Below, Part};
use ziptier_tree::extent::Extent;
use ziptier_tree::large::{Large, LargeHandle, OwnedPieces};
use ziptier_tree::leaf::{Leaf, LeafState};
use ziptier_tree::merge::large_references;

use super::tier::{KEPT_PART, Tier};
use crate::image_files::{extent_of, place_of};
use crate::places::Moves;

/// A segment with more live bytes than this, in per cent, is not worth being written anew.
const LIVE_PCT_MAX: u64 = 90;
/// Segments that stay free: cleaning begins before the last one is taken.
const FREE_SEGMENTS: u64 = 2;

impl Tier {
    /// Removes segments that nobody needs; how many.
    fn remove_dead(&self) -> usize {
        // A thread that cannot remove a file cannot write one either, and says so then.
        self.files.remove_dead().unwrap_or(0)
    }

    /// Whether the limit is near.
    pub(crate) fn is_short(&self) -> bool {
        self.files.segments.stats().allocated_bytes > self.enough_bytes()
    }

    /// Cleaning begins above so many bytes, and ends there.
    pub(crate) fn enough_bytes(&self) -> u64 {
        // Dead bytes are free only after a checkpoint, so cleaning begins before the room is needed.
        let early_bytes = if self.files.outlive_the_process() { self.limit_bytes / KEPT_PART / 2 } else { 0 };
        let free_bytes = (FREE_SEGMENTS + 1) * self.segment_bytes + self.kept_bytes() + early_bytes;
        self.limit_bytes.saturating_sub(free_bytes)
    }
}

impl Moves<'_> {
    /// Makes room on SSD if little is left; `true` when something was done. The caller holds no guard and owns no leaf.
    pub(crate) fn clean_ssd(&self) -> bool {
        let Some(cold) = &self.cold else { return false };
        let tier = &cold.tier;
        if !tier.is_short() {
            // The disk itself may be full, of segments that a crash left behind.
            return self.tree.recovering.load(Acquire) && tier.remove_dead() > 0;
        }
        if cold.cleaning.swap(true, Acquire) {
            return false;
        }
        let cleaned = self.clean_one(tier);
        cold.cleaning.store(false, Release);
        cleaned
    }

    /// Cleans segments for a checkpoint: moves those images of the leaf of `cursor` that lie in `victims`. The caller
    /// holds no guard.
    pub(crate) fn clean_leaf(&self, cursor: &[u8], victims: &BTreeSet<u64>) -> Result<(), SegmentError> {
        let Some(cold) = &self.cold else { return Ok(()) };
        if !victims.is_empty() {
            let (leaf, _) = self.tree.share_at(cursor);
            self.move_images(&cold.tier, &leaf, |place| victims.contains(&place.segment))?;
        }
        Ok(())
    }

    fn clean_one(&self, tier: &Arc<Tier>) -> bool {
        if tier.remove_dead() > 0 {
            return true;
        }
        if tier.files.outlive_the_process() {
            // Dead bytes are free once no checkpoint names them, and checkpoints clean.
            return self.host.asks_checkpoint_for_room();
        }
        let candidates = tier.files.segments.candidates().into_iter();
        let worth_it = candidates
            .take_while(|candidate| candidate.live_bytes * 100 <= candidate.allocated_bytes * LIVE_PCT_MAX);
        for candidate in worth_it {
            let cleaned = self.clean_segment(tier, candidate.segment);
            if tier.remove_dead() > 0 {
                return true;
            }
            match cleaned {
                // All that is left of it is damaged, and stays. It must not keep the others from being cleaned.
                Ok(0) => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
        false
    }

    /// Appends the live images of a segment anew; how many.
    fn clean_segment(&self, tier: &Arc<Tier>, segment: u64) -> Result<usize, SegmentError> {
        let mut moved = 0;
        self.tree.each_leaf(|leaf| {
            moved += self.move_images(tier, leaf, |place| place.segment == segment)?;
            moved += self.move_larges(tier, leaf, segment)?;
            Ok::<(), SegmentError>(())
        })?;
        Ok(moved)
    }

    /// Appends those large values of a leaf anew that lie in `segment`; how many.
    pub(super) fn move_larges(&self, tier: &Tier, leaf: &Leaf, segment: u64) -> Result<usize, SegmentError> {
        let larges: Vec<Arc<Large>> = {
            let guard = self.tree.pin();
            let references = leaf.open_state(&guard).map_or_else(Vec::new, large_references);
            // SAFETY: the leaf is open, so the records that own the references are part of a state that the guard keeps
            // readable.
            references.iter().map(|reference| unsafe { LargeHandle::borrow(reference) }.share()).collect()
        };
        let mut moved = 0;
        for large in larges {
            if !large.places().is_some_and(|pieces| pieces.lies_in(|number| number == segment)) {
                continue;
            }
            if !large.is_whole() {
                // The pieces of what is damaged in far memory are sound.
                self.tree.stats.damaged.raise();
                continue;
            }
            let mut places = Vec::with_capacity(large.pieces());
            let read = |place| tier.files.segments.read(place_of(place));
            let written = large.write_pieces(read, |piece| {
                places.push(extent_of(tier.files.segments.append(piece, Purpose::Cleaning)?));
                Ok::<(), SegmentError>(())
            });
            let pieces = Arc::new(OwnedPieces::new(tier.files.source(), places));
            match written {
                Ok(()) => large.set_places(pieces),
                // A damaged image stays where it is, and its segment with it.
                Err(SegmentError::Damaged { .. }) => continue,
                Err(error) => return Err(error),
            }
            moved += 1;
        }
        Ok(moved)
    }

    /// Appends those images of a leaf anew of whose places `is_there` says yes; how many.
    fn move_images(
        &self,
        tier: &Arc<Tier>,
        leaf: &Leaf,
        is_there: impl Fn(Extent) -> bool,
    ) -> Result<usize, SegmentError> {
        let names = |below: &Below| (0..below.len()).any(|index| is_there(below.place(index)));
        let below_of = |leaf: &Leaf| leaf.state(&self.tree.pin()).below.clone().filter(|below| names(below));
        if below_of(leaf).is_none() {
            return Ok(0);
        }
        let Some(_ownership) = leaf.try_own() else { return Ok(0) };
        let Some(below) = below_of(leaf) else { return Ok(0) };
        let mut parts = below.parts(&leaf.low());
        let mut replaced: Vec<(Extent, Extent)> = Vec::new();
        for part in parts.iter_mut().filter(|part| is_there(part.place)) {
            // A damaged image stays where it is, and its segment with it.
            let Ok(image) = tier.files.segments.read(place_of(part.place)) else { continue };
            match tier.files.segments.append(&image, Purpose::Cleaning).map(extent_of) {
                Ok(place) => replaced.push((std::mem::replace(&mut part.place, place), place)),
                Err(error) => {
                    replaced.iter().for_each(|(_, new)| tier.files.segments.release(place_of(*new)));
                    return Err(error);
                }
            }
        }
        publish_moved(leaf, &below, &parts, &self.tree.pin());
        replaced.iter().for_each(|(old, _)| tier.files.segments.release(place_of(*old)));
        tier.counters.images_cleaned.fetch_add(replaced.len() as u64, Relaxed);
        Ok(replaced.len())
    }
}

/// Publishes that the images of a leaf, which the caller owns, lie elsewhere.
fn publish_moved(leaf: &Leaf, below: &Arc<Below>, parts: &[Part], guard: &Guard) {
    let new = below.elsewhere(parts);
    loop {
        let current = leaf.state(guard);
        let state = LeafState { below: Some(new.clone()), ..current.clone() };
        if leaf.publish(current, state, guard) {
            break;
        }
    }
    below.hand_on();
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use ziptier_media::testing::RecordingDisk;
    use ziptier_tree::record::PutMeta;

    use super::*;
    use crate::places::ssd::tests::core_over;

    #[test]
    fn a_segment_with_damage_that_stays_keeps_no_other_from_being_cleaned() {
        let core = core_over(RecordingDisk::new());
        let tier = core.cold.as_ref().expect("it has an SSD").tier.clone();
        let segments = &tier.files.segments;
        let append = |bytes| segments.append(&vec![1; bytes], Purpose::New).expect("there is room");
        // No segment has room for two of them.
        let half = || segments.release(append(tier.segment_bytes as usize / 2));
        // No leaf gives it another place, as none does to what is damaged.
        let stays = append(8);
        half();
        half();
        for n in 0..20u8 {
            core.put(&[n], &[n; 1000], PutMeta::default()).expect("no limit is set");
        }
        core.settle();
        assert!(core.moves().send_some_to_ssd(|| true).expect("there is room") > 1);
        half();
        let (leaf, _) = core.tree.share_at(&[]);
        let place = || leaf.state(&core.tree.pin()).below.as_ref().map(|below| below.place(0));
        let before = place().expect("it is cold");
        let found: Vec<u64> = segments.candidates().iter().map(|candidate| candidate.segment).collect();
        assert_eq!(found, [stays.segment, before.segment]);
        assert!(core.moves().clean_one(&tier));
        assert_ne!(place().expect("it is cold").segment, before.segment);
    }
}
