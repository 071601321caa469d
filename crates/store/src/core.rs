//! The parts of a store, shared by the callers' threads and the background threads, and the look-up of one key.
//!
//! Not for the public API, which is `store`, nor for reads that go on to the SSD, which are `cold::read`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_epoch::Guard;

use crate::Error;
use crate::batch::Commits;
use crate::body::{Body, BodyLimits};
use crate::clock::Clock;
use crate::cold::{Cold, Looked};
use crate::dictionaries::Dictionaries;
use crate::durable::{Checkpointer, Journal};
use crate::evict::Eviction;
use crate::far::FarMemory;
use crate::hotness::SAMPLE;
use crate::index::{GROUP_KEYS, Index};
use crate::large::{ChunkPlace, INLINE_BYTES_MAX, Large};
use crate::leaf::{Leaf, LeafState, RightSibling};
use crate::maintenance::Queue;
use crate::memory::Gauges;
use crate::merge::Newest;
use crate::options::{CodecChoice, KEY_BYTES_MAX, Options};
use crate::packing::{Goal, Scratch};
use crate::pressure::Pressure;
use crate::reclaim::Epochs;
use crate::record::{Found, Lookup, Meta, Payload, key_hash};
use crate::stats::Counters;
use crate::sync::Mutex;
use crate::update::Turns;

/// Raw bytes that a coded inline value may decode to at most: more is damage.
const DECODED_BYTES_MAX: usize = 2 * INLINE_BYTES_MAX;

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

    /// Whether `leaf` was joined with its left neighbour and is not in the index any more: nobody may own it again.
    pub(crate) fn is_gone_leaf(&self, leaf: &Leaf, guard: &Guard) -> bool {
        leaf.state(guard).closed && !std::ptr::eq(self.index.find(&leaf.low(), guard), leaf)
    }

    /// Looks `key` up and hands its record to `take`, under the guard.
    #[inline]
    pub(crate) fn look_up<'g, R>(
        &self,
        key: &[u8],
        guard: &'g Guard,
        commits: &Commits,
        take: impl FnOnce(Found<'g>) -> R,
    ) -> Looked<R> {
        let leaf = self.index.find(key, guard);
        self.look_up_from(leaf, key, key_hash(key), guard, commits, take)
    }

    /// As [`Core::look_up`], from a leaf on that [`Index::find`] gave.
    #[inline]
    pub(crate) fn look_up_from<'g, R>(
        &self,
        mut leaf: &'g Leaf,
        key: &[u8],
        hash: u64,
        guard: &'g Guard,
        commits: &Commits,
        take: impl FnOnce(Found<'g>) -> R,
    ) -> Looked<R> {
        let counters = self.stats.own();
        loop {
            leaf.prefetch_body();
            let state = leaf.state(guard);
            match state.find(key, hash, commits) {
                (Lookup::Found(found), place) if !self.is_over(found.expires_at_ms) => {
                    let reads = match (&found.payload, place) {
                        (Payload::Large(large), _) => {
                            large.note_read();
                            counters.reads_large.raise()
                        }
                        (_, None) => counters.reads_landing.raise(),
                        (Payload::Coded(..) | Payload::Recoded(..), _) => counters.reads_coded.raise(),
                        (Payload::Packed(_), _) => counters.reads_packed.raise(),
                        (Payload::Raw(_) | Payload::Lost, _) => counters.reads_raw.raise(),
                    };
                    if let Some(place) = place {
                        if (reads as u32).is_multiple_of(SAMPLE) {
                            leaf.clock.touch(place);
                        }
                        if self.evicts() {
                            leaf.marks.touch(place, guard);
                        }
                    }
                    return Looked::Found(take(found));
                }
                (Lookup::Absent, _) if !state.covers(key) => {
                    leaf = state.right(guard).expect("a leaf with an upper fence has a right sibling");
                }
                (lookup, _) => match &state.below {
                    Some(below) if matches!(lookup, Lookup::Absent) => {
                        leaf.clock.touch_by(hash);
                        counters.reads_below.raise();
                        return Looked::Below(below.clone());
                    }
                    _ => {
                        counters.misses.raise();
                        return Looked::Absent;
                    }
                },
            }
        }
    }

    /// The leaves of the first [`GROUP_KEYS`] of `keys`, with the keys' hashes, and what look-ups from there will read
    /// on its way into the cache.
    ///
    /// A look-up waits for memory four or five times, each time for the address of the next. Here every step is
    /// taken for all keys before the next one, so that the waits overlap.
    pub(crate) fn approach<'g, K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        guard: &'g Guard,
    ) -> impl Iterator<Item = (&'g Leaf, u64)> {
        let leaves = self.index.find_group(keys, guard);
        for leaf in leaves.iter().flatten() {
            leaf.prefetch_state(guard);
            leaf.prefetch_body();
        }
        let mut hashes = [0; GROUP_KEYS];
        for ((hash, key), leaf) in hashes.iter_mut().zip(keys).zip(leaves.iter().flatten()) {
            *hash = key_hash(key.as_ref());
            leaf.state(guard).body.prefetch_record(*hash);
        }
        leaves.into_iter().flatten().zip(hashes)
    }

    /// Prefetches for writes to the first [`GROUP_KEYS`] of `keys`, step by step for all of them, as [`Core::approach`]
    /// does for reads.
    pub(crate) fn approach_writes<K: AsRef<[u8]>>(&self, keys: &[K], guard: &Guard) {
        let leaves = self.index.find_group(keys, guard);
        let leaves = || leaves.iter().flatten();
        leaves().for_each(|leaf| leaf.prefetch_state(guard));
        leaves().for_each(|leaf| leaf.state(guard).prefetch_append());
        leaves().filter_map(|leaf| leaf.state(guard).open.as_ref()).for_each(|open| open.prefetch_end());
    }

    /// Appends the value of `key` to `value`; `None` when there is none.
    #[inline]
    pub(crate) fn read(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        self.read_up_to(key, u64::MAX, value)
    }

    /// As [`Core::read`], but of a large value longer than `len_max` nothing is appended.
    #[inline]
    pub(crate) fn read_up_to(
        &self,
        key: &[u8],
        len_max: u64,
        value: &mut Vec<u8>,
    ) -> Result<Option<Meta>, Error> {
        let start = value.len();
        match self.find_value(key, |found| copy_found(found, value))? {
            None => Ok(None),
            Some(Copied::Inline(meta)) => Ok(Some(Meta { len: (value.len() - start) as u64, ..meta })),
            Some(Copied::Large(_, meta)) if meta.len > len_max => Ok(Some(meta)),
            Some(Copied::Large(large, meta)) => {
                self.raise_again(std::iter::once((key, &*large)));
                self.read_large(key, &large, value).map(|()| Some(meta))
            }
            Some(Copied::Damaged(reason)) => Err(self.damaged(key, reason)),
        }
    }

    pub(crate) fn damaged(&self, key: &[u8], reason: String) -> Error {
        self.stats.damaged.raise();
        Error::Damaged { key_bytes: key.len(), reason }
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
            if !Self::with_scratch(|scratch| self.pack(leaf, Goal::Keep, guard, scratch)) {
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

    /// The place for the chunks of a large value that replaces `old`.
    pub(crate) fn place_like(&self, old: &Large) -> ChunkPlace<'_> {
        match self.far.as_ref().map(|far| (far, far.placement())) {
            Some((far, Some(placement))) => ChunkPlace::Ratio(far, placement),
            Some((far, None)) if !old.is_in_dram() => ChunkPlace::Far(far),
            _ => ChunkPlace::Dram,
        }
    }

    /// The place for the chunks of a new large value of `bytes` bytes.
    pub(crate) fn chunk_place(&self, bytes: usize) -> ChunkPlace<'_> {
        match self.far.as_ref().filter(|far| far.has_room(bytes)).map(|far| (far, far.placement())) {
            None => ChunkPlace::Dram,
            Some((far, Some(placement))) => ChunkPlace::Ratio(far, placement),
            Some((far, None)) if !self.has_memory_for(bytes as u64) => match far.has_room_for_chunks(bytes) {
                true => ChunkPlace::Far(far),
                false => ChunkPlace::Dram,
            },
            Some(_) => ChunkPlace::Dram,
        }
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
    /// It is on SSD, and its overlay has no room for the landing: [`Core::raise_crowded`] makes some.
    Crowded,
}

