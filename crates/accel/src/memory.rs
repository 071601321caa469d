//! Memory that a device may write to at any time while a job is under way.

use std::alloc::Layout;
use std::ptr::NonNull;

pub(crate) const PAGE_BYTES: usize = 4096;

/// Pages that never move. Each has been written to, so that a job meets no missing page.
///
/// A forked child does not get the pages. Otherwise they would become copy-on-write, and a device that writes to them
/// would fault.
pub(crate) struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory, as a `Vec` does.
unsafe impl Send for Pages {}

impl Pages {
    /// At least so many bytes of zeros.
    pub(crate) fn new(bytes: usize) -> Pages {
        let layout = Layout::from_size_align(bytes.max(1).next_multiple_of(PAGE_BYTES), PAGE_BYTES);
        let layout = layout.expect("a pool is smaller than the address space");
        let Some(start) = source::map(layout) else { std::alloc::handle_alloc_error(layout) };
        for page in (0..layout.size()).step_by(PAGE_BYTES) {
            // SAFETY: the byte lies in the mapping.
            unsafe { start.as_ptr().add(page).write_volatile(0) };
        }
        Pages { start, layout }
    }

    /// The place of a byte.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.layout.size());
        // SAFETY: the offset lies in the allocation.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Brings the page of a byte back by reading the byte and, for a write, by storing it again.
    ///
    /// # Safety
    ///
    /// Nobody else writes to that byte meanwhile.
    ///
    /// # Panics
    ///
    /// If the address does not lie in it.
    pub(crate) unsafe fn touch(&self, address: u64, for_write: bool) {
        let byte = self.at((address - self.start.addr().get() as u64) as usize);
        // SAFETY: the byte lies in the allocation, and nobody else writes to it.
        unsafe {
            let value = byte.read_volatile();
            if for_write {
                byte.write_volatile(value);
            }
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this layout.
        unsafe { source::unmap(self.start, self.layout) };
    }
}

/// The source of pages. Pages from the allocator would be reused after their release, and would then be missing in
/// children.
#[cfg(not(miri))]
mod source {
    use super::{Layout, NonNull};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::null_mut;

    pub(super) fn map(layout: Layout) -> Option<NonNull<u8>> {
        let (access, bytes) = (ProtFlags::READ | ProtFlags::WRITE, layout.size());
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, access, MapFlags::PRIVATE) }.ok()?;
        // A kernel that refuses leaves copy-on-write, which costs only page faults. SAFETY: the pages are ours.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxDontFork) };
        NonNull::new(start.cast())
    }

    /// # Safety
    ///
    /// This process mapped the pages with this layout, and no code uses them any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), layout.size()) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Miri has no mappings.
#[cfg(miri)]
mod source {
    use super::{Layout, NonNull};

    pub(super) fn map(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the size is not 0.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
    }

    /// # Safety
    ///
    /// The pages were mapped with this layout, and no code uses them any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_keep_their_bytes_when_touched() {
        let pages = Pages::new(5000);
        assert_eq!((pages.at(0).addr() % PAGE_BYTES, pages.layout.size()), (0, 8192));
        let address = pages.at(4999).addr() as u64;
        // SAFETY: the byte is ours.
        unsafe { pages.at(4999).write(7) };
        // SAFETY: as above.
        unsafe {
            pages.touch(address, false);
            pages.touch(address, true);
            assert_eq!(pages.at(4999).read(), 7);
        }
    }
}
