//! What a store does when DRAM runs short, before it refuses a write: cold leaves go to the next place. When that is full, or there is none, a
//! store that may evict does (`evict`).
//!
//! A *hand* goes round the leaves in key order. Above the high watermark a background thread moves it on until DRAM use is below the low one;
//! writers wake it, help when it does not keep up, and move it themselves at the limit. It takes what is least missed first: settled leaves that
//! nobody reads, then those that are written to, then any.
//!
//! What happens to a leaf that it takes is the business of `moving`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_epoch::{Guard, pin};

use crate::Error;
use crate::core::Core;
use crate::leaf::{Leaf, LeafState};
use crate::moving::Demoted;
use crate::packing::Goal;
use crate::sync::{Mutex, back_off};

/// The watermarks lie so many parts of the limit below it. Moving a leaf takes some microseconds, so that little room bridges the time until the
/// background thread is awake.
const LOW_PART: u64 = 8;
const HIGH_PART: u64 = 16;
const HELP_PART: u64 = 32;
/// Leaves that are looked at, and the bytes that are moved, under one guard of the epoch: what is moved is free only when that is given back.
const STEP_LEAVES: usize = 256;
const STEP_BYTES_MIN: u64 = 16 << 10;
const STEP_BYTES_MAX: u64 = 256 << 10;
const STEP_PART: u64 = 64;
/// A lap that moved less than one part in so many of what DRAM has of bodies makes the hand less choosy.
const LAP_PART: u64 = 32;
/// How long nothing is tried after a lap that moved nothing at all, or a place that was full.
const PAUSE: Duration = Duration::from_millis(20);
/// Rounds that a writer waits for room at most, about a second.
const ROUNDS_MAX: u32 = 20_000;

/// Where the hand is, and what the tierer asks of it.
#[derive(Default)]
pub(crate) struct Pressure {
    hand: Mutex<Hand>,
    /// A background thread was woken and has not looked since.
    called: AtomicBool,
    /// The hand's last lap found nothing in DRAM to move, and it moved nothing since.
    dry: AtomicBool,
    /// The high watermark was passed, and the low one was not reached since.
    easing: AtomicBool,
    /// Bytes of hot leaves for which the tierer found no room in DRAM.
    wanted_bytes: AtomicU64,
    /// Counted reads per record below which a leaf does not belong in DRAM, as the bits of a float.
    cold_below: AtomicU64,
}

#[derive(Default)]
struct Hand {
    /// Lowest key of the next leaf.
    cursor: Vec<u8>,
    reach: Reach,
    /// Bytes freed in this lap.
    freed_bytes: u64,
    /// Since when there is nothing to move, or nowhere to move it to.
    stuck: Option<Instant>,
    /// It was the place that had no room.
    full: bool,
}

/// Which leaves the hand takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// Settled ones that are read less than others.
    #[default]
    Cold,
    /// Those, and such as are written to.
    Written,
    /// Every leaf that holds a body or a landing in DRAM.
    Any,
}

/// Bytes of DRAM use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watermarks {
    /// Down to here leaves are demoted, and up to here hot ones come back.
    pub(crate) low: u64,
    /// From here on leaves are demoted.
    pub(crate) high: u64,
    /// From here on writers do it, too.
    help: u64,
}

impl Pressure {
    /// Asks for room in DRAM for hot leaves of so many bytes, if colder ones can make it.
    pub(crate) fn want(&self, bytes: u64) {
        self.wanted_bytes.store(bytes, Relaxed);
    }

    /// Whether a background thread was called already; it is from now on.
    pub(crate) fn is_called(&self) -> bool {
        self.called.swap(true, Relaxed)
    }

    pub(crate) fn cold_below(&self) -> f64 {
        f64::from_bits(self.cold_below.load(Relaxed))
    }

    pub(crate) fn set_cold_below(&self, heat: f64) {
        self.cold_below.store(heat.to_bits(), Relaxed);
    }
}

impl Hand {
    fn is_stuck(&self) -> bool {
        self.stuck.is_some_and(|since| since.elapsed() < PAUSE)
    }

    /// The hand came round; `bodies` bytes of bodies are in DRAM.
    fn end_lap(&mut self, bodies: u64) {
        self.cursor.clear();
        let freed_bytes = std::mem::take(&mut self.freed_bytes);
        self.reach = match self.reach {
            Reach::Any if freed_bytes == 0 => {
                (self.stuck, self.full) = (Some(Instant::now()), false);
                Reach::Any
            }
            // With no body left in DRAM it is landings that are to be had.
            reach if bodies == 0 || freed_bytes < bodies / LAP_PART => reach.wider(),
            Reach::Any => Reach::Written,
            _ => Reach::Cold,
        };
    }
}

impl Reach {
    fn wider(self) -> Self {
        match self {
            Self::Cold => Self::Written,
            Self::Written | Self::Any => Self::Any,
        }
    }
}

