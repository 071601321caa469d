//! A backup that cannot be restored, or that lacks what was acknowledged before it was taken, is found out too late.
//! Here dumps are taken of closed stores and of stores under load, restored, and compared.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ziptier::{Batch, CodecChoice, DurableOptions, Error, Store, check, dump, restore};
use ziptier_media::testing::{FailingDisk, Fault, PausingDisk, RecordingDisk};

use crate::durable::{DIR, SetOnDrop, contents, options, value};

fn durable_options(disk: &RecordingDisk) -> DurableOptions {
    options(Arc::new(disk.clone()), CodecChoice::Auto).durable.unwrap()
}

fn open(disk: &RecordingDisk, codec: CodecChoice) -> Store {
    Store::open(options(Arc::new(disk.clone()), codec)).unwrap()
}

fn fill(store: &Store) {
    for n in 0..6000_u64 {
        let bytes = if n % 100 == 0 { 70_000 } else { n as usize % 300 };
        store.put(format!("key:{n:06}").as_bytes(), &value(n, bytes)).unwrap();
        if n == 5000 {
            store.put(b"huge", &value(1, 2_500_000)).unwrap();
            store.settle().unwrap();
            store.checkpoint().unwrap();
        }
    }
    store.write(&Batch::new().put(b"a", b"1").delete(b"key:000009")).unwrap();
    store.set_expiry(b"key:000010", Some(1 << 44)).unwrap();
}

fn restored(stream: &[u8]) -> RecordingDisk {
    let disk = RecordingDisk::new();
    restore(&durable_options(&disk), &mut &*stream).unwrap();
    disk
}

#[test]
fn a_dump_of_a_closed_store_is_the_same_store() {
    for codec in [CodecChoice::Auto, CodecChoice::Zstd] {
        let disk = RecordingDisk::new();
        let store = open(&disk, codec);
        fill(&store);
        let before = contents(&store);
        drop(store);
        let mut stream = Vec::new();
        let summary = dump(&durable_options(&disk), &mut stream).unwrap();
        assert_eq!(summary.bytes, stream.len() as u64);
        assert!(summary.leaves > 10 && summary.log_records > 900, "{summary:?}");

        let disk = restored(&stream);
        let report = check(&durable_options(&disk)).unwrap();
        assert_eq!((report.damages, report.leaves), (Vec::new(), summary.leaves));
        let store = open(&disk, codec);
        assert_eq!(contents(&store), before);
        store.checkpoint().unwrap();
        drop(store);
        assert_eq!(contents(&open(&disk, codec)), before);
    }
}

/// A stream that starts a store on a folder when its dump has begun.
struct StartsStore<'a> {
    disk: &'a RecordingDisk,
    store: Option<Store>,
    bytes: Vec<u8>,
}

impl Write for StartsStore<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.store.is_none() {
            self.store = Some(open(self.disk, CodecChoice::Auto));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_store_starts_beside_a_dump_of_its_folder() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::Auto);
    fill(&store);
    let before = contents(&store);
    drop(store);
    let mut stream = StartsStore { disk: &disk, store: None, bytes: Vec::new() };
    dump(&durable_options(&disk), &mut stream).unwrap();
    assert_eq!(contents(&stream.store.unwrap()), before);
    assert_eq!(contents(&open(&restored(&stream.bytes), CodecChoice::Auto)), before);
}

/// A folder of another user, say: its store could not lock what the dump makes there.
#[test]
fn a_dump_makes_nothing_in_a_folder_that_it_may_not_lock() {
    let disk = RecordingDisk::new();
    drop(open(&disk, CodecChoice::None));
    for nth in 0..100 {
        let copy = disk.copy();
        let failing = FailingDisk::new(Arc::new(copy.clone()), Fault::Io, nth);
        let durable = options(Arc::new(failing), CodecChoice::None).durable.unwrap();
        if let Err(error) = dump(&durable, &mut Vec::new())
            && error.to_string().contains("cannot lock")
        {
            return assert_eq!(copy.position(), 0, "{error}");
        }
    }
    panic!("a dump locks the folder");
}

