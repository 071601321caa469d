//! One open database: how it opens, its writes and its write-ahead log. Reads, compactions, options and properties have
//! modules of their own.

mod compaction;
mod options;
mod properties;
mod reads;

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use super::Error;
use super::batch::WriteBatch;
use super::calls::{c_string, checked, made};
use super::functions::{Db, Family, Functions, Options, ReadOptions, WriteOptions};
use super::library::Library;
use super::memory::Memory;

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
        if let BlockCache::Shared(_) = table.cache {
            // SAFETY: the object is ours, and nobody else has it yet.
            unsafe { (functions.read_options_set_bytes_at_once)(read.as_ptr(), BYTES_AT_ONCE) };
        }
        let database = Database { functions, at, family, read, write, folder: folder.to_owned() };
        database.check_manager(options)?;
        Ok(database)
    }

    /// Stores a value, replacing the old one. The write-ahead log has the value then, as far as the page cache.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
