//! What a user of the cache can choose, and why a cache cannot be opened.

use super::index::{SEGMENT_BYTES_MAX, SLOTS_MAX};
use std::path::PathBuf;
use ziptier_media::disk::DiskError;

/// How blocks are packed in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// LZ4: the least time.
    #[default]
    Lz4,
    /// zstd at level 1: the least room.
    Zstd,
    /// Not at all.
    None,
}

/// Which blocks are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Admission {
    /// Those that are evicted from memory for the second time, and those that RocksDB insists on.
    #[default]
    Ghost,
    /// All.
    All,
}

/// The options of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `path`: a folder of the cache's own, made if it is missing.
    pub path: PathBuf,
    /// `capacity`: all files together have at most so many bytes; 8 MiB at least.
    pub capacity_bytes: u64,
    /// `codec`.
    pub codec: Codec,
    /// `admission`.
    pub admission: Admission,
    /// `direct`: past the system's page cache.
    pub direct: bool,
    /// `buffer`: bytes of memory for what was not written yet; what comes while it is full is not stored.
    pub buffer_bytes: usize,
}

/// The least capacity.
pub const CAPACITY_BYTES_MIN: u64 = 8 << 20;

/// The longest segment that is made.
const SEGMENT_BYTES_USUAL: u64 = 64 << 20;

impl Settings {
    /// A cache in a folder, of a capacity, and all else as an empty option string means it.
    pub fn new(path: impl Into<PathBuf>, capacity_bytes: u64) -> Settings {
        Settings {
            path: path.into(),
            capacity_bytes,
            codec: Codec::default(),
            admission: Admission::default(),
            direct: false,
            buffer_bytes: 16 << 20,
        }
    }

    /// Sets an option by its name in option strings.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), CacheError> {
        let wrong = |choices: &'static str| CacheError::Option {
            name: name.to_owned(),
            value: value.to_owned(),
            choices,
        };
        match (name, value) {
            ("codec", "lz4") => self.codec = Codec::Lz4,
            ("codec", "zstd") => self.codec = Codec::Zstd,
            ("codec", "none") => self.codec = Codec::None,
            ("codec", _) => return Err(wrong("lz4, zstd, none")),
            ("admission", "ghost") => self.admission = Admission::Ghost,
            ("admission", "all") => self.admission = Admission::All,
            ("admission", _) => return Err(wrong("ghost, all")),
            _ => return Err(wrong("codec, admission")),
        }
        Ok(())
    }

    /// Bytes of a segment of a new cache: a sixty-fourth of the capacity, from 1 to 64 MiB.
    pub(super) fn segment_bytes(&self) -> u64 {
        (self.capacity_bytes / 64).next_power_of_two().clamp(1 << 20, SEGMENT_BYTES_USUAL)
    }

    /// How many segments of so many bytes there may be; the rest of the capacity is for the file of the index.
    pub(super) fn slots(&self, segment_bytes: u64) -> u64 {
        (self.capacity_bytes - self.index_bytes_max()) / segment_bytes
    }

    /// The longest file of the index.
    pub(super) fn index_bytes_max(&self) -> u64 {
        self.capacity_bytes / 64
    }

    pub(super) fn check(&self) -> Result<(), CacheError> {
        let most_bytes = SLOTS_MAX * SEGMENT_BYTES_USUAL;
        if self.path.as_os_str().is_empty() {
            return Err(CacheError::NoPath);
        }
        if !(CAPACITY_BYTES_MIN..=most_bytes).contains(&self.capacity_bytes) {
            return Err(CacheError::Capacity { asked_bytes: self.capacity_bytes, most_bytes });
        }
        Ok(())
    }

    /// Whether segments of this length, found in the folder, can be gone on with.
    pub(super) fn takes_segments_of(&self, segment_bytes: u64) -> bool {
        segment_bytes.is_multiple_of(super::format::PAGE_BYTES as u64)
            && (1 << 16..=SEGMENT_BYTES_MAX).contains(&segment_bytes)
            && (4..SLOTS_MAX).contains(&self.slots(segment_bytes))
    }
}

/// Why a cache cannot be opened. The database can do without.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The folder cannot be used.
    #[error("the block cache on disk: {0}")]
    Disk(#[from] DiskError),
    /// No folder was named.
    #[error("the block cache on disk needs a folder; name one by `path=DIR`")]
    NoPath,
    /// An option has a value that it does not have.
    #[error("the block cache on disk has no `{name}={value}`; choose one of {choices}")]
    Option {
        /// The option.
        name: String,
        /// Its value.
        value: String,
        /// What there is.
        choices: &'static str,
    },
    /// The capacity is out of range.
    #[error(
        "a block cache of {asked_bytes} bytes was asked for; its `capacity` is from {CAPACITY_BYTES_MIN} to \
         {most_bytes} bytes"
    )]
    Capacity {
        /// What was asked for.
        asked_bytes: u64,
        /// The most.
        most_bytes: u64,
    },
    /// Another version wrote the folder.
    #[error(
        "{} was written by version {found} of the block cache, and this is version 1; name another folder, or \
         empty this one",
        path.display()
    )]
    Version {
        /// A file of the folder.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The folder has a database in it.
    #[error("{} holds a database; the block cache needs a folder of its own", path.display())]
    Database {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has a file of somebody else's with a name of the cache's.
    #[error(
        "{} was not written by the block cache, which has a file of that name; name another folder, or move that \
         file away",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// This process has the cache open with other options.
    #[error("this process uses {} with other options; use the same, or another folder", path.display())]
    OtherOptions {
        /// The folder.
        path: PathBuf,
    },
    /// No thread for writing.
    #[error("the system gives no thread to write the block cache with: {0}")]
    Thread(String),
    /// A codec does not open.
    #[error("{0}")]
    Codec(String),
}
