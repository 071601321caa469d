//! Counters of an engine's work.
//!
//! Each context counts in memory that no other thread writes. A block takes a microsecond, and shared counters would
//! cost a tenth of that. A reader adds up the contexts.

use super::{BlockError, Task};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// One block in this many is timed, and stands for all of them. Reading the clock twice takes as long as unpacking 100
/// bytes.
const BLOCKS_PER_TIMED: u64 = 32;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters of one context. Only its owner writes them.
        #[derive(Debug, Default)]
        struct Tally {
            $($name: AtomicU64,)*
        }

        /// The values of [`Counters`] at one time.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct CountersSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CountersSnapshot {
            fn add(&mut self, tally: &Tally) {
                $(self.$name += tally.$name.load(Relaxed);)*
            }

            /// The sums of two snapshots.
            pub fn plus(&self, other: &CountersSnapshot) -> CountersSnapshot {
                CountersSnapshot { $($name: self.$name + other.$name,)* }
            }

            /// The difference to an earlier snapshot.
            pub fn since(&self, earlier: &CountersSnapshot) -> CountersSnapshot {
                CountersSnapshot { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }
        }

        impl fmt::Display for CountersSnapshot {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut separator = "";
                $(
                    write!(f, "{separator}{}={}", stringify!($name), self.$name)?;
                    separator = " ";
                )*
                let _ = separator;
                Ok(())
            }
        }
    };
}

counters! {
    /// Blocks compressed, those that did not fit included.
    compress_calls,
    /// Raw bytes given to be compressed.
    compress_bytes_in,
    /// Compressed bytes made.
    compress_bytes_out,
    /// Nanoseconds spent compressing, estimated from one block in 32.
    compress_ns,
    /// Blocks that did not fit into the caller's limit: packed ones are stored raw then.
    does_not_fit,
    /// Blocks decompressed, those that were damaged included.
    decompress_calls,
    /// Compressed bytes given to be decompressed.
    decompress_bytes_in,
    /// Raw bytes made.
    decompress_bytes_out,
    /// Nanoseconds spent decompressing, estimated from one block in 32.
    decompress_ns,
    /// Jobs that another engine ran because this one could not.
    fallbacks,
    /// Submissions that met a full queue.
    queue_full_retries,
    /// Errors, of damaged input or of the engine itself, and page faults of a device.
    faults,
}

/// Counters of one engine: the sums over its contexts. Each counter is exact, except the times. Together they are no
/// snapshot of one moment.
#[derive(Debug, Default)]
pub struct Counters {
    contexts: Mutex<Contexts>,
}

#[derive(Debug, Default)]
struct Contexts {
    open: Vec<Arc<Tally>>,
    /// The sums of closed contexts.
    closed: CountersSnapshot,
}

impl Counters {
    /// Counters at zero.
    pub fn new() -> Counters {
        Counters::default()
    }

    /// The values now.
    pub fn snapshot(&self) -> CountersSnapshot {
        let contexts = self.contexts();
        let mut sum = contexts.closed;
        contexts.open.iter().for_each(|tally| sum.add(tally));
        sum
    }

    /// Counters for a new context.
    pub fn open(&self) -> ContextCounters<'_> {
        let tally = Arc::<Tally>::default();
        self.contexts().open.push(Arc::clone(&tally));
        ContextCounters { engine: self, tally, blocks: 0 }
    }

    fn contexts(&self) -> MutexGuard<'_, Contexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counters of one context. When they are dropped, the engine's [`Counters`] keep the sums.
#[derive(Debug)]
pub struct ContextCounters<'a> {
    engine: &'a Counters,
    tally: Arc<Tally>,
    /// Blocks begun.
    blocks: u64,
}

