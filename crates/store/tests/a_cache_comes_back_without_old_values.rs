//! A cache that is kept in a folder may lose keys, for it evicts them. What it must not do is bring back a value that was replaced, or a
//! key that was deleted: both may lie in a checkpoint from before the key was evicted.

#![allow(clippy::unwrap_used)]
#![cfg(not(miri))]

mod durable;

use std::collections::BTreeMap;
use std::sync::Arc;

use durable::options;
use ziptier::{Batch, CodecChoice, Condition, Options, PutMeta, Store, Transferred, Update};
use ziptier_media::disk::Disk;
use ziptier_media::testing::RecordingDisk;

const LIMIT_BYTES: u64 = 1 << 20;
const KEYS: u64 = 4000;

fn cache(disk: Arc<dyn Disk>, limit_bytes: u64) -> Options {
    let mut options =
        Options { memory_limit_bytes: Some(limit_bytes), eviction: true, ..options(disk, CodecChoice::None) };
    let durable = options.durable.as_mut().unwrap();
    durable.log.segment_bytes = 256 << 10;
    durable.segments.segment_bytes = 256 << 10;
    options
}

fn open(disk: &RecordingDisk, limit_bytes: u64) -> Store {
    Store::open(cache(Arc::new(disk.clone()), limit_bytes)).unwrap()
}

fn name(n: u64) -> Vec<u8> {
    format!("key:{n:08}").into_bytes()
}

/// A value that no other write has, and that does not compress.
fn value(n: u64, version: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n << 32 | version as u64);
    let len = [100, 300, 500, 3000][random.usize(..4)];
    let mut value = format!("{n} in version {version}: ").into_bytes();
    value.extend((0..len).map(|_| random.alphanumeric() as u8));
    value
}

/// What a key was given, each with where the recording stood when that was acknowledged.
type Versions = Vec<(usize, Option<Vec<u8>>)>;

#[derive(Default)]
struct History(BTreeMap<u64, Versions>);

impl History {
    fn note(&mut self, position: usize, key: u64, value: Option<Vec<u8>>) {
        self.0.entry(key).or_default().push((position, value));
    }

    fn newest(&self, key: u64) -> Option<Vec<u8>> {
        self.0.get(&key)?.last()?.1.clone()
    }

    /// A write, whatever is there of its keys.
    fn write(&mut self, step: usize, store: &Store, disk: &RecordingDisk) {
        let mut random = fastrand::Rng::with_seed(step as u64);
        let (a, b) = (random.u64(..KEYS), random.u64(..KEYS));
        let new = value(a, step);
        match random.u8(..12) {
            0 | 1 => {
                store.delete(&name(a)).unwrap();
                self.note(disk.position(), a, None);
            }
            2 if a != b => {
                assert!(store.write(&Batch::new().put(&name(a), &new).delete(&name(b))).unwrap());
                self.note(disk.position(), a, Some(new));
                self.note(disk.position(), b, None);
            }
            3 => drop(store.get(&name(a)).unwrap()),
            4 if a != b => {
                if store.rename(&name(a), &name(b), true).unwrap() == Transferred::Done {
                    self.note(disk.position(), b, self.newest(a));
                    self.note(disk.position(), a, None);
                }
            }
            5 => {
                // It has expired then.
                if store.set_expiry(&name(a), Some(1)).unwrap() {
                    self.note(disk.position(), a, None);
                }
            }
            6 => {
                let absent = Batch::new().require(&name(a), Condition::Absent).put(&name(a), &new);
                if store.write(&absent).unwrap() {
                    self.note(disk.position(), a, Some(new));
                }
            }
            7 => {
                let swap = |old: Option<(&[u8], _)>| match old {
                    Some(_) => Update::Delete,
                    None => Update::Put(new.clone(), PutMeta::default()),
                };
                let value = (store.update(&name(a), swap).unwrap() != Update::Delete).then(|| new.clone());
                self.note(disk.position(), a, value);
            }
            _ => {
                store.put(&name(a), &new).unwrap();
                self.note(disk.position(), a, Some(new));
            }
        }
    }

    /// Every key has its newest value, that of the write that was under way, or none.
    fn check(&self, store: &Store, position: usize, what: &str) -> usize {
        let mut found = 0;
        for (key, versions) in &self.0 {
            let Some(value) = store.get(&name(*key)).unwrap() else { continue };
            found += 1;
            let acknowledged = versions.partition_point(|(at, _)| *at <= position);
            let allowed = &versions[acknowledged.saturating_sub(1)..versions.len().min(acknowledged + 1)];
            let is_right = allowed.iter().any(|(_, version)| version.as_ref() == Some(&value));
            assert!(is_right, "key {key} has an old value at {position}: {what}");
        }
        found
    }
}

