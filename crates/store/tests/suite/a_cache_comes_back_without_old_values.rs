//! A cache that is kept in a folder may lose keys, for it evicts them. What it must not do is bring back a value that
//! was replaced, or a key that was deleted or has expired: all of them may lie in a checkpoint, or earlier in the log,
//! from before the key was evicted.
//!
//! `ZIPTIER_IMAGES=n` recovers so many crash images of each run, `ZIPTIER_SEED=n` makes other runs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ziptier::{
    Batch, CodecChoice, Condition, Error, Options, PutMeta, SsdOptions, Store, Transferred, Update,
};
use ziptier_media::disk::Disk;
use ziptier_media::testing::RecordingDisk;

use crate::durable::{SetOnDrop, from_environment, options};

const LIMIT_BYTES: u64 = 1 << 20;
const KEYS: u64 = 4000;
const ALL: Range<u64> = 0..KEYS;
/// An expiry that nobody sees.
const FAR_OFF_MS: u64 = 1 << 44;

fn cache(disk: &RecordingDisk, codec: CodecChoice, limit_bytes: u64) -> Options {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut options =
        Options { memory_limit_bytes: Some(limit_bytes), eviction: true, ..options(disk, codec) };
    let durable = options.durable.as_mut().unwrap();
    durable.log.segment_bytes = 256 << 10;
    durable.segments.segment_bytes = 256 << 10;
    options
}

fn open(disk: &RecordingDisk, limit_bytes: u64) -> Store {
    Store::open(cache(disk, CodecChoice::None, limit_bytes)).unwrap()
}

fn assert_within(store: &Store, limit_bytes: u64) {
    let held = store.memory().total_bytes();
    assert!(held <= limit_bytes + limit_bytes * 3 / 100, "{held} bytes are held of {limit_bytes}");
}

fn name(n: u64) -> Vec<u8> {
    format!("key:{n:08}").into_bytes()
}

/// A value that no other write has, and that does not compress.
fn value(n: u64, version: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n << 32 | version);
    let len = match random.u8(..60) {
        0 => 30_000,
        1..15 => 3000,
        _ => [100, 300, 500][random.usize(..3)],
    };
    let mut value = format!("{n} in version {version}: ").into_bytes();
    value.extend((0..len).map(|_| random.alphanumeric() as u8));
    value
}

/// Value and expiry.
type Record = (Vec<u8>, Option<u64>);

/// What a store may say of each key, beside that it is not there.
#[derive(Clone)]
struct Allowed {
    keys: Range<u64>,
    records: BTreeMap<u64, Vec<Record>>,
}

impl Allowed {
    fn nothing(keys: Range<u64>) -> Self {
        Self { keys, records: BTreeMap::new() }
    }

    fn of(&self, key: u64) -> &[Record] {
        self.records.get(&key).map_or(&[], Vec::as_slice)
    }

    fn set(&mut self, key: u64, records: Vec<Record>) -> u64 {
        self.records.insert(key, records);
        key
    }

