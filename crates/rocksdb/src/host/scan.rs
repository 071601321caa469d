//! Records in the order of their keys.
//!
//! RocksDB keeps deleted and replaced values until a compaction drops them, and a scan passes them one by one. A caller
//! that must not wait for long bounds their number by [`ScanOptions::passed_max`]. RocksDB bounds a single step, and
//! [`Scan`] bounds all steps together by RocksDB's counters of the thread.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::Error;
use super::calls::{checked, made};
use super::counters::{PASSED, ThreadCounters};
use super::database::Database;
use super::functions::{Functions, Iter, ReadOptions};

/// How RocksDB begins the status of a step that would have passed too many keys.
const TOO_MANY: &str = "Result incomplete";

/// The part of a database that a scan covers, and the way it reads. The default reads everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScanOptions<'a> {
    /// The first key behind the scan; `None` for all keys.
    pub to: Option<&'a [u8]>,
    /// Reads no values from blob files: these values seem empty.
    pub keys_only: bool,
    /// Leaves the block cache as it is: blocks that are read do not enter it.
    pub spares_cache: bool,
    /// A scan that has passed more values, met ones among them, takes no further step, and a step that would pass more
    /// by itself fails: with [`Error::PassesMany`] either way. So a scan passes twice as many at most. 0 is for any
    /// number.
    pub passed_max: u64,
}

/// Records in key order, from the start of a scan.
#[derive(Debug)]
pub struct Scan<'a> {
    functions: &'static Functions,
    at: NonNull<Iter>,
    /// The iterator refers to these options.
    options: NonNull<ReadOptions>,
    passed: Option<Passed>,
    /// The iterator stands at the record that was taken last.
    is_taken: bool,
    /// The options refer to the end of the scan.
    borrowed: PhantomData<(&'a Database, &'a [u8])>,
}

impl<'a> Scan<'a> {
    /// The records of `database` from key `from` on.
    pub(super) fn begin(database: &'a Database, from: &[u8], options: ScanOptions<'a>) -> Self {
        let functions = database.functions();
        // SAFETY: it takes nothing and gives an object that is ours.
        let read = made(unsafe { (functions.read_options_create)() });
        // SAFETY: the object is ours, and nobody else has it yet. The end lives as long as the result.
        unsafe {
            (functions.read_options_set_skipped_max)(read.as_ptr(), options.passed_max);
            (functions.read_options_set_fill_cache)(read.as_ptr(), (!options.spares_cache).into());
            (functions.read_options_set_unprepared)(read.as_ptr(), options.keys_only.into());
            if let Some(to) = options.to {
                (functions.read_options_set_end)(read.as_ptr(), to.as_ptr().cast(), to.len());
            }
        }
        let passed = (options.passed_max > 0).then(|| Passed::begin(functions, options.passed_max));
        // SAFETY: the database is open as long as the result borrows it, and the options outlive the iterator.
        let at = made(unsafe { (functions.iterator)(database.at(), read.as_ptr()) });
        // SAFETY: the iterator is ours; the key comes with its length.
        unsafe { (functions.iter_seek)(at.as_ptr(), from.as_ptr().cast(), from.len()) };
        Self { functions, at, options: read, passed, is_taken: false, borrowed: PhantomData }
    }

    /// Goes to the last record.
    pub(super) fn seek_to_last(&mut self) {
        // SAFETY: the iterator is ours.
        unsafe { (self.functions.iter_seek_to_last)(self.at.as_ptr()) };
    }

    /// Calls `take` with the next record, key and value; false if there is none.
    ///
    /// # Errors
    /// [`Error::PassesMany`] as the options say, and RocksDB's error, such as corruption.
    pub fn next(&mut self, take: impl FnOnce(&[u8], &[u8])) -> Result<bool, Error> {
        let at = self.at.as_ptr();
        if self.is_taken {
            if self.passed.as_ref().is_some_and(Passed::is_exceeded) {
                return Err(Error::PassesMany);
            }
            // SAFETY: the iterator stands at a record, and nobody borrows that any more.
            unsafe { (self.functions.iter_next)(at) };
            self.is_taken = false;
        }
        // SAFETY: the iterator is ours.
        if unsafe { (self.functions.iter_valid)(at) } == 0 {
            let ended = checked!(self.functions, "scan", iter_error(at)).map(|()| false);
            return ended.map_err(|error| match error {
                Error::Status { status, .. } if status.starts_with(TOO_MANY) => Error::PassesMany,
                error => error,
            });
        }
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: the iterator stands at a record, whose key and value stay where they are until it moves: no sooner
        // than in the next call.
        let (key, value) = unsafe {
            let key = (self.functions.iter_key)(at, &mut key_len);
            let value = (self.functions.iter_value)(at, &mut value_len);
            (
                std::slice::from_raw_parts(key.cast::<u8>(), key_len),
                std::slice::from_raw_parts(value.cast::<u8>(), value_len),
            )
        };
        take(key, value);
        self.is_taken = true;
        Ok(true)
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        // SAFETY: both are ours, and the database that the iterator is of is still open. The options go last.
        unsafe {
            (self.functions.iter_destroy)(self.at.as_ptr());
            (self.functions.read_options_destroy)(self.options.as_ptr());
        }
    }
}

/// The values that one scan has passed.
#[derive(Debug)]
struct Passed {
    counters: ThreadCounters,
    before: u64,
    max: u64,
}

impl Passed {
    fn begin(functions: &'static Functions, max: u64) -> Self {
        let counters = ThreadCounters::new(functions);
        Self { before: counters.sum(&PASSED), counters, max }
    }

    fn is_exceeded(&self) -> bool {
        self.counters.sum(&PASSED).wrapping_sub(self.before) > self.max
    }
}
