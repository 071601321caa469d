//! What room there is: the questions about the limit of DRAM, and about the places below.
//!
//! Not for making room, which is `reclaimer`. No question changes anything; the hands note in `Findings` how their
//! steps ended. `retired` waits for bytes that readers hold.

mod retired;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ziptier_tree::large::ChunkPlace;
use ziptier_tree::leaf::LeafState;
use ziptier_tree::placement::Side;
use ziptier_tree::tree::Tree;

use crate::Error;
use crate::places::ssd::Cold;

/// Per cent of the limit that eviction keeps the store at.
pub(crate) const GOAL_PCT: u64 = 97;
/// The watermarks lie one part in so many of the limit below it. Demoting a leaf takes some microseconds, so little
/// room is enough until the background thread is awake.
const LOW_PART: u64 = 10;
const HIGH_PART: u64 = 16;
const HELP_PART: u64 = 32;
/// Steps in vain that a writer repeats before it is refused, each after all readers of that moment have gone. A hand
/// with a narrow reach needs two cycles more to come to every leaf.
pub(crate) const LAPS_IN_VAIN: u32 = 4;
/// New expiries take one part in so many of the limit beyond it.
const IN_TIME_PART: u64 = 128;
/// The part of a memory limit that retired bytes may be while twice as much is free.
const RETIRED_ROOM_PART: u64 = 8;
/// The part of its limit, one in so many, that an evicting store makes free to train a dictionary. A small store makes
/// free what a training of 12 bits takes, but no more than a larger part.
const TRAINING_PART: u64 = 16;
const TRAINING_PART_SMALL: u64 = 4;
const TRAINING_BYTES_SMALL: u64 = 4 << 20;

/// Bytes in use of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watermarks {
    /// Leaves are demoted down to here, and hot ones promoted up to here.
    pub(crate) low: u64,
    /// From here on leaves are demoted.
    pub(crate) high: u64,
    /// From here on writers demote leaves, too.
    pub(crate) help: u64,
}

impl Watermarks {
    /// Of a place with a limit of so many bytes, `u64::MAX` for none.
    pub(crate) fn of(limit: u64) -> Self {
        let below = |part| if limit == u64::MAX { limit } else { limit - limit / part };
        Self { low: below(LOW_PART), high: below(HIGH_PART), help: below(HELP_PART) }
    }
}

/// The results of the last steps of the clock hands.
#[derive(Default)]
pub(crate) struct Findings {
    /// The hand's last cycle found nothing in DRAM to demote, and the hand demoted nothing since.
    pub(crate) dry: AtomicBool,
    /// A writer waited for the hands in vain, and they demoted nothing since. Other writers need not wait.
    pub(crate) exhausted: AtomicBool,
}

/// Answers what room there is. See the module.
#[derive(Clone, Copy)]
pub(crate) struct Room<'e> {
    pub(crate) tree: &'e Tree,
    pub(crate) cold: Option<&'e Cold>,
    pub(crate) findings: &'e Findings,
    pub(crate) has_background: bool,
}

impl<'e> Room<'e> {
    /// Bytes of DRAM up to which leaves may come there, and hot ones do.
    pub(crate) fn low_mark(self) -> u64 {
        self.watermarks().low
    }

    /// Whether DRAM stays below its low mark with `bytes` more.
    pub(crate) fn has_memory_for(self, bytes: u64) -> bool {
        self.tree.gauges.held() + bytes < self.watermarks().low
    }

    /// Whether a record may be copied up.
    pub(crate) fn may_copy_up(self) -> bool {
        self.tree.gauges.held() < self.watermarks().help
    }

    /// Whether DRAM is so short that nothing should come there from far memory without need.
    pub(crate) fn is_short(self) -> bool {
        self.tree.far.is_some() && !self.has_memory_for(0)
    }

    /// Whether a place below takes leaves that have no room in DRAM. Nothing is evicted then.
    pub(crate) fn has_room_below(self) -> bool {
        let far = self.tree.far.as_ref().is_some_and(|far| !far.is_full());
        let ssd = self.cold.as_ref().is_some_and(|cold| !cold.is_refused.load(Relaxed));
        (far || ssd) && !self.findings.dry.load(Relaxed)
    }

    /// Whether no write was refused since a leaf moved last.
    pub(crate) fn has_hope(self) -> bool {
        !self.findings.exhausted.load(Relaxed)
    }

