//! Memtables of all databases, which share a bound.
//!
//! Once all memtables together reach their bound, RocksDB flushes that of the database which is written to, even if
//! this memtable is nearly empty and idle databases hold the rest. Each write would flush then. So writers flush the
//! largest memtable of all databases before that.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ziptier_rocksdb::host::{Database, Memory};

/// The share of the bound at which the largest memtable is flushed. RocksDB flushes by itself at 7/8, and at 1/2 while
/// flushes that are under way hold the rest.
const SHARE_MAX: f64 = 0.5;

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
    /// Begins to flush the largest memtable if all together are near their bound. The next write of a database whose
    /// flush fails says why.
    pub(super) fn make_room(&self) {
        let Memtables { memory, databases } = &*self.memtables;
        if memory.unflushed_share() < SHARE_MAX {
            return;
        }
        // Another thread is about to make room.
        let Ok(databases) = databases.try_lock() else { return };
        let bytes = |database: &Arc<Database>| database.property_number(c"rocksdb.cur-size-active-mem-table");
        if let Some(largest) = databases.iter().filter_map(Weak::upgrade).max_by_key(bytes) {
            let _ = largest.begin_flush();
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut databases = self.memtables.databases.lock().unwrap_or_else(PoisonError::into_inner);
        databases.retain(|database| !Weak::ptr_eq(database, &self.database));
    }
}
