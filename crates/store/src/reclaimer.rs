//! The reclaimer: it makes room when memory runs short, before a write is refused. First it demotes the leaves that are
//! read least, then it packs what the store holds raw, and then it evicts.
//!
//! Not for how a leaf moves: `places` knows far memory and SSD, and the way back up. Not for the queues of eviction,
//! which are `s3fifo`.
//!
//! ```text
//!           a copy               a write
//!   DRAM ───────────► far memory ───────► SSD        what no place takes: evicted (`evict`), or refused
//!     │     without far memory, or when it is full    ▲
//!     └───────────────────────────────────────────────┘
//! ```
//!
//! | step | who takes it | when |
//! |---|---|---|
//! | `Reclaimer::relieve` | a background thread | DRAM is above its high mark, until it is below the low one; far memory is above its own |
//! | `Reclaimer::ease` | a writer between two writes | DRAM is above the help mark, because the background does not keep up or is not there |
//! | `Reclaimer::make_room` | a writer | its record does not fit below the limit |
//!
//! All three move the *clock hand* of the place that is short (`hand`). [`Room`] says what room there is.
//!
//! A store whose places take nothing more packs everything that it holds raw (`squeeze`), and only then evicts or
//! refuses.
//! A writer that waits for room does that work itself, so it writes no faster than the store packs.

mod checkpoints;
mod evict;
mod hand;
mod squeeze;
mod switch;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ziptier_tree::dictionaries::{Sample, TrainingHost};
use ziptier_tree::memory::Reserved;
use ziptier_tree::packing::Scratch;
use ziptier_tree::placement::Side;
use ziptier_tree::stats::Counters;
use ziptier_tree::sync::{Mutex, SLEEPS_FROM, back_off};
use ziptier_tree::tree::Tree;

use crate::Error;
use crate::backlog::Backlog;
use crate::durable::{Checkpointer, WriteLog};
use crate::places::Moves;
use crate::room::{Room, Watermarks};
use crate::s3fifo::Eviction;
use crate::upkeep::{Sweep, Upkeep};
use evict::Visits;
use hand::{Demotions, Hands, Move, Moved};
use squeeze::Squeeze;

/// A promotion takes one part in so many of the limit at most, and its reader moves the hand so many steps at most.
const DISPLACED_PART: u64 = 8;
const DISPLACED_STEPS: usize = 16;
/// Steps after which a writer is refused because others took the room each time. Waiting for another thread, for
/// readers or for a checkpoint is no step, however long it takes.
const ROUNDS_MAX: u32 = if cfg!(test) { 1_000 } else { 20_000 };

/// A round of backing off that gives the processor away once.
const YIELDS: u32 = 4;

/// The hands, what the tierer asks of them, and how the last steps ended.
#[derive(Default)]
pub(crate) struct Pressure {
    hands: Hands,
    squeeze: Squeeze,
    /// A background thread was woken and has not looked yet.
    called: AtomicBool,
    /// The high mark was passed, and the low one was not reached since.
    easing: AtomicBool,
    /// Bytes of hot leaves for which the tierer found no room in DRAM.
    wanted_bytes: AtomicU64,
    /// Held by the thread that begins or ends eviction.
    switching: Mutex<()>,
    /// Held while it is looked whether there is room for a large value.
    reserving: Mutex<()>,
    /// Counted reads per record below which a leaf does not belong in DRAM, as the bits of a float.
    cold_below: AtomicU64,
    /// How often writers waited for a thread that moves the hand.
    #[cfg(test)]
    waits: AtomicU64,
}

impl Pressure {
    /// Asks for room in DRAM for hot leaves of so many bytes, if colder ones can make it.
    pub(crate) fn want(&self, bytes: u64) {
        self.wanted_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn cold_below(&self) -> f64 {
        f64::from_bits(self.cold_below.load(Relaxed))
    }

    pub(crate) fn set_cold_below(&self, heat: f64) {
        self.cold_below.store(heat.to_bits(), Relaxed);
    }
}

/// Makes room. See the module.
#[derive(Clone, Copy)]
pub(crate) struct Reclaimer<'e> {
    pub(crate) tree: &'e Tree,
    pub(crate) room: Room<'e>,
    pub(crate) moves: Moves<'e>,
    pub(crate) upkeep: Upkeep<'e>,
    pub(crate) eviction: &'e Eviction,
    pub(crate) pressure: &'e Pressure,
    pub(crate) backlog: &'e Backlog,
    /// Checkpoints and the log, once the store has recovered.
    pub(crate) checkpointer: &'e OnceLock<Checkpointer>,
    pub(crate) journal: &'e OnceLock<WriteLog>,
    /// Leaves are made from images, which were packed before.
    pub(crate) loading: &'e AtomicBool,
}

