//! The ends of logs that are being written.
//!
//! The file is longer than the log. A reader in this process must not read beyond the log, whatever name it uses. So
//! lengths are kept by inode, which links and renames do not change.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of a log, as far as they are there for readers.
#[derive(Debug, Default)]
pub(super) struct Length(AtomicU64);

impl Length {
    /// Bytes that may be read.
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Release);
    }
}

/// Device and inode.
pub(super) type FileId = (u64, u64);

static LENGTHS: Mutex<Option<HashMap<FileId, Arc<Length>>>> = Mutex::new(None);

pub(super) fn id_of(found: &Metadata) -> FileId {
    (found.dev(), found.ino())
}

/// The length of the log that is being written in a file; none if no log of this process is.
pub(super) fn length_in(found: &Metadata) -> Option<Arc<Length>> {
    LENGTHS.lock().as_ref()?.get(&id_of(found)).cloned()
}

/// Whether this process writes a log at `path`.
pub fn is_written(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| length_in(&found).is_some())
}

/// Begins an empty log in the file at `path`. A log that was there before loses its claim on the file.
pub(super) fn begin(path: &Path) -> io::Result<(FileId, Arc<Length>)> {
    let id = id_of(&fs::metadata(path)?);
    let length = Arc::<Length>::default();
    LENGTHS.lock().get_or_insert_default().insert(id, Arc::clone(&length));
    Ok((id, length))
}

/// Ends a log: `cut` is run if the file is still this log's, and no other can begin in it meanwhile.
pub(super) fn end<T>(id: FileId, length: &Arc<Length>, cut: impl FnOnce() -> T) -> Option<T> {
    let mut lengths = LENGTHS.lock();
    let logs = lengths.as_mut()?;
    if !logs.get(&id).is_some_and(|found| Arc::ptr_eq(found, length)) {
        return None;
    }
    let result = cut();
    logs.remove(&id);
    Some(result)
}
