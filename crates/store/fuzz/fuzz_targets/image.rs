//! The image of a leaf from any bytes: refused, or safe to read, write to and pack.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ziptier::fuzz_image(bytes));
