//! Flushes and compactions of a database, and the wait for both.

use std::ptr::null;

use super::Database;
use crate::host::Error;
use crate::host::calls::{checked, made};

impl Database {
    /// Writes all memtables to SST files, and waits for that.
    ///
    /// # Errors
    /// RocksDB's error.
    pub fn flush(&self) -> Result<(), Error> {
        self.flush_with(true, false)
    }

    /// The same, even if RocksDB slows writers down for that: its flushes and compactions are behind then.
    ///
    /// # Errors
    /// RocksDB's error.
    pub fn flush_at_once(&self) -> Result<(), Error> {
        self.flush_with(true, true)
    }

    /// Begins to write all memtables to SST files, and waits for nothing.
    ///
    /// # Errors
    /// RocksDB's error.
    pub fn begin_flush(&self) -> Result<(), Error> {
        self.flush_with(false, true)
    }

    fn flush_with(&self, waits: bool, stalls: bool) -> Result<(), Error> {
        // SAFETY: it takes nothing and gives an object that is ours.
        let options = made(unsafe { (self.functions.flush_options_create)() });
        // SAFETY: the object is ours.
        unsafe {
            (self.functions.flush_options_set_wait)(options.as_ptr(), waits.into());
            (self.functions.flush_options_set_stall)(options.as_ptr(), stalls.into());
        }
        let flushed = checked!(self.functions, "flush", flush(self.at.as_ptr(), options.as_ptr()));
        // SAFETY: the object is ours.
        unsafe { (self.functions.flush_options_destroy)(options.as_ptr()) };
        flushed
    }

    /// Flushes, compacts all keys into the lowest level that has any, and waits until nothing is left to do in the
    /// background.
    ///
    /// # Errors
    /// RocksDB's error.
    pub fn compact(&self) -> Result<(), Error> {
        self.flush()?;
        // SAFETY: null stands for before the first and after the last key.
        unsafe { (self.functions.compact_range)(self.at.as_ptr(), null(), 0, null(), 0) };
        self.wait()
    }

    /// Waits until no background work is left.
    ///
    /// # Errors
    /// RocksDB's error, also one that background work met before.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: it takes nothing and gives an object that is ours.
        let options = made(unsafe { (self.functions.wait_options_create)() });
        let waited =
            checked!(self.functions, "compact", wait_for_compact(self.at.as_ptr(), options.as_ptr()));
        // SAFETY: the object is ours.
        unsafe { (self.functions.wait_options_destroy)(options.as_ptr()) };
        waited
    }
}
