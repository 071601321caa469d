//! Shares of large values that last: those of readers who take their time.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{LARGE_BYTES, Large, Whereabouts};

/// A share of a value that is open. No record ever gets it.
pub(crate) struct OpenLarge(Arc<Large>);

impl OpenLarge {
    pub(crate) fn new(large: Arc<Large>) -> Self {
        large.gauges.open.change(1);
        large.change_open(1);
        Self(large)
    }

    /// Bytes of DRAM that are held for this reader alone. If no record has a share, these are the bytes of the value by
    /// the number of its readers.
    ///
    /// Under the lock no reader comes or goes, so each one that is counted has its share. Further shares are those of
    /// records, or of a thread that is about to be done.
    pub(crate) fn own_bytes(&self) -> usize {
        let held = self.0.held.lock();
        let open = self.0.open.load(Relaxed) as usize;
        if Arc::strong_count(&self.0) > open {
            return 0;
        }
        let chunks_bytes = match &held.whereabouts {
            Whereabouts::Memory { chunks, .. } => chunks.dram_bytes(),
            Whereabouts::Ssd(_) => 0,
        };
        (LARGE_BYTES + chunks_bytes).div_ceil(open)
    }
}

impl Large {
    fn change_open(&self, by: i32) {
        let _held = self.held.lock();
        self.open.store(self.open.load(Relaxed).wrapping_add_signed(by), Relaxed);
    }
}

impl Deref for OpenLarge {
    type Target = Large;

    fn deref(&self) -> &Large {
        &self.0
    }
}

impl Drop for OpenLarge {
    fn drop(&mut self) {
        self.0.change_open(-1);
        self.0.gauges.open.change(-1);
    }
}
