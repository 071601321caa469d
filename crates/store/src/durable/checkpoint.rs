//! Checkpoints: images of the leaves that changed go to segments, a manifest names all of them, and the log before is
//! dropped.
//!
//! Not for bodies that leave memory: `places::ssd` writes those, and the next checkpoint lists them.
//!
//! 1. *s* is the number after the newest that the log has given out.
//! 2. The checkpoint walks the leaves in key order. It takes each leaf's writer lock for a moment, so writes with
//!    numbers below *s* are in the leaf by then. It passes over a leaf that still says what its image says.
//! 3. It writes generations of codings that no checkpoint has had, each twice.
//! 4. It syncs the segments, and the log, so that no image is ahead of the log.
//! 5. It swaps the manifest.
//! 6. It drops the log before *s*, then everything that only the manifest before needed.
//!
//! Replay of the log from *s* over images that were taken later ends in the same state, because it repeats each record
//! to the end. No lock of a leaf and no epoch is held while anything is written.
//!
//! Of a leaf on SSD the manifest lists the images that are there, and the checkpoint writes only the records above
//! them.

mod attempt;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ziptier_media::disk::{Disk, DiskError};
use ziptier_media::log::Lsn;
use ziptier_media::segments::SegmentError;
use ziptier_tree::clock::{now_ms, since, steady};
use ziptier_tree::memory::Gauges;

use super::generation::GenerationFiles;
use super::journal::WriteLog;
use super::manifest::Head;
use crate::Error;
use crate::image_files::ImageFiles;
use crate::places::Moves;
use attempt::{Attempt, Written};

/// Without a bound of the user's, a checkpoint is due when the log has grown by as much as all keys and values have, or
/// all images, within these bounds. The log is then about as long as one that says everything once. Writing images
/// costs no more than writing the log did, and a recovery reads 1 GiB of log at most.
const LOG_BYTES_MIN: u64 = 64 << 20;
const LOG_BYTES_MAX: u64 = 1 << 30;
/// Of the limit of segments, the part that must be dead for a checkpoint to be made because room is short.
const DEAD_PART: u64 = 32;
/// After so many times as long as the last one took, another one is tried, whatever that freed.
const ROOM_AGAIN_FACTOR: u64 = 10;
/// After so many in a row that gave no room nobody waits for another one, unless more has died.
const VAIN_MAX: u32 = 2;
/// A clean stop makes a checkpoint of a log that is so many times shorter, so that the next start has little to replay.
const STOP_SHARE: u64 = 16;
/// How long that checkpoint may walk: those who stop a server wait ten seconds, some of them, before they kill it.
pub(super) const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// A process that reads the folder of a running store locks this folder in it. Nothing is removed meanwhile.
pub(crate) const BACKUP_DIR: &str = "backup";

/// Makes checkpoints, one at a time.
pub(crate) struct Checkpointer {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    files: Arc<ImageFiles>,
    /// Log bytes that make a checkpoint due, if the user says so.
    bound_bytes: Option<u64>,
    /// The longest time that the checkpoint of a clean stop may walk.
    stop_time_max: Duration,
    state: Mutex<State>,
    /// Bytes that the log had written at the last checkpoint.
    log_bytes_before: AtomicU64,
    /// Somebody waits for room in segments.
    wants_room: AtomicBool,
    /// The last checkpoint found no room for its images.
    had_no_room: AtomicBool,
    /// Bytes of segments that nobody owned after the last attempt, if that gave no room.
    dead_bytes_before: AtomicU64,
    /// So many attempts in a row were made for room and gave none.
    vain: AtomicU32,
    /// When the last one that was made ended, by a clock that nobody sets.
    ended: Mutex<Instant>,
    /// Attempts that have ended.
    attempts: AtomicU64,
    /// The thread that makes checkpoints.
    thread: OnceLock<Thread>,
    /// Somebody wants one, whether it is due or not.
    is_wanted: AtomicBool,
    is_stopping: AtomicBool,
    counts: Counts,
}

