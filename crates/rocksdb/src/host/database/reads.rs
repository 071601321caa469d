//! Reads of a database: one key, several keys, and scans.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::Database;
use crate::host::Error;
use crate::host::answers::{Pinned, Values};
use crate::host::calls::{checked, taken};
use crate::host::counters::{READ, ThreadCounters};
use crate::host::functions::Slice;
use crate::host::scan::{Scan, ScanOptions};

impl Database {
    /// Puts the value of `key` into `value` (after clearing it) and returns true, or returns false. A value that fits
    /// into the capacity of `value` is copied once.
    ///
    /// # Errors
    /// RocksDB's error, such as corruption.
    #[inline]
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        Ok(self.get_up_to(key, usize::MAX, value)?.is_some())
    }

    /// The length of the value of `key`, if there is one. If it is at most `bytes_max`, `value` holds the value
    /// afterwards; otherwise `value` is empty.
    ///
    /// # Errors
    /// As for [`Database::get`].
    #[inline]
    pub fn get_up_to(
        &self,
        key: &[u8],
        bytes_max: usize,
        value: &mut Vec<u8>,
    ) -> Result<Option<usize>, Error> {
        value.clear();
        loop {
            let (mut len, mut found) = (0, 0);
            let room = value.spare_capacity_mut();
            let copied = checked!(
                self.functions,
                "get a value",
                get_into_buffer(
                    self.at.as_ptr(),
                    self.read.as_ptr(),
                    key.as_ptr().cast(),
                    key.len(),
                    room.as_mut_ptr().cast(),
                    room.len(),
                    &mut len,
                    &mut found
                )
            )?;
            if found == 0 {
                return Ok(None);
            }
            if copied != 0 {
                // SAFETY: the function says that it wrote so many bytes into the room that it was told of.
                unsafe { value.set_len(if len <= bytes_max { len } else { 0 }) };
                return Ok(Some(len));
            }
            if len > bytes_max {
                return Ok(Some(len));
            }
            // Too long; it may be another one by the next time.
            value.reserve(len);
        }
    }

    /// The value of `key` where RocksDB has it. It stays there, and the database open, until the result is dropped.
    ///
    /// # Errors
    /// As for [`Database::get`].
    pub fn get_pinned(self: &Arc<Self>, key: &[u8]) -> Result<Option<Pinned>, Error> {
        let (at, read) = (self.at.as_ptr(), self.read.as_ptr());
        let pinned =
            checked!(self.functions, "get a value", get_pinned(at, read, key.as_ptr().cast(), key.len()))?;
        Ok(NonNull::new(pinned).map(|at| Pinned { at, database: Arc::clone(self) }))
    }

    /// Looks up several keys at once; `values` holds the answers until the next call or until it is dropped.
    ///
    /// # Errors
    /// The first error of any key; then there are no answers. With [`BlockCache::Shared`](super::BlockCache::Shared),
    /// values of more than a megabyte together are an error, too: look the keys up one by one.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K], values: &mut Values) -> Result<(), Error> {
        values.clear();
        values.functions = Some(self.functions);
        values.keys.extend(keys.iter().map(|key| {
            let key = key.as_ref();
            Slice { data: key.as_ptr().cast(), size: key.len() }
        }));
        values.pinned.resize(keys.len(), null_mut());
        values.errors.resize(keys.len(), null_mut());
        // SAFETY: the three lists have as many elements as there are keys, whose bytes are borrowed until this returns.
        unsafe {
            (self.functions.multi_get)(
                self.at.as_ptr(),
                self.read.as_ptr(),
                self.family.as_ptr(),
                keys.len(),
                values.keys.as_ptr(),
                values.pinned.as_mut_ptr(),
                values.errors.as_mut_ptr(),
                false,
            );
        }
        values.keys.clear();
        let errors = values.errors.drain(..).filter_map(|error| taken(self.functions, error));
        match errors.reduce(|first, _| first) {
            None => Ok(()),
            Some(status) => {
                values.clear();
                Err(Error::Status { action: "get several values", status })
            }
        }
    }

    /// Bytes that the calling thread has read of all databases since it began: values, and blocks that were not cached.
    /// A value of such a block counts twice.
    pub fn thread_read_bytes(&self) -> u64 {
        ThreadCounters::new(self.functions).sum(&READ)
    }

    /// The records from key `from` on, in order, as they are now.
    pub fn scan(&self, from: &[u8]) -> Scan<'_> {
        self.scan_with(from, ScanOptions::default())
    }

    /// As [`Database::scan`], with other options.
    pub fn scan_with<'a>(&'a self, from: &[u8], options: ScanOptions<'a>) -> Scan<'a> {
        Scan::begin(self, from, options)
    }
}
