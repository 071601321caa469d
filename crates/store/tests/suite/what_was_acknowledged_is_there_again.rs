//! A store that is opened again holds what it held: after a clean stop, and after one that was none.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ziptier::{Batch, Clock, DiskHandle, Durability, DurableOptions, Options, PutMeta, Store, Transferred};
use ziptier_media::disk::Disk;
use ziptier_media::testing::RecordingDisk;

fn options(disk: &RecordingDisk, durability: Durability) -> Options {
    let mut durable = DurableOptions::new("/data");
    durable.durability = durability;
    durable.log.segment_bytes = 64 << 10;
    durable.disk = DiskHandle(Arc::new(disk.clone()) as Arc<dyn Disk>);
    Options { durable: Some(durable), ..Options::default() }
}

type Contents = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>, u32)>;

fn contents(store: &Store) -> Contents {
    let record = |outcome: Result<(Vec<u8>, Vec<u8>), _>| {
        let (key, value) = outcome.unwrap();
        let meta = store.meta(&key).unwrap().unwrap();
        (key, (value, meta.expires_at_ms, meta.flags))
    };
    store.range(..).map(record).collect()
}

fn far_future() -> Option<u64> {
    Some(1 << 45)
}

/// Every kind of write once, with some that replace others.
fn fill(store: &Store) {
    for n in 0..2000u32 {
        store.put(&n.to_be_bytes(), format!("value {n}").repeat(n as usize % 9).as_bytes()).unwrap();
    }
    for n in (0..2000u32).step_by(3) {
        store.delete(&n.to_be_bytes()).unwrap();
    }
    store.put_with(b"flagged", b"f", PutMeta { expires_at_ms: far_future(), flags: 77 }).unwrap();
    store.set_expiry(&1u32.to_be_bytes(), far_future()).unwrap();
    store.set_expiry(b"flagged", None).unwrap();
    store.put(b"large", &[b'l'; 300_000]).unwrap();
    assert_eq!(store.rename(b"large", b"larger", true), Ok(Transferred::Done));
    assert_eq!(store.copy(b"larger", b"large too", true), Ok(Transferred::Done));
    assert_eq!(store.rename(&4u32.to_be_bytes(), b"four", true), Ok(Transferred::Done));
    let batch =
        Batch::new().put(b"one", b"1").delete(&5u32.to_be_bytes()).put(b"large in a batch", &[7; 9000]);
    assert_eq!(store.write(&batch), Ok(true));
    store.put_with(b"gone soon", b"", PutMeta { expires_at_ms: Some(1), flags: 0 }).unwrap();
}

#[test]
fn everything_is_there_after_a_clean_stop_and_after_a_crash() {
    for durability in [Durability::Always, Durability::Everysec, Durability::No] {
        let disk = RecordingDisk::new();
        let store = Store::open(options(&disk, durability)).unwrap();
        assert_eq!(store.recovered().map(|recovered| recovered.records), Some(0));
        fill(&store);
        let before = contents(&store);
        assert!(before.len() > 1300 && !before.contains_key(&b"gone soon"[..]));

        // As the system has it now, with the process gone.
        let killed = Store::open(options(&disk.copy(), durability)).unwrap();
        assert_eq!(contents(&killed), before);
        assert!(!killed.recovered().unwrap().is_sealed);

        store.close().unwrap();
        let again = Store::open(options(&disk, durability)).unwrap();
        assert_eq!(contents(&again), before);
        assert!(again.recovered().unwrap().is_sealed);
        again.clear().unwrap();
        again.put(b"after", b"all").unwrap();
        drop(again);
        let emptied = Store::open(options(&disk, durability)).unwrap();
        assert_eq!(emptied.len(), 1);
        assert_eq!(emptied.get(b"after").unwrap().as_deref(), Some(&b"all"[..]));
    }
}

#[test]
fn a_later_expiry_of_a_record_that_would_have_expired_is_found_again() {
    let disk = RecordingDisk::new();
    let clock = Clock::manual(1_000);
    let options = || Options { clock: clock.clone(), ..options(&disk, Durability::No) };
    let store = Store::open(options()).unwrap();
    let soon = PutMeta { expires_at_ms: Some(2_000), flags: 0 };
    (0..500u32).for_each(|n| store.put_with(&n.to_be_bytes(), &[1; 40], soon).unwrap());
    assert!((0..500u32).all(|n| store.set_expiry(&n.to_be_bytes(), None).unwrap()));
    store.close().unwrap();
    clock.advance(std::time::Duration::from_secs(2));
    let store = Store::open(options()).unwrap();
    // What has expired is counted until its leaf is settled.
    store.settle().unwrap();
    assert_eq!(store.len(), 500);
}

#[test]
fn a_folder_that_is_no_stores_is_refused_and_left_alone() {
    let disk = RecordingDisk::new();
    disk.put(Path::new("/data/thesis.tex"), b"years of work".to_vec());
    let refused = Store::open(options(&disk, Durability::No)).unwrap_err().to_string();
    assert!(refused.contains("/data/thesis.tex is no file of a store"), "{refused}");
    assert_eq!(disk.paths(), [Path::new("/data/thesis.tex")]);

    let disk = RecordingDisk::new();
    let _first = Store::open(options(&disk, Durability::No)).unwrap();
    let files = || disk.paths().into_iter().map(|path| (disk.contents(&path), path)).collect::<Vec<_>>();
    let before = files();
    let refused = Store::open(options(&disk, Durability::No)).unwrap_err().to_string();
    assert!(refused.contains("is open already"), "{refused}");
    assert!(files() == before);
}

#[test]
fn a_store_whose_calls_do_not_wait_waits_when_asked() {
    let disk = RecordingDisk::new();
    let mut options = options(&disk, Durability::Always);
    options.durable.as_mut().unwrap().waits = false;
    let store = Store::open(options).unwrap();
    let before = store.durable_stats().unwrap();
    for n in 0..100u32 {
        store.put(&n.to_be_bytes(), b"value").unwrap();
    }
    let waiting = store.durable_stats().unwrap();
    assert_eq!((waiting.last_lsn, waiting.durable_lsn), (before.last_lsn + 100, before.durable_lsn));
    store.wait().unwrap();
    let after = store.durable_stats().unwrap();
    assert_eq!((after.durable_lsn, after.log_syncs), (after.last_lsn, before.log_syncs + 1));
}
