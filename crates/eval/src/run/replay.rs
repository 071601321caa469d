//! A run whose requests come from a trace.
//!
//! 1. One thread reads the trace and hands each request to the thread that owns its key.
//! 2. The owners make the requests, in the order of the trace, and compare each answer with the newest value.
//! 3. The trace is read once more after the window, up to where the first reading ended. Each key is looked up.
//!
//! The store begins empty. A trace that is cut or malformed ends the window, and all figures are those of the requests
//! before.

mod feed;
mod ledger;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::data::keys::KeyList;
use crate::data::oracle::Live;
use crate::error::{DID_NOT_OPEN, Error};
use crate::meters::Meters;
use crate::run::arrivals::Timer;
use crate::run::clock::Clock;
use crate::run::control::{Control, Phase};
use crate::run::measurement::{Measurement, Replayed};
use crate::run::replay::feed::{Fed, Feeder, Inbox, Queued};
use crate::run::replay::ledger::{Entry, Ledger, TraceValues, hash};
use crate::run::spec::{RunSpec, TraceSpec};
use crate::run::tally::Mistakes;
use crate::run::timed::{End, Span, Timed, Window};
use crate::run::worker::Buffers;
use crate::run::{Run, failed, has_not_ended, perf_control};
use crate::target::{Batch, Target, Work};
use crate::workload::mix::Operation;
use crate::workload::trace::{Call, OPERATIONS, TraceFile};

/// Keys that no trace has, and that must not be found.
const ABSENT_KEYS: u64 = 1_000;

/// Replays the trace of `spec` with a target of type `T`, and reports its phases to `progress`.
pub(crate) fn run<T: Target>(
    spec: &RunSpec,
    trace: &TraceSpec,
    meters: &Meters,
    progress: &dyn Fn(&str),
) -> Result<Measurement, Error> {
    progress("reading the corpus");
    let values = TraceValues(spec.read_corpus()?.bytes);
    let open = || TraceFile::open(&trace.path, values.bytes_max()).map_err(|told| trace.wrong(told));
    let mut file = open()?;
    let clock = (spec.latency || trace.speed.is_some()).then(Clock::new);
    let mut buffers: Vec<Buffers<T>> = (0..spec.threads).map(|_| Buffers::new(1, 0, 1 << 16, 0)).collect();
    let mut parts: Vec<Part> = (0..spec.threads).map(|_| Part::default()).collect();
    let perf = perf_control(spec)?;
    let (mut feeder, inboxes) = Feeder::new(spec.threads as usize, trace.speed);
    let mut run = Run::<T>::open(spec, meters, progress, std::iter::once(spec.config()))?;
    if let Some(reason) = run.targets[0].refuses(Operation::Write) {
        return Err(failed(spec, DID_NOT_OPEN)(reason.into()));
    }
    let loaded = run.load(&[])?;

    progress("replaying");
    let wall = Clock::system();
    let stage = Stage { timed: run.timed(clock.as_ref(), &wall, perf.as_ref()), trace, values: &values };
    let (window, fed) = stage.replay(&mut file, &mut feeder, inboxes, &mut parts, &mut buffers);
    let live = parts.iter().map(|part| part.ledger.live()).fold(Live::default(), Live::plus);
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

/// What one worker knows and counts.
#[derive(Debug, Default)]
struct Part {
    ledger: Ledger,
    counts: Counts,
}

/// Requests of the window.
#[derive(Debug, Default)]
struct Counts {
    /// By [`OPERATIONS`].
    operations: [u64; OPERATIONS.len()],
    hits: u64,
    fills: u64,
    without_key: u64,
    skipped: u64,
    lifetimes: u64,
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
struct Stage<'a, T: Target> {
    timed: Timed<'a, T>,
    trace: &'a TraceSpec,
    values: &'a TraceValues,
}

impl<T: Target> Stage<'_, T> {
    /// The window, and what was read of the trace.
    fn replay(
        &self,
        file: &mut TraceFile,
        feeder: &mut Feeder,
        inboxes: Vec<Inbox>,
        parts: &mut [Part],
        buffers: &mut Vec<Buffers<T>>,
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
                let owner = Owner {
                    target,
                    work,
                    values: self.values,
                    may_forget: target.may_forget(),
                    can_delete: target.refuses(Operation::Delete).is_none(),
                    fills: self.trace.fills,
                    clock: self.timed.clock.cloned(),
                    part,
                    buffers,
                };
                let is_paced = self.trace.speed.is_some();
                move |control: &Control| {
                    let buffers = owner.run(&inbox, is_paced, control);
                    // Behind the last worker there is nothing to wait for.
                    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        control.stop();
                    }
                    buffers
                }
            });
            let fed = feeding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (window, fed)
        })
    }
}

