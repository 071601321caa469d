//! Brings chunks into segment files, and goes from one segment to the next.

use super::buffer::Chunk;
use super::format::{EntryHeader, HEADER_BYTES};
use super::segment::Segments;
use super::{LogError, Lsn};
use crate::disk::{DiskFile, write_all_at};
use parking_lot::Mutex;
use std::sync::Arc;

/// A segment file whose sync fails for ever once it has failed: the system reports lost bytes to one caller only, and what it
/// tells the next one is worthless.
pub(super) struct SegmentFile {
    file: Arc<dyn DiskFile>,
    failure: Mutex<Option<LogError>>,
}

impl SegmentFile {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> SegmentFile {
        SegmentFile { file, failure: Mutex::new(None) }
    }

    pub(super) fn durable_after(&self) -> String {
        self.file.durable_after()
    }

    pub(super) fn sync(&self) -> Result<(), LogError> {
        let mut failure = self.failure.lock();
        if let Some(error) = &*failure {
            return Err(error.clone());
        }
        self.file.sync_data().map_err(|error| failure.insert(error.into()).clone())
    }
}

/// The newest segment.
pub(super) struct Writer {
    file: Arc<SegmentFile>,
    offset: u64,
    pub(super) written_bytes: u64,
}

impl Writer {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> Writer {
        Writer { file: Arc::new(SegmentFile::new(file)), offset: HEADER_BYTES, written_bytes: HEADER_BYTES }
    }

    pub(super) fn file(&self) -> Arc<SegmentFile> {
        self.file.clone()
    }

    /// Writes chunks in their order; the LSN up to which going to another segment made the log durable, or 0.
    pub(super) fn write(&mut self, chunks: &mut [Chunk], segments: &Segments) -> Result<Lsn, LogError> {
        let mut durable_lsn = 0;
        for chunk in chunks {
            if let Some((spare, header)) = chunk.next.take() {
                // The old segment is durable before the next one exists, and cut before that one has records: so at most
                // the last two segments of a folder are uncut, and of these the last has no records.
                self.file.sync()?;
                let next = segments.begin(spare, &header)?;
                self.cut()?;
                (self.file, self.offset) = (Arc::new(SegmentFile::new(next)), HEADER_BYTES);
                self.written_bytes += HEADER_BYTES;
                durable_lsn = header.first_lsn - 1;
            }
            self.append(&chunk.bytes)?;
        }
        Ok(durable_lsn)
    }

    /// Marks a clean stop behind the last record, all of which are durable.
    pub(super) fn seal(&mut self, entry: &EntryHeader) -> Result<(), LogError> {
        self.append(&entry.encode())?;
        // First the seal, then the cut: a file that was cut and has no successor must have a seal.
        self.file.sync()?;
        self.cut()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        write_all_at(&*self.file.file, self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    fn cut(&self) -> Result<(), LogError> {
        self.file.file.set_len(self.offset)?;
        self.file.sync()
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
        let segment = SegmentFile::new(file.clone());
        assert_eq!(segment.sync(), Ok(()));
        let failure = segment.sync().unwrap_err();
        assert_eq!(file.sync_data(), Ok(()), "the disk has forgotten");
        assert_eq!(segment.sync(), Err(failure));
    }
}
