//! Cold leaves that were written to so much that their upper body has outgrown what lies below: merged with it, or back in memory, where one
//! with many large values is cut.

use crossbeam_epoch::pin;
use ziptier_media::placement::Side;

use super::upper::{has_grown, is_crowded};
use crate::core::Core;
use crate::moving::Pick;

impl Core {
    /// Merges the upper body of a leaf that has outgrown what lies below, or brings that leaf back, if there is room; `true` when
    /// there was one. The caller holds no guard.
    pub(crate) fn merge_grown(&self) -> bool {
        let Some(cold) = &self.cold else { return false };
        let Some(leaf) = cold.grown.lock().pop_front() else { return false };
        if leaf.is_owned() {
            cold.grown.lock().push_back(leaf);
            return false;
        }
        let (bytes, is_crowded) = {
            let guard = pin();
            let state = leaf.state(&guard);
            if !has_grown(state) {
                return true;
            }
            (state.below.as_ref().map_or(0, |below| 2 * below.ssd_bytes()), is_crowded(state))
        };
        // What cannot be written now stays in memory, and is noted again when it grows on.
        if !((is_crowded || self.has_memory_for(bytes)) && self.raise_from_ssd(&leaf)) {
            let _ = self.send_to_ssd(&leaf, Pick::Unread, Side::Dram);
        }
        true
    }
}
