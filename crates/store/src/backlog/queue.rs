//! The queue of the packers: leaves with a full landing.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::thread::Thread;

use ziptier_tree::leaf::Leaf;
use ziptier_tree::sync::Mutex;

/// Leaves that wait at most; above this, writers pack themselves.
const QUEUE_LEAVES_MAX: usize = 512;
/// A sleeping packer is woken when this many wait; fewer are found when it looks by itself.
const QUEUE_LEAVES_WAKE: usize = 64;

/// Leaves with a sealed landing, first come first served. The queue keeps no leaf alive that was joined with its
/// neighbour.
#[derive(Default)]
pub(crate) struct Queue {
    leaves: Mutex<VecDeque<Weak<Leaf>>>,
    pub(crate) packers: Mutex<Vec<Thread>>,
    pub(crate) stopping: AtomicBool,
}

impl Queue {
    /// Hands `leaf` to the packers; `false` when too many wait already.
    pub(crate) fn push(&self, leaf: &Leaf) -> bool {
        if !leaf.enqueue() {
            return true;
        }
        let waiting = {
            let mut leaves = self.leaves.lock();
            if leaves.len() >= QUEUE_LEAVES_MAX {
                leaf.dequeue();
                return false;
            }
            leaves.push_back(leaf.share_weakly());
            leaves.len()
        };
        if waiting.is_multiple_of(QUEUE_LEAVES_WAKE)
            && let Some(packer) = self.packers.lock().get(waiting / QUEUE_LEAVES_WAKE - 1)
        {
            packer.unpark();
        }
        true
    }

    /// Wakes the thread that makes room.
    pub(crate) fn wake(&self) {
        if let Some(packer) = self.packers.lock().first() {
            packer.unpark();
        }
    }

    /// The leaf that waits longest.
    pub(crate) fn pop(&self) -> Option<Arc<Leaf>> {
        let leaf = {
            let mut leaves = self.leaves.lock();
            std::iter::from_fn(|| leaves.pop_front()).find_map(|leaf| leaf.upgrade())?
        };
        leaf.dequeue();
        Some(leaf)
    }
}
