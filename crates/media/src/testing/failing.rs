//! A disk that fails on purpose.

use crate::disk::{Caching, DirLock, Disk, DiskError, DiskFile, OpenDir};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How a disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Any operation: an input/output error.
    Io,
    /// An operation that may need space: the disk is full.
    Full,
    /// A sync of a file: the disk is full. File systems of a network may tell so late.
    FullAtSync,
    /// An operation that opens a file or folder: too many are open.
    TooManyFiles,
    /// A write: only half of the bytes are written, without an error.
    ShortWrite,
    /// A sync: it fails, and every later sync succeeds without any effect. Systems that forget lost pages behave like
    /// this.
    LyingSync,
    /// A sync: this and every later sync succeeds without any effect. No program can survive that, so a test must
    /// notice.
    NoSync,
}

/// Passes everything on to another disk, except the operation that is to fail and the bytes that cannot be read.
#[derive(Clone)]
pub struct FailingDisk {
    inner: Arc<dyn Disk>,
    plan: Arc<Plan>,
}

struct Plan {
    fault: Fault,
    nth: AtomicU64,
    /// Operations that the fault could have hit.
    count: AtomicU64,
    bad: Option<BadBytes>,
    /// While set, no file can grow or get a new name.
    is_full: AtomicBool,
}

/// Bytes of files that the medium does not return.
struct BadBytes {
    /// Whether the file at a path has the bad bytes.
    has: Box<dyn Fn(&Path) -> bool + Send + Sync>,
    range: Range<u64>,
    /// Whether the medium opens such a file.
    is_opened: bool,
}

impl BadBytes {
    /// How many of `bytes` bytes from `offset` on come before a bad one.
    fn good_bytes(&self, path: &Path, offset: u64, bytes: usize) -> usize {
        if offset >= self.range.end || !(self.has)(path) {
            return bytes;
        }
        let before = self.range.start.saturating_sub(offset);
        bytes.min(usize::try_from(before).unwrap_or(usize::MAX))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reads,
    /// Opens a file, and needs space for its name.
    Creates,
    Opens,
    /// Makes a folder, if it is missing.
    MakesFolder,
    TakesSpace,
    /// Shortens a file. Disks with copies on write need space for that, too.
    Cuts,
    Writes,
    Syncs,
    SyncsNames,
    Other,
}

impl Plan {
    /// Counts the operation, and returns whether it is to fail.
    fn hits(&self, kind: Kind) -> bool {
        let is_concerned = match self.fault {
            Fault::Io => true,
            Fault::Full => {
                use Kind::{Creates, Cuts, MakesFolder, TakesSpace, Writes};
                matches!(kind, Creates | MakesFolder | TakesSpace | Cuts | Writes)
            }
            Fault::FullAtSync => kind == Kind::Syncs,
            Fault::TooManyFiles => matches!(kind, Kind::Creates | Kind::Opens),
            Fault::ShortWrite => kind == Kind::Writes,
            Fault::LyingSync | Fault::NoSync => matches!(kind, Kind::Syncs | Kind::SyncsNames),
        };
        is_concerned && self.count.fetch_add(1, Ordering::SeqCst) == self.nth.load(Ordering::SeqCst)
    }

    fn check(&self, kind: Kind, operation: &'static str, path: &Path) -> Result<(), DiskError> {
        let has_no_room =
            matches!(kind, Kind::Creates | Kind::TakesSpace) && self.is_full.load(Ordering::SeqCst);
        if !has_no_room && (!self.hits(kind) || matches!(self.fault, Fault::ShortWrite | Fault::NoSync)) {
            return Ok(());
        }
        let error = match self.fault {
            _ if has_no_room => io::ErrorKind::StorageFull.into(),
            Fault::Full | Fault::FullAtSync => io::ErrorKind::StorageFull.into(),
            Fault::TooManyFiles => rustix::io::Errno::MFILE.into(),
            _ => input_output_error(),
        };
        Err(DiskError::new(operation, path, &error))
    }

    fn sync(
        &self,
        kind: Kind,
        path: &Path,
        sync: impl FnOnce() -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        self.check(kind, "sync", path)?;
        let does_nothing = matches!(self.fault, Fault::LyingSync | Fault::NoSync);
        if does_nothing && self.has_failed() { Ok(()) } else { sync() }
    }

