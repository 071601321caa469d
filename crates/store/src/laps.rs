//! When the sweep visits all leaves again that nobody writes to: how long it rests from one lap to the next.
//!
//! Not for the work of a lap, which `maintenance` does.

use std::time::{Duration, Instant};

/// The pause behind a lap that found something to do, and behind one that found nothing, at least.
const PAUSE_WORKED: Duration = Duration::from_millis(200);
const PAUSE_IDLE: Duration = Duration::from_secs(1);
/// A large store has many leaves that need nothing. The pause is so many times as long as the lap looked at these, so
/// that it takes this part of a processor at most.
const PAUSE_FACTOR: u32 = 30;
/// Laps that count for leaves that nobody uses begin so far from each other at least.
const COUNTED_PAUSE: Duration = Duration::from_secs(1);
/// While leaves are written to, the pause is at most so many times as long as behind the last write.
const WRITTEN_FACTOR: u32 = 5;
/// The longest pause. Nothing is late meanwhile but bytes, as of expired records.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The laps of the sweep.
pub(crate) struct Laps {
    /// When the lap before ended.
    ended: Instant,
    /// How long the next lap waits once the last leaf that was written to is settled.
    pause: Duration,
    /// How long it waits otherwise. It doubles with each lap that finds nothing to do, so that a store that nobody
    /// writes to comes to rest, and writes alone cause no laps. A change that leaves no landing, such as another
    /// dictionary or a batch that was packed at once, then waits for as long.
    rest: Duration,
    /// Whether a part of the lap is done.
    has_begun: bool,
    /// Whether the lap counts for leaves that nobody uses, and when the last one that does began.
    counts: bool,
    counted: Option<Instant>,
    /// Whether the lap found something to do, and whether the lap before found nothing.
    worked: bool,
    found_nothing: bool,
    /// How long the lap looked at leaves that need nothing.
    looked: Duration,
}

impl Laps {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            ended: now,
            pause: PAUSE_WORKED,
            rest: PAUSE_WORKED,
            has_begun: false,
            counts: false,
            counted: None,
            worked: false,
            found_nothing: false,
            looked: Duration::ZERO,
        }
    }

    /// Whether a part of the lap is done.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether a lap is under way that has found nothing to do so far.
    pub(crate) fn look_in_vain(&self) -> bool {
        self.has_begun && !self.worked
    }

    /// Whether the last lap has ended and found nothing to do.
    pub(crate) fn have_found_nothing(&self) -> bool {
        self.found_nothing && !self.has_begun
    }

    /// When the next lap is due at the latest.
    #[cfg(all(test, not(miri), not(shuttle)))]
    pub(crate) fn latest_due(&self) -> Instant {
        self.ended + self.pause.max(self.rest)
    }

    /// Whether the next part of a lap is due, if leaves were settled since the lap before, or none was, and whether the
    /// store is at rest: none has a landing.
    pub(crate) fn is_due(&self, now: Instant, has_settled: bool, is_at_rest: bool) -> bool {
        let pause = match (has_settled, is_at_rest) {
            (true, true) => self.pause,
            (true, false) => self.rest.min(WRITTEN_FACTOR * self.pause),
            (false, _) => self.rest,
        };
        self.has_begun || now.duration_since(self.ended) >= pause
    }

    /// Whether the lap whose next part begins `now` counts for leaves that nobody uses. Between two laps that do is
    /// some time, in which leaves could be used.
    pub(crate) fn counts(&mut self, now: Instant) -> bool {
        if !self.has_begun {
            self.counts = self.counted.is_none_or(|counted| now.duration_since(counted) >= COUNTED_PAUSE);
            self.counted = if self.counts { Some(now) } else { self.counted };
        }
        self.counts
    }

    /// Notes a part of a lap: how long it looked at leaves that need nothing, and whether it found something to do.
    pub(crate) fn note_part(&mut self, looked: Duration, worked: bool) {
        self.has_begun = true;
        self.worked |= worked;
        self.looked += looked;
    }

    /// Notes the end of a lap; `has_expiring` says whether it met records that are going to expire.
    pub(crate) fn end(&mut self, now: Instant, has_expiring: bool) {
        let least = if self.worked { PAUSE_WORKED } else { PAUSE_IDLE };
        let pause = (self.looked * PAUSE_FACTOR).clamp(least, PAUSE_MAX);
        let rest = if self.worked || has_expiring { pause } else { pause.max(2 * self.rest).min(PAUSE_MAX) };
        *self = Self { pause, rest, counted: self.counted, found_nothing: !self.worked, ..Self::new(now) };
    }
}

