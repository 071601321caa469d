//! A forked child has a snapshot of both media, and a page of its own. What it does shows in no figure of its parent.

use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicUsize};
use std::time::Duration;

use ziptier_alloc::configuration::{Configuration, Policy};
use ziptier_alloc::page::SharedPage;
use ziptier_testing::until;

use crate::support::{
    arena_of, end_after_five_minutes, far_range, fork, fork_barely, free, in_child, mallctl, malloc, page_of,
};

const MB: usize = 1 << 20;

/// Live bytes by medium after a tick that has told everything.
fn live_bytes(page: &SharedPage) -> [u64; 2] {
    let ticks = page.told.ticks.load(Relaxed);
    std::thread::sleep(Duration::from_millis(150));
    // One block at a time, so that a step is completed and nothing stays.
    (0..4 * MB / 4096).for_each(|_| free(malloc(4096)));
    assert!(page.told.ticks.load(Relaxed) > ticks);
    page.told.media.each_ref().map(|medium| medium.live_bytes.load(Relaxed))
}

/// Allocates in a child that `fork` makes.
fn allocate_in(fork: fn(fn() -> bool)) {
    let own = page_of(std::process::id());
    let blocks: Vec<usize> = (0..32 * MB / 4096).map(|_| malloc(4096)).collect();
    let before = live_bytes(&own);
    let (ticks, pid) = (own.told.ticks.load(Relaxed), own.pid.load(Relaxed));
    fork(|| {
        let more: Vec<usize> = (0..64 * MB / 4096).map(|_| malloc(4096)).collect();
        let page = page_of(std::process::id());
        let is_own = page.pid.load(Relaxed) == std::process::id();
        let [dram, far] = live_bytes(&page);
        let has_ratio = (2.7..3.3).contains(&(far as f64 / dram as f64));
        more.into_iter().for_each(free);
        is_own && has_ratio && dram + far > 96 * MB as u64
    });
    assert_eq!((own.told.ticks.load(Relaxed), own.pid.load(Relaxed)), (ticks, pid));
    let after = live_bytes(&own);
    let grown = after.iter().sum::<u64>() as f64 - before.iter().sum::<u64>() as f64;
    assert!(grown.abs() < 1e6, "{before:?}, {after:?}");
    blocks.into_iter().for_each(free);
}

#[test]
fn by_figures() {
    in_child("forks_disturb_nobody::by_figures", "ratio=1:3", || allocate_in(|child| fork(child, |_| {})));
}

#[test]
fn by_figures_after_a_bare_system_call() {
    let name = "forks_disturb_nobody::by_figures_after_a_bare_system_call";
    in_child(name, "ratio=1:3", || allocate_in(fork_barely));
}

/// What the page says of mistakes, after a tick.
fn mistakes() -> (String, u32, u64) {
    (0..8).for_each(|_| free(malloc(MB)));
    let page = page_of(std::process::id());
    assert_eq!(page.pid.load(Relaxed), std::process::id());
    let mistake = String::from_utf8_lossy(page.mistake.get(&mut [[0; 8]; 64])).into_owned();
    (mistake, page.told.is_class_lost.load(Relaxed), page.told.failed_bindings.load(Relaxed))
}

#[test]
fn by_a_mistake_in_the_options() {
    in_child("forks_disturb_nobody::by_a_mistake_in_the_options", "ratio=1", || {
        let own = mistakes();
        assert!(own.0.contains("a ratio is"), "{own:?}");
        fork(|| mistakes() == own, |_| {});
    });
}

#[test]
fn by_nodes_and_a_class_that_are_missing() {
    let options = "far=node:1023,class=gold,class-file=/nowhere/classes";
    in_child("forks_disturb_nobody::by_nodes_and_a_class_that_are_missing", options, || {
        let own = mistakes();
        assert_eq!((own.1, own.2), (1, 1));
        fork(|| mistakes() == own, |_| {});
    });
}

/// Threads with far memory by the page, after a tick.
fn far_threads() -> u32 {
    (0..8).for_each(|_| free(malloc(MB)));
    page_of(std::process::id()).told.threads.load(Relaxed)
}

fn fork_without_far_memory_and_with_some() {
    assert_eq!(far_threads(), 0);
    fork(|| far_threads() == 0, |_| {});
    let page = page_of(std::process::id());
    let changes = page.want(&Configuration { policy: Policy::OnlyFar, ..Configuration::DEFAULT });
    assert!(far_threads() > 0 && page.applied.load(Relaxed) == changes);
    fork(|| far_threads() == 1, |_| {});
}

