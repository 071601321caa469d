//! Several writes that every reader sees all of or none of.

use std::ffi::c_void;
use std::ptr;

use ziptier::{Batch, Condition};

use crate::arguments::{bytes, object, own, result};
use crate::status::{ZIPTIER_NOT_WRITTEN, ZIPTIER_OK, call, guarded, ziptier_status};
use crate::store::{put_meta, ziptier_store};

/// Writes that are made together, in the order in which they were added.
pub struct ziptier_batch(Batch);

impl ziptier_batch {
    fn require(&mut self, key: &[u8], condition: Condition) {
        self.0 = std::mem::take(&mut self.0).require(key, condition);
    }
}

/// Makes a batch of nothing.
///
/// Ownership: the caller frees the batch with ziptier_batch_free.
/// Threads: any; a batch belongs to one thread at a time.
/// Errors: INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_batch_new(batch: *mut *mut ziptier_batch) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let made = unsafe { result("batch", batch, ptr::null_mut())? };
        *made = Box::into_raw(Box::new(ziptier_batch(Batch::new())));
        Ok(ZIPTIER_OK)
    })
}

/// Adds a put, as ziptier_put.
///
/// Ownership: key and value are copied.
/// Threads: one at a time for each batch.
/// Errors: INVALID_ARGUMENT. ziptier_write tells of keys and values out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_batch_put(
    batch: *mut ziptier_batch,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    expires_at_ms: u64,
    flags: u32,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, key, value) =
            unsafe { (own("batch", batch)?, bytes("key", key, key_len)?, bytes("value", value, value_len)?) };
        let writes = std::mem::take(&mut batch.0);
        batch.0 = writes.put_with(key, value, put_meta(expires_at_ms, flags));
        Ok(ZIPTIER_OK)
    })
}

/// Adds a delete.
///
/// Ownership: the key is copied.
/// Threads: one at a time for each batch.
/// Errors: INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_batch_delete(
    batch: *mut ziptier_batch,
    key: *const c_void,
    key_len: usize,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, key) = unsafe { (own("batch", batch)?, bytes("key", key, key_len)?) };
        batch.0 = std::mem::take(&mut batch.0).delete(key);
        Ok(ZIPTIER_OK)
    })
}

/// Adds the condition that a key exists, if exists is not 0, or else that the key does not exist. Conditions are about
/// the time before the batch, wherever in the batch they stand.
///
/// Ownership: the key is copied.
/// Threads: one at a time for each batch.
/// Errors: INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_batch_require(
    batch: *mut ziptier_batch,
    key: *const c_void,
    key_len: usize,
    exists: i32,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, key) = unsafe { (own("batch", batch)?, bytes("key", key, key_len)?) };
        batch.require(key, if exists == 0 { Condition::Absent } else { Condition::Exists });
        Ok(ZIPTIER_OK)
    })
}

/// Adds the condition that a key has this value before the batch, as for a compare-and-set.
///
/// Ownership: key and value are copied.
/// Threads: one at a time for each batch.
/// Errors: INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_batch_require_value(
    batch: *mut ziptier_batch,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, key, value) =
            unsafe { (own("batch", batch)?, bytes("key", key, key_len)?, bytes("value", value, value_len)?) };
        batch.require(key, Condition::ValueIs(value.to_vec()));
        Ok(ZIPTIER_OK)
    })
}

/// Makes all writes of a batch, or none. The batch stays as it is and may be written again.
///
/// Ownership: the batch stays the caller's.
/// Threads: any number at once, each with a batch of its own.
/// Errors: NOT_WRITTEN if a condition does not hold; INVALID_ARGUMENT, NO_ROOM, DAMAGED, IO. Nothing has changed then,
/// but for a failed log: see docs/c.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_write(
    store: *const ziptier_store,
    batch: *const ziptier_batch,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (store, batch) = unsafe { (object("store", store)?, object("batch", batch)?) };
        Ok(if store.write(&batch.0)? { ZIPTIER_OK } else { ZIPTIER_NOT_WRITTEN })
    })
}

/// Frees a batch.
///
/// Ownership: the batch is gone after the call. Null is allowed.
/// Threads: no other call may use the batch any more.
/// Errors: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_batch_free(batch: *mut ziptier_batch) {
    let _ = guarded(|| {
        if !batch.is_null() {
            // SAFETY: `ziptier_batch_new` made the box, and the caller gives it back.
            drop(unsafe { Box::from_raw(batch) });
        }
        Ok(())
    });
}
