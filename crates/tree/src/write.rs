//! Writing one record: a writer appends it to the landing of the leaf that owns the key.
//!
//! Not for writes of several keys (`batch`) or writes that depend on the old value (`update`). `empty` takes all
//! records of a leaf out at once.
//!
//! 1. The writer waits for room in the log, pins the epoch, finds the leaf and takes its writer lock.
//! 2. It logs the operation and appends the record. Readers see it from then on.
//! 3. If the landing is full, the writer seals it, opens a fresh one, and packs the leaf after it has given the lock
//!    back.
//! 4. If memory has no room, the writer gives lock and epoch back, makes room, and begins again.

mod bring_up;
mod empty;

use std::cell::RefCell;
use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::Error;
use crate::below::Below;
use crate::body::Body;
use crate::host::{Host, Journal};
use crate::landing::{Landing, RecordBytes};
use crate::large::{ChunkPlace, Large, LargeHandle, REFERENCE_BYTES};
use crate::leaf::{Leaf, LeafState};
use crate::operation::Operation;
use crate::record::{Fields, Kind, PutMeta, check_key, key_hash};
use crate::seen::Decided;
use crate::sizes::{INLINE_BYTES_MAX, VALUE_BYTES_MAX};
use crate::sync::back_off;
use crate::tree::Tree;

crate::sync::thread_local! {
    static RECORD: RefCell<RecordBytes> = RefCell::default();
}

/// A landing has room for one in so many records of its leaf.
const LANDING_SHARE: usize = 20;
/// And for so many records at least, because each pack copies the whole body.
const LANDING_RECORDS_MIN: usize = 3;
/// But no more bytes, where it is not one record.
const LANDING_BYTES_MAX: usize = 4096;

/// Writes to a tree: what they need, besides their keys and values.
#[derive(Clone, Copy)]
pub struct Writes<'t> {
    /// The tree that is written to.
    pub tree: &'t Tree,
    /// The log, if writes are logged.
    pub journal: Option<&'t dyn Journal>,
    /// The engine, which is asked for room and told of landings.
    pub host: &'t dyn Host,
}

/// A value on its way into a record: its bytes, or its large value, which is dropped if the record is not written.
pub enum NewValue<'a> {
    /// The bytes of a value that lies in its record.
    Inline(&'a [u8]),
    /// A value outside the leaf.
    Large {
        /// The large value; `None` once a record owns it.
        large: Option<Arc<Large>>,
        /// The value as it was given, for the log.
        raw: &'a [u8],
    },
    /// No value: a delete, a new expiry, or a condition of a batch.
    None,
}

impl<'a> NewValue<'a> {
    /// Checks the length of a value. The calling thread codes a large one, and holds no guard and no lock.
    pub(crate) fn new(writes: &Writes<'_>, value: &'a [u8]) -> Result<Self, Error> {
        if value.len() as u64 > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { len: value.len() as u64 });
        }
        if value.len() <= INLINE_BYTES_MAX {
            return Ok(Self::Inline(value));
        }
        Ok(Self::Large { large: Some(writes.new_large(value)?), raw: value })
    }

    /// The value as it was given; empty if there is none.
    pub(crate) fn raw(&self) -> &'a [u8] {
        match *self {
            Self::Inline(raw) | Self::Large { raw, .. } => raw,
            Self::None => &[],
        }
    }

    /// Bytes of the value as it lies in a landing.
    pub(crate) fn inline_bytes(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Large { .. } => REFERENCE_BYTES,
            Self::None => 0,
        }
    }

    /// Lays out the record. A reference that is laid out still belongs to this value until `NewValue::written`.
    pub fn lay_out(&self, record: &mut RecordBytes, mut fields: Fields, key: &[u8], kind: Kind) {
        match self {
            Self::Inline(bytes) => record.lay_out(kind, &fields, key, bytes),
            Self::Large { large, .. } => {
                let large = large.as_ref().expect("a value is written once");
                record.lay_out(Kind::Large, &fields, key, &LargeHandle::to(large).reference());
            }
            Self::None => {
                if kind == Kind::Tombstone {
                    fields = Fields { batch: fields.batch, ..Fields::default() };
                }
                record.lay_out(kind, &fields, key, &[]);
            }
        }
    }

    /// The record was published: its reference belongs to it now.
    pub(crate) fn written(&mut self) {
        if let Self::Large { large, .. } = self
            && let Some(large) = large.take()
        {
            let _owned_by_record = large.into_reference();
        }
    }
}

