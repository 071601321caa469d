//! One log file that is being written.

use super::direct::Direct;
use super::live::{self, FileId, Length};
use super::walk::continues_batch;
use super::{BLOCK_BYTES, WalCounters, number_of};
use parking_lot::Mutex;
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use ziptier_media::disk::{Caching, Claim, Disk, DiskError, DiskFile, RealDisk, write_all_at};

/// What a file has in the beginning, and gets at least and at most when it is full: as much as it has.
const ROOM_BYTES_MIN: u64 = 256 << 10;
const ROOM_BYTES_MAX: u64 = 4 << 20;
const PAGE_BYTES: u64 = 4096;

/// Check, length and type of a record lie in its first 7 bytes; a store of 8 is not torn.
const HEAD_BYTES: usize = 8;

/// The contents of room. It is no vector, whose memory may be refused.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Appends that were each synced before the next one came, after which the next are taken to be such, too.
const SYNCED_APPENDS: u32 = 8;

/// A log file: appended to by one thread at a time, synced by any.
///
/// Room is zeros, or what a former log left in a file that is used again; [`LogFile::close`] cuts it off. It is for
/// appends that are each synced before the next one comes, and for mappings, whose stores are durable in their order.
/// The system writes other pages back in any order, and a power cut would leave zeros before later records: RocksDB
/// takes zeros for the end of a block, and goes on with the next. So a second append in a row without a sync leaves the
/// room, and so does one append in which a batch begins a further block. From there on the file grows as RocksDB's own
/// does.
pub struct LogFile {
    file: Arc<dyn DiskFile>,
    id: FileId,
    length: Arc<Length>,
    state: Mutex<State>,
}

struct State {
    /// Bytes that the file has allocated and written.
    room_bytes: u64,
    /// Bytes of the log that are durable.
    synced_bytes: u64,
    /// Appends in a row that came after a sync.
    synced_appends: u32,
    direct: Option<Direct>,
}

impl LogFile {
    /// Begins an empty log in the file at `path`, which is either empty or a former log.
    ///
    /// # Errors
    ///
    /// Those of the disk: [`DiskError::Full`] if there is no room to begin with.
    pub fn begin(path: &Path) -> Result<LogFile, DiskError> {
        LogFile::begin_on(&RealDisk, path)
    }

    fn begin_on(disk: &dyn Disk, path: &Path) -> Result<LogFile, DiskError> {
        LogFile::begin_claimed(disk, path, || Claim::lay(path, number_of(path).unwrap_or(0)))
    }

    /// Renames the file of a former log, and begins an empty one in it. Who reads the new log finds it empty from the
    /// first moment on.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn reuse(former: &Path, path: &Path) -> Result<LogFile, DiskError> {
        LogFile::reuse_on(&RealDisk, former, path)
    }

    fn reuse_on(disk: &dyn Disk, former: &Path, path: &Path) -> Result<LogFile, DiskError> {
        LogFile::begin_claimed(disk, path, || {
            let claim = Claim::lay(former, number_of(path).unwrap_or(0))?;
            disk.rename(former, path)?;
            Ok(claim)
        })
    }

    fn begin_claimed(
        disk: &dyn Disk,
        path: &Path,
        claim: impl FnOnce() -> Result<Claim, DiskError>,
    ) -> Result<LogFile, DiskError> {
        // From here on a former log in this file does not cut it. RocksDB may end that one in another thread meanwhile,
        // and a store into a mapping beyond the end of its file kills the process.
        let (id, length) = live::begin(path, claim)?;
        match open_with_room(disk, path) {
            Ok((file, state)) => Ok(LogFile { file, id, length, state: Mutex::new(state) }),
            Err(error) => {
                live::end(id, &length, || ());
                Err(error)
            }
        }
    }

    /// Bytes of the log.
    pub fn bytes(&self) -> u64 {
        self.length.bytes()
    }

    /// Appends bytes: they outlive the process, and the machine after [`LogFile::sync`].
    ///
    /// # Errors
    ///
    /// Those of the disk; [`DiskError::Full`] leaves the log as it was.
    pub fn append(&self, bytes: &[u8]) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let at = self.length.bytes();
        let end = at + bytes.len() as u64;
        let is_mapped = self.file.is_mapped();
        let fits_room = is_mapped || state.synced_bytes >= at && !may_leave_hole(at, bytes);
        state.synced_appends = if fits_room { state.synced_appends.saturating_add(1) } else { 0 };
        if !fits_room {
            self.leave_room(&mut state, at)?;
        } else if end > state.room_bytes && (is_mapped || state.synced_appends > SYNCED_APPENDS) {
            state.room_bytes = self.grow(state.room_bytes, end)?;
        }
        self.write(&mut state, at, bytes)?;
        state.room_bytes = state.room_bytes.max(end);
        self.length.set(end);
        WalCounters::of_process().bytes.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    fn write(&self, state: &mut State, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        if self.file.is_mapped() {
            return store_heads_last(&*self.file, at, bytes);
        }
        let (room_bytes, is_synced) = (state.room_bytes, state.synced_appends >= SYNCED_APPENDS);
        match &mut state.direct {
            Some(direct) if is_synced && direct.takes(at, bytes.len(), room_bytes) => {
                WalCounters::of_process().direct_appends.fetch_add(1, Relaxed);
                direct.append(&*self.file, at, bytes)
            }
            _ => write_all_at(&*self.file, at, bytes),
        }
    }

    /// Cuts off what lies behind the log, after the records that lie in the room are durable: none of them may come to
    /// be behind later ones.
    fn leave_room(&self, state: &mut State, at: u64) -> Result<(), DiskError> {
        if state.room_bytes <= at {
            return Ok(());
        }
        self.file.set_len(at)?;
        self.file.sync_data()?;
        (state.room_bytes, state.synced_bytes) = (at, at);
        Ok(())
    }

    /// Room for `end` bytes, and some more while the disk has it. Room ends with a block: RocksDB takes fewer bytes
    /// than a head, behind the last record of a file, for a torn head, but not at the end of a whole block.
    fn grow(&self, room_bytes: u64, end: u64) -> Result<u64, DiskError> {
        let step = room_bytes.clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX);
        let whole_blocks = |bytes: u64| bytes.next_multiple_of(BLOCK_BYTES as u64);
        match fill(&*self.file, room_bytes, whole_blocks(end + step)) {
            Err(DiskError::Full { .. }) => {
                // A part may have been allocated.
                self.file.set_len(room_bytes)?;
                fill(&*self.file, room_bytes, whole_blocks(end))
            }
            other => other,
        }
    }

    /// Makes durable what was appended before.
    ///
    /// # Errors
    ///
    /// Those of the disk, after which nobody knows what is durable.
    pub fn sync(&self) -> Result<(), DiskError> {
        WalCounters::of_process().syncs.fetch_add(1, Relaxed);
        // What is appended meanwhile may not be among it.
        let bytes = self.length.bytes();
        self.file.sync_data()?;
        let mut state = self.state.lock();
        state.synced_bytes = state.synced_bytes.max(bytes.min(self.length.bytes()));
        Ok(())
    }

    /// Cuts the log.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn truncate(&self, bytes: u64) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        if let Some(direct) = &mut state.direct {
            direct.forget();
        }
        self.file.set_len(bytes)?;
        (state.room_bytes, state.synced_bytes) = (bytes, state.synced_bytes.min(bytes));
        self.length.set(bytes);
        Ok(())
    }

    /// Ends the log, and with it the file, unless another log was begun in the file meanwhile.
    ///
    /// # Errors
    ///
    /// Those of the disk; then zeros stay behind the log.
    pub fn close(self) -> Result<(), DiskError> {
        self.cut()
    }

    fn cut(&self) -> Result<(), DiskError> {
        live::end(self.id, &self.length, || self.file.set_len(self.bytes())).unwrap_or(Ok(()))
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        // Nobody is there to hear of a failure.
        let _ = self.cut();
    }
}