    /// Bytes of DRAM that a background thread may make free for work of its own: a quarter of all bodies, where far
    /// memory takes them.
    pub(crate) fn movable_bytes(self) -> u64 {
        let can_move = self.has_background && self.tree.far.as_ref().is_some_and(|far| !far.is_full());
        if can_move { self.tree.gauges.body_bytes() / 4 } else { 0 }
    }

    pub(crate) fn watermarks(self) -> Watermarks {
        Watermarks::of(self.tree.gauges.limit())
    }

    /// Whether the store may do anything but refuse when DRAM is full.
    pub(crate) fn can_make_room(self) -> bool {
        self.has_place_below() || self.tree.evicts()
    }

    pub(crate) fn has_place_below(self) -> bool {
        self.tree.far.is_some() || self.cold.is_some()
    }

    /// Whether `bytes` more may be held.
    pub(crate) fn admit(self, bytes: usize) -> Result<(), Error> {
        #[cfg(test)]
        if ziptier_tree::faults::has(ziptier_tree::faults::InjectedFault::RoomWithoutEnd) {
            return Ok(());
        }
        let limit_bytes = self.tree.gauges.limit();
        // A recovery refuses nothing: every acknowledged write fitted once.
        if limit_bytes == u64::MAX || self.tree.recovering.load(Relaxed) {
            return Ok(());
        }
        let used_bytes = self.tree.gauges.held();
        if used_bytes.saturating_add(bytes as u64) > limit_bytes {
            return Err(Error::MemoryLimit { limit_bytes, used_bytes });
        }
        Ok(())
    }

    /// Whether new expiries may be held. They have a little room beyond the limit, because short-lived records make
    /// room in time.
    pub(crate) fn admit_in_time(self) -> Result<(), Error> {
        let (limit_bytes, used_bytes) = (self.tree.gauges.limit(), self.tree.gauges.held());
        match used_bytes > limit_bytes.saturating_add(limit_bytes / IN_TIME_PART) {
            true => self.admit(0),
            false => Ok(()),
        }
    }

    /// How often a writer that lacks `bytes` waits for readers after a step in vain. Another thread may have had the
    /// leaf that would go.
    pub(crate) fn laps_in_vain_max(self, bytes: usize) -> u32 {
        let may_move = self.has_place_below() && self.has_hope();
        let may_evict = self.tree.evicts() && bytes as u64 <= self.tree.gauges.limit() / 2;
        if may_move || may_evict { LAPS_IN_VAIN } else { 0 }
    }

    /// The refusal of a write for want of room, with how full each place is.
    pub(crate) fn refusal(self, limit_bytes: u64, used_bytes: u64) -> Error {
        let far = self.tree.far.as_ref().map(|far| far.usage());
        let (far_used_bytes, far_limit_bytes) =
            far.map_or((0, 0), |far| (far.used_bytes, far.capacity_bytes));
        match self.cold.as_ref().and_then(|cold| cold.tier.fullness()) {
            Some((ssd_taken_bytes, ssd_limit_bytes)) => Error::MemoryAndSsdLimit {
                limit_bytes,
                used_bytes,
                far_limit_bytes,
                far_used_bytes,
                ssd_limit_bytes,
                ssd_taken_bytes,
            },
            None if self.tree.far.is_some() => {
                Error::MemoryAndFarLimit { limit_bytes, used_bytes, far_limit_bytes, far_used_bytes }
            }
            None => Error::MemoryLimit { limit_bytes, used_bytes },
        }
    }

    /// Whether eviction comes before all other background work: more than the limit is held. Writers keep to the limit,
    /// so nothing goes while no thread writes.
    pub(crate) fn is_eviction_due(self) -> bool {
        self.tree.evicts()
            && !self.has_room_below()
            && self.tree.gauges.live_bytes() > self.tree.gauges.limit()
    }

    /// Whether the background may take so many bytes more without anything being evicted for them.
    pub(crate) fn has_room_for_growth(self, bytes: usize) -> bool {
        match self.tree.evicts() {
            true => self.tree.gauges.live_bytes() + bytes as u64 <= self.tree.gauges.limit() / 100 * GOAL_PCT,
            false => self.admit(bytes).is_ok(),
        }
    }

