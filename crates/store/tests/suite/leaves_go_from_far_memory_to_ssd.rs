//! Three places, each too small for the data: what memory has no room for goes to far memory, and what that has no room
//! for to SSD. Nothing may be lost or refused on the way while the last place has room, and no limit passed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ziptier::{CodecChoice, Error, FarOptions, FarPlace, Options, SsdOptions, Store};

const LIMIT_BYTES: u64 = 2 << 20;

fn open(dir: &tempfile::TempDir, far_bytes: u64, ssd_bytes: u64, options: Options) -> Store {
    let place = FarPlace::File(dir.path().join("far"));
    Store::open(Options {
        memory_limit_bytes: Some(LIMIT_BYTES),
        far: Some(FarOptions { place, capacity_bytes: far_bytes, require_dax: false }),
        ssd: Some(SsdOptions { path: Some(dir.path().join("segments")), limit_bytes: ssd_bytes }),
        ..options
    })
    .unwrap()
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

/// Bytes that do not become smaller; they begin with the version.
fn value(n: u64, version: u64) -> Vec<u8> {
    let len = if n.is_multiple_of(1000) { 5000 } else { 180 };
    let mut value = vec![0; 8 + len];
    value[..8].copy_from_slice(&version.to_le_bytes());
    fastrand::Rng::with_seed(n << 32 | version).fill(&mut value[8..]);
    value
}

fn version_of(n: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, value(n, version), "{n}");
    version
}

/// A look-up reads the image of a whole leaf from SSD, and a scan reads each image once. So the scan reads all records,
/// and look-ups read one in eight.
fn assert_holds(store: &Store, keys: u64, version: impl Fn(u64) -> u64) {
    let mut seen = 0;
    for (n, record) in (0..).zip(store.range(..)) {
        let (found, bytes) = record.unwrap();
        assert_eq!((found, version_of(n, &bytes)), (key(n), version(n)));
        seen = n + 1;
    }
    assert_eq!(seen, keys);
    for n in (0..keys).step_by(8) {
        assert_eq!(version_of(n, &store.get(&key(n)).unwrap().unwrap()), version(n));
    }
}

fn assert_within_limits(store: &Store) {
    let memory = store.memory();
    assert!(memory.total_bytes() <= LIMIT_BYTES * 103 / 100, "{memory:?}, {:?}", store.stats());
    assert!(memory.far_used_bytes <= memory.far_limit_bytes, "{memory:?}");
}

