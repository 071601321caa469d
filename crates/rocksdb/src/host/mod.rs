//! RocksDB itself, found and loaded at run time: whoever builds this crate needs no RocksDB.
//!
//! It is driven through its C API, whose functions `functions` declares by hand, and everything that the C API has no
//! function for goes through option strings, as in an OPTIONS file. [`Library::load`] finds it,
//! [`Library::load_plugin`] adds ziptier's classes to it, and [`Database`] is a small safe wrapper of what a benchmark
//! needs; those who want all of RocksDB take the crate `rocksdb`.
//!
//! ```no_run
//! use ziptier_rocksdb::host::{Database, Library, Table, WriteLog};
//!
//! let library = Library::load(None)?;
//! let options = "create_if_missing=true;compression=kZSTD";
//! let database = Database::open(library, "/tmp/example".as_ref(), options, Table::default(), WriteLog::Unsynced)?;
//! database.put(b"key", b"value")?;
//! let mut value = Vec::new();
//! assert!(database.get(b"key", &mut value)? && value == b"value");
//! # Ok::<(), ziptier_rocksdb::host::Error>(())
//! ```

mod answers;
mod calls;
mod database;
mod functions;
mod library;

pub use answers::{Scan, Values};
pub use database::{Database, Table, WriteLog};
pub use library::{Estimate, EstimatedFormat, LIBRARY_VARIABLE, Library, Packing};

use std::path::PathBuf;

/// Why RocksDB was not loaded or did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No library was found.
    #[error(
        "RocksDB is not installed ({tried}); `make setup-rocksdb` fetches it, or name its file in {LIBRARY_VARIABLE}"
    )]
    Missing {
        /// What was looked for, and what the loader said.
        tried: String,
    },
    /// ziptier's own library was not found, or refused the RocksDB that it found.
    #[error("ziptier's classes for RocksDB were not loaded from {path}: {reason}")]
    Plugin {
        /// Where it was looked for.
        path: PathBuf,
        /// What the loader or the library said.
        reason: String,
    },
    /// RocksDB returned an error.
    #[error("RocksDB could not {action}: {status}")]
    Status {
        /// What was tried.
        action: &'static str,
        /// RocksDB's words.
        status: String,
    },
    /// RocksDB took a string of options and dropped one of them, as it does with classes that nobody registered.
    #[error("RocksDB ignored the compression manager {asked}: its options say {found}")]
    Ignored {
        /// The manager that was asked for.
        asked: String,
        /// What the database has instead.
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
        /// What was read.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
