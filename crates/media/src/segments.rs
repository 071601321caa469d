//! Segment files on SSD for immutable bodies: appended in large aligned writes, read singly and checked.
//!
//! A *body* is bytes that never change. [`Segments::append`] returns its [`Place`], and the caller keeps only that. The
//! caller knows which bodies are live, and keeps a manifest of them. *Cleaning* frees space: [`Segments::candidates`]
//! names the segments by their share of live bytes, the smallest first. The caller appends the live bodies of one anew
//! and removes the file.
//!
//! ```
//! use std::path::Path;
//! use ziptier_media::segments::{Purpose, SegmentOptions, Segments};
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path();
//! let disk = std::sync::Arc::new(ziptier_media::disk::RealDisk);
//! let options = SegmentOptions { segment_bytes: 1 << 20, limit_bytes: 8 << 20, ..SegmentOptions::default() };
//! let segments = Segments::open(disk, dir, options)?;
//!
//! let place = segments.append(b"a body", Purpose::New)?;
//! segments.sync()?; // durable from here on
//! assert_eq!(segments.read(place)?, b"a body");
//! segments.read_later(place, |body| assert_eq!(body.unwrap(), b"a body"));
//! segments.release(place); // no longer live
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Files are opened past the page cache if the file system supports direct I/O; [`Segments::describe`] tells. A full
//! tier ([`SegmentError::Full`]) refuses only new bodies. Reading, releasing and cleaning continue, because one segment
//! is kept free for cleaning. After a failed write or sync, the segments refuse appends until they are opened anew.
//! Bodies that were not yet written are still read from memory.

mod appender;
mod file;
mod format;
mod reads;
mod ring;

pub use file::Blocks;

use crate::disk::{Disk, DiskError};
use appender::Appender;
use file::SegmentFile;
use parking_lot::{Mutex, RwLock};
use reads::{ReadJob, Reader};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest body, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 30;

/// The position of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The number of the segment. A folder never uses a number twice.
    pub segment: u64,
    /// The offset of the body's block in the file.
    pub offset: u32,
    /// Bytes of the body.
    pub bytes: u32,
}

impl Place {
    /// Bytes that the body takes in its segment.
    pub fn block_bytes(&self) -> u64 {
        format::block_bytes(self.bytes as usize)
    }
}

/// The purpose of an append. Each purpose has a segment of its own, because bodies that survive a cleaning live longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A body that was not in a segment before, or has changed.
    New,
    /// A live body of a segment that is being cleaned. It may use the reserved free segment.
    Cleaning,
}

/// How segments are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Bytes of a segment file, a multiple of 4096 from 64 KiB to 1 GiB. A longer body gets a segment of its own.
    pub segment_bytes: u64,
    /// Bytes of a write, a multiple of 4096.
    pub write_bytes: usize,
    /// The limit for all segment files together, in bytes: at least four segments.
    pub limit_bytes: u64,
    /// Threads for [`Segments::read_later`] if the kernel does not offer `io_uring`.
    pub read_threads: usize,
}

impl Default for SegmentOptions {
    fn default() -> SegmentOptions {
        SegmentOptions {
            segment_bytes: 64 << 20,
            write_bytes: 1 << 20,
            limit_bytes: 8 << 30,
            read_threads: 4,
        }
    }
}

