//! RocksDB's write-ahead log, and when it is on the disk.
//!
//! Every write goes to the log without a sync. The page cache then has it, so that it outlives the process. In `always`
//! replies wait for a sync: once for all clients of a worker, and once for several workers that ask at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ziptier_rocksdb::host::Database;
use ziptier_server::BackendError;

use super::opening::Durability;

/// The log of a database.
pub(super) struct Log {
    state: Arc<State>,
    durability: Durability,
    /// The thread that syncs every second, which ends when the sender goes.
    keeper: Option<(Sender<()>, JoinHandle<()>)>,
}

struct State {
    database: Arc<Database>,
    /// Writes up to this number are on the disk.
    synced: AtomicU64,
    syncs: AtomicU64,
    /// The holder syncs.
    turn: Mutex<()>,
    /// The first failure. What a later sync says is worth nothing then: the system may have dropped what it could not
    /// write.
    failure: OnceLock<String>,
}

impl Log {
    /// Keeps the log of `database` from now on.
    ///
    /// # Errors
    ///
    /// If the system has no thread.
    pub(super) fn keep(database: Arc<Database>, durability: Durability) -> std::io::Result<Self> {
        let (synced, syncs) = (AtomicU64::new(0), AtomicU64::new(0));
        let state = State { database, synced, syncs, turn: Mutex::new(()), failure: OnceLock::new() };
        let state = Arc::new(state);
        let keeper = match durability {
            Durability::Everysec => Some(keeper(Arc::clone(&state))?),
            Durability::Always | Durability::No => None,
        };
        Ok(Self { state, durability, keeper })
    }

    pub(super) fn durability(&self) -> Durability {
        self.durability
    }

    /// Syncs since the start.
    pub(super) fn syncs(&self) -> u64 {
        self.state.syncs.load(Ordering::Relaxed)
    }

    /// Why the log failed, if it did.
    pub(super) fn failure(&self) -> Option<&str> {
        self.state.failure.get().map(String::as_str)
    }

    /// As if a sync had failed.
    #[cfg(test)]
    pub(super) fn fail(&self) {
        let _ = self.state.failure.set("made by a test".into());
    }

    /// Refuses writes after a failure.
    pub(super) fn check(&self) -> Result<(), BackendError> {
        self.state.check()
    }

    /// Returns when everything that any reader may have seen is on the disk.
    pub(super) fn sync(&self) -> Result<(), BackendError> {
        self.state.sync()
    }
}

impl State {
    fn check(&self) -> Result<(), BackendError> {
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => Err(BackendError::Refused(format!(
                "RocksDB's log has failed ({failure}); repair the disk and restart the server"
            ))),
        }
    }

    fn sync(&self) -> Result<(), BackendError> {
        let seen = self.database.latest_sequence();
        if self.synced.load(Ordering::Acquire) >= seen {
            return self.check();
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        // Another thread may have synced meanwhile, for this one, too.
        if self.synced.load(Ordering::Acquire) >= seen {
            return Ok(());
        }
        let seen = self.database.latest_sequence();
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.database.sync_log() {
            let _ = self.failure.set(error.to_string());
            return self.check();
        }
        self.synced.store(seen, Ordering::Release);
        Ok(())
    }
}

fn keeper(state: Arc<State>) -> std::io::Result<(Sender<()>, JoinHandle<()>)> {
    let (sender, ended) = channel::<()>();
    let thread = thread::Builder::new().name("rocksdb-log".into()).spawn(move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(1)) {
            // A failure is kept, and writes are refused from then on.
            let _ = state.sync();
        }
    })?;
    Ok((sender, thread))
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.keeper.take() {
            drop(sender);
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}
