//! Who goes to SSD when memory runs short: a hand goes round the leaves, and takes what is least missed first.
//!
//! First settled leaves that nobody read since the hand last came by, and cold leaves whose upper body is large enough to pay for
//! being merged; if that is not enough, any. Writers at the limit move the hand themselves.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossbeam_epoch::pin;
use ziptier_media::segments::SegmentError;

use super::upper::{has_grown, pays};
use crate::Error;
use crate::core::Core;
use crate::leaf::Leaf;
use crate::sync::back_off;

/// Above so much of the limit a background thread sends leaves to SSD, and down to so much. Between them and the limit there is room
/// for the moment until it is awake.
const HIGH_PART: u64 = 16;
const LOW_PART: u64 = 10;
/// So close to the limit, writers help.
const HELP_PART: u64 = 32;
/// Leaves that the hand looks at before somebody else may have it.
const STEP_LEAVES: usize = 64;
/// A lap that freed less than one part in so many of what is held makes the hand less choosy.
const LAP_PART: u64 = 32;
/// How long nothing is tried after a lap that gave nothing.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a writer waits before it looks whether a checkpoint gave room.
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// Rounds that a writer waits for room at most, about a second.
const ROUNDS_MAX: u32 = 20_000;

/// Where the hand is.
#[derive(Default)]
pub(super) struct Hand {
    cursor: Vec<u8>,
    reach: Reach,
    freed_bytes: u64,
    /// The leaf that was sent last: the next one may be joined with it.
    sent: Option<Arc<Leaf>>,
    /// When a lap that took any leaf gave nothing.
    stuck: Option<Instant>,
}

/// Which leaves the hand takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// Settled ones that nobody read lately, and upper bodies that pay for their merge.
    #[default]
    Cold,
    /// All ordinary ones, upper bodies of half that size, and landings of the others.
    Written,
    /// Whatever holds a record in memory.
    Any,
}

impl Reach {
    /// What the next lap takes when this one freed a share of what is held, or less.
    fn after(self, freed_bytes: u64, held: u64) -> Self {
        match (self, freed_bytes < held / LAP_PART) {
            (Self::Cold, true) => Self::Written,
            (_, true) => Self::Any,
            (Self::Any, false) => Self::Written,
            (_, false) => Self::Cold,
        }
    }
}

impl Core {
    /// The limit less one part of it.
    fn below_limit(&self, part: u64) -> u64 {
        let limit = self.gauges.limit();
        if limit == u64::MAX { limit } else { limit - limit / part }
    }

    /// Whether memory is so full that leaves go to SSD.
    pub(super) fn is_pressed(&self) -> bool {
        self.gauges.held() > self.below_limit(HIGH_PART)
    }

    /// Whether `bytes` more leave memory less full than what leaves are sent away for.
    pub(crate) fn has_memory_for(&self, bytes: u64) -> bool {
        self.gauges.held() + bytes < self.below_limit(LOW_PART)
    }

    /// Whether a record may be copied up.
    pub(super) fn may_copy_up(&self) -> bool {
        self.gauges.held() < self.below_limit(HELP_PART)
    }

    /// Does a part of what is to be done for the SSD, on a background thread; `false` when there is nothing. The caller holds no
    /// guard.
    pub(crate) fn relieve(&self) -> bool {
        if self.cold.is_none() {
            return false;
        }
        let merged = self.merge_grown();
        if !self.is_pressed() {
            return merged;
        }
        let over = self.gauges.held().saturating_sub(self.below_limit(LOW_PART));
        let moved = self.send_coldest(over);
        self.reclaim();
        moved
    }

    /// Between two writes of a thread that holds no guard: makes room where little is left.
    pub(crate) fn ease(&self) {
        if self.cold.is_none() {
            return;
        }
        if !self.has_background {
            self.merge_grown();
        }
        let part = if self.has_background { HELP_PART } else { HIGH_PART };
        if self.gauges.held() > self.below_limit(part) {
            self.send_coldest(1);
            self.reclaim();
        } else if self.is_pressed() {
            self.queue.wake();
        }
    }

    /// Sends leaves to SSD until memory is below its limit, or nothing more goes: a recovery writes without asking. The caller holds no
    /// guard.
    pub(crate) fn keep_to_limit(&self) {
        if self.cold.is_none() {
            return;
        }
        for round in 0..ROUNDS_MAX {
            let over = self.gauges.held().saturating_sub(self.below_limit(HIGH_PART));
            if over == 0 || !self.send_coldest(over) {
                return;
            }
            self.reclaim();
            back_off(round);
        }
    }

