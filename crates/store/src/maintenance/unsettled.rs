//! Rounds over the leaves with landings: the background settles them without a look at all others.
//!
//! Not for the list of these leaves, which is `backlog`, nor for what else leaves may need, which the laps of the sweep
//! find.
//!
//! 1. A writer that gives a leaf a landing puts the leaf on the list, if it is not there yet.
//! 2. A round visits the leaves of the list, and settles those that nobody wrote to since the round before.
//! 3. A leaf that has a landing after the visit stays on the list for the next round.
//! 4. A leaf that could not be settled, as one without room in a full store or one on SSD with a few new records, waits
//!    for rounds of its own, so that it holds up no other leaf. After such a round in vain the next one waits for twice
//!    as long, or until there is room.

use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ziptier_tree::clock::{since, steady};
use ziptier_tree::leaf::Leaf;
use ziptier_tree::packing::Scratch;
use ziptier_tree::tree::Tree;

use super::Maintenance;
use crate::backlog::Backlog;
use crate::laps;
use crate::upkeep::{Sweep, Visited};

/// The pause between two rounds, at least.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// It is so many times as long as the round looked at leaves that are still written to.
const PAUSE_FACTOR: u32 = 30;
/// The longest pause, but for one behind rounds in vain.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The rounds over the leaves of the list.
pub(crate) struct Rounds {
    /// Leaves that this round comes to.
    left: Vec<Weak<Leaf>>,
    /// Leaves that stay for the next one.
    kept: Vec<Weak<Leaf>>,
    /// Whether leaves of the list have come to a round.
    has_new: bool,
    sweep: Sweep,
    /// How long this round looked at leaves that stay.
    looked: Duration,
    /// Whether it changed leaves.
    settled: bool,
    /// When the round before ended, and how long the next one waits.
    ended: Instant,
    pause: Duration,
    vain: Vain,
}

/// Leaves that could not be settled, and the rounds over these alone.
struct Vain {
    leaves: Vec<Weak<Leaf>>,
    /// Whether this round is over these leaves.
    is_tried: bool,
    /// When the round before ended, how long the next one waits, and the room in memory at that time.
    ended: Instant,
    pause: Duration,
    room_bytes: u64,
}

impl Rounds {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            left: Vec::new(),
            kept: Vec::new(),
            has_new: false,
            sweep: Sweep::default(),
            looked: Duration::ZERO,
            settled: false,
            ended: now,
            pause: PAUSE_MIN,
            vain: Vain { leaves: Vec::new(), is_tried: false, ended: now, pause: PAUSE_MIN, room_bytes: 0 },
        }
    }

    /// Whether the next part of a round is due.
    pub(crate) fn is_due(&mut self, backlog: &Backlog, tree: &Tree, now: Instant) -> bool {
        if self.left.is_empty() && now.duration_since(self.ended) >= self.pause {
            if !backlog.unsettled.is_empty() {
                backlog.rests.store(false, Relaxed);
                self.has_new = true;
            }
            self.left = std::mem::take(&mut self.kept);
            self.left.append(&mut backlog.unsettled.take());
            self.ended = now;
        }
        if self.left.is_empty() && self.vain.is_due(tree, now) {
            self.left = std::mem::take(&mut self.vain.leaves);
            self.vain.is_tried = true;
        }
        !self.left.is_empty()
    }

    /// Whether leaves were written to since the last call. Their writers may have packed them, and fast.
    pub(super) fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.has_new)
    }

    /// Whether no leaf waits for a round, but those that could not be settled.
    pub(super) fn are_done(&self, backlog: &Backlog) -> bool {
        self.left.is_empty() && self.kept.is_empty() && backlog.unsettled.is_empty()
    }

    /// Notes a part of a round, which took so long beside waiting, and the room behind it; `true` if it changed leaves.
    fn note_part(&mut self, took: Duration, room_bytes: u64) -> bool {
        let busy = std::mem::take(&mut self.sweep.busy);
        self.looked += took.saturating_sub(busy);
        self.settled |= !busy.is_zero();
        if self.left.is_empty() {
            let pause = (std::mem::take(&mut self.looked) * PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX);
            let settled = std::mem::take(&mut self.settled);
            if std::mem::take(&mut self.vain.is_tried) {
                self.vain.note_round(settled, pause, room_bytes);
            } else {
                (self.ended, self.pause) = (steady(), pause);
            }
        }
        !busy.is_zero()
    }
}

