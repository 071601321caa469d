//! Places: where the bytes of bodies and large values lie, and the two ways in which a leaf moves between places.
//!
//! Not for the decision to move: `reclaimer::hand` demotes, and `tierer`, readers and writers promote.
//!
//! | move | from | to |
//! |---|---|---|
//! | `demote(leaf, Place::Far, ..)` | DRAM | far memory |
//! | `demote(leaf, Place::Ssd, ..)` | DRAM or far memory | SSD |
//! | `promote(leaf, Place::Far)` | far memory | DRAM |
//! | `promote(leaf, Place::Ssd)` | SSD | DRAM |
//!
//! 1. A move owns the leaf. It copies or writes the bytes, and publishes a state with the copy.
//! 2. The epoch frees the old bytes after their last reader.
//! 3. Large values move one by one, because no record knows where they lie.
//!
//! | module | claim |
//! |---|---|
//! | `dram` | promotion from far memory |
//! | `far` | demotion to far memory |
//! | `ssd` | leaves whose records lie on SSD: demotion, compaction, promotion |
//! | `host` | what moves ask of the engine |
//! | `pick` | the large values that a demotion takes |

mod dram;
mod far;
pub(crate) mod far_medium;
mod host;
mod pick;
pub(crate) mod ssd;

use crossbeam_epoch::Guard;

use ssd::Cold;
use ziptier_tree::leaf::{Leaf, Place};
use ziptier_tree::packing::{Packs, Scratch};
use ziptier_tree::placement::Side;
use ziptier_tree::retention::KeepsAll;
use ziptier_tree::tree::Tree;

pub(crate) use host::MoveHost;
pub(crate) use pick::Pick;

/// The parts of a leaf that a demotion takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// The side of memory that is short. Large values leave this side, and freed bytes are counted there.
    pub(crate) from: Side,
    /// Whether the records go. Otherwise large values go alone.
    pub(crate) records: bool,
    pub(crate) larges: Pick,
    /// Whether there is time to give a body its dense form before far memory takes it.
    pub(crate) densely: bool,
}

/// The outcome of a demotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demoted {
    /// So many bytes of the side where they were are free when their last reader is gone.
    Freed(u64),
    /// There was nothing to demote.
    Kept,
    /// Another thread owned the leaf.
    Busy,
    /// The place below has no room.
    Full,
}

/// Moves of a tree's leaves, records and large values between the places.
#[derive(Clone, Copy)]
pub(crate) struct Moves<'e> {
    pub(crate) tree: &'e Tree,
    /// The SSD, if there is one.
    pub(crate) cold: Option<&'e Cold>,
    pub(crate) host: &'e dyn MoveHost,
}

impl Moves<'_> {
    /// Demotes `parts` of `leaf`, of which the caller has a share, to the place `to`, and merges the landings of a leaf
    /// whose records go. The caller does not own the leaf, and holds no guard where it goes to SSD.
    pub(crate) fn demote(&self, leaf: &Leaf, to: Place, parts: Parts) -> Demoted {
        match to {
            // No place lies above it.
            Place::Dram => Demoted::Kept,
            Place::Far => self.demote_to_far(leaf, parts),
            Place::Ssd => self.demote_to_ssd(leaf, parts),
        }
    }

    /// Promotes to DRAM the records that `leaf`, of which the caller has a share, has in the place `from`. `false` if
    /// there are none, another thread owns the leaf, or the records are damaged. The caller does not own the leaf. The
    /// caller holds no guard if the leaf comes from SSD.
    pub(crate) fn promote(&self, leaf: &Leaf, from: Place) -> bool {
        match from {
            Place::Dram => false,
            Place::Far => self.promote_from_far(leaf),
            Place::Ssd => self.promote_from_ssd(leaf),
        }
    }

    /// Runs `work` with what packs of this thread need. All records stay.
    fn with_packs<R>(&self, guard: &Guard, work: impl FnOnce(&mut Packs<'_>) -> R) -> R {
        let retention = &mut KeepsAll;
        Scratch::with(|scratch| work(&mut Packs::new(self.tree, self.host, retention, guard, scratch)))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
