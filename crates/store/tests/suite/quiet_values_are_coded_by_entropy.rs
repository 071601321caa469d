//! A form that only settled stores have is one that seldom runs, so a fault in it is found late. Here a store that is
//! large enough for codes goes through all that a record may meet.

use std::collections::BTreeMap;
use std::sync::Arc;

use ziptier::{CodecChoice, Durability, Options, SsdOptions, Store};
use ziptier_media::testing::RecordingDisk;

use crate::durable::options;

/// A line whose words follow each other by rules.
fn line(random: &mut fastrand::Rng) -> Vec<u8> {
    let method = random.usize(0..4);
    let path =
        ["/index.html", "/login", "/search?query=", "/pictures/large/"][(method + random.usize(0..2)) % 4];
    let status =
        [["200 OK", "304 Not Modified"], ["302 Found", "403 Forbidden"]][method % 2][random.usize(0..2)];
    format!(
        "10.{}.{}.7 {} {path}{} HTTP/1.1 answered {status} in {} ms",
        random.u8(..20),
        random.u8(..),
        ["GET", "POST", "HEAD", "PUT"][method],
        random.u32(..1000),
        random.u32(..5000),
    )
    .into_bytes()
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:09}").into_bytes()
}

/// Enough records for codes.
const RECORDS: u64 = 160_000;

/// A store whose values are settled, and what it holds.
fn settled(options: Options) -> (Store, BTreeMap<Vec<u8>, Vec<u8>>) {
    let store = Store::open(options).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let all: BTreeMap<_, _> = (0..RECORDS).map(|n| (key(n), line(&mut random))).collect();
    all.iter().for_each(|(key, value)| store.put(key, value).unwrap());
    store.settle().unwrap();
    (store, all)
}

fn check(store: &Store, all: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut found = 0;
    for (record, (key, value)) in store.range(..).zip(all) {
        assert!(record.unwrap() == (key.clone(), value.clone()), "{}", key.escape_ascii());
        found += 1;
    }
    assert_eq!(found, all.len());
    for (key, value) in all.iter().step_by(37) {
        assert_eq!(store.get(key).unwrap().as_ref(), Some(value), "{}", key.escape_ascii());
        assert_eq!(store.meta(key).unwrap().map(|meta| meta.len), Some(value.len() as u64));
    }
}

#[test]
fn a_settled_store_answers_and_changes_as_any() {
    let (store, mut all) =
        settled(Options { codec: CodecChoice::Auto, background_threads: 0, ..Options::default() });
    let memory = store.memory();
    let held_per_raw = memory.total_bytes() as f64 / memory.logical_bytes as f64;
    // By numbers alone it would be 0.258.
    assert!(held_per_raw < 0.24, "{held_per_raw}: {memory:?}");
    check(&store, &all);
    // Values come between, are replaced and go, in leaves whose other values stay as they are.
    let mut random = fastrand::Rng::with_seed(2);
    for n in (0..RECORDS).step_by(11) {
        let (key, value) = (key(n), line(&mut random));
        match n % 3 {
            0 => {
                store.delete(&key).unwrap();
                all.remove(&key);
            }
            _ => {
                store.put(&key, &value).unwrap();
                all.insert(key, value);
            }
        }
    }
    check(&store, &all);
    store.settle().unwrap();
    check(&store, &all);
    let logical_bytes: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert_eq!(store.memory().logical_bytes, logical_bytes as u64);
}

/// Leaves lie in a checkpoint and on SSD as they lie in memory, with their codes beside them.
#[test]
fn a_settled_store_is_there_again() {
    let disk = RecordingDisk::new();
    let ssd = Some(SsdOptions { path: None, limit_bytes: 64 << 20 });
    let mut options = Options { ssd, ..options(Arc::new(disk), CodecChoice::Auto) };
    let durable = options.durable.as_mut().unwrap();
    durable.durability = Durability::No;
    durable.log.segment_bytes = 1 << 20;
    let (store, mut all) = settled(options.clone());
    assert!(store.send_to_ssd(|| true).unwrap() > 10);
    check(&store, &all);
    store.put(&key(7), b"another value").unwrap();
    all.insert(key(7), b"another value".to_vec());
    store.checkpoint().unwrap();
    drop(store);
    let durable = options.durable.as_ref().unwrap();
    assert_eq!(ziptier::check(durable).unwrap().damages, []);
    let mut stream = Vec::new();
    ziptier::dump(durable, &mut stream).unwrap();
    let copy = super::durable::options(Arc::new(RecordingDisk::new()), CodecChoice::Auto);
    ziptier::restore(copy.durable.as_ref().unwrap(), &mut &*stream).unwrap();
    check(&Store::open(copy).unwrap(), &all);
    let store = Store::open(options).unwrap();
    check(&store, &all);
    store.settle().unwrap();
    check(&store, &all);
}
