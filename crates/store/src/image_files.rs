//! The segment files of a store, and when one of them is removed.
//!
//! Not for the bytes in them: `media::segments` writes and reads those.
//!
//! 1. Each holder of an extent in the process owns it alone and releases it: [`Owned`], [`OwnedPieces`], or a list of
//!    images ([`Below`]).
//! 2. The checkpoint in force names places, too, and recovery reads these after a crash.
//! 3. A segment is removed when nobody owns a place in it and the checkpoint in force names none.
//! 4. While a checkpoint is made, no segment is removed: nobody knows yet which places that checkpoint will name.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use ziptier_media::disk::{DirLock, Disk, DiskError};
use ziptier_media::segments::{Place, SegmentError, Segments};
use ziptier_tree::below::Below;
use ziptier_tree::extent::Extent;
use ziptier_tree::large::{OwnedPieces, PieceFiles, PieceRead, PieceSource};
use ziptier_tree::sync::Mutex;

/// Segment files, and the set of those that are needed whether or not a holder owns bodies in them.
pub(crate) struct ImageFiles {
    pub(crate) segments: Segments,
    /// Bytes that memory holds for large values on SSD.
    pub(crate) large_index_bytes: AtomicU64,
    /// Pieces of large values that readers read.
    pub(crate) pieces_read: AtomicU64,
    needed: Mutex<Needed>,
    /// These files as large values know them, while any value lies in them.
    source: Mutex<Weak<PieceSource>>,
    /// No segment is removed while another process has the lock of this folder.
    readers: Option<(Arc<dyn Disk>, PathBuf)>,
}

#[derive(Default)]
struct Needed {
    /// Segments that the checkpoint in force names.
    named: BTreeSet<u64>,
    is_walking: bool,
    /// Segments up to this number stay as long as the process runs.
    kept: Option<u64>,
}

impl Needed {
    /// Whether the checkpoint in force names the segment.
    fn names(&self, segment: u64) -> bool {
        #[cfg(test)]
        if ziptier_tree::faults::has(ziptier_tree::faults::InjectedFault::NamedImageFreed) {
            return false;
        }
        self.named.contains(&segment)
    }
}

impl ImageFiles {
    /// Files of which no checkpoint needs anything.
    pub(crate) fn new(segments: Segments) -> Arc<Self> {
        Self::with(segments, Needed::default(), None)
    }

    /// Files of which a checkpoint in force needs the segments `named`. A process that reads them from outside locks
    /// the folder `readers`.
    pub(crate) fn of_checkpoint(
        segments: Segments,
        named: BTreeSet<u64>,
        disk: Arc<dyn Disk>,
        readers: PathBuf,
    ) -> Arc<Self> {
        Self::with(segments, Needed { named, ..Needed::default() }, Some((disk, readers)))
    }

    /// These files as large values know them.
    pub(crate) fn source(self: &Arc<Self>) -> Arc<PieceSource> {
        let mut known = self.source.lock();
        known.upgrade().unwrap_or_else(|| {
            let source = PieceSource::new(self.clone());
            *known = Arc::downgrade(&source);
            source
        })
    }

    fn with(segments: Segments, needed: Needed, readers: Option<(Arc<dyn Disk>, PathBuf)>) -> Arc<Self> {
        let needed = Mutex::new(needed);
        let (large_index_bytes, pieces_read) = (AtomicU64::new(0), AtomicU64::new(0));
        let source = Mutex::default();
        Arc::new(Self { segments, large_index_bytes, pieces_read, needed, source, readers })
    }

    /// Whether a checkpoint may need something of them.
    pub(crate) fn outlive_the_process(&self) -> bool {
        self.readers.is_some()
    }

    /// Keeps all segments that are there until the process ends. A salvage that left something out calls this: the
    /// missing bytes may lie in any of them and may be readable another day.
    pub(crate) fn keep_all(&self) {
        self.needed.lock().kept = Some(self.segments.numbers().last().copied().unwrap_or(0));
    }

    /// Whether [`ImageFiles::keep_all`] was called.
    pub(crate) fn keeps_all(&self) -> bool {
        self.needed.lock().kept.is_some()
    }

    /// Whether a segment stays because of [`ImageFiles::keep_all`].
    pub(crate) fn is_kept(&self, segment: u64) -> bool {
        self.needed.lock().kept >= Some(segment)
    }

