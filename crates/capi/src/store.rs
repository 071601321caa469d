//! The store: open, read, write, close. One object serves all threads.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use ziptier::{Meta, PutMeta, Store};

use crate::arguments::{bytes, check_apart, object, options, own, result, room};
use crate::buffer::{ziptier_buffer, ziptier_option};
use crate::figures;
use crate::pool::Pool;
use crate::status::{Failure, ZIPTIER_NOT_FOUND, ZIPTIER_OK, ZIPTIER_TOO_SMALL, call, ziptier_status};
use crate::store_options;

/// A compressed, ordered key-value store. One serves all threads.
pub struct ziptier_store {
    store: Arc<Store>,
    /// Values on their way to the caller's memory.
    values: Pool<Vec<u8>>,
}

impl ziptier_store {
    /// The store, for objects that keep it open.
    pub(crate) fn share(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }
}

impl std::ops::Deref for ziptier_store {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

/// What a key carries beside its value.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ziptier_meta {
    /// Bytes of the value.
    pub len: u64,
    /// When the key ceases to exist, in milliseconds since the Unix epoch; 0 for never.
    pub expires_at_ms: u64,
    /// As given when the value was put.
    pub flags: u32,
}

impl From<Meta> for ziptier_meta {
    fn from(meta: Meta) -> ziptier_meta {
        ziptier_meta { len: meta.len, expires_at_ms: meta.expires_at_ms.unwrap_or(0), flags: meta.flags }
    }
}

/// The fields of a put, where 0 stands for no expiry.
pub(crate) fn put_meta(expires_at_ms: u64, flags: u32) -> PutMeta {
    PutMeta { expires_at_ms: (expires_at_ms > 0).then_some(expires_at_ms), flags }
}

/// Opens a store with options, which have the names of `ziptier serve`; the page docs/c.md lists them. Without options
/// the store lies in memory, has no limit, and ends with ziptier_close. With "dir" it is kept in that folder.
///
/// Ownership: the caller closes the store with ziptier_close.
/// Threads: any. The store starts threads of its own, so open it after the last fork().
/// Errors: INVALID_OPTION, INVALID_ARGUMENT, DAMAGED, UNAVAILABLE, IO. *store is null then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_open(
    options: *const ziptier_option,
    options_len: usize,
    store: *mut *mut ziptier_store,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (opened, options) = unsafe {
            let opened = result("store", store, ptr::null_mut())?;
            (opened, self::options(options, options_len)?)
        };
        let store = Arc::new(Store::open(store_options::parsed(&options)?)?);
        *opened = Box::into_raw(Box::new(ziptier_store { store, values: Pool::default() }));
        Ok(ZIPTIER_OK)
    })
}

/// Closes a store. OK says that everything is as durable as its option "durability" promises.
///
/// Ownership: the store is gone after the call, also after an error, with one exception: while iterators of the store
/// are not freed, the call returns INVALID_ARGUMENT and the store stays open. Null is allowed.
/// Threads: no other call may use the store any more.
/// Errors: INVALID_ARGUMENT, IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_close(store: *mut ziptier_store) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let Some(open) = (unsafe { store.as_ref() }) else { return Ok(ZIPTIER_OK) };
        let iterators = Arc::strong_count(&open.store) - 1;
        if iterators > 0 {
            return Err(Failure::argument(format_args!(
                "the store has {iterators} iterators; free them with ziptier_iterator_free, then close it"
            )));
        }
        // SAFETY: `ziptier_open` made the box, and the caller gives it back.
        let store = unsafe { Box::from_raw(store) };
        Arc::into_inner(store.store).map_or(Ok(()), Store::close)?;
        Ok(ZIPTIER_OK)
    })
}

/// Copies the value of a key into value, and sets *value_len to its length. *meta gets what the key carries beside it;
/// meta may be null.
///
/// Ownership: all memory stays the caller's, and none is used after the call.
/// Threads: any number at once.
/// Errors: NOT_FOUND; TOO_SMALL, where *value_len is the capacity needed; INVALID_ARGUMENT, DAMAGED, IO. *value_len is
/// 0 but for OK and TOO_SMALL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_get(
    store: *const ziptier_store,
    key: *const c_void,
    key_len: usize,
    value: *mut c_void,
    value_capacity: usize,
    value_len: *mut usize,
    meta: *mut ziptier_meta,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (length, store, key, target) = unsafe {
            let length = result("value_len", value_len, 0)?;
            let target = room("value", value.cast(), value_capacity)?;
            (length, object("store", store)?, bytes("key", key, key_len)?, target)
        };
        check_apart(key, target)?;
        store.values.with(|value| {
            let Some(found) = store.get_up_to(key, target.len() as u64, value)? else {
                return Ok(ZIPTIER_NOT_FOUND);
            };
            // SAFETY: the caller's promise.
            unsafe { write_meta(meta, found) };
            *length = found.len as usize;
            let Some(target) = target.get_mut(..*length) else { return Ok(ZIPTIER_TOO_SMALL) };
            target.write_copy_of_slice(value);
            Ok(ZIPTIER_OK)
        })
    })
}

/// # Safety
///
/// `place` is null, or a meta may be written there.
unsafe fn write_meta(place: *mut ziptier_meta, meta: Meta) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(meta.into()) };
    }
}

