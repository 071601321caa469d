//! The way of an allocation: compare the size, choose the medium, spill, move.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use tikv_jemalloc_sys as jemalloc;
use tikv_jemalloc_sys::{MALLOCX_ALIGN, MALLOCX_TCACHE_NONE, MALLOCX_ZERO};
use ziptier_alloc::page::Medium;
use ziptier_alloc::placement::Decision;

use crate::room::{LARGE_ABOVE, ROOMS, Taken, block_bytes};
use crate::thread::Thread;
use crate::{sizes, tick};

/// What allocations compare with. A tick writes them, each by itself: an allocation that sees an old and a new word
/// takes the wrong medium, which does no harm.
#[repr(C, align(64))]
pub(crate) struct Words {
    /// Sizes up to this go to DRAM without a further look.
    quick_max: AtomicU64,
    /// The first address of far memory.
    pub(crate) range_base: AtomicUsize,
    /// Its length; 0 is no far memory.
    pub(crate) range_len: AtomicUsize,
    /// As in [`Decision`].
    dram_max: AtomicU64,
    far_above: AtomicU64,
    far_fraction: AtomicU32,
    /// Whether zeroed blocks of a power of two stay in DRAM.
    pub(crate) tables_in_dram: AtomicBool,
    dram_room_bytes: AtomicU64,
    far_room_bytes: AtomicU64,
}

const _: () = assert!(size_of::<Words>() == 64);

pub(crate) static WORDS: Words = Words {
    quick_max: AtomicU64::new(u64::MAX),
    range_base: AtomicUsize::new(0),
    range_len: AtomicUsize::new(0),
    dram_max: AtomicU64::new(u64::MAX),
    far_above: AtomicU64::new(u64::MAX),
    far_fraction: AtomicU32::new(0),
    tables_in_dram: AtomicBool::new(false),
    dram_room_bytes: AtomicU64::new(u64::MAX),
    far_room_bytes: AtomicU64::new(u64::MAX),
};

/// Counts of one medium since the process began, or was forked.
pub(crate) struct Counts {
    pub(crate) spills: AtomicU64,
    pub(crate) spilled_bytes: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
}

/// DRAM's and far memory's, by [`Medium`].
pub(crate) static COUNTS: [Counts; 2] = [const { Counts::new() }; 2];

impl Words {
    /// Obeys a decision.
    pub(crate) fn set(&self, decision: &Decision) {
        let quick_room = match decision.dram_room_bytes {
            u64::MAX => u64::MAX,
            room => room.min(LARGE_ABOVE as u64),
        };
        self.quick_max.store(decision.dram_max.min(quick_room), Relaxed);
        self.dram_max.store(decision.dram_max, Relaxed);
        self.far_above.store(decision.far_above, Relaxed);
        self.far_fraction.store(decision.far_fraction, Relaxed);
        self.dram_room_bytes.store(decision.dram_room_bytes, Relaxed);
        self.far_room_bytes.store(decision.far_room_bytes, Relaxed);
    }

    /// Whether a block lies in far memory.
    #[inline(always)]
    pub(crate) fn is_far(&self, block: *const c_void) -> bool {
        (block as usize).wrapping_sub(self.range_base.load(Relaxed)) < self.range_len.load(Relaxed)
    }
}

impl Counts {
    const fn new() -> Counts {
        Counts {
            spills: AtomicU64::new(0),
            spilled_bytes: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
        }
    }

    /// Begins anew, in a forked child.
    pub(crate) fn clear() {
        for counts in &COUNTS {
            for count in [&counts.spills, &counts.spilled_bytes, &counts.moves, &counts.moved_bytes] {
                count.store(0, Relaxed);
            }
        }
    }

