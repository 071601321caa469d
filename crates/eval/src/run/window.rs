//! The windows of a run: one, those of several rates that a user lists, or those of a search for the rate that a
//! latency limit allows, or for saturation.

use std::cell::Cell;

use crate::error::Error;
use crate::run::control::Control;
use crate::run::measurement::Step;
use crate::run::saturation::Saturation;
use crate::run::search::again_warmup_seconds;
use crate::run::spaces::Spaces;
use crate::run::spec::RunSpec;
use crate::run::steady::WarmedUp;
use crate::run::timed::{End, Span, Timed, Window};
use crate::run::worker::{Buffers, Worker};
use crate::target::Work;
use crate::workload::distribution::KeyLaw;
use crate::workload::pace::Pace;
use crate::workload::scan::ScanLengths;

/// The inputs of a timed window.
pub(crate) struct Arena<'a> {
    pub(crate) timed: Timed<'a>,
    pub(crate) law: &'a KeyLaw,
    pub(crate) spaces: &'a [Spaces],
    /// Windows so far. Each draws keys of its own: those of the window before would be found in the target's caches.
    pub(crate) ended: Cell<u64>,
    /// Keys of the order of the law up to the end of the last window, behind which the next one begins.
    pub(crate) gone_through: Cell<u64>,
}

/// What a window offers to the target, and when it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    /// Threads on each target.
    pub(crate) threads: u64,
    /// Operations per second over all threads; nothing for a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) span: Span,
}

impl Offer {
    /// What a run asks for.
    pub(crate) fn of(spec: &RunSpec) -> Self {
        let end = match spec.operations {
            Some(operations) => End::Operations(operations),
            None if spec.until_steady => End::Steady(spec.seconds),
            None => End::Seconds(spec.seconds),
        };
        let span = Span { warmup_seconds: spec.warmup_seconds, end, is_row: true };
        Offer { threads: spec.threads, rate: spec.pace.rate(), span }
    }
}

/// All windows of a run: the one that its row is made of, what a warm-up until the throughput was steady found, the
/// steps to the last window if there are several, and what a search for saturation found.
pub(crate) struct Windows {
    pub(crate) warm_up: Option<WarmedUp>,
    pub(crate) last: Window,
    pub(crate) steps: Vec<Step>,
    pub(crate) saturation: Option<Saturation>,
}

impl From<Window> for Windows {
    fn from(last: Window) -> Self {
        Windows { warm_up: None, last, steps: Vec::new(), saturation: None }
    }
}

