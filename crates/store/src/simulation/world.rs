//! The simulated store between its starts and its ends.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use ziptier_media::disk::Disk;
use ziptier_media::log::Lsn;
use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};
use ziptier_tree::clock::{Clock, simulated, steady};
use ziptier_tree::far::FarMemory;
use ziptier_tree::record::Meta;

use super::model::{Entry, Model};
use super::reached::Reached;
use super::setup::{Random, Setup};
use crate::core::Core;
use crate::maintenance::Background;
use crate::recovery::recover;
use crate::{Durability, Error, check, dump, restore};

/// Bytes that a store may hold beyond its limit after a step: landings and bodies grow by size classes.
const OVERSHOOT_BYTES: u64 = 32 << 10;

/// Rounds in which a step may wait for retired bytes: each frees what the one before retired.
const RETIRED_WAITS_MAX: u64 = 1000;

/// How a store ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Stop,
    Kill,
    PowerCut,
}

/// A moment between two steps: how many operations the disk had by then, and which writes must last.
#[derive(Clone, Copy, Default)]
struct Moment {
    position: usize,
    durable: Lsn,
    acknowledged: Lsn,
}

/// The store that runs now.
pub(super) struct Running {
    pub(super) core: Core,
    pub(super) background: Background,
}

/// A simulation: the store, everything around it, and what it must answer.
pub(super) struct World {
    seed: u64,
    step: u64,
    /// What the step does, for the message of a failure.
    pub(super) what: &'static str,
    pub(super) random: Random,
    pub(super) setup: Setup,
    pub(super) clock: Clock,
    pub(super) disk: RecordingDisk,
    pub(super) failing: FailingDisk,
    pub(super) running: Option<Running>,
    pub(super) model: Model,
    /// The store evicts, or did: a key may be gone.
    pub(super) may_be_gone: bool,
    /// The disk was told to fail or is full: calls may fail.
    pub(super) is_troubled: bool,
    /// The number of the newest write that was acknowledged.
    acknowledged: Lsn,
    /// The number of the newest write that a sync of each second has covered.
    synced: Lsn,
    /// The moment before this step.
    before: Moment,
    /// Writes of a store without a log are numbered here.
    unlogged: Lsn,
    /// Rounds in which the store has waited for retired bytes.
    retired_waits: u64,
    /// Bytes that the store may hold: its limit, or what it had at a start or after a move, until it has less.
    ceiling_bytes: u64,
    outcomes: DefaultHasher,
    pub(super) reached: Reached,
}

impl World {
    pub(super) fn new(seed: u64, reached: Reached) -> Self {
        let mut random = Random(seed);
        let setup = Setup::draw(&mut random);
        let disk = RecordingDisk::new();
        let may_be_gone = setup.evicts;
        let mut world = Self {
            seed,
            step: 0,
            what: "start",
            random,
            setup,
            clock: Clock::manual(1 << 40),
            failing: failing(&disk),
            disk,
            running: None,
            model: Model::default(),
            may_be_gone,
            is_troubled: false,
            acknowledged: 0,
            synced: 0,
            before: Moment::default(),
            unlogged: 0,
            retired_waits: 0,
            ceiling_bytes: 0,
            outcomes: DefaultHasher::new(),
            reached,
        };
        world.open();
        world
    }

    pub(super) fn step(&mut self, step: u64) {
        self.step = step;
        self.before = Moment {
            position: self.disk.position(),
            durable: match self.setup.durability {
                Some(Durability::Always) => self.acknowledged,
                _ => self.synced,
            },
            acknowledged: self.acknowledged,
        };
        self.take_step();
        let held_bytes = self.core().tree.gauges.held();
        self.check_room();
        self.note((step, held_bytes, self.newest()));
    }

