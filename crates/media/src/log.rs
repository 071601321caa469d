//! The write-ahead log: opaque records in the order of their log sequence numbers (LSN), durable in groups.
//!
//! Records are appended to a buffer by many threads, written by one of them for all, and made durable by one of them
//! for all. A *segment* is a file of fixed size that is allocated and filled with zeros before it is used, so that
//! syncing it touches no metadata. When a segment is full the next one is made durable first, then the full one is cut
//! to the end of its records; segments that a checkpoint made unnecessary are used again. `docs/FORMATS.md` draws both.
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
//! - [`Log::append`] hands out the LSN. Callers who need log order to equal apply order call it under the lock that
//!   orders their writes; [`Log::wait_for_room`] before it keeps them from waiting for the disk under that lock.
//! - [`Log::write`] returns when the system has the records up to an LSN: they survive the end of the process.
//! - [`Log::sync`] returns when the medium has them: they survive a power cut. All threads that wait share one sync.
//! - [`Keeper`] syncs once a second, and prepares the next segment ahead of its need.
//! - After a failed write or sync the log is *poisoned*: nobody knows what the medium holds, so every call is refused
//!   with the first failure until the log is opened anew.
//! - A full disk and too many open files do not poison. [`Log::append`] refuses a record before it has an LSN when no
//!   segment can be made for it. If there is no room to write a record that has one, [`Log::write`] and [`Log::sync`]
//!   say so, and it is written when there is.
//! - A log on a full disk can be opened: it has all its records, and takes new ones when there is room.
//!
//! # What counts as damage
//!
//! Every record says which LSN was durable when it was appended. At an invalid record, replay looks further: a valid
//! record that knew the invalid one to be durable proves damage, and so does a sealed log or a following segment, or a
//! caller who knows it ([`Replay::expect_durable`]). Otherwise it is a torn tail, the remains of what was never synced;
//! it is dropped and reported. A byte of the last group of a log that was not sealed cannot be told from a torn tail by
//! anybody. Bytes that cannot be read are damage, and no tail is cut off before them: they may prove that it is none,
//! and may be read again another day.

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
use segment::Segments;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use writer::Writer;

/// Log sequence number: the first record of a log has 1, each further one the next.
pub type Lsn = u64;

/// The longest record, in bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 30;

/// How a log is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of a segment file, 8 KiB to 1 GiB. A record that is longer gets a segment of its own.
    pub segment_bytes: u64,
    /// Bytes that may wait to be written before appending waits, too; one record more may wait, however long it is.
    pub buffer_bytes: usize,
    /// The first LSN of a log that has no segments yet.
    pub first_lsn: Lsn,
    /// Replay goes on behind damage and lists what it skipped, instead of stopping there.
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
    /// Bytes that were durable are not what was written.
    #[error(
        "the log {} is damaged at byte {offset}: {reason}; restore it, or start with what is whole (--salvage)",
        path.display()
    )]
    Damaged {
        /// The segment file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What was expected and what was found.
        reason: String,
    },
    /// A file with another signature or version.
    #[error("{} cannot be read as a log segment: {reason}", path.display())]
    Foreign {
        /// The segment file.
        path: PathBuf,
        /// What was found, and what this version reads.
        reason: String,
    },
    /// A record above [`RECORD_BYTES_MAX`].
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
        /// The failure, in its own words.
        first: String,
    },
    /// The log was sealed by a clean stop.
    #[error("the log is sealed; open it anew to append")]
    Sealed,
    /// [`Replay::into_log`] before the last record was replayed.
    #[error("the log has records that were not replayed yet")]
    NotReplayed,
}

impl LogError {
    /// What a failed read says of the file: it is damaged at `offset`, unless it is no failure of the medium.
    fn of_read(error: DiskError, path: &Path, offset: u64) -> LogError {
        match error.unreadable() {
            Some(reason) => LogError::Damaged { path: path.to_path_buf(), offset, reason },
            None => LogError::Disk(error),
        }
    }
}

/// What a log has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogStats {
    /// Records appended.
    pub records: u64,
    /// Bytes written to segment files: records with their headers, and headers of segments; not the zeros ahead of use.
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
    /// The newest durable LSN; raised under the buffer's lock, read without it.
    durable_lsn: AtomicU64,
    /// What the buffer holds, for a look without the lock.
    waiting_bytes: AtomicUsize,
    /// Somebody's wish may have become true: bytes written, a sync done, or the log poisoned.
    changed: Condvar,
    /// Only whoever has set `writing` or `syncing` in the buffer takes it, but for a moment to start a sync.
    writer: Mutex<Writer>,
    buffer_bytes: usize,
}

