//! Work queues of the accelerator, opened once and shared by the engines of a process.

use super::super::DeviceSource;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use ziptier_accel::discovery::{Discovery, Places};
use ziptier_accel::{Device, Guarded, Home, Model, ModelOptions, hardware};

/// Queues that are open.
pub(crate) struct Devices {
    queues: Vec<Queue>,
    /// The discovery of the machine; empty for a model.
    discovery: Discovery,
    /// How long a job may take.
    pub(crate) job_time_max: Duration,
}

/// A device that takes longer for a job is broken.
const JOB_TIME_MAX: Duration = Duration::from_secs(2);
/// The thread of a model may have had no processor.
const MODELLED_JOB_TIME_MAX: Duration = Duration::from_secs(60);

struct Queue {
    device: Arc<dyn Device>,
    node: Option<i32>,
}

impl Queue {
    fn guarded(device: Arc<dyn Device>) -> Queue {
        Queue { device: Arc::new(Guarded::new(device)), node: None }
    }
}

/// A source whose devices one thread opens while others wait.
struct Opening {
    /// A forked child cannot use its parent's devices.
    home: Home,
    source: DeviceSource,
    devices: Mutex<Weak<Devices>>,
}

impl Opening {
    fn is_in_use(&self) -> bool {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0
    }
}

impl Devices {
    /// The devices of a source, or a clause with the reason why there are none.
    pub(crate) fn open(source: &DeviceSource) -> Result<Arc<Devices>, String> {
        Devices::open_with(source, || match source {
            DeviceSource::Discovered => Devices::discovered(),
            DeviceSource::Modelled(options) => {
                let queues = Devices::modelled(options)
                    .map_err(|error| format!("the model does not start: {error}"))?;
                Ok(Devices { queues, discovery: Discovery::default(), job_time_max: MODELLED_JOB_TIME_MAX })
            }
        })
    }

    /// The devices of a source: shared if another engine has them open, otherwise opened now. Only callers with the
    /// same source wait for the opening.
    fn open_with(
        source: &DeviceSource,
        open: impl FnOnce() -> Result<Devices, String>,
    ) -> Result<Arc<Devices>, String> {
        // Devices are shared, because a dedicated queue opens only once and a model has threads.
        static OPEN: Mutex<Vec<Arc<Opening>>> = Mutex::new(Vec::new());
        let home = Home::here();
        let opening = {
            let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|opening| Arc::strong_count(opening) > 1 || opening.is_in_use());
            let known = all.iter().find(|opening| opening.home == home && opening.source == *source).cloned();
            known.unwrap_or_else(|| {
                let opening = Arc::new(Opening { home, source: source.clone(), devices: Mutex::default() });
                all.push(opening.clone());
                opening
            })
        };
        let mut known = opening.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(devices) = known.upgrade() {
            return Ok(devices);
        }
        let devices = Arc::new(open()?);
        *known = Arc::downgrade(&devices);
        Ok(devices)
    }

    fn discovered() -> Result<Devices, String> {
        let discovery = Discovery::read(&Places::default());
        let (mut queues, mut failed) = (Vec::new(), Vec::new());
        let usable: Vec<_> = discovery.usable().collect();
        // A hanging queue delays the opening by the longest time of a job. All queues are probed at once, so several
        // delay it no longer.
        let opened: Vec<_> = thread::scope(|scope| {
            let opening = usable.iter().map(|usable| scope.spawn(|| hardware::open(usable)));
            let opening: Vec<_> = opening.collect();
            opening
                .into_iter()
                .map(|opening| opening.join().expect("opening a queue does not panic"))
                .collect()
        });
        for (usable, opened) in usable.iter().zip(opened) {
            match opened {
                Ok(device) => queues.push(Queue { device: Arc::new(device), node: usable.device.numa_node }),
                Err(error) => failed.push(error.to_string()),
            }
        }
        if let Some(why) = ziptier_accel::doctor::why_not(&discovery) {
            return Err(format!("{why} (looked below {})", discovery.sysfs.display()));
        }
        if queues.is_empty() {
            return Err(format!("no work queue opens: {}", failed.join("; ")));
        }
        Ok(Devices { queues, discovery, job_time_max: JOB_TIME_MAX })
    }

    fn modelled(options: &ModelOptions) -> io::Result<Vec<Queue>> {
        let models = Model::open_all(options)?;
        Ok(models.into_iter().map(|model| Queue::guarded(Arc::new(model))).collect())
    }

    /// Queues that somebody else opened.
    pub(crate) fn given(queues: Vec<Arc<dyn Device>>, job_time_max: Duration) -> Devices {
        let queues = queues.into_iter().map(Queue::guarded).collect();
        Devices { queues, discovery: Discovery::default(), job_time_max }
    }

    /// The most bytes that each of them transfers.
    pub(super) fn transfer_bytes_max(&self) -> usize {
        let each = self.queues.iter().map(|queue| queue.device.capabilities().transfer_bytes_max);
        each.min().unwrap_or(0) as usize
    }

    /// Whether their results must be labelled *modelled*.
    pub(crate) fn is_modelled(&self) -> bool {
        self.queues.iter().any(|queue| queue.device.is_modelled())
    }

    /// The queues of the calling thread's NUMA node, all if it has none.
    pub(crate) fn near(&self) -> Vec<Arc<dyn Device>> {
        let node = processor().and_then(|processor| self.discovery.node_of(processor));
        let near = self.queues.iter().filter(|queue| node.is_some() && queue.node == node);
        let near: Vec<_> = near.map(|queue| queue.device.clone()).collect();
        if near.is_empty() { self.queues.iter().map(|queue| queue.device.clone()).collect() } else { near }
    }
}

/// The processor that this thread last ran on: field 39 of its `stat`.
fn processor() -> Option<u32> {
    let stat = fs::read_to_string("/proc/thread-self/stat").ok()?;
    // The name of the program, in brackets, may have blanks.
    stat.rsplit_once(')')?.1.split_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn this_threads_processor_is_one_of_the_machine() {
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        assert!(processor().is_none_or(|number| (number as usize) < there.max(4096)));
    }

    #[test]
    fn a_model_is_opened_once_and_closed_with_its_last_user() {
        let source = DeviceSource::Modelled(ModelOptions { devices: 3, ..ModelOptions::default() });
        let (one, other) = (Devices::open(&source), Devices::open(&source));
        let (one, other) = (one.expect("opens"), other.expect("opens"));
        assert!(Arc::ptr_eq(&one, &other) && one.is_modelled());
        assert_eq!(one.near().len(), 3);
        let weak = Arc::downgrade(&one);
        drop((one, other));
        assert!(weak.upgrade().is_none());
    }

    /// Probing a hanging queue takes seconds. That must not keep other callers from their devices.
    #[test]
    fn a_source_that_is_slow_to_open_holds_up_no_other() {
        let source = |devices| DeviceSource::Modelled(ModelOptions { devices, ..ModelOptions::default() });
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let slow = scope.spawn(move || {
                Devices::open_with(&source(5), || {
                    begun.send(()).expect("the test waits");
                    may_go_on.recv().expect("the test goes on");
                    Err("it hangs".to_owned())
                })
            });
            has_begun.recv().expect("it begins");
            assert_eq!(Devices::open(&source(6)).expect("opens").near().len(), 6);
            go_on.send(()).expect("it waits");
            assert_eq!(slow.join().expect("ends").err().as_deref(), Some("it hangs"));
        });
        assert_eq!(Devices::open(&source(5)).expect("the next one tries again").near().len(), 5);
    }
}
