//! One thread of a window: the operations that it makes, and what it learns of them, whatever the target.
//!
//! A worker plans its operations, an [`Operator`] makes them on a target, and the worker judges the answers. Operators
//! are compiled for each type of target, and workers once for all. A worker with several connections has a
//! [`Multiplexer`](multiplexer::Multiplexer) in place of an operator.

mod charges;
mod multiplexer;
mod operator;
mod planning;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::data::keys::KeyList;
use crate::data::oracle::{Forecast, Oracle, Word};
use crate::run::arrivals::Arrivals;
use crate::run::clock::Clock;
use crate::run::tally::Tally;
pub(crate) use crate::run::worker::multiplexer::multiplex;
pub(crate) use crate::run::worker::operator::Operator;
use crate::target::{Records, TargetError, Work};
use crate::workload::distribution::Chooser;
use crate::workload::mix::Mix;
use crate::workload::scan::ScanLengths;

/// The operations of one worker in the timed window so far, for others to read while it works. Its bytes share a cache
/// line with nothing that others write.
#[derive(Debug, Default, Clone)]
pub(crate) struct Progress(Arc<OwnLine>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine(AtomicU64);

impl Progress {
    #[inline]
    pub(crate) fn tell(&self, operations: u64) {
        self.0.0.store(operations, Ordering::Relaxed);
    }

    pub(crate) fn operations(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }
}

/// One thread's work.
pub(crate) struct Worker<'a> {
    /// As the target told before the window. Telling may take long, since a target may look into all processes.
    pub(crate) work: Work,
    pub(crate) oracle: &'a Oracle,
    pub(crate) chooser: Chooser,
    pub(crate) mix: Mix,
    pub(crate) scan_lengths: ScanLengths,
    pub(crate) thread: u64,
    pub(crate) threads: u64,
    /// Its connections by their numbers, for a target that has connections.
    pub(crate) connections: Range<u64>,
    pub(crate) multi_get: usize,
    pub(crate) multi_put: usize,
    pub(crate) clock: Option<Clock>,
    pub(crate) interval_ns: Option<f64>,
    /// Ends the timed window by itself after so many operations; a multi-get that has begun is finished.
    pub(crate) quota: Option<u64>,
    pub(crate) buffers: Buffers,
}

/// Buffers that a worker reuses between operations, made before memory is first measured.
///
/// None of it is freed before memory is last read, so that no store is credited with the harness's own memory.
pub(crate) struct Buffers {
    pub(crate) tally: Tally,
    pub(crate) progress: Progress,
    pub(crate) value: Vec<u8>,
    keys: KeyList,
    /// Empty between calls: the keys as the target gets them.
    asked: Vec<&'static [u8]>,
    pending: Vec<Pending>,
    /// When the first key of the batch came.
    batch_arrival: Option<u64>,
    records: Records,
    scanned: Vec<Word>,
    inserts: Inserts,
    /// Keys of the order of its distribution up to the end of its last window.
    pub(crate) gone_through: u64,
}

/// A key that a multi-get will ask for.
struct Pending {
    index: u64,
    /// Its state right before the call.
    before: Word,
    forecast: Forecast,
}

/// The keys that a thread inserts: those behind the loaded ones that it owns, in their order.
#[derive(Debug, Default, Clone, Copy)]
struct Inserts {
    /// Keys that were inserted, and those that are also planned.
    done: u64,
    planned: u64,
    /// Whether there was no room for one.
    lack_room: bool,
}

impl Buffers {
    pub(crate) fn new(
        multi_get: usize,
        key_bytes_max: usize,
        value_bytes_max: usize,
        scan_max: usize,
    ) -> Self {
        Buffers {
            tally: Tally::new(),
            progress: Progress::default(),
            value: Vec::with_capacity(value_bytes_max),
            keys: KeyList::with_room(multi_get, key_bytes_max),
            asked: Vec::with_capacity(multi_get),
            pending: Vec::with_capacity(multi_get),
            batch_arrival: None,
            records: Records::default(),
            scanned: Vec::with_capacity(scan_max),
            inserts: Inserts::default(),
            gone_through: 0,
        }
    }

    /// Whether a key could not be inserted, because there was no room for its answer.
    pub(crate) fn lacks_room(&self) -> bool {
        self.inserts.lack_room
    }
}

/// Writes that are announced, and go to the target together.
#[derive(Default)]
struct Writes<'a> {
    indices: Vec<u64>,
    keys: KeyList,
    values: Vec<&'a [u8]>,
    /// Empty between calls: the records as the target gets them.
    records: Vec<(&'static [u8], &'a [u8])>,
    /// When the first of them came.
    arrival: Option<u64>,
}

impl<'a> Worker<'a> {
    /// Whether it has several connections.
    pub(crate) fn has_connections(&self) -> bool {
        self.connections.end - self.connections.start > 1
    }

