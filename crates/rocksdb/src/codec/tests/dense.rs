//! Dense tokens get codes where these pay. The failures to guard against: a file whose blocks are entropy-coded lies
//! where an earlier plugin takes it for one of its own, a damaged block gives other bytes, and files of other levels
//! change.

use super::*;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

fn dense() -> Codec {
    let settings = Settings::parse("token", "auto", "dynamic", 2, "").expect("tokens have that level");
    open(Settings { verify: true, ..settings })
}

static BLOCKS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| blocks(400));

fn trained(codec: &Codec) -> Arc<Generation> {
    let samples: Vec<&[u8]> = BLOCKS.iter().map(Vec::as_slice).collect();
    codec.train(&samples).expect("the samples are alike")
}

static DENSE: LazyLock<Arc<Generation>> = LazyLock::new(|| trained(&dense()));

/// Packed bytes of some blocks, each of which is of this type and comes back.
fn packed_bytes(codec: &Codec, generation: &Generation, wanted: BlockType) -> usize {
    // The first block has no number but 0.
    let packed = BLOCKS.iter().skip(1).step_by(20).map(|block| {
        assert_eq!(round_trip(codec, TOKENS, Some(generation), block), wanted);
        pack(codec, TOKENS, Some(generation), block, block.len()).expect("it shrinks").1.len()
    });
    packed.sum()
}

#[test]
fn blocks_of_dense_tokens_are_entropy_coded_and_come_back() {
    let (dense, fast) = (dense(), token());
    let [coded, numbers] = [(&dense, &*DENSE, ENTROPY_PARTS), (&fast, &trained(&fast), TOKENS)].map(
        |(codec, generation, made)| {
            assert_eq!(generation.has_codes(), made == ENTROPY_PARTS);
            packed_bytes(codec, generation, made)
        },
    );
    assert!(coded * 10 < numbers * 9, "{coded} of {numbers} bytes");
    let codes = DENSE.tokens().and_then(|tokens| tokens.codes()).expect("it has codes");
    assert!(DENSE.memory_bytes() > DENSE.as_bytes().len() + codes.memory_bytes());
    // Zeros take a bit for sixteen bytes at least.
    for zeros in [0, 1, 4 << 10, (1 << 20) + 1].map(|bytes| vec![0; bytes]) {
        if let Some((made, packed)) = pack(&dense, TOKENS, Some(&DENSE), &zeros, zeros.len() + 64) {
            let mut back = vec![1];
            let take = |raw: &[u8]| back = raw.to_vec();
            dense.unpack(made, Some(&DENSE), payload(&packed), zeros.len(), take).unwrap();
            assert!(back == zeros, "{} zeros", zeros.len());
        }
    }
}

#[test]
fn codes_that_do_not_pay_are_left_out() {
    let dense = dense();
    // A file that is smaller than its codes.
    let samples: Vec<&[u8]> = BLOCKS[..8].iter().map(Vec::as_slice).collect();
    let generation = dense.train(&samples).expect("tokens pay");
    assert!(!generation.has_codes());
    assert_eq!(generation.as_bytes()[4], 1);
    assert_eq!(round_trip(&dense, TOKENS, Some(&generation), &BLOCKS[9]), TOKENS);
}

/// An earlier plugin knows the name of the file, and refuses its dictionary.
#[test]
fn files_of_other_levels_get_no_codes() {
    for other in [token(), canned()] {
        other.adopt(&DENSE);
        assert!(matches!(other.guidance(true), Guidance::Sample(_)));
    }
    let next = dense();
    next.adopt(&DENSE);
    let Guidance::Use(used) = next.guidance(true) else { panic!("it is one of dense tokens") };
    assert!(Arc::ptr_eq(&used, &DENSE));
    // Dense tokens go on with what fast ones have, until a review.
    let (next, numbers) = (dense(), trained(&token()));
    next.adopt(&numbers);
    assert!(matches!(next.guidance(true), Guidance::Use(_)));
    assert_eq!(round_trip(&next, TOKENS, Some(&numbers), &BLOCKS[3]), TOKENS);
}

#[test]
fn every_level_brings_files_of_the_corpus_back() {
    let mut folders = vec![ziptier_testing::corpus()];
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { &mut folders } else { &mut paths }.push(path);
        }
    }
    if paths.is_empty() {
        ziptier_testing::not_run("corpus", "run make corpus");
    }
    for path in paths {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(200 << 10);
        for (codec, may_be) in
            [(token(), &[TOKENS, ZSTD][..]), (dense(), &[TOKENS, ENTROPY, ENTROPY_PARTS, ZSTD][..])]
        {
            let blocks: Vec<Vec<u8>> = bytes.chunks(4096).map(entries).collect();
            let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
            let generation = codec.train(&samples);
            for block in blocks {
                let Some((made, packed)) = pack(&codec, TOKENS, generation.as_deref(), &block, block.len())
                else {
                    continue;
                };
                assert!(may_be.contains(&made), "{made:#x}");
                let mut is_same = false;
                let take = |raw: &[u8]| is_same = raw == block;
                codec.unpack(made, generation.as_deref(), payload(&packed), block.len(), take).unwrap();
                assert!(is_same, "{}", path.display());
            }
        }
    }
}

