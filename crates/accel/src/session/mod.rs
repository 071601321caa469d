//! A thread's session with the accelerator: submit jobs, continue, and reap them in the order in which they end.
//!
//! ```
//! use std::sync::Arc;
//! use ziptier_accel::null::NullDevice;
//! use ziptier_accel::{Codes, Limits, Operation, Session};
//!
//! let operation = Operation::Compress { codes: Codes::Fixed, verify: false };
//! let mut session = Session::new(vec![Arc::new(NullDevice::new())], Limits::default());
//! for tag in 0..16 {
//!     session.submit(&operation, tag, b"a block", 4096)?;
//! }
//! let mut ended = 0;
//! session.reap_all(|tag, result| {
//!     let packed = result.expect("a null device fails at nothing").output;
//!     assert!(tag < 16 && packed.len() == 4096);
//!     ended += 1;
//! });
//! assert_eq!(ended, 16);
//! # Ok::<(), ziptier_accel::JobError>(())
//! ```
//!
//! Every job that was taken ends exactly once: with a result or with a [`JobError`]. The session repeats a whole job if
//! that helps: after a page fault, once the page is there, and when a queue is full. The caller handles all other
//! errors.

mod abandoned;
mod limits;
mod queues;
mod waiting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::completion::{Outcome, Status};
use crate::descriptor::Descriptor;
use crate::device::{Capabilities, Device};
use crate::error::{JobError, error_of};
use crate::guarded::forked;
use crate::home::Home;
use crate::jobs::JobPool;
use crate::operations::{Next, Operation, Place, Sizes, Step};
use abandoned::Abandoned;
pub use limits::{Counters, Limits};
use queues::Queues;
use waiting::{Clock, Patience};

/// The result of a job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished<'a> {
    /// The bytes that the device wrote. The last byte of a bit vector may be valid in part, see
    /// [`Outcome::output_bits`].
    pub output: &'a [u8],
    /// CRC, sums and other figures of the device. For a verified compression they are those of the compression.
    pub outcome: Outcome,
    /// Whether a model did the job, so that times mean nothing.
    pub is_modelled: bool,
}

/// Page faults after which a job is given up, besides one for each page of its buffers. Some pages may go again.
const FAULTS_SPARE: u32 = 64;

/// A thread's jobs on one or several queues. It holds, for each job, both buffers and 7 KiB.
///
/// A forked child cannot use the session. In the child, no job is taken, and jobs under way end with
/// [`JobError::NoQueue`].
pub struct Session {
    home: Home,
    queues: Queues,
    pool: JobPool,
    time_max: Duration,
    faults_max: u32,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Taken and not ended.
    under_way: Vec<u32>,
    /// Jobs that ended for the caller, but not for the device. The device may still write their buffers.
    quarantined: Vec<u32>,
    counters: Counters,
}

struct Slot {
    tag: u64,
    operation: Option<Operation>,
    sizes: Sizes,
    step: Step,
    before: Option<Outcome>,
    descriptor: Descriptor,
    /// The queue that has the descriptor; `None` while all are full.
    queue: Option<usize>,
    faults: u32,
    deadline: Option<Instant>,
}

impl Session {
    /// A session on these queues, which should be those of the caller's NUMA node. It allocates all that it will ever
    /// need.
    ///
    /// # Panics
    ///
    /// If there is no queue, or a limit is 0.
    pub fn new(queues: Vec<Arc<dyn Device>>, limits: Limits) -> Session {
        assert!(!queues.is_empty() && limits.jobs > 0, "a session has a queue and a job");
        abandoned::sweep();
        let slot = |_| Slot {
            tag: 0,
            operation: None,
            sizes: Sizes { source: 0, source2: 0, output_max: 0 },
            step: Step::Last,
            before: None,
            descriptor: Descriptor::from_bytes([0; 64]),
            queue: None,
            faults: 0,
            deadline: None,
        };
        let pool = JobPool::new(limits.jobs, limits.source_bytes_max, limits.output_bytes_max);
        Session {
            home: Home::here(),
            queues: Queues::new(queues),
            faults_max: pool.pages_of_job() + FAULTS_SPARE,
            pool,
            time_max: limits.time_max,
            slots: (0..limits.jobs).map(slot).collect(),
            free: (0..limits.jobs as u32).rev().collect(),
            under_way: Vec::with_capacity(limits.jobs),
            quarantined: Vec::with_capacity(limits.jobs),
            counters: Counters::default(),
        }
    }

