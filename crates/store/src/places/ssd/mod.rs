//! Cold leaves: leaves whose records lie as images in segment files on SSD, and the part of them that memory still
//! holds.
//!
//! Not for the decision to demote or promote a leaf: `reclaimer` and the engine's other parts make it, and call
//! [`Moves::demote`] and [`Moves::promote`]. Nor for reads of what lies there: `below` lists the images of a leaf, and
//! `read` and `range` ask for them.
//!
//! ```text
//! leaf ──► state ─┬─ landings          newest
//!                 ├─ body              the *upper* body: writes since, tombstones, references to large values
//!                 └─ below ──► images  the rest, on SSD: each a body of about 8 KiB, read singly
//! ```
//!
//! 1. Landings and overlay (the *upper* body) shadow the images, record by record. A write to a cold leaf reads
//!    nothing.
//! 2. A get reads one image at most. Neither a get nor a write holds an epoch while it waits for the disk.
//! 3. An overlay that has grown to a quarter of its images is merged with them.
//! 4. A leaf that is written to much becomes ordinary leaves again.
//!
//! | module | claim |
//! |---|---|
//! | `image`, `tier` | a body as bytes on SSD, and the folder of segment files |
//! | `upper` | packing a landing into the overlay, tombstones kept |
//! | `demote`, `compact`, `promote` | demotion, compaction, promotion |
//! | `promote_large` | promotion of large values: a value that is read twice is copied to memory, and leaves it again without a write |
//! | `join` | neighbours become one leaf of up to 64 KiB, without I/O |
//! | `clean` | segments with few live images give their room back |
//! | `grown` | leaves that were written to much are promoted, or compacted |
//! | `room` | room is asked for before any merge |
//! | `recent` | the records that were read from SSD a moment ago: the second read promotes them |

mod clean;
mod compact;
mod demote;
mod grown;
mod image;
mod join;
mod promote;
mod promote_large;
mod recent;
mod room;
#[cfg(all(test, not(miri), not(shuttle)))]
pub(crate) mod tests;
mod tier;
mod upper;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use ziptier_media::disk::{DirLock, Disk};
use ziptier_media::segments::SegmentError;
use ziptier_tree::leaf::{Leaf, Place};
use ziptier_tree::memory::Gauges;
use ziptier_tree::placement::Side;
use ziptier_tree::sync::Mutex;

use crate::Error;
use crate::places::{Moves, Pick};

pub(crate) use compact::add_coding;
pub(crate) use join::JOINED_BYTES_MAX;
use recent::Recent;
use tier::CheckFolder;
pub use tier::{SsdOptions, SsdStatus};
pub(crate) use tier::{Tier, segment_options};
pub(crate) use upper::pays;

/// The parts that a store with an SSD has besides.
pub(crate) struct Cold {
    pub(crate) tier: Arc<Tier>,
    /// Leaves whose overlay has grown. The list keeps none alive that was joined with its neighbour.
    grown: Mutex<VecDeque<Weak<Leaf>>>,
    /// One thread cleans at a time.
    cleaning: AtomicBool,
    /// The SSD is full, or failed: nothing goes there for now.
    pub(crate) is_refused: AtomicBool,
    recent: Recent,
    /// Of a folder that only this one has.
    _lock: Option<Box<dyn DirLock>>,
}

impl Cold {
    /// Opens the SSD and empties it.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        options: &SsdOptions,
        gauges: &Arc<Gauges>,
        check: CheckFolder,
    ) -> Result<Self, Error> {
        let (tier, lock) = Tier::open(disk, options, gauges.clone(), check)?;
        Ok(Self { _lock: Some(lock), ..Self::over(tier, gauges) })
    }

    /// Over segments that are open.
    pub(crate) fn over(tier: Arc<Tier>, gauges: &Arc<Gauges>) -> Self {
        Self {
            tier,
            _lock: None,
            grown: Mutex::default(),
            cleaning: AtomicBool::default(),
            is_refused: AtomicBool::default(),
            recent: Recent::new(gauges),
        }
    }

    pub(crate) fn status(&self) -> SsdStatus {
        self.tier.status(self.is_refused.load(Relaxed))
    }

    /// Notes that the overlay of a leaf has grown.
    fn note_grown(&self, leaf: &Leaf) {
        self.grown.lock().push_back(leaf.share_weakly());
    }
}

impl Moves<'_> {
    /// For tests: demotes leaves that `picks` says yes to.
    pub(crate) fn send_some_to_ssd(&self, mut picks: impl FnMut() -> bool) -> Result<usize, Error> {
        let mut sent = 0;
        self.tree.each_leaf(|leaf| {
            if picks() {
                let large_bytes = self.demote_larges(leaf, Pick::All, Side::Far);
                let went = large_bytes.and_then(|large_bytes| {
                    let went = self.write_to_ssd(leaf, Pick::All, Side::Dram)?;
                    Ok(large_bytes > 0 || went.any())
                });
                let went = match went {
                    Err(SegmentError::Full { .. }) if self.clean_ssd() => false,
                    went => went.map_err(|error| Error::Ssd { reason: error.to_string() })?,
                };
                sent += usize::from(went);
            }
            Ok::<(), Error>(())
        })?;
        Ok(sent)
    }

    /// For tests: brings leaves back that `picks` says yes to.
    pub(crate) fn raise_some_from_ssd(&self, mut picks: impl FnMut() -> bool) -> usize {
        let mut came = 0;
        let walked: Result<(), Error> = self.tree.each_leaf(|leaf| {
            came += usize::from(picks() && self.promote_from_ssd(leaf));
            Ok(())
        });
        debug_assert!(walked.is_ok());
        came
    }

    /// For tests: brings leaves back from far memory that `picks` says yes to.
    pub(crate) fn raise_some_from_far(&self, mut picks: impl FnMut() -> bool) -> usize {
        let mut came = 0;
        let walked: Result<(), Error> = self.tree.each_leaf(|leaf| {
            came += usize::from(picks() && self.promote(leaf, Place::Far));
            Ok(())
        });
        debug_assert!(walked.is_ok());
        came
    }
}
