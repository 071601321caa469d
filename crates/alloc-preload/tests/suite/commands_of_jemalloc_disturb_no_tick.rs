//! A program may switch jemalloc's background threads and make arenas of its own, as a stock Redis does. jemalloc holds
//! its locks meanwhile, and a tick that asks jemalloc for figures inside such a call would wait for itself.

use std::ffi::c_void;
use std::mem::transmute;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use ziptier_alloc::configuration::{Configuration, Policy};

use crate::support::{end_after_five_minutes, free, function, in_child_with, mallctl, malloc, page_of};

/// A pair of switches starts and joins a thread. glibc allocates a few hundred bytes for the thread.
const PAIRS: usize = 4000;

/// glibc keeps the memory of ended threads by default, and allocates nothing for the next ones.
fn without_stack_cache(command: &mut Command) {
    command.env("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=0");
}

fn switch() {
    for _ in 0..PAIRS {
        mallctl(c"background_thread", 0_u8, Some(1));
        mallctl(c"background_thread", 0_u8, Some(0));
    }
}

/// The calls of `switch` are the only allocations, so one of them completes each step.
fn switch_often() {
    end_after_five_minutes();
    let page = page_of(std::process::id());
    switch();
    let ticks = page.told.ticks.load(Relaxed);
    free(malloc(1 << 20));
    assert!(page.told.ticks.load(Relaxed) > ticks, "ticks go on after the switches");
}

#[test]
fn by_background_threads() {
    let name = "commands_of_jemalloc_disturb_no_tick::by_background_threads";
    in_child_with(name, "ratio=1:3", without_stack_cache, switch_often);
}

extern "C" fn switch_first(_: *mut c_void) -> *mut c_void {
    mallctl(c"background_thread", 0_u8, Some(1));
    mallctl(c"background_thread", 0_u8, Some(0));
    null_mut()
}

/// A thread whose first far block is one of a switch would have an arena made. Until then only this thread has one.
fn switch_in_new_threads() {
    end_after_five_minutes();
    let page = page_of(std::process::id());
    let wanted = Configuration { policy: Policy::OnlyFar, tables_in_dram: false, ..Configuration::DEFAULT };
    let changes = page.want(&wanted);
    (0..64).for_each(|_| free(malloc(1 << 20)));
    assert_eq!(page.applied.load(Relaxed), changes);
    for _ in 0..8 {
        let mut thread = 0;
        // SAFETY: the function takes nothing, and the thread is joined.
        unsafe {
            assert_eq!(libc::pthread_create(&mut thread, null_mut(), switch_first, null_mut()), 0);
            assert_eq!(libc::pthread_join(thread, null_mut()), 0);
        }
    }
}

#[test]
fn in_threads_without_an_arena() {
    let name = "commands_of_jemalloc_disturb_no_tick::in_threads_without_an_arena";
    in_child_with(name, "policy=only-dram", without_stack_cache, switch_in_new_threads);
}

fn destroy() {
    type WithFlags = unsafe extern "C" fn(usize, i32) -> usize;
    let arena = mallctl(c"arenas.create", 0_u32, None);
    // SAFETY: the function has this type. The flags name the arena, and no cache.
    let block = unsafe {
        let mallocx: WithFlags = transmute::<*mut c_void, _>(function(c"mallocx"));
        mallocx(1 << 20, (arena as i32 + 1) << 20 | 0x100)
    };
    assert_ne!(block, 0);
    let sum_up = || (0..64).for_each(|_| free(malloc(1 << 20)));
    sum_up();
    let name = std::ffi::CString::new(format!("arena.{arena}.destroy")).unwrap();
    type Mallctl =
        unsafe extern "C" fn(*const i8, *mut c_void, *mut usize, *mut c_void, usize) -> std::ffi::c_int;
    // SAFETY: `mallctl` has this type, and reads and writes nothing. No block of the arena is used from here.
    unsafe {
        let mallctl: Mallctl = transmute::<*mut c_void, _>(function(c"mallctl"));
        assert_eq!(mallctl(name.as_ptr().cast(), null_mut(), null_mut(), null_mut(), 0), 0);
    }
    sum_up();
}

/// jemalloc unmaps what it knows of a destroyed arena, the count of its pages included.
#[test]
fn by_an_arena_that_is_destroyed() {
    let name = "commands_of_jemalloc_disturb_no_tick::by_an_arena_that_is_destroyed";
    let without_retain = |command: &mut Command| {
        command.env("_RJEM_MALLOC_CONF", "retain:false");
    };
    in_child_with(name, "ratio=1:3", without_retain, destroy);
}