#[test]
fn a_dump_under_load_has_what_was_acknowledged_before_it() {
    const KEYS: u64 = 2000;
    let disk = RecordingDisk::new();
    let mut store_options = options(Arc::new(disk.clone()), CodecChoice::Auto);
    store_options.durable.as_mut().unwrap().durability = ziptier::Durability::No;
    store_options.background_threads = 1;
    let store = Store::open(store_options).unwrap();
    let acknowledged: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(3);
            for version in 1_u64.. {
                let n = random.u64(..KEYS);
                let bytes = if n.is_multiple_of(200) { 4000 } else { 20 + n as usize % 200 };
                let text = [&version.to_be_bytes(), &value(version, bytes)[..]].concat();
                store.put(format!("key:{n:08}").as_bytes(), &text).unwrap();
                acknowledged[n as usize].store(version, Ordering::SeqCst);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                store.checkpoint().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let _ends = SetOnDrop(&is_over);
        for _ in 0..8 {
            std::thread::sleep(std::time::Duration::from_millis(40));
            let before: Vec<u64> =
                acknowledged.iter().map(|version| version.load(Ordering::SeqCst)).collect();
            let mut stream = Vec::new();
            let summary = dump(&durable_options(&disk), &mut stream).unwrap();
            let copy = open(&restored(&stream), CodecChoice::Auto);
            let mut newest = 0;
            for (n, version) in before.iter().enumerate() {
                let found = copy.get(format!("key:{n:08}").as_bytes()).unwrap();
                let found = found.map_or(0, |bytes| {
                    let version = u64::from_be_bytes(bytes[..8].try_into().unwrap());
                    assert!(bytes[8..] == value(version, bytes.len() - 8));
                    version
                });
                assert!(found >= *version, "key {n}: version {version} was acknowledged, {found} found");
                newest = newest.max(found);
            }
            // One writer, one record a version: what is there is a prefix.
            assert_eq!(newest, summary.last_lsn);
        }
    });
}

#[test]
fn what_is_no_dump_and_what_is_no_empty_folder_is_refused() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::Auto);
    fill(&store);
    drop(store);
    let mut stream = Vec::new();
    dump(&durable_options(&disk), &mut stream).unwrap();
    let refused = restore(&durable_options(&disk), &mut &*stream).unwrap_err();
    assert!(matches!(refused, Error::NotEmpty { .. }), "{refused}");
    let elsewhere = RecordingDisk::new();
    elsewhere.put(&Path::new(DIR).join("thesis.tex"), b"years of work".to_vec());
    assert!(matches!(restore(&durable_options(&elsewhere), &mut &*stream), Err(Error::NotEmpty { .. })));
    assert!(matches!(dump(&durable_options(&elsewhere), &mut Vec::new()), Err(Error::NoStore { .. })));

    let attempt = |bytes: &[u8]| {
        let disk = RecordingDisk::new();
        let outcome = restore(&durable_options(&disk), &mut &*bytes);
        (outcome, disk)
    };
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..60 {
        let mut damaged = stream.clone();
        let at = random.usize(..damaged.len());
        damaged[at] ^= 1 << random.u8(..8);
        let (outcome, disk) = attempt(&damaged);
        assert!(outcome.is_err(), "byte {at}");
        assert!(check(&durable_options(&disk)).is_err(), "half of a store is none");
        let cut = random.usize(..stream.len());
        assert!(attempt(&stream[..cut]).0.is_err(), "cut at {cut}");
    }
    assert!(attempt(&[&stream[..], &[0]].concat()).0.is_err());
    let mut newer = stream.clone();
    newer[8] = 4;
    let refused = attempt(&newer).0.unwrap_err().to_string();
    assert!(refused.contains("version 4") && refused.contains("versions 1 to 3"), "{refused}");
}

