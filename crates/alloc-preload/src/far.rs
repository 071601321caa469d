//! Far memory: one range of addresses, the nodes that back it, and jemalloc's hooks into it.
//!
//! The range is reserved once, without memory behind it. jemalloc asks for extents of it, in doubling sizes, and keeps
//! them: it gives pages back by `madvise`, never addresses. The memory is private and anonymous, so a forked child has
//! a snapshot of it. `mbind` prefers the nodes of far memory and does not demand them: a node that is full must not end
//! the program.

use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

use ziptier_alloc::configuration::NodeSet;

use crate::heap::WORDS;
use crate::permission::may_bind;
use crate::{statistics, tick};

/// The size of the range, and the smallest one that is tried where the system grants no larger one.
const RANGE_BYTES: (usize, usize) = (16 << 40, 256 << 20);

/// The most arenas of far memory. Threads share them in turn.
const ARENAS_MAX: usize = 16;

/// jemalloc's number of an arena of far memory; 0 is none, because arena 0 is never far.
static ARENAS: [AtomicU32; ARENAS_MAX] = [const { AtomicU32::new(0) }; ARENAS_MAX];
/// Arenas that may be made: one per processor.
static ARENAS_WANTED: AtomicUsize = AtomicUsize::new(1);
/// Whether an arena was made since [`has_new_arena`] was asked last.
static IS_NEW: AtomicBool = AtomicBool::new(false);
/// Threads that have asked for an arena.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// The next address that no extent has.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The first address behind the range.
static END: AtomicUsize = AtomicUsize::new(0);

/// jemalloc's structure. Its `bool` has one byte, and the binding's has four.
#[repr(C)]
struct Hooks {
    alloc: unsafe extern "C" fn(
        *mut Hooks,
        *mut c_void,
        usize,
        usize,
        *mut bool,
        *mut bool,
        c_uint,
    ) -> *mut c_void,
    dalloc: *const c_void,
    destroy: *const c_void,
    commit: *const c_void,
    decommit: *const c_void,
    purge_lazy: *const c_void,
    purge_forced: unsafe extern "C" fn(*mut Hooks, *mut c_void, usize, usize, usize, c_uint) -> bool,
    split: unsafe extern "C" fn(*mut Hooks, *mut c_void, usize, usize, usize, bool, c_uint) -> bool,
    merge: unsafe extern "C" fn(*mut Hooks, *mut c_void, usize, *mut c_void, usize, bool, c_uint) -> bool,
}

// SAFETY: nothing writes to it, and its pointers are null.
unsafe impl Sync for Hooks {}

static HOOKS: Hooks = Hooks {
    alloc,
    dalloc: null_mut(),
    destroy: null_mut(),
    commit: null_mut(),
    decommit: null_mut(),
    purge_lazy: null_mut(),
    purge_forced,
    split,
    merge,
};

/// jemalloc's structure for `experimental.arenas_create_ext`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArenaConfig {
    hooks: *const Hooks,
    /// What describes extents lies in DRAM.
    metadata_by_hooks: bool,
}

/// Reserves the range and makes the first arena. On failure there is no far memory.
pub(crate) fn prepare() -> bool {
    let mut bytes = RANGE_BYTES.0;
    let base = loop {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address, so no other mapping is touched.
        let base = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if base != libc::MAP_FAILED {
            break base as usize;
        }
        bytes /= 2;
        if bytes < RANGE_BYTES.1 {
            return false;
        }
    };
    NEXT.store(base, Relaxed);
    END.store(base + bytes, Relaxed);
    // SAFETY: the call reads nothing of ours.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    ARENAS_WANTED.store(processors.clamp(1, ARENAS_MAX as i64) as usize, Relaxed);
    if !make(&ARENAS[0]) {
        return false;
    }
    WORDS.range_base.store(base, Relaxed);
    WORDS.range_len.store(bytes, Release);
    true
}

