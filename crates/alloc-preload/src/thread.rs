//! What each thread has: the bytes until it settles, and its magazines of far blocks.
//!
//! The compiler reaches thread-local variables of a shared object by a call. Ours is reached by two instructions, in
//! the `initial-exec` model, because the dynamic linker loads this library before the program starts. jemalloc's
//! variables in this library need the same.

use std::ffi::{c_int, c_void};
use std::mem::replace;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use tikv_jemalloc_sys as jemalloc;
use tikv_jemalloc_sys::{MALLOCX_ARENA, MALLOCX_TCACHE_NONE};

use crate::magazines::Magazines;
use crate::{far, start, tick};

/// Bytes that a thread allocates, on average, before it settles: before it adds them to what all threads have
/// allocated.
pub(crate) static QUANTUM_BYTES: AtomicU32 = AtomicU32::new(4 << 10);

/// Threads that have allocated in far memory.
pub(crate) static THREADS: AtomicU32 = AtomicU32::new(0);

/// The key whose destructor empties a thread's magazines.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// The variables of a thread. All zeros is a new thread.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Bytes until the thread settles.
    left: u64,
    /// What `left` was after the thread settled last.
    quantum: u64,
    /// Flags of an allocation in far memory: the arena, and no cache of jemalloc's. 0 before the first one.
    far_flags: c_int,
    /// The sum of the fractions so far, in 2^-32. Each overflow is a block in far memory.
    dithered: u32,
    random: u32,
    /// One more than the turn of a thread that waits for its arena, and has that of another turn meanwhile; 0 without
    /// such a wait.
    turn: u32,
    /// Null before the first block in far memory, and after the end.
    pub(crate) magazines: *mut Magazines,
}

// All zeros, as the linker gives them, is a valid `Thread`.
std::arch::global_asm!(
    ".section .tbss.ziptier_alloc_thread,\"awT\",@nobits",
    ".p2align 6",
    ".hidden ziptier_alloc_thread",
    ".globl ziptier_alloc_thread",
    ".type ziptier_alloc_thread, @object",
    ".size ziptier_alloc_thread, 64",
    "ziptier_alloc_thread:",
    ".zero 64",
    ".text",
);

const _: () = assert!(size_of::<Thread>() == 64);

