//! The write-ahead log: opaque records in the order of their log sequence numbers (LSN), durable in groups.
//!
//! Many threads append records to a buffer. One of them writes for all, and one of them syncs for all. A *segment* is a
//! file of fixed size. It is allocated and filled with zeros before use, so that a sync touches no metadata. When a
//! segment is full, the log first makes the next one durable, and then cuts the full one to the end of its records. The
//! log reuses segments that a checkpoint made unnecessary. `docs/FORMATS.md` draws both.
//!
//! ```
//! use std::path::Path;
//! use ziptier_media::log::{Log, LogOptions};
//! # use ziptier_media::testing::RecordingDisk;
//! # let disk = std::sync::Arc::new(RecordingDisk::new());
//! // let disk = std::sync::Arc::new(ziptier_media::disk::RealDisk);
//! let options = LogOptions { segment_bytes: 1 << 16, ..LogOptions::default() };
//! let dir = Path::new("/data/log");
//!
//! // Nothing can be appended before everything was replayed.
//! let mut replay = Log::open(disk.clone(), dir, options)?;
//! while let Some(record) = replay.next_record()? {
//!     println!("{} {:?}", record.lsn, record.payload);
//! }
//! let log = replay.into_log()?;
//!
//! let lsn = log.append(&[b"key", b"value"])?;
//! log.sync(lsn)?; // returns when the record survives a power cut
//! log.seal()?; // a clean stop
//!
//! let mut replay = Log::open(disk, dir, options)?;
//! assert_eq!(replay.next_record()?.map(|record| record.payload.to_vec()), Some(b"keyvalue".to_vec()));
//! # Ok::<(), ziptier_media::log::LogError>(())
//! ```
//!
//! # Durability
//!
//! - [`Log::append`] hands out the LSN. Callers that need log order to equal apply order call `append` under the lock
//!   that orders their writes. They call [`Log::wait_for_room`] before they take that lock, so that they do not wait
//!   for the disk while they hold it.
//! - [`Log::write`] returns when the system has the records up to an LSN. The records then survive the end of the
//!   process.
//! - [`Log::sync`] returns when the medium has the records up to an LSN. The records then survive a power cut. All
//!   waiting threads share one sync.
//! - [`Keeper`] syncs once a second, and prepares the next segment before it is needed.
//! - After a failed write or sync the log is *poisoned*, because the state of the medium is unknown. Every call is
//!   refused with the first failure until the log is opened anew.
//! - A full disk and too many open files do not poison. If no segment can be made for a record, [`Log::append`] refuses
//!   the record before it has an LSN. If a record with an LSN finds no room, [`Log::write`] and [`Log::sync`] return an
//!   error. The log writes that record when there is room.
//! - A log on a full disk can be opened. It has all its records, and takes new records when there is room.
//!
//! # What counts as damage
//!
//! Every record states the LSN that was durable when the record was appended. At an invalid record, replay searches
//! further for a proof of damage. A valid record that knew the invalid one to be durable is a proof. So are a seal, a
//! following segment, and a caller that knows of the record ([`Replay::expect_durable`]). Without a proof, the rest is
//! a torn tail: the remains of writes that were never synced. Replay drops and reports it. In the last group of an
//! unsealed log, damage cannot be told from a torn tail.
//!
//! Unreadable bytes are damage, and replay cuts no tail off before them. They may prove that the tail is none, and may
//! become readable later.

mod buffer;
mod format;
mod keeper;
mod reader;
mod replay;
mod segment;
mod writer;

pub use keeper::Keeper;
pub use replay::{Record, Replay, Skipped, TornTail};

use crate::disk::{Disk, DiskError};
use buffer::Buffer;
use parking_lot::{Condvar, Mutex, MutexGuard};
use segment::{Segments, Spare};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use writer::Writer;

/// Log sequence number: 1 for the first record of a log, and one more for each further record.
pub type Lsn = u64;

/// The longest record, in bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 30;

/// How a log is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of a segment file, 8 KiB to 1 GiB. A longer record gets a segment of its own.
    pub segment_bytes: u64,
    /// When this many bytes wait to be written, appending waits. One record of any length may exceed the bound.
    pub buffer_bytes: usize,
    /// The first LSN of a log that has no segments yet.
    pub first_lsn: Lsn,
    /// Replay continues behind damage and lists what it skipped, instead of stopping there. A segment of another
    /// version is no damage.
    pub salvage: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { segment_bytes: 64 << 20, buffer_bytes: 4 << 20, first_lsn: 1, salvage: false }
    }
}

