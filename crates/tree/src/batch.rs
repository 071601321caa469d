//! Batches: several writes that every reader sees all of or none of.
//!
//! Not for a single write, which needs no number: that is `write`.
//!
//! 1. A batch reserves its room in memory before it takes any lock.
//! 2. It locks the leaves of its keys in key order and checks its conditions.
//! 3. It logs its operations as one record and appends its records under its number.
//! 4. It commits that number (`commits`), which makes all records exist at once, and then unlocks the leaves.
//!
//! Batches of other leaves go on meanwhile. Only long batches wait for each other.

mod conditions;
mod locks;
// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(any(miri, shuttle))))]
mod tests;
mod transfer;

use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::landing::{Landing, RecordBytes};
use crate::leaf::{Leaf, LeafState};
use crate::memory::{Reserved, allocated_bytes};
use crate::record::{Fields, Kind, PutMeta, check_key, key_hash};
use crate::sync::interleave;
use crate::tree::Tree;
use crate::write::{NewValue, Writes};
use crate::{Error, operation};

#[cfg(any(test, feature = "testing"))]
pub use conditions::BEFORE_COMPARISON;
use conditions::Compared;
pub use conditions::Condition;
use locks::{Locked, lock_if_free};
pub use transfer::{Need, Transferred};

/// Landed bytes above which a batch is a long one.
const LONG_BYTES: usize = 64 << 10;

/// Bytes that the records of a batch may have together, without large values, which lie elsewhere. All records may fall
/// to one leaf. Its landing has offsets of 32 bits and may have room for twice as many bytes.
const LANDED_BYTES_MAX: usize = 1 << 30;
/// Bytes of a landing that a record takes besides its key and value, at most.
const LANDED_HEAD_BYTES: usize = 48;

/// Conditions on keys on SSD that a caller looks at who may not wait: each reads an image of about 8 KiB.
const READS_MAX: usize = 32;

/// How often a batch reads the keys of its conditions from SSD, if the store has a limit of memory. Where memory has no
/// room for all of them, the first ones go down again while the last ones come up.
pub const UNKNOWNS_MAX: u32 = 16;

#[derive(Clone, Debug)]
enum Operation {
    Put(Vec<u8>, PutMeta),
    Delete,
    Require(Condition),
}

/// Writes that are made together, in the order given, and the conditions they depend on.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    operations: Vec<(Vec<u8>, Operation)>,
}

impl Batch {
    /// A batch of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put without expiry.
    #[must_use]
    pub fn put(self, key: &[u8], value: &[u8]) -> Self {
        self.put_with(key, value, PutMeta::default())
    }

    /// Adds a put with expiry and flags.
    #[must_use]
    pub fn put_with(self, key: &[u8], value: &[u8], meta: PutMeta) -> Self {
        self.with(key, Operation::Put(value.to_vec(), meta))
    }

    /// Adds a delete.
    #[must_use]
    pub fn delete(self, key: &[u8]) -> Self {
        self.with(key, Operation::Delete)
    }

    /// Adds a condition on what the key is before the batch.
    #[must_use]
    pub fn require(self, key: &[u8], condition: Condition) -> Self {
        self.with(key, Operation::Require(condition))
    }

    fn with(mut self, key: &[u8], operation: Operation) -> Self {
        self.operations.push((key.to_vec(), operation));
        self
    }
}

/// An operation of a batch with its key and its value.
type Prepared<'b> = (&'b [u8], &'b Operation, NewValue<'b>);

/// How an attempt to write a batch ended.
enum Tried {
    /// Written, or not, since a condition does not hold.
    Done(bool),
    /// Memory does not know a key or a value of a condition, which lies on SSD. Or a long value is to be compared
    /// first.
    Unknown,
    /// The leaf of this key has two full landings, and the batch would make one of them larger still.
    Full { key_index: usize },
    /// Somebody else has a leaf, and the caller may not wait for it.
    Busy,
}

impl Tree {
    /// Whether a landing has more room than single writes give any.
    fn is_grown(&self, landing: &Landing) -> bool {
        landing.capacity() > allocated_bytes(self.landing_bytes_max())
    }

    /// Whether both landings of a leaf are full, and the open one has grown.
    fn is_full(&self, state: &LeafState) -> bool {
        state.sealed.is_some() && state.open.as_ref().is_some_and(|open| self.is_grown(open))
    }