impl Thread {
    /// The variables of this thread. The pointer is good until the thread ends.
    #[inline(always)]
    pub(crate) fn current() -> *mut Thread {
        let thread: *mut Thread;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the code reads the offset of the variable and the thread's base address, which the ABI keeps at
        // `fs:0`, and touches nothing else.
        unsafe {
            std::arch::asm!(
                "mov {thread}, qword ptr [rip + ziptier_alloc_thread@GOTTPOFF]",
                "add {thread}, qword ptr fs:[0]",
                thread = out(reg) thread,
                options(pure, readonly, nostack),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above; the base address is in `tpidr_el0`.
        unsafe {
            std::arch::asm!(
                "adrp {thread}, :gottprel:ziptier_alloc_thread",
                "ldr {thread}, [{thread}, :gottprel_lo12:ziptier_alloc_thread]",
                "mrs {base}, tpidr_el0",
                "add {thread}, {thread}, {base}",
                thread = out(reg) thread,
                base = out(reg) _,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        thread
    }

    /// Counts bytes that the thread allocates and that the policy places.
    ///
    /// # Safety
    ///
    /// `thread` is this thread's.
    #[inline(always)]
    pub(crate) unsafe fn count(thread: *mut Thread, bytes: usize) {
        // SAFETY: it is the caller's.
        unsafe {
            if Thread::completes(thread, bytes) {
                settle(thread, Some(bytes));
            }
        }
    }

    /// Counts bytes of a block that the policy does not place: a table, or one whose arena or cache the program names.
    ///
    /// # Safety
    ///
    /// `thread` is this thread's.
    #[inline(always)]
    pub(crate) unsafe fn count_unplaced(thread: *mut Thread, bytes: usize) {
        // SAFETY: it is the caller's.
        unsafe {
            if Thread::completes(thread, bytes) {
                settle(thread, None);
            }
        }
    }

    /// Takes bytes from what is left of the quantum, and tells whether they complete it.
    #[inline(always)]
    unsafe fn completes(thread: *mut Thread, bytes: usize) -> bool {
        // SAFETY: only this thread touches the variable, and no reference to it lives.
        unsafe {
            let (left, is_complete) = (*thread).left.overflowing_sub(bytes as u64);
            (*thread).left = left;
            is_complete
        }
    }

    /// Whether a block goes to far memory, of blocks of which `fraction` in 2^32 do.
    ///
    /// # Safety
    ///
    /// `thread` is this thread's.
    pub(crate) unsafe fn dither(thread: *mut Thread, fraction: u32) -> bool {
        // SAFETY: as in `count`.
        unsafe {
            let (dithered, is_far) = (*thread).dithered.overflowing_add(fraction);
            (*thread).dithered = dithered;
            is_far
        }
    }

    /// The flags of an allocation in far memory.
    ///
    /// # Safety
    ///
    /// `thread` is this thread's, and there is far memory.
    #[inline(always)]
    pub(crate) unsafe fn far_flags(thread: *mut Thread) -> c_int {
        // SAFETY: as in `count`.
        unsafe {
            if (*thread).far_flags == 0 {
                open(thread);
            }
            (*thread).far_flags
        }
    }
}

/// Adds what a thread has allocated to what all have. All of it counts for the size that completed the quantum, or for
/// none if the policy does not place that block. A size completes a quantum as often as its share of the bytes says, so
/// over many quanta this is the histogram.
#[cold]
#[inline(never)]
unsafe fn settle(thread: *mut Thread, placed: Option<usize>) {
    // SAFETY: only this thread touches the variable, and no reference to it lives.
    let all_bytes = unsafe {
        if (*thread).random == 0 {
            // Threads that allocate little must not all begin with a block in DRAM.
            (*thread).random = (thread as usize as u32 >> 6) | 1;
            (*thread).dithered = (*thread).random.wrapping_mul(0x9E37_79B1);
            start::register_for_forks();
        }
        // Quanta of one length would fall in step with a program that repeats itself.
        (*thread).random = (*thread).random.wrapping_mul(0x915F_77F5).wrapping_add(1);
        let quantum = u64::from(QUANTUM_BYTES.load(Relaxed));
        let next = quantum / 2 + ((quantum * u64::from((*thread).random)) >> 32);
        let all_bytes = (*thread).quantum.wrapping_sub((*thread).left);
        (*thread).quantum = next;
        (*thread).left = next;
        all_bytes
    };
    tick::count(placed, all_bytes);
    // SAFETY: as above.
    unsafe {
        if (*thread).turn != 0 {
            take_arena(thread);
        }
    }
}

/// Gives a thread its arena of far memory, or another one for the time of a tick.
unsafe fn take_arena(thread: *mut Thread) {
    // SAFETY: only this thread touches the variable, and no reference to it lives.
    unsafe {
        let (arena, is_own) = far::arena((*thread).turn.wrapping_sub(1));
        (*thread).far_flags = MALLOCX_ARENA(arena as usize) | MALLOCX_TCACHE_NONE;
        if is_own {
            (*thread).turn = 0;
        }
    }
}

/// Gives a thread an arena of far memory, and magazines for its free blocks. It works without these, too, if jemalloc
/// has no room for them.
#[cold]
#[inline(never)]
unsafe fn open(thread: *mut Thread) {
    // SAFETY: only this thread touches the variable, and no reference to it lives. What is called may allocate: then
    // the flags are set.
    unsafe {
        (*thread).turn = far::turn().wrapping_add(1);
        take_arena(thread);
        let key = KEY.load(Relaxed);
        if key == NO_KEY || libc::pthread_setspecific(key, thread.cast()) != 0 {
            return;
        }
        (*thread).magazines = Magazines::new();
    }
    THREADS.fetch_add(1, Relaxed);
}

/// Gives the blocks in a thread's magazines back to their arenas when the thread ends. Destructors that run later
/// allocate and free without magazines.
unsafe extern "C" fn end(thread: *mut c_void) {
    let thread: *mut Thread = thread.cast();
    // SAFETY: the value of the key is this thread's variable.
    unsafe {
        let magazines = replace(&mut (*thread).magazines, null_mut());
        if !magazines.is_null() {
            loop {
                let block = (*magazines).take_any();
                if block.is_null() {
                    break;
                }
                jemalloc::dallocx(block, MALLOCX_TCACHE_NONE);
            }
            jemalloc::free(magazines.cast());
        }
    }
    // A child without handlers of fork may begin to count after this thread had its first block there.
    let _ = THREADS.fetch_update(Relaxed, Relaxed, |threads| threads.checked_sub(1));
}

/// Makes the key. To be called before threads have magazines.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: the destructor takes the values that `open` sets.
    if unsafe { libc::pthread_key_create(&mut key, Some(end)) } == 0 {
        KEY.store(key, Relaxed);
    }
}
