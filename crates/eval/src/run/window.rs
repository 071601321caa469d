//! The timed window: warm-up, the operating threads, and their counts. Also the windows of several rates: those that a
//! user lists, or those of a search for the rate that a latency limit allows.
//!
//! A window ends by the clock, or by the count of its operations where the run asks for one. A count gives the same
//! work on every machine, so that a busy one can only make the window longer.

use std::fs::File;
use std::io::{self, Write};
use std::thread;
use std::time::Instant;

use crate::error::Error;
use crate::meters::machine::{MachineUse, Reading};
use crate::meters::{Meters, ModelledWork, Usage};
use crate::run::clock::Clock;
use crate::run::measurement::{Latency, Percentiles, Sample, ServersCpu, Step};
use crate::run::saturation::{Effort, Saturation, saturate};
use crate::run::spec::RunSpec;
use crate::run::steady::Steadiness;
use crate::run::worker::{Buffers, Control, Mistakes, Phase, Worker};
use crate::run::{Spaces, has_not_ended};
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

/// What a window offers to the target, and when it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    /// Threads on each target.
    pub(crate) threads: u64,
    /// Operations per second over all threads; nothing for a closed loop.
    pub(crate) rate: Option<f64>,
    /// Seconds of the same operations before the window.
    pub(crate) warmup_seconds: f64,
    pub(crate) end: End,
}

/// When a window ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// After so many operations, over all threads.
    Operations(u64),
    /// After so many seconds.
    Seconds(f64),
    /// When its throughput is steady, or after so many seconds.
    Steady(f64),
}

impl Offer {
    /// What a run asks for.
    pub(crate) fn of(spec: &RunSpec) -> Self {
        let end = match spec.operations {
            Some(operations) => End::Operations(operations),
            None if spec.until_steady => End::Steady(spec.seconds),
            None => End::Seconds(spec.seconds),
        };
        let warmup_seconds = spec.warmup_seconds;
        Offer { threads: spec.threads, rate: spec.pace.rate(), warmup_seconds, end }
    }
}

/// The results of a timed window.
pub(crate) struct Window {
    pub(crate) operations: u64,
    pub(crate) read: Option<Latency>,
    pub(crate) write: Option<Latency>,
    pub(crate) percentiles: Percentiles,
    pub(crate) wall_sec: f64,
    pub(crate) usage: Usage,
    pub(crate) servers: Option<ServersCpu>,
    pub(crate) modelled: ModelledWork,
    pub(crate) counters: Counters,
    pub(crate) machine: MachineUse,
    pub(crate) samples: Vec<Sample>,
    /// Whether the throughput was steady, for a window that waited for that.
    pub(crate) steadiness: Option<Steadiness>,
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
        machine: MachineUse,
    ) -> Self {
        Window {
            operations: spec.keys * spec.instances,
            read: None,
            write: None,
            percentiles: Percentiles::default(),
            wall_sec,
            usage,
            servers,
            modelled,
            counters,
            machine,
            samples: Vec::new(),
            steadiness: None,
        }
    }
}

