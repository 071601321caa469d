//! A store with a folder and an SSD: leaves on SSD must be there again after a start, without being read and without
//! being written twice, within the memory limit; and what a checkpoint needs must not go with a segment.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ziptier::{Clock, CodecChoice, Error, Options, PutMeta, SsdOptions, Store, check, dump, restore};
use ziptier_media::disk::Disk;
use ziptier_media::testing::RecordingDisk;

use crate::durable::{SetOnDrop, contents, options, put_versions, send_what_fits, value};

const LIMIT: u64 = 64 << 20;

fn with_ssd(disk: &RecordingDisk, codec: CodecChoice, limit_bytes: u64) -> Options {
    let mut options = options(Arc::new(disk.clone()), codec);
    let durable = options.durable.as_mut().unwrap();
    durable.durability = ziptier::Durability::No;
    durable.log.segment_bytes = 1 << 20;
    Options { ssd: Some(SsdOptions { path: None, limit_bytes }), ..options }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:08}").into_bytes()
}

fn fill(store: &Store, keys: u64, round: u64) {
    (0..keys).for_each(|n| store.put(&key(n), &value(n ^ round << 32, 100)).unwrap());
}

/// A look-up reads the image of a whole leaf, and a scan reads each image once. So the scan reads every record, and
/// look-ups one in eight.
fn assert_holds(store: &Store, keys: u64, right: impl Fn(u64) -> Vec<u8>) {
    let mut seen = 0;
    for (n, record) in (0..).zip(store.range(..)) {
        assert!(record.unwrap() == (key(n), right(n)), "{n}");
        seen = n + 1;
    }
    assert_eq!(seen, keys);
    (0..keys).step_by(8).for_each(|n| assert_eq!(store.get(&key(n)).unwrap(), Some(right(n)), "{n}"));
}

fn checked(options: &Options) {
    let report = check(options.durable.as_ref().unwrap()).unwrap();
    assert_eq!(report.damages, []);
}

#[test]
fn leaves_on_ssd_are_there_again_unread() {
    for codec in [CodecChoice::Auto, CodecChoice::None, CodecChoice::Lz4] {
        let disk = RecordingDisk::new();
        let options = with_ssd(&disk, codec, LIMIT);
        let store = Store::open(options.clone()).unwrap();
        fill(&store, 24_000, 0);
        store.settle().unwrap();
        assert!(store.send_to_ssd(|| true).unwrap() > 50);
        // Above what lies on SSD: values, tombstones, an expiry, a large value.
        (0..24_000).step_by(400).for_each(|n| store.put(&key(n), &value(n, 60)).unwrap());
        (7..24_000).step_by(900).for_each(|n| assert!(store.delete(&key(n)).unwrap()));
        assert!(store.set_expiry(&key(11), Some(1 << 44)).unwrap());
        store.put(b"large", &value(5, 100_000)).unwrap();
        let before = contents(&store);
        let images = store.checkpoint_stats().unwrap().images;
        store.checkpoint().unwrap();
        let stats = store.checkpoint_stats().unwrap();
        // Images of what lies above only: far less than all.
        assert!(stats.images - images > 20, "{stats:?}");
        drop(store);
        checked(&options);
        for round in 0..3 {
            let store = Store::open(options.clone()).unwrap();
            let recovered = store.recovered().unwrap();
            assert_eq!(recovered.records, 0);
            assert!(recovered.image_bytes < 400_000, "{recovered:?}");
            assert!(store.ssd().unwrap().leaves > 10, "{:?}", store.ssd());
            assert_eq!(store.len(), before.len() as u64);
            assert!(contents(&store) == before, "{codec}, round {round}");
            if round == 1 {
                store.settle().unwrap();
                store.send_to_ssd(|| true).unwrap();
                store.checkpoint().unwrap();
            }
        }
        checked(&options);
        // Another codec reads them, and without an SSD they stay where they are.
        let other = Options { codec: CodecChoice::Zstd, ssd: None, ..options };
        let store = Store::open(other.clone()).unwrap();
        assert!(contents(&store) == before, "{codec} read by zstd");
        store.bring_from_ssd(|| true);
        store.settle().unwrap();
        assert!(contents(&store) == before, "{codec} brought up by zstd");
        store.checkpoint().unwrap();
        drop(store);
        checked(&other);
        assert!(contents(&Store::open(other).unwrap()) == before);
    }
}

