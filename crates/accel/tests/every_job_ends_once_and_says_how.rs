//! Users of accelerators complain about these faults: a hardware error is reported as damaged data, or a busy queue as
//! an error of the codec. A job hangs, and the next job uses its buffer.

#![allow(clippy::unwrap_used)]

mod scripted;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use scripted::{Answer, Scripted, analytics, fault, put_output, source, success};
use ziptier_accel::null::NullDevice;
use ziptier_accel::{
    Codes, Device, ErrorCode, JobError, Limits, Opcode, Operation, Outcome, Session, Status, Stream,
};

const COMPRESS: Operation = Operation::Compress { codes: Codes::Fixed, verify: false };
const VERIFIED: Operation = Operation::Compress { codes: Codes::Fixed, verify: true };
const DECOMPRESS: Operation = Operation::Decompress(Stream::Plain);

fn session(device: &Arc<Scripted>) -> Session {
    session_of(vec![device.clone()])
}

fn session_of(devices: Vec<Arc<dyn Device>>) -> Session {
    Session::new(devices, LIMITS)
}

/// A session with a short time limit, for jobs that do not end.
fn impatient(device: &Arc<Scripted>) -> Session {
    Session::new(vec![device.clone()], Limits { time_max: Duration::from_millis(20), ..LIMITS })
}

const LIMITS: Limits =
    Limits { jobs: 4, source_bytes_max: 1000, output_bytes_max: 1000, time_max: Duration::from_secs(600) };

/// The error of one job on a device that always ends jobs so.
fn error(operation: &Operation, outcome: Outcome) -> JobError {
    let device = Scripted::new(move |_| Answer::Ends(outcome));
    session(&device).run(operation, b"block", 100, |result| result.unwrap_err())
}

#[test]
fn results_come_with_their_tags_in_the_order_in_which_jobs_end() {
    let device = Scripted::new(|_| Answer::Runs);
    let mut session = session(&device);
    for tag in [10, 11, 12, 13] {
        session.submit(&COMPRESS, tag, format!("source {tag}").as_bytes(), 500).unwrap();
    }
    assert!(matches!(session.submit(&COMPRESS, 14, b"one too many", 500), Err(JobError::AllTaken)));
    assert_eq!((session.reap(|_, _| panic!()), session.under_way(), session.room()), (0, 4, 0));
    device.running.lock().unwrap().swap(0, 2);
    for expected in [12, 11, 10, 13] {
        let descriptor = device.running.lock().unwrap()[0];
        assert_eq!(source(&descriptor), format!("source {expected}").as_bytes());
        put_output(&descriptor, format!("output {expected}").as_bytes());
        device.end_oldest(&success(9));
        let count = session.reap_some(|tag, result| {
            let finished = result.unwrap();
            assert_eq!((tag, finished.output), (expected, format!("output {expected}").as_bytes()));
            assert!(!finished.is_modelled);
        });
        assert_eq!(count, 1);
    }
    assert_eq!((device.retired(), session.room(), session.counters().jobs), (4, 4, 4));
}

#[test]
fn errors_have_their_names() {
    let of_status = |operation, status| error(operation, Outcome::new(status));
    let damaged = error(&DECOMPRESS, analytics(ErrorCode::BadDistance));
    assert!(matches!(damaged, JobError::Damaged(ErrorCode::BadDistance)));
    assert!(matches!(error(&COMPRESS, analytics(ErrorCode::UnrecoverableOverflow)), JobError::DoesNotFit));
    assert!(matches!(of_status(&DECOMPRESS, Status::OutputOverflow), JobError::DoesNotFit));
    assert!(matches!(of_status(&DECOMPRESS, Status::Watchdog), JobError::Watchdog));
    assert!(matches!(of_status(&COMPRESS, Status::Hardware), JobError::Hardware(_)));
    assert!(matches!(of_status(&COMPRESS, Status::BadFlags), JobError::Rejected { status: 0x11, .. }));
    assert!(matches!(error(&COMPRESS, success(101)), JobError::Contradiction(_)));
    assert!(error(&COMPRESS, success(101)).to_string().contains("contradicts itself"));
}

