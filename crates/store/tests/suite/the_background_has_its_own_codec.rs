//! Blocks of two formats lie side by side in a body that one codec packs where values are written and another one in
//! the background. A block that is read by the wrong one is lost.

use ziptier::{BlockOptions, CodecChoice, Error, Options, Store};

const KEYS: u32 = 8_000;

fn open(codec: CodecChoice, background_codec: Option<CodecChoice>) -> Store {
    let block = BlockOptions { background_codec, ..BlockOptions::default() };
    Store::open(Options { codec, block, background_threads: 0, ..Options::default() }).unwrap()
}

fn key(number: u32) -> Vec<u8> {
    format!("key:{number:08}").into_bytes()
}

/// Text, or noise that no codec makes smaller.
fn value(number: u32, version: u32) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::from(number) << 32 | u64::from(version));
    if number.is_multiple_of(5) {
        return (0..100).map(|_| random.u8(..)).collect();
    }
    let words = ["alpha ", "beta ", "gamma ", "delta ", "epsilon ", "zeta "];
    (0..20).flat_map(|_| words[random.usize(..words.len())].bytes()).collect()
}

fn check(store: &Store, version: impl Fn(u32) -> u32) {
    for number in 0..KEYS {
        assert_eq!(store.get(&key(number)).unwrap(), Some(value(number, version(number))), "key {number}");
    }
}

/// Bytes of packed bodies once everything is packed in the background.
fn packed_bytes(codec: CodecChoice, background_codec: Option<CodecChoice>) -> u64 {
    let store = open(codec, background_codec);
    (0..KEYS).for_each(|number| store.put(&key(number), &value(number, 0)).unwrap());
    check(&store, |_| 0);
    store.settle().unwrap();
    check(&store, |_| 0);
    let settled_bytes = store.memory().packed_body_bytes;
    let fast = store.stats().blocks_packed_fast;
    assert!(store.stats().blocks_packed_dense > 0);
    // Some blocks are packed where values are written, beside others that the background packed.
    let version = |number: u32| u32::from(number % 40 < 2);
    for number in (0..KEYS).filter(|number| version(*number) == 1) {
        store.put(&key(number), &value(number, 1)).unwrap();
    }
    check(&store, version);
    assert!(store.stats().blocks_packed_fast > fast);
    store.settle().unwrap();
    check(&store, version);
    settled_bytes
}

#[test]
fn what_is_quiet_is_packed_by_it() {
    let alone = packed_bytes(CodecChoice::Lz4, None);
    for background in [CodecChoice::Zstd, CodecChoice::Deflate] {
        let with = packed_bytes(CodecChoice::Lz4, Some(background));
        assert!(with < alone, "{background}: {with}, lz4 alone: {alone}");
        assert_eq!(packed_bytes(background, Some(background)), packed_bytes(background, None));
        packed_bytes(background, Some(CodecChoice::Lz4));
    }
}

#[test]
fn one_without_blocks_is_refused() {
    let block = BlockOptions { background_codec: Some(CodecChoice::Token), ..BlockOptions::default() };
    let error =
        Store::open(Options { codec: CodecChoice::Lz4, block: block.clone(), ..Options::default() }).err();
    assert!(
        matches!(&error, Some(Error::BlockOptions { reason }) if reason.contains("choose lz4")),
        "{error:?}"
    );
    // It does not concern a store without blocks.
    assert!(Options { codec: CodecChoice::Token, block, ..Options::default() }.check().is_ok());
}
