//! Keeps jobs that had not ended when their session was dropped, because a device may still write to their buffers.
//!
//! Each new session releases the jobs that have ended, so that their memory and their entries of a dedicated queue come
//! back.

use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Slot;
use super::queues::Queues;
use crate::home::Home;
use crate::jobs::JobPool;

/// The remains of a dropped session.
pub(super) struct Abandoned {
    pub(super) home: Home,
    pub(super) pool: JobPool,
    pub(super) slots: Vec<Slot>,
    pub(super) queues: Queues,
    /// Jobs whose queue may still have them.
    pub(super) jobs: Vec<u32>,
}

struct Node {
    abandoned: Abandoned,
    next: *mut Node,
}

// Another thread than that of the session may take a node.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Abandoned>()
};

/// The newest node of a list. No thread locks the list: in a forked process, a thread that no longer exists would hold
/// the lock for ever.
static ABANDONED: AtomicPtr<Node> = AtomicPtr::new(null_mut());

/// Keeps memory that a device may still write.
pub(super) fn keep(abandoned: Abandoned) {
    let node = Box::into_raw(Box::new(Node { abandoned, next: null_mut() }));
    // Never fails: the closure always gives a node.
    let _ = ABANDONED.fetch_update(Release, Relaxed, |newest| {
        // SAFETY: no other thread has the node before it is in the list.
        unsafe { (*node).next = newest };
        Some(node)
    });
}

/// Releases ended jobs. A thread that looks meanwhile finds only what was kept since.
pub(super) fn sweep() {
    let mut node = ABANDONED.swap(null_mut(), Acquire);
    while !node.is_null() {
        // SAFETY: `keep` made the box, and this thread alone has the nodes that it took out of the list.
        let taken = unsafe { Box::from_raw(node) };
        let Node { mut abandoned, next } = *taken;
        node = next;
        // A forked child does not have the pages.
        if !abandoned.home.is_here() {
            std::mem::forget(abandoned);
            continue;
        }
        let Abandoned { pool, slots, queues, jobs, .. } = &mut abandoned;
        release(pool, slots, queues, jobs, |_| {});
        if !abandoned.jobs.is_empty() {
            keep(abandoned);
        }
    }
}

/// Retires those of these jobs that ended after they were given up, and returns them.
pub(super) fn release(
    pool: &JobPool,
    slots: &mut [Slot],
    queues: &Queues,
    jobs: &mut Vec<u32>,
    mut ended: impl FnMut(u32),
) {
    jobs.retain(|&job| {
        if pool.poll(job as usize).is_none() {
            return true;
        }
        let slot = &mut slots[job as usize];
        queues.device(slot.queue.take().expect("a job given up is under way")).retire_late();
        slot.operation = None;
        ended(job);
        false
    });
}
