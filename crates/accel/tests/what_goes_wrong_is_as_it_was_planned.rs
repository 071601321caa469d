//! A driver is only as good as the faults it was tested with. Each injected fault must happen as planned, and no job
//! may be lost or end twice.

#![allow(clippy::unwrap_used)]

mod jobs;

use jobs::{Buffer, FLAGS, job, run};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use ziptier_accel::descriptor::operation;
use ziptier_accel::{
    CompletionRecord, Descriptor, Device, Injection, Misfortune, Model, ModelOptions, Opcode, Outcome,
    Status, SubmitError,
};

/// Completion records for many jobs, never referred to but by pointers: a device may write to any of them.
struct Records(*mut [CompletionRecord]);

impl Records {
    fn new(jobs: usize) -> Records {
        Records(Box::into_raw((0..jobs).map(|_| CompletionRecord::new()).collect()))
    }

    fn at(&self, number: usize) -> *mut CompletionRecord {
        assert!(number < self.0.len());
        self.0.cast::<CompletionRecord>().wrapping_add(number)
    }

    fn noop(&self, number: usize) -> Descriptor {
        let mut descriptor = Descriptor::new(Opcode::Noop, FLAGS);
        descriptor.set_completion(self.at(number).expose_provenance() as u64);
        descriptor
    }

    fn poll(&self, number: usize) -> Option<Outcome> {
        // SAFETY: the record is valid, and only the device writes to it.
        unsafe { CompletionRecord::poll(self.at(number)) }
    }

