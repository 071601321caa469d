//! A run whose requests come from a trace.
//!
//! 1. One thread reads the trace and hands each request to the thread that owns its key.
//! 2. The owners make the requests, in the order of the trace, and compare each answer with the newest value.
//! 3. The trace is read once more after the window, up to where the first reading ended. Each key is looked up. A key
//!    that the store may forget, and has forgotten, is no live key.
//!
//! The store begins empty. A trace that is cut or malformed ends the window, and all figures are those of the requests
//! before.

pub(crate) mod feed;
mod ledger;
pub(crate) mod owner;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::data::keys::KeyList;
use crate::data::oracle::Live;
use crate::error::{DID_NOT_OPEN, Error};
use crate::meters::Meters;
use crate::run::clock::Clock;
use crate::run::control::Control;
use crate::run::instance::{Instance, Open};
use crate::run::measurement::{Measurement, Replayed};
use crate::run::replay::feed::{Fed, Feeder, Inbox};
use crate::run::replay::ledger::{Entry, Ledger, TraceValues, hash};
use crate::run::replay::owner::{Counts, Owner, Part, in_words, judge};
use crate::run::spec::{RunSpec, TraceSpec};
use crate::run::tally::Mistakes;
use crate::run::timed::{End, Span, Timed, Window};
use crate::run::worker::Buffers;
use crate::run::{Run, failed, has_not_ended, perf_control};
use crate::target::Work;
use crate::workload::mix::Operation;
use crate::workload::trace::{Call, OPERATIONS, TraceFile};

/// Keys that no trace has, and that must not be found.
const ABSENT_KEYS: u64 = 1_000;

/// Replays the trace of `spec` with a target that `open` opens, and reports its phases to `progress`.
pub(crate) fn run(
    open_target: Open,
    spec: &RunSpec,
    trace: &TraceSpec,
    meters: &Meters,
    progress: &dyn Fn(&str),
) -> Result<Measurement, Error> {
    progress("reading the corpus");
    let values = TraceValues(spec.read_corpus_into(meters.room)?.bytes);
    let open = || TraceFile::open(&trace.path, values.bytes_max()).map_err(|told| trace.wrong(told));
    let mut file = open()?;
    let wall = Clock::system();
    let clock = match trace.speed {
        // By another clock than the window's, a window could be shorter than the times of its trace.
        Some(_) => Some(wall.clone()),
        None => spec.latency.then(Clock::new),
    };
    let mut buffers: Vec<Buffers> = (0..spec.threads).map(|_| Buffers::new(1, 0, 1 << 16, 0)).collect();
    let mut parts: Vec<Part> = (0..spec.threads).map(|_| Part::default()).collect();
    let perf = perf_control(spec)?;
    let (mut feeder, inboxes) = Feeder::new(spec.threads as usize, trace.speed);
    let mut run = Run::open(open_target, spec, meters, progress, std::iter::once(spec.config()))?;
    if let Some(reason) = run.targets[0].refuses(Operation::Write) {
        return Err(failed(spec, DID_NOT_OPEN)(reason.into()));
    }
    let loaded = run.load(&[])?;

    progress("replaying");
    let stage = Stage { timed: run.timed(clock.as_ref(), &wall, perf.as_ref()), trace, values: &values };
    let (window, fed) = stage.replay(&mut file, &mut feeder, inboxes, &mut parts, &mut buffers);
    has_not_ended(spec, buffers.iter().map(|worker| &worker.tally.mistakes))?;
    if window.operations == 0 && fed.fault.is_none() && spec.warmup_seconds > 0.0 {
        let expected = "the trace ended before the window began; give fewer seconds";
        return Err(Error::invalid("--warmup", spec.warmup_seconds.to_string(), expected));
    }
    let rested = run.rest(parts.iter().map(|part| part.ledger.grown_bytes()).sum());
    for worker in buffers {
        run.mistakes.merge(worker.tally.mistakes);
    }
    progress("checking every key");
    let mut check =
        Check { target: &run.targets[0], values: &values, parts: &mut parts, mistakes: &mut run.mistakes };
    check.all(&mut open()?, fed.requests);
    check.absent();
    has_not_ended(spec, [&run.mistakes])?;
    let live = parts.iter().map(|part| part.ledger.live()).fold(Live::default(), Live::plus);
    let replayed = replayed(trace, &parts, &fed);
    let measured = run.measurement(window.into(), loaded, rested, live);
    let coverage = live.value_bytes as f64 / values.bytes_max() as f64;
    let notes = measured.notes.into_iter().chain(replayed.notes()).collect();
    Ok(Measurement { coverage, notes, replayed: Some(replayed), ..measured })
}