impl Log {
    /// Opens the log of a folder, or begins one, and returns what it holds; [`Replay::into_log`] makes it ready to
    /// append.
    ///
    /// The folder is made if it is missing. Nothing else is changed before [`Replay::into_log`]. The caller holds the
    /// folder's [`crate::disk::Disk::lock_dir`] or that of a folder above it.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions) -> Result<Replay, LogError> {
        Replay::open(disk, dir, options)
    }

    /// Appends a record, whose payload is given in parts, and returns its LSN. It is not yet written; see
    /// [`Log::write`] and [`Log::sync`].
    ///
    /// Waits while [`LogOptions::buffer_bytes`] or more wait to be written.
    ///
    /// # Errors
    ///
    /// That of the disk, most likely a full one ([`DiskError::Full`]), if the record needs another segment and none can
    /// be made: it then has no LSN, and appending may be tried again. A poisoned or sealed log, and a record above
    /// [`RECORD_BYTES_MAX`].
    pub fn append(&self, parts: &[&[u8]]) -> Result<Lsn, LogError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > RECORD_BYTES_MAX {
            return Err(LogError::RecordTooLong { bytes });
        }
        let payload_crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        let mut spare = None;
        let mut buffer = self.buffer.lock();
        let lsn = loop {
            buffer.check()?;
            if buffer.is_sealed {
                return Err(LogError::Sealed);
            }
            if !buffer.has_room(self.buffer_bytes) {
                self.write_or_wait(&mut buffer)?;
            } else if buffer.fits_segment(bytes) {
                let lsn = buffer.push(parts, bytes, payload_crc, self.durable_lsn());
                self.waiting_bytes.store(buffer.buffered_bytes, Ordering::Relaxed);
                buffer.refusal = None;
                break lsn;
            } else if let Some(spare) = spare.take() {
                buffer.switch_to(spare);
            } else {
                let taken = MutexGuard::unlocked(&mut buffer, || self.segments.take_spare(bytes));
                spare = Some(buffer.note_unmade(taken)?);
            }
        };
        drop(buffer);
        // Another thread went to the next segment first.
        if let Some(spare) = spare {
            self.segments.give_back(spare);
        }
        Ok(lsn)
    }

    /// Waits until the buffer is below its bound, so that an [`Log::append`] right after it hardly ever waits.
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

    /// Returns when the system has all records up to `lsn`: they survive the end of this process.
    pub fn write(&self, lsn: Lsn) -> Result<(), LogError> {
        let mut buffer = self.buffer.lock();
        while buffer.written_lsn < lsn.min(buffer.next_lsn - 1) {
            self.write_or_wait(&mut buffer)?;
        }
        Ok(())
    }

    /// Returns when all records up to `lsn` are durable: they survive a power cut.
    ///
    /// One of the threads that wait writes and syncs what all of them have appended.
    /// Costs one load if they are durable already.
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

    /// Marks a clean stop: everything is made durable, and from now on every damaged byte is known to be damage.
    ///
    /// Later appends are refused. A log that is dropped without it looks as after a crash.
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
        // A segment may be still to be begun, without a record.
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

    /// Gives up all segments that have only records before `lsn`, after a checkpoint that holds what they say; durable
    /// when it returns.
    pub fn drop_before(&self, lsn: Lsn) -> Result<(), LogError> {
        let outcome = self.segments.drop_before(lsn);
        self.buffer.lock().poison_unless_refused(outcome)
    }

    /// Makes a spare segment if there is none, so that no append has to. A failure is of no record, and poisons
    /// nothing, but for a failed sync.
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

    /// Begins the first segment since the log was opened; if there is no room for it, the first append that finds some
    /// does.
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

    /// The first failure of a write or sync, which has poisoned the log.
    pub fn failure(&self) -> Option<String> {
        self.buffer.lock().failure.clone()
    }

    /// Why the last record was refused, if it was, or why none could be appended if any had come: the disk is full,
    /// say. Nothing is lost, and the next one may be taken.
    pub fn refusal(&self) -> Option<String> {
        self.buffer.lock().refusal.clone()
    }

    /// What makes records durable here, in words: `fdatasync`, or instructions on persistent memory that is mapped.
    pub fn durable_after(&self) -> String {
        self.writer.lock().file().map_or_else(|| "fdatasync".to_owned(), |file| file.durable_after())
    }

    /// What the log has done.
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

    /// Writes everything that is buffered, or waits for whoever is writing.
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

    /// Syncs what was written; nobody else is writing or syncing.
    fn sync_written(&self, buffer: &mut MutexGuard<'_, Buffer>) -> Result<(), LogError> {
        buffer.syncing = true;
        let written_lsn = buffer.written_lsn;
        // Records in earlier segments are durable since these were left.
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
