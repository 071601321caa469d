//! The timed window: warm-up, the operating threads, and their counts. Also the windows of several rates: those that a
//! user lists, or those of a search for the rate that a latency limit allows.
//!
//! A window ends by the clock, or by the count of its operations where the run asks for one. A count gives the same
//! work on every machine, so that a busy one can only make the window longer.

use std::fs::File;
use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use crate::meters::{Meters, ModelledWork, Usage};
use crate::run::Spaces;
use crate::run::clock::Clock;
use crate::run::measurement::{Latency, ServersCpu, Step};
use crate::run::spec::RunSpec;
use crate::run::worker::{Buffers, Control, Mistakes, Phase, Worker};
use crate::target::{Counters, Target, Work};
use crate::workload::distribution::KeyLaw;
use crate::workload::pace::Pace;
use crate::workload::scan::ScanLengths;

/// The inputs of a timed window.
pub(crate) struct Arena<'a, T: Target> {
    pub(crate) spec: &'a RunSpec,
    pub(crate) meters: &'a Meters,
    pub(crate) law: &'a KeyLaw,
    /// The clock of latencies, if they are taken.
    pub(crate) clock: Option<&'a Clock>,
    /// The clock of the window's length.
    pub(crate) wall: &'a Clock,
    pub(crate) targets: &'a [T],
    pub(crate) spaces: &'a [Spaces],
    /// The orders of `--perf-control`.
    pub(crate) perf: Option<&'a File>,
}

/// The results of a timed window.
pub(crate) struct Window {
    pub(crate) operations: u64,
    pub(crate) read: Option<Latency>,
    pub(crate) write: Option<Latency>,
    pub(crate) wall_sec: f64,
    pub(crate) usage: Usage,
    pub(crate) servers: Option<ServersCpu>,
    pub(crate) modelled: ModelledWork,
    pub(crate) counters: Counters,
}

impl Window {
    /// Loading as what was measured.
    pub(crate) fn of_load(
        spec: &RunSpec,
        wall_sec: f64,
        usage: Usage,
        servers: Option<ServersCpu>,
        modelled: ModelledWork,
        counters: Counters,
    ) -> Self {
        let operations = spec.keys * spec.instances;
        Window { operations, read: None, write: None, wall_sec, usage, servers, modelled, counters }
    }
}

