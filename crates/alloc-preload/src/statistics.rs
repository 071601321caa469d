//! What jemalloc counts, by its `mallctl`.
//!
//! jemalloc counts blocks by size class and arena whether anybody asks or not, so an allocation pays nothing for it.
//! Only a tick pays: it has jemalloc sum up, and reads the sums by numeric names.

use std::ffi::{CStr, c_uint, c_void};
use std::mem::size_of;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tikv_jemalloc_sys as jemalloc;
use ziptier_alloc::page::{Medium, Page};
use ziptier_alloc::size_class::{CLASSES, class_bytes};

use crate::far;

/// The arena that stands for all.
const ALL_ARENAS: usize = 4096;

/// Classes that are read. Larger blocks, above 4 GiB, are too few for a histogram.
const READ: usize = 5 + 4 * 26;

/// Sets a value of jemalloc's, or has it do a thing.
pub(crate) fn write<T: Copy>(name: &CStr, value: &T) -> bool {
    let value = from_ref(value).cast_mut().cast();
    // SAFETY: jemalloc reads a value of the size that it is told, or refuses another size.
    unsafe { jemalloc::mallctl(name.as_ptr(), null_mut(), null_mut(), value, size_of::<T>()) == 0 }
}

/// Reads a value of jemalloc's.
pub(crate) fn read<T: Copy>(name: &CStr, value: &mut T) -> bool {
    exchange(name, value, null_mut(), 0)
}

/// Reads a value of jemalloc's for which it takes another one.
pub(crate) fn read_for<T: Copy, U: Copy>(name: &CStr, given: &T, value: &mut U) -> bool {
    exchange(name, value, from_ref(given).cast_mut().cast(), size_of::<T>())
}

fn exchange<U: Copy>(name: &CStr, value: &mut U, given: *mut c_void, given_len: usize) -> bool {
    let mut len = size_of::<U>();
    let value: *mut U = value;
    // SAFETY: jemalloc writes a value of the size that it is told, or refuses another size, and reads one likewise.
    unsafe { jemalloc::mallctl(name.as_ptr(), value.cast(), &mut len, given, given_len) == 0 }
}

/// A numeric name with room for the longest.
#[derive(Clone, Copy)]
struct Name {
    parts: [usize; 6],
    len: usize,
}

impl Name {
    const NONE: Name = Name { parts: [0; 6], len: 0 };

    fn of(text: &CStr) -> Name {
        let mut name = Name { parts: [0; 6], len: 6 };
        // SAFETY: jemalloc writes at most as many parts as it is told.
        let failed =
            unsafe { jemalloc::mallctlnametomib(text.as_ptr(), name.parts.as_mut_ptr(), &mut name.len) } != 0;
        if failed { Name::NONE } else { name }
    }

    /// The value in arena `arena`, and of class `class` if the name has one.
    fn value(mut self, arena: usize, class: usize) -> u64 {
        self.parts[2] = arena;
        if self.len == self.parts.len() {
            self.parts[4] = class;
        }
        let (mut value, mut len) = (0_u64, size_of::<u64>());
        let out = (&raw mut value).cast();
        // SAFETY: jemalloc writes a value of the size that it is told, or refuses another size.
        unsafe { jemalloc::mallctlbymib(self.parts.as_ptr(), self.len, out, &mut len, null_mut(), 0) };
        value
    }
}

/// The numeric names of what a tick reads.
pub(crate) struct Names {
    /// jemalloc's small classes are the first ones of ours. The others are its large classes.
    small_classes: usize,
    page_bytes: u64,
    small_bytes: Name,
    large_bytes: Name,
    pages: Name,
    mapped: Name,
    small_count: Name,
    small_placed: Name,
    large_count: Name,
    large_placed: Name,
}

impl Names {
    /// Before jemalloc was asked.
    pub(crate) const fn none() -> Names {
        Names {
            small_classes: 0,
            page_bytes: 0,
            small_bytes: Name::NONE,
            large_bytes: Name::NONE,
            pages: Name::NONE,
            mapped: Name::NONE,
            small_count: Name::NONE,
            small_placed: Name::NONE,
            large_count: Name::NONE,
            large_placed: Name::NONE,
        }
    }

    /// Asks jemalloc.
    pub(crate) fn resolve() -> Names {
        let (mut small_classes, mut page_bytes): (c_uint, usize) = (0, 0);
        read(c"arenas.nbins", &mut small_classes);
        read(c"arenas.page", &mut page_bytes);
        Names {
            small_classes: small_classes as usize,
            page_bytes: page_bytes as u64,
            small_bytes: Name::of(c"stats.arenas.0.small.allocated"),
            large_bytes: Name::of(c"stats.arenas.0.large.allocated"),
            pages: Name::of(c"stats.arenas.0.pactive"),
            mapped: Name::of(c"stats.arenas.0.mapped"),
            small_count: Name::of(c"stats.arenas.0.bins.0.curregs"),
            small_placed: Name::of(c"stats.arenas.0.bins.0.nmalloc"),
            large_count: Name::of(c"stats.arenas.0.lextents.0.curlextents"),
            large_placed: Name::of(c"stats.arenas.0.lextents.0.nmalloc"),
        }
    }

    /// Has jemalloc sum up. What is read later stands still until the next call.
    pub(crate) fn refresh(&self) {
        write(c"epoch", &1_u64);
    }

    /// Live bytes in DRAM and in far memory.
    pub(crate) fn live_bytes(&self) -> (u64, u64) {
        let live = |arena| self.small_bytes.value(arena, 0) + self.large_bytes.value(arena, 0);
        let far = far::arenas().map(live).sum();
        (live(ALL_ARENAS).saturating_sub(far), far)
    }

    /// All bytes that were ever allocated, by class.
    pub(crate) fn placed(&self, placed: &mut [u64; CLASSES]) {
        for (class, bytes) in placed.iter_mut().enumerate().take(READ) {
            *bytes = self.by_class(&self.small_placed, &self.large_placed, ALL_ARENAS, class);
        }
    }

    /// A count of blocks, in bytes.
    fn by_class(&self, small: &Name, large: &Name, arena: usize, class: usize) -> u64 {
        let count = match class.checked_sub(self.small_classes) {
            None => small.value(arena, class),
            Some(large_class) => large.value(arena, large_class),
        };
        count * class_bytes(class)
    }

    /// Tells what takes longer to read: pages, mappings, and live bytes by class.
    pub(crate) fn tell(&self, page: &Page) {
        let (dram, far) = (page.told.medium(Medium::Dram), page.told.medium(Medium::Far));
        let put = |[dram, far]: [&AtomicU64; 2], of_arena: &dyn Fn(usize) -> u64| {
            let in_far = far::arenas().map(of_arena).sum();
            dram.store(of_arena(ALL_ARENAS).saturating_sub(in_far), Relaxed);
            far.store(in_far, Relaxed);
        };
        put([&dram.active_bytes, &far.active_bytes], &|arena| self.pages.value(arena, 0) * self.page_bytes);
        put([&dram.mapped_bytes, &far.mapped_bytes], &|arena| self.mapped.value(arena, 0));
        for class in 0..READ {
            put([&dram.live_bytes_by_class[class], &far.live_bytes_by_class[class]], &|arena| {
                self.by_class(&self.small_count, &self.large_count, arena, class)
            });
        }
    }
}

/// Gives the free pages of all arenas back to the system.
pub(crate) fn purge() -> bool {
    // SAFETY: the name is a C string, and nothing is read or written.
    unsafe { jemalloc::mallctl(c"arena.4096.purge".as_ptr(), null_mut(), null_mut(), null_mut(), 0) == 0 }
}
