//! The parts of a store, shared by the callers' threads and the background threads.
//!
//! Not for the public API, which is `store`, nor for reads and writes of keys, which are `read` and `write`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_epoch::Guard;

use crate::Error;
use crate::batch::Commits;
use crate::body::{Body, BodyLimits};
use crate::clock::Clock;
use crate::dictionaries::Dictionaries;
use crate::durable::{Checkpointer, Journal};
use crate::evict::Eviction;
use crate::index::Index;
use crate::large::{ChunkPlace, Large};
use crate::leaf::{Leaf, LeafState, RightSibling};
use crate::maintenance::{Queue, Unsettled};
use crate::memory::Gauges;
use crate::merge::Newest;
use crate::options::{CodecChoice, KEY_BYTES_MAX, Options};
use crate::packing::{Goal, Scratch};
use crate::places::far::FarMemory;
use crate::places::ssd::Cold;
use crate::pressure::Pressure;
use crate::reclaim::Epochs;
use crate::stats::Counters;
use crate::sync::Mutex;
use crate::update::Turns;

crate::sync::thread_local! {
    static SCRATCHES: RefCell<Scratches> = RefCell::new(Scratches::default());
}

/// The scratches in which a thread packs: one, and more while it packs a leaf during the work on another.
#[derive(Default)]
struct Scratches {
    #[expect(
        clippy::vec_box,
        reason = "a scratch of several hundred bytes would be moved twice for each pack"
    )]
    idle: Vec<Box<Scratch>>,
    in_background: bool,
}

pub(crate) struct Core {
    pub(crate) codec: CodecChoice,
    /// Whether hot leaves are kept raw.
    pub(crate) heats: bool,
    pub(crate) landing_bytes: usize,
    /// The clock by which records expire.
    pub(crate) clock: Clock,
    /// How large bodies become.
    pub(crate) limits: BodyLimits,
    pub(crate) has_background: bool,
    pub(crate) background_packing: bool,
    /// See [`Options::landing_watermark_pct`].
    landing_watermark_pct: usize,
    pub(crate) index: Index,
    pub(crate) gauges: Arc<Gauges>,
    /// The place below DRAM, if there is one.
    pub(crate) far: Option<Arc<FarMemory>>,
    /// The SSD, the last place, if there is one.
    pub(crate) cold: Option<Cold>,
    pub(crate) pressure: Pressure,
    pub(crate) stats: Counters,
    pub(crate) dictionaries: Dictionaries,
    pub(crate) queue: Queue,
    pub(crate) unsettled: Unsettled,
    /// The data of eviction, while it is on.
    pub(crate) eviction: Box<Eviction>,
    /// Whether records are evicted at the limit; otherwise writes are refused there.
    pub(crate) evicts: AtomicBool,
    /// Which batches exist: records of others do not, yet.
    pub(crate) commits: Commits,
    /// Long batches are written one at a time, so that each finds the room that the one before has left.
    pub(crate) long_batches: Mutex<()>,
    /// Which key one of its updates has for itself.
    pub(crate) turns: Turns,
    /// The log that writes go to, once the store has recovered; never without a folder.
    pub(crate) journal: OnceLock<Journal>,
    /// Makes the checkpoints that keep the log short.
    pub(crate) checkpointer: OnceLock<Checkpointer>,
    /// A merge has dropped expired records, which a checkpoint or the log may still have.
    has_dropped: AtomicBool,
    /// Leaves are made from images, and no other thread may change any.
    pub(crate) loading: AtomicBool,
    /// Writes repeat what the log says.
    pub(crate) recovering: AtomicBool,
    /// A recovery deletes a range of keys. Leaves on SSD that were cut at its bounds stay apart.
    pub(crate) deletes_range: AtomicBool,
    /// The store's epochs; dropped last.
    epochs: Epochs,
}

impl Core {
    /// A core with DRAM only.
    pub(crate) fn new(options: &Options) -> Self {
        Self::with_places(options, Arc::new(Gauges::new(options.memory_limit_bytes)), None, None)
    }

    /// A core with far memory of a test.
    #[cfg(test)]
    pub(crate) fn with_far(options: &Options, far: Arc<FarMemory>) -> Self {
        Self::with_places(options, Arc::new(Gauges::new(options.memory_limit_bytes)), Some(far), None)
    }

