//! Checks a decoder of blocks: any bytes must give an error, or a block of exactly the requested length.

use libfuzzer_sys::arbitrary;
use std::sync::{Arc, LazyLock};
use ziptier_codec::block::{BlockCodec, Dictionary, Engine, Setting, frame};
use ziptier_codec::checksum::crc32c_append;
use ziptier_codec::format::Format;

/// A fuzzer's idea of a packed block.
#[derive(Debug, arbitrary::Arbitrary)]
pub struct Input {
    pub with_dictionary: bool,
    raw_bytes: u16,
    /// Whether to pack `bytes` first and flip bits of the result, instead of decoding `bytes` as they are.
    pack: bool,
    flips: Vec<(u16, u8)>,
    pub bytes: Vec<u8>,
}

pub fn dictionary(format: Format) -> Arc<Dictionary> {
    static SAMPLES: LazyLock<Vec<String>> =
        LazyLock::new(|| (0..20_000).map(|i| format!("item {} of {}, ", i * 7919 % 1000, i % 13)).collect());
    let samples: Vec<&[u8]> = SAMPLES.iter().map(|sample| sample.as_bytes()).collect();
    Arc::new(Dictionary::train(format, &samples, 40_000, 1).expect("trains"))
}

/// Engines without and with a dictionary. The same engine twice if it has no dictionaries.
pub fn engines(setting: Setting, name: &str) -> [Arc<dyn Engine>; 2] {
    let plain = setting.engine_named(name).expect("there is such an engine");
    let with = setting.clone().with_dictionary(dictionary(setting.format)).engine_named(name);
    [plain.clone(), with.unwrap_or(plain)]
}

/// Decodes the payload, alone and in a frame with the right checksum. Returns payload and block, if there is a block.
pub fn check(codec: &mut dyn BlockCodec, format: Format, input: &Input) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut packed, mut raw_bytes) = (input.bytes.clone(), usize::from(input.raw_bytes));
    if input.pack {
        packed.clear();
        raw_bytes = input.bytes.len();
        let max_bytes = raw_bytes + raw_bytes / 8 + 1024;
        codec.compress(&input.bytes, &mut packed, max_bytes).expect("works").expect("fits");
        let length = packed.len();
        for (at, mask) in &input.flips {
            packed[usize::from(*at) % length] ^= mask;
        }
    }
    let mut out = b"kept".to_vec();
    let result = codec.decompress(&packed, &mut out, raw_bytes);
    assert!(out.starts_with(b"kept"));
    assert_eq!(out.len(), if result.is_ok() { 4 + raw_bytes } else { 4 });
    if input.pack && input.flips.iter().all(|flip| flip.1 == 0) {
        assert_eq!(out[4..], input.bytes);
    }

    let mut stored = vec![format.number()];
    stored.extend_from_slice(&(raw_bytes as u32).to_le_bytes());
    let checksum = crc32c_append(crc32c_append(codec.dictionary_fingerprint(), &stored), &packed);
    stored.extend_from_slice(&checksum.to_le_bytes());
    stored.extend_from_slice(&packed);
    let mut framed = Vec::new();
    let unpacked = frame::unpack(codec, format, &stored, &mut framed, raw_bytes);
    assert_eq!(unpacked.is_ok(), result.is_ok());
    assert!(framed == out[4..]);
    result.ok().map(|()| (packed, out.split_off(4)))
}