#[test]
fn what_no_memory_has_room_for_goes_to_ssd() {
    for (codec, background_threads) in [(CodecChoice::None, 0), (CodecChoice::Lz4, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { codec, background_threads, ..Options::default() };
        // Space there is given in chunks of 1 MiB: one holds the head, one the large values.
        let store = open(&dir, 4 << 20, 64 << 20, options);
        let keys = 45_000;
        let mut versions = vec![0; keys as usize];
        let mut random = fastrand::Rng::with_seed(1);
        for write in 0..keys + 12_000 {
            let n = if write < keys { write } else { random.u64(..keys) };
            versions[n as usize] += 1;
            let put = store.put(&key(n), &value(n, versions[n as usize]));
            put.unwrap_or_else(|refusal| {
                panic!("{write}: {refusal}, {:?}, {:?}", store.memory(), store.stats())
            });
            if write.is_multiple_of(64) {
                assert_within_limits(&store);
            }
        }
        let (memory, stats) = (store.memory(), store.stats());
        assert!(stats.sent_to_far > 100 && stats.sent_to_ssd > 500, "{stats:?}");
        assert!(memory.far_used_bytes > memory.far_limit_bytes / 2, "{memory:?}");
        assert_holds(&store, keys, |n| versions[n as usize]);
        assert_eq!(store.len(), keys);
        (0..keys).for_each(|n| assert!(store.delete(&key(n)).unwrap(), "{n}"));
        assert_eq!(store.len(), 0);
        assert_within_limits(&store);
        assert_eq!(store.stats().damaged, 0);
    }
}

/// Every key has one writer, and readers see versions that never fall.
#[test]
fn no_version_is_lost_on_the_way_down_and_up() {
    const KEYS: u64 = 30_000;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, 4 << 20, 64 << 20, Options::default());
    (0..KEYS).for_each(|n| store.put(&key(n), &value(n, 0)).unwrap());
    let written: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (store, written) = (&store, &written);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(writer);
                    for _ in 0..30_000 {
                        let n = random.u64(..KEYS / 2) * 2 + writer;
                        let version = written[n as usize].load(Ordering::Relaxed) + 1;
                        store.put(&key(n), &value(n, version)).unwrap();
                        written[n as usize].store(version, Ordering::Release);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(7);
            while !done.load(Ordering::Relaxed) {
                // A tenth is read nine times as often.
                let among = if random.u32(..10) == 0 { KEYS } else { KEYS / 10 };
                let n = random.u64(..among);
                let before = written[n as usize].load(Ordering::Acquire);
                assert!(version_of(n, &store.get(&key(n)).unwrap().unwrap()) >= before);
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    for n in 0..KEYS {
        let version = version_of(n, &store.get(&key(n)).unwrap().unwrap());
        assert_eq!(version, written[n as usize].load(Ordering::Relaxed));
    }
    let stats = store.stats();
    assert!(stats.sent_to_far > 100 && stats.sent_to_ssd > 100 && stats.damaged == 0, "{stats:?}");
    assert_within_limits(&store);
}

#[test]
fn all_places_full_is_a_clear_state() {
    for background_threads in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { codec: CodecChoice::None, background_threads, ..Options::default() };
        let store = open(&dir, 4 << 20, 4 << 20, options);
        let mut taken = 0;
        let refusal = loop {
            match store.put(&key(taken), &value(taken, 1)) {
                Ok(()) => taken += 1,
                Err(refusal) => break refusal,
            }
            assert!(taken < 100_000);
        };
        let words = refusal.to_string();
        let Error::MemoryAndSsdLimit { far_limit_bytes, ssd_limit_bytes, ssd_taken_bytes, .. } = refusal
        else {
            panic!("{words}");
        };
        assert_eq!(
            (far_limit_bytes, ssd_limit_bytes),
            (store.far().unwrap().limit_bytes, 4 << 20),
            "{words}"
        );
        assert!(words.contains("bytes of far memory") && words.contains("bytes of SSD"), "{words}");
        assert!(ssd_taken_bytes > ssd_limit_bytes / 2 && ssd_taken_bytes <= ssd_limit_bytes, "{words}");
        assert!(taken > 20_000, "{taken} records were taken, {:?}, {:?}", store.memory(), store.ssd());
        assert_within_limits(&store);
        assert_holds(&store, taken, |_| 1);
        // Whoever goes on writing brings nothing up that has no room below.
        for n in (0..taken).map(|n| n * 7919 % taken).step_by(3) {
            let _ = store.put(&key(n), &[&value(n, 1)[..], &[b'+'; 30]].concat());
            let _ = store.set_expiry(&key(n), Some(1 << 44));
        }
        let held_bytes = store.memory().total_bytes();
        println!("all full: {:.4} of the limit", held_bytes as f64 / LIMIT_BYTES as f64);
        // A body or two more than otherwise: of 2 MiB that is a part in two hundred.
        assert!(held_bytes <= LIMIT_BYTES * 104 / 100, "{:?}", store.memory());
        (0..taken * 3 / 4).for_each(|n| assert!(store.delete(&key(n)).unwrap()));
        for n in 0..taken / 8 {
            let put = store.put(&key(n), &value(n, 2));
            put.unwrap_or_else(|refusal| {
                panic!("{n} of {taken}: {refusal}, {:?}, {:?}", store.memory(), store.ssd())
            });
        }
        assert_eq!(store.len(), taken / 8 + taken - taken * 3 / 4);
        assert_within_limits(&store);
    }
}