#[test]
fn no_old_value_and_no_deleted_key_comes_back_whenever_the_power_goes() {
    let wanted: usize = std::env::var("ZIPTIER_IMAGES").map_or(60, |images| images.parse().unwrap());
    let disk = RecordingDisk::new();
    let mut history = History::default();
    let mut step = 0;
    for session in 0..2 {
        let store = open(&disk, LIMIT_BYTES);
        history.check(&store, disk.position(), "the last session");
        for _ in 0..5 {
            for _ in 0..1500 {
                history.write(step, &store, &disk);
                step += 1;
            }
            // What is evicted now lies in a checkpoint.
            store.checkpoint().unwrap();
        }
        assert!(store.stats().evicted > 500, "session {session}: {:?}", store.stats().evicted);
        if session == 0 {
            store.clear().unwrap();
            history.0.values_mut().for_each(|versions| versions.push((disk.position(), None)));
        }
        (0..700).for_each(|n| history.write(step + n, &store, &disk));
        step += 700;
    }
    let mut evicted = 0;
    for (n, image) in disk.images().sample(1, wanted).enumerate() {
        let limit_bytes = if n % 3 == 0 { LIMIT_BYTES * 3 / 2 } else { LIMIT_BYTES };
        let store = open(&image.disk, limit_bytes);
        history.check(&store, image.position, &image.what);
        evicted += store.stats().evicted;
        // It goes on from there: what is missing is deleted for good.
        let gone: Vec<u64> = (0..KEYS).step_by(3).filter(|n| !store.delete(&name(*n)).unwrap()).collect();
        assert!(!gone.is_empty());
        store.checkpoint().unwrap();
        drop(store);
        let again = open(&image.disk, 8 * LIMIT_BYTES);
        history.check(&again, image.position, &image.what);
        assert!((0..KEYS).step_by(3).all(|n| again.get(&name(n)).unwrap().is_none()), "{}", image.what);
    }
    assert!(evicted > 0, "a recovery has to evict, too");
}

#[test]
fn a_cache_is_warm_after_a_clean_stop() {
    let disk = RecordingDisk::new();
    let mut history = History::default();
    let store = open(&disk, LIMIT_BYTES);
    (0..6000).for_each(|step| history.write(step, &store, &disk));
    let before = history.check(&store, disk.position(), "before the stop");
    store.checkpoint().unwrap();
    store.close().unwrap();
    let again = open(&disk, LIMIT_BYTES);
    let after = history.check(&again, disk.position(), "after the stop");
    // A small store holds few records a leaf, which go a handful at a time.
    assert!(after * 4 >= before * 3, "{after} of {before} keys came back");
}

#[test]
fn a_recovery_keeps_a_limit_that_is_smaller_than_what_was_there() {
    let disk = RecordingDisk::new();
    let mut history = History::default();
    let store = open(&disk, 8 * LIMIT_BYTES);
    for n in 0..KEYS {
        store.put(&name(n), &value(n, 0)).unwrap();
        history.note(disk.position(), n, Some(value(n, 0)));
    }
    store.checkpoint().unwrap();
    (1..3000).for_each(|step| history.write(step, &store, &disk));
    assert!(store.memory().total_bytes() > 2 * LIMIT_BYTES);
    store.close().unwrap();
    let again = open(&disk, LIMIT_BYTES);
    let held = again.memory().total_bytes();
    assert!(held <= LIMIT_BYTES + LIMIT_BYTES * 3 / 100, "{held} bytes are held");
    assert!(held > LIMIT_BYTES / 2, "only {held} bytes are held");
    history.check(&again, disk.position(), "the first");
    (6000..7000).for_each(|step| history.write(step, &again, &disk));
    history.check(&again, disk.position(), "after more writes");
}

#[test]
fn a_flush_in_the_log_counts_for_what_a_recovery_evicts() {
    let disk = RecordingDisk::new();
    let store = open(&disk, 8 * LIMIT_BYTES);
    (0..3000).for_each(|n| store.put(&name(n), &value(n, 0)).unwrap());
    store.checkpoint().unwrap();
    store.clear().unwrap();
    // Killed: no checkpoint has that.
    let image = disk.copy();
    let store = open(&image, LIMIT_BYTES);
    assert!(store.stats().evicted > 0 && store.is_empty());
    store.checkpoint().unwrap();
    drop(store);
    assert!(open(&image, 8 * LIMIT_BYTES).is_empty());
}
