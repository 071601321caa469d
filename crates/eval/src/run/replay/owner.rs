//! A thread that makes the requests of the keys that it owns.
//!
//! An owner knows the newest value of each of its keys. A [`Replayer`] makes the requests on a target, and the owner
//! judges the answers. Replayers are compiled for each type of target, and owners once for all.

use crate::run::arrivals::Timer;
use crate::run::clock::Clock;
use crate::run::control::{Control, Phase};
use crate::run::replay::feed::{Inbox, Queued};
use crate::run::replay::ledger::{Entry, Ledger, TraceValues};
use crate::run::tally::Mistakes;
use crate::run::worker::Buffers;
use crate::target::{Target, TargetError, Work};
use crate::workload::trace::{Call, OPERATIONS};

/// What one worker knows and counts.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(super) ledger: Ledger,
    pub(super) counts: Counts,
}

/// Requests of the window.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By [`OPERATIONS`].
    pub(super) operations: [u64; OPERATIONS.len()],
    pub(super) hits: u64,
    pub(super) fills: u64,
    pub(super) without_key: u64,
    pub(super) skipped: u64,
    pub(super) lifetimes: u64,
}

/// The owner of some keys.
pub(crate) struct Owner<'a> {
    /// As the target told before the window.
    pub(super) work: Work,
    pub(super) values: &'a TraceValues,
    pub(super) may_forget: bool,
    pub(super) can_delete: bool,
    pub(super) fills: bool,
    /// Whether requests wait for their time.
    pub(super) is_paced: bool,
    pub(super) clock: Option<Clock>,
    pub(super) part: &'a mut Part,
    pub(super) buffers: Buffers,
}

/// The latency of a request, as far as it is known, and whether it belongs to the writes.
#[derive(Default)]
struct Taken {
    ns: u64,
    is_write: bool,
}

