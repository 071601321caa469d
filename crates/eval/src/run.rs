//! One run from an empty store to a [`Measurement`]: load, warm up, measure, settle, and check every key.
//!
//! The order matters. The harness first allocates all its own memory. Then it reads memory, and then it opens the
//! target, so that everything that the target allocates counts for the target. The settled memory is read after idle
//! time alone, with no call that would hurry the target. The last step looks up every key, so that a workload without
//! reads cannot hide a store that loses writes.

pub(crate) mod arrivals;
pub(crate) mod clock;
pub(crate) mod control;
pub(crate) mod every_key;
pub(crate) mod instance;
pub(crate) mod measurement;
mod replay;
pub(crate) mod samples;
pub(crate) mod saturation;
mod search;
#[cfg(test)]
mod simulated;
pub(crate) mod spaces;
pub(crate) mod spec;
pub(crate) mod steady;
pub(crate) mod tally;
pub(crate) mod timed;
pub(crate) mod warm_up;
pub(crate) mod window;
pub(crate) mod worker;

use std::cell::Cell;
use std::fs::File;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::data::oracle::Live;
use crate::error::{DID_NOT_OPEN, Error};
use crate::meters::machine::{MachineUse, Reading, during};
use crate::meters::{Growth, Memory, Meters, ModelledWork, Usage};
use crate::run::clock::Clock;
use crate::run::every_key::{check_absent, check_all, load};
use crate::run::instance::{Instance, Open};
use crate::run::measurement::{Measurement, ServersCpu};
use crate::run::spaces::{Spaces, config, coverage, live, spaces};
use crate::run::spec::{RunSpec, TrainOn};
use crate::run::tally::Mistakes;
use crate::run::timed::{Timed, Window};
use crate::run::window::{Arena, Windows};
use crate::run::worker::Buffers;
use crate::target::{Config, Counters, TargetError, Work};
use crate::workload::distribution::KeyLaw;
use crate::workload::pace::Pace;

/// Idle time after the first half was loaded, if the run has none of its own.
const TRAIN_SETTLE_SECONDS: f64 = 10.0;

/// Runs `spec` with targets that `open` opens, and reports its phases to `progress`.
pub(crate) fn run(
    open: Open,
    spec: &RunSpec,
    meters: &Meters,
    progress: &dyn Fn(&str),
) -> Result<Measurement, Error> {
    spec.check()?;
    if let Some(trace) = spec.trace() {
        return replay::run(open, spec, trace, meters, progress);
    }
    progress("reading the corpus");
    let spaces = spaces(spec, meters)?;
    let clock = (spec.latency || spec.pace != Pace::Closed).then(Clock::new);
    let law = KeyLaw::with_inserts(spec.distribution, spec.keys, spec.inserts_expected());
    let mut buffers = worker_buffers(spec);
    let perf = perf_control(spec)?;
    let configs = spaces.iter().map(|spaces| config(spec, spaces));
    let mut run = Run::open(open, spec, meters, progress, configs)?;
    if spec.train_on == TrainOn::FirstHalf {
        run.load_first_half(&spaces);
    }
    let loaded = run.load(&spaces)?;

    progress("measuring");
    let wall = Clock::system();
    let timed = run.timed(clock.as_ref(), &wall, perf.as_ref());
    let (ended, gone_through) = (Cell::new(0), Cell::new(0));
    let arena = Arena { timed, law: &law, spaces: &spaces, ended, gone_through };
    let windows = match spec.workload.is_fill() {
        true => {
            let counters = arena.timed.counters().since(&run.counters_before);
            Windows::from(loaded.window(spec, counters))
        }
        false => arena.windows(&mut buffers, progress)?,
    };
    if buffers.iter().any(Buffers::lacks_room) {
        return Err(spec.lacks_room());
    }
    has_not_ended(spec, buffers.iter().map(|worker| &worker.tally.mistakes))?;

    let live = live(&spaces);
    let rested = run.rest(0);
    progress("checking every key");
    for (target, spaces) in run.targets.iter().zip(&spaces) {
        for oracle in spaces.train.iter().chain([&spaces.measured]) {
            check_all(target, oracle, &mut run.mistakes);
        }
        check_absent(target, spaces, &mut run.mistakes);
    }
    for worker in buffers {
        run.mistakes.merge(worker.tally.mistakes);
    }
    has_not_ended(spec, [&run.mistakes])?;
    let measured = run.measurement(windows, loaded, rested, live);
    let notes = notes(spec, &spaces, live.keys);
    Ok(Measurement {
        coverage: coverage(&spaces, live),
        notes: measured.notes.into_iter().chain(notes).collect(),
        ..measured
    })
}

