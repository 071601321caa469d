//! A stock RocksDB as a target of the benchmark: with its own compressions, and with ours as its compression manager.
//!
//! The set-up is RocksDB's own, scaled to the data so that there are as many files and levels as in a large database.
//! There is no block cache, so every read decompresses. The database lies in the folder of its store, or else in the
//! one for temporary files (`TMPDIR`), while the run lasts.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::Args;
use tempfile::TempDir;
use ziptier_eval::{
    Batch, Config, Counters, EngineUnavailable, ModelledWork, Records, Registration, Target, TargetError,
    TargetOptions,
};
use ziptier_rocksdb::host::{
    BlockCache, Database, Error, LIBRARY_VARIABLE, Library, Table, Values, return_freed_memory,
};

/// Which library is loaded.
#[derive(Debug, Args)]
pub(crate) struct LibraryArgument {
    /// Path of RocksDB's library [default: librocksdb.so, or the one that make setup-rocksdb puts in place]
    #[arg(long, env = LIBRARY_VARIABLE, value_name = "FILE")]
    rocksdb_library: Option<PathBuf>,
}

static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();

impl LibraryArgument {
    /// Makes it the library of this process; the first call counts.
    pub(crate) fn set(&self) {
        LIBRARY.get_or_init(|| self.rocksdb_library.clone());
    }

    /// The library itself.
    pub(crate) fn load(&self) -> Result<&'static Library, ziptier_rocksdb::host::Error> {
        Library::load(self.rocksdb_library.as_deref())
    }

    /// The arguments that tell another process of this program the same.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let named = self.rocksdb_library.iter();
        named.flat_map(|path| ["--rocksdb-library".into(), path.display().to_string()]).collect()
    }
}

/// One way to compress: its name here, and the options that select it.
struct Codec {
    name: &'static str,
    compression: &'static str,
    /// The format that our compression manager writes, where it is the one that works.
    format: Option<&'static str>,
    /// Further settings of its `compression_opts`.
    dictionary: &'static str,
    /// The level that its name tells, as an option.
    level: &'static str,
}

const fn builtin(name: &'static str, compression: &'static str) -> Codec {
    Codec { name, compression, format: None, dictionary: "", level: "" }
}

const fn ours(name: &'static str, format: &'static str, compression: &'static str) -> Codec {
    Codec { name, compression, format: Some(format), dictionary: "", level: "" }
}

/// As RocksDB's documentation recommends: a dictionary of 16 KiB, trained on a hundred times as much.
const DICTIONARY: &str = "max_dict_bytes=16384;zstd_max_train_bytes=1638400;";

/// RocksDB's own compressions, and ours: the private format, and those that a RocksDB without us reads.
static CODECS: [Codec; 11] = [
    builtin("builtin-zstd", "kZSTD"),
    Codec { level: "level=1;", ..builtin("builtin-zstd-1", "kZSTD") },
    Codec { level: "level=9;", ..builtin("builtin-zstd-9", "kZSTD") },
    Codec { dictionary: DICTIONARY, ..builtin("builtin-zstd-dict", "kZSTD") },
    builtin("builtin-lz4", "kLZ4Compression"),
    Codec { dictionary: DICTIONARY, ..builtin("builtin-lz4-dict", "kLZ4Compression") },
    builtin("builtin-zlib", "kZlibCompression"),
    builtin("builtin-none", "kNoCompression"),
    ours("ziptier", "token", "kCustomCompression80"),
    ours("ziptier-deflate", "deflate", "kZlibCompression"),
    ours("ziptier-lz4", "lz4", "kLZ4Compression"),
];

impl Codec {
    /// Whether a device can do its work, or a model of one.
    fn takes_device(&self) -> bool {
        self.format == Some("deflate")
    }
}

/// A way to compress, for a database that is no target.
pub(crate) struct Compression {
    pub(crate) name: String,
    /// The options that select it.
    pub(crate) options: String,
    /// Whether they name ziptier's classes.
    pub(crate) needs_plugin: bool,
}

impl Compression {
    /// The compression of this name.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let Some(codec) = CODECS.iter().find(|codec| codec.name == name) else {
            let names = CODECS.each_ref().map(|codec| codec.name).join(", ");
            return Err(format!("there is no compression {name}; say one of {names}"));
        };
        let options = compression(codec, &TargetOptions::default());
        Ok(Self { name: name.to_owned(), options, needs_plugin: codec.format.is_some() })
    }
}

