//! `operator new` and `operator delete`, by the names of the Itanium ABI.
//!
//! C++ wants that a failing `operator new` calls the handler that the program set, as often as it fails, and throws
//! `std::bad_alloc` without a handler. Both come from the C++ library of the process: its `std::get_new_handler` and
//! `std::__throw_bad_alloc` are looked up then. A process that has neither cannot catch an exception, so the library
//! says what happened and aborts.
//!
//! The forms that return null must not let an exception of the handler pass. libstdc++'s forms catch it, around a call
//! of the form that throws, so they take over where memory is short.

use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use tikv_jemalloc_sys::MALLOCX_ALIGN;

use crate::heap;
use crate::start::say;

type Handler = unsafe extern "C-unwind" fn();

/// Stands for the alignment of `malloc`.
const USUAL: usize = 1;

#[inline(always)]
unsafe fn allocate(bytes: usize, alignment: usize) -> *mut c_void {
    // SAFETY: nothing is given.
    unsafe {
        if alignment == USUAL { heap::allocate(bytes) } else { heap::allocate_aligned(alignment, bytes) }
    }
}

#[inline(always)]
unsafe fn new(bytes: usize, alignment: usize) -> *mut c_void {
    // SAFETY: nothing is given.
    unsafe {
        let block = allocate(bytes, alignment);
        if block.is_null() { insist(bytes, alignment) } else { block }
    }
}

/// Allocates until there is a block. An exception of the handler, or `std::bad_alloc`, passes through.
#[cold]
unsafe fn insist(bytes: usize, alignment: usize) -> *mut c_void {
    loop {
        // SAFETY: nothing is given but the program's own handler.
        unsafe {
            let Some(handler) = handler() else { throw() };
            handler();
            let block = allocate(bytes, alignment);
            if !block.is_null() {
                return block;
            }
        }
    }
}

/// The handler that the program set.
unsafe fn handler() -> Option<Handler> {
    type GetNewHandler = unsafe extern "C" fn() -> Option<Handler>;
    let found = look_up(libc::RTLD_DEFAULT, c"_ZSt15get_new_handlerv")?;
    // SAFETY: the name belongs to a function of this type.
    unsafe { transmute::<*mut c_void, GetNewHandler>(found)() }
}

unsafe fn throw() -> ! {
    if let Some(found) = look_up(libc::RTLD_DEFAULT, c"_ZSt17__throw_bad_allocv") {
        // SAFETY: the name belongs to a function of this type.
        unsafe { transmute::<*mut c_void, unsafe extern "C-unwind" fn() -> !>(found)() }
    }
    say(format_args!("operator new found no memory, and the process has no std::bad_alloc to throw"));
    // SAFETY: the call takes nothing.
    unsafe { libc::abort() }
}

fn look_up(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// libstdc++'s function of this name, if the process has that library.
fn libstdcpp(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string, and nothing is loaded.
    let library = unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() { None } else { look_up(library, name) }
}

#[cold]
unsafe fn insist_or_null(name: &CStr, bytes: usize, tag: *const c_void) -> *mut c_void {
    let Some(found) = libstdcpp(name) else { return null_mut() };
    // SAFETY: the names that are given belong to functions of this type.
    unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(usize, *const c_void) -> *mut c_void>(found)(bytes, tag)
    }
}

#[cold]
unsafe fn insist_aligned_or_null(
    name: &CStr,
    bytes: usize,
    alignment: usize,
    tag: *const c_void,
) -> *mut c_void {
    type AlignedNew = unsafe extern "C" fn(usize, usize, *const c_void) -> *mut c_void;
    let Some(found) = libstdcpp(name) else { return null_mut() };
    // SAFETY: the names that are given belong to functions of this type.
    unsafe { transmute::<*mut c_void, AlignedNew>(found)(bytes, alignment, tag) }
}