impl Vain {
    /// Whether the next round over these leaves is due.
    fn is_due(&mut self, tree: &Tree, now: Instant) -> bool {
        // Room for one more body may be room for a pack that found none.
        let body_bytes = tree.limits.bytes_max as u64;
        if self.pause > PAUSE_MAX && room_bytes(tree) >= self.room_bytes.saturating_add(body_bytes) {
            self.pause = PAUSE_MAX;
        }
        !self.leaves.is_empty() && now.duration_since(self.ended) >= self.pause
    }

    /// Notes the end of a round, the pause that its length asks for, and the room behind it.
    fn note_round(&mut self, settled: bool, pause: Duration, room_bytes: u64) {
        self.pause = if settled { pause } else { pause.max(2 * self.pause).min(laps::PAUSE_MAX) };
        (self.ended, self.room_bytes) = (steady(), room_bytes);
    }
}

/// Bytes up to the memory limit.
fn room_bytes(tree: &Tree) -> u64 {
    tree.gauges.limit().saturating_sub(tree.gauges.held())
}

impl Maintenance<'_> {
    /// Visits up to `leaves` leaves of a round; `true` when that changed any.
    pub(crate) fn settle_some(&self, rounds: &mut Rounds, leaves: usize) -> bool {
        let began = steady();
        let mut waited = Duration::ZERO;
        for _ in 0..leaves {
            // New bodies and old ones are held beside each other until no reader has the old ones.
            let waits = steady();
            self.room.wait_for_retired();
            waited += since(waits);
            if self.room.is_eviction_due() {
                break;
            }
            let Some(listed) = rounds.left.pop() else { break };
            let Some(leaf) = listed.upgrade() else { continue };
            let guard = self.tree.pin();
            // A writer that gives the leaf another landing from now on adds it again.
            leaf.unlist();
            let visited = self.upkeep.visit(&leaf, &mut rounds.sweep, &guard);
            // Another thread may have closed it for a moment only.
            let has_landing = leaf.state(&guard).landings().next().is_some();
            if has_landing && !self.tree.index.has_let_go_of(&leaf, &guard) && leaf.list() {
                let stays = if visited == Visited::Done { &mut rounds.vain.leaves } else { &mut rounds.kept };
                stays.push(listed);
            }
        }
        self.tree.pin().flush();
        if rounds.left.is_empty() {
            self.tree.dictionaries.release_idle();
            Scratch::release();
        }
        rounds.note_part(since(began).saturating_sub(waited), room_bytes(self.tree))
    }
}