impl Owner<'_> {
    /// The times of requests, if they wait for these.
    fn timer(&self) -> Option<Timer> {
        self.clock.as_ref().filter(|_| self.is_paced).map(|clock| Timer::new(clock, self.work))
    }

    fn restart(&mut self) {
        self.buffers.tally.restart();
        self.part.counts = Counts::default();
    }

    /// Counts a request; whether the target can make such a call.
    fn count(&mut self, request: &Queued, call: Call) -> bool {
        let does = self.does(call);
        let counts = &mut self.part.counts;
        counts.operations[usize::from(request.operation)] += 1;
        counts.lifetimes += u64::from(request.has_lifetime);
        counts.skipped += u64::from(!does);
        does
    }

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

    /// The bytes of the value that is put after a key was looked up, if one is.
    fn put_after_get(&mut self, call: Call, found: bool, request: &Queued, entry: Entry) -> Option<u32> {
        let value_bytes = match call {
            Call::Extend => entry.value_bytes.saturating_add(request.value_bytes),
            Call::Count => entry.value_bytes,
            _ => request.value_bytes,
        };
        let counts = &mut self.part.counts;
        match (call, found) {
            (Call::Get, true) => counts.hits += 1,
            (Call::Get, false) if self.fills && request.value_bytes > 0 => {
                counts.fills += 1;
                return Some(value_bytes);
            }
            (Call::Get, false) | (Call::Add, true) => {}
            (Call::Replace | Call::Extend | Call::Count, false) => counts.without_key += 1,
            _ if value_bytes > self.values.bytes_max() => counts.skipped += 1,
            _ => return Some(value_bytes),
        }
        None
    }

    #[inline]
    fn start(&self, arrival: Option<u64>) -> u64 {
        arrival.unwrap_or_else(|| self.clock.as_ref().map_or(0, Clock::raw))
    }

    #[inline]
    fn add_time(&self, start: u64, taken: &mut Taken) {
        taken.ns += self.clock.as_ref().map_or(0, |clock| clock.delta_as_nanos(start, clock.raw()));
    }

    /// Judges the answer of a get, whose value is in the buffer; whether the key was found.
    fn judge_get(&mut self, hash: u64, key: &[u8], entry: Entry, found: Result<bool, TargetError>) -> bool {
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

    fn judge_put(&mut self, hash: u64, key: &[u8], entry: Entry, done: Result<(), TargetError>) {
        self.part.ledger.set(hash, key.len(), entry);
        if let Err(error) = done {
            self.buffers.tally.mistakes.fail_of("put", || in_words(key), &error);
        }
    }

    fn judge_delete(&mut self, hash: u64, key: &[u8], entry: Entry, done: Result<bool, TargetError>) {
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

/// An owner at a target.
pub(crate) struct Replayer<'o, 'a, T: Target> {
    target: &'o T,
    owner: &'o mut Owner<'a>,
}

impl<'o, 'a, T: Target> Replayer<'o, 'a, T> {
    pub(crate) fn new(target: &'o T, owner: &'o mut Owner<'a>) -> Self {
        Replayer { target, owner }
    }

    /// Works until the queue ends, or the run.
    pub(crate) fn run(&mut self, inbox: &Inbox, control: &Control) {
        let mut phase = Phase::WarmUp;
        control.start();
        let timer = self.owner.timer();
        'all: for batch in inbox.batches.iter() {
            for (request, key) in batch.iter() {
                if phase == Phase::Measure {
                    self.owner.buffers.progress.tell(self.owner.buffers.tally.operations);
                }
                let at_ns = request.arrival_ns as f64;
                let arrival = timer.as_ref().and_then(|timer| timer.wait_until(at_ns, control));
                let now = control.phase();
                if now != phase {
                    if phase == Phase::WarmUp {
                        self.owner.restart();
                    }
                    phase = now;
                }
                if phase == Phase::Stop {
                    match timer.as_ref().and_then(|timer| timer.missed_ns(at_ns, control)) {
                        Some(missed_ns) => self.owner.charge(request, missed_ns),
                        None => break 'all,
                    }
                    continue;
                }
                self.request(request, key, arrival);
                if self.owner.buffers.tally.mistakes.gone.is_some() {
                    control.stop();
                }
            }
            let _ = inbox.empty.send(batch);
        }
        if phase == Phase::WarmUp {
            // All requests of this thread came before the window, which may have begun while it waited for more.
            self.owner.restart();
        }
    }

    fn request(&mut self, request: &Queued, key: &[u8], arrival: Option<u64>) {
        let call = OPERATIONS[usize::from(request.operation)].1;
        if !self.owner.count(request, call) {
            return;
        }
        let start = self.owner.start(arrival);
        let mut taken = Taken { is_write: call != Call::Get, ..Taken::default() };
        let entry = self.owner.part.ledger.entry(request.hash);
        match call {
            Call::Set => self.put(request.hash, key, entry, request.value_bytes, start, &mut taken),
            Call::Delete => self.delete(request.hash, key, entry, start, &mut taken),
            _ => {
                let found = self.get(request.hash, key, entry, start, &mut taken);
                if let Some(value_bytes) = self.owner.put_after_get(call, found, request, entry) {
                    let start = self.owner.start(None);
                    // What a client does after a miss is no part of the read.
                    let mut apart = Taken::default();
                    let taken = if call == Call::Get { &mut apart } else { &mut taken };
                    self.put(request.hash, key, entry, value_bytes, start, taken);
                }
            }
        }
        self.owner.buffers.tally.operations += 1;
        if self.owner.clock.is_some() {
            self.owner.record(taken.is_write, taken.ns);
        }
    }

    /// Looks a key up, and checks the answer; whether it was found.
    fn get(&mut self, hash: u64, key: &[u8], entry: Entry, start: u64, taken: &mut Taken) -> bool {
        let found = self.target.get(key, &mut self.owner.buffers.value);
        self.owner.add_time(start, taken);
        self.owner.judge_get(hash, key, entry, found)
    }

    fn put(&mut self, hash: u64, key: &[u8], entry: Entry, value_bytes: u32, start: u64, taken: &mut Taken) {
        let entry = Entry { writes: entry.writes + 1, value_bytes, is_live: true, is_checked: false };
        let done = self.target.put(key, self.owner.values.slice(hash, &entry));
        self.owner.add_time(start, taken);
        self.owner.judge_put(hash, key, entry, done);
    }

    fn delete(&mut self, hash: u64, key: &[u8], entry: Entry, start: u64, taken: &mut Taken) {
        let done = self.target.delete(key);
        self.owner.add_time(start, taken);
        self.owner.judge_delete(hash, key, entry, done);
    }
}

/// Adds a mistake if an answer is not the newest value, or nothing from a store that may forget.
pub(super) fn judge(
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
pub(super) fn in_words(key: &[u8]) -> String {
    const SHOWN: usize = 60;
    let more = if key.len() > SHOWN { "..." } else { "" };
    format!("key `{}{more}`", key[..key.len().min(SHOWN)].escape_ascii())
}