#[test]
fn by_threads_that_it_does_not_have() {
    let name = "forks_disturb_nobody::by_threads_that_it_does_not_have";
    in_child(name, "policy=only-dram", fork_without_far_memory_and_with_some);
}

fn fork_and_overwrite() {
    let far = far_range();
    let blocks: Vec<usize> = (0..16 * MB / 1024).map(|_| malloc(1024)).collect();
    assert!(
        blocks.iter().any(|block| far.contains(block)) && blocks.iter().any(|block| !far.contains(block))
    );
    let fill = |byte| {
        // SAFETY: the blocks are live and have as many bytes.
        blocks.iter().for_each(|&block| unsafe { (block as *mut u8).write_bytes(byte, 1024) });
    };
    // SAFETY: as above.
    let has = |byte| blocks.iter().all(|&block| unsafe { *(block as *const [u8; 1024]) } == [byte; 1024]);
    fill(1);
    let mut ends = [0; 2];
    // SAFETY: it writes two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    fork(
        || {
            let mut byte = [0_u8];
            // SAFETY: the buffer has a byte. The parent writes one after it has overwritten everything.
            let read = unsafe { libc::read(ends[0], byte.as_mut_ptr().cast(), 1) };
            read == 1 && has(1)
        },
        |_| {
            fill(2);
            // SAFETY: the buffer has a byte.
            assert_eq!(unsafe { libc::write(ends[1], [0_u8].as_ptr().cast(), 1) }, 1);
        },
    );
    assert!(has(2));
}

#[test]
fn by_contents() {
    in_child("forks_disturb_nobody::by_contents", "ratio=1:1", fork_and_overwrite);
}

/// A child that has not ticked has no descriptor of its parent's page: at its tick it may have threads that use the
/// number for a file of theirs.
fn fork_and_look() {
    let has_page = || {
        // Without an allocation, so that the child has no tick.
        let mut link = [0_u8; 64];
        // SAFETY: the path is a C string, and the buffer has as many bytes as the call says.
        unsafe { libc::readlink(c"/proc/self/fd/700".as_ptr(), link.as_mut_ptr().cast(), link.len()) > 0 }
    };
    assert!(has_page(), "the page of the library has the first descriptor from 700");
    fork(|| !has_page(), |_| assert!(has_page()));
}

#[test]
fn by_a_descriptor_of_the_page() {
    in_child("forks_disturb_nobody::by_a_descriptor_of_the_page", "ratio=1:3", fork_and_look);
}

/// Whether [`hold`] holds up a fork; then whether the other thread has a block, or none.
static STEP: AtomicU8 = AtomicU8::new(0);
const HOLDS: u8 = 1;
const ALLOCATES: u8 = 2;
const HAS_NONE: u8 = 3;
const HAS_BLOCK: u8 = 4;
const GOES_ON: u8 = 5;
const ENDS: u8 = 6;

/// Goes before the library's constructor. The handler of before the first allocation runs after the library's, and the
/// other one before it.
// SAFETY: the section holds pointers to functions of this type.
#[unsafe(link_section = ".preinit_array")]
#[used]
static BEFORE_LIBRARY: extern "C" fn() = register;

extern "C" fn register() {
    // SAFETY: the handlers may be called around a fork.
    unsafe {
        libc::pthread_atfork(Some(hold), None, None);
        free(malloc(1));
        libc::pthread_atfork(Some(wait_for_work), None, None);
    }
}

/// The open status of the thread for whose sleep [`hold`] waits; 0 without such a thread.
static STATUS: AtomicI32 = AtomicI32::new(0);
/// How often that thread had slept before the library could make it wait.
static ASLEEP_BEFORE: AtomicI64 = AtomicI64::new(i64::MAX);

/// Holds up a fork until the other thread has given up, or for longer than the library once gave it. Where it waits for
/// the sleep of a thread, it goes on once that thread has slept twice, or after two minutes.
unsafe extern "C" fn hold() {
    if STEP.compare_exchange(HOLDS, ALLOCATES, SeqCst, SeqCst).is_err() {
        return;
    }
    let status = STATUS.load(SeqCst);
    let turns = if status == 0 { 300 } else { 120_000 };
    let is_awaited =
        || status == 0 || times_asleep_in(status) <= ASLEEP_BEFORE.load(SeqCst).saturating_add(1);
    (0..turns).take_while(|_| STEP.load(SeqCst) == ALLOCATES && is_awaited()).for_each(|_| {
        // SAFETY: the call takes a number.
        unsafe { libc::usleep(1000) };
    });
}

