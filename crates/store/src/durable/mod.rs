//! A store that survives its process: its folder, the log in its write path, and checkpoints.
//!
//! Without [`DurableOptions`] nothing of this exists, and a store ends with its process.
//!
//! | module | claim |
//! |---|---|
//! | `operation` | the bytes of a record of the log |
//! | `journal` | the open log: numbers of writes, and waiting for them |
//! | `generation` | codings, as bytes that outlive the process |
//! | `manifest` | the images that make up a checkpoint |
//! | `checkpoint` | writing the leaves that changed, so that the log can be dropped |
//! | `segments_dir` | the owner of a folder of segments |
//! | `folder` | a store's folder: its locks, and its files by name |
//! | `stream`, `dump`, `restore` | a folder as one stream, and back |

mod checkpoint;
mod dump;
mod folder;
mod generation;
mod journal;
mod manifest;
#[cfg(all(test, not(miri), not(shuttle)))]
mod newer;
mod operation;
mod restore;
pub(crate) mod segments_dir;
mod stream;

pub use checkpoint::CheckpointStats;
pub(crate) use checkpoint::{BACKUP_DIR, Checkpointer, InForce};
pub use dump::{DumpSummary, dump};
pub(crate) use folder::{Folder, GENERATIONS_DIR, LOG_DIR, check_folder, no_store};
pub(crate) use generation::GenerationFiles;
pub(crate) use journal::WriteLog;
pub(crate) use manifest::{Entry, EntryReader, Head, Listed, Manifest};
#[cfg(test)]
pub(crate) use operation::Heads;
pub(crate) use operation::Operations;
pub use restore::restore;
pub(crate) use segments_dir::refuse_segments_of_a_store;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ziptier_media::disk::{Disk, RealDisk};
use ziptier_media::log::{LogOptions, Lsn, TornTail};
use ziptier_media::segments::SegmentOptions;

use crate::Error;

/// When a write is durable; the names are Redis's. [A table](crate::Store#durability-and-closing) says what a kill and
/// a power cut may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before it is acknowledged it is on the medium: nothing acknowledged is lost, not even in a power cut. Reads,
    /// too, wait for what they have seen.
    Always,
    /// The system has a write before it is acknowledged, and the medium has it within about a second. A power cut loses
    /// a second, the end of the process nothing.
    #[default]
    Everysec,
    /// The system has a write before it is acknowledged, and writes it to the medium when it likes. The end of the
    /// process loses nothing.
    No,
}

impl Durability {
    pub(crate) const ALL: [Self; 3] = [Self::Always, Self::Everysec, Self::No];

    fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Everysec => "everysec",
            Self::No => "no",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let named = Self::ALL.into_iter().find(|durability| durability.name() == name);
        named.ok_or_else(|| Error::UnknownDurability { name: name.to_owned() })
    }
}

/// The folder of a store, and how the store keeps its data there.
#[derive(Clone, Debug)]
pub struct DurableOptions {
    /// The folder; made if it is missing. One store at a time has it open.
    pub dir: PathBuf,
    /// When a write is durable; `new` sets [`Durability::Everysec`].
    pub durability: Durability,
    /// Whether every call waits itself (`new` sets `true`) until what it has written or seen is as durable as
    /// `durability` says. Otherwise the caller calls [`Store::wait`](crate::Store::wait) before it tells anybody, once
    /// for many calls.
    pub waits: bool,
    /// Start with what is whole where something is damaged; `new` sets `false`. What is not is listed in
    /// [`Recovered::skipped`].
    pub salvage: bool,
    /// A checkpoint is made when the log has grown by so many bytes since the last one. `None`, as `new` sets, stands
    /// for as many as all keys and values have, or all images where that is more, between 64 MiB and 1 GiB.
    pub checkpoint_log_bytes: Option<u64>,
    /// The folder of the segments, for [`check`](crate::check()), [`dump`] and [`restore`]. `None` stands for the
    /// folder where the store had them, or one within the store's. A store that is opened has this in
    /// [`SsdOptions::path`](crate::SsdOptions::path).
    pub segments_dir: Option<PathBuf>,
    /// The longest time that the checkpoint of a clean stop may walk; `new` sets five seconds. Tests set more.
    #[doc(hidden)]
    pub stop_time_max: Duration,
    /// How segments of images are laid out, and how many bytes they may have in all, without
    /// [`Options::ssd`](crate::Options::ssd).
    #[doc(hidden)]
    pub segments: SegmentOptions,
    /// How the log is laid out; its `first_lsn` and `salvage` are the store's to set.
    #[doc(hidden)]
    pub log: LogOptions,
    /// The disk of the folder, for tests that record it or make it fail.
    #[doc(hidden)]
    pub disk: DiskHandle,
}