    /// Bytes of bodies in a place, and of everything that can be demoted from there.
    pub(crate) fn demotable_bytes(self, source: Side) -> (u64, u64) {
        match source {
            Side::Dram => {
                let held = self.tree.gauges.body_bytes()
                    + self.tree.gauges.landing.held()
                    + self.demotable_large_bytes();
                (self.tree.gauges.body_bytes(), held)
            }
            Side::Far => {
                let bodies = self.tree.gauges.far_body.held();
                (bodies, bodies + self.tree.gauges.far_large.held())
            }
        }
    }

    /// Bytes of large values in DRAM, unless they stay there.
    fn demotable_large_bytes(self) -> u64 {
        let stay = self.tree.far.as_ref().is_some_and(|far| far.is_placing());
        if stay { 0 } else { self.tree.gauges.large.held() }
    }

    /// Bytes of DRAM that packing `leaves` takes beyond their landings. A body in far memory comes to DRAM if far
    /// memory has no slot for its new size.
    pub(crate) fn bytes_to_raise(self, leaves: &[&LeafState]) -> usize {
        let Some(far) = &self.tree.far else { return 0 };
        let far_bytes: usize = leaves.iter().map(|state| state.body.far_bytes()).sum();
        if far_bytes == 0 {
            return 0;
        }
        let landing_bytes: u64 = leaves.iter().map(|state| state.landing_bytes()).sum();
        let packed_bytes = far_bytes + landing_bytes as usize;
        if self.tree.takes_bodies_of(far, packed_bytes) { 0 } else { packed_bytes }
    }

    /// Whether the new bodies of `leaves` have a place. They may not come up to DRAM that is full.
    pub(crate) fn has_place_for(self, leaves: &[&LeafState]) -> bool {
        let bytes = self.bytes_to_raise(leaves);
        bytes == 0 || self.admit(bytes).is_ok()
    }

    /// The place for the chunks of a new large value of `bytes` bytes.
    pub(crate) fn chunk_place(self, bytes: usize) -> ChunkPlace<'e> {
        match self.tree.far.as_ref().filter(|far| far.has_room(bytes)).map(|far| (far, far.placement())) {
            None => ChunkPlace::Dram,
            Some((far, Some(placement))) => ChunkPlace::Ratio(far, placement),
            Some((far, None)) if !self.has_memory_for(bytes as u64) => match far.has_room_for_chunks(bytes) {
                true => ChunkPlace::Far(far),
                false => ChunkPlace::Dram,
            },
            Some(_) => ChunkPlace::Dram,
        }
    }

    /// Retired bytes that the memory limit has room for. Without a limit nothing says how many would be too many.
    fn retired_room(self, held: u64) -> u64 {
        match self.tree.gauges.limit() {
            u64::MAX => 0,
            limit => (limit.saturating_sub(held) / 2).min(limit / RETIRED_ROOM_PART),
        }
    }

    /// Bytes that a training may take now, where another dictionary would save the part `saving` of what is written.
    ///
    /// Half of the room that is left; the other half is for writers meanwhile. Before there is a dictionary it is all
    /// of the room: writers wait for that training, and it gives them more than it takes. A store that evicts is full
    /// for ever, and makes room: for a first dictionary a part of its limit, and no more for another one than that is
    /// about to save. Its writers evict for that room.
    pub(crate) fn training_room_bytes(self, saving: Option<f64>) -> u64 {
        let limit_bytes = self.tree.gauges.limit();
        let room_bytes = limit_bytes.saturating_sub(self.tree.gauges.held()) + self.movable_bytes();
        let has_current = self.tree.dictionaries.has_current();
        let free_bytes = if has_current || limit_bytes == u64::MAX { room_bytes / 2 } else { room_bytes };
        if !self.tree.evicts() || limit_bytes == u64::MAX {
            return free_bytes;
        }
        let saving = if has_current { saving.unwrap_or(0.0) } else { 1.0 };
        let part_bytes =
            (limit_bytes / TRAINING_PART).max(TRAINING_BYTES_SMALL.min(limit_bytes / TRAINING_PART_SMALL));
        free_bytes.max(part_bytes.min((limit_bytes as f64 * saving) as u64))
    }

    /// Whether a leaf in DRAM may take so many bytes more, for which no record is evicted and no leaf is demoted.
    pub(crate) fn has_room_to_relax(self, bytes: usize) -> bool {
        self.has_room_for_growth(bytes) && (!self.has_place_below() || self.has_memory_for(bytes as u64))
    }
}
