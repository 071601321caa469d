//! Locks of keys, so that a change that reads its key first is atomic.
//!
//! RocksDB's writes overwrite without a look. A key's lock is shared with other keys of the same hash. Writers of
//! several keys take the locks in ascending order, so that none waits for another in a circle.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks: many more than there are threads.
const LOCKS: usize = 1 << 10;

/// The locks of all keys of a database.
pub(super) struct Locks {
    locks: Vec<Mutex<()>>,
    hasher: RandomState,
}

/// Locks that are held until this is dropped.
pub(super) struct Held<'a> {
    _guards: Vec<MutexGuard<'a, ()>>,
}

impl Locks {
    pub(super) fn new() -> Self {
        Self { locks: (0..LOCKS).map(|_| Mutex::new(())).collect(), hasher: RandomState::new() }
    }

    fn index(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % LOCKS
    }

    fn indexes<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Vec<usize> {
        let mut indexes: Vec<usize> = keys.map(|key| self.index(key)).collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes
    }

    // A holder that panicked has left no data behind the lock.
    fn lock(&self, index: usize) -> MutexGuard<'_, ()> {
        self.locks[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self, index: usize) -> Option<MutexGuard<'_, ()>> {
        match self.locks[index].try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits for the lock of one key.
    pub(super) fn hold(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        self.lock(self.index(key))
    }

    /// Waits for the locks of several keys.
    pub(super) fn hold_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Held<'_> {
        Held { _guards: self.indexes(keys).into_iter().map(|index| self.lock(index)).collect() }
    }

    /// Takes the locks of several keys if nobody has any of them.
    pub(super) fn try_hold_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Option<Held<'_>> {
        let guards = self.indexes(keys).into_iter().map(|index| self.try_lock(index));
        Some(Held { _guards: guards.collect::<Option<_>>()? })
    }

    /// Waits for the locks of all keys.
    pub(super) fn hold_every(&self) -> Held<'_> {
        Held { _guards: (0..LOCKS).map(|index| self.lock(index)).collect() }
    }

    /// Waits for the lock that [`Locks::hold_every`] takes last.
    #[cfg(test)]
    pub(super) fn hold_last(&self) -> MutexGuard<'_, ()> {
        self.lock(LOCKS - 1)
    }

    /// Whether somebody has the lock of a key.
    pub(super) fn is_held(&self, key: &[u8]) -> bool {
        self.try_lock(self.index(key)).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|number| number.to_string().into_bytes()).collect()
    }

    #[test]
    fn a_held_key_is_held_and_a_free_one_free() {
        let locks = Locks::new();
        let keys = keys(3 * LOCKS);
        let all = || keys.iter().map(Vec::as_slice);
        let held = locks.hold(&keys[0]);
        assert!(locks.is_held(&keys[0]) && locks.try_hold_all(all()).is_none());
        assert!(keys.iter().any(|key| !locks.is_held(key)));
        drop(held);
        let held = locks.hold_all(all());
        assert!(keys.iter().all(|key| locks.is_held(key)));
        drop(held);
        assert!(!keys.iter().any(|key| locks.is_held(key)) && locks.try_hold_all(all()).is_some());
        let _held = locks.hold_every();
        assert!(keys.iter().all(|key| locks.is_held(key)));
    }

    /// Threads that take the same keys in opposite orders wait for each other in turn, never in a circle.
    #[test]
    fn holders_of_many_keys_never_wait_in_a_circle() {
        let locks = Locks::new();
        let keys = keys(100);
        let mut reversed = keys.clone();
        reversed.reverse();
        std::thread::scope(|scope| {
            for keys in [&keys, &reversed] {
                let locks = &locks;
                scope.spawn(move || {
                    (0..2_000).for_each(|_| drop(locks.hold_all(keys.iter().map(Vec::as_slice))))
                });
            }
        });
    }
}
