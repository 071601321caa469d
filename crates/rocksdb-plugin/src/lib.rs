//! RocksDB's classes over [`ziptier_rocksdb`], for the RocksDB 11.8.1 of the process.
//!
//! `shim/` has the classes, in C++; `ffi` has what they call. As a shared object this is loaded by `libziptier_rocksdb.so`,
//! which knows by then that the RocksDB of the process is the one that the classes were made for. A Rust program that links
//! RocksDB statically calls [`register`] instead.

#![deny(missing_docs)]

mod ffi;

unsafe extern "C" {
    fn zt_register();
}

/// Makes the classes known to the RocksDB that this program is linked with. Doing so twice does nothing.
pub fn register() {
    // SAFETY: the function takes nothing, and is made for any thread and any number of calls.
    unsafe { zt_register() }
}

/// What was done so far in this process, one `name value` to a line.
pub fn counters() -> String {
    ziptier_rocksdb::counters::Counters::of_process().to_string()
}

/// [`register`], for the loader.
#[unsafe(no_mangle)]
pub extern "C" fn zt_register_classes() {
    register();
}
