//! A replay that mixes up the order of a key's records, or loses some where one part of the log ends and the next
//! begins, brings back an old value. Here logs of many such parts are replayed by several threads, with all that a
//! record can say.

use std::sync::Arc;

use ziptier::{Batch, CodecChoice, Options, PutMeta, Store};
use ziptier_media::testing::RecordingDisk;

use crate::durable::{contents, options, value};

/// With so small a limit the log is replayed a megabyte at a time.
const LIMITS: [Option<u64>; 2] = [Some(16 << 20), None];

fn open(disk: &RecordingDisk, codec: CodecChoice, memory_limit_bytes: Option<u64>) -> Store {
    let mut options = Options { memory_limit_bytes, ..options(Arc::new(disk.clone()), codec) };
    let durable = options.durable.as_mut().unwrap();
    durable.durability = ziptier::Durability::No;
    durable.log.segment_bytes = 1 << 20;
    Store::open(options).unwrap()
}

/// Write number `n`, of all kinds; keys are few, so that each is written again and again.
fn write(store: &Store, n: u64) {
    let mut random = fastrand::Rng::with_seed(n);
    let mut key = || format!("key:{:06}", random.u64(..5000)).into_bytes();
    let (a, b) = (key(), key());
    match n % 32 {
        0 | 1 => drop(store.delete(&a).unwrap()),
        2 | 3 => drop(store.set_expiry(&a, Some((1 << 44) + n)).unwrap()),
        4 => drop(store.set_expiry(&a, None).unwrap()),
        5 => drop(store.rename(&a, &b, true).unwrap()),
        6 => drop(store.copy(&a, &b, true).unwrap()),
        7 => drop(store.write(&Batch::new().put(&a, b"batched").delete(&b)).unwrap()),
        8 => store.put(&a, &value(n, 3000)).unwrap(),
        9 => store
            .put_with(&a, &value(n, 50), PutMeta { expires_at_ms: Some(1 << 45), flags: n as u32 })
            .unwrap(),
        _ => store.put(&a, &value(n, 20 + (n % 150) as usize)).unwrap(),
    }
}

#[test]
fn every_key_has_its_last_value_again() {
    for codec in [CodecChoice::Auto, CodecChoice::Zstd] {
        let disk = RecordingDisk::new();
        let store = open(&disk, codec, None);
        for n in 0..24_000 {
            write(&store, n);
            match n {
                8_000 => store.checkpoint().unwrap(),
                16_000 => store.clear().unwrap(),
                _ => {}
            }
        }
        let before = contents(&store);
        store.close().unwrap();
        for limit in LIMITS {
            let again = open(&disk.copy(), codec, limit);
            let recovered = again.recovered().unwrap();
            assert!(recovered.records > 10_000 && recovered.log_bytes > 2 << 20, "{recovered:?}");
            assert!(contents(&again) == before, "{codec}, {limit:?}");
            assert_eq!(again.len(), before.len() as u64);
            again.settle().unwrap();
            assert!(contents(&again) == before, "{codec}, {limit:?}, settled");
        }
    }
}

#[test]
fn a_log_of_an_empty_store_is_its_load() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::Auto, None);
    for n in (0..40_000_u64).map(|n| n * 7919 % 40_000) {
        store.put(format!("key:{n:08}").as_bytes(), &value(n, 100)).unwrap();
    }
    let before = contents(&store);
    store.close().unwrap();
    for limit in LIMITS {
        let again = open(&disk.copy(), CodecChoice::Auto, limit);
        assert_eq!(again.len(), 40_000);
        assert!(contents(&again) == before, "{limit:?}");
    }
}