/// A run whose targets are open.
pub(crate) struct Run<'a> {
    spec: &'a RunSpec,
    meters: &'a Meters,
    progress: &'a dyn Fn(&str),
    pub(crate) targets: Vec<Instance>,
    pub(crate) mistakes: Mistakes,
    /// Before the targets were opened.
    empty: Memory,
    /// Before the measured keys were loaded.
    before_measured: Memory,
    files_before: Option<u64>,
    counters_before: Counters,
}

/// What loading took.
pub(crate) struct Loaded {
    sec: f64,
    usage: Usage,
    servers: Option<ServersCpu>,
    modelled: ModelledWork,
    machine: MachineUse,
    held_bytes: Option<u64>,
    live: Live,
}

impl Loaded {
    /// Loading as what is measured.
    fn window(&self, spec: &RunSpec, counters: Counters) -> Window {
        let Loaded { sec, usage, servers, modelled, machine, .. } = self;
        Window {
            operations: spec.keys * spec.instances,
            servers: *servers,
            counters,
            machine: machine.clone(),
            ..Window::without_operations(*sec, *usage, *modelled)
        }
    }

    /// CPU seconds without those of modelled devices; `None` for servers of another machine.
    fn cpu_sec(&self) -> Option<f64> {
        match self.servers {
            None => Some(self.usage.cpu_sec() - self.modelled.cpu_sec),
            Some(servers) => servers.cpu_sec,
        }
    }
}

/// What a run found after its last window.
pub(crate) struct Rested {
    /// At the end of the window.
    end: Memory,
    memory: Growth,
    /// After the idle time, if there was any, and the CPU time of it.
    settled: Option<Growth>,
    settle_cpu_sec: Option<f64>,
    descriptions: Vec<String>,
    counters: Counters,
}

