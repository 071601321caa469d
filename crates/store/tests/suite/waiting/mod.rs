//! Waits for other threads. No test knows how long a busy machine keeps a processor from a thread.

use std::time::{Duration, Instant};

use ziptier_testing::HANG;

/// Waits until `is_so`, as [`ziptier_testing::until`] does. A wait in vain fails with the words of `told`.
#[track_caller]
pub(crate) fn until_telling(what: &str, mut is_so: impl FnMut() -> bool, told: impl Fn() -> String) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANG, "waited {} s in vain until {what}: {}", HANG.as_secs(), told());
        std::thread::sleep(Duration::from_millis(1));
    }
}
