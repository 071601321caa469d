//! One open database.

use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use super::Error;
use super::answers::{Pinned, Values};
use super::batch::WriteBatch;
use super::calls::{c_string, checked, made, taken};
use super::counters::{READ, ThreadCounters};
use super::functions::{Db, Family, Functions, Options, ReadOptions, Slice, WriteOptions};
use super::library::Library;
use super::memory::Memory;
use super::scan::{Scan, ScanOptions};

/// The durability of a put on return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteLog {
    /// The memtable alone.
    Off,
    /// The write-ahead log, as far as the system's page cache.
    Unsynced,
    /// The write-ahead log on its medium.
    Synced,
}

/// Where blocks that were read stay in memory.
#[derive(Debug, Clone, Copy)]
pub enum BlockCache<'a> {
    /// Nowhere: every read decompresses.
    None,
    /// In RocksDB's usual cache.
    Usual,
    /// In memory that databases share, as do indexes and memtables.
    Shared(&'a Memory),
}

/// How SST files are laid out and read.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// Raw bytes of a block.
    pub block_bytes: usize,
    /// The block cache.
    pub cache: BlockCache<'a>,
}

impl Default for Table<'_> {
    /// As RocksDB has them.
    fn default() -> Self {
        Table { block_bytes: 4096, cache: BlockCache::Usual }
    }
}

/// An open database: its default column family.
#[derive(Debug)]
pub struct Database {
    functions: &'static Functions,
    at: NonNull<Db>,
    family: NonNull<Family>,
    read: NonNull<ReadOptions>,
    write: NonNull<WriteOptions>,
    folder: PathBuf,
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Functions")
    }
}

// SAFETY: RocksDB lets any number of threads use a database and share options that do not change. No code here changes
// them.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

/// An index in blocks, as `rocksdb/c.h` numbers it. RocksDB cuts a cache into shards, of half a megabyte in a small
/// one. An index in one piece may be larger than a shard, and would then be read and unpacked again by each get.
const TWO_LEVEL_INDEX: c_int = 2;

/// Bytes of values that a look-up of several keys holds at once, where memory is shared. RocksDB looks up no further
/// keys beyond that.
pub const BYTES_AT_ONCE: u64 = 1 << 20;

fn set_table(functions: &Functions, options: *mut Options, table: Table<'_>) {
    // SAFETY: the object that is made is ours, and the options keep a copy of what is in it, and shares of the memory.
    unsafe {
        let object = (functions.table_create)();
        (functions.table_set_block_size)(object, table.block_bytes);
        match table.cache {
            BlockCache::None => (functions.table_set_no_block_cache)(object, 1),
            BlockCache::Usual => {}
            BlockCache::Shared(memory) => {
                (functions.table_set_cache)(object, memory.cache());
                (functions.table_set_cache_indexes)(object, 1);
                (functions.table_set_index_type)(object, TWO_LEVEL_INDEX);
                (functions.options_set_buffers)(options, memory.buffers());
            }
        }
        (functions.options_set_table)(options, object);
        (functions.table_destroy)(object);
    }
}

impl Database {
    /// Opens the database in `folder` with options as an OPTIONS file has them, separated by semicolons: of databases
    /// and column families alike. Options of tables are given apart, because no string can remove a block cache. With
    /// `block_based_table_factory={no_block_cache=true}`, version 11.8 records that option and keeps its cache of 32
    /// MiB.
    ///
    /// # Errors
    /// RocksDB's error, and [`Error::Ignored`] if it silently dropped the compression manager, as it does with unknown
    /// ones.
    pub fn open(
        library: &'static Library,
        folder: &Path,
        options: &str,
        table: Table<'_>,
        log: WriteLog,
    ) -> Result<Self, Error> {
        let functions = &library.functions;
        let (name, text) = (c_string(folder.as_os_str().as_bytes())?, c_string(options)?);
        // SAFETY: it takes nothing and gives an object that is ours.
        let object = made(unsafe { (functions.options_create)() });
        set_table(functions, object.as_ptr(), table);
        let opened = checked!(
            functions,
            "take the options",
            options_from_string(object.as_ptr(), text.as_ptr(), object.as_ptr())
        )
        .and_then(|()| checked!(functions, "open the database", open(object.as_ptr(), name.as_ptr())));
        // SAFETY: the object is ours, and the database has a copy of what is in it.
        unsafe { (functions.options_destroy)(object.as_ptr()) };
        let at = made(opened?);
        // SAFETY: the database is open; each call gives an object that is ours.
        let (family, read, write) = unsafe {
            (
                made((functions.default_family)(at.as_ptr())),
                made((functions.read_options_create)()),
                made((functions.write_options_create)()),
            )
        };
        // SAFETY: the objects are ours, and nobody else has them yet.
        unsafe {
            if let BlockCache::Shared(_) = table.cache {
                (functions.read_options_set_bytes_at_once)(read.as_ptr(), BYTES_AT_ONCE);
            }
            (functions.write_options_set_sync)(write.as_ptr(), (log == WriteLog::Synced).into());
            (functions.write_options_disable_wal)(write.as_ptr(), (log == WriteLog::Off).into());
        }
        let database = Database { functions, at, family, read, write, folder: folder.to_owned() };
        database.check_manager(options)?;
        Ok(database)
    }