impl TrainingHost for Reclaimer<'_> {
    fn counters(&self) -> &Counters {
        &self.tree.stats
    }

    fn sample(&self, bytes: usize) -> Sample {
        self.tree.sample(bytes)
    }

    fn training_room_bytes(&self, saving: Option<f64>) -> u64 {
        self.room.training_room_bytes(saving)
    }

    fn ask_for_training_room(&self, bytes: u64) -> bool {
        self.ask_for_training_room(bytes)
    }

    fn has_room_to_train(&self, bytes: usize) -> bool {
        // A recovery admits every write, but a training can wait.
        if self.tree.recovering() {
            return self.tree.gauges.held() + bytes as u64 <= self.tree.gauges.limit();
        }
        let needs_room = self.room.admit(bytes).is_err() || self.room.movable_bytes() > 0;
        !needs_room || !self.ask_for_training_room(bytes as u64) && self.make_room_to_train(bytes).is_ok()
    }
}

impl<'e> Reclaimer<'e> {
    fn demotions(&self) -> Demotions<'e> {
        Demotions { tree: self.tree, room: self.room, moves: self.moves, pressure: self.pressure }
    }

    fn visits(&self) -> Visits<'e> {
        Visits { tree: self.tree, upkeep: self.upkeep }
    }

    /// Trains and adopts a dictionary if it is time to; returns whether one was adopted.
    pub(crate) fn maintain_dictionary(&self) -> bool {
        self.tree.dictionaries.maintain(self)
    }

    /// Changes the limit of DRAM; `None` lifts it.
    pub(crate) fn set_memory_limit(&self, bytes: Option<u64>) {
        self.tree.gauges.set_limit(bytes);
        if self.room.has_place_below() && self.tree.gauges.held() > self.room.watermarks().high {
            self.call_background();
        }
    }

    /// Makes room in DRAM for a promotion of so many bytes, if a few steps of the hand can. The caller holds no guard.
    pub(crate) fn displace(&self, bytes: u64) -> bool {
        if bytes > self.tree.gauges.limit() / DISPLACED_PART {
            return false;
        }
        for _ in 0..DISPLACED_STEPS {
            let over_bytes = (self.tree.gauges.held() + bytes).saturating_sub(self.room.watermarks().help);
            if over_bytes == 0 {
                return true;
            }
            if self.demotions().move_hand(Move::of(over_bytes)) != Moved::On {
                return false;
            }
            self.tree.reclaim();
        }
        false
    }

    /// Wakes the background thread that makes room.
    fn call_background(&self) {
        if !self.pressure.called.swap(true, Relaxed) {
            self.backlog.queue.wake();
        }
    }
}

/// The three steps.
impl<'e> Reclaimer<'e> {
    /// Does a part of the work for the places, on a background thread; `false` if there is none. The caller holds no
    /// guard.
    pub(crate) fn relieve(&self) -> bool {
        if !self.room.has_place_below() {
            return false;
        }
        self.pressure.called.store(false, Relaxed);
        let merged = self.moves.merge_grown();
        let dram = self.relieve_dram();
        self.relieve_far() || dram || merged
    }

    fn relieve_dram(&self) -> bool {
        let (held, marks) = (self.tree.gauges.held(), self.room.watermarks());
        let easing = held > if self.pressure.easing.load(Relaxed) { marks.low } else { marks.high };
        self.pressure.easing.store(easing, Relaxed);
        let wanted_bytes = self.pressure.wanted_bytes.load(Relaxed);
        if !easing && (wanted_bytes == 0 || held + wanted_bytes <= marks.low) {
            return false;
        }
        if self.pressure.hands.is_taken(Side::Dram) {
            return false;
        }
        // A leaf that is packed before it goes needs room for a moment, until its old body is freed.
        self.room.wait_for_retired();
        let moved = self.demotions().move_hand(Move {
            source: Side::Dram,
            bytes: (held + wanted_bytes).saturating_sub(marks.low),
            has_time: held <= marks.help,
            for_hot: !easing,
        });
        self.tree.reclaim();
        moved != Moved::Stuck
    }

