//! Memtables of all databases, which share a bound.
//!
//! Once all memtables together reach their bound, RocksDB flushes that of the database which is written to, even if
//! this memtable is nearly empty and idle databases hold the rest. Each write would flush then. So writers flush the
//! largest memtable of all databases before that.
//!
//! RocksDB bounds the memtables of one database by stopping its writers. Memtables of many databases would hold more
//! than RocksDB's memory while flushes are slow. So writers wait for a flush while all together are full.

use std::cmp::Reverse;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ziptier_rocksdb::host::{Database, Error, Memory};

/// The share of the bound at which the largest memtable is flushed. RocksDB flushes by itself at 7/8, and at 1/2 while
/// flushes that are under way hold the rest.
const SHARE_MAX: f64 = 0.5;
/// The bound times this is full: half of RocksDB's memory. Memtables that are being flushed count.
const FULL_TIMES: usize = 2;
/// Those that hold a database as long as it is open: its backend, and its log.
const HOLDERS: usize = 2;

/// The memtables.
pub(super) struct Memtables {
    memory: Arc<Memory>,
    databases: Mutex<Vec<Weak<Database>>>,
}

/// A database whose memtable counts until this is dropped. Afterwards no writer of another database uses this one.
pub(super) struct Listed {
    memtables: Arc<Memtables>,
    database: Weak<Database>,
}

impl Memtables {
    pub(super) fn new(memory: Arc<Memory>) -> Self {
        Self { memory, databases: Mutex::default() }
    }

    /// Counts the memtable of a database from now on.
    pub(super) fn list(self: &Arc<Self>, database: &Arc<Database>) -> Listed {
        let database = Arc::downgrade(database);
        self.databases.lock().unwrap_or_else(PoisonError::into_inner).push(Weak::clone(&database));
        Listed { memtables: Arc::clone(self), database }
    }
}

impl Listed {
    /// Whether the next write waits for a flush.
    pub(super) fn are_full(&self) -> bool {
        let Memtables { memory, databases } = &*self.memtables;
        // Another thread waits for a flush, or is about to.
        seem_full(memory) && databases.try_lock().map_or(true, |databases| are_full(memory, &databases))
    }

    /// Whether somebody still has a value of the database, which stays open until then. False also while another thread
    /// makes room.
    pub(super) fn is_read(&self) -> bool {
        // A thread that makes room holds databases under the lock.
        let databases = self.memtables.databases.try_lock();
        databases.is_ok() && self.database.strong_count() > HOLDERS
    }

    /// Begins to flush the largest memtable if all together are near their bound, and waits for a flush if they are
    /// full. The next write of a database whose flush fails in the background says why.
    ///
    /// # Errors
    ///
    /// That of a flush that was waited for, if no database can be flushed.
    pub(super) fn make_room(&self) -> Result<(), Error> {
        let Memtables { memory, databases } = &*self.memtables;
        if seem_full(memory) {
            // No database is closed meanwhile.
            let databases = databases.lock().unwrap_or_else(PoisonError::into_inner);
            if are_full(memory, &databases) {
                return flush_one(&databases);
            }
        }
        if memory.unflushed_share() < SHARE_MAX {
            return Ok(());
        }
        // Another thread is about to make room.
        let Ok(databases) = databases.try_lock() else { return Ok(()) };
        if let Some(database) = largest(&databases, ACTIVE) {
            let _ = database.begin_flush();
        }
        Ok(())
    }
}

/// Bytes of the memtable that is written to, and of all that have not been flushed.
const ACTIVE: &CStr = c"rocksdb.cur-size-active-mem-table";
const UNFLUSHED: &CStr = c"rocksdb.cur-size-all-mem-tables";

/// Whether all memtables in memory are full.
fn seem_full(memory: &Memory) -> bool {
    memory.memtable_bytes() >= FULL_TIMES * memory.memtable_bytes_max()
}

/// The same without those that are flushed and that readers hold: no flush makes room for these.
fn are_full(memory: &Memory, databases: &[Weak<Database>]) -> bool {
    let bytes = |database: Arc<Database>| database.property_number(UNFLUSHED).unwrap_or(0);
    let sum: u64 = databases.iter().filter_map(Weak::upgrade).map(bytes).sum();
    sum >= (FULL_TIMES * memory.memtable_bytes_max()) as u64
}

/// The database whose memtables have most bytes.
fn largest(databases: &[Weak<Database>], bytes: &CStr) -> Option<Arc<Database>> {
    databases.iter().filter_map(Weak::upgrade).max_by_key(|database| database.property_number(bytes))
}

/// Flushes the database whose memtables have most bytes, or the next one if that cannot be flushed.
fn flush_one(databases: &[Weak<Database>]) -> Result<(), Error> {
    let mut all: Vec<_> = databases.iter().filter_map(Weak::upgrade).collect();
    all.sort_by_cached_key(|database| Reverse(database.property_number(UNFLUSHED)));
    let mut outcome = Ok(());
    for database in all {
        outcome = database.flush_at_once();
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut databases = self.memtables.databases.lock().unwrap_or_else(PoisonError::into_inner);
        databases.retain(|database| !Weak::ptr_eq(database, &self.database));
    }
}
