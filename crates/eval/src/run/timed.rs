//! The timed window: warm-up, the operating threads, and what the meters said of it.
//!
//! A window ends by the clock, or by the count of its operations where the run asks for one. A count gives the same
//! work on every machine, so that a busy one can only make the window longer.

use std::fs::File;
use std::io::{self, Write};
use std::thread;

use crate::meters::machine::{MachineUse, Reading, during};
use crate::meters::{Meters, ModelledWork, Usage};
use crate::run::clock::Clock;
use crate::run::control::{Control, Phase};
use crate::run::instance::Instance;
use crate::run::measurement::{Latency, Percentiles, Sample, ServersCpu};
use crate::run::samples::Samples;
use crate::run::spec::RunSpec;
use crate::run::steady::Steadiness;
use crate::run::tally::Mistakes;
use crate::run::worker::Buffers;
use crate::target::{Counters, Work};

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

/// How long a timed window is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Seconds of the same operations before the window.
    pub(crate) warmup_seconds: f64,
    pub(crate) end: End,
    /// Whether the figures of the run are those of this window. If so, `perf record` records it, and servers come to
    /// rest afterwards, since their later CPU time counts for it. A server that rests does what it had put off: the
    /// next window would find it faster than it is.
    pub(crate) is_row: bool,
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
    pub(crate) samples: Samples,
    /// Whether the throughput was steady, for a window that waited for that.
    pub(crate) steadiness: Option<Steadiness>,
}

impl Window {
    /// A window of so many seconds in which nobody has counted operations yet.
    pub(crate) fn without_operations(wall_sec: f64, usage: Usage, modelled: ModelledWork) -> Self {
        Window {
            operations: 0,
            read: None,
            write: None,
            percentiles: Percentiles::default(),
            wall_sec,
            usage,
            servers: None,
            modelled,
            counters: Counters::default(),
            machine: MachineUse::default(),
            samples: Samples::default(),
            steadiness: None,
        }
    }
}

impl Window {
    /// Adds what the workers have counted.
    fn count(&mut self, workers: &mut [Buffers]) {
        let [first, others @ ..] = workers else { return };
        for other in others {
            first.tally.add(&other.tally);
        }
        self.operations = first.tally.operations;
        self.read = Latency::of(&first.tally.read_ns);
        self.write = Latency::of(&first.tally.write_ns);
        self.percentiles = Percentiles::of(&first.tally.read_ns, &first.tally.write_ns);
    }
}

/// The targets of a run, and the meters that are read before and after a window.
pub(crate) struct Timed<'a> {
    pub(crate) spec: &'a RunSpec,
    pub(crate) meters: &'a Meters,
    /// The clock of latencies, if they are taken.
    pub(crate) clock: Option<&'a Clock>,
    /// The clock of the window's length.
    pub(crate) wall: &'a Clock,
    pub(crate) targets: &'a [Instance],
    /// The orders of `--perf-control`.
    pub(crate) perf: Option<&'a File>,
}

/// What the meters said when a window began.
struct Begin {
    recording: io::Result<()>,
    machine: Reading,
    counters: Counters,
    work: Work,
    usage: Usage,
    modelled: ModelledWork,
    wall: u64,
}

