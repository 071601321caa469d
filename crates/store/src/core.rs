//! The parts of a store, shared by the callers' threads and the background threads.
//!
//! Not for the public API, which is `store`, nor for reads and writes of keys, which are `read` and `write`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use crossbeam_epoch::Guard;

use crate::Error;
use crate::durable::{Checkpointer, Journal};
use crate::evict::Eviction;
use crate::large::{ChunkPlace, Large};
use crate::leaf::{Leaf, LeafState};
use crate::maintenance::{Queue, Unsettled};
use crate::memory::Gauges;
use crate::options::{KEY_BYTES_MAX, Options};
use crate::packing::Goal;
use crate::places::far::FarMemory;
use crate::places::ssd::Cold;
use crate::pressure::Pressure;
use crate::sync::Mutex;
use crate::tree::Tree;

pub(crate) struct Core {
    /// Dropped first: what readers held goes back while the folders are locked. Leaves that others share outlive the
    /// epochs, and no drop below pins one.
    pub(crate) tree: Tree,
    pub(crate) has_background: bool,
    pub(crate) background_packing: bool,
    /// See [`Options::landing_watermark_pct`].
    landing_watermark_pct: usize,
    /// The SSD, the last place, if there is one.
    pub(crate) cold: Option<Cold>,
    pub(crate) pressure: Pressure,
    pub(crate) queue: Queue,
    pub(crate) unsettled: Unsettled,
    /// The first background thread found nothing left of what was written.
    pub(crate) rests: AtomicBool,
    /// The data of eviction, while it is on.
    pub(crate) eviction: Box<Eviction>,
    /// Long batches are written one at a time, so that each finds the room that the one before has left.
    pub(crate) long_batches: Mutex<()>,
    /// The log that writes go to, once the store has recovered; never without a folder.
    pub(crate) journal: OnceLock<Journal>,
    /// Makes the checkpoints that keep the log short.
    pub(crate) checkpointer: OnceLock<Checkpointer>,
    /// Leaves are made from images, and no other thread may change any.
    pub(crate) loading: AtomicBool,
    /// A recovery deletes a range of keys. Leaves on SSD that were cut at its bounds stay apart.
    pub(crate) deletes_range: AtomicBool,
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
        Self {
            has_background: options.background_threads > 0,
            background_packing: options.background_packing && options.background_threads > 0,
            landing_watermark_pct: usize::from(options.landing_watermark_pct),
            cold,
            pressure: Pressure::default(),
            queue: Queue::default(),
            unsettled: Unsettled::default(),
            rests: AtomicBool::new(false),
            eviction: Box::new(Eviction::new(options.eviction)),
            long_batches: Mutex::new(()),
            journal: OnceLock::new(),
            checkpointer: OnceLock::new(),
            loading: AtomicBool::new(options.durable.is_some()),
            deletes_range: AtomicBool::new(false),
            tree: Tree::new(options, gauges, far),
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
            let raised_bytes = if anyway { 0 } else { self.room().bytes_to_raise(&[state]) };
            if raised_bytes > 0 && self.room().admit(raised_bytes).is_err() {
                return Unowned::NoPlace { raised_bytes };
            }
            let retention = &mut self.retention();
            if !self.pack(leaf, Goal::Keep, retention, guard) {
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

    /// A large value coded by the calling thread, which holds no guard.
    pub(crate) fn new_large(&self, value: &[u8]) -> Result<Arc<Large>, Error> {
        self.new_large_in(value, self.room().chunk_place(value.len()))
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
        let coding = self.tree.dictionaries.current();
        let large = Arc::new(Large::new(value, coding.as_ref(), place, reserved, &self.tree.gauges));
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
