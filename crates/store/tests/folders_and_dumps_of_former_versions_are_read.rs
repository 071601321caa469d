//! A folder or a dump that only the program that wrote it can read is lost with the next upgrade. `fixtures/N` has a folder as a clean
//! stop left it, one as a kill left it, and a dump, all of the formats of set N (`docs/COMPATIBILITY.md`); every set is opened, compared,
//! written to, and opened again.
//!
//! After a format has changed, and before that is merged, this makes the fixtures of the new set:
//! `ZIPTIER_WRITE_FIXTURES=N cargo test -p ziptier-store --test folders_and_dumps_of_former_versions_are_read`.

#![allow(clippy::unwrap_used)]
#![cfg(not(miri))]

mod durable;

use std::fs;
use std::path::{Path, PathBuf};

use durable::{Contents, contents, value};
use ziptier::{Batch, CodecChoice, DurableOptions, Options, Store, check, dump, restore};
use ziptier_media::segments::SegmentOptions;

const KEYS: u64 = 2500;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn durable_options(dir: &Path) -> DurableOptions {
    let mut durable = DurableOptions::new(dir);
    durable.checkpoint_log_bytes = Some(u64::MAX);
    durable.log.segment_bytes = 16 << 10;
    durable.segments =
        SegmentOptions { segment_bytes: 64 << 10, write_bytes: 4096, limit_bytes: u64::MAX, read_threads: 1 };
    durable
}

fn open(dir: &Path) -> Store {
    let durable = Some(durable_options(dir));
    Store::open(Options { codec: CodecChoice::Lz4, background_threads: 0, durable, ..Options::default() })
        .unwrap()
}

/// The same writes in every set: values of all lengths, a large one, flags, expiries, deletes and a batch, before a checkpoint and behind it.
fn fill(store: &Store) {
    let key = |n: u64| format!("key:{n:06}").into_bytes();
    for n in 0..KEYS {
        let bytes = if n == 700 { 70_000 } else { n as usize % 300 };
        store.put(&key(n), &value(n, bytes)).unwrap();
        if n == KEYS - 100 {
            store.set_expiry(&key(11), Some(1 << 44)).unwrap();
            store.settle().unwrap();
            store.checkpoint().unwrap();
        }
    }
    store.write(&Batch::new().put(b"a", b"1").delete(&key(9))).unwrap();
    store.set_expiry(&key(10), Some(1 << 44)).unwrap();
    store.put(&key(12), b"").unwrap();
}

fn expected() -> Contents {
    let store = Store::open(Options { background_threads: 0, ..Options::default() }).unwrap();
    for n in 0..KEYS {
        let bytes = if n == 700 { 70_000 } else { n as usize % 300 };
        store.put(format!("key:{n:06}").as_bytes(), &value(n, bytes)).unwrap();
    }
    store.set_expiry(b"key:000011", Some(1 << 44)).unwrap();
    store.write(&Batch::new().put(b"a", b"1").delete(b"key:000009")).unwrap();
    store.set_expiry(b"key:000010", Some(1 << 44)).unwrap();
    store.put(b"key:000012", b"").unwrap();
    contents(&store)
}

/// Copies a folder but for its locks and spare files, which hold nothing.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(&name));
        } else if name != "LOCK" && !name.starts_with("spare-") {
            fs::copy(entry.path(), to.join(&name)).unwrap();
        }
    }
}

fn write_fixtures(set: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill(&store);
    copy(folder.path(), &set.join("killed"));
    drop(store);
    copy(folder.path(), &set.join("stopped"));
    let mut stream = Vec::new();
    dump(&durable_options(folder.path()), &mut stream).unwrap();
    fs::write(set.join("dump"), stream).unwrap();
}

/// Opens a folder, compares, writes, stops and opens it again.
fn audit(dir: &Path, expected: &Contents) {
    let report = check(&durable_options(dir)).unwrap();
    assert_eq!(report.damages, Vec::new(), "{}", dir.display());
    let store = open(dir);
    assert!(contents(&store) == *expected, "{}", dir.display());
    store.put(b"later", b"written by this version").unwrap();
    store.checkpoint().unwrap();
    store.put(b"latest", b"behind a checkpoint").unwrap();
    drop(store);
    let store = open(dir);
    let mut expected = expected.clone();
    expected.insert(b"later".to_vec(), (b"written by this version".to_vec(), None, 0));
    expected.insert(b"latest".to_vec(), (b"behind a checkpoint".to_vec(), None, 0));
    assert!(contents(&store) == expected, "{}", dir.display());
}

#[test]
fn every_set_of_formats_is_read_and_written_on() {
    if let Ok(set) = std::env::var("ZIPTIER_WRITE_FIXTURES") {
        write_fixtures(&fixtures().join(set));
    }
    let expected = expected();
    let mut sets = 0;
    for set in fs::read_dir(fixtures()).unwrap() {
        let set = set.unwrap().path();
        let work = tempfile::tempdir().unwrap();
        // Set 0 has a dump alone: its folders are refused.
        for name in ["killed", "stopped"].into_iter().filter(|name| set.join(name).exists()) {
            let dir = work.path().join(name);
            copy(&set.join(name), &dir);
            audit(&dir, &expected);
        }
        let dir = work.path().join("restored");
        restore(&durable_options(&dir), &mut fs::File::open(set.join("dump")).unwrap()).unwrap();
        audit(&dir, &expected);
        sets += 1;
        println!("{} is read", set.display());
    }
    assert!(sets >= 3, "{sets} sets of fixtures");
}
