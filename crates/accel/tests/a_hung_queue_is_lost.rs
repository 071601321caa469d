//! A queue ends no jobs. If sessions kept using it, every thread would wait two seconds for each job, and each new
//! session again. So a queue is lost after a few time-outs, for all sessions at once.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod scripted;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use scripted::{Answer, Scripted, success};
use ziptier_accel::guarded::TIME_OUTS_MAX;
use ziptier_accel::null::NullDevice;
use ziptier_accel::{
    Capabilities, Codes, Descriptor, Device, Guarded, JobError, Limits, Operation, Session, SubmitError,
};

const COMPRESS: Operation = Operation::Compress { codes: Codes::Fixed, verify: false };

fn session(device: &Arc<Guarded>, time_max: Duration) -> Session {
    let limits = Limits { jobs: 4, source_bytes_max: 1000, output_bytes_max: 1000, time_max };
    Session::new(vec![device.clone()], limits)
}

/// Nobody waits so long where the test passes.
const NEVER: Duration = Duration::from_secs(120);

fn run(session: &mut Session) -> Result<(), JobError> {
    session.run(&COMPRESS, b"block", 100, |result| result.map(drop))
}

#[test]
fn after_time_outs_in_a_row_no_session_waits_for_the_queue() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let device = Scripted::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Answer::Runs
    });
    let queue = Arc::new(Guarded::new(device.clone()));
    let (mut hasty, mut patient) = (session(&queue, Duration::ZERO), session(&queue, NEVER));
    patient.submit(&COMPRESS, 7, b"under way", 100).unwrap();
    for _ in 0..TIME_OUTS_MAX {
        assert!(matches!(run(&mut hasty), Err(JobError::TimedOut)));
    }
    let Err(JobError::NoQueue(reason)) = run(&mut hasty) else { panic!() };
    assert!(reason.to_string().contains("did not end 3 jobs in a row"), "{reason}");
    // The session with endless patience gives its job up at once, and does not wait when it is dropped.
    let mut ended = 0;
    patient.reap_all(|tag, result| {
        assert!(matches!((tag, result), (7, Err(JobError::TimedOut))));
        ended += 1;
    });
    assert!(matches!(run(&mut patient), Err(JobError::NoQueue(_))));
    assert!(matches!(run(&mut session(&queue, NEVER)), Err(JobError::NoQueue(_))));
    drop((hasty, patient));
    assert_eq!((ended, asked.load(Ordering::Relaxed)), (1, TIME_OUTS_MAX + 1));
    assert!(queue.is_lost());
}

/// A removed device ends none of its jobs. If the session waited for each, a store with many jobs would stand still for
/// minutes.
#[test]
fn jobs_under_way_are_given_up_once_a_submission_finds_the_device_gone() {
    let mut jobs = 0;
    let device = Scripted::new(move |_| {
        jobs += 1;
        if jobs == 1 { Answer::Runs } else { Answer::Lost }
    });
    let queue = Arc::new(Guarded::new(device));
    let (mut patient, mut other) = (session(&queue, NEVER), session(&queue, NEVER));
    patient.submit(&COMPRESS, 7, b"under way", 100).unwrap();
    assert!(!queue.is_lost());
    assert!(matches!(run(&mut other), Err(JobError::NoQueue(_))));
    let mut ended = 0;
    patient.reap_all(|tag, result| {
        assert!(matches!((tag, result), (7, Err(JobError::TimedOut))));
        ended += 1;
    });
    assert!(ended == 1 && queue.is_lost());
}

#[test]
fn a_job_that_ends_in_time_forgives_those_that_did_not() {
    let mut jobs = 0;
    let device = Scripted::new(move |_| {
        jobs += 1;
        if jobs % TIME_OUTS_MAX == 0 { Answer::Ends(success(1)) } else { Answer::Runs }
    });
    let queue = Arc::new(Guarded::new(device));
    for _ in 0..4 {
        let mut session = session(&queue, Duration::ZERO);
        for _ in 1..TIME_OUTS_MAX {
            assert!(matches!(run(&mut session), Err(JobError::TimedOut)));
        }
        run(&mut session).unwrap();
    }
    assert!(!queue.is_lost());
}

/// Has sessions look for jobs that were left until they have found these, or for two minutes. Another test's session
/// may be looking just now, and stand still.
fn look_until(are_found: impl Fn() -> bool, look: impl Fn()) {
    let began = Instant::now();
    while !are_found() && began.elapsed() < NEVER {
        look();
        std::thread::yield_now();
    }
}

/// A dedicated queue counts its jobs. If jobs of dropped sessions were never subtracted, the queue would be full for
/// ever.
#[test]
fn entries_of_jobs_that_end_after_their_session_come_back() {
    let device = Scripted::new(|_| Answer::Runs);
    let queue = Arc::new(Guarded::new(device.clone()));
    let mut first = session(&queue, Duration::ZERO);
    first.submit(&COMPRESS, 1, b"never reaped", 100).unwrap();
    assert!(matches!(run(&mut first), Err(JobError::TimedOut)));
    drop(first);
    assert_eq!(device.retired(), 0);
    device.end_oldest(&success(0));
    device.end_oldest(&success(0));
    look_until(|| device.retired() == 2, || drop(session(&queue, Duration::ZERO)));
    assert_eq!(device.retired(), 2);
}

/// A queue that holds up the thread that takes a late job back.
struct Slow {
    device: Arc<Scripted>,
    holds: AtomicBool,
    may_go_on: AtomicBool,
}

impl Device for Slow {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        // SAFETY: the caller's.
        unsafe { self.device.submit(descriptor) }
    }

    fn retire_late(&self) {
        self.holds.store(true, Ordering::SeqCst);
        while !self.may_go_on.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}

/// One thread takes late jobs back while another one drops a session. If the first one kept the second one out, the
/// jobs of that session would never be taken back.
#[test]
fn jobs_that_are_left_while_others_are_taken_back_come_back_too() {
    let limits = Limits { jobs: 1, source_bytes_max: 1000, output_bytes_max: 1000, time_max: Duration::ZERO };
    let session = |device: Arc<dyn Device>| Session::new(vec![device], limits);
    let leave = |device: Arc<dyn Device>| session(device).submit(&COMPRESS, 1, b"never reaped", 100).unwrap();
    let look = || drop(session(Arc::new(NullDevice::new())));
    let [first, second] = [(); 2].map(|()| Scripted::new(|_| Answer::Runs));
    let (holds, may_go_on) = (AtomicBool::new(false), AtomicBool::new(false));
    let slow = Arc::new(Slow { device: first.clone(), holds, may_go_on });
    leave(slow.clone());
    first.end_oldest(&success(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !slow.holds.load(Ordering::SeqCst) {
                look();
            }
        });
        while !slow.holds.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        leave(second.clone());
        slow.may_go_on.store(true, Ordering::SeqCst);
    });
    second.end_oldest(&success(0));
    look_until(|| second.retired() == 1, look);
    assert_eq!(second.retired(), 1);
}
