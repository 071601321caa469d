//! RocksDB itself, found and loaded at run time. Building this crate needs no RocksDB.
//!
//! The module uses RocksDB's C API, whose functions `functions` declares by hand. Settings without a C function go
//! through option strings, as in an OPTIONS file. [`Library::load`] finds RocksDB, and [`Library::load_plugin`] adds
//! ziptier's classes. [`Database`] is a small safe wrapper for a benchmark and a server; for all of RocksDB, use the
//! crate `rocksdb`.
//!
//! ```no_run
//! use ziptier_rocksdb::host::{Database, Library, Table};
//!
//! let library = Library::load(None)?;
//! let options = "create_if_missing=true;compression=kZSTD";
//! let database = Database::open(library, "/tmp/example".as_ref(), options, Table::default())?;
//! database.put(b"key", b"value")?;
//! let mut value = Vec::new();
//! assert!(database.get(b"key", &mut value)? && value == b"value");
//! # Ok::<(), ziptier_rocksdb::host::Error>(())
//! ```

mod answers;
mod batch;
mod calls;
mod counters;
mod database;
mod functions;
mod library;
mod memory;
mod scan;

pub use answers::{Pinned, Values};
pub use batch::WriteBatch;
pub use database::{BYTES_AT_ONCE, BlockCache, Database, Table};
pub use library::{Estimate, EstimatedFormat, LIBRARY_VARIABLE, Library, Packing};
pub use memory::{Memory, return_freed_memory};
pub use scan::{Scan, ScanOptions};

use std::path::PathBuf;

/// The reason why RocksDB was not loaded, or refused an operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No library was found.
    #[error(
        "RocksDB is not installed ({tried}); `make setup-rocksdb` fetches it, or name its file in {LIBRARY_VARIABLE}"
    )]
    Missing {
        /// The files that were tried, and the loader's message.
        tried: String,
    },
    /// ziptier's own library was not found, or refused the RocksDB that it found.
    #[error("ziptier's classes for RocksDB were not loaded from {path}: {reason}")]
    Plugin {
        /// The path that was tried.
        path: PathBuf,
        /// The message of the loader or the library.
        reason: String,
    },
    /// RocksDB returned an error.
    #[error("could not {action}: {status}")]
    Status {
        /// The attempted action.
        action: &'static str,
        /// RocksDB's words.
        status: String,
    },
    /// A scan comes to more deleted and replaced values than it may pass.
    #[error("the scan comes to more deleted keys than it may pass; scan without that bound")]
    PassesMany,
    /// RocksDB took a string of options and dropped one of them, as it does with unregistered classes.
    #[error("RocksDB ignored the compression manager {asked}: its options say {found}")]
    Ignored {
        /// The manager that was asked for.
        asked: String,
        /// The manager that the database has instead.
        found: String,
    },
    /// A name or string that has a zero byte in it.
    #[error("{text:?} has a zero byte in it, which RocksDB's C API cannot take")]
    ZeroByte {
        /// The string.
        text: String,
    },
    /// The folder of a database cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}
