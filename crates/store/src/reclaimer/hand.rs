//! The clock hands: one goes round the leaves in key order for DRAM, one for far memory. Each demotes the leaves that
//! are read least.
//!
//! Not for deciding when a leaf is demoted: the reclaimer moves a hand when the hand's place is short.
//!
//! 1. A thread takes a hand out of its slot, so only one thread moves the hand at a time. The thread holds no lock and
//!    no guard while it writes a leaf to SSD.
//! 2. The hand demotes each leaf within its *reach*. At first these are settled leaves that are read less than others.
//! 3. A cycle that freed little widens the reach. A cycle that freed more narrows it again.
//! 4. A hand whose whole cycle freed nothing is *stuck*. It declines to move some times before it tries again.

use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;

use ziptier_tree::far::FarMemory;
use ziptier_tree::leaf::{Leaf, LeafState, Place};
use ziptier_tree::placement::Side;
use ziptier_tree::sync::Mutex;
use ziptier_tree::tree::Tree;

use super::Pressure;
use crate::places::ssd::pays;
use crate::places::{Demoted, Moves, Parts, Pick};
use crate::room::Room;

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

/// The purpose of moving a hand.
#[derive(Clone, Copy)]
pub(super) struct Move {
    pub(super) source: Side,
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
        Self { source: Side::Dram, bytes, has_time: false, for_hot: false }
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
    pub(super) fn take(&self, source: Side) -> Option<TakenHand<'_>> {
        let place = &self.0[source as usize];
        let hand = place.lock().take()?;
        Some(TakenHand { place, hand })
    }

    /// Lets the hand of `source` try again at once: there may be more to send since it came to nothing.
    pub(super) fn free(&self, source: Side) {
        if let Some(hand) = self.0[source as usize].lock().as_mut() {
            hand.stuck = None;
        }
    }

    /// Whether a thread moves the hand of `source`.
    pub(super) fn is_taken(&self, source: Side) -> bool {
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
        Self([Side::Dram, Side::Far].map(|_| Mutex::new(Some(Hand::default()))))
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
    before: Weak<Leaf>,
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
        self.before = Weak::new();
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

/// Demotes leaves by the hands. See the module.
#[derive(Clone, Copy)]
pub(super) struct Demotions<'e> {
    pub(super) tree: &'e Tree,
    pub(super) room: Room<'e>,
    pub(super) moves: Moves<'e>,
    pub(super) pressure: &'e Pressure,
}

