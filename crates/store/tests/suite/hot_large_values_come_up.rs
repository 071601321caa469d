//! A large value that went to SSD must come back when it is read again and again, or each of its reads waits for the
//! disk for good. What comes up is a copy: it must go down again for nothing, must not be lost, must not outlive its
//! record, must stay when something walks over all keys, and must not take more memory than there is.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ziptier::{
    CodecChoice, Durability, DurableOptions, FarOptions, FarPlace, Options, SsdOptions, Store, Values, check,
};
use ziptier_testing::until;

use crate::durable::SetOnDrop;
use crate::waiting::until_telling;

const MEMORY: u64 = 4 << 20;
const VALUE_BYTES: usize = 20_000;
/// Six times what memory may have.
const KEYS: u64 = 1200;
/// A quarter of it.
const HOT: u64 = 50;

fn options(dir: &Path, is_durable: bool, background_threads: usize) -> Options {
    let mut durable = DurableOptions::new(dir.join("store"));
    durable.durability = Durability::No;
    durable.log.segment_bytes = 4 << 20;
    Options {
        memory_limit_bytes: Some(MEMORY),
        ssd: Some(SsdOptions { path: Some(dir.join("segments")), limit_bytes: 256 << 20 }),
        durable: is_durable.then_some(durable),
        background_threads,
        ..Options::default()
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:06}").into_bytes()
}

/// Noise: what is not smaller in memory than on SSD.
fn value(n: u64, version: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n << 8 | version);
    (0..VALUE_BYTES).map(|_| random.u8(..)).collect()
}

/// Key `n` of a set that is spread over all leaves; two sets have no key in common.
fn hot(set: u64, n: u64) -> u64 {
    n * (KEYS / HOT) + set
}

fn fill(store: &Store) {
    for n in 0..KEYS {
        store.put(&key(n * 77 % KEYS), &value(n * 77 % KEYS, 0)).unwrap();
        held(store);
    }
}

fn held(store: &Store) {
    let held = store.memory().total_bytes();
    assert!(held <= MEMORY * 103 / 100, "{held}: {:?}", store.memory());
}

fn pieces_read(store: &Store) -> u64 {
    store.ssd().unwrap().pieces_read
}

/// Reads a set some times; how many reads of the SSD that took.
fn read(store: &Store, set: u64, rounds: u64) -> u64 {
    let before = pieces_read(store);
    for _ in 0..rounds {
        for n in 0..HOT {
            let n = hot(set, n);
            assert!(store.get(&key(n)).unwrap() == Some(value(n, 0)), "{n}");
            held(store);
        }
    }
    pieces_read(store) - before
}

fn stats_and_memory(store: &Store) -> String {
    format!("{:?}, {:?}", store.stats(), store.memory())
}

/// After some rounds no read of a set goes to SSD; a few more where what makes room for it got no processor.
fn warm(store: &Store, set: u64) {
    let is_warm = || {
        read(store, set, 6);
        read(store, set, 10) <= HOT * 10 / 50
    };
    until_telling(&format!("set {set} is warm"), is_warm, || stats_and_memory(store));
}

#[test]
fn what_is_read_twice_comes_up_and_goes_down_for_nothing() {
    // Without a thread in the background, which moves values when it gets a processor, counts are exact.
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), is_durable, 0);
        let store = Store::open(options.clone()).unwrap();
        fill(&store);
        store.send_to_ssd(|| true).unwrap();
        if is_durable {
            store.checkpoint().unwrap();
        }
        let written = store.ssd().unwrap().written_bytes;
        for set in 0..5 {
            // Nothing else has read them; a leaf that was being packed was not sent.
            let raised = store.stats().values_raised;
            let reads = read(&store, set, 1);
            assert!(reads <= HOT && reads > HOT * 4 / 5, "{reads}");
            let raised = store.stats().values_raised - raised;
            assert!(raised <= HOT / 10, "{raised} came up for one read");
            warm(&store, set);
            assert!(store.stats().values_raised > HOT * (set + 1) * 4 / 5, "{:?}", store.stats());
        }
        // All of memory was filled and left again several times. Of what was sent before, up to 1 MiB was not yet
        // written.
        let again = store.ssd().unwrap().written_bytes - written;
        assert!(again < 2 << 20, "{again} bytes were written");
        drop(store);
        let store = Store::open(options.clone()).unwrap();
        if is_durable {
            warm(&store, 7);
            assert_eq!(store.len(), KEYS);
            store.close().unwrap();
            assert_eq!(check(options.durable.as_ref().unwrap()).unwrap().damages, []);
        }
    }
}

