//! Files of the operating system.

use super::mapped::MappedFile;
use super::{Caching, DirLock, Disk, DiskError, DiskFile, OpenDir, write_all_at};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file whose advisory lock reserves a folder for one process.
const LOCK_NAME: &str = "LOCK";

/// Only the owner may read a folder that this code makes, whatever the umask says. An existing folder keeps its mode.
const FOLDER_MODE: u32 = 0o700;

/// The least that is allocated at once.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// The operating system's file systems.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl RealDisk {
    fn open_as(&self, path: &Path, caching: Caching, is_new: bool) -> Result<Arc<dyn DiskFile>, DiskError> {
        let operation = if is_new { "create" } else { "open" };
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(is_new);
            options.custom_flags((flags | OFlags::NOFOLLOW).bits().cast_signed());
            options.open(path)
        };
        let direct = match caching {
            Caching::Cached | Caching::Mapped => None,
            Caching::Direct => match open(OFlags::DIRECT) {
                Ok(file) => Some(file),
                // The file system has no direct I/O. It may have made the file before it refused.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    if is_new {
                        let _ = fs::remove_file(path);
                    }
                    None
                }
                Err(error) => return Err(DiskError::new(operation, path, &error)),
            },
        };
        let is_direct = direct.is_some();
        let file = match direct {
            Some(file) => file,
            None => open(OFlags::empty()).map_err(|error| DiskError::new(operation, path, &error))?,
        };
        let file = RealFile { file, is_direct, path: path.to_path_buf() };
        if caching != Caching::Mapped {
            return Ok(Arc::new(file));
        }
        Ok(match MappedFile::new(file) {
            Ok(mapped) => Arc::new(mapped),
            Err(file) => Arc::new(file),
        })
    }
}

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let Some(parent) = parent_of(dir) else { return Ok(()) };
        if !dir.is_dir() {
            if parent != Path::new(".") {
                self.create_dir(parent)?;
            }
            match fs::DirBuilder::new().mode(FOLDER_MODE).create(dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !dir.is_dir() => {
                    return Err(DiskError::new("create", dir, &io::ErrorKind::NotADirectory.into()));
                }
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(DiskError::new("create", dir, &error));
                }
                _ => return self.sync_dir(parent),
            }
        }
        // Another process may have made the folder and ended before its sync, so this process syncs the parent. Each
        // folder is made when its parent is durable, so no folder further up needs a sync. A parent that this user may
        // not read was made by another user.
        match self.sync_dir(parent) {
            Err(DiskError::Failed { kind: io::ErrorKind::PermissionDenied, .. }) => Ok(()),
            synced => synced,
        }
    }

    fn create(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.open_as(path, caching, true)
    }

    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.open_as(path, caching, false)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        fs::rename(from, to).map_err(|error| DiskError::new("rename", from, &error))
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        fs::remove_file(path).map_err(|error| DiskError::new("remove", path, &error))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        let names = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                // This code gives no names that are not UTF-8.
                if let Ok(name) = entry.file_name().into_string()
                    && is_file(entry.file_type())?
                {
                    names.push(name);
                }
            }
            names.sort();
            Ok(names)
        };
        names().map_err(|error| DiskError::new("list", dir, &error))
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.open_dir(dir)?.sync_names()
    }

    fn open_dir(&self, dir: &Path) -> Result<Box<dyn OpenDir>, DiskError> {
        let file = File::open(dir).map_err(|error| DiskError::new("open", dir, &error))?;
        Ok(Box::new(RealDir { file, path: dir.to_path_buf() }))
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, DiskError> {
        let owner = fs::metadata(dir).map_err(|error| DiskError::new("look at", dir, &error))?.uid();
        let user = rustix::process::geteuid().as_raw();
        if owner != user {
            return Err(DiskError::Foreign { path: dir.to_path_buf(), owner, user });
        }
        let path = dir.join(LOCK_NAME);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .map_err(|error| DiskError::new("lock", &path, &error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(RealLock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(DiskError::Locked { path: dir.to_path_buf() }),
            Err(error) => Err(DiskError::new("lock", &path, &error.into())),
        }
    }
}

/// Whether a folder's entry is a file. Where folders tell no types, the system looks at the file itself, which another
/// process may have renamed or removed since.
fn is_file(found: io::Result<fs::FileType>) -> io::Result<bool> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found?.is_file()),
    }
}

