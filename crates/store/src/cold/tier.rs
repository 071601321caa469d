//! The SSD as the store sees it: segment files in one folder, and what was done there.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ziptier_media::disk::{DirLock, Disk};
use ziptier_media::segments::{Place, Purpose, SegmentError, SegmentOptions, Segments};

use crate::Error;
use crate::memory::Gauges;

/// Where cold leaves go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsdOptions {
    /// The folder of segment files, which is made if it is missing. Nothing in it outlives the store: what is found there when the
    /// store opens is removed.
    pub path: PathBuf,
    /// Bytes of all segment files at most, 4 MiB at least.
    pub limit_bytes: u64,
}

/// The smallest limit.
const LIMIT_BYTES_MIN: u64 = 4 << 20;
/// Bytes of a segment: a limit is at least 16 segments, where that leaves them their least size.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
const SEGMENTS: u64 = 16;
const WRITE_BYTES_MAX: u64 = 1 << 20;

/// What was done on SSD and what it costs.
#[derive(Debug, Default)]
pub(super) struct TierCounters {
    /// Lists of images, and what they and their leaves hold in memory.
    pub(super) leaves: AtomicU64,
    pub(super) index_bytes: AtomicU64,
    /// Images that cleaning appended anew.
    pub(super) images_cleaned: AtomicU64,
}

/// What the SSD holds, and what was written there since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SsdStatus {
    /// Bytes of all segment files at most.
    pub limit_bytes: u64,
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
    /// What these leaves take in memory besides keys and newer records: the index of the SSD.
    pub index_bytes: u64,
    /// Images that were written anew to empty a segment.
    pub images_cleaned: u64,
    /// Nothing more goes there for now: it is full, or a write failed.
    pub is_refused: bool,
    /// How files are read and written, in words.
    pub medium: String,
}

/// The segment files of a store.
pub(crate) struct Tier {
    pub(super) segments: Segments,
    pub(super) gauges: Arc<Gauges>,
    pub(super) counters: TierCounters,
    pub(super) limit_bytes: u64,
    pub(super) segment_bytes: u64,
}

impl Tier {
    /// Opens the folder and empties it. The folder's lock goes with the store: readers of the epoch may hold the tier for longer.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        options: &SsdOptions,
        gauges: Arc<Gauges>,
    ) -> Result<(Arc<Self>, Box<dyn DirLock>), Error> {
        let failed = |reason: String| Error::Ssd { reason };
        if options.limit_bytes < LIMIT_BYTES_MIN {
            return Err(failed(format!(
                "a limit of {} bytes is too small; give at least {LIMIT_BYTES_MIN}",
                options.limit_bytes
            )));
        }
        disk.create_dir(&options.path).map_err(|error| failed(error.to_string()))?;
        let lock = disk.lock_dir(&options.path).map_err(|error| failed(error.to_string()))?;
        let layout = segment_options(options.limit_bytes);
        let segments = Segments::open(disk, &options.path, layout);
        let segments = segments.map_err(|error| failed(error.to_string()))?;
        for number in segments.numbers() {
            segments.remove(number).map_err(|error| failed(error.to_string()))?;
        }
        let counters = TierCounters::default();
        let (limit_bytes, segment_bytes) = (layout.limit_bytes, layout.segment_bytes);
        Ok((Arc::new(Self { segments, gauges, counters, limit_bytes, segment_bytes }), lock))
    }

    /// Appends an image.
    pub(super) fn append(&self, image: &[u8], purpose: Purpose) -> Result<Place, SegmentError> {
        self.segments.append(image, purpose)
    }

    /// What is there, and what was done.
    pub(super) fn status(&self, is_refused: bool) -> SsdStatus {
        let stats = self.segments.stats();
        SsdStatus {
            limit_bytes: self.limit_bytes,
            allocated_bytes: stats.allocated_bytes,
            live_bytes: stats.live_bytes,
            written_bytes: stats.written_bytes,
            cleaned_bytes: stats.cleaned_body_bytes,
            leaves: self.counters.leaves.load(Relaxed),
            index_bytes: self.counters.index_bytes.load(Relaxed),
            images_cleaned: self.counters.images_cleaned.load(Relaxed),
            is_refused,
            medium: self.segments.describe(),
        }
    }
}

fn segment_options(limit_bytes: u64) -> SegmentOptions {
    let segment_bytes = (limit_bytes / SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX) / 4096 * 4096;
    SegmentOptions {
        segment_bytes,
        write_bytes: (segment_bytes / 4).min(WRITE_BYTES_MAX) as usize / 4096 * 4096,
        limit_bytes,
        ..SegmentOptions::default()
    }
}
