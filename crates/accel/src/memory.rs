//! Memory that a device may write to at any time while a job is under way.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

pub(crate) const PAGE_BYTES: usize = 4096;

/// Pages that never move, every one of which has been written to, so that a job meets no page that is not there.
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
        // SAFETY: the size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        for page in (0..layout.size()).step_by(PAGE_BYTES) {
            // SAFETY: the byte lies in the allocation.
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

    /// Brings the page of a byte back, by reading the byte and, for a write, storing what was read.
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
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
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
