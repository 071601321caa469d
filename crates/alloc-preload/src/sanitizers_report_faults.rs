//! A sanitizer that reports nothing proves nothing. Here a child commits a fault that the sanitizer must report, in the
//! program whose random calls it watches.

use std::cell::UnsafeCell;
use std::env;
use std::hint::black_box;
use std::process::Command;

/// Names the sanitizer that watches this program. `scripts/sanitize-alloc` sets it.
const SANITIZER: &str = "ZIPTIER_ALLOC_SANITIZER";

/// Says to this program that it commits the fault.
const FAULTY: &str = "ZIPTIER_ALLOC_TEST_FAULT";

struct Unguarded(UnsafeCell<u64>);

// SAFETY: it is not safe, and that is the fault.
unsafe impl Sync for Unguarded {}

static UNGUARDED: Unguarded = Unguarded(UnsafeCell::new(0));

/// Reads the byte behind a block.
fn read_beyond() {
    let block = black_box(Box::new([1_u8; 16]));
    // SAFETY: it is not safe, and that is the fault.
    black_box(unsafe { *block.as_ptr().add(16) });
}

/// Writes to one word in two threads that nothing puts in order.
fn race() {
    // SAFETY: it is not safe, and that is the fault.
    let write = || (0..1000).for_each(|_| unsafe { *UNGUARDED.0.get() += 1 });
    std::thread::scope(|scope| {
        scope.spawn(write);
        scope.spawn(write);
    });
}

/// Without a sanitizer there is nothing to try.
#[test]
fn as_they_find_them() {
    let Some(sanitizer) = env::var_os(SANITIZER) else { return };
    let is_address = sanitizer == "address";
    if env::var_os(FAULTY).is_some() {
        return if is_address { read_beyond() } else { race() };
    }
    let mut command = Command::new(env::current_exe().expect("the program of the test has a path"));
    command.args(["sanitizers_report_faults::as_they_find_them", "--exact", "--nocapture"]).env(FAULTY, "1");
    let output = command.output().expect("the program of the test starts again");
    let report =
        if is_address { "AddressSanitizer: heap-buffer-overflow" } else { "ThreadSanitizer: data race" };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(report), "{sanitizer:?} reports nothing: {output:?}");
}