    /// One write, whatever is there of its keys; the keys that it changed.
    fn write(&mut self, step: u64, store: &Store) -> Vec<u64> {
        let mut random = fastrand::Rng::with_seed(step);
        let (a, b) = (random.u64(self.keys.clone()), random.u64(self.keys.clone()));
        let new = value(a, step);
        let fresh = vec![(new.clone(), None)];
        match random.u8(..16) {
            0 | 1 => {
                store.delete(&name(a)).unwrap();
                vec![self.set(a, Vec::new())]
            }
            2 if a != b => {
                assert!(store.write(&Batch::new().put(&name(a), &new).delete(&name(b))).unwrap());
                vec![self.set(a, fresh), self.set(b, Vec::new())]
            }
            3 => {
                let found = store.get(&name(a)).unwrap();
                assert!(found.is_none_or(|found| self.of(a).iter().any(|(value, _)| *value == found)));
                Vec::new()
            }
            4 | 5 if a != b => {
                let stays = step.is_multiple_of(2);
                let moved = match stays {
                    true => store.copy(&name(a), &name(b), true).unwrap(),
                    false => store.rename(&name(a), &name(b), true).unwrap(),
                };
                if moved != Transferred::Done {
                    return Vec::new();
                }
                let records = self.of(a).to_vec();
                let target = self.set(b, records);
                if stays { vec![target] } else { vec![target, self.set(a, Vec::new())] }
            }
            6 => {
                // It has expired then.
                let expires = store.set_expiry(&name(a), Some(1)).unwrap();
                if expires { vec![self.set(a, Vec::new())] } else { Vec::new() }
            }
            7 | 8 => {
                let expires_at_ms = (!step.is_multiple_of(3)).then_some(FAR_OFF_MS + step);
                if !store.set_expiry(&name(a), expires_at_ms).unwrap() {
                    return Vec::new();
                }
                let records = self.of(a).iter().map(|(value, _)| (value.clone(), expires_at_ms)).collect();
                vec![self.set(a, records)]
            }
            9 => {
                let absent = Batch::new().require(&name(a), Condition::Absent).put(&name(a), &new);
                if store.write(&absent).unwrap() { vec![self.set(a, fresh)] } else { Vec::new() }
            }
            10 => {
                let swap = |old: Option<(&[u8], _)>| match old {
                    Some(_) => Update::Delete,
                    None => Update::Put(new.clone(), PutMeta::default()),
                };
                let deleted = store.update(&name(a), swap).unwrap() == Update::Delete;
                vec![self.set(a, if deleted { Vec::new() } else { fresh })]
            }
            11 => {
                // Whether it is there or not.
                store.update(&name(a), |_| Update::Delete).unwrap();
                vec![self.set(a, Vec::new())]
            }
            _ if step % 100_000 == 9000 && self.keys == ALL => {
                store.clear().unwrap();
                self.records.values_mut().for_each(Vec::clear);
                self.records.keys().copied().collect()
            }
            _ => {
                store.put(&name(a), &new).unwrap();
                vec![self.set(a, fresh)]
            }
        }
    }

    /// No key has anything else; how many are there.
    fn check(&self, store: &Store, what: &str) -> usize {
        let mut found = 0;
        for key in self.keys.clone() {
            let Some(value) = store.get(&name(key)).unwrap() else { continue };
            let record = (value, store.meta(&name(key)).unwrap().unwrap().expires_at_ms);
            found += 1;
            let said = String::from_utf8_lossy(&record.0[..record.0.len().min(40)]);
            assert!(self.of(key).contains(&record), "key {key} says {said}, {:?}: {what}", record.1);
        }
        found
    }
}

/// What a recorded run was allowed to say of each key, from which position of the recording on.
struct History {
    now: Allowed,
    changes: BTreeMap<u64, Vec<(usize, Vec<Record>)>>,
}

impl History {
    fn new(keys: Range<u64>) -> Self {
        Self { now: Allowed::nothing(keys), changes: BTreeMap::new() }
    }

    fn write(&mut self, step: u64, store: &Store, disk: &RecordingDisk) {
        for key in self.now.write(step, store) {
            self.changes.entry(key).or_default().push((disk.position(), self.now.of(key).to_vec()));
        }
    }

    /// The same after a power cut at `position`: the newest that was acknowledged, and the write that was under way.
    fn at(&self, position: usize) -> Allowed {
        let allowed = |changes: &Vec<(usize, Vec<Record>)>| {
            let acknowledged = changes.partition_point(|(at, _)| *at <= position);
            let may = &changes[acknowledged.saturating_sub(1)..changes.len().min(acknowledged + 1)];
            may.iter().flat_map(|(_, records)| records.clone()).collect()
        };
        let records = self.changes.iter().map(|(key, changes)| (*key, allowed(changes))).collect();
        Allowed { keys: self.now.keys.clone(), records }
    }
}

