//! The clock hands: one goes round the leaves in key order for DRAM, one for far memory. Each demotes the leaves that
//! are read least.
//!
//! Not for deciding when a leaf is demoted: `pressure` moves a hand when the hand's place is short.
//!
//! 1. A thread takes a hand out of its slot, so only one thread moves the hand at a time. The thread holds no lock and
//!    no guard while it writes a leaf to SSD.
//! 2. The hand demotes each leaf within its *reach*. At first these are settled leaves that are read less than others.
//! 3. A cycle that freed little widens the reach. A cycle that freed more narrows it again.
//! 4. A hand whose whole cycle freed nothing is *stuck*. It declines to move some times before it tries again.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ziptier_media::placement::Side;

use crate::core::Core;
use crate::leaf::{Leaf, LeafState};
use crate::packing::Goal;
use crate::places::Pick;
use crate::places::far::FarMemory;
use crate::places::ssd::{Went, pays};
use crate::sync::Mutex;
use crate::tierer::heat;

/// Leaves that a step looks at, and bytes that it demotes, before another thread may have the hand. Demoted bytes are
/// free only some steps of the epoch later.
const STEP_LEAVES: usize = 256;
const STEP_BYTES_MIN: u64 = 16 << 10;
const STEP_BYTES_MAX: u64 = 256 << 10;
const STEP_PART: u64 = 64;
/// Leaves that an SSD refuses in a step, before the others are not asked. A writer that comes after a refusal asks for
/// one.
const REFUSALS_MAX: usize = 64;
/// A cycle that freed less than one part in so many of the bytes there widens the reach of the hand.
const LAP_PART: u64 = 32;
/// After a cycle that freed nothing, or a place that was full, the hand is asked so often before it tries again.
const ASKED_MAX: u32 = 16;

/// The place that leaves are demoted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Dram,
    Far,
}

/// The outcome of demoting a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// So many bytes of the place where it was are free when their last reader is gone.
    Freed(u64),
    /// There was nothing to demote.
    Kept,
    /// Another thread owned the leaf.
    Busy,
    /// No place below has room.
    Full,
}

/// The purpose of moving a hand.
#[derive(Clone, Copy)]
pub(super) struct Move {
    pub(super) source: Source,
    /// Bytes that are wanted.
    pub(super) bytes: u64,
    /// Leaves are brought to their dense form before they go.
    pub(super) has_time: bool,
    /// Hotter leaves want the room, so only cold ones are demoted.
    pub(super) for_hot: bool,
}

impl Move {
    /// Out of DRAM, for a thread that waits.
    pub(super) fn of(bytes: u64) -> Self {
        Self { source: Source::Dram, bytes, has_time: false, for_hot: false }
    }
}

/// The outcome of moving a hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// Something went down, or may at the next step.
    On,
    /// Another thread moves it, or is at the leaf that would go.
    Taken,
    /// All leaves together gave nothing, or no place below takes anything.
    Stuck,
}

/// The hands of all places that have one below.
pub(super) struct Hands([Mutex<Option<Hand>>; 2]);

/// A hand that a thread moves.
pub(super) struct TakenHand<'a> {
    place: &'a Mutex<Option<Hand>>,
    hand: Hand,
}

impl Hands {
    /// Takes the hand of `source`, which its taker moves and gives back by dropping it. `None` while another thread has
    /// it.
    pub(super) fn take(&self, source: Source) -> Option<TakenHand<'_>> {
        let place = &self.0[source as usize];
        let hand = place.lock().take()?;
        Some(TakenHand { place, hand })
    }

    /// Lets the hand of `source` try again at once: there may be more to send since it came to nothing.
    pub(super) fn free(&self, source: Source) {
        if let Some(hand) = self.0[source as usize].lock().as_mut() {
            hand.stuck = None;
        }
    }

    /// Whether a thread moves the hand of `source`.
    pub(super) fn is_taken(&self, source: Source) -> bool {
        self.0[source as usize].lock().is_none()
    }
}

impl Drop for TakenHand<'_> {
    fn drop(&mut self) {
        *self.place.lock() = Some(std::mem::take(&mut self.hand));
    }
}

