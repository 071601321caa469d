//! The functions of RocksDB's C API that are used, with the types that `rocksdb/c.h` of version 11.8 gives them.

use std::ffi::{c_char, c_int, c_uchar};

/// An object of RocksDB that is known only by its address.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub(super) struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque!(Db Options Table ReadOptions WriteOptions FlushOptions WaitOptions Iter Family Pinned Batch Cache WriteBuffers);
opaque!(PerfContext);

/// `rocksdb_slice_t`: bytes that somebody else owns.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Slice {
    pub(super) data: *const c_char,
    pub(super) size: usize,
}

/// The place for a function's error: null, or a string for `rocksdb_free`.
pub(super) type Status = *mut *mut c_char;

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, bound. They stay valid, since the library is never unloaded.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Binds every function of `library`, or names one that it lacks.
            pub(super) fn of(library: &libloading::os::unix::Library) -> Result<Self, String> {
                Ok(Functions {
                    // SAFETY: `rocksdb/c.h` declares the function with the type that the field has.
                    $($field: *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                        .map_err(|_| concat!("it has no function ", $name, ": RocksDB 11.8 is needed"))?,)*
                })
            }
        }
    };
}

functions! {
    options_create = "rocksdb_options_create": fn() -> *mut Options;
    options_destroy = "rocksdb_options_destroy": fn(*mut Options);
    options_from_string = "rocksdb_get_options_from_string": fn(*const Options, *const c_char, *mut Options, Status);
    options_set_table = "rocksdb_options_set_block_based_table_factory": fn(*mut Options, *mut Table);
    table_create = "rocksdb_block_based_options_create": fn() -> *mut Table;
    table_destroy = "rocksdb_block_based_options_destroy": fn(*mut Table);
    table_set_block_size = "rocksdb_block_based_options_set_block_size": fn(*mut Table, usize);
    table_set_no_block_cache = "rocksdb_block_based_options_set_no_block_cache": fn(*mut Table, c_uchar);
    table_set_cache = "rocksdb_block_based_options_set_block_cache": fn(*mut Table, *mut Cache);
    table_set_cache_indexes = "rocksdb_block_based_options_set_cache_index_and_filter_blocks": fn(*mut Table, c_uchar);
    table_set_index_type = "rocksdb_block_based_options_set_index_type": fn(*mut Table, c_int);
    cache_create = "rocksdb_cache_create_lru": fn(usize) -> *mut Cache;
    cache_destroy = "rocksdb_cache_destroy": fn(*mut Cache);
    cache_set_capacity = "rocksdb_cache_set_capacity": fn(*mut Cache, usize);
    cache_usage = "rocksdb_cache_get_usage": fn(*const Cache) -> usize;
    buffers_create = "rocksdb_write_buffer_manager_create_with_cache":
        fn(usize, *const Cache, bool) -> *mut WriteBuffers;
    buffers_destroy = "rocksdb_write_buffer_manager_destroy": fn(*mut WriteBuffers);
    buffers_set_size = "rocksdb_write_buffer_manager_set_buffer_size": fn(*mut WriteBuffers, usize);
    buffers_size = "rocksdb_write_buffer_manager_buffer_size": fn(*mut WriteBuffers) -> usize;
    buffers_unflushed = "rocksdb_write_buffer_manager_mutable_memtable_memory_usage": fn(*mut WriteBuffers) -> usize;
    buffers_usage = "rocksdb_write_buffer_manager_memory_usage": fn(*mut WriteBuffers) -> usize;
    options_set_buffers = "rocksdb_options_set_write_buffer_manager": fn(*mut Options, *mut WriteBuffers);
    open = "rocksdb_open": fn(*const Options, *const c_char, Status) -> *mut Db;
    close = "rocksdb_close": fn(*mut Db);
    default_family = "rocksdb_get_default_column_family_handle": fn(*mut Db) -> *mut Family;
    family_destroy = "rocksdb_column_family_handle_destroy": fn(*mut Family);
    read_options_create = "rocksdb_readoptions_create": fn() -> *mut ReadOptions;
    read_options_destroy = "rocksdb_readoptions_destroy": fn(*mut ReadOptions);
    read_options_set_bytes_at_once = "rocksdb_readoptions_set_value_size_soft_limit": fn(*mut ReadOptions, u64);
    read_options_set_fill_cache = "rocksdb_readoptions_set_fill_cache": fn(*mut ReadOptions, c_uchar);
    read_options_set_unprepared = "rocksdb_readoptions_set_allow_unprepared_value": fn(*mut ReadOptions, c_uchar);
    read_options_set_end = "rocksdb_readoptions_set_iterate_upper_bound": fn(*mut ReadOptions, *const c_char, usize);
    read_options_set_skipped_max = "rocksdb_readoptions_set_max_skippable_internal_keys": fn(*mut ReadOptions, u64);
    write_options_create = "rocksdb_writeoptions_create": fn() -> *mut WriteOptions;
    write_options_destroy = "rocksdb_writeoptions_destroy": fn(*mut WriteOptions);
    put = "rocksdb_put": fn(*mut Db, *const WriteOptions, *const c_char, usize, *const c_char, usize, Status);
    delete = "rocksdb_delete": fn(*mut Db, *const WriteOptions, *const c_char, usize, Status);
    batch_create = "rocksdb_writebatch_create": fn() -> *mut Batch;
    batch_destroy = "rocksdb_writebatch_destroy": fn(*mut Batch);
    batch_put = "rocksdb_writebatch_put": fn(*mut Batch, *const c_char, usize, *const c_char, usize);
    batch_delete = "rocksdb_writebatch_delete": fn(*mut Batch, *const c_char, usize);
    write = "rocksdb_write": fn(*mut Db, *const WriteOptions, *mut Batch, Status);
    delete_range = "rocksdb_delete_range_cf":
        fn(*mut Db, *const WriteOptions, *mut Family, *const c_char, usize, *const c_char, usize, Status);
    flush_log = "rocksdb_flush_wal": fn(*mut Db, c_uchar, Status);
    latest_sequence = "rocksdb_get_latest_sequence_number": fn(*mut Db) -> u64;
    get_pinned = "rocksdb_get_pinned": fn(*mut Db, *const ReadOptions, *const c_char, usize, Status) -> *mut Pinned;
    get_into_buffer = "rocksdb_get_into_buffer":
        fn(*mut Db, *const ReadOptions, *const c_char, usize, *mut c_char, usize, *mut usize, *mut c_uchar, Status)
            -> c_uchar;
    multi_get = "rocksdb_batched_multi_get_cf_slice":
        fn(*mut Db, *const ReadOptions, *mut Family, usize, *const Slice, *mut *mut Pinned, *mut *mut c_char, bool);
    pinned_value = "rocksdb_pinnableslice_value": fn(*const Pinned, *mut usize) -> *const c_char;
    pinned_destroy = "rocksdb_pinnableslice_destroy": fn(*mut Pinned);
    iterator = "rocksdb_create_iterator": fn(*mut Db, *const ReadOptions) -> *mut Iter;
    iter_destroy = "rocksdb_iter_destroy": fn(*mut Iter);
    iter_seek = "rocksdb_iter_seek": fn(*mut Iter, *const c_char, usize);
    iter_seek_to_last = "rocksdb_iter_seek_to_last": fn(*mut Iter);
    iter_valid = "rocksdb_iter_valid": fn(*const Iter) -> c_uchar;
    iter_next = "rocksdb_iter_next": fn(*mut Iter);
    iter_key = "rocksdb_iter_key": fn(*const Iter, *mut usize) -> *const c_char;
    iter_value = "rocksdb_iter_value": fn(*const Iter, *mut usize) -> *const c_char;
    iter_error = "rocksdb_iter_get_error": fn(*const Iter, Status);
    perf_create = "rocksdb_perfcontext_create": fn() -> *mut PerfContext;
    perf_destroy = "rocksdb_perfcontext_destroy": fn(*mut PerfContext);
    perf_metric = "rocksdb_perfcontext_metric": fn(*mut PerfContext, c_int) -> u64;
    flush_options_create = "rocksdb_flushoptions_create": fn() -> *mut FlushOptions;
    flush_options_destroy = "rocksdb_flushoptions_destroy": fn(*mut FlushOptions);
    flush_options_set_wait = "rocksdb_flushoptions_set_wait": fn(*mut FlushOptions, c_uchar);
    flush_options_set_stall = "rocksdb_flushoptions_set_allow_write_stall": fn(*mut FlushOptions, c_uchar);
    flush = "rocksdb_flush": fn(*mut Db, *const FlushOptions, Status);
    compact_range = "rocksdb_compact_range": fn(*mut Db, *const c_char, usize, *const c_char, usize);
    wait_options_create = "rocksdb_wait_for_compact_options_create": fn() -> *mut WaitOptions;
    wait_options_destroy = "rocksdb_wait_for_compact_options_destroy": fn(*mut WaitOptions);
    wait_for_compact = "rocksdb_wait_for_compact": fn(*mut Db, *mut WaitOptions, Status);
    property = "rocksdb_property_value": fn(*mut Db, *const c_char) -> *mut c_char;
    property_number = "rocksdb_property_int": fn(*mut Db, *const c_char, *mut u64) -> c_int;
    free = "rocksdb_free": fn(*mut std::ffi::c_void);
}