    /// A core with the places below DRAM.
    pub(crate) fn with_places(
        options: &Options,
        gauges: Arc<Gauges>,
        far: Option<Arc<FarMemory>>,
        cold: Option<Cold>,
    ) -> Self {
        let state = LeafState::new(Body::empty(), None, RightSibling::none());
        let first = Leaf::new(Arc::from(&[][..]), state, gauges.clone());
        Self {
            codec: options.codec,
            heats: options.heats(),
            landing_bytes: options.landing_bytes,
            clock: options.clock.clone(),
            has_background: options.background_threads > 0,
            background_packing: options.background_packing && options.background_threads > 0,
            landing_watermark_pct: usize::from(options.landing_watermark_pct),
            index: Index::new(first, gauges.clone()),
            dictionaries: Dictionaries::new(gauges.clone(), options),
            limits: BodyLimits::of(options),
            gauges,
            far,
            cold,
            pressure: Pressure::default(),
            stats: Counters::default(),
            queue: Queue::default(),
            unsettled: Unsettled::default(),
            eviction: Box::new(Eviction::new(options.eviction)),
            evicts: AtomicBool::new(options.eviction),
            commits: Commits::default(),
            long_batches: Mutex::new(()),
            turns: Turns::default(),
            journal: OnceLock::new(),
            checkpointer: OnceLock::new(),
            has_dropped: AtomicBool::new(false),
            loading: AtomicBool::new(options.durable.is_some()),
            recovering: AtomicBool::new(options.durable.is_some()),
            deletes_range: AtomicBool::new(false),
            epochs: Epochs::default(),
        }
    }

    /// Nothing that readers can reach now is freed while the guard lives.
    #[inline]
    pub(crate) fn pin(&self) -> Guard {
        self.epochs.pin()
    }