#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use ziptier_tree::codec_options::CodecChoice;
    use ziptier_tree::packing::Goal;
    use ziptier_tree::record::PutMeta;

    use super::*;
    use crate::core::Core;
    use crate::options::Options;

    const KEYS: u32 = 5_000;

    /// A core that waits for a thread in the background, which the test is.
    fn core() -> Core {
        Core::new(&Options { codec: CodecChoice::None, background_threads: 1, ..Options::default() })
    }

    /// Writes all keys, in no order: then no leaf is left full and without a landing.
    fn load(core: &Core) {
        (0..KEYS).for_each(|number| put(core, number * 1_237 % KEYS));
    }

    fn put(core: &Core, number: u32) {
        core.put(&number.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
    }

    /// A round, a while after the one before; how many leaves it came to.
    fn round(core: &Core, rounds: &mut Rounds) -> usize {
        let later = rounds.ended + rounds.pause;
        assert!(!rounds.is_due(&core.backlog, &core.tree, later - Duration::from_nanos(1)));
        let leaves = if rounds.is_due(&core.backlog, &core.tree, later) { rounds.left.len() } else { 0 };
        while !rounds.left.is_empty() {
            core.maintenance().settle_some(rounds, 3);
        }
        leaves
    }

    /// The same, over the leaves that could not be settled.
    fn vain_round(core: &Core, rounds: &mut Rounds) -> usize {
        let later = rounds.vain.ended + rounds.vain.pause;
        assert!(!rounds.is_due(&core.backlog, &core.tree, later - Duration::from_nanos(1)));
        let leaves = if rounds.is_due(&core.backlog, &core.tree, later) { rounds.left.len() } else { 0 };
        while !rounds.left.is_empty() {
            core.maintenance().settle_some(rounds, 3);
        }
        leaves
    }

    fn has_landings(core: &Core) -> bool {
        core.tree.gauges.landing.held() > 0
    }

    #[test]
    fn a_round_comes_to_the_leaves_that_were_written_to_and_to_no_others() {
        let (core, mut rounds) = (core(), Rounds::new(Instant::now()));
        load(&core);
        // Leaves that were cut meanwhile are on the list, and are not kept.
        round(&core, &mut rounds);
        assert!(has_landings(&core), "nobody knows yet that the leaves are quiet");
        assert!(round(&core, &mut rounds) > 10);
        assert!(!has_landings(&core));
        assert_eq!(round(&core, &mut rounds), 0);

        [1, KEYS / 2, KEYS / 2 + 1].iter().for_each(|number| put(&core, *number));
        assert_eq!([(); 3].map(|()| round(&core, &mut rounds)), [2, 2, 0]);
        assert!(!has_landings(&core));
    }

    #[test]
    fn a_leaf_that_is_written_to_in_each_round_is_not_settled() {
        let (core, mut rounds) = (core(), Rounds::new(Instant::now()));
        for number in 0..4 {
            put(&core, number);
            assert_eq!(round(&core, &mut rounds), 1);
        }
        assert_eq!(core.tree.stats.packs_background.get(), 0);
        round(&core, &mut rounds);
        assert_eq!(core.tree.stats.packs_background.get(), 1);
    }

    #[test]
    fn a_lap_leaves_listed_leaves_to_the_rounds() {
        let (core, mut rounds) = (core(), Rounds::new(Instant::now()));
        load(&core);
        let mut sweep = Sweep::default();
        for _ in 0..3 {
            while !core.reclaimer().sweep(&mut sweep, 64) {}
        }
        assert_eq!(core.tree.stats.packs_background.get(), 0);
        (0..2).for_each(|_| _ = round(&core, &mut rounds));
        assert!(!has_landings(&core));
    }

    #[test]
    fn a_leaf_that_is_closed_for_a_moment_stays_on_the_list() {
        let (core, mut rounds) = (core(), Rounds::new(Instant::now()));
        put(&core, 0);
        {
            let guard = core.tree.pin();
            let leaf = core.tree.locate(&[], &guard).0;
            let closed = leaf.close(&guard);
            assert_eq!(round(&core, &mut rounds), 1);
            leaf.reopen(closed, &guard);
        }
        assert_eq!([(); 2].map(|()| round(&core, &mut rounds)), [1, 0]);
        assert!(!has_landings(&core));
    }

    #[test]
    fn the_background_settles_what_was_written_and_looks_for_room_a_second_later() {
        let core = core();
        load(&core);
        let began = Instant::now();
        let mut work = super::super::Background::new(true, began);
        let parts = |work: &mut super::super::Background, now| {
            (0..10_000).take_while(|_| core.maintenance().do_next(work, now)).count()
        };
        assert_eq!(parts(&mut work, began), 0, "nothing is due yet");
        let mut rounds = 0;
        while has_landings(&core) {
            rounds += 1;
            assert!(rounds <= 2, "the leaves are settled in two rounds");
            let due = work.rounds.ended + work.rounds.pause;
            parts(&mut work, due);
        }
        core.maintenance().note_rest(&work);
        assert!(!core.backlog.is_settled(true), "a lap may find more");
        let mut laps = 0;
        while !core.backlog.is_settled(true) {
            laps += 1;
            assert!(laps <= 3, "the laps find no end");
            let due = work.laps.latest_due();
            assert!(parts(&mut work, due) > 0, "a lap looks at all leaves");
            core.maintenance().note_rest(&work);
        }
        put(&core, 1);
        assert!(!core.backlog.is_settled(true));
        core.maintenance().note_rest(&work);
        assert!(!core.backlog.is_settled(true), "a leaf is on the list");
        let due = work.rounds.ended + work.rounds.pause;
        assert!(work.rounds.is_due(&core.backlog, &core.tree, due));
        assert!(!core.backlog.is_settled(true), "the leaf is in the round");
        // Its writer packs it, so that the round finds nothing to do, and a lap may.
        let guard = core.tree.pin();
        let leaf = core.tree.locate(&1_u32.to_be_bytes(), &guard).0;
        core.upkeep().settle_leaf(leaf, Goal::Keep, &guard);
        drop(guard);
        assert!(core.maintenance().do_next(&mut work, due), "a part of a round");
        core.maintenance().note_rest(&work);
        assert!(work.rounds.are_done(&core.backlog) && !core.backlog.is_settled(true));
        let due = work.laps.latest_due();
        parts(&mut work, due);
        core.maintenance().note_rest(&work);
        assert!(core.backlog.is_settled(true));
    }

    #[test]
    fn a_round_that_looks_long_at_busy_leaves_is_followed_by_a_longer_pause() {
        let mut rounds = Rounds::new(Instant::now());
        assert!(!rounds.note_part(Duration::from_millis(1), 0));
        assert_eq!(rounds.pause, PAUSE_MIN);
        rounds.sweep.busy = Duration::from_secs(9);
        assert!(rounds.note_part(Duration::from_secs(10), 0));
        assert_eq!(rounds.pause, PAUSE_MAX);
        assert!(!rounds.note_part(Duration::from_millis(100), 0));
        assert_eq!(rounds.pause, PAUSE_FACTOR * Duration::from_millis(100));
    }

    /// Such a store tried all leaves again every few seconds.
    #[test]
    fn rounds_of_packs_without_room_come_seldom_until_there_is_room() {
        let (core, mut rounds) = (core(), Rounds::new(Instant::now()));
        (0..8 * KEYS).for_each(|number| put(&core, number * 1_237 % (8 * KEYS)));
        (0..2).for_each(|_| _ = round(&core, &mut rounds));
        (0..8 * KEYS).step_by(100).for_each(|number| {
            core.put(&number.to_be_bytes(), &[8; 220], PutMeta::default()).expect("no limit is set");
        });
        let held_bytes = core.tree.gauges.held();
        core.set_memory_limit(Some(1));
        // Most bodies have room for such a record in their blocks of memory.
        (0..2).for_each(|_| _ = round(&core, &mut rounds));
        let vain = rounds.vain.leaves.len();
        assert!(vain > 1, "all packs found room");
        assert!(rounds.are_done(&core.backlog), "nothing else is left");
        while rounds.vain.pause < laps::PAUSE_MAX {
            let pause = rounds.vain.pause;
            assert_eq!(vain_round(&core, &mut rounds), vain);
            assert!(rounds.vain.pause >= (2 * pause).min(laps::PAUSE_MAX), "{pause:?}");
        }

        // They hold up no other leaf.
        core.set_memory_limit(None);
        let other =
            (0..8 * KEYS).take_while(|_| core.backlog.unsettled.is_empty()).map(|number| put(&core, number));
        assert!(other.count() < vain * 1_000, "a leaf is not one of these");
        core.set_memory_limit(Some(1));
        assert_eq!([(); 2].map(|()| round(&core, &mut rounds)), [1, 1]);
        assert!(rounds.are_done(&core.backlog));
        let vain = rounds.vain.leaves.len();

        // A higher limit that is still too low gives no room, and one that gives some is soon seen.
        core.set_memory_limit(Some(2));
        let pause_max = rounds.vain.ended + PAUSE_MAX;
        assert!(!rounds.is_due(&core.backlog, &core.tree, pause_max));
        core.set_memory_limit(Some(2 * held_bytes));
        assert!(!rounds.is_due(&core.backlog, &core.tree, pause_max - Duration::from_nanos(1)));
        assert_eq!(vain_round(&core, &mut rounds), vain);
        assert!(!has_landings(&core));
        assert!(rounds.vain.pause <= PAUSE_MAX);
    }

    #[test]
    fn a_round_that_settles_a_leaf_brings_the_pause_back() {
        let mut rounds = Rounds::new(Instant::now());
        let millis = Duration::from_millis;
        let mut note = |is_vain, busy| {
            (rounds.vain.is_tried, rounds.sweep.busy) = (is_vain, millis(busy));
            rounds.note_part(millis(busy + 1), 0);
            assert_eq!(rounds.pause, PAUSE_MIN, "leaves that are written to are no work in vain");
            rounds.vain.pause
        };
        assert_eq!([(); 3].map(|()| note(true, 0)), [400, 800, 1600].map(millis));
        assert_eq!(note(true, 1), PAUSE_MIN);
        assert_eq!([true, false].map(|is_vain| note(is_vain, 0)), [400, 400].map(millis));
    }
}
