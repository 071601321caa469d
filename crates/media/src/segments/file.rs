//! One segment file: its counts, and its blocks in order.

use super::format::{self, BLOCK_HEADER_BYTES, HEADER_BYTES, HeaderFault, PAGE_BYTES};
use super::{Place, SegmentError};
use crate::aligned::AlignedBytes;
use crate::disk::{Caching, Disk, DiskError, DiskFile, read_full_at, read_good_at, write_all_at};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of one read when all blocks are read.
const WINDOW_BYTES: usize = 1 << 20;

pub(super) struct SegmentFile {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) number: u64,
    allocated_bytes: AtomicU64,
    /// Bytes from the start of the file that were written.
    written_bytes: AtomicU64,
    live_bytes: AtomicU64,
    is_finished: AtomicBool,
}

impl SegmentFile {
    /// Opens an existing file, and returns the fault of its header, if any. Nothing is appended to such a file. The
    /// error is [`SegmentError::Damaged`] if the medium fails to open it.
    pub(super) fn open(
        disk: &dyn Disk,
        path: &Path,
        number: u64,
    ) -> Result<(SegmentFile, Option<SegmentError>), SegmentError> {
        let of_read = |error| SegmentError::of_read(error, path, 0);
        let file = disk.open(path, Caching::Direct).map_err(of_read)?;
        // A file that was cut within its header gets its whole header back when the header is repaired.
        let bytes = file.len().map_err(of_read)?.max(HEADER_BYTES);
        let fault = match header_fault(&*file, number).map_err(of_read) {
            Ok(fault) => fault,
            Err(fault @ SegmentError::Damaged { .. }) => Some(fault),
            Err(error) => return Err(error),
        };
        let opened = SegmentFile {
            file,
            number,
            allocated_bytes: AtomicU64::new(bytes),
            written_bytes: AtomicU64::new(bytes),
            live_bytes: AtomicU64::new(0),
            is_finished: AtomicBool::new(true),
        };
        Ok((opened, fault))
    }

    /// Writes the header, durably.
    pub(super) fn write_header(&self) -> Result<(), DiskError> {
        let mut header = AlignedBytes::zeroed(HEADER_BYTES as usize);
        header.copy_from_slice(&format::encode_header(self.number));
        write_all_at(&*self.file, 0, &header)?;
        self.file.sync_data()
    }

    /// Makes a file: allocates its room, and makes its header and name durable.
    pub(super) fn create(
        disk: &dyn Disk,
        dir: &Path,
        number: u64,
        bytes: u64,
    ) -> Result<SegmentFile, DiskError> {
        // The header is whole before the file gets its name. A file of that name without a header is damaged.
        let unnamed = dir.join(format!("{}.new", format::segment_name(number)));
        let path = dir.join(format::segment_name(number));
        match disk.remove(&unnamed) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        let prepare = || {
            let file = disk.create(&unnamed, Caching::Direct)?;
            file.preallocate(bytes)?;
            let mut header = AlignedBytes::zeroed(HEADER_BYTES as usize);
            header.copy_from_slice(&format::encode_header(number));
            write_all_at(&*file, 0, &header)?;
            file.sync_data()?;
            disk.rename(&unnamed, &path)?;
            disk.sync_dir(dir)?;
            // Opened again, so that errors state the present name.
            disk.open(&path, Caching::Direct)
        };
        let file = prepare().inspect_err(|_| drop(disk.remove(&unnamed)))?;
        Ok(SegmentFile {
            file,
            number,
            allocated_bytes: AtomicU64::new(bytes),
            written_bytes: AtomicU64::new(HEADER_BYTES),
            live_bytes: AtomicU64::new(0),
            is_finished: AtomicBool::new(false),
        })
    }

    /// Writes whole pages behind what was written before.
    pub(super) fn write(&self, offset: u64, pages: &[u8]) -> Result<(), DiskError> {
        write_all_at(&*self.file, offset, pages)?;
        self.written_bytes.store(offset + pages.len() as u64, Ordering::Release);
        Ok(())
    }

    /// Gives back the room behind `end`, durably. Nothing is appended afterwards. All bodies are durable before. A full
    /// disk with copies on write may refuse the cut: the segment then keeps its room until it is removed.
    pub(super) fn finish(&self, end: u64) -> Result<(), DiskError> {
        match self.file.set_len(end) {
            Err(error) if error.is_refusal() => {}
            cut => {
                cut?;
                self.file.sync_data()?;
                self.allocated_bytes.store(end, Ordering::Relaxed);
            }
        }
        self.is_finished.store(true, Ordering::Release);
        Ok(())
    }