    /// Runs `work` with a packing scratch of this thread.
    pub(crate) fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
        let mut scratch = SCRATCHES.with(|scratches| {
            let scratches = &mut *scratches.borrow_mut();
            scratches.idle.pop().unwrap_or_else(|| Box::new(Scratch::new(scratches.in_background)))
        });
        let result = work(&mut scratch);
        SCRATCHES.with(|scratches| scratches.borrow_mut().idle.push(scratch));
        result
    }

    /// Frees the packing scratch of this thread.
    pub(crate) fn release_scratch() {
        SCRATCHES.with(|scratches| scratches.borrow_mut().idle = Vec::new());
    }

    /// Frees the codes of tokens that this thread has laid out, since they count for no limit. A background thread
    /// keeps them until the end of a lap.
    pub(crate) fn release_codes() {
        SCRATCHES.with(|scratches| {
            let scratches = &mut *scratches.borrow_mut();
            if !scratches.in_background {
                scratches.idle.iter_mut().for_each(|scratch| scratch.release_codes());
            }
        });
    }

    /// Says that this thread, which has not packed anything yet, works in the background.
    pub(crate) fn work_in_background() {
        SCRATCHES.with(|scratches| scratches.borrow_mut().in_background = true);
    }

    /// The leaf that owns `key`, and its state.
    #[inline]
    pub(crate) fn locate<'g>(&self, key: &[u8], guard: &'g Guard) -> (&'g Leaf, &'g LeafState) {
        let mut leaf = self.index.find(key, guard);
        loop {
            let state = leaf.state(guard);
            if state.covers(key) {
                return (leaf, state);
            }
            leaf = state.right(guard).expect("a leaf with an upper fence has a right sibling");
        }
    }

    /// Waits until what the calling thread has seen is as durable as was promised, if calls wait.
    ///
    /// # Errors
    /// The log failed, and records that were seen may not be durable, which was promised. Reads that promise nothing
    /// of that kind go on.
    #[inline]
    pub(crate) fn wait_for_seen(&self) -> Result<(), Error> {
        match self.journal.get() {
            Some(journal) if journal.waits() => journal.wait_for_seen(),
            _ => Ok(()),
        }
    }

    /// Packs `leaf` if no other thread maintains it and its new body has a place. With `anyway` it need not have one,
    /// unless the leaf is on SSD.
    pub(crate) fn pack_unowned(&self, leaf: &Leaf, anyway: bool, guard: &Guard) -> Unowned {
        let Some(_ownership) = leaf.try_own() else { return Unowned::Busy };
        let state = leaf.state(guard);
        if state.sealed.is_some() {
            let raised_bytes = if anyway { 0 } else { self.bytes_to_raise(&[state]) };
            if raised_bytes > 0 && self.admit(raised_bytes).is_err() {
                return Unowned::NoPlace { raised_bytes };
            }
            let retention = &mut self.retention();
            if !Self::with_scratch(|scratch| self.pack(leaf, Goal::Keep, retention, guard, scratch)) {
                return Unowned::Crowded;
            }
        }
        Unowned::Packed
    }

    /// Whether background threads are to pack a leaf before its landing is full.
    #[inline]
    pub(crate) fn is_over_watermark(&self, state: &LeafState) -> bool {
        self.landing_watermark_pct < 100
            && self.background_packing
            && state.sealed.is_none()
            && state
                .open
                .as_ref()
                .is_some_and(|open| open.used_bytes() * 100 >= open.capacity() * self.landing_watermark_pct)
    }

    /// A pack drops records that expire by this time. While the store recovers it drops none, because the log may give
    /// them a later expiry yet.
    pub(crate) fn expiry_now_ms(&self) -> u64 {
        if self.recovering.load(Ordering::Relaxed) { 0 } else { self.clock.now_ms() }
    }

    /// The time by which a merge of `newest` over `body` drops expired records.
    pub(crate) fn drops_expired_by_ms(&self, newest: &Newest<'_>, body: &Body) -> u64 {
        let now_ms = self.expiry_now_ms();
        if newest.expires(body, now_ms) {
            self.note_dropped();
        }
        now_ms
    }

    /// Notes that an expired record is about to leave memory. A thread that does not find the record sees the note.
    pub(crate) fn note_dropped(&self) {
        if !self.has_dropped() {
            self.has_dropped.store(true, Ordering::Relaxed);
        }
    }

    /// Whether expired records may have left memory since the store was opened.
    pub(crate) fn has_dropped(&self) -> bool {
        self.has_dropped.load(Ordering::Relaxed)
    }

    /// Whether the time of this expiry has come. Reads the clock only where there is one.
    #[inline]
    pub(crate) fn is_over(&self, expires_at_ms: Option<u64>) -> bool {
        expires_at_ms.is_some_and(|at| at <= self.clock.now_ms())
    }

    /// Whether a record with this expiry may be taken for gone. While the store recovers none may: the log may give it
    /// a later expiry yet.
    pub(crate) fn is_gone(&self, expires_at_ms: Option<u64>) -> bool {
        !self.recovering.load(Ordering::Relaxed) && self.is_over(expires_at_ms)
    }

    /// A large value coded by the calling thread, which holds no guard.
    pub(crate) fn new_large(&self, value: &[u8]) -> Result<Arc<Large>, Error> {
        self.new_large_in(value, self.chunk_place(value.len()))
    }

    /// As [`Core::new_large`], in a place that had room a moment ago.
    pub(crate) fn new_large_in(&self, value: &[u8], place: ChunkPlace<'_>) -> Result<Arc<Large>, Error> {
        let dram_bytes = match place {
            ChunkPlace::Dram => value.len(),
            // Lent for the moment in which it is coded.
            ChunkPlace::Far(_) => 0,
            ChunkPlace::Ratio(_, placement) => (value.len() as f64 * placement.dram_share()) as usize,
        };
        let reserved = self.reserve(dram_bytes)?;
        let coding = self.dictionaries.current();
        let large = Arc::new(Large::new(value, coding.as_ref(), place, reserved, &self.gauges));
        if matches!(place, ChunkPlace::Far(_)) && large.is_in_dram() {
            // Other threads have filled far memory meanwhile, and nothing was reserved in DRAM.
            self.make_room(0)?;
        }
        Ok(large)
    }
}

/// The outcome of packing a leaf that the caller does not own yet.
pub(crate) enum Unowned {
    /// The landing that was sealed lies in its body.
    Packed,
    /// Another thread maintains it.
    Busy,
    /// Its body would come up from far memory, and DRAM is too full for that.
    NoPlace { raised_bytes: usize },
    /// It is on SSD, and its overlay has no room for the landing: [`Core::promote_crowded`] makes some.
    Crowded,
}

/// Refuses keys that are no keys.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    match key.len() {
        0 => Err(Error::EmptyKey),
        1..=KEY_BYTES_MAX => Ok(()),
        len => Err(Error::KeyTooLong { len }),
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Records own their large values, and leaves know nothing of that.
        let guard = self.pin();
        let mut leaf = Some(self.index.find(&[], &guard));
        while let Some(this) = leaf {
            let state = this.state(&guard);
            for reference in crate::merge::large_references(state) {
                self.release_large(reference, &guard);
            }
            leaf = state.right(&guard);
        }
    }
}