/// The condition under which a record is appended.
#[derive(Clone, Copy)]
pub enum Expected<'a> {
    /// Nothing.
    Anything,
    /// The key is as it was when the write was decided on.
    AsSeen(Decided<'a>),
    /// Memory says nothing of the key, and this is what lies below: the record is copied up, which is no write.
    Below(&'a Arc<Below>),
}

impl Expected<'_> {
    /// Whether the write is part of the turn of its key, or no write.
    fn is_part_of_turn(&self) -> bool {
        match self {
            Self::AsSeen(decided) => decided.has_turn,
            Self::Below(_) => true,
            Self::Anything => false,
        }
    }
}

/// A write of one record, as it is tried until it succeeds.
struct Attempt<'a> {
    key: &'a [u8],
    hash: u64,
    /// The operation for the log.
    operation: Operation<'a>,
    /// The condition of the write.
    expected: Expected<'a>,
    frees: Frees,
}

impl<'a> Attempt<'a> {
    fn of(key: &'a [u8], kind: Kind, fields: &Fields, value: &NewValue<'a>, expected: Expected<'a>) -> Self {
        let (operation, frees) = match kind {
            Kind::Tombstone => (Operation::Delete { key }, Frees::Now),
            Kind::Touch => (Operation::Expire { key, expires_at_ms: fields.expires_at_ms }, Frees::InTime),
            _ => (Operation::put(key, value.raw(), fields), Frees::Nothing),
        };
        Self { key, hash: key_hash(key), operation, expected, frees }
    }
}

/// Whether a write frees memory, for want of which it is not refused at once then.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frees {
    Nothing,
    /// A key that gets another expiry may go in time: the limit may be exceeded a little.
    InTime,
    /// A deletion is never refused.
    Now,
}

/// How an attempt to append ended.
pub(crate) enum Append {
    /// Written; `packed` when that cost a pack, which retires bytes.
    Done { packed: bool },
    /// The key is no longer what the caller saw.
    Changed,
    /// Both landings are full.
    Full,
    /// The leaf is being cut.
    Closed,
}

impl Tree {
    /// Prefetches for writes to the first [`GROUP_KEYS`](crate::index::GROUP_KEYS) of `keys`, step by step for all of
    /// them, as [`Tree::approach`] does for reads.
    pub fn approach_writes<K: AsRef<[u8]>>(&self, keys: &[K], guard: &Guard) {
        let leaves = self.index.find_group(keys, guard);
        let leaves = || leaves.iter().flatten();
        leaves().for_each(|leaf| leaf.prefetch_state(guard));
        leaves().for_each(|leaf| leaf.state(guard).prefetch_append());
        leaves().filter_map(|leaf| leaf.state(guard).open.as_ref()).for_each(|open| open.prefetch_end());
    }

    /// Counts a record that was appended.
    pub(crate) fn count_write(&self, key: &[u8], value: &NewValue<'_>) {
        let value_bytes = match value {
            NewValue::Inline(bytes) => bytes.len() as u64,
            NewValue::Large { raw, .. } => raw.len() as u64,
            NewValue::None => 0,
        };
        let counters = self.stats.own();
        counters.writes.raise();
        counters.written_bytes.add(key.len() as u64 + value_bytes);
    }

    /// Bytes of a landing that begins with `record`, of a leaf with this body: room for one in [`LANDING_SHARE`] of its
    /// records, and for [`LANDING_RECORDS_MIN`] if they are few. So many writes pay for the next copy of the body.
    fn landing_bytes_for(&self, body: &Body, record: &RecordBytes) -> usize {
        let record_bytes = record.landing_bytes();
        let records = (body.len() / LANDING_SHARE).max(LANDING_RECORDS_MIN);
        // The room for a part of a record would stay empty.
        let records = records.min(self.landing_bytes_max() / record_bytes);
        (records * record_bytes).max(self.landing_bytes)
    }

    /// Bytes of a landing that is not made for one record or batch, at most: the least while memory is short.
    pub fn landing_bytes_max(&self) -> usize {
        let limit_bytes = self.gauges.limit();
        let is_short = limit_bytes < u64::MAX && self.gauges.held() > limit_bytes - limit_bytes / 8;
        if is_short { self.landing_bytes } else { self.landing_bytes.max(LANDING_BYTES_MAX) }
    }
}

impl<'t> Writes<'t> {
    /// Writes to `tree`. `journal` is the log; `None` if writes are not logged.
    #[inline]
    pub fn new(tree: &'t Tree, journal: Option<&'t dyn Journal>, host: &'t dyn Host) -> Self {
        Self { tree, journal, host }
    }

