//! The records that were read from SSD a moment ago: a record that is read again while it is remembered is worth its
//! memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ziptier_tree::below::Below;
use ziptier_tree::memory::Gauges;
use ziptier_tree::record::{Found, key_hash};

use crate::places::Moves;

/// Records that are remembered, where memory has a limit at most one for so many bytes of it.
const RECORDS_MAX: u64 = 64 << 10;
const LIMIT_BYTES_PER_RECORD: u64 = 1024;

/// Marks of records by the hashes of their keys; a later record takes an earlier one's place.
pub(super) struct Recent {
    marks: Box<[AtomicU32]>,
    gauges: Arc<Gauges>,
}

impl Recent {
    pub(super) fn new(gauges: &Arc<Gauges>) -> Self {
        let records = (gauges.limit() / LIMIT_BYTES_PER_RECORD).clamp(1024, RECORDS_MAX).next_power_of_two();
        let marks: Box<[AtomicU32]> = (0..records).map(|_| AtomicU32::new(0)).collect();
        gauges.index.add(size_of_val(&*marks));
        Self { marks, gauges: gauges.clone() }
    }

    /// Notes a read; `true` when it is the second one.
    pub(super) fn is_again(&self, hash: u64) -> bool {
        let slot = &self.marks[hash as usize & (self.marks.len() - 1)];
        // 0 marks nothing.
        let mark = (hash >> 32) as u32 | 1;
        let again = slot.load(Relaxed) == mark;
        slot.store(if again { 0 } else { mark }, Relaxed);
        again
    }
}

impl Drop for Recent {
    fn drop(&mut self) {
        self.gauges.index.take(size_of_val(&*self.marks));
    }
}

impl Moves<'_> {
    /// Copies a record up that was read from SSD a moment ago, too.
    pub(crate) fn copy_up_again(&self, key: &[u8], found: Option<Found<'_>>, below: &Arc<Below>) {
        let Some(cold) = &self.cold else { return };
        if found.is_some() && cold.recent.is_again(key_hash(key)) && self.host.may_copy_up() {
            // A write that came meanwhile is newer, and a damaged record stays where it is.
            let copied = self.host.writes().copy_up(key, found, below);
            self.tree.stats.copied_up.add(u64::from(matches!(copied, Ok(true))));
        }
    }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;

    #[test]
    fn the_second_read_is_noticed_and_the_first_is_forgotten_in_time() {
        let recent = Recent::new(&Arc::new(Gauges::new(Some(1 << 20))));
        assert_eq!(recent.marks.len(), 1024);
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!(!recent.is_again(hash(1)));
        assert!(recent.is_again(hash(1)));
        assert!(!recent.is_again(hash(1)));
        (2..10_000).for_each(|n| assert!(!recent.is_again(hash(n))));
        assert!(!recent.is_again(hash(1)));
    }
}
