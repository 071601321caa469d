//! Executors for callers whose batches come on any thread, as those of the C interface do.
//!
//! A caller that owns its threads keeps an executor for each instead. On the path `auto` the CPU runs the jobs that the
//! device cannot run or calls damaged, and a counter counts them.

use super::{Accelerated, AnalyticsError, Cpu, Executor, Job};
use crate::block::iaa::devices::Devices;
use crate::block::setting::SettingError;
use crate::block::{DeviceSource, Path};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use ziptier_accel::Limits;

/// Jobs of an executor that a device has at a time, and the most bytes to either side of each: 8 MiB of memory.
const JOBS: usize = 16;
const BYTES_MAX: usize = 256 << 10;

/// A pool that grows to as many executors as ever worked at once.
pub struct Executors {
    path: Path,
    /// `None` if the CPU does all the work.
    devices: Option<Arc<Devices>>,
    free: Mutex<Vec<Worker>>,
    fallbacks: AtomicU64,
}

struct Worker {
    cpu: Cpu,
    device: Option<Accelerated>,
}

impl Executors {
    /// Executors on the devices of a source, or on the CPU as the path says.
    ///
    /// # Errors
    /// There is no device, and the path is `hardware`.
    pub fn open(path: Path, source: &DeviceSource) -> Result<Executors, SettingError> {
        let devices = match path {
            Path::Software => None,
            Path::Auto => Devices::open(source).ok(),
            Path::Hardware => Some(Devices::open(source).map_err(|reason| SettingError::Unavailable {
                engine: "iaa",
                reason: format!(
                    "path hardware needs a device, but {reason}; on path auto the CPU does the work"
                ),
            })?),
        };
        Ok(Executors { path, devices, free: Mutex::default(), fallbacks: AtomicU64::new(0) })
    }

