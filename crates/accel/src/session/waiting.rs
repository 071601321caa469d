//! Waits for a device: with pauses at first, then by yielding the processor.

use std::time::Instant;

/// Pauses before the thread yields the processor: some microseconds.
const SPINS: u32 = 64;

/// How long somebody has waited.
pub(super) struct Patience {
    spins: u32,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { spins: 0 }
    }

    pub(super) fn pause(&mut self) {
        if self.spins < SPINS {
            self.spins += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// The time of one look at all jobs, read when it is first needed.
#[derive(Default)]
pub(super) struct Clock {
    now: Option<Instant>,
}

impl Clock {
    pub(super) fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(Instant::now)
    }
}