impl<'a> Run<'a> {
    /// Opens a target for each configuration. The caller has allocated its own memory.
    pub(crate) fn open(
        open: Open,
        spec: &'a RunSpec,
        meters: &'a Meters,
        progress: &'a dyn Fn(&str),
        configs: impl Iterator<Item = Config>,
    ) -> Result<Self, Error> {
        let empty = meters.memory();
        // A server that still loads what it kept is waited for.
        progress("opening");
        let targets = (0..)
            .zip(configs)
            .map(|(instance, config)| open(&Config { instance, ..config }))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed(spec, DID_NOT_OPEN))?;
        let refused = |target: &Instance| spec.workload.mix.operations().find_map(|one| target.refuses(one));
        if let Some(reason) = targets.iter().find_map(refused) {
            return Err(failed(spec, DID_NOT_OPEN)(reason.into()));
        }
        let mut run = Run {
            spec,
            meters,
            progress,
            targets,
            mistakes: Mistakes::default(),
            empty,
            before_measured: empty,
            files_before: None,
            counters_before: Counters::default(),
        };
        run.files_before = run.file_bytes();
        run.counters_before = run.counters();
        Ok(run)
    }

    /// The meters and the targets, with the clock of latencies and that of the window's length.
    fn timed<'b>(&'b self, clock: Option<&'b Clock>, wall: &'b Clock, perf: Option<&'b File>) -> Timed<'b> {
        Timed { spec: self.spec, meters: self.meters, clock, wall, targets: &self.targets, perf }
    }

    fn load_first_half(&mut self, spaces: &[Spaces]) {
        (self.progress)("loading the first half");
        for (target, spaces) in self.targets.iter().zip(spaces) {
            let train = spaces.train.as_deref().expect("every store has a training space in this mode");
            load(target, train, self.spec.threads, self.spec.workload.load, &mut self.mistakes);
        }
        (self.progress)("settling the first half");
        let settle = self.spec.settle_seconds;
        let idle = if settle > 0.0 { settle } else { TRAIN_SETTLE_SECONDS };
        thread::sleep(Duration::from_secs_f64(idle));
        self.before_measured = self.meters.memory();
        self.files_before = self.file_bytes();
        self.counters_before = self.counters();
    }

    /// Loads the keys that are measured; none without spaces.
    pub(crate) fn load(&mut self, spaces: &[Spaces]) -> Result<Loaded, Error> {
        (self.progress)("loading");
        let (loaded, machine) = during(Reading::now(), || self.load_unwatched(spaces));
        Ok(Loaded { machine: machine.of(self.work()), live: live(spaces), ..loaded? })
    }

    fn load_unwatched(&mut self, spaces: &[Spaces]) -> Result<Loaded, Error> {
        let (before, start) = (self.work(), Instant::now());
        let (usage, modelled) = (Usage::now(), (self.meters.modelled)());
        for (target, spaces) in self.targets.iter().zip(spaces) {
            let spec = self.spec;
            load(target, &spaces.measured, spec.threads, spec.workload.load, &mut self.mistakes);
        }
        has_not_ended(self.spec, [&self.mistakes])?;
        for target in &self.targets {
            target.loaded().map_err(failed(self.spec, "did not come to rest"))?;
        }
        let done = self.work();
        Ok(Loaded {
            sec: start.elapsed().as_secs_f64(),
            usage: Usage::now().since(usage),
            modelled: (self.meters.modelled)().since(modelled),
            servers: ServersCpu::between(before, done, done),
            machine: MachineUse::default(),
            held_bytes: self.files_grown(),
            live: Live::default(),
        })
    }

    /// Reads memory, without `own_bytes` that the harness itself has allocated since the targets were opened. Idles,
    /// and reads memory again.
    pub(crate) fn rest(&self, own_bytes: u64) -> Rested {
        let end = self.meters.memory();
        let growth = |now: Memory| {
            let Growth { held_bytes, rss_bytes } = now.since(self.before_measured);
            // The allocator knows nothing of a target that told the bytes of its files and tells them no more.
            let held_bytes = match self.files_before {
                None => held_bytes.map(|bytes| bytes - own_bytes as i64),
                Some(_) => self.files_grown().map(|bytes| bytes as i64),
            };
            Growth { held_bytes, rss_bytes: rss_bytes - own_bytes as i64 }
        };
        let memory = growth(end);
        let mut descriptions = self.describe();
        let mut settle_cpu_sec = None;
        let settled = (self.spec.settle_seconds > 0.0).then(|| {
            (self.progress)("settling");
            let (usage, modelled) = (Usage::now(), (self.meters.modelled)());
            thread::sleep(Duration::from_secs_f64(self.spec.settle_seconds));
            let cpu_sec =
                Usage::now().since(usage).cpu_sec() - (self.meters.modelled)().since(modelled).cpu_sec;
            settle_cpu_sec = (self.work() == Work::Here).then_some(cpu_sec);
            let settled = growth(self.meters.memory());
            descriptions.extend(self.describe());
            settled
        });
        Rested { end, memory, settled, settle_cpu_sec, descriptions, counters: self.counters() }
    }

    /// All that was measured. The corpus is covered by nothing, as far as it is known here.
    pub(crate) fn measurement(
        self,
        windows: Windows,
        loaded: Loaded,
        rested: Rested,
        live: Live,
    ) -> Measurement {
        let Windows { warm_up, last: window, steps, saturation } = windows;
        let Rested { end, memory, settled, settle_cpu_sec, descriptions, counters } = rested;
        let empty = self.empty;
        let allowed = self.targets.first().and_then(|target| target.processors());
        Measurement {
            processors: allowed.and_then(|allowed| window.machine.online_of(allowed)),
            operations: window.operations,
            wall_sec: window.wall_sec,
            usage: window.usage,
            servers: window.servers,
            modelled: window.modelled,
            machine: window.machine,
            samples: window.samples.read(),
            read: window.read,
            write: window.write,
            percentiles: window.percentiles,
            mismatches: self.mistakes.count,
            first_mismatch: self.mistakes.first,
            keys: live.keys,
            raw_bytes: live.raw_bytes(),
            memory,
            settled,
            settle_cpu_sec,
            replayed: None,
            coverage: 0.0,
            adoptions: counters.since(&self.counters_before).adoptions,
            is_held_out: self.spec.train_on == TrainOn::FirstHalf,
            loaded_held_bytes: loaded.held_bytes,
            loaded_keys: loaded.live.keys,
            loaded_raw_bytes: loaded.live.raw_bytes(),
            load_sec: loaded.sec,
            load_cpu_sec: loaded.cpu_sec(),
            counters: Counters {
                files: counters.files,
                trainings: counters.trainings,
                adoptions: counters.adoptions,
                coded_bytes: counters.coded_bytes,
                coded_raw_bytes: counters.coded_raw_bytes,
                ..window.counters
            },
            steps,
            warm_up,
            saturation,
            steadiness: window.steadiness,
            descriptions,
            notes: vec![format!(
                "memory: {} bytes held and {} resident before the target was opened, {} and {} at the end of the timed \
                 window",
                empty.held_bytes, empty.rss_bytes, end.held_bytes, end.rss_bytes
            )],
        }
    }

    fn work(&self) -> Work {
        self.targets.first().map_or(Work::Here, |target| target.work())
    }

    fn counters(&self) -> Counters {
        let counters = self.targets.iter().map(|target| target.counters());
        counters.reduce(|sum, more| sum.plus(&more)).unwrap_or_default()
    }

    fn describe(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.describe()).filter(|words| !words.is_empty()).collect()
    }

    /// Bytes in files of all targets, if that is where they keep their data.
    fn file_bytes(&self) -> Option<u64> {
        self.targets.iter().map(|target| target.held_bytes()).sum()
    }

    fn files_grown(&self) -> Option<u64> {
        Some(self.file_bytes()?.saturating_sub(self.files_before?))
    }
}

