//! A stand-in for the library that copies bytes. Its device ends jobs on command.

use super::{Fields, Functions, status};
use std::ptr::copy_nonoverlapping;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Whether jobs that were submitted do not end.
pub(in super::super) static IS_STUCK: AtomicBool = AtomicBool::new(false);
/// Whether no job is taken.
pub(in super::super) static IS_FULL: AtomicBool = AtomicBool::new(false);
/// Whether it reports more written bytes than the target has room for.
pub(in super::super) static IS_LYING: AtomicBool = AtomicBool::new(false);
/// Whether it reads a stream of no bytes.
pub(in super::super) static MAKES_NOTHING: AtomicBool = AtomicBool::new(false);
/// Whether its device calls the data of every job damaged.
pub(in super::super) static BLAMES_DATA: AtomicBool = AtomicBool::new(false);
/// Jobs that there are.
pub(in super::super) static JOBS: AtomicUsize = AtomicUsize::new(0);

/// The functions of a library that has no other state.
pub(in super::super) fn functions() -> &'static Functions {
    let version = "v1.0.0".to_owned();
    Box::leak(Box::new(Functions { job_size, init, execute, submit, check, finish, version }))
}

unsafe extern "C" fn job_size(_path: u32, bytes: *mut u32) -> u32 {
    // SAFETY: the caller's pointer is valid.
    unsafe { *bytes = 300 };
    status::OK
}

unsafe extern "C" fn init(_path: u32, _job: *mut Fields) -> u32 {
    JOBS.fetch_add(1, Relaxed);
    status::OK
}

unsafe extern "C" fn finish(_job: *mut Fields) -> u32 {
    JOBS.fetch_sub(1, Relaxed);
    status::OK
}

unsafe extern "C" fn submit(_job: *mut Fields) -> u32 {
    if IS_FULL.load(Relaxed) { status::QUEUES_ARE_BUSY } else { status::OK }
}

unsafe extern "C" fn check(job: *mut Fields) -> u32 {
    match (IS_STUCK.load(Relaxed), BLAMES_DATA.load(Relaxed)) {
        (true, _) => status::BEING_PROCESSED,
        (_, true) => *status::DATA_ERRORS.start(),
        // SAFETY: as for `execute`.
        _ => unsafe { execute(job) },
    }
}

unsafe extern "C" fn execute(job: *mut Fields) -> u32 {
    // SAFETY: the caller's job is valid and prepared.
    let job = unsafe { &mut *job };
    if MAKES_NOTHING.load(Relaxed) {
        (job.total_in, job.total_out) = (job.available_in, 0);
        return status::OK;
    }
    if job.available_in > job.available_out {
        return status::MORE_OUTPUT_NEEDED;
    }
    // SAFETY: the source has these bytes, and the target room for more.
    unsafe { copy_nonoverlapping(job.next_in, job.next_out, job.available_in as usize) };
    (job.total_in, job.total_out) = (job.available_in, job.available_in);
    if IS_LYING.load(Relaxed) {
        job.total_out = job.available_out + 1;
    }
    job.available_out -= job.available_in;
    status::OK
}
