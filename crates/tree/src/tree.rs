//! The compressed B+tree: its index, its leaves, and what reads, packs and batches share.
//!
//! Not for making room, logging, evicting, or moving leaves to an SSD and back: the host does that. The tree reads the
//! limit in its gauges, and reads images on SSD.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_epoch::Guard;

use crate::body::{Body, BodyLimits};
use crate::clock::Clock;
use crate::codec_options::{CodecChoice, CodecOptions};
use crate::commits::Commits;
use crate::dictionaries::Dictionaries;
use crate::far::FarMemory;
use crate::index::Index;
use crate::landing::Landing;
use crate::large::{ChunkPlace, Large};
use crate::leaf::{Leaf, LeafState, Ownership, RightSibling};
use crate::memory::Gauges;
use crate::pending::Newest;
use crate::reclaim::Epochs;
use crate::stats::Counters;
use crate::sync::{Mutex, back_off};
use crate::turns::Turns;

/// How often a walk over all leaves looks whether a leaf of another owner is free: a few seconds.
const OWNER_ROUNDS: u32 = 50_000;

/// How a tree is built.
pub struct TreeOptions {
    /// How bodies are coded, and how values are packed in blocks.
    pub codecs: CodecOptions,
    /// Hot leaves are kept raw.
    pub heats: bool,
    /// Bytes of a landing at least.
    pub landing_bytes: usize,
    /// How full a landing may be, in per cent, before the host is told.
    pub landing_watermark_pct: usize,
    /// Records may go for good when memory is full.
    pub evicts: bool,
    /// The tree begins with a recovery.
    pub recovers: bool,
    /// The clock by which records expire.
    pub clock: Clock,
}

/// The parts of a tree. See the module.
pub struct Tree {
    /// How bodies are coded.
    pub codec: CodecChoice,
    /// Whether hot leaves are kept raw.
    pub heats: bool,
    /// Bytes of a landing at least.
    pub landing_bytes: usize,
    /// Packers may take a landing that is so many per cent full; 100 where they wait until it is full.
    landing_watermark_pct: usize,
    /// The clock by which records expire.
    pub clock: Clock,
    /// How large bodies become.
    pub limits: BodyLimits,
    /// The way from a key to its leaf.
    pub index: Index,
    /// The bytes that it holds, by purpose, and the limit.
    pub gauges: Arc<Gauges>,
    /// Where bodies and large values may lie besides DRAM, if there is such a place.
    pub far: Option<Arc<FarMemory>>,
    /// Counters of the work done.
    pub stats: Counters,
    /// The codings of bodies, and when the next dictionary is due.
    pub dictionaries: Dictionaries,
    /// Whether records are evicted at the limit: reads are counted in the marks of leaves then. Otherwise writes are
    /// refused there.
    pub evicts: AtomicBool,
    /// Which batches exist: records of others do not, yet.
    pub commits: Commits,
    /// Which key one of its updates has for itself.
    pub turns: Turns,
    /// Long batches are written one at a time, so that each finds the room that the one before has left.
    pub(crate) long_batches: Mutex<()>,
    /// A merge has dropped expired records, which a checkpoint or the log may still have.
    has_dropped: AtomicBool,
    /// Writes repeat what the log says.
    pub recovering: AtomicBool,
    /// The tree's epochs; dropped last of the tree.
    epochs: Epochs,
}

impl Tree {
    /// A tree of one empty leaf.
    pub fn new(options: &TreeOptions, gauges: Arc<Gauges>, far: Option<Arc<FarMemory>>) -> Self {
        let state = LeafState::new(Body::empty(), None, RightSibling::none());
        let first = Leaf::new(Arc::from(&[][..]), state, gauges.clone());
        Self {
            codec: options.codecs.codec,
            heats: options.heats,
            landing_bytes: options.landing_bytes,
            landing_watermark_pct: options.landing_watermark_pct,
            clock: options.clock.clone(),
            limits: BodyLimits::of(&options.codecs),
            index: Index::new(first, gauges.clone()),
            dictionaries: Dictionaries::new(gauges.clone(), &options.codecs),
            gauges,
            far,
            stats: Counters::default(),
            evicts: AtomicBool::new(options.evicts),
            commits: Commits::default(),
            turns: Turns::default(),
            long_batches: Mutex::new(()),
            has_dropped: AtomicBool::new(false),
            recovering: AtomicBool::new(options.recovers),
            epochs: Epochs::default(),
        }
    }

    /// Nothing that readers can reach now is freed while the guard lives.
    #[inline]
    pub fn pin(&self) -> Guard {
        self.epochs.pin()
    }