    /// Puts `value` at `key`, whether the key is there or not. The caller holds no guard and no lock.
    pub fn put(&self, key: &[u8], value: &[u8], meta: PutMeta) -> Result<(), Error> {
        check_key(key)?;
        let mut value = NewValue::new(self, value)?;
        self.append(key, Kind::Raw, Fields::of(meta), &mut value, Expected::Anything).map(|_| ())
    }

    /// A large value coded by the calling thread, which holds no guard.
    pub(crate) fn new_large(&self, value: &[u8]) -> Result<Arc<Large>, Error> {
        self.new_large_in(value, self.host.chunk_place(value.len()))
    }

    /// A large value coded by the calling thread, in a place that had room a moment ago. The caller holds no guard and
    /// no lock.
    pub fn new_large_in(&self, value: &[u8], place: ChunkPlace<'_>) -> Result<Arc<Large>, Error> {
        let dram_bytes = match place {
            ChunkPlace::Dram => value.len(),
            // Lent for the moment in which it is coded.
            ChunkPlace::Far(_) => 0,
            ChunkPlace::Ratio(_, placement) => (value.len() as f64 * placement.dram_share()) as usize,
        };
        let reserved = self.host.reserve(dram_bytes)?;
        let coding = self.tree.dictionaries.current();
        let large = Arc::new(Large::new(value, coding.as_ref(), place, reserved, &self.tree.gauges));
        if matches!(place, ChunkPlace::Far(_)) && large.is_in_dram() {
            // Other threads have filled far memory meanwhile, and nothing was reserved in DRAM.
            self.host.make_room(0)?;
        }
        Ok(large)
    }

    /// Deletes `key` (a tombstone) or changes its expiry (a touch), whether it is there or not.
    pub fn append_bare(&self, key: &[u8], kind: Kind, expires_at_ms: Option<u64>) -> Result<(), Error> {
        let fields = Fields::of(PutMeta { expires_at_ms, flags: 0 });
        self.append(key, kind, fields, &mut NewValue::None, Expected::Anything).map(|_| ())
    }

    /// Appends a record; `Ok(false)` when the key is not as expected.
    pub(crate) fn append(
        &self,
        key: &[u8],
        kind: Kind,
        fields: Fields,
        value: &mut NewValue<'_>,
        expected: Expected<'_>,
    ) -> Result<bool, Error> {
        let attempt = Attempt::of(key, kind, &fields, value, expected);
        self.tree.turns.wait_for(attempt.hash, || expected.is_part_of_turn());
        // A copy of what lies below is not logged, and a reader makes it.
        if !matches!(expected, Expected::Below(_))
            && let Some(journal) = self.journal
        {
            journal.wait_for_room()?;
        }
        RECORD.with(|record| {
            let record = &mut *record.borrow_mut();
            value.lay_out(record, fields, key, kind);
            let mut round = 0;
            loop {
                let guard = self.tree.pin();
                let appended = match self.try_append(&attempt, record, &guard) {
                    Err(Error::MemoryLimit(_)) => {
                        drop(guard);
                        self.make_room_for(attempt.frees, record)?;
                        continue;
                    }
                    other => other?,
                };
                match appended {
                    Append::Done { packed } => {
                        if !matches!(expected, Expected::Below(_)) {
                            self.tree.count_write(key, value);
                        }
                        value.written();
                        if packed {
                            drop(guard);
                            self.host.after_packs();
                        }
                        return Ok(true);
                    }
                    Append::Changed => return Ok(false),
                    Append::Full => {
                        drop(guard);
                        self.pack_full_for(&attempt, record, round)?;
                    }
                    Append::Closed => {
                        drop(guard);
                        back_off(round);
                    }
                }
                round += 1;
            }
        })
    }

