//! The free far blocks that a thread keeps at hand.
//!
//! jemalloc's cache of a thread is for DRAM. jemalloc could give a thread a second cache, but reaches that by its
//! general functions, at 125 instructions for an allocation and 85 for a free, and counts what waits in it as DRAM's. A
//! magazine takes 15 instructions. It holds few blocks: those of a program that frees an old value for each new one.
//! jemalloc has handed them out, so they count as live.

use std::ffi::c_void;
use std::ptr::null_mut;

use tikv_jemalloc_sys as jemalloc;
use tikv_jemalloc_sys::MALLOCX_ZERO;
use ziptier_alloc::size_class::class_bytes;

use crate::sizes::KEPT_CLASSES;

/// The most blocks and bytes of one class.
const BLOCKS_MAX: usize = 16;
const BYTES_MAX: u64 = 64 << 10;

/// Blocks that a class may have.
static CAPACITIES: [u8; KEPT_CLASSES] = {
    let mut capacities = [BLOCKS_MAX as u8; KEPT_CLASSES];
    let mut class = 0;
    while class < KEPT_CLASSES {
        let fits = BYTES_MAX / class_bytes(class);
        if fits < BLOCKS_MAX as u64 {
            capacities[class] = fits as u8;
        }
        class += 1;
    }
    capacities
};

/// A magazine for each class that [`crate::sizes`] stores. All zeros is empty.
pub(crate) struct Magazines {
    lens: [u8; KEPT_CLASSES],
    blocks: [[*mut c_void; BLOCKS_MAX]; KEPT_CLASSES],
}

impl Magazines {
    /// Empty ones, in DRAM, or null.
    pub(crate) fn new() -> *mut Magazines {
        // SAFETY: the size is not 0, and zeros are valid.
        unsafe { jemalloc::mallocx(size_of::<Magazines>(), MALLOCX_ZERO).cast() }
    }

    /// Takes a block of a class that is given as [`crate::sizes`] has it, or null.
    #[inline(always)]
    pub(crate) fn take(&mut self, class_and_one: u8) -> *mut c_void {
        let class = usize::from(class_and_one).wrapping_sub(1);
        let Some(len) = self.lens.get_mut(class).filter(|len| **len > 0) else { return null_mut() };
        *len -= 1;
        self.blocks[class][usize::from(*len) % BLOCKS_MAX]
    }

    /// Keeps a free block, unless its magazine is full.
    #[inline(always)]
    pub(crate) fn keep(&mut self, class_and_one: u8, block: *mut c_void) -> bool {
        let class = usize::from(class_and_one).wrapping_sub(1);
        let Some(len) = self.lens.get_mut(class).filter(|len| **len < CAPACITIES[class]) else {
            return false;
        };
        self.blocks[class][usize::from(*len) % BLOCKS_MAX] = block;
        *len += 1;
        true
    }

    /// Takes any block, or null.
    pub(crate) fn take_any(&mut self) -> *mut c_void {
        let class = self.lens.iter().position(|&len| len > 0);
        class.map_or(null_mut(), |class| self.take(class as u8 + 1))
    }
}
