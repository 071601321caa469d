//! Maps a page: as the process that makes it, or as one that found its file.

use core::fmt;
use core::ops::Deref;
use core::ptr::{self, NonNull};

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::Resource;

use super::{MEMFD_NAME, Page};

/// File descriptors below this one are the program's: some programs count on the next free one. If the limit allows
/// fewer, the page takes a descriptor of the last eighth.
const FD_MIN: u64 = 700;

/// Stands for a descriptor that is closed.
const NO_FD: RawFd = -1;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapped page. Nothing unmaps it: the library has it as long as its process lives, and the command ends soon.
#[derive(Debug)]
pub struct SharedPage {
    page: NonNull<Page>,
    /// The descriptor that others find in `/proc/PID/fd`. A program may close all of its descriptors, and then the
    /// number may be that of another file.
    fd: RawFd,
    /// Device and inode of the file.
    file: (u64, u64),
}

// SAFETY: a page consists of atomics and is bound to no thread.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

/// Why a file is no page that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachError {
    /// Another layout, or too short a file.
    Version {
        /// The version that the file names.
        found: u32,
    },
    /// The file is no page, or one that its maker has not published.
    NoPage,
    /// The file could still be shortened, so reading it is not safe.
    NotSealed,
    /// The system refuses.
    System(Errno),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Version { found } => write!(
                f,
                "its library has version {found} of the shared page, and this command version {}; use the command of \
                 the same release as the library, or start the program again with the library of this one",
                super::VERSION
            ),
            AttachError::NoPage => {
                f.write_str("its file is no page of the library, or the library has just started")
            }
            AttachError::NotSealed => f.write_str("its file is not sealed, so another program made it"),
            AttachError::System(errno) => write!(f, "its page cannot be mapped: {errno}"),
        }
    }
}

impl core::error::Error for AttachError {}

impl From<Errno> for AttachError {
    fn from(errno: Errno) -> Self {
        AttachError::System(errno)
    }
}

impl Deref for SharedPage {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: `create` or `attach` mapped a whole page here, sealed against shrinking, and nothing unmaps it.
        unsafe { self.page.as_ref() }
    }
}

impl SharedPage {
    /// Makes a zeroed page that other processes can find.
    ///
    /// # Errors
    ///
    /// What the system refused. The library then works with a private page.
    pub fn create() -> Result<SharedPage, Errno> {
        SharedPage::of(new_file()?)
    }

    /// Gives a forked child a private copy of its parent's page at the same address, and closes the descriptor of that
    /// page. A tick that a signal handler interrupts goes on in the child, and then tells the copy. The library calls
    /// this while the child has one thread, so that the descriptor stays that of the same file meanwhile. A child whose
    /// parent has closed the descriptor gets no copy.
    pub fn detach(&mut self) {
        let fd = core::mem::replace(&mut self.fd, NO_FD);
        if fd == NO_FD {
            return;
        }
        // SAFETY: the child has one thread, so nobody opens or closes a file between this call and the next.
        let inherited = unsafe { BorrowedFd::borrow_raw(fd) };
        if identity(inherited) == Ok(self.file) {
            // Without a copy, the child sees the page of its parent until it renews the page.
            let _ = map(self.page.as_ptr().cast(), MapFlags::PRIVATE | MapFlags::FIXED, inherited);
            // SAFETY: the descriptor is that of the page, which no other value owns.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    /// Puts a page of this process alone, zeroed, where a forked child sees that of its parent. Its address stays. The
    /// library calls this in the child before it writes to the page, and publishes the page anew. A child that a bare
    /// system call made keeps the descriptor of its parent's page: it may share its descriptors with its parent.
    ///
    /// # Errors
    ///
    /// What the system refused. The address then has a zeroed page that no other process finds.
    pub fn renew(&mut self) -> Result<(), Errno> {
        let address = self.page.as_ptr().cast();
        let shared = new_file().and_then(|fd| {
            map(address, MapFlags::SHARED | MapFlags::FIXED, fd.as_fd())?;
            Ok((identity(fd.as_fd())?, fd.into_raw_fd()))
        });
        match shared {
            Ok((file, fd)) => (self.file, self.fd) = (file, fd),
            Err(errno) => {
                // SAFETY: the mapping that this replaces belongs to this value, and holds atomics, for which zeros are
                // valid.
                unsafe {
                    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                    rustix::mm::mmap_anonymous(address, size_of::<Page>(), READ_WRITE, flags)?;
                }
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Maps the page of a file that another process made.
    ///
    /// # Errors
    ///
    /// Why the file cannot be used.
    pub fn attach(fd: OwnedFd) -> Result<SharedPage, AttachError> {
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| AttachError::NoPage)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(AttachError::NotSealed);
        }
        if rustix::fs::fstat(&fd)?.st_size < size_of::<Page>() as i64 {
            return Err(AttachError::Version { found: 0 });
        }
        let page = SharedPage::of(fd)?;
        page.check().map(|()| page)
    }

    fn of(fd: OwnedFd) -> Result<SharedPage, Errno> {
        let page = map(ptr::null_mut(), MapFlags::SHARED, fd.as_fd())?;
        Ok(SharedPage { page, file: identity(fd.as_fd())?, fd: fd.into_raw_fd() })
    }

    /// The number of its file descriptor; negative if the page has none.
    pub fn fd(&self) -> RawFd {
        self.fd
    }
}

/// Device and inode of a file.
fn identity(fd: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

/// A file of zeros with the size of a page.
fn new_file() -> Result<OwnedFd, Errno> {
    let fd = rustix::fs::memfd_create(MEMFD_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, size_of::<Page>() as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let allowed = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let least = FD_MIN.min(allowed - allowed / 8) as RawFd;
    // If none of these is free, the page keeps the one that it has.
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, least).unwrap_or(fd))
}

fn map(address: *mut core::ffi::c_void, flags: MapFlags, fd: BorrowedFd<'_>) -> Result<NonNull<Page>, Errno> {
    // SAFETY: with an address of the kernel's choice the mapping disturbs no other; with a fixed one it replaces that
    // of a page, and the file holds atomics, for which all bits are valid.
    let mapped = unsafe { rustix::mm::mmap(address, size_of::<Page>(), READ_WRITE, flags, fd, 0)? };
    NonNull::new(mapped.cast()).ok_or(Errno::NOMEM)
}