#[test]
fn no_old_value_and_no_deleted_key_comes_back_whenever_the_power_goes() {
    let wanted = from_environment("ZIPTIER_IMAGES", 30) as usize;
    let seed = from_environment("ZIPTIER_SEED", 1);
    for (run, codec) in [CodecChoice::None, CodecChoice::Auto].into_iter().enumerate() {
        let disk = RecordingDisk::new();
        let mut history = History::new(ALL);
        let mut step = (2 * seed + run as u64) * 100_000;
        for session in 0..2 {
            let store = Store::open(cache(&disk, codec, LIMIT_BYTES * 3 / 2)).unwrap();
            history.now.check(&store, "a clean stop");
            for _ in 0..5 {
                for _ in 0..1500 {
                    history.write(step, &store, &disk);
                    step += 1;
                }
                // What is evicted now lies in a checkpoint.
                store.checkpoint().unwrap();
            }
            assert!(store.stats().evicted > 100, "session {session}: {:?}", store.stats());
            for _ in 0..700 {
                history.write(step, &store, &disk);
                step += 1;
            }
        }
        let mut evicted = 0;
        for (n, image) in disk.images().sample(seed, wanted / 2).enumerate() {
            let limit_bytes = if n % 3 == 0 { LIMIT_BYTES * 3 / 2 } else { LIMIT_BYTES };
            evicted +=
                goes_on(&image.disk, codec, limit_bytes, history.at(image.position), n as u64, &image.what);
        }
        assert!(evicted > 0, "a recovery has to evict, too");
    }
}

/// Recovers a disk, and again after more writes and after another crash, with memory for everything; how many records
/// the first recovery evicted.
fn goes_on(
    disk: &RecordingDisk,
    codec: CodecChoice,
    limit_bytes: u64,
    mut allowed: Allowed,
    n: u64,
    what: &str,
) -> u64 {
    let store =
        Store::open(cache(disk, codec, limit_bytes)).unwrap_or_else(|error| panic!("{error}: {what}"));
    assert_within(&store, limit_bytes);
    let evicted = store.stats().evicted;
    allowed.check(&store, what);
    // What is missing is deleted for good.
    let gone = (0..KEYS).step_by(3).filter(|key| {
        let existed = store.delete(&name(*key)).unwrap();
        allowed.set(*key, Vec::new());
        !existed
    });
    assert!(gone.count() > 0);
    if n % 4 > 1 {
        store.checkpoint().unwrap();
    }
    (0..200).for_each(|step| drop(allowed.write(1 << 36 | n << 20 | step, &store)));
    let disk = if n.is_multiple_of(2) {
        // Killed.
        disk.copy()
    } else {
        store.close().unwrap();
        disk.clone()
    };
    let again = Store::open(cache(&disk, codec, 16 * LIMIT_BYTES)).unwrap();
    allowed.check(&again, what);
    again.checkpoint().unwrap();
    drop(again);
    allowed.check(&Store::open(cache(&disk, codec, 16 * LIMIT_BYTES)).unwrap(), what);
    evicted
}

/// What was evicted before eviction ended may lie in a checkpoint, and is deleted after it.
#[test]
fn no_old_value_comes_back_where_eviction_begins_and_ends() {
    let images = from_environment("ZIPTIER_IMAGES", 24) as usize;
    let seed = from_environment("ZIPTIER_SEED", 1);
    let (low, high) = (LIMIT_BYTES * 3 / 2, 16 * LIMIT_BYTES);
    let disk = RecordingDisk::new();
    let mut history = History::new(ALL);
    let without = Options { eviction: false, ..cache(&disk, CodecChoice::None, high) };
    let store = Store::open(without).unwrap();
    for round in 0..8 {
        let first = 6 * seed * 100_000 + round * 700;
        // Without eviction there is room for everything, so that no write is refused.
        let evicts = round % 4 > 1;
        store.set_eviction(evicts).unwrap();
        store.set_memory_limit(Some(if evicts { low } else { high }));
        (first..first + 700).for_each(|step| history.write(step, &store, &disk));
        if round % 4 != 3 {
            // What is evicted in the last of the rounds lies in it.
            store.checkpoint().unwrap();
        }
    }
    assert!(store.stats().evicted > 100, "{:?}", store.stats());
    drop(store);
    for (n, image) in disk.images().sample(seed, images).enumerate() {
        let options = cache(&image.disk, CodecChoice::None, high);
        let store = Store::open(Options { eviction: n % 2 == 0, ..options }).unwrap();
        history.at(image.position).check(&store, &image.what);
    }
}