    /// Compares the compression manager that was asked for with the one that the database wrote down.
    fn check_manager(&self, asked: &str) -> Result<(), Error> {
        let Some(asked) = manager(asked) else { return Ok(()) };
        let options = self.options()?;
        match manager(&options) {
            Some(found) if found == asked => Ok(()),
            found => {
                let found = found.unwrap_or("nothing of one");
                Err(Error::Ignored { asked: asked.into(), found: found.into() })
            }
        }
    }

    /// The newest OPTIONS file of the database: the options in force, and the version of RocksDB (`rocksdb_version`).
    ///
    /// # Errors
    /// The folder or the file cannot be read.
    pub fn options(&self) -> Result<String, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| Error::Io { path, source }
        };
        let mut newest: Option<(u64, PathBuf)> = None;
        for entry in std::fs::read_dir(&self.folder).map_err(failed(&self.folder))? {
            let path = entry.map_err(failed(&self.folder))?.path();
            if let Some(number) = options_number(&path) {
                newest = newest.max(Some((number, path)));
            }
        }
        let path = newest.map_or_else(|| self.folder.join("OPTIONS-000000"), |(_, path)| path);
        std::fs::read_to_string(&path).map_err(failed(&path))
    }

    /// Stores a value, replacing the old one.
    ///
    /// # Errors
    /// RocksDB's error. After some errors the database takes no more writes.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let (at, write) = (self.at.as_ptr(), self.write.as_ptr());
        checked!(
            self.functions,
            "put a value",
            put(at, write, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len())
        )
    }

    /// Removes a key, whether it exists or not.
    ///
    /// # Errors
    /// As for [`Database::put`].
    pub fn delete(&self, key: &[u8]) -> Result<(), Error> {
        let (at, write) = (self.at.as_ptr(), self.write.as_ptr());
        checked!(self.functions, "delete a key", delete(at, write, key.as_ptr().cast(), key.len()))
    }

    /// Performs all writes of `batch` or none. Readers see all of them or none.
    ///
    /// # Errors
    /// As for [`Database::put`].
    pub fn write(&self, batch: &mut WriteBatch) -> Result<(), Error> {
        let (at, write) = (self.at.as_ptr(), self.write.as_ptr());
        checked!(self.functions, "write several keys", write(at, write, batch.at()))
    }

    /// Removes every key that is there now.
    ///
    /// # Errors
    /// As for [`Database::put`].
    pub fn clear(&self) -> Result<(), Error> {
        let Some(mut end) = self.last_key()? else { return Ok(()) };
        // The end is not removed, so it is the first key behind the last one.
        end.push(0);
        let (at, write, family) = (self.at.as_ptr(), self.write.as_ptr(), self.family.as_ptr());
        let (start, end_at) = (end.as_ptr().cast(), end.as_ptr().cast());
        checked!(
            self.functions,
            "delete all keys",
            delete_range(at, write, family, start, 0, end_at, end.len())
        )
    }

    fn last_key(&self) -> Result<Option<Vec<u8>>, Error> {
        let (mut scan, mut last) = (self.scan(&[]), None);
        scan.seek_to_last();
        scan.next(|key, _| last = Some(key.to_vec()))?;
        Ok(last)
    }

    /// Has the write-ahead log on its medium, up to all writes that any reader may have seen.
    ///
    /// # Errors
    /// RocksDB's error. It is not known then which of the last writes are durable.
    pub fn sync_log(&self) -> Result<(), Error> {
        checked!(self.functions, "sync the write-ahead log", flush_log(self.at.as_ptr(), 1))
    }

    /// The number of the newest write that readers see. Each write of a key takes the next number.
    pub fn latest_sequence(&self) -> u64 {
        // SAFETY: the database is open.
        unsafe { (self.functions.latest_sequence)(self.at.as_ptr()) }
    }

    /// The folder of the database.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn functions(&self) -> &'static Functions {
        self.functions
    }

    pub(super) fn at(&self) -> *mut Db {
        self.at.as_ptr()
    }

    /// Puts the value of `key` into `value` (after clearing it) and returns true, or returns false. A value that fits
    /// into the capacity of `value` is copied once.
    ///
    /// # Errors
    /// RocksDB's error, such as corruption.
    #[inline]
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        Ok(self.get_up_to(key, usize::MAX, value)?.is_some())
    }

    /// The length of the value of `key`, if there is one. If it is at most `bytes_max`, `value` holds the value
    /// afterwards; otherwise `value` is empty.
    ///
    /// # Errors
    /// As for [`Database::get`].
    #[inline]
    pub fn get_up_to(
        &self,
        key: &[u8],
        bytes_max: usize,
        value: &mut Vec<u8>,
    ) -> Result<Option<usize>, Error> {
        value.clear();
        loop {
            let (mut len, mut found) = (0, 0);
            let room = value.spare_capacity_mut();
            let copied = checked!(
                self.functions,
                "get a value",
                get_into_buffer(
                    self.at.as_ptr(),
                    self.read.as_ptr(),
                    key.as_ptr().cast(),
                    key.len(),
                    room.as_mut_ptr().cast(),
                    room.len(),
                    &mut len,
                    &mut found
                )
            )?;
            if found == 0 {
                return Ok(None);
            }
            if copied != 0 {
                // SAFETY: the function says that it wrote so many bytes into the room that it was told of.
                unsafe { value.set_len(if len <= bytes_max { len } else { 0 }) };
                return Ok(Some(len));
            }
            if len > bytes_max {
                return Ok(Some(len));
            }
            // Too long; it may be another one by the next time.
            value.reserve(len);
        }
    }

    /// The value of `key` where RocksDB has it. It stays there, and the database open, until the result is dropped.
    ///
    /// # Errors
    /// As for [`Database::get`].
    pub fn get_pinned(self: &Arc<Self>, key: &[u8]) -> Result<Option<Pinned>, Error> {
        let (at, read) = (self.at.as_ptr(), self.read.as_ptr());
        let pinned =
            checked!(self.functions, "get a value", get_pinned(at, read, key.as_ptr().cast(), key.len()))?;
        Ok(NonNull::new(pinned).map(|at| Pinned { at, database: Arc::clone(self) }))
    }

    /// Looks up several keys at once; `values` holds the answers until the next call or until it is dropped.
    ///
    /// # Errors
    /// The first error of any key; then there are no answers. With [`BlockCache::Shared`], values of more than a
    /// megabyte together are an error, too: look the keys up one by one.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K], values: &mut Values) -> Result<(), Error> {
        values.clear();
        values.functions = Some(self.functions);
        values.keys.extend(keys.iter().map(|key| {
            let key = key.as_ref();
            Slice { data: key.as_ptr().cast(), size: key.len() }
        }));
        values.pinned.resize(keys.len(), null_mut());
        values.errors.resize(keys.len(), null_mut());
        // SAFETY: the three lists have as many elements as there are keys, whose bytes are borrowed until this returns.
        unsafe {
            (self.functions.multi_get)(
                self.at.as_ptr(),
                self.read.as_ptr(),
                self.family.as_ptr(),
                keys.len(),
                values.keys.as_ptr(),
                values.pinned.as_mut_ptr(),
                values.errors.as_mut_ptr(),
                false,
            );
        }
        values.keys.clear();
        let errors = values.errors.drain(..).filter_map(|error| taken(self.functions, error));
        match errors.reduce(|first, _| first) {
            None => Ok(()),
            Some(status) => {
                values.clear();
                Err(Error::Status { action: "get several values", status })
            }
        }
    }

    /// Bytes that the calling thread has read of all databases since it began: values, and blocks that were not cached.
    /// A value of such a block counts twice.
    pub fn thread_read_bytes(&self) -> u64 {
        ThreadCounters::new(self.functions).sum(&READ)
    }

    /// The records from key `from` on, in order, as they are now.
    pub fn scan(&self, from: &[u8]) -> Scan<'_> {
        self.scan_with(from, ScanOptions::default())
    }

    /// As [`Database::scan`], with other options.
    pub fn scan_with<'a>(&'a self, from: &[u8], options: ScanOptions<'a>) -> Scan<'a> {
        Scan::begin(self, from, options)
    }

    /// Writes all memtables to SST files, and waits for that.
    ///
    /// # Errors
    /// RocksDB's error.
    pub fn flush(&self) -> Result<(), Error> {
        self.flush_with(true, false)
    }

    /// The same, even if RocksDB slows writers down for that: its flushes and compactions are behind then.
    ///
    /// # Errors
    /// RocksDB's error.
    pub fn flush_at_once(&self) -> Result<(), Error> {
        self.flush_with(true, true)
    }

    /// Begins to write all memtables to SST files, and waits for nothing.
    ///
    /// # Errors
    /// RocksDB's error.
    pub fn begin_flush(&self) -> Result<(), Error> {
        self.flush_with(false, true)
    }

    fn flush_with(&self, waits: bool, stalls: bool) -> Result<(), Error> {
        // SAFETY: it takes nothing and gives an object that is ours.
        let options = made(unsafe { (self.functions.flush_options_create)() });
        // SAFETY: the object is ours.
        unsafe {
            (self.functions.flush_options_set_wait)(options.as_ptr(), waits.into());
            (self.functions.flush_options_set_stall)(options.as_ptr(), stalls.into());
        }
        let flushed = checked!(self.functions, "flush", flush(self.at.as_ptr(), options.as_ptr()));
        // SAFETY: the object is ours.
        unsafe { (self.functions.flush_options_destroy)(options.as_ptr()) };
        flushed
    }

    /// Flushes, compacts all keys into the lowest level that has any, and waits until nothing is left to do in the
    /// background.
    ///
    /// # Errors
    /// RocksDB's error.
    pub fn compact(&self) -> Result<(), Error> {
        self.flush()?;
        // SAFETY: null stands for before the first and after the last key.
        unsafe { (self.functions.compact_range)(self.at.as_ptr(), null(), 0, null(), 0) };
        self.wait()
    }

    /// Waits until no background work is left.
    ///
    /// # Errors
    /// RocksDB's error, also one that background work met before.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: it takes nothing and gives an object that is ours.
        let options = made(unsafe { (self.functions.wait_options_create)() });
        let waited =
            checked!(self.functions, "compact", wait_for_compact(self.at.as_ptr(), options.as_ptr()));
        // SAFETY: the object is ours.
        unsafe { (self.functions.wait_options_destroy)(options.as_ptr()) };
        waited
    }

    /// A property in words, such as `rocksdb.stats`; nothing if there is none of that name.
    pub fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: the database is open, and the name ends with a zero.
        let text = unsafe { (self.functions.property)(self.at.as_ptr(), name.as_ptr()) };
        taken(self.functions, text)
    }

    /// A property that is a number, such as `rocksdb.total-sst-files-size`; nothing if there is none of that name.
    pub fn property_number(&self, name: &CStr) -> Option<u64> {
        let mut number = 0;
        // SAFETY: as above; it writes one number.
        let result =
            unsafe { (self.functions.property_number)(self.at.as_ptr(), name.as_ptr(), &mut number) };
        (result == 0).then_some(number)
    }

    /// Bytes of all SST files, those included that only old snapshots and running reads need.
    pub fn sst_bytes(&self) -> u64 {
        self.property_number(c"rocksdb.total-sst-files-size").unwrap_or(0)
    }

    /// How many SST files the database has now.
    pub fn sst_files(&self) -> u64 {
        let at_level = |level: u32| {
            let name = CString::new(format!("rocksdb.num-files-at-level{level}")).ok()?;
            self.property(&name)?.trim().parse::<u64>().ok()
        };
        (0..).map_while(at_level).sum()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: all four are ours, and nobody borrows the database any more; its family's handle goes before it.
        unsafe {
            (self.functions.family_destroy)(self.family.as_ptr());
            (self.functions.close)(self.at.as_ptr());
            (self.functions.read_options_destroy)(self.read.as_ptr());
            (self.functions.write_options_destroy)(self.write.as_ptr());
        }
    }
}

