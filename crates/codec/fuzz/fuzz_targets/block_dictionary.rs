//! Loads any bytes as a stored dictionary of blocks. The result must be an error, or a dictionary that compresses,
//! decompresses and stores itself.
//!
//! The target corrects header and checksum, so that the loader reads the content.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use ziptier_codec::block::{Dictionary, Setting};
use ziptier_codec::checksum::crc32c;
use ziptier_codec::format::Format;

fuzz_target!(|input: (bool, u8, bool, Vec<u8>, Vec<u8>)| {
    let (sealed, which, magic, content, raw) = input;
    let mut bytes = content;
    if sealed {
        let mut content = std::mem::take(&mut bytes);
        if magic {
            // The magic number of zstd's own dictionaries, and a dictionary number other than zero.
            content.splice(0..0, [0x37, 0xA4, 0x30, 0xEC, 1, 0, 0, 0]);
        }
        bytes = b"zblk\x01".to_vec();
        bytes.extend_from_slice(&[1 + which % 4, 0, 0, 9, 0, 0, 0]);
        bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&content);
        let checksum = crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }
    let Ok(dictionary) = Dictionary::from_bytes(&bytes) else { return };
    assert_eq!(dictionary.to_bytes(), bytes);
    let format = dictionary.format();
    assert_ne!(format, Format::None);
    // zstd may refuse a dictionary for compressing that it accepts for decompressing.
    let Ok(engine) = Setting::new(format).with_dictionary(Arc::new(dictionary)).engine() else { return };
    let mut codec = engine.open().expect("opens");
    for raw in [&raw[..], &bytes[..bytes.len().min(2000)]] {
        let (mut packed, mut out) = (Vec::new(), Vec::new());
        let max_bytes = raw.len() + raw.len() / 8 + 1024;
        codec.compress(raw, &mut packed, max_bytes).expect("works").expect("fits");
        codec.decompress(&packed, &mut out, raw.len()).expect("what was packed unpacks");
        assert_eq!(out, raw);
    }
});
