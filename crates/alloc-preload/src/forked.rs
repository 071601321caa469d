//! Whether this process is a forked child for which no fork handler has run.
//!
//! Handlers around a fork tell a child, but no handler runs for one that a bare system call makes. Such a child, too,
//! must not write to its parent's page. So a word lies in a page that the kernel empties in each child with a memory of
//! its own. A child that shares the memory of its parent, as by `vfork`, is its parent here.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

const PAGE_BYTES: usize = 4096;

/// Null before the start, and where the kernel empties no pages: before Linux 4.14.
static IS_KNOWN: AtomicPtr<AtomicBool> = AtomicPtr::new(null_mut());

/// Maps the page.
pub(crate) fn prepare() {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the address, so no other mapping is touched. Zeros are a valid word.
    unsafe {
        let page = libc::mmap(null_mut(), PAGE_BYTES, access, flags, -1, 0);
        if page != libc::MAP_FAILED && libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) == 0 {
            let is_known: *mut AtomicBool = page.cast();
            (*is_known).store(true, Relaxed);
            IS_KNOWN.store(is_known, Release);
        }
    }
}

/// Answers yes once in each child.
pub(crate) fn is_new() -> bool {
    // SAFETY: the page stays as long as the process.
    let is_known = unsafe { IS_KNOWN.load(Acquire).as_ref() };
    is_known.is_some_and(|is_known| !is_known.load(Relaxed) && !is_known.swap(true, AcqRel))
}