impl Arena<'_> {
    /// All windows of the run.
    pub(crate) fn windows(
        &self,
        buffers: &mut Vec<Buffers>,
        progress: &dyn Fn(&str),
    ) -> Result<Windows, Error> {
        let warm_up = self.warm_up(buffers, progress)?;
        let mut offer = Offer::of(self.timed.spec);
        if warm_up.is_some() {
            offer.span.warmup_seconds = again_warmup_seconds(offer.span.warmup_seconds);
        }
        let windows = match self.timed.spec.pace {
            Pace::Closed | Pace::Rate(_) => self.window(buffers, offer).into(),
            Pace::UntilP99(limit_us) => {
                let closed = self.window(buffers, offer);
                let (last, steps) = self.raise_rate(buffers, closed, limit_us, progress);
                Windows { steps, ..last.into() }
            }
            Pace::Ramp { from, to, steps } => {
                let rates = Pace::rates(from, to, steps);
                let offered: Vec<_> = rates.map(|rate| self.offer(buffers, rate, progress)).collect();
                let steps = offered.iter().map(|(_, step)| *step).collect();
                let (last, _) = offered.into_iter().next_back().expect("a checked ramp has steps");
                Windows { steps, ..last.into() }
            }
            Pace::Saturated(threads_max) => {
                let (last, found) = self.saturate(buffers, threads_max, offer.span, progress)?;
                Windows { saturation: Some(found), ..last.into() }
            }
        };
        Ok(Windows { warm_up, ..windows })
    }

    /// A window at a rate.
    fn offer(&self, buffers: &mut Vec<Buffers>, rate: f64, progress: &dyn Fn(&str)) -> (Window, Step) {
        progress(&format!("offering {rate:.0} operations per second"));
        let window = self.window(buffers, Offer { rate: Some(rate), ..Offer::of(self.timed.spec) });
        let latencies = [window.read, window.write].into_iter().flatten();
        let p99_us = latencies.map(|latency| latency.p99_us).fold(0.0, f64::max);
        let done_per_sec = window.operations as f64 / window.wall_sec;
        (window, Step { offered_per_sec: rate, done_per_sec, p99_us })
    }

    /// Warm-up and one timed window. The buffers of the workers are lent and come back.
    pub(crate) fn window(&self, buffers: &mut Vec<Buffers>, offer: Offer) -> Window {
        let workers = offer.threads * self.timed.spec.instances;
        let quota = |number| match offer.span.end {
            End::Operations(all) => Some(all / workers + u64::from(number < all % workers)),
            _ => None,
        };
        let interval_ns = offer.rate.map(|rate| 1e9 * workers as f64 / rate);
        let work = self.timed.work();
        let window = self.timed.window(buffers, workers, offer.span, |number, buffers| {
            let target = &self.timed.targets[(number / offer.threads) as usize];
            let worker = self.worker(number, offer.threads, buffers);
            let mut worker = Worker { work, quota: quota(number), interval_ns, ..worker };
            move |control: &Control| {
                target.operate(&mut worker, control);
                worker.buffers.gone_through = worker.chooser.gone_through();
                worker.buffers
            }
        });
        self.ended.set(self.ended.get() + 1);
        let used = buffers.iter().rev().take(workers as usize);
        self.gone_through.set(used.map(|one| one.gone_through).max().unwrap_or(0));
        window
    }

    fn worker(&self, number: u64, threads: u64, buffers: Buffers) -> Worker<'_> {
        let spec = self.timed.spec;
        let (instance, thread) = ((number / threads) as usize, number % threads);
        let seed = spec.seed ^ (number + 1) << 32 ^ self.ended.get() << 52;
        Worker {
            work: Work::Here,
            oracle: &self.spaces[instance].measured,
            chooser: self.law.chooser(seed, thread, threads).behind(self.gone_through.get()),
            mix: spec.workload.mix,
            scan_lengths: ScanLengths::new(spec.workload.scan),
            thread,
            threads,
            connections: spec.connections_of(thread, threads),
            multi_get: spec.multi_get,
            multi_put: spec.multi_put,
            clock: self.timed.clock.cloned(),
            interval_ns: None,
            quota: None,
            buffers,
        }
    }

    /// Open loop: offers growing rates, each for a window, until the 99th percentile exceeds the limit. If the first
    /// rate is already too fast, offers shrinking rates until one keeps the limit. Returns the last window that kept
    /// the limit, or the slowest.
    pub(crate) fn raise_rate(
        &self,
        buffers: &mut Vec<Buffers>,
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
            let (operations, seconds) = match self.timed.spec.operations {
                Some(operations) => (operations as f64, operations as f64 / rate),
                None => (rate * self.timed.spec.seconds, self.timed.spec.seconds),
            };
            if operations < OPERATIONS_MIN || self.timed.spec.operations.is_some() && seconds > SECONDS_MAX {
                break;
            }
        }
        (best.unwrap_or(closed), steps)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::thread;

    use super::*;
    use crate::run;
    use crate::run::control::Phase;
    use crate::run::simulated::{GET_NS, simulated};
    use crate::run::tally::Mistakes;
    use crate::workload::distribution::Distribution;

    #[test]
    fn a_window_ends_by_count() {
        simulated(RunSpec::new("ticking", ""), |_, arena, buffers| {
            let window = arena.window(buffers, Offer::of(arena.timed.spec));
            assert_eq!(window.operations, 4_000);
            let ns_each = window.wall_sec * 1e9 / 4_000.0;
            assert!((GET_NS as f64..GET_NS as f64 * 1.1).contains(&ns_each), "{ns_each}");
        });
    }

    #[test]
    fn each_window_draws_keys_of_its_own() {
        simulated(RunSpec::new("ticking", ""), |_, arena, buffers| {
            let drawn = || {
                let mut chooser = arena.worker(0, 1, Buffers::new(1, 16, 128, 100)).chooser;
                (0..100).map(|_| chooser.read()).collect::<Vec<_>>()
            };
            let first = drawn();
            assert_eq!(drawn(), first);
            arena.window(buffers, Offer::of(arena.timed.spec));
            assert_ne!(drawn(), first);
        });
    }

    #[test]
    fn keys_in_an_order_go_on_in_the_next_window() {
        for distribution in [Distribution::Sequential, Distribution::Latest] {
            let workload = crate::workload::Workload::mixed("write=100").unwrap();
            let spec = RunSpec { distribution, workload, ..RunSpec::new("ticking", "") };
            simulated(spec, |_, arena, buffers| {
                let next = || arena.worker(0, 1, Buffers::new(1, 16, 128, 100)).chooser.write();
                let first = next();
                arena.window(buffers, Offer::of(arena.timed.spec));
                // The window has planned a few keys more than it wrote, and there are 500.
                let begun = (next() + 500 - first) % 500;
                assert!((1..100).contains(&begun), "{distribution}: {begun}");
            });
        }
    }

    /// A target of servers looks into all processes for that, and each thread would do so within the window.
    #[test]
    fn the_place_of_the_work_is_asked_for_as_often_with_many_threads_as_with_one() {
        let asked = [1, 8].map(|threads| {
            simulated(RunSpec { threads, ..RunSpec::new("ticking", "") }, |target, arena, buffers| {
                arena.window(buffers, Offer::of(arena.timed.spec));
                target.4.load(Ordering::Relaxed)
            })
        });
        assert_eq!(asked[0], asked[1]);
    }

    #[test]
    fn writes_go_together_and_none_is_lost_at_the_end() {
        let workload = crate::workload::Workload::named("read_write_5_5").unwrap();
        simulated(RunSpec { multi_put: 16, workload, ..RunSpec::new("ticking", "") }, |_, arena, buffers| {
            let window = arena.window(buffers, Offer { rate: Some(10_000.0), ..Offer::of(arena.timed.spec) });
            // What has begun when the count is reached is finished.
            assert!((4_000..4_016).contains(&window.operations), "{}", window.operations);
            // Fifteen writes follow the first, 200 us apart on average.
            let write = window.write.unwrap();
            assert!((2_000.0..5_000.0).contains(&write.p50_us), "{write:?}");
            let mut mistakes = Mistakes::default();
            run::every_key::check_all(&arena.timed.targets[0], &arena.spaces[0].measured, &mut mistakes);
            assert_eq!(mistakes.first, None);
            let oracle = &arena.spaces[0].measured;
            assert!((0..oracle.len()).all(|index| !oracle.observe(index).in_flight()));
        });
    }

    #[test]
    fn a_stall_is_charged_to_every_operation_that_came_meanwhile() {
        const STALL_NS: u64 = 1_000_000_000;
        simulated(RunSpec::new("ticking", ""), |target, arena, buffers| {
            let mut stalled = |rate| {
                target.2.store(STALL_NS, Ordering::Relaxed);
                arena.window(buffers, Offer { rate, ..Offer::of(arena.timed.spec) }).read.unwrap().p999_us
            };
            // A thousand of 4,000 operations come while the store stands still.
            let open_us = stalled(Some(1_000.0));
            assert!((900_000.0..1_100_000.0).contains(&open_us), "{open_us}");
            // A thread that waits for the answer asks nothing meanwhile, and so one operation of 4,000 is late.
            let closed_us = stalled(None);
            assert!(closed_us < 100.0, "{closed_us}");
        });
    }

    /// One worker in a window of arrivals so far apart. `meanwhile` happens once the worker has begun.
    fn worked(
        arena: &Arena<'_>,
        buffers: &mut [Buffers],
        control: &Control,
        interval_ns: f64,
        meanwhile: impl FnOnce(),
    ) -> Buffers {
        let own = std::mem::replace(&mut buffers[0], Buffers::new(1, 16, 128, 100));
        let mut worker = Worker { interval_ns: Some(interval_ns), ..arena.worker(0, 1, own) };
        let target = &arena.timed.targets[0];
        thread::scope(|scope| {
            scope.spawn(|| target.operate(&mut worker, control));
            control.start();
            meanwhile();
        });
        worker.buffers
    }

    /// The work of a window at 1,000 operations per second that ends in the middle of its first get.
    fn ended_in(stall_ns: u64) -> Buffers {
        simulated(RunSpec::new("ticking", ""), |target, arena, buffers| {
            let control = target.window_that_ends_in(stall_ns);
            worked(arena, buffers, &control, 1e6, || {})
        })
    }

    #[test]
    fn a_stall_at_the_end_is_charged_to_every_operation_that_came_within_the_window() {
        let latencies = ended_in(4_000_000_000).tally.read_ns;
        // Two thousand came in the two seconds until the window's end, and waited two to four seconds.
        assert!((1_800..2_200).contains(&latencies.len()), "{}", latencies.len());
        let sec =
            [latencies.min(), latencies.value_at_quantile(0.5), latencies.max()].map(|ns| ns as f64 / 1e9);
        let expected = [1.9..2.1, 2.9..3.1, 3.9..4.1];
        assert!(expected.iter().zip(sec).all(|(expected, sec)| expected.contains(&sec)), "{sec:?}");
    }

    #[test]
    fn a_thread_that_stalls_until_the_window_has_ended_begins_nothing_more() {
        for stall_ns in [2, 4_000_000_000] {
            let tally = ended_in(stall_ns).tally;
            assert_eq!((tally.operations, tally.mistakes.first), (1, None), "{stall_ns}");
        }
    }

    #[test]
    fn a_thread_that_waits_when_the_window_ends_begins_nothing_more() {
        let tally = simulated(RunSpec::new("ticking", ""), |target, arena, buffers| {
            let (control, now) = (Control::new(1), target.now());
            control.enter(Phase::Measure);
            let read = || now.load(Ordering::Relaxed);
            let begin = read();
            let end = || {
                // A thread that waits looks at the clock.
                while read() < begin + 10_000 {
                    thread::yield_now();
                }
                control.end(read());
            };
            worked(arena, buffers, &control, 1e15, end).tally
        });
        assert_eq!((tally.operations, tally.read_ns.len()), (0, 0));
    }

    /// The work of a thread whose first arrival comes right after `wait`. The second one comes after the window. Then
    /// the least and the most nanoseconds from the first arrival to the window's end: `more_ns`, and what passed while
    /// this thread waited for a processor.
    fn with_one_arrival(
        spec: RunSpec,
        begin: Phase,
        wait: impl FnOnce(&Control),
        more_ns: u64,
    ) -> (Buffers, [u64; 2]) {
        const INTERVAL_NS: f64 = 1e15;
        simulated(spec, |target, arena, buffers| {
            let (control, now) = (Control::new(1), target.now());
            control.enter(begin);
            let mut chooser = arena.worker(0, 1, Buffers::new(1, 16, 128, 100)).chooser;
            let first_ns = -INTERVAL_NS * (1.0 - chooser.unit()).ln();
            let pass = |ns: u64| now.fetch_add(ns, Ordering::Relaxed);
            // Until the worker has done what it has to do, and looks at the clock again and again.
            let until_it_waits = || {
                let begin = now.load(Ordering::Relaxed);
                while now.load(Ordering::Relaxed) < begin + 2 * GET_NS {
                    thread::yield_now();
                }
            };
            let (start, first_ns) = (now.load(Ordering::Relaxed), first_ns as u64);
            let mut under_way_ns = [0; 2];
            let buffers = worked(arena, buffers, &control, INTERVAL_NS, || {
                until_it_waits();
                wait(&control);
                let waited_until = pass(first_ns);
                until_it_waits();
                let end = pass(more_ns) + more_ns;
                control.end(end);
                under_way_ns = [waited_until, start].map(|begin| end - begin - first_ns);
            });
            (buffers, under_way_ns)
        })
    }

    #[test]
    fn an_arrival_that_is_waited_for_while_the_warm_up_ends_belongs_to_the_window() {
        let begin_window = |control: &Control| control.enter(Phase::Measure);
        let spec = RunSpec::new("ticking", "");
        let tally = with_one_arrival(spec, Phase::WarmUp, begin_window, 0).0.tally;
        assert_eq!((tally.operations, tally.read_ns.len()), (1, 1));
    }

    #[test]
    fn a_call_that_waits_for_more_keys_when_the_window_ends_is_charged() {
        const MORE_NS: u64 = 4_000_000_000;
        let writes = crate::workload::Workload::mixed("write=100").unwrap();
        let spec = RunSpec { multi_get: 16, multi_put: 16, ..RunSpec::new("ticking", "") };
        for (workload, is_read) in [(spec.workload.clone(), true), (writes, false)] {
            let spec = RunSpec { workload, ..spec.clone() };
            let (Buffers { tally, .. }, [least, most]) =
                with_one_arrival(spec, Phase::Measure, |_| {}, MORE_NS);
            let (own, others) =
                if is_read { (&tally.read_ns, &tally.write_ns) } else { (&tally.write_ns, &tally.read_ns) };
            assert_eq!((own.len(), others.len(), tally.operations), (1, 0, 0));
            // The histogram rounds, and the worker reads the clock a few times more.
            let (charged, range) = (own.max() as f64, least as f64 * 0.99..most as f64 * 1.01);
            assert!(least >= MORE_NS && range.contains(&charged), "{charged} of {range:?}");
        }
    }

    /// Keys that a call gathered in the warm-up count with it, and as many wait for their call when the window ends. A
    /// count by shares would need the time of each key, and would come to the same.
    #[test]
    fn a_batch_counts_with_all_of_its_keys_for_the_window_that_has_its_call() {
        const TOGETHER: usize = 16;
        let spec = RunSpec { multi_get: TOGETHER, ..RunSpec::new("ticking", "") };
        let operations = simulated(spec, |target, arena, buffers| {
            let (control, now) = (Control::new(1), target.now());
            // The worker alone moves the clock, and looks for the window at each arrival.
            let after = |ns: u64| {
                let begin = now.load(Ordering::Relaxed);
                while now.load(Ordering::Relaxed) < begin + ns {
                    thread::yield_now();
                }
                now.load(Ordering::Relaxed)
            };
            let window = || {
                after(2_000_000);
                control.enter(Phase::Measure);
                control.end(after(4_000_000));
            };
            worked(arena, buffers, &control, 10_000.0, window).tally.operations
        });
        assert!(operations >= 128, "{operations} operations");
        assert_eq!(operations % TOGETHER as u64, 0, "{operations} operations");
    }

    #[test]
    fn perf_records_from_the_begin_of_each_window_to_the_rest_after_it() {
        let orders = tempfile::NamedTempFile::new().unwrap();
        let spec = RunSpec { perf_control: Some(orders.path().to_owned()), ..RunSpec::new("ticking", "") };
        simulated(spec, |_, arena, buffers| {
            arena.window(buffers, Offer::of(arena.timed.spec));
            arena.window(buffers, Offer { rate: Some(10_000.0), ..Offer::of(arena.timed.spec) });
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
        simulated(spec, |_, arena, buffers| {
            let closed = arena.window(buffers, Offer::of(arena.timed.spec));
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
        simulated(RunSpec { pace, ..RunSpec::new("ticking", "") }, |_, arena, buffers| {
            let Windows { last, steps, .. } = arena.windows(buffers, &|_| {}).unwrap();
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
        simulated(RunSpec { workload, ..RunSpec::new("ticking", "") }, |_, arena, buffers| {
            let oracle = &arena.spaces[0].measured;
            assert_eq!(arena.window(buffers, Offer::of(arena.timed.spec)).operations, 4_000);
            assert_eq!((oracle.used(), buffers[0].lacks_room()), (4_500, false));
            arena.window(buffers, Offer::of(arena.timed.spec));
            assert_eq!((oracle.used(), buffers[0].lacks_room()), (oracle.len(), true));
            assert!(arena.timed.spec.lacks_room().to_string().contains("--operations"));
        });
    }

    #[test]
    fn a_batch_waits_from_the_arrival_of_its_first_key() {
        let spec = RunSpec { multi_get: 16, ..RunSpec::new("ticking", "") };
        simulated(spec, |_, arena, buffers| {
            let window = arena.window(buffers, Offer { rate: Some(10_000.0), ..Offer::of(arena.timed.spec) });
            let read = window.read.unwrap();
            // Fifteen keys follow the first, 100 us apart on average.
            assert!((1_000.0..2_500.0).contains(&read.p50_us), "{read:?}");
        });
    }
}