    /// Seals the open landing of `leaf` if it has grown; `true` if the leaf is to be packed for that. The caller holds
    /// the writer lock.
    ///
    /// The lock is held since the landing grew: the next batch finds a fresh one, and its conditions no such landing
    /// that nobody packs.
    pub fn seal_grown(&self, leaf: &Leaf, guard: &Guard) -> bool {
        let has_grown = leaf.state(guard).open.as_ref().is_some_and(|open| self.is_grown(open));
        if has_grown {
            leaf.seal_locked(guard);
        }
        has_grown
    }
}

impl Writes<'_> {
    /// Writes a batch, and waits for leaves and room. `false` if a condition does not hold: nothing is written then.
    /// The caller holds no guard and no lock.
    pub fn write(&self, batch: &Batch) -> Result<bool, Error> {
        let written = self.write_waiting(batch, true)?;
        Ok(written.expect("who may wait is never told to come again"))
    }

    /// As [`Writes::write`]. A caller that does not wait gets `None` if another writer has one of its leaves, or one of
    /// its keys has its turn. It also gets `None` if a landing that grew for another batch has to be packed first, or
    /// if many conditions are on keys on SSD. Nothing was changed then.
    pub fn write_waiting(&self, batch: &Batch, waits: bool) -> Result<Option<bool>, Error> {
        let mut operations = self.with_values(batch)?;
        let landed_bytes: usize = operations.iter().map(|(key, _, value)| landed_bytes(key, value)).sum();
        check_landed_bytes(landed_bytes)?;
        operations.sort_by(|a, b| a.0.cmp(b.0)); // stable: the order within a key stays
        self.host.wait_for_retired();
        // Deletes ask for no room, so that they are never refused, unless they take much themselves.
        let has_puts = operations.iter().any(|(_, operation, _)| matches!(operation, Operation::Put(..)));
        let frees = !has_puts && landed_bytes <= LONG_BYTES;
        if let Some(journal) = self.journal {
            journal.wait_for_room()?;
        }
        let (mut round, mut unknowns, mut reads) = (0, 0, 0);
        loop {
            let keys = || operations.iter().map(|(key, ..)| *key);
            if !waits && self.tree.turns.holds_up(keys()) {
                return Ok(None);
            }
            self.tree.turns.wait_for_all(keys());
            let mut compared = Compared::after(unknowns);
            if unknowns > 0 {
                match self.read_conditions(&operations, waits, &mut reads, &mut compared)? {
                    Some(true) => {}
                    decided => return Ok(decided),
                }
            }
            match self.try_write_alone(&mut operations, &compared, landed_bytes, frees, waits)? {
                Tried::Done(written) => {
                    self.host.after_batch();
                    return Ok(Some(written));
                }
                Tried::Busy => return Ok(None),
                Tried::Unknown if unknowns == UNKNOWNS_MAX && self.tree.gauges.limit() != u64::MAX => {
                    return Err(self.host.refusal());
                }
                Tried::Unknown => unknowns += 1,
                // To pack a landing that grew takes as long as to write it.
                Tried::Full { .. } if !waits => return Ok(None),
                Tried::Full { key_index } => {
                    self.host.pack_full(operations[key_index].0, frees, round)?;
                    round += 1;
                }
            }
        }
    }

    /// As [`Writes::try_write`], with room for landings of so many bytes. Of long batches, one is written at a time.
    fn try_write_alone(
        &self,
        operations: &mut [Prepared<'_>],
        compared: &Compared,
        landed_bytes: usize,
        frees: bool,
        waits: bool,
    ) -> Result<Tried, Error> {
        let _one_at_a_time = match landed_bytes > LONG_BYTES {
            false => None,
            true if waits => Some(self.tree.long_batches.lock()),
            true => match lock_if_free(&self.tree.long_batches) {
                None => return Ok(Tried::Busy),
                locked => locked,
            },
        };
        // It lies in landings first, and in bodies beside them while these are packed; large values are there already.
        let room_bytes = 2 * landed_bytes;
        // Nobody else counts on the same room.
        let room = if frees { self.tree.gauges.reserve(0) } else { self.host.reserve(room_bytes)? };
        self.try_write(operations, compared, room, waits)
    }

    /// The operations of a batch, each with its key and its value.
    fn with_values<'b>(&self, batch: &'b Batch) -> Result<Vec<Prepared<'b>>, Error> {
        let operations = batch.operations.iter().map(|(key, operation)| {
            check_key(key)?;
            let value = match operation {
                Operation::Put(value, _) => NewValue::new(self, value)?,
                _ => NewValue::None,
            };
            Ok((key.as_slice(), operation, value))
        });
        operations.collect()
    }

    /// Brings the records of all conditions to memory, and looks at each while its record is there. The records of all
    /// may have no room in memory together. `Some(false)` if a condition fails. `None` if the caller does not wait and
    /// there were too many reads.
    fn read_conditions(
        &self,
        operations: &[Prepared<'_>],
        waits: bool,
        reads: &mut usize,
        compared: &mut Compared,
    ) -> Result<Option<bool>, Error> {
        for (key, operation, _) in operations {
            let Operation::Require(condition) = operation else { continue };
            if !waits && *reads == READS_MAX {
                return Ok(None);
            }
            *reads += 1;
            self.bring_up(key)?;
            if self.tree.fails(key, condition) {
                return Ok(Some(false));
            }
            if let Condition::ValueIs(wanted) = condition {
                self.compare_apart(key, wanted, compared)?;
            }
        }
        Ok(Some(true))
    }

    /// Writes a batch whose operations are in key order.
    fn try_write(
        &self,
        operations: &mut [Prepared<'_>],
        compared: &Compared,
        mut room: Reserved<'_>,
        waits: bool,
    ) -> Result<Tried, Error> {
        let guard = self.tree.pin();
        let keys = operations.iter().map(|(key, ..)| *key);
        let Some((locked, leaf_of)) = self.tree.lock_leaves(keys, waits, &guard) else {
            return Ok(Tried::Busy);
        };
        match self.tree.all_hold(operations, &leaf_of, &locked, compared, &guard)? {
            Some(true) => {}
            Some(false) => return Ok(Tried::Done(false)),
            None => return Ok(Tried::Unknown),
        }
        if operations.iter().all(|(_, operation, _)| matches!(operation, Operation::Require(_))) {
            // Nothing to log, and a record of the log has something.
            return Ok(Tried::Done(true));
        }
        let mut bytes_of = vec![0; locked.len()];
        for ((key, operation, value), leaf) in operations.iter().zip(&leaf_of) {
            let is_condition = matches!(operation, Operation::Require(_));
            bytes_of[*leaf] += if is_condition { 0 } else { landed_bytes(key, value) };
        }
        let is_full = |leaf: usize| self.tree.is_full(locked[leaf].leaf.state(&guard));
        // The overlay of a crowded leaf may have no room for the sealed landing, and then nobody packs the open one.
        let must_fit = |leaf: usize| {
            let is_written = bytes_of[leaf] > 0;
            bytes_of[leaf] > self.tree.landing_bytes_max()
                || is_written && locked[leaf].leaf.state(&guard).is_crowded()
        };
        if let Some(full) = (0..locked.len()).find(|leaf| is_full(*leaf) && must_fit(*leaf)) {
            return Ok(Tried::Full { key_index: leaf_of.partition_point(|leaf| *leaf < full) });
        }
        self.log_batch(operations)?;
        self.make_landings_fit(&locked, &bytes_of, &mut room, &guard);
        let number = self.tree.commits.begin();
        let mut record = RecordBytes::default();
        for ((key, operation, value), leaf) in operations.iter_mut().zip(&leaf_of) {
            let (kind, meta) = match operation {
                Operation::Put(_, meta) => (Kind::Raw, *meta),
                Operation::Delete => (Kind::Tombstone, PutMeta::default()),
                Operation::Require(_) => continue,
            };
            let fields = Fields { batch: Some(number), ..Fields::of(meta) };
            value.lay_out(&mut record, fields, key, kind);
            self.append_growing(locked[*leaf].leaf, &record, key_hash(key), &guard);
            self.tree.count_write(key, value);
            value.written();
        }
        // The rest is for bodies: the commit packs landings that grew.
        drop(room);
        self.commit(number, locked, &guard);
        Ok(Tried::Done(true))
    }

    /// Logs what a batch changes.
    fn log_batch(&self, operations: &[Prepared<'_>]) -> Result<(), Error> {
        let Some(journal) = self.journal else { return Ok(()) };
        let logged = || {
            operations.iter().filter_map(|(key, operation, value)| match operation {
                Operation::Put(_, meta) => {
                    Some(operation::Operation::put(key, value.raw(), &Fields::of(*meta)))
                }
                Operation::Delete => Some(operation::Operation::Delete { key }),
                Operation::Require(_) => None,
            })
        };
        journal.append_all(&mut logged())?;
        self.tree.stats.own().logged_bytes.add(logged().map(|operation| operation.bytes()).sum());
        Ok(())
    }

    /// Gives each locked leaf a landing with room for the bytes that a batch writes there. While memory is short, such
    /// a landing has room for the batch alone: that is all the room that was reserved.
    fn make_landings_fit(
        &self,
        locked: &[Locked<'_>],
        bytes_of: &[usize],
        room: &mut Reserved<'_>,
        guard: &Guard,
    ) {
        let growth_bytes = |leaf: &Leaf, bytes: usize| match &leaf.state(guard).open {
            Some(open) if open.capacity() - open.used_bytes() >= bytes => 0,
            open => open.as_ref().map_or(self.tree.landing_bytes, |open| open.capacity()),
        };
        let mut grown_bytes = 0;
        for (locked, bytes) in locked.iter().zip(bytes_of.iter().copied()).filter(|(_, bytes)| *bytes > 0) {
            let growth_bytes = growth_bytes(locked.leaf, bytes);
            let grows = bytes > self.tree.landing_bytes_max();
            if grows || growth_bytes > 0 && self.host.admit(grown_bytes + growth_bytes).is_err() {
                room.give_back(bytes);
                if !grows {
                    // Nothing was reserved for a copy of the landing that is there.
                    locked.leaf.seal_locked(guard);
                }
                self.grow_landing(locked.leaf, bytes, guard);
            } else {
                grown_bytes += growth_bytes;
            }
        }
    }

    /// Makes the records of batch `number` exist, unlocks its leaves, and has landings packed that grew for it.
    fn commit(&self, number: u64, locked: Vec<Locked<'_>>, guard: &Guard) {
        interleave();
        self.tree.commits.commit(number);
        interleave();
        // Until the step above, the batch's records were published but did not exist. An update that was decided in
        // between saw their appends and not their values: another append tells it to look again.
        locked.iter().for_each(|locked| locked.leaf.note_append());
        let is_grown = |leaf: &&Leaf| self.tree.seal_grown(leaf, guard);
        let grown: Vec<&Leaf> = locked.iter().map(|locked| locked.leaf).filter(is_grown).collect();
        drop(locked);
        for leaf in grown {
            self.host.sealed(leaf, guard);
            // A landing that was sealed before went first, and its pack sealed the grown one if it found the lock free.
            if let Some(_writer) = leaf.try_lock_writer() {
                self.tree.seal_grown(leaf, guard);
            }
            if leaf.state(guard).sealed.is_some() {
                self.host.sealed(leaf, guard);
            }
        }
    }

    /// Appends to a leaf whose writer lock the caller holds, in a larger landing if there is no room.
    pub fn append_growing(&self, leaf: &Leaf, record: &RecordBytes, hash: u64, guard: &Guard) {
        loop {
            let open = leaf.state(guard).open.as_ref();
            if open.is_some_and(|open| open.append(record, hash)) {
                break;
            }
            let capacity = open.map_or(self.tree.landing_bytes, |open| open.capacity());
            self.grow_landing(leaf, capacity.max(record.landing_bytes()), guard);
        }
        leaf.note_append();
    }

    /// Gives a leaf, whose writer lock the caller holds, a landing with room for so many bytes more.
    pub(crate) fn grow_landing(&self, leaf: &Leaf, bytes: usize, guard: &Guard) {
        loop {
            let state = leaf.state(guard);
            let larger = match &state.open {
                Some(open) => open.grown(open.used_bytes() + bytes),
                None => Landing::new(bytes),
            };
            let new = LeafState { open: Some(Arc::new(larger)), ..state.clone() };
            // When the owner came between, its state has the same landing, and the next round copies it again.
            if leaf.publish(state, new, guard) {
                return self.host.note_landing(leaf);
            }
        }
    }
}

/// Bytes of a landing that a record takes, at most.
fn landed_bytes(key: &[u8], value: &NewValue<'_>) -> usize {
    LANDED_HEAD_BYTES + key.len() + value.inline_bytes()
}

/// Refuses a batch whose keys and inline values are so long together that a landing could not hold its records.
fn check_landed_bytes(bytes: usize) -> Result<(), Error> {
    if bytes > LANDED_BYTES_MAX {
        Err(Error::BatchTooLarge { bytes, limit_bytes: LANDED_BYTES_MAX })
    } else {
        Ok(())
    }
}
