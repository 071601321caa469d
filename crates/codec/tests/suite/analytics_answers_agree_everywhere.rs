//! If a filter answered differently on a device, a CPU or another CPU, users would trust all answers. Every executor
//! goes through the same suite. Executors with one fault each show that the suite catches faults.

use std::sync::Arc;
use std::time::Duration;
use ziptier_accel::{Device, Injection, Limits, Misfortune, Model, ModelOptions, Status};
use ziptier_codec::analytics::{
    Accelerated, Aggregates, AnalyticsError, Answer, Column, Cpu, Endian, Executor, Operation, Request,
    Source, conformance,
};

#[test]
fn the_portable_executor_conforms() {
    let asked = conformance::check(&mut Cpu::portable()).unwrap();
    assert!(asked > 5_000, "{asked}");
}

#[test]
fn the_avx512_executor_conforms_where_there_is_one() {
    match Cpu::avx512() {
        Some(mut executor) => {
            assert_eq!(executor.name(), "avx512");
            conformance::check(&mut executor).unwrap();
        }
        None => eprintln!("NOT TESTED: this machine has no AVX-512 with byte permutation"),
    }
}

/// The device ends every job. Its thread needs a processor, and a busy machine may give it none for seconds.
const JOB_TIME_MAX: Duration = Duration::from_secs(60);

/// An executor on modelled devices.
fn modelled(options: &ModelOptions) -> Accelerated {
    let models = Model::open_all(options).unwrap();
    let queues = models.into_iter().map(|model| Arc::new(model) as Arc<dyn Device>).collect();
    let bytes = 256 << 10;
    let limits = Limits {
        source_bytes_max: bytes,
        output_bytes_max: bytes,
        time_max: JOB_TIME_MAX,
        ..Limits::default()
    };
    Accelerated::new(queues, limits)
}

#[test]
fn the_modelled_device_conforms() {
    for generation in [1, 2] {
        let options = ModelOptions { devices: 2, generation, ..ModelOptions::default() };
        conformance::check(&mut modelled(&options)).unwrap();
    }
}

/// An executor on one modelled device with which things go wrong.
fn unlucky(injection: Injection) -> Accelerated {
    let model = Model::with_injection(&ModelOptions::default(), injection).unwrap();
    let bytes = 256 << 10;
    let limits = Limits {
        source_bytes_max: bytes,
        output_bytes_max: bytes,
        time_max: JOB_TIME_MAX,
        ..Limits::default()
    };
    Accelerated::new(vec![Arc::new(model)], limits)
}

#[test]
fn full_queues_page_faults_and_late_jobs_change_no_answer() {
    let one_in = vec![
        (20, Misfortune::QueueFull),
        (30, Misfortune::PageFault { is_write: false, offset: 0 }),
        (30, Misfortune::PageFault { is_write: true, offset: 0 }),
        (40, Misfortune::Late { jobs: 5 }),
    ];
    conformance::check(&mut unlucky(Injection { seed: 1, one_in, ..Injection::default() })).unwrap();
}

#[test]
fn a_failing_device_is_never_told_as_damage() {
    let bytes = [7; 1000];
    let scan = Operation::Scan { low: 7, high: 7, negate: false };
    let request = Request::new(Column::plain(&bytes, 8, 1000), scan);
    for misfortune in [
        Misfortune::Status(Status::Hardware),
        Misfortune::Status(Status::Watchdog),
        Misfortune::Status(Status::BadFilterFlags),
        Misfortune::Status(Status::Translation),
    ] {
        let plan = vec![(0, misfortune)];
        let mut executor = unlucky(Injection { plan, ..Injection::default() });
        let mut output = vec![1, 2, 3];
        let error = executor.run(&request, &mut output).unwrap_err();
        assert!(matches!(error, AnalyticsError::Executor { .. }), "{misfortune:?}: {error}");
        assert_eq!(output, [1, 2, 3]);
        assert_eq!(executor.run(&request, &mut output).unwrap().count, 1000);
    }
    let mut executor = unlucky(Injection { lost_after: Some(0), ..Injection::default() });
    let error = executor.run(&request, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, AnalyticsError::Executor { .. }), "{error}");
    let many = vec![0; 300 << 10];
    let request = Request::new(Column::plain(&many, 32, 75 << 10), scan);
    let error = unlucky(Injection::default()).run(&request, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("307200 bytes are more than the 262144"), "{error}");
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    ForgetsToNegate,
    ScansWithoutTheUpperBound,
    ReadsBigAsLittle,
    LosesTheLastByte,
    ReplacesOutput,
    LeavesOutputOnError,
    IgnoresTheLimit,
    MiscountsOnes,
    MiscountsTheSum,
    ReversesABatch,
    SkipsAJob,
    TrustsTheLength,
}