/// Why the log refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The disk failed. A failed write or sync poisons the log.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Durable bytes differ from the bytes that were written.
    #[error(
        "the log {} is damaged at byte {offset}: {reason}; restore it, or start with what is whole (--salvage)",
        path.display()
    )]
    Damaged {
        /// The segment file.
        path: PathBuf,
        /// The offset in the file.
        offset: u64,
        /// The expectation and the finding.
        reason: String,
    },
    /// A file with another signature or version.
    #[error("{} cannot be read as a log segment: {reason}", path.display())]
    Foreign {
        /// The segment file.
        path: PathBuf,
        /// The version found, and the versions that this program reads.
        reason: String,
    },
    /// A record above 1 GiB.
    #[error("a log record of {bytes} bytes was given; it has at most {RECORD_BYTES_MAX}")]
    RecordTooLong {
        /// Bytes of the record.
        bytes: usize,
    },
    /// A segment size out of range.
    #[error("log segments of {bytes} bytes were asked for; give 8 KiB to 1 GiB")]
    SegmentOutOfRange {
        /// The size asked for.
        bytes: u64,
    },
    /// This write or sync, or an earlier one, failed.
    #[error(
        "the log refuses further work, because what the disk holds is unknown since this failure: {first}"
    )]
    Poisoned {
        /// The message of that failure.
        first: String,
    },
    /// The log was sealed by a clean stop.
    #[error("the log is sealed; open it anew to append")]
    Sealed,
    /// `Replay::into_log` before the last record was replayed.
    #[error("the log has records that were not replayed yet")]
    NotReplayed,
}

impl LogError {
    /// Turns a failed read into damage at `offset`, if the medium failed; passes other errors on.
    fn of_read(error: DiskError, path: &Path, offset: u64) -> LogError {
        match error.unreadable() {
            Some(reason) => LogError::Damaged { path: path.to_path_buf(), offset, reason },
            None => LogError::Disk(error),
        }
    }
}

/// The counters of a log since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogStats {
    /// Records appended.
    pub records: u64,
    /// Bytes written to segment files: records with their headers, and headers of segments. The zeros before use do not
    /// count.
    pub written_bytes: u64,
    /// Syncs of record bytes.
    pub syncs: u64,
    /// Bytes of all segment files, spare ones included.
    pub allocated_bytes: u64,
    /// The newest LSN that was handed out.
    pub last_lsn: Lsn,
    /// The newest durable LSN.
    pub durable_lsn: Lsn,
}

/// An open write-ahead log. All methods may be called from any thread.
pub struct Log {
    segments: Segments,
    buffer: Mutex<Buffer>,
    /// The newest durable LSN. Threads raise it under the buffer's lock and read it without the lock.
    durable_lsn: AtomicU64,
    /// Bytes in the buffer, to be read without the lock.
    waiting_bytes: AtomicUsize,
    /// Signals waiting threads: bytes were written, a sync ended, or the log was poisoned.
    changed: Condvar,
    /// Only the thread that has set `writing` or `syncing` in the buffer takes this lock. The exception is a moment at
    /// the start of a sync.
    writer: Mutex<Writer>,
    buffer_bytes: usize,
}

