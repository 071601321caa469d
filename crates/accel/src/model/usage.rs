//! Totals of all models of this process, so that a measurement of the process can subtract the models' own part.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

static JOBS: AtomicU64 = AtomicU64::new(0);
static LATE_JOBS: AtomicU64 = AtomicU64::new(0);
static LATE_NS: AtomicU64 = AtomicU64::new(0);
static CPU_NS: AtomicU64 = AtomicU64::new(0);
static MEMO_BYTES: AtomicI64 = AtomicI64::new(0);

/// Jobs between two looks at the clock of CPU time, which is a system call.
const JOBS_PER_LOOK: u32 = 64;

/// Totals of all models of this process, including dropped ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelUsage {
    /// Jobs with a planned completion time.
    pub jobs: u64,
    /// Jobs that were completed more than a microsecond late.
    pub late_jobs: u64,
    /// By how much together.
    pub late: Duration,
    /// CPU time of the models' threads, without the last few jobs of each.
    pub cpu: Duration,
    /// Bytes of answers that models keep now, outside the allocator.
    pub memo_bytes: u64,
}

impl ModelUsage {
    /// The totals up to now.
    pub fn now() -> ModelUsage {
        ModelUsage {
            jobs: JOBS.load(Relaxed),
            late_jobs: LATE_JOBS.load(Relaxed),
            late: Duration::from_nanos(LATE_NS.load(Relaxed)),
            cpu: Duration::from_nanos(CPU_NS.load(Relaxed)),
            memo_bytes: MEMO_BYTES.load(Relaxed).max(0) as u64,
        }
    }
}

/// Notes a job with a planned completion time, and its delay.
pub(super) fn note_job(late: Duration, is_late: bool) {
    JOBS.fetch_add(1, Relaxed);
    if is_late {
        LATE_JOBS.fetch_add(1, Relaxed);
    }
    LATE_NS.fetch_add(late.as_nanos() as u64, Relaxed);
}

/// Notes by how many bytes the kept answers have grown.
pub(super) fn note_memo_growth(bytes: i64) {
    MEMO_BYTES.fetch_add(bytes, Relaxed);
}

/// The CPU time of one model's thread.
#[derive(Default)]
pub(super) struct ThreadMeter {
    counted_ns: u64,
    jobs: u32,
}

impl ThreadMeter {
    /// After a job: the clock is read now and then.
    pub(super) fn after_job(&mut self) {
        self.jobs += 1;
        if self.jobs >= JOBS_PER_LOOK {
            self.look();
        }
    }

    /// Counts what the calling thread used since the last look.
    pub(super) fn look(&mut self) {
        self.jobs = 0;
        if cfg!(miri) {
            // It has no clock of a thread's CPU time.
            return;
        }
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        CPU_NS.fetch_add(now_ns - self.counted_ns, Relaxed);
        self.counted_ns = now_ns;
    }
}