#[test]
fn every_kind_of_read_raises_but_a_walk() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(dir.path(), false, 0)).unwrap();
    fill(&store);
    store.send_to_ssd(|| true).unwrap();
    let raised = |reads: &mut dyn FnMut(&[u8], &mut Vec<u8>)| {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let (before, mut out) = (store.stats().values_raised, Vec::new());
        for _ in 0..3 {
            reads(&key(n), &mut out);
            assert!(out == value(n, 0)[..out.len()] && !out.is_empty(), "{n}");
        }
        store.stats().values_raised - before
    };
    assert_eq!(raised(&mut |key, out| *out = store.get(key).unwrap().unwrap()), 1);
    assert_eq!(raised(&mut |key, out| assert!(store.get_up_to(key, 1 << 20, out).unwrap().is_some())), 1);
    assert_eq!(raised(&mut |key, out| assert!(store.read_at(key, 0, 100, out).unwrap().is_some())), 1);
    let in_parts = &mut |key: &[u8], out: &mut Vec<u8>| {
        let open = store.open_value(key).unwrap().unwrap();
        out.clear();
        while out.len() < VALUE_BYTES {
            open.read_at(out.len() as u64, 700, out).unwrap();
        }
    };
    assert_eq!(raised(in_parts), 1);
    let mut values = Values::default();
    let several = &mut |key: &[u8], out: &mut Vec<u8>| {
        let keys = [key, b"none", key];
        store.multi_get(&keys, &mut values).unwrap();
        *out = values.get(0).unwrap().to_vec();
        assert_eq!(values.get(2), values.get(0));
    };
    assert_eq!(raised(several), 1);
    // What is only asked for its length is not read.
    let length = &mut |key: &[u8], out: &mut Vec<u8>| {
        assert!(store.get_up_to(key, 100, out).unwrap().unwrap().len == VALUE_BYTES as u64 && out.is_empty());
        out.extend_from_slice(&value(5, 0)[..1]);
    };
    assert_eq!(raised(length), 0);
    warm(&store, 20);
    let before = store.stats().values_raised;
    for _ in 0..3 {
        let records: Vec<_> = store.range(..).map(|record| record.unwrap().0).collect();
        assert_eq!(records.len() as u64, KEYS);
    }
    assert_eq!(store.stats().values_raised, before);
    assert!(read(&store, 20, 1) <= 1, "a walk displaced what is hot");
}

#[test]
fn values_come_up_in_pieces_and_not_if_they_take_all_of_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(Options {
        codec: CodecChoice::None,
        memory_limit_bytes: Some(4 * MEMORY),
        ..options(dir.path(), false, 0)
    })
    .unwrap();
    let value = |n: u64, bytes: usize| {
        n.to_le_bytes().into_iter().chain(value(n, 0)).cycle().take(bytes).collect::<Vec<_>>()
    };
    let sizes = [1_500_000, 1_900_000, 3_000_000, 70_000, 5_000_000];
    for n in 0..40 {
        store.put(&key(n), &value(n, sizes[n as usize % 5])).unwrap();
    }
    store.settle().unwrap();
    store.send_to_ssd(|| true).unwrap();
    for n in [0, 1, 3, 4] {
        let large = sizes[n as usize % 5] as u64 > 4 * MEMORY / 8;
        let before = store.stats().values_raised;
        for _ in 0..4 {
            assert!(store.get(&key(n)).unwrap() == Some(value(n, sizes[n as usize % 5])), "{n}");
            let held = store.memory().total_bytes();
            assert!(held <= 4 * MEMORY * 103 / 100, "{n}: {:?}", store.memory());
        }
        assert_eq!(store.stats().values_raised - before, u64::from(!large), "{n}: {:?}", store.ssd());
    }
}

#[test]
fn hot_values_stay_when_others_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(dir.path(), false, 0)).unwrap();
    fill(&store);
    warm(&store, 3);
    let before = pieces_read(&store);
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..400 {
        // Others, six times what memory has in all.
        for _ in 0..3 {
            let n = random.u64(..KEYS);
            if n % (KEYS / HOT) != 3 {
                store.put(&key(n), &value(n, 1)).unwrap();
                held(&store);
            }
        }
        let reads = 2 * HOT / 5;
        for n in round * reads..(round + 1) * reads {
            let n = hot(3, n % HOT);
            assert!(store.get(&key(n)).unwrap() == Some(value(n, 0)), "{n}");
        }
    }
    let reads = pieces_read(&store) - before;
    assert!(reads < 400, "{reads} of 8,000 reads of what is hot went to SSD");
}

