//! One run from an empty store to a [`Measurement`]: load, warm up, measure, settle, and check every key.
//!
//! The order matters. The harness first allocates all its own memory. Then it reads memory, and then it opens the
//! target, so that everything that the target allocates counts for the target. The settled memory is read after idle
//! time alone, with no call that would hurry the target. The last step looks up every key, so that a workload without
//! reads cannot hide a store that loses writes.

pub(crate) mod clock;
pub(crate) mod measurement;
pub(crate) mod saturation;
pub(crate) mod spec;
pub(crate) mod steady;
pub(crate) mod warm_up;
pub(crate) mod window;
pub(crate) mod worker;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::data::keys::KEY_BYTES;
use crate::data::oracle::Oracle;
use crate::data::values::Values;
use crate::error::{DID_NOT_OPEN, Error};
use crate::meters::machine::Reading;
use crate::meters::{Growth, Memory, Meters, Usage};
use crate::run::clock::Clock;
use crate::run::measurement::{Measurement, ServersCpu};
use crate::run::spec::{RunSpec, TrainOn};
use crate::run::window::{Arena, Window};
use crate::run::worker::{Buffers, Mistakes, wrong_answer};
use crate::target::{Batch, Config, Counters, Target, TargetError, Work};
use crate::workload::LoadOrder;
use crate::workload::distribution::KeyLaw;
use crate::workload::pace::Pace;
use crate::workload::permutation::Permutation;

/// Idle time after the first half was loaded, if the run has none of its own.
const TRAIN_SETTLE_SECONDS: f64 = 10.0;
/// Keys that were never written and must not be found.
const ABSENT_KEYS: u64 = 1_000;

/// The key spaces of one store: those loaded first, if any, and those measured.
pub(crate) struct Spaces {
    pub(crate) train: Option<Arc<Oracle>>,
    pub(crate) measured: Arc<Oracle>,
}