/// RocksDB, for the list of targets.
pub(crate) fn registration() -> Registration {
    let names = CODECS.each_ref().map(|codec| codec.name);
    let on_devices = CODECS.iter().filter(|codec| codec.takes_device()).map(|codec| codec.name);
    Registration::of::<RocksDbTarget>(
        "rocksdb",
        "a stock RocksDB, with its own compressions and with ours",
        &names,
    )
    .foreign()
    .with_models_for(on_devices)
}

/// The library that has our classes, once a run has loaded them.
static WITH_PLUGIN: OnceLock<&'static Library> = OnceLock::new();

/// The work of modelled devices behind ziptier's classes, which have their own models.
pub(crate) fn modelled() -> ModelledWork {
    modelled_of(&plugin_counters())
}

fn plugin_counters() -> String {
    WITH_PLUGIN.get().and_then(|library| library.counters().ok()).unwrap_or_default()
}

/// Who has worked for a format behind our classes.
fn worker_of(counters: &str, format: &str) -> Option<String> {
    let by =
        counters.lines().filter_map(|line| line.strip_prefix(format)?.strip_prefix(" by ")?.split_once(':'));
    let workers: BTreeSet<&str> = by.map(|(worker, _)| worker).collect();
    (!workers.is_empty()).then(|| Vec::from_iter(workers).join("+"))
}

fn modelled_of(counters: &str) -> ModelledWork {
    let figure = |name: &str| {
        let line = counters.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|figure| figure.parse::<u64>().ok()).unwrap_or(0)
    };
    let seconds = |name| figure(name) as f64 * 1e-9;
    ModelledWork {
        jobs: figure("modelled_jobs"),
        late_jobs: figure("modelled_late_jobs"),
        late_sec: seconds("modelled_late_ns"),
        cpu_sec: seconds("modelled_cpu_ns"),
        memo_bytes: figure("modelled_memo_bytes"),
    }
}

/// The data make so many files of the target size before they are compressed: more than 32 at ratios of up to 3.
const FILES: u64 = 96;
/// And so many memtables.
const MEMTABLES: u64 = 40;
/// RocksDB's own sizes, at which the scale ends.
const FILE_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;
/// The size of the first level in memtables, as in RocksDB's own sizes.
const LEVEL_MEMTABLES: u64 = 4;

struct Setup {
    codec: &'static Codec,
    options: String,
    table: Table<'static>,
    needs_plugin: bool,
    background_jobs: usize,
}

impl Setup {
    fn of(config: &Config) -> Result<Self, TargetError> {
        let asked = &config.options;
        let codec = CODECS.iter().find(|codec| codec.name == config.codec);
        let codec = codec.ok_or_else(|| format!("it has no codec {}", config.codec))?;
        let taken: &[&str] = match codec.format {
            Some(_) if codec.takes_device() => {
                &["--block-bytes", "--level", "--path", "--huffman", "--model"]
            }
            Some(_) => &["--block-bytes", "--level", "--path", "--huffman"],
            None if !codec.level.is_empty() => &["--block-bytes"],
            None => &["--block-bytes", "--level"],
        };
        asked.take_only(taken)?;
        if config.landing_bytes.is_some() || config.background.is_some() {
            return Err("it has neither landings nor writers that compact; leave out --landing-bytes and \
                        --background"
                .into());
        }
        let clamped = |bytes: u64| bytes.clamp(*FILE_BYTES.start(), *FILE_BYTES.end());
        let (file, memtable) = (clamped(config.raw_bytes / FILES), clamped(config.raw_bytes / MEMTABLES));
        let background_jobs = config.background_threads.unwrap_or(2).max(1);
        let options = format!(
            "create_if_missing=true;error_if_exists=true;write_buffer_size={memtable};target_file_size_base={file};\
             max_bytes_for_level_base={};max_background_jobs={background_jobs};{}",
            memtable * LEVEL_MEMTABLES,
            compression(codec, asked),
        );
        let usual = Table::default();
        let table =
            Table { block_bytes: asked.block_bytes.unwrap_or(usual.block_bytes), cache: BlockCache::None };
        Ok(Setup { codec, options, table, needs_plugin: codec.format.is_some(), background_jobs })
    }

    fn library(&self) -> Result<&'static Library, Error> {
        let library = Library::load(LIBRARY.get().and_then(Option::as_deref))?;
        if self.needs_plugin {
            library.load_plugin()?;
            WITH_PLUGIN.get_or_init(|| library);
        }
        Ok(library)
    }
}

