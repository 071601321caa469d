//! Synced records past the page cache.
//!
//! A record that is synced at once costs about half if it goes to the device directly: the system need not mark, find,
//! lock and write back a page. The device takes whole blocks, so the last block is kept here and written again as it
//! fills.

use std::sync::Arc;
use ziptier_media::disk::{
    AlignedBytes, DIRECT_ALIGNMENT_BYTES, DiskError, DiskFile, read_full_at, write_all_at,
};

const BLOCK_BYTES: usize = DIRECT_ALIGNMENT_BYTES;
/// Larger appends go through the page cache, which collects them in fewer requests.
const BUFFER_BYTES: usize = 16 * BLOCK_BYTES;

/// Appends to one file by direct writes.
pub(super) struct Direct {
    file: Arc<dyn DiskFile>,
    buffer: AlignedBytes,
    /// Offset in the file behind the bytes in the buffer. An append at another offset means that the file was written
    /// in another way meanwhile.
    next: u64,
}

impl Direct {
    /// For a file that was opened for direct writes, if its file system has them, and if there is memory for the
    /// buffer.
    pub(super) fn new(file: Arc<dyn DiskFile>) -> Option<Direct> {
        if !file.is_direct() {
            return None;
        }
        Some(Direct { file, buffer: AlignedBytes::try_zeroed(BUFFER_BYTES)?, next: u64::MAX })
    }

    /// Empties the buffer, because its bytes may be cut off. The next append reads the bytes before it.
    pub(super) fn forget(&mut self) {
        self.next = u64::MAX;
    }

    /// Whether bytes at an offset fit into the buffer, and their blocks into a file of `file_bytes` bytes.
    pub(super) fn takes(&self, at: u64, count: usize, file_bytes: u64) -> bool {
        let lead = at as usize % BLOCK_BYTES;
        lead + count <= BUFFER_BYTES && (at + count as u64).next_multiple_of(BLOCK_BYTES as u64) <= file_bytes
    }

    /// Writes bytes that [`Direct::takes`], and zeros up to the end of their last block. What lies before them in the
    /// first block is read from `cached`, the same file, if this has not written it.
    pub(super) fn append(&mut self, cached: &dyn DiskFile, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let lead = at as usize % BLOCK_BYTES;
        let start = at - lead as u64;
        if self.next != at {
            let found = read_full_at(cached, start, &mut self.buffer[..lead])?;
            self.buffer[found..lead].fill(0);
        }
        self.next = u64::MAX;
        let end = lead + bytes.len();
        let blocks = end.next_multiple_of(BLOCK_BYTES);
        self.buffer[lead..end].copy_from_slice(bytes);
        self.buffer[end..blocks].fill(0);
        write_all_at(&*self.file, start, &self.buffer[..blocks])?;
        let whole = end - end % BLOCK_BYTES;
        self.buffer.copy_within(whole..end, 0);
        self.next = at + bytes.len() as u64;
        Ok(())
    }
}
