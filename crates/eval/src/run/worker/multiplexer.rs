//! The loop of a worker with several connections, on each of which a call is under way.
//!
//! A target whose calls wait for their answers has an [`Operator`](super::Operator). This loop is for servers alone,
//! where a system call costs more than the rest of a request.
//!
//! 1. The worker plans operations, and writes their requests one behind the other until there are enough for a call.
//! 2. An idle connection takes the call. Without an idle one, the thread waits for answers of all connections at once.
//! 3. The worker judges answers where they came in. The clock of a latency stops before that.
//!
//! A call counts for the window in which it was sent, whenever its answers come. A call that is under way when a window
//! begins does not count. Otherwise a window would count more calls than it has time for.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::data::keys::KeyRoom;
use crate::data::oracle::{Forecast, Oracle, Word};
use crate::run::arrivals::Arrivals;
use crate::run::clock::{Clock, SLEEP_NS_MAX};
use crate::run::control::{Control, Phase};
use crate::run::worker::charges::Waiting;
use crate::run::worker::planning::PLANNED;
use crate::run::worker::{Pending, Worker, wrong_answer};
use crate::servers::resp::connections::{Answer, Request};
use crate::target::{Gone, Target, TargetError};
use crate::targets::Connections;
use crate::workload::mix::Operation;

/// Works with the connections that the target has for this worker, until told to stop, or until its quota is done.
pub(crate) fn multiplex<T: Target>(target: &T, worker: &mut Worker<'_>, control: &Control) {
    match target.connections(worker.connections.clone()) {
        Ok(connections) => {
            let connections = Multiplexer::new(worker, connections).run(control);
            if worker.buffers.tally.mistakes.gone.is_none() {
                target.keep(connections);
            }
        }
        Err(error) => {
            // The other workers wait for this one.
            control.start();
            worker.buffers.tally.mistakes.gone.get_or_insert_with(|| error.to_string());
            control.stop();
        }
    }
}

/// The purpose of a call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    #[default]
    Read,
    Write,
    /// Of a key that exists or not.
    Delete(bool),
    /// The first half of a read that is followed by a write, and the second one.
    ReadToWrite,
    WriteWhatWasRead,
}

impl Purpose {
    fn request(self) -> Request {
        match self {
            Purpose::Read | Purpose::ReadToWrite => Request::Get,
            Purpose::Write | Purpose::WriteWhatWasRead => Request::Put,
            Purpose::Delete(_) => Request::Delete,
        }
    }

    /// The name of the operation in sentences about mistakes.
    fn name(self) -> &'static str {
        match self.request() {
            Request::Get => "get",
            Request::Put => "put",
            Request::Delete => "delete",
        }
    }

    /// Whether its latency is that of a read.
    fn is_read(self) -> bool {
        self == Purpose::Read
    }
}

/// The call of a connection. Without keys, the connection is idle.
#[derive(Default)]
struct Call {
    purpose: Purpose,
    asked: Vec<Pending>,
    answered: usize,
    /// A reading of the clock of latencies: when the call was sent, or when its first operation came.
    start: u64,
    /// The time of the first half of the operation.
    earlier_ns: u64,
    /// Whether it was sent within the window.
    counts: bool,
    /// The first request that the server refused.
    refusal: Option<String>,
}

/// Operations that will go together, and their requests.
#[derive(Default)]
struct Gathered {
    asked: Vec<Pending>,
    requests: Vec<u8>,
    /// When the first of them came.
    arrival: Option<u64>,
}

impl Gathered {
    /// Adds an operation, whose request was added before.
    fn add(&mut self, index: u64, forecast: &Forecast, arrival: Option<u64>) {
        if self.asked.is_empty() {
            self.arrival = arrival;
        }
        self.asked.push(Pending { index, before: Word::default(), forecast: forecast.clone() });
    }

    fn waiting(&self) -> Waiting {
        Waiting { operations: self.asked.len(), arrival: self.arrival }
    }
}

/// A worker and its connections.
pub(super) struct Multiplexer<'w, 'a> {
    worker: &'w mut Worker<'a>,
    oracle: &'a Oracle,
    connections: Connections,
    /// The call of each connection.
    calls: Vec<Call>,
    idle: VecDeque<usize>,
    reads: Gathered,
    writes: Gathered,
    /// An operation that goes alone.
    single: Gathered,
    /// Keys that are read now and written after that, and the request of the second half.
    read_to_write: Vec<u64>,
    second_half: Vec<u8>,
    room: KeyRoom,
    /// Whether calls that are sent now count for the window.
    counts: bool,
    /// Operations of calls that count, and how many of them are wanted.
    begun: u64,
    quota: u64,
}

