//! The leaves that wait for the background: those with full landings, and those that were written to.
//!
//! Not for the work on them, which is `maintenance`.

mod queue;

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use queue::Queue;
use ziptier_tree::leaf::Leaf;
use ziptier_tree::sync::Mutex;

/// The leaves that wait for the background. See the module.
#[derive(Default)]
pub(crate) struct Backlog {
    pub(crate) queue: Queue,
    pub(crate) unsettled: Unsettled,
    /// The first background thread found nothing left of what was written.
    pub(crate) rests: AtomicBool,
}

impl Backlog {
    /// Whether the background has settled all that was written, and a lap since then found nothing to do. True without
    /// a background. Leaves that nobody uses for some time may become denser later.
    pub(crate) fn is_settled(&self, has_background: bool) -> bool {
        // A round takes the leaves of the list only once it says that there is work.
        !has_background || self.unsettled.is_empty() && self.rests.load(Relaxed)
    }
}

/// The leaves with landings. The list keeps no leaf alive that was cut, or joined with its neighbour.
#[derive(Default)]
pub(crate) struct Unsettled(Mutex<Vec<Weak<Leaf>>>);

impl Unsettled {
    /// Adds a leaf that was given a landing.
    pub(crate) fn add(&self, leaf: &Leaf) {
        if leaf.list() {
            let mut leaves = self.0.lock();
            if leaves.len() == leaves.capacity() {
                leaves.retain(|leaf| leaf.strong_count() > 0);
            }
            leaves.push(leaf.share_weakly());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(crate) fn take(&self) -> Vec<Weak<Leaf>> {
        std::mem::take(&mut *self.0.lock())
    }
}
