//! When the sweep visits all leaves again: how long it rests from one lap to the next.
//!
//! Not for the work of a lap, which `maintenance` does.

use std::time::{Duration, Instant};

/// The pause behind a lap that found something to do, and behind one that found nothing, at least.
const PAUSE_WORKED: Duration = Duration::from_millis(200);
const PAUSE_IDLE: Duration = Duration::from_secs(1);
/// A large store has many leaves that need nothing. The pause is so many times as long as the lap looked at these, so
/// that it takes this part of a processor at most.
const PAUSE_FACTOR: u32 = 30;
/// The longest pause. Nothing is late meanwhile but bytes: of landings, and of expired records.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The laps of the sweep.
pub(crate) struct Laps {
    /// When the next part of a lap may begin.
    next: Instant,
    /// Whether the lap found something to do.
    worked: bool,
    /// How long the lap looked at leaves that need nothing.
    looked: Duration,
}

impl Laps {
    pub(crate) fn new(now: Instant) -> Self {
        Self { next: now + PAUSE_WORKED, worked: false, looked: Duration::ZERO }
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Notes a part of a lap; `worked` says whether it found something to do.
    pub(crate) fn note_part(&mut self, took: Duration, worked: bool) {
        self.worked |= worked;
        if !worked {
            self.looked += took;
        }
    }

    /// Notes the end of a lap.
    pub(crate) fn end(&mut self, now: Instant) {
        let least = if self.worked { PAUSE_WORKED } else { PAUSE_IDLE };
        *self = Self { next: now + (self.looked * PAUSE_FACTOR).clamp(least, PAUSE_MAX), ..Self::new(now) };
    }
}

#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn looking_at_leaves_that_need_nothing_takes_little_of_a_processor() {
        let mut laps = Laps::new(Instant::now());
        let mut now = laps.next;
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        for (parts, pause) in [
            (&[(millis(1), true)][..], PAUSE_WORKED),
            (&[(millis(1), false)], PAUSE_IDLE),
            // A load of many records settles.
            (&[(seconds(100), true)], PAUSE_WORKED),
            (&[(millis(100), false), (millis(400), false)], seconds(15)),
            // One of many leaves is written to.
            (&[(millis(100), false), (millis(9), true), (millis(400), false)], seconds(15)),
            (&[(seconds(20), false)], PAUSE_MAX),
        ] {
            for (took, worked) in parts {
                laps.note_part(*took, *worked);
                assert!(laps.is_due(now), "a lap goes on");
            }
            laps.end(now);
            assert!(!laps.is_due(now + pause - Duration::from_nanos(1)), "{parts:?}");
            assert!(laps.is_due(now + pause), "{parts:?}");
            now += pause;
        }
    }
}