impl TraceValues {
    fn bytes_max(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

fn replayed(trace: &TraceSpec, parts: &[Part], fed: &Fed) -> Replayed {
    let sum = |count: &dyn Fn(&Counts) -> u64| parts.iter().map(|part| count(&part.counts)).sum::<u64>();
    let by_name = OPERATIONS.iter().enumerate();
    let operations: Vec<(String, u64)> = by_name
        .map(|(at, (name, _))| ((*name).to_owned(), sum(&|counts| counts.operations[at])))
        .filter(|(_, requests)| *requests > 0)
        .collect();
    let gets = (0..OPERATIONS.len()).filter(|at| OPERATIONS[*at].1 == Call::Get);
    Replayed {
        file: trace.path.display().to_string(),
        file_bytes: trace.file_bytes,
        file_hash: trace.file_hash.clone(),
        requests: fed.requests,
        gets: gets.map(|at| sum(&|counts| counts.operations[at])).sum(),
        hits: sum(&|counts| counts.hits),
        fills: sum(&|counts| counts.fills),
        without_key: sum(&|counts| counts.without_key),
        skipped: sum(&|counts| counts.skipped),
        lifetimes: sum(&|counts| counts.lifetimes),
        altered_keys: fed.altered_keys,
        operations,
        fault: fed.fault.as_ref().map(|told| trace.wrong(told.clone()).to_string()),
    }
}

/// The inputs of a replay.
struct Stage<'a> {
    timed: Timed<'a>,
    trace: &'a TraceSpec,
    values: &'a TraceValues,
}

impl Stage<'_> {
    /// The window, and what was read of the trace.
    fn replay(
        &self,
        file: &mut TraceFile,
        feeder: &mut Feeder,
        inboxes: Vec<Inbox>,
        parts: &mut [Part],
        buffers: &mut Vec<Buffers>,
    ) -> (Window, Fed) {
        let spec = self.timed.spec;
        let requests_max = spec.operations.unwrap_or(u64::MAX);
        let (target, left) = (&self.timed.targets[0], AtomicU64::new(spec.threads));
        let work = self.timed.work();
        let (left, mut inboxes) = (&left, inboxes.into_iter().zip(parts));
        thread::scope(|scope| {
            let feeding = scope.spawn(move || feeder.feed(file, requests_max));
            let span =
                Span { warmup_seconds: spec.warmup_seconds, end: End::Seconds(spec.seconds), is_row: true };
            let window = self.timed.window(buffers, spec.threads, span, |_, buffers| {
                let (inbox, part) = inboxes.next().expect("each worker has a queue");
                let mut owner = Owner {
                    work,
                    values: self.values,
                    may_forget: target.may_forget(),
                    can_delete: target.refuses(Operation::Delete).is_none(),
                    fills: self.trace.fills,
                    is_paced: self.trace.speed.is_some(),
                    clock: self.timed.clock.cloned(),
                    part,
                    buffers,
                };
                move |control: &Control| {
                    target.replay(&mut owner, &inbox, control);
                    // Behind the last worker there is nothing to wait for.
                    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        control.stop();
                    }
                    owner.buffers
                }
            });
            let fed = feeding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (window, fed)
        })
    }
}

/// The last look at every key.
struct Check<'a> {
    target: &'a Instance,
    values: &'a TraceValues,
    parts: &'a mut [Part],
    mistakes: &'a mut Mistakes,
}

impl Check<'_> {
    /// Reads the trace again, and looks up each key of its first requests once.
    fn all(&mut self, file: &mut TraceFile, requests: u64) {
        let (mut keys, mut hashes) = (KeyList::default(), Vec::new());
        for _ in 0..requests {
            // The first reading has told a fault.
            let Ok(Some(request)) = file.read() else { break };
            let hash = hash(request.key);
            let ledger = ledger_of(self.parts, hash);
            let entry = ledger.entry(hash);
            if entry == Entry::default() || entry.is_checked {
                continue;
            }
            ledger.set(hash, request.key.len(), Entry { is_checked: true, ..entry });
            keys.push(request.key);
            hashes.push(hash);
            if hashes.len() >= self.target.checked_at_once() {
                self.group(&keys, &mut hashes);
                keys.clear();
            }
            if self.mistakes.gone.is_some() {
                return;
            }
        }
        self.group(&keys, &mut hashes);
    }

    /// Looks keys up at once, and removes them from a server that others use later.
    fn group(&mut self, keys: &KeyList, hashes: &mut Vec<u64>) {
        let list: Vec<&[u8]> = keys.iter().collect();
        let Check { target, values, parts, mistakes } = self;
        let may_forget = target.may_forget();
        let done = target.multi_get(&list, &mut |position, answer| {
            let (hash, key) = (hashes[position], list[position]);
            let ledger = ledger_of(parts, hash);
            let entry = ledger.entry(hash);
            let expected = entry.is_live.then(|| values.slice(hash, &entry));
            judge("multi_get", key, answer, expected, may_forget, mistakes);
            if may_forget && answer.is_none() {
                ledger.set(hash, key.len(), Entry { is_live: false, ..entry });
            }
        });
        hashes.clear();
        if let Err(error) = done {
            mistakes.fail_of("multi_get", || in_words(list.first().unwrap_or(&&[][..])), &error);
            return;
        }
        if target.work() != Work::Here && target.refuses(Operation::Delete).is_none() {
            for key in list {
                if let Err(error) = target.delete(key) {
                    mistakes.fail_of("delete", || in_words(key), &error);
                }
            }
        }
    }

    /// Looks up keys that no request has written: none may be found.
    fn absent(&mut self) {
        let mut value = Vec::new();
        for number in 0..ABSENT_KEYS {
            let key = format!("ziptier:absent:{number}");
            let hash = hash(key.as_bytes());
            if self.mistakes.gone.is_some() || ledger_of(self.parts, hash).entry(hash) != Entry::default() {
                continue;
            }
            match self.target.get(key.as_bytes(), &mut value) {
                Ok(found) => {
                    judge(
                        "get",
                        key.as_bytes(),
                        found.then_some(value.as_slice()),
                        None,
                        false,
                        self.mistakes,
                    );
                }
                Err(error) => self.mistakes.fail_of("get", || in_words(key.as_bytes()), &error),
            }
        }
    }
}

/// The ledger of the owner of a key.
fn ledger_of(parts: &mut [Part], hash: u64) -> &mut Ledger {
    let owner = (hash % parts.len() as u64) as usize;
    &mut parts[owner].ledger
}

#[cfg(test)]
mod tests;