/// How often a thread has slept or waited, by the open file of its status. Nothing here allocates: a fork holds the
/// locks of jemalloc meanwhile.
fn times_asleep_in(status: i32) -> i64 {
    const NAME: &[u8] = b"\nvoluntary_ctxt_switches:\t";
    let mut text = [0_u8; 8192];
    // SAFETY: the buffer has as many bytes as the call says.
    let bytes = unsafe { libc::pread(status, text.as_mut_ptr().cast(), text.len(), 0) };
    let text = &text[..bytes.max(0) as usize];
    let digits = text.windows(NAME.len()).position(|line| line == NAME).map(|at| &text[at + NAME.len()..]);
    let digits = digits.unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
}

/// How often this thread has slept or waited in its life.
fn times_asleep() -> i64 {
    // SAFETY: all zeros is a valid structure, which the call fills.
    unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut used), 0);
        used.ru_nvcsw
    }
}

/// One thread forks, and another one must wait for the end of the fork. If that is a real-time thread, the first one
/// may have no other processor. From the beginning of the fork on, the other thread allocates nothing.
fn fork_beside_a_command() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let status = std::fs::File::open("/proc/thread-self/status").unwrap();
            STATUS.store(status.as_raw_fd(), SeqCst);
            while STEP.load(SeqCst) != ALLOCATES {
                std::thread::yield_now();
            }
            let before = times_asleep();
            ASLEEP_BEFORE.store(before, SeqCst);
            mallctl(c"background_thread", 0_u8, Some(0));
            let asleep = times_asleep() - before;
            STEP.store(HAS_NONE, SeqCst);
            assert!(asleep > 1, "{asleep} sleeps while a fork held the thread up");
        });
        until("the other thread has begun", || STATUS.load(SeqCst) != 0);
        STEP.store(HOLDS, SeqCst);
        fork(|| true, |_| {});
        let is_held_up = STEP.compare_exchange(HOLDS, ALLOCATES, SeqCst, SeqCst).is_err();
        assert!(is_held_up, "the handler did not run");
    });
}

#[test]
fn by_keeping_a_waiting_thread_busy() {
    in_child("forks_disturb_nobody::by_keeping_a_waiting_thread_busy", "ratio=1:3", fork_beside_a_command);
}

/// One thread forks while another one, which no medium has room for by the last tick, has freed enough.
fn fork_beside_a_full_thread() {
    let filled = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut blocks = Vec::with_capacity(4096);
            while blocks.last() != Some(&0) {
                blocks.push(malloc(MB));
            }
            blocks.into_iter().for_each(free);
            filled.wait();
            while STEP.load(SeqCst) != ALLOCATES {
                std::thread::yield_now();
            }
            let has_block = malloc(MB) != 0;
            STEP.store(if has_block { HAS_BLOCK } else { HAS_NONE }, SeqCst);
        });
        filled.wait();
        STEP.store(HOLDS, SeqCst);
        fork(|| true, |_| {});
        // The other thread ends, even if nothing held up the fork.
        let is_held_up = STEP.compare_exchange(HOLDS, ALLOCATES, SeqCst, SeqCst).is_err();
        assert!(is_held_up, "the handler did not run");
    });
    assert_eq!(STEP.load(SeqCst), HAS_BLOCK);
}

#[test]
fn by_refusing_blocks_of_other_threads() {
    let options = "ratio=1:1,dram-limit=256MiB,far-limit=256MiB";
    in_child("forks_disturb_nobody::by_refusing_blocks_of_other_threads", options, fork_beside_a_full_thread);
}

/// The arenas of threads whose first far blocks are of the time of a fork. Threads take arenas in turns, and the test's
/// main thread may take one turn among these: of three threads, two have different arenas of two.
static ARENAS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
/// Threads that have such a block.
static BLOCKS: AtomicUsize = AtomicUsize::new(0);

/// Allocates nothing but by `malloc`, and tells its arena.
extern "C" fn allocate_first_in_a_fork(arena: *mut c_void) -> *mut c_void {
    let until = |step| {
        while STEP.load(SeqCst) != step {
            std::thread::yield_now();
        }
    };
    until(ALLOCATES);
    let first = malloc(100);
    if BLOCKS.fetch_add(1, SeqCst) + 1 == ARENAS.len() {
        STEP.store(HAS_BLOCK, SeqCst);
    }
    until(GOES_ON);
    // A thread that meets the tick of another one goes on sharing until it settles again.
    while STEP.load(SeqCst) != ENDS {
        (0..64).for_each(|_| free(malloc(MB)));
        // Nobody frees the block: the thread would keep it and get it again.
        let later = malloc(100);
        // SAFETY: it is one of the arenas above.
        unsafe { &*arena.cast::<AtomicU32>() }.store(arena_of(later), SeqCst);
    }
    free(first);
    null_mut()
}

