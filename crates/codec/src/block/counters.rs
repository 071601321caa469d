//! What an engine has done, counted.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one engine, shared by all its contexts. Each is exact; together they are no snapshot in time.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($name: AtomicU64,)*
        }

        /// The values of [`Counters`] at one time.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct CountersSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Counters at zero.
            pub const fn new() -> Counters {
                Counters { $($name: AtomicU64::new(0),)* }
            }

            /// The values now.
            pub fn snapshot(&self) -> CountersSnapshot {
                CountersSnapshot { $($name: self.$name.load(Relaxed),)* }
            }
        }

        impl CountersSnapshot {
            /// What was counted since an earlier snapshot.
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
    /// Nanoseconds spent compressing, as far as the engine measures them.
    compress_ns,
    /// Blocks that did not fit and were left to be stored raw.
    does_not_fit,
    /// Blocks decompressed, those that were damaged included.
    decompress_calls,
    /// Compressed bytes given to be decompressed.
    decompress_bytes_in,
    /// Raw bytes made.
    decompress_bytes_out,
    /// Nanoseconds spent decompressing, as far as the engine measures them.
    decompress_ns,
    /// Jobs that another engine did because this one could not.
    fallbacks,
    /// Submissions that met a full queue.
    queue_full_retries,
    /// Errors, of damaged input or of the engine itself, and page faults of a device.
    faults,
}

impl Counters {
    /// Counts a block that was compressed to `bytes_out`, or that did not fit.
    pub fn compressed(&self, bytes_in: usize, bytes_out: Option<usize>, took: Duration) {
        self.compress_calls.fetch_add(1, Relaxed);
        self.compress_bytes_in.fetch_add(bytes_in as u64, Relaxed);
        self.compress_ns.fetch_add(took.as_nanos() as u64, Relaxed);
        match bytes_out {
            Some(bytes_out) => self.compress_bytes_out.fetch_add(bytes_out as u64, Relaxed),
            None => self.does_not_fit.fetch_add(1, Relaxed),
        };
    }

    /// Counts a block that was decompressed to `bytes_out`, or that was an error.
    pub fn decompressed(&self, bytes_in: usize, bytes_out: Option<usize>, took: Duration) {
        self.decompress_calls.fetch_add(1, Relaxed);
        self.decompress_bytes_in.fetch_add(bytes_in as u64, Relaxed);
        self.decompress_ns.fetch_add(took.as_nanos() as u64, Relaxed);
        match bytes_out {
            Some(bytes_out) => self.decompress_bytes_out.fetch_add(bytes_out as u64, Relaxed),
            None => self.faults.fetch_add(1, Relaxed),
        };
    }

    /// Counts a job that another engine did.
    pub fn fell_back(&self) {
        self.fallbacks.fetch_add(1, Relaxed);
    }

    /// Counts a submission that met a full queue.
    pub fn queue_was_full(&self) {
        self.queue_full_retries.fetch_add(1, Relaxed);
    }

    /// Counts an error or a page fault.
    pub fn faulted(&self) {
        self.faults.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_print() {
        let counters = Counters::new();
        counters.compressed(100, Some(40), Duration::from_nanos(7));
        counters.compressed(100, None, Duration::from_nanos(5));
        let before = counters.snapshot();
        counters.decompressed(40, Some(100), Duration::from_nanos(3));
        counters.decompressed(40, None, Duration::ZERO);
        counters.queue_was_full();
        counters.fell_back();
        assert_eq!((before.compress_calls, before.does_not_fit, before.compress_ns), (2, 1, 12));
        let since = counters.snapshot().since(&before);
        assert_eq!((since.compress_calls, since.decompress_calls, since.faults), (0, 2, 1));
        assert!(since.to_string().contains("decompress_bytes_out=100"));
        assert!(since.to_string().ends_with("fallbacks=1 queue_full_retries=1 faults=1"));
    }
}
