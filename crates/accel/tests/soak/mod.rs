//! A device that fails in every possible way, and a session on two such devices. A test and an example use it.

use std::collections::HashMap;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ziptier_accel::null::NullDevice;
use ziptier_accel::{
    Capabilities, CompletionRecord, Counters, Descriptor, Device, ErrorCode, JobError, Limits, Operation,
    Outcome, Session, Status, Stream, SubmitError,
};

/// The result of a soak.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Jobs that were taken.
    pub(crate) taken: u64,
    /// Jobs of which nothing was heard.
    pub(crate) lost: u64,
    /// Jobs that ended more than once.
    pub(crate) twice: u64,
    /// Results that are not the job's.
    pub(crate) wrong: u64,
    /// How they ended.
    pub(crate) ends: HashMap<&'static str, u64>,
    pub(crate) counters: Counters,
}

/// Submits so many jobs, in batches of varying size, and reaps them.
pub(crate) fn soak(jobs: u64, seed: u64) -> Tally {
    let devices = [1, 2].map(|number| Unreliable::start(Numbers(seed.wrapping_mul(number) | 1)));
    let time_max = Duration::from_millis(20);
    let limits = Limits { jobs: 48, source_bytes_max: 256, output_bytes_max: 256, time_max };
    let mut session = Session::new(devices.map(|device| device as Arc<dyn Device>).into(), limits);
    let operation = Operation::Decompress(Stream::Plain);
    let mut numbers = Numbers(seed | 1);
    let mut ended = vec![0u8; jobs as usize];
    let mut tally = Tally::default();
    let (mut tag, mut source) = (0, [0; 64]);
    while tag < jobs || session.under_way() > 0 {
        for _ in 0..numbers.below(24) {
            if tag == jobs {
                break;
            }
            let length = 8 + numbers.below(56) as usize;
            source[..8].copy_from_slice(&tag.to_le_bytes());
            match session.submit(&operation, tag, &source[..length], 64) {
                Ok(()) => tag += 1,
                Err(JobError::QueueFull | JobError::AllTaken) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let mut done = |tag: u64, result: Result<ziptier_accel::Finished<'_>, JobError>| {
            ended[tag as usize] = ended[tag as usize].saturating_add(1);
            *tally.ends.entry(name_of(&result)).or_default() += 1;
            if let Ok(finished) = result {
                tally.wrong += u64::from(finished.output != answer_to(tag));
            }
        };
        if numbers.below(2) == 0 {
            session.reap_some(&mut done)
        } else {
            session.reap(&mut done)
        };
    }
    tally.taken = tag;
    tally.lost = ended.iter().filter(|&&times| times == 0).count() as u64;
    tally.twice = ended.iter().filter(|&&times| times > 1).count() as u64;
    tally.counters = session.counters();
    tally
}

fn name_of(result: &Result<ziptier_accel::Finished<'_>, JobError>) -> &'static str {
    match result {
        Ok(_) => "success",
        Err(JobError::QueueFull) => "queue full",
        Err(JobError::DoesNotFit) => "does not fit",
        Err(JobError::Damaged(_)) => "damaged",
        Err(JobError::Watchdog) => "watchdog",
        Err(JobError::Hardware(_)) => "hardware",
        Err(JobError::PageFault { .. }) => "page fault",
        Err(JobError::Rejected { .. }) => "rejected",
        Err(JobError::Contradiction(_)) => "contradiction",
        Err(JobError::TimedOut) => "timed out",
        Err(error) => panic!("{error}"),
    }
}

/// The device's output for a source that begins with this tag.
fn answer_to(tag: u64) -> [u8; 16] {
    let mut answer = [0; 16];
    answer[..8].copy_from_slice(&tag.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    answer[8..].copy_from_slice(&(!tag).to_be_bytes());
    answer
}

/// Xorshift, Marsaglia (2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Entries of the queue.
const DEPTH: usize = 20;

/// A device whose thread ends jobs in any order and any way, some of them far too late.
struct Unreliable {
    capabilities: Capabilities,
    queue: Arc<Mutex<Vec<Descriptor>>>,
    refusals: Mutex<Numbers>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Unreliable {
    fn start(mut numbers: Numbers) -> Arc<Unreliable> {
        let queue: Arc<Mutex<Vec<Descriptor>>> = Arc::default();
        let is_over = Arc::new(AtomicBool::new(false));
        let refusals = Mutex::new(Numbers(numbers.below(u64::MAX) | 1));
        let mut capabilities = NullDevice::new().capabilities().clone();
        (capabilities.block_on_fault, capabilities.depth) = (false, DEPTH as u32);
        let (theirs, theirs_over) = (queue.clone(), is_over.clone());
        let thread = std::thread::spawn(move || work(&theirs, &theirs_over, numbers));
        Arc::new(Unreliable { capabilities, queue, refusals, is_over, thread: Some(thread) })
    }
}

impl Device for Unreliable {
    fn name(&self) -> &str {
        "unreliable"
    }

    fn is_modelled(&self) -> bool {
        true
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        let mut queue = self.queue.lock().unwrap();
        if queue.len() >= DEPTH || self.refusals.lock().unwrap().below(20) == 0 {
            return Err(SubmitError::Full);
        }
        queue.push(*descriptor);
        Ok(())
    }
}

impl Drop for Unreliable {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn work(queue: &Mutex<Vec<Descriptor>>, is_over: &AtomicBool, mut numbers: Numbers) {
    let (mut jobs, mut late) = (Vec::new(), Vec::new());
    while !is_over.load(Ordering::Relaxed) || !jobs.is_empty() {
        if jobs.is_empty() {
            jobs.append(&mut queue.lock().unwrap());
        }
        if jobs.is_empty() {
            std::thread::yield_now();
            continue;
        }
        let job = jobs.swap_remove(numbers.below(jobs.len() as u64) as usize);
        let answer = read_answer(&job);
        if numbers.below(25_000) == 0 {
            late.push((job, answer));
        } else {
            end(&job, answer, &mut numbers);
        }
        // The device ends most forgotten jobs after all, between other jobs.
        if late.len() > 2 && numbers.below(2_000) == 0 {
            let (job, answer) = late.swap_remove(0);
            end(&job, answer, &mut numbers);
        }
    }
}

fn read_answer(job: &Descriptor) -> [u8; 16] {
    let source = with_exposed_provenance_mut::<[u8; 8]>(job.source1() as usize);
    // SAFETY: the session keeps the source until the job has ended.
    answer_to(u64::from_le_bytes(unsafe { source.read() }))
}

fn end(job: &Descriptor, answer: [u8; 16], numbers: &mut Numbers) {
    let outcome = match numbers.below(200) {
        0 => Outcome::new(Status::Watchdog),
        1 => Outcome::new(Status::Hardware),
        2 => Outcome::new(Status::OutputOverflow),
        3 => *Outcome::new(Status::Analytics).set_error_number(ErrorCode::BadDistance as u8),
        4 => *Outcome::new(Status::PageFault).set_fault_address(0xDEAD_0000),
        5 => Outcome::new(Status::Translation),
        6 => *Outcome::new(Status::Success).set_output_bytes(65),
        7..20 => *Outcome::new(Status::PageFault).set_fault_address(job.source1()),
        20..30 => *Outcome::new(Status::PageFault)
            .set_faulted_on_write()
            .set_fault_address(job.destination() & !4095),
        _ => {
            let target = with_exposed_provenance_mut::<[u8; 16]>(job.destination() as usize);
            // SAFETY: the session keeps the destination until the job has ended.
            unsafe { target.write(answer) };
            *Outcome::new(Status::Success).set_output_bytes(16)
        }
    };
    let record = with_exposed_provenance_mut::<CompletionRecord>(job.completion() as usize);
    // SAFETY: and the completion record.
    unsafe { CompletionRecord::complete(record, &outcome) };
}
