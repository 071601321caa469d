//! Decodes any bytes as a block of every type, with and without a generation. The result must be an error, or a block
//! of exactly the requested length. A packed block must come back, and with flipped bits it must not crash the decoder.

#![no_main]

mod support;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use support::CODECS;
use ziptier_codec::block;
use ziptier_codec::checksum::{check16, crc32c};
use ziptier_codec::format::Format;
use ziptier_codec::token;
use ziptier_codec::token::entropy::Codes;
use ziptier_codec::token::packed::{Packed, pack, pack_codes};
use ziptier_rocksdb::codec::{CANNED, ENTROPY, ENTROPY_PARTS, LZ4, TOKENS, ZLIB, ZSTD};
use ziptier_rocksdb::generation::Generation;

#[derive(Debug, Arbitrary)]
struct Input {
    codec: u8,
    generation: u8,
    packed_as: u8,
    raw_bytes: u32,
    is_long: bool,
    /// Whether to pack `bytes` first instead of decoding them as they are.
    pack: bool,
    /// Whether tokens get a correct check, and entropy-coded ones theirs.
    seal: Option<bool>,
    flips: Vec<(u16, u8)>,
    bytes: Vec<u8>,
}

static SAMPLES: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..3000).map(|i| format!("item {} of {}, ", i * 7919 % 1000, i % 13)).collect());

static TOKENS_OF_ALL: LazyLock<token::Dictionary> = LazyLock::new(|| {
    let samples: Vec<&[u8]> = SAMPLES.iter().map(|sample| sample.as_bytes()).collect();
    token::Dictionary::train(&samples, 12, 0).expect("trains")
});

static CODES: LazyLock<Codes> = LazyLock::new(|| {
    let samples: Vec<&[u8]> = SAMPLES.iter().map(|sample| sample.as_bytes()).collect();
    let effort = token::Effort::Dense;
    Codes::train(&TOKENS_OF_ALL, &mut token::Encoder::new(), effort, &samples, 1 << 24)
});

/// The seeds of checks: of tokens, and of entropy-coded ones. The second one covers what stored codes have between
/// header and checksum.
static SEEDS: LazyLock<[u32; 2]> = LazyLock::new(|| {
    let (fingerprint, codes) = (TOKENS_OF_ALL.fingerprint(), CODES.to_bytes(&TOKENS_OF_ALL));
    [fingerprint, fingerprint ^ crc32c(&codes[16..codes.len() - 4])]
});

/// None, tokens, zstd, both, canned codes, tokens with codes, these and zstd.
static GENERATIONS: LazyLock<Vec<Option<Arc<Generation>>>> = LazyLock::new(|| {
    let samples: Vec<&[u8]> = SAMPLES.iter().map(|sample| sample.as_bytes()).collect();
    let Packed { bytes: packed, coded_bytes: token_bytes } = pack(&TOKENS_OF_ALL).expect("packs");
    let blocks = |format| block::Dictionary::train(format, &samples, 2048, 0).expect("trains").to_bytes();
    let (zstd, canned) = (blocks(Format::Zstd), blocks(Format::Deflate));
    let of = |packed: &[u8], token_bytes: usize, blocks: &[u8]| {
        let lengths = [packed.len(), token_bytes, blocks.len()].map(|length| length as u32);
        Some(Generation::load(&support::sealed(1, &lengths, &[packed, blocks])).expect("a generation"))
    };
    let codes = pack_codes(&CODES, &TOKENS_OF_ALL).expect("packs");
    let with_codes = |blocks: &[u8]| {
        let lengths = [packed.len(), token_bytes, blocks.len(), codes.bytes.len(), codes.coded_bytes];
        let lengths = lengths.map(|length| length as u32);
        let bytes = support::sealed(2, &lengths, &[&packed, blocks, &codes.bytes]);
        Some(Generation::load(&bytes).expect("a generation with codes"))
    };
    vec![
        None,
        of(&packed, token_bytes, b""),
        of(b"", 0, &zstd),
        of(&packed, token_bytes, &zstd),
        of(b"", 0, &canned),
        with_codes(b""),
        with_codes(&zstd),
    ]
});

fuzz_target!(|input: Input| {
    let codec = &CODECS[usize::from(input.codec) % CODECS.len()];
    let generation = GENERATIONS[usize::from(input.generation) % GENERATIONS.len()].as_deref();
    let packed_as = match input.packed_as {
        number if number < 200 => {
            [TOKENS, ZSTD, CANNED, ZLIB, LZ4, ENTROPY, ENTROPY_PARTS][usize::from(number) % 7]
        }
        number => number,
    };
    if input.pack {
        let Some((made, mut packed)) = support::pack(codec, packed_as, generation, &input.bytes) else { return };
        assert_eq!(
            support::unpack(codec, made, generation, &packed, input.bytes.len()).as_deref(),
            Some(&input.bytes[..])
        );
        let length = packed.len().max(1);
        for (at, mask) in &input.flips {
            if let Some(byte) = packed.get_mut(usize::from(*at) % length) {
                *byte ^= mask;
            }
        }
        support::unpack(codec, made, generation, &packed, input.bytes.len());
        return;
    }
    let raw_bytes = if input.is_long { input.raw_bytes } else { input.raw_bytes % 10_000 } as usize;
    let mut packed = input.bytes;
    if let Some(is_entropy) = input.seal {
        let check = check16(SEEDS[usize::from(is_entropy)], &packed);
        packed.extend_from_slice(&check.to_le_bytes());
    }
    support::unpack(codec, packed_as, generation, &packed, raw_bytes);
});
