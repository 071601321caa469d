//! Bounds the memory that all clients together make the server hold: unfinished requests, requests that wait for a
//! thread, unsent replies, and names.
//!
//! Code that needs memory for a client takes it from the budget first. When the budget is used up:
//!
//! 1. The client's socket is not read while replies wait for it.
//! 2. The server drops a request that is still arriving, and refuses it.
//! 3. The server disconnects the clients that hold most. If a reply needs the room, this happens at once, because no
//!    reply can be taken back. If requests need it, this happens after some refusals. Otherwise a few idle clients
//!    would lock all others out.
//!
//! The limit may change while the server runs. A lower limit takes nothing from clients that hold more. Steps 2 and 3
//! wait for the next client that needs memory.
//!
//! Do not use the budget for memory of a running request: see `memory_limit`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::refusal::Refusal;

/// Refusals after which the clients that hold most are disconnected.
const REFUSALS_MAX: usize = 64;
/// One part in this many of the budget is free after such a disconnection. Until then replies may exceed the budget by
/// as much.
const SPARE_PART: usize = 8;

/// The budget.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: AtomicUsize,
    held_bytes: AtomicUsize,
    /// Bytes of requests that other threads run. A request holds them until it is done, even if its client goes.
    running_bytes: AtomicUsize,
    /// Since clients were disconnected last.
    refusals: AtomicUsize,
    /// The most bytes that one refused request lacked.
    lacking_bytes: AtomicUsize,
    /// Clients disconnected for want of room.
    pub(crate) evicted: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes: AtomicUsize::new(limit_bytes),
            held_bytes: AtomicUsize::new(0),
            running_bytes: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            lacking_bytes: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Relaxed)
    }

    /// Changes the limit. What was taken stays taken.
    pub(crate) fn set_limit(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Relaxed);
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Relaxed)
    }

    /// Whether more than half is taken. Clients may then hold little more than they have.
    pub(crate) fn is_tight(&self) -> bool {
        self.held_bytes() > self.limit_bytes() / 2
    }

    /// Takes `bytes`, if there are so many.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        self.take_within(bytes, self.limit_bytes())
    }

    /// Takes `bytes` for a reply that has been made, while room for it is being made.
    pub(crate) fn take_beyond(&self, bytes: usize) -> bool {
        let limit_bytes = self.limit_bytes();
        self.take_within(bytes, limit_bytes + limit_bytes / SPARE_PART)
    }

    /// Takes a few `bytes` even if the budget has no room.
    pub(crate) fn take_always(&self, bytes: usize) {
        self.held_bytes.fetch_add(bytes, Relaxed);
    }

    fn take_within(&self, bytes: usize, limit_bytes: usize) -> bool {
        let taken = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= limit_bytes);
        self.held_bytes.fetch_update(Relaxed, Relaxed, taken).is_ok()
    }

    /// Gives back `bytes` that were taken.
    pub(crate) fn give(&self, bytes: usize) {
        self.held_bytes.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn running_bytes(&self) -> usize {
        self.running_bytes.load(Relaxed)
    }

    /// A request that holds so many bytes goes to another thread.
    pub(crate) fn note_running(&self, bytes: usize) {
        self.running_bytes.fetch_add(bytes, Relaxed);
    }

    /// A request that held so many bytes is done.
    pub(crate) fn note_done(&self, bytes: usize) {
        self.running_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Takes memory for something that is being made.
    pub(crate) fn hold(&self) -> Hold<'_> {
        Hold { budget: self, bytes: 0 }
    }

    /// Counts a refused request that lacked `bytes`, and returns whether clients are to be disconnected.
    pub(crate) fn note_refusal(&self, bytes: usize) -> bool {
        self.lacking_bytes.fetch_max(bytes, Relaxed);
        if self.refusals.fetch_add(1, Relaxed) + 1 < REFUSALS_MAX {
            return false;
        }
        self.refusals.store(0, Relaxed);
        true
    }

    /// Bytes that clients must give back to make room. `going` bytes of disconnected clients are already on their way.
    pub(crate) fn excess_bytes(&self, going: usize) -> usize {
        let limit_bytes = self.limit_bytes();
        let lacking_bytes = self.lacking_bytes.swap(0, Relaxed).min(limit_bytes / 2);
        let spare = lacking_bytes.max(limit_bytes / SPARE_PART);
        self.held_bytes().saturating_sub(going).saturating_sub(limit_bytes - spare)
    }
}

/// Memory taken from the budget. Dropping this value gives it back.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Hold<'_> {
    /// Holds at least `bytes`.
    ///
    /// # Errors
    ///
    /// If there are not so many.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), Refusal> {
        let more = bytes.saturating_sub(self.bytes);
        if !self.budget.take(more) {
            return Err(Refusal::OUT_OF_MEMORY);
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_whoever_asks_at_the_same_time() {
        let budget = Budget::new(8000);
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..1000).filter(|_| budget.take(3)).count())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((taken, budget.held_bytes()), (8000 / 3, 7998));
        assert!(budget.is_tight() && !budget.take(3) && budget.take(2) && !budget.take(usize::MAX));
        assert!(budget.take_beyond(1000) && !budget.take_beyond(1));
        assert_eq!((budget.excess_bytes(0), budget.excess_bytes(1500)), (2000, 500));
        // The refused requests fit then. No single client may have all others disconnected.
        budget.note_refusal(3000);
        assert_eq!((budget.excess_bytes(0), budget.excess_bytes(0)), (4000, 2000));
        budget.note_refusal(usize::MAX);
        assert_eq!(budget.excess_bytes(0), 5000);
        budget.give(9000);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn what_was_taken_stays_taken_when_the_limit_changes() {
        let budget = Budget::new(800);
        assert!(budget.take(700) && !budget.take(200));
        budget.set_limit(1600);
        assert!(budget.take(900) && !budget.take(1));
        // One that lacked more than the new limit is counted first.
        budget.note_refusal(800);
        budget.set_limit(400);
        assert_eq!(budget.held_bytes(), 1600);
        assert!(budget.is_tight() && !budget.take(1) && !budget.take_beyond(1));
        assert_eq!((budget.excess_bytes(0), budget.excess_bytes(0)), (1400, 1250));
        budget.give(1600);
        assert!(budget.take(400) && !budget.take(1) && budget.take_beyond(50));
    }

    #[test]
    fn what_is_held_is_given_back() {
        let budget = Budget::new(100);
        let mut hold = budget.hold();
        assert!(hold.grow_to(60).is_ok() && hold.grow_to(50).is_ok() && hold.grow_to(101).is_err());
        assert_eq!(budget.held_bytes(), 60);
        drop(hold);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn every_so_many_refusals_clients_go() {
        let budget = Budget::new(100);
        let gone = (0..10 * REFUSALS_MAX).filter(|_| budget.note_refusal(1)).count();
        assert_eq!(gone, 10);
    }
}
