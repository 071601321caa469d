//! A memory figure that is not the allocator's own makes every density claim a guess. Run these tests one at a time, or
//! in processes of their own: they count all that the allocator holds.

#![allow(clippy::unwrap_used)]

use tikv_jemalloc_ctl::{epoch, stats};
use ziptier::{CodecChoice, Options, Store};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What a thread's cache keeps for it counts as allocated: without caches the allocator says what is really in use.
// SAFETY: it is the name and the type that jemalloc documents for its configuration, and nothing else defines it.
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: Configuration = Configuration(c"narenas:1,tcache:false".as_ptr());

#[repr(transparent)]
struct Configuration(*const std::ffi::c_char);

// SAFETY: it points at a constant string that nobody writes.
unsafe impl Sync for Configuration {}

fn allocated() -> u64 {
    epoch::advance().unwrap();
    stats::allocated::read().unwrap() as u64
}

/// What the stores before left behind is freed as another one is used.
fn allocated_when_idle() -> u64 {
    let mut last = 0;
    loop {
        for _ in 0..10 {
            Store::open(Options { background_threads: 0, ..Options::default() }).unwrap().settle().unwrap();
        }
        match allocated() {
            now if now == last => return now,
            now => last = now,
        }
    }
}

fn text(n: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    let words = ["lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit", "sed", "do"];
    let mut text = String::new();
    for _ in 0..25 {
        text.push_str(words[random.usize(..10)]);
        text.push(' ');
    }
    text.into_bytes()
}

/// So many that a dictionary, and what else a store has once, is not what is counted.
const KEYS: u64 = 200_000;

#[test]
fn with_tokens_the_sum_of_all_purposes_is_within_5_per_cent_of_the_allocator() {
    the_sum_is_near_the_allocator(CodecChoice::Auto);
}

#[test]
fn with_lz4_the_sum_of_all_purposes_is_within_5_per_cent_of_the_allocator() {
    the_sum_is_near_the_allocator(CodecChoice::Lz4);
}

#[test]
fn with_zstd_the_sum_of_all_purposes_is_within_5_per_cent_of_the_allocator() {
    the_sum_is_near_the_allocator(CodecChoice::Zstd);
}

#[test]
fn with_deflate_the_sum_of_all_purposes_is_within_5_per_cent_of_the_allocator() {
    the_sum_is_near_the_allocator(CodecChoice::Deflate);
}

fn the_sum_is_near_the_allocator(codec: CodecChoice) {
    let before = allocated_when_idle();
    let store = Store::open(Options { codec, background_threads: 0, ..Options::default() }).unwrap();
    let check = |what: &str| {
        let held = (allocated() - before) as f64;
        let counted = store.memory().total_bytes() as f64;
        assert!(
            (counted / held - 1.0).abs() < 0.05,
            "{codec}, {what}: counted {counted}, held {held}, {:?}",
            store.memory()
        );
    };
    for n in 0..KEYS {
        store.put(format!("key:{:012}", n * 7_919 % KEYS).as_bytes(), &text(n)).unwrap();
    }
    check("after a load in random order");
    store.settle().unwrap();
    check("after settling");
    for n in 0..KEYS / 3 {
        store.put(format!("key:{:012}", n * 13 % KEYS).as_bytes(), &text(n + 1)).unwrap();
    }
    check("after updates");
    for n in 0..200u64 {
        store.put(format!("large:{n}").as_bytes(), &text(n).repeat(300)).unwrap();
    }
    check("with large values");
    for n in 0..KEYS / 2 {
        store.delete(format!("key:{n:012}").as_bytes()).unwrap();
    }
    store.settle().unwrap();
    store.settle().unwrap();
    check("after deleting half");
}
