//! A leaf: a range of keys, and the one pointer that says what the range holds.
//!
//! Not for deciding when a leaf is packed, moved or evicted: the modules that publish states do that.
//!
//! 1. Everything that a reader needs hangs on one immutable [`LeafState`]: landings, body, form, upper fence,
//!    sibling.
//! 2. A thread builds a new state from the state that it read, and publishes it by compare-exchange. If another state
//!    came between, the thread loses and builds again.
//! 3. The *writer lock* serialises appends. Its holder also seals a full landing.
//! 4. The *ownership flag* serialises maintenance: packs, splits, joins, moves and evictions of a leaf exclude each
//!    other.
//! 5. A split or join first *closes* the leaf, under the writer lock. Later writers wait and descend again.

mod held;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};

use self::held::{Dead, hold, hold_changed};
use crate::below::Below;
use crate::body::{Body, DIRECTORY_BYTES};
use crate::commits::Commits;
use crate::form::Form;
use crate::hotness::{ReadCounts, Usage};
use crate::landing::Landing;
use crate::marks::Marks;
use crate::memory::{Gauges, allocated_bytes, prefetch};
use crate::pending::Newest;
use crate::reclaim::Unreachable;
use crate::record::{Fields, Found, Kind, Lookup};
use crate::sync::{Mutex, MutexGuard, interleave};

/// References to large values that leaves have together when they are joined. They are never merged: a leaf that has
/// twice as many is cut.
pub const LARGES_MAX: usize = 256;

/// Records of an overlay at most: a body counts its records in two bytes.
pub const UPPER_RECORDS_MAX: usize = u16::MAX as usize;
/// A leaf with more records above its images than this is promoted, so that its next landings have room.
pub const CROWDED_RECORDS: usize = UPPER_RECORDS_MAX / 2;

/// The medium of a body, from the fastest down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// DRAM.
    Dram,
    /// Far memory.
    Far,
    /// The SSD.
    Ssd,
}

/// The contents of a leaf at a moment. A state never changes; see the module.
#[derive(Clone)]
pub struct LeafState {
    /// Takes appends.
    pub open: Option<Arc<Landing>>,
    /// Full, waiting to be packed.
    pub sealed: Option<Arc<Landing>>,
    /// The settled records; of a leaf on SSD, the overlay above its images.
    pub body: Body,
    /// The form of the body.
    pub form: Form,
    /// The images on SSD, which landings and body shadow record by record. The body may hold tombstones then.
    pub below: Option<Arc<Below>>,
    /// No append any more: a split or merge is under way, or was and took the keys elsewhere.
    pub closed: bool,
    /// The first key that belongs to the right sibling.
    pub high: Option<Arc<[u8]>>,
    /// The next leaf in key order.
    pub right: RightSibling,
    /// The image of what the leaf says, if it was taken since the leaf was cut or joined last.
    pub stored: Option<Memo>,
}

/// The image that a checkpoint has of a leaf. Only checkpoints know its type; the leaf keeps it and counts its bytes.
pub(crate) type Memo = Arc<dyn Any + Send + Sync>;

/// A pointer to the right sibling, which is alive as long as the state with this pointer can be read.
#[derive(Clone, Copy)]
pub struct RightSibling(*const Leaf);

// SAFETY: it is followed only under the guard that made its state readable, which keeps the leaf alive.
unsafe impl Send for RightSibling {}
// SAFETY: as above.
unsafe impl Sync for RightSibling {}

impl RightSibling {
    /// Of the last leaf.
    pub fn none() -> Self {
        Self(std::ptr::null())
    }

    /// To `leaf`, which must live as long as a state with this pointer can be read.
    pub fn to(leaf: &Arc<Leaf>) -> Self {
        Self(Arc::as_ptr(leaf))
    }
}

impl LeafState {
    /// The lowest place that has records of the leaf. The overlay of a leaf on SSD lies in DRAM or in far memory.
    #[inline]
    pub fn place(&self) -> Place {
        match &self.below {
            Some(_) => Place::Ssd,
            None if self.body.is_far() => Place::Far,
            None => Place::Dram,
        }
    }

    /// A state without landings.
    pub fn new(body: Body, high: Option<Arc<[u8]>>, right: RightSibling) -> Self {
        Self {
            open: None,
            sealed: None,
            body,
            form: Form::Raw,
            below: None,
            closed: false,
            high,
            right,
            stored: None,
        }
    }

