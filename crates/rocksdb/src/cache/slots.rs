//! The segment files: each has a slot, and is used again when its turn comes.

use super::format::{self, Header, PAGE_BYTES};
use super::index::Place;
use super::open::restrict;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use ziptier_media::aligned::AlignedBytes;
use ziptier_media::disk::{Caching, Disk, DiskError, DiskFile, read_full_at, write_all_at};

/// One slot; without a file it was never used.
#[derive(Default)]
pub(super) struct Slot {
    file: OnceLock<Arc<dyn DiskFile>>,
    sequence: AtomicU64,
    salt: AtomicU64,
    /// Bytes from the start of the file that were written.
    written: AtomicUsize,
}

/// The contents of a slot's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) slot: u32,
    pub(super) sequence: u64,
    pub(super) salt: u64,
    pub(super) written: usize,
}

impl Slot {
    pub(super) fn salt(&self) -> u64 {
        self.salt.load(Ordering::Acquire)
    }

    pub(super) fn has_written(&self, place: Place) -> bool {
        place.end() <= self.written.load(Ordering::Acquire)
    }

    pub(super) fn set_written(&self, end: usize) {
        self.written.store(end, Ordering::Release);
    }

    pub(super) fn filled(&self, slot: u32) -> Filled {
        Filled {
            slot,
            sequence: self.sequence.load(Ordering::Relaxed),
            salt: self.salt(),
            written: self.written.load(Ordering::Acquire),
        }
    }

    /// Takes a file that was found.
    pub(super) fn adopt(&self, file: Arc<dyn DiskFile>, header: &Header, written: usize) {
        let _ = self.file.set(file);
        self.sequence.store(header.sequence, Ordering::Relaxed);
        self.salt.store(header.salt, Ordering::Release);
        self.set_written(written);
    }

    /// Writes whole pages.
    pub(super) fn write(&self, offset: usize, pages: &[u8]) -> Result<(), DiskError> {
        match self.file.get() {
            Some(file) => write_all_at(&**file, offset as u64, pages),
            None => Ok(()),
        }
    }

    /// The bytes from `offset` on, in `pages` as far as the file goes.
    pub(super) fn read<'p>(
        &self,
        offset: usize,
        bytes: usize,
        pages: &'p mut AlignedBytes,
    ) -> Result<&'p [u8], DiskError> {
        let Some(file) = self.file.get() else { return Ok(&[]) };
        let (start, end) = if file.is_direct() {
            (offset / PAGE_BYTES * PAGE_BYTES, (offset + bytes).next_multiple_of(PAGE_BYTES))
        } else {
            (offset, offset + bytes)
        };
        if pages.len() < end - start {
            let longer = AlignedBytes::try_zeroed((end - start).next_power_of_two());
            let refused = || DiskError::new("read", file.path(), &io::ErrorKind::OutOfMemory.into());
            *pages = longer.ok_or_else(refused)?;
        }
        let count = read_full_at(&**file, start as u64, &mut pages[..end - start])?;
        Ok(pages[..count.min(offset + bytes - start)].get(offset - start..).unwrap_or_default())
    }
}

/// The folder of the segment files, and how they are opened.
pub(super) struct Folder {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) caching: Caching,
    pub(super) segment_bytes: usize,
}

impl Folder {
    /// Begins a slot's file anew, and makes and allocates a missing file. Its former contents become void.
    pub(super) fn begin(&self, slots: &[Slot], number: u32, sequence: u64) -> Result<(), DiskError> {
        let slot = &slots[number as usize];
        if slot.file.get().is_none() {
            let path = self.dir.join(format::segment_name(number));
            let file = self.disk.create(&path, self.caching)?;
            restrict(&path, 0o600);
            if let Err(error) = file.preallocate(self.segment_bytes as u64) {
                drop(file);
                let _ = self.disk.remove(&path);
                return Err(error);
            }
            let _ = slot.file.set(file);
        }
        let segment_bytes = self.segment_bytes as u64;
        let header = Header { slot: number, segment_bytes, sequence, salt: random() };
        let mut page = AlignedBytes::zeroed(PAGE_BYTES);
        header.encode(&mut page);
        slot.set_written(0);
        slot.write(0, &page)?;
        slot.sequence.store(sequence, Ordering::Relaxed);
        slot.salt.store(header.salt, Ordering::Release);
        slot.set_written(PAGE_BYTES);
        Ok(())
    }
}

/// The first page of a file.
pub(super) fn read_header(
    disk: &dyn Disk,
    path: &Path,
    caching: Caching,
) -> Result<(Arc<dyn DiskFile>, AlignedBytes), DiskError> {
    let file = disk.open(path, caching)?;
    let mut page = AlignedBytes::zeroed(PAGE_BYTES);
    let count = read_full_at(&*file, 0, &mut page)?;
    page[count..].fill(0);
    Ok((file, page))
}

/// A number that no client can know.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