/// The number of an OPTIONS file: six digits, or more where six do not suffice. A file that is being written, or one
/// that somebody else put there, has none.
fn options_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("OPTIONS-")?.parse().ok()
}

/// The name of the compression manager that a string of options has: `compression_manager=NAME` or
/// `compression_manager={id=NAME;...}`.
fn manager(options: &str) -> Option<&str> {
    let (_, value) = options.split_once("compression_manager=")?;
    let value = value.trim_start();
    let value = value.strip_prefix('{').map_or(value, str::trim_start);
    let name = value.strip_prefix("id=").unwrap_or(value);
    let name = &name[..name.find([';', '}', '\n']).unwrap_or(name.len())];
    Some(name.trim()).filter(|name| !name.is_empty() && *name != "nullptr")
}

#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::LIBRARY_VARIABLE;
    use super::*;

    /// An empty database in a folder of its own; nothing where RocksDB is not installed.
    fn database(options: &str) -> Option<(Result<Database, Error>, tempfile::TempDir)> {
        let asked = std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
        let library = Library::load(asked.as_deref())
            .inspect_err(|error| {
                ziptier_testing::not_run("rocksdb", &format!("{error}; run make setup-rocksdb"));
            })
            .ok()?;
        let folder = tempfile::tempdir().unwrap();
        let options = format!("create_if_missing=true;{options}");
        let table = Table { block_bytes: 1024, cache: BlockCache::None };
        Some((Database::open(library, folder.path(), &options, table, WriteLog::Unsynced), folder))
    }

    fn key(number: u32) -> Vec<u8> {
        format!("key {number:06}").into_bytes()
    }

    #[test]
    fn what_was_put_is_found_in_every_way() {
        let Some((database, _folder)) = database("compression=kZSTD;write_buffer_size=65536") else { return };
        let database = database.unwrap();
        let value = |number: u32| vec![b'v'; (number % 500) as usize];
        for number in 0..2_000 {
            database.put(&key(number), &value(number)).unwrap();
        }
        database.delete(&key(7)).unwrap();
        database.compact().unwrap();
        assert!(database.sst_files() > 0 && database.sst_bytes() > 0);

        let mut found = Vec::new();
        for number in 0..2_001 {
            let is_there = number != 7 && number < 2_000;
            assert_eq!(database.get(&key(number), &mut found).unwrap(), is_there);
            assert_eq!(found, if is_there { value(number) } else { vec![] });
        }
        let mut values = Values::default();
        for numbers in [[5, 7, 0], [499, 1_999, 2_000]] {
            database.multi_get(&numbers.map(key), &mut values).unwrap();
            for (position, number) in numbers.into_iter().enumerate() {
                let expected = (number != 7 && number < 2_000).then(|| value(number));
                assert_eq!(values.get(position), expected.as_deref());
            }
            assert_eq!(values.get(3), None);
        }
        let (mut scan, mut met) = (database.scan(&key(5)), Vec::new());
        while met.len() < 3 && scan.next(|key, _| met.push(key.to_vec())).unwrap() {}
        assert_eq!(met, [5, 6, 8].map(key));
    }

    /// The keys that a scan of everything meets, and whether it ends because it would pass too much.
    fn met(database: &Database, options: ScanOptions<'_>) -> (Vec<Vec<u8>>, bool) {
        let (mut scan, mut met) = (database.scan_with(b"", options), Vec::new());
        loop {
            match scan.next(|key, _| met.push(key.to_vec())) {
                Ok(true) => {}
                Ok(false) => return (met, false),
                Err(Error::PassesMany) => return (met, true),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A thread that serves others would stand still for as long as all deleted keys take.
    #[test]
    fn a_scan_passes_no_more_deleted_keys_than_it_may() {
        let Some((database, _folder)) = database("") else { return };
        let database = database.unwrap();
        let stays = |number: &u32| [1_000, 1_500, 2_999].contains(number);
        (0..3_000).for_each(|number| database.put(&key(number), b"value").unwrap());
        (0..3_000).filter(|number| !stays(number)).for_each(|number| database.delete(&key(number)).unwrap());
        let all: Vec<_> = (0..3_000).filter(stays).map(key).collect();
        // Each deleted key is two entries: the delete, and the value that it hides.
        for (passed_max, count) in [(0, 3), (1_999, 0), (2_000, 2), (9_000, 3)] {
            let expected = (all[..count].to_vec(), count < 3);
            let options = ScanOptions { passed_max, ..ScanOptions::default() };
            assert_eq!(met(&database, options), expected, "{passed_max}");
        }
        // Those behind the end are not passed.
        let end = key(1_001);
        let first = ScanOptions { passed_max: 2_100, to: Some(&end), ..ScanOptions::default() };
        assert_eq!(met(&database, first), (all[..1].to_vec(), false));
        let none = ScanOptions { passed_max: 10, to: Some(b""), ..ScanOptions::default() };
        assert_eq!(met(&database, none), (vec![], false));
        // A compaction drops the hidden values, and may keep the deletes. More than 2,000 are passed at the end.
        database.compact().unwrap();
        let deletes = ScanOptions { passed_max: 2_000, ..ScanOptions::default() };
        assert_eq!(met(&database, deletes), (all, true));
    }

    /// A thread that serves others would read one long value after the other.
    #[test]
    fn bytes_that_a_thread_reads_are_counted() {
        const LONG_BYTES: u64 = 1 << 20;
        let Some((database, _folder)) = database("compression=kNoCompression") else { return };
        let database = database.unwrap();
        database.put(b"a", b"short").unwrap();
        database.put(b"long", &vec![b'v'; LONG_BYTES as usize]).unwrap();
        let read = |key: &[u8]| {
            let before = database.thread_read_bytes();
            database.get_up_to(key, 0, &mut Vec::new()).unwrap();
            database.thread_read_bytes() - before
        };
        assert!(read(b"long") >= LONG_BYTES && read(b"lone") == 0);
        database.compact().unwrap();
        // The block of the long value shows that another key is not there.
        assert!(read(b"long") >= LONG_BYTES && read(b"lone") >= LONG_BYTES);
        let others = std::thread::scope(|scope| scope.spawn(|| database.thread_read_bytes()).join().unwrap());
        assert_eq!(others, 0);
    }

    /// A walk over keys would read all of them.
    #[test]
    fn keys_alone_are_met_without_their_values() {
        let Some((database, folder)) = database("enable_blob_files=true;min_blob_size=100") else { return };
        let database = database.unwrap();
        let all: Vec<_> = (0..50).map(key).collect();
        all.iter().for_each(|key| database.put(key, &[b'v'; 1_000]).unwrap());
        database.flush().unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        let is_blob = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "blob");
        let blobs: Vec<PathBuf> = files.filter(is_blob).collect();
        assert_eq!(blobs.len(), 1);
        std::fs::remove_file(&blobs[0]).unwrap();
        let keys_only = ScanOptions { keys_only: true, ..ScanOptions::default() };
        assert_eq!(met(&database, keys_only), (all, false));
        assert!(database.scan(b"").next(|_, _| {}).is_err());
    }

    #[test]
    fn options_are_written_down_and_wrong_ones_are_errors() {
        let Some((opened, folder)) = database("compression=kLZ4Compression;compression_opts={level=3}")
        else {
            return;
        };
        let database = opened.unwrap();
        let options = database.options().unwrap();
        for line in
            ["compression=kLZ4Compression", "rocksdb_version=11.8", "no_block_cache=true", "block_size=1024"]
        {
            assert!(options.contains(line), "{line}");
        }
        assert!(
            database.property(c"rocksdb.stats").is_some() && database.property(c"rocksdb.none").is_none()
        );
        let again =
            Database::open(Library::load(None).unwrap(), folder.path(), "", Table::default(), WriteLog::Off);
        let again = again.unwrap_err().to_string();
        assert!(again.starts_with("could not open the database: IO error: lock"), "{again}");
    }

    #[test]
    fn the_newest_options_have_the_highest_number() {
        let Some((opened, folder)) = database("") else { return };
        let database = opened.unwrap();
        for name in ["OPTIONS-999999", "OPTIONS-1000000", "OPTIONS-999999.old", "OPTIONS-2000000.dbtmp"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        assert_eq!(database.options().unwrap(), "OPTIONS-1000000");
    }

    #[test]
    fn bad_and_ignored_options_are_told() {
        let Some((bad, _folder)) = database("compresion=kZSTD") else { return };
        assert!(bad.unwrap_err().to_string().starts_with("could not take the options: "));
        let (ignored, _folder) = database("compression_manager={id=Nobody;x=1};compression=kZSTD").unwrap();
        let ignored = ignored.unwrap_err();
        assert!(matches!(&ignored, Error::Ignored { asked, .. } if asked == "Nobody"), "{ignored}");
    }

    #[test]
    fn managers_are_found_in_option_strings() {
        for (options, name) in [
            ("a=1;compression_manager={id=ziptier;format=token};b=2", Some("ziptier")),
            ("compression_manager=ziptier;b=2", Some("ziptier")),
            ("compression_manager=ziptier", Some("ziptier")),
            ("  compression_manager={ id=ziptier}\n", Some("ziptier")),
            ("compression_manager=nullptr\n", None),
            ("compression=kZSTD", None),
        ] {
            assert_eq!(manager(options), name, "{options}");
        }
    }
}
