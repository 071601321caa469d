//! The files of a log: the segments in use, oldest first, and spare files.

use super::format::{self, ENTRY_HEADER_BYTES, HEADER_BYTES, SegmentHeader};
use super::writer::SegmentFile;
use super::{LogError, Lsn};
use crate::disk::{Caching, Disk, DiskError, DiskFile, OpenDir, write_all_at};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of spare files that are kept. More than one, so that segments that a checkpoint frees are used again.
const SPARES_MAX: usize = 2;

/// A file that is allocated and filled, to become a segment. The file is open already, so that beginning a segment
/// opens no file.
pub(super) struct Spare {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    pub(super) bytes: u64,
}

impl Spare {
    /// Whether a first record of this many bytes leaves room for a seal, and for at least one byte that a cut takes
    /// away.
    pub(super) fn fits(&self, payload_bytes: usize) -> bool {
        payload_bytes_max(self.bytes, HEADER_BYTES).is_some_and(|max| payload_bytes <= max)
    }
}

/// The longest payload that fits behind `offset`, with room for a seal and at least one byte that a cut takes away.
/// `None` if not even an empty payload fits.
pub(super) fn payload_bytes_max(segment_bytes: u64, offset: u64) -> Option<usize> {
    let kept = 2 * ENTRY_HEADER_BYTES as u64 + 1;
    segment_bytes.checked_sub(offset + kept).map(|bytes| bytes as usize)
}

/// Bytes of the segment that a record needs, whatever the usual size.
fn segment_bytes_for(segment_bytes: u64, payload_bytes: usize) -> u64 {
    let needed = HEADER_BYTES + (payload_bytes + 2 * ENTRY_HEADER_BYTES + 1) as u64;
    segment_bytes.max(needed.next_multiple_of(4096))
}

/// A segment that records may be in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    pub(super) number: u64,
    pub(super) first_lsn: Lsn,
    /// Bytes of the file while it is in use.
    pub(super) segment_bytes: u64,
    /// Bytes of the file. It is cut when the log goes on to the next one.
    pub(super) file_bytes: u64,
    /// Whether a salvage could not read all of it. Such a segment may become readable later, so it is set aside and not
    /// dropped.
    pub(super) is_unread: bool,
}

/// A segment that is no part of the log yet.
pub(super) struct Begun {
    file: SegmentFile,
    live: Live,
}

struct Pool {
    live: VecDeque<Live>,
    spares: Vec<Spare>,
    next_spare: u64,
}

/// Makes, names, counts and drops segment files.
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// The open folder. Its names can be made durable even when the process has too many open files.
    names: Box<dyn OpenDir>,
    segment_bytes: u64,
    pool: Mutex<Pool>,
    /// Only one thread at a time drops segments, so that the remaining segments never have a gap.
    dropping: Mutex<()>,
}