    /// Removes the segments that nobody needs, as far as a full disk lets it; how many.
    pub(crate) fn remove_dead(&self) -> Result<usize, SegmentError> {
        let needed = self.needed.lock();
        if needed.is_walking {
            return Ok(0);
        }
        let dead: Vec<u64> = self
            .segments
            .candidates()
            .into_iter()
            .take_while(|candidate| candidate.live_bytes == 0)
            .map(|candidate| candidate.segment)
            .filter(|segment| !needed.names(*segment) && needed.kept < Some(*segment))
            .collect();
        if dead.is_empty() {
            return Ok(0);
        }
        let _nobody_reads = match &self.readers {
            None => None,
            Some((disk, folder)) => match disk.lock_dir(folder) {
                Err(DiskError::Locked { .. }) => return Ok(0),
                lock => Some(lock?),
            },
        };
        for (removed, segment) in dead.iter().enumerate() {
            // A reader with a stale list looks for the new list when its read fails.
            match self.segments.remove(*segment) {
                // A disk with copies on write may refuse to remove or cut a file. Nothing has changed then.
                Err(SegmentError::Disk(error)) if error.is_refusal() => return Ok(removed),
                done => done?,
            }
        }
        Ok(dead.len())
    }

    /// Takes the lock of the folder `readers`, if there is one, and waits for a thread that removes segments, which
    /// holds that lock, too.
    ///
    /// # Errors
    /// [`DiskError::Locked`] while another process reads, or the disk's.
    pub(crate) fn lock_out_readers(&self) -> Result<Option<Box<dyn DirLock>>, DiskError> {
        let _nobody_removes = self.needed.lock();
        self.readers.as_ref().map(|(disk, folder)| disk.lock_dir(folder)).transpose()
    }

    /// Begins a checkpoint. No segment is removed until the returned walk ends.
    pub(crate) fn walk(&self) -> Walk<'_> {
        self.needed.lock().is_walking = true;
        Walk(self)
    }
}

/// A checkpoint is being made.
pub(crate) struct Walk<'a>(&'a ImageFiles);

impl Walk<'_> {
    /// A checkpoint that needs these segments is in force from now on; `for_certain` when the one before no longer is.
    pub(crate) fn end(self, named: BTreeSet<u64>, for_certain: bool) {
        let needed = &mut *self.0.needed.lock();
        if for_certain {
            needed.named = named;
        } else {
            needed.named.extend(named);
        }
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.0.needed.lock().is_walking = false;
    }
}

/// Places that are released with this, unless they were handed on.
pub(crate) struct Owned<P: AsRef<[Extent]>> {
    files: Arc<ImageFiles>,
    places: P,
    is_handed_on: AtomicBool,
}

/// Of an image.
pub(crate) type OwnedImage = Owned<[Extent; 1]>;

impl<P: AsRef<[Extent]>> Owned<P> {
    /// Of places that were appended and that nobody owns yet.
    pub(crate) fn new(files: &Arc<ImageFiles>, places: P) -> Self {
        Self { files: files.clone(), places, is_handed_on: AtomicBool::new(false) }
    }

    /// Of places that were found when the files were opened. The checkpoint in force names them, and also pieces that
    /// its manifest does not list. The process may release them before the next checkpoint, so their segments count as
    /// named.
    pub(crate) fn found(files: &Arc<ImageFiles>, places: P) -> Result<Self, SegmentError> {
        let owned = Self::new(files, places);
        files.needed.lock().named.extend(owned.places().iter().map(|place| place.segment));
        for place in owned.places() {
            if let Err(error) = files.segments.keep(place_of(*place)) {
                owned.hand_on();
                return Err(error);
            }
        }
        Ok(owned)
    }

    pub(crate) fn places(&self) -> &[Extent] {
        self.places.as_ref()
    }

    /// The caller has given the places to another owner.
    pub(crate) fn hand_on(&self) {
        self.is_handed_on.store(true, Relaxed);
    }
}

impl<P: AsRef<[Extent]>> Drop for Owned<P> {
    fn drop(&mut self) {
        if !self.is_handed_on.load(Relaxed) {
            self.places().iter().for_each(|place| self.files.segments.release(place_of(*place)));
        }
    }
}

