//! What jemalloc counts, by its `mallctl`.
//!
//! jemalloc counts blocks by size class and arena whether anybody asks or not, so an allocation pays nothing for it. To
//! sum up takes jemalloc some 50 us, too long for each tick. jemalloc also lends the address of each arena's count of
//! pages. Between two sums, a tick multiplies pages with the bytes that a page held on average at the last sum. For
//! limits it counts pages beyond those of the last sum as full.

use std::array::from_fn;
use std::ffi::{CStr, c_uint, c_void};
use std::mem::size_of;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use tikv_jemalloc_sys as jemalloc;
use ziptier_alloc::page::{Medium, Page};
use ziptier_alloc::size_class::{class, class_bytes, paged_above};

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
    fn of(text: &CStr) -> Name {
        let mut name = Name { parts: [0; 6], len: 6 };
        // SAFETY: jemalloc writes at most as many parts as it is told.
        unsafe { jemalloc::mallctlnametomib(text.as_ptr(), name.parts.as_mut_ptr(), &mut name.len) };
        name
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

/// The size of jemalloc's pages before jemalloc was asked.
const PAGE_BYTES: usize = 4096;

/// Arenas whose pages are counted between two sums.
const ARENAS_MAX: usize = 512;

/// What jemalloc counts, by medium: DRAM, then far memory.
pub(crate) struct Census {
    /// jemalloc's small classes are the first ones of ours. The others are its large classes.
    small_classes: usize,
    pub(crate) page_bytes: u64,
    /// The counters of pages that hold blocks, one per arena, and whether the arena is far.
    pages: [Option<(&'static AtomicUsize, Medium)>; ARENAS_MAX],
    /// Pages with blocks in other arenas, at the last sum. These count as DRAM.
    other_pages: usize,
    /// Bytes that jemalloc had handed out, and the pages with blocks, at the last sum.
    summed: [(u64, usize); 2],
    /// Bytes of free blocks that jemalloc's caches of threads had at the last sum.
    cached_bytes: [u64; 2],
}

impl Census {
    /// Before jemalloc was asked.
    pub(crate) const fn new() -> Census {
        Census {
            small_classes: 0,
            page_bytes: PAGE_BYTES as u64,
            pages: [None; ARENAS_MAX],
            other_pages: 0,
            summed: [(0, 0); 2],
            cached_bytes: [0; 2],
        }
    }

    /// Has jemalloc sum up: exact, and a hundred times the cost of [`Census::estimate`].
    pub(crate) fn sum_up(&mut self) -> [u64; 2] {
        let (mut small_classes, mut page_bytes): (c_uint, usize) = (0, PAGE_BYTES);
        read(c"arenas.nbins", &mut small_classes);
        read(c"arenas.page", &mut page_bytes);
        (self.small_classes, self.page_bytes) = (small_classes as usize, page_bytes as u64);
        write(c"epoch", &1_u64);
        let (small, large) =
            (Name::of(c"stats.arenas.0.small.allocated"), Name::of(c"stats.arenas.0.large.allocated"));
        let allocated = by_medium(|arena| small.value(arena, 0) + large.value(arena, 0));
        let cached = Name::of(c"stats.arenas.0.tcache_bytes");
        self.cached_bytes = by_medium(|arena| cached.value(arena, 0));
        self.find_counters();
        self.other_pages = 0;
        let active = Name::of(c"stats.arenas.0.pactive").value(ALL_ARENAS, 0) as usize;
        self.other_pages = active.saturating_sub(self.counted_pages().iter().sum());
        let pages = self.counted_pages();
        // Another thread may free blocks after jemalloc has summed up, and before their pages are read here.
        let summed = |medium: usize| (allocated[medium].min(self.bytes_of(pages[medium])), pages[medium]);
        self.summed = [0, 1].map(summed);
        self.live(allocated)
    }

    /// Live bytes, from the pages that hold blocks now and what a page held on average at the last sum.
    pub(crate) fn estimate(&self) -> [u64; 2] {
        let pages = self.counted_pages();
        self.live([0, 1].map(|medium: usize| match self.summed[medium] {
            // The first pages of a medium count as full.
            (_, 0) => self.bytes_of(pages[medium]),
            (bytes, pages_then) => (bytes as f64 / pages_then as f64 * pages[medium] as f64) as u64,
        }))
    }

    /// Live bytes for limits: as [`Census::estimate`], but pages beyond those of the last sum count as full. Of a large
    /// block, so does the page that jemalloc adds to the block. What fills holes in older pages shows in the next sum.
    pub(crate) fn at_most(&self) -> [u64; 2] {
        let (pages, estimate) = (self.counted_pages(), self.estimate());
        let summed = self.live(self.summed.map(|(bytes, _)| bytes));
        [0, 1].map(|medium: usize| match pages[medium].checked_sub(self.summed[medium].1) {
            // The pages of the last sum may hold little: they say nothing of new ones.
            Some(new_pages) => summed[medium] + self.bytes_of(new_pages),
            None => estimate[medium],
        })
    }

    /// Of what jemalloc has handed out, the bytes that the program has, or that wait in magazines: the others wait in
    /// jemalloc's caches of threads.
    fn live(&self, allocated: [u64; 2]) -> [u64; 2] {
        [0, 1].map(|medium| allocated[medium].saturating_sub(self.cached_bytes[medium]))
    }

    fn counted_pages(&self) -> [usize; 2] {
        let mut pages = [self.other_pages, 0];
        for (counter, medium) in self.pages.iter().map_while(|page| *page) {
            pages[medium as usize] += counter.load(Relaxed);
        }
        pages
    }

    /// Finds the counters of the arenas. Those of far memory come first: of many arenas, the last have no slot. Arenas
    /// that the program makes have none, because the program may destroy them.
    fn find_counters(&mut self) {
        let (mut arenas, mut threshold_bytes): (c_uint, usize) = (0, 0);
        read(c"opt.narenas", &mut arenas);
        // With this option, one more arena has the largest blocks.
        read(c"opt.oversize_threshold", &mut threshold_bytes);
        arenas += c_uint::from(threshold_bytes > 0);
        let name = Name::of(c"experimental.arenas.0.pactivep");
        let is_far = |arena: usize| far::arenas().any(|far| far == arena);
        let far = far::arenas().map(|arena| (arena, Medium::Far));
        let dram = (0..arenas as usize).filter(|&arena| !is_far(arena)).map(|arena| (arena, Medium::Dram));
        let mut slots = self.pages.iter_mut();
        for (arena, medium) in far.chain(dram) {
            let counter = name.value(arena, 0) as *const AtomicUsize;
            // SAFETY: jemalloc answers with the address of a counter that lives as long as the arena, or not at all. No
            // program destroys jemalloc's own arenas, for jemalloc refuses that, and none knows those of far memory.
            let Some(counter) = (unsafe { counter.as_ref() }) else { continue };
            let Some(slot) = slots.next() else { break };
            *slot = Some((counter, medium));
        }
        slots.for_each(|slot| *slot = None);
    }

    /// Bytes of the pages that hold blocks now.
    pub(crate) fn active(&self) -> [u64; 2] {
        self.counted_pages().map(|pages| self.bytes_of(pages))
    }

    fn bytes_of(&self, pages: usize) -> u64 {
        pages as u64 * self.page_bytes
    }

    /// Tells mappings and live bytes by class, as they were summed up last.
    pub(crate) fn tell(&self, page: &Page) {
        let put = |fields: [&AtomicU64; 2], values: [u64; 2]| {
            fields.into_iter().zip(values).for_each(|(field, value)| field.store(value, Relaxed));
        };
        let [dram, far] = [page.told.medium(Medium::Dram), page.told.medium(Medium::Far)];
        let mapped = Name::of(c"stats.arenas.0.mapped");
        put([&dram.mapped_bytes, &far.mapped_bytes], by_medium(|arena| mapped.value(arena, 0)));
        let small = Name::of(c"stats.arenas.0.bins.0.curregs");
        let large = Name::of(c"stats.arenas.0.lextents.0.curlextents");
        let mut by_class: [_; READ] = from_fn(|class| {
            let count = |arena| match class.checked_sub(self.small_classes) {
                None => small.value(arena, class),
                Some(large_class) => large.value(arena, large_class),
            };
            by_medium(|arena| count(arena) * class_bytes(class))
        });
        self.correct_paged(&mut by_class);
        for (class, bytes) in by_class.into_iter().enumerate() {
            put([&dram.live_bytes_by_class[class], &far.live_bytes_by_class[class]], bytes);
        }
    }

    /// Lowers the bytes of classes whose blocks take whole pages. jemalloc tells the bytes of all large blocks, and by
    /// class only their number.
    fn correct_paged(&self, by_class: &mut [[u64; 2]; READ]) {
        let allocated = Name::of(c"stats.arenas.0.large.allocated");
        let allocated = by_medium(|arena| allocated.value(arena, 0));
        let (exact, paged) = by_class.split_at_mut(class(paged_above(self.page_bytes)) + 1);
        for (medium, &allocated) in allocated.iter().enumerate() {
            let sum = |classes: &[[u64; 2]]| -> u64 { classes.iter().map(|bytes| bytes[medium]).sum() };
            let bytes = allocated.saturating_sub(sum(&exact[self.small_classes..]));
            let share = (bytes as f64 / sum(paged).max(1) as f64).min(1.0);
            paged.iter_mut().for_each(|class| class[medium] = (class[medium] as f64 * share) as u64);
        }
    }
}

/// A value of all arenas by medium.
fn by_medium(of_arena: impl Fn(usize) -> u64) -> [u64; 2] {
    let far = far::arenas().map(&of_arena).sum();
    [of_arena(ALL_ARENAS).saturating_sub(far), far]
}

/// Gives the free pages of all arenas back to the system.
pub(crate) fn purge() -> bool {
    // SAFETY: the name is a C string, and nothing is read or written.
    unsafe { jemalloc::mallctl(c"arena.4096.purge".as_ptr(), null_mut(), null_mut(), null_mut(), 0) == 0 }
}
