//! Decodes any bytes as a deflate stream, by both engines. The result must be an error, or a block of exactly the
//! requested length. If both engines decode without a dictionary, their blocks must be equal.

#![no_main]

mod decoder;

use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use ziptier_codec::block::{Engine, Setting};
use ziptier_codec::format::Format;

static SOFTWARE: LazyLock<[Arc<dyn Engine>; 2]> =
    LazyLock::new(|| decoder::engines(Setting::new(Format::Deflate), "software"));
static ZLIB: LazyLock<[Arc<dyn Engine>; 2]> =
    LazyLock::new(|| decoder::engines(Setting::new(Format::Deflate), "zlib"));

fuzz_target!(|input: decoder::Input| {
    let mut software = SOFTWARE[0].open().expect("opens");
    let mut zlib = ZLIB[0].open().expect("opens");
    for (one, other) in [(0, 1), (1, 0)] {
        let codecs = [&mut software, &mut zlib];
        if let Some((packed, raw)) = decoder::check(codecs[one].as_mut(), Format::Deflate, &input) {
            let mut out = Vec::new();
            if codecs[other].decompress(&packed, &mut out, raw.len()).is_ok() {
                assert_eq!(out, raw);
            }
        }
    }
    if input.with_dictionary {
        let mut codec = ZLIB[1].open().expect("opens");
        decoder::check(codec.as_mut(), Format::Deflate, &input);
    }
});
