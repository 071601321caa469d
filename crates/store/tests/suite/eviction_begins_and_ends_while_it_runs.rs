//! A server that is told to evict and refuses writes all the same, or that is told to stop and goes on losing keys,
//! would have to be restarted when it is needed most.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use ziptier::{CodecChoice, Error, Options, SsdOptions, Store};
use ziptier_testing::{not_enough, until};

const LIMIT_BYTES: u64 = 1 << 20;

fn open(background_threads: usize) -> Store {
    let memory_limit_bytes = Some(LIMIT_BYTES);
    Store::open(Options {
        memory_limit_bytes,
        codec: CodecChoice::None,
        background_threads,
        ..Options::default()
    })
    .unwrap()
}

fn name(n: u64) -> Vec<u8> {
    format!("key:{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

fn value(n: u64, version: u64) -> Vec<u8> {
    format!("{n} in version {version}: ").repeat(8).into_bytes()
}

/// The first of the keys from `first` on that is refused.
fn fill(store: &Store, first: u64) -> u64 {
    let is_taken = |n: &u64| match store.put(&name(*n), &value(*n, 0)) {
        Ok(()) => true,
        Err(Error::MemoryLimit { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    (first..).find(|n| !is_taken(n)).unwrap()
}

fn found(store: &Store, keys: std::ops::Range<u64>) -> Vec<u64> {
    keys.filter(|n| {
        let found = store.get(&name(*n)).unwrap();
        assert!(found.as_ref().is_none_or(|found| *found == value(*n, 0)));
        found.is_some()
    })
    .collect()
}

#[test]
fn writes_are_let_through_and_refused_as_is_said() {
    let store = open(0);
    let first = fill(&store, 0);
    assert!(!store.evicts() && first > 1000 && store.memory().eviction_bytes == 0);

    store.set_eviction(true).unwrap();
    assert!(store.evicts() && store.memory().eviction_bytes >= first);
    // Whoever is read from now on stays.
    for _ in 0..3 {
        assert_eq!(found(&store, 0..100).len(), 100);
    }
    let many = first + first / 2;
    (first..many).for_each(|n| store.put(&name(n), &value(n, 0)).unwrap());
    assert!(store.stats().evicted > first / 4, "{:?}", store.stats());
    assert!(store.memory().total_bytes() <= LIMIT_BYTES + LIMIT_BYTES * 3 / 100);
    assert_eq!(found(&store, 0..100).len(), 100);

    store.set_eviction(false).unwrap();
    assert!(!store.evicts());
    assert_eq!(store.memory().eviction_bytes, 0);
    let (evicted, before) = (store.stats().evicted, found(&store, 0..many));
    let refused = fill(&store, many);
    store.settle().unwrap();
    assert_eq!(store.stats().evicted, evicted);
    let after = [before, (many..refused).collect()].concat();
    assert_eq!(found(&store, 0..refused + 1), after);

    store.set_eviction(true).unwrap();
    (refused..refused + first / 2).for_each(|n| store.put(&name(n), &value(n, 0)).unwrap());
    assert!(store.stats().evicted > evicted);
}

#[test]
fn nothing_else_is_lost_while_threads_write() {
    let store = open(1);
    let done = AtomicBool::new(false);
    let switches = AtomicU32::new(0);
    // A thread may have no processor while the others write.
    let is_enough = || switches.load(Relaxed) > 2 && store.stats().evicted > 0;
    let write = |thread: u64| {
        let mut random = fastrand::Rng::with_seed(thread);
        let mut versions: HashMap<u64, u64> = HashMap::new();
        let mut goes_on = not_enough(&is_enough);
        for version in (0_u64..).take_while(|&version| version < 8_000 || goes_on()) {
            let n = thread << 32 | random.u64(..5_000);
            match random.u8(..8) {
                0 => {
                    store.delete(&name(n)).unwrap();
                    versions.remove(&n);
                }
                1 | 2 => {
                    let may = versions.get(&n).map(|version| value(n, *version));
                    let found = store.get(&name(n)).unwrap();
                    assert!(found.is_none() || found == may, "key {n}");
                }
                _ => match store.put(&name(n), &value(n, version)) {
                    Ok(()) => _ = versions.insert(n, version),
                    Err(Error::MemoryLimit { .. }) => {}
                    Err(error) => panic!("{error}"),
                },
            }
        }
    };
    std::thread::scope(|scope| {
        let switcher = scope.spawn(|| {
            while !done.load(Relaxed) {
                store.set_eviction(switches.fetch_add(1, Relaxed).is_multiple_of(2)).unwrap();
            }
        });
        let write = &write;
        let writers: Vec<_> = (0..2).map(|thread| scope.spawn(move || write(thread))).collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Relaxed);
        switcher.join().unwrap();
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    assert!(is_enough(), "{switches:?} switches, {:?}", store.stats());

    store.set_eviction(false).unwrap();
    // Marks of leaves that were joined go with these leaves, once nobody reads them any more.
    until("no marks are left", || {
        store.settle().unwrap();
        store.memory().eviction_bytes == 0
    });
    let (evicted, keys) = (store.stats().evicted, store.len());
    store.settle().unwrap();
    assert_eq!((store.stats().evicted, store.len()), (evicted, keys));
    // Every record that is there can be evicted again.
    store.set_eviction(true).unwrap();
    assert!(store.memory().eviction_bytes >= keys);
    (0..2 * keys).for_each(|n| store.put(&name(1 << 60 | n), &value(n, 0)).unwrap());
}

#[test]
fn an_ssd_is_refused_beside_eviction() {
    let folder = tempfile::tempdir().unwrap();
    let ssd = Some(SsdOptions { path: Some(folder.path().to_owned()), limit_bytes: 64 << 20 });
    let store = Store::open(Options { ssd, background_threads: 0, ..Options::default() }).unwrap();
    let refusal = store.set_eviction(true).unwrap_err().to_string();
    assert!(refusal.contains("keeps nothing on SSD"), "{refusal}");
    assert!(store.may_evict().is_err() && !store.evicts());
    store.set_eviction(false).unwrap();
}