    fn has_failed(&self) -> bool {
        self.count.load(Ordering::SeqCst) > self.nth.load(Ordering::SeqCst)
    }
}

impl FailingDisk {
    /// Fails the `nth` operation (from 0) that the fault can hit.
    pub fn new(inner: Arc<dyn Disk>, fault: Fault, nth: u64) -> FailingDisk {
        let (nth, count, is_full) = (AtomicU64::new(nth), AtomicU64::new(0), AtomicBool::new(false));
        FailingDisk { inner, plan: Arc::new(Plan { fault, nth, count, bad: None, is_full }) }
    }

    /// Fails the operation that comes after so many others, of those that the fault can hit, whatever failed before.
    pub fn fail_after(&self, operations: u64) {
        self.plan.nth.store(self.plan.count.load(Ordering::SeqCst) + operations, Ordering::SeqCst);
    }

    /// A disk that fails only while it is full, and has room at first.
    pub fn that_fills(inner: Arc<dyn Disk>) -> FailingDisk {
        FailingDisk::new(inner, Fault::Full, u64::MAX)
    }

    /// Fills the disk, or makes room. On a full disk, files can be opened, read, and written within their allocated
    /// bytes. No file can be made, lengthened or renamed.
    pub fn set_full(&self, is_full: bool) {
        self.plan.is_full.store(is_full, Ordering::SeqCst);
    }

    /// A disk on which every read of the bytes `range` fails in files whose path satisfies `has`. Nothing else fails. A
    /// read that begins before the range ends there.
    pub fn with_bad_bytes(
        inner: Arc<dyn Disk>,
        has: impl Fn(&Path) -> bool + Send + Sync + 'static,
        range: Range<u64>,
    ) -> FailingDisk {
        FailingDisk::with_bad(inner, BadBytes { has: Box::new(has), range, is_opened: true })
    }

    /// A disk that opens no file whose path satisfies `has`. Nothing else fails.
    pub fn that_does_not_open(
        inner: Arc<dyn Disk>,
        has: impl Fn(&Path) -> bool + Send + Sync + 'static,
    ) -> FailingDisk {
        FailingDisk::with_bad(inner, BadBytes { has: Box::new(has), range: 0..u64::MAX, is_opened: false })
    }

    fn with_bad(inner: Arc<dyn Disk>, bad: BadBytes) -> FailingDisk {
        let (nth, count, is_full) = (AtomicU64::new(u64::MAX), AtomicU64::new(0), AtomicBool::new(false));
        let plan = Plan { fault: Fault::Io, nth, count, bad: Some(bad), is_full };
        FailingDisk { inner, plan: Arc::new(plan) }
    }

    /// Whether the operation to fail has come.
    pub fn has_failed(&self) -> bool {
        self.plan.has_failed()
    }

    fn wrap(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FailingFile { inner, plan: self.plan.clone() })
    }
}

pub(super) fn input_output_error() -> io::Error {
    io::Error::other("input/output error (made by a test)")
}

