//! What a pack that weighed its records changes beside its leaf: ghosts, and the epochs of both queues.
//!
//! Not for the marks, which the pack gives its records.
//!
//! 1. A pack weighs its records, and may find then that it has to close its leaf. It weighs all of them again.
//! 2. A pack in the background may be given up.
//! 3. So the pack takes note of these changes, and makes them when it is certain to come about.

use super::{EPOCHS, PROBATION_PCT};
use crate::core::Core;

/// The changes of a pack. See the module.
#[derive(Default)]
pub(crate) struct Weighed {
    /// Hashes of keys that came back. Their ghosts go.
    pub(super) returned: Vec<u64>,
    /// Hashes of keys that go at the end of probation, and leave ghosts.
    pub(super) gone: Vec<u64>,
    /// Bytes that come on probation.
    pub(super) came_bytes: u64,
    /// Records that come to the main queue from probation, or get another turn.
    pub(super) spared: u64,
}

impl Core {
    /// Makes the changes of a pack that comes about.
    pub(crate) fn note_weighed(&self, weighed: &Weighed) {
        let Some(eviction) = self.evicting() else { return };
        if !(weighed.returned.is_empty() && weighed.gone.is_empty()) {
            let mut ghosts = eviction.ghosts.lock();
            for hash in &weighed.returned {
                ghosts.take(*hash);
            }
            weighed.gone.iter().for_each(|hash| ghosts.put(*hash));
        }
        if weighed.came_bytes > 0 {
            let probation_bytes = self.gauges.logical.get() * PROBATION_PCT / 100;
            eviction.probation.advance(weighed.came_bytes, probation_bytes / u64::from(EPOCHS));
        }
        self.came_to_main(eviction, weighed.returned.len() as u64 + weighed.spared);
    }
}