    fn wait(&self, number: usize) -> Outcome {
        loop {
            match self.poll(number) {
                Some(outcome) => return outcome,
                None => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // SAFETY: it is what `new` made, and no job is under way any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

fn submit(device: &Model, descriptor: &Descriptor) -> Result<(), SubmitError> {
    // SAFETY: the tests keep records and buffers until their jobs have ended or the device is dropped.
    unsafe { device.submit(descriptor) }
}

fn planned(plan: Vec<(u64, Misfortune)>) -> Model {
    Model::with_injection(&ModelOptions::default(), Injection { plan, ..Injection::default() }).unwrap()
}

#[test]
fn a_full_queue_is_told() {
    let device = planned(vec![(1, Misfortune::QueueFull)]);
    let records = Records::new(2);
    submit(&device, &records.noop(0)).unwrap();
    assert!(matches!(submit(&device, &records.noop(1)), Err(SubmitError::Full)));
    submit(&device, &records.noop(1)).unwrap();
    assert_eq!([0, 1].map(|number| records.wait(number).status()), [Some(Status::Success); 2]);
}

#[test]
fn stuck_jobs_fill_the_queue_and_end_with_the_device() {
    let plan = (0..3).map(|job| (job, Misfortune::Stuck)).collect();
    let options = ModelOptions { depth: 3, ..ModelOptions::default() };
    let device = Model::with_injection(&options, Injection { plan, ..Injection::default() }).unwrap();
    let records = Records::new(4);
    (0..3).for_each(|number| submit(&device, &records.noop(number)).unwrap());
    assert!(matches!(submit(&device, &records.noop(3)), Err(SubmitError::Full)));
    assert!((0..3).all(|number| records.poll(number).is_none()));
    drop(device);
    assert!((0..3).all(|number| records.wait(number).status() == Some(Status::Hardware)));
}

/// All of them may have found the last place free.
#[test]
fn submitters_at_once_fill_no_more_than_the_queue() {
    const SUBMITTERS: usize = 4;
    let options = ModelOptions { depth: 1, ..ModelOptions::default() };
    let rounds = if cfg!(miri) { 2 } else { 200 };
    for _ in 0..rounds {
        let injection = Injection { one_in: vec![(1, Misfortune::Stuck)], ..Injection::default() };
        let device = Model::with_injection(&options, injection).unwrap();
        let records = Records::new(SUBMITTERS);
        let descriptors: Vec<Descriptor> = (0..SUBMITTERS).map(|number| records.noop(number)).collect();
        let together = Barrier::new(SUBMITTERS);
        let taken: usize = thread::scope(|scope| {
            let mut submitters = Vec::new();
            for descriptor in &descriptors {
                let (device, together) = (&device, &together);
                submitters.push(scope.spawn(move || {
                    together.wait();
                    usize::from(submit(device, descriptor).is_ok())
                }));
            }
            submitters.into_iter().map(|submitter| submitter.join().unwrap()).sum()
        });
        drop(device);
        assert_eq!(taken, 1);
    }
}

#[test]
fn a_lost_device_takes_no_more() {
    let injection = Injection { lost_after: Some(2), ..Injection::default() };
    let device = Model::with_injection(&ModelOptions::default(), injection).unwrap();
    let records = Records::new(3);
    (0..2).for_each(|number| submit(&device, &records.noop(number)).unwrap());
    assert!(matches!(submit(&device, &records.noop(2)), Err(SubmitError::Lost(_))));
    drop(device);
    assert!((0..2).all(|number| records.poll(number).is_some()));
    assert!(records.poll(2).is_none());
}

#[test]
fn late_jobs_end_after_others() {
    let device = planned(vec![(0, Misfortune::Late { jobs: 2 })]);
    let records = Records::new(3);
    (0..3).for_each(|number| submit(&device, &records.noop(number)).unwrap());
    (0..3).for_each(|number| assert_eq!(records.wait(number).status(), Some(Status::Success)));
    // The last one there is ends too.
    let device = planned(vec![(0, Misfortune::Late { jobs: 100 })]);
    let records = Records::new(1);
    submit(&device, &records.noop(0)).unwrap();
    assert_eq!(records.wait(0).status(), Some(Status::Success));
}

#[test]
fn pages_fault_once_and_only_without_blocking() {
    let fault = |is_write| Misfortune::PageFault { is_write, offset: 5 };
    let device = planned(vec![(0, fault(false)), (1, fault(true)), (2, fault(true))]);
    let (mut source, mut target) = (Buffer::of(&[7; 10]), Buffer::new(10));
    let mut copy = |flags| {
        let mut descriptor = job(Opcode::MemMove, flags, &mut source, Some(&mut target));
        descriptor.set_destination_bytes_max(0);
        (descriptor, run(&device, &descriptor))
    };
    let (descriptor, outcome) = copy(0);
    assert_eq!((outcome.as_bytes()[0], outcome.fault_address()), (0x03, descriptor.source1() + 5));
    let (descriptor, outcome) = copy(0);
    assert_eq!((outcome.as_bytes()[0], outcome.fault_address()), (0x83, descriptor.destination() + 5));
    assert_eq!(copy(operation::BLOCK_ON_FAULT).1.status(), Some(Status::Success));
    assert_eq!(target.bytes(), [7; 10]);

    let (mut source, mut target) = (Buffer::of(&[7; 10]), Buffer::new(10));
    let faulting = vec![(source.address() + 9, false), (target.address() + 9, true)];
    let injection = Injection { faulting, ..Injection::default() };
    let device = Model::with_injection(&ModelOptions::default(), injection).unwrap();
    let mut descriptor = job(Opcode::Crc64, 0, &mut source, None);
    descriptor.set_polynomial(1 << 63);
    let outcome = run(&device, &descriptor);
    assert_eq!((outcome.as_bytes()[0], outcome.fault_address()), (0x03, source.address() + 9));
    assert_eq!(run(&device, &descriptor).status(), Some(Status::Success));
}

#[test]
fn no_job_is_lost_or_ends_twice_whatever_happens() {
    let one_in = vec![
        (7, Misfortune::QueueFull),
        (11, Misfortune::PageFault { is_write: false, offset: 0 }),
        (13, Misfortune::Late { jobs: 5 }),
        (17, Misfortune::Status(Status::Watchdog)),
        (500, Misfortune::Stuck),
    ];
    let options = ModelOptions { depth: 32, ..ModelOptions::default() };
    let jobs = if cfg!(miri) { 30 } else { 3_000 };
    let device =
        Model::with_injection(&options, Injection { seed: 5, one_in, ..Injection::default() }).unwrap();
    let records = Records::new(jobs);
    let mut next = 0;
    while next < jobs {
        let descriptor = records.noop(next);
        match submit(&device, &descriptor) {
            Ok(()) => next += 1,
            Err(SubmitError::Full) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    drop(device);
    let count = |status| (0..jobs).filter(|&job| records.wait(job).status() == Some(status)).count();
    let [good, faults, watchdogs, stuck] =
        [Status::Success, Status::PageFault, Status::Watchdog, Status::Hardware].map(count);
    assert_eq!(good + faults + watchdogs + stuck, jobs);
    assert!(cfg!(miri) || (faults > 100 && watchdogs > 50 && stuck > 0));
}

#[test]
fn a_slow_device_takes_its_time() {
    let injection = Injection { delay: Duration::from_millis(3), ..Injection::default() };
    let device = Model::with_injection(&ModelOptions::default(), injection).unwrap();
    let start = std::time::Instant::now();
    let outcome = run(&device, &Descriptor::new(Opcode::Noop, FLAGS));
    assert_eq!(outcome.status(), Some(Status::Success));
    assert!(start.elapsed() >= Duration::from_millis(3));
    assert_eq!(device.lateness().jobs, 1);
}

#[test]
fn a_timed_device_completes_no_job_before_its_time() {
    // One megabyte in a second on one engine: each job of 1,000 bytes takes a millisecond.
    let device = Model::open(&"engines=1,decompress_gbps=0.001".parse().unwrap()).unwrap();
    let (mut source, mut target) = (Buffer::of(&[7; 1000]), Buffer::new(1000));
    let records = Records::new(4);
    let start = std::time::Instant::now();
    for number in 0..4 {
        let mut descriptor = job(Opcode::MemMove, 0, &mut source, Some(&mut target));
        descriptor.set_destination_bytes_max(0).set_completion(records.noop(number).completion());
        submit(&device, &descriptor).unwrap();
    }
    for number in 0..4 {
        assert_eq!(records.wait(number).status(), Some(Status::Success));
        assert!(start.elapsed() >= Duration::from_millis(number as u64 + 1));
    }
    assert_eq!(device.lateness().jobs, 4);
    assert_eq!(target.bytes(), [7; 1000]);
}

#[test]
fn modelled_devices_say_what_they_are() {
    let devices = Model::open_all(&"devices=3,depth=7,generation=2,timing=off".parse().unwrap()).unwrap();
    assert_eq!(
        devices.iter().map(|device| device.name()).collect::<Vec<_>>(),
        ["model0/wq0.0", "model1/wq1.0", "model2/wq2.0"]
    );
    assert!(devices.iter().all(|device| device.is_modelled() && device.capabilities().depth == 7));
    assert!(
        devices[0].capabilities().has(Opcode::Scan) && !devices[0].capabilities().has(Opcode::ZeroCompress32)
    );
}
