//! The index in a file, written when a cache is closed. A file that is damaged, or belongs to other segments, is
//! ignored.

use super::claim::Signature;
use super::format::{u32_at, u64_at};
use super::index::{Index, Place};
use super::open::restrict;
use super::slots::Filled;
use std::path::Path;
use std::sync::Arc;
use ziptier_media::disk::{Caching, Disk, DiskError, DiskFile, read_full_at, write_all_at};

const NAME: &str = "index";
const NEW_NAME: &str = "index.new";
/// The file, and what it is while it is written.
pub(super) const NAMES: [&str; 2] = [NAME, NEW_NAME];
pub(super) const SIGNATURE: Signature = *b"ziptridx";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const SEGMENT_BYTES: usize = 32;
const ENTRY_BYTES: usize = 12;

/// Writes the index of these segments, if it takes at most `bytes_max`. A crash leaves the whole file or none.
pub(super) fn write(
    disk: &dyn Disk,
    dir: &Path,
    segments: &[Filled],
    index: &Index,
    bytes_max: u64,
) -> Result<(), DiskError> {
    let entries = index.len() * ENTRY_BYTES;
    let bytes = HEADER_BYTES + segments.len() * SEGMENT_BYTES + Index::TABLES * 4 + entries + 4;
    if bytes as u64 > bytes_max {
        return Ok(());
    }
    remove(disk, dir);
    let file = disk.create(&dir.join(NEW_NAME), Caching::Cached)?;
    restrict(&dir.join(NEW_NAME), 0o600);
    let mut out = Output { file, offset: 0, crc: 0 };
    let mut head = SIGNATURE.to_vec();
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&(segments.len() as u32).to_le_bytes());
    for segment in segments {
        head.extend_from_slice(&u64::from(segment.slot).to_le_bytes());
        head.extend_from_slice(&segment.sequence.to_le_bytes());
        head.extend_from_slice(&segment.salt.to_le_bytes());
        head.extend_from_slice(&(segment.written as u64).to_le_bytes());
    }
    out.write(&head)?;
    for table in 0..Index::TABLES {
        let entries = index.entries(table);
        let mut bytes = (entries.len() as u32).to_le_bytes().to_vec();
        for (tag, place) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&place.to_le_bytes());
        }
        out.write(&bytes)?;
    }
    let crc = out.crc.to_le_bytes();
    out.write(&crc)?;
    disk.rename(&dir.join(NEW_NAME), &dir.join(NAME))
}

/// Reads the index of these segments, whose `written` is not known yet. Removes the file, because its contents are
/// valid only once.
///
/// Returns the written bytes of each segment, in order. `None` leaves the index empty. [`write`] never makes a file of
/// more than `bytes_max` bytes.
pub(super) fn take(
    disk: &dyn Disk,
    dir: &Path,
    segments: &[Filled],
    index: &Index,
    bytes_max: u64,
) -> Option<Vec<usize>> {
    let file = disk.open(&dir.join(NAME), Caching::Cached).ok();
    let file = file.filter(|file| file.len().is_ok_and(|bytes| bytes <= bytes_max));
    let read = file.and_then(|file| read(file, segments, index));
    if read.is_none() {
        index.clear();
    }
    remove(disk, dir);
    read
}

fn remove(disk: &dyn Disk, dir: &Path) {
    for name in NAMES {
        let _ = disk.remove(&dir.join(name));
    }
}

fn read(file: Arc<dyn DiskFile>, segments: &[Filled], index: &Index) -> Option<Vec<usize>> {
    let mut input = Input { left: file.len().ok()?.checked_sub(4)?, file, offset: 0, crc: 0 };
    let head = input.read(HEADER_BYTES)?;
    if head[..8] != SIGNATURE || u32_at(&head, 8) != VERSION || u32_at(&head, 12) as usize != segments.len() {
        return None;
    }
    let mut written = Vec::new();
    for segment in segments {
        let found = input.read(SEGMENT_BYTES)?;
        let is_same = [u64::from(segment.slot), segment.sequence, segment.salt]
            == [u64_at(&found, 0), u64_at(&found, 8), u64_at(&found, 16)];
        let bytes = usize::try_from(u64_at(&found, 24)).ok()?;
        if !is_same || bytes > segment.written {
            return None;
        }
        written.push(bytes);
    }
    for table in 0..Index::TABLES {
        let count = u32_at(&input.read(4)?, 0) as usize;
        for entry in input.read(count.checked_mul(ENTRY_BYTES)?)?.chunks_exact(ENTRY_BYTES) {
            index.restore(table, u32_at(entry, 0), Place::from_bits(u64_at(entry, 4))?);
        }
    }
    let crc = input.crc;
    input.left += 4;
    (u32_at(&input.read(4)?, 0) == crc).then_some(written)
}

/// Bytes to a file, and their checksum.
struct Output {
    file: Arc<dyn DiskFile>,
    offset: u64,
    crc: u32,
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        write_all_at(&*self.file, self.offset, bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

/// Bytes from a file, never more than it has, and their checksum.
struct Input {
    file: Arc<dyn DiskFile>,
    left: u64,
    offset: u64,
    crc: u32,
}

impl Input {
    fn read(&mut self, bytes: usize) -> Option<Vec<u8>> {
        self.left = self.left.checked_sub(bytes as u64)?;
        let mut read = Vec::new();
        read.try_reserve_exact(bytes).ok()?;
        read.resize(bytes, 0);
        let count = read_full_at(&*self.file, self.offset, &mut read).ok()?;
        self.crc = crc32c::crc32c_append(self.crc, &read);
        self.offset += bytes as u64;
        (count == bytes).then_some(read)
    }
}