/// Prefers nodes for all of the range. `false` if the kernel refuses.
pub(crate) fn bind(nodes: &NodeSet) -> bool {
    const MPOL_PREFERRED: c_int = 1;
    const MPOL_PREFERRED_MANY: c_int = 5;
    if !may_bind() {
        return false;
    }
    let (base, len) = (WORDS.range_base.load(Relaxed), WORDS.range_len.load(Relaxed));
    let apply = |mode: c_int| {
        // SAFETY: the mask has as many bits as the call says. The range is ours, and keeps its contents.
        unsafe {
            let mask: *const c_ulong = nodes.words.as_ptr().cast();
            libc::syscall(libc::SYS_mbind, base, len, mode, mask, c_ulong::from(NodeSet::NODES) + 1, 0) == 0
        }
    };
    // Kernels before 5.15 have no preference for several nodes; of several they take the first.
    apply(MPOL_PREFERRED_MANY) || apply(MPOL_PREFERRED)
}

/// jemalloc's numbers of the arenas of far memory.
pub(crate) fn arenas() -> impl Iterator<Item = usize> {
    ARENAS.iter().map(|arena| arena.load(Acquire) as usize).take_while(|&arena| arena != 0)
}

/// Whether there is an arena that was not there when this was asked last.
pub(crate) fn has_new_arena() -> bool {
    IS_NEW.swap(false, Relaxed)
}

/// The turn of a thread that has no arena.
pub(crate) fn turn() -> u32 {
    ASKED.fetch_add(1, Relaxed)
}

/// The arena of a turn, and whether the turn keeps it. A tick keeps threads from making arenas; a thread then gets the
/// arena of another turn.
pub(crate) fn arena(turn: u32) -> (u32, bool) {
    let arenas = ARENAS_WANTED.load(Relaxed);
    let own = &ARENAS[turn as usize % arenas];
    if own.load(Acquire) == 0 {
        // One thread at a time makes arenas, and in order, so that the made ones are the first.
        tick::try_without_ticks(|| {
            if let Some(first_free) = ARENAS[..arenas].iter().find(|arena| arena.load(Acquire) == 0) {
                make(first_free);
            }
        });
    }
    match own.load(Acquire) {
        0 => (ARENAS[turn as usize % arenas_made().max(1)].load(Acquire), false),
        made => (made, true),
    }
}

fn arenas_made() -> usize {
    arenas().count()
}

fn make(slot: &AtomicU32) -> bool {
    let (config, mut arena) = (ArenaConfig { hooks: &HOOKS, metadata_by_hooks: false }, 0_u32);
    let is_made = statistics::read_for(c"experimental.arenas_create_ext", &config, &mut arena);
    if is_made {
        slot.store(arena, Release);
        IS_NEW.store(true, Relaxed);
    }
    is_made
}

/// Takes an extent from the front of what is left of the range.
unsafe extern "C" fn alloc(
    _: *mut Hooks,
    at: *mut c_void,
    bytes: usize,
    alignment: usize,
    is_zeroed: *mut bool,
    is_committed: *mut bool,
    _: c_uint,
) -> *mut c_void {
    if !at.is_null() {
        return null_mut();
    }
    let start_of = |next: usize| next.checked_next_multiple_of(alignment);
    let end_of = |next: usize| start_of(next)?.checked_add(bytes).filter(|&end| end <= END.load(Relaxed));
    let Ok(next) = NEXT.fetch_update(Relaxed, Relaxed, end_of) else { return null_mut() };
    let start = start_of(next).unwrap_or(next) as *mut c_void;
    // SAFETY: the extent lies in the range and is nobody else's. The pointers are jemalloc's, for these answers.
    unsafe {
        if libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            // Unless another extent follows already, the next one takes these addresses.
            let _ = NEXT.compare_exchange(start as usize + bytes, next, Relaxed, Relaxed);
            return null_mut();
        }
        *is_zeroed = true;
        *is_committed = true;
    }
    start
}

/// Gives pages back. They read as zeros afterwards, and keep their nodes.
unsafe extern "C" fn purge_forced(
    _: *mut Hooks,
    extent: *mut c_void,
    _: usize,
    offset: usize,
    bytes: usize,
    _: c_uint,
) -> bool {
    // SAFETY: jemalloc names pages of an extent that it has from `alloc` and that hold no block.
    unsafe { libc::madvise(extent.byte_add(offset), bytes, libc::MADV_DONTNEED) != 0 }
}

/// Any extent can be split: it is a part of one mapping.
unsafe extern "C" fn split(
    _: *mut Hooks,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}

/// Neighbours can be merged, for the same reason.
unsafe extern "C" fn merge(
    _: *mut Hooks,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}
