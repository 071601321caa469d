//! `ziptier serve --backend rocksdb`: a stock RocksDB behind the server.
//!
//! RocksDB alone reads, writes, compresses and recovers. This module adds what the server's commands promise beyond it:
//!
//! - `locks`: changes of a key that read it first are atomic
//! - `log`: replies wait for the write-ahead log, once for all clients of a worker
//! - `opening`: options, the folder, memory
//! - `databases`: databases by name, which share memory
//! - `memtables`: flushes of idle databases
//!
//! RocksDB keeps no expiries here and evicts nothing. Commands that ask for either are refused.

mod databases;
mod locks;
mod log;
mod memtables;
mod opening;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use ziptier::KEY_BYTES_MAX;
use ziptier_rocksdb::host::{
    BYTES_AT_ONCE, Database, Error, Memory, Pinned, ScanOptions, Values, WriteBatch,
};
use ziptier_server::backend::{Borrowed, Change, EachRecord, EachValue, Grant};
use ziptier_server::{
    Backend, BackendError, Databases, MemoryUse, Meta, Need, Old, Operation, Patience, Save, Saving,
    Transfer, Transferred, Update, ValueReader,
};

use databases::Named;
use locks::{Held, Locks};
use log::Log;
use memtables::Listed;
pub(crate) use opening::{Durability, Options, has_databases_alone};

/// Values up to this size are read to be changed; longer ones are opened, so that there is room for them first.
const WHOLE_BYTES_MAX: usize = 2 << 10;
/// RocksDB's memory is never less.
const MEMORY_BYTES_MIN: usize = 1 << 20;
/// Of the store's part of the memory limit, RocksDB's cache leaves one part in this many free: for the rest of RocksDB,
/// and for requests.
const SPARE_PART: u64 = 4;
/// Values, deleted ones among them, that a walk passes on a thread that other clients wait for: some milliseconds.
const PASSED_MAX: u64 = 4 << 10;
/// RocksDB's memory without a limit.
const MEMORY_BYTES_UNLIMITED: u64 = 1 << 30;

/// Bytes of cached blocks and memtables under the store's part of a memory limit.
fn memory_bytes(limit_bytes: Option<u64>) -> usize {
    let bytes = limit_bytes.map_or(MEMORY_BYTES_UNLIMITED, |bytes| bytes - bytes / SPARE_PART);
    usize::try_from(bytes).unwrap_or(usize::MAX).max(MEMORY_BYTES_MIN)
}

/// A database of RocksDB as a [`Backend`].
pub(crate) struct RocksDbBackend {
    // Both are dropped first: others use the database by them.
    log: Log,
    memtable: Listed,
    database: Arc<Database>,
    /// The other databases, in the one that every client begins with.
    named: Option<Named>,
    memory: Arc<Memory>,
    locks: Locks,
    compression: String,
    limit_bytes: Option<u64>,
    files_max: u64,
    last_save_ms: AtomicU64,
    /// Walks that ended early, for a thread of their own.
    cut_walks: AtomicU64,
    /// The values of the last group of keys were too long for one look-up. RocksDB reads the blocks of all keys before
    /// it counts the bytes of their values.
    meets_long: AtomicBool,
    /// The server stops, and would wait for a count of all keys.
    is_stopping: AtomicBool,
}

fn refused(error: Error) -> BackendError {
    match error {
        Error::PassesMany => BackendError::TakesLong,
        error => BackendError::Refused(error.to_string()),
    }
}

/// Refuses new keys that the store refuses, in its words. Cursors and walks hold keys.
fn check_key(key: &[u8]) -> Result<(), BackendError> {
    match key.len() {
        0 => Err(ziptier::Error::EmptyKey.into()),
        1..=KEY_BYTES_MAX => Ok(()),
        len => Err(ziptier::Error::KeyTooLong { len }.into()),
    }
}

fn without_expiry(expires_at_ms: Option<u64>) -> Result<(), BackendError> {
    match expires_at_ms {
        None => Ok(()),
        Some(_) => Err(BackendError::Refused(
            "the backend rocksdb keeps no expiries; set the key without one, or serve --backend store".into(),
        )),
    }
}

