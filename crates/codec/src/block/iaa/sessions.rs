//! A thread's sessions with the accelerator: one for batches of small blocks, as in stores, and one for larger blocks.

use super::Devices;
use crate::block::ContextCounters;
use std::sync::Arc;
use ziptier_accel::{JobError, Limits, Operation, Session};

/// Jobs of a batch that are under way at a time.
const JOBS: usize = 32;

/// Bytes of a block of a batch. Its output has room for more than twice as much, for unsuitable codes.
const BLOCK_BYTES: usize = 4096;
const SMALL_BYTES_MAX: usize = 2 * BLOCK_BYTES + 64;

/// Sessions are made when they are first needed. Each job of the small session takes 24 KiB.
pub(super) struct Sessions {
    devices: Arc<Devices>,
    small: Option<Session>,
    large: Option<(usize, Session)>,
    seen: Seen,
}

/// The counters of the sessions at the last look.
#[derive(Default, Clone, Copy)]
struct Seen {
    queue_full: u64,
    page_faults: u64,
}

impl Sessions {
    pub(super) fn new(devices: Arc<Devices>) -> Sessions {
        Sessions { devices, small: None, large: None, seen: Seen::default() }
    }

    /// Whether a job of a batch has to wait until others have ended. Jobs that a device never ends do not count.
    pub(super) fn is_full(&self) -> bool {
        self.small.as_ref().is_some_and(|session| session.room() == 0 && session.under_way() > 0)
    }

    /// Does one job, appends its output to `out` and returns the output's length.
    pub(super) fn run(
        &mut self,
        operation: &Operation,
        source: &[u8],
        output_bytes_max: usize,
        out: &mut Vec<u8>,
        counters: &mut ContextCounters<'_>,
    ) -> Result<usize, JobError> {
        let bytes = source.len().max(output_bytes_max);
        if bytes > TRANSFER_BYTES_MAX {
            return Err(JobError::TooLarge { bytes, bytes_max: TRANSFER_BYTES_MAX });
        }
        let session = if is_small(bytes) { self.small() } else { self.large(bytes) };
        let result = session.run(operation, source, output_bytes_max, |finished| {
            let output = finished?.output;
            out.extend_from_slice(output);
            Ok(output.len())
        });
        self.count(counters);
        result
    }

    /// Begins a job of a batch.
    pub(super) fn submit(
        &mut self,
        operation: &Operation,
        tag: u64,
        source: &[u8],
        output_bytes_max: usize,
        counters: &mut ContextCounters<'_>,
    ) -> Result<(), JobError> {
        let result = self.small().submit(operation, tag, source, output_bytes_max);
        self.count(counters);
        result
    }

    /// Hands ended jobs of the batch to `done`; with `wait` until none is under way.
    pub(super) fn reap(
        &mut self,
        wait: bool,
        counters: &mut ContextCounters<'_>,
        mut done: impl FnMut(u64, Result<&[u8], JobError>),
    ) {
        let Some(session) = &mut self.small else { return };
        let each = |tag, result: Result<ziptier_accel::Finished<'_>, JobError>| {
            done(tag, result.map(|finished| finished.output));
        };
        if wait {
            session.reap_all(each);
        } else {
            session.reap(each);
        }
        self.count(counters);
    }

    fn small(&mut self) -> &mut Session {
        let devices = &self.devices;
        self.small.get_or_insert_with(|| session(devices, JOBS, SMALL_BYTES_MAX))
    }

    /// A session for one job of `bytes` bytes, at most as many as a queue transfers.
    fn large(&mut self, bytes: usize) -> &mut Session {
        let fits = self.large.as_ref().is_some_and(|(room, _)| *room >= bytes);
        let kept = self.large.take().filter(|_| fits);
        let made = kept.unwrap_or_else(|| {
            let room = bytes.next_power_of_two();
            // Its counters begin anew.
            self.seen = self.small.as_ref().map(seen).unwrap_or_default();
            (room, session(&self.devices, 1, room))
        });
        &mut self.large.insert(made).1
    }

    /// Adds the sessions' events since the last time to the counters.
    fn count(&mut self, counters: &mut ContextCounters<'_>) {
        let sessions = self.small.iter().chain(self.large.as_ref().map(|(_, session)| session));
        let now = sessions.map(seen).fold(Seen::default(), |sum, own| Seen {
            queue_full: sum.queue_full + own.queue_full,
            page_faults: sum.page_faults + own.page_faults,
        });
        let before = std::mem::replace(&mut self.seen, now);
        counters.device_met(
            now.queue_full.saturating_sub(before.queue_full),
            now.page_faults.saturating_sub(before.page_faults),
        );
    }
}

/// Larger blocks are not tried: this is the usual limit of a work queue.
const TRANSFER_BYTES_MAX: usize = 2 << 20;

fn is_small(bytes: usize) -> bool {
    bytes <= SMALL_BYTES_MAX
}

/// A session for `jobs` jobs under way, each with at most `bytes_max` bytes of input and of output.
fn session(devices: &Devices, jobs: usize, bytes_max: usize) -> Session {
    let time_max = devices.job_time_max;
    let limits = Limits { jobs, source_bytes_max: bytes_max, output_bytes_max: bytes_max, time_max };
    Session::new(devices.near(), limits)
}

fn seen(session: &Session) -> Seen {
    let counters = session.counters();
    Seen { queue_full: counters.queue_full, page_faults: counters.page_faults }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Counters;
    use ziptier_accel::null::NullDevice;
    use ziptier_accel::{Codes, Device};

    #[test]
    fn blocks_that_no_queue_transfers_cost_no_session() {
        let devices: Vec<Arc<dyn Device>> = vec![Arc::new(NullDevice::new())];
        let devices = Devices::given(devices, std::time::Duration::from_secs(60));
        let (mut sessions, counters) = (Sessions::new(Arc::new(devices)), Counters::new());
        let (mut own, mut out) = (counters.open(), Vec::new());
        let operation = Operation::Compress { codes: Codes::Fixed, verify: false };
        let mut run = |sessions: &mut Sessions, bytes: usize| {
            sessions.run(&operation, &vec![1; bytes], bytes, &mut out, &mut own).err()
        };
        for bytes in [TRANSFER_BYTES_MAX + 1, 5 << 20] {
            let refused = run(&mut sessions, bytes);
            assert!(matches!(refused, Some(JobError::TooLarge { .. })), "{refused:?}");
            assert!(sessions.large.is_none());
        }
        // Such blocks also leave the session for other blocks intact.
        assert!(run(&mut sessions, TRANSFER_BYTES_MAX).is_none());
        run(&mut sessions, TRANSFER_BYTES_MAX + 1);
        let jobs = sessions.large.as_ref().map(|(room, session)| (*room, session.counters().jobs));
        assert_eq!(jobs, Some((TRANSFER_BYTES_MAX, 1)));
    }
}