/// The folder that has the name of another one; the root has none.
fn parent_of(dir: &Path) -> Option<&Path> {
    let parent = dir.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

struct RealDir {
    file: File,
    path: PathBuf,
}

impl OpenDir for RealDir {
    fn sync_names(&self) -> Result<(), DiskError> {
        self.file.sync_all().map_err(|error| DiskError::new("sync the names in", &self.path, &error))
    }
}

/// The lock belongs to the open file and ends with it.
#[derive(Debug)]
struct RealLock {
    _file: File,
}

impl DirLock for RealLock {}

pub(super) struct RealFile {
    file: File,
    is_direct: bool,
    path: PathBuf,
}

impl RealFile {
    #[cfg(test)]
    pub(super) fn of(file: File, path: &Path) -> RealFile {
        RealFile { file, is_direct: false, path: path.to_path_buf() }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    fn error(&self, operation: &'static str) -> impl Fn(io::Error) -> DiskError + '_ {
        move |error| DiskError::new(operation, &self.path, &error)
    }

    /// For file systems that cannot allocate without writing.
    fn fill_with_zeros(&self, len: u64) -> Result<(), DiskError> {
        let zeros = crate::aligned::AlignedBytes::zeroed(1 << 20);
        let mut at = self.len()?;
        while at < len {
            let count = zeros.len().min(usize::try_from(len - at).unwrap_or(usize::MAX));
            write_all_at(self, at, &zeros[..count])?;
            at += count as u64;
        }
        Ok(())
    }
}

/// Allocates `len` bytes through `allocate`, which takes an offset and a count: in one call, unless a signal interrupts
/// it.
pub(crate) fn in_pieces(
    len: u64,
    mut allocate: impl FnMut(u64, u64) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (mut at, mut step) = (0, len);
    while at < len {
        let count = step.min(len - at);
        match allocate(at, count) {
            Ok(()) => at += count,
            // On a signal, tmpfs releases all that the call had allocated. Under many signals only smaller pieces come
            // to an end.
            Err(Errno::INTR) => step = (step / 2).max(PIECE_BYTES_MIN),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl DiskFile for RealFile {
    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.file.metadata().map_err(self.error("look at"))?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        loop {
            match self.file.read_at(into, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map_err(self.error("read")),
            }
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError> {
        loop {
            match self.file.write_at(bytes, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map_err(self.error("write")),
            }
        }
    }

    fn preallocate(&self, len: u64) -> Result<(), DiskError> {
        let allocate = |at, count| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, count);
        match in_pieces(len, allocate) {
            Err(Errno::OPNOTSUPP) => self.fill_with_zeros(len),
            allocated => allocated.map_err(|error| self.error("allocate")(error.into())),
        }
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len).map_err(self.error("cut"))
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(self.error("sync"))
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::read_full_at;

    #[test]
    fn refusals_left_everything_as_it_was() {
        let of = |operation, errno: Errno| DiskError::new(operation, Path::new("f"), &errno.into());
        assert!(of("open", Errno::MFILE).is_refusal() && of("open", Errno::NFILE).is_refusal());
        assert!(of("allocate", Errno::NOSPC).is_refusal());
        // What was written before the failed sync may be lost.
        assert!(!of("sync", Errno::NOSPC).is_refusal() && !of("write", Errno::IO).is_refusal());
    }

    #[test]
    fn a_file_that_goes_while_its_folder_is_listed_is_not_there() {
        assert!(matches!(is_file(Err(io::ErrorKind::NotFound.into())), Ok(false)));
        assert!(is_file(Err(io::ErrorKind::PermissionDenied.into())).is_err());
    }

    #[test]
    #[cfg(not(miri))]
    fn a_folder_of_another_user_is_not_locked() {
        let folder = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        // Root owns everything but what it gives away, and nobody else owns the root folder.
        let dir = match user {
            0 => std::os::unix::fs::chown(folder.path(), Some(65_534), None).map(|()| folder.path()).unwrap(),
            _ => Path::new("/"),
        };
        let refused = RealDisk.lock_dir(dir).err();
        let owner = if user == 0 { 65_534 } else { 0 };
        assert_eq!(refused, Some(DiskError::Foreign { path: dir.to_path_buf(), owner, user }));
        assert!(!dir.join(LOCK_NAME).exists());
    }

    #[test]
    fn files_names_and_locks() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("data");
        let disk = RealDisk;
        disk.create_dir(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, FOLDER_MODE);
        let file = disk.create(&dir.join("a"), Caching::Cached).unwrap();
        file.preallocate(10_000).unwrap();
        assert_eq!(file.len(), Ok(10_000));
        write_all_at(&*file, 5000, b"bytes").unwrap();
        file.sync_data().unwrap();
        file.set_len(5003).unwrap();
        let mut read = [0; 10];
        assert_eq!(read_full_at(&*file, 5000, &mut read), Ok(3));
        assert_eq!(&read[..3], b"byt");
        assert!(disk.create(&dir.join("a"), Caching::Cached).is_err());
        disk.rename(&dir.join("a"), &dir.join("b")).unwrap();
        disk.sync_dir(&dir).unwrap();
        assert_eq!(disk.list(&dir).unwrap(), ["b"]);
        disk.remove(&dir.join("b")).unwrap();
        assert!(disk.open(&dir.join("b"), Caching::Cached).is_err_and(|error| error.is_not_found()));

        // Nobody leads a write elsewhere by a link.
        fs::write(folder.path().join("elsewhere"), b"theirs").unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), dir.join("c")).unwrap();
        assert!(disk.open(&dir.join("c"), Caching::Cached).is_err());
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), dir.join(LOCK_NAME)).unwrap();
        assert!(matches!(disk.lock_dir(&dir), Err(DiskError::Failed { operation: "lock", .. })));
        disk.remove(&dir.join(LOCK_NAME)).unwrap();

        let lock = disk.lock_dir(&dir).unwrap();
        let refusal = disk.lock_dir(&dir).unwrap_err();
        assert_eq!(refusal, DiskError::Locked { path: dir.clone() });
        drop(lock);
        disk.lock_dir(&dir).unwrap();
    }

    /// Newer kernels finish an allocation on tmpfs despite a signal. Here a stand-in interrupts the allocation, as
    /// older kernels do.
    #[test]
    fn an_allocation_that_signals_interrupt_ends_in_small_pieces() {
        const LEN: u64 = (32 << 20) + 1;
        let (mut asked, mut allocated) = (0, 0);
        let done = in_pieces(LEN, |at, count| {
            asked += 1;
            assert!(asked < 10_000, "there is no end to it");
            assert_eq!(at, allocated);
            if count > PIECE_BYTES_MIN {
                return Err(Errno::INTR);
            }
            allocated += count;
            Ok(())
        });
        assert_eq!((done, allocated), (Ok(()), LEN));
        assert_eq!(in_pieces(LEN, |_, _| Err(Errno::NOSPC)), Err(Errno::NOSPC));
    }

    /// Signals for this thread alone, as a profiler or a timer of the application sends them.
    #[test]
    fn signals_do_not_keep_room_from_being_allocated() {
        use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
        static SIGNALS: AtomicU32 = AtomicU32::new(0);
        extern "C" fn counts(_: libc::c_int) {
            SIGNALS.fetch_add(1, Ordering::Relaxed);
        }
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            return ziptier_testing::not_run("tmpfs", "mount one at /dev/shm");
        };
        let file = RealDisk.create(&folder.path().join("a"), Caching::Cached).unwrap();
        // SAFETY: a record of integers and pointers, for which zeros are valid; the handler adds to an atomic number,
        // and no other test has one.
        let this = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = counts as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
            libc::pthread_self()
        };
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    // SAFETY: the thread waits for this one.
                    unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
                    std::thread::sleep(std::time::Duration::from_micros(100));
                }
            });
            // Counts allocations that a signal interrupted: an undisturbed allocation tests nothing.
            let (mut disturbed, mut done) = (0, Ok(()));
            for _ in 0..100_000 {
                let before = SIGNALS.load(Ordering::Relaxed);
                done = file.set_len(0).and_then(|()| file.preallocate(32 << 20));
                disturbed += u32::from(SIGNALS.load(Ordering::Relaxed) > before + 1);
                if done.is_err() || disturbed == 10 {
                    break;
                }
            }
            is_done.store(true, Ordering::Relaxed);
            done.unwrap();
            assert_eq!(disturbed, 10, "signals came in the middle of so many allocations");
        });
        assert_eq!(file.len(), Ok(32 << 20));
    }

    #[test]
    fn a_folder_is_made_with_all_that_it_lies_in() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("outer/middle/inner");
        (0..2).for_each(|_| RealDisk.create_dir(&inner).unwrap());
        assert!(inner.is_dir());
        fs::write(folder.path().join("file"), b"").unwrap();
        assert!(RealDisk.create_dir(&folder.path().join("file/inner")).is_err());
        let parents = ["/a/b", "a/b", "a", "/"].map(|dir| parent_of(Path::new(dir)));
        assert_eq!(
            parents,
            ["/a", "a", ".", ""].map(|parent| (!parent.is_empty()).then(|| Path::new(parent)))
        );
    }

    #[test]
    fn direct_files_take_aligned_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let file = RealDisk.create(&folder.path().join("direct"), Caching::Direct).unwrap();
        let mut page = crate::aligned::AlignedBytes::zeroed(4096);
        page.fill(7);
        write_all_at(&*file, 4096, &page).unwrap();
        page.fill(0);
        assert_eq!(read_full_at(&*file, 4096, &mut page), Ok(4096));
        assert!(page.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn a_full_disk_says_so() {
        let error = DiskError::new("allocate", Path::new("/data/log"), &io::ErrorKind::StorageFull.into());
        assert_eq!(error.to_string(), "cannot allocate /data/log: the disk is full; free some space");
    }
}
