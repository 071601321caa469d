//! A start over damaged segments: what was logged since the checkpoint is done again as far as it needs nothing that is
//! damaged, and a salvage leaves out the rest, value by value, and says so.

use std::iter;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ziptier::{CodecChoice, Error, Keys, Options, SsdOptions, Store};
use ziptier_media::testing::RecordingDisk;

use crate::durable::{options, value};

/// One test at a time: stores of a process share an epoch, so that what another one keeps from being freed decides
/// which leaves a start has room for in memory.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:08}").into_bytes()
}

/// Options for a store with an SSD.
fn cold(disk: &RecordingDisk) -> Options {
    let ssd = SsdOptions { path: None, limit_bytes: 64 << 20 };
    Options { ssd: Some(ssd), ..options(Arc::new(disk.clone()), CodecChoice::None) }
}

fn salvaging(mut options: Options) -> Options {
    options.durable.as_mut().unwrap().salvage = true;
    options
}

/// The segments, by name, with what they have.
fn segments(disk: &RecordingDisk) -> impl Iterator<Item = (PathBuf, Vec<u8>)> {
    let paths = disk.paths().into_iter().filter(|path| path.to_string_lossy().contains("segments/segment-"));
    paths.map(move |path| {
        let bytes = disk.contents(&path).unwrap();
        (path, bytes)
    })
}

/// Flips bits of all bodies.
fn damage_everything(disk: &RecordingDisk) {
    for (path, mut bytes) in segments(disk) {
        (5000..bytes.len()).step_by(1000).for_each(|at| bytes[at] ^= 0x10);
        disk.put(&path, bytes);
    }
}

/// Flips a bit of value `n` where it lies in a segment.
fn damage_value(disk: &RecordingDisk, n: u64) {
    assert!(damage_values(disk, iter::once(n)) > 0, "value {n} lies in no segment");
}

/// Flips a bit of each of these values; how many there were. They ascend as they do in a segment.
fn damage_values(disk: &RecordingDisk, numbers: impl Iterator<Item = u64> + Clone) -> usize {
    let mut damaged = 0;
    for (path, mut bytes) in segments(disk) {
        let mut from = 0;
        for n in numbers.clone() {
            let begin = format!("{n}:").into_bytes();
            if let Some(at) = bytes[from..].windows(begin.len()).position(|window| window == begin) {
                (from, damaged) = (from + at, damaged + 1);
                bytes[from + 20] ^= 1;
            }
        }
        disk.put(&path, bytes);
    }
    damaged
}

#[test]
fn what_was_all_deleted_need_not_be_whole() {
    let _alone = alone();
    let disk = RecordingDisk::new();
    let store = Store::open(cold(&disk)).unwrap();
    (0..5_000).for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
    store.settle().unwrap();
    assert!(store.send_to_ssd(|| true).unwrap() > 0);
    store.checkpoint().unwrap();
    store.clear().unwrap();
    store.put(b"since then", b"this").unwrap();
    let disk = disk.copy();
    damage_everything(&disk);
    for options in [cold(&disk.copy()), salvaging(cold(&disk.copy()))] {
        let store = Store::open(options).unwrap();
        assert_eq!(store.recovered().unwrap().skipped, Vec::<String>::new());
        assert_eq!((store.len(), store.get(b"since then").unwrap()), (1, Some(b"this".to_vec())));
        store.settle().unwrap();
        assert_eq!(store.memory().logical_bytes, 14);
    }
}

/// A store that keeps keys below `keys` on SSD in its checkpoint, and has them in memory since.
fn brought_up(disk: &RecordingDisk, keys: u64) -> Store {
    let store = Store::open(cold(disk)).unwrap();
    (0..keys).for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
    store.settle().unwrap();
    assert!(store.send_to_ssd(|| true).unwrap() > 0);
    store.checkpoint().unwrap();
    assert!(store.bring_from_ssd(|| true) > 0);
    store
}