    /// Whether `key`, which is not below the leaf's low fence, belongs to this leaf.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        self.high.as_deref().is_none_or(|high| key < high)
    }

    /// Asks for the memory that an append reads next.
    #[inline]
    pub(crate) fn prefetch_append(&self) {
        if let Some(high) = &self.high {
            prefetch(high.as_ptr().addr(), high.len());
        }
        if let Some(open) = &self.open {
            prefetch(Arc::as_ptr(open).addr(), size_of::<Landing>());
        }
    }

    /// The right sibling.
    pub fn right<'g>(&self, _guard: &'g Guard) -> Option<&'g Leaf> {
        // SAFETY: a leaf is retired only after the state that pointed at it was replaced, and this state was read
        // under a guard that is still held.
        unsafe { self.right.0.as_ref() }
    }

    /// Whether both remember the same image, or none.
    fn has_stored_of(&self, other: &Self) -> bool {
        let address = |state: &Self| state.stored.as_ref().map(|stored| Arc::as_ptr(stored).cast::<()>());
        address(self) == address(other)
    }

    /// Landings, newest first.
    pub fn landings(&self) -> impl Iterator<Item = &Landing> {
        self.open.iter().chain(&self.sealed).map(|landing| &**landing)
    }

    /// Bytes that the landings hold.
    pub fn landing_bytes(&self) -> u64 {
        self.landings().map(|landing| landing.held_bytes() as u64).sum()
    }

    /// Whether a write has not reached the body yet.
    pub fn is_unsettled(&self) -> bool {
        self.landings().any(|landing| !landing.is_empty())
    }

    /// Whether a cold leaf has so many records above its images, or references to large values among them, that it is
    /// to be cut, which takes its images.
    pub fn is_crowded(&self) -> bool {
        let records = || self.body.len() + self.landings().map(Landing::len).sum::<usize>();
        self.below.is_some() && (records() > CROWDED_RECORDS || self.body.larges().count() > 2 * LARGES_MAX)
    }

    /// The record of `key` in memory. `Absent` may mean that the record lies below. The second part is its place in the
    /// body, if it was found there.
    #[inline]
    pub fn find<'a>(&'a self, key: &[u8], hash: u64, commits: &Commits) -> (Lookup<'a>, Option<usize>) {
        let mut place = None;
        let mut body = || {
            let (lookup, found_at) = self.find_in_body(key, hash);
            place = found_at;
            lookup
        };
        let lookup = match (&self.open, &self.sealed) {
            (None, None) => body(),
            (Some(landing), None) | (None, Some(landing)) => landing.find(key, hash, commits, body),
            (Some(open), Some(sealed)) => {
                open.find(key, hash, commits, || sealed.find(key, hash, commits, body))
            }
        };
        (lookup, place)
    }

    #[inline]
    fn find_in_body(&self, key: &[u8], hash: u64) -> (Lookup<'_>, Option<usize>) {
        match self.body.find(key, hash) {
            Some(index) if self.below.is_some() && self.body.record(index).tag.kind() == Kind::Tombstone => {
                (Lookup::Deleted, None)
            }
            Some(index) => (Lookup::Found(self.body.found(index, &self.form)), Some(index)),
            None => (Lookup::Absent, None),
        }
    }

    /// Whether memory says nothing of `key`, and images on SSD may have it.
    pub(crate) fn is_only_below(&self, key: &[u8], hash: u64, commits: &Commits) -> bool {
        self.below.is_some() && matches!(self.find(key, hash, commits).0, Lookup::Absent)
    }

    /// As [`LeafState::find`], for many keys in a row: `sorted` is what the landings say.
    pub(crate) fn find_in<'a>(&'a self, sorted: &Newest<'a>, key: &[u8], hash: u64) -> Lookup<'a> {
        let Ok(index) = sorted.pending.binary_search_by(|record| record.key.cmp(key)) else {
            return self.find_in_body(key, hash).0;
        };
        let record = &sorted.pending[index];
        let Fields { expires_at_ms, flags, .. } = record.fields;
        match record.kind {
            Kind::Tombstone => Lookup::Deleted,
            Kind::Touch => match self.find_in_body(key, hash).0 {
                Lookup::Found(found) => Lookup::Found(Found { expires_at_ms, ..found }),
                lookup => lookup,
            },
            _ => Lookup::Found(Found { payload: record.payload(), expires_at_ms, flags }),
        }
    }
}

