//! Figures are comparable only if they count what they claim. Latency must be that of the call, CPU time that of all
//! threads, and memory that of the store without the harness. A row with held-out data must come from a store that did
//! not learn from them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

use ziptier_eval::targets::BTreeMapTarget;
use ziptier_eval::{
    Answers, Config, Counters, Measurement, Meters, Records, Registration, RunSpec, Target, TargetError,
    TrainOn, Work, Workload,
};

/// A store that is "slow" or "busy" besides its work, by its name.
struct Habitual {
    map: BTreeMapTarget,
    /// Sleeps so long in every get.
    get_sleep: Duration,
    /// The first get waits for a thread of the background that has so much CPU time.
    burns: Duration,
    burner: Mutex<Option<thread::JoinHandle<()>>>,
}

/// Keeps a processor busy until this thread has had so much CPU time, however long that takes.
fn burn(time: Duration) {
    let used = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().num_nanoseconds();
    let start = used();
    while used() - start < time.as_nanos() as i64 {
        std::hint::spin_loop();
    }
}

impl Target for Habitual {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        let (get_sleep, burns) = match config.target.as_str() {
            "slow" => (Duration::from_millis(2), Duration::ZERO),
            _ => (Duration::ZERO, Duration::from_millis(50)),
        };
        Ok(Habitual { map: BTreeMapTarget::open(config)?, get_sleep, burns, burner: Mutex::new(None) })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        if !self.get_sleep.is_zero() {
            thread::sleep(self.get_sleep);
        }
        if !self.burns.is_zero() && self.burner.lock().unwrap().is_none() {
            let burns = self.burns;
            let burner = thread::spawn(move || burn(burns));
            while !burner.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            *self.burner.lock().unwrap() = Some(burner);
        }
        self.map.get(key, value)
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        thread::sleep(self.get_sleep);
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

fn spec() -> RunSpec {
    RunSpec { keys: 20, operations: Some(20), warmup_seconds: 0.0, ..RunSpec::new("habitual", "log") }
}

fn slow() -> RunSpec {
    RunSpec { target: "slow".into(), ..spec() }
}

fn measure(spec: &RunSpec) -> Measurement {
    let registration = Registration::of::<Habitual>("habitual", "", &["none"]);
    registration.run(spec, &Meters::default(), &|_| {}).unwrap()
}

/// A client of servers that are "local" or "remote", by its name: loading takes them 2 s of CPU time, a get 10 ms, and
/// the work that a window put off 3 s. The size of their files is known if their CPU time is; those that are "mute" do
/// not tell it after the window.
struct Client {
    map: BTreeMapTarget,
    is_local: bool,
    is_mute: bool,
    has_rested: AtomicBool,
    cpu_ms: AtomicU64,
}

impl Target for Client {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        Ok(Client {
            map: BTreeMapTarget::open(config)?,
            is_local: config.target != "remote",
            is_mute: config.target == "mute",
            has_rested: AtomicBool::new(false),
            cpu_ms: AtomicU64::new(700_000),
        })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        self.cpu_ms.fetch_add(10, Ordering::Relaxed);
        self.map.get(key, value)
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
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

    fn loaded(&self) -> Result<(), TargetError> {
        self.cpu_ms.fetch_add(2_000, Ordering::Relaxed);
        Ok(())
    }

    fn work(&self) -> Work {
        let cpu_sec = self.cpu_ms.load(Ordering::Relaxed) as f64 / 1e3;
        if self.is_local { Work::Servers(Some(cpu_sec)) } else { Work::Elsewhere }
    }

