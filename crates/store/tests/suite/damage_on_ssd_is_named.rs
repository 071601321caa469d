//! A damaged or failing SSD: the keys of the block that is hit get an error that names file and offset, and everything
//! else goes on.

use std::sync::Arc;

use ziptier::{DurableOptions, Options, SsdOptions, Store};
use ziptier_media::disk::RealDisk;
use ziptier_media::testing::{FailingDisk, Fault};

use crate::durable::{flip_bits, names_file_and_place};

const KEYS: u32 = 4_000;

fn key(n: u32) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

fn value(n: u32) -> Vec<u8> {
    format!("the value of {n}, ").repeat(5).into_bytes()
}

fn options(dir: &tempfile::TempDir) -> Options {
    let ssd = SsdOptions { path: Some(dir.path().join("segments")), limit_bytes: 16 << 20 };
    Options { ssd: Some(ssd), background_threads: 0, ..Options::default() }
}

fn fill(store: &Store) {
    (0..KEYS).for_each(|n| store.put(&key(n), &value(n)).unwrap());
    store.settle().unwrap();
}

#[test]
fn a_flipped_byte_hits_the_keys_of_its_block_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(&dir)).unwrap();
    fill(&store);
    // A full buffer goes to the file.
    while store.send_to_ssd(|| true).unwrap() > 0 && store.ssd().unwrap().written_bytes < 400 << 10 {
        store.bring_from_ssd(|| true);
    }
    let files: Vec<_> = std::fs::read_dir(dir.path().join("segments"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.metadata().unwrap().len() > 100_000)
        .collect();
    for path in &files {
        flip_bits(path, 20_000, 60_000);
    }
    let damaged: Vec<u32> = (0..KEYS)
        .filter(|n| match store.get(&key(*n)) {
            Ok(found) => {
                assert_eq!(found, Some(value(*n)));
                false
            }
            Err(error) => {
                assert!(names_file_and_place(&error), "{error}");
                true
            }
        })
        .collect();
    assert!(!damaged.is_empty() && damaged.len() < KEYS as usize / 2, "{} of {KEYS}", damaged.len());
    // A scan tells of each block once and goes on.
    let errors: Vec<_> = store.range(..).filter_map(Result::err).collect();
    let records = store.range(..).filter(Result::is_ok).count();
    assert!(!errors.is_empty() && errors.len() < 50, "{}", errors.len());
    assert!(errors.iter().all(names_file_and_place), "{errors:?}");
    // A walk over keys ends at the first.
    let mut from = Vec::new();
    let refusal = loop {
        match store.keys_from(&from, 100) {
            Ok(keys) => from = keys.next.expect("there is a damaged block"),
            Err(error) => break error,
        }
    };
    assert!(names_file_and_place(&refusal), "{refusal}");
    assert_eq!(records + damaged.len(), KEYS as usize);
    // What is written over it is there, also after the leaf was merged, and nothing else is lost.
    for n in damaged.iter().step_by(2) {
        store.put(&key(*n), &value(*n)).unwrap();
    }
    store.settle().unwrap();
    store.send_to_ssd(|| true).unwrap();
    assert!(store.bring_from_ssd(|| true) > 0);
    for n in 0..KEYS {
        let lost = damaged.iter().position(|hit| *hit == n).is_some_and(|at| at % 2 == 1);
        assert_eq!(store.get(&key(n)).ok().flatten(), (!lost).then(|| value(n)), "{n}");
    }
}

#[test]
fn a_failed_write_leaves_everything_in_memory() {
    for nth in (0..40).step_by(3) {
        let dir = tempfile::tempdir().unwrap();
        let disk = FailingDisk::new(Arc::new(RealDisk), Fault::Io, nth);
        let Ok(store) = Store::open_on(Arc::new(disk), options(&dir), |_| ()) else { continue };
        fill(&store);
        let mut failed = 0;
        for _ in 0..3 {
            failed += u32::from(store.send_to_ssd(|| true).is_err());
            for n in (0..KEYS).step_by(5) {
                match store.get(&key(n)) {
                    Ok(found) => assert_eq!(found, Some(value(n)), "{n} after {nth} operations"),
                    // The one read that was to fail.
                    Err(error) => assert!(error.to_string().contains("segments/"), "{error}"),
                }
            }
            store.bring_from_ssd(|| true);
        }
        (0..KEYS).for_each(|n| assert_eq!(store.get(&key(n)).unwrap(), Some(value(n)), "{n} after {nth}"));
        store.put(b"more", b"value").unwrap();
        assert!(failed > 0 || nth > 3, "the disk fails at operation {nth}");
    }
}

#[test]
fn a_folder_in_use_or_a_limit_too_small_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(&dir)).unwrap();
    fill(&store);
    store.send_to_ssd(|| true).unwrap();
    let refusal = Store::open(options(&dir)).unwrap_err().to_string();
    assert!(refusal.contains("is open already"), "{refusal}");
    drop(store);
    // Whatever was left is scratch.
    let store = Store::open(options(&dir)).unwrap();
    assert!(store.is_empty() && store.ssd().unwrap().live_bytes == 0);
    let small = SsdOptions { path: Some(dir.path().join("small")), limit_bytes: 1 << 20 };
    let refusal = Store::open(Options { ssd: Some(small), ..Options::default() }).unwrap_err().to_string();
    assert!(refusal.contains("too small"), "{refusal}");
    let nowhere = SsdOptions { path: None, limit_bytes: 8 << 20 };
    let refusal = Store::open(Options { ssd: Some(nowhere), ..Options::default() }).unwrap_err().to_string();
    assert!(refusal.contains("SsdOptions::path"), "{refusal}");
}

#[test]
fn a_file_in_the_place_of_a_folder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"theirs").unwrap();
    for path in [file.clone(), file.join("below")] {
        let durable = Some(DurableOptions::new(&path));
        let ssd = Some(SsdOptions { path: Some(path.clone()), limit_bytes: 8 << 20 });
        for options in [Options { durable, ..Options::default() }, Options { ssd, ..Options::default() }] {
            let refusal = Store::open(options).unwrap_err().to_string();
            assert!(refusal.contains(file.to_str().unwrap()), "{refusal}");
            assert!(refusal.contains("is a file and no folder; name a folder"), "{refusal}");
        }
    }
    // A wrong path is no damage.
    let durable = DurableOptions::new(&file);
    let checked = ziptier::check(&durable).unwrap_err().to_string();
    let dumped = ziptier::dump(&durable, &mut Vec::new()).unwrap_err().to_string();
    for refusal in [checked, dumped] {
        assert!(refusal.ends_with("is a file and no folder; name a folder"), "{refusal}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"theirs");
}