    /// A store holds its limit at most, and a little more. After a start without room elsewhere, a move of leaves or a
    /// smaller limit it may hold what it has, but no more.
    fn check_room(&mut self) {
        // Nobody reads, so nothing stays retired, and nobody waits for that.
        self.core().tree.reclaim();
        assert_eq!(self.core().tree.gauges.retired.held(), 0, "bytes stay retired");
        let waits = self.core().tree.stats.retired_waits.get();
        assert!(waits < self.retired_waits + RETIRED_WAITS_MAX, "it waited {waits} times for retired bytes");
        self.retired_waits = waits;
        let Some(limit_bytes) = self.setup.limit_bytes else { return };
        let held_bytes = self.core().tree.gauges.held();
        let is_start = matches!(self.what, "stop" | "kill" | "power cut");
        let may_have_more = match self.what {
            _ if is_start => !self.core().room().can_make_room(),
            what => matches!(what, "moves of leaves" | "change of room" | "training"),
        };
        if may_have_more {
            self.ceiling_bytes = held_bytes;
        }
        self.ceiling_bytes = self.ceiling_bytes.min(held_bytes).max(limit_bytes);
        // A store of this size has no dictionaries but the ones that it was given.
        let given_bytes = self.core().tree.gauges.dictionary.held();
        let bound_bytes = self.ceiling_bytes + OVERSHOOT_BYTES + given_bytes;
        assert!(held_bytes <= bound_bytes, "{held_bytes} bytes are held, and {bound_bytes} are a lot");
        if is_start && self.setup.ssd_bytes.is_none() && !self.setup.evicts {
            // Far memory that was filled in another order may have no room for the rest.
            self.ceiling_bytes = held_bytes.max(limit_bytes);
        }
    }

    /// Ends the simulation; a hash of its outcomes, and what was reached.
    pub(super) fn end(mut self) -> (u64, Reached) {
        if self.is_troubled {
            self.restart(End::Stop);
        }
        self.what = "last comparison";
        self.compare_all();
        let Running { core, .. } = self.running.take().expect("it runs between steps");
        self.reached.add(&core);
        (self.outcomes.finish(), std::mem::take(&mut self.reached))
    }

    /// Takes an outcome into the hash.
    pub(super) fn note(&mut self, outcome: impl Hash) {
        outcome.hash(&mut self.outcomes);
    }

    pub(super) fn core(&self) -> &Core {
        &self.running.as_ref().expect("it runs between steps").core
    }

    /// The number of the newest write.
    pub(super) fn newest(&self) -> Lsn {
        self.core().journal.get().map_or(self.unlogged, |journal| journal.newest())
    }

    /// Lets time pass. What the log's thread does in that time is done.
    pub(super) fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        simulated::NOW.set(Some(steady() + time));
        let Some(journal) = self.core().journal.get() else { return };
        let is_due = self.setup.durability == Some(Durability::Everysec) && time >= Duration::from_secs(1);
        let newest = journal.newest();
        let synced = if is_due { journal.log().sync(newest) } else { Ok(()) };
        let prepared = journal.log().prepare_segment();
        let is_synced = is_due && synced.is_ok();
        assert!(self.is_troubled || synced.is_ok() && prepared.is_ok(), "{synced:?} {prepared:?}");
        if is_synced {
            self.synced = newest;
        }
    }

    /// Waits for a write that has succeeded, as the store's callers do. Its changes are in the model.
    pub(super) fn acknowledge(&mut self) {
        let Some(journal) = self.core().journal.get() else { return };
        let (waited, newest) = (journal.wait(), journal.newest());
        match waited {
            Ok(()) => self.acknowledged = newest,
            Err(error) => assert!(self.is_troubled, "a write was not acknowledged: {error}"),
        }
        // A kill or a power cut may come in the middle of this step.
        self.model.keep(self.before.durable);
    }

    /// The number for a write whose call has returned. A call that fails has written nothing.
    pub(super) fn number_of<T>(&mut self, before: Lsn, outcome: &Result<T, ziptier_tree::Error>) -> Lsn {
        match outcome {
            Ok(_) if self.core().journal.get().is_none() => self.unlogged += 1,
            Ok(_) => {}
            Err(error) => {
                assert_eq!(self.newest(), before, "a call failed, and the log has it: {error}");
                self.check_error(error.clone());
            }
        }
        self.newest()
    }

    /// An error that no trouble explains is a fault, but for a refusal of a write that needs room.
    pub(super) fn check_error(&self, error: impl Into<Error>) {
        let error = error.into();
        let needs_room = !matches!(self.what, "delete" | "get" | "multi-get" | "walk");
        let is_refusal = self.setup.limit_bytes.is_some() && error.kind() == crate::ErrorKind::NoRoom;
        let is_expected = self.is_troubled && !matches!(error, Error::Damaged { .. });
        assert!(is_expected || needs_room && is_refusal, "{error}");
    }

    /// Compares what was found of a key with the model.
    pub(super) fn compare(&self, key: &[u8], found: Option<(&[u8], Meta)>) {
        match (self.model.get(key, self.clock.now_ms()), found) {
            (Some(entry), Some((value, meta))) => {
                let name = || String::from_utf8_lossy(key).into_owned();
                assert!(entry.is(value, meta), "{}: {} bytes, {meta:?}, not {entry:?}", name(), value.len());
            }
            (None, None) => {}
            (Some(_), None) => {
                assert!(self.may_be_gone, "{} is lost", String::from_utf8_lossy(key));
            }
            (None, Some(_)) => panic!("{} came back", String::from_utf8_lossy(key)),
        }
    }

    /// Compares all keys with the model.
    pub(super) fn compare_all(&mut self) {
        if self.is_troubled {
            return;
        }
        let mut range = self.core().reads().range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let now_ms = self.clock.now_ms();
        let mut expected = self.model.live(now_ms).peekable();
        let mut keys = 0_u64;
        while let Some(next) = range.next_opened() {
            let (key, opened) = next.expect("nothing is damaged");
            let mut value = Vec::new();
            opened.read_at(0, usize::MAX, &mut value).expect("nothing is damaged");
            let skipped = |(at, _): &(&Vec<u8>, &Entry)| **at < key;
            while let Some((lost, _)) = expected.next_if(skipped) {
                assert!(self.may_be_gone, "{} is lost", String::from_utf8_lossy(lost));
            }
            self.compare(&key, Some((&value, opened.meta())));
            let is_same = expected.next().is_some_and(|(at, _)| *at == key);
            assert!(is_same, "{} comes twice, or out of order", String::from_utf8_lossy(&key));
            keys += 1;
        }
        if let Some((lost, _)) = expected.next() {
            assert!(self.may_be_gone, "{} is lost", String::from_utf8_lossy(lost));
        }
        drop(expected);
        let counted = self.core().tree.ranges().count_keys();
        assert!(counted >= keys, "{counted} keys are counted of {keys}");
        self.note((keys, counted));
    }
}

