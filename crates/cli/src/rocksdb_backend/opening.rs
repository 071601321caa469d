//! Opening RocksDB: its folder, and its options.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

pub(crate) use ziptier::Durability;
use ziptier_rocksdb::host::{self, BlockCache, Database, Library, Memory, Table};

use super::databases::{Named, OPEN_MAX, is_begun};
use super::locks::Locks;
use super::log::Log;
use super::memtables::Memtables;
use super::{RocksDbBackend, memory_bytes, unix_ms};
use crate::rocksdb_target::Compression;

/// The database that every client begins with. Each database is a folder of its name below `--dir`.
pub(super) const DEFAULT_NAME: &str = "default";
/// A memtable gets one part in this many of RocksDB's memory, within these bounds; the upper one is RocksDB's default.
const MEMTABLE_PART: usize = 8;
const MEMTABLE_BYTES: std::ops::RangeInclusive<usize> = (256 << 10)..=(64 << 20);
/// The level that flushed files are merged into holds so many memtables, as with RocksDB's own sizes. Beside small
/// memtables, RocksDB's 256 MB of that level would have every few flushes rewrite a database of 256 MB.
const FIRST_LEVEL_MEMTABLES: usize = 4;
/// Files of each level are so many times as long as those of the level above: few files in a large database.
const FILE_GROWTH: u32 = 4;
/// A memtable grows by one part in so many. By RocksDB's eighths, nearly empty memtables of eight databases would take
/// half of all that memtables may.
const ARENA_BLOCKS: usize = 64;
/// Flushes and compactions at once are as many as processors, and never fewer than this.
const JOBS_MIN: usize = 4;
/// All databases together keep one part in this many of the process's open files open, each within these bounds.
const FILES_PART: u64 = 4;
const FILES: std::ops::RangeInclusive<u64> = 32..=5_000;
const DATABASES_MAX: u64 = OPEN_MAX as u64 + 1;
/// Databases are nobody else's business.
const FOLDER_MODE: u32 = 0o700;
/// Files that a database opens beside its SST files: logs, manifests and the like.
const OTHER_FILES: u64 = 16;
/// Refuses damage in the log, and drops a record at its end that is cut short. A power cut may also leave a record
/// whose bytes are not all there, which counts as damage. RocksDB's usual mode takes damage for the end of the log,
/// and so drops the acknowledged writes behind it in silence.
const WHOLE_LOG: &str = "kTolerateCorruptedTailRecords";
const LOG_UP_TO_DAMAGE: &str = "kPointInTimeRecovery";

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
    /// Whether to start with what stands before damage in the log.
    pub(crate) salvage: bool,
}

/// What all databases have in common.
pub(super) struct Settings {
    library: &'static Library,
    pub(super) dir: PathBuf,
    durability: Durability,
    /// The compression of databases that ask for no other one.
    compression: Compression,
    memory: Arc<Memory>,
    memtables: Arc<Memtables>,
    limit_bytes: Option<u64>,
    memtable_bytes: usize,
    /// SST files that a database keeps open.
    files: u64,
    /// What a start makes of damage in the log.
    recovery: &'static str,
}

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;

impl RocksDbBackend {
    /// Opens the first database in the folder, or makes it. Others are opened by name.
    ///
    /// # Errors
    ///
    /// If RocksDB is not installed or refuses, or if the folder holds something else.
    pub(crate) fn open(options: Options) -> Result<Self, Error> {
        let Options { library, dir, durability, compression, limit_bytes, open_files, salvage } = options;
        check(&dir)?;
        make_folder(&dir)?;
        let bytes = memory_bytes(limit_bytes);
        let memory = Arc::new(Memory::new(library, bytes));
        let settings = Settings {
            library,
            dir,
            durability,
            compression,
            memtables: Arc::new(Memtables::new(Arc::clone(&memory))),
            memory,
            limit_bytes,
            memtable_bytes: (bytes / MEMTABLE_PART).clamp(*MEMTABLE_BYTES.start(), *MEMTABLE_BYTES.end()),
            files: (open_files / FILES_PART / DATABASES_MAX).clamp(*FILES.start(), *FILES.end()),
            recovery: if salvage { LOG_UP_TO_DAMAGE } else { WHOLE_LOG },
        };
        let database = Self::open_named(&settings, DEFAULT_NAME, None)?;
        Ok(Self { named: Some(Named::new(settings)), ..database })
    }

