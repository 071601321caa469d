//! The hot loop: makes a worker's operations on a target, and lets the worker check every answer.
//!
//! Everything except the call itself is harness cost, which burdens every target alike. So the harness cost is kept
//! small. Keys are computed, values are slices of the corpus, and answers are compared by `memcmp`. Operations are
//! planned in groups. With latency on, the clock is read right before and right after the call. Making keys and
//! comparing answers lie outside.
//!
//! The loop is compiled for each type of target, so that a call of the target costs what it costs a program. The parts
//! of the worker that touch no target, or run seldom, lie outside of this module.

use crate::data::keys::emptied;
use crate::data::oracle::Forecast;
use crate::run::clock::Clock;
use crate::run::control::{Control, Phase};
use crate::run::worker::planning::PLANNED;
use crate::run::worker::{Buffers, Pending, Worker, Writes, wrong_answer};
use crate::target::{Batch, Target};
use crate::workload::mix::Operation;

/// A worker at a target.
pub(crate) struct Operator<'w, 'a, T: Target> {
    target: &'w T,
    worker: &'w mut Worker<'a>,
    /// It is empty before a window, and freed after that.
    batch: T::Batch,
}

impl<'w, 'a, T: Target> Operator<'w, 'a, T> {
    pub(crate) fn new(target: &'w T, worker: &'w mut Worker<'a>) -> Self {
        Operator { target, worker, batch: T::Batch::default() }
    }

