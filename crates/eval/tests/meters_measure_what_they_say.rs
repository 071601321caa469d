//! Figures are only worth comparing if they count what they claim: latency that of the call, CPU time that of all threads,
//! memory that of the store and not of the harness.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ziptier_eval::targets::BTreeMapTarget;
use ziptier_eval::{
    Answers, Config, Key, Measurement, Meters, Records, Registration, RunSpec, Target, TargetError, TrainOn,
    Workload,
};

/// What a store of this test does besides its work.
trait Habit: Send + Sync + 'static {
    /// Sleeps so long in every get.
    const GET_SLEEP: Duration = Duration::ZERO;
    /// Keeps a processor busy in the background.
    const BURNS: bool = false;
}

struct Habitual<H: Habit> {
    map: BTreeMapTarget,
    stop: Arc<AtomicBool>,
    burner: Option<thread::JoinHandle<()>>,
    habit: std::marker::PhantomData<H>,
}

impl<H: Habit> Target for Habitual<H> {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let burner = H::BURNS.then(|| {
            thread::spawn(move || {
                while !seen.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        });
        Ok(Habitual { map: BTreeMapTarget::open(config)?, stop, burner, habit: std::marker::PhantomData })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        if !H::GET_SLEEP.is_zero() {
            thread::sleep(H::GET_SLEEP);
        }
        self.map.get(key, value)
    }

    fn multi_get(&self, keys: &[Key], batch: &mut Answers) -> Result<(), TargetError> {
        thread::sleep(H::GET_SLEEP);
        self.map.multi_get(keys, batch)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.map.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        self.map.delete(key)
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        self.map.scan(from, limit, records)
    }
}

impl<H: Habit> Drop for Habitual<H> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(burner) = self.burner.take() {
            burner.join().unwrap();
        }
    }
}

fn spec() -> RunSpec {
    RunSpec { keys: 20, seconds: 0.3, warmup_seconds: 0.0, ..RunSpec::new("habitual", "log") }
}

fn measure<H: Habit>(spec: &RunSpec) -> Measurement {
    let registration = Registration::of::<Habitual<H>>("habitual", "", &["none"]);
    registration.run(spec, &Meters { held_bytes: || 0, modelled: Default::default }, &|_| {}).unwrap()
}

/// The first measurement that tells something, in windows that grow: a loaded machine may give a short one no processor.
fn measure_until<H: Habit>(spec: &RunSpec, tells: impl Fn(&Measurement) -> bool) -> Measurement {
    let windows = [0.3, 3.0, 30.0].into_iter();
    let mut measured = windows.map(|seconds| measure::<H>(&RunSpec { seconds, ..spec.clone() }));
    measured.find(tells).expect("a window of half a minute tells something")
}

struct Slow;
impl Habit for Slow {
    const GET_SLEEP: Duration = Duration::from_millis(2);
}

struct SlowAndBusy;
impl Habit for SlowAndBusy {
    const GET_SLEEP: Duration = Duration::from_millis(2);
    const BURNS: bool = true;
}

#[test]
fn latency_is_that_of_the_call() {
    let read = measure_until::<Slow>(&spec(), |measured| measured.operations > 0).read.unwrap();
    assert!(read.p50_us >= 2_000.0 && read.p999_us >= read.p50_us, "{read:?}");
    let untimed = RunSpec { latency: false, ..spec() };
    assert!(measure_until::<Slow>(&untimed, |measured| measured.operations > 0).read.is_none());
}

#[test]
fn a_batch_counts_its_keys_and_is_timed_as_one_call() {
    let batches = RunSpec { multi_get: 10, ..spec() };
    let measured = measure_until::<Slow>(&batches, |measured| measured.operations >= 20);
    assert!(measured.operations.is_multiple_of(10), "{}", measured.operations);
    assert!(measured.read.unwrap().p50_us >= 2_000.0);
}

#[test]
fn background_threads_are_on_the_cpu_bill() {
    let idle = measure::<Slow>(&spec()).usage.cpu_sec();
    // Another program may have most of the processors, but hardly all of them.
    measure_until::<SlowAndBusy>(&spec(), |busy| busy.usage.cpu_sec() > idle + 0.02);
}

/// What the allocator of the next test pretends to hold.
static HELD: AtomicU64 = AtomicU64::new(1_000_000);

/// Holds 5,000 bytes once it is open, and 100 for every new key.
struct Accountable(BTreeMapTarget);

impl Target for Accountable {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        HELD.fetch_add(5_000, Ordering::Relaxed);
        Ok(Accountable(BTreeMapTarget::open(config)?))
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        self.0.get(key, value)
    }

    fn multi_get(&self, keys: &[Key], batch: &mut Answers) -> Result<(), TargetError> {
        self.0.multi_get(keys, batch)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        if !self.0.get(key, &mut Vec::new())? {
            HELD.fetch_add(100, Ordering::Relaxed);
        }
        self.0.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        self.0.delete(key)
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        self.0.scan(from, limit, records)
    }
}

#[test]
fn memory_is_what_was_added_since_before_the_store_was_opened() {
    let registration = Registration::of::<Accountable>("accountable", "", &["none"]);
    let meters = Meters { held_bytes: || HELD.load(Ordering::Relaxed), modelled: Default::default };
    let spec = RunSpec { keys: 1_000, seconds: 0.05, settle_seconds: 0.05, ..spec() };
    let spec = RunSpec { workload: Workload::named("read_write_5_5").unwrap(), ..spec };
    let measured = registration.run(&spec, &meters, &|_| {}).unwrap();
    assert_eq!(measured.memory.held_bytes, 5_000 + 100_000);
    assert_eq!(measured.settled.unwrap().held_bytes, 5_000 + 100_000);
    assert_eq!((measured.keys, measured.raw_bytes), (1_000, 144_000));

    // The first half of the corpus is loaded before, and is not on the account of the second.
    let halves = RunSpec { train_on: TrainOn::FirstHalf, ..spec };
    let measured = registration.run(&halves, &meters, &|_| {}).unwrap();
    assert_eq!(measured.memory.held_bytes, 100_000);
    assert_eq!((measured.keys, measured.raw_bytes), (1_000, 144_000));
}
