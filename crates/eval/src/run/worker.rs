//! The hot loop: one thread that operates on a target and checks every answer.
//!
//! Everything except the call itself is harness cost, which burdens every target alike. So the harness cost is kept
//! small. Keys are computed, values are slices of the corpus, and answers are compared by `memcmp`. Operations are
//! planned in groups, so that the harness's own waits for memory overlap. With latency on, the clock is read right
//! before and right after the call. Making keys and comparing answers lie outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::data::keys::{KeyList, emptied};
use crate::data::oracle::{Forecast, Oracle, Word};
use crate::run::arrivals::Arrivals;
use crate::run::clock::Clock;
use crate::run::control::{Control, Phase};
use crate::run::tally::Tally;
use crate::target::{Batch, Records, Target, Work};
use crate::workload::distribution::Chooser;
use crate::workload::mix::{Mix, Operation, WHOLE};
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

/// Operations planned ahead: enough for the waits for memory to overlap, few enough to stay in the first cache.
const PLANNED: usize = 16;

/// One thread's work on one target.
pub(crate) struct Worker<'a, T: Target> {
    pub(crate) target: &'a T,
    /// As the target told before the window. Telling may take long, since a target may look into all processes.
    pub(crate) work: Work,
    pub(crate) oracle: &'a Oracle,
    pub(crate) chooser: Chooser,
    pub(crate) mix: Mix,
    pub(crate) scan_lengths: ScanLengths,
    pub(crate) thread: u64,
    pub(crate) threads: u64,
    pub(crate) multi_get: usize,
    pub(crate) multi_put: usize,
    pub(crate) clock: Option<Clock>,
    pub(crate) interval_ns: Option<f64>,
    /// Ends the timed window by itself after so many operations; a multi-get that has begun is finished.
    pub(crate) quota: Option<u64>,
    pub(crate) buffers: Buffers<T>,
}