/// A restore that fails leaves a folder in which it can be repeated; one that is killed leaves one that says so, or
/// that is whole.
#[test]
fn a_restore_that_did_not_end_can_be_repeated() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::None);
    for n in 0..300_u64 {
        store.put(format!("key:{n:06}").as_bytes(), &value(n, if n == 77 { 70_000 } else { 100 })).unwrap();
        if n == 200 {
            store.checkpoint().unwrap();
        }
    }
    let before = contents(&store);
    let mut stream = Vec::new();
    dump(&durable_options(&disk), &mut stream).unwrap();

    let disk = RecordingDisk::new();
    for cut in [30, stream.len() / 2, stream.len() - 1] {
        assert!(matches!(restore(&durable_options(&disk), &mut &stream[..cut]), Err(Error::Stream { .. })));
        assert_eq!(disk.paths(), Vec::<std::path::PathBuf>::new(), "cut at {cut}");
    }
    restore(&durable_options(&disk), &mut &*stream).unwrap();
    assert!(matches!(restore(&durable_options(&disk), &mut &*stream), Err(Error::NotEmpty { .. })));
    assert_eq!(contents(&open(&disk.copy(), CodecChoice::None)), before);

    let (mut whole, mut unfinished) = (0, 0);
    let images = disk.images();
    // The manifest comes last.
    let last = disk.position().saturating_sub(6);
    for image in images.sample(1, 60).chain(images.sample_from(last, 2, 30)) {
        let store_options = options(Arc::new(image.disk.clone()), CodecChoice::None);
        match Store::open(store_options.clone()) {
            Ok(store) if store.is_empty() => drop(store),
            Ok(store) => {
                assert_eq!(contents(&store), before, "{}", image.what);
                whole += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::RestoreUnfinished { .. }), "{error}: {}", image.what);
                unfinished += 1;
                restore(&durable_options(&image.disk), &mut &*stream)
                    .unwrap_or_else(|error| panic!("{error}: {}", image.what));
                assert_eq!(contents(&Store::open(store_options).unwrap()), before, "{}", image.what);
            }
        }
    }
    assert!(whole > 0 && unfinished > 0, "{whole} whole, {unfinished} unfinished");
}

/// Its log went before its manifest. A power cut between them left a folder that neither started nor took another
/// restore.
#[test]
fn a_restore_that_fails_at_its_end_leaves_a_whole_store_or_none() {
    /// Positions that a power cut is tried at: more than a clearing has.
    const LAST: usize = 30;
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::None);
    let put = |n: u64| store.put(format!("key:{n:06}").as_bytes(), &value(n, 100)).unwrap();
    (0..25).for_each(put);
    // So the dump has an image, too.
    store.checkpoint().unwrap();
    (25..50).for_each(put);
    let before = contents(&store);
    drop(store);
    let mut stream = Vec::new();
    dump(&durable_options(&disk), &mut stream).unwrap();
    // The last steps store both manifests and remove the mark.
    let mut attempts = VecDeque::new();
    for nth in 0.. {
        let recording = RecordingDisk::new();
        let failing = FailingDisk::new(Arc::new(recording.clone()), Fault::Io, nth);
        let durable = options(Arc::new(failing.clone()), CodecChoice::None).durable.unwrap();
        let outcome = restore(&durable, &mut &*stream);
        if !failing.has_failed() {
            outcome.unwrap();
            break;
        }
        attempts.push_back((recording, outcome.is_ok()));
        if attempts.len() > 8 {
            attempts.pop_front();
        }
    }
    assert!(attempts.back().is_some_and(|(_, is_restored)| *is_restored), "the store was there");
    for (recording, is_restored) in &attempts {
        let images = recording.images();
        // The first image of each position of a clearing has everything, the second one what was synced.
        let count = if *is_restored { 2 * LAST } else { 8 * LAST };
        for image in images.sample_from((recording.position() + 1).saturating_sub(LAST), 3, count) {
            let store_options = options(Arc::new(image.disk.clone()), CodecChoice::None);
            match Store::open(store_options.clone()) {
                Ok(store) if store.is_empty() => drop(store),
                Ok(store) => assert_eq!(contents(&store), before, "{}", image.what),
                Err(error) => {
                    assert!(matches!(error, Error::RestoreUnfinished { .. }), "{error}: {}", image.what);
                    restore(&durable_options(&image.disk), &mut &*stream)
                        .unwrap_or_else(|error| panic!("{error}: {}", image.what));
                    assert_eq!(contents(&Store::open(store_options).unwrap()), before, "{}", image.what);
                }
            }
        }
        if !is_restored {
            restore(&durable_options(recording), &mut &*stream).unwrap();
        }
        assert_eq!(contents(&open(recording, CodecChoice::None)), before);
    }
}