/// Ends and starts.
impl World {
    fn open(&mut self) {
        if let Err(error) = self.try_open() {
            panic!("the folder is sound: {error}");
        }
    }

    fn try_open(&mut self) -> Result<(), Error> {
        let disk: Arc<dyn Disk> = Arc::new(self.failing.clone());
        let options = self.setup.options(disk.clone(), &self.clock);
        let far = self.setup.far_bytes.map(FarMemory::on_heap);
        let (core, folder) = Core::open(disk, &options, far)?;
        if let (Some(durable), Some(folder)) = (&options.durable, folder) {
            let recovered = recover(&core, &options, durable, folder, &mut |_| {})?;
            let is_sound = recovered.skipped.is_empty() || self.failing.has_failed();
            assert!(is_sound, "{:?}", recovered.skipped);
            core.set_memory_limit(options.memory_limit_bytes);
        }
        self.retired_waits = 0;
        self.running = Some(Running { core, background: Background::new(true, steady()) });
        Ok(())
    }

    /// Ends the store, within this step if the end is sudden, starts it anew from what the disk has then, and compares
    /// all keys.
    pub(super) fn restart(&mut self, end: End) {
        self.what = match end {
            End::Stop => "stop",
            End::Kill => "kill",
            End::PowerCut => "power cut",
        };
        self.reached.ends[end as usize] += 1;
        let Running { core, .. } = self.running.take().expect("it runs between steps");
        self.reached.add(&core);
        if core.journal.get().is_none() {
            drop(core);
            self.model.clear();
            (self.disk, self.acknowledged, self.is_troubled) = (RecordingDisk::new(), 0, false);
            self.failing = failing(&self.disk);
            return self.open();
        }
        let position = self.before.position;
        let position = position + self.random.below((self.disk.position() - position + 1) as u64) as usize;
        let must_have = match end {
            End::PowerCut => self.before.durable,
            End::Kill => self.before.acknowledged,
            End::Stop => self.stop(&core),
        };
        let has_forgotten = self.disk.has_forgotten();
        self.reached.forgetful_syncs += u64::from(has_forgotten);
        // Later bytes may be needed.
        let may_be_damaged = end != End::Kill && has_forgotten;
        let disk = match end {
            End::Kill => self.disk.killed_at(position),
            // The power goes after a stop, too.
            End::Stop => cut_power(&self.disk, self.disk.position(), &mut self.random),
            End::PowerCut => cut_power(&self.disk, position, &mut self.random),
        };
        drop(core);
        let (disk, is_restored) = self.check_and_restore(disk, may_be_damaged);
        let was_cut = self.start_on(disk);
        // What was restored is durable, and what was killed need not be.
        let loses = was_cut && end == End::Kill && !is_restored;
        let must_have = if loses { self.before.durable } else { must_have };
        let last = self.core().journal.get().expect("it has a folder").log().last_lsn();
        assert!(last >= must_have, "the log ends with {last}, and {must_have} was promised");
        self.acknowledged = last;
        if was_cut || end != End::Kill {
            // The power has gone, and what the disk has is durable.
            self.synced = last;
        }
        self.model.lose_behind(last);
        self.note((end as u64, last));
        self.compare_all();
    }