#[test]
fn what_cannot_be_taken_is_refused_before_the_device_sees_it() {
    let device = Scripted::with(|_| panic!("not to be submitted"), |can| can.opcodes[1] &= !(1 << 4));
    let mut session = session(&device);
    assert!(matches!(session.submit(&COMPRESS, 0, b"", 100), Err(JobError::Empty)));
    assert!(matches!(session.submit(&COMPRESS, 0, &[0; 2000], 100), Err(JobError::TooLarge { .. })));
    assert!(matches!(session.submit(&COMPRESS, 0, &[0; 10], 2000), Err(JobError::TooLarge { .. })));
    let mask = session.submit_with_mask(&COMPRESS, 0, &[0; 600], &[0; 600], 10);
    assert!(matches!(mask, Err(JobError::TooLarge { .. })));
    let crc = ziptier_accel::Crc64 { polynomial: 1, invert: false, big_endian: false };
    assert!(matches!(session.submit(&Operation::Crc64(crc), 0, b"x", 8), Err(JobError::Unsupported(_))));
    assert_eq!(session.room(), 4);
}

#[test]
fn pages_are_brought_and_the_whole_job_is_submitted_again() {
    let mut left = 3;
    let device = Scripted::new(move |job| {
        left -= 1;
        match left {
            2 => Answer::Ends(fault(job.destination(), true)),
            1 => Answer::Ends(fault(job.source1() & !4095, false)),
            _ => {
                assert_eq!(source(job), b"block");
                Answer::Ends(success(7))
            }
        }
    });
    let mut session = session(&device);
    session.run(&COMPRESS, b"block", 100, |result| assert_eq!(result.unwrap().output.len(), 7));
    let counters = session.counters();
    assert_eq!((counters.page_faults, counters.descriptors, counters.jobs, device.retired()), (2, 3, 1, 3));
}

#[test]
fn faults_on_shared_states_are_read_only() {
    let mut faults = 2;
    let device = Scripted::new(move |job| {
        faults -= 1;
        match faults {
            1 => Answer::Ends(fault(job.source2(), false)),
            _ => Answer::Ends(fault(job.source2(), true)),
        }
    });
    let error = session(&device).run(&COMPRESS, b"block", 100, |result| result.unwrap_err());
    assert!(matches!(error, JobError::PageFault { for_write: true, .. }), "{error}");
}

#[test]
fn faults_elsewhere_or_without_end_are_errors() {
    let error = error(&COMPRESS, fault(0x1000, true));
    assert!(matches!(error, JobError::PageFault { address: 0x1000, for_write: true }), "{error}");
    let device = Scripted::new(|job| Answer::Ends(fault(job.source1(), false)));
    let mut session = session(&device);
    let error = session.run(&COMPRESS, b"block", 100, |result| result.unwrap_err());
    assert!(matches!(error, JobError::PageFault { .. }), "{error}");
    assert!(session.counters().page_faults < 100);
}

/// After a fork or under memory pressure every page of a large job may be gone.
#[test]
fn each_page_of_a_large_job_may_fault_once() {
    const BYTES: usize = 1 << 20;
    let mut pages: Option<Vec<(u64, bool)>> = None;
    let device = Scripted::new(move |job| {
        let parts = [(job.source1(), false), (job.destination(), true)];
        let pages = pages.get_or_insert_with(|| {
            let pages =
                |(start, is_write)| (start..start + BYTES as u64).step_by(4096).map(move |at| (at, is_write));
            parts.into_iter().flat_map(pages).collect()
        });
        match pages.pop() {
            Some((address, is_write)) => Answer::Ends(fault(address, is_write)),
            None => Answer::Ends(success(7)),
        }
    });
    let limits = Limits { jobs: 1, source_bytes_max: BYTES, output_bytes_max: BYTES, ..LIMITS };
    let mut session = Session::new(vec![device], limits);
    session.run(&COMPRESS, &vec![1; BYTES], BYTES, |result| assert_eq!(result.unwrap().output.len(), 7));
    assert_eq!(session.counters().page_faults, 512);
}

#[test]
fn blocking_on_faults_is_asked_of_queues_that_can() {
    for (blocks, flag) in [(true, 2), (false, 0)] {
        let script = move |job: &ziptier_accel::Descriptor| {
            assert_eq!(job.flags() & 2, flag);
            Answer::Ends(success(0))
        };
        let device = Scripted::with(script, |can| can.block_on_fault = blocks);
        session(&device).run(&COMPRESS, b"block", 100, |result| assert!(result.is_ok()));
    }
}