    /// As [`Core::admit`], but sends leaves to SSD first. The caller holds no guard and no lock.
    pub(crate) fn send_down_for(&self, bytes: usize) -> Result<(), Error> {
        let mut has_waited = false;
        for round in 0..ROUNDS_MAX {
            let refused = self.admit(bytes);
            let Err(Error::MemoryLimit { limit_bytes, used_bytes }) = &refused else { return refused };
            let over = used_bytes + bytes as u64 - limit_bytes;
            let is_moving = self.send_coldest(over) || self.gauges.retired.held() >= over;
            self.reclaim();
            match self.checkpointer.get() {
                // What dies there is free after a checkpoint.
                Some(checkpointer) if checkpointer.is_awaited() => {
                    std::thread::sleep(ROOM_PAUSE);
                    has_waited = true;
                }
                _ if is_moving => back_off(round),
                // The hand may still rest.
                _ if std::mem::take(&mut has_waited) => std::thread::sleep(PAUSE),
                _ => return refused,
            }
        }
        self.admit(bytes)
    }

    /// Moves the hand on until about `wanted` bytes of memory are free or will be, or for a step; `false` when all leaves together
    /// gave nothing, or the SSD takes nothing.
    pub(crate) fn send_coldest(&self, wanted: u64) -> bool {
        let Some(cold) = &self.cold else { return false };
        self.clean_ssd();
        // Somebody else is at it.
        let Some(mut hand) = cold.hand.lock().take() else { return true };
        if hand.stuck.is_some_and(|since| since.elapsed() < PAUSE) {
            *cold.hand.lock() = Some(hand);
            return false;
        }
        let (mut freed, mut refused, mut is_stuck) = (0, false, false);
        for _ in 0..STEP_LEAVES {
            let (leaf, next) = self.share_at(&hand.cursor);
            match self.send(&leaf, hand.reach) {
                Ok(bytes) => {
                    freed += bytes;
                    hand.sent = self.join_sent(hand.sent.take(), leaf);
                }
                // Full or failed: memory goes on with what it has.
                Err(_) => refused |= !self.clean_ssd(),
            }
            hand.cursor = next.as_deref().unwrap_or_default().to_vec();
            if next.is_none() {
                let in_lap = std::mem::take(&mut hand.freed_bytes) + freed;
                is_stuck = hand.reach == Reach::Any && in_lap == 0;
                hand.reach = hand.reach.after(in_lap, self.gauges.held());
                hand.sent = None;
                break;
            }
            if freed >= wanted {
                break;
            }
        }
        hand.stuck = is_stuck.then(Instant::now);
        hand.freed_bytes += freed;
        *cold.hand.lock() = Some(hand);
        cold.is_refused.store(refused, Relaxed);
        freed > 0 || !(is_stuck || refused)
    }

    /// Sends a leaf, if its time has come; about how many bytes of memory that frees.
    fn send(&self, leaf: &Leaf, reach: Reach) -> Result<u64, SegmentError> {
        let (bytes, landings) = {
            let guard = pin();
            let state = leaf.state(&guard);
            let landings: usize = state.landings().map(|landing| landing.held_bytes()).sum();
            let counts = leaf.clock.counts();
            leaf.clock.decay(false);
            let is_taken = match (&state.below, reach) {
                (_, Reach::Any) => true,
                (None, Reach::Written) => true,
                (None, Reach::Cold) => counts == 0 && !state.is_unsettled(),
                (Some(_), Reach::Written) => pays(state, 2) || state.is_unsettled(),
                (Some(_), Reach::Cold) => pays(state, 1),
            };
            if state.closed || !is_taken || (state.body.is_empty() && landings == 0) {
                return Ok(0);
            }
            if state.below.is_some() && reach == Reach::Written && !pays(state, 2) {
                (None, landings)
            } else {
                (Some(state.body.asked_bytes()), landings)
            }
        };
        match bytes {
            Some(bytes) => Ok(if self.demote_to_ssd(leaf)? { (bytes + landings) as u64 } else { 0 }),
            // Its landing goes into the upper body.
            None => {
                let settled = leaf.try_own().and_then(|_ownership| self.settle_owned(leaf));
                Ok(settled.map_or(0, |_| landings as u64))
            }
        }
    }

    /// Joins a leaf with the one that was sent before it, if it is the neighbour; what the next one may be joined with.
    fn join_sent(&self, before: Option<Arc<Leaf>>, leaf: Arc<Leaf>) -> Option<Arc<Leaf>> {
        let Some(before) = before else { return Some(leaf) };
        let guard = pin();
        let joined = before.try_own().is_some_and(|_ownership| {
            before.state(&guard).below.is_some()
                && !before.state(&guard).closed
                && self.join_cold(&before, &guard)
        });
        Some(if joined { before } else { leaf })
    }

    /// Merges the upper body of a leaf that has outgrown what lies below, or brings that leaf back, if there is room; `true` when
    /// there was one. The caller holds no guard.
    fn merge_grown(&self) -> bool {
        let Some(cold) = &self.cold else { return false };
        let Some(leaf) = cold.grown.lock().pop_front() else { return false };
        let bytes = {
            let guard = pin();
            let state = leaf.state(&guard);
            if !has_grown(state) {
                return true;
            }
            state.below.as_ref().map_or(0, |below| 2 * below.ssd_bytes())
        };
        // What cannot be written now stays in memory, and is noted again when it grows on.
        if !(self.has_memory_for(bytes) && self.raise_leaf(&leaf)) {
            let _ = self.demote_to_ssd(&leaf);
        }
        true
    }
}
