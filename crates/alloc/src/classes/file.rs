//! The file of classes: finding, opening and changing it.

use core::ffi::c_void;
use core::fmt::{self, Write};
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::process::Identity;
use super::{CLASSES_MAX, MAGIC, MEMBERS_MAX, Table, VERSION};
use crate::configuration::{ClassName, FilePath, Ratio};
use crate::fixed_text::FixedText;

/// Why a class cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassError {
    /// There is no file.
    NoFile,
    /// The file does not hold classes, or of another version, or was damaged.
    Damaged,
    /// The file belongs to another user, or all users may open it.
    Foreign,
    /// The file has no such class, or the class was deleted.
    NoClass,
    /// No slot is free, for a class or for a member.
    Full,
    /// The class has members.
    HasMembers,
    /// The system refuses.
    System(Errno),
}

impl fmt::Display for ClassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassError::NoFile => f.write_str("there is no file of classes; make a class by: ziptier alloc class set"),
            ClassError::Damaged => f.write_str(
                "the file holds no classes of this version; delete it, and make the classes by: ziptier alloc class \
                 set",
            ),
            ClassError::Foreign => f.write_str(
                "the file belongs to another user, or all users may open it; delete it, or name another one by \
                 class-file",
            ),
            ClassError::NoClass => {
                f.write_str("the file has no such class; make it by: ziptier alloc class set")
            }
            ClassError::Full => write!(
                f,
                "the file has no room; it holds {CLASSES_MAX} classes and {MEMBERS_MAX} processes, so name another \
                 file by class-file"
            ),
            ClassError::HasMembers => f.write_str("the class has members; stop these processes first"),
            ClassError::System(errno) => write!(f, "the file of classes cannot be used: {errno}"),
        }
    }
}

impl core::error::Error for ClassError {}

impl From<Errno> for ClassError {
    fn from(errno: Errno) -> Self {
        if errno == Errno::NOENT { ClassError::NoFile } else { ClassError::System(errno) }
    }
}

/// The file of the classes of the calling user, unless the option `class-file` names another one.
pub fn default_path() -> FilePath {
    let mut path = FixedText::<64>::new();
    // Never fails: the text has room.
    let _ = write!(path, "/dev/shm/ziptier-alloc-classes-{}", rustix::process::geteuid().as_raw());
    FilePath::new(path.as_bytes()).unwrap_or_default()
}

/// A mapped file of classes. It needs no descriptor: a program may close all of its descriptors.
///
/// A process that may write to the file can shorten it, and the system then ends a process (SIGBUS) that looks behind
/// its end. Members therefore look into a copy, which the kernel fills from the mapping, and have the kernel write.
#[derive(Debug)]
pub struct ClassFile {
    shared: NonNull<Table>,
    copy: NonNull<Table>,
    path: FilePath,
    /// Device and inode, so that another file at the same path is noticed.
    identity: (u64, u64),
}

// SAFETY: a table consists of atomics and is bound to no thread.
unsafe impl Send for ClassFile {}
// SAFETY: as above.
unsafe impl Sync for ClassFile {}

impl Drop for ClassFile {
    fn drop(&mut self) {
        for table in [self.shared, self.copy] {
            // SAFETY: the mapping belongs to this value alone.
            let _ = unsafe { rustix::mm::munmap(table.as_ptr().cast(), size_of::<Table>()) };
        }
    }
}

impl ClassFile {
    /// Opens the file. The first look into it tells whether it holds classes.
    ///
    /// # Errors
    ///
    /// There is none, it cannot hold classes, or another user may have written to it.
    pub fn open(path: &FilePath) -> Result<ClassFile, ClassError> {
        let (fd, stat) = open(path)?;
        let (access, bytes) = (ProtFlags::READ | ProtFlags::WRITE, size_of::<Table>());
        // SAFETY: with addresses of the kernel's choice the mappings disturb no other.
        let (shared, copy) = unsafe {
            let copy = rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE)?;
            let shared = rustix::mm::mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &fd, 0);
            let unmap = |_: &Errno| {
                let _ = rustix::mm::munmap(copy, bytes);
            };
            (shared.inspect_err(unmap)?, copy)
        };
        let table = |mapped: *mut c_void| NonNull::new(mapped.cast()).ok_or(ClassError::System(Errno::NOMEM));
        Ok(ClassFile { shared: table(shared)?, copy: table(copy)?, path: *path, identity: identity(&stat) })
    }

    /// Whether the file is still the one at its path.
    pub(super) fn is_in_place(&self) -> bool {
        rustix::fs::lstat(self.path.as_c_str()).is_ok_and(|stat| identity(&stat) == self.identity)
    }

    /// The mapping. For commands, and to take a slot: the kernel copies words, and exchanges none.
    pub(super) fn shared(&self) -> &Table {
        // SAFETY: `open` mapped a whole table, and atomics take all bits. Behind the end of a shortened file the system
        // ends the process; callers `read` first.
        unsafe { self.shared.as_ref() }
    }

    /// Copies the file, if it is still the one at its path, and returns the copy. The next call fills the same copy.
    ///
    /// # Errors
    ///
    /// The file was deleted, replaced or damaged.
    pub(super) fn read(&self) -> Result<&Table, ClassError> {
        let stat = rustix::fs::lstat(self.path.as_c_str())?;
        if identity(&stat) != self.identity {
            return Err(ClassError::NoFile);
        }
        if stat.st_size != size_of::<Table>() as i64 {
            return Err(ClassError::Damaged);
        }
        // SAFETY: both tables are this value's. Each consists of atomics, which take all bits at any time.
        let table = unsafe {
            copy(self.shared.as_ptr().cast(), self.copy.as_ptr().cast(), size_of::<Table>())?;
            self.copy.as_ref()
        };
        let head =
            (table.magic.load(Relaxed), table.version.load(Relaxed), table.size_bytes.load(Relaxed) as usize);
        if head == (MAGIC, VERSION, size_of::<Table>()) { Ok(table) } else { Err(ClassError::Damaged) }
    }

    /// Writes a part of the copy into the file.
    ///
    /// # Errors
    ///
    /// The file was shortened.
    pub(super) fn write<T>(&self, part: &T) -> Result<(), ClassError> {
        let part: *const T = part;
        let offset = part as usize - self.copy.as_ptr() as usize;
        assert!(offset + size_of::<T>() <= size_of::<Table>(), "a part of the copy");
        // SAFETY: the part lies in the copy, and its place in the file consists of atomics, which take all bits.
        unsafe { copy(part.cast(), self.shared.as_ptr().byte_add(offset).cast(), size_of::<T>()) }
    }
}

