//! The requests of moves between places to the engine.

use crossbeam_epoch::Guard;
use ziptier_tree::host::Host;
use ziptier_tree::leaf::{Leaf, LeafState};
use ziptier_tree::memory::Reserved;
use ziptier_tree::packing::Goal;
use ziptier_tree::write::Writes;

use crate::Error;

/// The engine, as moves between places see it.
pub(crate) trait MoveHost: Host + Sync {
    /// Whether DRAM has room for `bytes` more, which no writer then lacks.
    fn has_memory_for(&self, bytes: u64) -> bool;

    /// Whether a record may be copied up.
    fn may_copy_up(&self) -> bool;

    /// Whether the store has not yet refused a write since a leaf moved last.
    fn has_hope(&self) -> bool;

    /// Makes room in DRAM for so many bytes that a reader brings up. `false` if that would take too long.
    fn displace(&self, bytes: u64) -> bool;

    /// Between two writes of a thread that holds no guard: makes room where little is left.
    fn ease(&self);

    /// Reserves `bytes` for a large value if there is room now.
    fn try_reserve(&self, bytes: usize) -> Result<Reserved<'_>, Error>;

    /// Packs the landings of a leaf that the caller owns.
    fn pack_landings(&self, leaf: &Leaf, guard: &Guard);

    /// Packs the landings of a leaf that the caller owns, and gives its body the form of `goal`.
    fn settle_leaf(&self, leaf: &Leaf, goal: Goal, guard: &Guard);

    /// The pack that brings a leaf that nobody writes to to its dense form, if it would be smaller then.
    fn denser(&self, state: &LeafState) -> Option<Goal>;

    /// Asks for a checkpoint that gives room on SSD. `false` if none would.
    fn asks_checkpoint_for_room(&self) -> bool;

    /// Whether all keys of a range are being deleted: no leaf is joined meanwhile.
    fn deletes_range(&self) -> bool;

    /// Writes to the tree.
    fn writes(&self) -> Writes<'_>;
}