#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use super::*;

    /// The parts of a lap, and the pauses behind it when the store came to rest and when it did not.
    type Case<'a> = (&'a [(Duration, bool)], Duration, Duration);

    fn assert_pauses(laps: &mut Laps, cases: &[Case<'_>]) {
        let mut now = laps.ended;
        for (parts, pause, rest) in cases {
            for (looked, worked) in *parts {
                laps.note_part(*looked, *worked);
                assert!(laps.is_due(now, false, false), "a lap goes on");
            }
            laps.end(now, false);
            let written = (*rest).min(WRITTEN_FACTOR * *pause);
            for (pause, has_settled, is_at_rest) in
                [(*pause, true, true), (written, true, false), (*rest, false, true)]
            {
                let is_due = |after| laps.is_due(now + after, has_settled, is_at_rest);
                assert!(!is_due(pause - Duration::from_nanos(1)) && is_due(pause), "{parts:?}");
            }
            now += *rest;
        }
    }

    #[test]
    fn looking_at_leaves_that_need_nothing_takes_little_of_a_processor() {
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        let mut laps = Laps::new(Instant::now());
        assert_pauses(
            &mut laps,
            &[
                (&[(millis(1), true)], PAUSE_WORKED, PAUSE_WORKED),
                (&[(millis(1), false)], PAUSE_IDLE, PAUSE_IDLE),
                // All leaves get another dictionary.
                (&[(millis(1), true); 2], PAUSE_WORKED, PAUSE_WORKED),
                (&[(millis(100), false), (millis(400), false)], seconds(15), seconds(15)),
                // One of many leaves is filled.
                (
                    &[(millis(100), false), (millis(9), true), (millis(400), false)],
                    millis(15_270),
                    millis(15_270),
                ),
                (&[(seconds(20), false)], PAUSE_MAX, PAUSE_MAX),
            ],
        );
    }

    #[test]
    fn laps_that_count_leave_time_in_which_a_leaf_may_be_used() {
        let began = Instant::now();
        let mut laps = Laps::new(began);
        let counted = [0, 300, 999, 1000, 1500, 2000].map(|millis| {
            let now = began + Duration::from_millis(millis);
            let counts = laps.counts(now);
            laps.note_part(Duration::ZERO, true);
            assert_eq!(laps.counts(now + PAUSE_MAX), counts, "all parts of a lap count, or none");
            laps.end(now, false);
            counts
        });
        assert_eq!(counted, [true, false, false, true, false, true]);
    }

    #[test]
    fn a_store_that_nobody_writes_to_comes_to_rest() {
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        let idle: &[(Duration, bool)] = &[(millis(3), false)];
        let mut laps = Laps::new(Instant::now());
        let doubled = [1, 2, 4, 8, 16, 32, 60, 60].map(|rest| (idle, PAUSE_IDLE, seconds(rest)));
        assert_pauses(&mut laps, &doubled);
        assert_pauses(&mut laps, &[(&[(millis(1), true)], PAUSE_WORKED, PAUSE_WORKED)]);
        assert_pauses(&mut laps, &doubled[..3]);
        let now = laps.ended;
        laps.note_part(millis(3), false);
        laps.end(now, true);
        assert!(laps.is_due(now + PAUSE_IDLE, false, true), "records that expire take memory");
    }
}
