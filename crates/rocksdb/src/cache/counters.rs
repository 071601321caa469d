//! The counters of a cache.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one cache since it was opened.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: Count,)* }

        impl Counters {
            /// Adds those of another cache.
            pub fn add_all(&self, other: &Counters) {
                $(self.$name.add(other.$name.get());)*
            }
        }

        impl fmt::Display for Counters {
            /// One line for each figure, `name value`, as metrics are.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, concat!("cache_", stringify!($name), " {}"), self.$name.get())?;)*
                Ok(())
            }
        }
    };
}

counters! {
    /// Entries that are found at this moment.
    entries,
    /// Entries that were found when the cache was opened.
    restored,
    /// Whether the index came from its file (1) or from reading all segments (0).
    restored_from_index,
    /// Lookups that gave a block.
    hits,
    /// Lookups that did not.
    misses,
    /// Blocks that were stored.
    stored,
    /// Their bytes.
    stored_raw_bytes,
    /// The bytes that they took.
    stored_packed_bytes,
    /// Blocks that were read since they were written, and moved on when their segment was overwritten.
    kept,
    /// Blocks that came for the first time and were turned away.
    turned_away,
    /// Blocks that came while the buffer was full.
    dropped,
    /// Blocks that are too long.
    too_long,
    /// Entries that failed their check; each was dropped.
    damaged,
    /// Segment files whose header failed its check; each was dropped.
    damaged_segments,
    /// Bytes that were written to files.
    written_bytes,
    /// Bytes that wait to be written.
    buffered_bytes,
    /// Bytes of memory of the index and of the admission.
    index_bytes,
    /// Whether writing stopped after a failure (1).
    stopped,
}

/// One figure.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The figure.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    pub(super) fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    pub(super) fn one(&self) {
        self.add(1);
    }
}
