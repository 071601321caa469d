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
    let open = |(format, huffman)| {
        let settings = Settings::parse(format, "software", huffman, 0, "").expect("a setting that there is");
        Codec::open(settings).expect("opens")
    };
    [("token", "dynamic"), ("deflate", "canned"), ("auto", "dynamic"), ("deflate", "fixed")].map(open).into()
});

/// A generation's bytes with these fields, and its checksum right.
pub fn sealed(version: u8, lengths: [u32; 3], packed_tokens: &[u8], blocks: &[u8]) -> Vec<u8> {
    let mut bytes = b"zrdb".to_vec();
    bytes.extend_from_slice(&[version, 0, 0, 0]);
    lengths.iter().for_each(|length| bytes.extend_from_slice(&length.to_le_bytes()));
    bytes.extend_from_slice(packed_tokens);
    bytes.extend_from_slice(blocks);
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
