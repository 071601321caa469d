//! What a worker has counted: operations, their latencies, and answers that were wrong.

use hdrhistogram::Histogram;

use crate::target::{Gone, TargetError};

/// Answers that were wrong.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    pub(crate) count: u64,
    pub(crate) first: Option<String>,
    /// The reason why the store answers no more.
    pub(crate) gone: Option<String>,
}

impl Mistakes {
    #[cold]
    pub(crate) fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(what);
    }

    /// Adds a call that failed.
    #[cold]
    pub(crate) fn fail(&mut self, call: &str, index: u64, error: &TargetError) {
        self.fail_of(call, || format!("key number {index}"), error);
    }

    /// The same for a key in words.
    #[cold]
    pub(crate) fn fail_of(&mut self, call: &str, key: impl FnOnce() -> String, error: &TargetError) {
        self.add(|| format!("{call} of {} failed: {error}", key()));
        if let Some(Gone(reason)) = error.downcast_ref() {
            self.gone.get_or_insert_with(|| reason.clone());
        }
    }

    pub(crate) fn merge(&mut self, other: Mistakes) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
        self.gone = self.gone.take().or(other.gone);
    }
}

/// The counts of one worker.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) read_ns: Histogram<u64>,
    pub(crate) write_ns: Histogram<u64>,
    pub(crate) mistakes: Mistakes,
}

/// One minute: longer latencies are recorded as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

impl Tally {
    pub(crate) fn new() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants in order");
        Tally { operations: 0, read_ns: histogram(), write_ns: histogram(), mistakes: Mistakes::default() }
    }

    /// Begins the timed window: mistakes so far stay counted.
    pub(crate) fn restart(&mut self) {
        self.operations = 0;
        self.read_ns.reset();
        self.write_ns.reset();
    }

    /// Adds the operations and latencies of another worker, not its mistakes.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.read_ns.add(&other.read_ns).expect("all histograms have the same bounds");
        self.write_ns.add(&other.write_ns).expect("all histograms have the same bounds");
    }
}
