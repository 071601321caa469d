//! A thread that syncs the log once a second, and keeps a spare segment ready.

use super::Log;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the keeper looks whether a spare segment is needed: a fast disk fills the usual segment in about this
/// time.
const LOOK: Duration = Duration::from_millis(100);

/// Keeps a log until it is dropped: syncs it at an interval, and makes spare segments before they are needed.
///
/// A sync that fails poisons the log, which its next user learns; a segment that is refused is told by the append that
/// needs it.
#[derive(Debug)]
pub struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread. Without `sync_every` it only prepares segments.
    ///
    /// # Errors
    ///
    /// The system's, if it refuses a thread.
    pub fn start(log: Arc<Log>, sync_every: Option<Duration>) -> std::io::Result<Keeper> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("log keeper".to_string()).spawn(move || {
            let mut synced_at = Instant::now();
            let pause = sync_every.map_or(LOOK, |every| every.min(LOOK));
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                // First the sync, which somebody counts on: a segment may take long to make.
                if sync_every.is_some_and(|every| synced_at.elapsed() >= every) {
                    synced_at = Instant::now();
                    if log.sync(log.last_lsn()).is_err() {
                        return;
                    }
                }
                // Told again, and to somebody, by the append that finds no room.
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
