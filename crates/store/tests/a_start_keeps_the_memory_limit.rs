//! A folder has more than DRAM may hold where some of it lay in far memory, and that of a cache where keys were evicted
//! or the limit was higher: a start that loaded all of it before anything went on would be killed for its memory, again
//! and again. The allocator notes the most that was held.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use ziptier::{CodecChoice, Durability, DurableOptions, FarOptions, FarPlace, Options, Store};

/// Bytes that are allocated, and the most that were since that was set last.
static HELD: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);

struct Counting;

fn hold(bytes: usize) {
    let held = HELD.fetch_add(bytes as i64, Relaxed) + bytes as i64;
    MOST.fetch_max(held, Relaxed);
}

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        hold(layout.size());
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT_BYTES: u64 = 16 << 20;

/// What the stores before left behind is freed as others are used.
fn allocated_when_idle() -> i64 {
    let mut least = i64::MAX;
    for _ in 0..200 {
        let store = Store::open(Options { background_threads: 0, ..Options::default() }).unwrap();
        store.put(b"key", b"value").unwrap();
        store.clear().unwrap();
        store.settle().unwrap();
        drop(store);
        least = least.min(HELD.load(Relaxed));
    }
    least
}

/// One test at a time has the allocator.
static ALLOCATING: Mutex<()> = Mutex::new(());

fn open(dir: &Path, limit_bytes: u64, far: Option<&Path>) -> Store {
    let mut durable = DurableOptions::new(dir);
    durable.durability = Durability::No;
    durable.checkpoint_log_bytes = Some(u64::MAX);
    let options = Options {
        memory_limit_bytes: Some(limit_bytes),
        eviction: far.is_none(),
        far: far.map(|file| FarOptions {
            place: FarPlace::File(file.into()),
            capacity_bytes: 256 << 20,
            require_dax: false,
        }),
        codec: CodecChoice::None,
        background_threads: 0,
        durable: Some(durable),
        ..Options::default()
    };
    Store::open(options).unwrap()
}

fn value(n: u64, len: usize) -> Vec<u8> {
    let mut value = n.to_le_bytes().repeat(len.div_ceil(8));
    value.truncate(len);
    value
}

/// What `work` gives, and the most that was allocated meanwhile, beyond what was before.
fn watched<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = allocated_when_idle();
    MOST.store(HELD.load(Relaxed), Relaxed);
    let done = work();
    (done, (MOST.load(Relaxed) - before).max(0) as u64)
}

#[test]
fn a_cache_loads_and_replays_within_the_memory_limit() {
    let _alone = ALLOCATING.lock();
    let folder = tempfile::tempdir().unwrap();
    let small = |n: u64| format!("small:{n:08}").into_bytes();
    let large = |n: u64| format!("large:{n:08}").into_bytes();
    let store = open(folder.path(), 16 * LIMIT_BYTES, None);
    (0..100_000).for_each(|n| store.put(&small(n), &value(n, 500)).unwrap());
    // All of them in one leaf, which comes when memory is full already; and some in leaves of their own.
    (0..150).for_each(|n| store.put(&[b"zz", large(n).as_slice()].concat(), &value(n, 100_000)).unwrap());
    (0..200).for_each(|n| store.put(&large(n), &value(n, 70_000)).unwrap());
    store.checkpoint().unwrap();
    (0..40_000).for_each(|n| store.put(&small(3 * n), &value(n, 300)).unwrap());
    (0..100).for_each(|n| store.put(&large(3 * n), &value(n + 1, 90_000)).unwrap());
    store.close().unwrap();
    let (store, most) = watched(|| open(folder.path(), LIMIT_BYTES, None));
    assert!(store.stats().evicted > 100_000, "{:?}", store.stats());
    let held = store.memory().total_bytes();
    assert!(held > LIMIT_BYTES / 2 && held <= LIMIT_BYTES / 100 * 98, "{held} bytes are held");
    // Beside what is held there are windows of the log, and images that are read ahead.
    assert!(most <= LIMIT_BYTES + LIMIT_BYTES / 2, "{most} bytes of {LIMIT_BYTES}");
    eprintln!("allocated: {most} bytes of {LIMIT_BYTES} at most, {held} in the end");
}

#[test]
fn far_memory_takes_what_a_start_has_no_room_for() {
    let _alone = ALLOCATING.lock();
    let folder = tempfile::tempdir().unwrap();
    let (dir, far) = (folder.path().join("data"), folder.path().join("far"));
    let small = |n: u64| format!("small:{n:08}").into_bytes();
    let large = |n: u64| format!("large:{n:08}").into_bytes();
    let store = open(&dir, LIMIT_BYTES, Some(&far));
    (0..100_000).for_each(|n| store.put(&small(n), &value(n, 500)).unwrap());
    (0..200).for_each(|n| store.put(&large(n), &value(n, 70_000)).unwrap());
    store.checkpoint().unwrap();
    (0..40_000).for_each(|n| store.put(&small(2 * n), &value(n, 300)).unwrap());
    store.close().unwrap();
    let (store, most) = watched(|| open(&dir, LIMIT_BYTES, Some(&far)));
    let memory = store.memory();
    let far_bytes = memory.far_body_bytes + memory.far_large_bytes;
    assert!(memory.total_bytes() <= LIMIT_BYTES && far_bytes > 2 * LIMIT_BYTES, "{memory:?}");
    assert!(most <= LIMIT_BYTES + LIMIT_BYTES / 2, "{most} bytes of {LIMIT_BYTES}");
    for n in 0..100_000 {
        let wanted = if n % 2 == 0 && n < 80_000 { value(n / 2, 300) } else { value(n, 500) };
        assert!(store.get(&small(n)).unwrap() == Some(wanted), "{n}");
    }
    (0..200).for_each(|n| assert!(store.get(&large(n)).unwrap() == Some(value(n, 70_000))));
    eprintln!("allocated: {most} bytes of {LIMIT_BYTES} at most");
}
