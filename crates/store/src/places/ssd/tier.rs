//! The SSD of a store: segment files in one folder, their limit, and counters.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use ziptier_media::disk::{DirLock, Disk};
use ziptier_media::segments::{Purpose, SegmentError, SegmentOptions, Segments};
use ziptier_media::size::ByteSize;
use ziptier_tree::coding::Coding;
use ziptier_tree::extent::Extent;
use ziptier_tree::memory::Gauges;

use crate::Error;
use crate::image_files::{ImageFiles, extent_of};

/// The folder and the limit of the segment files of cold leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsdOptions {
    /// The folder of segment files, which is made if it is missing. Without
    /// [`Options::durable`](crate::Options::durable) nothing in it outlives the store: the store removes the files that
    /// it finds there when it opens. With it, the folder belongs to that store, and `None` is a folder within the
    /// store's own.
    pub path: Option<PathBuf>,
    /// Bytes of all segment files at most, 4 MiB at least.
    pub limit_bytes: u64,
}

/// A limit, and perhaps a folder, such as `8GiB:/mnt/ssd/ziptier`.
impl FromStr for SsdOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (bytes, path) = match text.split_once(':') {
            None => (text, None),
            Some((_, "")) => {
                return Err(
                    "write bytes and a folder, such as 8GiB:/mnt/ssd/ziptier, or bytes alone".to_owned()
                );
            }
            Some((bytes, path)) => (bytes, Some(path.into())),
        };
        let ByteSize(limit_bytes) = bytes.parse()?;
        Ok(Self { path, limit_bytes })
    }
}

impl SsdOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.limit_bytes >= LIMIT_BYTES_MIN {
            return Ok(());
        }
        let reason =
            format!("a limit of {} bytes is too small; give at least {LIMIT_BYTES_MIN}", self.limit_bytes);
        Err(Error::Ssd { reason })
    }
}

/// The smallest limit.
const LIMIT_BYTES_MIN: u64 = 4 << 20;
/// Bytes of a segment: a limit is at least 16 segments, where that leaves them their least size.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
const SEGMENTS: u64 = 16;
const WRITE_BYTES_MAX: u64 = 1 << 20;
/// The part of the limit that is kept for cleaning, and the part that is kept for images of what memory has, at most.
pub(super) const KEPT_PART: u64 = 8;

/// Counters of the SSD.
#[derive(Debug, Default)]
pub(super) struct TierCounters {
    /// Lists of images, and the bytes that they and their leaves hold in memory.
    pub(super) leaves: AtomicU64,
    pub(super) index_bytes: AtomicU64,
    /// Images that cleaning appended anew.
    pub(super) images_cleaned: AtomicU64,
}

/// The state of the SSD, and the work that was done there since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SsdStatus {
    /// Bytes of all segment files at most.
    pub limit_bytes: u64,
    /// Bytes of a segment file. One that holds a longer value has more.
    pub segment_bytes: u64,
    /// Bytes of all segment files.
    pub allocated_bytes: u64,
    /// Bytes of images that are needed.
    pub live_bytes: u64,
    /// Bytes that went to the SSD, cleaning and padding included. Over the bytes of accepted writes
    /// ([`Stats::written_bytes`](crate::Stats::written_bytes)) this is the write amplification.
    pub written_bytes: u64,
    /// Bytes of images that were written anew to empty a segment.
    pub cleaned_bytes: u64,
    /// Leaves whose records lie there.
    pub leaves: u64,
    /// Bytes of memory that these leaves, and large values there, take besides keys and newer records: the index of the
    /// SSD.
    pub index_bytes: u64,
    /// Images that were written anew to empty a segment.
    pub images_cleaned: u64,
    /// Pieces of large values, of up to 1 MiB, that readers read from there.
    pub pieces_read: u64,
    /// Nothing more goes there for now: it is full, or a write failed.
    pub is_refused: bool,
    /// How files are read and written, in words.
    pub medium: String,
}

/// Says whether a folder may be emptied, which is locked.
pub(crate) type CheckFolder = fn(&dyn Disk, &Path) -> Result<(), Error>;

/// The segment files of a store.
pub(crate) struct Tier {
    pub(super) files: Arc<ImageFiles>,
    pub(super) gauges: Arc<Gauges>,
    pub(super) counters: TierCounters,
    pub(super) limit_bytes: u64,
    pub(super) segment_bytes: u64,
    /// Generations of another kind than the store packs with: their images are decoded when they are read.
    foreign: OnceLock<BTreeSet<u32>>,
}