#[test]
fn an_image_is_written_once_for_checkpoint_and_ssd() {
    let disk = RecordingDisk::new();
    let options = with_ssd(&disk, CodecChoice::Auto, LIMIT);
    let store = Store::open(options.clone()).unwrap();
    fill(&store, 30_000, 0);
    store.settle().unwrap();
    let written = |store: &Store| store.checkpoint_stats().unwrap().segment_written_bytes;
    store.checkpoint().unwrap();
    let first = written(&store);
    // What a checkpoint wrote serves those that go to SSD.
    assert!(store.send_to_ssd(|| true).unwrap() > 50);
    assert_eq!(written(&store), first);
    // And the other way round: nothing lies above, nothing is written.
    store.checkpoint().unwrap();
    assert!(written(&store) < first + 8192, "{} after {first}", written(&store));
    let before = contents(&store);
    drop(store);
    let small = Options { memory_limit_bytes: Some(2 << 20), ..options };
    let store = Store::open(small.clone()).unwrap();
    assert!(contents(&store) == before);
    assert!(store.memory().total_bytes() < 2 << 20);
    drop(store);
    checked(&small);
}

/// The record was in memory when its expiry was put off. It begins on SSD where memory is smaller than it was, and the
/// former expiry is over by then.
#[test]
fn an_expiry_that_was_put_off_in_time_holds_for_a_record_that_begins_on_ssd() {
    let disk = RecordingDisk::new();
    let clock = Clock::manual(1_000);
    let options = Options { clock: clock.clone(), ..with_ssd(&disk, CodecChoice::None, LIMIT) };
    let store = Store::open(options.clone()).unwrap();
    fill(&store, 30_000, 0);
    let last = key(30_000);
    store.put_with(&last, b"kept", PutMeta { expires_at_ms: Some(2_000), flags: 0 }).unwrap();
    store.settle().unwrap();
    store.checkpoint().unwrap();
    assert!(store.set_expiry(&last, None).unwrap());
    drop(store);
    clock.advance(std::time::Duration::from_secs(5));
    let store = Store::open(Options { memory_limit_bytes: Some(2 << 20), ..options }).unwrap();
    assert!(store.ssd().unwrap().leaves > 10, "{:?}", store.ssd());
    assert_eq!(store.get(&last).unwrap().as_deref(), Some(&b"kept"[..]));
    assert_eq!(store.len(), 30_001);
}

/// The clock was ahead when a start replayed the log, and was right again at the next one.
#[test]
fn a_deleted_range_takes_records_on_ssd_whose_expiry_seems_to_be_over() {
    let disk = RecordingDisk::new();
    let at = |now_ms| Options { clock: Clock::manual(now_ms), ..with_ssd(&disk, CodecChoice::None, LIMIT) };
    let store = Store::open(at(1_000)).unwrap();
    let expiring = PutMeta { expires_at_ms: Some(2_000), flags: 0 };
    (0..300).for_each(|n| store.put_with(&key(n), &value(n, 100), expiring).unwrap());
    store.settle().unwrap();
    assert!(store.send_to_ssd(|| true).unwrap() > 0);
    store.checkpoint().unwrap();
    // More keys between those of the images, so that leaves begin within images when they are emptied.
    store.bring_from_ssd(|| true);
    let between = |n: u64| [key(n).as_slice(), b"+"].concat();
    (0..300).step_by(2).for_each(|n| store.put(&between(n), &value(n, 100)).unwrap());
    store.settle().unwrap();
    store.clear().unwrap();
    drop(store);
    let store = Store::open(at(3_000)).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    assert!(contents(&Store::open(at(1_500)).unwrap()).is_empty());
}

