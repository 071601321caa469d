//! Waiting for other threads. How long they have no processor is not for a test to say.

use std::time::{Duration, Instant};

use ziptier_testing::HANG;

/// Waits until `is_so`, as [`ziptier_testing::until`] does. If that is in vain, it fails with what `told` says then.
#[track_caller]
pub(crate) fn until_telling(what: &str, mut is_so: impl FnMut() -> bool, told: impl Fn() -> String) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANG, "waited {} s in vain until {what}: {}", HANG.as_secs(), told());
        std::thread::sleep(Duration::from_millis(1));
    }
}