/// A thread that makes the requests of the keys that it owns.
struct Owner<'a, T: Target> {
    target: &'a T,
    /// As the target told before the window.
    work: Work,
    values: &'a TraceValues,
    may_forget: bool,
    can_delete: bool,
    fills: bool,
    clock: Option<Clock>,
    part: &'a mut Part,
    buffers: Buffers<T>,
}

/// The latency of a request, as far as it is known, and whether it belongs to the writes.
#[derive(Default)]
struct Taken {
    ns: u64,
    is_write: bool,
}

impl<T: Target> Owner<'_, T> {
    /// Works until the queue ends, or the run.
    fn run(mut self, inbox: &Inbox, is_paced: bool, control: &Control) -> Buffers<T> {
        let mut phase = Phase::WarmUp;
        control.start();
        let timer = self.clock.as_ref().filter(|_| is_paced).map(|clock| Timer::new(clock, self.work));
        'all: for batch in inbox.batches.iter() {
            for (request, key) in batch.iter() {
                if phase == Phase::Measure {
                    self.buffers.progress.tell(self.buffers.tally.operations);
                }
                let at_ns = request.arrival_ns as f64;
                let arrival = timer.as_ref().and_then(|timer| timer.wait_until(at_ns, control));
                let now = control.phase();
                if now != phase {
                    if phase == Phase::WarmUp {
                        self.restart();
                    }
                    phase = now;
                }
                if phase == Phase::Stop {
                    match timer.as_ref().and_then(|timer| timer.missed_ns(at_ns, control)) {
                        Some(missed_ns) => self.charge(request, missed_ns),
                        None => break 'all,
                    }
                    continue;
                }
                self.request(request, key, arrival);
                if self.buffers.tally.mistakes.gone.is_some() {
                    control.stop();
                }
            }
            let _ = inbox.empty.send(batch);
        }
        if phase == Phase::WarmUp && control.phase() != Phase::Measure {
            self.restart();
        }
        self.buffers
    }

    fn restart(&mut self) {
        self.buffers.tally.restart();
        self.part.counts = Counts::default();
    }

    fn request(&mut self, request: &Queued, key: &[u8], arrival: Option<u64>) {
        let call = OPERATIONS[usize::from(request.operation)].1;
        let does = self.does(call);
        let counts = &mut self.part.counts;
        counts.operations[usize::from(request.operation)] += 1;
        counts.lifetimes += u64::from(request.has_lifetime);
        if !does {
            counts.skipped += 1;
            return;
        }
        let start = arrival.unwrap_or_else(|| self.clock.as_ref().map_or(0, Clock::raw));
        let mut taken = Taken { is_write: call != Call::Get, ..Taken::default() };
        let entry = self.part.ledger.entry(request.hash);
        match call {
            Call::Set => self.put(request.hash, key, entry, request.value_bytes, start, &mut taken),
            Call::Delete => self.delete(request.hash, key, entry, start, &mut taken),
            _ => {
                let found = self.get(request.hash, key, entry, start, &mut taken);
                self.after_get(call, found, request, key, entry, &mut taken);
            }
        }
        self.buffers.tally.operations += 1;
        if self.clock.is_some() {
            self.record(taken.is_write, taken.ns);
        }
    }

    /// Whether the target can make such a call.
    fn does(&self, call: Call) -> bool {
        call != Call::Other && (call != Call::Delete || self.can_delete)
    }

    /// Records the wait of a request that came before the window's end, and that a stall kept from beginning. The
    /// request has waited so long at least.
    fn charge(&mut self, request: &Queued, missed_ns: u64) {
        let call = OPERATIONS[usize::from(request.operation)].1;
        if self.does(call) {
            self.record(call != Call::Get, missed_ns);
        }
    }

    fn record(&mut self, is_write: bool, ns: u64) {
        let tally = &mut self.buffers.tally;
        let latencies = if is_write { &mut tally.write_ns } else { &mut tally.read_ns };
        latencies.saturating_record(ns);
    }

    /// What follows after the value was looked up.
    fn after_get(
        &mut self,
        call: Call,
        found: bool,
        request: &Queued,
        key: &[u8],
        entry: Entry,
        taken: &mut Taken,
    ) {
        let value_bytes = match call {
            Call::Extend => entry.value_bytes.saturating_add(request.value_bytes),
            Call::Count => entry.value_bytes,
            _ => request.value_bytes,
        };
        let counts = &mut self.part.counts;
        match (call, found) {
            (Call::Get, true) => counts.hits += 1,
            // What a client does after a miss is no part of the read.
            (Call::Get, false) if self.fills && request.value_bytes > 0 => {
                counts.fills += 1;
                let start = self.clock.as_ref().map_or(0, Clock::raw);
                self.put(request.hash, key, entry, value_bytes, start, &mut Taken::default());
            }
            (Call::Get, false) | (Call::Add, true) => {}
            (Call::Replace | Call::Extend | Call::Count, false) => counts.without_key += 1,
            _ if value_bytes > self.values.bytes_max() => counts.skipped += 1,
            _ => {
                let start = self.clock.as_ref().map_or(0, Clock::raw);
                self.put(request.hash, key, entry, value_bytes, start, taken);
            }
        }
    }

    fn add_time(&self, start: u64, taken: &mut Taken) {
        taken.ns += self.clock.as_ref().map_or(0, |clock| clock.delta_as_nanos(start, clock.raw()));
    }

    /// Looks a key up, and checks the answer; whether it was found.
    fn get(&mut self, hash: u64, key: &[u8], entry: Entry, start: u64, taken: &mut Taken) -> bool {
        let found = self.target.get(key, &mut self.buffers.value);
        self.add_time(start, taken);
        let Buffers { tally, value, .. } = &mut self.buffers;
        match found {
            Ok(found) => {
                let answer = found.then_some(value.as_slice());
                let expected = entry.is_live.then(|| self.values.slice(hash, &entry));
                judge("get", key, answer, expected, self.may_forget, &mut tally.mistakes);
                found
            }
            Err(error) => {
                tally.mistakes.fail_of("get", || in_words(key), &error);
                false
            }
        }
    }

    fn put(&mut self, hash: u64, key: &[u8], entry: Entry, value_bytes: u32, start: u64, taken: &mut Taken) {
        let entry = Entry { writes: entry.writes + 1, value_bytes, is_live: true, is_checked: false };
        let done = self.target.put(key, self.values.slice(hash, &entry));
        self.add_time(start, taken);
        self.part.ledger.set(hash, key.len(), entry);
        if let Err(error) = done {
            self.buffers.tally.mistakes.fail_of("put", || in_words(key), &error);
        }
    }

    fn delete(&mut self, hash: u64, key: &[u8], entry: Entry, start: u64, taken: &mut Taken) {
        let done = self.target.delete(key);
        self.add_time(start, taken);
        let mistakes = &mut self.buffers.tally.mistakes;
        match done {
            Ok(existed) if existed == entry.is_live || self.may_forget && !existed => {}
            Ok(existed) => mistakes.add(|| {
                let truth = if entry.is_live { "existed" } else { "did not exist" };
                format!("delete of {} said {existed}, and the key {truth}", in_words(key))
            }),
            Err(error) => mistakes.fail_of("delete", || in_words(key), &error),
        }
        if entry.is_live {
            self.part.ledger.set(hash, key.len(), Entry { is_live: false, ..entry });
        }
    }
}