    /// Checks some folders between an end and a start, and has some starts find what was restored from a dump; whether
    /// it was.
    fn check_and_restore(&mut self, disk: RecordingDisk, may_be_damaged: bool) -> (RecordingDisk, bool) {
        let (checks, restores) = (self.random.once_in(8), self.random.once_in(16));
        let durable_on = |disk: &RecordingDisk| {
            let options = self.setup.options(Arc::new(disk.clone()), &self.clock);
            options.durable.expect("it has a folder")
        };
        if checks {
            let report = check(&durable_on(&disk.copy())).expect("it is a store's folder");
            assert!(report.damages.is_empty() || may_be_damaged, "{:?}", report.damages);
            self.reached.checks += 1;
        }
        if !restores {
            return (disk, false);
        }
        let (mut dumped, restored) = (Vec::new(), RecordingDisk::new());
        let to = dump(&durable_on(&disk.copy()), &mut dumped).expect("nothing is damaged");
        let from = restore(&durable_on(&restored), &mut dumped.as_slice()).expect("the dump is whole");
        assert_eq!((from.leaves, from.last_lsn), (to.leaves, to.last_lsn));
        self.reached.restores += 1;
        (restored, true)
    }

    /// Stops the store as its user does. Returns the number of the newest write that must last.
    fn stop(&self, core: &Core) -> Lsn {
        let journal = core.journal.get().expect("it has a folder");
        let checkpointer = core.checkpointer.get().expect("it has a folder");
        let sealed = journal.seal();
        if sealed.is_ok() {
            checkpointer.checkpoint_at_stop(core.moves(), journal);
        }
        match sealed.and(checkpointer.close()) {
            Ok(()) => journal.newest(),
            Err(error) => {
                assert!(self.is_troubled, "{error}");
                self.before.durable
            }
        }
    }

    /// Starts the store from what a disk has. Some starts fail halfway, and are tried again, some of them after a power
    /// cut. Returns whether there was one.
    fn start_on(&mut self, mut disk: RecordingDisk) -> bool {
        let mut was_cut = false;
        if self.random.once_in(4) {
            let nth = self.random.below(100);
            let failing = FailingDisk::new(Arc::new(disk.clone()), Fault::Io, nth);
            let is_full = self.random.once_in(2);
            failing.set_full(is_full);
            self.failing = failing.clone();
            let from = disk.position();
            let started = self.try_open();
            let is_excused = failing.has_failed() || is_full;
            assert!(started.is_ok() || is_excused, "{started:?}");
            self.note(started.is_ok());
            self.reached.failed_starts += u64::from(started.is_err());
            self.running = None;
            was_cut = self.random.once_in(2);
            let position = from + self.random.below((disk.position() - from + 1) as u64) as usize;
            disk = match was_cut {
                true => cut_power(&disk, position, &mut self.random),
                false => disk.killed_at(position),
            };
        }
        self.failing = failing(&disk);
        (self.disk, self.is_troubled) = (disk, false);
        self.open();
        was_cut
    }
}

/// A disk that fails when it is told to.
fn failing(disk: &RecordingDisk) -> FailingDisk {
    FailingDisk::new(Arc::new(disk.clone()), Fault::Io, u64::MAX)
}

/// What a power cut leaves of a disk after so many operations.
fn cut_power(disk: &RecordingDisk, position: usize, random: &mut Random) -> RecordingDisk {
    disk.images().sample_from(position, random.next(), 1).next().expect("one was asked for").disk
}

impl Drop for World {
    fn drop(&mut self) {
        simulated::NOW.set(None);
        if std::thread::panicking() {
            let Self { seed, step, what, setup, .. } = self;
            eprintln!("seed {seed}, step {step} ({what}), {setup:?}");
        }
    }
}