impl Log {
    /// Opens or begins the log of a folder, and returns its contents; [`Replay::into_log`] makes it ready to append.
    ///
    /// Makes a missing folder. Nothing else is changed before [`Replay::into_log`]. The caller holds the folder's
    /// [`crate::disk::Disk::lock_dir`] or that of a folder above it.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions) -> Result<Replay, LogError> {
        Replay::open(disk, dir, options)
    }

    /// Appends a record, whose payload is given in parts, and returns its LSN. The record is not yet written; see
    /// [`Log::write`] and [`Log::sync`].
    ///
    /// Waits while [`LogOptions::buffer_bytes`] or more wait to be written.
    ///
    /// # Errors
    ///
    /// The disk's error, most likely [`DiskError::Full`], if the record needs another segment and none can be made. The
    /// record then has no LSN, and appending may be tried again. Also an error for a poisoned or sealed log, and for a
    /// record above [`RECORD_BYTES_MAX`].
    pub fn append(&self, parts: &[&[u8]]) -> Result<Lsn, LogError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > RECORD_BYTES_MAX {
            return Err(LogError::RecordTooLong { bytes });
        }
        let payload_crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        let mut spare = None;
        let mut buffer = self.buffer.lock();
        let pushed = self.push(&mut buffer, parts, payload_crc, &mut spare);
        drop(buffer);
        // Another thread went to the next segment first, or the log failed or was sealed meanwhile.
        if let Some(spare) = spare {
            self.segments.give_back(spare);
        }
        pushed
    }

    /// Pushes a record once the buffer and the newest segment have room. A file for the next segment that was made in
    /// vain stays in `spare`.
    fn push(
        &self,
        buffer: &mut MutexGuard<'_, Buffer>,
        parts: &[&[u8]],
        payload_crc: u32,
        spare: &mut Option<Spare>,
    ) -> Result<Lsn, LogError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        loop {
            buffer.check()?;
            if buffer.is_sealed {
                return Err(LogError::Sealed);
            }
            if !buffer.has_room(self.buffer_bytes) {
                self.write_or_wait(buffer)?;
            } else if buffer.fits_segment(bytes) {
                let lsn = buffer.push(parts, bytes, payload_crc, self.durable_lsn());
                self.waiting_bytes.store(buffer.buffered_bytes, Ordering::Relaxed);
                buffer.refusal = None;
                return Ok(lsn);
            } else if let Some(spare) = spare.take() {
                buffer.switch_to(spare);
            } else {
                let taken = MutexGuard::unlocked(buffer, || self.segments.take_spare(bytes));
                match buffer.note_unmade(taken) {
                    // Another thread went to the next segment meanwhile.
                    Err(LogError::Disk(_)) if buffer.fits_segment(bytes) => {}
                    taken => *spare = Some(taken?),
                }
            }
        }
    }

    /// Waits until the buffer is below its bound, so that a following [`Log::append`] hardly ever waits.
    pub fn wait_for_room(&self) -> Result<(), LogError> {
        if self.waiting_bytes.load(Ordering::Relaxed) < self.buffer_bytes {
            return Ok(());
        }
        let mut buffer = self.buffer.lock();
        while buffer.buffered_bytes >= self.buffer_bytes {
            self.write_or_wait(&mut buffer)?;
        }
        buffer.check()
    }

    /// Returns when the system has all records up to `lsn`. They then survive the end of this process.
    pub fn write(&self, lsn: Lsn) -> Result<(), LogError> {
        let mut buffer = self.buffer.lock();
        while buffer.written_lsn < lsn.min(buffer.next_lsn - 1) {
            self.write_or_wait(&mut buffer)?;
        }
        Ok(())
    }

    /// Returns when all records up to `lsn` are durable. They then survive a power cut.
    ///
    /// One of the waiting threads writes and syncs the records of all. Costs one load if the records are durable
    /// already.
    pub fn sync(&self, lsn: Lsn) -> Result<(), LogError> {
        if self.durable_lsn() >= lsn {
            return Ok(());
        }
        let mut buffer = self.buffer.lock();
        loop {
            let wanted = lsn.min(buffer.next_lsn - 1);
            if self.durable_lsn() >= wanted {
                return Ok(());
            }
            buffer.check()?;
            if buffer.syncing || buffer.writing {
                self.changed.wait(&mut buffer);
            } else if buffer.written_lsn < wanted {
                self.write_or_wait(&mut buffer)?;
            } else {
                self.sync_written(&mut buffer)?;
            }
        }
    }

    /// Marks a clean stop: makes everything durable. From now on replay recognizes every damaged byte as damage.
    ///
    /// Refuses later appends. A log that is dropped without a seal looks as after a crash.
    pub fn seal(&self) -> Result<(), LogError> {
        let mut buffer = self.buffer.lock();
        buffer.check()?;
        if std::mem::replace(&mut buffer.is_sealed, true) {
            return Err(LogError::Sealed);
        }
        let last_lsn = buffer.next_lsn - 1;
        let synced = MutexGuard::unlocked(&mut buffer, || self.sync(last_lsn));
        while buffer.writing || buffer.syncing {
            self.changed.wait(&mut buffer);
        }
        // A segment may still wait to be begun, without a record.
        let is_written = synced.is_err() || buffer.is_empty();
        let written = if is_written { synced } else { self.write_or_wait(&mut buffer) };
        if let Err(error) = written {
            buffer.is_sealed = false;
            return Err(error);
        }
        let entry = buffer.seal_entry();
        let outcome = self.writer.lock().seal(&entry);
        let sealed = buffer.poison_unless_refused(outcome);
        buffer.is_sealed = sealed.is_ok();
        sealed
    }

    /// Drops all segments that have only records before `lsn`, after a checkpoint that covers them. The drop is durable
    /// on return.
    pub fn drop_before(&self, lsn: Lsn) -> Result<(), LogError> {
        let outcome = self.segments.drop_before(lsn);
        self.buffer.lock().poison_unless_refused(outcome)
    }

    /// Makes a spare segment if there is none, so that no append has to. A failure concerns no record. Only a failed
    /// sync poisons the log.
    pub fn prepare_segment(&self) -> Result<(), LogError> {
        let prepared = self.segments.prepare();
        if matches!(prepared, Ok(false)) {
            return Ok(());
        }
        let mut buffer = self.buffer.lock();
        match prepared {
            Err(error) if error.is_of_sync() => return Err(buffer.poison(error.into())),
            Err(error) => return Err(error.into()),
            Ok(_) => buffer.refusal = None,
        }
        Ok(())
    }

    /// Begins the first segment since the log was opened. If the disk has no room, the first append that finds room
    /// begins the segment.
    fn begin_segment(&self) -> Result<(), LogError> {
        let spare = self.segments.take_spare(0);
        let mut buffer = self.buffer.lock();
        let begun = buffer.note_unmade(spare).and_then(|spare| {
            buffer.switch_to(spare);
            self.write_or_wait(&mut buffer)
        });
        match begun {
            Err(LogError::Disk(error)) if error.is_refusal() => Ok(()),
            begun => begun,
        }
    }

    /// The newest LSN that was handed out; 0 if none ever was.
    pub fn last_lsn(&self) -> Lsn {
        self.buffer.lock().next_lsn - 1
    }

    /// The newest LSN up to which all records are durable. Takes no lock.
    pub fn durable_lsn(&self) -> Lsn {
        self.durable_lsn.load(Ordering::Acquire)
    }

    /// The LSN of the oldest record that was not dropped.
    pub fn first_lsn(&self) -> Lsn {
        self.segments.first_lsn()
    }

    /// The first failure of a write or sync, which poisoned the log.
    pub fn failure(&self) -> Option<String> {
        self.buffer.lock().failure.clone()
    }

    /// The reason why the last record was refused, or why a next one would be: the disk is full, say. Nothing is lost,
    /// and the log may take the next record.
    pub fn refusal(&self) -> Option<String> {
        self.buffer.lock().refusal.clone()
    }

    /// The means that makes records durable here, in words: `fdatasync`, or instructions on mapped persistent memory.
    pub fn durable_after(&self) -> String {
        self.writer.lock().file().map_or_else(|| "fdatasync".to_owned(), |file| file.durable_after())
    }

    /// The counters of the log.
    pub fn stats(&self) -> LogStats {
        let written_bytes = self.writer.lock().written_bytes;
        let buffer = self.buffer.lock();
        LogStats {
            records: buffer.records,
            written_bytes,
            syncs: buffer.syncs,
            allocated_bytes: self.segments.allocated_bytes(),
            last_lsn: buffer.next_lsn - 1,
            durable_lsn: self.durable_lsn(),
        }
    }

    /// Writes everything in the buffer, or waits for the thread that is writing.
    fn write_or_wait(&self, buffer: &mut MutexGuard<'_, Buffer>) -> Result<(), LogError> {
        buffer.check()?;
        if buffer.writing {
            self.changed.wait(buffer);
            return Ok(());
        }
        buffer.writing = true;
        let (mut chunks, written_lsn) = buffer.take();
        self.waiting_bytes.store(0, Ordering::Relaxed);
        let outcome = MutexGuard::unlocked(buffer, || self.writer.lock().write(&mut chunks, &self.segments));
        buffer.writing = false;
        self.changed.notify_all();
        match outcome {
            Ok(durable_lsn) => {
                buffer.keep_memory(chunks, self.buffer_bytes);
                buffer.written_lsn = written_lsn;
                self.durable_lsn.fetch_max(durable_lsn, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                buffer.put_back(chunks);
                self.waiting_bytes.store(buffer.buffered_bytes, Ordering::Relaxed);
                let told = buffer.poison_unless_refused(Err(error));
                buffer.note_refusal(told)
            }
        }
    }

    /// Syncs what was written. No other thread is writing or syncing.
    fn sync_written(&self, buffer: &mut MutexGuard<'_, Buffer>) -> Result<(), LogError> {
        buffer.syncing = true;
        let written_lsn = buffer.written_lsn;
        // Earlier segments were synced when the log went on to the next one.
        let file = self.writer.lock().file();
        let outcome = MutexGuard::unlocked(buffer, || file.map_or(Ok(()), |file| file.sync()));
        buffer.syncing = false;
        self.changed.notify_all();
        match outcome {
            Ok(()) => {
                buffer.syncs += 1;
                self.durable_lsn.fetch_max(written_lsn, Ordering::Release);
                Ok(())
            }
            Err(error) => Err(buffer.poison(error)),
        }
    }
}
