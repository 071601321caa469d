//! Places for bytes outside the process's own memory, and the means that make bytes durable there.
//!
//! This crate knows nothing of records or codecs. Callers hand over bytes, and get the bytes back or an error that
//! names the fault.
//!
//! A log makes a record durable, and a segment file keeps a large value outside DRAM:
//!
//! ```
//! use std::sync::Arc;
//! use ziptier_media::disk::RealDisk;
//! use ziptier_media::log::{Log, LogOptions};
//! use ziptier_media::segments::{Purpose, SegmentOptions, Segments};
//!
//! let folder = tempfile::tempdir()?;
//! let disk = Arc::new(RealDisk);
//! let options = LogOptions { segment_bytes: 1 << 16, ..LogOptions::default() };
//! let mut replay = Log::open(disk.clone(), &folder.path().join("log"), options)?;
//! assert!(replay.next_record()?.is_none(), "a new log has no records");
//! let log = replay.into_log()?;
//! log.sync(log.append(&[b"a record"])?)?;
//!
//! let options = SegmentOptions { segment_bytes: 1 << 20, limit_bytes: 8 << 20, ..SegmentOptions::default() };
//! let segments = Segments::open(disk, &folder.path().join("segments"), options)?;
//! let place = segments.append(&[7; 100_000], Purpose::New)?;
//! assert_eq!(segments.read(place)?.len(), 100_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | [`aligned`] | bytes at addresses that direct reads and writes take |
//! | [`disk`] | the one trait through which every operation on durable files goes, and the real disk behind it |
//! | [`log`] | the write-ahead log: opaque records, group commit, replay that tells a torn tail from damage |
//! | [`segments`] | segment files on SSD: immutable bodies, appended in large writes and read singly |
//! | [`far`] | far memory: DAX files, NUMA nodes, ordinary files; blocks on it that survive a restart |
//! | [`huge_pages`] | huge pages below memory of the program's own |
//! | [`persist`] | copy, flush, fence and sync: what makes bytes in a mapping durable, and in which words it is told |
//! | [`places`] | what of this the machine has |
//! | [`size`] | numbers of bytes as people write them |
//! | `testing` | disks that record every operation and rebuild what a power cut would leave, and disks that fail on purpose |

pub mod aligned;
pub mod disk;
pub mod far;
pub mod huge_pages;
pub mod log;
mod mapping;
pub mod persist;
pub mod places;
pub mod segments;
pub mod size;
#[doc(hidden)]
pub mod testing;
