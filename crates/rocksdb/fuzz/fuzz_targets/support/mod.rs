//! Generations laid out by hand, so that every field can be changed, and the checks of a block.

#![allow(dead_code, reason = "each target needs a part of it")]

use std::sync::LazyLock;
use ziptier_codec::block::Setting;
use ziptier_codec::format::Format;
use ziptier_rocksdb::codec::{BlockType, Codec, Packed};
use ziptier_rocksdb::generation::Generation;
use ziptier_rocksdb::settings::Settings;

/// Managers of every kind of output.
pub static CODECS: LazyLock<Vec<Codec>> = LazyLock::new(|| {
    let open = |(format, huffman, level)| {
        let settings = Settings::parse(format, "software", huffman, level, "").expect("a setting that there is");
        Codec::open(settings).expect("opens")
    };
    let all = [
        ("token", "dynamic", 0),
        ("deflate", "canned", 0),
        ("auto", "dynamic", 0),
        ("deflate", "fixed", 0),
        ("token", "dynamic", 2),
    ];
    all.map(open).into()
});

/// A generation's bytes with these fields, and its checksum right. The contents are packed tokens, blocks, and codes if
/// there are five lengths.
pub fn sealed(version: u8, lengths: &[u32], contents: &[&[u8]]) -> Vec<u8> {
    let mut bytes = b"zrdb".to_vec();
    bytes.extend_from_slice(&[version, 0, 0, 0]);
    lengths.iter().for_each(|length| bytes.extend_from_slice(&length.to_le_bytes()));
    contents.iter().for_each(|content| bytes.extend_from_slice(content));
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// A token dictionary as a generation has it.
pub fn packed(tokens: &[u8]) -> Vec<u8> {
    let engine = Setting::new(Format::Zstd).engine().expect("there is one");
    let mut out = Vec::new();
    engine.open().expect("opens").compress(tokens, &mut out, 1 << 22).expect("works").expect("fits");
    out
}

/// Stored codes as they are packed: with differences of numbers from `from` on, lower bytes before higher ones. The
/// bytes behind `from` are even in number.
pub fn differences(stored: &[u8], from: usize) -> Vec<u8> {
    let (head, rest) = stored.split_at(from);
    let numbers: Vec<u16> = rest.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let before = std::iter::once(&0).chain(&numbers);
    let differences: Vec<u16> = numbers.iter().zip(before).map(|(one, other)| one.wrapping_sub(*other)).collect();
    let low = differences.iter().map(|difference| *difference as u8);
    let high = differences.iter().map(|difference| (difference >> 8) as u8);
    head.iter().copied().chain(low).chain(high).collect()
}

/// Unpacks any bytes as a block of a type. The result must be an error, or exactly the requested number of bytes.
pub fn unpack(
    codec: &Codec,
    packed_as: BlockType,
    generation: Option<&Generation>,
    packed: &[u8],
    raw_bytes: usize,
) -> Option<Vec<u8>> {
    let mut raw = None;
    let result = codec.unpack(packed_as, generation, packed, raw_bytes, |block| raw = Some(block.to_vec()));
    assert_eq!(result.is_ok(), raw.is_some());
    if let Some(raw) = &raw {
        assert_eq!(raw.len(), raw_bytes);
        assert!(raw_bytes <= Codec::raw_bytes_max(packed_as, packed));
    }
    raw
}

/// A block as a manager packs it, without the length in front; `None` if it does not shrink enough.
pub fn pack(
    codec: &Codec,
    packed_as: BlockType,
    generation: Option<&Generation>,
    raw: &[u8],
) -> Option<(BlockType, Vec<u8>)> {
    let mut out = Vec::new();
    let packed = codec.pack(packed_as, generation, raw, raw.len() + 64, |packed| out.extend_from_slice(packed));
    let Packed::Into(made, _) = packed else { return None };
    let length_bytes = out.iter().position(|byte| byte & 0x80 == 0).expect("a length ends") + 1;
    Some((made, out.split_off(length_bytes)))
}
