//! Room on SSD: segments without live images go, and when the limit is near, the live images of the segment that has the fewest
//! are appended anew and their leaves told.
//!
//! Which leaves those are is asked of the leaves: a walk over lists in memory costs less than a segment takes to be written.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_epoch::pin;
use ziptier_media::segments::{Place, Purpose, SegmentError};

use super::below::{Below, Part};
use super::tier::Tier;
use crate::core::Core;
use crate::leaf::{Leaf, LeafState};

/// A segment with more live bytes than this, in per cent, is not worth being written anew.
const LIVE_PCT_MAX: u64 = 90;
/// Segments that stay free: cleaning begins before the last one is taken.
const FREE_SEGMENTS: u64 = 2;

impl Tier {
    /// Removes segments in which nothing is live; how many.
    fn remove_dead(&self) -> usize {
        let mut removed = 0;
        while let Some(candidate) = self.segments.candidate().filter(|candidate| candidate.live_bytes == 0) {
            // Who still holds a stale list looks for the new one when its read fails.
            if self.segments.remove(candidate.segment).is_err() {
                break;
            }
            removed += 1;
        }
        removed
    }

    /// Whether the limit is near.
    fn is_short(&self) -> bool {
        let allocated_bytes = self.segments.stats().allocated_bytes;
        allocated_bytes + (FREE_SEGMENTS + 1) * self.segment_bytes > self.limit_bytes
    }
}

impl Core {
    /// Makes room on SSD if little is left; `true` when something was done. The caller holds no guard and owns no leaf.
    pub(crate) fn clean_ssd(&self) -> bool {
        let Some(cold) = &self.cold else { return false };
        let tier = &cold.tier;
        if !tier.is_short() {
            return false;
        }
        if cold.cleaning.swap(true, Acquire) {
            return false;
        }
        let cleaned = self.clean_one(tier);
        cold.cleaning.store(false, Release);
        cleaned
    }

    fn clean_one(&self, tier: &Arc<Tier>) -> bool {
        if tier.remove_dead() > 0 {
            return true;
        }
        let Some(candidate) = tier.segments.candidate() else { return false };
        if candidate.live_bytes * 100 > candidate.allocated_bytes * LIVE_PCT_MAX {
            return false;
        }
        let cleaned = self.clean_segment(tier, candidate.segment);
        tier.remove_dead() > 0 || matches!(cleaned, Ok(images) if images > 0)
    }

    /// Appends the live images of a segment anew; how many.
    fn clean_segment(&self, tier: &Arc<Tier>, segment: u64) -> Result<usize, SegmentError> {
        let mut moved = 0;
        self.each_leaf(|leaf| {
            moved += self.move_images(tier, leaf, segment)?;
            Ok::<(), SegmentError>(())
        })?;
        Ok(moved)
    }

    /// Appends those images of a leaf anew that lie in `segment`; how many.
    fn move_images(&self, tier: &Arc<Tier>, leaf: &Leaf, segment: u64) -> Result<usize, SegmentError> {
        let names = |below: &Below| (0..below.len()).any(|index| below.place(index).segment == segment);
        let below_of = |leaf: &Leaf| leaf.state(&pin()).below.clone().filter(|below| names(below));
        if below_of(leaf).is_none() {
            return Ok(0);
        }
        let Some(_ownership) = leaf.try_own() else { return Ok(0) };
        let Some(below) = below_of(leaf) else { return Ok(0) };
        let mut parts = below.parts(&leaf.low());
        let mut replaced: Vec<(Place, Place)> = Vec::new();
        for part in parts.iter_mut().filter(|part| part.place.segment == segment) {
            // What is damaged stays where it is, and its segment with it.
            let Ok(image) = tier.segments.read(part.place) else { continue };
            match tier.segments.append(&image, Purpose::Cleaning) {
                Ok(place) => replaced.push((std::mem::replace(&mut part.place, place), place)),
                Err(error) => {
                    replaced.iter().for_each(|(_, new)| tier.segments.release(*new));
                    return Err(error);
                }
            }
        }
        publish_moved(leaf, &below, &parts);
        replaced.iter().for_each(|(old, _)| tier.segments.release(*old));
        tier.counters.images_cleaned.fetch_add(replaced.len() as u64, Relaxed);
        Ok(replaced.len())
    }
}

/// Publishes that the images of a leaf, which the caller owns, lie elsewhere.
fn publish_moved(leaf: &Leaf, below: &Arc<Below>, parts: &[Part]) {
    let new = below.elsewhere(parts);
    let guard = pin();
    loop {
        let current = leaf.state(&guard);
        let state = LeafState { below: Some(new.clone()), ..current.clone() };
        if leaf.publish(current, state, &guard) {
            break;
        }
    }
    below.hand_on();
}
