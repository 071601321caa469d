//! The store's clock, by which everything expires.
//!
//! Beside it stands the steady clock, by which work is paced and measured ([`steady`], [`since`]).
//!
//! 1. A user or a daemon may set the system's clock back. A record that had expired for one thread would then live
//!    again for another.
//! 2. The store's clock therefore never goes back while the process runs. It follows the system's clock forward, and
//!    goes on by the steady clock when the system's is set back.
//! 3. Tests give a store a clock of their own and wait for nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a change of the system's clock may go unnoticed.
const LOOK_US: u64 = 10_000;

/// The clock by which keys expire. It never goes back.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// The system's clock, for all stores of the process; the default.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock for tests: it shows `now_ms`, in milliseconds since the Unix epoch, until [`Clock::advance`] is called
    /// on it or a clone of it.
    pub fn manual(now_ms: u64) -> Self {
        Self(Some(Arc::new(AtomicU64::new(now_ms))))
    }

    /// Milliseconds since the Unix epoch.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            None => now_ms(),
            Some(now_ms) => now_ms.load(Ordering::Acquire),
        }
    }

    /// Moves a manual clock on. The system's clock moves by itself.
    pub fn advance(&self, by: Duration) {
        if let Some(now_ms) = &self.0 {
            now_ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::AcqRel);
        }
    }
}

/// Milliseconds since the Unix epoch, as the system's clock says and never less than before.
pub fn now_ms() -> u64 {
    static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
    static STEADY: Steady = Steady::new();
    let wall_us = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    };
    STEADY.now_us(|| STARTED.elapsed().as_micros() as u64, wall_us) / 1000
}

/// The steady clock, by which work in the background is paced and measured. A simulation shows its own.
pub fn steady() -> Instant {
    #[cfg(any(test, feature = "testing"))]
    if let Some(now) = simulated::NOW.get() {
        return now;
    }
    Instant::now()
}

/// Whether this thread simulates a store. It does itself what threads of the store do otherwise.
pub fn is_simulated() -> bool {
    #[cfg(any(test, feature = "testing"))]
    return simulated::NOW.get().is_some();
    #[cfg(not(any(test, feature = "testing")))]
    false
}

/// The time since a moment of the steady clock.
pub fn since(moment: Instant) -> Duration {
    steady().saturating_duration_since(moment)
}

/// The steady clock of a thread that simulates a store.
#[cfg(any(test, feature = "testing"))]
pub mod simulated {
    use std::cell::Cell;
    use std::time::Instant;

    std::thread_local! {
        /// The moment that it shows; `None` while the thread simulates none and goes by the real clock.
        pub static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    }
}

/// A steady clock that is put forward to the wall clock, and never back.
struct Steady {
    /// The most by which the wall clock was seen ahead of the steady one.
    ahead_us: AtomicU64,
    /// When the wall clock is looked at again.
    next_look_us: AtomicU64,
}

impl Steady {
    const fn new() -> Self {
        Self { ahead_us: AtomicU64::new(0), next_look_us: AtomicU64::new(0) }
    }

    #[inline]
    fn now_us(&self, steady_us: impl Fn() -> u64, wall_us: impl FnOnce() -> u64) -> u64 {
        let now_us = steady_us();
        if now_us >= self.next_look_us.load(Ordering::Acquire) {
            // The wall clock first: a pause between the two then makes the difference too small, which the next look
            // mends.
            let wall_us = wall_us();
            self.ahead_us.fetch_max(wall_us.saturating_sub(steady_us()), Ordering::Relaxed);
            // A thread that sees this sees the difference, too, and the very first one is not 0.
            self.next_look_us.store(now_us + LOOK_US, Ordering::Release);
        }
        now_us + self.ahead_us.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_follows_steps_forward_and_goes_on_through_steps_back() {
        const HOUR_US: u64 = 3_600_000_000;
        let steady = Steady::new();
        let wall_us = 1_700_000_000_000_000;
        let at = |steady_us: u64, wall_us: u64| steady.now_us(|| steady_us, || wall_us);
        assert_eq!(at(0, wall_us), wall_us);
        assert_eq!(at(LOOK_US, wall_us + LOOK_US), wall_us + LOOK_US);
        // Set back by an hour: it goes on at the pace of the steady clock.
        assert_eq!(at(2 * LOOK_US, wall_us - HOUR_US), wall_us + 2 * LOOK_US);
        assert_eq!(at(3 * LOOK_US, wall_us - HOUR_US + LOOK_US), wall_us + 3 * LOOK_US);
        // Between two looks nobody asks the wall clock.
        assert_eq!(
            steady.now_us(|| 3 * LOOK_US + 1, || unreachable!("it is not time")),
            wall_us + 3 * LOOK_US + 1
        );
        // Set forward by an hour, and corrected.
        assert_eq!(at(4 * LOOK_US, wall_us + HOUR_US), wall_us + HOUR_US);
        assert_eq!(at(5 * LOOK_US, wall_us + 5 * LOOK_US), wall_us + HOUR_US + LOOK_US);
    }
}