/// A value as far as it could be copied under the guard.
pub(crate) enum Copied {
    /// The value was appended; the length is not filled in.
    Inline(Meta),
    /// A share, to be copied without the guard.
    Large(Arc<Large>, Meta),
    Damaged(String),
}

/// Appends an inline value to `value`, or takes a share of a large one.
#[inline]
pub(crate) fn copy_found(found: Found<'_>, value: &mut Vec<u8>) -> Copied {
    let meta = Meta { len: 0, expires_at_ms: found.expires_at_ms, flags: found.flags };
    match found.payload {
        Payload::Raw(bytes) => value.extend_from_slice(bytes),
        Payload::Coded(coded, dictionary) => {
            if let Err(error) = dictionary.decode_append(coded, value, DECODED_BYTES_MAX) {
                return Copied::Damaged(error.to_string());
            }
        }
        Payload::Recoded(coded, dictionary) => {
            if let Err(error) = dictionary.decode_recoded(coded, value, DECODED_BYTES_MAX) {
                return Copied::Damaged(error.to_string());
            }
        }
        Payload::Packed(packed) => {
            if let Err(reason) = packed.append_to(value) {
                return Copied::Damaged(reason);
            }
        }
        Payload::Lost => return Copied::Damaged(LOST.to_owned()),
        Payload::Large(large) => return Copied::Large(large.share(), Meta { len: large.len(), ..meta }),
    }
    Copied::Inline(meta)
}

/// Bytes of a found value.
pub(crate) fn found_len(found: &Found<'_>) -> Result<u64, String> {
    match found.payload {
        Payload::Raw(bytes) => Ok(bytes.len() as u64),
        Payload::Coded(coded, dictionary) => {
            dictionary.raw_len(coded).map(|len| len as u64).map_err(|error| error.to_string())
        }
        Payload::Recoded(coded, dictionary) => {
            dictionary.recoded_raw_len(coded).map(|len| len as u64).map_err(|error| error.to_string())
        }
        Payload::Packed(packed) => packed.raw_len(),
        Payload::Lost => Err(LOST.to_owned()),
        Payload::Large(large) => Ok(large.len()),
    }
}

/// The error for a value that could not be unpacked when its leaf was packed anew, or read when its store was salvaged.
pub(crate) const LOST: &str =
    "its bytes failed their check when the leaf was packed anew or salvaged; write it again, or delete it";

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