impl Core {
    /// Changes the limit of DRAM; `None` lifts it.
    pub(crate) fn set_memory_limit(&self, bytes: Option<u64>) {
        self.gauges.set_limit(bytes);
        if self.far.is_some() && self.gauges.held() > self.watermarks().high {
            self.call_packer();
        }
    }

    pub(crate) fn watermarks(&self) -> Watermarks {
        let limit = self.gauges.limit();
        let below = |part| if limit == u64::MAX { limit } else { limit - limit / part };
        Watermarks { low: below(LOW_PART), high: below(HIGH_PART), help: below(HELP_PART) }
    }

    /// Whether DRAM is so short that nothing should come there without need.
    pub(crate) fn is_short(&self) -> bool {
        self.far.is_some() && self.gauges.held() > self.watermarks().low
    }

    /// Bytes of bodies in DRAM.
    pub(crate) fn body_bytes(&self) -> u64 {
        [&self.gauges.raw_body, &self.gauges.coded_body, &self.gauges.packed_body]
            .iter()
            .map(|gauge| gauge.held())
            .sum()
    }

    /// Bytes of DRAM that a background thread may make free for work of its own: a quarter of all bodies.
    pub(crate) fn movable_bytes(&self) -> u64 {
        let can_move = self.has_background && self.far.as_ref().is_some_and(|far| !far.is_full());
        if can_move { self.body_bytes() / 4 } else { 0 }
    }

    /// Does a part of what pressure asks for, on a background thread; `false` when there is nothing to do. The caller holds no guard.
    pub(crate) fn relieve(&self) -> bool {
        if self.far.is_none() {
            return false;
        }
        self.pressure.called.store(false, Relaxed);
        let (held, marks) = (self.gauges.held(), self.watermarks());
        let wanted = self.pressure.wanted_bytes.load(Relaxed);
        let easing = held > if self.pressure.easing.load(Relaxed) { marks.low } else { marks.high };
        self.pressure.easing.store(easing, Relaxed);
        if !easing && (wanted == 0 || held + wanted <= marks.low) {
            return false;
        }
        // A leaf that is packed before it goes needs room for a moment, until its old body is freed.
        self.wait_for_retired();
        let Some(mut hand) = self.pressure.hand.try_lock() else { return false };
        let for_hot = !easing;
        if for_hot {
            hand.reach = Reach::Cold;
        }
        let moved = self.move_hand(&mut hand, (held + wanted).saturating_sub(marks.low), held <= marks.help);
        if for_hot && hand.reach > Reach::Cold {
            // Only cold leaves make room for hot ones, and there are no more.
            self.pressure.want(0);
        }
        drop(hand);
        self.reclaim();
        moved
    }

    /// Between two writes of a thread that holds no guard: has room made where little is left.
    pub(crate) fn ease(&self) {
        if self.far.is_some() {
            self.demote_some();
        }
        self.evict_some();
    }

    fn demote_some(&self) {
        let (held, marks) = (self.gauges.held(), self.watermarks());
        if held <= marks.high {
            return;
        }
        if self.has_background {
            self.call_packer();
            if held <= marks.help {
                return;
            }
        }
        if let Some(mut hand) = self.pressure.hand.try_lock() {
            self.move_hand(&mut hand, STEP_BYTES_MIN, false);
        }
        self.wait_for_retired();
    }

    /// Whether far memory takes what has no room in DRAM: then nothing is evicted.
    pub(crate) fn has_lower_place(&self) -> bool {
        self.far.as_ref().is_some_and(|far| !far.is_full()) && !self.pressure.dry.load(Relaxed)
    }

    /// As [`Core::admit`], but makes room first if that is all that lacks: leaves are demoted, and records that no lower place takes are
    /// evicted where that is allowed. The caller holds no guard and no lock.
    pub(crate) fn make_room(&self, bytes: usize) -> Result<(), Error> {
        for round in 0..ROUNDS_MAX {
            let Err(refusal) = self.admit(bytes) else { return Ok(()) };
            let Error::MemoryLimit { limit_bytes, used_bytes } = refusal else { return Err(refusal) };
            let over_bytes = used_bytes.saturating_add(bytes as u64).saturating_sub(limit_bytes);
            if !self.demote_for(over_bytes) && !self.evict_for(bytes as u64) {
                return Err(self.refusal(limit_bytes, used_bytes));
            }
            self.reclaim();
            back_off(round);
        }
        self.admit(bytes)
    }