/// The forms of `new` and of `new[]` have the same code.
macro_rules! operators_new {
    ($($plain:ident, $or_null:ident = $or_null_name:literal, $aligned:ident, $aligned_or_null:ident =
        $aligned_or_null_name:literal;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $plain(bytes: usize) -> *mut c_void {
            // SAFETY: nothing is given.
            unsafe { new(bytes, USUAL) }
        }

        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $or_null(bytes: usize, tag: *const c_void) -> *mut c_void {
            // SAFETY: the tag is the caller's, for a function of the same type.
            unsafe {
                let block = heap::allocate(bytes);
                if block.is_null() { insist_or_null($or_null_name, bytes, tag) } else { block }
            }
        }

        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $aligned(bytes: usize, alignment: usize) -> *mut c_void {
            // SAFETY: nothing is given.
            unsafe { new(bytes, alignment) }
        }

        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $aligned_or_null(
            bytes: usize,
            alignment: usize,
            tag: *const c_void,
        ) -> *mut c_void {
            // SAFETY: the tag is the caller's, for a function of the same type.
            unsafe {
                let block = heap::allocate_aligned(alignment, bytes);
                if !block.is_null() {
                    return block;
                }
                insist_aligned_or_null($aligned_or_null_name, bytes, alignment, tag)
            }
        }
    )*};
}

operators_new! {
    _Znwm, _ZnwmRKSt9nothrow_t = c"_ZnwmRKSt9nothrow_t",
        _ZnwmSt11align_val_t, _ZnwmSt11align_val_tRKSt9nothrow_t = c"_ZnwmSt11align_val_tRKSt9nothrow_t";
    _Znam, _ZnamRKSt9nothrow_t = c"_ZnamRKSt9nothrow_t",
        _ZnamSt11align_val_t, _ZnamSt11align_val_tRKSt9nothrow_t = c"_ZnamSt11align_val_tRKSt9nothrow_t";
}

/// The forms of `delete` and of `delete[]` have the same code.
macro_rules! operators_delete {
    ($($name:ident($($more:ident: $type:ty),*) = $free:expr;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name(block: *mut c_void $(, $more: $type)*) {
            let free: unsafe fn(*mut c_void $(, $type)*) = $free;
            // SAFETY: it is the caller's.
            unsafe { free(block $(, $more)*) }
        }
    )*};
}

unsafe fn free_tagged(block: *mut c_void, _: *const c_void) {
    // SAFETY: it is the caller's.
    unsafe { heap::free(block) }
}

unsafe fn free_aligned(block: *mut c_void, _: usize) {
    // SAFETY: it is the caller's.
    unsafe { heap::free(block) }
}

unsafe fn free_aligned_tagged(block: *mut c_void, _: usize, _: *const c_void) {
    // SAFETY: it is the caller's.
    unsafe { heap::free(block) }
}

unsafe fn free_sized(block: *mut c_void, bytes: usize) {
    // SAFETY: it is the caller's.
    unsafe { heap::free_sized(block, bytes, 0) }
}

unsafe fn free_sized_aligned(block: *mut c_void, bytes: usize, alignment: usize) {
    // SAFETY: it is the caller's.
    unsafe { heap::free_sized(block, bytes, MALLOCX_ALIGN(alignment)) }
}

operators_delete! {
    _ZdlPv() = heap::free;
    _ZdaPv() = heap::free;
    _ZdlPvRKSt9nothrow_t(tag: *const c_void) = free_tagged;
    _ZdaPvRKSt9nothrow_t(tag: *const c_void) = free_tagged;
    _ZdlPvSt11align_val_t(alignment: usize) = free_aligned;
    _ZdaPvSt11align_val_t(alignment: usize) = free_aligned;
    _ZdlPvSt11align_val_tRKSt9nothrow_t(alignment: usize, tag: *const c_void) = free_aligned_tagged;
    _ZdaPvSt11align_val_tRKSt9nothrow_t(alignment: usize, tag: *const c_void) = free_aligned_tagged;
    _ZdlPvm(bytes: usize) = free_sized;
    _ZdaPvm(bytes: usize) = free_sized;
    _ZdlPvmSt11align_val_t(bytes: usize, alignment: usize) = free_sized_aligned;
    _ZdaPvmSt11align_val_t(bytes: usize, alignment: usize) = free_sized_aligned;
}
