//! Any bytes as a record of the log: an error, or operations that say the same when they are laid out again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ziptier::fuzz_log_record(bytes));
