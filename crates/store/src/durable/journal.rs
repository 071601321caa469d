//! The log in the store's write path.
//!
//! Not for the bytes of the log: `media::log` owns those.
//!
//! 1. A write takes its number (LSN) under the writer lock of its leaf. The write is certain to be applied then, and no
//!    reader can see it yet.
//! 2. The log therefore has the writes of a leaf in their order.
//! 3. A thread that has seen a write finds its number at or below [`WriteLog::newest`], and waits for that number.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ziptier_media::disk::DirLock;
use ziptier_media::log::{Keeper, Log, LogError, Lsn};
use ziptier_tree::clock::is_simulated;
use ziptier_tree::host::Journal;
use ziptier_tree::operation::Operation;

use super::operation::Heads;
use super::{Durability, DurableStats};
use crate::Error;

/// How often `everysec` syncs.
const SYNC_EVERY: Duration = Duration::from_secs(1);

thread_local! {
    static HEADS: RefCell<Heads> = RefCell::default();
}

/// The open log of a store.
pub(crate) struct WriteLog {
    log: Arc<Log>,
    durability: Durability,
    /// Calls wait themselves for what the durability promises.
    waits: bool,
    /// The newest number that was given out: raised before a reader can see what has it.
    newest: AtomicU64,
    /// Up to here the system has the log, as far as anybody asked.
    written: AtomicU64,
    /// Syncs the log and prepares its segments until the journal is closed.
    keeper: Mutex<Option<Keeper>>,
    /// Keep other processes out of the folder, and out of that of segments.
    _locks: Vec<Box<dyn DirLock>>,
}

impl Journal for WriteLog {
    fn wait_for_room(&self) -> Result<(), ziptier_tree::Error> {
        Ok(self.log.wait_for_room().map_err(Error::from)?)
    }

    fn append(&self, operation: &Operation<'_>) -> Result<(), ziptier_tree::Error> {
        HEADS.with_borrow_mut(|heads| {
            let value = heads.lay_out_one(operation);
            Ok(self.note(self.log.append(&[heads.bytes(), value]))?)
        })
    }

    fn append_all(
        &self,
        operations: &mut dyn Iterator<Item = Operation<'_>>,
    ) -> Result<(), ziptier_tree::Error> {
        HEADS.with_borrow_mut(|heads| {
            let appended = heads.lay_out(operations, |parts| self.note(self.log.append(parts)));
            heads.give_back();
            Ok(appended?)
        })
    }
}

impl WriteLog {
    pub(crate) fn start(
        log: Log,
        durability: Durability,
        waits: bool,
        locks: Vec<Box<dyn DirLock>>,
    ) -> Result<Self, Error> {
        let log = Arc::new(log);
        let newest = log.last_lsn();
        let sync_every = (durability == Durability::Everysec).then_some(SYNC_EVERY);
        let keeper = (!is_simulated())
            .then(|| Keeper::start(log.clone(), sync_every))
            .transpose()
            .map_err(|error| Error::Thread { reason: error.to_string() })?;
        Ok(Self {
            log,
            durability,
            waits,
            newest: AtomicU64::new(newest),
            written: AtomicU64::new(newest),
            keeper: Mutex::new(keeper),
            _locks: locks,
        })
    }

    fn note(&self, appended: Result<Lsn, LogError>) -> Result<(), Error> {
        self.newest.fetch_max(appended?, Ordering::AcqRel);
        Ok(())
    }

    /// The newest number that was given out. Every record that a reader has seen has this number or a smaller one.
    pub(crate) fn newest(&self) -> Lsn {
        self.newest.load(Ordering::Acquire)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Whether calls wait themselves.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Returns when everything that the caller has written or seen is as durable as was promised.
    ///
    /// # Errors
    /// A write or sync of the log failed, now or earlier: nobody knows what the disk holds.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        let newest = self.newest();
        if self.durability == Durability::Always {
            return Ok(self.log.sync(newest)?);
        }
        if self.written.load(Ordering::Acquire) < newest {
            self.log.write(newest)?;
            self.written.fetch_max(newest, Ordering::AcqRel);
        }
        Ok(())
    }

    /// As [`WriteLog::wait`], for records that were only read. The end of the process loses none of them, so a failure
    /// is an error only if they were promised to be on the medium.
    pub(crate) fn wait_for_seen(&self) -> Result<(), Error> {
        let waited = self.wait();
        if self.durability == Durability::Always { waited } else { Ok(()) }
    }

    /// The log itself, for checkpoints.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Marks a clean stop: everything is durable, and further writes are refused.
    pub(crate) fn seal(&self) -> Result<(), Error> {
        drop(self.keeper.lock().take());
        match self.log.seal() {
            Err(LogError::Sealed) => Ok(()),
            sealed => Ok(sealed?),
        }
    }

    pub(crate) fn stats(&self) -> DurableStats {
        let log = self.log.stats();
        DurableStats {
            durability: self.durability,
            durable_after: self.log.durable_after(),
            log_records: log.records,
            log_written_bytes: log.written_bytes,
            log_allocated_bytes: log.allocated_bytes,
            log_syncs: log.syncs,
            first_lsn: self.log.first_lsn(),
            last_lsn: log.last_lsn,
            durable_lsn: log.durable_lsn,
            failure: self.log.failure(),
            refusal: self.log.refusal(),
        }
    }
}
