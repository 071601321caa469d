//! RocksDB's classes over [`ziptier_rocksdb`], for the RocksDB 11.8.1 of the process.
//!
//! `shim/` has the classes, in C++; `ffi` has the functions that they call. `libziptier_rocksdb.so` loads this crate as
//! a shared object. By then it has checked that the classes were made for the RocksDB of the process. A Rust program
//! that links RocksDB statically registers the classes itself, before it opens a database:
//!
//! ```ignore
//! ziptier_rocksdb_plugin::register();
//! ```
//!
//! The crate has no doc tests. The classes need the symbols of a RocksDB, and the crate brings none, so a test program
//! of its own does not link. The tests build programs with a RocksDB and run them.

#![deny(missing_docs)]

mod ffi;

use std::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    fn zt_register();
}

/// Makes the classes known to the RocksDB that this program is linked with. Doing so twice does nothing.
pub fn register() {
    // SAFETY: the function takes nothing, and is made for any thread and any number of calls.
    unsafe { zt_register() }
}

/// The counters of this process so far, one `name value` to a line.
pub fn counters() -> String {
    ziptier_rocksdb::counters::Counters::of_process().to_string()
}

/// A function that gets the progress of an estimate: the caller's state, the amount of done work, and the amount of all
/// work.
type Tell = unsafe extern "C" fn(state: *mut c_void, done: u64, all: u64);

unsafe extern "C" {
    fn zt_migrate_off(
        dir: *const c_char,
        compression: *const c_char,
        message: *mut c_char,
        room: usize,
    ) -> c_int;
    fn zt_migrate_on(dir: *const c_char, options: *const c_char, message: *mut c_char, room: usize) -> c_int;
    fn zt_inspect(dir: *const c_char, message: *mut c_char, room: usize, needed: *mut usize) -> c_int;
    fn zt_estimate(
        dir: *const c_char,
        sample_bytes: u64,
        tell: Tell,
        state: *mut c_void,
        message: *mut c_char,
        room: usize,
        needed: *mut usize,
    ) -> c_int;
    fn zt_persistent_cache(
        options: *const c_char,
        cache: *mut c_void,
        message: *mut c_char,
        room: usize,
    ) -> c_int;
}

/// `zt_migrate_off` of `shim/maintenance.cc`, for the loader.
///
/// # Safety
///
/// The first two are C strings, and `room` bytes, at least one, may be written at `message`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zt_plugin_migrate_off(
    dir: *const c_char,
    compression: *const c_char,
    message: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { zt_migrate_off(dir, compression, message, room) }
}

/// `zt_migrate_on` of `shim/maintenance.cc`, for the loader.
///
/// # Safety
///
/// As for [`zt_plugin_migrate_off`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zt_plugin_migrate_on(
    dir: *const c_char,
    options: *const c_char,
    message: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { zt_migrate_on(dir, options, message, room) }
}

/// `zt_inspect` of `shim/maintenance.cc`, for the loader.
///
/// # Safety
///
/// As for [`zt_plugin_migrate_off`]; `needed` may be written, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zt_plugin_inspect(
    dir: *const c_char,
    message: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { zt_inspect(dir, message, room, needed) }
}

/// `zt_estimate` of `shim/estimate.cc`, for the loader.
///
/// # Safety
///
/// As for [`zt_plugin_inspect`]; `tell` may be called with `state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zt_plugin_estimate(
    dir: *const c_char,
    sample_bytes: u64,
    tell: Tell,
    state: *mut c_void,
    message: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { zt_estimate(dir, sample_bytes, tell, state, message, room, needed) }
}

/// `zt_persistent_cache` of `shim/persistent_cache.cc`, for the loader.
///
/// # Safety
///
/// As for [`zt_plugin_migrate_off`]; `cache` is a `std::shared_ptr<rocksdb::PersistentCache>` of C++.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zt_plugin_persistent_cache(
    options: *const c_char,
    cache: *mut c_void,
    message: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { zt_persistent_cache(options, cache, message, room) }
}

/// [`register`], for the loader.
#[unsafe(no_mangle)]
pub extern "C" fn zt_register_classes() {
    register();
}