#[test]
fn what_came_up_goes_with_its_record() {
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), is_durable, 1);
        let store = Store::open(options.clone()).unwrap();
        fill(&store);
        warm(&store, 0);
        let mut expected: Vec<Option<Vec<u8>>> = (0..KEYS).map(|n| Some(value(n, 0))).collect();
        for n in 0..HOT {
            let (at, other) = (hot(0, n), hot(0, (n + 1) % HOT));
            match n % 5 {
                0 => {
                    assert!(store.delete(&key(at)).unwrap());
                    expected[at as usize] = None;
                }
                1 => {
                    store.put(&key(at), &value(at, 9)).unwrap();
                    expected[at as usize] = Some(value(at, 9));
                }
                2 => {
                    store.rename(&key(at), &key(other), true).unwrap();
                    expected[other as usize] = expected[at as usize].take();
                }
                3 => assert!(store.set_expiry(&key(at), None).unwrap() || expected[at as usize].is_none()),
                _ => {
                    store.copy(&key(at), &key(other), true).unwrap();
                    expected[other as usize] = expected[at as usize].clone();
                }
            }
            if n == HOT / 2 && is_durable {
                store.checkpoint().unwrap();
            }
        }
        let audit = |store: &Store| {
            for (n, expected) in expected.iter().enumerate() {
                assert!(&store.get(&key(n as u64)).unwrap() == expected, "{n}");
                held(store);
            }
            assert_eq!(store.len(), expected.iter().flatten().count() as u64);
        };
        (0..3).for_each(|_| audit(&store));
        store.send_to_ssd(|| true).unwrap();
        audit(&store);
        if is_durable {
            drop(store);
            audit(&Store::open(options).unwrap());
        }
    }
}

#[test]
fn values_that_come_and_go_are_always_whole() {
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(options(dir.path(), is_durable, 1)).unwrap();
        fill(&store);
        let is_over = AtomicBool::new(false);
        let version_of = |n: u64, found: &[u8]| (0..4).find(|version| found == value(n, *version)).unwrap();
        std::thread::scope(|scope| {
            let _ends = SetOnDrop(&is_over);
            let (store, is_over) = (&store, &is_over);
            for seed in 0..2 {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut newest = [0; HOT as usize];
                    let mut values = Values::default();
                    while !is_over.load(Ordering::Relaxed) {
                        let n = random.u64(..HOT);
                        let keys = [key(hot(0, n)), key(hot(0, (n + 7) % HOT))];
                        store.multi_get(&keys, &mut values).unwrap();
                        let version = version_of(hot(0, n), values.get(0).unwrap());
                        assert!(version >= newest[n as usize], "{n}");
                        newest[n as usize] = version;
                        let found = store.get(&keys[1]).unwrap().unwrap();
                        version_of(hot(0, (n + 7) % HOT), &found);
                    }
                });
            }
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(1);
                while !is_over.load(Ordering::Relaxed) {
                    store.send_to_ssd(|| random.bool()).unwrap();
                    if is_durable {
                        store.checkpoint().unwrap();
                    }
                }
            });
            for version in 1..4 {
                for n in 0..HOT {
                    store.put(&key(hot(0, n)), &value(hot(0, n), version)).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
            until_telling("values came up", || store.stats().values_raised > 0, || stats_and_memory(store));
        });
        (0..HOT)
            .for_each(|n| assert!(store.get(&key(hot(0, n))).unwrap() == Some(value(hot(0, n), 3)), "{n}"));
        let held_bytes = |store: &Store| {
            store.send_to_ssd(|| true).unwrap();
            store.memory().large_bytes
        };
        until("no copy is left behind", || held_bytes(&store) == 0);
    }
}

#[test]
fn far_memory_takes_what_comes_up() {
    let dir = tempfile::tempdir().unwrap();
    let place = FarPlace::File(dir.path().join("far"));
    let far = FarOptions { place, capacity_bytes: 16 << 20, require_dax: false };
    let store = Store::open(Options { far: Some(far), ..options(dir.path(), false, 1) }).unwrap();
    fill(&store);
    // Twice what DRAM may have.
    let sets = 8;
    let lap = || (0..sets).map(|set| read(&store, set, 1)).sum::<u64>();
    until_telling("few reads go to SSD", || lap() < sets * HOT / 10, || stats_and_memory(&store));
    assert!(store.memory().far_large_bytes > 0, "{:?}", store.memory());
}
