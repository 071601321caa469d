#![allow(clippy::unwrap_used)]
#![cfg(not(miri))]

mod durable;

use std::path::Path;
use std::sync::Arc;

use durable::{contents, options, value};
use ziptier::{CodecChoice, Options, SsdOptions, Store};
use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:08}").into_bytes()
}

#[test]
fn t1_large_values_that_are_overwritten_are_freed_when_their_leaf_is_recoded() {
    let options = Options { codec: CodecChoice::Token, background_threads: 0, ..Options::default() };
    let store = Store::open(options).unwrap();
    let large = |n: u64| format!("a:{n:04}").into_bytes();
    (0..40).for_each(|n| store.put(&large(n), &value(n, if n % 4 == 0 { 20_000 } else { 50 })).unwrap());
    store.settle().unwrap();
    eprintln!("before the dictionary: {:?} adoptions {}", store.memory().large_bytes, store.stats().adoptions);
    (0..150_000).for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
    eprintln!("adoptions {}", store.stats().adoptions);
    (0..40).step_by(4).for_each(|n| store.put(&large(n), b"small now").unwrap());
    store.settle().unwrap();
    store.settle().unwrap();
    eprintln!("after: {:?} adoptions {}", store.memory().large_bytes, store.stats().adoptions);
    store.clear().unwrap();
    store.settle().unwrap();
    assert_eq!((store.len(), store.memory().large_bytes), (0, 0));
}

fn cold(disk: Arc<dyn ziptier_media::disk::Disk>, codec: CodecChoice) -> Options {
    let ssd = SsdOptions { path: None, limit_bytes: 64 << 20 };
    Options { ssd: Some(ssd), ..options(disk, codec) }
}

fn damage_segments(disk: &RecordingDisk) {
    for path in disk.paths() {
        if path.starts_with("/data/segments") && path.to_string_lossy().contains("segment-") {
            let mut bytes = disk.contents(&path).unwrap();
            (5000..bytes.len()).step_by(3000).for_each(|at| bytes[at] ^= 0x10);
            disk.put(&path, bytes);
        }
    }
}

fn outcome(options: Options) -> Result<u64, String> {
    Store::open(options).map(|store| store.len()).map_err(|error| error.to_string())
}

#[test]
fn t3a_a_flush_is_replayed_over_damaged_images() {
    let disk = RecordingDisk::new();
    let store = Store::open(cold(Arc::new(disk.clone()), CodecChoice::None)).unwrap();
    (0..5_000).for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
    store.settle().unwrap();
    assert!(store.send_to_ssd(|| true).unwrap() > 0);
    store.checkpoint().unwrap();
    let before_flush = disk.copy();
    store.clear().unwrap();
    let after_flush = disk.copy();
    for disk in [&before_flush, &after_flush] {
        damage_segments(disk);
        let mut options = cold(Arc::new(disk.clone()), CodecChoice::None);
        eprintln!("plain: {:?}", outcome(options.clone()));
        options.durable.as_mut().unwrap().salvage = true;
        eprintln!("salvage: {:?}", outcome(options));
    }
    let mut options = cold(Arc::new(after_flush.clone()), CodecChoice::None);
    options.durable.as_mut().unwrap().salvage = true;
    assert_eq!(outcome(options), Ok(0));
}

#[test]
fn t3b_an_expiry_is_replayed_over_a_damaged_image() {
    let disk = RecordingDisk::new();
    let store = Store::open(cold(Arc::new(disk.clone()), CodecChoice::None)).unwrap();
    (0..40_000).for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
    store.settle().unwrap();
    store.checkpoint().unwrap();
    (30_000..40_000).step_by(50).for_each(|n| assert!(store.set_expiry(&key(n), Some(1 << 44)).unwrap()));
    let copy = disk.copy();
    damage_segments(&copy);
    let mut options = cold(Arc::new(copy.clone()), CodecChoice::None);
    options.memory_limit_bytes = Some(2 << 20);
    options.durable.as_mut().unwrap().salvage = true;
    let found = outcome(options);
    eprintln!("{found:?}");
    assert!(found.is_ok(), "{found:?}");
}

#[test]
fn t4_mending_a_generation_never_loses_it() {
    let disk = RecordingDisk::new();
    let store = Store::open(options(Arc::new(disk.clone()), CodecChoice::Lz4)).unwrap();
    (0..2_000).for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
    store.settle().unwrap();
    store.checkpoint().unwrap();
    let before = contents(&store);
    drop(store);
    let generation: Vec<_> =
        disk.paths().into_iter().filter(|path| path.starts_with("/data/dictionaries")).collect();
    eprintln!("{generation:?}");
    let second = generation.iter().find(|path| path.to_string_lossy().ends_with("-2")).unwrap();
    let mut bytes = disk.contents(second).unwrap();
    bytes[20] ^= 1;
    disk.put(second, bytes);
    let mut lost = Vec::new();
    for fault in [Fault::Full, Fault::Io] {
        for nth in 0..400 {
            let copy = disk.copy();
            let failing = FailingDisk::new(Arc::new(copy.clone()), fault, nth);
            let opened = Store::open(options(Arc::new(failing.clone()), CodecChoice::Lz4));
            if !failing.has_failed() {
                break;
            }
            let first = opened.err().map(|error| error.to_string());
            match Store::open(options(Arc::new(copy), CodecChoice::Lz4)) {
                Ok(store) => assert!(contents(&store) == before),
                Err(error) => lost.push((fault, nth, first, error.to_string())),
            }
        }
    }
    lost.iter().for_each(|lost| eprintln!("{lost:?}"));
    assert!(lost.is_empty());
}

#[test]
fn t2_a_start_removes_nothing_that_the_manifest_before_needs_until_the_new_one_is_durable() {
    let plain = |disk: Arc<dyn ziptier_media::disk::Disk>| options(disk, CodecChoice::None);
    let (mut tried, mut failures) = (0, Vec::new());
    for nth in 0..2_000 {
        let disk = RecordingDisk::new();
        let store = Store::open(plain(Arc::new(disk.clone()))).unwrap();
        (0..600).for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
        store.checkpoint().unwrap();
        drop(store);
        let failing = FailingDisk::new(Arc::new(disk.clone()), Fault::Io, nth);
        let Ok(store) = Store::open(plain(Arc::new(failing.clone()))) else { continue };
        if (0..600).any(|n| store.put(&key(n), &value(n + 1000, 100)).is_err()) || failing.has_failed() {
            continue;
        }
        let before = contents(&store);
        let made = store.checkpoint();
        if !failing.has_failed() {
            break;
        }
        let Err(error) = made else { continue };
        if !error.to_string().contains("names") {
            continue;
        }
        eprintln!("{nth}: {error}");
        drop(store);
        tried += 1;
        // The system goes on; another process serves the folder, and then the power fails.
        let from = disk.position();
        let store = Store::open(plain(Arc::new(disk.clone()))).unwrap();
        assert!(contents(&store) == before);
        for image in disk.images().sample(nth, 4000).filter(|image| image.position >= from) {
            let what = image.what.clone();
            match Store::open(plain(Arc::new(image.disk))) {
                Ok(store) if contents(&store) == before => {}
                Ok(_) => failures.push(format!("{nth} at {}: other contents: {what}", image.position)),
                Err(error) => failures.push(format!("{nth} at {}: {error}: {what}", image.position)),
            }
        }
    }
    eprintln!("{tried} tried, {} failures", failures.len());
    failures.iter().take(3).for_each(|failure| eprintln!("{failure}"));
    assert!(tried > 0 && failures.is_empty());
}

#[allow(dead_code)]
fn unused(_: &Path) {}
