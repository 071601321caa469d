//! jemalloc's own functions, by the names that a jemalloc without prefix has.
//!
//! Both media are arenas of one jemalloc, so its statistics and its commands are those of the whole heap. A caller that
//! names an arena or a cache gets what it names. A caller that only wants no cache, such as active defragmentation in
//! Redis 8, leaves the medium to the policy.
//!
//! No tick runs during a call that gives jemalloc a value: see [`tick::without_ticks`].
//!
//! `experimental.batch_alloc` is refused, because its blocks would come without their sizes in [`crate::sizes`].
//!
//! Safety, for every function here: the arguments are what jemalloc's manual wants.

use std::ffi::{CStr, c_char, c_int, c_void};

use tikv_jemalloc_sys as jemalloc;
use tikv_jemalloc_sys::MALLOCX_TCACHE_NONE;

use crate::thread::Thread;
use crate::{heap, sizes, tick};

/// The bits of flags that say whether there is a cache, and name a cache or an arena.
const CACHE_OR_ARENA: c_int = !0xff;

/// The bits of flags that name a cache or an arena: each name has one besides [`MALLOCX_TCACHE_NONE`].
const NAMED: c_int = CACHE_OR_ARENA & !MALLOCX_TCACHE_NONE;

const BATCH_ALLOC: &CStr = c"experimental.batch_alloc";

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mallocx(bytes: usize, flags: c_int) -> *mut c_void {
    // SAFETY: it is the caller's.
    unsafe {
        if flags & NAMED == 0 {
            return heap::allocate_with(bytes, flags);
        }
        Thread::count_unplaced(Thread::current(), bytes);
        let block = jemalloc::mallocx(bytes, flags);
        sizes::set_by_usable_size(block);
        block
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn rallocx(block: *mut c_void, bytes: usize, flags: c_int) -> *mut c_void {
    // SAFETY: it is the caller's.
    unsafe {
        if flags & NAMED == 0 {
            return heap::reallocate_with(block, bytes, flags);
        }
        Thread::count_unplaced(Thread::current(), bytes);
        let resized = jemalloc::rallocx(block, bytes, flags);
        sizes::set_by_usable_size(resized);
        resized
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn xallocx(
    block: *mut c_void,
    bytes: usize,
    extra: usize,
    flags: c_int,
) -> usize {
    // SAFETY: it is the caller's. The block stays where it is.
    unsafe {
        let before = sizes::usable(block);
        let usable = jemalloc::xallocx(block, bytes, extra, flags);
        sizes::set(block, usable);
        Thread::count_unplaced(Thread::current(), usable.saturating_sub(before));
        usable
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sallocx(block: *const c_void, _: c_int) -> usize {
    // SAFETY: it is the caller's.
    unsafe { sizes::usable(block) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dallocx(block: *mut c_void, flags: c_int) {
    // SAFETY: it is the caller's.
    unsafe { if flags & CACHE_OR_ARENA == 0 { heap::free(block) } else { jemalloc::dallocx(block, flags) } }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sdallocx(block: *mut c_void, bytes: usize, flags: c_int) {
    // SAFETY: it is the caller's.
    unsafe {
        if flags & CACHE_OR_ARENA == 0 {
            heap::free_sized(block, bytes, flags);
        } else {
            jemalloc::sdallocx(block, bytes, flags);
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn nallocx(bytes: usize, flags: c_int) -> usize {
    // SAFETY: it is the caller's.
    unsafe { jemalloc::nallocx(bytes, flags) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mallctl(
    name: *const c_char,
    old: *mut c_void,
    old_len: *mut usize,
    new: *mut c_void,
    new_len: usize,
) -> c_int {
    // SAFETY: it is the caller's.
    unsafe {
        if CStr::from_ptr(name) == BATCH_ALLOC {
            return libc::ENOENT;
        }
        with_value(new, || jemalloc::mallctl(name, old, old_len, new, new_len))
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mallctlnametomib(
    name: *const c_char,
    mib: *mut usize,
    mib_len: *mut usize,
) -> c_int {
    // SAFETY: it is the caller's.
    unsafe {
        if CStr::from_ptr(name) == BATCH_ALLOC {
            return libc::ENOENT;
        }
        jemalloc::mallctlnametomib(name, mib, mib_len)
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mallctlbymib(
    mib: *const usize,
    mib_len: usize,
    old: *mut c_void,
    old_len: *mut usize,
    new: *mut c_void,
    new_len: usize,
) -> c_int {
    // SAFETY: it is the caller's.
    unsafe { with_value(new, || jemalloc::mallctlbymib(mib, mib_len, old, old_len, new, new_len)) }
}

/// Calls jemalloc with a value, or with none. Only a value has jemalloc start or join threads.
fn with_value(value: *mut c_void, call: impl FnOnce() -> c_int) -> c_int {
    if value.is_null() { call() } else { tick::without_ticks(call) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn malloc_stats_print(
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
    opaque: *mut c_void,
    options: *const c_char,
) {
    // SAFETY: it is the caller's.
    unsafe { jemalloc::malloc_stats_print(write, opaque, options) }
}
