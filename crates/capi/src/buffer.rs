//! Bytes and options as C sees them.

use std::ffi::{c_char, c_void};
use std::ptr;

use crate::status::guarded;

/// Bytes of the caller, or of the library where a function gives them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ziptier_slice {
    /// The first byte; may be null if there is none.
    pub data: *const c_void,
    /// How many bytes there are.
    pub len: usize,
}

/// An option: name and value are C strings in UTF-8.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ziptier_option {
    /// The name.
    pub name: *const c_char,
    /// The value.
    pub value: *const c_char,
}

/// Bytes that the library allocates. It begins as {NULL, 0, 0}. Each call that fills a buffer replaces its contents
/// and reuses its memory. Only the library changes the fields.
#[repr(C)]
#[derive(Debug)]
pub struct ziptier_buffer {
    /// The first byte; null if the library has allocated nothing.
    pub data: *mut u8,
    /// How many bytes there are.
    pub len: usize,
    /// Bytes that are allocated.
    pub capacity: usize,
}

impl ziptier_buffer {
    const EMPTY: ziptier_buffer = ziptier_buffer { data: ptr::null_mut(), len: 0, capacity: 0 };

    /// Lets `work` fill the buffer, which is empty at first. After a panic it has no memory.
    ///
    /// # Safety
    ///
    /// Only the library has changed the fields since the caller set them to zero.
    pub(crate) unsafe fn fill<T>(&mut self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        // SAFETY: the caller's promise.
        let mut bytes = unsafe { self.take() };
        bytes.clear();
        let result = work(&mut bytes);
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        if bytes.capacity() > 0 {
            *self = ziptier_buffer { data: bytes.as_mut_ptr(), len: bytes.len(), capacity: bytes.capacity() };
        }
        result
    }

    /// # Safety
    ///
    /// As for [`ziptier_buffer::fill`].
    unsafe fn take(&mut self) -> Vec<u8> {
        let ziptier_buffer { data, len, capacity } = std::mem::replace(self, ziptier_buffer::EMPTY);
        if data.is_null() {
            return Vec::new();
        }
        // SAFETY: `fill` has put a vector's parts there, and nobody has changed them.
        unsafe { Vec::from_raw_parts(data, len, capacity) }
    }
}

/// Frees the memory of a buffer. The buffer is empty then and may be filled again.
///
/// Ownership: the buffer itself stays the caller's. Null is allowed.
/// Threads: one at a time for each buffer.
/// Errors: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_buffer_free(buffer: *mut ziptier_buffer) {
    let _ = guarded(|| {
        // SAFETY: the caller's promise.
        if let Some(buffer) = unsafe { buffer.as_mut() } {
            // SAFETY: the caller's promise.
            drop(unsafe { buffer.take() });
        }
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_keeps_its_memory_until_it_is_freed() {
        let mut buffer = ziptier_buffer::EMPTY;
        // SAFETY: nobody else uses the buffer.
        unsafe {
            buffer.fill(|bytes| bytes.extend_from_slice(&[1; 100]));
            let data = buffer.data;
            buffer.fill(|bytes| bytes.extend_from_slice(b"abc"));
            assert_eq!((buffer.data, buffer.len), (data, 3));
            buffer.fill(|_| ());
            assert_eq!((buffer.data, buffer.len), (data, 0));
            ziptier_buffer_free(&mut buffer);
            assert!(buffer.data.is_null() && buffer.capacity == 0);
            ziptier_buffer_free(&mut buffer);
            ziptier_buffer_free(ptr::null_mut());
        }
    }
}
