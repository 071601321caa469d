//! Large values up from the SSD: one that is read again while its first read is remembered is copied to memory, and
//! read there.
//!
//! That is the rule of [`Recent`](super::recent), as for records of cold leaves. The copy costs no write, neither now
//! nor when it goes: the pieces stay where they are, for checkpoints, cleaning and recovery as for any value on SSD.
//! Walks over many keys do not come here.

use crate::core::Core;
use crate::large::{ChunkPlace, Large};
use crate::memory::Reserved;
use crate::record::key_hash;

/// A value that is read in parts comes up if it has so many bytes at most: more than is asked for is read then.
const READ_IN_PARTS_BYTES_MAX: u64 = 4 << 20;

impl Core {
    /// Copies those large values to memory that lie on SSD and were read from there a moment ago, too; they are about
    /// to be read by these keys. The caller holds no guard.
    pub(crate) fn raise_again<'a>(&self, larges: impl Iterator<Item = (&'a [u8], &'a Large)>) {
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
        self.stats.values_raised.add(Large::raise(placed.collect()));
        // The background makes room for the next ones.
        self.ease();
    }

    /// As [`Core::raise_again`] of a value of which parts are about to be read.
    pub(crate) fn raise_to_read_parts(&self, key: &[u8], large: &Large) {
        if large.len() <= READ_IN_PARTS_BYTES_MAX {
            self.raise_again(std::iter::once((key, large)));
        }
    }

    /// Where so many bytes from SSD are to lie, if there is room, which is kept for them. What lies at a set ratio
    /// never goes down, so nothing comes up there.
    fn place_above(&self, bytes: usize) -> Option<(ChunkPlace<'_>, Reserved<'_>)> {
        match self.chunk_place(bytes) {
            ChunkPlace::Ratio(..) => None,
            ChunkPlace::Dram if self.displace(bytes as u64) => {
                Some((ChunkPlace::Dram, self.try_reserve(bytes).ok()?))
            }
            ChunkPlace::Dram => None,
            place => Some((place, self.gauges.reserve(0))),
        }
    }
}
