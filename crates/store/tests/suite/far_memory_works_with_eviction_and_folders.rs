//! Far memory beside a cache that evicts, and beside a folder: what was to be kept must not be evicted while a place
//! below has room, writes must be taken when none has, and a start must find everything, wherever it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tempfile::TempDir;
use ziptier::{CodecChoice, FarOptions, FarPlace, FarRatio, Options, Store};
use ziptier_media::testing::RecordingDisk;

use crate::durable;
use crate::durable::value;

const LIMIT_BYTES: u64 = 8 << 20;

fn far(folder: &TempDir, bytes: u64) -> Option<FarOptions> {
    let place = FarPlace::File(folder.path().join("far"));
    Some(FarOptions { place, capacity_bytes: bytes, require_dax: false })
}

fn name(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

fn assert_within_limit(store: &Store) {
    let memory = store.memory();
    assert!(memory.total_bytes() <= LIMIT_BYTES + LIMIT_BYTES * 3 / 100, "{memory:?}");
}

fn cache(folder: &TempDir, far_bytes: u64, background_threads: usize) -> Store {
    Store::open(Options {
        memory_limit_bytes: Some(LIMIT_BYTES),
        far: far(folder, far_bytes),
        eviction: true,
        codec: CodecChoice::None,
        background_threads,
        ..Options::default()
    })
    .unwrap()
}

#[test]
fn nothing_is_evicted_while_far_memory_has_room() {
    for background_threads in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let store = cache(&folder, 16 * LIMIT_BYTES, background_threads);
        let records = 4 * LIMIT_BYTES / 116;
        (0..records).for_each(|n| store.put(&name(n), &value(n, 100)).unwrap());
        assert_within_limit(&store);
        assert_eq!(store.stats().evicted, 0);
        (0..records).for_each(|n| assert_eq!(store.get(&name(n)).unwrap().unwrap(), value(n, 100)));
    }
}

#[test]
fn a_cache_whose_places_are_full_takes_writes_without_end() {
    for (background_threads, large) in [(0, false), (1, false), (1, true)] {
        let folder = tempfile::tempdir().unwrap();
        let store = cache(&folder, 16 << 20, background_threads);
        let len = |n: u64| if large && n.is_multiple_of(100) { 3000 + n as usize % 100_000 } else { 100 };
        let (mut written, mut n) = (0, 0u64);
        while written < (LIMIT_BYTES + (16 << 20)) * 3 / 2 {
            let put = store.put(&name(n), &value(n, len(n)));
            put.unwrap_or_else(|refusal| panic!("{n}: {refusal}, {:?}, {:?}", store.memory(), store.stats()));
            if n.is_multiple_of(64) {
                assert_within_limit(&store);
            }
            written += len(n) as u64 + 16;
            n += 1;
        }
        let (memory, stats) = (store.memory(), store.stats());
        assert!(stats.evicted > 0 && stats.sent_to_far > 0, "{stats:?}");
        let used = memory.total_bytes() + memory.far_used_bytes;
        assert!(used > (LIMIT_BYTES + (16 << 20)) / 2, "only {used} bytes are used, {memory:?}");
        let there =
            (0..n).filter(|n| store.get(&name(*n)).unwrap().is_some_and(|is| is == value(*n, len(*n))));
        assert!(there.count() as u64 >= n / 20, "{stats:?}, {memory:?}");
    }
}

/// Bodies of a cache become smaller as their records go, and its large values have all sizes: slots of one size may not
/// be held by what is far smaller.
#[test]
fn far_memory_of_a_cache_is_full_of_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let store = cache(&folder, 8 * LIMIT_BYTES, 1);
    let len = |n: u64| if n.is_multiple_of(100) { 3000 + n as usize * 7919 % 100_000 } else { 100 };
    let (mut written, mut n) = (0, 0);
    while written < 4 * 9 * LIMIT_BYTES {
        // Nobody reads the values, and no codec makes them smaller.
        store.put(&name(n), &vec![n as u8; len(n)]).unwrap();
        written += len(n) as u64 + 16;
        n += 1;
    }
    let memory = store.memory();
    let held_bytes = memory.far_body_bytes + memory.far_large_bytes;
    assert!(held_bytes > memory.far_limit_bytes / 10 * 6, "{memory:?}");
}

/// Coded, the records take a fifth of their bytes: the limit is below that. It has room for the third of all large
/// values that a ratio of 1:2 keeps in DRAM.
fn durable_store(disk: &RecordingDisk, far: Option<FarOptions>, far_ratio: Option<FarRatio>) -> Store {
    durable_store_of(CodecChoice::Auto, LIMIT_BYTES / 8 * 3, disk, far, far_ratio)
}

