//! Decodes any bytes as a block of zstd. The result must be an error, or a block of exactly the requested length.

#![no_main]

mod decoder;

use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use ziptier_codec::block::{Engine, Setting};
use ziptier_codec::format::Format;

static ENGINES: LazyLock<[Arc<dyn Engine>; 2]> =
    LazyLock::new(|| decoder::engines(Setting::new(Format::Zstd), "cpu"));

fuzz_target!(|input: decoder::Input| {
    let mut codec = ENGINES[usize::from(input.with_dictionary)].open().expect("opens");
    decoder::check(codec.as_mut(), Format::Zstd, &input);
});