/// Keys that are put in their order fall to the last leaf, which a start finds on SSD.
#[test]
fn a_log_of_more_records_than_a_body_can_count_is_replayed_above_one_image() {
    const KEYS: u64 = 2 * 65_536 + 1_000;
    let disk = RecordingDisk::new();
    let mut options = with_ssd(&disk, CodecChoice::None, LIMIT);
    options.durable.as_mut().unwrap().waits = false;
    let store = Store::open(options.clone()).unwrap();
    store.put(&key(0), b"first").unwrap();
    assert_eq!(store.send_to_ssd(|| true).unwrap(), 1);
    store.checkpoint().unwrap();
    (1..KEYS).for_each(|n| store.put(&key(n), b"later").unwrap());
    drop(store);
    let store = Store::open(options).unwrap();
    assert_eq!((store.recovered().unwrap().records, store.len()), (KEYS - 1, KEYS));
    for n in (0..KEYS).step_by(8) {
        let value: &[u8] = if n == 0 { b"first" } else { b"later" };
        assert_eq!(store.get(&key(n)).unwrap().as_deref(), Some(value), "{n}");
    }
}

/// Leaves that were in memory begin on SSD where memory is smaller than it was.
#[test]
fn a_start_keeps_to_the_memory_limit() {
    let disk = RecordingDisk::new();
    let options = with_ssd(&disk, CodecChoice::None, 256 << 20);
    let store = Store::open(options.clone()).unwrap();
    fill(&store, 100_000, 0);
    store.settle().unwrap();
    store.checkpoint().unwrap();
    (0..100_000).step_by(3).for_each(|n| store.put(&key(n), &value(n, 120)).unwrap());
    let held = store.memory().total_bytes();
    drop(store);
    let limit = held / 5;
    let small = Options { memory_limit_bytes: Some(limit), ..options };
    let store = Store::open(small.clone()).unwrap();
    assert!(store.recovered().unwrap().records > 30_000);
    assert!(store.memory().total_bytes() < limit, "{} of {limit}", store.memory().total_bytes());
    let right = |n: u64| if n.is_multiple_of(3) { value(n, 120) } else { value(n, 100) };
    assert!(store.ssd().unwrap().leaves > 10, "{:?}", store.ssd());
    assert_holds(&store, 100_000, right);
    assert_eq!(store.len(), 100_000);
    drop(store);
    checked(&small);
    // And so does a store that grows beyond it, checkpoint after checkpoint.
    let store = Store::open(small.clone()).unwrap();
    for round in 1..3 {
        (0..100_000).for_each(|n| {
            let n = n * 7919 % 100_000;
            store.put(&key(n), &value(n ^ round << 32, 100)).unwrap();
        });
        assert!(store.memory().total_bytes() <= limit);
        store.checkpoint().unwrap();
    }
    drop(store);
    checked(&small);
    let store = Store::open(small).unwrap();
    assert_holds(&store, 100_000, |n| value(n ^ 2 << 32, 100));
}

#[test]
fn an_expiry_in_the_log_changes_a_value_on_ssd() {
    let disk = RecordingDisk::new();
    let clock = Clock::manual(1_000);
    let options = Options { clock: clock.clone(), ..with_ssd(&disk, CodecChoice::None, LIMIT) };
    let store = Store::open(options.clone()).unwrap();
    fill(&store, 3000, 0);
    // These expire while nobody looks, if the log did not say otherwise.
    (0..3000).for_each(|n| assert!(store.set_expiry(&key(n), Some(2_000)).unwrap()));
    store.settle().unwrap();
    store.send_to_ssd(|| true).unwrap();
    store.checkpoint().unwrap();
    let later = |n: u64| if n.is_multiple_of(4) { None } else { Some(1 << 44) };
    (0..3000).step_by(2).for_each(|n| assert!(store.set_expiry(&key(n), later(n)).unwrap()));
    drop(store);
    clock.advance(std::time::Duration::from_secs(2));
    let small = Options { memory_limit_bytes: Some(1 << 20), ..options };
    let store = Store::open(small).unwrap();
    for n in 0..3000 {
        let found = store.meta(&key(n)).unwrap().map(|meta| meta.expires_at_ms);
        assert_eq!(found, n.is_multiple_of(2).then(|| later(n)), "{n}");
    }
}

