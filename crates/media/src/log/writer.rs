//! Writes chunks into segment files, and goes from one segment to the next.

use super::buffer::Chunk;
use super::format::HEADER_BYTES;
use super::segment::{Begun, Segments};
use super::{LogError, Lsn};
use crate::disk::{DiskError, DiskFile, write_all_at};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

/// A segment file whose syncs all fail after one has failed. The system reports lost bytes to one caller only; a later
/// success would mean nothing.
pub(super) struct SegmentFile {
    file: Arc<dyn DiskFile>,
    /// Its name, for errors. The file was opened under another name.
    path: PathBuf,
    failure: Mutex<Option<LogError>>,
}

impl SegmentFile {
    pub(super) fn new(file: Arc<dyn DiskFile>, path: PathBuf) -> SegmentFile {
        SegmentFile { file, path, failure: Mutex::new(None) }
    }

    pub(super) fn durable_after(&self) -> String {
        self.file.durable_after()
    }

    pub(super) fn sync(&self) -> Result<(), LogError> {
        let mut failure = self.failure.lock();
        if let Some(error) = &*failure {
            return Err(error.clone());
        }
        let synced = self.file.sync_data().map_err(|error| self.named(error));
        synced.map_err(|error| failure.insert(error).clone())
    }

    fn named(&self, error: DiskError) -> LogError {
        error.renamed(&self.path).into()
    }
}

/// The end of the log: in the newest segment, or in the last opened one until there is room for a new one.
pub(super) struct Writer {
    /// `None` if the segment was finished, or there is none.
    file: Option<Arc<SegmentFile>>,
    offset: u64,
    /// The segment that was begun behind the file. It waits until the file is cut.
    next: Option<Begun>,
    pub(super) written_bytes: u64,
}

impl Writer {
    /// Continues behind a segment whose records, all durable, end at an offset.
    pub(super) fn behind(last: Option<(SegmentFile, u64)>) -> Writer {
        let (file, offset) = last.map_or((None, 0), |(file, offset)| (Some(Arc::new(file)), offset));
        Writer { file, offset, next: None, written_bytes: 0 }
    }

    pub(super) fn file(&self) -> Option<Arc<SegmentFile>> {
        self.file.clone()
    }

    /// Writes chunks in their order, and empties each written chunk. Returns the LSN up to which a step to another
    /// segment made the log durable, or 0. Chunks that the full disk refuses may be written later.
    pub(super) fn write(&mut self, chunks: &mut [Chunk], segments: &Segments) -> Result<Lsn, LogError> {
        let mut durable_lsn = 0;
        for chunk in chunks {
            if let Some((spare, header)) = &chunk.next {
                // The old segment is synced before the next one exists, and cut before the next one has records. So at
                // most the last two segments of a folder are uncut, and if two are, the last has no records.
                if self.next.is_none() {
                    self.sync()?;
                    self.next = Some(segments.begin(spare, header)?);
                }
                // A full disk may refuse the cut. A later write goes on here.
                self.cut()?;
                let end = self.file.is_some().then_some(self.offset);
                let next = self.next.take().map(|begun| Arc::new(segments.enter(begun, end)));
                (self.file, self.offset) = (next, HEADER_BYTES);
                self.written_bytes += HEADER_BYTES;
                durable_lsn = header.first_lsn - 1;
                chunk.next = None;
            }
            self.append(&chunk.bytes)?;
            chunk.bytes.clear();
        }
        Ok(durable_lsn)
    }

    /// Marks a clean stop behind the last record, all of which are durable. After a refusal the next record or seal
    /// lies where this seal does.
    pub(super) fn seal(&mut self, entry: &[u8]) -> Result<(), LogError> {
        let end = self.offset;
        if self.file.is_some() {
            self.append(entry)?;
        }
        // The seal comes before the cut: a cut file without a successor must have a seal.
        self.sync()?;
        let cut = self.cut();
        if cut.is_err() {
            self.offset = end;
        }
        cut
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        if let Some(file) = &self.file {
            write_all_at(&*file.file, self.offset, bytes).map_err(|error| file.named(error))?;
        }
        self.offset += bytes.len() as u64;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    fn sync(&self) -> Result<(), LogError> {
        self.file.as_ref().map_or(Ok(()), |file| file.sync())
    }

    fn cut(&self) -> Result<(), LogError> {
        if let Some(file) = &self.file {
            file.file.set_len(self.offset).map_err(|error| file.named(error))?;
        }
        self.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Caching, Disk};
    use crate::testing::{FailingDisk, Fault, RecordingDisk};
    use std::path::Path;

    #[test]
    fn a_sync_that_failed_never_succeeds_again() {
        let disk = FailingDisk::new(Arc::new(RecordingDisk::new()), Fault::LyingSync, 1);
        let file = disk.create(Path::new("/d/a"), Caching::Cached).unwrap();
        let segment = SegmentFile::new(file.clone(), "/d/a".into());
        assert_eq!(segment.sync(), Ok(()));
        let failure = segment.sync().unwrap_err();
        assert_eq!(file.sync_data(), Ok(()), "the disk has forgotten");
        assert_eq!(segment.sync(), Err(failure));
    }
}
