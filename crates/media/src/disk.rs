//! The one trait through which every operation on durable files goes.
//!
//! A log or a segment file is only as safe as its order of writes, syncs and renames. All of them pass through [`Disk`]
//! and [`DiskFile`], so that tests can replace the disk. One disk for tests records the order and rebuilds every state
//! that a power cut may leave. Another fails at a chosen operation. Bytes and names become durable at these moments:
//!
//! - bytes of a file: when [`DiskFile::sync_data`] has returned after the write;
//! - the name of a file (created, renamed, removed): when [`Disk::sync_dir`] of its folder has returned after that.
//!
//! A mapped medium (a file on a DAX file system) implements the same two traits: its `write_at` is a non-temporal copy,
//! its `sync_data` a fence.

mod claim;
mod mapped;
mod real;

pub use crate::aligned::AlignedBytes;
pub use claim::Claim;
pub use real::RealDisk;
pub(crate) use real::in_pieces;

use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The failure of an operation on a disk: the attempted action, the path, and the system's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// No space, or no quota.
    #[error("cannot {operation} {}: the disk is full; free some space", path.display())]
    Full {
        /// The attempted action, as a verb.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
    },
    /// A file or folder cannot be opened because too many files are open; nothing was done.
    #[error("cannot {operation} {}: too many files are open; raise the limit (ulimit -n)", path.display())]
    TooManyFiles {
        /// The attempted action, as a verb.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
    },
    /// This process or another one holds the folder's lock.
    #[error("{} is open already, in this process or another; close it there or name another folder", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// The folder belongs to another user. That user could no longer use the folder if this process wrote there.
    #[error(
        "{} belongs to user {owner}, and this process runs as user {user}; run it as the owner or name another \
         folder",
        path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The owner's number.
        owner: u32,
        /// The number of this process's user.
        user: u32,
    },
    /// Anything else.
    #[error("cannot {operation} {}: {reason}", path.display())]
    Failed {
        /// The attempted action, as a verb.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's kind of error.
        kind: io::ErrorKind,
        /// The system's words.
        reason: String,
    },
}

impl DiskError {
    /// The error of an `operation` on a `path`, from the system's error.
    pub fn new(operation: &'static str, path: &Path, error: &io::Error) -> DiskError {
        let path = path.to_path_buf();
        if let Some(Errno::MFILE | Errno::NFILE) = Errno::from_io_error(error) {
            return DiskError::TooManyFiles { operation, path };
        }
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskError::Full { operation, path },
            kind @ io::ErrorKind::NotADirectory => {
                let reason = "it, or a part of its path, is a file and no folder; name a folder".to_owned();
                DiskError::Failed { operation, path, kind, reason }
            }
            kind => DiskError::Failed { operation, path, kind, reason: error.to_string() },
        }
    }

    /// Whether the system refused the operation before it changed anything: no space, or too many open files. A sync
    /// that finds no space is no refusal: it has lost earlier writes.
    pub fn is_refusal(&self) -> bool {
        match self {
            DiskError::Full { .. } => !self.is_of_sync(),
            DiskError::TooManyFiles { .. } => true,
            _ => false,
        }
    }

    /// Whether a sync failed.
    pub(crate) fn is_of_sync(&self) -> bool {
        matches!(
            self,
            DiskError::Full { operation, .. } | DiskError::Failed { operation, .. }
                if operation.starts_with("sync")
        )
    }

    /// The same error of a sync, for a file that nothing refers to yet. A full disk has then refused the file: it has
    /// lost nothing that was there before.
    pub fn of_new_file(self) -> DiskError {
        match self {
            DiskError::Full { path, .. } => DiskError::Full { operation: "fill", path },
            error => error,
        }
    }

    /// The same error for a file that was renamed since.
    pub(crate) fn renamed(mut self, to: &Path) -> DiskError {
        if let DiskError::Full { path, .. }
        | DiskError::TooManyFiles { path, .. }
        | DiskError::Failed { path, .. } = &mut self
        {
            *path = to.to_path_buf();
        }
        self
    }

    /// The reason why the medium does not return the bytes of a file (a bad sector, say). Any other error gives `None`:
    /// a refusal, a missing file, a path through a file, or a file that this process may not open. Such an error says
    /// nothing about the contents.
    pub fn unreadable(&self) -> Option<String> {
        let DiskError::Failed { operation, kind, reason, .. } = self else { return None };
        let is_of_the_process = matches!(
            kind,
            io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::OutOfMemory
                | io::ErrorKind::WouldBlock
        );
        let is_unreadable = matches!(*operation, "open" | "look at" | "read") && !is_of_the_process;
        is_unreadable.then(|| format!("it cannot be read: {reason}"))
    }

    /// Whether the file or folder is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, DiskError::Failed { kind: io::ErrorKind::NotFound, .. })
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caching {
    /// Through the system's page cache.
    #[default]
    Cached,
    /// Past the page cache, if the file system supports direct I/O ([`DiskFile::is_direct`] tells). Offsets, lengths
    /// and the address of the bytes must then be multiples of [`DIRECT_ALIGNMENT_BYTES`].
    Direct,
    /// By stores into a mapping, if the file lies on a DAX file system or on tmpfs and all its bytes are allocated.
    /// Otherwise as [`Caching::Cached`] ([`DiskFile::is_mapped`] tells). For files that are not written beyond the
    /// length that they have at opening, or that [`DiskFile::preallocate`] gives them.
    Mapped,
}