impl Disk for FailingDisk {
    fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.plan.check(Kind::MakesFolder, "create", dir)?;
        self.inner.create_dir(dir)
    }

    fn create(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.plan.check(Kind::Creates, "create", path)?;
        Ok(self.wrap(self.inner.create(path, caching)?))
    }

    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.plan.check(Kind::Opens, "open", path)?;
        if self.plan.bad.as_ref().is_some_and(|bad| !bad.is_opened && (bad.has)(path)) {
            return Err(DiskError::new("open", path, &input_output_error()));
        }
        Ok(self.wrap(self.inner.open(path, caching)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.plan.check(Kind::TakesSpace, "rename", from)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.plan.check(Kind::Other, "remove", path)?;
        self.inner.remove(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        self.plan.check(Kind::Opens, "list", dir)?;
        self.inner.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        if self.plan.fault == Fault::TooManyFiles {
            self.plan.check(Kind::Opens, "open", dir)?;
        }
        self.plan.sync(Kind::SyncsNames, dir, || self.inner.sync_dir(dir))
    }

    fn open_dir(&self, dir: &Path) -> Result<Box<dyn OpenDir>, DiskError> {
        self.plan.check(Kind::Opens, "open", dir)?;
        let inner = self.inner.open_dir(dir)?;
        Ok(Box::new(FailingDir { inner, path: dir.to_path_buf(), plan: self.plan.clone() }))
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, DiskError> {
        self.plan.check(Kind::Other, "lock", dir)?;
        self.inner.lock_dir(dir)
    }
}

struct FailingDir {
    inner: Box<dyn OpenDir>,
    path: PathBuf,
    plan: Arc<Plan>,
}

impl OpenDir for FailingDir {
    fn sync_names(&self) -> Result<(), DiskError> {
        self.plan.sync(Kind::SyncsNames, &self.path, || self.inner.sync_names())
    }
}

struct FailingFile {
    inner: Arc<dyn DiskFile>,
    plan: Arc<Plan>,
}

impl DiskFile for FailingFile {
    fn len(&self) -> Result<u64, DiskError> {
        self.plan.check(Kind::Reads, "look at", self.path())?;
        self.inner.len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.plan.check(Kind::Reads, "read", self.path())?;
        let good_bytes = |bad: &BadBytes| bad.good_bytes(self.path(), offset, into.len());
        match self.plan.bad.as_ref().map_or(into.len(), good_bytes) {
            0 if !into.is_empty() => Err(DiskError::new("read", self.path(), &input_output_error())),
            count => self.inner.read_at(offset, &mut into[..count]),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError> {
        if self.plan.fault == Fault::ShortWrite && self.plan.hits(Kind::Writes) {
            return self.inner.write_at(offset, &bytes[..bytes.len().div_ceil(2)]);
        }
        if self.plan.fault != Fault::ShortWrite {
            self.plan.check(Kind::Writes, "write", self.path())?;
        }
        self.inner.write_at(offset, bytes)
    }

    fn preallocate(&self, len: u64) -> Result<(), DiskError> {
        self.plan.check(Kind::TakesSpace, "allocate", self.path())?;
        self.inner.preallocate(len)
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.plan.check(Kind::Cuts, "cut", self.path())?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.plan.sync(Kind::Syncs, self.inner.path(), || self.inner.sync_data())
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn durable_after(&self) -> String {
        self.inner.durable_after()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::write_all_at;
    use crate::testing::RecordingDisk;

    #[test]
    fn the_nth_operation_fails_and_no_other() {
        for nth in 0..4 {
            let disk = FailingDisk::new(Arc::new(RecordingDisk::new()), Fault::Io, nth);
            let path = Path::new("/d/a");
            let outcomes = [
                disk.create(path, Caching::Cached).is_ok(),
                disk.list(Path::new("/d")).is_ok(),
                disk.sync_dir(Path::new("/d")).is_ok(),
                disk.lock_dir(Path::new("/d")).is_ok(),
            ];
            assert_eq!(outcomes.iter().position(|&is_ok| !is_ok), Some(nth as usize));
            assert!(disk.has_failed());
        }
    }

    #[test]
    fn bad_bytes_of_one_file_are_never_read() {
        let recording = RecordingDisk::new();
        ["/d/bad", "/d/good"].iter().for_each(|path| recording.put(Path::new(path), vec![7; 100]));
        let disk = FailingDisk::with_bad_bytes(Arc::new(recording), |path| path.ends_with("bad"), 30..40);
        let read = |path: &str, offset: u64| {
            let file = disk.open(Path::new(path), Caching::Cached).unwrap();
            file.read_at(offset, &mut [0; 20]).ok()
        };
        for (offset, found) in [(0, Some(20)), (15, Some(15)), (30, None), (39, None), (40, Some(20))] {
            assert_eq!(read("/d/bad", offset), found, "from byte {offset}");
            assert_eq!(read("/d/good", offset), Some(20));
        }
    }

    #[test]
    fn a_short_write_is_continued_and_a_sync_lies() {
        let recording = RecordingDisk::new();
        let disk = FailingDisk::new(Arc::new(recording.clone()), Fault::ShortWrite, 0);
        let file = disk.create(Path::new("/d/a"), Caching::Cached).unwrap();
        write_all_at(&*file, 0, b"nine here").unwrap();
        assert_eq!(recording.contents(Path::new("/d/a")).unwrap(), b"nine here");

        let disk = FailingDisk::new(Arc::new(recording.clone()), Fault::LyingSync, 0);
        let file = disk.open(Path::new("/d/a"), Caching::Cached).unwrap();
        assert!(file.sync_data().is_err());
        let before = recording.position();
        assert!(file.sync_data().is_ok());
        assert_eq!(recording.position(), before);
    }
}
