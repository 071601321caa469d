//! A cache that was filled beyond its limit emptied itself while nobody wrote: leaves that were joined kept their
//! bodies, and others were evicted to make room for those. One that was filled faster than it packed evicted what would
//! have fitted.

use std::path::Path;

use ziptier::{CodecChoice, Durability, DurableOptions, Options, Store};

const LIMIT_BYTES: u64 = 8 << 20;
/// Bytes of a key and its value.
const RECORD_BYTES: u64 = 216;

fn open(limit_bytes: u64, options: Options) -> Store {
    Store::open(Options { memory_limit_bytes: Some(limit_bytes), ..options }).unwrap()
}

fn cache() -> Options {
    Options { eviction: true, background_threads: 0, ..Options::default() }
}

fn in_folder(options: Options, dir: &Path) -> Options {
    let mut durable = DurableOptions::new(dir);
    durable.durability = Durability::No;
    Options { durable: Some(durable), ..options }
}

/// Keys in an order that has nothing to do with theirs.
fn key(n: u64) -> Vec<u8> {
    format!("key:{:012}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24).into_bytes()
}

/// 200 bytes of words, half of which are their own.
fn value(n: u64) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "the ",
        "of ",
        "chimney ",
        "and ",
        "to ",
        "parlour ",
        "sheep ",
        "in ",
        "that ",
        "shepherd ",
        "was ",
        "her ",
        "window ",
        "upon ",
        "it ",
        "evening ",
    ];
    let mut random = fastrand::Rng::with_seed(n);
    let mut value = Vec::with_capacity(220);
    while value.len() < 200 {
        value.extend_from_slice(WORDS[random.usize(..WORDS.len())].as_bytes());
        if random.u8(..4) == 0 {
            value.extend((0..6).map(|_| random.lowercase() as u8));
        }
    }
    value.truncate(200);
    value
}

fn fill(store: &Store, records: std::ops::Range<u64>) {
    records.for_each(|n| store.put(&key(n), &value(n)).unwrap());
}

fn there(store: &Store, records: u64) -> u64 {
    let is_there = |n: &u64| match store.get(&key(*n)).unwrap() {
        Some(found) => {
            assert_eq!(found, value(*n), "{n}");
            true
        }
        None => false,
    };
    (0..records).filter(is_there).count() as u64
}

#[test]
fn a_cache_that_was_filled_beyond_its_limit_stays_full() {
    let store = open(LIMIT_BYTES, cache());
    fill(&store, 0..150_000);
    let (filled, evicted, held) = (store.len(), store.stats().evicted, store.memory().total_bytes());
    assert!(evicted > 0 && held <= LIMIT_BYTES, "{evicted} were evicted, {held} bytes are held");
    let logical = filled * RECORD_BYTES;
    assert!(held * 10 <= logical * 7, "{held} bytes for {logical}, {:?}", store.memory());
    for _ in 0..5 {
        store.settle().unwrap();
    }
    assert_eq!((store.len(), store.stats().evicted), (filled, evicted), "{:?}", store.memory());
    let settled = store.memory().total_bytes();
    assert!(settled <= held, "settling made {settled} bytes of {held}, {:?}", store.memory());
    // There is room now: what comes next takes nobody's place.
    fill(&store, 150_000..150_100);
    assert_eq!(store.len(), filled + 100);
}

#[test]
fn what_fits_once_it_is_packed_is_neither_evicted_nor_refused() {
    for (background_threads, eviction) in [(0, true), (1, true), (0, false), (1, false)] {
        let store = open(LIMIT_BYTES, Options { eviction, background_threads, ..cache() });
        let records = LIMIT_BYTES * 11 / 10 / RECORD_BYTES;
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let store = &store;
                scope.spawn(move || {
                    for n in (writer..records).step_by(2) {
                        let put = store.put(&key(n), &value(n));
                        put.unwrap_or_else(|refusal| panic!("{n}: {refusal}, {:?}", store.memory()));
                    }
                });
            }
        });
        let stats = store.stats();
        assert!(stats.adoptions > 0 && stats.evicted == 0, "{stats:?}, {:?}", store.memory());
        assert_eq!(there(&store, records), records);
    }
}

/// What was written before there was a dictionary lies raw, and leaves have room: without both there would be 86,000
/// records.
#[test]
fn a_store_that_keeps_everything_packs_all_of_it_before_it_refuses() {
    let store = open(LIMIT_BYTES, Options { eviction: false, ..cache() });
    let records = 91_000;
    for n in 0..records {
        let put = store.put(&key(n), &value(n));
        put.unwrap_or_else(|refusal| panic!("{n}: {refusal}, {:?}", store.memory()));
    }
    assert_eq!(there(&store, records), records);
    let full = (records..2 * records).find(|n| store.put(&key(*n), &value(*n)).is_err());
    assert!(full.is_some(), "{:?}", store.memory());
}

