//! RocksDB's counters of the calling thread, as `rocksdb/c.h` numbers them.

use std::ffi::c_int;
use std::ptr::NonNull;

use super::calls::made;
use super::functions::{Functions, PerfContext};

/// Values that scans passed: values that were met or replaced, and deletes.
pub(super) const PASSED: [c_int; 2] = [10, 11];
/// Bytes that were read: blocks that were not cached, as long as the files have them, and values of single gets and of
/// multi-gets.
pub(super) const READ: [c_int; 3] = [3, 7, 8];

/// The counters. They stay on their thread, since the object holds an address of that thread's.
#[derive(Debug)]
pub(super) struct ThreadCounters {
    functions: &'static Functions,
    at: NonNull<PerfContext>,
}

impl ThreadCounters {
    pub(super) fn new(functions: &'static Functions) -> Self {
        // SAFETY: it takes nothing and gives an object that is ours.
        Self { functions, at: made(unsafe { (functions.perf_create)() }) }
    }

    /// The sum of `counters` since the thread began.
    pub(super) fn sum(&self, counters: &[c_int]) -> u64 {
        // SAFETY: the object is ours, and reads counters of the thread that made it, which is this one.
        let count = |counter: &c_int| unsafe { (self.functions.perf_metric)(self.at.as_ptr(), *counter) };
        counters.iter().map(count).sum()
    }
}

impl Drop for ThreadCounters {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { (self.functions.perf_destroy)(self.at.as_ptr()) }
    }
}
