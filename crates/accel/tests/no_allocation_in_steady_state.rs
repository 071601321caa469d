//! Allocating for each job would cost more than the job.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use ziptier_accel::null::NullDevice;
use ziptier_accel::{Codes, Limits, Operation, Preset, Session, Stream};
use ziptier_deflate::Dictionary;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn jobs_allocate_nothing() {
    let samples: Vec<&[u8]> = vec![b"one two three four", b"two three four five", b"three four five six"];
    let preset = Arc::new(Preset::written(&Dictionary::train(&samples, 64)));
    let operations = [
        Operation::Compress { codes: Codes::Fixed, verify: true },
        Operation::Compress { codes: Codes::Dynamic, verify: false },
        Operation::Compress { codes: Codes::Canned(preset.clone()), verify: true },
        Operation::Decompress(Stream::Plain),
        Operation::Decompress(Stream::Canned(preset)),
    ];
    let mut session = Session::new(vec![Arc::new(NullDevice::new())], Limits::default());
    let mut run = |batches: usize| {
        for _ in 0..batches {
            for (tag, operation) in operations.iter().cycle().take(16).enumerate() {
                session.submit(operation, tag as u64, &[7; 4096], 4096).unwrap();
            }
            assert_eq!(session.reap_all(|_, result| assert!(result.is_ok())), 16);
        }
    };
    run(2);
    let before = ALLOCATIONS.get();
    run(20);
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
