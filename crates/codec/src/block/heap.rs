//! Gives C libraries memory from Rust's allocator, so that the allocator's figures include it.
//!
//! C frees by address alone, and Rust also needs the size. The size stands in front of the memory that is handed out.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;

/// Bytes before the address handed out, and its alignment: that of `malloc`.
const HEADER_BYTES: usize = 16;

/// `malloc`, from Rust's allocator. Null if there is no memory.
pub(super) fn allocate(bytes: usize) -> *mut c_void {
    let layout =
        bytes.checked_add(HEADER_BYTES).and_then(|total| Layout::from_size_align(total, HEADER_BYTES).ok());
    let Some(layout) = layout else { return std::ptr::null_mut() };
    #[cfg(test)]
    if tests::IS_FULL.get() {
        return std::ptr::null_mut();
    }
    // SAFETY: the layout has at least `HEADER_BYTES` bytes, hence is not empty.
    let base = unsafe { alloc(layout) };
    if base.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: `base` holds `HEADER_BYTES` and `bytes` more, aligned to `HEADER_BYTES`. A `usize` fits at its start, and
    // the memory behind the header lies inside it.
    unsafe {
        base.cast::<usize>().write(layout.size());
        base.add(HEADER_BYTES).cast()
    }
}

/// `free` for memory from [`allocate`].
///
/// # Safety
///
/// `address` is null, or was returned by [`allocate`] and has not been released.
pub(super) unsafe fn release(address: *mut c_void) {
    if address.is_null() {
        return;
    }
    // SAFETY: the caller vouches that `allocate` returned the address; `allocate` put the size of the layout in front
    // of it.
    unsafe {
        let base = address.cast::<u8>().sub(HEADER_BYTES);
        let total = base.cast::<usize>().read();
        dealloc(base, Layout::from_size_align_unchecked(total, HEADER_BYTES));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::block::{BlockError, Engine};
    use std::cell::Cell;

    thread_local! {
        /// Whether this thread gets no memory.
        pub(super) static IS_FULL: Cell<bool> = const { Cell::new(false) };
    }

    /// A context that gets no memory for a decoder says so, and reads the block once there is memory.
    pub(in crate::block) fn memory_that_is_refused_is_no_damage(engine: &dyn Engine) {
        let (raw, mut packed, mut out) = (b"block of a block".repeat(100), Vec::new(), Vec::new());
        let mut codec = engine.open().expect("it opens");
        codec.compress(&raw, &mut packed, raw.len()).expect("it works").expect("it fits");
        IS_FULL.set(true);
        let refused = codec.decompress(&packed, &mut out, raw.len());
        IS_FULL.set(false);
        let Err(BlockError::Engine { engine: name, reason }) = refused else { panic!("{refused:?}") };
        assert!(name == engine.name() && reason.contains("no memory for"), "{name}: {reason}");
        codec.decompress(&packed, &mut out, raw.len()).expect("the block is sound");
        assert_eq!(out, raw);
    }

    #[test]
    fn sizes_come_back() {
        for bytes in [0, 1, 15, 16, 4097] {
            let address = allocate(bytes);
            assert!(!address.is_null() && address.addr().is_multiple_of(HEADER_BYTES));
            // SAFETY: `allocate` gave so many bytes, and they are released once.
            unsafe {
                address.cast::<u8>().write_bytes(7, bytes);
                release(address);
            }
        }
        assert!(allocate(usize::MAX).is_null());
        // SAFETY: null is allowed.
        unsafe { release(std::ptr::null_mut()) };
    }
}
