//! The options of the cache, and the errors of opening it.

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
    /// Blocks that are evicted from memory for the second time, and blocks that RocksDB forces.
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
    /// `capacity`: the most bytes of all files together; at least 8 MiB.
    pub capacity_bytes: u64,
    /// `codec`.
    pub codec: Codec,
    /// `admission`.
    pub admission: Admission,
    /// `direct`: past the system's page cache.
    pub direct: bool,
    /// `buffer`: bytes of memory for unwritten blocks. Blocks that come while the buffer is full are not stored.
    pub buffer_bytes: usize,
}

/// The least capacity.
pub const CAPACITY_BYTES_MIN: u64 = 8 << 20;

/// The longest segment that is made.
const SEGMENT_BYTES_USUAL: u64 = 64 << 20;

impl Settings {
    /// Settings with a folder and a capacity, and the defaults of an empty option string.
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

    /// The most segments of `segment_bytes` bytes. The rest of the capacity is for the file of the index.
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

    /// Whether the cache can continue with existing segments of this length.
    pub(super) fn takes_segments_of(&self, segment_bytes: u64) -> bool {
        segment_bytes.is_multiple_of(super::format::PAGE_BYTES as u64)
            && (1 << 16..=SEGMENT_BYTES_MAX).contains(&segment_bytes)
            && (4..SLOTS_MAX).contains(&self.slots(segment_bytes))
    }
}

/// The reason why a cache cannot be opened. The database works without the cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The folder cannot be used.
    #[error("the block cache on disk: {0}")]
    Disk(#[from] DiskError),
    /// No folder was named.
    #[error("the block cache on disk needs a folder; name one by `path=DIR`")]
    NoPath,
    /// An option has an unknown value.
    #[error("the block cache on disk has no `{name}={value}`; choose one of {choices}")]
    Option {
        /// The option.
        name: String,
        /// Its value.
        value: String,
        /// The possible values.
        choices: &'static str,
    },
    /// The capacity is out of range.
    #[error(
        "a block cache of {asked_bytes} bytes was asked for; its `capacity` is from {CAPACITY_BYTES_MIN} to \
         {most_bytes} bytes"
    )]
    Capacity {
        /// The requested capacity.
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
    /// The folder has a foreign file with a name of the cache.
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