impl<'w, 'a> Multiplexer<'w, 'a> {
    fn new(worker: &'w mut Worker<'a>, connections: Connections) -> Self {
        let (oracle, count) = (worker.oracle, connections.count());
        Multiplexer {
            worker,
            oracle,
            connections,
            calls: (0..count).map(|_| Call::default()).collect(),
            idle: (0..count).collect(),
            reads: Gathered::default(),
            writes: Gathered::default(),
            single: Gathered::default(),
            read_to_write: Vec::new(),
            second_half: Vec::new(),
            room: oracle.room(),
            counts: false,
            begun: 0,
            quota: u64::MAX,
        }
    }

    /// Works, and returns the connections. No call is under way on them, unless the server is gone.
    fn run(mut self, control: &Control) -> Connections {
        self.worker.begin();
        let mut plan = [const { (Operation::Read, 0u64) }; PLANNED];
        let mut forecasts: [Forecast; PLANNED] = Default::default();
        let mut room = self.oracle.room();
        control.start();
        let mut arrivals = self.worker.arrivals();
        'window: loop {
            self.worker.plan_group(&mut plan, &mut forecasts);
            for (forecast, &(operation, index)) in forecasts.iter().zip(&plan) {
                let ControlFlow::Continue(arrival) = self.next_arrival(&mut arrivals, control) else {
                    break 'window;
                };
                let key = self.oracle.key_in(index, &mut room);
                self.operate(operation, key, index, forecast, arrival);
            }
        }
        if !self.counts {
            // The whole window passed while the worker waited, and the tally is that of another one.
            self.worker.buffers.tally.restart();
        }
        if let Some(arrivals) = arrivals {
            let waiting = [self.reads.waiting(), self.writes.waiting()];
            self.worker.charge(arrivals, waiting, control);
        }
        // No window counts the last writes.
        self.counts = false;
        self.send_gathered_writes();
        while self.idle.len() < self.calls.len() && !self.is_gone() {
            self.wait();
        }
        self.connections
    }

    /// Waits until a connection is idle and an operation comes. In a closed loop it comes at once, and has no arrival.
    /// The loop ends with the window, with the quota, and with the server.
    fn next_arrival(
        &mut self,
        arrivals: &mut Option<Arrivals>,
        control: &Control,
    ) -> ControlFlow<(), Option<u64>> {
        while self.idle.is_empty() && !self.is_gone() {
            self.wait();
        }
        if self.is_gone() {
            control.stop();
        }
        self.turn(control);
        if self.counts {
            self.worker.buffers.progress.tell(self.worker.buffers.tally.operations);
        }
        if control.is_stopped() || self.begun >= self.quota {
            return ControlFlow::Break(());
        }
        let Some(arrivals) = arrivals else { return ControlFlow::Continue(None) };
        if self.idle.len() < self.calls.len() {
            // Answers that lay unread while operations come one after the other would seem late.
            self.receive(Duration::ZERO);
        }
        while !control.is_stopped() {
            match arrivals.due(&mut self.worker.chooser) {
                Ok(arrival) => {
                    // The window may have begun during the wait, and then the arrival is one of the window.
                    self.turn(control);
                    return ControlFlow::Continue(Some(arrival));
                }
                Err(left_ns) => {
                    self.receive(Duration::from_nanos(left_ns.min(SLEEP_NS_MAX)));
                }
            }
        }
        ControlFlow::Break(())
    }

    /// Begins the timed window if the commander has.
    fn turn(&mut self, control: &Control) {
        if !self.counts && control.phase() == Phase::Measure {
            self.counts = true;
            self.quota = self.worker.quota.unwrap_or(u64::MAX);
            self.worker.buffers.tally.restart();
        }
    }

    fn is_gone(&self) -> bool {
        self.worker.buffers.tally.mistakes.gone.is_some()
    }

    fn operate(
        &mut self,
        operation: Operation,
        key: &[u8],
        index: u64,
        forecast: &Forecast,
        arrival: Option<u64>,
    ) {
        match operation {
            Operation::Read => {
                Request::Get.add_to(&mut self.reads.requests, key, &[]);
                self.reads.add(index, forecast, arrival);
                if self.reads.asked.len() >= self.worker.multi_get {
                    self.send(Purpose::Read);
                }
            }
            Operation::Write => self.write(key, index, forecast, arrival),
            Operation::Insert => {
                self.write(key, index, forecast, arrival);
                self.worker.has_inserted(index);
            }
            Operation::Delete => {
                if self.wait_for_writes_of(index) {
                    let existed = self.oracle.begin_delete(index);
                    self.send_single(Purpose::Delete(existed), key, index, forecast, arrival);
                }
            }
            Operation::ReadModifyWrite => {
                if self.wait_for_writes_of(index) {
                    self.read_to_write.push(index);
                    self.send_single(Purpose::ReadToWrite, key, index, forecast, arrival);
                }
            }
            Operation::Scan => unreachable!("a target with connections refuses scans"),
        }
    }

    fn write(&mut self, key: &[u8], index: u64, forecast: &Forecast, arrival: Option<u64>) {
        if !self.wait_for_writes_of(index) {
            return;
        }
        let value = self.oracle.begin_put_as(index, forecast);
        Request::Put.add_to(&mut self.writes.requests, key, value);
        self.writes.add(index, forecast, arrival);
        if self.writes.asked.len() >= self.worker.multi_put {
            self.send(Purpose::Write);
        }
    }

    fn send_single(
        &mut self,
        purpose: Purpose,
        key: &[u8],
        index: u64,
        forecast: &Forecast,
        arrival: Option<u64>,
    ) {
        purpose.request().add_to(&mut self.single.requests, key, &[]);
        self.single.add(index, forecast, arrival);
        self.send(purpose);
    }

    /// Waits until this worker writes a key no more, which another write might overtake. Returns whether the server is
    /// still there.
    fn wait_for_writes_of(&mut self, index: u64) -> bool {
        let (oracle, is_written) = (self.oracle, |this: &Self| this.read_to_write.contains(&index));
        if oracle.observe(index).in_flight() {
            self.send_gathered_writes();
        }
        while (oracle.observe(index).in_flight() || is_written(self)) && !self.is_gone() {
            self.wait();
        }
        !self.is_gone()
    }

    fn send_gathered_writes(&mut self) {
        if !self.writes.asked.is_empty() {
            self.send(Purpose::Write);
        }
    }

    /// Sends what was gathered for a purpose over an idle connection.
    fn send(&mut self, purpose: Purpose) {
        while self.idle.is_empty() && !self.is_gone() {
            self.wait();
        }
        let Some(place) = self.idle.pop_front() else { return };
        let gathered = match purpose {
            Purpose::Read => &mut self.reads,
            Purpose::Write => &mut self.writes,
            _ => &mut self.single,
        };
        let call = &mut self.calls[place];
        // The keys of the last call are gone, and their memory takes the next ones.
        std::mem::swap(&mut call.asked, &mut gathered.asked);
        for one in &mut call.asked {
            one.before = self.oracle.observe(one.index);
        }
        (call.purpose, call.answered, call.counts) = (purpose, 0, self.counts);
        (call.earlier_ns, call.refusal) = (0, None);
        if self.counts {
            self.begun += call.asked.len() as u64;
        }
        call.start = self.worker.start(gathered.arrival.take());
        if let Err(sentence) = self.connections.send(place, &mut gathered.requests) {
            self.fail(place, &sentence);
        }
    }

    /// Waits for answers. A server that has none for too long is gone.
    fn wait(&mut self) {
        if self.receive(self.connections.patience()) || self.is_gone() {
            return;
        }
        let silent = self.calls.iter().position(|call| !call.asked.is_empty()).unwrap_or(0);
        let sentence = self.connections.named(silent, &self.connections.silence());
        self.mistaken(silent, &Gone(sentence).into());
    }

    /// Takes the answers that have come, or that come within so long; whether any have.
    fn receive(&mut self, at_most: Duration) -> bool {
        let has_come = match self.connections.wait(at_most) {
            Ok(has_come) => has_come,
            Err(sentence) => {
                self.mistaken(0, &Gone(sentence).into());
                return false;
            }
        };
        while let Some(place) = self.connections.next_ready() {
            // The system also tells that an idle connection has room, or has ended. The next call finds the end.
            if !self.calls[place].asked.is_empty() {
                self.take(place);
            }
        }
        has_come
    }

    /// Takes the answers that have come over a connection.
    fn take(&mut self, place: usize) {
        loop {
            match self.connections.receive(place) {
                Ok(true) => {}
                Ok(false) => return,
                Err(sentence) => return self.fail(place, &sentence),
            }
            let now = self.worker.clock.as_ref().map_or(0, Clock::raw);
            match self.judge(place) {
                Ok(true) => return self.end(place, now),
                Ok(false) => {}
                Err(sentence) => return self.fail(place, &sentence),
            }
        }
    }

    /// Judges the answers to a call that have come; whether all have. The error is that of the connection.
    fn judge(&mut self, place: usize) -> Result<bool, String> {
        let (oracle, call) = (self.oracle, &mut self.calls[place]);
        let request = call.purpose.request();
        while let Some(Pending { index, before, forecast }) = call.asked.get(call.answered) {
            let Some(answer) = self.connections.answer(place, request)? else { return Ok(false) };
            call.answered += 1;
            match answer {
                Answer::Found(value) => {
                    if !oracle.accepts_as(*index, *before, value, forecast) {
                        let mistakes = &mut self.worker.buffers.tally.mistakes;
                        mistakes.add(|| wrong_answer("get", *index, value.is_some()));
                    }
                }
                Answer::Stored => oracle.finish(*index),
                Answer::Deleted(did_exist) => {
                    oracle.finish(*index);
                    let existed = call.purpose == Purpose::Delete(true);
                    self.worker.judge_delete(*index, existed, Ok(did_exist));
                }
                Answer::Refused(sentence) => {
                    if request != Request::Get {
                        oracle.finish(*index);
                    }
                    call.refusal.get_or_insert(sentence);
                }
            }
        }
        Ok(true)
    }

    /// Ends a call, all of whose answers came until `now`.
    fn end(&mut self, place: usize, now: u64) {
        if let Err(sentence) = self.connections.end(place) {
            return self.fail(place, &sentence);
        }
        if let Some(sentence) = self.calls[place].refusal.take() {
            let sentence = self.connections.named(place, &sentence);
            self.mistaken(place, &sentence.into());
        }
        match self.calls[place].purpose {
            Purpose::ReadToWrite => self.write_what_was_read(place, now),
            _ => self.close(place, now),
        }
    }

    /// Ends a call whose connection has failed, and connects anew. The server is gone if it takes no connection.
    fn fail(&mut self, place: usize, sentence: &str) {
        let sentence = self.connections.named(place, sentence);
        let error: TargetError = match self.connections.replace(place) {
            Ok(()) => sentence.into(),
            Err(reason) => Gone(format!("{sentence}, and {reason}")).into(),
        };
        self.mistaken(place, &error);
        let Call { purpose, asked, answered, .. } = &self.calls[place];
        match purpose {
            Purpose::Read => {}
            Purpose::ReadToWrite => self.read_to_write.retain(|index| *index != asked[0].index),
            _ => asked[*answered..].iter().for_each(|one| self.oracle.finish(one.index)),
        }
        self.close(place, self.worker.clock.as_ref().map_or(0, Clock::raw));
    }

    /// Notes that a call has failed.
    fn mistaken(&mut self, place: usize, error: &TargetError) {
        let call = &self.calls[place];
        let index = call.asked.first().map_or(0, |one| one.index);
        self.worker.buffers.tally.mistakes.fail(call.purpose.name(), index, error);
    }

    /// Sends the second half of an operation. Its latency leaves out the check between the halves.
    fn write_what_was_read(&mut self, place: usize, now: u64) {
        let call = &mut self.calls[place];
        let index = call.asked[0].index;
        self.read_to_write.retain(|read| *read != index);
        let value = self.oracle.begin_put(index);
        let request = &mut self.second_half;
        Request::Put.add_to(request, self.oracle.key_in(index, &mut self.room), value);
        call.earlier_ns = self.worker.clock.as_ref().map_or(0, |clock| clock.delta_as_nanos(call.start, now));
        (call.purpose, call.answered) = (Purpose::WriteWhatWasRead, 0);
        call.start = self.worker.start(None);
        if let Err(sentence) = self.connections.send(place, request) {
            self.fail(place, &sentence);
        }
    }

    /// Counts a call that has ended, and leaves its connection to the next one.
    fn close(&mut self, place: usize, now: u64) {
        let (worker, call) = (&mut *self.worker, &mut self.calls[place]);
        if call.counts {
            let tally = &mut worker.buffers.tally;
            tally.operations += call.asked.len() as u64;
            if let Some(clock) = &worker.clock {
                let ns = call.earlier_ns + clock.delta_as_nanos(call.start, now);
                let latencies = if call.purpose.is_read() { &mut tally.read_ns } else { &mut tally.write_ns };
                latencies.saturating_record(ns);
            }
        }
        call.asked.clear();
        self.idle.push_back(place);
    }
}

#[cfg(test)]
mod tests;