impl Default for Hands {
    fn default() -> Self {
        Self([Source::Dram, Source::Far].map(|_| Mutex::new(Some(Hand::default()))))
    }
}

#[derive(Default)]
struct Hand {
    /// Lowest key of the next leaf.
    cursor: Vec<u8>,
    reach: Reach,
    /// Bytes freed in this cycle.
    freed_bytes: u64,
    /// In this cycle, another thread owned a leaf that was to go.
    busy: bool,
    /// The leaf that was looked at last: the next one may be joined with it if both are on SSD.
    before: Option<Arc<Leaf>>,
    /// There was nothing to demote, or no place to demote it to.
    stuck: Option<Stuck>,
    /// It was the place that had no room.
    full: bool,
}

/// How often a hand was asked since it came to nothing, and how many bytes its place could have given.
struct Stuck {
    asked: u32,
    held_bytes: u64,
}

/// Which leaves the hand takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// Settled leaves that are read less than others, and cold leaves whose overlay pays for a compaction.
    #[default]
    Cold,
    /// Also leaves that are written to. On their way to SSD: all leaves but cold ones whose overlay would have to be
    /// merged.
    Written,
    /// Every leaf that holds a body or a landing.
    Any,
}

impl Reach {
    fn wider(self) -> Self {
        match self {
            Self::Cold => Self::Written,
            Self::Written | Self::Any => Self::Any,
        }
    }

    /// The large values that are taken, in whatever leaf.
    fn pick(self) -> Pick {
        match self {
            Self::Cold | Self::Written => Pick::Unread,
            Self::Any => Pick::LeastRead,
        }
    }
}

impl Source {
    fn side(self) -> Side {
        match self {
            Self::Dram => Side::Dram,
            Self::Far => Side::Far,
        }
    }
}

impl Hand {
    /// Whether moving the hand is of no use yet, with so many bytes to give. Much may have come meanwhile that can be
    /// demoted.
    fn is_stuck(&mut self, held_bytes: u64) -> bool {
        self.stuck.as_mut().is_some_and(|stuck| {
            stuck.asked += 1;
            stuck.asked < ASKED_MAX && held_bytes <= stuck.held_bytes + stuck.held_bytes / LAP_PART
        })
    }

    fn get_stuck(&mut self, held_bytes: u64, full: bool) {
        self.stuck = Some(Stuck { asked: 0, held_bytes });
        self.full = full;
    }

    /// The hand came round; its place has so many bytes of bodies, and `held` bytes that it can give.
    fn end_lap(&mut self, bodies: u64, held: u64) {
        self.cursor.clear();
        self.before = None;
        let (freed_bytes, busy) = (std::mem::take(&mut self.freed_bytes), std::mem::take(&mut self.busy));
        self.reach = match self.reach {
            Reach::Any if freed_bytes == 0 => {
                if !busy {
                    self.get_stuck(held, false);
                }
                Reach::Any
            }
            // With no body left it is landings that are to be had.
            reach if bodies == 0 || freed_bytes < held / LAP_PART => reach.wider(),
            Reach::Any => Reach::Written,
            _ => Reach::Cold,
        };
    }
}

impl Core {
    /// Moves a hand on until about so many bytes are free or will be, or for a step. The caller holds no guard.
    pub(super) fn move_hand(&self, wish: Move) -> Moved {
        let Some(mut taken) = self.pressure.hands.take(wish.source) else { return Moved::Taken };
        let hand = &mut taken.hand;
        if hand.full && self.has_room_below() {
            // Bytes that were deleted, evicted or made smaller have made room below.
            hand.stuck = None;
        }
        let (_, held_bytes) = self.sendable_bytes(wish.source);
        if hand.is_stuck(held_bytes) { Moved::Stuck } else { self.move_taken(hand, wish) }
    }