impl<P: AsRef<[Extent]>> fmt::Debug for Owned<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.places()).finish()
    }
}

impl PieceFiles for ImageFiles {
    fn read(&self, place: Extent) -> Result<Vec<u8>, String> {
        self.segments.read(place_of(place)).map_err(|error| error.to_string())
    }

    fn read_later(&self, place: Extent, done: PieceRead) {
        self.segments.read_later(place_of(place), |read| done(read.map_err(|error| error.to_string())));
    }

    fn release(&self, place: Extent) {
        self.segments.release(place_of(place));
    }

    fn note_read(&self) {
        self.pieces_read.fetch_add(1, Relaxed);
    }

    fn count(&self, held_bytes: usize, add: bool) {
        let (sum, held_bytes) = (&self.large_index_bytes, held_bytes as u64);
        if add {
            sum.fetch_add(held_bytes, Relaxed)
        } else {
            sum.fetch_sub(held_bytes, Relaxed)
        };
    }
}

/// The pieces of a large value at places that were found when the files were opened.
pub(crate) fn found_pieces(files: &Arc<ImageFiles>, places: &[Extent]) -> Result<OwnedPieces, SegmentError> {
    Owned::found(files, places)?.hand_on();
    Ok(OwnedPieces::new(files.source(), places.to_vec()))
}

/// The extent as segments name it.
pub(crate) fn place_of(extent: Extent) -> Place {
    let Extent { segment, offset, bytes } = extent;
    Place { segment, offset, bytes }
}

/// The place of a body in segments as the tree names it.
pub(crate) fn extent_of(place: Place) -> Extent {
    let Place { segment, offset, bytes } = place;
    Extent { segment, offset, bytes }
}

/// Bytes that all images of a leaf take on SSD.
pub(crate) fn ssd_bytes(below: &Below) -> u64 {
    (0..below.len()).map(|index| place_of(below.place(index)).block_bytes()).sum()
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use ziptier_media::segments::{Purpose, SegmentOptions};
    use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};

    use super::*;

    #[test]
    fn a_thread_that_removes_segments_is_not_taken_for_a_dump() {
        let disk: Arc<dyn Disk> = Arc::new(RecordingDisk::new());
        let (dir, readers) = (Path::new("/d"), Path::new("/d/backup"));
        let segments = Segments::open(disk.clone(), dir, SegmentOptions::default()).unwrap();
        let files = ImageFiles::of_checkpoint(segments, BTreeSet::new(), disk.clone(), readers.into());
        std::thread::scope(|scope| {
            let removes = files.needed.lock();
            let lock = disk.lock_dir(readers).unwrap();
            let (sender, receiver) = channel();
            let files = &files;
            scope.spawn(move || sender.send(files.lock_out_readers().map(drop)));
            assert!(receiver.recv_timeout(Duration::from_millis(100)).is_err(), "it did not wait");
            drop(lock);
            drop(removes);
            assert_eq!(receiver.recv(), Ok(Ok(())));
        });
    }

    #[test]
    fn a_full_disk_that_refuses_a_removal_is_asked_again_later() {
        let (dir, readers) = (Path::new("/d"), Path::new("/d/backup"));
        let options =
            SegmentOptions { segment_bytes: 64 << 10, write_bytes: 4096, ..SegmentOptions::default() };
        let mut refused = 0;
        for nth in 0.. {
            let disk = FailingDisk::new(Arc::new(RecordingDisk::new()), Fault::Full, nth);
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            let Ok(segments) = Segments::open(shared.clone(), dir, options) else { continue };
            let files = ImageFiles::of_checkpoint(segments, BTreeSet::new(), shared, readers.into());
            let Ok(place) = files.segments.append(b"a body", Purpose::New) else { continue };
            if files.segments.close().is_err() {
                continue;
            }
            files.segments.release(place);
            let had_failed = disk.has_failed();
            let removed = files.remove_dead();
            if disk.has_failed() && !had_failed {
                assert_eq!((removed, files.remove_dead()), (Ok(0), Ok(1)));
                refused += 1;
            } else {
                assert_eq!(removed, Ok(1), "full at operation {nth}");
            }
            if !disk.has_failed() {
                break;
            }
        }
        assert_eq!(refused, 1);
    }
}
