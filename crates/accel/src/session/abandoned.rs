//! Keeps jobs that had not ended when their session was dropped, because a device may still write to their buffers.
//!
//! Each new session releases the jobs that have ended, so that their memory and their entries of a dedicated queue come
//! back.

use std::sync::{Mutex, TryLockError};

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

static ABANDONED: Mutex<Vec<Abandoned>> = Mutex::new(Vec::new());

/// Keeps memory that a device may still write.
pub(super) fn keep(abandoned: Abandoned) {
    match ABANDONED.try_lock() {
        Ok(mut all) => all.push(abandoned),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().push(abandoned),
        // In a forked process, a thread that no longer exists may hold the lock for ever.
        Err(TryLockError::WouldBlock) => std::mem::forget(abandoned),
    }
}

/// Releases ended jobs.
pub(super) fn sweep() {
    let Ok(mut all) = ABANDONED.try_lock() else { return };
    for mut abandoned in std::mem::take(&mut *all) {
        // A forked child does not have the pages.
        if !abandoned.home.is_here() {
            std::mem::forget(abandoned);
            continue;
        }
        let Abandoned { pool, slots, queues, jobs, .. } = &mut abandoned;
        release(pool, slots, queues, jobs, |_| {});
        if !abandoned.jobs.is_empty() {
            all.push(abandoned);
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