    /// Works until told to stop, or until the worker's quota is done; the tally is then that of the timed window.
    pub(crate) fn run(&mut self, control: &Control) {
        let mut phase = Phase::WarmUp;
        self.worker.begin();
        // Warming up has no quota.
        let mut quota = u64::MAX;
        let mut plan = [const { (Operation::Read, 0u64) }; PLANNED];
        let mut forecasts: [Forecast; PLANNED] = Default::default();
        let mut writes = Writes::default();
        let oracle = self.worker.oracle;
        let mut room = oracle.room();
        control.start();
        let mut arrivals = self.worker.arrivals();
        'window: loop {
            self.worker.plan_group(&mut plan, &mut forecasts);
            for (forecast, &(operation, index)) in forecasts.iter().zip(&plan) {
                let now = control.phase();
                if now == Phase::Stop {
                    break 'window;
                }
                self.turn(now, &mut phase, &mut quota);
                let Buffers { tally, progress, .. } = &self.worker.buffers;
                if phase == Phase::Measure {
                    progress.tell(tally.operations);
                }
                if tally.operations >= quota {
                    // No window counts the last writes.
                    self.make(&mut writes);
                    return;
                }
                let arrival = match &mut arrivals {
                    None => None,
                    Some(arrivals) => match arrivals.wait(&mut self.worker.chooser, control) {
                        None => break 'window,
                        arrival => {
                            // The window may have begun during the wait, and then the arrival is one of the window.
                            self.turn(control.phase(), &mut phase, &mut quota);
                            arrival
                        }
                    },
                };
                let key = oracle.key_in(index, &mut room);
                match operation {
                    Operation::Read if self.worker.multi_get == 1 => self.read(key, index, forecast, arrival),
                    Operation::Write if self.worker.multi_put == 1 => {
                        self.write(key, index, forecast, arrival);
                    }
                    _ => self.operate(operation, key, index, forecast, arrival, &mut writes),
                }
                if self.worker.buffers.tally.mistakes.gone.is_some() {
                    control.stop();
                }
            }
        }
        if phase == Phase::WarmUp {
            // The whole window passed within one call, and the tally is that of the warm-up.
            self.worker.buffers.tally.restart();
        }
        if let Some(arrivals) = arrivals {
            let waiting = self.worker.waiting(&writes);
            self.worker.charge(arrivals, waiting, control);
        }
        // No window counts the last writes.
        self.make(&mut writes);
    }

    /// Begins the timed window if the commander has. A batch that has gathered keys before counts with all of them: its
    /// call begins within the window. Keys wait for their call when a window ends, too, as many on average, and count
    /// for none. So both ends of a window balance each other.
    #[inline]
    fn turn(&mut self, now: Phase, phase: &mut Phase, quota: &mut u64) {
        if now == Phase::Measure && *phase == Phase::WarmUp {
            *phase = now;
            *quota = self.worker.quota.unwrap_or(u64::MAX);
            self.worker.buffers.tally.restart();
        }
    }

    /// Does what [`Operator::run`] does not do itself: batches, and operations that take longer.
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
                match self.worker.multi_put {
                    1 => self.write(key, index, forecast, arrival),
                    _ => self.write_later(key, index, forecast, arrival, writes),
                }
                self.worker.has_inserted(index);
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
        let oracle = self.worker.oracle;
        let mut room = oracle.room();
        let mut left = reads;
        while left > 0 && self.worker.buffers.tally.mistakes.gone.is_none() {
            let group = left.min(PLANNED as u64);
            let plan = &mut plan[..group as usize];
            self.worker.plan_reads(plan, &mut forecasts);
            for (forecast, &index) in forecasts.iter().zip(&*plan) {
                self.read(oracle.key_in(index, &mut room), index, forecast, None);
            }
            left -= group;
        }
    }

    #[inline]
    fn read(&mut self, key: &[u8], index: u64, forecast: &Forecast, arrival: Option<u64>) {
        let worker = &mut *self.worker;
        let before = worker.oracle.observe(index);
        let start = worker.start(arrival);
        let found = self.target.get(key, &mut worker.buffers.value);
        worker.count_read(start);
        worker.judge_get(index, before, forecast, found);
    }

    fn read_later(&mut self, key: &[u8], index: u64, forecast: &Forecast, arrival: Option<u64>) {
        let worker = &mut *self.worker;
        if !worker.gather_key(key, index, forecast, arrival) {
            return;
        }
        let oracle = worker.oracle;
        let Buffers { tally, keys, asked, pending, batch_arrival, .. } = &mut worker.buffers;
        let mut list = emptied(std::mem::take(asked));
        list.extend(keys.iter());
        for Pending { index, before, .. } in pending.iter_mut() {
            *before = oracle.observe(*index);
        }
        let start = batch_arrival.unwrap_or_else(|| worker.clock.as_ref().map_or(0, Clock::raw));
        let done = self.target.multi_get(&list, &mut self.batch);
        if let Some(clock) = &worker.clock {
            tally.read_ns.saturating_record(clock.delta_as_nanos(start, clock.raw()));
        }
        tally.operations += pending.len() as u64;
        match done {
            Ok(()) => {
                for (position, Pending { index, before, forecast }) in pending.iter().enumerate() {
                    let answer = self.batch.answer(position);
                    if !oracle.accepts_as(*index, *before, answer, forecast) {
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
        let worker = &mut *self.worker;
        let value = worker.oracle.begin_put_as(index, forecast);
        let start = worker.start(arrival);
        let done = self.target.put(key, value);
        worker.count_write(start);
        worker.oracle.finish(index);
        if let Err(error) = done {
            worker.buffers.tally.mistakes.fail("put", index, &error);
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
        if self.worker.gather_write(key, index, forecast, arrival, writes) {
            self.write_all(writes);
        }
    }

    /// Makes the gathered writes if one of them is to this key.
    fn write_first(&mut self, index: u64, writes: &mut Writes<'a>) {
        if self.worker.has_gathered(index) {
            self.write_all(writes);
        }
    }

    fn write_all(&mut self, writes: &mut Writes<'a>) {
        let (operations, ns) = self.make(writes);
        let tally = &mut self.worker.buffers.tally;
        tally.operations += operations;
        if let Some(ns) = ns {
            tally.write_ns.saturating_record(ns);
        }
    }

    /// Makes the gathered writes; returns how many, and how long the call took.
    fn make(&mut self, writes: &mut Writes<'a>) -> (u64, Option<u64>) {
        let Some(&first) = writes.indices.first() else { return (0, None) };
        let worker = &mut *self.worker;
        let operations = writes.indices.len() as u64;
        let mut records = emptied(std::mem::take(&mut writes.records));
        records.extend(writes.keys.iter().zip(writes.values.drain(..)));
        let start = worker.start(writes.arrival);
        let done = self.target.multi_put(&records);
        let ns = worker.elapsed_ns(start);
        if let Err(error) = done {
            worker.buffers.tally.mistakes.fail("multi_put", first, &error);
        }
        writes.indices.drain(..).for_each(|index| worker.oracle.finish(index));
        writes.records = emptied(records);
        writes.keys.clear();
        (operations, ns)
    }

    fn delete(&mut self, key: &[u8], index: u64, arrival: Option<u64>) {
        let worker = &mut *self.worker;
        let existed = worker.oracle.begin_delete(index);
        let start = worker.start(arrival);
        let done = self.target.delete(key);
        worker.count_write(start);
        worker.oracle.finish(index);
        worker.judge_delete(index, existed, done);
    }

    /// Reads a key and writes its next value: one operation, and one latency, which leaves out the check between them.
    fn read_modify_write(&mut self, key: &[u8], index: u64, forecast: &Forecast, arrival: Option<u64>) {
        let worker = &mut *self.worker;
        let before = worker.oracle.observe(index);
        let start = worker.start(arrival);
        let found = self.target.get(key, &mut worker.buffers.value);
        let read_ns = worker.elapsed_ns(start);
        worker.judge_get(index, before, forecast, found);
        let value = worker.oracle.begin_put(index);
        let start = worker.start(None);
        let done = self.target.put(key, value);
        let write_ns = worker.elapsed_ns(start);
        worker.oracle.finish(index);
        let tally = &mut worker.buffers.tally;
        if let (Some(read_ns), Some(write_ns)) = (read_ns, write_ns) {
            tally.write_ns.saturating_record(read_ns + write_ns);
        }
        tally.operations += 1;
        if let Err(error) = done {
            tally.mistakes.fail("put", index, &error);
        }
    }

    fn scan(&mut self, key: &[u8], index: u64, arrival: Option<u64>) {
        let worker = &mut *self.worker;
        let limit = worker.begin_scan(index);
        let start = worker.start(arrival);
        let done = self.target.scan(key, limit, &mut worker.buffers.records);
        worker.count_read(start);
        worker.judge_scan(index, limit, self.target.filter(), done);
    }
}