/// Why a segment operation was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The limit leaves no room for another segment.
    #[error(
        "the SSD tier is full: {allocated_bytes} of {limit_bytes} bytes are taken; raise the limit or delete keys"
    )]
    Full {
        /// Bytes of all segment files.
        allocated_bytes: u64,
        /// The limit in force.
        limit_bytes: u64,
    },
    /// Bytes that differ from what was written.
    #[error("{} is damaged at byte {offset}: {reason}", path.display())]
    Damaged {
        /// The segment file.
        path: PathBuf,
        /// The offset in the file.
        offset: u64,
        /// The expectation and the finding.
        reason: String,
    },
    /// A file with another signature or version.
    #[error("{} cannot be read as a segment: {reason}", path.display())]
    Foreign {
        /// The segment file.
        path: PathBuf,
        /// The version found, and the versions that this program reads.
        reason: String,
    },
    /// A place in a missing segment.
    #[error("segment {segment} is not in {}", dir.display())]
    Missing {
        /// The segment's number.
        segment: u64,
        /// The folder of segments.
        dir: PathBuf,
    },
    /// A body of no bytes, or above 1 GiB.
    #[error("a body of {bytes} bytes was given; it has 1 to {BODY_BYTES_MAX}")]
    BodyOutOfRange {
        /// Bytes of the body.
        bytes: usize,
    },
    /// Sizes that do not go together.
    #[error(
        "segments of {segment_bytes} bytes, written {write_bytes} at a time, at most {limit_bytes} in all: {reason}"
    )]
    Options {
        /// The segment size asked for.
        segment_bytes: u64,
        /// The write size asked for.
        write_bytes: usize,
        /// The limit asked for.
        limit_bytes: u64,
        /// The rule that the options break.
        reason: &'static str,
    },
    /// An earlier write or sync failed.
    #[error("no bodies are taken, because what the disk holds is unknown since this failure: {first}")]
    Poisoned {
        /// The message of that failure.
        first: String,
    },
    /// The segment is being appended to.
    #[error("segment {segment} cannot be removed while it is appended to")]
    Open {
        /// The segment's number.
        segment: u64,
    },
}

impl SegmentError {
    /// Turns a failed read into damage at `offset`, if the medium failed; passes other errors on.
    fn of_read(error: DiskError, path: &Path, offset: u64) -> SegmentError {
        match error.unreadable() {
            Some(reason) => SegmentError::Damaged { path: path.to_path_buf(), offset, reason },
            None => SegmentError::Disk(error),
        }
    }
}

/// The segment that cleaning gains most from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub segment: u64,
    /// Bytes of its live blocks.
    pub live_bytes: u64,
    /// Bytes of its file.
    pub allocated_bytes: u64,
}

/// The contents of segments, and the bytes written since they were opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentStats {
    /// Segment files.
    pub segments: u64,
    /// Bytes of all segment files.
    pub allocated_bytes: u64,
    /// Bytes of live blocks.
    pub live_bytes: u64,
    /// Bytes of bodies that were appended as new.
    pub new_body_bytes: u64,
    /// Bytes of bodies that were appended by cleaning.
    pub cleaned_body_bytes: u64,
    /// Bytes that went to the disk for all of them: headers, blocks and padding. Over the caller's bytes this is write
    /// amplification.
    pub written_bytes: u64,
    /// Bodies that were read from the disk.
    pub reads: u64,
}

/// Segment files of a folder. All methods may be called from any thread.
pub struct Segments {
    shared: Arc<Shared>,
    appenders: [Mutex<Appender>; 2],
    reader: Reader,
}

/// State that appending and reading share.
struct Shared {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: SegmentOptions,
    files: RwLock<BTreeMap<u64, Arc<SegmentFile>>>,
    /// The faults of files that were found and left out.
    left_out: BTreeMap<u64, SegmentError>,
    /// The newest number of a segment, readable or not. Its lock lets only one thread at a time make a segment, so that
    /// the limit holds.
    creating: Mutex<u64>,
    failure: Mutex<Option<String>>,
    new_body_bytes: AtomicU64,
    cleaned_body_bytes: AtomicU64,
    written_bytes: AtomicU64,
    reads: AtomicU64,
}