/// Buffers that a worker reuses between operations, made before memory is first measured.
///
/// None of it is freed before memory is last read, so that no store is credited with the harness's own memory.
pub(crate) struct Buffers<T: Target> {
    pub(crate) tally: Tally,
    pub(crate) progress: Progress,
    pub(crate) value: Vec<u8>,
    keys: KeyList,
    /// Empty between calls: the keys as the target gets them.
    asked: Vec<&'static [u8]>,
    pending: Vec<Pending>,
    /// When the first key of the batch came.
    batch_arrival: Option<u64>,
    batch: T::Batch,
    records: Records,
    scanned: Vec<Word>,
    inserts: Inserts,
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

impl<T: Target> Buffers<T> {
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
            batch: T::Batch::default(),
            records: Records::default(),
            scanned: Vec::with_capacity(scan_max),
            inserts: Inserts::default(),
        }
    }

    /// Forgets a batch that the last window left behind, which has no arrival in the next one.
    fn begin(&mut self) {
        self.keys.clear();
        self.pending.clear();
        self.progress.tell(0);
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

impl<'a, T: Target> Worker<'a, T> {
    /// Works until told to stop, or until its quota is done; the tally that comes back is that of the timed window.
    pub(crate) fn run(mut self, control: &Control) -> Buffers<T> {
        let mut phase = Phase::WarmUp;
        self.buffers.begin();
        self.go_on_inserting();
        // Warming up has no quota.
        let mut quota = u64::MAX;
        let mut plan = [const { (Operation::Read, 0u64) }; PLANNED];
        let mut forecasts: [Forecast; PLANNED] = Default::default();
        let mut writes = Writes::default();
        let mut room = self.oracle.room();
        control.start();
        let mut arrivals = Arrivals::new(self.clock.as_ref(), self.interval_ns, self.work, &mut self.chooser);
        'window: loop {
            self.plan_group(&mut plan, &mut forecasts);
            for (forecast, &(operation, index)) in forecasts.iter().zip(&plan) {
                let now = control.phase();
                if now == Phase::Stop {
                    break 'window;
                }
                self.turn(now, &mut phase, &mut quota);
                if phase == Phase::Measure {
                    self.buffers.progress.tell(self.buffers.tally.operations);
                }
                if self.buffers.tally.operations >= quota {
                    return self.finished(&mut writes);
                }
                let arrival = match &mut arrivals {
                    None => None,
                    Some(arrivals) => match arrivals.wait(&mut self.chooser, control) {
                        None => break 'window,
                        arrival => {
                            // The window may have begun during the wait, and then the arrival is one of the window.
                            self.turn(control.phase(), &mut phase, &mut quota);
                            arrival
                        }
                    },
                };
                let key = self.oracle.key_in(index, &mut room);
                match operation {
                    Operation::Read if self.multi_get == 1 => self.read(key, index, forecast, arrival),
                    Operation::Write if self.multi_put == 1 => self.write(key, index, forecast, arrival),
                    _ => self.operate(operation, key, index, forecast, arrival, &mut writes),
                }
                if self.buffers.tally.mistakes.gone.is_some() {
                    control.stop();
                }
            }
        }
        if phase == Phase::WarmUp {
            // The whole window passed within one call, and the tally is that of the warm-up.
            self.buffers.tally.restart();
        }
        if let Some(arrivals) = arrivals {
            self.charge(arrivals, &writes, control);
        }
        self.finished(&mut writes)
    }

    /// Begins the timed window if the commander has.
    #[inline]
    fn turn(&mut self, now: Phase, phase: &mut Phase, quota: &mut u64) {
        if now == Phase::Measure && *phase == Phase::WarmUp {
            *phase = now;
            *quota = self.quota.unwrap_or(u64::MAX);
            self.buffers.tally.restart();
        }
    }

    /// Records the waits of operations that came before the window's end and did not begin, because of a stall or
    /// because a call waited for more of them. Each has waited until now at least. Of those that go together, the first
    /// waits longest, as in a batch.
    fn charge(&mut self, mut arrivals: Arrivals, gathered: &Writes<'a>, control: &Control) {
        let (mut reads, mut writes) = (self.buffers.pending.len(), gathered.indices.len());
        self.charge_gathered(gathered, control);
        while let Some(waited_ns) = arrivals.missed_ns(&mut self.chooser, control) {
            let operation = self.mix.operation(self.chooser.below(u64::from(WHOLE)));
            let (latencies, arrived, together) = match operation {
                Operation::Read => (&mut self.buffers.tally.read_ns, &mut reads, self.multi_get),
                Operation::Scan => (&mut self.buffers.tally.read_ns, &mut 0, 1),
                Operation::Write | Operation::Insert => {
                    (&mut self.buffers.tally.write_ns, &mut writes, self.multi_put)
                }
                _ => (&mut self.buffers.tally.write_ns, &mut 0, 1),
            };
            if *arrived % together == 0 {
                latencies.saturating_record(waited_ns);
            }
            *arrived += 1;
        }
    }

    /// The same of the calls that wait for more operations.
    fn charge_gathered(&mut self, gathered: &Writes<'a>, control: &Control) {
        if control.ended_at().is_none() {
            return;
        }
        let waited_ns = |calls: usize, first: Option<u64>| self.elapsed_ns(first.filter(|_| calls > 0)?);
        let read_ns = waited_ns(self.buffers.pending.len(), self.buffers.batch_arrival);
        let write_ns = waited_ns(gathered.indices.len(), gathered.arrival);
        let tally = &mut self.buffers.tally;
        read_ns.into_iter().for_each(|ns| tally.read_ns.saturating_record(ns));
        write_ns.into_iter().for_each(|ns| tally.write_ns.saturating_record(ns));
    }

    /// Does what [`Worker::run`] does not do itself: batches, and operations that take longer.
    #[inline(never)]
    fn operate(
        &mut self,
        operation: Operation,
        key: &[u8],
        index: u64,
        forecast: &Forecast,
        arrival: Option<u64>,
        writes: &mut Writes<'a>,
    ) {
        match operation {
            Operation::Read => self.read_later(key, index, forecast, arrival),
            Operation::Write => self.write_later(key, index, forecast, arrival, writes),
            Operation::Insert => {
                match self.multi_put {
                    1 => self.write(key, index, forecast, arrival),
                    _ => self.write_later(key, index, forecast, arrival, writes),
                }
                self.buffers.inserts.done += 1;
                self.chooser.inserted(index);
            }
            Operation::ReadModifyWrite => {
                self.write_first(index, writes);
                self.read_modify_write(key, index, forecast, arrival);
            }
            Operation::Delete => {
                self.write_first(index, writes);
                self.delete(key, index, arrival);
            }
            Operation::Scan => {
                // It meets keys that nobody observes before.
                self.write_all(writes);
                self.scan(key, index, arrival);
            }
        }
    }

    /// Reads so many keys, one by one.
    pub(crate) fn read_many(&mut self, reads: u64) {
        let mut plan = [0u64; PLANNED];
        let mut forecasts: [Forecast; PLANNED] = Default::default();
        let mut room = self.oracle.room();
        let mut left = reads;
        while left > 0 && self.buffers.tally.mistakes.gone.is_none() {
            let group = left.min(PLANNED as u64);
            for slot in &mut plan[..group as usize] {
                *slot = self.chooser.read();
                self.oracle.warm(*slot);
            }
            for (forecast, &index) in forecasts.iter_mut().zip(&plan[..group as usize]) {
                *forecast = self.oracle.forecast(index, false);
            }
            for (forecast, &index) in forecasts.iter().zip(&plan[..group as usize]) {
                self.read(self.oracle.key_in(index, &mut room), index, forecast, None);
            }
            left -= group;
        }
    }

    #[inline]
    fn plan_group(&mut self, plan: &mut [(Operation, u64); PLANNED], forecasts: &mut [Forecast; PLANNED]) {
        for slot in &mut *plan {
            *slot = self.plan();
        }
        for (forecast, &(operation, index)) in forecasts.iter_mut().zip(&*plan) {
            *forecast =
                self.oracle.forecast(index, matches!(operation, Operation::Write | Operation::Insert));
        }
    }

    #[inline]
    fn plan(&mut self) -> (Operation, u64) {
        let operation = if self.mix.read == WHOLE {
            Operation::Read
        } else {
            let number = self.chooser.below(u64::from(WHOLE));
            self.mix.operation(number)
        };
        let index = match operation {
            Operation::Read | Operation::Scan => self.existing(|worker| worker.chooser.read()),
            Operation::Write | Operation::Delete | Operation::ReadModifyWrite => self.existing(|worker| {
                let index = worker.chooser.write();
                worker.oracle.own(index, worker.thread, worker.threads)
            }),
            Operation::Insert => match self.new_key() {
                Some(index) => index,
                None => return (Operation::Read, 0),
            },
        };
        self.oracle.warm(index);
        (operation, index)
    }

    /// A key of those that `choose` gives: one that was loaded, or that was inserted and exists.
    #[inline]
    fn existing(&mut self, choose: impl Fn(&mut Self) -> u64) -> u64 {
        let index = choose(self);
        if index < self.oracle.loaded() { index } else { self.inserted_or_other(index, choose) }
    }

    #[cold]
    fn inserted_or_other(&mut self, mut index: u64, choose: impl Fn(&mut Self) -> u64) -> u64 {
        while index >= self.oracle.loaded() && !self.oracle.existed(index) {
            index = choose(self);
        }
        index
    }

    /// The next key that this thread inserts, if there is room for its answer.
    fn new_key(&mut self) -> Option<u64> {
        let index = self.inserted(self.buffers.inserts.planned);
        if index >= self.oracle.len() {
            self.buffers.inserts.lack_room = true;
            return None;
        }
        self.buffers.inserts.planned += 1;
        Some(index)
    }

    /// The key that this thread inserts after so many others.
    fn inserted(&self, others: u64) -> u64 {
        let loaded = self.oracle.loaded();
        let first = loaded + (self.threads + self.thread - loaded % self.threads) % self.threads;
        first + others * self.threads
    }

    /// Goes on behind the keys that this thread inserted in windows before.
    fn go_on_inserting(&mut self) {
        let done = self.buffers.inserts.done;
        self.buffers.inserts.planned = done;
        if done > 0 {
            self.chooser.inserted(self.inserted(done - 1));
        }
    }

    #[inline]
    fn start(&self, arrival: Option<u64>) -> u64 {
        arrival.unwrap_or_else(|| self.clock.as_ref().map_or(0, Clock::raw))
    }

    #[inline]
    fn elapsed_ns(&self, start: u64) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.delta_as_nanos(start, clock.raw()))
    }

    #[inline]
    fn read(&mut self, key: &[u8], index: u64, forecast: &Forecast, arrival: Option<u64>) {
        let before = self.oracle.observe(index);
        let start = self.start(arrival);
        let found = self.target.get(key, &mut self.buffers.value);
        if let Some(ns) = self.elapsed_ns(start) {
            self.buffers.tally.read_ns.saturating_record(ns);
        }
        self.buffers.tally.operations += 1;
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

    fn read_later(&mut self, key: &[u8], index: u64, forecast: &Forecast, arrival: Option<u64>) {
        if self.buffers.pending.is_empty() {
            // The first key waits longest for the batch to fill.
            self.buffers.batch_arrival = arrival;
        }
        self.buffers.keys.push(key);
        self.buffers.pending.push(Pending { index, before: Word::default(), forecast: forecast.clone() });
        if self.buffers.pending.len() < self.multi_get {
            return;
        }
        let Buffers { tally, keys, asked, pending, batch, batch_arrival, .. } = &mut self.buffers;
        let mut list = emptied(std::mem::take(asked));
        list.extend(keys.iter());
        for Pending { index, before, .. } in pending.iter_mut() {
            *before = self.oracle.observe(*index);
        }
        let start = batch_arrival.unwrap_or_else(|| self.clock.as_ref().map_or(0, Clock::raw));
        let done = self.target.multi_get(&list, batch);
        if let Some(clock) = &self.clock {
            tally.read_ns.saturating_record(clock.delta_as_nanos(start, clock.raw()));
        }
        tally.operations += pending.len() as u64;
        match done {
            Ok(()) => {
                for (position, Pending { index, before, forecast }) in pending.iter().enumerate() {
                    let answer = batch.answer(position);
                    if !self.oracle.accepts_as(*index, *before, answer, forecast) {
                        tally.mistakes.add(|| wrong_answer("multi_get", *index, answer.is_some()));
                    }
                }
            }
            Err(error) => tally.mistakes.fail("multi_get", index, &error),
        }
        *asked = emptied(list);
        keys.clear();
        pending.clear();
    }

    #[inline]
    fn write(&mut self, key: &[u8], index: u64, forecast: &Forecast, arrival: Option<u64>) {
        let value = self.oracle.begin_put_as(index, forecast);
        let start = self.start(arrival);
        let done = self.target.put(key, value);
        if let Some(ns) = self.elapsed_ns(start) {
            self.buffers.tally.write_ns.saturating_record(ns);
        }
        self.oracle.finish(index);
        self.buffers.tally.operations += 1;
        if let Err(error) = done {
            self.buffers.tally.mistakes.fail("put", index, &error);
        }
    }

    /// Adds a write to those that go together, and makes them once they are enough.
    fn write_later(
        &mut self,
        key: &[u8],
        index: u64,
        forecast: &Forecast,
        arrival: Option<u64>,
        writes: &mut Writes<'a>,
    ) {
        self.write_first(index, writes);
        if writes.indices.is_empty() {
            writes.arrival = arrival;
        }
        writes.keys.push(key);
        writes.values.push(self.oracle.begin_put_as(index, forecast));
        writes.indices.push(index);
        if writes.indices.len() == self.multi_put {
            self.write_all(writes);
        }
    }

    /// Makes the gathered writes if one of them is to this key, which another write may not overtake.
    fn write_first(&mut self, index: u64, writes: &mut Writes<'a>) {
        if self.multi_put > 1 && self.oracle.observe(index).in_flight() {
            self.write_all(writes);
        }
    }

    fn write_all(&mut self, writes: &mut Writes<'a>) {
        let (operations, ns) = self.make(writes);
        self.buffers.tally.operations += operations;
        if let Some(ns) = ns {
            self.buffers.tally.write_ns.saturating_record(ns);
        }
    }

    /// Makes the gathered writes; returns how many, and how long the call took.
    fn make(&mut self, writes: &mut Writes<'a>) -> (u64, Option<u64>) {
        let Some(&first) = writes.indices.first() else { return (0, None) };
        let operations = writes.indices.len() as u64;
        let mut records = emptied(std::mem::take(&mut writes.records));
        records.extend(writes.keys.iter().zip(writes.values.drain(..)));
        let start = self.start(writes.arrival);
        let done = self.target.multi_put(&records);
        let ns = self.elapsed_ns(start);
        if let Err(error) = done {
            self.buffers.tally.mistakes.fail("multi_put", first, &error);
        }
        writes.indices.drain(..).for_each(|index| self.oracle.finish(index));
        writes.records = emptied(records);
        writes.keys.clear();
        (operations, ns)
    }

    /// Makes the last writes, which no window counts.
    fn finished(mut self, writes: &mut Writes<'a>) -> Buffers<T> {
        self.make(writes);
        self.buffers
    }

    fn delete(&mut self, key: &[u8], index: u64, arrival: Option<u64>) {
        let existed = self.oracle.begin_delete(index);
        let start = self.start(arrival);
        let done = self.target.delete(key);
        if let Some(ns) = self.elapsed_ns(start) {
            self.buffers.tally.write_ns.saturating_record(ns);
        }
        self.oracle.finish(index);
        self.buffers.tally.operations += 1;
        match done {
            Ok(answer) if answer == existed => {}
            Ok(answer) => self.buffers.tally.mistakes.add(|| {
                format!(
                    "delete of key number {index} said {answer}, and the key {}",
                    if existed { "existed" } else { "did not exist" }
                )
            }),
            Err(error) => self.buffers.tally.mistakes.fail("delete", index, &error),
        }
    }

    /// Reads a key and writes its next value: one operation, and one latency, which leaves out the check between them.
    fn read_modify_write(&mut self, key: &[u8], index: u64, forecast: &Forecast, arrival: Option<u64>) {
        let before = self.oracle.observe(index);
        let start = self.start(arrival);
        let found = self.target.get(key, &mut self.buffers.value);
        let read_ns = self.elapsed_ns(start);
        match found {
            Ok(found) => {
                let answer = found.then_some(self.buffers.value.as_slice());
                if !self.oracle.accepts_as(index, before, answer, forecast) {
                    self.buffers.tally.mistakes.add(|| wrong_answer("get", index, found));
                }
            }
            Err(error) => self.buffers.tally.mistakes.fail("get", index, &error),
        }
        let value = self.oracle.begin_put(index);
        let start = self.start(None);
        let done = self.target.put(key, value);
        if let (Some(read_ns), Some(write_ns)) = (read_ns, self.elapsed_ns(start)) {
            self.buffers.tally.write_ns.saturating_record(read_ns + write_ns);
        }
        self.oracle.finish(index);
        self.buffers.tally.operations += 1;
        if let Err(error) = done {
            self.buffers.tally.mistakes.fail("put", index, &error);
        }
    }

    fn scan(&mut self, key: &[u8], index: u64, arrival: Option<u64>) {
        let limit = self.scan_lengths.draw(|| self.chooser.unit());
        self.buffers.scanned.clear();
        // If keys are in the order of their numbers, it is known beforehand which ones the scan must meet.
        let expected = self.oracle.expected_in_scan(index, limit as u64);
        self.buffers.scanned.extend(expected.map(|index| self.oracle.observe(index)));
        self.buffers.records.clear();
        let start = self.start(arrival);
        let done = self.target.scan(key, limit, &mut self.buffers.records);
        if let Some(ns) = self.elapsed_ns(start) {
            self.buffers.tally.read_ns.saturating_record(ns);
        }
        self.buffers.tally.operations += 1;
        let Buffers { tally, scanned, records, .. } = &mut self.buffers;
        if let Err(error) = done {
            return tally.mistakes.fail("scan", index, &error);
        }
        let alone = self.threads == 1;
        let filter = self.target.filter();
        if let Err(what) = self.oracle.check_scan(index, scanned, limit, alone, filter, records) {
            tally.mistakes.add(|| what);
        }
    }
}

pub(crate) fn wrong_answer(call: &str, index: u64, found: bool) -> String {
    let what = if found { "answered bytes that were not written" } else { "did not find a key that exists" };
    format!("{call} of key number {index} {what}")
}
