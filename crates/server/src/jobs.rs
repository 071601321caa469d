//! Runs requests that take long or need much memory, so that a worker's other clients do not wait for them.
//!
//! 1. A worker hands over a whole request with the client's number. The client's later requests wait.
//! 2. A thread runs the request as a worker would, and waits until its writes are durable.
//! 3. The reply goes to the worker's inbox.
//!
//! One thread runs only short requests, so that a request of some milliseconds never waits for one of seconds.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::backend::Chosen;
use crate::command::{self, Client, Session};
use crate::refusal::Refusal;
use crate::reply::{Output, Reply};
use crate::request::OwnedArgs;
use crate::shared::Shared;

/// Threads, and so requests that run at the same time.
pub(crate) const THREADS: usize = 4;

/// The thread that runs short requests alone.
const SHORT_THREAD: usize = 0;

/// How long a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// As long as coding a MiB, or as some thousand look-ups.
    Short,
    /// Seconds, or any length of time because the request waits for others.
    Long,
}

/// A request, and its client.
pub(crate) struct Job {
    /// The worker, and the client's place there.
    pub(crate) worker: usize,
    pub(crate) key: usize,
    pub(crate) client: Client,
    pub(crate) resp3: bool,
    /// The database that the client uses.
    pub(crate) database: Chosen,
    pub(crate) request: Arc<OwnedArgs>,
    /// Bytes of the budget that the request holds.
    pub(crate) request_bytes: usize,
    pub(crate) length: Length,
}

/// The result of a request.
pub(crate) struct Done {
    pub(crate) key: usize,
    pub(crate) id: u64,
    pub(crate) resp3: bool,
    /// Bytes of the budget that the request held. The client gives them back if it is still there.
    pub(crate) request_bytes: usize,
    /// The client after the request.
    pub(crate) client: Client,
    pub(crate) output: Output,
}

/// Requests that wait for a thread.
#[derive(Default)]
pub(crate) struct Jobs {
    queues: Mutex<Queues>,
    changed: Condvar,
}

#[derive(Default)]
struct Queues {
    short: VecDeque<Job>,
    long: VecDeque<Job>,
}

impl Jobs {
    pub(crate) fn push(&self, job: Job) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        match job.length {
            Length::Short => queues.short.push_back(job),
            Length::Long => queues.long.push_back(job),
        }
        drop(queues);
        // All threads are woken, because not every thread takes every job.
        self.changed.notify_all();
    }

    /// Makes every thread look whether the server stops.
    pub(crate) fn wake(&self) {
        // The lock prevents that a thread checks the queues just before, and then waits.
        let _queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
    }

    /// The next one for a thread; `None` when the server stops. Long jobs go first, except on the thread that only runs
    /// short ones.
    fn next(&self, thread: usize, shared: &Shared) -> Option<Job> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if shared.is_stopping() {
                return None;
            }
            let long = if thread == SHORT_THREAD { None } else { queues.long.pop_front() };
            if let Some(job) = long.or_else(|| queues.short.pop_front()) {
                return Some(job);
            }
            queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs requests until the server stops; `thread` is the number of the caller among those that do.
    pub(crate) fn run(&self, thread: usize, shared: &Shared) {
        let mut value = Vec::new();
        while let Some(job) = self.next(thread, shared) {
            let (worker, done) = (job.worker, run(job, thread, shared, &mut value));
            shared.finish(worker, done);
            value = Vec::new();
        }
    }
}

fn run(job: Job, thread: usize, shared: &Shared, value: &mut Vec<u8>) -> Done {
    let mut client = job.client;
    let mut reply = Reply { resp3: job.resp3, ..Reply::default() };
    let counters = &shared.counters[shared.config.threads + thread];
    let mut session = Session {
        shared,
        backend: shared.backend_of(&job.database),
        counters,
        client: &mut client,
        reply: &mut reply,
        value,
        request: Some(&job.request),
    };
    command::run(&mut session, &job.request.args());
    if let Err(error) = shared.backend.wait()
        && client.rests_on_log
    {
        reply.output = Output::default();
        reply.error(&Refusal::not_known(&error));
        (client.streaming, client.closing) = (None, true);
    }
    let (id, resp3, request_bytes) = (client.info.id, reply.resp3, job.request_bytes);
    Done { key: job.key, id, resp3, request_bytes, client, output: reply.output }
}