    fn try_append(
        &self,
        attempt: &Attempt<'_>,
        record: &RecordBytes,
        guard: &Guard,
    ) -> Result<Append, Error> {
        let &Attempt { key, hash, frees, .. } = attempt;
        let (mut leaf, _) = self.tree.locate(key, guard);
        loop {
            let writer = leaf.lock_writer();
            let state = leaf.state(guard);
            if state.closed {
                return Ok(Append::Closed);
            }
            if !state.covers(key) {
                leaf = state.right(guard).expect("a leaf with an upper fence has a right sibling");
                continue;
            }
            if !self.is_as_expected(leaf, state, attempt) {
                return Ok(Append::Changed);
            }
            if frees == Frees::InTime {
                // Expiries make bodies larger, too.
                self.host.admit_in_time()?;
            }
            if let Some(open) = &state.open
                && open.fits(record)
            {
                self.log(attempt)?;
                open.append(record, hash);
                leaf.note_append();
                if self.tree.is_over_watermark(state) {
                    drop(writer);
                    self.host.note_watermark(leaf);
                }
                return Ok(Append::Done { packed: false });
            }
            if state.open.is_some() && state.sealed.is_some() {
                return Ok(Append::Full);
            }
            // A write that frees memory has the smallest possible landing then.
            let landing_bytes = match self.host.admit(record.landing_bytes()) {
                Ok(()) => self.tree.landing_bytes_for(&state.body, record),
                Err(_) if frees != Frees::Nothing => 0,
                Err(error) => return Err(error),
            };
            self.log(attempt)?;
            let sealing = state.open.is_some();
            self.open_landing(leaf, record, hash, landing_bytes, guard);
            leaf.note_append();
            drop(writer);
            if sealing {
                self.host.sealed(leaf, guard);
            }
            return Ok(Append::Done { packed: sealing });
        }
    }

    /// Packs the full leaf of a write.
    fn pack_full_for(&self, attempt: &Attempt<'_>, record: &RecordBytes, round: u32) -> Result<(), Error> {
        match self.host.pack_full(attempt.key, attempt.frees == Frees::Now, round) {
            // Records of the log lie in memory, and need no image.
            Err(Error::Unread { .. }) if self.tree.recovering() => {
                self.grow_for(attempt.key, record);
                Ok(())
            }
            packed => packed,
        }
    }

    /// Makes the room that the record of a write lacks.
    fn make_room_for(&self, frees: Frees, record: &RecordBytes) -> Result<(), Error> {
        match frees {
            Frees::InTime => self.host.make_room_in_time(record.landing_bytes()),
            _ => self.host.make_room(record.landing_bytes()),
        }
    }

    /// Whether the key is as the write expects. The caller holds the writer lock of its leaf.
    #[inline]
    fn is_as_expected(&self, leaf: &Leaf, state: &LeafState, attempt: &Attempt<'_>) -> bool {
        let &Attempt { key, hash, ref operation, expected, .. } = attempt;
        match expected {
            Expected::Anything => true,
            Expected::AsSeen(decided) => {
                let is_touch = matches!(operation, Operation::Expire { .. });
                self.tree.is_as_seen(leaf, state, key, hash, decided, self.host.has_evicted())
                    && (!is_touch || self.tree.is_touchable(state, key, hash))
            }
            Expected::Below(below) => self.tree.lies_below(state, key, hash, below),
        }
    }

    /// Logs a write that is applied next, if there is a log. If the log refuses, the write must not be applied. A copy
    /// of what lies below is not logged. The caller holds the writer lock.
    #[inline]
    fn log(&self, attempt: &Attempt<'_>) -> Result<(), Error> {
        let Some(journal) = self.journal else { return Ok(()) };
        if !matches!(attempt.expected, Expected::Below(_)) {
            journal.append(&attempt.operation)?;
            self.tree.stats.own().logged_bytes.add(attempt.operation.bytes());
        }
        Ok(())
    }

    /// Publishes a fresh landing that holds `record`; a full one is sealed. The caller holds the writer lock and
    /// saw that no landing is sealed.
    fn open_landing(
        &self,
        leaf: &Leaf,
        record: &RecordBytes,
        hash: u64,
        landing_bytes: usize,
        guard: &Guard,
    ) {
        let landing = Arc::new(Landing::new(landing_bytes.max(record.landing_bytes())));
        let fits = landing.append(record, hash);
        assert!(fits, "a landing is made large enough for its first record");
        loop {
            let state = leaf.state(guard);
            let new = LeafState {
                open: Some(landing.clone()),
                sealed: state.open.clone().or_else(|| state.sealed.clone()),
                ..state.clone()
            };
            if leaf.publish(state, new, guard) {
                self.host.note_landing(leaf);
                return;
            }
        }
    }

    /// Gives the leaf of `key` a landing with room for `record`. Its room doubles.
    fn grow_for(&self, key: &[u8], record: &RecordBytes) {
        let guard = self.tree.pin();
        let locked = self.tree.lock_leaf(key, &guard);
        let capacity = locked.leaf.state(&guard).open.as_ref().map_or(0, |open| open.capacity());
        self.grow_landing(locked.leaf, capacity.max(record.landing_bytes()), &guard);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
