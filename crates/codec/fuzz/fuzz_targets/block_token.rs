//! Decodes any bytes as a block of tokens. The result must be an error, or a block of exactly the requested length.

#![no_main]

mod decoder;

use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use ziptier_codec::block::{Engine, Setting};
use ziptier_codec::format::Format;

static ENGINE: LazyLock<Arc<dyn Engine>> = LazyLock::new(|| {
    let setting = Setting::new(Format::Token).with_dictionary(decoder::dictionary(Format::Token));
    setting.engine().expect("there is such an engine")
});

fuzz_target!(|input: decoder::Input| {
    let mut codec = ENGINE.open().expect("opens");
    decoder::check(codec.as_mut(), Format::Token, &input);
});