/// The error of a target that did not do something.
fn failed(spec: &RunSpec, action: &'static str) -> impl Fn(TargetError) -> Error {
    move |error| Error::Target { target: spec.target.clone(), action, reason: error.to_string() }
}

/// Ends the run if the store has ended: no figure of it would mean anything.
pub(crate) fn has_not_ended<'a>(
    spec: &RunSpec,
    mistakes: impl IntoIterator<Item = &'a Mistakes> + Clone,
) -> Result<(), Error> {
    let Some(gone) = mistakes.clone().into_iter().find_map(|one| one.gone.clone()) else { return Ok(()) };
    let mut first = mistakes.into_iter().filter_map(|one| one.first.clone());
    let before = first.find(|first| !first.contains(&gone)).map(|first| format!("; before that: {first}"));
    let reason = gone + &before.unwrap_or_default();
    Err(Error::Target { target: spec.target.clone(), action: "has ended", reason })
}

/// The file of `--perf-control`. It is opened for reading, too, so that a FIFO without a reader does not block.
pub(crate) fn perf_control(spec: &RunSpec) -> Result<Option<File>, Error> {
    let open = |path: &PathBuf| {
        let opened = File::options().read(true).append(true).open(path);
        opened.map_err(|source| Error::Io { action: "open", path: path.clone(), source })
    };
    spec.perf_control.as_ref().map(open).transpose()
}

fn worker_buffers(spec: &RunSpec) -> Vec<Buffers> {
    (0..spec.instances * spec.threads_max())
        .map(|_| {
            let (key_bytes, scan) = (spec.key_space().bytes_max(), spec.workload.scan.max as usize);
            Buffers::new(spec.multi_get, key_bytes, spec.value_bytes.max as usize, scan)
        })
        .collect()
}

fn notes(spec: &RunSpec, spaces: &[Spaces], keys: u64) -> Vec<String> {
    let mut notes = spec.workload.notes.clone();
    let slices = spaces.first().map_or(0, |spaces| spaces.measured.values().slice_count());
    if spec.train_on == TrainOn::FirstHalf {
        notes.push(
            "resident memory of the second half leaves out what it took over from pages that the first half \
             had freed"
                .into(),
        );
    }
    let keys = keys.div_ceil(spec.instances).max(spec.keys);
    if slices < keys {
        notes.push(format!(
            "the corpus has {slices} different values for {keys} keys: some keys have equal values"
        ));
    }
    notes
}
