//! Counters of the logs of this process, and of the means that make them durable.

use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of all logs of the process.
#[derive(Debug, Default)]
pub(crate) struct WalCounters {
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) direct_appends: AtomicU64,
    durable_by: Mutex<String>,
}

static OF_PROCESS: WalCounters = WalCounters {
    files: AtomicU64::new(0),
    bytes: AtomicU64::new(0),
    syncs: AtomicU64::new(0),
    direct_appends: AtomicU64::new(0),
    durable_by: Mutex::new(String::new()),
};

impl WalCounters {
    /// The counters of the process.
    pub(crate) fn of_process() -> &'static WalCounters {
        &OF_PROCESS
    }

    /// Counts a file of which the medium says how it is durable: `dax`, `tmpfs` or `fdatasync` is its first word.
    pub(super) fn opened(&self, durable_after: &str) {
        self.files.fetch_add(1, Relaxed);
        let word = durable_after.split([' ', ':', ',']).next().unwrap_or_default();
        *self.durable_by.lock() = word.to_lowercase();
    }
}

impl fmt::Display for WalCounters {
    /// One line for each figure, nothing if no log was opened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.load(Relaxed);
        if files == 0 {
            return Ok(());
        }
        let durable_by = self.durable_by.lock().clone();
        writeln!(f, "wal_durable_by {durable_by}")?;
        let counters =
            [("bytes", &self.bytes), ("syncs", &self.syncs), ("direct_appends", &self.direct_appends)];
        writeln!(f, "wal_files {files}")?;
        counters.iter().try_for_each(|(name, counter)| writeln!(f, "wal_{name} {}", counter.load(Relaxed)))
    }
}