impl Segments {
    /// Takes over a folder's segments, and the spare files that have the right size and can be opened.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        names: Box<dyn OpenDir>,
        segment_bytes: u64,
        live: VecDeque<Live>,
        spare_names: &[String],
    ) -> Segments {
        let mut spares = Vec::new();
        let mut next_spare = 0;
        for name in spare_names {
            next_spare =
                format::number_of(name, "spare-").map_or(next_spare, |number| next_spare.max(number + 1));
            let path = dir.join(name);
            let fits =
                |file: &Arc<dyn DiskFile>| file.len() == Ok(segment_bytes) && spares.len() < SPARES_MAX;
            match disk.open(&path, Caching::Mapped).ok().filter(fits) {
                Some(file) => spares.push(Spare { file, path, bytes: segment_bytes }),
                // The file holds no records. If the removal fails, the next start tries again.
                None => drop(disk.remove(&path)),
            }
        }
        let pool = Mutex::new(Pool { live, spares, next_spare });
        Segments { disk, dir: dir.to_path_buf(), names, segment_bytes, pool, dropping: Mutex::new(()) }
    }

    /// Returns a spare file with room for a record, and makes one if there is none.
    pub(super) fn take_spare(&self, payload_bytes: usize) -> Result<Spare, DiskError> {
        let number = {
            let mut pool = self.pool.lock();
            if let Some(at) = pool.spares.iter().position(|spare| spare.fits(payload_bytes)) {
                return Ok(pool.spares.swap_remove(at));
            }
            pool.next_spare += 1;
            pool.next_spare - 1
        };
        let path = self.dir.join(format::spare_name(number));
        let bytes = segment_bytes_for(self.segment_bytes, payload_bytes);
        let make = || {
            fill(&*self.disk.create(&path, Caching::Cached)?, 0, bytes)?;
            self.disk.open(&path, Caching::Mapped)
        };
        match make() {
            Ok(file) => Ok(Spare { file, path, bytes }),
            Err(error) => {
                // The removal frees space on the disk. If it fails, the next start removes the file.
                let _ = self.disk.remove(&path);
                Err(error)
            }
        }
    }

    /// Takes an unused spare file back, or removes it if enough are kept.
    pub(super) fn give_back(&self, spare: Spare) {
        let mut pool = self.pool.lock();
        if pool.spares.len() < SPARES_MAX {
            pool.spares.push(spare);
            return;
        }
        drop(pool);
        // If the removal fails, the next start removes the file.
        let _ = self.disk.remove(&spare.path);
    }

    /// Makes a spare file if there is none, and returns whether it did.
    pub(super) fn prepare(&self) -> Result<bool, DiskError> {
        let is_needed = self.pool.lock().spares.is_empty();
        if is_needed {
            self.give_back(self.take_spare(0)?);
        }
        Ok(is_needed)
    }

    /// Gives a spare file the header and the name of a segment, durably. After a refusal the caller may try again.
    pub(super) fn begin(&self, spare: &Spare, header: &SegmentHeader) -> Result<Begun, DiskError> {
        write_all_at(&*spare.file, 0, &header.encode())?;
        spare.file.sync_data()?;
        let path = self.dir.join(format::segment_name(header.number));
        self.disk.rename(&spare.path, &path)?;
        self.names.sync_names()?;
        let SegmentHeader { number, first_lsn, .. } = *header;
        let (segment_bytes, file_bytes) = (spare.bytes, spare.bytes);
        let live = Live { number, first_lsn, segment_bytes, file_bytes, is_unread: false };
        Ok(Begun { file: SegmentFile::new(spare.file.clone(), path), live })
    }

    /// Makes a segment the newest one. The one before it, which was cut at `end` if it was still in use, may be dropped
    /// from here on.
    pub(super) fn enter(&self, begun: Begun, end: Option<u64>) -> SegmentFile {
        let mut pool = self.pool.lock();
        if let (Some(before), Some(end)) = (pool.live.back_mut().filter(|live| !live.is_unread), end) {
            before.file_bytes = end;
        }
        pool.live.push_back(begun.live);
        begun.file
    }

    /// Drops the segments that have only records before `lsn`, the oldest first; the newest segment stays.
    pub(super) fn drop_before(&self, lsn: Lsn) -> Result<(), LogError> {
        let _one_at_a_time = self.dropping.lock();
        loop {
            let (oldest, is_spare_wanted) = {
                let pool = self.pool.lock();
                match (pool.live.front(), pool.live.get(1)) {
                    (Some(&oldest), Some(next)) if next.first_lsn <= lsn => {
                        (oldest, pool.spares.len() < SPARES_MAX)
                    }
                    _ => return Ok(()),
                }
            };
            let path = self.dir.join(format::segment_name(oldest.number));
            if oldest.is_unread {
                gone_or(self.disk.rename(&path, &self.dir.join(format::unread_name(oldest.number))))?;
                self.names.sync_names()?;
            } else if is_spare_wanted && oldest.segment_bytes == self.segment_bytes {
                self.recycle(&path)?;
            } else {
                gone_or(self.disk.remove(&path))?;
                self.names.sync_names()?;
            }
            self.pool.lock().live.pop_front();
        }
    }

    /// Makes a segment a spare file again. Only the part that was cut off is filled with zeros.
    fn recycle(&self, path: &Path) -> Result<(), DiskError> {
        let number = {
            let mut pool = self.pool.lock();
            pool.next_spare += 1;
            pool.next_spare - 1
        };
        let spare_path = self.dir.join(format::spare_name(number));
        gone_or(self.disk.rename(path, &spare_path))?;
        self.names.sync_names()?;
        let refill = || {
            let file = self.disk.open(&spare_path, Caching::Cached)?;
            fill(&*file, file.len()?, self.segment_bytes)?;
            let file = self.disk.open(&spare_path, Caching::Mapped)?;
            Ok::<_, DiskError>(Spare { file, path: spare_path.clone(), bytes: self.segment_bytes })
        };
        match refill() {
            Ok(spare) => self.give_back(spare),
            // A refusal costs a spare file; the drop still succeeds. The same holds if an earlier attempt already
            // renamed the file. The next start removes a file that stays.
            Err(error) if error.is_refusal() || error.is_not_found() => drop(self.disk.remove(&spare_path)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        let pool = self.pool.lock();
        let live: u64 = pool.live.iter().map(|segment| segment.file_bytes).sum();
        live + pool.spares.iter().map(|spare| spare.bytes).sum::<u64>()
    }

    pub(super) fn first_lsn(&self) -> Lsn {
        self.pool.lock().live.front().map_or(1, |segment| segment.first_lsn)
    }
}

/// Takes a missing file as success: an earlier, failed attempt dropped it.
fn gone_or(result: Result<(), DiskError>) -> Result<(), DiskError> {
    result.or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
}

/// Allocates a file up to `end` and writes zeros from `start` on, so that syncing later writes touches no metadata. The
/// file is no segment yet.
fn fill(file: &dyn DiskFile, start: u64, end: u64) -> Result<(), DiskError> {
    file.preallocate(end)?;
    let zeros = vec![0; (end - start).min(1 << 20) as usize];
    let mut at = start;
    while at < end {
        let count = zeros.len().min((end - at) as usize);
        write_all_at(file, at, &zeros[..count])?;
        at += count as u64;
    }
    file.sync_data().map_err(DiskError::of_new_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Log, LogOptions};
    use crate::testing::RecordingDisk;

    #[test]
    fn segments_count_with_the_bytes_of_their_files() {
        let (disk, dir) = (RecordingDisk::new(), Path::new("/log"));
        let options = LogOptions { segment_bytes: 1 << 16, ..LogOptions::default() };
        for start in 0..4 {
            let mut replay = Log::open(Arc::new(disk.clone()), dir, options).unwrap();
            while replay.next_record().unwrap().is_some() {}
            let log = replay.into_log().unwrap();
            for _ in 0..3 {
                log.append(&[&[7; 30_000]]).unwrap();
            }
            log.sync(log.last_lsn()).unwrap();
            let bytes: usize = disk.paths().iter().map(|path| disk.contents(path).unwrap().len()).sum();
            assert_eq!(log.stats().allocated_bytes, bytes as u64, "start {start}");
            if start % 2 == 0 {
                log.seal().unwrap();
            }
        }
    }

    #[test]
    fn spare_files_that_nobody_keeps_are_removed() {
        let recording = RecordingDisk::new();
        let (disk, dir) = (Arc::new(recording.clone()), Path::new("/log"));
        let names = disk.open_dir(dir).unwrap();
        let segments = Segments::new(disk, dir, names, 1 << 16, VecDeque::new(), &[]);
        // Several threads made one at the same time, and went on with one of them.
        let made: Vec<Spare> = (0..5).map(|_| segments.take_spare(0).unwrap()).collect();
        assert_eq!(recording.paths().len(), 5);
        made.into_iter().for_each(|spare| segments.give_back(spare));
        assert_eq!((recording.paths().len(), segments.allocated_bytes()), (SPARES_MAX, 2 << 16));
    }
}
