//! Any bytes as a descriptor, as its sources and as its state: no panic, and nothing is written but what the descriptor
//! names.

#![no_main]

#[path = "../../tests/jobs/mod.rs"]
mod jobs;
#[path = "../../tests/jobs/wild.rs"]
mod wild;

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use wild::Wild;
use ziptier_accel::Model;

static DEVICES: LazyLock<[Model; 2]> = LazyLock::new(|| [jobs::model(1), jobs::model(2)]);

fuzz_target!(|input: (bool, [u8; 64], Vec<u8>, Vec<u8>)| {
    let (is_second, mut descriptor, source1, source2) = input;
    // Four thousand million elements of runs are no error, but take their time.
    if descriptor[7] >= 0x50 {
        descriptor[62..].fill(0);
    }
    Wild { descriptor, source1: &source1, source2: &source2 }.run(&DEVICES[usize::from(is_second)]);
});