/// A block of RocksDB's with values of 100 bytes.
fn entries(bytes: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for (number, value) in bytes.chunks(100).enumerate() {
        block.extend([0, 16, value.len() as u8]);
        block.extend(format!("key:{number:012}").bytes());
        block.extend_from_slice(value);
    }
    // One restart point, at 0.
    block.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    block
}

#[test]
fn damage_of_an_entropy_coded_block_is_named() {
    let (codec, raw) = (dense(), &BLOCKS[3]);
    let (made, packed) = pack(&codec, TOKENS, Some(&DENSE), raw, raw.len()).unwrap();
    assert_eq!(made, ENTROPY_PARTS);
    let packed = payload(&packed);
    let refused = |generation: Option<&Generation>, packed: &[u8], raw_bytes| {
        let taken = |_: &[u8]| panic!("nothing is unpacked");
        match codec.unpack(ENTROPY_PARTS, generation, packed, raw_bytes, taken) {
            Err(UnpackError::Damaged(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    for bit in 0..packed.len() * 8 {
        let mut damaged = packed.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let reason = refused(Some(&DENSE), &damaged, raw.len());
        assert!(reason.contains("check") || reason.contains("bytes"), "bit {bit}: {reason}");
    }
    for length in 0..packed.len() {
        // Whatever a cut block passes for, it has not that many bytes.
        refused(Some(&DENSE), &packed[..length], raw.len());
    }
    for raw_bytes in [0, 1, raw.len() - 1, raw.len() + 1, packed.len() * 128, usize::MAX] {
        refused(Some(&DENSE), packed, raw_bytes);
    }
    assert!(refused(None, packed, raw.len()).contains("without their dictionary"));
    let numbers = trained(&token());
    assert!(refused(Some(&numbers), packed, raw.len()).contains("has no codes"));
    // The other type of tokens.
    let taken = codec.unpack(TOKENS, Some(&DENSE), packed, raw.len(), |_| panic!("nothing is unpacked"));
    assert!(matches!(taken, Err(UnpackError::Damaged(_))), "{taken:?}");
}

/// Parts of few tokens cost more than they save.
#[test]
fn blocks_of_few_tokens_have_no_parts() {
    let (codec, raw) = (dense(), &BLOCKS[3]);
    for (raw, wanted) in [(&raw[2000..2800], ENTROPY), (raw, ENTROPY_PARTS)] {
        assert_eq!(round_trip(&codec, TOKENS, Some(&DENSE), raw), wanted);
    }
}

/// A file of a fixture, which is never written anew.
fn dense_fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ZiptierV2").join(name)
}

#[test]
fn entropy_coded_blocks_that_former_releases_wrote_are_read() {
    let read = |name: &str| std::fs::read(dense_fixture(name)).unwrap();
    let raw = read("raw");
    let generation = Generation::load(&read("entropy.generation")).unwrap();
    if std::env::var_os("ZIPTIER_WRITE_FIXTURES").is_some() && !dense_fixture("parts.block").exists() {
        let (made, packed) = pack(&dense(), TOKENS, Some(&generation), &raw, raw.len()).unwrap();
        assert_eq!(made, ENTROPY_PARTS);
        std::fs::write(dense_fixture("parts.block"), payload(&packed)).unwrap();
    }
    for (name, made) in [("entropy.block", ENTROPY), ("parts.block", ENTROPY_PARTS)] {
        for codec in [token(), dense(), canned()] {
            let mut back = Vec::new();
            let take = |block: &[u8]| back.extend_from_slice(block);
            codec.unpack(made, Some(&generation), &read(name), raw.len(), take).unwrap();
            assert!(back == raw, "{name}");
        }
    }
    // Files of the same generation go on with it.
    assert_eq!(round_trip(&dense(), TOKENS, Some(&generation), &raw), ENTROPY_PARTS);
}

/// Plugins of the first release read what other levels write, so these write the same bytes.
#[test]
fn other_levels_write_what_the_first_release_wrote() {
    let read = |name: &str| std::fs::read(fixture(name)).unwrap();
    let raw = read("raw");
    for (name, codec, packed_as) in [("tokens", token(), TOKENS), ("canned", canned(), CANNED)] {
        let generation = Generation::load(&read(&format!("{name}.generation"))).unwrap();
        let (made, packed) = pack(&codec, packed_as, Some(&generation), &raw, raw.len()).unwrap();
        assert_eq!(made, packed_as);
        assert!(payload(&packed) == read(&format!("{name}.block")), "{name}");
        // And their dictionaries have no codes.
        assert_eq!(trained(&codec).as_bytes()[4], 1);
    }
}
