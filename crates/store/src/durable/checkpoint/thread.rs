//! The thread that makes checkpoints when they are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Error;
use crate::core::Core;

/// How often it looks whether a checkpoint is due.
const NAP: Duration = Duration::from_millis(100);
/// How long it waits after a checkpoint that failed.
const FAILED_PAUSE: Duration = Duration::from_secs(10);
/// The same where it had no room in segments: without cleaning it may have.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Makes checkpoints of a store until it is dropped.
pub(crate) struct CheckpointThread {
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CheckpointThread {
    /// For a store that has recovered.
    pub(crate) fn start(core: Arc<Core>) -> Result<Self, Error> {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let stopping = is_stopping.clone();
        let thread = std::thread::Builder::new()
            .name("ziptier-checkpoint".to_owned())
            .spawn(move || work(&core, &stopping))
            .map_err(|error| Error::Thread { reason: error.to_string() })?;
        Ok(Self { is_stopping, thread: Some(thread) })
    }

    /// Has it look whether a checkpoint is due.
    pub(crate) fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

fn work(core: &Core, is_stopping: &AtomicBool) {
    let mut next = Instant::now();
    while !is_stopping.load(Ordering::Acquire) {
        let (Some(journal), Some(checkpointer)) = (core.journal.get(), core.checkpointer.get()) else {
            return;
        };
        if Instant::now() >= next
            && checkpointer.is_due(core, journal)
            && checkpointer.checkpoint(core, journal).is_err()
        {
            next = Instant::now() + if checkpointer.had_no_room() { FULL_PAUSE } else { FAILED_PAUSE };
        }
        std::thread::park_timeout(NAP);
    }
}

impl Drop for CheckpointThread {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "the checkpoint thread panicked");
        }
    }
}
