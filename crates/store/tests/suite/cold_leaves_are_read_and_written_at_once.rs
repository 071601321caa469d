//! Leaves go to SSD and come back while they are read, written, scanned and cleaned. No version may be lost, torn or
//! come back from the dead, no segment may be missed while its images are live, and memory stays within its limit.
//!
//! `ZIPTIER_WRITES` says how often each writer writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ziptier::{
    Batch, CodecChoice, Condition, Durability, Options, PutMeta, SsdOptions, Store, Update, Values,
};
use ziptier_media::testing::RecordingDisk;
use ziptier_testing::{count, not_enough};

use crate::durable::{SetOnDrop, send_what_fits};

fn options(dir: &tempfile::TempDir, limit_bytes: u64) -> Options {
    let path = dir.path().join("segments");
    Options { ssd: Some(SsdOptions { path: Some(path), limit_bytes }), ..Options::default() }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

/// A value that tells its version, and is as long as the version says.
fn value(version: u64) -> Vec<u8> {
    let text = format!("{version}:version of a value;");
    text.bytes().cycle().take(20 + (version as usize * 7) % 200).collect()
}

fn version_of(bytes: &[u8]) -> u64 {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let version = std::str::from_utf8(&bytes[..digits]).unwrap().parse().unwrap();
    assert_eq!(bytes, value(version));
    version
}

const KEYS: u64 = 3_000;
/// Of each writer: a dozen versions of every key, and more until leaves have moved and were merged meanwhile.
const WRITES: u64 = 20_000;

/// Every key has one writer, which raises its version; readers see versions that never fall.
#[test]
fn no_version_is_lost_while_leaves_move() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(&dir, 8 << 20)).unwrap();
    (0..KEYS).for_each(|n| store.put(&key(n), &value(0)).unwrap());
    store.settle().unwrap();
    let writes = count("ZIPTIER_WRITES", WRITES);
    let written: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let is_enough = || {
        let stats = store.stats();
        stats.sent_to_ssd > 100 && stats.raised_from_ssd > 10 && stats.merged_on_ssd > 10
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                scope.spawn({
                    let (store, written, is_enough) = (&store, &written, &is_enough);
                    move || {
                        let mut random = fastrand::Rng::with_seed(writer);
                        // The thread that moves leaves may have no processor while the writers have one.
                        let mut goes_on = not_enough(is_enough);
                        for round in (0_u64..).take_while(|&round| round < writes || goes_on()) {
                            let n = random.u64(..KEYS / 2) * 2 + writer;
                            let version = written[n as usize].load(Ordering::Relaxed) + 1;
                            match round % 4 {
                                0 => store.put(&key(n), &value(version)).unwrap(),
                                1 => {
                                    let seen = store.update(&key(n), |old| {
                                        assert_eq!(version_of(old.unwrap().0) + 1, version);
                                        Update::Put(value(version), PutMeta::default())
                                    });
                                    assert!(matches!(seen.unwrap(), Update::Put(..)));
                                }
                                2 => {
                                    let before = Condition::ValueIs(value(version - 1));
                                    let batch =
                                        Batch::new().require(&key(n), before).put(&key(n), &value(version));
                                    assert!(store.write(&batch).unwrap());
                                }
                                _ => {
                                    assert!(store.set_expiry(&key(n), Some(4_000_000_000_000)).unwrap());
                                    store.put(&key(n), &value(version)).unwrap();
                                }
                            }
                            written[n as usize].store(version, Ordering::Release);
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(9);
            while !done.load(Ordering::Relaxed) {
                // A replaced image stays on SSD while a thread that may be reading it stands still.
                send_what_fits(&store, || random.u32(..3) == 0);
                store.bring_from_ssd(|| random.u32(..6) == 0);
            }
        });
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(10);
            let mut values = Values::default();
            while !done.load(Ordering::Relaxed) {
                let numbers: Vec<u64> = (0..20).map(|_| random.u64(..KEYS)).collect();
                let before: Vec<u64> =
                    numbers.iter().map(|n| written[*n as usize].load(Ordering::Acquire)).collect();
                let keys: Vec<_> = numbers.iter().map(|n| key(*n)).collect();
                store.multi_get(&keys, &mut values).unwrap();
                for (index, before) in before.into_iter().enumerate() {
                    assert!(version_of(values.get(index).unwrap()) >= before);
                }
                let one = store.get(&keys[0]).unwrap().unwrap();
                assert!(version_of(&one) >= version_of(values.get(0).unwrap()));
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let keys: Vec<_> = store.range(..).map(|record| record.unwrap().0).collect();
                assert!(keys == (0..KEYS).map(key).collect::<Vec<_>>(), "{} keys", keys.len());
                let keys: Vec<_> = store.range(..).rev().map(|record| record.unwrap().0).collect();
                assert!(keys == (0..KEYS).rev().map(key).collect::<Vec<_>>(), "{} keys", keys.len());
            }
        });
        let _ends = SetOnDrop(&done);
        for writer in writers {
            writer.join().unwrap();
        }
    });
    for n in 0..KEYS {
        assert_eq!(
            version_of(&store.get(&key(n)).unwrap().unwrap()),
            written[n as usize].load(Ordering::Relaxed)
        );
    }
    assert_eq!(store.len(), KEYS);
    let (stats, ssd) = (store.stats(), store.ssd().unwrap());
    assert!(is_enough(), "{stats:?}");
    assert!(ssd.allocated_bytes <= ssd.limit_bytes, "{ssd:?}");
    assert_eq!(stats.damaged, 0);
}