struct Broken {
    cpu: Cpu,
    fault: Fault,
}

impl Broken {
    fn spoil_request(&self, request: &mut Request<'_>) {
        match (&mut request.operation, self.fault) {
            (Operation::Scan { negate, .. }, Fault::ForgetsToNegate) => *negate = false,
            (Operation::Scan { high, .. }, Fault::ScansWithoutTheUpperBound) => *high = u32::MAX,
            (_, Fault::ReadsBigAsLittle) => request.column.endian = Endian::Little,
            (_, Fault::IgnoresTheLimit) => request.output_bytes_max = usize::MAX,
            (_, Fault::TrustsTheLength) => {
                if let Source::Plain(bytes) = request.column.source {
                    let fitting = 8 * bytes.len() as u64 / u64::from(request.column.width.clamp(1, 32));
                    request.column.count = request.column.count.min(fitting.try_into().unwrap_or(u32::MAX));
                }
            }
            _ => {}
        }
    }

    fn spoil_answer(&self, answer: &mut Answer, output: &mut Vec<u8>) {
        match (&mut answer.aggregates, self.fault) {
            (Aggregates::Bits { ones, .. }, Fault::MiscountsOnes) => *ones += 1,
            (Aggregates::Integers { sum, .. }, Fault::MiscountsTheSum) => *sum = sum.wrapping_add(1),
            (_, Fault::LosesTheLastByte) if answer.bytes != 0 => {
                output.pop();
            }
            _ => {}
        }
    }
}

impl Executor for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn run(&mut self, request: &Request<'_>, output: &mut Vec<u8>) -> Result<Answer, AnalyticsError> {
        let mut request = *request;
        self.spoil_request(&mut request);
        if self.fault == Fault::ReplacesOutput {
            output.clear();
        }
        let mut answer = self.cpu.run(&request, output);
        match &mut answer {
            Ok(answer) => self.spoil_answer(answer, output),
            Err(_) if self.fault == Fault::LeavesOutputOnError => output.push(0),
            Err(_) => {}
        }
        answer
    }

    fn run_batch(&mut self, jobs: &mut [ziptier_codec::analytics::Job<'_>]) {
        let skipped = usize::from(self.fault == Fault::SkipsAJob);
        for job in jobs.iter_mut().skip(skipped) {
            job.answer = Some(self.run(&job.request, &mut job.output));
        }
        if self.fault == Fault::ReversesABatch {
            jobs.reverse();
        }
    }
}

fn suite(fault: Fault) -> Result<usize, String> {
    let mut broken = Broken { cpu: Cpu::new(), fault };
    conformance::check(&mut broken).map_err(|failure| failure.to_string())
}

#[test]
fn a_broken_executor_is_caught() {
    suite(Fault::None).unwrap();
    for fault in [
        Fault::ForgetsToNegate,
        Fault::ScansWithoutTheUpperBound,
        Fault::ReadsBigAsLittle,
        Fault::LosesTheLastByte,
        Fault::ReplacesOutput,
        Fault::LeavesOutputOnError,
        Fault::IgnoresTheLimit,
        Fault::MiscountsOnes,
        Fault::MiscountsTheSum,
        Fault::ReversesABatch,
        Fault::SkipsAJob,
        Fault::TrustsTheLength,
    ] {
        assert!(suite(fault).is_err(), "{fault:?} got through");
    }
}