/// Runs `spec` with targets of type `T`, and reports its phases to `progress`.
pub(crate) fn run<T: Target>(
    spec: &RunSpec,
    meters: &Meters,
    progress: &dyn Fn(&str),
) -> Result<Measurement, Error> {
    spec.check()?;
    progress("reading the corpus");
    let spaces = spaces(spec)?;
    let clock = (spec.latency || spec.pace != Pace::Closed).then(Clock::new);
    let law = KeyLaw::with_inserts(spec.distribution, spec.keys, spec.inserts_expected());
    let mut buffers = worker_buffers::<T>(spec);
    let perf = perf_control(spec)?;
    let empty = meters.memory();

    let fail = |action| {
        move |error: TargetError| Error::Target {
            target: spec.target.clone(),
            action,
            reason: error.to_string(),
        }
    };
    let targets = (0..)
        .zip(&spaces)
        .map(|(instance, spaces)| T::open(&Config { instance, ..config(spec, spaces) }))
        .collect::<Result<Vec<T>, _>>()
        .map_err(fail(DID_NOT_OPEN))?;
    if let Some(reason) =
        targets.iter().find_map(|target| spec.workload.mix.operations().find_map(|one| target.refuses(one)))
    {
        return Err(fail(DID_NOT_OPEN)(reason.into()));
    }

    let mut mistakes = Mistakes::default();
    let mut before_measured = empty;
    if spec.train_on == TrainOn::FirstHalf {
        progress("loading the first half");
        for (target, spaces) in targets.iter().zip(&spaces) {
            let train = spaces.train.as_deref().expect("every store has a training space in this mode");
            load(target, train, spec.threads, spec.workload.load, &mut mistakes);
        }
        progress("settling the first half");
        let idle = if spec.settle_seconds > 0.0 { spec.settle_seconds } else { TRAIN_SETTLE_SECONDS };
        thread::sleep(Duration::from_secs_f64(idle));
        before_measured = meters.memory();
    }

    progress("loading");
    let files_before = file_bytes(&targets);
    let counters = || targets.iter().map(T::counters).reduce(|sum, more| sum.plus(&more)).unwrap_or_default();
    let before_load = counters();
    let work = || targets.first().map_or(Work::Here, T::work);
    let before_load_work = work();
    let before_load_machine = Reading::now();
    let (load_start, load_usage, load_modelled) = (Instant::now(), Usage::now(), (meters.modelled)());
    for (target, spaces) in targets.iter().zip(&spaces) {
        load(target, &spaces.measured, spec.threads, spec.workload.load, &mut mistakes);
    }
    has_not_ended(spec, [&mistakes])?;
    for target in &targets {
        target.loaded().map_err(fail("did not come to rest"))?;
    }
    let load_sec = load_start.elapsed().as_secs_f64();
    let load_usage = Usage::now().since(load_usage);
    let load_modelled = (meters.modelled)().since(load_modelled);
    let load_work = work();
    let load_servers = ServersCpu::between(before_load_work, load_work, load_work);
    let files_grown = || Some(file_bytes(&targets)?.saturating_sub(files_before?));
    let loaded_held_bytes = files_grown();

    progress("measuring");
    let wall = Clock::system();
    let arena = Arena {
        spec,
        meters,
        law: &law,
        clock: clock.as_ref(),
        wall: &wall,
        targets: &targets,
        spaces: &spaces,
        perf: perf.as_ref(),
    };
    let (window, steps, saturation) = match spec.workload.is_fill() {
        true => {
            let machine = Reading::now().since(&before_load_machine);
            let window = Window::of_load(
                spec,
                load_sec,
                load_usage,
                load_servers,
                load_modelled,
                arena.counters(),
                machine,
            );
            (window, Vec::new(), None)
        }
        false => arena.windows(&mut buffers, progress)?,
    };
    if buffers.iter().any(Buffers::lacks_room) {
        return Err(spec.lacks_room());
    }
    has_not_ended(spec, buffers.iter().map(|worker| &worker.tally.mistakes))?;

    let (keys, raw_bytes) = live(&spaces);
    let end = meters.memory();
    let in_files = |memory: Growth| Growth {
        held_bytes: files_grown().map_or(memory.held_bytes, |bytes| bytes as i64),
        ..memory
    };
    let memory = in_files(end.since(before_measured));
    let describe = || targets.iter().map(T::describe).filter(|words| !words.is_empty()).collect::<Vec<_>>();
    let mut descriptions = describe();
    let mut settle_cpu_sec = None;
    let settled = (spec.settle_seconds > 0.0).then(|| {
        progress("settling");
        let (usage, modelled) = (Usage::now(), (meters.modelled)());
        thread::sleep(Duration::from_secs_f64(spec.settle_seconds));
        let cpu_sec = Usage::now().since(usage).cpu_sec() - (meters.modelled)().since(modelled).cpu_sec;
        settle_cpu_sec = (work() == Work::Here).then_some(cpu_sec);
        let settled = in_files(meters.memory().since(before_measured));
        descriptions.extend(describe());
        settled
    });
    let counters = counters();

    progress("checking every key");
    for (target, spaces) in targets.iter().zip(&spaces) {
        for oracle in spaces.train.iter().chain([&spaces.measured]) {
            check_all(target, oracle, &mut mistakes);
        }
        check_absent(target, spaces, &mut mistakes);
    }
    for worker in buffers {
        mistakes.merge(worker.tally.mistakes);
    }
    has_not_ended(spec, [&mistakes])?;

    Ok(Measurement {
        operations: window.operations,
        wall_sec: window.wall_sec,
        usage: window.usage,
        servers: window.servers,
        modelled: window.modelled,
        machine: window.machine,
        samples: window.samples,
        read: window.read,
        write: window.write,
        percentiles: window.percentiles,
        mismatches: mistakes.count,
        first_mismatch: mistakes.first,
        keys,
        raw_bytes,
        memory,
        settled,
        settle_cpu_sec,
        coverage: coverage(&spaces, keys, raw_bytes),
        adoptions: counters.since(&before_load).adoptions,
        is_held_out: spec.train_on == TrainOn::FirstHalf,
        loaded_held_bytes,
        load_sec,
        load_cpu_sec: match load_servers {
            None => Some(load_usage.cpu_sec() - load_modelled.cpu_sec),
            Some(servers) => servers.cpu_sec,
        },
        counters: Counters {
            files: counters.files,
            trainings: counters.trainings,
            adoptions: counters.adoptions,
            coded_bytes: counters.coded_bytes,
            coded_raw_bytes: counters.coded_raw_bytes,
            ..window.counters
        },
        steps,
        saturation,
        steadiness: window.steadiness,
        descriptions,
        notes: notes(spec, &spaces, keys, [empty, end]),
    })
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

pub(crate) fn spaces(spec: &RunSpec) -> Result<Vec<Spaces>, Error> {
    let corpus = spec.read_corpus()?;
    let len = corpus.bytes.len();
    let values = |region| {
        let corpus = Arc::clone(&corpus.bytes);
        let values = Values::ordered(corpus, region, spec.value_bytes, spec.value_order, spec.seed);
        let values = values.ok_or_else(|| Error::CorpusShorterThanValue {
            path: spec.corpus.clone(),
            corpus_bytes: len as u64,
            half: "",
            value_bytes: spec.value_bytes.max,
        })?;
        if spec.value_order.never_overlaps() && values.slice_count() < spec.keys {
            let expected = format!(
                "the corpus {} has {} values ({}) that do not overlap; give so many keys or fewer, or a larger corpus",
                spec.corpus,
                values.slice_count(),
                spec.value_order
            );
            return Err(Error::invalid("--keys", spec.keys.to_string(), expected));
        }
        Ok(values)
    };
    (0..spec.instances)
        .map(|_| {
            Ok(match spec.train_on {
                TrainOn::All => Spaces {
                    train: None,
                    measured: Arc::new(Oracle::with_room(
                        spec.key_shape,
                        0,
                        [spec.keys, spec.inserts_max()],
                        values(0..len)?,
                    )),
                },
                TrainOn::FirstHalf => Spaces {
                    train: Some(Arc::new(Oracle::new(spec.key_shape, 0, spec.keys, values(0..len / 2)?))),
                    measured: Arc::new(Oracle::with_room(
                        spec.key_shape,
                        spec.keys,
                        [spec.keys, spec.inserts_max()],
                        values(len / 2..len)?,
                    )),
                },
            })
        })
        .collect()
}

/// The file of `--perf-control`. It is opened for reading, too, so that a FIFO without a reader does not block.
pub(crate) fn perf_control(spec: &RunSpec) -> Result<Option<File>, Error> {
    let open = |path: &PathBuf| {
        let opened = File::options().read(true).append(true).open(path);
        opened.map_err(|source| Error::Io { action: "open", path: path.clone(), source })
    };
    spec.perf_control.as_ref().map(open).transpose()
}

fn worker_buffers<T: Target>(spec: &RunSpec) -> Vec<Buffers<T>> {
    (0..spec.instances * spec.threads_max())
        .map(|_| Buffers::new(spec.multi_get, spec.value_bytes.max as usize, spec.workload.scan.max as usize))
        .collect()
}

pub(crate) fn config(spec: &RunSpec, spaces: &Spaces) -> Config {
    Config {
        target: spec.target.clone(),
        codec: spec.codec.clone(),
        landing_bytes: spec.landing_bytes,
        background: spec.background,
        background_threads: spec.background_threads,
        heating: false,
        raw_bytes: spec.raw_bytes(),
        instance: 0,
        instances: spec.instances,
        options: spec.options.clone(),
        oracles: spaces.train.iter().chain([&spaces.measured]).cloned().collect(),
    }
}

/// Bytes in files of all targets, if that is where they keep their data.
fn file_bytes<T: Target>(targets: &[T]) -> Option<u64> {
    targets.iter().map(T::held_bytes).sum()
}

/// Puts every key once.
pub(crate) fn load<T: Target>(
    target: &T,
    oracle: &Oracle,
    threads: u64,
    order: LoadOrder,
    mistakes: &mut Mistakes,
) {
    let random = Permutation::new(oracle.loaded(), 0x10ad);
    let threads = if order == LoadOrder::Sequential { 1 } else { threads };
    let part = |thread: u64| {
        let mut part = Mistakes::default();
        let mut positions = (thread..oracle.loaded()).step_by(threads as usize).peekable();
        let (mut indices, mut records) = (Vec::new(), Vec::new());
        while positions.peek().is_some() && part.gone.is_none() {
            indices.extend(positions.by_ref().take(T::LOADED_AT_ONCE).map(|position| match order {
                LoadOrder::Random => random.at(position),
                LoadOrder::Sequential => position,
            }));
            records.extend(indices.iter().map(|&index| (oracle.key(index), oracle.begin_put(index))));
            let done = match records.as_slice() {
                [(key, value)] => target.put(key, value),
                records => target.multi_put(records),
            };
            if let Err(error) = done {
                part.fail("put", indices[0], &error);
            }
            indices.drain(..).for_each(|index| oracle.finish(index));
            records.clear();
        }
        part
    };
    if threads == 1 {
        return mistakes.merge(part(0));
    }
    thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        for part in parts {
            mistakes.merge(part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
}

/// Reads every key that was ever written and checks it.
pub(crate) fn check_all<T: Target>(target: &T, oracle: &Oracle, mistakes: &mut Mistakes) {
    if T::CHECKED_AT_ONCE > 1 {
        return check_all_in_groups(target, oracle, mistakes);
    }
    let mut value = Vec::new();
    for index in 0..oracle.used() {
        let before = oracle.observe(index);
        match target.get(&oracle.key(index), &mut value) {
            Ok(found) if oracle.accepts(index, before, found.then_some(value.as_slice())) => {}
            Ok(found) => mistakes.add(|| wrong_answer("get", index, found)),
            Err(error) => mistakes.fail("get", index, &error),
        }
        if mistakes.gone.is_some() {
            return;
        }
    }
}

fn check_all_in_groups<T: Target>(target: &T, oracle: &Oracle, mistakes: &mut Mistakes) {
    let mut batch = T::Batch::default();
    let end = oracle.used();
    for first in (0..end).step_by(T::CHECKED_AT_ONCE) {
        let group = first..(first + T::CHECKED_AT_ONCE as u64).min(end);
        let before: Vec<_> = group.clone().map(|index| oracle.observe(index)).collect();
        let keys: Vec<_> = group.clone().map(|index| oracle.key(index)).collect();
        if let Err(error) = target.multi_get(&keys, &mut batch) {
            mistakes.fail("multi_get", first, &error);
            if mistakes.gone.is_some() {
                return;
            }
            continue;
        }
        for (position, index) in group.enumerate() {
            let answer = batch.answer(position);
            if !oracle.accepts(index, before[position], answer) {
                mistakes.add(|| wrong_answer("multi_get", index, answer.is_some()));
            }
        }
    }
}

/// Reads keys that were never written: none may be found.
pub(crate) fn check_absent<T: Target>(target: &T, spaces: &Spaces, mistakes: &mut Mistakes) {
    let mut value = Vec::new();
    let end = spaces.measured.len();
    for index in end..end + ABSENT_KEYS {
        if mistakes.gone.is_some() {
            return;
        }
        match target.get(&spaces.measured.key(index), &mut value) {
            Ok(false) => {}
            Ok(true) => mistakes
                .add(|| format!("get of key number {index}, which was never written, found something")),
            Err(error) => mistakes.fail("get", index, &error),
        }
    }
}

pub(crate) fn live(spaces: &[Spaces]) -> (u64, u64) {
    spaces
        .iter()
        .map(|spaces| spaces.measured.live())
        .fold((0, 0), |(keys, bytes), (more, raw)| (keys + more, bytes + raw))
}

/// The number of times the values of the live keys of all stores cover their part of the corpus. Every store has the
/// corpus to itself.
fn coverage(spaces: &[Spaces], keys: u64, raw_bytes: u64) -> f64 {
    let source: u64 = spaces.iter().map(|spaces| spaces.measured.values().source_bytes()).sum();
    (raw_bytes - keys * KEY_BYTES as u64) as f64 / source.max(1) as f64
}

fn notes(spec: &RunSpec, spaces: &[Spaces], keys: u64, [empty, end]: [Memory; 2]) -> Vec<String> {
    let mut notes = vec![format!(
        "memory: {} bytes held and {} resident before the target was opened, {} and {} at the end of the timed window",
        empty.held_bytes, empty.rss_bytes, end.held_bytes, end.rss_bytes
    )];
    notes.extend(spec.workload.notes.iter().cloned());
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
