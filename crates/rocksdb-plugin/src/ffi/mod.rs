//! The functions that the classes in C++ call. `shim/rust.h` states the arguments of each. No function lets a panic
//! out.
//!
//! Returned pointers are `Arc`s. The owner of a pointer closes it once.

mod cache;
mod compression;
mod wal;

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::slice;

/// Runs `work`; a panic gives `otherwise`.
fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// Writes a message as a C string, cut to the room there is.
///
/// # Safety
///
/// `room` bytes may be written at `target`, or `room` is 0.
unsafe fn write_message(message: &str, target: *mut c_char, room: usize) {
    let Some(length) = room.checked_sub(1) else { return };
    let length = length.min(message.len());
    // SAFETY: `length` and a zero are `room` at most, which the caller promises.
    unsafe {
        ptr::copy_nonoverlapping(message.as_ptr().cast(), target, length);
        *target.add(length) = 0;
    }
}

/// The bytes at `start`, or none if there are none.
///
/// # Safety
///
/// `length` bytes may be read at `start` for as long as the result lives, or `length` is 0.
unsafe fn bytes<'a>(start: *const c_char, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(start.cast(), length) }
}

/// # Safety
///
/// `text` is a C string.
unsafe fn text(text: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A path, which need not be UTF-8.
///
/// # Safety
///
/// `path` is a C string for as long as the result lives.
unsafe fn path_of<'a>(path: *const c_char) -> &'a Path {
    // SAFETY: the caller's promise.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}

/// Writes the counters of this process, one `name value` to a line, as a C string cut to `room`. Returns the bytes that
/// they take, the zero included.
///
/// # Safety
///
/// `room` bytes may be written at `target`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_counters(target: *mut c_char, room: usize) -> usize {
    let counters = guarded(String::new(), crate::counters);
    // SAFETY: the caller's promise.
    unsafe { write_message(&counters, target, room) };
    counters.len() + 1
}