    fn spilled(wanted: Medium, bytes: usize) {
        let counts = &COUNTS[wanted as usize];
        counts.spills.fetch_add(1, Relaxed);
        counts.spilled_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn moved(to: Medium, bytes: usize) {
        let counts = &COUNTS[to as usize];
        counts.moves.fetch_add(1, Relaxed);
        counts.moved_bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// `malloc`.
///
/// # Safety
///
/// That of every function here: blocks that are given are live and from here.
#[inline(always)]
pub(crate) unsafe fn allocate(bytes: usize) -> *mut c_void {
    let thread = Thread::current();
    // SAFETY: the variables are this thread's.
    unsafe {
        Thread::count(thread, bytes);
        if bytes as u64 <= WORDS.quick_max.load(Relaxed) {
            let block = jemalloc::malloc(bytes);
            if !block.is_null() {
                sizes::set(block, bytes);
                return block;
            }
        }
        place(thread, bytes, 0)
    }
}

/// `calloc` of `bytes` bytes.
#[inline(always)]
pub(crate) unsafe fn allocate_zeroed(bytes: usize) -> *mut c_void {
    let thread = Thread::current();
    // SAFETY: the variables are this thread's.
    unsafe {
        let is_quick = if is_table(bytes) {
            Thread::count_unplaced(thread, bytes);
            bytes <= LARGE_ABOVE && has_room(Medium::Dram, bytes)
        } else {
            Thread::count(thread, bytes);
            bytes as u64 <= WORDS.quick_max.load(Relaxed)
        };
        if is_quick {
            let block = jemalloc::calloc(1, bytes);
            if !block.is_null() {
                sizes::set(block, bytes);
                return block;
            }
        }
        place(thread, bytes, MALLOCX_ZERO)
    }
}

/// Whether a zeroed block is a table of pointers that stays in DRAM. Redis's and Valkey's hash tables are a power of
/// two of pointers or buckets, by `calloc`; their values never come from `calloc`.
#[inline(always)]
fn is_table(bytes: usize) -> bool {
    bytes.is_power_of_two() && WORDS.tables_in_dram.load(Relaxed)
}

/// An aligned allocation, or one of `mallocx`: `flags` are jemalloc's, and name no arena and no cache.
pub(crate) unsafe fn allocate_with(bytes: usize, flags: c_int) -> *mut c_void {
    let thread = Thread::current();
    // SAFETY: the variables are this thread's. jemalloc takes no size of 0 here.
    unsafe {
        Thread::count(thread, bytes);
        if bytes as u64 <= WORDS.quick_max.load(Relaxed) {
            let block = jemalloc::mallocx(bytes.max(1), flags);
            if !block.is_null() {
                sizes::set_by_usable_size(block);
                return block;
            }
        }
        place(thread, bytes, flags)
    }
}

/// An allocation at an alignment.
pub(crate) unsafe fn allocate_aligned(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: it is the caller's.
    unsafe { allocate_with(bytes, MALLOCX_ALIGN(alignment)) }
}

/// Allocates a block that makes some medium larger. Before it refuses, it counts what was freed. `allocate` tells
/// whether other threads took the room that the count found. As long as they do, it counts again, but not for ever: a
/// signal handler may have interrupted the very thread that holds the room.
#[inline(always)]
fn try_again(mut allocate: impl FnMut(&Cell<bool>) -> *mut c_void) -> *mut c_void {
    let is_taken = Cell::new(false);
    let mut block = allocate(&is_taken);
    for _ in 0..tick::RECOUNT_TURNS {
        if !block.is_null() || !is_limited() || !tick::recount() {
            break;
        }
        is_taken.set(false);
        block = allocate(&is_taken);
        if !is_taken.get() {
            break;
        }
        // A thread that lost its processor may have begun a block before the count.
        tick::sleep();
    }
    block
}

/// Places a block.
#[inline(never)]
unsafe fn place(thread: *mut Thread, bytes: usize, flags: c_int) -> *mut c_void {
    // SAFETY: the variables are this thread's.
    unsafe { or_no_memory(try_again(|is_taken| place_by_last_tick(thread, bytes, flags, is_taken))) }
}

/// Chooses the medium, and takes the other one where it has no room.
#[inline(always)]
unsafe fn place_by_last_tick(
    thread: *mut Thread,
    bytes: usize,
    flags: c_int,
    is_taken: &Cell<bool>,
) -> *mut c_void {
    // SAFETY: the variables are this thread's.
    unsafe {
        let wanted =
            if flags == MALLOCX_ZERO && is_table(bytes) { Medium::Dram } else { wanted(thread, bytes) };
        // Limits count the blocks in magazines already.
        if wanted == Medium::Far && flags == 0 && !(*thread).magazines.is_null() {
            let block = (*(*thread).magazines).take(sizes::class_of_size(bytes));
            if !block.is_null() {
                return block;
            }
        }
        let other = if wanted == Medium::Far { Medium::Dram } else { Medium::Far };
        let mut block = within(wanted, bytes, is_taken, || allocate_in(wanted, thread, bytes, flags));
        if block.is_null() {
            block = within(other, bytes, is_taken, || allocate_in(other, thread, bytes, flags));
            if !block.is_null() {
                Counts::spilled(wanted, bytes);
            }
        }
        block
    }
}

/// The medium that the policy wants for a size.
unsafe fn wanted(thread: *mut Thread, bytes: usize) -> Medium {
    let bytes = bytes as u64;
    if bytes <= WORDS.dram_max.load(Relaxed) || WORDS.range_len.load(Relaxed) == 0 {
        return Medium::Dram;
    }
    // SAFETY: the variables are this thread's.
    let is_far = bytes > WORDS.far_above.load(Relaxed)
        || unsafe { Thread::dither(thread, WORDS.far_fraction.load(Relaxed)) };
    if is_far { Medium::Far } else { Medium::Dram }
}

/// Allocates a block that makes a medium `bytes` larger. Returns null if the limit leaves no room, and tells whether
/// others took the room that the last tick left.
#[inline(always)]
fn within(
    medium: Medium,
    bytes: usize,
    is_taken: &Cell<bool>,
    allocate: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    if !has_room(medium, bytes) {
        return null_mut();
    }
    if bytes <= LARGE_ABOVE || room_bytes(medium) == u64::MAX {
        return allocate();
    }
    let block_bytes = block_bytes(bytes);
    if block_bytes > room_bytes(medium) {
        return null_mut();
    }
    ROOMS[medium as usize].allocate(block_bytes, allocate).unwrap_or_else(|Taken| {
        is_taken.set(true);
        null_mut()
    })
}

/// An allocation in one medium, which has room by its limit.
unsafe fn allocate_in(medium: Medium, thread: *mut Thread, bytes: usize, flags: c_int) -> *mut c_void {
    // SAFETY: the variables are this thread's. jemalloc takes no size of 0 here.
    unsafe {
        let cache = if medium == Medium::Far { Thread::far_flags(thread) } else { 0 };
        let block = jemalloc::mallocx(bytes.max(1), flags | cache);
        if flags & !MALLOCX_ZERO == 0 && !block.is_null() {
            sizes::set(block, bytes);
        } else {
            sizes::set_by_usable_size(block);
        }
        block
    }
}

fn or_no_memory(block: *mut c_void) -> *mut c_void {
    if block.is_null() {
        set_errno(libc::ENOMEM);
    }
    block
}

/// Sets `errno`.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: it points at this thread's variable.
    unsafe { *libc::__errno_location() = error }
}

/// `free`.
#[inline(always)]
pub(crate) unsafe fn free(block: *mut c_void) {
    // SAFETY: the block is live and from here, or null.
    unsafe { if WORDS.is_far(block) { free_far(block) } else { jemalloc::free(block) } }
}

/// `free` of a block that was allocated with `bytes` and `flags`.
#[inline(always)]
pub(crate) unsafe fn free_sized(block: *mut c_void, bytes: usize, flags: c_int) {
    // SAFETY: as in `free`.
    unsafe {
        if WORDS.is_far(block) {
            free_far(block);
        } else if !block.is_null() {
            jemalloc::sdallocx(block, bytes.max(1), flags);
        }
    }
}

/// Frees a block that a far arena has.
#[inline(always)]
unsafe fn free_far(block: *mut c_void) {
    let thread = Thread::current();
    // SAFETY: the variables are this thread's, and the block is live.
    unsafe {
        let magazines = (*thread).magazines;
        if magazines.is_null() || !(*magazines).keep(sizes::class_of(block), block) {
            jemalloc::dallocx(block, MALLOCX_TCACHE_NONE);
        }
    }
}

/// `realloc`, which moves a block to the other medium if its new size lies well inside that. Between the thresholds,
/// and a quarter beyond them, it stays: a move costs a copy that the next `realloc` may undo.
pub(crate) unsafe fn reallocate(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the block is live and from here.
    unsafe {
        if block.is_null() {
            return allocate(bytes);
        }
        if bytes == 0 {
            free(block);
            return null_mut();
        }
        reallocate_with(block, bytes, 0)
    }
}

/// `rallocx`: `flags` are jemalloc's, and name no arena and no cache.
pub(crate) unsafe fn reallocate_with(block: *mut c_void, bytes: usize, flags: c_int) -> *mut c_void {
    let thread = Thread::current();
    // SAFETY: the variables are this thread's. The block is live and from here.
    unsafe {
        Thread::count(thread, bytes);
        or_no_memory(try_again(|is_taken| resize_by_last_tick(thread, block, bytes, flags, is_taken)))
    }
}

/// Resizes a block where it is, or moves it. Returns null and leaves it if no medium has room.
#[inline(always)]
unsafe fn resize_by_last_tick(
    thread: *mut Thread,
    block: *mut c_void,
    bytes: usize,
    flags: c_int,
    is_taken: &Cell<bool>,
) -> *mut c_void {
    // SAFETY: the variables are this thread's. The block is live and from here.
    unsafe {
        let is_far = WORDS.is_far(block);
        let (own, other) = if is_far { (Medium::Far, Medium::Dram) } else { (Medium::Dram, Medium::Far) };
        if is_inside(other, bytes) {
            let moved = within(other, bytes, is_taken, || moved_to(other, thread, block, bytes, flags));
            if !moved.is_null() {
                Counts::moved(other, bytes);
                return moved;
            }
        }
        let cache = if is_far { Thread::far_flags(thread) } else { 0 };
        let grown = bytes.saturating_sub(sizes::usable(block));
        let resized = within(own, grown, is_taken, || jemalloc::rallocx(block, bytes.max(1), flags | cache));
        if !resized.is_null() {
            sizes::set_by_usable_size(resized);
            return resized;
        }
        let moved = within(other, bytes, is_taken, || moved_to(other, thread, block, bytes, flags));
        if !moved.is_null() {
            Counts::spilled(own, bytes);
        }
        moved
    }
}

/// Whether a medium has a limit.
fn is_limited() -> bool {
    room_bytes(Medium::Dram).min(room_bytes(Medium::Far)) < u64::MAX
}

/// Whether a block of a size leaves a medium below its limit.
#[inline(always)]
fn has_room(medium: Medium, bytes: usize) -> bool {
    let is_there = medium == Medium::Dram || WORDS.range_len.load(Relaxed) != 0;
    bytes as u64 <= room_bytes(medium) && is_there
}

/// The room of the last tick.
#[inline(always)]
fn room_bytes(medium: Medium) -> u64 {
    match medium {
        Medium::Dram => WORDS.dram_room_bytes.load(Relaxed),
        Medium::Far => WORDS.far_room_bytes.load(Relaxed),
    }
}

/// Whether a size lies so far inside a medium that a block moves there.
fn is_inside(medium: Medium, bytes: usize) -> bool {
    match medium {
        Medium::Dram => {
            let max = WORDS.dram_max.load(Relaxed);
            bytes as u64 <= max - max / 4
        }
        Medium::Far => {
            let above = WORDS.far_above.load(Relaxed);
            bytes as u64 > above.saturating_add(above / 4)
        }
    }
}

/// Copies a block to another medium, or returns null and leaves the block.
unsafe fn moved_to(
    medium: Medium,
    thread: *mut Thread,
    block: *mut c_void,
    bytes: usize,
    flags: c_int,
) -> *mut c_void {
    // SAFETY: the variables are this thread's. Both blocks are live, and have as many bytes as are copied.
    unsafe {
        let moved = allocate_in(medium, thread, bytes, flags);
        if !moved.is_null() {
            let usable = sizes::usable(block);
            moved.cast::<u8>().copy_from_nonoverlapping(block.cast(), usable.min(bytes));
            free(block);
        }
        moved
    }
}
