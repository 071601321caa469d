//! A start mends what is damaged and removes what nothing needs. It may fail or be cut off at any operation, and what
//! it found may not have been durable: the next start must still find everything.

use std::path::PathBuf;
use std::sync::Arc;

use ziptier::{CodecChoice, Options, Store};
use ziptier_media::disk::Disk;
use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};

use crate::durable::{Contents, contents, options, value};

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:08}").into_bytes()
}

fn put(store: &Store, keys: std::ops::Range<u64>) {
    keys.for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
}

fn with_blocks(disk: impl Disk + 'static) -> Options {
    options(Arc::new(disk), CodecChoice::Lz4)
}

fn plain(disk: impl Disk + 'static) -> Options {
    options(Arc::new(disk), CodecChoice::None)
}

/// A closed store with a generation of codings, of whose two files the second is damaged.
fn damaged_generation() -> (RecordingDisk, PathBuf, Contents) {
    let disk = RecordingDisk::new();
    let store = Store::open(with_blocks(disk.clone())).unwrap();
    put(&store, 0..2_000);
    store.settle().unwrap();
    store.checkpoint().unwrap();
    let before = contents(&store);
    drop(store);
    let second = disk
        .paths()
        .into_iter()
        .find(|path| path.starts_with("/data/dictionaries") && path.to_string_lossy().ends_with("-2"));
    let second = second.unwrap();
    let mut bytes = disk.contents(&second).unwrap();
    bytes[20] ^= 1;
    disk.put(&second, bytes);
    (disk, second, before)
}

#[test]
fn the_whole_copy_of_a_generation_outlives_the_mending_of_the_other() {
    let (disk, second, before) = damaged_generation();
    let mut tried = 0;
    for fault in [Fault::Full, Fault::Io] {
        for nth in 0.. {
            let copy = disk.copy();
            let failing = FailingDisk::new(Arc::new(copy.clone()), fault, nth);
            drop(Store::open(with_blocks(failing.clone())));
            if !failing.has_failed() {
                break;
            }
            tried += 1;
            let store = Store::open(with_blocks(copy.clone())).unwrap();
            assert!(contents(&store) == before, "{fault:?} at operation {nth}");
            let left = copy.paths().into_iter().find(|path| path.extension().is_some_and(|end| end == "new"));
            assert_eq!(left, None, "{fault:?} at operation {nth}");
        }
    }
    assert!(tried > 20, "{tried} operations");

    let from = disk.position();
    let store = Store::open(with_blocks(disk.clone())).unwrap();
    let mended = store.recovered().unwrap().skipped.join("\n");
    assert!(mended.contains(&*second.to_string_lossy()), "{mended}");
    for image in disk.images().sample(1, 400).filter(|image| image.position >= from) {
        let store = Store::open(with_blocks(image.disk)).unwrap();
        assert!(contents(&store) == before, "{}", image.what);
    }
}

/// The name of a new manifest may be there and yet not be durable, if the checkpoint that stored it failed at that.
#[test]
fn a_start_removes_nothing_before_its_manifest_is_durable() {
    let mut tried = 0;
    for nth in 0.. {
        let disk = RecordingDisk::new();
        let store = Store::open(plain(disk.clone())).unwrap();
        put(&store, 0..100);
        store.checkpoint().unwrap();
        drop(store);
        let failing = FailingDisk::new(Arc::new(disk.clone()), Fault::Io, nth);
        let Ok(store) = Store::open(plain(failing.clone())) else { continue };
        if (100..130).any(|n| store.put(&key(n), &value(n, 100)).is_err()) || failing.has_failed() {
            continue;
        }
        let before = contents(&store);
        let made = store.checkpoint();
        if !failing.has_failed() {
            break;
        }
        drop(store);
        if made.is_ok() {
            continue;
        }
        tried += 1;
        // The system goes on, another process serves the folder, and then the power fails.
        let from = disk.position();
        let store = Store::open(plain(disk.clone())).unwrap();
        assert!(contents(&store) == before);
        for image in disk.images().sample(nth, 1000).filter(|image| image.position >= from) {
            let store = Store::open(plain(image.disk)).unwrap();
            assert!(contents(&store) == before, "operation {nth}: {}", image.what);
        }
    }
    assert!(tried > 0);
}