/// Data many times the limit: nothing is refused, nothing lost, a get costs one read at most.
#[test]
fn data_beyond_memory_goes_to_ssd() {
    const LIMIT_BYTES: u64 = 2 << 20;
    let dir = tempfile::tempdir().unwrap();
    let base = options(&dir, 64 << 20);
    for background_threads in [0, 1] {
        let options = Options { memory_limit_bytes: Some(LIMIT_BYTES), background_threads, ..base.clone() };
        let store = Store::open(options).unwrap();
        let keys = 40_000;
        let mut random = fastrand::Rng::with_seed(3);
        let noise: Vec<u8> = (0..1 << 20).map(|_| random.u8(..)).collect();
        let value = |n: usize, version: usize| &noise[(n * 7919 + version * 104_729) % (1 << 19)..][..200];
        for n in 0..keys {
            store.put(&key(n as u64), value(n, 0)).unwrap();
            assert!(n % 100 > 0 || store.memory().total_bytes() <= LIMIT_BYTES * 103 / 100);
        }
        let mut versions = vec![0; keys];
        for _ in 0..20_000 {
            let n = random.usize(..keys);
            versions[n] += 1;
            store.put(&key(n as u64), value(n, versions[n])).unwrap();
        }
        let before = store.stats();
        for _ in 0..5_000 {
            let n = random.usize(..keys);
            assert_eq!(store.get(&key(n as u64)).unwrap().as_deref(), Some(value(n, versions[n])), "{n}");
        }
        let after = store.stats();
        let missed = after.reads_below - before.reads_below;
        assert!(missed > 2_500, "{missed} reads missed memory");
        assert!(store.memory().total_bytes() <= LIMIT_BYTES * 103 / 100);
        // A look-up reads the image of a whole leaf, and a scan reads each image once.
        let records = store.range(..).map(|record| record.unwrap());
        let expected = versions.iter().enumerate();
        let mut expected = expected.map(|(n, version)| (key(n as u64), value(n, *version).to_vec()));
        records.for_each(|record| assert_eq!(Some(record), expected.next()));
        assert_eq!((expected.next(), store.len()), (None, keys as u64));
    }
}

/// A full SSD refuses writes as a full memory does, and takes them again when keys are deleted.
#[test]
fn a_full_ssd_is_a_clear_state() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        Options { memory_limit_bytes: Some(1 << 20), background_threads: 0, ..options(&dir, 4 << 20) };
    let store = Store::open(options).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let mut noise = || (0..1000).map(|_| random.u8(..)).collect::<Vec<u8>>();
    let mut taken = Vec::new();
    let refusal = loop {
        let value = noise();
        match store.put(&key(taken.len() as u64), &value) {
            Ok(()) => taken.push(value),
            Err(refusal) => break refusal,
        }
    };
    assert!(refusal.to_string().contains("memory limit"), "{refusal}");
    assert!(taken.len() > 2_500, "{} records were taken", taken.len());
    assert!(store.ssd().unwrap().is_refused);
    for (n, value) in taken.iter().enumerate() {
        assert_eq!(store.get(&key(n as u64)).unwrap().as_ref(), Some(value));
    }
    for n in 0..taken.len() * 3 / 4 {
        assert!(store.delete(&key(n as u64)).unwrap());
    }
    for (n, value) in taken.iter().enumerate().take(taken.len() / 4) {
        store.put(&key(n as u64), value).unwrap();
    }
    assert_eq!(store.len() as usize, taken.len() / 4 + taken.len() - taken.len() * 3 / 4);
}

/// The disk of the log may be slow or full, and a read need not wait for it.
#[test]
fn a_record_that_is_read_twice_comes_up_without_a_write_to_the_log() {
    let mut options = crate::durable::options(Arc::new(RecordingDisk::new()), CodecChoice::None);
    let durable = options.durable.as_mut().unwrap();
    durable.durability = Durability::No;
    durable.waits = false;
    // One record is more than may wait to be written.
    durable.log.buffer_bytes = 1;
    let ssd = Some(SsdOptions { path: None, limit_bytes: 16 << 20 });
    let store = Store::open(Options { ssd, ..options }).unwrap();
    store.put(b"key", b"value").unwrap();
    assert_eq!(store.send_to_ssd(|| true).unwrap(), 1);
    let written_bytes = || store.durable_stats().unwrap().log_written_bytes;
    let before = written_bytes();
    (0..2).for_each(|_| assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..])));
    assert_eq!((store.stats().copied_up, written_bytes()), (1, before));
}
