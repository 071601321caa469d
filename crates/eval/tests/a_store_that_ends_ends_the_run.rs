//! A server may die in the middle of a benchmark. A run that went on asking it would fail millions of times until its
//! window is over, and a user would wait for nothing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicU64, Ordering};

use ziptier_eval::targets::BTreeMapTarget;
use ziptier_eval::{
    Answers, Config, Error, Gone, Meters, Pace, Records, Registration, RunSpec, Target, TargetError, Workload,
};

const KEYS: u64 = 2_000;
const THREADS: u64 = 3;

/// Calls to a store that had ended.
static IN_VAIN: AtomicU64 = AtomicU64::new(0);

/// Calls that a store takes before it ends.
static CALLS_MAX: AtomicU64 = AtomicU64::new(0);

struct Ends(BTreeMapTarget, AtomicU64);

impl Ends {
    fn call(&self) -> Result<&BTreeMapTarget, TargetError> {
        if self.1.fetch_add(1, Ordering::Relaxed) < CALLS_MAX.load(Ordering::Relaxed) {
            return Ok(&self.0);
        }
        IN_VAIN.fetch_add(1, Ordering::Relaxed);
        Err(Gone("the plug was pulled".into()).into())
    }
}

impl Target for Ends {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        Ok(Ends(BTreeMapTarget::open(config)?, AtomicU64::new(0)))
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        self.call()?.get(key, value)
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        self.call()?.multi_get(keys, batch)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.call()?.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        self.call()?.delete(key)
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        self.call()?.scan(from, limit, records)
    }
}

fn ended(calls_max: u64, change: &dyn Fn(&mut RunSpec)) -> Error {
    let registration = Registration::of::<Ends>("mortal", "ends", &["none"]);
    let mut spec = RunSpec {
        workload: Workload::mixed("read=50,write=30,delete=10,scan=10").unwrap(),
        threads: THREADS,
        keys: KEYS,
        // Whoever waits for the end of the window never gets here.
        seconds: 80_000.0,
        warmup_seconds: 0.0,
        ..RunSpec::new("mortal", "json")
    };
    change(&mut spec);
    CALLS_MAX.store(calls_max, Ordering::Relaxed);
    IN_VAIN.store(0, Ordering::Relaxed);
    let meters = Meters::default();
    let error = registration.run(&spec, &meters, &|_| {}).unwrap_err();
    // Each thread may have begun a call before it was told.
    assert!((1..=THREADS).contains(&IN_VAIN.load(Ordering::Relaxed)), "{IN_VAIN:?} calls in vain: {error}");
    error
}

#[test]
fn nobody_goes_on_asking_a_store_that_has_ended() {
    let alike = |_: &mut RunSpec| {};
    for (when, error) in [
        ("while keys are loaded", ended(500, &alike)),
        ("in the window", ended(KEYS + 500, &alike)),
        ("in the warm-up", ended(KEYS + 500, &|spec| spec.warmup_seconds = 80_000.0)),
        ("in an open loop", ended(KEYS + 50, &|spec| spec.pace = Pace::Rate(1_000.0))),
        (
            "between windows",
            ended(KEYS + 1_100, &|spec| {
                (spec.operations, spec.pace) = (Some(1_000), Pace::UntilP99(1e6));
            }),
        ),
        ("in a check of every key", ended(KEYS + 1_500, &|spec| spec.operations = Some(1_000))),
    ] {
        assert_eq!(error.to_string(), "the target mortal has ended: the plug was pulled", "{when}");
        assert_eq!(error.exit_status(), 1, "{when}");
    }
}