    /// Demotes for a writer that lacks `over_bytes`; `false` when there is no hope of them.
    fn demote_for(&self, over_bytes: u64) -> bool {
        if self.far.is_none() {
            return false;
        }
        let movable_bytes = self.body_bytes() + self.gauges.landing.held() + self.gauges.large.held();
        self.wait_for_retired();
        let mut hopeless = over_bytes > movable_bytes + self.gauges.retired.held();
        if let Some(mut hand) = self.pressure.hand.try_lock() {
            if hand.full && self.eviction.is_some() && self.has_lower_place() {
                // What was evicted has made room below.
                hand.stuck = None;
            }
            hopeless |= !self.move_hand(&mut hand, over_bytes, false) && self.gauges.retired.held() == 0;
        }
        !hopeless
    }

    fn refusal(&self, limit_bytes: u64, used_bytes: u64) -> Error {
        let Some(far) = self.far.as_ref().map(|far| far.usage()) else {
            return Error::MemoryLimit { limit_bytes, used_bytes };
        };
        Error::MemoryAndFarLimit {
            limit_bytes,
            used_bytes,
            far_limit_bytes: far.capacity_bytes,
            far_used_bytes: far.used_bytes,
        }
    }

    /// Moves the hand on until it freed about `wanted` bytes, or for a step; `false` when it is stuck. With `time` to spare, leaves are
    /// brought to their dense form first.
    fn move_hand(&self, hand: &mut Hand, wanted: u64, time: bool) -> bool {
        if hand.is_stuck() {
            return false;
        }
        let step = (self.gauges.limit() / STEP_PART).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX).min(wanted.max(1));
        let (mut freed, mut moved) = (0, false);
        let guard = pin();
        for _ in 0..STEP_LEAVES {
            if freed >= step {
                break;
            }
            let (leaf, _) = self.locate(&hand.cursor, &guard);
            match self.press(leaf, hand.reach, time, &guard) {
                Demoted::Freed(bytes) => freed += bytes,
                Demoted::Kept => {}
                Demoted::Full => {
                    (hand.stuck, hand.full) = (Some(Instant::now()), true);
                    break;
                }
            }
            match &leaf.state(&guard).high {
                Some(high) => {
                    hand.cursor.clear();
                    hand.cursor.extend_from_slice(high);
                }
                None => {
                    moved |= freed > 0;
                    hand.freed_bytes += std::mem::take(&mut freed);
                    hand.end_lap(self.body_bytes());
                    break;
                }
            }
        }
        hand.freed_bytes += freed;
        moved |= freed > 0;
        if moved || hand.is_stuck() {
            self.pressure.dry.store(!moved && !hand.full, Relaxed);
        }
        guard.flush();
        !hand.is_stuck()
    }

    /// Demotes `leaf` if it is within reach.
    fn press(&self, leaf: &Leaf, reach: Reach, time: bool, guard: &Guard) -> Demoted {
        let state = leaf.state(guard);
        let in_dram = !state.body.is_far() && !state.body.is_empty();
        let unsettled = state.is_unsettled();
        let taken = match reach {
            Reach::Cold => in_dram && !unsettled && self.is_cold(leaf, state),
            Reach::Written => (in_dram || self.holds_large(state)) && self.is_cold(leaf, state),
            Reach::Any => in_dram || unsettled || self.holds_large(state),
        };
        if !taken || state.closed {
            return Demoted::Kept;
        }
        let Some(_ownership) = leaf.try_own() else { return Demoted::Kept };
        let landing_bytes = state.landings().map(|landing| landing.held_bytes() as u64).sum::<u64>();
        if unsettled {
            self.settle_leaf(leaf, Goal::Keep, guard);
        } else if time && self.is_loose(state) {
            self.settle_leaf(leaf, Goal::Recode, guard);
        }
        match self.demote(leaf, guard) {
            Demoted::Freed(bytes) => Demoted::Freed(bytes + landing_bytes),
            Demoted::Kept if unsettled => Demoted::Freed(landing_bytes),
            outcome => outcome,
        }
    }

    /// Whether `leaf` is read less than what DRAM has room for.
    fn is_cold(&self, leaf: &Leaf, state: &LeafState) -> bool {
        let counts = leaf.clock.counts();
        let heat = f64::from(counts) / state.body.len().max(1) as f64;
        !leaf.is_warm() && (counts == 0 || heat < self.pressure.cold_below())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_hand_widens_its_reach_until_it_is_stuck() {
        let mut hand = Hand::default();
        for (freed_bytes, bodies, reach, stuck) in [
            (500, 1000, Reach::Cold, false),
            (0, 1000, Reach::Written, false),
            (500, 1000, Reach::Cold, false),
            (0, 0, Reach::Written, false),
            (0, 0, Reach::Any, false),
            (10, 0, Reach::Any, false),
            (500, 1000, Reach::Written, false),
            (0, 1000, Reach::Any, false),
            (0, 1000, Reach::Any, true),
        ] {
            hand.freed_bytes = freed_bytes;
            hand.end_lap(bodies);
            assert_eq!((hand.reach, hand.stuck.is_some()), (reach, stuck), "{freed_bytes} of {bodies}");
        }
    }
}