impl<T: Target> Arena<'_, T> {
    /// All windows of the run: the one that its row is made of, and the steps to it if it has several.
    pub(crate) fn windows(
        &self,
        buffers: &mut Vec<Buffers<T>>,
        progress: &dyn Fn(&str),
    ) -> (Window, Vec<Step>) {
        match self.spec.pace {
            Pace::Closed => (self.window(buffers, None), Vec::new()),
            Pace::Rate(per_sec) => (self.window(buffers, Some(per_sec)), Vec::new()),
            Pace::UntilP99(limit_us) => {
                let closed = self.window(buffers, None);
                self.raise_rate(buffers, closed, limit_us, progress)
            }
            Pace::Ramp { from, to, steps } => {
                let rates = Pace::rates(from, to, steps);
                let offered: Vec<_> = rates.map(|rate| self.offer(buffers, rate, progress)).collect();
                let steps = offered.iter().map(|(_, step)| *step).collect();
                let (last, _) = offered.into_iter().next_back().expect("a checked ramp has steps");
                (last, steps)
            }
        }
    }

    /// A window at a rate.
    fn offer(&self, buffers: &mut Vec<Buffers<T>>, rate: f64, progress: &dyn Fn(&str)) -> (Window, Step) {
        progress(&format!("offering {rate:.0} operations per second"));
        let window = self.window(buffers, Some(rate));
        let latencies = [window.read, window.write].into_iter().flatten();
        let p99_us = latencies.map(|latency| latency.p99_us).fold(0.0, f64::max);
        let done_per_sec = window.operations as f64 / window.wall_sec;
        (window, Step { offered_per_sec: rate, done_per_sec, p99_us })
    }

    /// Warm-up and one timed window, with a closed loop or at `rate` operations per second over all threads. The
    /// buffers of the workers are lent and come back.
    pub(crate) fn window(&self, buffers: &mut Vec<Buffers<T>>, rate: Option<f64>) -> Window {
        let (spec, control) = (self.spec, Control::default());
        let workers = spec.threads * spec.instances;
        let quota = |number| spec.operations.map(|all| all / workers + u64::from(number < all % workers));
        let interval_ns = rate.map(|rate| 1e9 * workers as f64 / rate);
        let begin = || {
            let recording = self.order_perf("enable");
            let before =
                (self.counters(), self.work(), self.wall.raw(), Usage::now(), (self.meters.modelled)());
            control.enter(Phase::Measure);
            (recording, before)
        };
        // Without a warm-up the first operation belongs to the window.
        let begun = (spec.warmup_seconds == 0.0).then(begin);
        let mut window = thread::scope(|scope| {
            let mut handles: Vec<_> = (0..workers)
                .zip(buffers.drain(..))
                .map(|(number, buffers)| {
                    let worker = Worker { quota: quota(number), ..self.worker(number, interval_ns, buffers) };
                    let control = &control;
                    scope.spawn(move || worker.run(control))
                })
                .collect();
            let (recording, (counters_before, work, start, usage, modelled)) = begun.unwrap_or_else(|| {
                thread::sleep(Duration::from_secs_f64(spec.warmup_seconds));
                begin()
            });
            let joined = |handle: thread::ScopedJoinHandle<'_, Buffers<T>>| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            match spec.operations {
                Some(_) => buffers.extend(handles.drain(..).map(joined)),
                None => thread::sleep(Duration::from_secs_f64(spec.seconds)),
            }
            control.enter(Phase::Stop);
            let wall_sec = self.wall.delta_as_nanos(start, self.wall.raw()) as f64 / 1e9;
            let usage = Usage::now().since(usage);
            let modelled = (self.meters.modelled)().since(modelled);
            buffers.extend(handles.drain(..).map(joined));
            let answered = self.work();
            if let Some(first) = buffers.first_mut() {
                self.rest(recording, &mut first.tally.mistakes);
            }
            let servers = ServersCpu::between(work, answered, self.work());
            let counters = self.counters().since(&counters_before);
            Window { operations: 0, read: None, write: None, wall_sec, usage, servers, modelled, counters }
        });
        if let [first, others @ ..] = buffers.as_mut_slice() {
            for other in others {
                first.tally.add(&other.tally);
            }
            window.operations = first.tally.operations;
            window.read = Latency::of(&first.tally.read_ns);
            window.write = Latency::of(&first.tally.write_ns);
        }
        window
    }

    /// Lets the servers come to rest, and a `perf record` that was told to record stop then.
    fn rest(&self, recording: io::Result<()>, mistakes: &mut Mistakes) {
        for target in self.targets {
            if let Err(error) = target.rest() {
                mistakes.add(|| format!("the servers did not come to rest: {error}"));
            }
        }
        if let Err(error) = recording.and_then(|()| self.order_perf("disable")) {
            mistakes.add(|| format!("the file of --perf-control took no order: {error}"));
        }
    }

    fn order_perf(&self, order: &str) -> io::Result<()> {
        self.perf.map_or(Ok(()), |mut perf| perf.write_all(format!("{order}\n").as_bytes()))
    }

    fn worker(&self, number: u64, interval_ns: Option<f64>, buffers: Buffers<T>) -> Worker<'_, T> {
        let spec = self.spec;
        let (instance, thread) = ((number / spec.threads) as usize, number % spec.threads);
        Worker {
            target: &self.targets[instance],
            oracle: &self.spaces[instance].measured,
            chooser: self.law.chooser(spec.seed ^ ((number + 1) << 32), thread, spec.threads),
            mix: spec.workload.mix,
            scan_lengths: ScanLengths::new(spec.workload.scan),
            thread,
            threads: spec.threads,
            multi_get: spec.multi_get,
            multi_put: spec.multi_put,
            clock: self.clock.cloned(),
            interval_ns,
            quota: None,
            buffers,
        }
    }

    pub(crate) fn work(&self) -> Work {
        self.targets.first().map_or(Work::Here, T::work)
    }

    pub(crate) fn counters(&self) -> Counters {
        self.targets.iter().map(T::counters).reduce(|sum, more| sum.plus(&more)).unwrap_or_default()
    }

    /// Open loop: offers growing rates, each for a window, until the 99th percentile exceeds the limit. If the first
    /// rate is already too fast, offers shrinking rates until one keeps the limit. Returns the last window that kept
    /// the limit, or the slowest.
    pub(crate) fn raise_rate(
        &self,
        buffers: &mut Vec<Buffers<T>>,
        closed: Window,
        limit_us: f64,
        progress: &dyn Fn(&str),
    ) -> (Window, Vec<Step>) {
        const FIRST_SHARE: f64 = 0.1;
        const FASTER: f64 = 1.25;
        const SLOWER: f64 = 0.5;
        const STEPS_MAX: usize = Pace::SEARCH_STEPS_MAX;
        /// With fewer operations in a window, ten or less would decide the percentile.
        const OPERATIONS_MIN: f64 = 1_000.0;
        /// How long a window that ends by count may take at a slow rate: all steps down to it take twice as long
        /// together.
        const SECONDS_MAX: f64 = 10.0;
        let mut rate = (closed.operations as f64 / closed.wall_sec * FIRST_SHARE).max(1.0);
        let (mut best, mut steps): (Option<Window>, Vec<Step>) = (None, Vec::new());
        let mut has_held = false;
        while steps.len() < STEPS_MAX {
            let (window, step) = self.offer(buffers, rate, progress);
            let holds = step.p99_us <= limit_us;
            steps.push(step);
            let too_fast_before = steps.len() > 1 && !has_held;
            if holds || !has_held {
                best = Some(window);
            }
            if holds == too_fast_before && steps.len() > 1 {
                break; // the limit lies between this rate and the one before
            }
            has_held |= holds;
            rate *= if holds { FASTER } else { SLOWER };
            let (operations, seconds) = match self.spec.operations {
                Some(operations) => (operations as f64, operations as f64 / rate),
                None => (rate * self.spec.seconds, self.spec.seconds),
            };
            if operations < OPERATIONS_MIN || self.spec.operations.is_some() && seconds > SECONDS_MAX {
                break;
            }
        }
        (best.unwrap_or(closed), steps)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::data::keys::Key;
    use crate::run;
    use crate::target::{Answers, Config, Records, TargetError};
    use crate::targets::BTreeMapTarget;

    const GET_NS: u64 = 10_000;

    /// A store whose calls take 10 us of a simulated clock each, and do not wait for each other. The next get also
    /// takes the nanoseconds in the last field.
    struct Ticking(BTreeMapTarget, Arc<AtomicU64>, AtomicU64);

    impl Target for Ticking {
        type Batch = Answers;

        fn open(config: &Config) -> Result<Self, TargetError> {
            Ok(Ticking(BTreeMapTarget::open(config)?, Arc::default(), AtomicU64::new(0)))
        }

        fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
            self.1.fetch_add(GET_NS + self.2.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            self.0.get(key, value)
        }

        fn multi_get(&self, keys: &[Key], batch: &mut Answers) -> Result<(), TargetError> {
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
    }

    /// Calls `with` with a loaded store in simulated time.
    fn simulated<R>(
        spec: RunSpec,
        with: impl FnOnce(&Arena<'_, Ticking>, &mut Vec<Buffers<Ticking>>) -> R,
    ) -> R {
        let spec =
            RunSpec { keys: 500, operations: Some(4_000), warmup_seconds: 0.0, corpus: "log".into(), ..spec };
        let spaces = run::spaces(&spec).unwrap();
        let perf = run::perf_control(&spec).unwrap();
        let target = Ticking::open(&run::config(&spec, &spaces[0])).unwrap();
        let clock = Clock::simulated(Arc::clone(&target.1));
        let mut mistakes = crate::run::worker::Mistakes::default();
        run::load(&target, &spaces[0].measured, 1, spec.workload.load, &mut mistakes);
        let law = KeyLaw::new(spec.distribution, spec.keys);
        let mut buffers = vec![Buffers::new(spec.multi_get, spec.value_bytes.max as usize, 100)];
        let answer = with(
            &Arena {
                spec: &spec,
                meters: &Meters { held_bytes: || 0, modelled: Default::default },
                law: &law,
                clock: Some(&clock),
                wall: &clock,
                targets: &[target],
                spaces: &spaces,
                perf: perf.as_ref(),
            },
            &mut buffers,
        );
        assert_eq!(buffers[0].tally.mistakes.count + mistakes.count, 0);
        answer
    }

    #[test]
    fn a_window_ends_by_count() {
        simulated(RunSpec::new("ticking", ""), |arena, buffers| {
            let window = arena.window(buffers, None);
            assert_eq!(window.operations, 4_000);
            let ns_each = window.wall_sec * 1e9 / 4_000.0;
            assert!((GET_NS as f64..GET_NS as f64 * 1.1).contains(&ns_each), "{ns_each}");
        });
    }

    #[test]
    fn writes_go_together_and_none_is_lost_at_the_end() {
        let workload = crate::workload::Workload::named("read_write_5_5").unwrap();
        simulated(RunSpec { multi_put: 16, workload, ..RunSpec::new("ticking", "") }, |arena, buffers| {
            let window = arena.window(buffers, Some(10_000.0));
            // What has begun when the count is reached is finished.
            assert!((4_000..4_016).contains(&window.operations), "{}", window.operations);
            // Fifteen writes follow the first, 200 us apart on average.
            let write = window.write.unwrap();
            assert!((2_000.0..5_000.0).contains(&write.p50_us), "{write:?}");
            let mut mistakes = Mistakes::default();
            run::check_all(&arena.targets[0], &arena.spaces[0].measured, &mut mistakes);
            assert_eq!(mistakes.first, None);
            let oracle = &arena.spaces[0].measured;
            assert!((0..oracle.len()).all(|index| !oracle.observe(index).in_flight()));
        });
    }

    #[test]
    fn a_stall_is_charged_to_every_operation_that_came_meanwhile() {
        const STALL_NS: u64 = 1_000_000_000;
        simulated(RunSpec::new("ticking", ""), |arena, buffers| {
            let mut stalled = |rate| {
                arena.targets[0].2.store(STALL_NS, Ordering::Relaxed);
                arena.window(buffers, rate).read.unwrap().p999_us
            };
            // A thousand of 4,000 operations come while the store stands still.
            let open_us = stalled(Some(1_000.0));
            assert!((900_000.0..1_100_000.0).contains(&open_us), "{open_us}");
            // A thread that waits for the answer asks nothing meanwhile, and so one operation of 4,000 is late.
            let closed_us = stalled(None);
            assert!(closed_us < 100.0, "{closed_us}");
        });
    }

    #[test]
    fn perf_records_from_the_begin_of_each_window_to_the_rest_after_it() {
        let orders = tempfile::NamedTempFile::new().unwrap();
        let spec = RunSpec { perf_control: Some(orders.path().to_owned()), ..RunSpec::new("ticking", "") };
        simulated(spec, |arena, buffers| {
            arena.window(buffers, None);
            arena.window(buffers, Some(10_000.0));
        });
        let ordered = std::fs::read_to_string(orders.path()).unwrap();
        assert_eq!(ordered, "enable\ndisable\n".repeat(2));
        let nowhere = RunSpec { perf_control: Some("/nowhere/fifo".into()), ..RunSpec::new("ticking", "") };
        let told = run::perf_control(&nowhere).unwrap_err().to_string();
        assert!(told.contains("/nowhere/fifo"), "{told}");
    }

    #[test]
    fn the_rate_that_a_latency_allows_is_found() {
        let limit_us = 40.0;
        let spec = RunSpec { pace: Pace::UntilP99(limit_us), ..RunSpec::new("ticking", "") };
        simulated(spec, |arena, buffers| {
            let closed = arena.window(buffers, None);
            let capacity = closed.operations as f64 / closed.wall_sec;
            let (best, steps) = arena.raise_rate(buffers, closed, limit_us, &|_| {});
            let (last, held) = steps.split_last().unwrap();
            assert!(last.p99_us > limit_us, "the search ends behind the limit: {last:?}");
            assert!(held.iter().all(|step| step.p99_us <= limit_us), "{held:?}");
            for pair in steps.windows(2) {
                assert!((pair[1].offered_per_sec / pair[0].offered_per_sec - 1.25).abs() < 1e-6);
            }
            for step in held {
                let done = step.done_per_sec / step.offered_per_sec;
                assert!((0.9..1.1).contains(&done), "what is offered below the limit is done: {step:?}");
            }
            // Calls queue: a limit of four calls is reached well before the store is busy all the time.
            let rate = held.last().unwrap().offered_per_sec / capacity;
            assert!((0.3..0.9).contains(&rate), "{rate} of the capacity");
            assert_eq!(best.read.unwrap().p99_us, held.last().unwrap().p99_us);
        });
    }

    #[test]
    fn each_rate_of_a_ramp_is_offered_once() {
        let pace = Pace::Ramp { from: 1_000.0, to: 4_000.0, steps: 3 };
        simulated(RunSpec { pace, ..RunSpec::new("ticking", "") }, |arena, buffers| {
            let (last, steps) = arena.windows(buffers, &|_| {});
            let offered: Vec<f64> = steps.iter().map(|step| step.offered_per_sec.round()).collect();
            assert_eq!(offered, [1_000.0, 2_000.0, 4_000.0]);
            assert_eq!(last.read.unwrap().p99_us, steps[2].p99_us);
            for step in steps {
                assert!((0.9..1.1).contains(&(step.done_per_sec / step.offered_per_sec)), "{step:?}");
            }
        });
    }

    #[test]
    fn inserts_go_on_from_window_to_window_until_there_is_no_room() {
        let workload = crate::workload::Workload::mixed("insert=100").unwrap();
        simulated(RunSpec { workload, ..RunSpec::new("ticking", "") }, |arena, buffers| {
            let oracle = &arena.spaces[0].measured;
            assert_eq!(arena.window(buffers, None).operations, 4_000);
            assert_eq!((oracle.used(), buffers[0].lacks_room()), (4_500, false));
            arena.window(buffers, None);
            assert_eq!((oracle.used(), buffers[0].lacks_room()), (oracle.len(), true));
            assert!(arena.spec.lacks_room().to_string().contains("--operations"));
        });
    }

    #[test]
    fn a_batch_waits_from_the_arrival_of_its_first_key() {
        let spec = RunSpec { multi_get: 16, ..RunSpec::new("ticking", "") };
        simulated(spec, |arena, buffers| {
            let window = arena.window(buffers, Some(10_000.0));
            let read = window.read.unwrap();
            // Fifteen keys follow the first, 100 us apart on average.
            assert!((1_000.0..2_500.0).contains(&read.p50_us), "{read:?}");
        });
    }
}