    /// Leaves nothing but the header.
    pub(super) fn empty(&self) -> Result<(), SegmentError> {
        self.file.set_len(HEADER_BYTES)?;
        self.allocated_bytes.store(HEADER_BYTES, Ordering::Relaxed);
        self.live_bytes.store(0, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn has_written(&self, place: Place) -> bool {
        u64::from(place.offset) + place.block_bytes() <= self.written_bytes.load(Ordering::Acquire)
    }

    pub(super) fn add_live(&self, bytes: u64) {
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Releasing more than is live leaves nothing live.
    pub(super) fn take_live(&self, bytes: u64) {
        let less = |live: u64| Some(live.saturating_sub(bytes));
        let _ = self.live_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
    }

    /// Whether the file has no blocks and stays only for its number.
    pub(super) fn is_emptied(&self) -> bool {
        self.is_finished() && self.allocated_bytes() <= HEADER_BYTES
    }

    pub(super) fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn damaged(&self, offset: u64, reason: impl Into<String>) -> SegmentError {
        SegmentError::Damaged { path: self.path().to_path_buf(), offset, reason: reason.into() }
    }
}

/// The fault of the header of the segment with this number, if any.
fn header_fault(file: &dyn DiskFile, number: u64) -> Result<Option<SegmentError>, DiskError> {
    let mut header = AlignedBytes::zeroed(HEADER_BYTES as usize);
    let count = read_full_at(file, 0, &mut header)?;
    let path = || file.path().to_path_buf();
    Ok(format::check_header(&header[..count], number).err().map(|fault| match fault {
        HeaderFault::Foreign(reason) => SegmentError::Foreign { path: path(), reason },
        HeaderFault::Damaged => SegmentError::Damaged {
            path: path(),
            offset: 0,
            reason: "the header of the segment fails its check".to_string(),
        },
    }))
}

/// All bodies of a segment in their order; see [`super::Segments::blocks`].
pub struct Blocks {
    file: Arc<SegmentFile>,
    offset: u64,
    window: AlignedBytes,
    window_start: u64,
    window_bytes: usize,
    body: Vec<u8>,
}

impl Blocks {
    pub(super) fn new(file: Arc<SegmentFile>) -> Blocks {
        let window = AlignedBytes::zeroed(WINDOW_BYTES);
        Blocks { file, offset: HEADER_BYTES, window, window_start: 0, window_bytes: 0, body: Vec::new() }
    }

    /// The next body, or `None` behind the last one that was written.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Damaged`] at a block that fails its check. Later blocks can be found by place only, not in
    /// order. A crash may leave such a block at the end of the segment in use: the remains of bytes that were never
    /// synced.
    pub fn next_block(&mut self) -> Result<Option<(Place, &[u8])>, SegmentError> {
        loop {
            let end = self.file.written_bytes.load(Ordering::Acquire);
            if self.offset + BLOCK_HEADER_BYTES as u64 > end {
                return Ok(None);
            }
            let offset = self.offset;
            let mut header = [0; BLOCK_HEADER_BYTES];
            self.copy(offset, &mut header)?;
            let length = format::block_length(&header);
            if length == 0 {
                if header != [0; BLOCK_HEADER_BYTES] {
                    return Err(self.file.damaged(offset, "the block has no length"));
                }
                // Padding after a sync ends at a page, and the next written page begins with a block.
                if offset.is_multiple_of(PAGE_BYTES) {
                    return Ok(None);
                }
                self.skip_padding(offset, offset.next_multiple_of(PAGE_BYTES))?;
                continue;
            }
            if offset + format::block_bytes(length as usize) > end {
                return Err(self
                    .file
                    .damaged(offset, "the length of the block leads beyond the end of the segment"));
            }
            let mut body = std::mem::take(&mut self.body);
            body.resize(length as usize, 0);
            let read = self.copy(offset + BLOCK_HEADER_BYTES as u64, &mut body);
            self.body = body;
            read?;
            if header != format::encode_block_header(self.file.number, offset, &self.body) {
                return Err(self.file.damaged(offset, "the block fails its check"));
            }
            let padding = offset + (BLOCK_HEADER_BYTES + length as usize) as u64;
            self.skip_padding(padding, offset + format::block_bytes(length as usize))?;
            let place = Place { segment: self.file.number, offset: offset as u32, bytes: length };
            return Ok(Some((place, &self.body)));
        }
    }

    /// Continues at `end`, and checks that only zeros lie before it.
    fn skip_padding(&mut self, offset: u64, end: u64) -> Result<(), SegmentError> {
        let mut padding = [0; PAGE_BYTES as usize];
        let padding = &mut padding[..(end - offset) as usize];
        self.copy(offset, padding)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(self.file.damaged(offset, "the padding is not zero"));
        }
        self.offset = end;
        Ok(())
    }

    /// Copies bytes out of the window, and moves the window along.
    fn copy(&mut self, mut offset: u64, mut into: &mut [u8]) -> Result<(), SegmentError> {
        while !into.is_empty() {
            let window_end = self.window_start + self.window_bytes as u64;
            if !(self.window_start..window_end).contains(&offset) {
                self.window_start = offset / PAGE_BYTES * PAGE_BYTES;
                // An appender may be writing the bytes behind this offset.
                let written =
                    self.file.written_bytes.load(Ordering::Acquire).saturating_sub(self.window_start);
                let count = read_good_at(&*self.file.file, self.window_start, &mut self.window)
                    .map_err(|error| SegmentError::of_read(error, self.file.path(), offset))?;
                self.window_bytes = count.min(usize::try_from(written).unwrap_or(usize::MAX));
                if self.window_start + self.window_bytes as u64 <= offset {
                    return Err(self.file.damaged(offset, "the file is shorter than it was"));
                }
                continue;
            }
            let start = (offset - self.window_start) as usize;
            let count = into.len().min(self.window_bytes - start);
            let (now, rest) = into.split_at_mut(count);
            now.copy_from_slice(&self.window[start..start + count]);
            offset += count as u64;
            into = rest;
        }
        Ok(())
    }
}