/// The checkpoint in force.
struct State {
    generations: GenerationFiles,
    head: Head,
    /// It is not known which manifest is in force.
    failure: Option<String>,
}

/// Counters of checkpoints.
#[derive(Default)]
struct Counts {
    checkpoints: AtomicU64,
    failed: AtomicU64,
    is_running: AtomicBool,
    began_ms: AtomicU64,
    start_lsn: AtomicU64,
    last_ended_ms: AtomicU64,
    last_took_ms: AtomicU64,
    images: AtomicU64,
    images_kept: AtomicU64,
    /// Bytes of manifests and generations.
    other_bytes: AtomicU64,
    last_error: Mutex<Option<String>>,
    kept_for_dump: AtomicU64,
}

/// Counters of a store's checkpoints since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointStats {
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Checkpoints that failed.
    pub failed: u64,
    /// Whether one is being made, or about to be.
    pub is_running: bool,
    /// When the newest one began, in milliseconds since the Unix epoch; 0 if there was none.
    pub began_ms: u64,
    /// The first record of the log that the one in force may not have.
    pub start_lsn: Lsn,
    /// When the last one ended, in milliseconds since the Unix epoch; that of opening if there was none.
    pub last_ended_ms: u64,
    /// How long it took, in milliseconds.
    pub last_took_ms: u64,
    /// Why the last one failed, if it did.
    pub last_error: Option<String>,
    /// Checkpoints, the newest and those right before it, that could remove nothing, since a dump was reading the
    /// folder. If this only grows, a dump stands still, and the log grows with it.
    pub kept_for_dump: u64,
    /// Images of leaves that were written.
    pub images: u64,
    /// Images that were current and stayed where they were.
    pub images_kept: u64,
    /// Bytes written to segments: images and large values, those moved by cleaning, headers and padding.
    pub segment_written_bytes: u64,
    /// Bytes of bodies that cleaning moved.
    pub cleaned_bytes: u64,
    /// Bytes of manifests and dictionaries.
    pub other_written_bytes: u64,
    /// Bytes of all segments.
    pub segment_allocated_bytes: u64,
    /// Bytes of what is needed of them.
    pub segment_live_bytes: u64,
}

/// The checkpoint that a recovery found, for the checkpointer.
pub(crate) struct InForce {
    pub(crate) files: Arc<ImageFiles>,
    pub(crate) generations: GenerationFiles,
    pub(crate) head: Head,
}