impl Timed<'_> {
    /// Warm-up and one timed window with so many workers, which `worker` makes. Their buffers are lent and come back.
    pub(crate) fn window<W: FnOnce(&Control) -> Buffers + Send>(
        &self,
        buffers: &mut Vec<Buffers>,
        workers: u64,
        span: Span,
        mut worker: impl FnMut(u64, Buffers) -> W,
    ) -> Window {
        let control = Control::new(workers);
        let mut used: Vec<Buffers> = buffers.drain(..workers as usize).collect();
        let progress: Vec<_> = used.iter().map(|buffers| buffers.progress.clone()).collect();
        let done = || progress.iter().map(|one| one.operations()).sum::<u64>();
        let mut window = thread::scope(|scope| {
            let mut handles: Vec<_> = (0..workers)
                .zip(used.drain(..))
                .map(|(number, buffers)| {
                    let (worker, control) = (worker(number, buffers), &control);
                    scope.spawn(move || worker(control))
                })
                .collect();
            // Without a warm-up the first operation belongs to the window.
            let at_once = (span.warmup_seconds == 0.0).then(|| self.begin(&control, span));
            control.start();
            let begin = at_once.unwrap_or_else(|| {
                control.wait(self.wall, self.wall.raw(), span.warmup_seconds);
                self.begin(&control, span)
            });
            let joined = |handle: thread::ScopedJoinHandle<'_, Buffers>| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let (mut samples, mut steadiness) = (Samples::default(), None);
            let (ended, whole) = match span.end {
                End::Operations(_) => {
                    let (ended, whole) = during(begin.machine.clone(), || {
                        used.extend(handles.drain(..).map(joined));
                        self.ended(&control, &begin)
                    });
                    (ended, Some(whole))
                }
                End::Seconds(seconds) | End::Steady(seconds) => {
                    let ends_steady = matches!(span.end, End::Steady(_));
                    samples = self.sampled(&control, seconds, &begin, done, |throughputs| {
                        steadiness = ends_steady.then(|| Steadiness::of(throughputs));
                        steadiness.is_some_and(|verdict| verdict.is_steady())
                    });
                    (self.ended(&control, &begin), None)
                }
            };
            let parts = samples.whole().into_iter().chain(&whole);
            let machine = ended.machine.with_energy_of(parts).of(begin.work);
            let window = Window { machine, samples: samples.ended(), steadiness, ..ended };
            used.extend(handles.drain(..).map(joined));
            let answered = self.work();
            if let Some(first) = used.first_mut().filter(|_| span.is_row) {
                self.rest(begin.recording, &mut first.tally.mistakes);
            }
            let servers = ServersCpu::between(begin.work, answered, self.work());
            Window { servers, counters: self.counters().since(&begin.counters), ..window }
        });
        window.count(&mut used);
        buffers.append(&mut used);
        window
    }

    fn begin(&self, control: &Control, span: Span) -> Begin {
        let recording = if span.is_row { self.order_perf("enable") } else { Ok(()) };
        let begin = Begin {
            recording,
            machine: Reading::now(),
            counters: self.counters(),
            work: self.work(),
            usage: Usage::now(),
            modelled: (self.meters.modelled)(),
            // Last: what workers do between this reading and the next line is counted by nobody.
            wall: self.wall.raw(),
        };
        control.enter(Phase::Measure);
        begin
    }

    /// Tells the workers to stop, and reads the meters.
    fn ended(&self, control: &Control, begin: &Begin) -> Window {
        control.end(self.clock.unwrap_or(self.wall).raw());
        let wall_sec = self.wall.delta_as_nanos(begin.wall, self.wall.raw()) as f64 / 1e9;
        let (usage, modelled) =
            (Usage::now().since(begin.usage), (self.meters.modelled)().since(begin.modelled));
        let machine = Reading::now().since(&begin.machine);
        Window { machine, ..Window::without_operations(wall_sec, usage, modelled) }
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

    pub(crate) fn work(&self) -> Work {
        self.targets.first().map_or(Work::Here, |target| target.work())
    }

    pub(crate) fn counters(&self) -> Counters {
        let counters = self.targets.iter().map(|target| target.counters());
        counters.reduce(|sum, more| sum.plus(&more)).unwrap_or_default()
    }

    /// Waits until the window is over, or the throughputs of its parts are enough. Meanwhile it reads the meters and
    /// `done`, the operations so far, up to five times a second.
    fn sampled(
        &self,
        control: &Control,
        seconds: f64,
        begin: &Begin,
        done: impl Fn() -> u64,
        mut is_enough: impl FnMut(&[f64]) -> bool,
    ) -> Samples {
        const SAMPLES_LEAST: f64 = 240.0;
        let interval_sec = whole_tenths(seconds / SAMPLES_LEAST).clamp(0.2, 1.0);
        let (mut samples, mut before, mut done_before) = (Samples::new(), begin.machine.clone(), 0);
        let (mut wall_before, mut number) = (begin.wall, 1);
        loop {
            // The rest of a window that is no whole interval belongs to the last one.
            let ends = number as f64 * interval_sec;
            let is_last = ends + interval_sec > seconds;
            control.wait(self.wall, begin.wall, if is_last { seconds } else { ends });
            let (now, wall, done_now) = (Reading::now(), self.wall.raw(), done());
            let sec = self.wall.delta_as_nanos(wall_before, wall) as f64 / 1e9;
            let machine = MachineUse { sec, ..now.since(&before) }.of(begin.work);
            samples.push(Sample { operations: done_now.saturating_sub(done_before), machine });
            (before, wall_before, done_before) = (now, wall, done_now);
            let elapsed_sec = self.wall.delta_as_nanos(begin.wall, wall) as f64 / 1e9;
            if is_last || elapsed_sec >= seconds || control.is_stopped() || is_enough(samples.throughputs()) {
                break;
            }
            number = next_interval(number, elapsed_sec, interval_sec);
        }
        samples
    }
}

/// Seconds, made longer up to whole tenths. Linux lets a process with limits to its processors or its disk work in
/// slices of a tenth of a second, or of whole parts of it. An interval that cuts slices apart holds now two of them and
/// now three, and the throughput of a steady target seems to jump by a third.
pub(crate) fn whole_tenths(seconds: f64) -> f64 {
    (seconds * 10.0 - 1e-6).ceil().max(1.0) / 10.0
}

/// The number of the interval that ends next. A thread that had no processor at the end of intervals leaves these out:
/// the short rest of an interval would make a sample of a few operations, and the throughput seem to jump.
fn next_interval(number: u64, elapsed_sec: f64, interval_sec: f64) -> u64 {
    (number + 1).max((elapsed_sec / interval_sec).round() as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_intervals_cut_no_tenth_of_a_second_apart() {
        let made_of =
            [(0.0, 1), (0.1, 1), (0.125, 2), (0.2, 2), (0.25, 3), (0.3, 3), (0.6, 6), (1.0, 10), (1.46, 15)];
        for (seconds, tenths) in made_of {
            assert_eq!((whole_tenths(seconds) * 10.0).round() as i32, tenths, "{seconds}");
        }
    }

    #[test]
    fn intervals_that_a_thread_was_held_up_for_make_one_sample() {
        for (elapsed_sec, expected) in [(0.2, 2), (0.29, 2), (0.31, 3), (0.4, 3), (10.0, 51)] {
            assert_eq!(next_interval(1, elapsed_sec, 0.2), expected, "{elapsed_sec}");
        }
        assert_eq!(next_interval(7, 1.399_999_9, 0.2), 8, "a clock that is a little early");
    }
}