impl Table {
    /// The index and generation of a class.
    pub(super) fn find(&self, name: &ClassName) -> Option<(usize, u32)> {
        self.classes.iter().enumerate().find_map(|(index, class)| {
            let generation = class.generation.load(Acquire);
            let is_named = class.name.get(&mut [[0; 8]; 4]) == name.as_str().as_bytes();
            (generation % 2 == 1 && is_named).then_some((index, generation))
        })
    }
}

/// Copies memory of this process by the kernel, and leaves `errno` as it is.
///
/// # Safety
///
/// `source` and `target` have as many bytes, which may be read and written at any time.
unsafe fn copy(source: *const c_void, target: *mut c_void, bytes: usize) -> Result<(), ClassError> {
    let source = libc::iovec { iov_base: source.cast_mut(), iov_len: bytes };
    let target = libc::iovec { iov_base: target, iov_len: bytes };
    // The number of this thread: a first thread that has ended has no memory. SAFETY: the first call takes nothing, the
    // second is the caller's, and `errno` is this thread's own.
    let (copied, error) = unsafe {
        let before = *libc::__errno_location();
        let own = libc::syscall(libc::SYS_gettid) as libc::pid_t;
        let copied = libc::process_vm_readv(own, &target, 1, &source, 1, 0);
        (copied, core::mem::replace(&mut *libc::__errno_location(), before))
    };
    match copied {
        copied if copied == bytes as isize => Ok(()),
        // A mapping that has no file behind it, or only behind its first part.
        -1 if error != libc::EFAULT => Err(ClassError::System(Errno::from_raw_os_error(error))),
        _ => Err(ClassError::Damaged),
    }
}

/// Device and inode of a file.
fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Opens a file that this user or root owns, and that not all users may open: a reader may hold the lock that commands
/// wait for. Another file is not opened at all.
fn open(path: &FilePath) -> Result<(OwnedFd, Stat), ClassError> {
    check(&rustix::fs::lstat(path.as_c_str())?)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path.as_c_str(), flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    check(&stat)?;
    Ok((fd, stat))
}

fn check(stat: &Stat) -> Result<(), ClassError> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(ClassError::Damaged);
    }
    let is_own = stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw();
    if !is_own || stat.st_mode & 0o006 != 0 {
        return Err(ClassError::Foreign);
    }
    if stat.st_size != size_of::<Table>() as i64 {
        return Err(ClassError::Damaged);
    }
    Ok(())
}

/// A class as the command shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassSeen {
    /// Its name.
    pub name: ClassName,
    /// The ratio of its members, if it sets one.
    pub ratio: Option<Ratio>,
    /// The budget of DRAM and of far memory; [`u64::MAX`] is no limit.
    pub limit_bytes: [u64; 2],
    /// Live members.
    pub members: usize,
    /// Bytes that these have in DRAM and in far memory.
    pub live_bytes: [u64; 2],
}

/// A member of a class as the command shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberSeen {
    /// Its process.
    pub pid: u32,
    /// The bytes that it has in DRAM and in far memory.
    pub live_bytes: [u64; 2],
}

/// The file in the hands of a command: other commands wait until this value is dropped.
#[derive(Debug)]
pub struct Locked {
    file: ClassFile,
    _lock: OwnedFd,
}

impl Locked {
    /// Opens the file and locks it.
    ///
    /// # Errors
    ///
    /// As for [`ClassFile::open`], or the file holds no classes.
    pub fn open(path: &FilePath) -> Result<Locked, ClassError> {
        loop {
            let (lock, stat) = open(path)?;
            rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
            let file = ClassFile::open(path)?;
            // While this command waited, another one may have put a new file there.
            if file.identity == identity(&stat) {
                file.read()?;
                return Ok(Locked { file, _lock: lock });
            }
        }
    }