/// Direct reads and writes need offsets, lengths and addresses that are multiples of this.
///
/// Devices need multiples of their logical block (512 or 4096 bytes); the larger size suits all.
pub const DIRECT_ALIGNMENT_BYTES: usize = 4096;

/// Folders and the names in them.
pub trait Disk: Send + Sync {
    /// Makes a folder and the missing folders above it, all durable on return. An existing folder is no error; it may
    /// stem from a process that ended before the folder's name was durable.
    fn create_dir(&self, dir: &Path) -> Result<(), DiskError>;

    /// Makes an empty file for reading and writing; a file of that name is an error.
    fn create(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Renames a file within its folder, and replaces a file that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<(), DiskError>;

    /// Names of the files (not of the folders) in a folder, sorted.
    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError>;

    /// Makes names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError>;

    /// Opens a folder ahead of time, so that its names can be made durable when no further file can be opened.
    fn open_dir(&self, dir: &Path) -> Result<Box<dyn OpenDir>, DiskError>;

    /// Keeps other processes (and other callers in this one) out of a folder until the guard is dropped.
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, DiskError>;
}

/// An open folder.
pub trait OpenDir: Send + Sync {
    /// As [`Disk::sync_dir`].
    fn sync_names(&self) -> Result<(), DiskError>;
}

/// Holds the lock of a folder until the guard is dropped or the process ends.
pub trait DirLock: Send + Sync + std::fmt::Debug {}

/// An open file. Reads and writes name their offset, so that threads share it without a lock.
pub trait DiskFile: Send + Sync {
    /// Bytes of the file.
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Reads what is there at `offset`: fewer bytes than asked for, or none at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError>;

    /// Writes some of `bytes` at `offset` and returns their number, which is 0 only for no bytes. [`write_all_at`]
    /// writes the rest.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError>;

    /// Allocates the first `len` bytes on the medium, and extends a shorter file to `len` bytes.
    fn preallocate(&self, len: u64) -> Result<(), DiskError>;

    /// Cuts the file to `len` bytes, or extends it with zeros that are not yet allocated.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;

    /// Makes all earlier writes and the length durable.
    fn sync_data(&self) -> Result<(), DiskError>;

    /// A text for people that says how [`DiskFile::sync_data`] makes bytes durable here.
    fn durable_after(&self) -> String {
        "fdatasync".to_owned()
    }

    /// Whether reads and writes go past the page cache and must be aligned.
    fn is_direct(&self) -> bool;

    /// Whether writes are stores into a mapping. A killed process may leave such a write half done, at any byte.
    fn is_mapped(&self) -> bool {
        false
    }

    /// The path at which the file was opened, for messages.
    fn path(&self) -> &Path;

    /// The descriptor, for asynchronous reads; a disk in memory has none.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Writes all of `bytes` at `offset`, by several writes if the system shortens them.
pub fn write_all_at(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
    let mut done = 0;
    while done < bytes.len() {
        let count = file.write_at(offset + done as u64, &bytes[done..])?;
        if count == 0 {
            return Err(DiskError::new("write", file.path(), &io::ErrorKind::WriteZero.into()));
        }
        done += count;
    }
    Ok(())
}

/// As [`read_full_at`], up to the first page that cannot be read.
///
/// # Errors
///
/// A failure of the medium ([`DiskError::unreadable`]) at the first page; any other failure at any page.
pub fn read_good_at(file: &dyn DiskFile, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
    let mut done = 0;
    while done < into.len() {
        let at = offset + done as u64;
        let rest = &mut into[done..];
        let page_bytes = rest.len().min((page_end(at) - at) as usize);
        let read = match file.read_at(at, rest) {
            // One bad sector can make a long read fail as a whole.
            Err(error) if error.unreadable().is_some() => file.read_at(at, &mut rest[..page_bytes]),
            read => read,
        };
        match read {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) => {
                let good_bytes = page_start(at).saturating_sub(offset);
                return if good_bytes > 0 && error.unreadable().is_some() {
                    Ok(good_bytes as usize)
                } else {
                    Err(error)
                };
            }
        }
    }
    Ok(done)
}

/// The start of the page that holds `offset`. Readers skip unreadable bytes page by page.
pub(crate) fn page_start(offset: u64) -> u64 {
    offset - offset % DIRECT_ALIGNMENT_BYTES as u64
}

/// The start of the next page.
pub(crate) fn page_end(offset: u64) -> u64 {
    page_start(offset) + DIRECT_ALIGNMENT_BYTES as u64
}

/// Reads until `into` is full or the file ends, and returns the number of bytes read.
pub fn read_full_at(file: &dyn DiskFile, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(offset + done as u64, &mut into[done..])? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}
