//! The allocator for tests of calls whose program has the library as a part of itself: the functions by their exported
//! names, and a process with options.

use std::env;
use std::ffi::{CStr, c_void};
use std::process::Command;

use crate::symbols::{c, cpp, jemalloc};

/// Says to this program that it has options for the test.
const CHILD: &str = "ZIPTIER_ALLOC_TEST_CHILD";

/// Runs the test `name` again, in a process with options, whose part is `body`.
pub(crate) fn in_child(name: &str, options: &str, body: fn()) {
    if env::var_os(CHILD).is_some() {
        return body();
    }
    let mut command = Command::new(env::current_exe().expect("the program of the test has a path"));
    command.args([name, "--exact", "--nocapture"]).env("ZIPTIER_ALLOC", options).env(CHILD, "1");
    let output = command.output().expect("the program of the test starts again");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}{errors}");
    assert!(output.status.success(), "{:?}", output.status);
    assert!(said.contains("1 passed"), "the child did not run {name}");
}

pub(crate) fn malloc(bytes: usize) -> usize {
    // SAFETY: nothing is given.
    unsafe { c::malloc(bytes) as usize }
}

/// Frees a block of [`malloc`].
pub(crate) fn free(block: usize) {
    // SAFETY: the tests give live blocks.
    unsafe { c::free(block as *mut c_void) }
}

/// The usable bytes of a live block.
pub(crate) fn usable(block: usize) -> usize {
    // SAFETY: the tests give live blocks.
    unsafe { c::malloc_usable_size(block as *const c_void) }
}

/// Returns the function of the name `$wanted`, if it is one of the names that follow.
macro_rules! return_named {
    ($wanted:ident; $($module:ident: $($name:ident)*;)*) => {$($(
        if $wanted == stringify!($name) {
            return $module::$name as *mut c_void;
        }
    )*)*};
}

/// A function of the library, by its exported name. A forked child may call this: it allocates nothing.
pub(crate) fn function(name: &CStr) -> *mut c_void {
    let wanted = name.to_str().expect("names are ASCII");
    return_named! {
        wanted;
        c: malloc calloc realloc reallocarray free free_sized free_aligned_sized posix_memalign aligned_alloc memalign
            valloc pvalloc malloc_usable_size malloc_trim __libc_malloc __libc_calloc __libc_realloc __libc_free
            __libc_memalign __libc_valloc __libc_pvalloc __posix_memalign cfree;
        jemalloc: mallocx rallocx xallocx sallocx dallocx sdallocx nallocx mallctl mallctlnametomib mallctlbymib
            malloc_stats_print;
        cpp: _Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZnwmSt11align_val_t _ZnamSt11align_val_t
            _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t _ZdlPv _ZdaPv _ZdlPvRKSt9nothrow_t
            _ZdaPvRKSt9nothrow_t _ZdlPvm _ZdaPvm _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t
            _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t _ZdlPvmSt11align_val_t
            _ZdaPvmSt11align_val_t;
    }
    panic!("{wanted} is missing")
}
