//! Collects bodies into large writes.
//!
//! A thread uses an appender under its lock, and first checks there for an earlier failure. The system reports a failed
//! sync only once. A thread that waited for the lock meanwhile would see its own sync succeed.

use super::file::SegmentFile;
use super::format::{self, BLOCK_HEADER_BYTES, HEADER_BYTES, PAGE_BYTES};
use super::{Place, Purpose, SegmentError, Shared};
use crate::aligned::AlignedBytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The end of one stream of bodies.
pub(super) struct Appender {
    purpose: Purpose,
    open: Option<Open>,
}

/// A segment that is appended to.
struct Open {
    file: Arc<SegmentFile>,
    segment_bytes: u64,
    /// Bytes that are not yet written. A body that is longer than the buffer passes through it in pieces.
    buffer: AlignedBytes,
    /// The offset of the buffer in the file, a multiple of a page.
    start: u64,
    filled: usize,
    is_unsynced: bool,
}

impl Appender {
    pub(super) fn new(purpose: Purpose) -> Appender {
        Appender { purpose, open: None }
    }

    /// Has a segment open that has room for a body of so many bytes.
    pub(super) fn prepare(&mut self, shared: &Shared, body_bytes: usize) -> Result<(), SegmentError> {
        shared.check()?;
        let needed = format::block_bytes(body_bytes);
        if self.open.as_ref().is_some_and(|open| open.end_before(needed) + needed > open.segment_bytes) {
            self.finish(shared)?;
        }
        if self.open.is_none() {
            self.open = Some(Open::new(shared, body_bytes, self.purpose)?);
        }
        Ok(())
    }

    pub(super) fn append(&mut self, shared: &Shared, body: &[u8]) -> Result<Place, SegmentError> {
        self.prepare(shared, body.len())?;
        let needed = format::block_bytes(body.len());
        let open = self.open.as_mut().expect("a segment with room is open");
        // On return, the whole block is in the buffer, or the whole block is in the file.
        if needed > open.room() {
            open.write_padded(shared)?;
        }
        let offset = open.end();
        // A segment has at most 1 GiB, or holds one longer body.
        let place = Place { segment: open.file.number, offset: offset as u32, bytes: body.len() as u32 };
        open.push(shared, &format::encode_block_header(open.file.number, offset, body))?;
        open.push(shared, body)?;
        open.push(shared, &[0; 8][..format::block_padding(body.len()) as usize])?;
        if needed > open.buffer.len() as u64 {
            open.write_padded(shared)?;
        }
        open.file.add_live(needed);
        Ok(place)
    }

    pub(super) fn sync(&mut self, shared: &Shared) -> Result<(), SegmentError> {
        shared.check()?;
        let Some(open) = &mut self.open else { return Ok(()) };
        open.write_padded(shared)?;
        if open.is_unsynced {
            shared.poison(open.file.file.sync_data())?;
            open.is_unsynced = false;
        }
        Ok(())
    }

    /// Writes and syncs the open segment, and cuts it behind its last block.
    pub(super) fn finish(&mut self, shared: &Shared) -> Result<(), SegmentError> {
        self.sync(shared)?;
        if let Some(open) = &self.open {
            shared.poison(open.file.finish(open.start))?;
        }
        self.open = None;
        Ok(())
    }

    /// A body that was not written yet.
    pub(super) fn buffered(&self, place: Place) -> Option<Vec<u8>> {
        let open = self.open.as_ref().filter(|open| open.file.number == place.segment)?;
        let start = u64::from(place.offset).checked_sub(open.start)? as usize + BLOCK_HEADER_BYTES;
        let end = start + place.bytes as usize;
        (end <= open.filled).then(|| open.buffer[start..end].to_vec())
    }
}

impl Open {
    fn new(shared: &Shared, body_bytes: usize, purpose: Purpose) -> Result<Open, SegmentError> {
        let file = shared.create(body_bytes, purpose)?;
        Ok(Open {
            segment_bytes: file.allocated_bytes(),
            file,
            buffer: AlignedBytes::zeroed(shared.options.write_bytes),
            start: HEADER_BYTES,
            filled: 0,
            is_unsynced: false,
        })
    }