impl Demotions<'_> {
    /// Moves a hand on until about so many bytes are free or will be, or for a step. The caller holds no guard.
    pub(super) fn move_hand(&self, wish: Move) -> Moved {
        let Some(mut taken) = self.pressure.hands.take(wish.source) else { return Moved::Taken };
        let hand = &mut taken.hand;
        if hand.full && self.room.has_room_below() {
            // Bytes that were deleted, evicted or made smaller have made room below.
            hand.stuck = None;
        }
        let (_, held_bytes) = self.room.demotable_bytes(wish.source);
        if hand.is_stuck(held_bytes) { Moved::Stuck } else { self.move_taken(hand, wish) }
    }

    /// A step of a hand that is not stuck.
    fn move_taken(&self, hand: &mut Hand, wish: Move) -> Moved {
        hand.stuck = None;
        self.moves.clean_ssd();
        if wish.for_hot {
            hand.reach = Reach::Cold;
        }
        let step_bytes = (self.tree.gauges.limit() / STEP_PART)
            .clamp(STEP_BYTES_MIN, STEP_BYTES_MAX)
            .min(wish.bytes.max(1));
        let (mut freed, mut refusals) = (0, 0);
        for _ in 0..STEP_LEAVES {
            let (leaf, next) = self.tree.share_at(&hand.cursor);
            match self.demote_within(&leaf, hand.reach, wish) {
                Demoted::Freed(bytes) => {
                    freed += bytes;
                    hand.freed_bytes += bytes;
                }
                Demoted::Kept => {}
                Demoted::Busy => hand.busy = true,
                Demoted::Full => refusals += usize::from(!self.moves.clean_ssd()),
            }
            if self.moves.cold.is_some() {
                hand.before = self.moves.join_with(&hand.before, &leaf);
            }
            let Some(next) = next else {
                let (bodies, held) = self.room.demotable_bytes(wish.source);
                hand.end_lap(bodies, held);
                break;
            };
            hand.cursor.clear();
            hand.cursor.extend_from_slice(&next);
            // An SSD without room may still take what makes leaves smaller.
            let has_hope = self.moves.cold.is_some() && self.room.has_hope();
            let refusals_max = if has_hope { REFUSALS_MAX } else { 1 };
            if freed >= step_bytes || refusals >= refusals_max {
                break;
            }
        }
        self.note_step(hand, wish, freed, refusals > 0)
    }

    /// Notes the outcome of a step.
    fn note_step(&self, hand: &mut Hand, wish: Move, freed: u64, full: bool) -> Moved {
        match &self.moves.cold {
            Some(cold) if full => cold.is_refused.store(true, Relaxed),
            None if full => hand.get_stuck(self.room.demotable_bytes(wish.source).1, true),
            _ => {}
        }
        if wish.source == Side::Dram && (freed > 0 || hand.stuck.is_some()) {
            self.room.findings.dry.store(freed == 0 && !full, Relaxed);
        }
        if freed > 0 {
            self.room.findings.exhausted.store(false, Relaxed);
        }
        if wish.for_hot && hand.reach > Reach::Cold {
            // There are no more cold leaves.
            self.pressure.want(0);
        }
        self.tree.pin().flush();
        match freed {
            1.. => Moved::On,
            0 if full || hand.stuck.is_some() => Moved::Stuck,
            0 if hand.busy => Moved::Taken,
            0 => Moved::On,
        }
    }

    /// Demotes `leaf`, of which the caller has a share, to a place below if it is within reach.
    fn demote_within(&self, leaf: &Leaf, reach: Reach, wish: Move) -> Demoted {
        let demoted = match (wish.source, &self.tree.far) {
            (Side::Dram, Some(far)) => match self.parts_for_far(leaf, far, reach, wish.has_time) {
                Some(parts) => self.moves.demote(leaf, Place::Far, parts),
                None => Demoted::Kept,
            },
            _ => Demoted::Full,
        };
        let demoted = match demoted {
            Demoted::Full if self.moves.cold.is_some() => self.demote_within_to_ssd(leaf, reach, wish.source),
            demoted => demoted,
        };
        if wish.source == Side::Dram && (self.tree.far.is_none() || !self.room.has_background) {
            // No tierer lets old reads decay.
            leaf.reads.decay(false);
        }
        let guard = self.tree.pin();
        let larges = leaf.open_state(&guard).into_iter().flat_map(|state| state.body.larges());
        larges
            .filter(|large| large.reads() > 0 && large.bytes_on(wish.source) > 0)
            .for_each(|large| large.forget_read());
        demoted
    }

    /// The parts of a leaf within reach that far memory is to take; `None` if there are none.
    fn parts_for_far(&self, leaf: &Leaf, far: &FarMemory, reach: Reach, densely: bool) -> Option<Parts> {
        let guard = self.tree.pin();
        // Another thread may have joined it with its neighbour since the caller took the share.
        let state = leaf.open_state(&guard)?;
        let records = match reach {
            Reach::Cold => is_in_dram(state) && !state.is_unsettled() && self.is_cold(leaf, state),
            Reach::Written => is_in_dram(state) && self.is_cold(leaf, state),
            Reach::Any => is_in_dram(state) || state.is_unsettled(),
        };
        let parts = Parts { from: Side::Dram, records, larges: reach.pick(), densely };
        let takes_larges = || !far.is_placing() && parts.larges.any(state, parts.from);
        (records || takes_larges()).then_some(parts)
    }

    /// As [`Demotions::demote_within`], to the SSD, which the store has.
    fn demote_within_to_ssd(&self, leaf: &Leaf, reach: Reach, source: Side) -> Demoted {
        let (parts, settles, landing_bytes) = {
            let guard = self.tree.pin();
            let state = leaf.state(&guard);
            let records = self.is_for_ssd(leaf, state, reach, source);
            let parts = Parts { from: source, records, larges: reach.pick(), densely: false };
            if state.closed || !(records || parts.larges.any(state, source)) {
                return Demoted::Kept;
            }
            let settles =
                records && state.place() == Place::Ssd && reach == Reach::Written && !pays(state, 2);
            (parts, settles, state.landing_bytes())
        };
        if !settles {
            return self.moves.demote(leaf, Place::Ssd, parts);
        }
        // The landing goes into the overlay.
        let Some(ownership) = leaf.try_own() else { return Demoted::Busy };
        let landing_bytes = self.moves.settle_owned(leaf).map_or(0, |_| landing_bytes);
        // Writers must not wait while large values are written.
        drop(ownership);
        match self.moves.demote(leaf, Place::Ssd, Parts { records: false, ..parts }) {
            Demoted::Freed(large_bytes) => Demoted::Freed(landing_bytes + large_bytes),
            Demoted::Kept | Demoted::Busy if landing_bytes > 0 => Demoted::Freed(landing_bytes),
            demoted => demoted,
        }
    }

    /// Whether a leaf is within reach, on its way to SSD.
    fn is_for_ssd(&self, leaf: &Leaf, state: &LeafState, reach: Reach, source: Side) -> bool {
        let (has_body, unsettled) = match source {
            Side::Dram => (is_in_dram(state), state.is_unsettled()),
            Side::Far => (state.body.is_far(), false),
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
        !leaf.is_warm() && (leaf.reads.counts() == 0 || leaf.heat(state) < self.pressure.cold_below())
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
    use std::sync::Arc;

    use ziptier_tree::codec_options::CodecChoice;
    use ziptier_tree::packing::Goal;
    use ziptier_tree::record::PutMeta;

    use super::*;
    use crate::core::Core;
    use crate::options::Options;

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
        let leaf_of = |n: u8| core.tree.share_at(&[n]).0;
        let (left, right) = (leaf_of(0), leaf_of(5));
        {
            let guard = core.tree.pin();
            let ownership = right.try_own().expect("nobody maintains it");
            core.upkeep().settle_leaf(&right, Goal::Keep, &guard);
            drop(ownership);
            let _ownership = left.try_own().expect("nobody maintains it");
            assert!(core.upkeep().with_packs(&mut core.upkeep().background_retention(), &guard, |packs| {
                packs.join_right(&left)
            }));
        }
        assert!(!Arc::ptr_eq(&left, &right) && Arc::ptr_eq(&left, &leaf_of(5)), "they were no neighbours");
        put(5, 20);
        core.settle();
        assert!(core.tree.gauges.retired.held() < 3_000, "the value is not freed yet");
        assert_eq!(
            core.reclaimer().demotions().demote_within(&right, Reach::Any, Move::of(1)),
            Demoted::Kept
        );
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
        let stuck =
            (0..1000).find(|_| core.reclaimer().demotions().move_hand(Move::of(1 << 20)) == Moved::Stuck);
        assert!(stuck.is_some(), "a body found room in 4 KiB");
        assert_eq!(core.tree.stats.sent_to_far.get(), 0);
        drop(others);
        assert_eq!(core.reclaimer().demotions().move_hand(Move::of(1 << 20)), Moved::On);
        assert!(core.tree.stats.sent_to_far.get() > 0);
    }
}
