//! A process may be copied in the middle of a tick: by a signal handler that forks, or by a thread beside the tick. A
//! child must not wait for a tick that nobody in it ends, nor its parent. A child must not take room that is not there.
//!
//! A filter of system calls stops a tick here: the kernel sends a signal for one that ticks alone make, those of a
//! process with a class.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Mutex, OnceLock, PoisonError};

use ziptier_alloc::classes::Locked;
use ziptier_alloc::configuration::{ClassName, Configuration, FilePath, Policy};
use ziptier_alloc::page::SharedPage;

use crate::support::{end_after_five_minutes, far_range, fork_barely, free, in_child_with, malloc, page_of};

const MB: usize = 1 << 20;
const KB: usize = 1 << 10;

fn file() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("classes_of_interrupted_{}", std::process::id()))
}

fn make_class() {
    let path = FilePath::new(file().to_str().unwrap().as_bytes()).unwrap();
    let name = ClassName::new(b"gold").unwrap();
    Locked::open_or_create(&path).unwrap().set(&name, None, [None, None]).unwrap();
}

/// Runs a test in a child that has a class.
fn in_child_with_class(name: &str, options: &str, body: fn()) {
    static ONE_FILE: Mutex<()> = Mutex::new(());
    let _one = ONE_FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let options = format!("{options},class=gold,class-file={}", file().display());
    in_child_with(name, &options, |_| make_class(), body);
    let _ = std::fs::remove_file(file());
}

/// What the next tick that is stopped does; then that it has done so.
static NEXT: AtomicU8 = AtomicU8::new(GOES_ON);
const GOES_ON: u8 = 0;
const FORKS: u8 = 1;
const FORKED: u8 = 2;
const WAITS: u8 = 3;
const WAITING: u8 = 4;
const ALLOCATES: u8 = 5;
const ALLOCATED: u8 = 6;
const LOOKS: u8 = 7;
const LOOKED: u8 = 8;

/// Calls a handler in each tick of this thread, and of threads that it starts.
fn stop_ticks() {
    end_after_five_minutes();
    let code = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filter = [
        code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_process_vm_readv as u32),
        code(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_TRAP),
        code(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the calls take numbers, or pointers to local variables. All zeros is a valid action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = in_tick as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()), 0);
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

/// The page of the process that forks in a tick.
static PAGE: OnceLock<SharedPage> = OnceLock::new();
/// Whether a child that went on with the tick left that page alone.
static IS_PAGE_LEFT_ALONE: AtomicBool = AtomicBool::new(false);

/// Blocks of 80 KiB that were allocated in a tick.
static BLOCKS: [AtomicUsize; 14] = [const { AtomicUsize::new(0) }; 14];

/// The number of changes that the page told as obeyed in the midst of a tick.
static OBEYED: AtomicU64 = AtomicU64::new(u64::MAX);

/// The call that was stopped has no effect, so the tick loses its class.
extern "C" fn in_tick(_: libc::c_int) {
    if NEXT.compare_exchange(WAITS, WAITING, SeqCst, SeqCst).is_ok() {
        while NEXT.load(SeqCst) == WAITING {
            std::thread::yield_now();
        }
    }
    if NEXT.compare_exchange(ALLOCATES, ALLOCATED, SeqCst, SeqCst).is_ok() {
        BLOCKS.iter().for_each(|block| block.store(malloc(80 * KB), SeqCst));
    }
    if NEXT.compare_exchange(LOOKS, LOOKED, SeqCst, SeqCst).is_ok() {
        OBEYED.store(PAGE.get().map_or(u64::MAX, |page| page.applied.load(Relaxed)), SeqCst);
    }
    if NEXT.compare_exchange(FORKS, FORKED, SeqCst, SeqCst).is_ok() {
        let ticks = || PAGE.get().map(|page| page.told.ticks.load(Relaxed));
        let before = ticks();
        // SAFETY: the child goes on with the tick, and ends after it.
        unsafe {
            let child = libc::fork();
            if child != 0 {
                libc::waitpid(child, std::ptr::null_mut(), 0);
                IS_PAGE_LEFT_ALONE.store(ticks() == before, SeqCst);
            }
        }
    }
}

/// Completes some steps.
fn tick() {
    (0..64).for_each(|_| free(malloc(MB)));
}

