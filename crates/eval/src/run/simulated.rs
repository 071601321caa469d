//! A store in simulated time, and windows of it, for the tests of a run.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::meters::Meters;
use crate::run;
use crate::run::clock::Clock;
use crate::run::control::{Control, Phase};
use crate::run::instance::Instance;
use crate::run::spec::RunSpec;
use crate::run::tally::Mistakes;
use crate::run::timed::Timed;
use crate::run::window::Arena;
use crate::run::worker::Buffers;
use crate::target::{Answers, Config, Records, Target, TargetError, Work};
use crate::targets::BTreeMapTarget;
use crate::workload::distribution::KeyLaw;

pub(super) const GET_NS: u64 = 10_000;

/// The nanoseconds of a simulated clock, and until when the thread that looks at it is parked.
#[derive(Debug, Default)]
pub(crate) struct Time {
    now_ns: AtomicU64,
    parked_until_ns: AtomicU64,
}

impl Deref for Time {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        &self.now_ns
    }
}

impl Time {
    /// Notes that the thread that looks at the clock parks for so long.
    pub(super) fn park(&self, wait_ns: u64) {
        let until_ns = self.now_ns.load(Ordering::Relaxed).saturating_add(wait_ns);
        self.parked_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// Holds up a thread that moves the clock while the thread that looks at it is not parked, or has not woken up.
    /// That thread may have no processor, or wait for this one to end, so it is held up for so long at most.
    pub(super) fn hold_up(&self, most: Duration) {
        let is_ahead = || self.now_ns.load(Ordering::Relaxed) >= self.parked_until_ns.load(Ordering::Relaxed);
        let began = Instant::now();
        while is_ahead() && began.elapsed() < most {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// A store whose calls take 10 us of a simulated clock each, and do not wait for each other. The next get also
/// takes the nanoseconds in the third field. In the middle of these, the window of the fourth field ends. The last
/// field counts how often somebody asked for the place of the work.
pub(super) struct Ticking(
    BTreeMapTarget,
    Arc<Time>,
    pub(super) AtomicU64,
    Mutex<Option<Arc<Control>>>,
    pub(super) AtomicU64,
);

impl Ticking {
    pub(super) fn now(&self) -> Arc<Time> {
        Arc::clone(&self.1)
    }

    /// A window that ends in the middle of the next get, which takes so much longer.
    pub(super) fn window_that_ends_in(&self, stall_ns: u64) -> Arc<Control> {
        let control = Arc::new(Control::new(1));
        control.enter(Phase::Measure);
        self.2.store(stall_ns, Ordering::Relaxed);
        *self.3.lock().unwrap() = Some(Arc::clone(&control));
        control
    }
}

impl Target for Ticking {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        let map = BTreeMapTarget::open(config)?;
        Ok(Ticking(map, Arc::default(), AtomicU64::new(0), Mutex::default(), AtomicU64::new(0)))
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        let stall_ns = self.2.swap(0, Ordering::Relaxed);
        let middle = self.1.fetch_add(GET_NS + stall_ns, Ordering::Relaxed) + stall_ns / 2;
        if let Some(control) = self.3.lock().unwrap().take() {
            control.end(middle);
        }
        self.0.get(key, value)
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        self.1.fetch_add(GET_NS, Ordering::Relaxed);
        self.0.multi_get(keys, batch)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.0.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        self.0.delete(key)
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        self.0.scan(from, limit, records)
    }

    fn work(&self) -> Work {
        self.4.fetch_add(1, Ordering::Relaxed);
        Work::Here
    }
}

/// Calls `with` with a loaded store in simulated time.
pub(super) fn simulated<R>(
    spec: RunSpec,
    with: impl FnOnce(&Ticking, &Arena<'_>, &mut Vec<Buffers>) -> R,
) -> R {
    let spec = RunSpec { operations: Some(4_000), warmup_seconds: 0.0, ..spec };
    simulated_by(spec, Ticking::now, with)
}

/// The same with any target, whose time passes as `now` of it says.
pub(super) fn simulated_by<T: Target + 'static, R>(
    spec: RunSpec,
    now: impl FnOnce(&T) -> Arc<Time>,
    with: impl FnOnce(&T, &Arena<'_>, &mut Vec<Buffers>) -> R,
) -> R {
    let spec = RunSpec { keys: 500, corpus: "log".into(), ..spec };
    let spaces = run::spaces::spaces(&spec, &Meters::default()).unwrap();
    let perf = run::perf_control(&spec).unwrap();
    let target = Arc::new(T::open(&run::spaces::config(&spec, &spaces[0])).unwrap());
    let instance: Instance = target.clone();
    let clock = Clock::simulated(now(&target));
    let mut mistakes = Mistakes::default();
    run::every_key::load(&instance, &spaces[0].measured, 1, spec.workload.load, &mut mistakes);
    let law = KeyLaw::new(spec.distribution, spec.keys);
    let buffers = || Buffers::new(spec.multi_get, 16, spec.value_bytes.max as usize, 100);
    let mut buffers = (0..spec.threads_max()).map(|_| buffers()).collect();
    let answer = with(
        &target,
        &Arena {
            timed: Timed {
                spec: &spec,
                meters: &Meters::default(),
                clock: Some(&clock),
                wall: &clock,
                targets: &[instance],
                perf: perf.as_ref(),
            },
            law: &law,
            spaces: &spaces,
            ended: Cell::new(0),
            gone_through: Cell::new(0),
        },
        &mut buffers,
    );
    assert_eq!(buffers[0].tally.mistakes.count + mistakes.count, 0);
    answer
}