/// The file to append to, with the room that a former log left, or the first of a new one where it is mapped.
fn open_with_room(disk: &dyn Disk, path: &Path) -> Result<(Arc<dyn DiskFile>, State), DiskError> {
    let cached = disk.open(path, Caching::Cached)?;
    let former_bytes = cached.len()?;
    // Only a file with a page shows whether it can be mapped.
    if former_bytes == 0 {
        cached.preallocate(PAGE_BYTES)?;
        write_all_at(&*cached, 0, &[0; PAGE_BYTES as usize])?;
    }
    let file = disk.open(path, Caching::Mapped)?;
    let room_bytes = match (former_bytes, file.is_mapped()) {
        (0, true) => fill(&*file, 0, ROOM_BYTES_MIN)?,
        (0, false) => {
            cached.set_len(0)?;
            0
        }
        (former_bytes, _) => former_bytes,
    };
    let direct = if file.is_mapped() { None } else { Direct::new(disk.open(path, Caching::Direct)?) };
    WalCounters::of_process().opened(&file.durable_after());
    Ok((file, State { room_bytes, synced_bytes: 0, synced_appends: 0, direct }))
}

/// Allocates a file up to `end` and writes zeros from `start` on, durably, so that syncing later writes touches no
/// metadata. The new end.
fn fill(file: &dyn DiskFile, start: u64, end: u64) -> Result<u64, DiskError> {
    file.preallocate(end)?;
    let mut at = start;
    while at < end {
        let count = ZEROS.len().min((end - at) as usize);
        write_all_at(file, at, &ZEROS[..count])?;
        at += count as u64;
    }
    file.sync_data()?;
    Ok(end)
}

/// Whether RocksDB's reader may find a batch behind lost ones, if only some pages of `bytes` come to the disk. The
/// reader goes on with the next block where it finds zeros. It stops there unless a batch begins the block.
fn may_leave_hole(at: u64, bytes: &[u8]) -> bool {
    let mut blocks = (block_left(at)..bytes.len()).step_by(BLOCK_BYTES);
    blocks.any(|start| !continues_batch(&bytes[start..]) && bytes[..start].iter().any(|byte| *byte != 0))
}

/// Bytes from an offset of the file to the end of its block.
fn block_left(at: u64) -> usize {
    BLOCK_BYTES - at as usize % BLOCK_BYTES
}

/// Stores bytes so that a kill or a power cut meanwhile leaves a prefix of their records. A reader that finds zeros in
/// place of the head of a block goes on with the next block.
///
/// 1. All bytes but the heads of the blocks are stored.
/// 2. The heads are stored, the first one first. The blocks whose heads are not there yet are zeros to a reader.
fn store_heads_last(file: &dyn DiskFile, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
    let starts = iter::once(0).chain((block_left(at)..bytes.len()).step_by(BLOCK_BYTES));
    let parts = starts.map(|start| {
        let end = bytes.len().min(start + block_left(at + start as u64));
        (start, end.min(start + HEAD_BYTES), end)
    });
    for (_, body, end) in parts.clone() {
        write_all_at(file, at + body as u64, &bytes[body..end])?;
    }
    for (start, body, _) in parts {
        write_all_at(file, at + start as u64, &bytes[start..body])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