/// Adds a mistake if an answer is not the newest value, or nothing from a store that may forget.
fn judge(
    call: &str,
    key: &[u8],
    answer: Option<&[u8]>,
    expected: Option<&[u8]>,
    may_forget: bool,
    mistakes: &mut Mistakes,
) {
    if answer == expected || answer.is_none() && may_forget {
        return;
    }
    mistakes.add(|| {
        let what = match (answer, expected) {
            (None, _) => "did not find a key that exists",
            (Some(_), None) => "found a key that does not exist",
            (Some(_), Some(_)) => "answered bytes that were not written",
        };
        format!("{call} of {} {what}", in_words(key))
    });
}

/// A key of a trace, for a user.
fn in_words(key: &[u8]) -> String {
    const SHOWN: usize = 60;
    let more = if key.len() > SHOWN { "..." } else { "" };
    format!("key `{}{more}`", key[..key.len().min(SHOWN)].escape_ascii())
}

/// The last look at every key.
struct Check<'a, T: Target> {
    target: &'a T,
    values: &'a TraceValues,
    parts: &'a mut [Part],
    mistakes: &'a mut Mistakes,
}

impl<T: Target> Check<'_, T> {
    /// Reads the trace again, and looks up each key of its first requests once.
    fn all(&mut self, file: &mut TraceFile, requests: u64) {
        let (mut keys, mut hashes, mut batch) = (KeyList::default(), Vec::new(), T::Batch::default());
        for _ in 0..requests {
            // The first reading has told a fault.
            let Ok(Some(request)) = file.read() else { break };
            let hash = hash(request.key);
            let ledger = self.ledger(hash);
            let entry = ledger.entry(hash);
            if entry == Entry::default() || entry.is_checked {
                continue;
            }
            ledger.set(hash, request.key.len(), Entry { is_checked: true, ..entry });
            keys.push(request.key);
            hashes.push(hash);
            if hashes.len() >= T::CHECKED_AT_ONCE {
                self.group(&keys, &mut hashes, &mut batch);
                keys.clear();
            }
            if self.mistakes.gone.is_some() {
                return;
            }
        }
        self.group(&keys, &mut hashes, &mut batch);
    }

    fn ledger(&mut self, hash: u64) -> &mut Ledger {
        let owner = (hash % self.parts.len() as u64) as usize;
        &mut self.parts[owner].ledger
    }

    /// Looks keys up at once, and removes them from a server that others use later.
    fn group(&mut self, keys: &KeyList, hashes: &mut Vec<u64>, batch: &mut T::Batch) {
        let list: Vec<&[u8]> = keys.iter().collect();
        let (target, may_forget) = (self.target, self.target.may_forget());
        let removes = target.work() != Work::Here && target.refuses(Operation::Delete).is_none();
        if let Err(error) = target.multi_get(&list, batch) {
            self.mistakes.fail_of("multi_get", || in_words(list.first().unwrap_or(&&[][..])), &error);
            return;
        }
        for (position, (key, hash)) in list.iter().zip(hashes.drain(..)).enumerate() {
            let entry = self.ledger(hash).entry(hash);
            let expected = entry.is_live.then(|| self.values.slice(hash, &entry));
            judge("multi_get", key, batch.answer(position), expected, may_forget, self.mistakes);
            if removes && let Err(error) = target.delete(key) {
                self.mistakes.fail_of("delete", || in_words(key), &error);
            }
        }
    }

    /// Looks up keys that no request has written: none may be found.
    fn absent(&mut self) {
        let mut value = Vec::new();
        for number in 0..ABSENT_KEYS {
            let key = format!("ziptier:absent:{number}");
            let hash = hash(key.as_bytes());
            if self.mistakes.gone.is_some() || self.ledger(hash).entry(hash) != Entry::default() {
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

#[cfg(test)]
mod tests;