/// Before its first file has its name, too.
#[test]
fn a_restore_that_was_killed_anywhere_can_be_repeated() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::None);
    store.put(b"key", b"value").unwrap();
    let mut stream = Vec::new();
    dump(&durable_options(&disk), &mut stream).unwrap();
    let whole = restored(&stream);
    let manifests = ["MANIFEST", "MANIFEST.copy"].map(|name| Path::new(DIR).join(name));
    let mut unfinished = 0;
    for position in 0..whole.position() {
        let disk = whole.killed_at(position);
        let is_store = manifests.iter().any(|path| disk.contents(path).is_some());
        if !is_store && disk.contents(&Path::new(DIR).join("RESTORING")).is_some() {
            let durable = durable_options(&disk);
            let outcomes = [check(&durable).map(drop), dump(&durable, &mut Vec::new()).map(drop)];
            let is_told =
                |outcome: &Result<(), Error>| matches!(outcome, Err(Error::RestoreUnfinished { .. }));
            assert!(outcomes.iter().all(is_told), "killed at {position}: {outcomes:?}");
            unfinished += 1;
        }
        let repeated = restore(&durable_options(&disk), &mut &*stream);
        assert!(is_store || repeated.is_ok(), "killed at {position}: {repeated:?}");
        assert_eq!(open(&disk, CodecChoice::None).get(b"key").unwrap().unwrap(), b"value");
    }
    assert!(unfinished > 0);
}

/// The folder of segments says whose it is as long as it has one.
#[test]
fn a_restore_that_was_killed_as_it_cleared_its_folder_can_be_repeated() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::None);
    store.put(b"key", b"value").unwrap();
    store.checkpoint().unwrap();
    let mut stream = Vec::new();
    dump(&durable_options(&disk), &mut stream).unwrap();
    let cleared = RecordingDisk::new();
    let cut = stream.len() - 1;
    assert!(matches!(restore(&durable_options(&cleared), &mut &stream[..cut]), Err(Error::Stream { .. })));
    for position in 0..cleared.position() {
        let killed = cleared.killed_at(position);
        restore(&durable_options(&killed), &mut &*stream)
            .unwrap_or_else(|error| panic!("killed at {position}: {error}"));
        assert_eq!(open(&killed, CodecChoice::None).get(b"key").unwrap().unwrap(), b"value");
    }
}

/// The second one looks at a folder that is empty, or in which a restore was killed. It has the folder's lock once the
/// first one has ended.
#[test]
fn a_restore_that_begins_as_another_one_ends_clears_nothing() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::None);
    (0..300_u64).for_each(|n| store.put(format!("key:{n:06}").as_bytes(), &value(n, 100)).unwrap());
    let before = contents(&store);
    drop(store);
    let mut stream = Vec::new();
    dump(&durable_options(&disk), &mut stream).unwrap();
    let mark = Path::new(DIR).join("RESTORING");
    let images = restored(&stream).images();
    let left = images.sample(1, 60).find_map(|image| image.disk.contents(&mark));
    assert!(left.is_some());
    for left in [None, left] {
        let disk = PausingDisk::new();
        left.into_iter().for_each(|bytes| disk.recording().put(&mark, bytes));
        let of_second = options(Arc::new(disk.clone()), CodecChoice::None).durable.unwrap();
        let mut second = None;
        disk.during(
            DIR,
            || second = Some(restore(&of_second, &mut &*stream)),
            || restore(&durable_options(disk.recording()), &mut &*stream).unwrap(),
        );
        assert!(matches!(second, Some(Err(Error::NotEmpty { .. }))), "{second:?}");
        assert_eq!(contents(&open(disk.recording(), CodecChoice::None)), before);
    }
}
