//! Counts the jobs of a queue that does not report that it is full.

use std::sync::atomic::{AtomicU32, Ordering};

/// Jobs under way, no more than the queue has entries.
#[derive(Debug)]
pub(super) struct InFlight {
    count: AtomicU32,
    entries: u32,
}

impl InFlight {
    pub(super) fn new(entries: u32) -> InFlight {
        InFlight { count: AtomicU32::new(0), entries }
    }

    /// Takes an entry; `false` if there is none.
    pub(super) fn take(&self) -> bool {
        let next = |count| (count < self.entries).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Gives an entry back: its job has ended, or was never handed in.
    pub(super) fn give_back(&self) {
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a job ended that was never handed in");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_jobs_are_under_way_than_the_queue_holds() {
        let in_flight = InFlight::new(2);
        assert!(in_flight.take() && in_flight.take() && !in_flight.take());
        in_flight.give_back();
        assert!(in_flight.take() && !in_flight.take());
    }

    #[test]
    fn threads_share_the_entries() {
        let in_flight = InFlight::new(3);
        let most = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        if in_flight.take() {
                            most.fetch_max(in_flight.count.load(Ordering::Relaxed), Ordering::Relaxed);
                            in_flight.give_back();
                        }
                    }
                });
            }
        });
        assert!(most.into_inner() <= 3);
        assert_eq!(in_flight.count.into_inner(), 0);
    }
}