    /// Opens a database, or makes it, with another compression if one is given.
    pub(super) fn open_named(
        settings: &Settings,
        name: &str,
        compression: Option<&Compression>,
    ) -> Result<Self, Error> {
        let compression = compression.unwrap_or(&settings.compression);
        if compression.needs_plugin {
            settings.library.load_plugin()?;
        }
        let Settings { memtable_bytes, files, recovery, .. } = settings;
        let first_level_bytes = FIRST_LEVEL_MEMTABLES * memtable_bytes;
        let arena_block_bytes = memtable_bytes / ARENA_BLOCKS;
        let jobs = std::thread::available_parallelism().map_or(0, usize::from).max(JOBS_MIN);
        let text = format!(
            "create_if_missing=true;write_buffer_size={memtable_bytes};target_file_size_base={memtable_bytes};\
             target_file_size_multiplier={FILE_GROWTH};max_bytes_for_level_base={first_level_bytes};\
             arena_block_size={arena_block_bytes};max_background_jobs={jobs};max_open_files={files};\
             keep_log_file_num=4;wal_recovery_mode={recovery};{}",
            compression.options
        );
        let table = Table { cache: BlockCache::Shared(&settings.memory), ..Table::default() };
        let folder = settings.dir.join(name);
        make_folder(&folder)?;
        let opened = Database::open(settings.library, &folder, &text, table);
        let database = Arc::new(opened.map_err(|error| of_open(error, &folder))?);
        Ok(Self {
            log: Log::keep(Arc::clone(&database), settings.durability)?,
            memtable: settings.memtables.list(&database),
            database,
            named: None,
            memory: Arc::clone(&settings.memory),
            locks: Locks::new(),
            compression: compression.name.clone(),
            limit_bytes: settings.limit_bytes,
            files_max: DATABASES_MAX * (files + OTHER_FILES),
            last_save_ms: AtomicU64::new(unix_ms()),
            cut_walks: AtomicU64::new(0),
            meets_long: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
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

/// RocksDB's words for a database that another process has open name a lock, and those for damage name no file. Neither
/// names anything to do.
fn of_open(error: host::Error, folder: &Path) -> Error {
    let (words, folder) = (error.to_string(), folder.display());
    if words.contains("Corruption: ") {
        return format!(
            "{folder} is damaged ({words}); its file LOG names the damaged file. Copy the folder; if that file is a \
             .log, --salvage then starts with the writes before the damage"
        )
        .into();
    }
    if !words.contains("While lock file") {
        return error.into();
    }
    format!("{folder} is open already in another process; close it there, or name another --dir ({words})")
        .into()
}

/// Makes a folder that only its owner enters, with those above it, and has its name on the disk. One that is there
/// stays as it is.
fn make_folder(folder: &Path) -> Result<(), Error> {
    let failed = |error| format!("could not make {}: {error}", folder.display());
    if folder.exists() {
        return Ok(());
    }
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_folder(above)?;
    std::fs::DirBuilder::new().mode(FOLDER_MODE).create(folder).map_err(failed)?;
    Ok(std::fs::File::open(above).and_then(|above| above.sync_all()).map_err(failed)?)
}

/// Whether a folder has databases of RocksDB, and no store of ziptier's.
pub(crate) fn has_databases_alone(dir: &Path) -> bool {
    // RocksDB's file with the name of the manifest, and the store's manifest.
    dir.join(DEFAULT_NAME).join("CURRENT").exists() && !dir.join("MANIFEST").exists()
}

/// Refuses a folder that holds something else, such as a store of ziptier's.
fn check(dir: &Path) -> Result<(), Error> {
    let first = dir.join(DEFAULT_NAME);
    // RocksDB's first file, and its file with the name of the manifest.
    if ["LOG", "CURRENT"].iter().any(|file| first.join(file).exists()) {
        return Ok(());
    }
    let failed = |error| format!("could not read {}: {error}", dir.display());
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        // A start that ends before RocksDB's leaves an empty folder.
        if entry.map_err(failed)?.file_name() != DEFAULT_NAME || is_begun(&first) {
            let shown = dir.display();
            return Err(format!(
                "{shown} is not empty and has no folder {DEFAULT_NAME} of RocksDB, so it belongs to something else; \
                 name another --dir"
            )
            .into());
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::ops::Bound;
    use std::os::unix::fs::PermissionsExt;

    use ziptier_rocksdb::host::LIBRARY_VARIABLE;
    use ziptier_server::{Backend, BackendError, DatabaseName, Patience, Save, Saving, Update};

    use super::*;

    mod clearing;
    mod damage;
    mod memtables;

    /// Bytes that this process has asked the system to read.
    fn read_bytes() -> u64 {
        let told = std::fs::read_to_string("/proc/self/io").unwrap();
        let first = told.lines().next().unwrap();
        first.strip_prefix("rchar: ").unwrap().parse().unwrap()
    }

    /// Databases in a fresh folder, with 24 MiB of memory; nothing without RocksDB.
    fn opened(durability: Durability) -> Option<(tempfile::TempDir, RocksDbBackend)> {
        let folder = tempfile::tempdir().unwrap();
        let backend = RocksDbBackend::open(options(folder.path().join("databases"), durability)?);
        Some((folder, backend.unwrap()))
    }

    fn options(dir: PathBuf, durability: Durability) -> Option<Options> {
        let path = std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
        let library = match Library::load(path.as_deref()) {
            Ok(library) => library,
            Err(error) => {
                ziptier_testing::not_run("rocksdb", &format!("{error}; run make setup-rocksdb"));
                return None;
            }
        };
        Some(Options {
            library,
            dir,
            durability,
            compression: Compression::named("builtin-none").unwrap(),
            limit_bytes: Some(32 << 20),
            open_files: 1_000,
            salvage: false,
        })
    }

    /// RocksDB's files would lie among somebody else's.
    #[test]
    fn a_folder_named_default_makes_no_folder_of_rocksdb() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, first) = (folder.path(), folder.path().join(DEFAULT_NAME));
        check(&dir.join("none")).unwrap();
        check(dir).unwrap();
        // A start ended early.
        std::fs::create_dir(&first).unwrap();
        check(dir).unwrap();
        for other in [first.join("file"), dir.join("file")] {
            std::fs::write(&other, "of somebody else").unwrap();
            let told = check(dir).unwrap_err().to_string();
            assert!(told.contains("has no folder default of RocksDB"), "{told}");
            std::fs::remove_file(other).unwrap();
        }
        for begun in ["LOG", "CURRENT"] {
            std::fs::write(first.join(begun), "").unwrap();
            std::fs::write(dir.join("file"), "").unwrap();
            check(dir).unwrap();
            std::fs::remove_file(first.join(begun)).unwrap();
        }
    }

    #[test]
    fn folders_are_their_owners_alone() {
        let Some((folder, _backend)) = opened(Durability::No) else { return };
        for path in ["databases", "databases/default"] {
            let mode = std::fs::metadata(folder.path().join(path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{path}");
        }
    }

    #[test]
    fn long_values_are_not_held_all_at_once() {
        const VALUE_BYTES: usize = 4 << 20;
        let Some((_folder, backend)) = opened(Durability::No) else { return };
        let keys: Vec<[u8; 1]> = (0..16).map(|key| [key]).collect();
        for key in &keys {
            backend.database.put(key, &vec![key[0]; VALUE_BYTES]).unwrap();
        }
        backend.database.compact().unwrap();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let (mut found, mut held_bytes) = (0, 0);
        backend.multi_get(&keys, 64 << 10, &mut |value| {
            found += usize::from(value.unwrap().unwrap().0.len == VALUE_BYTES as u64);
            held_bytes = held_bytes.max(backend.memory.used_bytes());
            true
        });
        assert_eq!(found, keys.len());
        assert!(held_bytes < 40 << 20, "{held_bytes} bytes were held");
        // The next group is known to be long, and its first value is too long for the reply.
        let before = backend.thread_read_bytes();
        backend.multi_get(&keys, 64 << 10, &mut |value| {
            assert_eq!(value.unwrap().unwrap().0.len, VALUE_BYTES as u64);
            false
        });
        let read_bytes = backend.thread_read_bytes() - before;
        assert!(read_bytes < 3 * VALUE_BYTES as u64, "{read_bytes} bytes were read");
        // Short ones are looked up together again.
        backend.multi_get(&[&b"a"[..], b"b"], 64 << 10, &mut |value| value.unwrap().is_none());
        assert!(!backend.meets_long.load(std::sync::atomic::Ordering::Relaxed));
    }

    /// A worker leaves a command that reads them to another thread.
    #[test]
    fn long_values_that_are_looked_at_are_told() {
        const VALUE_BYTES: usize = 4 << 20;
        let Some((_folder, backend)) = opened(Durability::No) else { return };
        backend.put(b"long", &vec![b'v'; VALUE_BYTES], None).unwrap();
        backend.database.compact().unwrap();
        let read_bytes = |look: &dyn Fn()| {
            let before = backend.thread_read_bytes();
            look();
            backend.thread_read_bytes() - before
        };
        let length = || assert_eq!(backend.meta(b"long").unwrap().unwrap().len, VALUE_BYTES as u64);
        assert!(read_bytes(&length) >= VALUE_BYTES as u64);
        assert!(read_bytes(&|| assert!(backend.delete(b"long").unwrap())) >= VALUE_BYTES as u64);
        assert!(read_bytes(&|| assert!(!backend.delete(b"long").unwrap())) < 64 << 10);
    }

    /// `GETDEL` of keys that are not there would write to the log each time, and walks would pass what it wrote.
    #[test]
    fn a_missing_key_is_not_deleted() {
        let Some((_folder, backend)) = opened(Durability::No) else { return };
        backend.put(b"key", b"value", None).unwrap();
        let number = || backend.database.latest_sequence();
        let before = number();
        backend.update(b"none", &mut |_| Update::Delete).unwrap();
        assert_eq!(number(), before);
        backend.update(b"key", &mut |_| Update::Delete).unwrap();
        assert!(number() > before);
        assert_eq!(backend.meta(b"key"), Ok(None));
    }

    /// Before, between and behind them.
    #[test]
    fn a_brief_walk_ends_at_many_deleted_keys() {
        let Some((_folder, backend)) = opened(Durability::No) else { return };
        for number in 0..10_000 {
            let key = format!("gone:{number:05}");
            backend.put(key.as_bytes(), b"value", None).unwrap();
            assert!(backend.delete(key.as_bytes()).unwrap());
        }
        backend.put(b"a", b"value", None).unwrap();
        backend.put(b"z", b"value", None).unwrap();
        let keys_from = |from: &[u8], patience| {
            let mut keys = Vec::new();
            let next = backend.keys_from(from, 10, patience, &mut |key| keys.push(key.to_vec()));
            (keys, next)
        };
        let (a, z) = (b"a".to_vec(), b"z".to_vec());
        assert_eq!(keys_from(b"", Patience::Brief), (vec![a.clone()], Ok(Some(b"a\0".to_vec()))));
        assert_eq!(keys_from(b"a\0", Patience::Brief), (vec![], Err(BackendError::TakesLong)));
        assert_eq!(keys_from(b"a\0", Patience::Endless), (vec![z.clone()], Ok(None)));
        assert_eq!(keys_from(b"gone:09000", Patience::Brief), (vec![z.clone()], Ok(None)));
        let records = |patience| {
            let mut keys = Vec::new();
            let met = backend.records(Bound::Unbounded, Bound::Unbounded, patience, &mut |key, _| {
                keys.push(key.to_vec());
                Ok(true)
            });
            (keys, met)
        };
        assert_eq!(records(Patience::Brief), (vec![a.clone()], Err(BackendError::TakesLong)));
        assert_eq!(records(Patience::Endless), (vec![a, z], Ok(None)));
        // Those behind the end are not passed.
        let (from, to) = (Bound::Excluded(&b"a"[..]), Bound::Included(&b"gone:00100"[..]));
        assert_eq!(backend.records(from, to, Patience::Brief, &mut |_, _| Ok(true)), Ok(None));
        assert_eq!(backend.records(to, from, Patience::Brief, &mut |_, _| Ok(true)), Ok(None));
    }

    /// With RocksDB's own first level, a load of 130,000 values wrote three times as many bytes.
    #[test]
    fn levels_grow_from_the_memtable() {
        let Some((_folder, backend)) = opened(Durability::No) else { return };
        let options = backend.database.options().unwrap();
        let number = |name: &str| -> usize {
            let line = options.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
            line.unwrap().parse().unwrap()
        };
        assert_eq!(number("write_buffer_size"), 3 << 20);
        assert_eq!(number("target_file_size_base"), 3 << 20);
        assert_eq!(number("max_bytes_for_level_base"), 12 << 20);
        assert!(number("max_background_jobs") >= 4);
    }

    /// A stop waits for long commands that run, and a count of all keys may take minutes.
    #[test]
    fn a_stop_ends_a_count_of_all_keys() {
        let Some((_folder, backend)) = opened(Durability::No) else { return };
        backend.put(b"key", b"value", None).unwrap();
        assert_eq!(backend.count(), Ok(1));
        backend.stop();
        assert!(backend.count().unwrap_err().to_string().starts_with("the server stops"));
        assert!(backend.meta(b"key").unwrap().is_some());
    }

    /// They would push out the blocks that clients read.
    #[test]
    fn walks_over_all_keys_leave_the_cache_as_it_is() {
        let Some((_folder, backend)) = opened(Durability::No) else { return };
        for number in 0..2_000 {
            backend.database.put(format!("key:{number:05}").as_bytes(), &[number as u8; 4_000]).unwrap();
        }
        backend.database.compact().unwrap();
        let before = backend.memory.used_bytes();
        assert_eq!(backend.count(), Ok(2_000));
        let mut keys = 0;
        assert_eq!(backend.keys_from(b"", 2_000, Patience::Endless, &mut |_| keys += 1), Ok(None));
        assert_eq!(keys, 2_000);
        let grown = backend.memory.used_bytes().saturating_sub(before);
        assert!(grown < 1 << 20, "the cache grew by {grown} bytes");
    }

    #[test]
    fn a_database_whose_log_fails_stays_open() {
        let Some((_folder, backend)) = opened(Durability::Always) else { return };
        let (databases, name) = (backend.databases().unwrap(), DatabaseName::new(b"users").unwrap());
        databases.open(name, &[]).unwrap();
        backend.wait().unwrap();
        backend.for_each(|database| {
            if database.named.is_none() {
                database.log.fail();
            }
        });
        let told = databases.close(name).unwrap_err().to_string();
        assert!(told.contains("RocksDB's log has failed (made by a test)"), "{told}");
        // Replies to its former users must learn of that, and no others.
        assert!(backend.wait().is_err());
        assert_eq!(backend.wait_alone(), Ok(()));
        assert!(databases.find(name).unwrap().unwrap().wait_alone().is_err());
        backend.log.fail();
        let failures = ("log_failure", "default: made by a test; users: made by a test".to_owned());
        assert!(backend.persistence().contains(&failures));
    }

    /// A stop would end without the sync.
    #[test]
    fn a_failed_log_keeps_no_other_one_from_its_sync() {
        let Some((_folder, backend)) = opened(Durability::No) else { return };
        let databases = backend.databases().unwrap();
        for name in [b"first", b"other"] {
            let name = DatabaseName::new(name).unwrap();
            databases.open(name, &[]).unwrap();
            databases.find(name).unwrap().unwrap().put(b"key", b"value", None).unwrap();
        }
        backend.log.fail();
        backend.for_each(|database| {
            if database.database.folder().ends_with("first") {
                database.log.fail();
            }
        });
        assert!(backend.sync().is_err());
        let syncs = ("log_syncs", "1".to_owned());
        assert!(backend.persistence().contains(&syncs));
    }

    #[test]
    fn a_database_that_is_saved_or_used_is_not_closed() {
        let Some((_folder, backend)) = opened(Durability::No) else { return };
        let (databases, name) = (backend.databases().unwrap(), DatabaseName::new(b"users").unwrap());
        databases.open(name, &[]).unwrap();
        let user = databases.find(name).unwrap();
        let told = databases.close(name).unwrap_err().to_string();
        assert!(told.contains("is in use, or is being saved"), "{told}");
        // A client may go on with another database while it takes a value of this one.
        user.as_ref().unwrap().put(b"key", b"value", None).unwrap();
        let value = user.as_ref().unwrap().open_value(b"key").unwrap();
        drop(user);
        assert!(databases.close(name).unwrap_err().to_string().contains("is in use"));
        drop(value);
        assert_eq!(backend.save(Save::Make).unwrap(), Saving::Done);
        databases.close(name).unwrap();
        assert!(databases.find(name).is_err());
    }

    #[test]
    fn an_index_that_is_larger_than_a_part_of_the_cache_is_read_once() {
        let Some((_folder, backend)) = opened(Durability::No) else { return };
        // Long keys make an index of two megabytes for a file of 30.
        let key = |number: u32| format!("{number:0250}");
        for number in 0..8_000 {
            backend.database.put(key(number).as_bytes(), &[number as u8; 4_000]).unwrap();
        }
        backend.database.compact().unwrap();
        let before = read_bytes();
        for _ in 0..100 {
            assert!(backend.database.get(key(4_000).as_bytes(), &mut Vec::new()).unwrap());
        }
        let read = read_bytes() - before;
        assert!(read < 4 << 20, "100 reads of a record read {read} bytes");
    }
}