#[test]
fn images_between_the_bounds_of_what_was_deleted_need_not_be_whole() {
    let _alone = alone();
    let disk = RecordingDisk::new();
    let store = brought_up(&disk, 400);
    // The last leaf begins within the first image, and has the keys of all others.
    (11..400).for_each(|n| assert!(store.delete(&key(n)).unwrap()));
    let between = |n: u8| [key(10).as_slice(), &[n]].concat();
    (0..100).for_each(|n| store.put(&between(n), &value(n.into(), 100)).unwrap());
    (0..20).for_each(|_| store.settle().unwrap());
    store.clear().unwrap();
    let disk = disk.copy();
    damage_value(&disk, 200);
    let store = Store::open(cold(&disk)).unwrap();
    assert_eq!(store.recovered().unwrap().skipped, Vec::<String>::new());
    assert!(store.range(..).next().is_none());
}

#[test]
fn a_damaged_image_keeps_no_deleted_key_but_its_own() {
    let _alone = alone();
    let disk = RecordingDisk::new();
    let store = brought_up(&disk, 5_000);
    // Keys between those of the images, so that leaves begin within images when they are emptied.
    let later = |n: u64| [key(n).as_slice(), b"later"].concat();
    (0..5_000).step_by(3).for_each(|n| store.put(&later(n), &value(n, 100)).unwrap());
    store.settle().unwrap();
    store.clear().unwrap();
    let disk = disk.copy();
    assert_eq!(damage_values(&disk, (1_000..5_000).step_by(500)), 8);
    let store = Store::open(salvaging(cold(&disk))).unwrap();
    assert!(!store.recovered().unwrap().skipped.is_empty());
    let mut unread = 0;
    for n in 0..5_000 {
        match store.get(&key(n)) {
            Ok(found) => assert_eq!(found, None, "{n}"),
            Err(_) => unread += 1,
        }
    }
    assert!((1..1_000).contains(&unread), "{unread}");
    (0..5_000).step_by(3).for_each(|n| assert_eq!(store.get(&later(n)), Ok(None), "{n}"));
}

/// Their leaf cannot be promoted, which takes its image. No word of the log needs that image.
#[test]
fn many_keys_above_a_damaged_image_are_replayed_without_it() {
    const KEYS: u64 = 40_000;
    let _alone = alone();
    let disk = RecordingDisk::new();
    let store = Store::open(cold(&disk)).unwrap();
    let below = 500_000;
    store.put(&key(below), &value(below, 100)).unwrap();
    assert_eq!(store.send_to_ssd(|| true).unwrap(), 1);
    store.checkpoint().unwrap();
    (0..KEYS).for_each(|n| store.put(&key(n), b"later").unwrap());
    let disk = disk.copy();
    damage_value(&disk, below);
    for options in [cold(&disk.copy()), salvaging(cold(&disk.copy()))] {
        let store = Store::open(options).unwrap();
        assert_eq!(store.recovered().unwrap().skipped, Vec::<String>::new());
        let all_are_there = (0..KEYS).all(|n| store.get(&key(n)).unwrap().as_deref() == Some(&b"later"[..]));
        assert!(all_are_there && store.get(&key(below)).is_err());
    }
}

#[test]
fn an_expiry_of_a_damaged_value_is_left_out_by_a_salvage_alone() {
    let _alone = alone();
    let disk = RecordingDisk::new();
    let store = Store::open(cold(&disk)).unwrap();
    (0..40_000).for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
    store.settle().unwrap();
    store.checkpoint().unwrap();
    let expiring = || (30_000..40_000).step_by(50);
    expiring().for_each(|n| assert!(store.set_expiry(&key(n), Some(1 << 44)).unwrap()));
    let disk = disk.copy();
    (31_000..40_000).step_by(3_000).for_each(|n| damage_value(&disk, n));
    let options = Options { memory_limit_bytes: Some(2 << 20), ..cold(&disk) };
    let refusal = Store::open(options.clone()).err().unwrap();
    assert!(matches!(refusal, Error::NotRedone { .. }), "{refusal}");
    let text = refusal.to_string();
    assert!(text.contains("segments/") && text.contains("salvage"), "{text}");

    let store = Store::open(salvaging(options)).unwrap();
    let skipped = &store.recovered().unwrap().skipped;
    assert!(skipped.iter().any(|skipped| skipped.contains("what the log says of a value")), "{skipped:?}");
    let (mut whole, mut damaged) = (0, 0);
    for n in expiring() {
        match store.meta(&key(n)) {
            Ok(meta) => {
                let meta = meta.unwrap_or_else(|| panic!("key {n} is not there: {skipped:?}"));
                assert_eq!(meta.expires_at_ms, Some(1 << 44));
                whole += 1;
            }
            Err(_) => damaged += 1,
        }
    }
    assert!(whole > 0 && damaged > 0, "{whole} whole, {damaged} damaged");
}

