//! The functions that the classes of the block cache on disk call.

use super::{bytes, guarded, path_of, text, write_message};
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;
use ziptier_rocksdb::cache::{Cache, CacheError, Kind, Settings};

/// # Safety
///
/// The strings are C strings; `error_bytes` bytes may be written at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_cache_open(
    path: *const c_char,
    capacity_bytes: u64,
    codec: *const c_char,
    admission: *const c_char,
    direct: bool,
    buffer_bytes: usize,
    error: *mut c_char,
    error_bytes: usize,
) -> *const Cache {
    let opened = guarded(Err("opening the cache panicked".to_owned()), || {
        // SAFETY: the caller's promise.
        let (path, codec, admission) = unsafe { (path_of(path), text(codec), text(admission)) };
        let open = || -> Result<_, CacheError> {
            let mut settings = Settings { direct, buffer_bytes, ..Settings::new(path, capacity_bytes) };
            settings.set("codec", &codec)?;
            settings.set("admission", &admission)?;
            Cache::open_shared(&settings)
        };
        open().map_err(|error| error.to_string())
    });
    match opened {
        Ok(cache) => Arc::into_raw(cache),
        Err(reason) => {
            // SAFETY: the caller's promise.
            unsafe { write_message(&reason, error, error_bytes) };
            ptr::null()
        }
    }
}

/// # Safety
///
/// `cache` is open, and is not used after this.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_cache_close(cache: *const Cache) {
    // SAFETY: the caller's promise.
    guarded((), || drop(unsafe { Arc::from_raw(cache) }));
}

/// # Safety
///
/// `cache` is open; `key_bytes` bytes may be read at `key`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_cache_wants(
    cache: *const Cache,
    key: *const c_char,
    key_bytes: usize,
    force: bool,
) -> bool {
    // SAFETY: the caller's promise.
    let (cache, key) = unsafe { (&*cache, bytes(key, key_bytes)) };
    guarded(false, || cache.wants(key, force))
}

/// # Safety
///
/// `cache` is open; `key_bytes` bytes may be read at `key`, and `block_bytes` at `block`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_cache_put(
    cache: *const Cache,
    key: *const c_char,
    key_bytes: usize,
    compression: u8,
    tier: u8,
    role: u8,
    block: *const c_char,
    block_bytes: usize,
) -> bool {
    // SAFETY: the caller's promise.
    let (cache, key, block) = unsafe { (&*cache, bytes(key, key_bytes), bytes(block, block_bytes)) };
    guarded(false, || cache.put(key, Kind { compression, tier, role }, block))
}

/// The function that takes a block: the caller's state, the block and its length, its compression and its tier.
type Take = unsafe extern "C" fn(*mut c_void, *const c_char, usize, u8, u8);

/// # Safety
///
/// `cache` is open; `key_bytes` bytes may be read at `key`; `take` may be called with `state` and a block that is gone
/// when it returns.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_cache_get(
    cache: *const Cache,
    key: *const c_char,
    key_bytes: usize,
    take: Take,
    state: *mut c_void,
) -> bool {
    // SAFETY: the caller's promise.
    let (cache, key) = unsafe { (&*cache, bytes(key, key_bytes)) };
    let found = guarded(None, || {
        cache.get(key, |kind, block| {
            // SAFETY: the caller's promise.
            unsafe { take(state, block.as_ptr().cast(), block.len(), kind.compression, kind.tier) }
        })
    });
    found.is_some()
}

/// # Safety
///
/// `cache` is open; `key_bytes` bytes may be read at `key`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_cache_remove(cache: *const Cache, key: *const c_char, key_bytes: usize) {
    // SAFETY: the caller's promise.
    let (cache, key) = unsafe { (&*cache, bytes(key, key_bytes)) };
    guarded((), || cache.remove(key));
}
