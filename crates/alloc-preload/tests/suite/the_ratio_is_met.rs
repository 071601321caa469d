//! The bytes that the program sees in each medium are at the ratio after 100 MB, for any mix of sizes, and follow a
//! change while the program runs.

use std::ops::Range;

use ziptier_alloc::configuration::{Configuration, Ratio};

use crate::support::{far_range, free, in_child, malloc, page_of, usable};

const MB: usize = 1 << 20;

/// Blocks and their bytes in DRAM and in far memory. The list of blocks is a block, too.
struct Heap {
    blocks: Vec<usize>,
    bytes: [usize; 2],
    far: Range<usize>,
    random: fastrand::Rng,
}

impl Heap {
    fn new() -> Heap {
        let random = fastrand::Rng::with_seed(ziptier_testing::seed());
        let (blocks, far) = (Vec::with_capacity(1 << 21), far_range());
        let list = blocks.as_ptr() as usize;
        let mut bytes = [0; 2];
        bytes[usize::from(far.contains(&list))] = usable(list);
        Heap { blocks, bytes, far, random }
    }

    fn add(&mut self, bytes: usize) {
        let block = malloc(bytes);
        self.bytes[usize::from(self.far.contains(&block))] += usable(block);
        self.blocks.push(block);
    }

    fn replace(&mut self, bytes: usize) {
        let index = self.random.usize(..self.blocks.len());
        let block = self.blocks.swap_remove(index);
        self.bytes[usize::from(self.far.contains(&block))] -= usable(block);
        free(block);
        self.add(bytes);
    }

    fn load(&mut self, live_bytes: usize, size: impl Fn(&mut fastrand::Rng) -> usize) {
        while self.bytes.iter().sum::<usize>() < live_bytes {
            let bytes = size(&mut self.random);
            self.add(bytes);
        }
    }

    #[track_caller]
    fn has_ratio(&self, wanted: f64, tolerance: f64) {
        let ratio = self.bytes[1] as f64 / self.bytes[0] as f64;
        println!("{ratio:.3} of {wanted}");
        assert!((ratio / wanted - 1.0).abs() < tolerance, "far:DRAM is {ratio:.3}, not {wanted}");
    }
}

fn log_uniform(random: &mut fastrand::Rng) -> usize {
    let doubling = random.u32(5..14);
    random.usize(1 << doubling..2 << doubling)
}

/// In a process of its own: what threads keep at hand of an earlier heap would count, too.
fn load(wanted: f64, size: fn(&mut fastrand::Rng) -> usize) {
    let mut heap = Heap::new();
    heap.load(100 * MB, size);
    heap.has_ratio(wanted, 0.05);
}

fn small_or_large(random: &mut fastrand::Rng) -> usize {
    if random.bool() { 100 } else { 8192 }
}

#[test]
fn by_sizes_of_any_order() {
    in_child("the_ratio_is_met::by_sizes_of_any_order", "ratio=1:3", || load(3.0, log_uniform));
}

#[test]
fn by_blocks_of_a_kibibyte() {
    in_child("the_ratio_is_met::by_blocks_of_a_kibibyte", "ratio=1:3", || load(3.0, |_| 1024));
}

#[test]
fn by_blocks_of_a_page() {
    in_child("the_ratio_is_met::by_blocks_of_a_page", "ratio=1:3", || load(3.0, |_| 4096));
}

#[test]
fn by_blocks_of_four_pages() {
    in_child("the_ratio_is_met::by_blocks_of_four_pages", "ratio=1:3", || load(3.0, |_| 16384));
}

#[test]
fn by_small_and_large_blocks() {
    in_child("the_ratio_is_met::by_small_and_large_blocks", "ratio=1:3", || load(3.0, small_or_large));
}

fn shift(wanted: f64) {
    let mut heap = Heap::new();
    heap.load(40 * MB, |random| random.usize(64..=128));
    heap.load(80 * MB, |random| random.usize(2048..=16384));
    heap.load(120 * MB, |random| random.usize(200..=800));
    heap.has_ratio(wanted, 0.05);
}

#[test]
fn while_sizes_shift() {
    in_child("the_ratio_is_met::while_sizes_shift", "ratio=1:3", || shift(3.0));
}

/// The same sizes at another ratio.
mod at_one_to_four {
    use super::{in_child, load, log_uniform, shift, small_or_large};

    #[test]
    fn by_sizes_of_any_order() {
        let name = "the_ratio_is_met::at_one_to_four::by_sizes_of_any_order";
        in_child(name, "ratio=1:4", || load(4.0, log_uniform));
    }

    #[test]
    fn by_blocks_of_a_kibibyte() {
        let name = "the_ratio_is_met::at_one_to_four::by_blocks_of_a_kibibyte";
        in_child(name, "ratio=1:4", || load(4.0, |_| 1024));
    }

    #[test]
    fn by_blocks_of_a_page() {
        let name = "the_ratio_is_met::at_one_to_four::by_blocks_of_a_page";
        in_child(name, "ratio=1:4", || load(4.0, |_| 4096));
    }

    #[test]
    fn by_blocks_of_four_pages() {
        let name = "the_ratio_is_met::at_one_to_four::by_blocks_of_four_pages";
        in_child(name, "ratio=1:4", || load(4.0, |_| 16384));
    }

    #[test]
    fn by_small_and_large_blocks() {
        let name = "the_ratio_is_met::at_one_to_four::by_small_and_large_blocks";
        in_child(name, "ratio=1:4", || load(4.0, small_or_large));
    }

    #[test]
    fn while_sizes_shift() {
        let name = "the_ratio_is_met::at_one_to_four::while_sizes_shift";
        in_child(name, "ratio=1:4", || shift(4.0));
    }
}

fn replace_values() {
    let mut heap = Heap::new();
    heap.load(100 * MB, log_uniform);
    for _ in 0..2 * heap.blocks.len() {
        let bytes = log_uniform(&mut heap.random);
        heap.replace(bytes);
    }
    heap.has_ratio(4.0, 0.05);
}

#[test]
fn while_values_are_replaced() {
    in_child("the_ratio_is_met::while_values_are_replaced", "ratio=1:4", replace_values);
}

fn change() {
    let mut heap = Heap::new();
    heap.load(100 * MB, log_uniform);
    let page = page_of(std::process::id());
    let wanted = Configuration { ratio: Ratio { dram: 1, far: 1 }, ..Configuration::DEFAULT };
    let changes = page.want(&wanted);
    // What lies in far memory stays there, so the heap must grow by half.
    heap.load(155 * MB, log_uniform);
    assert_eq!(page.applied.load(std::sync::atomic::Ordering::Relaxed), changes);
    heap.has_ratio(1.0, 0.10);
    heap.load(165 * MB, log_uniform);
    heap.has_ratio(1.0, 0.05);
}

#[test]
fn after_a_change() {
    in_child("the_ratio_is_met::after_a_change", "ratio=1:3", change);
}

fn tables() {
    let far = far_range();
    for _ in 0..4 {
        // SAFETY: nothing is given.
        let (table, values) =
            unsafe { (libc::calloc(1 << 20, 8) as usize, libc::calloc(3 << 18, 8) as usize) };
        assert!(!far.contains(&table) && far.contains(&values));
    }
}

#[test]
fn but_for_tables_of_pointers() {
    in_child("the_ratio_is_met::but_for_tables_of_pointers", "policy=only-far", tables);
}
