//! Readers take no lock, so a wrong publication order shows as a value that is torn, stale or gone. Here threads
//! write, delete, and split and merge leaves, while readers compare every byte with what each key may hold.
//!
//! `ZIPTIER_ROUNDS` gives the number of rounds, 5 by default. In each the readers check a thousand values and the
//! writers write as many, and then the store settles beside them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ziptier::{CodecChoice, Options, Store, Update};
use ziptier_testing::{count, until};

use crate::durable::SetOnDrop;

const KEYS: usize = 4_000;
const WRITERS: usize = 2;

/// Versions of a key: what was begun to be written, and what was acknowledged. Odd versions are deletions.
#[derive(Default)]
struct Versions {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

fn key(index: usize) -> Vec<u8> {
    match index % 3 {
        0 => format!("key:{index:012}").into_bytes(),
        1 => format!("user/{}/{index}", index % 17).into_bytes(),
        _ => (index as u32).wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec(),
    }
}

fn value(index: usize, version: u64, out: &mut Vec<u8>) {
    out.clear();
    let len = match (index + version as usize) % 100 {
        0 => 0,
        1 => 5_000,
        rest => 20 + rest * 2,
    };
    let mut state = index as u64 * 1_000_003 + version;
    while out.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = ["session ", "{\"name\":", "the quick ", "000000"][(state >> 60) as usize % 4];
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(format!("{:08}", state >> 40).as_bytes());
    }
    out.truncate(len);
}

fn run(codec: CodecChoice, background_threads: usize) {
    let background_packing = background_threads > 0;
    let options =
        Options { codec, background_threads, background_packing, landing_bytes: 512, ..Options::default() };
    let store = Store::open(options).unwrap();
    let versions: Vec<Versions> = (0..KEYS).map(|_| Versions::default()).collect();
    let stop = AtomicBool::new(false);
    let (checked, written) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, versions, stop, written) = (&store, &versions, &stop, &written);
            scope.spawn(move || {
                let _ends = SetOnDrop(stop);
                let mut random = fastrand::Rng::with_seed(writer as u64);
                let mut bytes = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let index = random.usize(..KEYS / WRITERS) * WRITERS + writer;
                    let delete = random.u8(..5) == 0;
                    let last = versions[index].acknowledged.load(Ordering::Relaxed);
                    let next = last + if delete == (last % 2 == 0) { 1 } else { 2 };
                    versions[index].begun.store(next, Ordering::SeqCst);
                    if delete {
                        assert_eq!(store.delete(&key(index)).unwrap(), last % 2 == 0 && last > 0);
                    } else if random.bool() {
                        value(index, next, &mut bytes);
                        store.put(&key(index), &bytes).unwrap();
                    } else {
                        value(index, next, &mut bytes);
                        let put = Update::Put(bytes.clone(), Default::default());
                        store.update(&key(index), |_| put.clone()).unwrap();
                    }
                    versions[index].acknowledged.store(next, Ordering::SeqCst);
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for reader in 0..2 {
            let (store, versions, stop, checked) = (&store, &versions, &stop, &checked);
            scope.spawn(move || {
                let _ends = SetOnDrop(stop);
                let mut random = fastrand::Rng::with_seed(100 + reader);
                let (mut bytes, mut expected) = (Vec::new(), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let index = random.usize(..KEYS);
                    let oldest = versions[index].acknowledged.load(Ordering::SeqCst);
                    let found = store.get_into(&key(index), &mut bytes).unwrap().is_some();
                    let newest = versions[index].begun.load(Ordering::SeqCst);
                    let mut possible = oldest..=newest;
                    let right = possible.any(|version| match (found, version == 0 || version % 2 == 1) {
                        (false, absent) => absent,
                        (true, true) => false,
                        (true, false) => {
                            value(index, version, &mut expected);
                            bytes == expected
                        }
                    });
                    assert!(right, "key {index}: found {found}, versions {oldest} to {newest}");
                    checked.fetch_add(1, Ordering::Relaxed);
                    if random.u16(..2000) == 0 {
                        // Keys in order, each at most once.
                        let keys: Vec<_> = store.range(..).map(|record| record.unwrap().0).collect();
                        assert!(keys.is_sorted_by(|a, b| a < b));
                        let keys: Vec<_> = store.range(..).rev().map(|record| record.unwrap().0).collect();
                        assert!(keys.is_sorted_by(|a, b| a > b));
                    }
                }
            });
        }
        scope.spawn(|| {
            let _ends = SetOnDrop(&stop);
            let now = || (checked.load(Ordering::Relaxed), written.load(Ordering::Relaxed));
            for _ in 0..count("ZIPTIER_ROUNDS", 5) {
                let (read, put) = now();
                until("a thousand values were read and written", || {
                    now().0 > read + 1_000 && now().1 > put + 1_000 || stop.load(Ordering::Relaxed)
                });
                store.settle().unwrap();
            }
        });
    });
    store.settle().unwrap();
    let (mut bytes, mut expected, mut live) = (Vec::new(), Vec::new(), 0);
    for (index, versions) in versions.iter().enumerate() {
        let version = versions.acknowledged.load(Ordering::Relaxed);
        let found = store.get_into(&key(index), &mut bytes).unwrap().is_some();
        assert_eq!(found, version > 0 && version % 2 == 0);
        if found {
            live += 1;
            value(index, version, &mut expected);
            assert_eq!(bytes, expected);
        }
    }
    assert_eq!(store.len(), live);
    let stats = store.stats();
    assert!(stats.splits > 0, "nothing was split: {stats:?}");
}

#[test]
fn with_tokens_and_a_background_thread() {
    run(CodecChoice::Auto, 1);
}

#[test]
fn with_tokens_and_packing_by_writers() {
    run(CodecChoice::Token, 0);
}

#[test]
fn with_lz4_blocks_and_a_background_thread() {
    run(CodecChoice::Lz4, 1);
}

#[test]
fn with_zstd_blocks_and_packing_by_writers() {
    run(CodecChoice::Zstd, 0);
}

#[test]
fn with_deflate_blocks_and_two_background_threads() {
    run(CodecChoice::Deflate, 2);
}

#[test]
fn without_codec_and_with_two_background_threads() {
    run(CodecChoice::None, 2);
}
