//! The queue of a modelled device, and the thread behind it.

use super::engine::{Done, Engine};
use super::injection::{Injection, Injector, Misfortune};
use super::memo::Memo;
use super::memory::JobMemory;
use super::options::ModelOptions;
use super::schedule::Schedule;
use super::usage::{ThreadMeter, note_job};
use crate::completion::{Outcome, Status};
use crate::descriptor::{Descriptor, Opcode, operation};
use crate::device::{Capabilities, Device, SubmitError, iaa_cap};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number of times an idle thread looks for jobs before it sleeps: some five microseconds.
const LOOKS: u32 = 200;

/// The shortest sleep of a thread: waking it up takes that long.
const SLEEP_MIN: Duration = Duration::from_micros(80);

/// A modelled device with one shared work queue.
///
/// When it is dropped, jobs that it still holds are executed and completed, and those that were stuck end with
/// [`Status::Hardware`].
pub struct Model {
    name: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The worker that executes jobs within their submission.
    worker: Option<Mutex<Worker>>,
}

struct Shared {
    capabilities: Capabilities,
    is_timed: bool,
    queue: Mutex<Queue>,
    woken: Condvar,
    /// Jobs that no thread has taken.
    waiting: AtomicU32,
    /// Jobs that have not ended.
    held: AtomicU32,
    lateness: Mutex<Lateness>,
    errors: Mutex<Vec<(Descriptor, Outcome)>>,
}

struct Queue {
    jobs: VecDeque<Job>,
    injector: Injector,
    is_asleep: bool,
    is_closed: bool,
    is_lost: bool,
}

struct Job {
    memory: JobMemory,
    submitted: Option<Instant>,
    delay: Duration,
    fate: Fate,
}

/// The decision about a job at its submission.
enum Fate {
    Execute { waits: bool, late: u32 },
    End(Outcome),
    Stuck,
}

/// The delay of the software behind the modelled device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Jobs with a planned completion time.
    pub jobs: u64,
    /// Jobs that were completed more than a microsecond late.
    pub late_jobs: u64,
    /// By how much together.
    pub total: Duration,
    /// By how much at most.
    pub worst: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Model {
    /// The first of the modelled devices. Fails if the system grants no thread.
    pub fn open(options: &ModelOptions) -> io::Result<Model> {
        Model::with_injection(options, options.injection())
    }

    /// All modelled devices, as many as the options say.
    pub fn open_all(options: &ModelOptions) -> io::Result<Vec<Model>> {
        let memo = memo(options);
        let open = |number| Model::numbered(options, options.injection(), number, memo.clone());
        (0..options.devices).map(open).collect()
    }

    /// A device with these faults instead of those of the options.
    pub fn with_injection(options: &ModelOptions, injection: Injection) -> io::Result<Model> {
        Model::numbered(options, injection, 0, memo(options))
    }

    fn numbered(
        options: &ModelOptions,
        injection: Injection,
        number: u32,
        memo: Option<Arc<Mutex<Memo>>>,
    ) -> io::Result<Model> {
        let shared = Arc::new(Shared {
            capabilities: capabilities(options),
            is_timed: options.timing.is_some(),
            queue: Mutex::new(Queue {
                jobs: VecDeque::new(),
                injector: Injector::new(injection),
                is_asleep: false,
                is_closed: false,
                is_lost: false,
            }),
            woken: Condvar::new(),
            waiting: AtomicU32::new(0),
            held: AtomicU32::new(0),
            lateness: Mutex::default(),
            errors: Mutex::default(),
        });
        let mut worker = Worker::new(shared.clone(), options, memo);
        let name = format!("model{number}/wq{number}.0");
        if options.is_synchronous {
            return Ok(Model { name, shared, thread: None, worker: Some(Mutex::new(worker)) });
        }
        let thread =
            std::thread::Builder::new().name(format!("model{number}")).spawn(move || worker.run())?;
        Ok(Model { name, shared, thread: Some(thread), worker: None })
    }

    /// The delay of the software behind the modelled device so far.
    pub fn lateness(&self) -> Lateness {
        *lock(&self.shared.lateness)
    }

    /// Takes the failures of jobs without a completion record, as the kernel's log of a device would hold them.
    pub fn take_errors(&self) -> Vec<(Descriptor, Outcome)> {
        std::mem::take(&mut lock(&self.shared.errors))
    }

    fn execute_now(&self, queue: MutexGuard<'_, Queue>, job: Job, worker: &Mutex<Worker>) {
        drop(queue);
        lock(worker).execute(job);
    }
}

