//! Results of reads: values in RocksDB's memory.

use std::ffi::c_char;
use std::ptr::NonNull;
use std::sync::Arc;

use super::database::Database;
use super::functions::{Functions, Pinned as PinnedValue, Slice};

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