    fn room(&self) -> u64 {
        (self.buffer.len() - self.filled) as u64
    }

    fn end(&self) -> u64 {
        self.start + self.filled as u64
    }

    /// The end before a block of so many bytes is added: a block that the buffer has no room for begins on a page.
    fn end_before(&self, needed: u64) -> u64 {
        if needed > self.room() { self.end().next_multiple_of(PAGE_BYTES) } else { self.end() }
    }

    /// Adds bytes, and writes the buffer whenever it is full.
    fn push(&mut self, shared: &Shared, mut bytes: &[u8]) -> Result<(), SegmentError> {
        while !bytes.is_empty() {
            let count = bytes.len().min(self.buffer.len() - self.filled);
            self.buffer[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
            if self.filled == self.buffer.len() {
                self.write_padded(shared)?;
            }
        }
        Ok(())
    }

    /// Writes the buffer, padded with zeros to a page.
    fn write_padded(&mut self, shared: &Shared) -> Result<(), SegmentError> {
        let end = self.filled.next_multiple_of(PAGE_BYTES as usize);
        if end == 0 {
            return Ok(());
        }
        self.buffer[self.filled..end].fill(0);
        shared.poison(self.file.write(self.start, &self.buffer[..end]))?;
        shared.written_bytes.fetch_add(end as u64, Ordering::Relaxed);
        self.start += end as u64;
        self.filled = 0;
        self.is_unsynced = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::segments::{SegmentOptions, Segments};
    use crate::testing::{FailingDisk, Fault, RecordingDisk};
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn a_full_disk_that_cuts_no_segment_refuses_no_body() {
        // Two bodies fill a segment, and three segments are cut.
        let body = [7; 25_000];
        let options =
            SegmentOptions { segment_bytes: 64 << 10, write_bytes: 4096, ..SegmentOptions::default() };
        let mut whole = 0;
        for nth in 0.. {
            let recording = RecordingDisk::new();
            let disk = FailingDisk::new(Arc::new(recording.clone()), Fault::Full, nth);
            let open = |disk: Arc<dyn Disk>| Segments::open(disk, Path::new("/d"), options);
            let Ok(segments) = open(Arc::new(disk.clone())) else { continue };
            let append = |_| segments.append(&body, Purpose::New).map(drop);
            if let Err(error) = (0..5).try_for_each(append).and_then(|()| segments.close()) {
                assert!(!error.to_string().contains("cannot cut"), "{error}");
                continue;
            }
            drop(segments);
            let (segments, mut bodies) = (open(Arc::new(recording)).unwrap(), 0);
            for number in segments.numbers() {
                let mut blocks = segments.blocks(number).unwrap();
                while let Some((_, found)) = blocks.next_block().unwrap() {
                    assert!(found == body);
                    bodies += 1;
                }
            }
            assert_eq!(bodies, 5, "full at operation {nth}");
            whole += 1;
            if !disk.has_failed() {
                break;
            }
        }
        assert_eq!(whole, 4);
    }

    #[test]
    fn who_waited_beside_a_sync_that_failed_is_told() {
        // Counts the syncs before the failing one, those of names included.
        let body = [7; 100];
        let open = |nth| {
            let disk = FailingDisk::new(Arc::new(RecordingDisk::new()), Fault::LyingSync, nth);
            let segments = Segments::open(Arc::new(disk.clone()), Path::new("/d"), SegmentOptions::default());
            let segments =
                segments.and_then(|segments| segments.append(&body, Purpose::New).map(|_| segments));
            segments.ok().filter(|_| !disk.has_failed())
        };
        let segments = (0..100).find_map(open).expect("few syncs come before that of a body");
        std::thread::scope(|scope| {
            let mut appender = segments.appenders[Purpose::New as usize].lock();
            let waits = scope.spawn(|| segments.sync());
            // Long enough for the other thread to reach the lock.
            std::thread::sleep(Duration::from_millis(100));
            assert!(matches!(appender.sync(&segments.shared), Err(SegmentError::Disk(_))));
            drop(appender);
            assert!(matches!(waits.join(), Ok(Err(SegmentError::Poisoned { .. }))));
        });
    }
}