impl Device for Model {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_modelled(&self) -> bool {
        true
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        let shared = &*self.shared;
        let is_full = || shared.held.load(Ordering::Acquire) >= shared.capabilities.depth;
        if is_full() {
            return Err(SubmitError::Full);
        }
        let mut queue = lock(&shared.queue);
        // Others may have filled the queue meanwhile. Under the lock it only empties.
        if is_full() {
            return Err(SubmitError::Full);
        }
        if queue.injector.is_lost() {
            queue.is_lost = true;
            let why = io::Error::new(io::ErrorKind::NotConnected, "the modelled device was taken away");
            return Err(SubmitError::Lost(why));
        }
        let Some(fate) = fate(&mut queue.injector, descriptor, shared.capabilities.generation) else {
            return Err(SubmitError::Full);
        };
        let delay = queue.injector.delay();
        // SAFETY: the caller keeps the contract of this method until the job is completed or dropped.
        let memory = unsafe { JobMemory::new(*descriptor) };
        let has_time = self.worker.is_none() && (shared.is_timed || !delay.is_zero());
        let job = Job { memory, submitted: has_time.then(Instant::now), delay, fate };
        shared.held.fetch_add(1, Ordering::AcqRel);
        if let Some(worker) = &self.worker {
            self.execute_now(queue, job, worker);
            return Ok(());
        }
        queue.enter(job, shared);
        if queue.is_asleep {
            queue.is_asleep = false;
            drop(queue);
            shared.woken.notify_one();
        }
        Ok(())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        lock(&self.shared.queue).is_closed = true;
        self.shared.woken.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        if let Some(worker) = &self.worker {
            lock(worker).end();
        }
    }
}

impl Queue {
    fn enter(&mut self, job: Job, shared: &Shared) {
        self.jobs.push_back(job);
        shared.waiting.fetch_add(1, Ordering::Release);
    }
}

/// Moves the calling thread to the processors outside the process's confinement, which the measurement does not
/// include. If there are none, the system refuses, and the thread stays.
fn stand_aside() {
    if cfg!(miri) {
        return;
    }
    let Ok(confined) = sched_getaffinity(None) else { return };
    let mut others = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|&cpu| !confined.is_set(cpu)).for_each(|cpu| others.set(cpu));
    let _ = sched_setaffinity(None, &others);
}

/// The memory for answers, if the model is timed.
fn memo(options: &ModelOptions) -> Option<Arc<Mutex<Memo>>> {
    options.timing.filter(|_| !options.is_synchronous && cfg!(not(miri)))?;
    Some(Arc::new(Mutex::new(Memo::new()?)))
}

fn capabilities(options: &ModelOptions) -> Capabilities {
    use Opcode::{ZeroCompress16, ZeroCompress32, ZeroDecompress16, ZeroDecompress32};
    let mut opcodes = [0; 4];
    let unknown = [ZeroCompress16, ZeroCompress32, ZeroDecompress16, ZeroDecompress32];
    for opcode in Opcode::ALL.into_iter().filter(|opcode| !unknown.contains(opcode)) {
        opcodes[opcode as usize / 64] |= 1 << (opcode as usize % 64);
    }
    let second = iaa_cap::FORCE_ARRAY | iaa_cap::PARTIAL_STATE | iaa_cap::HEADER_GENERATION;
    Capabilities {
        generation: options.generation,
        block_on_fault: options.block_on_fault,
        transfer_bytes_max: options.transfer_bytes_max,
        depth: options.depth,
        tells_full: true,
        opcodes,
        iaa_cap: if options.generation >= 2 { second } else { 0 },
    }
}

