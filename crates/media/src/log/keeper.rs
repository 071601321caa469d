//! Runs a thread that syncs the log once a second, and keeps a spare segment ready.

use super::Log;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which the keeper checks for a spare segment. A fast disk fills the usual segment in about this time.
const LOOK: Duration = Duration::from_millis(100);

/// Keeps a log until it is dropped: syncs it at an interval, and makes spare segments before they are needed.
///
/// A failed sync poisons the log, and the next call on the log returns the failure. If the disk has no room for what is
/// to be written, the keeper tries again at the next interval. If the disk refuses a segment, the append that needs the
/// segment returns the error.
#[derive(Debug)]
pub struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread. Without `sync_every` the thread only prepares segments.
    ///
    /// # Errors
    ///
    /// The system's error, if it refuses a thread.
    pub fn start(log: Arc<Log>, sync_every: Option<Duration>) -> std::io::Result<Keeper> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("log keeper".to_string()).spawn(move || {
            let mut synced_at = Instant::now();
            let pause = sync_every.map_or(LOOK, |every| every.min(LOOK));
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                // The sync comes first, because users count on its interval and a segment may take long to make.
                if sync_every.is_some_and(|every| synced_at.elapsed() >= every) {
                    synced_at = Instant::now();
                    if log.sync(log.last_lsn()).is_err() && log.failure().is_some() {
                        return;
                    }
                }
                // The append that finds no room returns this error again, to a caller.
                let _ = log.prepare_segment();
            }
        })?;
        Ok(Keeper { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
