//! Reads by `io_uring`. Any thread submits, and one thread takes the completions.

use super::reads::{Done, ReadJob, deliver};
use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Reads under way at once; further ones wait.
const DEPTH: usize = 128;

/// The user data of the request that ends the thread.
const STOP: u64 = u64::MAX;

pub(super) struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ring: IoUring,
    state: Mutex<State>,
}

/// The state under the ring's lock. Only the holder of the lock touches the submission queue.
struct State {
    /// Reads under way. The kernel may write into a job's pages until its completion is taken from the queue. A job
    /// stays in its slot until then.
    slots: Vec<Option<(ReadJob, Done)>>,
    free: Vec<usize>,
    waiting: VecDeque<(ReadJob, Done)>,
}

impl Ring {
    /// `None` if the kernel does not offer `io_uring`, or not to this process.
    pub(super) fn start() -> Option<Ring> {
        let ring = IoUring::new(DEPTH as u32 * 2).ok()?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        if !probe.is_supported(opcode::Read::CODE) {
            return None;
        }
        let slots = (0..DEPTH).map(|_| None).collect();
        let state = State { slots, free: (0..DEPTH).collect(), waiting: VecDeque::new() };
        let shared = Arc::new(Shared { ring, state: Mutex::new(state) });
        let reaper = shared.clone();
        let serve = move || reaper.serve();
        let thread = std::thread::Builder::new().name("segment reader".to_string()).spawn(serve).ok()?;
        Some(Ring { shared, thread: Some(thread) })
    }

    pub(super) fn submit(&self, job: ReadJob, done: Done) {
        let mut state = self.shared.state.lock();
        state.waiting.push_back((job, done));
        self.shared.submit_waiting(&mut state);
    }
}

impl Shared {
    /// Gives the kernel as many waiting reads as there are slots.
    fn submit_waiting(&self, state: &mut State) {
        let mut count = 0;
        while let Some(slot) = state.free.pop() {
            let Some((mut job, done)) = state.waiting.pop_front() else {
                state.free.push(slot);
                break;
            };
            let descriptor = job.file.file.descriptor().map_or(-1, |file| file.as_raw_fd());
            // The pages have less than 4 GiB, because a body has at most 1 GiB.
            let read =
                opcode::Read::new(types::Fd(descriptor), job.pages.as_mut_ptr(), job.pages.len() as u32);
            let entry = read.offset(job.start).build().user_data(slot as u64);
            state.slots[slot] = Some((job, done));
            self.push(&entry, state);
            count += 1;
        }
        if count > 0 {
            // The thread may already be waiting for a completion that would never come.
            until_taken(|| self.ring.submit());
        }
    }

    /// Puts a request into the submission queue; `_state` proves that its lock is held.
    fn push(&self, entry: &io_uring::squeue::Entry, _state: &mut State) {
        // SAFETY: the lock of the state is held, so no other thread uses the submission queue. The buffer of a read
        // belongs to a job. The job stays in its slot, and keeps its file open, until the completion arrives. The bytes
        // of the buffer are on the heap and never move. The queue has room: twice as many entries as slots, for one
        // request per slot and one more.
        unsafe {
            let pushed = self.ring.submission_shared().push(entry);
            debug_assert!(pushed.is_ok(), "the submission queue has room for every slot");
        }
    }

    /// Takes completions until the request to stop, and then until no read is under way.
    fn serve(&self) {
        let mut is_stopping = false;
        loop {
            let _ = self.ring.submit_and_wait(1);
            loop {
                // SAFETY: only this thread uses the completion queue.
                let completion = unsafe { self.ring.completion_shared().next() };
                let Some(completion) = completion else { break };
                if completion.user_data() == STOP {
                    is_stopping = true;
                } else {
                    self.complete(completion.user_data() as usize, completion.result());
                }
            }
            let state = self.state.lock();
            if is_stopping && state.free.len() == DEPTH && state.waiting.is_empty() {
                return;
            }
        }
    }

    fn complete(&self, slot: usize, result: i32) {
        let taken = {
            let mut state = self.state.lock();
            let taken = state.slots[slot].take();
            state.free.push(slot);
            self.submit_waiting(&mut state);
            taken
        };
        if let Some((job, done)) = taken {
            // After a short or failed read, a plain read repeats it: that one continues short reads and names the
            // error.
            let is_whole = usize::try_from(result).is_ok_and(|count| count == job.pages.len());
            deliver(done, if is_whole { job.verify(job.pages.len()) } else { job.read() });
        }
    }
}

/// Submits again while the kernel lacks resources for a submission. It never lacks room for completions: that queue has
/// twice as many entries.
fn until_taken(mut submit: impl FnMut() -> io::Result<usize>) {
    let is_short = |error: io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::Interrupted
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::ResourceBusy
                | io::ErrorKind::OutOfMemory
        )
    };
    while submit().is_err_and(is_short) {
        std::thread::yield_now();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            self.shared.push(&opcode::Nop::new().build().user_data(STOP), &mut state);
            until_taken(|| self.shared.ring.submit());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_take_at_once_is_submitted_again() {
        for (refusals, error) in [
            (3, io::ErrorKind::WouldBlock),
            (2, io::ErrorKind::Interrupted),
            (0, io::ErrorKind::InvalidInput),
        ] {
            let mut calls = 0;
            until_taken(|| {
                calls += 1;
                if calls <= refusals.max(1) { Err(error.into()) } else { Ok(1) }
            });
            assert_eq!(calls, refusals + 1, "{error}");
        }
    }
}