impl DurableOptions {
    /// The usual ones for a folder: durability [`Everysec`](Durability::Everysec), calls that wait (`waits`), no
    /// salvage, checkpoints when the log has grown as `checkpoint_log_bytes: None` says, and segments within the
    /// folder.
    ///
    /// The struct has fields that are not public API, so set others after `new`:
    ///
    /// ```
    /// use ziptier::{Durability, DurableOptions};
    ///
    /// let mut durable = DurableOptions::new("/data/store");
    /// durable.durability = Durability::Always;
    /// ```
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            durability: Durability::default(),
            waits: true,
            salvage: false,
            checkpoint_log_bytes: None,
            segments_dir: None,
            stop_time_max: checkpoint::STOP_TIME_MAX,
            segments: SegmentOptions { limit_bytes: u64::MAX, ..SegmentOptions::default() },
            log: LogOptions::default(),
            disk: DiskHandle(Arc::new(RealDisk)),
        }
    }

    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        self.disk.0.clone()
    }
}

/// A share of a disk.
#[doc(hidden)]
#[derive(Clone)]
pub struct DiskHandle(pub Arc<dyn Disk>);

impl fmt::Debug for DiskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskHandle")
    }
}

/// How far a recovery has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes of images and log that were read.
    pub done_bytes: u64,
    /// Bytes of all images and of the log.
    pub all_bytes: u64,
}

/// The contents that a store found in its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Images of leaves that were loaded.
    pub images: u64,
    /// Their bytes.
    pub image_bytes: u64,
    /// Records of the log that were replayed.
    pub records: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Whether the log ends with the mark of a clean stop.
    pub is_sealed: bool,
    /// The remains of writes that were never acknowledged as durable, at the end of the log; they were dropped.
    pub torn_tail: Option<TornTail>,
    /// The damage that a salvage passed over, each in a few words.
    pub skipped: Vec<String>,
}

/// Counters of a durable store's log since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurableStats {
    /// When a write is durable.
    pub durability: Durability,
    /// The means by which the log becomes durable, in words: `fdatasync`, or instructions if its folder is on
    /// persistent memory with DAX.
    pub durable_after: String,
    /// Records appended.
    pub log_records: u64,
    /// Bytes written to the log's files.
    pub log_written_bytes: u64,
    /// Bytes of the log's files, spare ones included.
    pub log_allocated_bytes: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// The oldest record that the log has, by number.
    pub first_lsn: Lsn,
    /// The newest record.
    pub last_lsn: Lsn,
    /// The newest durable record.
    pub durable_lsn: Lsn,
    /// The first failure of a write or sync. After it every write is refused, and with [`Durability::Always`] every
    /// read that may see a record that is not durable.
    pub failure: Option<String>,
    /// Why the last write was refused for want of room, if it was: nothing is lost, and writes are taken when there is
    /// room again.
    pub refusal: Option<String>,
}

/// Reads any bytes as a record of the log.
#[cfg(fuzzing)]
pub fn fuzz_log_record(bytes: &[u8]) {
    let Ok(operations) = operation::Operations::of(bytes) else { return };
    let Ok(operations) = operations.collect::<Result<Vec<_>, _>>() else { return };
    let again = operation::Heads::default().lay_out(operations.iter().copied(), |parts| parts.concat());
    let read = operation::Operations::of(&again).and_then(|read| Ok(read.collect::<Result<Vec<_>, _>>()?));
    assert_eq!(read.as_ref(), Ok(&operations));
}
