//! Memory that several databases share: one block cache, in which their memtables count.

use std::ptr::NonNull;

use super::calls::made;
use super::functions::{Cache, Functions, WriteBuffers};
use super::library::Library;

/// Memtables get one part in this many of the memory.
const WRITE_PART: usize = 4;

/// A block cache and a bound on memtables, shared by all databases that are opened with it.
#[derive(Debug)]
pub struct Memory {
    functions: &'static Functions,
    cache: NonNull<Cache>,
    buffers: NonNull<WriteBuffers>,
}

// SAFETY: RocksDB locks both objects itself, so any thread may use or free them.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Returns to the system what RocksDB freed. Its allocator, that of the C library, keeps 10 to 40 MB of the memory that
/// a load needed, and each time another amount.
pub fn return_freed_memory() {
    // SAFETY: it takes a number, and locks what it changes.
    unsafe { libc::malloc_trim(0) };
}

impl Memory {
    /// Makes a block cache of `bytes`, of which memtables may take a quarter. Memtables are flushed beyond that.
    pub fn new(library: &'static Library, bytes: usize) -> Self {
        let functions = &library.functions;
        // SAFETY: each call gives an object that is ours; the second shares the cache.
        let (cache, buffers) = unsafe {
            let cache = made((functions.cache_create)(bytes));
            (cache, made((functions.buffers_create)(bytes / WRITE_PART, cache.as_ptr(), false)))
        };
        Self { functions, cache, buffers }
    }

    pub(super) fn cache(&self) -> *mut Cache {
        self.cache.as_ptr()
    }

    pub(super) fn buffers(&self) -> *mut WriteBuffers {
        self.buffers.as_ptr()
    }

    /// Changes the size. Blocks beyond it leave at once, and memtables are flushed by the next writes.
    pub fn set_bytes(&self, bytes: usize) {
        // SAFETY: both objects are alive.
        unsafe {
            (self.functions.cache_set_capacity)(self.cache.as_ptr(), bytes);
            (self.functions.buffers_set_size)(self.buffers.as_ptr(), (bytes / WRITE_PART).max(1));
        }
    }

    /// Bytes of cached blocks and memtables.
    pub fn used_bytes(&self) -> usize {
        // SAFETY: the cache is alive.
        unsafe { (self.functions.cache_usage)(self.cache.as_ptr()) }
    }

    /// Memtables for which no flush has begun, as a share of what memtables may take. RocksDB begins flushes by itself
    /// at 7/8: of the database that is written to, whatever the others hold.
    pub fn unflushed_share(&self) -> f64 {
        // SAFETY: the object is alive.
        let bytes = unsafe { (self.functions.buffers_unflushed)(self.buffers.as_ptr()) };
        bytes as f64 / self.memtable_bytes_max().max(1) as f64
    }

    /// Bytes that memtables may take. RocksDB flushes at that bound, and stops no writer there.
    pub fn memtable_bytes_max(&self) -> usize {
        // SAFETY: the object is alive.
        unsafe { (self.functions.buffers_size)(self.buffers.as_ptr()) }
    }

    /// The part of them that memtables take.
    pub fn memtable_bytes(&self) -> usize {
        // SAFETY: the object is alive.
        unsafe { (self.functions.buffers_usage)(self.buffers.as_ptr()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: both are ours; databases have shares of their own in what they stand for.
        unsafe {
            (self.functions.buffers_destroy)(self.buffers.as_ptr());
            (self.functions.cache_destroy)(self.cache.as_ptr());
        }
    }
}