#[test]
fn a_damaged_piece_of_a_large_value_is_one_lost_value() {
    let _alone = alone();
    for codec in [CodecChoice::None, CodecChoice::Lz4] {
        let disk = RecordingDisk::new();
        let plain = |disk: &RecordingDisk| options(Arc::new(disk.clone()), codec);
        let store = Store::open(plain(&disk)).unwrap();
        let bytes = |n: u64| if n % 10 == 3 { 20_000 } else { 50 };
        (0..100).for_each(|n| store.put(&key(n), &value(n, bytes(n))).unwrap());
        store.settle().unwrap();
        store.checkpoint().unwrap();
        let disk = disk.copy();
        damage_value(&disk, 13);
        assert!(Store::open(plain(&disk)).is_err());
        let store = Store::open(salvaging(plain(&disk))).unwrap();
        let skipped = store.recovered().unwrap().skipped.clone();
        assert!(skipped.len() == 1 && skipped[0].contains("key:00000013"), "{skipped:?}");
        let check = |store: &Store| {
            for n in 0..100 {
                match store.get(&key(n)) {
                    Ok(found) => assert_eq!(found, Some(value(n, bytes(n)))),
                    Err(error) => assert!(n == 13 && error.to_string().contains("write it again"), "{error}"),
                }
            }
            assert!(store.get(&key(13)).is_err());
        };
        check(&store);
        store.settle().unwrap();
        store.checkpoint().unwrap();
        drop(store);
        // What is lost is known from now on, and everything else is whole.
        let store = Store::open(plain(&disk)).unwrap();
        check(&store);
        // The lost value hides neither its key nor others, and can be deleted.
        let keys: Vec<_> = (0..100).map(key).collect();
        assert_eq!(store.keys_from(b"", usize::MAX).unwrap(), Keys { keys, next: None });
        assert!(store.set_expiry(&key(13), Some(1 << 44)).is_err() && store.delete(&key(13)).unwrap());
        assert!(store.get(&key(13)).unwrap().is_none() && !store.delete(&key(13)).unwrap());
        store.put(&key(13), b"written again").unwrap();
        assert_eq!(store.get(&key(13)).unwrap().as_deref(), Some(&b"written again"[..]));
        store.clear().unwrap();
        store.settle().unwrap();
        assert_eq!((store.len(), store.memory().large_bytes), (0, 0));
        assert_eq!(store.memory().logical_bytes, 0);
    }
}

/// A walk does not know the first key of a leaf that cannot be read. The walk must end there with an error. It must not
/// begin anew.
#[test]
fn a_walk_over_keys_ends_at_a_leaf_that_cannot_be_read() {
    let _alone = alone();
    let disk = RecordingDisk::new();
    let store = Store::open(cold(&disk)).unwrap();
    (0..40_000).for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
    store.settle().unwrap();
    store.checkpoint().unwrap();
    let disk = disk.copy();
    // About a third of the images, so that one of them is the first of its leaf.
    assert!(damage_values(&disk, (30_000..40_000).step_by(97)) > 100);
    // The last leaves have no room in memory, and stay on SSD unread.
    let store = Store::open(Options { memory_limit_bytes: Some(2 << 20), ..cold(&disk) }).unwrap();
    let (mut n, mut refusals) = (30_000, 0);
    while n < 40_000 {
        let place = key(n);
        match store.keys_from(&place, 1) {
            Ok(Keys { keys, next }) => {
                assert!(keys.is_empty() || keys == [place.clone()]);
                assert!(next.is_none_or(|next| next > place), "from {n}");
            }
            Err(refusal) => {
                assert!(matches!(refusal, Error::Unread { .. }), "{refusal}");
                refusals += 1;
            }
        }
        n += 1;
    }
    assert!((100..9_000).contains(&refusals), "{refusals} refusals");
}
