//! Decodes any bytes as a block of every type, with and without a generation. The result must be an error, or a block
//! of exactly the requested length. A packed block must come back, and with flipped bits it must not crash the decoder.

#![no_main]

mod support;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use support::CODECS;
use ziptier_codec::block;
use ziptier_codec::checksum::check16;
use ziptier_codec::format::Format;
use ziptier_codec::token;
use ziptier_rocksdb::codec::{CANNED, LZ4, TOKENS, ZLIB, ZSTD};
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
    /// Whether tokens get a correct check.
    seal: bool,
    flips: Vec<(u16, u8)>,
    bytes: Vec<u8>,
}

static SAMPLES: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..3000).map(|i| format!("item {} of {}, ", i * 7919 % 1000, i % 13)).collect());

static TOKENS_OF_ALL: LazyLock<token::Dictionary> = LazyLock::new(|| {
    let samples: Vec<&[u8]> = SAMPLES.iter().map(|sample| sample.as_bytes()).collect();
    token::Dictionary::train(&samples, 12, 0).expect("trains")
});

/// None, tokens, zstd, both, canned codes.
static GENERATIONS: LazyLock<Vec<Option<Arc<Generation>>>> = LazyLock::new(|| {
    let samples: Vec<&[u8]> = SAMPLES.iter().map(|sample| sample.as_bytes()).collect();
    let tokens = TOKENS_OF_ALL.to_bytes();
    let packed = support::packed(&tokens);
    let blocks = |format| block::Dictionary::train(format, &samples, 2048, 0).expect("trains").to_bytes();
    let (zstd, canned) = (blocks(Format::Zstd), blocks(Format::Deflate));
    let of = |packed: &[u8], tokens: &[u8], blocks: &[u8]| {
        let lengths = [packed.len(), tokens.len(), blocks.len()].map(|length| length as u32);
        Some(Generation::load(&support::sealed(1, lengths, packed, blocks)).expect("a generation"))
    };
    vec![
        None,
        of(&packed, &tokens, b""),
        of(b"", b"", &zstd),
        of(&packed, &tokens, &zstd),
        of(b"", b"", &canned),
    ]
});

fuzz_target!(|input: Input| {
    let codec = &CODECS[usize::from(input.codec) % CODECS.len()];
    let generation = GENERATIONS[usize::from(input.generation) % GENERATIONS.len()].as_deref();
    let packed_as = match input.packed_as {
        number if number < 200 => [TOKENS, ZSTD, CANNED, ZLIB, LZ4][usize::from(number) % 5],
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
    if input.seal {
        let check = check16(TOKENS_OF_ALL.fingerprint(), &packed);
        packed.extend_from_slice(&check.to_le_bytes());
    }
    support::unpack(codec, packed_as, generation, &packed, raw_bytes);
});