/// The options that select a codec.
fn compression(codec: &Codec, asked: &TargetOptions) -> String {
    let level = asked.level.map(|level| format!("level={level};")).unwrap_or_default();
    let (of_manager, of_rocksdb) =
        if codec.format.is_some() { (level, String::new()) } else { (String::new(), level) };
    let manager = codec.format.map(|format| {
        let path = asked.path.map(|path| format!(";path={path}")).unwrap_or_default();
        let huffman = asked.huffman.map(|huffman| format!(";huffman={huffman}")).unwrap_or_default();
        let model = asked.model.as_ref().map(|model| format!(";model={{{model}}}")).unwrap_or_default();
        format!("compression_manager={{id=ziptier;{of_manager}format={format}{path}{huffman}{model}}};")
    });
    let options = match format!("{of_rocksdb}{}{}", codec.level, codec.dictionary) {
        none if none.is_empty() => none,
        some => format!("compression_opts={{{some}}};"),
    };
    format!("{}compression={};{options}", manager.unwrap_or_default(), codec.compression)
}

/// A part that this machine lacks is no fault of the request.
fn in_words(error: Error) -> TargetError {
    match error {
        Error::Missing { .. } | Error::Plugin { .. } => EngineUnavailable(error.to_string()).into(),
        error => error.into(),
    }
}

struct RocksDbTarget {
    // Dropped, and so closed, before its folder is removed.
    database: Database,
    folder: TempDir,
    codec: &'static Codec,
    background_jobs: usize,
}

/// Values that a multi-get found.
#[derive(Default)]
struct Found(Values);

impl Batch for Found {
    #[inline]
    fn answer(&self, position: usize) -> Option<&[u8]> {
        self.0.get(position)
    }
}

impl Target for RocksDbTarget {
    type Batch = Found;

    const CHECKED_AT_ONCE: usize = 64;

    fn check(config: &Config) -> Result<(), TargetError> {
        Setup::of(config)?.library().map(|_| ()).map_err(in_words)
    }

    fn open(config: &Config) -> Result<Self, TargetError> {
        let setup = Setup::of(config)?;
        let library = setup.library().map_err(in_words)?;
        let folder = tempfile::Builder::new().prefix("ziptier-rocksdb-").tempdir_in(config.folder())?;
        Ok(RocksDbTarget {
            database: Database::open(library, folder.path(), &setup.options, setup.table)?,
            folder,
            codec: setup.codec,
            background_jobs: setup.background_jobs,
        })
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        Ok(self.database.get(key, value)?)
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Found) -> Result<(), TargetError> {
        Ok(self.database.multi_get(keys, &mut batch.0)?)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        Ok(self.database.put(key, value)?)
    }