    /// The leaf that owns `key`, and its state.
    #[inline]
    pub fn locate<'g>(&self, key: &[u8], guard: &'g Guard) -> (&'g Leaf, &'g LeafState) {
        let mut leaf = self.index.find(key, guard);
        loop {
            let state = leaf.state(guard);
            if state.covers(key) {
                return (leaf, state);
            }
            leaf = state.right(guard).expect("a leaf with an upper fence has a right sibling");
        }
    }

    /// Whether packers may take the open landing of a leaf before it is full.
    #[inline]
    pub fn is_over_watermark(&self, state: &LeafState) -> bool {
        let is_over =
            |open: &Arc<Landing>| open.used_bytes() * 100 >= open.capacity() * self.landing_watermark_pct;
        self.landing_watermark_pct < 100 && state.sealed.is_none() && state.open.as_ref().is_some_and(is_over)
    }

    /// Whether writes repeat what the log says.
    pub fn recovering(&self) -> bool {
        self.recovering.load(Ordering::Relaxed)
    }

    /// A pack drops records that expire by this time. While the store recovers it drops none, because the log may give
    /// them a later expiry yet.
    pub fn expiry_now_ms(&self) -> u64 {
        if self.recovering.load(Ordering::Relaxed) { 0 } else { self.clock.now_ms() }
    }

    /// The time by which a merge of `newest` over `body` drops expired records.
    pub fn drops_expired_by_ms(&self, newest: &Newest<'_>, body: &Body) -> u64 {
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
    pub fn has_dropped(&self) -> bool {
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
}

/// Leaves to be owned, room in far memory, and retired bytes.
impl Tree {
    /// Frees all retired bytes that nobody reads any more. The caller holds no guard.
    pub fn reclaim(&self) {
        // Retired bytes are free three steps of the epoch later, and each step frees only a little.
        let mut idle_steps = 0;
        while idle_steps < 4 {
            let before = self.gauges.retired.held();
            if before == 0 {
                return;
            }
            self.pin().flush();
            idle_steps = if self.gauges.retired.held() < before { 0 } else { idle_steps + 1 };
        }
    }

    /// The leaf of `key`, owned, if no other thread owns it.
    pub(crate) fn try_own_leaf_of<'g>(
        &self,
        key: &[u8],
        guard: &'g Guard,
    ) -> Option<(&'g Leaf, Ownership<'g>)> {
        let (leaf, _) = self.locate(key, guard);
        let ownership = leaf.try_own()?;
        let state = leaf.state(guard);
        // A closed one was joined with its left neighbour or cut meanwhile: another one may have the key.
        (!state.closed && state.covers(key)).then_some((leaf, ownership))
    }

    /// Does `work` on the leaf of `key`, owned, once it is free. The caller holds no guard: the leaf's owner may wait
    /// for an SSD, and nothing would be freed meanwhile.
    pub fn with_leaf_of<R>(&self, key: &[u8], mut work: impl FnMut(&Leaf, &Guard) -> R) -> R {
        let mut round = 0;
        loop {
            let guard = self.pin();
            if let Some((leaf, _ownership)) = self.try_own_leaf_of(key, &guard) {
                return work(leaf, &guard);
            }
            drop(guard);
            back_off(round);
            round += 1;
        }
    }

    /// Whether records are evicted at the limit.
    #[inline]
    pub fn evicts(&self) -> bool {
        self.evicts.load(Ordering::Acquire)
    }

    /// The place for the chunks of a large value that replaces `old`.
    pub(crate) fn place_like(&self, old: &Large) -> ChunkPlace<'_> {
        match self.far.as_ref().map(|far| (far, far.placement())) {
            Some((far, Some(placement))) => ChunkPlace::Ratio(far, placement),
            Some((far, None)) if !old.is_in_dram() => ChunkPlace::Far(far),
            _ => ChunkPlace::Dram,
        }
    }

    /// Whether far memory has room for the bodies of a leaf that are packed of so many bytes.
    pub fn takes_bodies_of(&self, far: &FarMemory, packed_bytes: usize) -> bool {
        let bodies = 1 + packed_bytes / self.limits.bytes_full;
        far.has_room_for_bodies(packed_bytes.min(self.limits.bytes_max), bodies)
    }
}

/// Walks that hold nothing between two leaves.
impl Tree {
    /// A share of the leaf of `cursor`, and where the next one begins.
    pub fn share_at(&self, cursor: &[u8]) -> (Arc<Leaf>, Option<Arc<[u8]>>) {
        let guard = self.pin();
        let (leaf, state) = self.locate(cursor, &guard);
        (leaf.share(&guard), state.high.clone())
    }

    /// Visits every leaf, once no other thread maintains it.
    pub fn each_leaf<E>(&self, mut visit: impl FnMut(&Leaf) -> Result<(), E>) -> Result<(), E> {
        let mut cursor = Vec::new();
        loop {
            let (leaf, next) = self.share_at(&cursor);
            // A thread may maintain it just now.
            (0..OWNER_ROUNDS).take_while(|_| leaf.is_owned()).for_each(back_off);
            visit(&leaf)?;
            match next {
                Some(next) => cursor = next.to_vec(),
                None => return Ok(()),
            }
        }
    }
}

impl Drop for Tree {
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
