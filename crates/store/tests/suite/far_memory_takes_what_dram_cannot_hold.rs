//! A limit of DRAM that refuses writes while far memory is empty wastes it, one that is passed meets the kernel's
//! killer, and a block that is never freed fills the medium in a week. So stores with little DRAM are filled here with
//! many times as much, and emptied.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ziptier::{CodecChoice, DurableOptions, Error, FarOptions, FarPlace, FarRatio, Options, Store};

use crate::waiting::until_telling;

const LIMIT_BYTES: u64 = 4 << 20;

struct Filled {
    store: Store,
    _folder: tempfile::TempDir,
}

fn open(options: Options, far_bytes: u64) -> Filled {
    let folder = tempfile::tempdir().unwrap();
    let place = FarPlace::File(folder.path().join("far"));
    let far = Some(FarOptions { place, capacity_bytes: far_bytes, require_dax: false });
    Filled { store: Store::open(Options { far, ..options }).unwrap(), _folder: folder }
}

fn little_dram() -> Options {
    Options { memory_limit_bytes: Some(LIMIT_BYTES), ..Options::default() }
}

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    key[8..].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Words, with random bytes between them, so that they do not become too small.
fn value(n: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    let words = ["lorem ", "ipsum ", "dolor ", "sit ", "amet "];
    let mut value = Vec::with_capacity(len + 8);
    while value.len() < len {
        value.extend_from_slice(words[random.usize(..5)].as_bytes());
        value.extend_from_slice(&random.u32(..).to_le_bytes());
    }
    value.truncate(len);
    value
}