#[test]
fn what_was_evicted_is_deleted_for_good_after_eviction_has_ended() {
    let disk = RecordingDisk::new();
    let store = open(&disk, LIMIT_BYTES);
    store.set_eviction(false).unwrap();
    store.set_memory_limit(Some(16 * LIMIT_BYTES));
    (0..1000).for_each(|n| store.put(&name(n), &value(n, 0)).unwrap());
    store.checkpoint().unwrap();
    store.set_eviction(true).unwrap();
    store.set_memory_limit(Some(LIMIT_BYTES));
    (1000..2000).for_each(|n| store.put(&name(n), &value(n, 0)).unwrap());
    store.set_eviction(false).unwrap();
    store.set_memory_limit(Some(16 * LIMIT_BYTES));
    let evicted = (0..1000).filter(|n| !store.delete(&name(*n)).unwrap()).count();
    assert!(evicted > 100, "{evicted}");
    // Killed: the checkpoint has them all.
    let again = Store::open(cache(&disk.copy(), CodecChoice::None, 16 * LIMIT_BYTES)).unwrap();
    let found: Vec<u64> = (0..1000).filter(|n| again.get(&name(*n)).unwrap().is_some()).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn no_old_value_comes_back_of_threads_that_write_while_checkpoints_are_made() {
    let wanted = from_environment("ZIPTIER_IMAGES", 60) as usize;
    let seed = from_environment("ZIPTIER_SEED", 1);
    let disk = RecordingDisk::new();
    let options = cache(&disk, CodecChoice::Auto, LIMIT_BYTES * 3 / 2);
    let store = Store::open(Options { background_threads: 1, ..options }).unwrap();
    let ended = AtomicBool::new(false);
    let histories: Vec<History> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                store.checkpoint().unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let _ended = SetOnDrop(&ended);
        let write = |thread: u64| {
            let (store, disk) = (&store, &disk);
            scope.spawn(move || {
                let mut history = History::new(thread * KEYS / 3..(thread + 1) * KEYS / 3);
                let first = (4 * seed + thread) * 100_000;
                (first..first + 3000).for_each(|step| history.write(step, store, disk));
                history
            })
        };
        let threads: Vec<_> = (0..3).map(write).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(store.stats().evicted > 100, "{:?}", store.stats());
    drop(store);
    for image in disk.images().sample(seed, wanted / 2) {
        let store = Store::open(cache(&image.disk, CodecChoice::Auto, LIMIT_BYTES)).unwrap();
        for history in &histories {
            history.at(image.position).check(&store, &image.what);
        }
        store.checkpoint().unwrap();
        drop(store);
        let again = Store::open(cache(&image.disk, CodecChoice::Auto, 16 * LIMIT_BYTES)).unwrap();
        for history in &histories {
            history.at(image.position).check(&again, &image.what);
        }
    }
}

#[test]
fn a_cache_is_warm_after_a_clean_stop() {
    for with_checkpoint in [true, false] {
        let disk = RecordingDisk::new();
        let mut allowed = Allowed::nothing(ALL);
        let store = open(&disk, LIMIT_BYTES);
        (0..6000).for_each(|step| drop(allowed.write(step, &store)));
        let before = allowed.check(&store, "before the stop");
        if with_checkpoint {
            store.checkpoint().unwrap();
        }
        store.close().unwrap();
        let again = open(&disk, LIMIT_BYTES);
        assert_within(&again, LIMIT_BYTES);
        let after = allowed.check(&again, "after the stop");
        // A small store holds few records a leaf, which go a handful at a time.
        assert!(after * 4 >= before * 3, "{after} of {before} keys came back");
    }
}

#[test]
fn a_recovery_keeps_a_limit_that_is_smaller_than_what_was_there() {
    let disk = RecordingDisk::new();
    let mut allowed = Allowed::nothing(ALL);
    let store = open(&disk, 8 * LIMIT_BYTES);
    for n in 0..KEYS {
        store.put(&name(n), &value(n, 0)).unwrap();
        allowed.set(n, vec![(value(n, 0), None)]);
    }
    store.checkpoint().unwrap();
    (1..3000).for_each(|step| drop(allowed.write(step, &store)));
    assert!(store.memory().total_bytes() > 2 * LIMIT_BYTES);
    store.close().unwrap();
    let again = open(&disk, LIMIT_BYTES);
    assert_within(&again, LIMIT_BYTES);
    let held = again.memory().total_bytes();
    assert!(held > LIMIT_BYTES / 2, "only {held} bytes are held");
    allowed.check(&again, "the first");
    (6000..7000).for_each(|step| drop(allowed.write(step, &again)));
    allowed.check(&again, "after more writes");
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

#[test]
fn a_value_that_no_longer_fits_takes_what_was_before_it_along() {
    let disk = RecordingDisk::new();
    let store = open(&disk, 8 * LIMIT_BYTES);
    store.put(b"grows", b"before").unwrap();
    store.checkpoint().unwrap();
    store.put(b"grows", &[7; 3 << 20]).unwrap();
    store.put(b"small", b"stays").unwrap();
    store.close().unwrap();
    for limit_bytes in [LIMIT_BYTES, 8 * LIMIT_BYTES] {
        let image = disk.copy();
        let store = open(&image, limit_bytes);
        let fits = limit_bytes > LIMIT_BYTES;
        assert_eq!(store.get(b"grows").unwrap(), fits.then(|| vec![7; 3 << 20]));
        assert_eq!(store.get(b"small").unwrap().as_deref(), Some(&b"stays"[..]));
        store.checkpoint().unwrap();
        store.close().unwrap();
        let found = open(&image, 8 * LIMIT_BYTES).get(b"grows").unwrap();
        assert_eq!(found.is_some(), fits);
    }
}

/// Their segments are named by the image of their leaf alone, and that is in force until the next checkpoint.
#[test]
fn large_values_that_a_start_evicted_stay_where_the_checkpoint_has_them() {
    let disk = RecordingDisk::new();
    let store = open(&disk, 16 * LIMIT_BYTES);
    let keys = 150;
    let value = |n: u64| format!("{n:04}").repeat(15_000).into_bytes();
    for n in 0..2 * keys {
        // A dozen a leaf, so that segments have nothing but pieces of them.
        store.put(&name(10 * n + 1), &[7; 500]).unwrap();
        if n < keys {
            store.put(&name(10 * n), &value(n)).unwrap();
        } else {
            // The same value, in a leaf that is loaded later.
            let shared = store.copy(&name(10 * (n - keys)), &name(10 * n), true).unwrap();
            assert_eq!(shared, Transferred::Done);
        }
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    let is_there = |store: &Store, n: &u64| match store.get(&name(10 * n)).unwrap() {
        Some(found) => {
            assert!(found == value(n % keys));
            true
        }
        None => false,
    };
    for _ in 0..2 {
        let store = open(&disk, 2 * LIMIT_BYTES);
        assert_within(&store, 2 * LIMIT_BYTES);
        let found = (0..2 * keys).filter(|n| is_there(&store, n)).count();
        assert!(store.stats().evicted > 0 && (1..150).contains(&found), "{found}, {:?}", store.stats());
        // Killed before there is another checkpoint.
        let after = open(&disk.copy(), 16 * LIMIT_BYTES);
        assert!((0..2 * keys).all(|n| is_there(&after, &n)));
    }
}

#[test]
fn an_ssd_is_refused_beside_eviction_in_a_folder_that_has_one_too() {
    let disk = RecordingDisk::new();
    let ssd = Some(SsdOptions { path: None, limit_bytes: 64 << 20 });
    let options = cache(&disk, CodecChoice::None, 8 * LIMIT_BYTES);
    let with_ssd = Options { ssd: ssd.clone(), ..options.clone() };
    assert!(matches!(Store::open(with_ssd), Err(Error::Ssd { .. })));
    let store = Store::open(Options { ssd, eviction: false, ..options.clone() }).unwrap();
    (0..1000).for_each(|n| store.put(&name(n), &value(n, 0)).unwrap());
    assert!(store.send_to_ssd(|| true).unwrap() > 0);
    store.checkpoint().unwrap();
    store.close().unwrap();
    let refusal = Store::open(options.clone()).unwrap_err().to_string();
    assert!(refusal.contains("has leaves on SSD") && refusal.contains("without eviction"), "{refusal}");
    let store = Store::open(Options { eviction: false, ..options }).unwrap();
    assert!((0..1000).all(|n| store.get(&name(n)).unwrap() == Some(value(n, 0))));
}
