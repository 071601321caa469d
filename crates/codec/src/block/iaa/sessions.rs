//! A thread's sessions with the accelerator: one for batches of small blocks, as in stores, one for larger blocks, and
//! one for the parts of a block.

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
    transfer_bytes_max: usize,
    small: Option<Session>,
    large: Option<Roomy>,
    parts: Option<Roomy>,
    seen: Seen,
}

/// A session for some jobs of up to so many bytes.
struct Roomy {
    jobs: usize,
    bytes: usize,
    session: Session,
}

impl Roomy {
    fn new(devices: &Devices, jobs: usize, bytes: usize) -> Roomy {
        let bytes = bytes.next_power_of_two();
        Roomy { jobs, bytes, session: session(devices, jobs, bytes) }
    }

    fn suffices(&self, jobs: usize, bytes: usize) -> bool {
        self.jobs >= jobs && self.bytes >= bytes
    }
}

/// A job for a part of a block.
pub(super) struct Part<'a> {
    pub(super) operation: &'a Operation,
    /// The two pieces of the job's source.
    pub(super) source: [&'a [u8]; 2],
    pub(super) output_bytes_max: usize,
}

impl Part<'_> {
    fn source_bytes(&self) -> usize {
        self.source[0].len() + self.source[1].len()
    }
}

/// The counters of the sessions at the last look.
#[derive(Default, Clone, Copy)]
struct Seen {
    queue_full: u64,
    page_faults: u64,
}

impl Sessions {
    pub(super) fn new(devices: Arc<Devices>) -> Sessions {
        let transfer_bytes_max = devices.transfer_bytes_max().min(TRANSFER_BYTES_MAX);
        Sessions { devices, transfer_bytes_max, small: None, large: None, parts: None, seen: Seen::default() }
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
        self.check_transfer(bytes)?;
        let session = if is_small(bytes) { self.small() } else { self.large(bytes) };
        let result = session.run(operation, source, output_bytes_max, |finished| {
            let output = finished?.output;
            out.extend_from_slice(output);
            Ok(output.len())
        });
        self.count(counters);
        result
    }

    /// As [`run`](Self::run), where the output may be shorter than the caller's limit. The limit of the job is what a
    /// queue transfers, if that is less.
    pub(super) fn run_up_to(
        &mut self,
        operation: &Operation,
        source: &[u8],
        output_bytes_max: usize,
        out: &mut Vec<u8>,
        counters: &mut ContextCounters<'_>,
    ) -> Result<usize, JobError> {
        let bytes_max = self.transferable(output_bytes_max);
        let result = self.run(operation, source, bytes_max, out, counters);
        result.map_err(|error| self.limited(error, output_bytes_max))
    }

    /// At most as many bytes as a queue transfers.
    pub(super) fn transferable(&self, bytes: usize) -> usize {
        bytes.min(self.transfer_bytes_max)
    }

    /// The error of a job whose output may have so many bytes, of which a queue may transfer fewer.
    pub(super) fn limited(&self, error: JobError, output_bytes_max: usize) -> JobError {
        let bytes_max = self.transferable(output_bytes_max);
        match error {
            JobError::DoesNotFit if bytes_max < output_bytes_max => {
                JobError::TooLarge { bytes: output_bytes_max, bytes_max }
            }
            error => error,
        }
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

    /// Begins all parts of a block. After an error none is under way.
    pub(super) fn submit_parts(
        &mut self,
        parts: &[Part<'_>],
        counters: &mut ContextCounters<'_>,
    ) -> Result<(), JobError> {
        let bytes = parts.iter().map(|part| part.source_bytes().max(part.output_bytes_max)).max();
        let bytes = bytes.unwrap_or(1);
        self.check_transfer(bytes)?;
        let session = self.parts(parts.len(), bytes);
        let submitted = parts.iter().enumerate().try_for_each(|(tag, part)| {
            let fill = |input: &mut [u8]| {
                let (first, second) = input.split_at_mut(part.source[0].len());
                first.copy_from_slice(part.source[0]);
                second.copy_from_slice(part.source[1]);
            };
            let source_bytes = part.source_bytes();
            session.submit_filled(part.operation, tag as u64, source_bytes, part.output_bytes_max, fill)
        });
        if submitted.is_err() {
            session.reap_all(|_, _| {});
        }
        self.count(counters);
        submitted
    }

    /// Waits for the parts that were begun, and hands the number and the output of each to `done`. Returns an error of
    /// a part if there is one.
    pub(super) fn reap_parts(
        &mut self,
        counters: &mut ContextCounters<'_>,
        mut done: impl FnMut(usize, &[u8]),
    ) -> Result<(), JobError> {
        let Some(Roomy { session, .. }) = &mut self.parts else { return Ok(()) };
        let mut reaped = Ok(());
        session.reap_all(|tag, result| match result {
            Ok(finished) => done(tag as usize, finished.output),
            Err(error) => reaped = Err(error),
        });
        self.count(counters);
        reaped
    }

    fn check_transfer(&self, bytes: usize) -> Result<(), JobError> {
        let bytes_max = self.transfer_bytes_max;
        if bytes > bytes_max { Err(JobError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
    }

    fn small(&mut self) -> &mut Session {
        let devices = &self.devices;
        self.small.get_or_insert_with(|| session(devices, JOBS, SMALL_BYTES_MAX))
    }

    /// A session for one job of `bytes` bytes, at most as many as a queue transfers.
    fn large(&mut self, bytes: usize) -> &mut Session {
        let kept = self.large.take().filter(|kept| kept.suffices(1, bytes));
        let made = kept.unwrap_or_else(|| {
            // The counters of a new session begin anew.
            self.seen = total(self.small.iter().chain(self.parts.as_ref().map(|roomy| &roomy.session)));
            Roomy::new(&self.devices, 1, bytes)
        });
        &mut self.large.insert(made).session
    }

    /// The same for several jobs.
    fn parts(&mut self, jobs: usize, bytes: usize) -> &mut Session {
        let kept = self.parts.take().filter(|kept| kept.suffices(jobs, bytes));
        let made = kept.unwrap_or_else(|| {
            self.seen = total(self.small.iter().chain(self.large.as_ref().map(|roomy| &roomy.session)));
            Roomy::new(&self.devices, jobs, bytes)
        });
        &mut self.parts.insert(made).session
    }

    /// Adds the sessions' events since the last time to the counters.
    fn count(&mut self, counters: &mut ContextCounters<'_>) {
        let roomy = self.large.iter().chain(&self.parts).map(|roomy| &roomy.session);
        let now = total(self.small.iter().chain(roomy));
        let before = std::mem::replace(&mut self.seen, now);
        counters.device_met(
            now.queue_full.saturating_sub(before.queue_full),
            now.page_faults.saturating_sub(before.page_faults),
        );
    }
}

/// Larger blocks are not tried, whatever a queue transfers: this is its usual limit.
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

fn total<'a>(sessions: impl Iterator<Item = &'a Session>) -> Seen {
    sessions.map(Session::counters).fold(Seen::default(), |sum, own| Seen {
        queue_full: sum.queue_full + own.queue_full,
        page_faults: sum.page_faults + own.page_faults,
    })
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
        let jobs = sessions.large.as_ref().map(|roomy| (roomy.bytes, roomy.session.counters().jobs));
        assert_eq!(jobs, Some((TRANSFER_BYTES_MAX, 1)));
    }
}