#[test]
fn a_store_of_a_few_mib_is_coded() {
    for (eviction, limit_bytes) in [(true, 4 << 20), (false, 4 << 20), (true, 6 << 20)] {
        let store = open(limit_bytes, Options { eviction, ..cache() });
        let records = limit_bytes / RECORD_BYTES;
        fill(&store, 0..records);
        let stats = store.stats();
        assert!(stats.adoptions > 0 && stats.evicted == 0, "{stats:?}, {:?}", store.memory());
        assert_eq!(there(&store, records), records);
    }
}

#[test]
fn a_million_bytes_of_small_records_are_coded() {
    let store = Store::open(Options { background_threads: 0, ..Options::default() }).unwrap();
    for n in 0..20_000u64 {
        let record = format!("{{\"id\":{n},\"name\":\"user{}\",\"active\":{}}}", n * 7919 % 1000, n % 3 == 0);
        store.put(format!("user:{n}").as_bytes(), record.as_bytes()).unwrap();
    }
    assert!(store.stats().adoptions > 0, "{:?}", store.memory());
}

#[test]
fn settling_never_takes_more_memory() {
    let folder = tempfile::tempdir().unwrap();
    for eviction in [true, false] {
        let options = Options { eviction, ..in_folder(cache(), &folder.path().join(format!("{eviction}"))) };
        let store = open(64 << 20, options);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let store = &store;
                scope.spawn(move || fill(store, writer * 6_000..(writer + 1) * 6_000));
            }
        });
        let before = store.memory().total_bytes();
        store.settle().unwrap();
        let after = store.memory();
        assert!(after.total_bytes() <= before, "{} of {before}, {after:?}", after.total_bytes());
        assert_eq!(there(&store, 12_000), 12_000);
    }
}

#[test]
fn a_cache_that_starts_with_half_its_memory_keeps_what_fits() {
    for codec in [CodecChoice::None, CodecChoice::Auto] {
        let folder = tempfile::tempdir().unwrap();
        let options = || Options { codec, ..cache() };
        let fresh = open(LIMIT_BYTES / 2, options());
        fill(&fresh, 0..60_000);
        assert!(fresh.stats().evicted > 0, "{codec}: {:?}", fresh.stats());
        let wanted = fresh.len();
        let store = open(LIMIT_BYTES, in_folder(options(), folder.path()));
        fill(&store, 0..100_000);
        // Some of it lies in images, and some in the log only.
        store.checkpoint().unwrap();
        (0..100_000).step_by(7).for_each(|n| assert!(store.delete(&key(n)).is_ok()));
        fill(&store, 100_000..110_000);
        store.close().unwrap();
        let store = open(LIMIT_BYTES / 2, in_folder(options(), folder.path()));
        let kept = there(&store, 110_000);
        let memory = store.memory();
        assert!(memory.total_bytes() <= LIMIT_BYTES / 2, "{memory:?}");
        assert!(kept * 10 >= wanted * 8, "{codec}: {kept} of {wanted}, {memory:?}, {:?}", store.stats());
    }
}

#[test]
fn a_cache_has_as_many_records_after_a_crash_as_before() {
    // More than fits of each codec.
    for (codec, background_threads, checkpoints, records) in [
        (CodecChoice::Auto, 1, false, 110_000),
        (CodecChoice::Auto, 0, true, 110_000),
        (CodecChoice::None, 0, true, 60_000),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (running, killed) = (folder.path().join("running"), folder.path().join("killed"));
        let options = || Options { codec, background_threads, ..cache() };
        let store = open(LIMIT_BYTES, in_folder(options(), &running));
        fill(&store, 0..records / 2);
        if checkpoints {
            store.checkpoint().unwrap();
        }
        fill(&store, records / 2..records);
        assert!(store.stats().evicted > 0, "{codec}: {:?}", store.stats());
        let before = store.len();
        copy(&running, &killed);
        let started = open(LIMIT_BYTES, in_folder(options(), &killed));
        let after = there(&started, records);
        let memory = started.memory();
        assert!(memory.total_bytes() <= LIMIT_BYTES, "{memory:?}");
        assert!(after * 10 >= before * 9, "{codec}: {after} of {before}, {memory:?}, {:?}", started.stats());
    }
}

/// Leaves that nobody writes to again after the first dictionary is there stay raw until room is short.
#[test]
fn what_fits_once_it_is_packed_is_there_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let (running, killed) = (folder.path().join("running"), folder.path().join("killed"));
    let options = |dir: &Path| in_folder(Options { background_threads: 1, ..cache() }, dir);
    let store = open(LIMIT_BYTES, options(&running));
    let key = |n: u64| format!("key:{n:012}").into_bytes();
    let records = 2 * LIMIT_BYTES / RECORD_BYTES;
    (0..records).for_each(|n| store.put(&key(n), &value(n)).unwrap());
    assert_eq!((store.len(), store.stats().evicted), (records, 0), "{:?}", store.memory());
    copy(&running, &killed);
    let started = open(LIMIT_BYTES, options(&killed));
    assert_eq!((started.len(), started.stats().evicted), (records, 0), "{:?}", started.memory());
    (0..records).for_each(|n| assert_eq!(started.get(&key(n)).unwrap(), Some(value(n)), "{n}"));
}

/// Copies a folder as a kill leaves it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