impl Segments {
    /// Opens the segments of a folder and checks their headers. Makes a missing folder.
    ///
    /// No body is live until the caller declares it with [`Segments::keep`]. Nothing is appended to existing segments.
    /// The caller holds the folder's lock, or that of a folder above it.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: SegmentOptions) -> Result<Segments, SegmentError> {
        let (segments, mut damaged) = Segments::salvage(disk, dir, options)?;
        if damaged.is_empty() { Ok(segments) } else { Err(damaged.swap_remove(0).1) }
    }

    /// As [`Segments::open`], but accepts damaged or unreadable headers: reading a body does not need the header of its
    /// file. Files of another version and files that cannot be opened are left out. Returns each fault with the number
    /// of its segment.
    pub fn salvage(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: SegmentOptions,
    ) -> Result<(Segments, Vec<(u64, SegmentError)>), SegmentError> {
        check_options(&options)?;
        disk.create_dir(dir)?;
        let (mut files, mut left_out, mut damaged, mut newest) =
            (BTreeMap::new(), BTreeMap::new(), Vec::new(), 0);
        for name in disk.list(dir)? {
            let Some(number) = format::number_of(&name) else { continue };
            newest = newest.max(number);
            let (file, fault) = match SegmentFile::open(&*disk, &dir.join(&name), number) {
                Ok((file, fault)) => (Some(file), fault),
                Err(fault @ SegmentError::Damaged { .. }) => (None, Some(fault)),
                Err(error) => return Err(error),
            };
            if let Some(file) = file
                && !matches!(fault, Some(SegmentError::Foreign { .. }))
            {
                files.insert(number, Arc::new(file));
            } else if let Some(fault) = &fault {
                left_out.insert(number, fault.clone());
            }
            damaged.extend(fault.map(|fault| (number, fault)));
        }
        let shared = Arc::new(Shared {
            disk,
            dir: dir.to_path_buf(),
            options,
            files: RwLock::new(files),
            left_out,
            creating: Mutex::new(newest),
            failure: Mutex::new(None),
            new_body_bytes: AtomicU64::new(0),
            cleaned_body_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        });
        let appender = |purpose| Mutex::new(Appender::new(purpose));
        let appenders = [appender(Purpose::New), appender(Purpose::Cleaning)];
        let reader = Reader::start(options.read_threads);
        Ok((Segments { shared, appenders, reader }, damaged))
    }

    /// Appends a body. The body is live from now on and durable after [`Segments::sync`].
    ///
    /// # Errors
    ///
    /// [`SegmentError::Full`], or [`DiskError::Full`] of the disk itself, changes nothing. A failed write poisons.
    pub fn append(&self, body: &[u8], purpose: Purpose) -> Result<Place, SegmentError> {
        if body.is_empty() || body.len() > BODY_BYTES_MAX {
            return Err(SegmentError::BodyOutOfRange { bytes: body.len() });
        }
        let place = self.appenders[purpose as usize].lock().append(&self.shared, body)?;
        let counter = match purpose {
            Purpose::New => &self.shared.new_body_bytes,
            Purpose::Cleaning => &self.shared.cleaned_body_bytes,
        };
        counter.fetch_add(body.len() as u64, Ordering::Relaxed);
        Ok(place)
    }

    /// Makes sure that a body of so many bytes can be appended, as long as no other thread appends one. Makes a segment
    /// if none has the room.
    ///
    /// # Errors
    ///
    /// As of [`Segments::append`].
    pub fn prepare(&self, body_bytes: usize, purpose: Purpose) -> Result<(), SegmentError> {
        self.appenders[purpose as usize].lock().prepare(&self.shared, body_bytes)
    }

    /// Makes every body durable whose append has returned.
    ///
    /// Writes the buffered bytes, padded to 4096 bytes.
    pub fn sync(&self) -> Result<(), SegmentError> {
        self.appenders.iter().try_for_each(|appender| appender.lock().sync(&self.shared))
    }

    /// Makes everything durable and gives back the room behind the last bodies. Later appends begin new segments.
    pub fn close(&self) -> Result<(), SegmentError> {
        self.appenders.iter().try_for_each(|appender| appender.lock().finish(&self.shared))
    }

    /// Reads a body and checks it, in this thread.
    pub fn read(&self, place: Place) -> Result<Vec<u8>, SegmentError> {
        match self.find(place)? {
            Source::Memory(body) => Ok(body),
            Source::File(job) => job.read(),
        }
    }

    /// Reads a body, checks it, and hands it to `done` in another thread. If the body was not yet written, `done` runs
    /// in this thread.
    ///
    /// `done` should be short, because other reads wait for it.
    pub fn read_later(
        &self,
        place: Place,
        done: impl FnOnce(Result<Vec<u8>, SegmentError>) + Send + 'static,
    ) {
        match self.find(place) {
            Ok(Source::Memory(body)) => done(Ok(body)),
            Ok(Source::File(job)) => self.reader.submit(job, Box::new(done)),
            Err(error) => done(Err(error)),
        }
    }

    /// Says after opening that a body is live.
    pub fn keep(&self, place: Place) -> Result<(), SegmentError> {
        self.shared.file(place.segment)?.add_live(place.block_bytes());
        Ok(())
    }

    /// Declares that a body is no longer live. The body can be read until its segment is removed.
    pub fn release(&self, place: Place) {
        if let Ok(file) = self.shared.file(place.segment) {
            file.take_live(place.block_bytes());
        }
    }

    /// All segments that are not appended to, the smallest share of live bytes first.
    pub fn candidates(&self) -> Vec<Candidate> {
        let files = self.shared.files.read();
        // The newest segment stays for its number even when it has been emptied.
        let newest = files.keys().next_back();
        let finished = files
            .iter()
            .filter(|(number, file)| file.is_finished() && !(file.is_emptied() && Some(*number) == newest));
        let candidates = finished.map(|(&segment, file)| Candidate {
            segment,
            live_bytes: file.live_bytes(),
            allocated_bytes: file.allocated_bytes(),
        });
        let mut candidates: Vec<Candidate> = candidates.collect();
        candidates.sort_by(|a, b| {
            let shares = (u128::from(a.live_bytes) * u128::from(b.allocated_bytes))
                .cmp(&(u128::from(b.live_bytes) * u128::from(a.allocated_bytes)));
            shares.then(a.segment.cmp(&b.segment))
        });
        candidates
    }

    /// All bodies of a segment in their order, live or not, read in large pieces.
    pub fn blocks(&self, segment: u64) -> Result<Blocks, SegmentError> {
        Ok(Blocks::new(self.shared.file(segment)?))
    }

    /// Removes a segment whose bodies neither this process nor, after a crash, the caller's manifest needs.
    pub fn remove(&self, segment: u64) -> Result<(), SegmentError> {
        let file = self.shared.file(segment)?;
        if !file.is_finished() {
            return Err(SegmentError::Open { segment });
        }
        // The file with the newest number must stay, or the number would be used again.
        let is_newest = self.shared.files.read().keys().next_back() == Some(&segment);
        if is_newest {
            return file.empty();
        }
        self.shared.disk.remove(file.path())?;
        self.shared.files.write().remove(&segment);
        Ok(())
    }

    /// The limit for all segment files together, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.shared.options.limit_bytes
    }

    /// The path of a segment's file, whether the file exists or not.
    pub fn path_of(&self, segment: u64) -> PathBuf {
        self.shared.dir.join(format::segment_name(segment))
    }

    /// Writes the header of a segment anew, durably.
    pub fn mend(&self, segment: u64) -> Result<(), SegmentError> {
        Ok(self.shared.file(segment)?.write_header()?)
    }

    /// Numbers of all segments, ascending.
    pub fn numbers(&self) -> Vec<u64> {
        self.shared.files.read().keys().copied().collect()
    }

    /// The contents of the segments, and the bytes written.
    pub fn stats(&self) -> SegmentStats {
        let shared = &self.shared;
        let files = shared.files.read();
        SegmentStats {
            segments: files.len() as u64,
            allocated_bytes: files.values().map(|file| file.allocated_bytes()).sum(),
            live_bytes: files.values().map(|file| file.live_bytes()).sum(),
            new_body_bytes: shared.new_body_bytes.load(Ordering::Relaxed),
            cleaned_body_bytes: shared.cleaned_body_bytes.load(Ordering::Relaxed),
            written_bytes: shared.written_bytes.load(Ordering::Relaxed),
            reads: shared.reads.load(Ordering::Relaxed),
        }
    }

    /// Describes in words the mode of the files (direct or cached, known once a file exists) and the way of reading.
    pub fn describe(&self) -> String {
        let files = self.shared.files.read();
        let caching = match files.values().next_back().map(|file| file.is_direct()) {
            Some(true) => "direct I/O",
            Some(false) => "I/O through the page cache (the file system has no direct I/O)",
            None => "no segments yet",
        };
        format!("{caching}, asynchronous reads by {}", self.reader.name())
    }

    /// Finds the current source of a body: a buffer or a file.
    fn find(&self, place: Place) -> Result<Source, SegmentError> {
        let file = self.shared.file(place.segment)?;
        if !file.has_written(place) {
            // An appender may write the body while this thread waits for the lock. The body is then in the file.
            for appender in &self.appenders {
                if let Some(body) = appender.lock().buffered(place) {
                    return Ok(Source::Memory(body));
                }
            }
        }
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
        Ok(Source::File(ReadJob::new(file, place)?))
    }
}