impl ContextCounters<'_> {
    /// Notes that a block is begun, and the time if the block is one of the timed ones. A context's first blocks are
    /// not timed, because they build its tables.
    pub fn begin(&mut self) -> Option<Instant> {
        self.blocks += 1;
        self.blocks.is_multiple_of(BLOCKS_PER_TIMED).then(Instant::now)
    }

    /// Counts a block that was compressed to `bytes_out`, or that did not fit.
    pub fn compressed(&mut self, bytes_in: usize, bytes_out: Option<usize>, begun: Option<Instant>) {
        let tally = &self.tally;
        raise(&tally.compress_calls, 1);
        raise(&tally.compress_bytes_in, bytes_in as u64);
        raise_time(&tally.compress_ns, begun);
        match bytes_out {
            Some(bytes_out) => raise(&tally.compress_bytes_out, bytes_out as u64),
            None => raise(&tally.does_not_fit, 1),
        }
    }

    /// Counts a block that was decompressed to `bytes_out`, or that was an error.
    pub fn decompressed(&mut self, bytes_in: usize, bytes_out: Option<usize>, begun: Option<Instant>) {
        let tally = &self.tally;
        raise(&tally.decompress_calls, 1);
        raise(&tally.decompress_bytes_in, bytes_in as u64);
        raise_time(&tally.decompress_ns, begun);
        match bytes_out {
            Some(bytes_out) => raise(&tally.decompress_bytes_out, bytes_out as u64),
            None => raise(&tally.faults, 1),
        }
    }

    /// Counts a block that was to be decompressed and is longer than the room for it.
    pub fn did_not_fit(&mut self, bytes_in: usize, begun: Option<Instant>) {
        let tally = &self.tally;
        raise(&tally.decompress_calls, 1);
        raise(&tally.decompress_bytes_in, bytes_in as u64);
        raise_time(&tally.decompress_ns, begun);
        raise(&tally.does_not_fit, 1);
    }

    /// Counts a block that has ended. An engine's own errors count in [`faulted`](Self::faulted) instead.
    pub fn ended(
        &mut self,
        task: Task,
        bytes_in: usize,
        result: &Result<Option<usize>, BlockError>,
        begun: Option<Instant>,
    ) {
        let bytes_out = match result {
            Err(BlockError::Engine { .. }) => return,
            Err(_) => None,
            Ok(bytes_out) => *bytes_out,
        };
        match task {
            Task::Compress { .. } => self.compressed(bytes_in, bytes_out, begun),
            Task::Decompress { .. } => self.decompressed(bytes_in, bytes_out, begun),
        }
    }

    /// Counts a job that another engine did.
    pub fn fell_back(&mut self) {
        raise(&self.tally.fallbacks, 1);
    }

    /// Counts a submission that met a full queue.
    pub fn queue_was_full(&mut self) {
        raise(&self.tally.queue_full_retries, 1);
    }

    /// Counts full queues and page faults of a device.
    pub fn device_met(&mut self, queue_full: u64, page_faults: u64) {
        raise(&self.tally.queue_full_retries, queue_full);
        raise(&self.tally.faults, page_faults);
    }

    /// Counts an error or a page fault.
    pub fn faulted(&mut self) {
        raise(&self.tally.faults, 1);
    }
}

impl Drop for ContextCounters<'_> {
    fn drop(&mut self) {
        let mut contexts = self.engine.contexts();
        contexts.open.retain(|tally| !Arc::ptr_eq(tally, &self.tally));
        contexts.closed.add(&self.tally);
    }
}

/// Adds to a counter that only the caller writes.
#[inline]
fn raise(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed) + by, Relaxed);
}

fn raise_time(counter: &AtomicU64, begun: Option<Instant>) {
    if let Some(begun) = begun {
        raise(counter, begun.elapsed().as_nanos() as u64 * BLOCKS_PER_TIMED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_contexts_add_up_and_print() {
        let counters = Counters::new();
        let mut first = counters.open();
        first.compressed(100, Some(40), None);
        first.compressed(100, None, None);
        let before = counters.snapshot();
        let mut second = counters.open();
        second.decompressed(40, Some(100), None);
        drop(second);
        first.decompressed(40, None, None);
        first.queue_was_full();
        first.fell_back();
        drop(first);
        assert_eq!((before.compress_calls, before.does_not_fit, before.compress_bytes_in), (2, 1, 200));
        let since = counters.snapshot().since(&before);
        assert_eq!((since.compress_calls, since.decompress_calls, since.faults), (0, 2, 1));
        assert!(since.to_string().contains("decompress_bytes_out=100"));
        assert!(since.to_string().ends_with("fallbacks=1 queue_full_retries=1 faults=1"));
    }

    #[test]
    fn one_block_in_many_is_timed_and_stands_for_the_others() {
        let counters = Counters::new();
        let mut own = counters.open();
        for block in 1..=2 * BLOCKS_PER_TIMED {
            let begun = own.begin();
            assert_eq!(begun.is_some(), block.is_multiple_of(BLOCKS_PER_TIMED));
            if begun.is_some() {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
            own.compressed(1, None, begun);
        }
        assert!(counters.snapshot().compress_ns >= 2 * BLOCKS_PER_TIMED * 50_000);
    }
}
