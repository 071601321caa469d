//! A batch gives its leaf a landing as large as itself. Packing thousands of records at once, none of which shrinks,
//! into blocks and bodies whose counts and ends are small integers must cut them in time.

use ziptier::{Batch, BlockOptions, CodecChoice, Options, Store};

const KEYS: u32 = 4_000;

fn value(random: &mut fastrand::Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| random.u8(..)).collect()
}

/// Writes batches of incompressible values over one another, and reads every key before and after it is settled.
fn run(codec: CodecChoice, block_bytes: usize, landing_bytes: usize) {
    let options = Options {
        codec,
        block: BlockOptions { bytes: block_bytes, ..BlockOptions::default() },
        landing_bytes,
        background_threads: 0,
        ..Options::default()
    };
    let store = Store::open(options).unwrap();
    let mut random = fastrand::Rng::with_seed(block_bytes as u64);
    let mut model = std::collections::BTreeMap::new();
    for (round, longest) in [600, 40, 9_000].into_iter().enumerate() {
        let mut batch = Batch::new();
        // The third batch is of some keys only, so that most blocks have one change.
        for key in (0..KEYS).step_by(1 + 10 * (round / 2)) {
            let bytes = random.usize(..longest);
            let value = value(&mut random, bytes);
            batch = batch.put(&key.to_be_bytes(), &value);
            model.insert(key, value);
        }
        assert!(store.write(&batch).unwrap());
        for _ in 0..2 {
            for (key, value) in &model {
                assert_eq!(
                    store.get(&key.to_be_bytes()).unwrap().as_ref(),
                    Some(value),
                    "{codec}, key {key}"
                );
            }
            store.settle().unwrap();
        }
    }
    let mut batch = Batch::new();
    for key in 0..KEYS {
        batch = batch.delete(&key.to_be_bytes());
    }
    assert!(store.write(&batch).unwrap());
    assert_eq!(store.prefix(b"").count(), 0);
}

fn run_all(codec: CodecChoice) {
    run(codec, 512, 768);
    run(codec, 16_384, 65_536);
    run(codec, 16_384, 256);
}

#[test]
fn with_lz4() {
    run_all(CodecChoice::Lz4);
}

#[test]
fn with_zstd() {
    run_all(CodecChoice::Zstd);
}

#[test]
fn with_deflate() {
    run_all(CodecChoice::Deflate);
}