    /// The same, and makes the file if there is none.
    ///
    /// # Errors
    ///
    /// As for [`Locked::open`], or the folder takes no file.
    pub fn open_or_create(path: &FilePath) -> Result<Locked, ClassError> {
        match Locked::open(path) {
            Err(ClassError::NoFile) => {}
            other => return other,
        }
        create(path)?;
        Locked::open(path)
    }

    /// The classes, in the order of their slots.
    pub fn classes(&self) -> impl Iterator<Item = ClassSeen> + '_ {
        self.file.shared().classes.iter().enumerate().filter_map(|(index, class)| {
            let generation = class.generation.load(Acquire);
            if generation % 2 == 0 {
                return None;
            }
            let mut seen = ClassSeen {
                name: ClassName::new(class.name.get(&mut [[0; 8]; 4]))?,
                ratio: Ratio::of_word(class.ratio.load(Relaxed)),
                limit_bytes: [0, 1].map(|medium: usize| class.limit_bytes[medium].load(Relaxed)),
                members: 0,
                live_bytes: [0; 2],
            };
            for member in self.members_of(index, generation) {
                seen.members += 1;
                for (sum, bytes) in seen.live_bytes.iter_mut().zip(member.live_bytes) {
                    *sum = sum.saturating_add(bytes);
                }
            }
            Some(seen)
        })
    }

    /// The live members of a class.
    pub fn members(&self, name: &ClassName) -> impl Iterator<Item = MemberSeen> + '_ {
        let found = self.file.shared().find(name);
        found.into_iter().flat_map(|(index, generation)| self.members_of(index, generation))
    }

    fn members_of(&self, index: usize, generation: u32) -> impl Iterator<Item = MemberSeen> + '_ {
        let class = u64::from(generation) << 32 | index as u64;
        self.file.shared().members.iter().filter_map(move |member| {
            let owner = Identity::of_word(member.owner.load(Acquire))?;
            if member.class.load(Acquire) != class || !owner.is_alive() {
                return None;
            }
            let live_bytes = [0, 1].map(|medium: usize| member.told.live_bytes[medium].load(Relaxed));
            Some(MemberSeen { pid: owner.pid, live_bytes })
        })
    }

    /// Makes a class, or changes it: what is `None` stays as it is, and is no limit and no ratio at first.
    ///
    /// # Errors
    ///
    /// [`ClassError::Full`].
    pub fn set(
        &self,
        name: &ClassName,
        ratio: Option<Option<Ratio>>,
        limit_bytes: [Option<u64>; 2],
    ) -> Result<(), ClassError> {
        let classes = &self.file.shared().classes;
        let found = self.file.shared().find(name).map(|(index, _)| index);
        let free = || classes.iter().position(|class| class.generation.load(Relaxed) % 2 == 0);
        let class = &classes[found.or_else(free).ok_or(ClassError::Full)?];
        if found.is_none() {
            class.ratio.store(0, Relaxed);
            class.limit_bytes.iter().for_each(|limit| limit.store(u64::MAX, Relaxed));
        }
        if let Some(ratio) = ratio {
            class.ratio.store(ratio.map_or(0, Ratio::to_word), Relaxed);
        }
        for (field, limit) in class.limit_bytes.iter().zip(limit_bytes) {
            if let Some(limit) = limit {
                field.store(limit, Relaxed);
            }
        }
        if found.is_none() {
            class.name.set(name.as_str().as_bytes());
            class.generation.fetch_add(1, Release);
        }
        Ok(())
    }

    /// Deletes a class.
    ///
    /// # Errors
    ///
    /// There is no such class, or it has members and this was not forced.
    pub fn delete(&self, name: &ClassName, force: bool) -> Result<(), ClassError> {
        let (index, generation) = self.file.shared().find(name).ok_or(ClassError::NoClass)?;
        if !force && self.members_of(index, generation).next().is_some() {
            return Err(ClassError::HasMembers);
        }
        self.file.shared().classes[index].generation.store(generation.wrapping_add(1), Release);
        Ok(())
    }
}

/// Puts a file without classes at a path where there is none. If another command does so first, its file stays. The
/// file has its name only when it is whole.
fn create(path: &FilePath) -> Result<(), ClassError> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path.folder().as_c_str(), flags, Mode::RUSR | Mode::WUSR)?;
    let mut head = [0; 16];
    head[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    head[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    head[12..].copy_from_slice(&(size_of::<Table>() as u32).to_ne_bytes());
    // All pages now: a write to a mapping for which the file system has no room would stop the program.
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size_of::<Table>() as u64)?;
    rustix::io::write(&fd, &head)?;
    let mut nameless = FixedText::<32>::new();
    let _ = write!(nameless, "/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::linkat(CWD, nameless.as_c_str(), CWD, path.as_c_str(), AtFlags::SYMLINK_FOLLOW) {
        Err(Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}