fn durable_store_of(
    codec: CodecChoice,
    limit_bytes: u64,
    disk: &RecordingDisk,
    far: Option<FarOptions>,
    far_ratio: Option<FarRatio>,
) -> Store {
    let options = durable::options(Arc::new(disk.clone()), codec);
    Store::open(Options { memory_limit_bytes: Some(limit_bytes), far, far_ratio, ..options }).unwrap()
}

fn len(n: u64) -> usize {
    if n.is_multiple_of(400) { 3000 + (n * 7919 % 150_000) as usize } else { 100 }
}

#[test]
fn what_lay_in_far_memory_is_there_after_a_start() {
    for far_ratio in [None, FarRatio::new(1, 2)] {
        let disk = RecordingDisk::new();
        let records = 60_000u64;
        let versions: Vec<u64> = (0..records).map(|n| if n.is_multiple_of(7) { n + 1 } else { n }).collect();
        for round in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let store = durable_store(&disk, far(&folder, 64 << 20), far_ratio);
            if round == 0 {
                (0..records).for_each(|n| store.put(&name(n), &value(n, len(n))).unwrap());
                let ended = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    // Leaves and large values move while checkpoints are made.
                    scope.spawn(|| {
                        while !ended.load(Relaxed) {
                            store.checkpoint().unwrap();
                        }
                    });
                    for n in (0..records).step_by(7) {
                        store.put(&name(n), &value(versions[n as usize], len(n))).unwrap();
                    }
                    ended.store(true, Relaxed);
                });
            }
            for n in 0..records {
                let found = store.get(&name(n)).unwrap().unwrap();
                assert!(found == value(versions[n as usize], len(n)), "{n} in round {round}, {far_ratio:?}");
            }
            // A write waits until a start's excess is below.
            store.put(&name(0), &value(1, len(0))).unwrap();
            assert!(store.memory().far_used_bytes > 0, "{:?}", store.memory());
            if round > 0 {
                store.put(&name(1), &value(1, len(1))).unwrap();
                store.checkpoint().unwrap();
            }
            store.close().unwrap();
        }
    }
}

#[test]
fn a_cache_in_a_folder_comes_back_to_dram_and_far_memory() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), RecordingDisk::new());
    let open = || {
        let far = far(&folder, 16 * LIMIT_BYTES);
        let options = durable::options(Arc::new(disk.clone()), CodecChoice::None);
        Store::open(Options { eviction: true, memory_limit_bytes: Some(LIMIT_BYTES), far, ..options })
            .unwrap()
    };
    let records = 3 * LIMIT_BYTES / 116;
    let store = open();
    (0..records / 2).for_each(|n| store.put(&name(n), &value(n, 100)).unwrap());
    store.checkpoint().unwrap();
    (records / 2..records).for_each(|n| store.put(&name(n), &value(n, 100)).unwrap());
    store.close().unwrap();

    let store = open();
    assert_within_limit(&store);
    let mut there = 0;
    for n in 0..records {
        if let Some(found) = store.get(&name(n)).unwrap() {
            assert_eq!(found, value(n, 100));
            there += 1;
        }
    }
    assert!(there >= records / 10 * 9, "{there} of {records}, {:?}, {:?}", store.memory(), store.stats());
}

#[test]
fn a_checkpoint_does_not_take_damaged_far_memory_for_sound() {
    let (disk, folder) = (RecordingDisk::new(), tempfile::tempdir().unwrap());
    let store = durable_store_of(CodecChoice::None, LIMIT_BYTES, &disk, far(&folder, 64 << 20), None);
    let value = |n: u64| format!("mark of {n:012}, ").into_bytes().repeat(6);
    (0..100_000).for_each(|n| store.put(&name(n), &value(n)).unwrap());
    assert!(store.memory().far_body_bytes > LIMIT_BYTES / 4, "{:?}", store.memory());
    let path = folder.path().join("far");
    let mut bytes = std::fs::read(&path).unwrap();
    let marks: Vec<usize> =
        bytes.windows(8).enumerate().filter(|(_, mark)| mark == b"mark of ").map(|(at, _)| at).collect();
    assert!(marks.len() > 10_000);
    for at in marks {
        bytes[at] ^= 1;
    }
    // The file stays the one that is mapped.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    let refusal = store.checkpoint().unwrap_err().to_string();
    assert!(refusal.contains("far memory") && refusal.contains("open it anew"), "{refusal}");
    drop(store);
    let store = durable_store_of(CodecChoice::None, LIMIT_BYTES, &disk, far(&folder, 64 << 20), None);
    (0..100_000).for_each(|n| assert!(store.get(&name(n)).unwrap() == Some(value(n)), "{n}"));
}
