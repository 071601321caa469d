//! Whether the bodies that packs make have a place, in far memory or in DRAM.
//!
//! Not for making room, which `pressure` does.

use super::FarMemory;
use crate::core::Core;
use crate::leaf::LeafState;

impl Core {
    /// Bytes of DRAM that packing `leaves` takes beyond their landings. A body in far memory comes to DRAM if far
    /// memory has no slot for its new size.
    pub(crate) fn bytes_to_raise(&self, leaves: &[&LeafState]) -> usize {
        let Some(far) = &self.tree.far else { return 0 };
        let far_bytes: usize = leaves.iter().map(|state| state.body.far_bytes()).sum();
        if far_bytes == 0 {
            return 0;
        }
        let landing_bytes: u64 = leaves.iter().map(|state| state.landing_bytes()).sum();
        let packed_bytes = far_bytes + landing_bytes as usize;
        if self.takes_bodies_of(far, packed_bytes) { 0 } else { packed_bytes }
    }

    /// Whether far memory has room for the bodies of a leaf that are packed of so many bytes.
    pub(super) fn takes_bodies_of(&self, far: &FarMemory, packed_bytes: usize) -> bool {
        let bodies = 1 + packed_bytes / self.tree.limits.bytes_full;
        far.has_room_for_bodies(packed_bytes.min(self.tree.limits.bytes_max), bodies)
    }

    /// Whether the new bodies of `leaves` have a place. They may not come up to DRAM that is full.
    pub(crate) fn has_place_for(&self, leaves: &[&LeafState]) -> bool {
        let bytes = self.bytes_to_raise(leaves);
        bytes == 0 || self.admit(bytes).is_ok()
    }
}
