//! Executes any bytes as a descriptor, its sources and its state. The model must not panic, and must write only to
//! memory that the descriptor names.

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
    // Four thousand million elements of runs are no error, but take long.
    if descriptor[7] >= 0x50 {
        descriptor[62..].fill(0);
    }
    Wild { descriptor, source1: &source1, source2: &source2 }.run(&DEVICES[usize::from(is_second)]);
});