impl Checkpointer {
    /// Goes on from what was loaded; `log_bytes` of the log were replayed.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        bound_bytes: Option<u64>,
        stop_time_max: Duration,
        loaded: InForce,
        log_bytes: u64,
    ) -> Result<Self, Error> {
        disk.create_dir(&dir.join(BACKUP_DIR))?;
        let InForce { files, generations, head } = loaded;
        let start_lsn = head.start_lsn;
        let counts = Counts::default();
        counts.last_ended_ms.store(now_ms(), Ordering::Relaxed);
        counts.start_lsn.store(start_lsn, Ordering::Relaxed);
        Ok(Self {
            disk,
            dir: dir.to_path_buf(),
            files,
            bound_bytes,
            stop_time_max,
            state: Mutex::new(State { generations, head, failure: None }),
            log_bytes_before: AtomicU64::new(0_u64.wrapping_sub(log_bytes)),
            wants_room: AtomicBool::new(false),
            had_no_room: AtomicBool::new(false),
            dead_bytes_before: AtomicU64::new(0),
            vain: AtomicU32::new(0),
            ended: Mutex::new(steady()),
            attempts: AtomicU64::new(0),
            thread: OnceLock::new(),
            is_wanted: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            counts,
        })
    }

    /// Whether a checkpoint is due: somebody wants one, the log has grown so much, or room in segments is short.
    pub(crate) fn is_due(&self, gauges: &Gauges, journal: &WriteLog) -> bool {
        self.is_wanted.load(Ordering::Acquire)
            || self.is_awaited()
            || self.log_bytes(journal) >= self.bound_bytes(gauges)
    }

    /// Has the thread make a checkpoint; `false` if one is being made.
    pub(crate) fn want(&self) -> bool {
        !self.counts.is_running.load(Ordering::Acquire) && !self.is_wanted.swap(true, Ordering::AcqRel)
    }

    /// Says that room in segments is short; whether a checkpoint that may give some will be made, is made now, or has
    /// just ended.
    pub(crate) fn want_room(&self) -> bool {
        let gain_bytes = self.files.segments.limit_bytes() / DEAD_PART;
        let dead_bytes = self.dead_bytes();
        let have_died =
            dead_bytes >= self.dead_bytes_before.load(Ordering::Relaxed).saturating_add(gain_bytes);
        if have_died {
            self.vain.store(0, Ordering::Relaxed);
        }
        let since_ms = since(*self.ended.lock()).as_millis() as u64;
        let is_long_ago =
            since_ms > ROOM_AGAIN_FACTOR * (1 + self.counts.last_took_ms.load(Ordering::Relaxed));
        let may_free = have_died || (is_long_ago && dead_bytes >= gain_bytes);
        // One that had no room to clean is made again without cleaning.
        let again = self.had_no_room() && self.gives_room();
        let may_give = may_free || again || self.is_running();
        if may_give && !self.wants_room.swap(true, Ordering::Relaxed) {
            self.thread.get().inspect(|thread| thread.unpark());
        }
        may_give || self.is_awaited()
    }

    /// Whether a checkpoint may be worth waiting for: the last ones that were made for room gave some, or more died
    /// since.
    pub(crate) fn gives_room(&self) -> bool {
        self.vain.load(Ordering::Relaxed) < VAIN_MAX
    }

    /// Whether writers at the limit wait for a checkpoint.
    pub(crate) fn holds_up_writers(&self) -> bool {
        self.is_awaited() && self.gives_room()
    }

    /// Whether a thread makes the checkpoints that are wished for: not during the start, nor once the store ends.
    /// Those who wish make them then.
    pub(crate) fn has_thread(&self) -> bool {
        self.thread.get().is_some() && !self.is_stopping.load(Ordering::Acquire)
    }

    /// Names the thread that a wish for room wakes.
    pub(crate) fn wake_by(&self, thread: Thread) {
        let _is_first = self.thread.set(thread);
    }

    /// Whether the last checkpoint found no room for its images, in spite of what was kept: the next one cleans
    /// nothing.
    pub(crate) fn had_no_room(&self) -> bool {
        self.had_no_room.load(Ordering::Relaxed)
    }

    /// Whether a checkpoint is being made: it holds on to what it writes, and gives room when it ends.
    pub(crate) fn is_running(&self) -> bool {
        self.counts.is_running.load(Ordering::Acquire)
    }

    /// Attempts that have ended, whatever came of them.
    pub(crate) fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Acquire)
    }

    /// Whether somebody waits for room that a checkpoint gives.
    pub(crate) fn is_awaited(&self) -> bool {
        self.wants_room.load(Ordering::Relaxed)
    }

    /// Bytes of segments that nobody owns, padding included.
    fn dead_bytes(&self) -> u64 {
        let stats = self.files.segments.stats();
        stats.allocated_bytes.saturating_sub(stats.live_bytes)
    }

    /// Bytes of log that make a checkpoint due.
    fn bound_bytes(&self, gauges: &Gauges) -> u64 {
        let data_bytes = || {
            let live_bytes = self.files.segments.stats().live_bytes.max(gauges.logical.get());
            live_bytes.clamp(LOG_BYTES_MIN, LOG_BYTES_MAX)
        };
        self.bound_bytes.unwrap_or_else(data_bytes)
    }

    /// Bytes that the log has grown by since the last checkpoint.
    fn log_bytes(&self, journal: &WriteLog) -> u64 {
        let written = journal.log().stats().written_bytes;
        written.wrapping_sub(self.log_bytes_before.load(Ordering::Relaxed))
    }

    /// Makes a checkpoint now.
    ///
    /// # Errors
    /// The disk's. The checkpoint before, and the log since, stay in force; after a failure in which that is not sure
    /// no further one is made.
    pub(crate) fn checkpoint(&self, moves: Moves<'_>, journal: &WriteLog) -> Result<(), Error> {
        let may_go_on =
            || if self.is_stopping.load(Ordering::Acquire) { Err(Error::Stopping) } else { Ok(()) };
        self.checkpoint_while(&may_go_on, moves, journal)
    }

    /// Has a checkpoint that is being made give up: the store ends, and the log is to be sealed before anybody loses
    /// patience.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Makes a checkpoint of a store whose log is sealed, if that saves the next start some work and takes no long
    /// time. After a salvage that left something out none is made: the next start may find it.
    pub(crate) fn checkpoint_at_stop(&self, moves: Moves<'_>, journal: &WriteLog) {
        if !self.files.keeps_all()
            && self.log_bytes(journal) >= self.bound_bytes(&moves.tree.gauges) / STOP_SHARE
        {
            let deadline = steady() + self.stop_time_max;
            let may_go_on = || if steady() < deadline { Ok(()) } else { Err(Error::CheckpointTooLong) };
            // Without it the next start replays the log, which has everything.
            let _ = self.checkpoint_while(&may_go_on, moves, journal);
        }
    }

    fn checkpoint_while(
        &self,
        may_go_on: &dyn Fn() -> Result<(), Error>,
        moves: Moves<'_>,
        journal: &WriteLog,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        self.counts.is_running.store(true, Ordering::Release);
        // One who wants it from here on gets another one.
        self.is_wanted.store(false, Ordering::Release);
        let began = steady();
        self.counts.began_ms.store(now_ms(), Ordering::Relaxed);
        let log_written = journal.log().stats().written_bytes;
        let made = self.make(&mut state, may_go_on, moves, journal);
        match &made {
            Ok(_) => {
                self.log_bytes_before.store(log_written, Ordering::Relaxed);
                self.counts.checkpoints.fetch_add(1, Ordering::Relaxed);
                *self.ended.lock() = steady();
                self.counts.last_ended_ms.store(now_ms(), Ordering::Relaxed);
                self.counts.last_took_ms.store(since(began).as_millis() as u64, Ordering::Relaxed);
                *self.counts.last_error.lock() = None;
            }
            Err(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                // Nobody owns the images that it wrote, and the first failure is the one to tell.
                let _ = self.files.remove_dead();
                *self.counts.last_error.lock() = Some(error.to_string());
            }
        }
        let had_no_room = matches!(made, Err(Error::Segments(SegmentError::Full { .. })));
        self.had_no_room.store(had_no_room, Ordering::Relaxed);
        let has_gained = matches!(made, Ok(true));
        if has_gained {
            self.vain.store(0, Ordering::Relaxed);
        } else if self.is_awaited() {
            self.vain.fetch_add(1, Ordering::Relaxed);
        }
        // Dead bytes that no checkpoint can free are no reason for another one.
        let dead_bytes = if has_gained { 0 } else { self.dead_bytes() };
        self.dead_bytes_before.store(dead_bytes, Ordering::Relaxed);
        self.wants_room.store(false, Ordering::Relaxed);
        self.counts.is_running.store(false, Ordering::Release);
        self.attempts.fetch_add(1, Ordering::Release);
        made.map(|_| ())
    }

    /// Whether it gave room in segments.
    fn make(
        &self,
        state: &mut State,
        may_go_on: &dyn Fn() -> Result<(), Error>,
        moves: Moves<'_>,
        journal: &WriteLog,
    ) -> Result<bool, Error> {
        if let Some(first) = &state.failure {
            return Err(Error::NoCheckpoint { first: first.clone() });
        }
        let start_lsn = journal.newest() + 1;
        // One that had no room is made without cleaning, which needs room before it gives some.
        let victims = match self.had_no_room() {
            true => BTreeSet::new(),
            false => self.victims(moves, self.log_bytes(journal) / 4),
        };
        let walk = self.files.walk();
        let mut attempt = Attempt::new(moves, &self.files, victims);
        attempt.walk(&state.generations, may_go_on)?;
        let head = self.prepare(state, &mut attempt, journal, start_lsn)?;
        // From here on either manifest may be in force after a crash: nothing of both goes before this one surely is.
        if let Err(error) = head.commit(&*self.disk, &self.dir) {
            walk.end(attempt.succeed().named, false);
            if error.is_refusal() {
                // No sync has failed, so a later one makes names durable. The next manifest gets a number of its own.
                state.head.number = head.number;
            } else {
                state.failure = Some(error.to_string());
            }
            return Err(error);
        }
        let Written { named, generations, images, images_kept } = attempt.succeed();
        walk.end(named, true);
        // The images that leaves remembered before keep their places until their last reader is gone.
        moves.tree.reclaim();
        self.counts.images.fetch_add(images, Ordering::Relaxed);
        self.counts.images_kept.fetch_add(images_kept, Ordering::Relaxed);
        self.counts.start_lsn.store(start_lsn, Ordering::Relaxed);
        state.head = head;
        self.clear_up(state, &generations, journal)
    }

    /// Makes durable what the manifest will name, and the manifest under another name.
    fn prepare(
        &self,
        state: &mut State,
        attempt: &mut Attempt<'_>,
        journal: &WriteLog,
        start_lsn: u64,
    ) -> Result<Head, Error> {
        let mut other_bytes = 0;
        for coding in attempt.new_codings() {
            other_bytes += state.generations.write(coding)?;
        }
        self.files.segments.sync()?;
        let durable_lsn = journal.newest();
        journal.log().sync(durable_lsn)?;
        let generations = attempt.generations().iter().copied().collect();
        let number = state.head.number + 1;
        let head = Head { number, start_lsn, durable_lsn, generations, ..state.head.clone() };
        other_bytes += head.prepare(attempt.entries(), &*self.disk, &self.dir)?;
        self.counts.other_bytes.fetch_add(other_bytes, Ordering::Relaxed);
        Ok(head)
    }

    /// Drops what the checkpoint in force does not need, unless somebody is reading the folder; whether that gave room
    /// in segments.
    fn clear_up(
        &self,
        state: &mut State,
        generations: &BTreeSet<u32>,
        journal: &WriteLog,
    ) -> Result<bool, Error> {
        let nobody_reads = match self.files.lock_out_readers() {
            Err(DiskError::Locked { .. }) => {
                self.counts.kept_for_dump.fetch_add(1, Ordering::Relaxed);
                return Ok(false);
            }
            lock => lock?,
        };
        self.counts.kept_for_dump.store(0, Ordering::Relaxed);
        journal.log().drop_before(state.head.start_lsn)?;
        state.generations.keep_only(generations)?;
        drop(nobody_reads);
        Ok(self.files.remove_dead()? > 0)
    }

    /// The segments that are to be cleaned. Segments with few live bytes are cleaned as long as moving these costs
    /// `budget_bytes` at most. While room is short, segments with more are cleaned as long as there is room for these.
    fn victims(&self, moves: Moves<'_>, budget_bytes: u64) -> BTreeSet<u64> {
        let (stats, limit_bytes) = (self.files.segments.stats(), self.files.segments.limit_bytes());
        let enough_bytes = moves.cold.map_or(limit_bytes / 4 * 3, |cold| cold.tier.enough_bytes());
        let mut excess_bytes = stats.allocated_bytes.saturating_sub(enough_bytes);
        // The records in memory are written, too.
        let image_bytes = moves.tree.gauges.body_bytes()
            + moves.tree.gauges.landing.held()
            + moves.tree.gauges.large.held();
        let room_bytes = limit_bytes.saturating_sub(stats.allocated_bytes.saturating_add(image_bytes));
        let mut cost_bytes = 0;
        let mut victims = BTreeSet::new();
        // Segments that a salvage keeps would not become free.
        let candidates = self.files.segments.candidates().into_iter();
        for candidate in candidates.filter(|candidate| !self.files.is_kept(candidate.segment)) {
            let live_pct = candidate.live_bytes.saturating_mul(100) / candidate.allocated_bytes.max(1);
            cost_bytes += candidate.live_bytes;
            let is_cheap = live_pct <= 50 && cost_bytes <= budget_bytes;
            let is_needed = live_pct <= 90 && excess_bytes > 0 && cost_bytes <= room_bytes;
            if !(is_cheap || is_needed) {
                break;
            }
            excess_bytes = excess_bytes.saturating_sub(candidate.allocated_bytes - candidate.live_bytes);
            victims.insert(candidate.segment);
        }
        victims
    }

    /// Cuts the segments to what was written, at a clean stop.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let _no_checkpoint = self.state.lock();
        Ok(self.files.segments.close()?)
    }

    pub(crate) fn stats(&self) -> CheckpointStats {
        let (segments, counts) = (self.files.segments.stats(), &self.counts);
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        // In the order in which they change, so that a checkpoint which is not seen to run any more is seen to have
        // ended.
        let is_running = self.is_wanted.load(Ordering::Acquire) || counts.is_running.load(Ordering::Acquire);
        CheckpointStats {
            checkpoints: get(&counts.checkpoints),
            failed: get(&counts.failed),
            is_running,
            began_ms: get(&counts.began_ms),
            start_lsn: get(&counts.start_lsn),
            last_ended_ms: get(&counts.last_ended_ms),
            last_took_ms: get(&counts.last_took_ms),
            last_error: counts.last_error.lock().clone(),
            kept_for_dump: get(&counts.kept_for_dump),
            images: get(&counts.images),
            images_kept: get(&counts.images_kept),
            segment_written_bytes: segments.written_bytes,
            cleaned_bytes: segments.cleaned_body_bytes,
            other_written_bytes: get(&counts.other_bytes),
            segment_allocated_bytes: segments.allocated_bytes,
            segment_live_bytes: segments.live_bytes,
        }
    }
}