    /// The common capabilities of all its queues.
    pub fn capabilities(&self) -> &Capabilities {
        self.queues.capabilities()
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Jobs that were taken and have not been reaped.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Jobs that can be submitted before some must be reaped.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Takes a job whose output has at most `output_bytes_max` bytes. The result carries `tag`. The source is copied.
    ///
    /// After an error the job was not taken.
    pub fn submit(
        &mut self,
        operation: &Operation,
        tag: u64,
        source: &[u8],
        output_bytes_max: usize,
    ) -> Result<(), JobError> {
        let fill = |input: &mut [u8]| input.copy_from_slice(source);
        self.submit_filled(operation, tag, source.len(), output_bytes_max, fill)
    }

    /// The same for a source of this many bytes that the closure writes in place.
    pub fn submit_filled(
        &mut self,
        operation: &Operation,
        tag: u64,
        source_bytes: usize,
        output_bytes_max: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), JobError> {
        self.take(operation, tag, [source_bytes, 0], output_bytes_max, |input, _| fill(input)).map(drop)
    }

    /// The same with a second source: the bits of [`FilterKind::Select`](crate::FilterKind::Select) and
    /// [`FilterKind::Expand`](crate::FilterKind::Expand).
    pub fn submit_with_mask(
        &mut self,
        operation: &Operation,
        tag: u64,
        source: &[u8],
        mask: &[u8],
        output_bytes_max: usize,
    ) -> Result<(), JobError> {
        let fill = |input: &mut [u8], second: &mut [u8]| {
            input.copy_from_slice(source);
            second.copy_from_slice(mask);
        };
        self.take(operation, tag, [source.len(), mask.len()], output_bytes_max, fill).map(drop)
    }

    /// Hands ended jobs to `done`, with their tags, and returns their number. It does not wait.
    pub fn reap(&mut self, mut done: impl FnMut(u64, Result<Finished<'_>, JobError>)) -> usize {
        self.release_quarantined();
        let before = self.under_way.len();
        let mut clock = Clock::default();
        let mut at = 0;
        while let Some(&job) = self.under_way.get(at) {
            match self.advance(job as usize, &mut clock) {
                None => at += 1,
                Some(ended) => {
                    self.under_way.swap_remove(at);
                    self.hand_over(job, ended, &mut done);
                }
            }
        }
        before - self.under_way.len()
    }

    /// Waits until at least one job has ended, unless none is under way.
    pub fn reap_some(&mut self, mut done: impl FnMut(u64, Result<Finished<'_>, JobError>)) -> usize {
        let mut patience = Patience::new();
        while !self.under_way.is_empty() {
            let count = self.reap(&mut done);
            if count > 0 {
                return count;
            }
            patience.pause();
        }
        0
    }

    /// Waits until every job has ended.
    pub fn reap_all(&mut self, mut done: impl FnMut(u64, Result<Finished<'_>, JobError>)) -> usize {
        let mut count = 0;
        while !self.under_way.is_empty() {
            count += self.reap_some(&mut done);
        }
        count
    }

    /// Runs one job and waits for it. Other jobs continue, and are reaped later.
    pub fn run<R>(
        &mut self,
        operation: &Operation,
        source: &[u8],
        output_bytes_max: usize,
        done: impl FnOnce(Result<Finished<'_>, JobError>) -> R,
    ) -> R {
        self.run_with_mask(operation, source, &[], output_bytes_max, done)
    }

    /// The same with a second source.
    pub fn run_with_mask<R>(
        &mut self,
        operation: &Operation,
        source: &[u8],
        mask: &[u8],
        output_bytes_max: usize,
        done: impl FnOnce(Result<Finished<'_>, JobError>) -> R,
    ) -> R {
        let fill = |input: &mut [u8], second: &mut [u8]| {
            input.copy_from_slice(source);
            second.copy_from_slice(mask);
        };
        self.release_quarantined();
        let job = match self.take(operation, 0, [source.len(), mask.len()], output_bytes_max, fill) {
            Err(error) => return done(Err(error)),
            Ok(job) => job,
        };
        let mut patience = Patience::new();
        let ended = loop {
            match self.advance(job as usize, &mut Clock::default()) {
                Some(ended) => break ended,
                None => patience.pause(),
            }
        };
        self.under_way.retain(|&other| other != job);
        let (mut done, mut result) = (Some(done), None);
        self.hand_over(job, ended, &mut |_, ended| result = done.take().map(|done| done(ended)));
        result.expect("a job is handed over once")
    }

    fn take(
        &mut self,
        operation: &Operation,
        tag: u64,
        [source, source2]: [usize; 2],
        output_max: usize,
        fill: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<u32, JobError> {
        if !self.home.is_here() {
            return Err(JobError::NoQueue(forked()));
        }
        operation.check(self.queues.capabilities())?;
        let sizes = self.sizes_of(source, source2, output_max)?;
        if self.free.is_empty() {
            self.release_quarantined();
        }
        let Some(&job) = self.free.last() else { return Err(JobError::AllTaken) };
        // SAFETY: the job is free.
        let input = unsafe { self.pool.input_mut(job as usize) };
        let (first, second) = input.split_at_mut(sizes.source2_at().min(input.len()));
        fill(&mut first[..source], &mut second[..source2]);
        let mut place = Place { pool: &mut self.pool, job: job as usize, sizes };
        let (step, descriptor) = operation.first(&mut place, self.queues.capabilities());
        let slot = &mut self.slots[job as usize];
        (slot.tag, slot.sizes, slot.step, slot.descriptor) = (tag, sizes, step, descriptor);
        (slot.before, slot.faults, slot.deadline, slot.queue) = (None, 0, None, None);
        // The device reads states that the operation keeps alive.
        slot.operation = Some(operation.clone());
        if let Err(error) = self.dispatch(job as usize, Tries::Many) {
            self.slots[job as usize].operation = None;
            return Err(error);
        }
        self.counters.jobs += 1;
        self.free.pop();
        self.under_way.push(job);
        Ok(job)
    }

    fn sizes_of(&self, source: usize, source2: usize, output_max: usize) -> Result<Sizes, JobError> {
        let transfer_max = self.queues.capabilities().transfer_bytes_max as usize;
        let fits = |bytes: usize, bytes_max: usize| {
            if bytes <= bytes_max { Ok(()) } else { Err(JobError::TooLarge { bytes, bytes_max }) }
        };
        if source == 0 {
            return Err(JobError::Empty);
        }
        fits(source.max(source2), self.pool.input_bytes().min(transfer_max))?;
        fits(output_max, self.pool.output_bytes().min(transfer_max))?;
        let sizes = Sizes { source: source as u32, source2: source2 as u32, output_max: output_max as u32 };
        fits(if source2 > 0 { sizes.source2_at() + source2 } else { source }, self.pool.input_bytes())?;
        Ok(sizes)
    }

    /// Hands the descriptor of a job that is not under way to a queue.
    fn dispatch(&mut self, job: usize, tries: Tries) -> Result<(), JobError> {
        // SAFETY: the job is not under way.
        unsafe { self.pool.clear(job) };
        let slot = &mut self.slots[job];
        // SAFETY: the descriptor names buffers of the pool, which are the job's until it has ended, and states that the
        // slot's operation keeps alive. The record is cleared. No code touches any of them while `queue` is set.
        slot.queue = Some(unsafe { self.queues.submit(&slot.descriptor, tries as u32, &mut self.counters) }?);
        Ok(())
    }

    /// Checks whether a job has ended, and returns its end. Handles faults and further steps.
    fn advance(&mut self, job: usize, clock: &mut Clock) -> Option<Result<Outcome, JobError>> {
        if !self.home.is_here() {
            return Some(Err(JobError::NoQueue(forked())));
        }
        let Some(queue) = self.slots[job].queue else {
            return match self.dispatch(job, Tries::One) {
                Ok(()) => {
                    // The queue was full, and the device must not have less time for that.
                    self.slots[job].deadline = None;
                    None
                }
                Err(JobError::QueueFull) => self.is_late(job, clock).then_some(Err(JobError::QueueFull)),
                Err(error) => Some(Err(error)),
            };
        };
        let mut outcome = self.pool.poll(job);
        if outcome.is_none() {
            let is_given_up = self.queues.device(queue).is_lost() || self.is_late(job, clock);
            if !is_given_up {
                return None;
            }
            // The job may have ended in time while this thread stood still behind its look.
            outcome = self.pool.poll(job);
        }
        let Some(outcome) = outcome else { return Some(Err(JobError::TimedOut)) };
        self.queues.device(queue).retire();
        self.slots[job].queue = None;
        match self.judge(job, outcome) {
            Ok(Next::Done(outcome)) => return Some(Ok(outcome)),
            Ok(Next::Submit(step, descriptor)) => {
                let slot = &mut self.slots[job];
                (slot.step, slot.descriptor, slot.before) = (step, descriptor, Some(outcome));
            }
            Err(Trouble::Again) => {}
            Err(Trouble::Error(error)) => return Some(Err(error)),
        }
        match self.dispatch(job, Tries::Many) {
            Ok(()) | Err(JobError::QueueFull) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn judge(&mut self, job: usize, outcome: Outcome) -> Result<Next, Trouble> {
        let slot = &self.slots[job];
        let operation = slot.operation.as_ref().expect("a job under way has an operation");
        match outcome.status() {
            Some(Status::Success) => {
                let writes = slot.step != Step::Verify;
                if writes && outcome.output_bytes() > slot.descriptor.destination_bytes_max() {
                    let what = "more output than its destination holds";
                    return Err(Trouble::Error(JobError::Contradiction(what)));
                }
                let (step, before) = (slot.step, slot.before);
                let mut place = Place { pool: &mut self.pool, job, sizes: slot.sizes };
                operation.next(step, outcome, before, &mut place).map_err(Trouble::Error)
            }
            Some(Status::PageFault | Status::PageRequestRefused) => Err(self.bring_page(job, outcome)),
            _ if slot.step == Step::Verify && outcome.status() == Some(Status::Analytics) => {
                Err(Trouble::Error(JobError::VerifyFailed))
            }
            _ => {
                let compresses = matches!(operation, Operation::Compress { .. } | Operation::CompressPart(_));
                Err(Trouble::Error(error_of(&outcome, compresses)))
            }
        }
    }

    /// Touches the page on which a job faulted.
    fn bring_page(&mut self, job: usize, outcome: Outcome) -> Trouble {
        let (address, for_write) = (outcome.fault_address(), outcome.faulted_on_write());
        self.counters.page_faults += 1;
        let slot = &mut self.slots[job];
        slot.faults += 1;
        // SAFETY: the job is not under way.
        let is_own = slot.faults <= self.faults_max && unsafe { self.pool.touch(job, address, for_write) };
        let shared = slot.operation.as_ref().filter(|_| !for_write);
        let shared = shared.and_then(|operation| operation.shared_byte(address));
        match shared {
            _ if is_own => Trouble::Again,
            Some(byte) if slot.faults <= self.faults_max => {
                // SAFETY: the byte lies in a state that the slot's operation keeps alive.
                unsafe { std::ptr::with_exposed_provenance::<u8>(byte as usize).read_volatile() };
                Trouble::Again
            }
            _ => Trouble::Error(JobError::PageFault { address, for_write }),
        }
    }

    fn is_late(&mut self, job: usize, clock: &mut Clock) -> bool {
        let now = clock.now();
        now > *self.slots[job].deadline.get_or_insert(now + self.time_max)
    }

    /// Gives a job that has ended to its owner, and its slot to the next one.
    fn hand_over(
        &mut self,
        job: u32,
        ended: Result<Outcome, JobError>,
        done: &mut dyn FnMut(u64, Result<Finished<'_>, JobError>),
    ) {
        let slot = &mut self.slots[job as usize];
        let tag = slot.tag;
        if matches!(ended, Err(JobError::TimedOut)) {
            self.counters.timed_out += 1;
            self.queues.device(slot.queue.expect("a job that times out is under way")).timed_out();
            self.quarantined.push(job);
        } else {
            slot.operation = None;
            self.free.push(job);
        }
        done(
            tag,
            ended.map(|outcome| Finished {
                // SAFETY: the job is not under way.
                output: unsafe { self.pool.output(job as usize, outcome.output_bytes() as usize) },
                outcome,
                is_modelled: self.queues.are_modelled(),
            }),
        );
    }

    /// Takes back jobs that ended after they were given up.
    fn release_quarantined(&mut self) {
        if self.home.is_here() {
            let (pool, slots, free) = (&self.pool, &mut self.slots, &mut self.free);
            abandoned::release(pool, slots, &self.queues, &mut self.quarantined, |job| free.push(job));
        }
    }

    /// Whether a job that was given up, or is under way, may still end.
    fn is_worth_waiting(&self) -> bool {
        let is_lost = |queue| self.queues.device(queue).is_lost();
        self.quarantined
            .iter()
            .any(|&job| self.slots[job as usize].queue.is_some_and(|queue| !is_lost(queue)))
    }
}

/// The action after a failed descriptor.
enum Trouble {
    /// It is submitted again.
    Again,
    /// The job has failed.
    Error(JobError),
}

/// The number of times each full queue is tried.
#[derive(Clone, Copy)]
enum Tries {
    One = 1,
    Many = 32,
}

impl Drop for Session {
    /// Waits for the jobs under way. Jobs that do not end in time keep their buffers until they end.
    fn drop(&mut self) {
        let take_pool = |pool: &mut JobPool| std::mem::replace(pool, JobPool::new(1, 1, 1));
        if !self.home.is_here() {
            // The pages are the parent's alone.
            std::mem::forget(take_pool(&mut self.pool));
            return;
        }
        let mut patience = Patience::new();
        let end = Instant::now() + self.time_max;
        let slots = &self.slots;
        self.under_way.retain(|&job| slots[job as usize].queue.is_some());
        self.quarantined.extend(&self.under_way);
        self.release_quarantined();
        while self.is_worth_waiting() {
            // Read before the look: a job that ends in time while this thread stands still has not timed out.
            let is_over = Instant::now() > end;
            self.release_quarantined();
            if is_over {
                break;
            }
            patience.pause();
        }
        for job in self.quarantined.iter().filter(|job| self.under_way.contains(job)) {
            let queue = self.slots[*job as usize].queue;
            self.queues.device(queue.expect("a job that did not end is under way")).timed_out();
        }
        if !self.quarantined.is_empty() {
            abandoned::keep(Abandoned {
                home: self.home,
                pool: take_pool(&mut self.pool),
                slots: std::mem::take(&mut self.slots),
                queues: self.queues.take(),
                jobs: std::mem::take(&mut self.quarantined),
            });
        }
    }
}
