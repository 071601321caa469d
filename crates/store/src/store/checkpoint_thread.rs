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
    core: Arc<Core>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CheckpointThread {
    /// For a store that has recovered.
    pub(crate) fn start(core: Arc<Core>) -> Result<Self, Error> {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (stopping, own) = (is_stopping.clone(), core.clone());
        let thread = std::thread::Builder::new()
            .name("ziptier-checkpoint".to_owned())
            .spawn(move || work(&core, &stopping))
            .map_err(|error| Error::Thread { reason: error.to_string() })?;
        own.checkpointer.get().inspect(|checkpointer| checkpointer.wake_by(thread.thread().clone()));
        Ok(Self { core: own, is_stopping, thread: Some(thread) })
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
        // No pause holds up writers that wait for room.
        if (Instant::now() >= next || checkpointer.holds_up_writers())
            && checkpointer.is_due(&core.tree.gauges, journal)
            && checkpointer.checkpoint(core.moves(), journal).is_err()
        {
            next = Instant::now() + if checkpointer.had_no_room() { FULL_PAUSE } else { FAILED_PAUSE };
        }
        std::thread::park_timeout(NAP);
    }
}

impl Drop for CheckpointThread {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        if let Some(checkpointer) = self.core.checkpointer.get() {
            checkpointer.stop();
        }
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "the checkpoint thread panicked");
        }
    }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use ziptier_media::testing::RecordingDisk;
    use ziptier_testing::until;

    use crate::{DiskHandle, DurableOptions, Error, Options, Store};

    #[test]
    fn a_stop_ends_a_checkpoint_that_is_being_made() {
        let mut durable = DurableOptions::new("/data");
        durable.disk = DiskHandle(std::sync::Arc::new(RecordingDisk::new()));
        durable.log.segment_bytes = 1 << 20;
        let options = Options { background_threads: 0, durable: Some(durable), ..Options::default() };
        let store = Store::open(options.clone()).unwrap();
        for n in 0..3000_u32 {
            store.put(&n.to_be_bytes(), &[7; 100]).unwrap();
        }
        std::thread::scope(|scope| {
            let guard = store.core.tree.pin();
            // The walk waits for the lock of a leaf.
            let locked = store.core.tree.lock_leaf(b"", &guard);
            let making = scope.spawn(|| store.checkpoint());
            until("it has begun", || store.checkpoint_stats().unwrap().is_running);
            store.stop_checkpoints();
            drop(locked);
            assert_eq!(making.join().unwrap(), Err(Error::Stopping));
        });
        let written = store.checkpoint_stats().unwrap().segment_written_bytes;
        assert_eq!(store.checkpoint(), Err(Error::Stopping));
        let stats = store.checkpoint_stats().unwrap();
        assert_eq!((stats.segment_written_bytes, stats.checkpoints, stats.failed), (written, 0, 2));
        store.close().unwrap();
        assert_eq!(Store::open(options).unwrap().len(), 3000);
    }
}