#[test]
fn queues_take_turns_and_a_full_one_is_passed_over() {
    let counts: Arc<[AtomicU32; 3]> = Arc::default();
    let device = |number: usize, answer: fn() -> Answer| -> Arc<dyn Device> {
        let counts = counts.clone();
        Scripted::new(move |_| {
            counts[number].fetch_add(1, Ordering::Relaxed);
            answer()
        })
    };
    let ends = || Answer::Ends(success(0));
    let mut session = session_of(vec![device(0, ends), device(1, || Answer::Full), device(2, ends)]);
    for _ in 0..10 {
        session.run(&COMPRESS, b"block", 100, |result| assert!(result.is_ok()));
    }
    let [first, full, last] = [0, 1, 2].map(|number: usize| counts[number].load(Ordering::Relaxed));
    assert_eq!((first, last), (5, 5));
    assert!(full > 5 && session.counters().queue_full == u64::from(full));
}

#[test]
fn full_everywhere_is_told_and_the_job_was_not_taken() {
    let mut asked = 0;
    let device = Scripted::new(move |_| {
        asked += 1;
        assert!(asked < 1000);
        Answer::Full
    });
    let mut session = session(&device);
    assert!(matches!(session.submit(&COMPRESS, 0, b"block", 100), Err(JobError::QueueFull)));
    assert_eq!((session.room(), session.under_way(), session.counters().jobs), (4, 0, 0));
}

#[test]
fn a_resubmission_waits_for_room_and_gives_up_in_time() {
    // A fault, then full for a while, then done.
    let mut step = 0;
    let device = Scripted::new(move |job| {
        step += 1;
        match step {
            1 => Answer::Ends(fault(job.source1(), false)),
            2..200 => Answer::Full,
            _ => Answer::Ends(success(1)),
        }
    });
    session(&device).run(&COMPRESS, b"block", 100, |result| assert!(result.is_ok()));
    let mut step = 0;
    let device = Scripted::new(move |job| {
        step += 1;
        if step == 1 { Answer::Ends(fault(job.source1(), false)) } else { Answer::Full }
    });
    let mut session = impatient(&device);
    let error = session.run(&COMPRESS, b"block", 100, |result| result.unwrap_err());
    assert!(matches!(error, JobError::QueueFull), "{error}");
    assert_eq!(session.room(), 4);
}

/// If a job timed out for the wait, three of them would lose a queue that is merely full.
#[test]
fn a_wait_for_a_full_queue_takes_no_time_from_the_device() {
    let has_room = Arc::new(AtomicBool::new(false));
    let (room, mut is_first) = (has_room.clone(), true);
    let device = Scripted::new(move |job| match std::mem::take(&mut is_first) {
        true => Answer::Ends(fault(job.source1(), false)),
        false if room.load(Ordering::Relaxed) => Answer::Runs,
        false => Answer::Full,
    });
    // The first look at what a job waits for begins its time, and the second one ends it.
    let mut session = Session::new(vec![device.clone()], Limits { time_max: Duration::ZERO, ..LIMITS });
    session.submit(&COMPRESS, 7, b"block", 100).unwrap();
    let reap = |session: &mut Session| session.reap(|_, result| assert!(result.is_ok(), "{result:?}"));
    assert_eq!([reap(&mut session), reap(&mut session)], [0, 0], "the queue is full");
    has_room.store(true, Ordering::Relaxed);
    assert_eq!([reap(&mut session), reap(&mut session)], [0, 0], "the device has it");
    device.end_oldest(&success(1));
    assert_eq!(reap(&mut session), 1);
}

#[test]
fn lost_queues_are_left_and_the_last_one_is_an_error() {
    let lost: Arc<dyn Device> = Scripted::new(|_| Answer::Lost);
    let mut session = session_of(vec![lost.clone(), Arc::new(NullDevice::new())]);
    for _ in 0..3 {
        session.run(&COMPRESS, b"block", 100, |result| assert!(result.unwrap().is_modelled));
    }
    assert_eq!(session.counters().queues_lost, 1);
    let mut session = session_of(vec![lost]);
    for _ in 0..2 {
        let error = session.submit(&COMPRESS, 0, b"block", 100).unwrap_err();
        assert!(matches!(error, JobError::NoQueue(_)), "{error}");
    }
}