    /// Begins a window. Forgets a batch that the last one left behind, which has no arrival in this one.
    fn begin(&mut self) {
        self.buffers.keys.clear();
        self.buffers.pending.clear();
        self.buffers.progress.tell(0);
        self.go_on_inserting();
    }

    /// The arrivals of a window that begins now, in an open loop.
    fn arrivals(&mut self) -> Option<Arrivals> {
        Arrivals::new(self.clock.as_ref(), self.interval_ns, self.work, &mut self.chooser)
    }

    #[inline]
    fn start(&self, arrival: Option<u64>) -> u64 {
        arrival.unwrap_or_else(|| self.clock.as_ref().map_or(0, Clock::raw))
    }

    #[inline]
    fn elapsed_ns(&self, start: u64) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.delta_as_nanos(start, clock.raw()))
    }

    /// Counts a call that has just read one key.
    #[inline]
    fn count_read(&mut self, start: u64) {
        if let Some(ns) = self.elapsed_ns(start) {
            self.buffers.tally.read_ns.saturating_record(ns);
        }
        self.buffers.tally.operations += 1;
    }

    /// The same of a call that wrote.
    #[inline]
    fn count_write(&mut self, start: u64) {
        if let Some(ns) = self.elapsed_ns(start) {
            self.buffers.tally.write_ns.saturating_record(ns);
        }
        self.buffers.tally.operations += 1;
    }

    /// Judges the answer of a get, whose value is in the buffer.
    #[inline]
    fn judge_get(&mut self, index: u64, before: Word, forecast: &Forecast, found: Result<bool, TargetError>) {
        match found {
            Ok(found) => {
                let answer = found.then_some(self.buffers.value.as_slice());
                if !self.oracle.accepts_as(index, before, answer, forecast) {
                    self.buffers.tally.mistakes.add(|| wrong_answer("get", index, found));
                }
            }
            Err(error) => self.buffers.tally.mistakes.fail("get", index, &error),
        }
    }

    /// Keeps a key until there are enough for a call; whether there are.
    fn gather_key(&mut self, key: &[u8], index: u64, forecast: &Forecast, arrival: Option<u64>) -> bool {
        if self.buffers.pending.is_empty() {
            // The first key waits longest for the batch to fill.
            self.buffers.batch_arrival = arrival;
        }
        self.buffers.keys.push(key);
        self.buffers.pending.push(Pending { index, before: Word::default(), forecast: forecast.clone() });
        self.buffers.pending.len() >= self.multi_get
    }

    /// Keeps a write until there are enough for a call; whether there are.
    fn gather_write(
        &self,
        key: &[u8],
        index: u64,
        forecast: &Forecast,
        arrival: Option<u64>,
        writes: &mut Writes<'a>,
    ) -> bool {
        if writes.indices.is_empty() {
            writes.arrival = arrival;
        }
        writes.keys.push(key);
        writes.values.push(self.oracle.begin_put_as(index, forecast));
        writes.indices.push(index);
        writes.indices.len() == self.multi_put
    }

    /// Whether one of the gathered writes is to this key, which another write may not overtake.
    fn has_gathered(&self, index: u64) -> bool {
        self.multi_put > 1 && self.oracle.observe(index).in_flight()
    }

    /// Judges the answer of a delete of a key that `existed` or not.
    fn judge_delete(&mut self, index: u64, existed: bool, done: Result<bool, TargetError>) {
        let mistakes = &mut self.buffers.tally.mistakes;
        match done {
            Ok(answer) if answer == existed => {}
            Ok(answer) => mistakes.add(|| {
                format!(
                    "delete of key number {index} said {answer}, and the key {}",
                    if existed { "existed" } else { "did not exist" }
                )
            }),
            Err(error) => mistakes.fail("delete", index, &error),
        }
    }

    /// The number of records of a scan. Observes the keys that the scan must meet, as far as that is known beforehand:
    /// if keys are in the order of their numbers.
    fn begin_scan(&mut self, index: u64) -> usize {
        let limit = self.scan_lengths.draw(|| self.chooser.unit());
        let oracle = self.oracle;
        self.buffers.scanned.clear();
        let expected = oracle.expected_in_scan(index, limit as u64);
        self.buffers.scanned.extend(expected.map(|index| oracle.observe(index)));
        self.buffers.records.clear();
        limit
    }

    /// Judges the records of a scan.
    fn judge_scan(&mut self, index: u64, limit: usize, filter: Option<&[u8]>, done: Result<(), TargetError>) {
        let Buffers { tally, scanned, records, .. } = &mut self.buffers;
        if let Err(error) = done {
            return tally.mistakes.fail("scan", index, &error);
        }
        let alone = self.threads == 1;
        if let Err(what) = self.oracle.check_scan(index, scanned, limit, alone, filter, records) {
            tally.mistakes.add(|| what);
        }
    }
}

pub(crate) fn wrong_answer(call: &str, index: u64, found: bool) -> String {
    let what = if found { "answered bytes that were not written" } else { "did not find a key that exists" };
    format!("{call} of key number {index} {what}")
}
