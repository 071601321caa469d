//! Records in key order, from either end.

use std::ffi::c_void;
use std::ops::Bound;
use std::ptr;
use std::sync::Arc;

use ziptier::{Error, Range, Store};

use crate::arguments::{bytes, object, own, result};
use crate::buffer::ziptier_slice;
use crate::status::{Failure, ZIPTIER_NOT_FOUND, ZIPTIER_OK, call, guarded, ziptier_status};
use crate::store::ziptier_store;

/// Key and value.
type Record = (Vec<u8>, Vec<u8>);

/// Walks through records in key order. It is no snapshot: a key that is present throughout comes exactly once, one that
/// is written meanwhile at most once.
pub struct ziptier_iterator {
    /// Dropped before the store that it borrows from: fields drop in the order of their declaration.
    range: Range<'static>,
    /// The record that the caller looks at.
    record: Record,
    _store: Arc<Store>,
}

impl ziptier_iterator {
    fn over(store: Arc<Store>, range: impl FnOnce(&Store) -> Range<'_>) -> ziptier_iterator {
        let range = range(&store);
        // SAFETY: only the lifetime changes. The range borrows from the store behind the `Arc`, which does not move and
        // which the iterator keeps until after the range is dropped.
        let range = unsafe { std::mem::transmute::<Range<'_>, Range<'static>>(range) };
        ziptier_iterator { range, record: (Vec::new(), Vec::new()), _store: store }
    }
}

/// Gives the record that `next` takes from an iterator, and takes none if a pointer is null.
///
/// # Safety
///
/// The promise of the callers of [`ziptier_next`].
unsafe fn give(
    iterator: *mut ziptier_iterator,
    key: *mut ziptier_slice,
    value: *mut ziptier_slice,
    next: impl FnOnce(&mut Range<'static>) -> Option<Result<Record, Error>>,
) -> Result<ziptier_status, Failure> {
    const NONE: ziptier_slice = ziptier_slice { data: ptr::null(), len: 0 };
    // SAFETY: the caller's promise.
    let (key, value, iterator) = unsafe {
        let (key, value) = (result("key", key, NONE)?, result("value", value, NONE)?);
        (key, value, own("iterator", iterator)?)
    };
    let Some(next) = next(&mut iterator.range) else { return Ok(ZIPTIER_NOT_FOUND) };
    iterator.record = next?;
    let slice = |bytes: &Vec<u8>| ziptier_slice { data: bytes.as_ptr().cast(), len: bytes.len() };
    (*key, *value) = (slice(&iterator.record.0), slice(&iterator.record.1));
    Ok(ZIPTIER_OK)
}

/// Opens an iterator over the keys from `from` on and below `to`. Null for `from` begins with the first key, null for
/// `to` goes on to the last one.
///
/// Ownership: the caller frees the iterator with ziptier_iterator_free, before it closes the store.
/// Threads: any; an iterator belongs to one thread at a time.
/// Errors: INVALID_ARGUMENT. *iterator is null then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_range(
    store: *const ziptier_store,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
    iterator: *mut *mut ziptier_iterator,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (opened, store, first, end) = unsafe {
            let opened = result("iterator", iterator, ptr::null_mut())?;
            let (first, end) = (bytes("from", from, from_len)?, bytes("to", to, to_len)?);
            (opened, object("store", store)?, first, end)
        };
        let first = if from.is_null() { Bound::Unbounded } else { Bound::Included(first) };
        let end = if to.is_null() { Bound::Unbounded } else { Bound::Excluded(end) };
        let range = ziptier_iterator::over(store.share(), |store| store.range((first, end)));
        *opened = Box::into_raw(Box::new(range));
        Ok(ZIPTIER_OK)
    })
}

/// Opens an iterator over the keys that begin with prefix.
///
/// Ownership: the caller frees the iterator with ziptier_iterator_free, before it closes the store.
/// Threads: any; an iterator belongs to one thread at a time.
/// Errors: INVALID_ARGUMENT. *iterator is null then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_prefix(
    store: *const ziptier_store,
    prefix: *const c_void,
    prefix_len: usize,
    iterator: *mut *mut ziptier_iterator,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (opened, store, prefix) = unsafe {
            let opened = result("iterator", iterator, ptr::null_mut())?;
            (opened, object("store", store)?, bytes("prefix", prefix, prefix_len)?)
        };
        let range = ziptier_iterator::over(store.share(), |store| store.prefix(prefix));
        *opened = Box::into_raw(Box::new(range));
        Ok(ZIPTIER_OK)
    })
}

/// Gives the next record in key order.
///
/// Ownership: key and value are the iterator's. They last until the next call with it.
/// Threads: one at a time for each iterator.
/// Errors: NOT_FOUND if there is no further record; INVALID_ARGUMENT, where no record is taken; DAMAGED, IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_next(
    iterator: *mut ziptier_iterator,
    key: *mut ziptier_slice,
    value: *mut ziptier_slice,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { give(iterator, key, value, Range::next) }
    })
}

/// Gives the last record that has not been given. Calls of ziptier_next and of this function meet in the middle.
///
/// Ownership: key and value are the iterator's. They last until the next call with it.
/// Threads: one at a time for each iterator.
/// Errors: NOT_FOUND if there is no further record; INVALID_ARGUMENT, where no record is taken; DAMAGED, IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_next_back(
    iterator: *mut ziptier_iterator,
    key: *mut ziptier_slice,
    value: *mut ziptier_slice,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { give(iterator, key, value, Range::next_back) }
    })
}

/// Frees an iterator, and the record that it has given.
///
/// Ownership: the iterator is gone after the call. Null is allowed.
/// Threads: no other call may use the iterator any more.
/// Errors: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_iterator_free(iterator: *mut ziptier_iterator) {
    let _ = guarded(|| {
        if !iterator.is_null() {
            // SAFETY: this library made the box, and the caller gives it back.
            drop(unsafe { Box::from_raw(iterator) });
        }
        Ok(())
    });
}