fn fork_in_a_tick() {
    let own = std::process::id();
    let page = PAGE.get_or_init(|| page_of(own));
    stop_ticks();
    NEXT.store(FORKS, SeqCst);
    tick();
    if std::process::id() != own {
        // SAFETY: the call takes a number.
        unsafe { libc::_exit(0) };
    }
    assert_eq!(NEXT.load(SeqCst), FORKED);
    assert!(IS_PAGE_LEFT_ALONE.load(SeqCst), "the child's tick shows in its parent's page");
    let ticks = page.told.ticks.load(Relaxed);
    tick();
    assert!(page.told.ticks.load(Relaxed) > ticks, "ticks go on after the fork");
}

#[test]
fn by_a_signal_handler_that_forks() {
    in_child_with_class("ticks_are_interrupted::by_a_signal_handler_that_forks", "ratio=1:3", fork_in_a_tick);
}

/// The child has no thread that could end the tick.
fn fork_beside_a_tick() {
    stop_ticks();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            NEXT.store(WAITS, SeqCst);
            while NEXT.load(SeqCst) == WAITS {
                tick();
            }
        });
        while NEXT.load(SeqCst) != WAITING {
            std::thread::yield_now();
        }
        fork_barely(|| {
            tick();
            let page = page_of(std::process::id());
            let ticks = page.told.ticks.load(Relaxed);
            tick();
            page.told.ticks.load(Relaxed) > ticks
        });
        NEXT.store(GOES_ON, SeqCst);
    });
}

#[test]
fn by_another_thread_that_forks_by_a_bare_system_call() {
    let name = "ticks_are_interrupted::by_another_thread_that_forks_by_a_bare_system_call";
    in_child_with_class(name, "ratio=1:3", fork_beside_a_tick);
}

/// The first call of the library that sees the child is one in the middle of a large block: the thread takes its arena,
/// which is not made yet. The arena of the first turn is made at the start.
fn allocate_across_a_bare_fork() {
    // SAFETY: the call takes a number.
    if unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } < 2 {
        return ziptier_testing::not_run("several arenas", "take a machine with two processors");
    }
    std::thread::spawn(|| free(malloc(192 * KB))).join().unwrap();
    let page = page_of(std::process::id());
    stop_ticks();
    let ticks = page.told.ticks.load(Relaxed);
    while page.told.ticks.load(Relaxed) == ticks {
        free(malloc(16 * KB));
    }
    // A step has 256 KiB from here.
    fork_barely(|| {
        let first = malloc(192 * KB);
        // jemalloc sums up after 4 MiB, and then counts the new arena.
        (0..512).for_each(|_| free(malloc(16 * KB)));
        NEXT.store(ALLOCATES, SeqCst);
        while NEXT.load(SeqCst) == ALLOCATES {
            free(malloc(16 * KB));
        }
        let far = far_range();
        let in_far = BLOCKS.iter().filter(|block| far.contains(&block.load(SeqCst))).count();
        // 192 KiB and ten blocks have room in 1 MiB.
        far.contains(&first) && in_far == 10
    });
}

#[test]
fn by_a_child_whose_first_block_is_large() {
    let name = "ticks_are_interrupted::by_a_child_whose_first_block_is_large";
    in_child_with_class(name, "threshold=65536,far-limit=1MiB", allocate_across_a_bare_fork);
}

/// `ziptier alloc set` shows what the page tells as soon as the change is obeyed. It showed the policy before.
fn change_before_a_tick() {
    let page = PAGE.get_or_init(|| page_of(std::process::id()));
    stop_ticks();
    let changes = page.want(&Configuration { policy: Policy::OnlyFar, ..Configuration::DEFAULT });
    NEXT.store(LOOKS, SeqCst);
    tick();
    assert_eq!(NEXT.load(SeqCst), LOOKED);
    let obeyed = OBEYED.load(SeqCst);
    assert!(obeyed < changes, "change {obeyed} was told as obeyed before the library told its policy");
    assert_eq!(page.applied.load(Relaxed), changes);
}

#[test]
fn before_a_change_is_told_as_obeyed() {
    let name = "ticks_are_interrupted::before_a_change_is_told_as_obeyed";
    in_child_with_class(name, "ratio=1:3", change_before_a_tick);
}