/// A range of keys. See the module.
#[repr(C)]
pub struct Leaf {
    state: Atomic<LeafState>,
    /// The address of the body now or a moment ago, as a hint for prefetching. It lies in the cache line of the state
    /// pointer, so that a reader fetches both from memory at once.
    body_address: AtomicUsize,
    /// Appends ever made to this leaf, on top of a number of its own: two leaves never show the same count. Raised
    /// under the writer lock, read without it by optimists.
    appends: AtomicU64,
    /// Appends at the last visit of a round or a lap.
    swept_appends: AtomicU64,
    writer: Mutex<()>,
    owned: AtomicBool,
    /// The index has let go of it.
    removed: AtomicBool,
    /// Waits in the queue of the packers.
    queued: AtomicBool,
    /// Is on the list of leaves that were given landings.
    listed: AtomicBool,
    /// When the host last looked, it was read so much that it belongs in DRAM.
    warm: AtomicBool,
    /// How often its records are read.
    pub reads: ReadCounts,
    /// For how long nobody used it, and how often it was read since.
    pub usage: Usage,
    /// Empty while the store does not evict.
    pub marks: Marks,
    /// The stamps under which the leaf waits for its turn on probation and in the main queue.
    pub waits: [AtomicU8; 2],
    low: Arc<[u8]>,
    gauges: Arc<Gauges>,
    /// For those who must share it.
    this: Weak<Leaf>,
}

/// The right to maintain a leaf; given back on drop.
pub struct Ownership<'l>(&'l Leaf);

impl Drop for Ownership<'_> {
    fn drop(&mut self) {
        self.0.owned.store(false, Ordering::Release);
    }
}

/// No stamp: the leaf does not wait for its turn.
pub const NOWHERE: u8 = u8::MAX;

/// Leaves ever made.
static NEXT_LEAF: AtomicU64 = AtomicU64::new(0);
/// Spreads the counts of leaves over all 64-bit numbers (the golden ratio), so that no leaf's count comes near
/// another's in any time that matters.
const LEAF_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes of a page of memory on x86-64, and mostly on aarch64.
const PAGE_BYTES: usize = 4096;
const STATE_BYTES: usize = size_of::<LeafState>();
const LEAF_BYTES: usize = size_of::<Leaf>() + 16;
/// Bytes that a leaf takes besides its keys.
pub(crate) const LEAF_AND_STATE_BYTES: usize = allocated_bytes(LEAF_BYTES) + allocated_bytes(STATE_BYTES);

impl Leaf {
    /// A leaf from `low` on.
    pub fn new(low: Arc<[u8]>, state: LeafState, gauges: Arc<Gauges>) -> Arc<Self> {
        gauges.index.add(STATE_BYTES);
        gauges.index.add(LEAF_BYTES);
        gauges.index.add(low.len() + 16);
        hold(&gauges, &state, true);
        Arc::new_cyclic(|this| Self {
            body_address: AtomicUsize::new(state.body.address()),
            state: Atomic::new(state),
            appends: AtomicU64::new(NEXT_LEAF.fetch_add(1, Ordering::Relaxed).wrapping_mul(LEAF_STRIDE)),
            swept_appends: AtomicU64::new(0),
            writer: Mutex::new(()),
            owned: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            warm: AtomicBool::new(false),
            reads: ReadCounts::default(),
            usage: Usage::default(),
            marks: Marks::default(),
            waits: [AtomicU8::new(NOWHERE), AtomicU8::new(NOWHERE)],
            low,
            gauges,
            this: this.clone(),
        })
    }

    /// The lowest key that belongs here; it never changes.
    pub fn low(&self) -> Arc<[u8]> {
        self.low.clone()
    }