fn meta(len: usize) -> Meta {
    Meta { len: len as u64, expires_at_ms: None }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// A walk over all keys reads no more values than it must, and pushes nobody's blocks out of the cache.
const ALL_KEYS: ScanOptions<'static> =
    ScanOptions { to: None, keys_only: true, spares_cache: true, passed_max: 0 };

/// The first key behind `key`.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}

/// A value where RocksDB has it.
struct Reader(Pinned);

impl ValueReader for Reader {
    fn len(&self) -> u64 {
        self.0.value().len() as u64
    }

    /// RocksDB holds the value for this reader.
    fn own_bytes(&self) -> usize {
        self.0.value().len()
    }

    fn read_at(&mut self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), BackendError> {
        Borrowed(self.0.value()).read_at(offset, len, out)
    }
}

impl RocksDbBackend {
    fn exists(&self, key: &[u8]) -> Result<bool, BackendError> {
        Ok(self.meta(key)?.is_some())
    }

    fn number(&self, name: &std::ffi::CStr) -> u64 {
        self.database.property_number(name).unwrap_or(0)
    }

    /// Prepares for a write, or refuses it.
    fn admit(&self) -> Result<(), BackendError> {
        self.log.check()?;
        self.memtable.make_room().map_err(refused)
    }

    /// Performs operations whose keys the caller holds.
    fn perform(&self, _held: &Held<'_>, operations: &[Operation<'_>]) -> Result<bool, BackendError> {
        let mut batch = WriteBatch::new(&self.database);
        for operation in operations {
            if let Operation::Put { key, .. } = operation {
                check_key(key)?;
            }
        }
        for operation in operations {
            match operation {
                Operation::Put { key, value } => batch.put(key, value),
                Operation::Delete { key } => batch.delete(key),
                Operation::RequireAbsent { key } if self.exists(key)? => return Ok(false),
                Operation::RequireAbsent { .. } => {}
                other => return Err(BackendError::Refused(format!("the backend rocksdb has no {other:?}"))),
            }
        }
        self.database.write(&mut batch).map_err(refused)?;
        Ok(true)
    }

    /// Calls `each` with the records of a scan, until it returns `false` or there are no more.
    fn walk(
        &self,
        from: &[u8],
        options: ScanOptions<'_>,
        patience: Patience,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, BackendError>,
    ) -> Result<(), BackendError> {
        let passed_max = if patience == Patience::Brief { PASSED_MAX } else { 0 };
        let mut scan = self.database.scan_with(from, ScanOptions { passed_max, ..options });
        let mut outcome = Ok(true);
        while matches!(outcome, Ok(true)) {
            match scan.next(|key, value| outcome = each(key, value)).map_err(refused) {
                Ok(true) => {}
                ended => {
                    self.cut_walks.fetch_add(u64::from(ended == Err(BackendError::TakesLong)), Relaxed);
                    return ended.map(drop);
                }
            }
        }
        outcome.map(drop)
    }

    /// Calls `each` with this database, and then with the others. None of them is opened or closed meanwhile, so `each`
    /// must be quick.
    fn for_each(&self, mut each: impl FnMut(&Self)) {
        each(self);
        if let Some(named) = &self.named {
            named.for_each(each);
        }
    }

    /// The sum of a figure over all databases.
    fn sum(&self, figure: impl Fn(&Database) -> u64) -> u64 {
        let mut sum = 0;
        self.for_each(|database| sum += figure(&database.database));
        sum
    }

    /// Syncs the logs of all databases, behind one that fails, too.
    fn sync(&self) -> Result<(), BackendError> {
        let own = self.log.sync();
        let others = self.named.as_ref().map_or(Ok(()), Named::sync);
        own.and(others)
    }

    /// Ends all databases, and tells whether everything is durable.
    pub(crate) fn close(self) -> Result<(), BackendError> {
        self.sync()
    }
}

/// The key that an operation is about.
fn key_of<'a>(operation: &Operation<'a>) -> &'a [u8] {
    match operation {
        Operation::Put { key, .. } | Operation::Delete { key } | Operation::RequireAbsent { key } => key,
        _ => b"",
    }
}

impl Backend for RocksDbBackend {
    fn get_into(
        &self,
        key: &[u8],
        bytes_max: usize,
        value: &mut Vec<u8>,
    ) -> Result<Option<Meta>, BackendError> {
        Ok(self.database.get_up_to(key, bytes_max, value).map_err(refused)?.map(meta))
    }