/// Runs `work` and returns the most DRAM that the store held meanwhile.
fn most_held(store: &Store, work: impl FnOnce()) -> u64 {
    let (most, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                // A watcher that loses its processor between two gauges sees what was never there.
                let seen = (0..3).map(|_| store.memory().total_bytes()).min();
                most.fetch_max(seen.unwrap(), Relaxed);
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    most.load(Relaxed)
}

/// Everything that was retired is freed, as the epoch moves on.
fn wait_until_empty(store: &Store) {
    let is_empty = || {
        store.settle().unwrap();
        let memory = store.memory();
        memory.far_used_bytes + memory.far_body_bytes + memory.far_retired_bytes == 0
    };
    until_telling("far memory is empty", is_empty, || format!("{:?}", store.memory()));
}

#[test]
fn eight_times_the_limit_fits_and_the_limit_is_kept() {
    const LIMIT_BYTES: u64 = 2 << 20;
    let records = 8 * LIMIT_BYTES / 116;
    for (codec, background_threads) in
        [(CodecChoice::None, 1), (CodecChoice::None, 0), (CodecChoice::Lz4, 1), (CodecChoice::Auto, 1)]
    {
        let memory_limit_bytes = Some(LIMIT_BYTES);
        let options = Options { codec, background_threads, memory_limit_bytes, ..Options::default() };
        let Filled { store, _folder } = open(options, 16 * LIMIT_BYTES);
        let most = most_held(&store, || {
            std::thread::scope(|scope| {
                for writer in 0..2 {
                    let store = &store;
                    scope.spawn(move || {
                        for n in (writer..records).step_by(2) {
                            let put = store.put(&key(n), &value(n, 100));
                            put.unwrap_or_else(|refusal| {
                                panic!(
                                    "{codec}, {background_threads}: {refusal}, {:?}, {:?}",
                                    store.memory(),
                                    store.stats()
                                )
                            });
                            if n % 3 == 0 {
                                store.put(&key(n / 2), &value(n / 2, 100)).unwrap();
                            }
                        }
                    });
                }
            });
            (0..records).for_each(|n| {
                assert_eq!(store.get(&key(n)).unwrap().unwrap(), value(n, 100), "{codec}: {n}");
            });
        });
        assert!(most <= LIMIT_BYTES + LIMIT_BYTES * 3 / 100, "{codec}, {background_threads}: {most}");
        let memory = store.memory();
        assert!(memory.far_body_bytes > 0 && memory.far_used_bytes >= memory.far_body_bytes, "{memory:?}");

        (0..records).for_each(|n| assert!(store.delete(&key(n)).unwrap(), "{n}"));
        wait_until_empty(&store);
    }
}

#[test]
fn full_far_memory_is_told_and_dram_goes_on() {
    let Filled { store, _folder } = open(Options { codec: CodecChoice::None, ..little_dram() }, 8 << 20);
    let mut written = 0;
    let refusal = loop {
        match store.put(&key(written), &value(written, 100)) {
            Ok(()) => written += 1,
            Err(refusal) => break refusal,
        }
        assert!(written < 1_000_000, "the limits never came");
    };
    let words = refusal.to_string();
    let Error::MemoryAndFarLimit { limit_bytes, far_limit_bytes, far_used_bytes, .. } = refusal else {
        panic!("{refusal}")
    };
    assert_eq!((limit_bytes, far_limit_bytes), (LIMIT_BYTES, 8 << 20));
    assert!(
        words.contains(&LIMIT_BYTES.to_string()) && words.contains(&far_used_bytes.to_string()),
        "{words}"
    );
    let memory = store.memory();
    assert!(memory.total_bytes() <= LIMIT_BYTES + LIMIT_BYTES * 3 / 100, "{memory:?}");
    // Both are full.
    assert!(written * 116 > (LIMIT_BYTES + (6 << 20)) * 3 / 4, "{written} records, {memory:?}");
    // Whoever goes on writing to leaves in far memory that has no room for them anew does not bring them to DRAM.
    let mut lens = vec![100; written as usize];
    for (n, len) in (0..written).zip(&mut lens) {
        let grown = 100 + n as usize % 5 * 20;
        if store.put(&key(n), &value(n, grown)).is_ok() {
            *len = grown;
        }
        // An expiry takes room, too.
        let _ = store.set_expiry(&key(n * 7919 % written), Some(1 << 44));
    }
    let memory = store.memory();
    println!("both full: {:.4} of the limit", memory.total_bytes() as f64 / LIMIT_BYTES as f64);
    assert!(memory.total_bytes() <= LIMIT_BYTES + LIMIT_BYTES * 3 / 100, "{memory:?}");
    (0..written).zip(&lens).for_each(|(n, &len)| {
        assert_eq!(store.get(&key(n)).unwrap().unwrap(), value(n, len), "{n}");
    });
    // What makes room is not refused, and then there is room again.
    (0..written).filter(|n| n % 2 == 0).for_each(|n| assert!(store.delete(&key(n)).unwrap()));
    store.settle().unwrap();
    (0..written / 4).for_each(|n| {
        let put = store.put(&key(2 * n), &value(n, 100));
        put.unwrap_or_else(|refusal| panic!("{n} of {written}: {refusal}, {:?}", store.memory()));
    });
    store.clear().unwrap();
    wait_until_empty(&store);
}

#[test]
fn large_values_keep_their_ratio_whatever_their_sizes() {
    type Len = fn(u64) -> usize;
    let mixes: [(&str, Len); 5] = [
        ("one size", |_| 5000),
        ("small ones and few huge ones", |n| if n % 50 == 0 { 700_000 } else { 2500 }),
        ("all sizes", |n| 2100 + (n * 7919 % 60_000) as usize),
        ("growing", |n| 2100 + n as usize * 50),
        ("shrinking", |n| 100_000 - n as usize * 50),
    ];
    for (dram, far) in [(1, 3), (2, 1), (1, 1)] {
        for (mix, len) in mixes {
            let options = Options {
                codec: CodecChoice::None,
                far_ratio: FarRatio::new(dram, far),
                ..Options::default()
            };
            let Filled { store, _folder } = open(options, 256 << 20);
            let check = |at: &str| {
                let memory = store.memory();
                let found = memory.large_bytes as f64 / memory.far_large_bytes as f64;
                let set = f64::from(dram) / f64::from(far);
                assert!((found / set - 1.0).abs() <= 0.05, "{mix}, {dram}:{far}, {at}: {found:.3}");
            };
            // Nobody reads the values, and no codec makes them smaller.
            for n in 0..1500 {
                store.put(&key(n), &vec![n as u8; len(n)]).unwrap();
            }
            check("filled");
            for n in 0..1500 {
                store.put(&key(n * 7 % 1500), &vec![n as u8; len(n * 3 % 1500)]).unwrap();
            }
            store.settle().unwrap();
            check("written again");
            store.clear().unwrap();
            wait_until_empty(&store);
            assert_eq!(store.memory().far_large_bytes, 0);
        }
    }
}

#[test]
fn large_values_go_where_there_is_room_and_follow_their_leaf() {
    let Filled { store, _folder } = open(Options { codec: CodecChoice::None, ..little_dram() }, 256 << 20);
    let len = |n: u64| 3000 + (n * 7919 % 150_000) as usize;
    let most = most_held(&store, || {
        // At first there is room in DRAM; small records then need it.
        (0..400).for_each(|n| store.put(&key(n), &value(n, len(n))).unwrap());
        let first = store.memory();
        assert!(first.large_bytes > LIMIT_BYTES / 4 && first.far_large_bytes > LIMIT_BYTES, "{first:?}");
        (1000..300_000).for_each(|n| store.put(&key(n), b"small").unwrap());
        (400..1000).for_each(|n| store.put(&key(n), &value(n, len(n))).unwrap());
        let then = store.memory();
        assert!(then.large_bytes < first.large_bytes / 2, "{then:?} after {first:?}");
        let all = (0..1000).map(|n| len(n) as u64).sum::<u64>();
        assert!(then.large_bytes + then.far_large_bytes >= all, "{then:?}, {all} bytes were put");
    });
    assert!(most <= LIMIT_BYTES + LIMIT_BYTES * 3 / 100, "{most}");
    (0..1000).for_each(|n| assert_eq!(store.get(&key(n)).unwrap().unwrap(), value(n, len(n)), "{n}"));
    store.clear().unwrap();
    wait_until_empty(&store);
}

#[test]
fn large_values_that_are_read_come_back() {
    let Filled { store, _folder } =
        open(Options { codec: CodecChoice::None, ..little_dram() }, 16 * LIMIT_BYTES);
    let values = 4 * LIMIT_BYTES / 10_000;
    (0..values).for_each(|n| store.put(&key(n), &value(n, 10_000)).unwrap());
    // An eighth of them is read, which DRAM has room for, in all leaves.
    let hot = values / 8;
    let are_back = || {
        (0..hot).for_each(|n| assert_eq!(store.get(&key(n * 8)).unwrap().unwrap(), value(n * 8, 10_000)));
        store.stats().values_raised >= hot / 2
    };
    let told = || format!("{:?}, {:?}", store.stats(), store.memory());
    let most = most_held(&store, || until_telling("half of them are back", are_back, told));
    assert!(most <= LIMIT_BYTES + LIMIT_BYTES * 3 / 100, "{most}");
}

#[test]
fn leaves_that_are_read_come_back() {
    let Filled { store, _folder } =
        open(Options { codec: CodecChoice::None, ..little_dram() }, 16 * LIMIT_BYTES);
    let records = 4 * LIMIT_BYTES / 116;
    let in_order = |n: u64| format!("key:{n:012}");
    (0..records).for_each(|n| store.put(in_order(n).as_bytes(), &value(n, 100)).unwrap());
    // A tenth of the records is read, which DRAM has room for.
    let mut random = fastrand::Rng::with_seed(3);
    let are_back = || {
        (0..100_000).for_each(|_| {
            let n = records / 2 + random.u64(..records / 10);
            assert!(store.get(in_order(n).as_bytes()).unwrap().is_some());
        });
        store.stats().raised_from_far >= 50
    };
    until_telling("fifty leaves are back", are_back, || format!("{:?}", store.stats()));
}

#[test]
fn what_cannot_be_opened_is_refused_in_one_sentence_and_nothing_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign");
    std::fs::write(&foreign, "not ours").unwrap();
    let refused = |place: FarPlace, capacity_bytes: u64, require_dax: bool| {
        let far = Some(FarOptions { place, capacity_bytes, require_dax });
        match Store::open(Options { far, ..Options::default() }) {
            Err(Error::Far { reason }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let file = |name: &str| FarPlace::File(folder.path().join(name));
    for (place, capacity_bytes, require_dax, word) in [
        (file("far"), 8 << 20, true, "DAX was demanded"),
        (file("far"), 1 << 20, false, "at least"),
        (file("far"), 1 << 60, false, "free"),
        (file("foreign"), 8 << 20, false, "not a far file"),
        (file("no/such/folder"), 8 << 20, false, "No such file"),
        (FarPlace::File(folder.path().into()), 8 << 20, false, "a folder"),
        (FarPlace::Node(99), 8 << 20, false, "no NUMA node 99"),
        (FarPlace::Node(0), 8 << 20, true, "DAX was demanded"),
    ] {
        let reason = refused(place, capacity_bytes, require_dax);
        assert!(reason.contains(word) && !reason.contains('\n'), "{reason}");
    }
    assert_eq!(std::fs::read(&foreign).unwrap(), b"not ours");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_ratio_without_far_memory_is_refused() {
    let options = Options { far_ratio: FarRatio::new(1, 3), ..Options::default() };
    let refusal = options.check().unwrap_err().to_string();
    assert!(
        refusal.contains("set Options::far") && matches!(options.check(), Err(Error::Far { .. })),
        "{refusal}"
    );
}

/// The file would be there at the next start, and is nobody's that a start knows.
#[test]
fn a_far_file_in_the_folder_of_the_store_is_refused_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    let durable = Some(DurableOptions::new(&dir));
    Store::open(Options { durable: durable.clone(), ..Options::default() }).unwrap().close().unwrap();
    for file in [dir.join("far"), folder.path().join("store/../store/far")] {
        let far = FarOptions { place: FarPlace::File(file), capacity_bytes: 4 << 20, require_dax: false };
        let refusal = Store::open(Options { far: Some(far), durable: durable.clone(), ..Options::default() });
        let refusal = refusal.err().unwrap().to_string();
        assert!(refusal.contains("name one in another folder"), "{refusal}");
    }
    Store::open(Options { durable, ..Options::default() }).unwrap();
}