impl Tier {
    /// Opens the folder and empties it, unless `check` refuses that. The folder's lock goes with the store: readers of
    /// the epoch may hold the tier for longer.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        options: &SsdOptions,
        gauges: Arc<Gauges>,
        check: CheckFolder,
    ) -> Result<(Arc<Self>, Box<dyn DirLock>), Error> {
        let failed = |reason: String| Error::Ssd { reason };
        options.check()?;
        let Some(path) = &options.path else {
            return Err(failed(
                "a store without a folder of its own needs one for segments: name it in SsdOptions::path, or \
                 behind the size in --ssd BYTES:FOLDER"
                    .to_owned(),
            ));
        };
        disk.create_dir(path).map_err(|error| failed(error.to_string()))?;
        let lock = disk.lock_dir(path).map_err(|error| failed(error.to_string()))?;
        check(&*disk, path)?;
        let layout = segment_options(options.limit_bytes);
        let segments = Segments::open(disk, path, layout).map_err(|error| failed(error.to_string()))?;
        for number in segments.numbers() {
            segments.remove(number).map_err(|error| failed(error.to_string()))?;
        }
        Ok((Self::over(ImageFiles::new(segments), layout, gauges), lock))
    }

    /// Over files that are open.
    pub(crate) fn over(files: Arc<ImageFiles>, layout: SegmentOptions, gauges: Arc<Gauges>) -> Arc<Self> {
        Arc::new(Self {
            files,
            gauges,
            counters: TierCounters::default(),
            limit_bytes: layout.limit_bytes,
            segment_bytes: layout.segment_bytes,
            foreign: OnceLock::new(),
        })
    }

    /// Says which generations are of another kind than the store packs with.
    pub(crate) fn set_foreign(&self, foreign: BTreeSet<u32>) {
        let is_first = self.foreign.set(foreign).is_ok();
        debug_assert!(is_first, "a store recovers once");
    }

    pub(super) fn is_foreign(&self, coding: &Coding) -> bool {
        self.foreign.get().is_some_and(|foreign| foreign.contains(&coding.generation()))
    }

    /// Appends an image. The room that the next checkpoint may need stays free. An image that makes leaves smaller may
    /// use half of it.
    pub(super) fn append(&self, image: &[u8], purpose: Purpose) -> Result<Extent, SegmentError> {
        self.check_room(self.kept_from(purpose))?;
        self.files.segments.append(image, purpose).map(extent_of)
    }

    /// Bytes that an image may not take.
    pub(super) fn kept_from(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::New => self.kept_bytes(),
            Purpose::Cleaning => self.kept_bytes() / 2,
        }
    }

    /// Bytes that no leaf can take any more: those of all segment files, and those that are kept. With the limit, if
    /// there is one.
    pub(crate) fn fullness(&self) -> Option<(u64, u64)> {
        let taken_bytes = self.files.segments.stats().allocated_bytes + self.kept_bytes();
        (self.limit_bytes < u64::MAX).then(|| (taken_bytes.min(self.limit_bytes), self.limit_bytes))
    }

    /// Whether so many bytes are free.
    pub(super) fn check_room(&self, bytes: u64) -> Result<(), SegmentError> {
        let allocated_bytes = self.files.segments.stats().allocated_bytes;
        match allocated_bytes.saturating_add(bytes) > self.limit_bytes {
            true => Err(SegmentError::Full { allocated_bytes, limit_bytes: self.limit_bytes }),
            false => Ok(()),
        }
    }

    /// Whether a leaf may leave memory whose image a checkpoint wrote. The records that come into memory instead are
    /// for the next checkpoint to write.
    pub(super) fn check_kept(&self) -> Result<(), SegmentError> {
        self.check_room(self.kept_bytes())
    }

    /// Bytes that are kept for checkpoints: for images of everything in memory, and for cleaning. Without room for a
    /// checkpoint, no old image could go.
    pub(super) fn kept_bytes(&self) -> u64 {
        let part = self.limit_bytes / KEPT_PART;
        if self.files.outlive_the_process() { part + part.min(self.gauges.limit()) } else { 0 }
    }

    /// The state of the SSD and its counters.
    pub(super) fn status(&self, is_refused: bool) -> SsdStatus {
        let stats = self.files.segments.stats();
        SsdStatus {
            limit_bytes: self.limit_bytes,
            segment_bytes: self.segment_bytes,
            allocated_bytes: stats.allocated_bytes,
            live_bytes: stats.live_bytes,
            written_bytes: stats.written_bytes,
            cleaned_bytes: stats.cleaned_body_bytes,
            leaves: self.counters.leaves.load(Relaxed),
            index_bytes: self.counters.index_bytes.load(Relaxed) + self.files.large_index_bytes.load(Relaxed),
            images_cleaned: self.counters.images_cleaned.load(Relaxed),
            pieces_read: self.files.pieces_read.load(Relaxed),
            is_refused,
            medium: self.files.segments.describe(),
        }
    }
}

/// How segments are laid out under a limit.
pub(crate) fn segment_options(limit_bytes: u64) -> SegmentOptions {
    let segment_bytes = (limit_bytes / SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX) / 4096 * 4096;
    SegmentOptions {
        segment_bytes,
        write_bytes: (segment_bytes / 4).min(WRITE_BYTES_MAX) as usize / 4096 * 4096,
        limit_bytes,
        ..SegmentOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::SsdOptions;

    #[test]
    fn an_ssd_is_a_limit_and_a_folder() {
        let ssd = |path: Option<&str>| Ok(SsdOptions { path: path.map(Into::into), limit_bytes: 8 << 30 });
        assert_eq!("8GiB:/a:b".parse(), ssd(Some("/a:b")));
        assert_eq!("8GiB".parse(), ssd(None));
        for text in ["8GiB:", ":/a", "x:/a", "x", ""] {
            assert!(text.parse::<SsdOptions>().is_err(), "{text}");
        }
    }
}
