//! Promotes large values from SSD: a value that is read again while its first read is remembered is copied to memory
//! and read there.
//!
//! Not for walks over many keys, nor for conditions and updates: those promote nothing.
//!
//! 1. [`Recent`](super::recent) remembers reads of values as it does reads of records of cold leaves.
//! 2. The copy costs no write, neither now nor when it goes. The pieces stay where they are, for checkpoints, cleaning
//!    and recovery.

use ziptier_tree::large::{ChunkPlace, Large};
use ziptier_tree::memory::Reserved;
use ziptier_tree::record::key_hash;

use crate::places::Moves;

/// A value that is read in parts is promoted if it has so many bytes at most: the copy reads more than the part.
const READ_IN_PARTS_BYTES_MAX: u64 = 4 << 20;

impl Moves<'_> {
    /// Copies large values to memory that lie on SSD and were read from there a moment ago, too. They are about to be
    /// read by these keys. The caller holds no guard.
    pub(crate) fn promote_again<'a>(&self, larges: impl Iterator<Item = (&'a [u8], &'a Large)>) {
        let Some(cold) = &self.cold else { return };
        let again = larges.filter(|(key, large)| large.is_on_ssd() && cold.recent.is_again(key_hash(key)));
        let again: Vec<&Large> = again.map(|(_, large)| large).collect();
        if again.is_empty() {
            return;
        }
        let placed = again.into_iter().filter_map(|large| {
            let (place, reserved) = self.place_above(large.stored_bytes())?;
            Some((large, place, reserved))
        });
        self.tree.stats.values_raised.add(Large::raise(placed.collect()));
        // The background makes room for the next ones.
        self.host.ease();
    }

    /// As [`Moves::promote_again`] of a value of which parts are about to be read.
    pub(crate) fn promote_to_read_parts(&self, key: &[u8], large: &Large) {
        if large.len() <= READ_IN_PARTS_BYTES_MAX {
            self.promote_again(std::iter::once((key, large)));
        }
    }

    /// The place for so many bytes from SSD, if there is room, which is then reserved. A value at a set ratio never
    /// goes down, so none comes up there.
    fn place_above(&self, bytes: usize) -> Option<(ChunkPlace<'_>, Reserved<'_>)> {
        match self.host.chunk_place(bytes) {
            ChunkPlace::Ratio(..) => None,
            ChunkPlace::Dram if self.host.displace(bytes as u64) => {
                Some((ChunkPlace::Dram, self.host.try_reserve(bytes).ok()?))
            }
            ChunkPlace::Dram => None,
            place => Some((place, self.tree.gauges.reserve(0))),
        }
    }
}
