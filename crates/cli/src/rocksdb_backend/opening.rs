//! Opening RocksDB: its folder, and its options.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub(crate) use ziptier::Durability;
use ziptier_rocksdb::host::{BlockCache, Database, Library, Memory, Table, WriteLog};

use super::locks::Locks;
use super::log::Log;
use super::{RocksDbBackend, memory_bytes, unix_ms};
use crate::rocksdb_target::Compression;

/// The folder of the database below `--dir`.
const DEFAULT_NAME: &str = "default";
/// A memtable gets one part in this many of RocksDB's memory, within these bounds; the upper one is RocksDB's default.
const MEMTABLE_PART: usize = 16;
const MEMTABLE_BYTES: std::ops::RangeInclusive<usize> = (256 << 10)..=(64 << 20);
/// RocksDB keeps one part in this many of the process's open files, within these bounds.
const FILES_PART: u64 = 16;
const FILES: std::ops::RangeInclusive<u64> = 32..=5_000;
/// Files that RocksDB opens beside its SST files: logs, manifests and the like.
const OTHER_FILES: u64 = 16;

/// How to open RocksDB.
pub(crate) struct Options {
    pub(crate) library: &'static Library,
    pub(crate) dir: PathBuf,
    pub(crate) durability: Durability,
    pub(crate) compression: Compression,
    /// The store's part of the memory limit.
    pub(crate) limit_bytes: Option<u64>,
    /// Files that the process may open.
    pub(crate) open_files: u64,
}

type Error = Box<dyn std::error::Error + Send + Sync>;

impl RocksDbBackend {
    /// Opens the database in the folder, or makes it.
    ///
    /// # Errors
    ///
    /// If RocksDB is not installed or refuses, or if the folder holds something else.
    pub(crate) fn open(options: Options) -> Result<Self, Error> {
        let Options { library, dir, durability, compression, limit_bytes, open_files } = options;
        if compression.needs_plugin {
            library.load_plugin()?;
        }
        let folder = dir.join(DEFAULT_NAME);
        check(&dir, &folder)?;
        std::fs::create_dir_all(&dir)
            .map_err(|error| format!("could not make {}: {error}", dir.display()))?;
        let bytes = memory_bytes(limit_bytes);
        let memory = Arc::new(Memory::new(library, bytes));
        let files = (open_files / FILES_PART).clamp(*FILES.start(), *FILES.end());
        let memtable = (bytes / MEMTABLE_PART).clamp(*MEMTABLE_BYTES.start(), *MEMTABLE_BYTES.end());
        let text = format!(
            "create_if_missing=true;write_buffer_size={memtable};max_open_files={files};keep_log_file_num=4;{}",
            compression.options
        );
        let table = Table { cache: BlockCache::Shared(&memory), ..Table::default() };
        let database = Arc::new(Database::open(library, &folder, &text, table, WriteLog::Unsynced)?);
        let log = Log::keep(Arc::clone(&database), durability)?;
        Ok(Self {
            log,
            database,
            memory,
            locks: Locks::new(),
            compression: compression.name,
            limit_bytes,
            files_max: files + OTHER_FILES,
            last_save_ms: AtomicU64::new(unix_ms()),
        })
    }

    /// The line that tells about the folder when the server is ready.
    pub(crate) fn describe(&self) -> String {
        let sync = match self.log.durability() {
            Durability::Always => "fdatasync before replies",
            Durability::Everysec => "fdatasync once a second",
            Durability::No => "nothing is waited for",
        };
        let options = self.database.options().unwrap_or_default();
        let version = options.lines().find_map(|line| line.trim().strip_prefix("rocksdb_version="));
        format!(
            "folder {}: RocksDB {}, durability {} ({sync}), about {} keys\n",
            self.database.folder().display(),
            version.unwrap_or("?"),
            self.log.durability(),
            self.database.property_number(c"rocksdb.estimate-num-keys").unwrap_or(0)
        )
    }
}

/// Refuses a folder that holds something else, such as a store of ziptier's.
fn check(dir: &Path, folder: &Path) -> Result<(), Error> {
    if folder.exists() {
        return Ok(());
    }
    match std::fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let shown = dir.display();
            Err(format!(
                "{shown} is not empty and has no folder {DEFAULT_NAME}, so it belongs to something else; name another \
                 --dir"
            )
            .into())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("could not read {}: {error}", dir.display()).into()),
    }
}
