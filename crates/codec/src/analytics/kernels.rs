//! The inner loops, each implemented per instruction set.
//!
//! The loops work on chunks that begin at a multiple of eight elements, and so at a whole byte.

use super::Endian;
use super::portable;

/// Elements per step. Their integers stay in the first-level cache.
pub(super) const CHUNK: usize = 512;

/// The bits of a chunk.
pub(super) type Bits = [u64; CHUNK / 64];

/// How the elements of a chunk are packed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packing {
    /// Bits of an element, 1 to 32.
    pub(super) width: u32,
    pub(super) endian: Endian,
}

impl Packing {
    /// Bytes of so many elements.
    pub(super) fn bytes(self, elements: usize) -> usize {
        (elements * self.width as usize).div_ceil(8)
    }

    /// The largest element.
    pub(super) fn element_max(self) -> u32 {
        u32::MAX >> (32 - self.width)
    }
}

/// Smallest, largest and sum of integers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Totals {
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) sum: u32,
}

impl Totals {
    /// Of none.
    pub(super) const NONE: Totals = Totals { min: u32::MAX, max: 0, sum: 0 };
}

/// An instruction set that this machine has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kernels {
    /// Plain Rust, for every machine.
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx512(super::avx512::Avx512),
}

impl Kernels {
    /// The fastest kernels of this machine.
    pub(super) fn fastest() -> Kernels {
        Kernels::avx512().unwrap_or(Kernels::Portable)
    }

    /// AVX-512 with byte permutation, if this machine has it.
    pub(super) fn avx512() -> Option<Kernels> {
        #[cfg(target_arch = "x86_64")]
        return super::avx512::Avx512::detect().map(Kernels::Avx512);
        #[cfg(not(target_arch = "x86_64"))]
        return None;
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kernels::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx512(_) => "avx512",
        }
    }

    /// Unpacks all whole elements in `bytes`, at most a chunk. The values behind them are undefined.
    pub(super) fn unpack(self, bytes: &[u8], packing: Packing, values: &mut [u32; CHUNK]) {
        match self {
            Kernels::Portable => portable::unpack(bytes, packing, values),
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx512(kernels) => kernels.unpack(bytes, packing, values),
        }
    }

    /// Sets a bit for each element of a chunk that lies in a range. Bits behind the last whole element of `bytes` are
    /// undefined.
    pub(super) fn scan(self, bytes: &[u8], packing: Packing, low: u32, high: u32) -> Bits {
        match self {
            Kernels::Portable => portable::scan(bytes, packing, low, high),
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx512(kernels) => kernels.scan(bytes, packing, low, high),
        }
    }

    /// Moves the values whose bit is set to the front of `selected`, and returns their number.
    pub(super) fn select(self, values: &[u32; CHUNK], bits: &Bits, selected: &mut [u32; CHUNK]) -> usize {
        match self {
            Kernels::Portable => portable::select(values, bits, selected),
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx512(kernels) => kernels.select(values, bits, selected),
        }
    }

    /// Writes the next of `values` for each set bit, and 0 for each other bit. There are as many values as ones.
    pub(super) fn expand(self, values: &[u32], bits: &Bits, expanded: &mut [u32; CHUNK]) {
        match self {
            Kernels::Portable => portable::expand(values, bits, expanded),
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx512(kernels) => kernels.expand(values, bits, expanded),
        }
    }

    /// Adds values to totals.
    pub(super) fn total(self, values: &[u32], totals: &mut Totals) {
        match self {
            Kernels::Portable => portable::total(values, totals),
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx512(kernels) => kernels.total(values, totals),
        }
    }

    /// Appends values, which must fit the width. All calls but the last pass a multiple of 32 values.
    pub(super) fn pack(self, values: &[u32], packing: Packing, out: &mut Vec<u8>) {
        match self {
            Kernels::Portable => portable::pack(values, packing, out),
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx512(kernels) => kernels.pack(values, packing, out),
        }
    }
}
