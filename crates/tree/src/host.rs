//! The requests and the notes of the tree to its host, the engine around it.
//!
//! Not for which records stay: a pack asks [`Retention`](crate::retention::Retention) of each.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::Error;
use crate::below::Below;
use crate::large::{ChunkPlace, Large};
use crate::leaf::{Leaf, LeafState};
use crate::marks::Mark;
use crate::memory::Reserved;
use crate::operation::Operation;
use crate::record::Found;

/// The log, as writers see it.
pub trait Journal {
    /// Waits until the log has room, so that no write waits for the disk under a lock.
    fn wait_for_room(&self) -> Result<(), Error>;

    /// Logs one operation. The caller holds the writer lock of its leaf and applies it after this, for certain.
    ///
    /// # Errors
    /// A full disk or an earlier failure: the operation is not in the log, and must not be applied.
    fn append(&self, operation: &Operation<'_>) -> Result<(), Error>;

    /// Logs operations that are made together or not at all. The caller holds the writer locks of all their leaves.
    ///
    /// # Errors
    /// As [`Journal::append`].
    fn append_all(&self, operations: &mut dyn Iterator<Item = Operation<'_>>) -> Result<(), Error>;
}

/// The host, as reads see it.
pub trait ReadHost: Sync {
    /// Waits until every write that the calling thread has read is as durable as was promised. Returns at once if calls
    /// do not wait.
    ///
    /// # Errors
    /// The log failed, so records that were read may not be durable. Reads without that promise go on.
    fn wait_for_seen(&self) -> Result<(), Error>;

    /// `key` was looked up in an image of `below`, which holds `found`. The host may copy it above. The caller holds no
    /// guard.
    fn note_read_below(&self, key: &[u8], found: Option<Found<'_>>, below: &Arc<Below>);

    /// Large values are about to be read by these keys. The host may copy them to memory. The caller holds no guard.
    fn note_large_reads<'a>(&self, larges: &mut dyn Iterator<Item = (&'a [u8], &'a Large)>);
}

/// Room for bytes, as writers and packs see it.
pub trait Admission {
    /// Refuses `bytes` more if the memory limit has no room for them.
    ///
    /// # Errors
    /// [`Error::MemoryLimit`]: the write makes room and tries again. Any other error ends the write.
    fn admit(&self, bytes: usize) -> Result<(), Error>;

    /// As [`Admission::admit`] for a new expiry, which may exceed the limit a little.
    fn admit_in_time(&self) -> Result<(), Error>;

    /// Whether the background may take so many bytes more without anything being evicted for them.
    fn has_room_for_growth(&self, bytes: usize) -> bool;

    /// Whether DRAM is so short that nothing should come there from far memory without need.
    fn is_short(&self) -> bool;

    /// Whether the new bodies of `leaves` have a place. They may not come up to DRAM that is full.
    fn has_place_for(&self, leaves: &[&LeafState]) -> bool;

    /// The place for the chunks of a new large value of `bytes` bytes.
    fn chunk_place(&self, bytes: usize) -> ChunkPlace<'_>;

    /// The refusal of a write for want of room, with how full each place is.
    fn refusal(&self) -> Error;

    /// As [`Admission::admit`], but makes room first if that is all that lacks. The caller holds no guard and no lock.
    fn make_room(&self, bytes: usize) -> Result<(), Error>;

    /// As [`Admission::admit_in_time`], but makes room first. The caller holds no guard and no lock.
    fn make_room_in_time(&self, bytes: usize) -> Result<(), Error>;

    /// Makes room, and keeps it while others ask for room, too. The caller holds no guard and no lock.
    fn reserve(&self, bytes: usize) -> Result<Reserved<'_>, Error>;

    /// Waits while much is retired that readers still hold. The caller holds no guard.
    fn wait_for_retired(&self);
}

/// The host, as writers and packs see it. See the module.
pub trait Host: Admission {
    /// `leaf` was given a landing.
    fn note_landing(&self, leaf: &Leaf);

    /// The open landing of `leaf` is above the watermark, and packers may take it before it is full.
    fn note_watermark(&self, leaf: &Leaf);

    /// A landing of `leaf` was sealed. The host packs it, hands it to packers, or leaves it to the next writer if its
    /// body has no place now.
    fn sealed(&self, leaf: &Leaf, guard: &Guard);

    /// Both landings of the leaf of `key` are full. The host packs the leaf, or waits a moment for its owner. With
    /// `anyway` the new body needs no place, unless the leaf is on SSD. The caller holds no guard and no lock.
    ///
    /// # Errors
    /// A refusal for want of room, or an SSD that cannot be read.
    fn pack_full(&self, key: &[u8], anyway: bool, round: u32) -> Result<(), Error>;

    /// Whether records may have been evicted since the store was opened.
    fn has_evicted(&self) -> bool;

    /// A write had a landing packed. The caller holds no guard.
    fn after_packs(&self);

    /// A batch, a rename or a copy was written. The caller holds no guard.
    fn after_batch(&self);

    /// Takes `marks` for the records of `leaf`, which the caller owns and whose body is new. A pack that began before
    /// eviction did has none.
    fn remember(&self, leaf: &Leaf, marks: &[Mark], guard: &Guard);

    /// Seals the open landing of `leaf`, whose sealed one was packed, if it has more than single writes leave there.
    /// Each look-up would compare its key with all of its records for as long as it stays open.
    ///
    /// A batch that holds the writer lock seals the landing itself.
    fn seal_left(&self, leaf: &Leaf, guard: &Guard);
}