/// The fate of the next job; `None` if it is not taken.
fn fate(injector: &mut Injector, descriptor: &Descriptor, generation: u8) -> Option<Fate> {
    let (source1, destination) = (descriptor.source1(), descriptor.destination());
    let ranges = [
        (source1, u64::from(descriptor.source1_bytes()), false),
        (descriptor.source2(), u64::from(descriptor.source2_bytes()), false),
        (destination, u64::from(descriptor.destination_bytes_max()), true),
    ];
    let misfortune = injector.next();
    let fault = match misfortune {
        Some(Misfortune::PageFault { is_write, offset }) => {
            let begin = if is_write { destination } else { source1 };
            Some((begin.wrapping_add(u64::from(offset)), is_write))
        }
        _ => injector.fault(&ranges),
    };
    let mut waits = false;
    if let Some((address, is_write)) = fault {
        if descriptor.flags() & operation::BLOCK_ON_FAULT == 0 {
            return Some(Fate::End(page_fault(address, is_write, generation)));
        }
        waits = true;
    }
    Some(match misfortune {
        Some(Misfortune::QueueFull) => return None,
        Some(Misfortune::Status(status)) => Fate::End(Outcome::new(status)),
        Some(Misfortune::Error(error)) => Fate::End(super::engine::failed(error)),
        Some(Misfortune::Stuck) => Fate::Stuck,
        Some(Misfortune::Late { jobs }) => Fate::Execute { waits, late: jobs },
        Some(Misfortune::PageFault { .. }) | None => Fate::Execute { waits, late: 0 },
    })
}

fn page_fault(address: u64, is_write: bool, generation: u8) -> Outcome {
    let mut outcome = Outcome::new(Status::PageFault);
    outcome.set_fault_address(address);
    if is_write {
        outcome.set_faulted_on_write();
    }
    if generation >= 2 {
        outcome.set_fault_information(1);
    }
    outcome
}

/// A job whose answer is known.
struct Answer {
    memory: JobMemory,
    outcome: Outcome,
}

/// Executes jobs and completes them in time.
struct Worker {
    shared: Arc<Shared>,
    engine: Engine,
    schedule: Option<Schedule>,
    is_synchronous: bool,
    /// Answers by when they are due, and in the order in which they were found.
    due: BTreeMap<(Instant, u64), Answer>,
    answers: u64,
    /// Answers that wait for so many others.
    late: Vec<(u32, Answer)>,
    stuck: Vec<JobMemory>,
    meter: ThreadMeter,
}

impl Worker {
    fn new(shared: Arc<Shared>, options: &ModelOptions, memo: Option<Arc<Mutex<Memo>>>) -> Worker {
        let schedule = if options.is_synchronous { None } else { Schedule::new(options, Instant::now()) };
        Worker {
            shared,
            engine: Engine::new(memo),
            schedule,
            is_synchronous: options.is_synchronous,
            due: BTreeMap::new(),
            answers: 0,
            late: Vec::new(),
            stuck: Vec::new(),
            meter: ThreadMeter::default(),
        }
    }

    fn run(&mut self) {
        stand_aside();
        while let Some(job) = self.next() {
            self.execute(job);
            self.complete_due();
            self.meter.after_job();
        }
        self.end();
        self.meter.look();
    }

