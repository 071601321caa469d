//! The ends of logs that are being written.
//!
//! The file is longer than the log. A reader in this process must not read beyond the log, whatever name it uses. So
//! lengths are kept by inode, which links and renames do not change.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use ziptier_media::disk::{Claim, DiskError};

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

/// A log that this process writes.
struct Log {
    length: Arc<Length>,
    /// Says to other processes that somebody writes. The claim is there before the file gets its room, and ends when
    /// the room is cut off.
    _claim: Claim,
}

/// The logs that this process writes. Claims are laid and ended under the lock, so a file that this process claims is
/// always among these.
static LOGS: Mutex<Option<HashMap<FileId, Log>>> = Mutex::new(None);

pub(super) fn id_of(found: &Metadata) -> FileId {
    (found.dev(), found.ino())
}

/// The length of the log that is being written in a file; none if no log of this process is.
pub(super) fn length_in(found: &Metadata) -> Option<Arc<Length>> {
    LOGS.lock().as_ref()?.get(&id_of(found)).map(|log| Arc::clone(&log.length))
}

/// Whether this process writes a log at `path`.
pub fn is_written(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| length_in(&found).is_some())
}

/// Whether another process claims a log's file under the log's number.
pub(super) fn is_claimed_elsewhere(file: &File, number: u32) -> bool {
    let logs = LOGS.lock();
    let is_own = |found| logs.as_ref().is_some_and(|logs| logs.contains_key(&id_of(&found)));
    !file.metadata().is_ok_and(is_own) && Claim::is_laid(file, number..=number)
}

/// Begins an empty log in the file that is at `path` once `claim` has claimed the file. A log that was there before
/// loses its claim on the file.
pub(super) fn begin(
    path: &Path,
    claim: impl FnOnce() -> Result<Claim, DiskError>,
) -> Result<(FileId, Arc<Length>), DiskError> {
    let mut logs = LOGS.lock();
    let claim = claim()?;
    let found = fs::metadata(path).map_err(|error| DiskError::new("look at", path, &error))?;
    let (id, length) = (id_of(&found), Arc::<Length>::default());
    logs.get_or_insert_default().insert(id, Log { length: Arc::clone(&length), _claim: claim });
    Ok((id, length))
}

/// Ends a log: `cut` is run if the file is still this log's, and no other can begin in it meanwhile.
pub(super) fn end<T>(id: FileId, length: &Arc<Length>, cut: impl FnOnce() -> T) -> Option<T> {
    let mut logs = LOGS.lock();
    let logs = logs.as_mut()?;
    if !logs.get(&id).is_some_and(|found| Arc::ptr_eq(&found.length, length)) {
        return None;
    }
    let result = cut();
    logs.remove(&id);
    Some(result)
}
