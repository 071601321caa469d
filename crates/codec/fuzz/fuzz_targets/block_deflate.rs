//! Decodes any bytes as a deflate stream, by both engines. The result must be an error, or a block of exactly the
//! requested length. If both engines decode without a dictionary, their blocks must be equal. A device that decodes the
//! parts of a block side by side has the result of one that decodes the block as a whole.

#![no_main]

mod decoder;

use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use ziptier_codec::block::{DeviceSource, Engine, ModelOptions, Path, Setting};
use ziptier_codec::format::Format;

static SOFTWARE: LazyLock<[Arc<dyn Engine>; 2]> =
    LazyLock::new(|| decoder::engines(Setting::new(Format::Deflate), "software"));
static ZLIB: LazyLock<[Arc<dyn Engine>; 2]> =
    LazyLock::new(|| decoder::engines(Setting::new(Format::Deflate), "zlib"));
static PARTS: LazyLock<Arc<dyn Engine>> = LazyLock::new(|| modelled(16));
static WHOLE: LazyLock<Arc<dyn Engine>> = LazyLock::new(|| modelled(1));

fn modelled(split: u32) -> Arc<dyn Engine> {
    let model = ModelOptions { is_synchronous: true, ..ModelOptions::default() };
    let setting = Setting::new(Format::Deflate).with_path(Path::Hardware).with_split(split);
    setting.with_device(DeviceSource::Modelled(model)).engine_named("iaa").expect("the model opens")
}

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
    let mut parts = PARTS.open().expect("opens");
    if let Some((packed, raw)) = decoder::check(parts.as_mut(), Format::Deflate, &input) {
        let mut out = Vec::new();
        WHOLE.open().expect("opens").decompress(&packed, &mut out, raw.len()).expect("so does the whole");
        assert_eq!(out, raw);
    }
    if input.with_dictionary {
        let mut codec = ZLIB[1].open().expect("opens");
        decoder::check(codec.as_mut(), Format::Deflate, &input);
    }
});
