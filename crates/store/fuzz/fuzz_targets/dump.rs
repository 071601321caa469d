//! A dump from any bytes: refused, or restored to a folder that a check finds whole.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ziptier::{DiskHandle, DurableOptions, check, restore};
use ziptier_media::testing::RecordingDisk;

fuzz_target!(|bytes: &[u8]| {
    let mut options = DurableOptions::new("/d");
    options.disk = DiskHandle(Arc::new(RecordingDisk::new()));
    options.log.segment_bytes = 8 << 10;
    options.segments.segment_bytes = 64 << 10;
    if restore(&options, &mut &*bytes).is_ok() {
        check(&options).expect("what was restored is a store's folder");
    }
});
