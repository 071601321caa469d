//! Writes of several keys at once.

use std::ptr::NonNull;

use super::calls::made;
use super::database::Database;
use super::functions::{Batch, Functions};

/// Writes that [`Database::write`] performs all at once, in their order.
#[derive(Debug)]
pub struct WriteBatch {
    functions: &'static Functions,
    at: NonNull<Batch>,
}

impl WriteBatch {
    /// An empty batch for this database.
    pub fn new(database: &Database) -> Self {
        let functions = database.functions();
        // SAFETY: it takes nothing and gives an object that is ours.
        Self { functions, at: made(unsafe { (functions.batch_create)() }) }
    }

    pub(super) fn at(&mut self) -> *mut Batch {
        self.at.as_ptr()
    }

    /// Adds a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        let at = self.at.as_ptr();
        // SAFETY: the batch is ours, and copies bytes that come with their lengths.
        unsafe {
            (self.functions.batch_put)(
                at,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: &[u8]) {
        // SAFETY: as above.
        unsafe { (self.functions.batch_delete)(self.at.as_ptr(), key.as_ptr().cast(), key.len()) }
    }
}

impl Drop for WriteBatch {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { (self.functions.batch_destroy)(self.at.as_ptr()) }
    }
}