/// The values are in memory when they get another expiry, so the log has that alone. A start finds them on SSD.
#[test]
fn an_expiry_in_the_log_changes_a_value_that_a_start_finds_on_ssd() {
    let disk = RecordingDisk::new();
    let clock = Clock::manual(1_000);
    let options = Options { clock: clock.clone(), ..with_ssd(&disk, CodecChoice::None, LIMIT) };
    let store = Store::open(options.clone()).unwrap();
    fill(&store, 3000, 0);
    (0..3000).for_each(|n| assert!(store.set_expiry(&key(n), Some(2_000)).unwrap()));
    store.settle().unwrap();
    store.checkpoint().unwrap();
    let later = |n: u64| if n.is_multiple_of(4) { None } else { Some(1 << 44) };
    (0..3000).step_by(2).for_each(|n| assert!(store.set_expiry(&key(n), later(n)).unwrap()));
    let killed = disk.copy();
    clock.advance(std::time::Duration::from_secs(1));
    let options = Options { clock, ..with_ssd(&killed, CodecChoice::None, LIMIT) };
    let store = Store::open(Options { memory_limit_bytes: Some(1 << 20), ..options }).unwrap();
    for n in 0..3000 {
        let found = store.meta(&key(n)).unwrap().map(|meta| meta.expires_at_ms);
        assert_eq!(found, n.is_multiple_of(2).then(|| later(n)), "{n}");
    }
}

#[test]
fn room_comes_back_and_a_full_ssd_is_told() {
    let disk = RecordingDisk::new();
    let limit = 1 << 20;
    let mut options = with_ssd(&disk, CodecChoice::None, 8 << 20);
    options.memory_limit_bytes = Some(limit);
    options.durable.as_mut().unwrap().checkpoint_log_bytes = Some(1 << 20);
    let store = Store::open(options.clone()).unwrap();
    let noise = |n: u64| {
        let mut random = fastrand::Rng::with_seed(n);
        let mut noise = vec![0; 200];
        random.fill(&mut noise);
        noise
    };
    // Three MiB, many times over: what dies must come back.
    for round in 0..9 {
        for n in 0..14_000 {
            let n = n * 7919 % 14_000;
            let outcome = store.put(&key(n), &noise(n ^ round << 32));
            assert_eq!(
                outcome,
                Ok(()),
                "{:?}, {:?}, {:?}",
                store.memory(),
                store.ssd(),
                store.checkpoint_stats()
            );
        }
    }
    let ssd = store.ssd().unwrap();
    assert!(ssd.allocated_bytes <= 8 << 20 && ssd.written_bytes > 20 << 20, "{ssd:?}");
    // More than there is room for.
    let mut written = 14_000;
    let refused = loop {
        match store.put(&key(written), &noise(written)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 60_000, "16 MiB do not fit into 9");
    };
    assert!(matches!(refused, Error::MemoryAndSsdLimit { far_limit_bytes: 0, .. }), "{refused}");
    let right = |n: u64| if n < 14_000 { noise(n ^ 8 << 32) } else { noise(n) };
    assert_holds(&store, written, right);
    drop(store);
    checked(&options);
    let store = Store::open(options.clone()).unwrap();
    assert_holds(&store, written, right);
    // Deletes are taken, however full it is.
    (0..written).filter(|n| n % 5 != 0).for_each(|n| assert!(store.delete(&key(n)).unwrap()));
    assert_eq!(store.len(), written.div_ceil(5));
    drop(store);
    checked(&options);
}