#[test]
fn a_job_that_hangs_keeps_its_buffers_until_it_ends() {
    let device = Scripted::new(|_| Answer::Runs);
    let mut session = impatient(&device);
    session.submit(&COMPRESS, 7, b"hangs", 100).unwrap();
    let mut seen = 0;
    session.reap_all(|tag, result| {
        assert!(matches!((tag, result), (7, Err(JobError::TimedOut))));
        seen += 1;
    });
    assert_eq!((seen, session.room(), session.counters().timed_out, device.retired()), (1, 3, 1, 0));
    // Others never get its buffers.
    let hanging = device.running.lock().unwrap()[0];
    for _ in 0..3 {
        session.submit(&COMPRESS, 8, b"other", 100).unwrap();
    }
    let others = device.running.lock().unwrap().split_off(1);
    assert!(others.iter().all(|other| {
        (other.source1(), other.destination(), other.completion()).lt(&(
            hanging.source1(),
            hanging.destination(),
            hanging.completion(),
        )) || other.source1() > hanging.source1()
    }));
    assert!(matches!(session.submit(&COMPRESS, 9, b"none left", 100), Err(JobError::AllTaken)));
    assert_eq!(source(&hanging), b"hangs");
    // The job ends after all, and no caller gets it a second time.
    put_output(&hanging, b"late");
    device.end_oldest(&success(4));
    session.submit(&COMPRESS, 9, b"room again", 100).unwrap();
    assert_eq!((device.retired(), device.running.lock().unwrap()[0].source1()), (1, hanging.source1()));
    device.running.lock().unwrap().extend(others);
    for _ in 0..4 {
        device.end_oldest(&success(0));
    }
    let mut tags = Vec::new();
    session.reap_all(|tag, result| tags.push((tag, result.is_ok())));
    tags.sort_unstable();
    assert_eq!(tags, [(8, true), (8, true), (8, true), (9, true)]);
}

#[test]
fn a_dropped_session_never_frees_what_a_device_may_write_to() {
    let device = Scripted::new(|_| Answer::Runs);
    let mut session = impatient(&device);
    session.submit(&COMPRESS, 1, b"ends in time", 100).unwrap();
    session.submit(&COMPRESS, 2, b"never ends", 100).unwrap();
    device.end_oldest(&success(0));
    drop(session);
    assert_eq!(device.retired(), 1);
    // The device is late, but the memory is still there.
    let late = device.running.lock().unwrap()[0];
    assert_eq!(source(&late), b"never ends");
    put_output(&late, &[1; 100]);
    device.end_oldest(&success(100));
}

#[test]
fn a_blocking_job_leaves_the_others_alone() {
    let mut first = true;
    let device =
        Scripted::new(
            move |_| {
                if std::mem::take(&mut first) { Answer::Runs } else { Answer::Ends(success(3)) }
            },
        );
    let mut session = session(&device);
    session.submit(&COMPRESS, 5, b"slow", 100).unwrap();
    session.run(&COMPRESS, b"quick", 100, |result| assert_eq!(result.unwrap().output.len(), 3));
    assert_eq!(session.under_way(), 1);
    device.end_oldest(&success(2));
    assert_eq!(session.reap_all(|tag, result| assert_eq!((tag, result.unwrap().output.len()), (5, 2))), 1);
}

#[test]
fn a_stream_that_does_not_come_back_is_an_error() {
    let run = |verification: Outcome| {
        let device = Scripted::new(move |job| {
            if job.opcode() == Opcode::Compress as u8 {
                put_output(job, b"packed");
                let mut compressed = success(6);
                compressed.set_crc32(0x1234);
                return Answer::Ends(compressed);
            }
            assert_eq!((job.kind_flags(), source(job).as_slice()), (0x21F, &b"packed"[..]));
            Answer::Ends(verification)
        });
        session(&device)
            .run(&VERIFIED, b"block", 100, |result| result.map(|finished| finished.output.to_vec()))
    };
    let mut good = success(0);
    good.set_crc32(0x1234);
    assert_eq!(run(good).unwrap(), b"packed");
    assert!(matches!(run(success(0)), Err(JobError::VerifyFailed)));
    assert!(matches!(run(success(9999)), Err(JobError::VerifyFailed)));
    assert!(matches!(run(analytics(ErrorCode::BadDistance)), Err(JobError::VerifyFailed)));
    // A device that fails at it says nothing about the stream.
    assert!(matches!(run(Outcome::new(Status::Watchdog)), Err(JobError::Watchdog)));
}