    fn multi_get(&self, keys: &[&[u8]], bytes_max: usize, each: &mut EachValue<'_>) {
        let mut values = Values::default();
        if !self.meets_long.load(Relaxed) && self.database.multi_get(keys, &mut values).is_ok() {
            for index in 0..keys.len() {
                let found = values.get(index);
                let short = found.filter(|value| value.len() <= bytes_max).unwrap_or_default();
                if !each(Ok(found.map(|value| (meta(value.len()), short)))) {
                    break;
                }
            }
            return;
        }
        // A key failed, and the others still get their answers; or the values are too long to be held at once.
        let (mut value, mut bytes, mut is_long) = (Vec::new(), 0, false);
        for key in keys {
            let found = self.get_into(key, bytes_max, &mut value);
            let len = found.as_ref().ok().copied().flatten().map_or(0, |meta| meta.len);
            bytes += len;
            is_long |= len > bytes_max as u64 || bytes > BYTES_AT_ONCE;
            if !each(found.map(|meta| meta.map(|meta| (meta, &value[..])))) {
                break;
            }
        }
        self.meets_long.store(is_long, Relaxed);
    }

    fn open_value(&self, key: &[u8]) -> Result<Option<Box<dyn ValueReader>>, BackendError> {
        let pinned = self.database.get_pinned(key).map_err(refused)?;
        Ok(pinned.map(|pinned| Box::new(Reader(pinned)) as Box<dyn ValueReader>))
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Meta>, BackendError> {
        Ok(self.database.get_up_to(key, 0, &mut Vec::new()).map_err(refused)?.map(meta))
    }

    fn put(&self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Result<(), BackendError> {
        check_key(key)?;
        without_expiry(expires_at_ms)?;
        self.admit()?;
        let _held = self.locks.hold(key);
        self.database.put(key, value).map_err(refused)
    }

    fn set_expiry(&self, key: &[u8], expires_at_ms: Option<u64>) -> Result<bool, BackendError> {
        let exists = self.exists(key)?;
        if exists {
            without_expiry(expires_at_ms)?;
        }
        Ok(exists)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, BackendError> {
        self.admit()?;
        let _held = self.locks.hold(key);
        let existed = self.exists(key)?;
        if existed {
            self.database.delete(key).map_err(refused)?;
        }
        Ok(existed)
    }

    fn update(&self, key: &[u8], change: &mut Change<'_>) -> Result<(), BackendError> {
        self.admit()?;
        let _held = self.locks.hold(key);
        let pinned = self.database.get_pinned(key).map_err(refused)?;
        let existed = pinned.is_some();
        let update = match pinned {
            None => change(None),
            Some(pinned) => {
                let meta = meta(pinned.value().len());
                match pinned.value().len() {
                    0..=WHOLE_BYTES_MAX => change(Some((Old::Whole(pinned.value()), meta))),
                    _ => change(Some((Old::Large(Box::new(Reader(pinned))), meta))),
                }
            }
        };
        match update {
            Update::Put { value, expires_at_ms } => {
                check_key(key)?;
                without_expiry(expires_at_ms)?;
                self.database.put(key, &value).map_err(refused)
            }
            Update::Expire { expires_at_ms } => without_expiry(expires_at_ms),
            Update::Delete if existed => self.database.delete(key).map_err(refused),
            Update::Delete | Update::Keep => Ok(()),
        }
    }

    fn transfer(
        &self,
        source: &[u8],
        target: &[u8],
        how: Transfer,
        grant: &mut Grant<'_>,
    ) -> Result<Transferred, BackendError> {
        self.admit()?;
        let keys = || [source, target].into_iter();
        let held = match self.locks.try_hold_all(keys()) {
            Some(held) => held,
            None if grant(Need::Wait) => self.locks.hold_all(keys()),
            None => return Ok(Transferred::NotGranted),
        };
        let Some(value) = self.database.get_pinned(source).map_err(refused)? else {
            return Ok(Transferred::NoSource);
        };
        if !how.replace && self.exists(target)? {
            return Ok(Transferred::TargetExists);
        }
        let value = value.value();
        if value.len() > WHOLE_BYTES_MAX && !grant(Need::Bytes(value.len() as u64)) {
            return Ok(Transferred::NotGranted);
        }
        let put = Operation::Put { key: target, value };
        let operations = [put, Operation::Delete { key: source }];
        self.perform(&held, &operations[..if how.keep_source { 1 } else { 2 }])?;
        Ok(Transferred::Done)
    }

    fn write(&self, operations: &[Operation<'_>]) -> Result<bool, BackendError> {
        self.admit()?;
        self.perform(&self.locks.hold_all(operations.iter().map(key_of)), operations)
    }

    fn write_if_free(&self, operations: &[Operation<'_>]) -> Result<Option<bool>, BackendError> {
        self.admit()?;
        let Some(held) = self.locks.try_hold_all(operations.iter().map(key_of)) else { return Ok(None) };
        self.perform(&held, operations).map(Some)
    }

    fn holds_up(&self, key: &[u8]) -> bool {
        self.locks.is_held(key)
    }

    /// RocksDB slows writers down, or stops them, while flushes and compactions are behind: those that delete, too.
    /// Each write asks, because a stop begins from one write to the next.
    fn may_wait_for_room(&self, _adds: bool) -> bool {
        self.memtable.are_full()
            || self.number(c"rocksdb.is-write-stopped") > 0
            || self.number(c"rocksdb.actual-delayed-write-rate") > 0
    }

    /// RocksDB has existence and length of a value only together with the value.
    fn thread_read_bytes(&self) -> u64 {
        self.database.thread_read_bytes()
    }

    fn keys_from(
        &self,
        from: &[u8],
        limit: usize,
        patience: Patience,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Vec<u8>>, BackendError> {
        let (mut keys, mut last, mut next) = (0, Vec::new(), None);
        let walked = self.walk(from, ALL_KEYS, patience, |key, _| {
            if keys == limit {
                next = Some(key.to_vec());
                return Ok(false);
            }
            each(key);
            keys += 1;
            last.clear();
            last.extend_from_slice(key);
            Ok(true)
        });
        match walked {
            Err(BackendError::TakesLong) if keys > 0 => Ok(Some(behind(&last))),
            walked => walked.map(|()| next),
        }
    }

    fn records(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        patience: Patience,
        each: &mut EachRecord<'_>,
    ) -> Result<Option<Vec<u8>>, BackendError> {
        let start = match from {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Vec::new(),
        };
        let end = match to {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        let options = ScanOptions { to: end.as_deref(), ..ScanOptions::default() };
        let walked = self.walk(&start, options, patience, |key, value| each(key, &mut Borrowed(value)));
        walked.map(|()| None)
    }

    fn random_key(&self, _patience: Patience) -> Result<Option<Vec<u8>>, BackendError> {
        Err(BackendError::Refused("the backend rocksdb draws no keys at random; use SCAN".into()))
    }

    /// RocksDB counts no keys, so this reads all of them.
    fn count(&self) -> Result<u64, BackendError> {
        let mut keys = 0;
        let mut scan = self.database.scan_with(b"", ALL_KEYS);
        while scan.next(|_, _| keys += 1).map_err(refused)? {
            if self.is_stopping.load(Relaxed) {
                return Err(BackendError::Refused("the server stops, and counts no more keys".into()));
            }
        }
        Ok(keys)
    }

    fn len_if_quick(&self) -> Result<u64, u64> {
        Err(self.number(c"rocksdb.estimate-num-keys"))
    }

    /// Removed keys leave the memtable at once: a walk passes those one by one, and RocksDB bounds no such step. A
    /// flush that fails is no failure of the command: the keys are gone, and the log has that. The next write says why.
    /// A log that has failed meanwhile may not have it.
    fn clear(&self) -> Result<(), BackendError> {
        self.log.check()?;
        let held = self.locks.hold_every();
        self.database.clear().map_err(refused)?;
        drop(held);
        let _ = self.database.flush();
        self.log.check()
    }

    fn holds_replies(&self) -> bool {
        self.log.durability() == Durability::Always
    }

    fn waits_for_disk(&self) -> bool {
        self.holds_replies()
    }

    fn wait(&self) -> Result<(), BackendError> {
        match self.holds_replies() {
            true => self.sync(),
            false => Ok(()),
        }
    }

    fn wait_alone(&self) -> Result<(), BackendError> {
        if self.holds_replies() { self.log.sync() } else { Ok(()) }
    }

    /// Flushes the memtables, so that the next start replays nothing.
    fn save(&self, how: Save) -> Result<Saving, BackendError> {
        if how == Save::Begin {
            let words = "RocksDB flushes and compacts by itself in the background; SAVE flushes now";
            return Err(BackendError::Refused(words.into()));
        }
        self.database.flush().map_err(refused)?;
        if let Some(named) = &self.named {
            named.flush()?;
        }
        self.last_save_ms.store(unix_ms(), Relaxed);
        Ok(Saving::Done)
    }

    fn stop(&self) {
        self.for_each(|database| database.is_stopping.store(true, Relaxed));
    }

    fn last_save_ms(&self) -> Option<u64> {
        Some(self.last_save_ms.load(Relaxed))
    }

    fn persistence(&self) -> Vec<(&'static str, String)> {
        let (mut failures, mut syncs) = (Vec::new(), 0);
        self.for_each(|database| {
            syncs += database.log.syncs();
            let name = database.database.folder().file_name().unwrap_or_default().display();
            failures.extend(database.log.failure().map(|failure| format!("{name}: {failure}")));
        });
        let failure = failures.join("; ");
        let errors = self.sum(|database| database.property_number(c"rocksdb.background-errors").unwrap_or(0));
        let is_ok = failure.is_empty() && errors == 0;
        vec![
            ("rdb_last_save_time", (self.last_save_ms.load(Relaxed) / 1000).to_string()),
            ("aof_last_write_status", if is_ok { "ok" } else { "err" }.to_owned()),
            ("durability", self.log.durability().to_string()),
            ("log_syncs", syncs.to_string()),
            ("log_failure", failure),
            ("rocksdb_background_errors", errors.to_string()),
        ]
    }

    fn databases(&self) -> Option<&dyn Databases> {
        self.named.as_ref().map(|named| named as &dyn Databases)
    }

    fn set_memory_limit(&self, limit_bytes: Option<u64>) {
        self.memory.set_bytes(memory_bytes(limit_bytes));
    }

    fn may_evict(&self) -> Result<(), BackendError> {
        Err(BackendError::Refused(
            "the backend rocksdb evicts no keys; serve --backend store for a cache".into(),
        ))
    }

    fn held_below_bytes(&self) -> u64 {
        self.sum(Database::sst_bytes)
    }

    fn memory(&self) -> MemoryUse {
        let (used, memtables) = (self.memory.used_bytes() as u64, self.memory.memtable_bytes() as u64);
        MemoryUse {
            logical_bytes: 0,
            held_bytes: used,
            limit_bytes: self.limit_bytes,
            parts: vec![
                ("rocksdb_memtable_bytes", memtables),
                ("rocksdb_block_cache_bytes", used.saturating_sub(memtables)),
            ],
            far_anonymous_bytes: 0,
        }
    }

    fn files_to_come(&self) -> u64 {
        self.files_max
    }

    fn is_settled(&self) -> bool {
        self.sum(|database| u64::from(database.has_work())) == 0
    }

    fn codec(&self) -> String {
        self.compression.clone()
    }

    fn counters(&self) -> Vec<(&'static str, String)> {
        let number =
            |name: &'static std::ffi::CStr| self.sum(|database| database.property_number(name).unwrap_or(0));
        let mut cut_walks = 0;
        self.for_each(|database| cut_walks += database.cut_walks.load(Relaxed));
        [
            ("rocksdb_databases", self.sum(|_| 1)),
            ("rocksdb_estimated_keys", number(c"rocksdb.estimate-num-keys")),
            ("rocksdb_sst_bytes", self.sum(Database::sst_bytes)),
            ("rocksdb_sst_files", self.sum(Database::sst_files)),
            ("rocksdb_live_bytes", number(c"rocksdb.estimate-live-data-size")),
            ("rocksdb_running_flushes", number(c"rocksdb.num-running-flushes")),
            ("rocksdb_running_compactions", number(c"rocksdb.num-running-compactions")),
            ("rocksdb_pending_compaction_bytes", number(c"rocksdb.estimate-pending-compaction-bytes")),
            ("rocksdb_writes_stopped", number(c"rocksdb.is-write-stopped")),
            ("rocksdb_cut_walks", cut_walks),
        ]
        .map(|(name, number)| (name, number.to_string()))
        .into()
    }
}