    /// Demotes leaves from far memory to SSD where it has little room left.
    fn relieve_far(&self) -> bool {
        let (Some(far), Some(_)) = (&self.tree.far, &self.moves.cold) else { return false };
        let usage = far.usage();
        let over_bytes = usage.used_bytes.saturating_sub(Watermarks::of(usage.capacity_bytes).high);
        if over_bytes == 0 && !far.is_full() {
            return false;
        }
        let moved = self.demotions().move_hand(Move { source: Side::Far, ..Move::of(over_bytes) });
        self.tree.reclaim();
        moved != Moved::Stuck
    }

    /// Between two writes of a thread that holds no guard: makes room where little is left.
    pub(crate) fn ease(&self) {
        if self.room.has_place_below() {
            if !self.room.has_background {
                self.moves.merge_grown();
                self.relieve_far();
            }
            self.ease_dram();
        }
        self.evict_some();
    }

    fn ease_dram(&self) {
        let (held, marks) = (self.tree.gauges.held(), self.room.watermarks());
        if held <= marks.high {
            return;
        }
        if self.room.has_background {
            self.call_background();
            if held <= marks.help {
                return;
            }
        }
        self.demotions().move_hand(Move::of(1));
        self.tree.reclaim();
        self.room.wait_for_retired();
    }

    /// Visits up to `leaves` leaves; `true` when that ended a lap. A sweep of all leaves makes room for their new
    /// bodies.
    pub(crate) fn sweep(&self, sweep: &mut Sweep, leaves: usize) -> bool {
        self.upkeep.sweep(sweep, leaves, |key| self.make_room_to_pack(key))
    }

    /// Makes room for the new body of the leaf that owns `key`, as far as there is any. No walk packs leaves for that
    /// room, since the caller may be such a walk. The caller holds no guard and no lock.
    fn make_room_to_pack(&self, key: &[u8]) {
        let bytes = {
            let guard = self.tree.pin();
            self.room.bytes_to_raise(&[self.tree.locate(key, &guard).0.state(&guard)])
        };
        if bytes > 0 {
            // Without room, the leaf is left as it is.
            let _ = self.make_room_by(bytes, false);
        }
    }

    /// As [`Room::admit`], but makes room first if that is all that lacks. The caller holds no guard and
    /// no lock.
    pub(crate) fn make_room(&self, bytes: usize) -> Result<(), Error> {
        let made = self.make_room_by(bytes, true);
        Scratch::release_codes_of_thread();
        made
    }

    /// Makes room for a new expiry of so many bytes. Retired bytes alone may have taken its room beyond the limit, and
    /// below the limit there may be none. The caller holds no guard and no lock.
    pub(crate) fn make_room_in_time(&self, bytes: usize) -> Result<(), Error> {
        self.room.wait_for_readers();
        self.tree.reclaim();
        self.room.admit_in_time().or_else(|_| self.make_room(bytes))
    }

    /// As [`Reclaimer::make_room`], for a training. Packs wait for the training, so this packs nothing itself.
    fn make_room_to_train(&self, bytes: usize) -> Result<(), Error> {
        self.make_room_by(bytes, false)
    }

    fn make_room_by(&self, bytes: usize, packs: bool) -> Result<(), Error> {
        self.evict_for_recovery(bytes)?;
        let (mut round, mut waits, mut laps) = (0, 0, 0);
        while round < ROUNDS_MAX {
            let Err(refusal) = self.room.admit(bytes) else { return Ok(()) };
            let Error::MemoryLimit { limit_bytes, used_bytes } = refusal else { return Err(refusal) };
            let over_bytes = used_bytes.saturating_add(bytes as u64).saturating_sub(limit_bytes);
            let mut moved = self.demote_for(over_bytes);
            if moved == Moved::Stuck && packs {
                moved = self.squeeze(over_bytes);
                if moved == Moved::On {
                    // A walk has as many steps as there are leaves. They do not count as steps that made room for
                    // others.
                    self.tree.reclaim();
                    back_off(YIELDS);
                    continue;
                }
            }
            if moved == Moved::Stuck && self.evict_for(bytes as u64) {
                moved = Moved::On;
            }
            self.tree.reclaim();
            if self.wait_for_checkpoint(moved, bytes) {
                laps = 0;
                continue;
            }
            match moved {
                Moved::On => {
                    // Eviction does not count retired bytes. The room that lacks may be these alone.
                    if round < SLEEPS_FROM || !self.room.waits_for_readers_of(over_bytes) {
                        back_off(round);
                    }
                    round += 1;
                }
                Moved::Taken => {
                    back_off(waits);
                    waits += 1;
                    #[cfg(test)]
                    self.pressure.waits.fetch_add(1, Relaxed);
                }
                Moved::Stuck if packs && laps < self.room.laps_in_vain_max(bytes) => {
                    // Readers may hold bytes that were demoted or replaced, and other writers may have been quicker.
                    self.room.wait_for_readers();
                    self.pressure.hands.free(Side::Dram);
                    laps += 1;
                }
                Moved::Stuck if packs && self.tree.dictionaries.wait_for_training() => {}
                // Bytes that were demoted before may be free by now.
                Moved::Stuck if self.room.admit(bytes).is_err() => {
                    if packs {
                        self.room.findings.exhausted.store(true, Relaxed);
                    }
                    return Err(self.room.refusal(limit_bytes, used_bytes));
                }
                Moved::Stuck => return Ok(()),
            }
        }
        self.room.admit(bytes)
    }

