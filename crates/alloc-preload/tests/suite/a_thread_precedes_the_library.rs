//! Constructors of other libraries may start threads before the library starts. A start that gave up beside the work of
//! such a thread would leave the program without its options and without figures until its end.
//!
//! Here, the thread gives jemalloc a command. Nobody can read the value of the command until the library waits, or has
//! started.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{transmute, zeroed};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::support::{
    end_after_five_minutes, free, function, in_child_with, is_first_thread_asleep, malloc, page_of,
};

/// Says to this program that it starts the thread.
const THREAD: &str = "ZIPTIER_ALLOC_TEST_THREAD";

const PAGE_BYTES: usize = 4096;

/// The address of the command's value.
static VALUE: AtomicUsize = AtomicUsize::new(0);
/// Whether the command waits for its value.
static IS_WAITING: AtomicBool = AtomicBool::new(false);
/// Whether the library has started.
static HAS_STARTED: AtomicBool = AtomicBool::new(false);

/// Goes before the library's constructor, and gets the arguments and the environment.
// SAFETY: the section holds pointers to functions of this type.
#[unsafe(link_section = ".preinit_array")]
#[used]
static BEFORE_LIBRARY: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = precede;

unsafe extern "C" fn precede(_: c_int, _: *const *const c_char, mut environment: *const *const c_char) {
    // SAFETY: the environment is an array of C strings with null at its end. The calls take numbers, pointers to local
    // variables, or functions of these types. All zeros is a valid action.
    unsafe {
        let is_wanted =
            |variable: *const c_char| CStr::from_ptr(variable).to_bytes().starts_with(THREAD.as_bytes());
        while !(*environment).is_null() && !is_wanted(*environment) {
            environment = environment.add(1);
        }
        if (*environment).is_null() {
            return;
        }
        end_after_five_minutes();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let value = libc::mmap(null_mut(), PAGE_BYTES, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(value, libc::MAP_FAILED);
        VALUE.store(value as usize, SeqCst);
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = hold as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, null_mut()), 0);
        let mut thread = 0;
        assert_eq!(libc::pthread_create(&mut thread, null(), command, null_mut()), 0);
        while !IS_WAITING.load(SeqCst) {
            std::thread::yield_now();
        }
    }
}

extern "C" fn command(_: *mut c_void) -> *mut c_void {
    type Mallctl =
        unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *const c_void, usize) -> c_int;
    // SAFETY: `mallctl` has this type, and reads one byte.
    unsafe {
        let mallctl = transmute::<*mut c_void, Mallctl>(function(c"mallctl"));
        let value = VALUE.load(SeqCst) as *const c_void;
        mallctl(c"thread.tcache.enabled".as_ptr(), null_mut(), null_mut(), value, 1);
    }
    null_mut()
}

/// Stops the command at its value. The first thread runs the constructors.
extern "C" fn hold(_: c_int) {
    IS_WAITING.store(true, SeqCst);
    while !HAS_STARTED.load(SeqCst) && !is_first_thread_asleep() {
        std::thread::yield_now();
    }
    // SAFETY: the mapping is that of the value.
    unsafe { libc::mprotect(VALUE.load(SeqCst) as *mut c_void, PAGE_BYTES, libc::PROT_READ) };
}

fn look_for_ticks() {
    HAS_STARTED.store(true, SeqCst);
    assert!(IS_WAITING.load(SeqCst), "no thread was there before the library");
    let page = page_of(std::process::id());
    let ticks = page.told.ticks.load(Relaxed);
    (0..64).for_each(|_| free(malloc(1 << 20)));
    assert!(page.told.ticks.load(Relaxed) > ticks, "the library has not started");
}

#[test]
fn and_gives_jemalloc_a_command() {
    let with_thread = |command: &mut std::process::Command| {
        command.env(THREAD, "1");
    };
    let name = "a_thread_precedes_the_library::and_gives_jemalloc_a_command";
    in_child_with(name, "ratio=1:3,far=simulated", with_thread, look_for_ticks);
}
