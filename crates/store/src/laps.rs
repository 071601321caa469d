//! When the sweep visits all leaves again: how long a store rests from one lap to the next.
//!
//! Not for the work of a lap, which `maintenance` does.

use std::time::{Duration, Instant};

/// From one cycle of the sweep to the next, while the last one found something to do, and while none does.
const LAP_BUSY: Duration = Duration::from_millis(200);
const LAP_IDLE: Duration = Duration::from_secs(1);
/// A cycle of a large store takes long: then the pause is this many times the cycle, up to [`LAP_IDLE`] if it found
/// work, or if somebody writes. Nothing is late in a store at rest but the bytes of expired records.
const LAP_PAUSE_FACTOR: u32 = 30;
const LAP_REST: Duration = Duration::from_secs(60);

/// When the sweep may go on.
pub(crate) struct Laps {
    /// When the next lap begins, and when it does at rest: while nobody writes and the last lap found nothing to do.
    next: Instant,
    next_at_rest: Instant,
    /// Whether a lap is under way, and how long its parts took.
    is_under_way: bool,
    busy: Duration,
    /// Writes when the last lap began: a later one may be to a leaf that the lap had passed.
    writes: u64,
}

impl Laps {
    pub(crate) fn new(now: Instant) -> Self {
        let next = now + LAP_BUSY;
        Self { next, next_at_rest: next, is_under_way: false, busy: Duration::ZERO, writes: 0 }
    }

    /// Whether a part of a lap is due, when so many records were written.
    pub(crate) fn is_due(&self, now: Instant, writes: u64) -> bool {
        self.is_under_way || now >= self.next && (now >= self.next_at_rest || writes != self.writes)
    }

    /// Notes the beginning of a part of a lap.
    pub(crate) fn begin(&mut self, writes: u64) {
        if !std::mem::replace(&mut self.is_under_way, true) {
            self.writes = writes;
        }
    }

    /// Notes the end of a part of a lap that took `busy`.
    pub(crate) fn end(&mut self, busy: Duration) {
        self.busy += busy;
    }

    /// Notes the end of a lap; `worked` says whether it found something to do.
    pub(crate) fn end_lap(&mut self, now: Instant, worked: bool) {
        self.is_under_way = false;
        let pause = std::mem::take(&mut self.busy) * LAP_PAUSE_FACTOR;
        let least = if worked { LAP_BUSY } else { LAP_IDLE };
        self.next = now + pause.clamp(least, LAP_IDLE);
        self.next_at_rest = if worked { self.next } else { now + pause.clamp(LAP_IDLE, LAP_REST) };
    }
}

#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_large_store_at_rest_is_swept_seldom_until_somebody_writes() {
        let mut now = Instant::now();
        let mut laps = Laps::new(now);
        let seconds = Duration::from_secs;
        for (busy, worked, due, due_at_rest) in [
            (Duration::from_millis(1), true, LAP_BUSY, LAP_BUSY),
            (Duration::from_millis(1), false, LAP_IDLE, LAP_IDLE),
            (Duration::from_millis(500), true, LAP_IDLE, LAP_IDLE),
            (Duration::from_millis(500), false, LAP_IDLE, seconds(15)),
            (seconds(20), true, LAP_IDLE, LAP_IDLE),
            (seconds(20), false, LAP_IDLE, LAP_REST),
        ] {
            for writes in [7, 8] {
                laps.begin(writes);
                laps.end(busy / 2);
                assert!(laps.is_due(now, writes), "a lap is under way");
            }
            laps.end_lap(now, worked);
            let just_before = Duration::from_nanos(1);
            assert!(!laps.is_due(now + due - just_before, 8), "{busy:?} {worked}");
            assert!(laps.is_due(now + due, 8), "{busy:?} {worked}");
            assert!(!laps.is_due(now + due_at_rest - just_before, 7), "{busy:?} {worked}");
            assert!(laps.is_due(now + due_at_rest, 7), "{busy:?} {worked}");
            now += due_at_rest;
        }
    }
}