// No unsafe code comes this way, and there is an SSD: not for Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use super::*;
    use crate::{CodecChoice, DiskHandle, DurableOptions, Options, SsdOptions, Store};
    use ziptier_media::testing::{FailingDisk, RecordingDisk};
    use ziptier_testing::until;

    /// Room may come without any sign: somebody removes files from the disk, or a dump ends.
    #[test]
    fn a_clock_that_is_set_back_puts_off_no_checkpoint_for_room() {
        let disk = FailingDisk::that_fills(Arc::new(RecordingDisk::new()));
        let mut durable = DurableOptions::new("/data");
        durable.disk = DiskHandle(Arc::new(disk.clone()));
        durable.log.segment_bytes = 1 << 20;
        let ssd = Some(SsdOptions { path: None, limit_bytes: 4 << 20 });
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let store = Store::open(Options { ssd, durable: Some(durable), ..options }).unwrap();
        (0..200_u32).for_each(|n| store.put(&n.to_be_bytes(), &[7; 200]).unwrap());
        store.send_to_ssd(|| true).unwrap();
        disk.set_full(true);
        let checkpointer = store.core.checkpointer.get().unwrap();
        assert!(checkpointer.want_room(), "nothing of the segment is dead");
        assert!(store.checkpoint().is_err());
        until("no checkpoint is made", || !checkpointer.is_awaited() && !checkpointer.is_running());
        // The last one ended in an hour, by the clock as it is now.
        checkpointer.counts.last_ended_ms.store(now_ms() + 3_600_000, Ordering::Relaxed);
        until("another one is wanted", || checkpointer.want_room());
    }
}