    /// Makes room for a write that a recovery repeats, by eviction alone.
    ///
    /// # Errors
    /// There is less room than when the write was acknowledged. A store that evicts may drop a record that does not
    /// fit.
    fn evict_for_recovery(&self, bytes: usize) -> Result<(), Error> {
        if !self.tree.recovering() || self.evict_for_all(bytes as u64) {
            return Ok(());
        }
        let (limit_bytes, used_bytes) = (self.tree.gauges.limit(), self.tree.gauges.held());
        Err(Error::MemoryLimit { limit_bytes, used_bytes })
    }

    /// Makes room for `bytes` of a large value, and keeps it while others ask for room, too. The caller holds no guard
    /// and no lock.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Reserved<'e>, Error> {
        let mut round = 0;
        loop {
            self.make_room(bytes)?;
            match self.try_reserve(bytes) {
                Ok(reserved) => return Ok(reserved),
                // Another thread was quicker, or gave up for this thread's sake.
                Err(_) => back_off(round),
            }
            round += 1;
        }
    }

    /// Reserves `bytes` for a large value if there is room now. One thread at a time looks and takes, so that no two
    /// take the same room.
    pub(crate) fn try_reserve(&self, bytes: usize) -> Result<Reserved<'e>, Error> {
        let _one_at_a_time = (self.tree.gauges.limit() < u64::MAX).then(|| self.pressure.reserving.lock());
        self.room.admit(bytes).map(|()| self.tree.gauges.reserve(bytes))
    }

    /// Demotes leaves until memory is below its high mark or no more can be demoted. A store that evicts packs what it
    /// holds raw, and then evicts. A recovery calls this, because it writes without asking. The caller holds no guard.
    pub(crate) fn keep_to_limit(&self) {
        self.demote_all();
        self.evict_for_all(0);
    }

    fn demote_all(&self) {
        if !self.room.has_place_below() {
            return;
        }
        for round in 0..ROUNDS_MAX {
            let over_bytes = self.tree.gauges.held().saturating_sub(self.room.watermarks().high);
            if over_bytes == 0 || self.demotions().move_hand(Move::of(over_bytes)) == Moved::Stuck {
                return;
            }
            self.tree.reclaim();
            back_off(round);
        }
    }

    /// Demotes leaves for a writer that lacks `over_bytes`; `Stuck` if no demotion can help.
    fn demote_for(&self, over_bytes: u64) -> Moved {
        self.room.wait_for_retired();
        if !self.room.has_place_below() {
            // A store that evicts goes on to evict, which does not count retired bytes.
            let frees = !self.tree.evicts() && self.room.waits_for_readers_of(over_bytes);
            return if frees { Moved::On } else { Moved::Stuck };
        }
        let movable_bytes =
            self.tree.gauges.body_bytes() + self.tree.gauges.landing.held() + self.tree.gauges.large.held();
        if over_bytes > movable_bytes + self.tree.gauges.retired_soon_free() {
            return Moved::Stuck;
        }
        match self.demotions().move_hand(Move::of(over_bytes)) {
            Moved::Stuck if self.room.waits_for_readers_of(over_bytes) => Moved::On,
            moved => moved,
        }
    }
}

#[cfg(all(test, not(shuttle), not(miri)))]
mod tests {
    use std::sync::Arc;

    use ziptier_media::testing::RecordingDisk;
    use ziptier_tree::codec_options::CodecChoice;
    use ziptier_tree::far::FarMemory;
    use ziptier_tree::record::PutMeta;

    use super::*;
    use crate::core::Core;
    use crate::options::{MEMORY_LIMIT_BYTES_MIN, Options};
    use crate::recovery::recover;
    use crate::room::LAPS_IN_VAIN;
    use crate::{DiskHandle, DurableOptions, SsdOptions, Store};