    /// `cpu`, `hardware` or `modelled`.
    pub fn worker(&self) -> &'static str {
        match &self.devices {
            Some(devices) if devices.is_modelled() => "modelled",
            Some(_) => "hardware",
            None => "cpu",
        }
    }

    /// Jobs that a device should have run, and the CPU did.
    pub fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    /// Runs independent jobs. The executor is dropped after a panic.
    pub fn run_batch(&self, jobs: &mut [Job<'_>]) {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut worker = free.unwrap_or_else(|| self.worker_for_this_thread());
        match &mut worker.device {
            None => worker.cpu.run_batch(jobs),
            Some(device) => {
                device.run_batch(jobs);
                if self.path == Path::Auto {
                    self.run_on_cpu(&mut worker.cpu, jobs);
                }
            }
        }
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }

    fn worker_for_this_thread(&self) -> Worker {
        let device = self.devices.as_ref().map(|devices| {
            let limits = Limits {
                jobs: JOBS,
                source_bytes_max: BYTES_MAX,
                output_bytes_max: BYTES_MAX,
                time_max: devices.job_time_max,
            };
            Accelerated::new(devices.near(), limits)
        });
        Worker { cpu: Cpu::new(), device }
    }

    /// Runs the jobs that the device did not run, and those whose column it calls damaged: the CPU decides on damage.
    fn run_on_cpu(&self, cpu: &mut Cpu, jobs: &mut [Job<'_>]) {
        for job in jobs {
            let is_open = match &job.answer {
                Some(Err(AnalyticsError::Executor { .. } | AnalyticsError::Damaged { .. })) | None => true,
                // No device saw a column whose length alone says that it is too short.
                Some(Err(AnalyticsError::SourceTooShort { .. })) => job.request.plan().is_ok(),
                Some(_) => false,
            };
            if is_open {
                job.answer = Some(cpu.run(&job.request, &mut job.output));
                self.fallbacks.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytics::{Column, Endian, Operation, Output, OutputWidth, Request};
    use crate::block::ModelOptions;
    use std::time::Duration;
    use ziptier_accel::{Device, ErrorCode, Injection, Misfortune, Model};

    fn ran(executors: &Executors, elements: u32) -> Result<usize, AnalyticsError> {
        let bytes = vec![7; elements as usize];
        let scan = Operation::Scan { low: 7, high: 7, negate: false };
        let mut jobs = [Job::new(Request::new(Column::plain(&bytes, 8, elements), scan))];
        executors.run_batch(&mut jobs);
        let [Job { output, answer: Some(answer), .. }] = jobs else { panic!("a job has no answer") };
        assert_eq!(answer.is_ok(), output == vec![0xFF; elements as usize / 8]);
        answer.map(|answer| answer.bytes)
    }

    #[test]
    fn the_cpu_runs_what_is_too_large_for_a_device_on_path_auto_only() {
        let model = DeviceSource::Modelled(ModelOptions::default());
        let auto = Executors::open(Path::Auto, &model).expect("opens");
        assert_eq!((auto.worker(), ran(&auto, 1024), auto.fallbacks()), ("modelled", Ok(128), 0));
        assert_eq!((ran(&auto, 1 << 20), auto.fallbacks()), (Ok(1 << 17), 1));
        let hardware = Executors::open(Path::Hardware, &model).expect("opens");
        assert_eq!(ran(&hardware, 1024), Ok(128));
        assert!(matches!(ran(&hardware, 1 << 20), Err(AnalyticsError::Executor { .. })));
        let software = Executors::open(Path::Software, &model).expect("opens");
        assert_eq!(
            (software.worker(), ran(&software, 1 << 20), software.fallbacks()),
            ("cpu", Ok(1 << 17), 0)
        );
    }

    /// The caller's room is smaller than the most indices, and larger than the device's.
    #[test]
    fn indices_that_only_the_device_has_no_room_for_are_no_full_output() {
        let bytes = vec![0xFF; BYTES_MAX / 8 + 100];
        let elements = bytes.len() as u32 * 8;
        let scan = Operation::Scan { low: 1, high: 1, negate: false };
        let output = Output { width: OutputWidth::Bits32, endian: Endian::Little };
        let column = Column { count: elements / 2, ..Column::plain(&bytes, 1, elements) };
        let all = elements as usize / 2 * 4;
        let request = Request { output, output_bytes_max: all, ..Request::new(column, scan) };
        let model = DeviceSource::Modelled(ModelOptions::default());
        let ran = |path, output_bytes_max| {
            let mut jobs = [Job::new(Request { output_bytes_max, ..request })];
            Executors::open(path, &model).expect("opens").run_batch(&mut jobs);
            jobs[0].answer.clone().expect("an answer").map(|answer| answer.bytes)
        };
        assert_eq!(ran(Path::Auto, all), Ok(all));
        assert!(matches!(ran(Path::Hardware, all - 1), Err(AnalyticsError::Executor { .. })));
        assert_eq!(ran(Path::Auto, all - 1), Err(AnalyticsError::OutputFull { bytes_max: all - 1 }));
        assert_eq!(ran(Path::Hardware, 100), Err(AnalyticsError::OutputFull { bytes_max: 100 }));
    }

    /// If a flaky device had the last word, people would throw sound columns away.
    #[test]
    fn on_the_path_auto_the_cpu_has_the_last_word_on_damage() {
        for code in [ErrorCode::BadDistance, ErrorCode::TooFewElements] {
            let ran_on = |path| {
                let one_in = vec![(1, Misfortune::Error(code))];
                let injection = Injection { one_in, ..Injection::default() };
                let model = Model::with_injection(&ModelOptions::default(), injection).expect("it starts");
                let queue: Arc<dyn Device> = Arc::new(model);
                let devices = Some(Arc::new(Devices::given(vec![queue], Duration::from_secs(60))));
                let (free, fallbacks) = (Mutex::default(), AtomicU64::new(0));
                let executors = Executors { path, devices, free, fallbacks };
                (ran(&executors, 1024), executors.fallbacks())
            };
            assert_eq!(ran_on(Path::Auto), (Ok(128), 1));
            let (blamed, fallbacks) = ran_on(Path::Hardware);
            let is_blamed =
                matches!(blamed, Err(AnalyticsError::Damaged { .. } | AnalyticsError::SourceTooShort { .. }));
            assert!(is_blamed && fallbacks == 0, "{blamed:?}, {fallbacks} fallbacks");
        }
    }

    #[test]
    fn an_executor_serves_one_call_after_the_other() {
        let executors = Executors::open(Path::Software, &DeviceSource::Discovered).expect("opens");
        for _ in 0..3 {
            assert_eq!(ran(&executors, 64), Ok(8));
        }
        assert_eq!(executors.free.lock().expect("no panic").len(), 1);
    }
}