    /// The state now.
    #[inline]
    pub fn state<'g>(&self, guard: &'g Guard) -> &'g LeafState {
        interleave();
        // SAFETY: the pointer is never null, and a state is retired only after it was replaced.
        unsafe { self.state.load(Ordering::Acquire, guard).deref() }
    }

    /// The state now, unless the leaf is closed.
    ///
    /// For holders of a share, which may outlive the leaf's place in the tree. Other leaves may have the records of a
    /// closed leaf by now, and may have released the large values that its last state names.
    pub fn open_state<'g>(&self, guard: &'g Guard) -> Option<&'g LeafState> {
        Some(self.state(guard)).filter(|state| !state.closed)
    }

    /// Asks for the memory of the state.
    #[inline]
    pub(crate) fn prefetch_state(&self, guard: &Guard) {
        prefetch(self.state.load(Ordering::Relaxed, guard).as_raw().addr(), STATE_BYTES);
    }

    /// Asks for the memory that a look-up in this leaf reads first.
    #[inline]
    pub(crate) fn prefetch_body(&self) {
        let address = self.body_address.load(Ordering::Relaxed);
        prefetch(address, DIRECTORY_BYTES);
        // Half of all records lie in the next page, whose translation takes as long as a miss.
        prefetch(address.wrapping_add(PAGE_BYTES), 1);
    }

    /// Replaces `current` by `new`, unless another state came between; the old one is retired.
    pub fn publish(&self, current: &LeafState, new: LeafState, guard: &Guard) -> bool {
        interleave();
        let expected = Shared::from(std::ptr::from_ref(current));
        let mut dead = Dead::default();
        dead.count(current, &new);
        // The new state is counted before any thread can see it. The thread that replaces it takes these counts away
        // again.
        self.gauges.index.add(STATE_BYTES);
        hold_changed(&self.gauges, current, &new);
        let body_address = new.body.address();
        let new = Owned::new(new);
        match self.state.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire, guard) {
            Ok(_) => {
                self.body_address.store(body_address, Ordering::Relaxed);
                self.gauges.index.take(STATE_BYTES);
                self.gauges.retire(dead.asked, dead.held);
                self.gauges.far_retired.add_held(dead.far);
                let gauges = self.gauges.clone();
                let old = Unreachable::new(expected.as_raw().cast_mut());
                // SAFETY: the old state is no longer reachable, and readers that hold it are pinned now.
                unsafe {
                    guard.defer_unchecked(move || {
                        drop(Owned::from_raw(old.into_raw()));
                        gauges.free(dead.asked, dead.held);
                        gauges.far_retired.take_held(dead.far);
                    });
                }
                true
            }
            Err(lost) => {
                self.gauges.index.take(STATE_BYTES);
                hold_changed(&self.gauges, &lost.new, current);
                false
            }
        }
    }

    /// Publishes `body`, a copy in another place, beside whatever landings the leaf, which the caller owns, has by now.
    pub fn publish_body(&self, body: &Body, guard: &Guard) {
        loop {
            let current = self.state(guard);
            if self.publish(current, LeafState { body: body.clone(), ..current.clone() }, guard) {
                return;
            }
        }
    }

    /// Seals the open landing, so that the next pack takes it. Nothing happens when one is sealed already.
    pub fn seal(&self, guard: &Guard) {
        let _writer = self.lock_writer();
        self.seal_locked(guard);
    }

    /// As [`Leaf::seal`]; the caller holds the writer lock.
    pub fn seal_locked(&self, guard: &Guard) {
        loop {
            let state = self.state(guard);
            let Some(open) = state.open.as_ref().filter(|open| !open.is_empty()) else { return };
            if state.sealed.is_some() || state.closed {
                return;
            }
            let new = LeafState { open: None, sealed: Some(open.clone()), ..state.clone() };
            if self.publish(state, new, guard) {
                return;
            }
        }
    }

    /// Stops appends to the leaf, which the caller owns, until another state is published.
    pub fn close<'g>(&self, guard: &'g Guard) -> &'g LeafState {
        let _writer = self.lock_writer();
        let state = self.state(guard);
        let closed = self.publish(state, LeafState { closed: true, ..state.clone() }, guard);
        assert!(closed, "under the writer lock only the owner publishes");
        self.state(guard)
    }

    /// Lets the leaf, which the caller owns and closed, take appends again.
    pub fn reopen(&self, closed: &LeafState, guard: &Guard) {
        let reopened = self.publish(closed, LeafState { closed: false, ..closed.clone() }, guard);
        assert!(reopened, "nobody changes a closed leaf but its owner");
    }

    /// The lock that appends are made under.
    pub fn lock_writer(&self) -> MutexGuard<'_, ()> {
        interleave();
        self.writer.lock()
    }

    /// The same lock, if nobody holds it.
    pub fn try_lock_writer(&self) -> Option<MutexGuard<'_, ()>> {
        interleave();
        self.writer.try_lock()
    }

    /// Notes an append. The caller holds the writer lock.
    pub fn note_append(&self) {
        interleave();
        self.appends.store(self.appends.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Raises the append count of a leaf that takes the keys of its right neighbour. The keys may have been its own
    /// before, and an update may have been decided on then at the same count. A quiet leaf stays quiet.
    ///
    /// The caller keeps the writer lock until the index has let go of the neighbour, and those of new leaves between
    /// the two. A batch with the lock of such a leaf writes those keys there without asking the index. Readers ask the
    /// index, and would find what they were before.
    pub fn note_absorbed(&self) -> MutexGuard<'_, ()> {
        let writer = self.lock_writer();
        let was_quiet = self.stays_quiet();
        self.note_append();
        if was_quiet {
            self.swept_appends.store(self.appends(), Ordering::Relaxed);
        }
        writer
    }

    /// Appends ever made.
    pub fn appends(&self) -> u64 {
        interleave();
        self.appends.load(Ordering::Acquire)
    }

    /// Whether nothing was appended since this was last asked.
    pub fn is_quiet(&self) -> bool {
        let appends = self.appends();
        self.swept_appends.swap(appends, Ordering::Relaxed) == appends
    }

    /// The same without asking.
    pub fn stays_quiet(&self) -> bool {
        self.swept_appends.load(Ordering::Relaxed) == self.appends()
    }

    /// A share of this leaf that outlives the guard.
    pub fn share(&self, _guard: &Guard) -> Arc<Self> {
        self.this.upgrade().expect("the index's share is released only after the guard")
    }

    /// A way to this leaf that does not keep it.
    pub fn share_weakly(&self) -> Weak<Self> {
        self.this.clone()
    }

    /// Counts what this leaf holds as retired. The index has let go of the leaf, and its state `closed` never changes
    /// any more.
    pub fn retire(&self, closed: &LeafState) {
        let before = self.removed.swap(true, Ordering::Relaxed);
        debug_assert!(!before, "a leaf is removed once");
        hold(&self.gauges, closed, false);
        let dead = Dead::of(closed);
        self.gauges.retire(dead.asked, dead.held);
        self.gauges.far_retired.add_held(dead.far);
    }

    /// Takes the right to maintain this leaf, if nobody has it.
    pub fn try_own(&self) -> Option<Ownership<'_>> {
        interleave();
        let free = self.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        free.then(|| Ownership(self))
    }

    /// Whether a thread maintains this leaf at this moment.
    pub fn is_owned(&self) -> bool {
        self.owned.load(Ordering::Relaxed)
    }

    /// Marks the leaf as queued; `false` when it was. The caller has filled or sealed a landing.
    pub fn enqueue(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    /// Takes the mark away. A writer that found the mark has filled or sealed a landing, which the caller sees then.
    pub fn dequeue(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }

    /// Marks the leaf as listed; `false` when it was. The caller has published a landing, or sees one.
    pub fn list(&self) -> bool {
        !self.listed.swap(true, Ordering::AcqRel)
    }

    /// Takes the mark away. A writer that found the mark has published a landing, which the caller sees then.
    pub fn unlist(&self) {
        self.listed.swap(false, Ordering::AcqRel);
    }

    /// Whether the leaf is on the list of leaves with landings.
    pub fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
    }

    /// Counted reads per record, those on SSD included.
    pub fn heat(&self, state: &LeafState) -> f64 {
        let below = state.below.as_ref().map_or(0, |below| below.records() as usize);
        f64::from(self.reads.counts()) / (state.body.len() + below).max(1) as f64
    }

    /// Whether it belongs in DRAM, as far as the host knows.
    pub fn is_warm(&self) -> bool {
        self.warm.load(Ordering::Relaxed)
    }

    /// Notes whether it belongs in DRAM, as the host judged.
    pub fn set_warm(&self, warm: bool) {
        if self.is_warm() != warm {
            self.warm.store(warm, Ordering::Relaxed);
        }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.state, Atomic::null());
        // SAFETY: the last share of the leaf goes away, so nobody reads its state any more.
        let state = unsafe { state.into_owned() };
        if *self.removed.get_mut() {
            let dead = Dead::of(&state);
            self.gauges.free(dead.asked, dead.held);
            self.gauges.far_retired.take_held(dead.far);
        } else {
            hold(&self.gauges, &state, false);
        }
        self.marks.free(&self.gauges);
        self.gauges.index.take(STATE_BYTES);
        self.gauges.index.take(LEAF_BYTES);
        self.gauges.index.take(self.low.len() + 16);
    }
}