/// As ziptier_get, into a buffer of the library, which grows as the value needs. It is empty but for OK.
///
/// Ownership: the caller frees the buffer with ziptier_buffer_free. A buffer that is used again allocates seldom.
/// Threads: any number at once, each with a buffer of its own.
/// Errors: NOT_FOUND; INVALID_ARGUMENT, DAMAGED, IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_get_buffer(
    store: *const ziptier_store,
    key: *const c_void,
    key_len: usize,
    value: *mut ziptier_buffer,
    meta: *mut ziptier_meta,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let value = unsafe { own("value", value)? };
        // SAFETY: the caller's promise.
        let found = unsafe {
            value.fill(|value| {
                let (store, key) = (object("store", store)?, bytes("key", key, key_len)?);
                Ok::<_, Failure>(store.get_into(key, value)?)
            })
        };
        match found? {
            None => Ok(ZIPTIER_NOT_FOUND),
            Some(found) => {
                // SAFETY: the caller's promise.
                unsafe { write_meta(meta, found) };
                Ok(ZIPTIER_OK)
            }
        }
    })
}

/// Tells what a key carries, without its value.
///
/// Ownership: all memory stays the caller's.
/// Threads: any number at once.
/// Errors: NOT_FOUND; INVALID_ARGUMENT, DAMAGED, IO. *meta is zero then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_get_meta(
    store: *const ziptier_store,
    key: *const c_void,
    key_len: usize,
    meta: *mut ziptier_meta,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (meta, store, key) = unsafe {
            let meta = result("meta", meta, ziptier_meta::default())?;
            (meta, object("store", store)?, bytes("key", key, key_len)?)
        };
        match store.meta(key)? {
            None => return Ok(ZIPTIER_NOT_FOUND),
            Some(found) => *meta = found.into(),
        }
        Ok(ZIPTIER_OK)
    })
}

/// Puts a value of at most 512 MiB under a key of 1 to 65,536 bytes, with an expiry (milliseconds since the Unix epoch;
/// 0 for never) and flags of the caller.
///
/// Ownership: key and value are copied.
/// Threads: any number at once.
/// Errors: INVALID_ARGUMENT, NO_ROOM, IO. Nothing has changed then, but for a failed log: see docs/c.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_put(
    store: *const ziptier_store,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    expires_at_ms: u64,
    flags: u32,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (store, key, value) = unsafe {
            (object("store", store)?, bytes("key", key, key_len)?, bytes("value", value, value_len)?)
        };
        store.put_with(key, value, put_meta(expires_at_ms, flags))?;
        Ok(ZIPTIER_OK)
    })
}

/// Gives a key another expiry (milliseconds since the Unix epoch; 0 for never), and leaves its value alone.
///
/// Ownership: the key is copied.
/// Threads: any number at once.
/// Errors: NOT_FOUND; INVALID_ARGUMENT, NO_ROOM, DAMAGED, IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_set_expiry(
    store: *const ziptier_store,
    key: *const c_void,
    key_len: usize,
    expires_at_ms: u64,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (store, key) = unsafe { (object("store", store)?, bytes("key", key, key_len)?) };
        let existed = store.set_expiry(key, put_meta(expires_at_ms, 0).expires_at_ms)?;
        Ok(if existed { ZIPTIER_OK } else { ZIPTIER_NOT_FOUND })
    })
}

/// Deletes a key.
///
/// Ownership: the key is copied.
/// Threads: any number at once.
/// Errors: NOT_FOUND if there was no such key; INVALID_ARGUMENT, IO; DAMAGED if the SSD cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_delete(
    store: *const ziptier_store,
    key: *const c_void,
    key_len: usize,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (store, key) = unsafe { (object("store", store)?, bytes("key", key, key_len)?) };
        Ok(if store.delete(key)? { ZIPTIER_OK } else { ZIPTIER_NOT_FOUND })
    })
}

/// Writes what has changed since the last checkpoint to the store's folder, so that the next start is quick. The store
/// does so by itself when its log has grown. Without a folder nothing happens.
///
/// Ownership: nothing changes hands.
/// Threads: any; other calls go on meanwhile.
/// Errors: INVALID_ARGUMENT, IO. Nothing is lost then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_checkpoint(store: *const ziptier_store) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { object("store", store)? }.checkpoint()?;
        Ok(ZIPTIER_OK)
    })
}

/// Brings every record to its final, compressed form at once. The background does so by and by.
///
/// Ownership: nothing changes hands.
/// Threads: any; other calls go on meanwhile.
/// Errors: INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_settle(store: *const ziptier_store) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { object("store", store)? }.settle()?;
        Ok(ZIPTIER_OK)
    })
}

/// The statistics of a store as text, one "name value" to a line: keys, memory, work, far memory, SSD, log, recovery.
/// While many writes are unsettled, keys counts the settled ones alone. A store that was opened with "salvage" has a
/// line "skipped" for each damage. Later versions may add lines.
///
/// Ownership: the caller frees the buffer with ziptier_buffer_free.
/// Threads: any number at once, each with a buffer of its own.
/// Errors: INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_stats(
    store: *const ziptier_store,
    text: *mut ziptier_buffer,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (store, text) = unsafe { (object("store", store)?, own("text", text)?) };
        let lines = figures::of(store);
        // SAFETY: the caller's promise.
        unsafe { text.fill(|text| text.extend_from_slice(lines.as_bytes())) };
        Ok(ZIPTIER_OK)
    })
}