    /// Waits for a job, and completes due jobs meanwhile. `None` when the model is dropped.
    fn next(&mut self) -> Option<Job> {
        let shared = self.shared.clone();
        loop {
            for _ in 0..LOOKS {
                if shared.waiting.load(Ordering::Acquire) > 0 {
                    break;
                }
                self.complete_due();
                std::hint::spin_loop();
            }
            let mut queue = lock(&shared.queue);
            if queue.is_lost {
                self.lose(&mut queue);
            }
            if let Some(job) = queue.jobs.pop_front() {
                shared.waiting.fetch_sub(1, Ordering::AcqRel);
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            if self.due.is_empty() && !self.late.is_empty() {
                drop(queue);
                self.complete_late();
                continue;
            }
            let next_due = self.due.first_key_value().map(|(&(due, _), _)| due);
            let pause = next_due.map(|due| due.saturating_duration_since(Instant::now()));
            match pause {
                None => {
                    self.meter.look();
                    queue.is_asleep = true;
                    queue = shared.woken.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
                Some(pause) if pause > SLEEP_MIN => {
                    queue.is_asleep = true;
                    let slept = shared.woken.wait_timeout(queue, pause - SLEEP_MIN / 2);
                    queue = slept.unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(_) => {}
            }
            queue.is_asleep = false;
            drop(queue);
            self.complete_due();
        }
    }

    fn execute(&mut self, job: Job) {
        let Job { memory, submitted, delay, fate } = job;
        let (done, waits, late) = match fate {
            Fate::Stuck => {
                self.stuck.push(memory);
                return;
            }
            Fate::End(outcome) => (Done { outcome, raw_bytes: 0 }, false, 0),
            Fate::Execute { waits, late } => {
                (self.engine.execute(&memory, &self.shared.capabilities), waits, late)
            }
        };
        let opcode = memory.descriptor().opcode();
        let answer = Answer { memory, outcome: done.outcome };
        if late > 0 && !self.is_synchronous {
            self.late.push((late, answer));
            return;
        }
        let Some(submitted) = submitted else { return self.complete(answer) };
        let due = match &mut self.schedule {
            Some(schedule) => schedule.completion(submitted, opcode, done.raw_bytes, waits),
            None => submitted,
        };
        self.answers += 1;
        self.due.insert((due + delay, self.answers), answer);
    }

    fn complete_due(&mut self) {
        while let Some(entry) = self.due.first_entry() {
            let (due, now) = (entry.key().0, Instant::now());
            if due > now {
                return;
            }
            let answer = entry.remove();
            lock(&self.shared.lateness).add(now - due);
            self.complete(answer);
        }
    }

    fn complete(&mut self, answer: Answer) {
        self.tell(answer);
        if self.late.is_empty() {
            return;
        }
        self.late.iter_mut().for_each(|(left, _)| *left -= 1);
        while let Some(place) = self.late.iter().position(|(left, _)| *left == 0) {
            let (_, answer) = self.late.swap_remove(place);
            self.tell(answer);
        }
    }

    fn complete_late(&mut self) {
        std::mem::take(&mut self.late).into_iter().for_each(|(_, answer)| self.tell(answer));
    }

    /// Writes the completion record, if there is one to be written.
    fn tell(&self, answer: Answer) {
        let Answer { memory, outcome } = answer;
        let descriptor = *memory.descriptor();
        let has_record = descriptor.flags() & operation::COMPLETION_ADDRESS_VALID != 0
            && descriptor.completion() >= 4096
            && descriptor.completion().is_multiple_of(64);
        let is_success = outcome.status() == Some(Status::Success);
        let is_wanted = descriptor.flags() & operation::REQUEST_COMPLETION != 0 || !is_success;
        // The place in the queue is free before any thread can see that the job has ended.
        self.shared.held.fetch_sub(1, Ordering::AcqRel);
        if has_record && is_wanted {
            memory.complete(&outcome);
        } else if !is_success {
            lock(&self.shared.errors).push((descriptor, outcome));
        }
    }

    /// Nothing that is held ends any more.
    fn lose(&mut self, queue: &mut Queue) {
        self.shared.waiting.store(0, Ordering::Release);
        self.stuck.extend(queue.jobs.drain(..).map(|job| job.memory));
        self.stuck.extend(std::mem::take(&mut self.due).into_values().map(|answer| answer.memory));
        self.stuck.extend(std::mem::take(&mut self.late).into_iter().map(|(_, answer)| answer.memory));
    }

    /// Answers everything that is held.
    fn end(&mut self) {
        let due = std::mem::take(&mut self.due);
        due.into_values().for_each(|answer| self.tell(answer));
        self.complete_late();
        for memory in std::mem::take(&mut self.stuck) {
            self.tell(Answer { memory, outcome: Outcome::new(Status::Hardware) });
        }
    }
}

impl Lateness {
    fn add(&mut self, by: Duration) {
        let is_late = by > Duration::from_micros(1);
        note_job(by, is_late);
        self.jobs += 1;
        self.late_jobs += u64::from(is_late);
        self.total += by;
        self.worst = self.worst.max(by);
    }
}