    fn rest(&self) -> Result<(), TargetError> {
        self.cpu_ms.fetch_add(3_000, Ordering::Relaxed);
        self.has_rested.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn held_bytes(&self) -> Option<u64> {
        let is_silent = self.is_mute && self.has_rested.load(Ordering::Relaxed);
        (self.is_local && !is_silent).then_some(4711)
    }
}

fn measured(target: &str) -> Measurement {
    let registration = Registration::of::<Client>("client", "", &["none"]);
    let meters = Meters { held_bytes: || 1 << 30, ..Meters::default() };
    let spec = RunSpec { target: target.into(), settle_seconds: 0.01, ..spec() };
    registration.run(&spec, &meters, &|_| {}).unwrap()
}

#[test]
fn the_memory_of_a_client_is_no_size_of_files_that_servers_do_not_tell_any_more() {
    let mute = measured("mute");
    assert_eq!((mute.loaded_held_bytes, mute.held_bytes(), mute.held_per_raw()), (Some(0), None, None));
    assert_eq!((mute.settled_held_bytes(), measured("local").settled_held_bytes()), (None, Some(0)));
}

#[test]
fn cpu_time_of_a_client_is_that_of_its_servers_until_they_are_quiet() {
    let rounded = |seconds: Option<f64>| seconds.map(|seconds| (seconds * 1e3).round() / 1e3);
    let local = measured("local");
    // 20 gets, and the work that they put off.
    assert_eq!(rounded(local.cpu_sec()), Some(3.2));
    assert_eq!(rounded(local.servers.unwrap().after_cpu_sec), Some(3.0));
    assert_eq!(rounded(local.load_cpu_sec), Some(2.0));
    assert_eq!(local.held_bytes(), Some(0), "the files did not grow");
    assert!(!local.machine.missing().contains(&"processors"), "{:?}", local.machine.missing());
    let remote = measured("remote");
    let missing = remote.machine.missing();
    for meter in ["processors", "disks", "page cache", "power"] {
        assert!(missing.contains(&meter), "{missing:?}");
    }
    assert!(remote.machine.network_bytes().is_some() && remote.machine.sec > 0.0, "{remote:?}");
    assert_eq!((remote.cpu_sec(), remote.qps_per_cpu_core(), remote.load_cpu_sec), (None, None, None));
    assert_eq!(
        (remote.held_bytes(), remote.held_per_raw()),
        (None, None),
        "the client's memory is none of the data"
    );
}

#[test]
fn latency_is_that_of_the_call() {
    let read = measure(&slow()).read.unwrap();
    assert!(read.p50_us >= 2_000.0 && read.p999_us >= read.p50_us, "{read:?}");
    assert!(measure(&RunSpec { latency: false, ..slow() }).read.is_none());
}

#[test]
fn a_batch_counts_its_keys_and_is_timed_as_one_call() {
    let measured = measure(&RunSpec { multi_get: 10, operations: Some(35), ..slow() });
    assert_eq!(measured.operations, 40, "a batch that has begun is finished");
    assert!(measured.read.unwrap().p50_us >= 2_000.0);
}

#[test]
fn what_was_loaded_is_known_after_inserts() {
    let workload = Workload::mixed("insert=100").unwrap();
    let measured = measure(&RunSpec { target: "inserts".into(), workload, ..spec() });
    assert_eq!((measured.keys, measured.loaded_keys), (40, 20));
    assert_eq!((measured.raw_bytes, measured.loaded_raw_bytes), (40 * 144, 20 * 144));
}

#[test]
fn background_threads_are_on_the_cpu_bill() {
    let cpu_sec = measure(&RunSpec { target: "busy".into(), ..spec() }).usage.cpu_sec();
    assert!(cpu_sec >= 0.049, "{cpu_sec}");
}

/// The bytes that the allocator of the next test pretends to hold.
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

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
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
    let meters = Meters { held_bytes: || HELD.load(Ordering::Relaxed), ..Meters::default() };
    let spec = RunSpec { keys: 1_000, operations: Some(4_000), settle_seconds: 0.05, ..spec() };
    let spec = RunSpec { workload: Workload::named("read_write_5_5").unwrap(), ..spec };
    let measured = registration.run(&spec, &meters, &|_| {}).unwrap();
    assert_eq!(measured.memory.held_bytes, Some(5_000 + 100_000));
    assert_eq!(measured.settled.unwrap().held_bytes, Some(5_000 + 100_000));
    assert_eq!((measured.keys, measured.raw_bytes), (1_000, 144_000));

    // The first half of the corpus is loaded before, and is not on the account of the second.
    let halves = RunSpec { train_on: TrainOn::FirstHalf, ..spec };
    let measured = registration.run(&halves, &meters, &|_| {}).unwrap();
    assert_eq!(measured.memory.held_bytes, Some(100_000));
    assert_eq!((measured.keys, measured.raw_bytes), (1_000, 144_000));
}

/// Takes a dictionary into use whenever it has been given as many keys as its name says.
struct Learns {
    map: BTreeMapTarget,
    given: AtomicU64,
    keys: u64,
}

impl Target for Learns {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        let keys = config.target.parse().unwrap();
        Ok(Learns { map: BTreeMapTarget::open(config)?, given: AtomicU64::new(0), keys })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        self.map.get(key, value)
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        self.map.multi_get(keys, batch)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.given.fetch_add(1, Ordering::Relaxed);
        self.map.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        self.map.delete(key)
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        self.map.scan(from, limit, records)
    }

    fn counters(&self) -> Counters {
        let given = self.given.load(Ordering::Relaxed);
        let taken = given / self.keys;
        Counters {
            trainings: Some(taken + 3),
            adoptions: Some(taken),
            bg_compactions: Some(given),
            ..Counters::default()
        }
    }
}

#[test]
fn a_row_that_holds_data_out_tells_when_they_were_learnt() {
    let halves = RunSpec { keys: 1_000, train_on: TrainOn::FirstHalf, settle_seconds: 0.01, ..spec() };
    let meters = Meters::default();
    let learns = Registration::of::<Learns>("learns", "", &["none"]);
    let measured = |keys: &str, spec: &RunSpec| {
        let measured =
            learns.run(&RunSpec { target: keys.into(), ..spec.clone() }, &meters, &|_| {}).unwrap();
        (measured.adoptions, measured.has_retrained())
    };
    // After 600, 1,200 and 1,800 keys: the last two come with the second thousand.
    assert_eq!(measured("600", &halves), (Some(2), true));
    assert_eq!(measured("5000", &halves), (Some(0), false));
    // Without anything held out there is nothing to fail.
    let all = RunSpec { train_on: TrainOn::All, ..halves };
    assert_eq!(measured("600", &all), (Some(1), false));
}

#[test]
fn the_counters_of_a_measured_load_leave_out_what_was_loaded_before() {
    let learns = Registration::of::<Learns>("learns", "", &["none"]);
    let meters = Meters::default();
    for train_on in [TrainOn::All, TrainOn::FirstHalf] {
        let workload = Workload::named("fillseq").unwrap();
        let fill =
            RunSpec { target: "600".into(), keys: 1_000, train_on, workload, settle_seconds: 0.01, ..spec() };
        let measured = learns.run(&fill, &meters, &|_| {}).unwrap();
        assert_eq!(measured.counters.bg_compactions, Some(1_000), "{train_on}");
    }
}
