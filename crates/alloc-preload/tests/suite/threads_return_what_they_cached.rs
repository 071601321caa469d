//! A thread that ends gives back the far blocks that it kept at hand. Otherwise a program that starts threads for
//! requests would lose far memory with each of them.

use crate::support::{free, in_child, mallctl, malloc};

/// What jemalloc holds for the program.
fn allocated() -> usize {
    mallctl(c"epoch", 1_u64, Some(1));
    mallctl(c"stats.allocated", 0, None)
}

fn start_and_end() {
    let work = || {
        let blocks: Vec<usize> = (0..400).map(|number| malloc(20 * (number + 1))).collect();
        blocks.into_iter().for_each(free);
    };
    let run = |threads| (0..threads).for_each(|_| std::thread::spawn(work).join().unwrap());
    run(20);
    let before = allocated();
    // More threads than jemalloc has caches, if they were not given back.
    run(5000);
    let grown = allocated() as f64 - before as f64;
    assert!(grown < 2e6, "{grown} bytes are lost");
    let cache = mallctl(c"tcache.create", 0_u32, None);
    assert!(cache < 50, "{cache} caches are in use");
}

#[test]
fn when_they_end() {
    in_child("threads_return_what_they_cached::when_they_end", "policy=only-far", start_and_end);
}