/// No arena is made during a fork. Until then only this thread has one.
fn fork_beside_threads_without_an_arena() {
    // SAFETY: the call takes a number.
    if unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } < 2 {
        return ziptier_testing::not_run("several arenas", "take a machine with two processors");
    }
    let page = page_of(std::process::id());
    let changes = page.want(&Configuration { policy: Policy::OnlyFar, ..Configuration::DEFAULT });
    (0..64).for_each(|_| free(malloc(MB)));
    assert_eq!(page.applied.load(Relaxed), changes);
    let threads = ARENAS.each_ref().map(|arena| {
        let (arena, mut thread) = (std::ptr::from_ref(arena).cast_mut().cast(), 0);
        // SAFETY: the function takes one of the arenas, and the thread is joined below.
        let failed = unsafe { libc::pthread_create(&mut thread, null(), allocate_first_in_a_fork, arena) };
        assert_eq!(failed, 0);
        thread
    });
    STEP.store(HOLDS, SeqCst);
    fork(|| true, |_| {});
    assert_ne!(STEP.load(SeqCst), HOLDS, "the handler did not run");
    until("the threads have blocks", || STEP.load(SeqCst) == HAS_BLOCK);
    STEP.store(GOES_ON, SeqCst);
    until("threads have different arenas", || {
        let arenas = ARENAS.each_ref().map(|arena| arena.load(SeqCst));
        arenas.iter().all(|&arena| arena != 0) && arenas.iter().any(|&arena| arena != arenas[0])
    });
    STEP.store(ENDS, SeqCst);
    for thread in threads {
        // SAFETY: the thread was started.
        assert_eq!(unsafe { libc::pthread_join(thread, null_mut()) }, 0);
    }
}

#[test]
fn by_sharing_an_arena_for_good() {
    let name = "forks_disturb_nobody::by_sharing_an_arena_for_good";
    in_child(name, "policy=only-dram", fork_beside_threads_without_an_arena);
}

/// Whether a thread is at work that no fork may split, and whether a fork waits for it.
static WORK: AtomicU8 = AtomicU8::new(DONE);
const DONE: u8 = 0;
const AT_WORK: u8 = 1;
const IS_WAITED_FOR: u8 = 2;

/// What a library does that registers its handlers in its constructor.
unsafe extern "C" fn wait_for_work() {
    if WORK.compare_exchange(AT_WORK, IS_WAITED_FOR, SeqCst, SeqCst).is_ok() {
        while WORK.load(SeqCst) == IS_WAITED_FOR {
            std::thread::yield_now();
        }
    }
}

fn fork_beside_work() {
    end_after_five_minutes();
    WORK.store(AT_WORK, SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while WORK.load(SeqCst) != IS_WAITED_FOR {
                std::thread::yield_now();
            }
            mallctl(c"background_thread", 0_u8, Some(0));
            WORK.store(DONE, SeqCst);
        });
        fork(|| true, |_| {});
    });
    assert_eq!(WORK.load(SeqCst), DONE);
}

#[test]
fn by_waiting_for_a_command_under_a_lock_that_forks_take() {
    let name = "forks_disturb_nobody::by_waiting_for_a_command_under_a_lock_that_forks_take";
    in_child(name, "ratio=1:3", fork_beside_work);
}

/// Forks while other threads allocate and tick.
fn fork_beside_threads() {
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    let blocks: Vec<usize> = (0..200).map(|number| malloc(100 * (number + 1))).collect();
                    blocks.into_iter().for_each(free);
                }
            });
        }
        for _ in 0..50 {
            let child = || {
                let blocks: Vec<usize> = (0..2000).map(|number| malloc(number + 1)).collect();
                let are_there = blocks.iter().all(|&block| block != 0);
                blocks.into_iter().for_each(free);
                are_there
            };
            fork(child, |_| {});
        }
        is_done.store(true, Relaxed);
    });
}

#[test]
fn beside_threads() {
    in_child("forks_disturb_nobody::beside_threads", "ratio=1:3", fork_beside_threads);
}
