//! A 100 MB value that is written or read must not hold up anybody else. The tests of `crates/tree/src/large/reads.rs`
//! count what reading a part of a value decodes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ziptier::{BlockOptions, CodecChoice, Error, Options, Store, VALUE_BYTES_MAX};
use ziptier_testing::until;

use crate::durable::SetOnDrop;

fn assert_large_bytes_come_back(store: &Store) {
    until("the bytes of large values are back", || {
        store.settle().unwrap();
        store.memory().large_bytes == 0
    });
}

#[test]
fn small_operations_go_on_beside_a_hundred_megabytes() {
    let store = Store::open(Options::default()).unwrap();
    let huge: Vec<u8> = (0..100u32 << 20).map(|n| (n / 7) as u8).collect();
    let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    // Its key lies among theirs, in the same leaf.
    let key = &500u64.to_be_bytes()[..7];
    std::thread::scope(|scope| {
        let _stops = SetOnDrop(&stop);
        scope.spawn(|| {
            let mut value = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let key = (operations.load(Ordering::Relaxed) % 1000).to_be_bytes();
                store.put(&key, b"small").unwrap();
                assert!(store.get_into(&key, &mut value).unwrap().is_some());
                operations.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Where the others waited for the large value it would be one or two. Their thread may have no processor for a
        // while.
        let goes_on_beside = |work: &dyn Fn()| {
            let before = operations.load(Ordering::Relaxed);
            work();
            operations.load(Ordering::Relaxed) > before + 100
        };
        let write = || store.put(key, &huge).unwrap();
        let read = || assert!(store.get(key).unwrap().unwrap() == huge);
        until("small operations go on beside a large write", || goes_on_beside(&write));
        until("small operations go on beside a large read", || goes_on_beside(&read));
        let mut part = Vec::new();
        store.read_at(key, 77_777_777, 1_000, &mut part).unwrap();
        assert_eq!(part, &huge[77_777_777..77_778_777]);
        store.delete(key).unwrap();
    });
    assert_large_bytes_come_back(&store);
}

#[test]
fn large_values_are_packed_in_chunks() {
    let value: Vec<u8> = (0..300_000u32).flat_map(|n| (n / 100).to_le_bytes()).collect();
    for codec in [CodecChoice::Lz4, CodecChoice::Zstd, CodecChoice::Deflate] {
        let store = Store::open(Options { codec, ..Options::default() }).unwrap();
        store.put(b"large", &value).unwrap();
        for _ in 0..2 {
            assert!(store.memory().large_bytes < value.len() as u64 / 4, "{codec}: {:?}", store.memory());
            assert_eq!(store.get(b"large").unwrap().as_deref(), Some(&value[..]));
            let mut part = Vec::new();
            store.read_at(b"large", 700_000, 100, &mut part).unwrap();
            assert_eq!(part, &value[700_000..700_100]);
            store.settle().unwrap();
        }
    }
}

fn with_blocks(block: BlockOptions) -> Options {
    Options { codec: CodecChoice::Lz4, block, ..Options::default() }
}

#[test]
fn what_is_out_of_range_is_refused_in_one_sentence() {
    let store = Store::open(Options::default()).unwrap();
    let cases: [(Error, &str); 3] = [
        (store.put(b"", b"value").unwrap_err(), "the key is empty; a key has 1 to 65536 bytes"),
        (store.put(&[1; 65_537], b"").unwrap_err(), "the key has 65537 bytes; a key has at most 65536"),
        (
            store.put(b"key", &vec![0; VALUE_BYTES_MAX as usize + 1]).unwrap_err(),
            "the value has 536870913 bytes; a value has at most 536870912",
        ),
    ];
    for (error, sentence) in cases {
        assert_eq!(error.to_string(), sentence);
    }
    assert!(store.is_empty());
    store.put(&[1; 65_536], b"the longest key").unwrap();
    assert_eq!(store.get(&[1; 65_536]).unwrap().as_deref(), Some(&b"the longest key"[..]));
    for (options, part) in [
        (Options { memory_limit_bytes: Some(1000), ..Options::default() }, "too small"),
        (Options { landing_bytes: 1, ..Options::default() }, "256 to 65536"),
        (Options { background_threads: 1000, ..Options::default() }, "at most 64"),
        (with_blocks(BlockOptions { bytes: 511, ..BlockOptions::default() }), "512 to 16384"),
        (with_blocks(BlockOptions { level: Some(13), ..BlockOptions::default() }), "has no level 13"),
    ] {
        assert!(Store::open(options).unwrap_err().to_string().contains(part));
    }
    assert_eq!(
        "gzip".parse::<ziptier::CodecChoice>().unwrap_err().to_string(),
        "there is no codec 'gzip'; the codecs are auto, none, token, lz4, zstd and deflate"
    );
}
