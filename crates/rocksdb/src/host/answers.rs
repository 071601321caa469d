//! Results of reads of several keys: values in RocksDB's memory, and records in order.

use std::ffi::c_char;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Error;
use super::calls::checked;
use super::database::Database;
use super::functions::{Functions, Iter, Pinned as PinnedValue, Slice};

/// The answers of one multi-get, where RocksDB left them.
#[derive(Debug, Default)]
pub struct Values {
    pub(super) functions: Option<&'static Functions>,
    pub(super) pinned: Vec<*mut PinnedValue>,
    pub(super) keys: Vec<Slice>,
    pub(super) errors: Vec<*mut c_char>,
}

// SAFETY: the pinned values belong only to this object, and any thread may free them. Keys and errors are empty between
// calls.
unsafe impl Send for Values {}

impl Values {
    /// The value of the key at this position of the request.
    #[inline]
    pub fn get(&self, position: usize) -> Option<&[u8]> {
        let pinned = self.pinned.get(position).filter(|pinned| !pinned.is_null())?;
        let mut len = 0;
        // SAFETY: it was pinned by the library that the functions are of, and is freed no sooner than this can be
        // changed.
        let value = unsafe { (self.functions?.pinned_value)(*pinned, &mut len) };
        // SAFETY: the value has so many bytes, and lives as long as it is pinned.
        (!value.is_null()).then(|| unsafe { std::slice::from_raw_parts(value.cast(), len) })
    }

    /// Lets go of all answers and keeps the room for the next.
    pub(super) fn clear(&mut self) {
        for pinned in self.pinned.drain(..).filter(|pinned| !pinned.is_null()) {
            if let Some(functions) = self.functions {
                // SAFETY: it is ours, and has left the list.
                unsafe { (functions.pinned_destroy)(pinned) };
            }
        }
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A value where RocksDB has it.
#[derive(Debug)]
pub struct Pinned {
    pub(super) at: NonNull<PinnedValue>,
    pub(super) database: Arc<Database>,
}

// SAFETY: any thread may read and free the value, which does not change.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// The value.
    pub fn value(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the object is ours, and `len` may be written.
        let value = unsafe { (self.database.functions().pinned_value)(self.at.as_ptr(), &mut len) };
        // SAFETY: the value has so many bytes, and lives as long as it is pinned.
        if value.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(value.cast(), len) } }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the object is ours, and the database is still open.
        unsafe { (self.database.functions().pinned_destroy)(self.at.as_ptr()) };
    }
}

/// Records in key order, from the start of a scan.
#[derive(Debug)]
pub struct Scan<'a> {
    pub(super) functions: &'static Functions,
    pub(super) at: NonNull<Iter>,
    pub(super) database: PhantomData<&'a Database>,
}

impl Scan<'_> {
    /// Calls `take` with the next record, key and value; false if there is none.
    ///
    /// # Errors
    /// RocksDB's error, such as corruption.
    pub fn next(&mut self, take: impl FnOnce(&[u8], &[u8])) -> Result<bool, Error> {
        let at = self.at.as_ptr();
        // SAFETY: the iterator is ours.
        if unsafe { (self.functions.iter_valid)(at) } == 0 {
            return checked!(self.functions, "scan", iter_error(at)).map(|()| false);
        }
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: the iterator stands at a record, whose key and value stay where they are until it moves; it moves
        // below.
        let (key, value) = unsafe {
            let key = (self.functions.iter_key)(at, &mut key_len);
            let value = (self.functions.iter_value)(at, &mut value_len);
            (
                std::slice::from_raw_parts(key.cast::<u8>(), key_len),
                std::slice::from_raw_parts(value.cast::<u8>(), value_len),
            )
        };
        take(key, value);
        // SAFETY: it stands at a record, and nobody borrows that any more.
        unsafe { (self.functions.iter_next)(at) };
        Ok(true)
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        // SAFETY: the iterator is ours, and the database that it is of is still open.
        unsafe { (self.functions.iter_destroy)(self.at.as_ptr()) };
    }
}