    /// RocksDB does not say whether a key existed, so it is asked first.
    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        let existed = self.database.get(key, &mut Vec::new())?;
        self.database.delete(key)?;
        Ok(existed)
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        let mut scan = self.database.scan(from);
        for _ in 0..limit {
            if !scan.next(|key, value| records.push(key, value))? {
                break;
            }
        }
        Ok(())
    }

    /// Compacts the database, and gives memory that the load freed back to the system. Where a limit holds for the
    /// process and its cached files together, files would lack that memory, and each run another amount.
    fn loaded(&self) -> Result<(), TargetError> {
        self.database.compact()?;
        return_freed_memory();
        Ok(())
    }

    fn held_bytes(&self) -> Option<u64> {
        Some(self.database.sst_bytes())
    }

    fn settle(&self) -> Result<(), TargetError> {
        Ok(self.database.compact()?)
    }

    fn describe(&self) -> String {
        let options = self.database.options().unwrap_or_default();
        let version = options.lines().find_map(|line| line.trim().strip_prefix("rocksdb_version="));
        let levels = self.database.property(c"rocksdb.levelstats").unwrap_or_default();
        format!("RocksDB {} in {}\n{levels}", version.unwrap_or("?"), self.folder.path().display())
    }

    fn counters(&self) -> Counters {
        let engine = match (self.codec.name, self.codec.format) {
            ("builtin-none", _) => None,
            (_, None) => Some("cpu".to_owned()),
            (_, Some(format)) => worker_of(&plugin_counters(), format).or_else(|| Some("cpu".to_owned())),
        };
        Counters {
            engine,
            bg_threads: Some(self.background_jobs as u64),
            files: Some(self.database.sst_files()),
            ..Counters::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn library_is_there() -> bool {
        LIBRARY.get_or_init(|| std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from));
        let found = Library::load(LIBRARY.get().and_then(Option::as_deref));
        if let Err(error) = &found {
            ziptier_testing::not_run("rocksdb", &format!("{error}; run make setup-rocksdb"));
        }
        found.is_ok()
    }

    #[test]
    fn workers_are_read_from_the_counters() {
        let counters = "packed_deflate_blocks 3\nlz4 by cpu: compress_calls=1\ndeflate by software: compress_calls=2\n\
                        deflate by hardware: compress_calls=7\ndeflate by software: compress_calls=1\nfailures 0\n";
        assert_eq!(worker_of(counters, "deflate").as_deref(), Some("hardware+software"));
        assert_eq!(worker_of(counters, "lz4").as_deref(), Some("cpu"));
        assert_eq!(worker_of(counters, "token"), None);
    }

    /// The codecs differ in options alone, and the rows of a benchmark check the answers of each. One without a
    /// dictionary passes for all, for RocksDB would train a dictionary for each of hundreds of small files.
    /// `ZIPTIER_SOAK`, as in `make soak`, has all of them pass the suite.
    #[test]
    fn rocksdb_conforms_with_its_own_compressions() {
        let all = std::env::var_os("ZIPTIER_SOAK").is_some();
        let is_tried = |codec: &&Codec| all || codec.name == "builtin-zstd";
        let builtin = CODECS.iter().filter(|codec| codec.format.is_none());
        for codec in builtin.filter(is_tried).filter(|_| library_is_there()) {
            registration()
                .check_conformance(codec.name)
                .unwrap_or_else(|error| panic!("{}: {error}", codec.name));
        }
    }

    #[test]
    fn what_it_does_not_take_is_refused_before_anything_is_loaded() {
        let refused = |config: Config| Setup::of(&config).err().unwrap().to_string();
        let zstd = || Config { codec: "builtin-zstd".into(), ..Config::default() };
        let engine = TargetOptions { engine: Some("iaa".into()), ..TargetOptions::default() };
        assert!(refused(Config { options: engine, ..zstd() }).contains("--codec-engine iaa"));
        assert!(refused(Config { landing_bytes: Some(512), ..zstd() }).contains("--landing-bytes"));
        assert!(refused(Config { codec: "token".into(), ..zstd() }).contains("no codec token"));
    }

    #[test]
    fn the_models_part_is_read_from_the_counters() {
        let counters =
            "unpacked_deflate_blocks 9\nmodelled_jobs 7\nmodelled_late_jobs 2\nmodelled_cpu_ns 1500000000\n";
        let expected = ModelledWork { jobs: 7, late_jobs: 2, cpu_sec: 1.5, ..ModelledWork::default() };
        assert_eq!(modelled_of(counters), expected);
        assert_eq!(modelled_of(""), ModelledWork::default());
    }

    #[test]
    fn options_select_the_codec() {
        let options = |codec: &str, options: TargetOptions| {
            Setup::of(&Config { codec: codec.into(), options, ..Config::default() }).unwrap().options
        };
        let level = TargetOptions { level: Some(-3), ..TargetOptions::default() };
        assert!(options("builtin-zstd", level).ends_with(";compression=kZSTD;compression_opts={level=-3;};"));
        let own = |codec: &str| options(codec, TargetOptions::default());
        assert!(own("builtin-zstd-9").ends_with(";compression=kZSTD;compression_opts={level=9;};"));
        let dictionary = "compression_opts={max_dict_bytes=16384;zstd_max_train_bytes=1638400;};";
        assert!(own("builtin-lz4-dict").ends_with(&format!(";compression=kLZ4Compression;{dictionary}")));
        let ours = options("ziptier", TargetOptions::default());
        assert!(
            ours.ends_with(
                ";compression_manager={id=ziptier;format=token};compression=kCustomCompression80;"
            ),
            "{ours}"
        );
        let dense = options("ziptier-deflate", TargetOptions { level: Some(9), ..TargetOptions::default() });
        assert!(dense.contains("{id=ziptier;level=9;format=deflate}") && !dense.contains("compression_opts"));
        let model = TargetOptions { model: Some("devices=2,depth=64".into()), ..TargetOptions::default() };
        let modelled = options("ziptier-deflate", model);
        assert!(modelled.contains("{id=ziptier;format=deflate;model={devices=2,depth=64}}"), "{modelled}");
    }
}
