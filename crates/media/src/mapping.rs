//! A stretch of mapped memory that is unmapped when its owner is dropped.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes that stay mapped, readable and writable at the same address while this value lives.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Mapped,
    #[cfg(test)]
    Heap,
}

// SAFETY: plain bytes, bound to no thread. The allocator above decides which thread may read or write which bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Whether a file lies in memory alone, on tmpfs.
pub(crate) fn is_on_tmpfs(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Mapping {
    /// Maps `bytes` bytes of a file, with `MAP_SYNC` if the file system has it, and says whether it has. The caller
    /// must not touch bytes that the file has not allocated.
    pub(crate) fn of_file(file: &File, bytes: usize) -> io::Result<(Mapping, bool)> {
        match Mapping::of_dax_file(file, bytes) {
            Ok(mapping) => Ok((mapping, true)),
            Err(_) => Ok((Mapping::shared(file, bytes, MapFlags::SHARED)?, false)),
        }
    }

    /// The same, but only with `MAP_SYNC`: a file system without it answers `EOPNOTSUPP`, a kernel before 4.15
    /// `EINVAL`.
    pub(crate) fn of_dax_file(file: &File, bytes: usize) -> io::Result<Mapping> {
        Mapping::shared(file, bytes, MapFlags::SHARED_VALIDATE | MapFlags::SYNC)
    }

    fn shared(file: &File, bytes: usize, flags: MapFlags) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, READ_WRITE, flags, file, 0)? };
        Ok(Mapping::mapped(base, bytes))
    }

    /// Maps anonymous memory of this process alone, not yet populated.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
        let base =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, READ_WRITE, MapFlags::PRIVATE)? };
        Ok(Mapping::mapped(base, bytes))
    }

    /// Binds all pages to one NUMA node; pages come from it when they are first touched.
    pub(crate) fn bind(&self, node: u32) -> io::Result<()> {
        const WORD_BITS: usize = usize::BITS as usize;
        let mut nodes = vec![0usize; node as usize / WORD_BITS + 1];
        nodes[node as usize / WORD_BITS] |= 1 << (node as usize % WORD_BITS);
        // The kernel reads one bit less than the given number.
        let bits = nodes.len() * WORD_BITS + 1;
        // SAFETY: the range is this mapping, the mask has the bits that the kernel reads, and a policy changes no byte.
        let result = unsafe {
            let (policy, flags) = (libc::c_long::from(libc::MPOL_BIND), 0 as libc::c_long);
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.bytes,
                policy,
                nodes.as_ptr(),
                bits,
                flags,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Populates every page now, so that a failure is an error and not a later signal.
    pub(crate) fn populate(&self) -> io::Result<()> {
        let advise = |advice| {
            // SAFETY: the range is this mapping, and neither advice changes a byte.
            unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes, advice) }
        };
        // The mapping also works without huge pages.
        let _ = advise(Advice::LinuxHugepage);
        match advise(Advice::LinuxPopulateWrite) {
            // A kernel before 5.14.
            Err(rustix::io::Errno::INVAL) => self.touch_all(),
            other => other?,
        }
        Ok(())
    }

    fn touch_all(&self) {
        for at in (0..self.bytes).step_by(rustix::param::page_size()) {
            // SAFETY: inside the mapping, which is new and not yet shared.
            unsafe { self.at(at).write_volatile(0) };
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of a byte.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.bytes, "offset {offset} lies outside a mapping of {} bytes", self.bytes);
        // SAFETY: inside the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Some bytes.
    ///
    /// # Safety
    ///
    /// Nobody writes them while the slice lives.
    pub(crate) unsafe fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(
            offset <= self.bytes && len <= self.bytes - offset,
            "{len} bytes at {offset} lie outside the mapping"
        );
        // SAFETY: inside the mapping, which is readable while `self` lives. The caller promises that nobody writes the
        // bytes.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    fn mapped(base: *mut std::ffi::c_void, bytes: usize) -> Mapping {
        Mapping {
            base: NonNull::new(base.cast()).expect("a mapping has an address"),
            bytes,
            backing: Backing::Mapped,
        }
    }

    /// Memory of the test's own, with the given contents.
    #[cfg(test)]
    pub(crate) fn of_heap(contents: &[u8]) -> Mapping {
        // SAFETY: the layout has a size; the contents fit.
        let base = unsafe {
            let base = std::alloc::alloc(heap_layout(contents.len()));
            base.copy_from_nonoverlapping(contents.as_ptr(), contents.len());
            base
        };
        Mapping { base: NonNull::new(base).unwrap(), bytes: contents.len(), backing: Backing::Heap }
    }
}

#[cfg(test)]
fn heap_layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes, 4096).unwrap()
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.backing {
            // SAFETY: mapped in a constructor with this length; all borrows of it have ended.
            Backing::Mapped => unsafe {
                let _ = rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes);
            },
            #[cfg(test)]
            // SAFETY: allocated in `of_heap` with this layout.
            Backing::Heap => unsafe { std::alloc::dealloc(self.base.as_ptr(), heap_layout(self.bytes)) },
        }
    }
}