#[test]
fn writers_leaves_and_checkpoints_go_on_at_once() {
    const KEYS: u64 = 4000;
    let disk = RecordingDisk::new();
    let mut options = with_ssd(&disk, CodecChoice::Auto, LIMIT);
    options.background_threads = 1;
    let store = Store::open(options.clone()).unwrap();
    let acknowledged: Vec<AtomicU64> = (0..2 * KEYS).map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let copies = std::thread::scope(|scope| {
        for writer in 0..2 {
            let (store, acknowledged) = (&store, &acknowledged);
            scope.spawn(move || put_versions(store, writer, acknowledged));
        }
        let _ends = SetOnDrop(&is_over);
        let (store, is_over) = (&store, &is_over);
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(9);
            while !is_over.load(Ordering::Relaxed) {
                match random.u8(..4) {
                    0 => drop(store.bring_from_ssd(|| random.bool())),
                    _ => send_what_fits(store, || random.bool()),
                }
            }
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                store.checkpoint().unwrap();
            }
        });
        let copies = (0..10).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(60));
            let versions: Vec<u64> =
                acknowledged.iter().map(|version| version.load(Ordering::SeqCst)).collect();
            (disk.copy(), versions)
        });
        copies.collect::<Vec<_>>()
    });
    for (copy, versions) in copies {
        let copied = Store::open(with_ssd(&copy, CodecChoice::Auto, LIMIT)).unwrap();
        for (n, version) in versions.iter().enumerate() {
            let found = copied.get(&key(n as u64)).unwrap();
            let found = found.map_or(0, |bytes| {
                let version = u64::from_be_bytes(bytes[..8].try_into().unwrap());
                assert!(bytes[8..] == value(n as u64 ^ version << 20, bytes.len() - 8));
                version
            });
            assert!(found >= *version, "key {n}: version {version} was acknowledged, {found} found");
        }
        drop(copied);
        checked(&with_ssd(&copy, CodecChoice::Auto, LIMIT));
    }
    let before = contents(&store);
    assert_eq!(store.len(), before.len() as u64);
    drop(store);
    checked(&options);
    assert!(contents(&Store::open(options).unwrap()) == before);
}

#[test]
fn a_dump_has_what_lies_on_ssd() {
    let disk = RecordingDisk::new();
    let options = with_ssd(&disk, CodecChoice::Auto, LIMIT);
    let store = Store::open(options.clone()).unwrap();
    fill(&store, 30_000, 0);
    store.put(b"large", &value(5, 100_000)).unwrap();
    store.settle().unwrap();
    let mut every_other = false;
    store
        .send_to_ssd(|| {
            every_other = !every_other;
            every_other
        })
        .unwrap();
    (0..30_000).step_by(300).for_each(|n| assert!(store.delete(&key(n)).unwrap()));
    store.checkpoint().unwrap();
    (1..30_000).step_by(3000).for_each(|n| store.put(&key(n), b"in the log").unwrap());
    let before = contents(&store);
    let durable = options.durable.as_ref().unwrap();
    let mut stream = Vec::new();
    // Of a store that is open, which may change it meanwhile.
    let summary = dump(durable, &mut stream).unwrap();
    store.send_to_ssd(|| true).unwrap();
    drop(store);
    for segments_dir in [None, Some(PathBuf::from("/ssd/segments"))] {
        let disk = RecordingDisk::new();
        let mut options = with_ssd(&disk, CodecChoice::Auto, LIMIT);
        options.ssd = None;
        options.durable.as_mut().unwrap().segments_dir = segments_dir.clone();
        let durable = options.durable.as_ref().unwrap();
        assert_eq!(restore(durable, &mut &*stream).unwrap().leaves, summary.leaves);
        checked(&options);
        let store = Store::open(options.clone()).unwrap();
        assert!(contents(&store) == before);
        assert!(store.ssd().unwrap().leaves > 5);
        drop(store);
        let is_elsewhere = disk.paths().iter().any(|path| path.starts_with("/ssd/segments"));
        assert_eq!(is_elsewhere, segments_dir.is_some());
    }
    // Damage of a part is an error, not other contents.
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..40 {
        let mut damaged = stream.clone();
        damaged[random.usize(..stream.len())] ^= 1 << random.u8(..8);
        let disk = RecordingDisk::new();
        let options = with_ssd(&disk, CodecChoice::Auto, LIMIT);
        assert!(restore(options.durable.as_ref().unwrap(), &mut &*damaged).is_err());
    }
}