impl<T: Target> Arena<'_, T> {
    /// All windows of the run: the one that its row is made of, the steps to it if it has several, and what a search
    /// for saturation found.
    pub(crate) fn windows(
        &self,
        buffers: &mut Vec<Buffers<T>>,
        progress: &dyn Fn(&str),
    ) -> Result<(Window, Vec<Step>, Option<Saturation>), Error> {
        let offer = Offer::of(self.spec);
        Ok(match self.spec.pace {
            Pace::Closed | Pace::Rate(_) => (self.window(buffers, offer), Vec::new(), None),
            Pace::UntilP99(limit_us) => {
                let closed = self.window(buffers, offer);
                let (window, steps) = self.raise_rate(buffers, closed, limit_us, progress);
                (window, steps, None)
            }
            Pace::Ramp { from, to, steps } => {
                let rates = Pace::rates(from, to, steps);
                let offered: Vec<_> = rates.map(|rate| self.offer(buffers, rate, progress)).collect();
                let steps = offered.iter().map(|(_, step)| *step).collect();
                let (last, _) = offered.into_iter().next_back().expect("a checked ramp has steps");
                (last, steps, None)
            }
            Pace::Saturated(threads_max) => {
                let (window, found) = self.saturate(buffers, threads_max, progress)?;
                (window, Vec::new(), Some(found))
            }
        })
    }

    /// A window at a rate.
    fn offer(&self, buffers: &mut Vec<Buffers<T>>, rate: f64, progress: &dyn Fn(&str)) -> (Window, Step) {
        progress(&format!("offering {rate:.0} operations per second"));
        let window = self.window(buffers, Offer { rate: Some(rate), ..Offer::of(self.spec) });
        let latencies = [window.read, window.write].into_iter().flatten();
        let p99_us = latencies.map(|latency| latency.p99_us).fold(0.0, f64::max);
        let done_per_sec = window.operations as f64 / window.wall_sec;
        (window, Step { offered_per_sec: rate, done_per_sec, p99_us })
    }

    /// Warm-up and one timed window. The buffers of the workers are lent and come back.
    pub(crate) fn window(&self, buffers: &mut Vec<Buffers<T>>, offer: Offer) -> Window {
        let (spec, control) = (self.spec, Control::default());
        let workers = offer.threads * spec.instances;
        let quota = |number| match offer.end {
            End::Operations(all) => Some(all / workers + u64::from(number < all % workers)),
            _ => None,
        };
        let interval_ns = offer.rate.map(|rate| 1e9 * workers as f64 / rate);
        let mut used: Vec<Buffers<T>> = buffers.drain(..workers as usize).collect();
        let progress: Vec<_> = used.iter().map(|buffers| buffers.progress.clone()).collect();
        let done = || progress.iter().map(|one| one.operations()).sum::<u64>();
        let begin = || {
            let recording = self.order_perf("enable");
            let machine = Reading::now();
            let before =
                (self.counters(), self.work(), self.wall.raw(), Usage::now(), (self.meters.modelled)());
            control.enter(Phase::Measure);
            (recording, before, machine)
        };
        // Without a warm-up the first operation belongs to the window.
        let begun = (offer.warmup_seconds == 0.0).then(begin);
        let mut window = thread::scope(|scope| {
            let mut handles: Vec<_> = (0..workers)
                .zip(used.drain(..))
                .map(|(number, buffers)| {
                    let worker = self.worker(number, offer.threads, buffers);
                    let worker = Worker { quota: quota(number), interval_ns, ..worker };
                    let control = &control;
                    scope.spawn(move || worker.run(control))
                })
                .collect();
            let (recording, before, machine) = begun.unwrap_or_else(|| {
                control.wait(offer.warmup_seconds);
                begin()
            });
            let (counters_before, work, start, usage, modelled) = before;
            let (mut samples, mut steadiness) = (Vec::new(), None);
            let joined = |handle: thread::ScopedJoinHandle<'_, Buffers<T>>| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            match offer.end {
                End::Operations(_) => used.extend(handles.drain(..).map(joined)),
                End::Seconds(seconds) => samples = sampled(&control, seconds, &machine, done, |_| false),
                End::Steady(seconds_max) => {
                    samples = sampled(&control, seconds_max, &machine, done, |samples| {
                        let verdict = Steadiness::of(&throughputs(samples));
                        steadiness = Some(verdict);
                        matches!(verdict, Steadiness::Steady { .. })
                    });
                }
            }
            control.enter(Phase::Stop);
            let wall_sec = self.wall.delta_as_nanos(start, self.wall.raw()) as f64 / 1e9;
            let usage = Usage::now().since(usage);
            let modelled = (self.meters.modelled)().since(modelled);
            let machine = Reading::now().since(&machine);
            used.extend(handles.drain(..).map(joined));
            let answered = self.work();
            if let Some(first) = used.first_mut() {
                self.rest(recording, &mut first.tally.mistakes);
            }
            let servers = ServersCpu::between(work, answered, self.work());
            let counters = self.counters().since(&counters_before);
            Window {
                operations: 0,
                read: None,
                write: None,
                percentiles: Percentiles::default(),
                wall_sec,
                usage,
                servers,
                modelled,
                counters,
                machine,
                samples,
                steadiness,
            }
        });
        if let [first, others @ ..] = used.as_mut_slice() {
            for other in others {
                first.tally.add(&other.tally);
            }
            window.operations = first.tally.operations;
            window.read = Latency::of(&first.tally.read_ns);
            window.write = Latency::of(&first.tally.write_ns);
            window.percentiles = Percentiles::of(&first.tally.read_ns, &first.tally.write_ns);
        }
        buffers.append(&mut used);
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

    fn worker(&self, number: u64, threads: u64, buffers: Buffers<T>) -> Worker<'_, T> {
        let spec = self.spec;
        let (instance, thread) = ((number / threads) as usize, number % threads);
        Worker {
            target: &self.targets[instance],
            oracle: &self.spaces[instance].measured,
            chooser: self.law.chooser(spec.seed ^ ((number + 1) << 32), thread, threads),
            mix: spec.workload.mix,
            scan_lengths: ScanLengths::new(spec.workload.scan),
            thread,
            threads,
            multi_get: spec.multi_get,
            multi_put: spec.multi_put,
            clock: self.clock.cloned(),
            interval_ns: None,
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

    /// Closed loop: searches the number of threads from which on there is no more throughput, with a short window for
    /// each measurement. Then measures at the peak until the throughput is steady.
    pub(crate) fn saturate(
        &self,
        buffers: &mut Vec<Buffers<T>>,
        threads_max: u64,
        progress: &dyn Fn(&str),
    ) -> Result<(Window, Saturation), Error> {
        /// Of the longest window at the peak.
        const SHARE: f64 = 0.05;
        const SECONDS: std::ops::RangeInclusive<f64> = 0.25..=3.0;
        /// Of all windows but the first, which warms the target up.
        const WARMUP_SECONDS_MAX: f64 = 0.5;
        let end = match self.spec.operations {
            Some(operations) => End::Operations(operations),
            None => End::Seconds((self.spec.seconds * SHARE).clamp(*SECONDS.start(), *SECONDS.end())),
        };
        let mut warmup_seconds = self.spec.warmup_seconds;
        let found = saturate(Effort { load_max: threads_max, ..Effort::default() }, &mut |threads| {
            progress(&format!("measuring {threads} threads"));
            let window = self.window(buffers, Offer { threads, rate: None, warmup_seconds, end });
            warmup_seconds = warmup_seconds.min(WARMUP_SECONDS_MAX);
            has_not_ended(self.spec, buffers.iter().map(|one| &one.tally.mistakes))?;
            Ok(window.operations as f64 / window.wall_sec)
        })?;
        progress(&format!("waiting for a steady throughput of {} threads", found.peak_load));
        let end = self.spec.operations.map_or(End::Steady(self.spec.seconds), End::Operations);
        let window =
            self.window(buffers, Offer { threads: found.peak_load, rate: None, warmup_seconds, end });
        Ok((window, found))
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
        while steps.len() < STEPS_MAX && buffers.iter().all(|one| one.tally.mistakes.gone.is_none()) {
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

/// Operations per second of each part of a window.
fn throughputs(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.operations as f64 / sample.machine.sec.max(1e-9)).collect()
}

/// Waits until the window is over, or `is_enough`. Meanwhile it reads the meters and `done`, the operations so far,
/// up to four times a second. `begin` is what the meters said at the begin.
fn sampled(
    control: &Control,
    seconds: f64,
    begin: &Reading,
    done: impl Fn() -> u64,
    mut is_enough: impl FnMut(&[Sample]) -> bool,
) -> Vec<Sample> {
    const SAMPLES_LEAST: f64 = 240.0;
    const INTERVAL_SEC: std::ops::RangeInclusive<f64> = 0.25..=1.0;
    let start = Instant::now();
    let interval_sec = (seconds / SAMPLES_LEAST).clamp(*INTERVAL_SEC.start(), *INTERVAL_SEC.end());
    let (mut samples, mut before, mut done_before) = (Vec::new(), begin.clone(), 0);
    for number in 1.. {
        // The rest of a window that is no whole interval belongs to the last one.
        let ends = number as f64 * interval_sec;
        let is_last = ends + interval_sec > seconds;
        let at = if is_last { seconds } else { ends };
        control.wait(at - start.elapsed().as_secs_f64());
        let (now, done_now) = (Reading::now(), done());
        let (operations, machine) = (done_now.saturating_sub(done_before), now.since(&before));
        samples.push(Sample { operations, machine });
        (before, done_before) = (now, done_now);
        if is_last || control.is_stopped() || is_enough(&samples) {
            break;
        }
    }
    samples
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
            let window = arena.window(buffers, Offer::of(arena.spec));
            assert_eq!(window.operations, 4_000);
            let ns_each = window.wall_sec * 1e9 / 4_000.0;
            assert!((GET_NS as f64..GET_NS as f64 * 1.1).contains(&ns_each), "{ns_each}");
        });
    }

    #[test]
    fn writes_go_together_and_none_is_lost_at_the_end() {
        let workload = crate::workload::Workload::named("read_write_5_5").unwrap();
        simulated(RunSpec { multi_put: 16, workload, ..RunSpec::new("ticking", "") }, |arena, buffers| {
            let window = arena.window(buffers, Offer { rate: Some(10_000.0), ..Offer::of(arena.spec) });
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
                arena.window(buffers, Offer { rate, ..Offer::of(arena.spec) }).read.unwrap().p999_us
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
            arena.window(buffers, Offer::of(arena.spec));
            arena.window(buffers, Offer { rate: Some(10_000.0), ..Offer::of(arena.spec) });
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
            let closed = arena.window(buffers, Offer::of(arena.spec));
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
            let (last, steps, _) = arena.windows(buffers, &|_| {}).unwrap();
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
            assert_eq!(arena.window(buffers, Offer::of(arena.spec)).operations, 4_000);
            assert_eq!((oracle.used(), buffers[0].lacks_room()), (4_500, false));
            arena.window(buffers, Offer::of(arena.spec));
            assert_eq!((oracle.used(), buffers[0].lacks_room()), (oracle.len(), true));
            assert!(arena.spec.lacks_room().to_string().contains("--operations"));
        });
    }

    #[test]
    fn a_batch_waits_from_the_arrival_of_its_first_key() {
        let spec = RunSpec { multi_get: 16, ..RunSpec::new("ticking", "") };
        simulated(spec, |arena, buffers| {
            let window = arena.window(buffers, Offer { rate: Some(10_000.0), ..Offer::of(arena.spec) });
            let read = window.read.unwrap();
            // Fifteen keys follow the first, 100 us apart on average.
            assert!((1_000.0..2_500.0).contains(&read.p50_us), "{read:?}");
        });
    }
}