    /// A step of a hand that is not stuck.
    fn move_taken(&self, hand: &mut Hand, wish: Move) -> Moved {
        hand.stuck = None;
        self.clean_ssd();
        if wish.for_hot {
            hand.reach = Reach::Cold;
        }
        let step_bytes =
            (self.gauges.limit() / STEP_PART).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX).min(wish.bytes.max(1));
        let (mut freed, mut refusals) = (0, 0);
        for _ in 0..STEP_LEAVES {
            let (leaf, next) = self.share_at(&hand.cursor);
            match self.send_down(&leaf, hand.reach, wish) {
                Sent::Freed(bytes) => {
                    freed += bytes;
                    hand.freed_bytes += bytes;
                }
                Sent::Kept => {}
                Sent::Busy => hand.busy = true,
                Sent::Full => refusals += usize::from(!self.clean_ssd()),
            }
            if self.cold.is_some() {
                hand.before = self.join_with(hand.before.take(), leaf);
            }
            let Some(next) = next else {
                let (bodies, held) = self.sendable_bytes(wish.source);
                hand.end_lap(bodies, held);
                break;
            };
            hand.cursor.clear();
            hand.cursor.extend_from_slice(&next);
            // An SSD without room may still take what makes leaves smaller.
            let has_hope = self.cold.is_some() && !self.pressure.exhausted.load(Relaxed);
            let refusals_max = if has_hope { REFUSALS_MAX } else { 1 };
            if freed >= step_bytes || refusals >= refusals_max {
                break;
            }
        }
        self.note_step(hand, wish, freed, refusals > 0)
    }

    /// Notes the outcome of a step.
    fn note_step(&self, hand: &mut Hand, wish: Move, freed: u64, full: bool) -> Moved {
        match &self.cold {
            Some(cold) if full => cold.is_refused.store(true, Relaxed),
            None if full => hand.get_stuck(self.sendable_bytes(wish.source).1, true),
            _ => {}
        }
        if wish.source == Source::Dram && (freed > 0 || hand.stuck.is_some()) {
            self.pressure.dry.store(freed == 0 && !full, Relaxed);
        }
        if freed > 0 {
            self.pressure.exhausted.store(false, Relaxed);
        }
        if wish.for_hot && hand.reach > Reach::Cold {
            // There are no more cold leaves.
            self.pressure.want(0);
        }
        self.pin().flush();
        match freed {
            1.. => Moved::On,
            0 if full || hand.stuck.is_some() => Moved::Stuck,
            0 if hand.busy => Moved::Taken,
            0 => Moved::On,
        }
    }

    /// Bytes of bodies in a place, and of everything that can be demoted from there.
    fn sendable_bytes(&self, source: Source) -> (u64, u64) {
        match source {
            Source::Dram => {
                let held = self.body_bytes() + self.gauges.landing.held() + self.sendable_large_bytes();
                (self.body_bytes(), held)
            }
            Source::Far => {
                let bodies = self.gauges.far_body.held();
                (bodies, bodies + self.gauges.far_large.held())
            }
        }
    }

    /// Bytes of large values in DRAM, unless they stay there.
    fn sendable_large_bytes(&self) -> u64 {
        let stay = self.far.as_ref().is_some_and(|far| far.is_placing());
        if stay { 0 } else { self.gauges.large.held() }
    }

    /// Sends `leaf`, of which the caller has a share, one place down if it is within reach.
    fn send_down(&self, leaf: &Leaf, reach: Reach, wish: Move) -> Sent {
        let sent = match (wish.source, &self.far) {
            (Source::Dram, Some(far)) => self.send_down_to_far(leaf, far, reach, wish.has_time),
            _ => Sent::Full,
        };
        let sent = if sent == Sent::Full { self.send_down_to_ssd(leaf, reach, wish.source) } else { sent };
        if wish.source == Source::Dram && (self.far.is_none() || !self.has_background) {
            // No tierer lets old reads decay.
            leaf.clock.decay(false);
        }
        let guard = self.pin();
        let larges = leaf.open_state(&guard).into_iter().flat_map(|state| state.body.larges());
        larges
            .filter(|large| large.reads() > 0 && large.bytes_on(wish.source.side()) > 0)
            .for_each(|large| large.forget_read());
        sent
    }

    fn send_down_to_far(&self, leaf: &Leaf, far: &FarMemory, reach: Reach, has_time: bool) -> Sent {
        let guard = &self.pin();
        // Another thread may have joined it with its neighbour since the caller took the share.
        let Some(state) = leaf.open_state(guard) else { return Sent::Kept };
        let unsettled = state.is_unsettled();
        let takes_body = match reach {
            Reach::Cold => is_in_dram(state) && !unsettled && self.is_cold(leaf, state),
            Reach::Written => is_in_dram(state) && self.is_cold(leaf, state),
            Reach::Any => is_in_dram(state) || unsettled,
        };
        let takes_larges = !far.is_placing() && reach.pick().any(state, Side::Dram);
        if !(takes_body || takes_larges) {
            return Sent::Kept;
        }
        let Some(_ownership) = leaf.try_own() else { return Sent::Busy };
        let landing_bytes = state.landing_bytes();
        let settles = takes_body && unsettled;
        let has_place = || match state.body.is_far() {
            true => self.has_place_for(&[state]),
            // A leaf that cannot move would only become larger.
            false => self.takes_bodies_of(far, state.body.dram_bytes() + landing_bytes as usize),
        };
        if settles && !has_place() {
            return Sent::Full;
        }
        if settles {
            self.settle_leaf(leaf, Goal::Keep, guard);
        } else if takes_body
            && has_time
            && let Some(goal) = self.denser(state)
        {
            self.settle_leaf(leaf, goal, guard);
        }
        match self.send_to_far(leaf, takes_body, reach.pick(), guard) {
            Sent::Freed(bytes) if settles => Sent::Freed(bytes + landing_bytes),
            Sent::Kept if settles => Sent::Freed(landing_bytes),
            outcome => outcome,
        }
    }

    fn send_down_to_ssd(&self, leaf: &Leaf, reach: Reach, source: Source) -> Sent {
        let Some(cold) = &self.cold else { return Sent::Full };
        let (pick, side) = (reach.pick(), source.side());
        let (takes_body, settles, body_bytes, landing_bytes) = {
            let guard = self.pin();
            let state = leaf.state(&guard);
            let takes_body = self.is_for_ssd(leaf, state, reach, source);
            if state.closed || !(takes_body || pick.any(state, side)) {
                return Sent::Kept;
            }
            let body_bytes =
                if source == Source::Far { state.body.far_bytes() } else { state.body.dram_bytes() };
            let settles = takes_body && state.below.is_some() && reach == Reach::Written && !pays(state, 2);
            (takes_body, settles, body_bytes as u64, state.landing_bytes())
        };
        if settles {
            // The landing goes into the overlay.
            let Some(ownership) = leaf.try_own() else { return Sent::Busy };
            let landing_bytes = self.settle_owned(leaf).map_or(0, |_| landing_bytes);
            // Writers must not wait while large values are written.
            drop(ownership);
            return match self.send_larges(leaf, pick, side) {
                Ok(large_bytes) if landing_bytes + large_bytes > 0 => {
                    Sent::Freed(landing_bytes + large_bytes)
                }
                Ok(_) => Sent::Kept,
                Err(_) => Sent::Full,
            };
        }
        let went = match takes_body {
            true => self.send_to_ssd(leaf, pick, side),
            false => self.send_larges(leaf, pick, side).map(|large_bytes| Went { leaf: false, large_bytes }),
        };
        match went {
            Ok(went) if went.any() => {
                if went.leaf {
                    cold.is_refused.store(false, Relaxed);
                }
                let leaf_bytes = if went.leaf { body_bytes + landing_bytes } else { 0 };
                Sent::Freed(leaf_bytes + went.large_bytes)
            }
            Ok(_) if leaf.is_owned() => Sent::Busy,
            Ok(_) => Sent::Kept,
            // The SSD is full or failed, so memory keeps the leaf.
            Err(_) => Sent::Full,
        }
    }

    /// Whether a leaf is within reach, on its way to SSD.
    fn is_for_ssd(&self, leaf: &Leaf, state: &LeafState, reach: Reach, source: Source) -> bool {
        let (has_body, unsettled) = match source {
            Source::Dram => (is_in_dram(state), state.is_unsettled()),
            Source::Far => (state.body.is_far(), false),
        };
        match (&state.below, reach) {
            (None, Reach::Cold) => has_body && !state.is_unsettled() && self.is_cold(leaf, state),
            (None, Reach::Written) | (_, Reach::Any) => has_body || unsettled,
            (Some(_), Reach::Cold) => has_body && pays(state, 1),
            (Some(_), Reach::Written) => (has_body && pays(state, 2)) || unsettled,
        }
    }

    /// Whether `leaf` is read less than what DRAM has room for.
    fn is_cold(&self, leaf: &Leaf, state: &LeafState) -> bool {
        !leaf.is_warm() && (leaf.clock.counts() == 0 || heat(leaf, state) < self.pressure.cold_below())
    }
}

