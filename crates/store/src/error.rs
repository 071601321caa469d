//! The errors of a store. Each sentence says what was tried, what was found and what to do.

use std::path::{Path, PathBuf};

use ziptier_media::disk::DiskError;
use ziptier_media::log::LogError;
use ziptier_media::segments::SegmentError;
use ziptier_tree::HostError;
use ziptier_tree::codec_options::UnknownCodec;
use ziptier_tree::fields::FormatError;
use ziptier_tree::sizes::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The group of an [`Error`], for programs that act on it: by [`Error::kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A key, a value or a batch that no store takes.
    Argument,
    /// A memory limit is reached. Reads and deletes go on.
    NoRoom,
    /// Stored bytes are damaged, or cannot be read any more.
    Damaged,
    /// An option that no store takes, or a word that means none.
    Option,
    /// The machine lacks an engine, a device, or far memory.
    Unavailable,
    /// A file, the log, a stream or the operating system has failed, or belongs to something else.
    Io,
}

/// Why a store refused or failed an operation. An operation that returns an error has changed nothing, with two
/// exceptions. If the log fails while a write waits to be durable, the fate of that write is not known before the store
/// is opened anew. If [`Store::clear`](crate::Store::clear) fails, some keys may be gone.
///
/// | group | errors | remedy |
/// |---|---|---|
/// | the call is wrong | [`EmptyKey`], [`KeyTooLong`], [`ValueTooLong`], [`BatchTooLarge`] | another key, value or batch |
/// | no room | [`MemoryLimit`], [`MemoryAndFarLimit`], [`MemoryAndSsdLimit`] | delete keys, or raise a limit; reads go on |
/// | damage | [`Damaged`], [`Unread`] | the store goes on; put the value again |
/// | the disk, its being full included | [`Log`], [`Segments`] | a full disk: free space; a poisoned log: open the store anew |
/// | checkpoints | [`CheckpointTooLong`], [`Stopping`], [`NoCheckpoint`] | the log has everything |
/// | start: options | [`LimitTooSmall`], [`LandingOutOfRange`], [`WatermarkOutOfRange`], [`BlockOutOfRange`], [`BlockOptions`], [`EngineUnavailable`], [`TooManyThreads`], [`Far`], [`Ssd`] | other options |
/// | start: words that are parsed | [`FarRatio`], [`UnknownCodec`], [`UnknownDurability`] | another word |
/// | start: the folder | [`ForeignFile`], [`FileForeign`], [`NoStore`], [`RestoreUnfinished`] | another folder |
/// | start: damage in the folder | [`FileDamaged`], [`LogRecord`], [`NotRedone`] | restore it, or [`DurableOptions::salvage`] |
/// | start: the system | [`Thread`] | fewer threads, or a higher limit |
/// | [`dump`], [`restore`] | [`Stream`], [`NotEmpty`] | another stream or folder |
///
/// A folder that is open already, in this process or another, is [`Log`] with the error of the disk.
/// [`Ssd`] also comes from [`Store::set_eviction`].
///
/// [`EmptyKey`]: Self::EmptyKey
/// [`KeyTooLong`]: Self::KeyTooLong
/// [`ValueTooLong`]: Self::ValueTooLong
/// [`BatchTooLarge`]: Self::BatchTooLarge
/// [`MemoryLimit`]: Self::MemoryLimit
/// [`MemoryAndFarLimit`]: Self::MemoryAndFarLimit
/// [`MemoryAndSsdLimit`]: Self::MemoryAndSsdLimit
/// [`Damaged`]: Self::Damaged
/// [`Unread`]: Self::Unread
/// [`Log`]: Self::Log
/// [`Segments`]: Self::Segments
/// [`CheckpointTooLong`]: Self::CheckpointTooLong
/// [`Stopping`]: Self::Stopping
/// [`NoCheckpoint`]: Self::NoCheckpoint
/// [`LimitTooSmall`]: Self::LimitTooSmall
/// [`LandingOutOfRange`]: Self::LandingOutOfRange
/// [`WatermarkOutOfRange`]: Self::WatermarkOutOfRange
/// [`BlockOutOfRange`]: Self::BlockOutOfRange
/// [`BlockOptions`]: Self::BlockOptions
/// [`EngineUnavailable`]: Self::EngineUnavailable
/// [`TooManyThreads`]: Self::TooManyThreads
/// [`Far`]: Self::Far
/// [`Ssd`]: Self::Ssd
/// [`FarRatio`]: Self::FarRatio
/// [`UnknownCodec`]: Self::UnknownCodec
/// [`UnknownDurability`]: Self::UnknownDurability
/// [`ForeignFile`]: Self::ForeignFile
/// [`FileForeign`]: Self::FileForeign
/// [`NoStore`]: Self::NoStore
/// [`RestoreUnfinished`]: Self::RestoreUnfinished
/// [`FileDamaged`]: Self::FileDamaged
/// [`LogRecord`]: Self::LogRecord
/// [`NotRedone`]: Self::NotRedone
/// [`Thread`]: Self::Thread
/// [`Stream`]: Self::Stream
/// [`NotEmpty`]: Self::NotEmpty
/// [`DurableOptions::salvage`]: crate::DurableOptions::salvage
/// [`Store::set_eviction`]: crate::Store::set_eviction
/// [`dump`]: crate::dump()
/// [`restore`]: crate::restore()
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key of no bytes.
    #[error("the key is empty; a key has 1 to {KEY_BYTES_MAX} bytes")]
    EmptyKey,
    /// A key above [`KEY_BYTES_MAX`].
    #[error("the key has {len} bytes; a key has at most {KEY_BYTES_MAX}")]
    KeyTooLong {
        /// Bytes of the key.
        len: usize,
    },
    /// A value above [`VALUE_BYTES_MAX`].
    #[error("the value has {len} bytes; a value has at most {VALUE_BYTES_MAX}")]
    ValueTooLong {
        /// Bytes of the value.
        len: u64,
    },
    /// A batch of more bytes than the newest writes of a leaf may have.
    #[error("a batch of {bytes} bytes was given, and one has at most {limit_bytes}; write several")]
    BatchTooLarge {
        /// Bytes of its records, without those of large values.
        bytes: usize,
        /// Bytes that a batch may have.
        limit_bytes: usize,
    },
    /// A write that would pass the memory limit.
    #[error(
        "the write was refused: {used_bytes} bytes are held and the memory limit is {limit_bytes}; delete \
         keys or raise the limit"
    )]
    MemoryLimit {
        /// The limit in force.
        limit_bytes: u64,
        /// Bytes that the store held when it refused.
        used_bytes: u64,
    },
    /// A write that would pass the memory limit of a store whose far memory has no room either.
    #[error(
        "the write was refused: {used_bytes} bytes are held in DRAM and the memory limit is {limit_bytes}, and of \
         {far_limit_bytes} bytes of far memory {far_used_bytes} are in use; delete keys or raise a limit"
    )]
    MemoryAndFarLimit {
        /// The limit of DRAM in force.
        limit_bytes: u64,
        /// Bytes that the store held in DRAM when it refused.
        used_bytes: u64,
        /// Bytes that far memory has.
        far_limit_bytes: u64,
        /// Bytes of it in use.
        far_used_bytes: u64,
    },
    /// A write that would pass the memory limit of a store whose SSD takes no leaf either, nor its far memory, if there
    /// is any. [`SsdStatus::is_refused`](crate::SsdStatus::is_refused) says whether the SSD is full or has failed.
    #[error(
        "the write was refused: {used_bytes} bytes are held in DRAM and the memory limit is {limit_bytes}{}, and of \
         {ssd_limit_bytes} bytes of SSD {ssd_taken_bytes} are taken, or kept for cleaning and checkpoints; delete keys \
         or raise a limit",
        far_words(*far_used_bytes, *far_limit_bytes)
    )]
    MemoryAndSsdLimit {
        /// The limit of DRAM in force.
        limit_bytes: u64,
        /// Bytes that the store held in DRAM when it refused.
        used_bytes: u64,
        /// Bytes that far memory has, 0 for none.
        far_limit_bytes: u64,
        /// Bytes of it in use.
        far_used_bytes: u64,
        /// Bytes that the SSD may have.
        ssd_limit_bytes: u64,
        /// Bytes of it in segment files, or kept for cleaning and for checkpoints.
        ssd_taken_bytes: u64,
    },
    /// Far memory that could not be opened.
    #[error("{reason}")]
    Far {
        /// The request, the finding, and the remedy.
        reason: String,
    },
    /// A ratio that is none.
    #[error("'{ratio}' is no ratio of DRAM to far memory; write two whole numbers, not both 0, such as 1:3")]
    FarRatio {
        /// The ratio as given.
        ratio: String,
    },
    /// A memory limit that leaves no room for data.
    #[error("a memory limit of {limit_bytes} bytes is too small; give at least {min_bytes}")]
    LimitTooSmall {
        /// The limit asked for.
        limit_bytes: u64,
        /// The smallest accepted.
        min_bytes: u64,
    },
    /// A landing size out of range.
    #[error("a landing of {bytes} bytes was asked for; it may have 256 to 65536")]
    LandingOutOfRange {
        /// The size asked for.
        bytes: usize,
    },
    /// A watermark of landings out of range.
    #[error("landings are to be packed when they are {pct} per cent full; give 1 to 100")]
    WatermarkOutOfRange {
        /// The watermark asked for.
        pct: u8,
    },
    /// A block size out of range.
    #[error("blocks of {bytes} bytes were asked for; they may have 512 to 16384")]
    BlockOutOfRange {
        /// The size asked for.
        bytes: usize,
    },
    /// Block options that no engine can follow.
    #[error("blocks cannot be packed as asked: {reason}")]
    BlockOptions {
        /// The thing that the engine cannot do, and the things that it can.
        reason: String,
    },
    /// An engine that this machine does not have.
    #[error("{reason}")]
    EngineUnavailable {
        /// Which engine, what was looked for and found, what to do.
        reason: String,
    },
    /// More background threads than make sense.
    #[error("{threads} background threads were asked for; give at most 64")]
    TooManyThreads {
        /// The number asked for.
        threads: usize,
    },
    /// A codec name that means nothing.
    #[error(transparent)]
    UnknownCodec(#[from] UnknownCodec),
    /// Stored bytes that fail their check: they are never returned as data.
    #[error("the value of a key of {key_bytes} bytes is damaged in memory: {reason}")]
    Damaged {
        /// Bytes of the key.
        key_bytes: usize,
        /// The finding of the decoder.
        reason: String,
    },
    /// Something logged that needs what could not be read.
    #[error(
        "what the log says of a value cannot be done again: {reason}; restore it, or start with what is \
         whole (--salvage)"
    )]
    NotRedone {
        /// Which file, where in it, and what is wrong.
        reason: String,
    },
    /// A value on SSD that could not be read.
    #[error("the value of a key of {key_bytes} bytes cannot be read from SSD: {reason}")]
    Unread {
        /// Bytes of the key.
        key_bytes: usize,
        /// Which file, where in it, and what is wrong.
        reason: String,
    },
    /// The SSD tier cannot be used as asked.
    #[error("the SSD cannot be used: {reason}")]
    Ssd {
        /// The attempt and the finding.
        reason: String,
    },
    /// The log refused or failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A record of the log that is whole and cannot be read.
    #[error("record {lsn} of the log cannot be read: {reason}")]
    LogRecord {
        /// Its number.
        lsn: u64,
        /// The finding.
        reason: String,
    },
    /// A folder that is not a store's.
    #[error("{} is no file of a store; move it away, or name another folder", path.display())]
    ForeignFile {
        /// The file that was found there.
        path: PathBuf,
    },
    /// A durability that there is not.
    #[error("there is no durability '{name}'; it is always, everysec or no")]
    UnknownDurability {
        /// The name as given.
        name: String,
    },
    /// A file of the store's folder is damaged.
    #[error("{} is damaged at byte {offset}: {reason}; {}", path.display(), remedy(path))]
    FileDamaged {
        /// The file.
        path: PathBuf,
        /// The offset in the file.
        offset: u64,
        /// The expectation and the finding.
        reason: String,
    },
    /// A file with another signature or version.
    #[error("{} cannot be read: {reason}", path.display())]
    FileForeign {
        /// The file.
        path: PathBuf,
        /// The version found, and the versions that this one reads.
        reason: String,
    },
    /// The segments of images refused or failed.
    #[error(transparent)]
    Segments(#[from] SegmentError),
    /// A folder without a store.
    #[error("{} holds no store: it has no MANIFEST", path.display())]
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// A folder into which a dump was restored in part.
    #[error(
        "{} holds what a restore has left that did not end; restore the dump again, or remove the folder",
        path.display()
    )]
    RestoreUnfinished {
        /// The folder.
        path: PathBuf,
    },
    /// A folder that was to be empty.
    #[error("{} is there; name a folder that is new or empty", path.display())]
    NotEmpty {
        /// A file in it.
        path: PathBuf,
    },
    /// A dump that cannot be written or read.
    #[error("the dump cannot be read or written: {reason}")]
    Stream {
        /// The system's words, or what is wrong with it.
        reason: String,
    },
    /// A checkpoint at a clean stop was given up: it would have taken too long.
    #[error("the checkpoint would have taken too long, and was given up")]
    CheckpointTooLong,
    /// A checkpoint was given up since the store ends.
    #[error("the checkpoint was given up, since the store stops; the log has everything")]
    Stopping,
    /// No checkpoint is made any more.
    #[error("no checkpoint is made since this failure: {first}")]
    NoCheckpoint {
        /// The failure, in its own words.
        first: String,
    },
    /// The operating system refused a thread.
    #[error("a background thread could not be started: {reason}")]
    Thread {
        /// The system's words.
        reason: String,
    },
}

fn far_words(used_bytes: u64, limit_bytes: u64) -> String {
    match limit_bytes {
        0 => String::new(),
        _ => format!(", of {limit_bytes} bytes of far memory {used_bytes} are in use"),
    }
}

/// The errors of the tree, as callers of the store know them.
impl From<ziptier_tree::Error> for Error {
    fn from(error: ziptier_tree::Error) -> Self {
        use ziptier_tree::Error as Tree;
        match error {
            Tree::EmptyKey => Self::EmptyKey,
            Tree::KeyTooLong { len } => Self::KeyTooLong { len },
            Tree::ValueTooLong { len } => Self::ValueTooLong { len },
            Tree::BatchTooLarge { bytes, limit_bytes } => Self::BatchTooLarge { bytes, limit_bytes },
            Tree::BlockOptions { reason } => Self::BlockOptions { reason },
            Tree::EngineUnavailable { reason } => Self::EngineUnavailable { reason },
            Tree::Damaged { key_bytes, reason } => Self::Damaged { key_bytes, reason },
            Tree::Unread { key_bytes, reason } => Self::Unread { key_bytes, reason },
            Tree::MemoryLimit(error) | Tree::Host(error) => {
                error.downcast_ref::<Self>().expect("the store is the host of its tree").clone()
            }
        }
    }
}

/// The errors of the engine, on their way through the tree.
impl From<Error> for ziptier_tree::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::MemoryLimit { .. } => Self::MemoryLimit(HostError::new(error)),
            Error::Damaged { key_bytes, reason } => Self::Damaged { key_bytes, reason },
            Error::Unread { key_bytes, reason } => Self::Unread { key_bytes, reason },
            _ => Self::Host(HostError::new(error)),
        }
    }
}

impl Error {
    /// The group of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::EmptyKey
            | Self::KeyTooLong { .. }
            | Self::ValueTooLong { .. }
            | Self::BatchTooLarge { .. } => ErrorKind::Argument,
            Self::MemoryLimit { .. } | Self::MemoryAndFarLimit { .. } | Self::MemoryAndSsdLimit { .. } => {
                ErrorKind::NoRoom
            }
            Self::Damaged { .. }
            | Self::Unread { .. }
            | Self::FileDamaged { .. }
            | Self::LogRecord { .. }
            | Self::NotRedone { .. } => ErrorKind::Damaged,
            Self::LimitTooSmall { .. }
            | Self::LandingOutOfRange { .. }
            | Self::WatermarkOutOfRange { .. }
            | Self::BlockOutOfRange { .. }
            | Self::BlockOptions { .. }
            | Self::TooManyThreads { .. }
            | Self::Ssd { .. }
            | Self::FarRatio { .. }
            | Self::UnknownCodec(_)
            | Self::UnknownDurability { .. } => ErrorKind::Option,
            Self::EngineUnavailable { .. } | Self::Far { .. } => ErrorKind::Unavailable,
            Self::Log(_)
            | Self::Segments(_)
            | Self::ForeignFile { .. }
            | Self::FileForeign { .. }
            | Self::NoStore { .. }
            | Self::RestoreUnfinished { .. }
            | Self::NotEmpty { .. }
            | Self::Stream { .. }
            | Self::CheckpointTooLong
            | Self::Stopping
            | Self::NoCheckpoint { .. }
            | Self::Thread { .. } => ErrorKind::Io,
        }
    }

    /// Whether the disk has refused something, and left everything as it was: it has no room, or too many files are
    /// open.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Log(LogError::Disk(error)) if error.is_refusal())
    }

    /// Nothing, if this is such a refusal.
    pub(crate) fn pass_refusal(self) -> Result<(), Self> {
        if self.is_refusal() { Ok(()) } else { Err(self) }
    }

    /// The error for a failed read of a file of the folder: the file is damaged at `offset`, unless it is no failure of
    /// the medium.
    pub(crate) fn of_read(error: DiskError, path: &Path, offset: u64) -> Self {
        match error.unreadable() {
            Some(reason) => Self::FileDamaged { path: path.to_path_buf(), offset, reason },
            None => error.into(),
        }
    }

    /// The error for bytes of a file that cannot be taken.
    pub(crate) fn of_bytes(fault: FormatError, path: PathBuf, offset: u64) -> Self {
        match fault {
            FormatError::Damaged(reason) => Self::FileDamaged { path, offset, reason },
            FormatError::Version(reason) => Self::FileForeign { path, reason },
        }
    }

    /// As whoever starts a store is told it: with what to do about a damaged segment.
    pub(crate) fn at_start(self) -> Self {
        match self {
            Self::Segments(SegmentError::Damaged { path, offset, reason }) => {
                Self::FileDamaged { path, offset, reason }
            }
            error => error,
        }
    }

    /// The fault of a file that has been made anew, so that nothing is lost.
    pub(crate) fn mended(&self) -> String {
        match self {
            Self::FileDamaged { path, offset, reason } => {
                let path = path.display();
                format!("{path} was damaged at byte {offset} ({reason}) and has been written anew")
            }
            error => format!("{error}; it has been written anew"),
        }
    }
}

/// The way out of damage in a file of the folder. No start goes without the manifest.
fn remedy(path: &Path) -> &'static str {
    match path.file_name().and_then(|name| name.to_str()) {
        Some("MANIFEST" | "MANIFEST.copy") => "a start needs it or its copy, so restore a dump",
        _ => "restore it, or start with what is whole (--salvage)",
    }
}