#[test]
fn only_its_own_segments_serve_a_store() {
    let disk = RecordingDisk::new();
    let at = |disk: &RecordingDisk, dir: &str, path: Option<&str>| {
        let mut options = with_ssd(disk, CodecChoice::None, LIMIT);
        options.durable.as_mut().unwrap().dir = dir.into();
        options.ssd.as_mut().unwrap().path = path.map(PathBuf::from);
        options
    };
    let make = |dir: &str, path: Option<&str>| {
        let store = Store::open(at(&disk, dir, path)).unwrap();
        fill(&store, 3000, 0);
        store.settle().unwrap();
        store.send_to_ssd(|| true).unwrap();
        store.checkpoint().unwrap();
        contents(&store)
    };
    let before = make("/one", Some("/ssd/one"));
    make("/two", Some("/ssd/two"));
    assert!(disk.paths().iter().any(|path| path.starts_with("/ssd/one")));
    assert!(!disk.paths().iter().any(|path| path.starts_with("/one/segments")));
    let refused = |dir: &str, path: Option<&str>, words: &str| {
        let files = |disk: &RecordingDisk| -> Vec<_> {
            disk.paths().into_iter().map(|path| (disk.contents(&path), path)).collect()
        };
        let (copy, was) = (disk.copy(), files(&disk));
        let said = Store::open(at(&copy, dir, path)).err().unwrap().to_string();
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
        let is_lock = |path: &Path| path.ends_with("LOCK");
        let changed = files(&copy).into_iter().filter(|file| !is_lock(&file.1) && !was.contains(file));
        assert_eq!(changed.count(), 0, "{dir} {path:?}");
    };
    refused("/one", Some("/ssd/two"), "those of another store");
    refused(
        "/one",
        Some("/ssd/nowhere"),
        "it holds none of this store; they were in /ssd/one; name that folder, or move all of its files here first",
    );
    refused("/new", Some("/ssd/one"), "those of another store");
    // Where they are is remembered, and a folder that was moved is found under its new name.
    for (options, dir) in
        [(at(&disk, "/one", None), "/ssd/one"), (at(&disk, "/one", Some("/ssd/one")), "/ssd/one")]
    {
        checked(&options);
        let store = Store::open(options).unwrap();
        assert!(contents(&store) == before, "{dir}");
    }
    for path in
        disk.paths().into_iter().filter(|path| path.starts_with("/ssd/one") && !path.ends_with("LOCK"))
    {
        let moved = Path::new("/ssd/moved").join(path.file_name().unwrap());
        disk.put(&moved, disk.contents(&path).unwrap());
        disk.remove(&path).unwrap();
    }
    refused("/one", None, "it holds none of this store; name the folder that they were moved to");
    let moved = at(&disk, "/one", Some("/ssd/moved"));
    let said = check(moved.durable.as_ref().unwrap()).unwrap_err().to_string();
    assert!(said.contains("/ssd/one"), "{said}");
    let store = Store::open(moved.clone()).unwrap();
    assert!(contents(&store) == before);
    store.checkpoint().unwrap();
    drop(store);
    checked(&moved);
    // A store without a folder would empty it.
    let cache = Options { ssd: moved.ssd, durable: None, ..moved };
    let said = Store::open_on(Arc::new(disk.clone()), cache, |_| ()).err().unwrap().to_string();
    assert!(said.contains("/ssd/moved holds the segments of a store"), "{said}");
    assert!(contents(&Store::open(at(&disk, "/one", None)).unwrap()) == before);
    // Segments of nobody.
    disk.put(Path::new("/ssd/old/segment-0000000000000001"), vec![0; 4096]);
    refused("/new", Some("/ssd/old"), "belong to no store");
    let small = SsdOptions { path: None, limit_bytes: 1 << 20 };
    let said =
        Store::open(Options { ssd: Some(small), ..at(&disk, "/new", None) }).err().unwrap().to_string();
    assert!(said.contains("too small"), "{said}");
    assert!(!disk.paths().iter().any(|path| path.starts_with("/new")));
}
