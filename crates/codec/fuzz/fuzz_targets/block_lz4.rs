//! Decodes any bytes as a block of lz4. The result must be an error, or a block of exactly the requested length.

#![no_main]

mod decoder;

use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use ziptier_codec::block::{Engine, Setting};
use ziptier_codec::format::Format;

static ENGINES: LazyLock<[Arc<dyn Engine>; 2]> =
    LazyLock::new(|| decoder::engines(Setting::new(Format::Lz4), "cpu"));

fuzz_target!(|input: decoder::Input| {
    let mut codec = ENGINES[usize::from(input.with_dictionary)].open().expect("opens");
    decoder::check(codec.as_mut(), Format::Lz4, &input);
});
