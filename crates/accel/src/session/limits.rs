//! The limits of a session, and its counters.

use std::time::Duration;

/// The sizes and the waiting time of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Jobs that can be under way.
    pub jobs: usize,
    /// The longest source, a second one included.
    pub source_bytes_max: usize,
    /// The longest output.
    pub output_bytes_max: usize,
    /// The longest time of a job, from the first wait for it. After a wait for a full queue, the time begins anew.
    pub time_max: Duration,
}

impl Default for Limits {
    /// 32 jobs of up to 16 KiB to either side, 2 seconds.
    fn default() -> Limits {
        let bytes = 16 << 10;
        Limits {
            jobs: 32,
            source_bytes_max: bytes,
            output_bytes_max: bytes,
            time_max: Duration::from_secs(2),
        }
    }
}

/// The counters of a session since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Jobs that were taken.
    pub jobs: u64,
    /// Descriptors that queues took. They are more than jobs if an operation takes several or is tried again.
    pub descriptors: u64,
    /// Times that a queue was full.
    pub queue_full: u64,
    /// Page faults.
    pub page_faults: u64,
    /// Queues that were lost.
    pub queues_lost: u64,
    /// Jobs that did not end in time.
    pub timed_out: u64,
}
