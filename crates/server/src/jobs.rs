//! Runs requests that take long or need much memory, so that a worker's other clients do not wait for them.
//!
//! 1. A worker hands over a whole request with the client's number, or the next step of a long reply. The client's
//!    later requests wait.
//! 2. A thread runs the request as a worker would, and waits until its writes are durable.
//! 3. The reply goes to the worker's inbox.
//!
//! A worker that stops waits for the requests that run, and refuses those that still wait for a thread.
//!
//! One thread runs only short requests, so that a request of some milliseconds never waits for one of seconds.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::backend::{Chosen, Patience};
use crate::command::{self, Client, Session};
use crate::refusal::Refusal;
use crate::reply::{Output, Reply};
use crate::request::OwnedArgs;
use crate::shared::Shared;
use crate::streaming;

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
    /// `None` for the next step of the reply that the client has in `streaming`.
    pub(crate) request: Option<Arc<OwnedArgs>>,
    /// Bytes of the budget that the request or the reply holds.
    pub(crate) request_bytes: usize,
    pub(crate) length: Length,
}

impl Job {
    fn done(self, reply: Reply) -> Done {
        Done {
            key: self.key,
            id: self.client.info.id,
            resp3: reply.resp3,
            request_bytes: self.request_bytes,
            client: self.client,
            output: reply.output,
        }
    }

    fn refuse(mut self) -> Done {
        // A reply that waits for a step has not begun.
        self.client.streaming = None;
        let mut reply = Reply { resp3: self.resp3, ..Reply::default() };
        let has_begun = self.client.counted.keys > 0;
        let refusal = if has_begun { Refusal::STOPPED_WITHIN } else { Refusal::STOPPING };
        reply.error(&refusal);
        self.done(reply)
    }
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
    /// A thread has finished a request.
    finished: Condvar,
}

#[derive(Default)]
struct Queues {
    short: VecDeque<Job>,
    long: VecDeque<Job>,
    /// Requests that threads run.
    running: usize,
}

impl Jobs {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, job: Job) {
        let mut queues = self.queues();
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
        let _queues = self.queues();
        self.changed.notify_all();
    }

    /// Refuses the requests of a worker's clients that wait for a thread, because the server stops.
    pub(crate) fn refuse(&self, worker: usize) -> Vec<Done> {
        let mut queues = self.queues();
        let Queues { short, long, .. } = &mut *queues;
        let mut refused = Vec::new();
        for queue in [short, long] {
            let (own, others): (VecDeque<_>, _) =
                mem::take(queue).into_iter().partition(|job| job.worker == worker);
            *queue = others;
            refused.extend(own.into_iter().map(Job::refuse));
        }
        refused
    }

    /// Waits until no thread runs a request. All replies are in the workers' inboxes then.
    pub(crate) fn wait(&self) {
        let is_running = |queues: &mut Queues| queues.running > 0;
        drop(self.finished.wait_while(self.queues(), is_running).unwrap_or_else(PoisonError::into_inner));
    }

    /// The next one for a thread; `None` when the server stops. Long jobs go first, except on the thread that only runs
    /// short ones.
    fn next(&self, thread: usize, shared: &Shared) -> Option<Job> {
        let mut queues = self.queues();
        loop {
            if shared.is_stopping() {
                return None;
            }
            let long = if thread == SHORT_THREAD { None } else { queues.long.pop_front() };
            if let Some(job) = long.or_else(|| queues.short.pop_front()) {
                queues.running += 1;
                return Some(job);
            }
            queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs requests until the server stops; `thread` is the number of the caller among those that do.
    pub(crate) fn run(&self, thread: usize, shared: &Shared) {
        let mut value = Vec::new();
        while let Some(job) = self.next(thread, shared) {
            let _running = Running { jobs: self };
            let (worker, done) = (job.worker, run(job, thread, shared, &mut value));
            shared.finish(worker, done);
            value = Vec::new();
        }
    }
}

/// A request that a thread runs, until it is dropped: a panic ends the request, too.
struct Running<'a> {
    jobs: &'a Jobs,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.jobs.queues().running -= 1;
        self.jobs.finished.notify_all();
    }
}

fn run(mut job: Job, thread: usize, shared: &Shared, value: &mut Vec<u8>) -> Done {
    let mut reply = Reply { resp3: job.resp3, ..Reply::default() };
    let counters = &shared.counters[shared.config.threads + thread];
    let mut session = Session {
        shared,
        backend: shared.backend_of(&job.database),
        counters,
        client: &mut job.client,
        reply: &mut reply,
        value,
        request: job.request.as_ref(),
        patience: Patience::Endless,
    };
    let outcome = match &job.request {
        Some(request) => {
            command::run(&mut session, &request.args());
            Ok(())
        }
        None => streaming::go_on(&mut session),
    };
    if outcome.is_err() {
        (job.client.streaming, job.client.closing) = (None, true);
    }
    if let Err(error) = shared.backend.wait()
        && job.client.may_tell_what_is_lost(shared, &job.database)
    {
        reply.output = Output::default();
        reply.error(&Refusal::not_known(&error));
        (job.client.streaming, job.client.closing) = (None, true);
    }
    job.done(reply)
}