enum Source {
    Memory(Vec<u8>),
    File(ReadJob),
}

impl Shared {
    fn check(&self) -> Result<(), SegmentError> {
        match &*self.failure.lock() {
            Some(first) => Err(SegmentError::Poisoned { first: first.clone() }),
            None => Ok(()),
        }
    }

    /// Remembers the first failure of a write or sync.
    fn poison<T>(&self, result: Result<T, DiskError>) -> Result<T, SegmentError> {
        result.map_err(|error| {
            self.failure.lock().get_or_insert_with(|| error.to_string());
            SegmentError::Disk(error)
        })
    }

    fn file(&self, segment: u64) -> Result<Arc<SegmentFile>, SegmentError> {
        let missing = || SegmentError::Missing { segment, dir: self.dir.clone() };
        let fault = || self.left_out.get(&segment).cloned().unwrap_or_else(missing);
        self.files.read().get(&segment).cloned().ok_or_else(fault)
    }

    /// Makes a segment with room for a body.
    fn create(&self, body_bytes: usize, purpose: Purpose) -> Result<Arc<SegmentFile>, SegmentError> {
        let mut newest = self.creating.lock();
        let bytes = format::segment_bytes_for(self.options.segment_bytes, body_bytes);
        let allocated_bytes: u64 = self.files.read().values().map(|file| file.allocated_bytes()).sum();
        let kept_free = if purpose == Purpose::New { self.options.segment_bytes } else { 0 };
        let limit_bytes = self.options.limit_bytes;
        if allocated_bytes + bytes + kept_free > limit_bytes {
            return Err(SegmentError::Full { allocated_bytes, limit_bytes });
        }
        let number = *newest + 1;
        let file = Arc::new(SegmentFile::create(&*self.disk, &self.dir, number, bytes)?);
        *newest = number;
        self.written_bytes.fetch_add(format::HEADER_BYTES, Ordering::Relaxed);
        self.files.write().insert(number, file.clone());
        Ok(file)
    }
}

fn check_options(options: &SegmentOptions) -> Result<(), SegmentError> {
    let SegmentOptions { segment_bytes, write_bytes, limit_bytes, .. } = *options;
    let reason = if !segment_bytes.is_multiple_of(4096) || !(64 << 10..=1 << 30).contains(&segment_bytes) {
        "a segment has a multiple of 4096 bytes, from 64 KiB to 1 GiB"
    } else if write_bytes == 0 || !write_bytes.is_multiple_of(4096) {
        "a write has a multiple of 4096 bytes"
    } else if limit_bytes < 4 * segment_bytes {
        "the limit must hold four segments"
    } else {
        return Ok(());
    };
    Err(SegmentError::Options { segment_bytes, write_bytes, limit_bytes, reason })
}
