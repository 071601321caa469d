//! The functions that the file system in C++ calls. `shim/wal.h` states the arguments of each.

use super::{bytes, guarded, path_of, write_message};
use std::ffi::c_char;
use std::{ptr, slice};
use ziptier_media::disk::DiskError;
use ziptier_rocksdb::wal::{LogFile, LogReader, is_written, stop_following};

/// The results of functions.
const DONE: i32 = 0;
const FAILED: i32 = 1;
const FULL: i32 = 2;

/// Runs `work` and tells how it ended.
///
/// # Safety
///
/// `error_bytes` bytes may be written at `error`.
unsafe fn told(error: *mut c_char, error_bytes: usize, work: impl FnOnce() -> Result<(), DiskError>) -> i32 {
    let ended = guarded(Err((FAILED, "the log panicked".to_owned())), || {
        work().map_err(|error| match error {
            DiskError::Full { .. } => (FULL, error.to_string()),
            _ => (FAILED, error.to_string()),
        })
    });
    let Err((code, reason)) = ended else { return DONE };
    // SAFETY: the caller's promise.
    unsafe { write_message(&reason, error, error_bytes) };
    code
}

/// # Safety
///
/// `path` is a C string, `log` may be written, and `error_bytes` bytes at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_wal_begin(
    path: *const c_char,
    log: *mut *const LogFile,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        told(error, error_bytes, || {
            let begun = LogFile::begin(path_of(path))?;
            *log = Box::into_raw(Box::new(begun));
            Ok(())
        })
    }
}

/// # Safety
///
/// `former` and `path` are C strings, `log` may be written, and `error_bytes` bytes at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_wal_reuse(
    former: *const c_char,
    path: *const c_char,
    log: *mut *const LogFile,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        told(error, error_bytes, || {
            let begun = LogFile::reuse(path_of(former), path_of(path))?;
            *log = Box::into_raw(Box::new(begun));
            Ok(())
        })
    }
}

/// # Safety
///
/// `log` is open; `length` bytes may be read at `start`, and `error_bytes` written at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_wal_append(
    log: *const LogFile,
    start: *const c_char,
    length: usize,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { told(error, error_bytes, || (*log).append(bytes(start, length))) }
}

/// # Safety
///
/// `log` is open; `error_bytes` bytes may be written at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_wal_sync(log: *const LogFile, error: *mut c_char, error_bytes: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { told(error, error_bytes, || (*log).sync()) }
}

/// # Safety
///
/// `log` is open; `error_bytes` bytes may be written at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_wal_truncate(
    log: *const LogFile,
    length: u64,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { told(error, error_bytes, || (*log).truncate(length)) }
}

/// # Safety
///
/// `log` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_wal_bytes(log: *const LogFile) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*log }.bytes()
}

/// # Safety
///
/// `log` is open, and not used after this; `error_bytes` bytes may be written at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_wal_close(log: *mut LogFile, error: *mut c_char, error_bytes: usize) -> i32 {
    // SAFETY: the caller's promise; it came from a box.
    unsafe { told(error, error_bytes, || Box::from_raw(log).close()) }
}

/// # Safety
///
/// `path` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_wal_is_written(path: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    guarded(false, || is_written(unsafe { path_of(path) }))
}

/// # Safety
///
/// `path` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_reader_open(path: *const c_char) -> *const LogReader {
    let opened = guarded(None, || {
        // SAFETY: the caller's promise.
        LogReader::open(unsafe { path_of(path) })
    });
    opened.map_or(ptr::null(), |reader| Box::into_raw(Box::new(reader)))
}

/// # Safety
///
/// `reader` is open; `count` bytes may be written at `target`, `*found`, and `error_bytes` bytes at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_reader_read(
    reader: *const LogReader,
    offset: u64,
    target: *mut c_char,
    count: usize,
    found: *mut usize,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        told(error, error_bytes, || {
            // Memory lent to Rust must be initialized, and RocksDB's buffers are not.
            ptr::write_bytes(target, 0, count);
            *found = (*reader).read(offset, slice::from_raw_parts_mut(target.cast(), count))?;
            Ok(())
        })
    }
}

/// # Safety
///
/// `reader` is open; `*found` may be written, and `error_bytes` bytes at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_reader_bytes(
    reader: *const LogReader,
    found: *mut u64,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        told(error, error_bytes, || {
            *found = (*reader).bytes()?;
            Ok(())
        })
    }
}

/// # Safety
///
/// `reader` came from [`zt_reader_open`], and is not used after this.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_reader_close(reader: *mut LogReader) {
    // SAFETY: the caller's promise; it came from a box.
    guarded((), || drop(unsafe { Box::from_raw(reader) }));
}

/// # Safety
///
/// `dir` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_reader_stop_following(dir: *const c_char) {
    // SAFETY: the caller's promise.
    guarded((), || stop_following(unsafe { path_of(dir) }));
}
