//! The size of each block that is not huge, by the page of addresses where the block begins.
//!
//! Redis asks for the usable size of each block twice, when it allocates the block and when it frees it. jemalloc's
//! answer takes 45 instructions and touches what describes the extent. Here a byte per page of 4 KiB has the class, and
//! the answer takes ten instructions. All blocks that begin in one page have the same class, because jemalloc cuts a
//! slab into blocks of one size, and gives a larger block pages of its own.
//!
//! Whoever hands out a block stores its class first ([`set`]). So the byte of a page is right while a block that begins
//! there is live: a page gets blocks of another class only after the last block of the old class was freed. The bytes
//! of blocks above [`KEPT_MAX`] are 0, and jemalloc answers for them.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU8};

use tikv_jemalloc_sys as jemalloc;
use ziptier_alloc::size_class::{class, class_bytes};

/// The largest size of a block whose class is stored: that of jemalloc's own caches.
const KEPT_MAX: usize = 32768;
/// Classes that are stored.
pub(crate) const KEPT_CLASSES: usize = class(KEPT_MAX as u64) + 1;

const PAGE_BITS: u32 = 12;
/// A leaf has the pages of 1 GiB of addresses.
const LEAF_BITS: u32 = 30;
const LEAF_PAGES: usize = 1 << (LEAF_BITS - PAGE_BITS);
/// Addresses of programs have 48 bits at most.
const LEAVES: usize = 1 << (48 - LEAF_BITS);

type Leaf = [AtomicU8; LEAF_PAGES];

static ROOT: [AtomicPtr<Leaf>; LEAVES] = [const { AtomicPtr::new(null_mut()) }; LEAVES];

/// One more than the class of a size, by eighths of the size.
static CLASS_OF: [u8; KEPT_MAX / 8 + 1] = {
    let mut classes = [0; KEPT_MAX / 8 + 1];
    let mut eighth = 0;
    while eighth < classes.len() {
        classes[eighth] = class(8 * eighth as u64) as u8 + 1;
        eighth += 1;
    }
    classes
};

/// The size of each class, behind one for no class.
static BYTES_OF: [u16; KEPT_CLASSES + 1] = {
    let mut bytes = [0; KEPT_CLASSES + 1];
    let mut class = 0;
    while class < KEPT_CLASSES {
        bytes[class + 1] = class_bytes(class) as u16;
        class += 1;
    }
    bytes
};

/// One more than the class of a size; 0 for a size above [`KEPT_MAX`].
#[inline(always)]
pub(crate) fn class_of_size(bytes: usize) -> u8 {
    if bytes <= KEPT_MAX { CLASS_OF[bytes.div_ceil(8)] } else { 0 }
}

/// Stores the class of a new block of `bytes` bytes, at the usual alignment.
#[inline(always)]
pub(crate) fn set(block: *mut c_void, bytes: usize) {
    store(block, class_of_size(bytes));
}

/// Stores the class of a new block that may be larger than was asked for. Nothing is stored for null.
///
/// # Safety
///
/// The block is live, or null.
pub(crate) unsafe fn set_by_usable_size(block: *mut c_void) {
    if !block.is_null() {
        // SAFETY: the block is live.
        set(block, unsafe { jemalloc::malloc_usable_size(block) });
    }
}

#[inline(always)]
fn store(block: *mut c_void, class: u8) {
    let address = block as usize;
    let Some(root) = ROOT.get(address >> LEAF_BITS) else { return };
    let mut leaf = root.load(Acquire);
    if leaf.is_null() {
        leaf = make(root);
        if leaf.is_null() {
            return;
        }
    }
    // SAFETY: leaves live as long as the process.
    unsafe { (&(*leaf))[address >> PAGE_BITS & (LEAF_PAGES - 1)].store(class, Relaxed) };
}

/// One more than the class of a live block; 0 if that is not stored.
#[inline(always)]
pub(crate) fn class_of(block: *const c_void) -> u8 {
    let address = block as usize;
    let Some(root) = ROOT.get(address >> LEAF_BITS) else { return 0 };
    let leaf = root.load(Acquire);
    if leaf.is_null() {
        return 0;
    }
    // SAFETY: leaves live as long as the process.
    unsafe { (&(*leaf))[address >> PAGE_BITS & (LEAF_PAGES - 1)].load(Relaxed) }
}

/// The bytes of a live block that may be used; 0 for null.
///
/// # Safety
///
/// The block is live, or null.
#[inline(always)]
pub(crate) unsafe fn usable(block: *const c_void) -> usize {
    let class = class_of(block);
    if class == 0 {
        // SAFETY: it is the caller's.
        return unsafe { jemalloc::malloc_usable_size(block) };
    }
    BYTES_OF[usize::from(class)].into()
}

/// Maps a leaf of zeros. Null if the system grants none: jemalloc answers then.
#[cold]
#[inline(never)]
fn make(root: &AtomicPtr<Leaf>) -> *mut Leaf {
    let bytes = size_of::<Leaf>();
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the address, so no other mapping is touched. Zeros are a valid leaf.
    unsafe {
        let made = libc::mmap(null_mut(), bytes, access, flags, -1, 0);
        if made == libc::MAP_FAILED {
            return null_mut();
        }
        match root.compare_exchange(null_mut(), made.cast(), AcqRel, Acquire) {
            Ok(_) => made.cast(),
            Err(others) => {
                libc::munmap(made, bytes);
                others
            }
        }
    }
}
