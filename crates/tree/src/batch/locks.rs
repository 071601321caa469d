//! The locks of leaves that a batch takes, for callers that wait and for callers that may not.

use crossbeam_epoch::Guard;

use crate::leaf::Leaf;
use crate::sync::{Mutex, MutexGuard, back_off};
use crate::tree::Tree;

/// Looks at a lock, or a turn, before its holder counts as one that takes long: a single write and a short batch are
/// over by then.
const LOOKS_MAX: u32 = 16;

/// A leaf whose writer lock is held.
pub struct Locked<'g> {
    pub leaf: &'g Leaf,
    _writer: MutexGuard<'g, ()>,
}

/// Takes a lock; `None` if somebody else holds it for longer than a moment.
pub(super) fn lock_if_free(lock: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    (0..LOOKS_MAX).find_map(|round| {
        let locked = lock.try_lock();
        if locked.is_none() {
            back_off(round);
        }
        locked
    })
}

impl Tree {
    /// Locks the leaf that owns `key`. Waits for a leaf that is being cut. The owner of that leaf never waits for a
    /// leaf to its left, and a batch holds only such leaves.
    pub fn lock_leaf<'g>(&self, key: &[u8], guard: &'g Guard) -> Locked<'g> {
        let mut round = 0;
        loop {
            let (leaf, _) = self.locate(key, guard);
            let writer = leaf.lock_writer();
            let state = leaf.state(guard);
            if !state.closed && state.covers(key) {
                return Locked { leaf, _writer: writer };
            }
            drop(writer);
            back_off(round);
            round += 1;
        }
    }

    /// Locks the leaves of `keys`, which are in order, and tells for each key which leaf is its own. `None` if somebody
    /// has one of them for longer than a moment, and the caller does not wait.
    pub(super) fn lock_leaves<'g, 'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
        waits: bool,
        guard: &'g Guard,
    ) -> Option<(Vec<Locked<'g>>, Vec<usize>)> {
        let (mut locked, mut leaf_of) = (Vec::<Locked<'_>>::new(), Vec::with_capacity(keys.size_hint().0));
        for key in keys {
            if !locked.last().is_some_and(|last| last.leaf.state(guard).covers(key)) {
                locked.push(match waits {
                    true => self.lock_leaf(key, guard),
                    false => self.lock_leaf_if_free(key, guard)?,
                });
            }
            leaf_of.push(locked.len() - 1);
        }
        Some((locked, leaf_of))
    }

    /// As [`Tree::lock_leaf`], but `None` if somebody else has the leaf for longer than a moment.
    fn lock_leaf_if_free<'g>(&self, key: &[u8], guard: &'g Guard) -> Option<Locked<'g>> {
        (0..LOOKS_MAX).find_map(|round| {
            let (leaf, _) = self.locate(key, guard);
            let free = leaf.try_lock_writer().filter(|_| {
                let state = leaf.state(guard);
                !state.closed && state.covers(key)
            });
            if free.is_none() {
                back_off(round);
            }
            free.map(|writer| Locked { leaf, _writer: writer })
        })
    }

    /// Whether a write of `key` would wait for an update whose turn takes longer than a moment, or for a long batch: it
    /// has the leaf's lock, or packs the landing that grew for it.
    pub fn is_held_up(&self, key: &[u8]) -> bool {
        let has_turn = (0..LOOKS_MAX).all(|round| {
            let has_turn = self.turns.holds_up(std::iter::once(key));
            if has_turn {
                back_off(round);
            }
            has_turn
        });
        if has_turn || !self.long_batches.is_locked() {
            return has_turn;
        }
        let guard = self.pin();
        let (leaf, _) = self.locate(key, &guard);
        let state = leaf.state(&guard);
        let is_packed = || state.sealed.as_ref().is_some_and(|sealed| self.is_grown(sealed));
        state.closed || leaf.try_lock_writer().is_none() || is_packed()
    }
}