    const FAR_BYTES: u64 = 4 << 20;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

    /// As little DRAM as may be, and four times as much far memory.
    fn little_core() -> Core {
        let options = Options {
            memory_limit_bytes: Some(MEMORY_LIMIT_BYTES_MIN),
            codec: CodecChoice::None,
            background_threads: 0,
            ..Options::default()
        };
        Core::with_far(&options, FarMemory::on_heap(FAR_BYTES))
    }

    fn put(core: &Core, n: u64) -> Result<(), Error> {
        core.put(&n.to_be_bytes(), &n.to_le_bytes().repeat(100), PutMeta::default())
    }

    #[test]
    fn a_writer_waits_as_long_as_another_thread_moves_the_hand() {
        let core = little_core();
        std::thread::scope(|scope| {
            let taken = core.pressure.hands.take(Side::Dram);
            let writer =
                scope.spawn(|| (0..2 * MEMORY_LIMIT_BYTES_MIN / 800).try_for_each(|n| put(&core, n)));
            // More often than all steps of its own.
            while core.pressure.waits.load(Relaxed) < 2 * u64::from(ROUNDS_MAX) && !writer.is_finished() {
                std::thread::yield_now();
            }
            assert!(taken.is_some() && !writer.is_finished(), "there was room, or a refusal");
            drop(taken);
            assert_eq!(writer.join().expect("it did not panic"), Ok(()));
        });
    }

    #[test]
    fn nobody_waits_for_hands_that_others_waited_for_in_vain() {
        let core = little_core();
        let refused = (0..).find(|n| put(&core, *n).is_err()).expect("five MiB are not for ever");
        assert!(refused * 800 > FAR_BYTES / 2, "{refused}");
        assert_eq!(core.room().laps_in_vain_max(800), 0);
        // Deletes are not refused, and what they leave behind is new hope.
        for n in 0..refused {
            core.append_bare(&n.to_be_bytes(), ziptier_tree::record::Kind::Tombstone, None)
                .expect("it frees");
        }
        core.settle();
        let hoped = std::cell::Cell::new(0);
        let put_soon = |n| {
            (0..60_000).any(|_| {
                let outcome = put(&core, n);
                hoped.set(hoped.get().max(core.room().laps_in_vain_max(800)));
                outcome.inspect_err(|_| std::thread::sleep(PAUSE)).is_ok()
            })
        };
        assert!((0..refused / 2).all(put_soon), "{:?}", core.tree.gauges.memory_use());
        assert_eq!(hoped.get(), LAPS_IN_VAIN, "the hands sent something, and still nobody waits for them");
        assert!(core.tree.gauges.held() <= MEMORY_LIMIT_BYTES_MIN);
    }

    /// A recovery passes by what another thread has, and ends with more than the limit.
    #[test]
    fn a_start_waits_for_a_thread_that_makes_room() {
        let recording = RecordingDisk::new();
        let options = |disk: &RecordingDisk, limit_bytes| {
            let mut durable = DurableOptions::new("/data");
            durable.disk = DiskHandle(Arc::new(disk.clone()));
            durable.checkpoint_log_bytes = Some(1 << 30);
            Options {
                memory_limit_bytes: limit_bytes,
                ssd: Some(SsdOptions { path: None, limit_bytes: 64 << 20 }),
                durable: Some(durable),
                codec: CodecChoice::None,
                background_threads: 0,
                ..Options::default()
            }
        };
        let store = Store::open(options(&recording, None)).unwrap();
        (0..16_u8).for_each(|n| store.put(&[n], &[n; 100_000]).unwrap());
        drop(store);
        let options = options(&recording.killed(), Some(MEMORY_LIMIT_BYTES_MIN));
        let (disk, durable) = (Arc::new(recording.clone()), options.durable.as_ref().unwrap());
        let (core, folder) = Core::open(disk, &options, None).unwrap();
        let (core, folder) = (&core, folder.expect("it has one"));
        std::thread::scope(|scope| {
            let taken = core.pressure.hands.take(Side::Dram);
            let starting = scope.spawn(|| recover(core, &options, durable, folder, &mut |_| {}));
            // The replay gives up for each value, and the start does not.
            while core.pressure.waits.load(Relaxed) == 0 && !starting.is_finished() {
                std::thread::yield_now();
            }
            drop(taken);
            assert!(starting.join().expect("it does not panic").is_ok());
        });
        assert!(core.tree.gauges.held() <= MEMORY_LIMIT_BYTES_MIN, "{:?}", core.tree.gauges.memory_use());
    }
}