fn is_in_dram(state: &LeafState) -> bool {
    !state.body.is_far() && !state.body.is_empty()
}

// No unsafe code comes this way, and there is an SSD: not for Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests_with_ssd;

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::options::{CodecChoice, Options};
    use crate::record::PutMeta;

    #[test]
    fn the_hand_widens_its_reach_until_it_is_stuck() {
        let mut hand = Hand::default();
        for (freed_bytes, bodies, busy, reach, stuck) in [
            (500, 1000, false, Reach::Cold, false),
            (0, 1000, false, Reach::Written, false),
            (500, 1000, false, Reach::Cold, false),
            (0, 0, false, Reach::Written, false),
            (0, 0, false, Reach::Any, false),
            (10, 0, false, Reach::Any, false),
            (500, 1000, false, Reach::Written, false),
            (0, 1000, false, Reach::Any, false),
            (0, 1000, true, Reach::Any, false),
            (0, 1000, false, Reach::Any, true),
        ] {
            (hand.freed_bytes, hand.busy) = (freed_bytes, busy);
            hand.end_lap(bodies, bodies);
            assert_eq!((hand.reach, hand.stuck.is_some()), (reach, stuck), "{freed_bytes} of {bodies}");
        }
        hand.get_stuck(1000, false);
        assert!(!hand.is_stuck(1100), "more came");
    }

    /// Freed memory mostly still reads as it was: Miri and ThreadSanitizer tell that it is read.
    #[test]
    fn a_leaf_that_was_joined_meanwhile_is_not_asked_for_its_large_values() {
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let core = Core::with_far(&options, FarMemory::on_heap(1 << 20));
        let put = |n: u8, len| core.put(&[n], &vec![n; len], PutMeta::default()).expect("no limit is set");
        // Too much for one body: two leaves, which are small after that.
        (0..6).for_each(|n| put(n, 2_000));
        core.settle();
        (0..6).for_each(|n| put(n, if n == 5 { 3_000 } else { 20 }));
        let leaf_of = |n: u8| core.share_at(&[n]).0;
        let (left, right) = (leaf_of(0), leaf_of(5));
        {
            let guard = core.pin();
            let ownership = right.try_own().expect("nobody maintains it");
            core.settle_leaf(&right, Goal::Keep, &guard);
            drop(ownership);
            let _ownership = left.try_own().expect("nobody maintains it");
            assert!(Core::with_scratch(|scratch| core.join_right(
                &left,
                &mut core.background_retention(),
                &guard,
                scratch
            )));
        }
        assert!(!Arc::ptr_eq(&left, &right) && Arc::ptr_eq(&left, &leaf_of(5)), "they were no neighbours");
        put(5, 20);
        core.settle();
        assert!(core.gauges.retired.held() < 3_000, "the value is not freed yet");
        let far = core.far.as_ref().expect("it has far memory");
        assert_eq!(core.send_down_to_far(&right, far, Reach::Any, false), Sent::Kept);
    }

    // A thousand records, which take long there.
    #[test]
    #[cfg(not(miri))]
    fn a_hand_goes_on_at_once_when_the_place_below_has_room_again() {
        let far = FarMemory::on_heap(64 << 10);
        let others = far.put(&[0; 60 << 10]).expect("there is room");
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let core = Core::with_far(&options, far);
        for n in 0u32..1000 {
            core.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
        }
        core.settle();
        let stuck = (0..1000).find(|_| core.move_hand(Move::of(1 << 20)) == Moved::Stuck);
        assert!(stuck.is_some(), "a body found room in 4 KiB");
        assert_eq!(core.stats.sent_to_far.get(), 0);
        drop(others);
        assert_eq!(core.move_hand(Move::of(1 << 20)), Moved::On);
        assert!(core.stats.sent_to_far.get() > 0);
    }
}
