//! The `malloc` family.
//!
//! Safety, for every function here: blocks that are given are null or live and from this library, as C wants it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use tikv_jemalloc_sys::MALLOCX_ALIGN;

use crate::heap::{self, set_errno};
use crate::{sizes, statistics};

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: nothing is given.
    unsafe { heap::allocate(bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: nothing is given.
        Some(bytes) => unsafe { heap::allocate_zeroed(bytes) },
        None => no_memory(),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: it is the caller's.
    unsafe { heap::reallocate(block, bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: it is the caller's.
        Some(bytes) => unsafe { heap::reallocate(block, bytes) },
        None => no_memory(),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: it is the caller's.
    unsafe { heap::free(block) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn free_sized(block: *mut c_void, bytes: usize) {
    // SAFETY: it is the caller's.
    unsafe { heap::free_sized(block, bytes, 0) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn free_aligned_sized(block: *mut c_void, alignment: usize, bytes: usize) {
    // SAFETY: it is the caller's.
    unsafe { heap::free_sized(block, bytes, MALLOCX_ALIGN(alignment)) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    // SAFETY: `out` takes a pointer. The function leaves `errno` alone.
    unsafe {
        let error = *libc::__errno_location();
        let block = heap::allocate_aligned(alignment, bytes);
        set_errno(error);
        if block.is_null() {
            return libc::ENOMEM;
        }
        *out = block;
    }
    0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    if !alignment.is_power_of_two() {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    // SAFETY: nothing is given.
    unsafe { heap::allocate_aligned(alignment, bytes) }
}

/// glibc rounds an alignment that is no power of two up to one.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    match alignment.checked_next_power_of_two() {
        // SAFETY: nothing is given.
        Some(alignment) => unsafe { heap::allocate_aligned(alignment, bytes) },
        None => no_memory(),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn valloc(bytes: usize) -> *mut c_void {
    // SAFETY: nothing is given.
    unsafe { heap::allocate_aligned(page_bytes(), bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.max(1).checked_next_multiple_of(page_bytes()) {
        // SAFETY: nothing is given.
        Some(bytes) => unsafe { heap::allocate_aligned(page_bytes(), bytes) },
        None => no_memory(),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn malloc_usable_size(block: *const c_void) -> usize {
    // SAFETY: it is the caller's.
    unsafe { sizes::usable(block) }
}

/// Gives free pages of both media back.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn malloc_trim(_: usize) -> c_int {
    statistics::purge().into()
}

fn page_bytes() -> usize {
    // SAFETY: the call reads nothing of ours.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

fn no_memory() -> *mut c_void {
    set_errno(libc::ENOMEM);
    null_mut()
}

/// glibc's other names of the family, which some programs call.
macro_rules! aliases {
    ($($alias:ident = $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $alias($($argument: $type),*) $(-> $result)? {
            // SAFETY: it is the caller's.
            unsafe { $name($($argument),*) }
        }
    )*};
}

aliases! {
    __libc_malloc = malloc(bytes: usize) -> *mut c_void;
    __libc_calloc = calloc(count: usize, bytes: usize) -> *mut c_void;
    __libc_realloc = realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    __libc_free = free(block: *mut c_void);
    __libc_memalign = memalign(alignment: usize, bytes: usize) -> *mut c_void;
    __libc_valloc = valloc(bytes: usize) -> *mut c_void;
    __libc_pvalloc = pvalloc(bytes: usize) -> *mut c_void;
    __posix_memalign = posix_memalign(out: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int;
    cfree = free(block: *mut c_void);
}
