//! Conditions of batches: what keys have to be before the batch, for it to be written.
//!
//! Not for reading the keys of conditions up from SSD, which the batch does before it takes any lock.
//!
//! Conditions are checked under the locks of their leaves. Of a value that is long, or lies on SSD, the batch learns
//! before that whether it is the same, and the check finds the outcome.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use super::locks::Locked;
use super::{Operation, Prepared};
use crate::Error;
use crate::landing::Landing;
use crate::large::Large;
use crate::pending::{Newest, newest};
use crate::read::{Copied, copy_found};
use crate::record::{Found, Lookup, Payload, key_hash};
use crate::tree::Tree;
use crate::update::ATTEMPTS_MAX;
use crate::write::Writes;

/// Conditions on a leaf that are searched for in its landings one by one, or records of these, at most. Above this the
/// records are sorted once: the batch holds its locks meanwhile, and the landing of a batch may have hundreds of
/// thousands.
const SEARCHES_MAX: usize = 64;

/// Bytes of a value that is compared under the locks, at most: others wait for them meanwhile.
const LOCKED_BYTES_MAX: u64 = 256 << 10;

#[cfg(any(test, feature = "testing"))]
std::thread_local! {
    /// Changes the store before this thread compares a value without locks, as another thread may at that moment.
    pub static BEFORE_COMPARISON: std::cell::RefCell<Option<Box<dyn FnMut()>>> =
        const { std::cell::RefCell::new(None) };
}

/// A condition on a key, without which a batch is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// The key exists.
    Exists,
    /// The key does not exist.
    Absent,
    /// The key's value is this.
    ValueIs(Vec<u8>),
}

/// Outcomes of comparing large values before the locks are taken.
pub(super) struct Compared {
    outcomes: Vec<Outcome>,
    /// Longer values are not compared under the locks.
    locked_bytes_max: u64,
}

/// The outcome for one condition. Several conditions may ask for one value, by its names or with other bytes.
struct Outcome {
    large: Arc<Large>,
    /// The address of the bytes that the condition asks for.
    wanted: usize,
    is_same: bool,
}

impl Compared {
    /// None yet, after so many attempts in vain. Another value may come in place of the compared one each time. In the
    /// end the values are compared under the locks, however long they are.
    pub(super) fn after(attempts: u32) -> Self {
        let locked_bytes_max = if attempts < ATTEMPTS_MAX { LOCKED_BYTES_MAX } else { u64::MAX };
        Self { outcomes: Vec::new(), locked_bytes_max }
    }
}

/// The records of a leaf's landings in key order, for a batch with many conditions on it.
type Sorted<'g> = Option<Newest<'g>>;

impl Tree {
    /// Whether all conditions of a batch hold; `None` when a key of one is not known, or a value is to be compared
    /// first.
    pub(super) fn all_hold(
        &self,
        operations: &[Prepared<'_>],
        leaf_of: &[usize],
        locked: &[Locked<'_>],
        compared: &Compared,
        guard: &Guard,
    ) -> Result<Option<bool>, Error> {
        let mut from = 0;
        for group in leaf_of.chunk_by(|a, b| a == b) {
            let (of_leaf, leaf) = (&operations[from..from + group.len()], locked[group[0]].leaf);
            from += group.len();
            let is_condition = |operation: &&Operation| matches!(operation, Operation::Require(_));
            let conditions = of_leaf.iter().map(|(_, operation, _)| *operation).filter(is_condition).count();
            let state = leaf.state(guard);
            let landed: usize = state.landings().map(Landing::len).sum();
            // Each search of a landing looks at all its records.
            let sorted: Sorted<'_> = (conditions > SEARCHES_MAX && landed > SEARCHES_MAX)
                .then(|| newest(state.landings(), &self.commits));
            for (key, operation, _) in of_leaf {
                let Operation::Require(condition) = operation else { continue };
                let lookup = match &sorted {
                    Some(sorted) => state.find_in(sorted, key, key_hash(key)),
                    None => state.find(key, key_hash(key), &self.commits).0,
                };
                if state.below.is_some() && matches!(lookup, Lookup::Absent) {
                    return Ok(None);
                }
                match self.holds(lookup, key, condition, compared)? {
                    Some(true) => {}
                    other => return Ok(other),
                }
            }
        }
        Ok(Some(true))
    }

    /// Whether memory says at this moment that a condition on `key` does not hold.
    pub(super) fn fails(&self, key: &[u8], condition: &Condition) -> bool {
        let guard = self.pin();
        let (_, state) = self.locate(key, &guard);
        let is_there = match state.find(key, key_hash(key), &self.commits).0 {
            Lookup::Found(found) => !self.is_over(found.expires_at_ms),
            Lookup::Absent if state.below.is_some() => return false,
            Lookup::Absent | Lookup::Deleted => false,
        };
        is_there == matches!(condition, Condition::Absent)
    }

    /// Whether a condition holds; `None` when a value that is long or lies on SSD is to be compared first.
    fn holds(
        &self,
        lookup: Lookup<'_>,
        key: &[u8],
        condition: &Condition,
        compared: &Compared,
    ) -> Result<Option<bool>, Error> {
        let found = match lookup {
            Lookup::Found(found) if !self.is_over(found.expires_at_ms) => Some(found),
            _ => None,
        };
        Ok(Some(match (condition, found) {
            (Condition::Exists, found) => found.is_some(),
            (Condition::Absent, found) => found.is_none(),
            (Condition::ValueIs(_), None) => false,
            (Condition::ValueIs(wanted), Some(found)) => {
                let mut value = Vec::new();
                let read = match copy_found(found, &mut value) {
                    Copied::Inline(_) => Ok(()),
                    Copied::Large(large, _) if large.len() != wanted.len() as u64 => return Ok(Some(false)),
                    Copied::Large(large, _) => {
                        let is_of_condition = |known: &&Outcome| {
                            Arc::ptr_eq(&known.large, &large) && known.wanted == wanted.as_ptr().addr()
                        };
                        if let Some(known) = compared.outcomes.iter().find(is_of_condition) {
                            return Ok(Some(known.is_same));
                        }
                        if large.len() > compared.locked_bytes_max {
                            return Ok(None);
                        }
                        let Some(read) = large.read_in_memory(usize::MAX, &mut value) else {
                            return Ok(None);
                        };
                        read
                    }
                    Copied::Damaged(reason) => Err(reason),
                };
                read.map_err(|reason| self.damaged(key, reason))?;
                value == *wanted
            }
        }))
    }
}

impl Writes<'_> {
    /// Compares the value of `key` with `wanted` if it is long or lies on SSD. The caller holds no lock.
    pub(super) fn compare_apart(
        &self,
        key: &[u8],
        wanted: &[u8],
        compared: &mut Compared,
    ) -> Result<(), Error> {
        #[cfg(any(test, feature = "testing"))]
        BEFORE_COMPARISON.with_borrow_mut(|change| {
            if let Some(change) = change {
                change();
            }
        });
        let large = {
            let guard = self.tree.pin();
            let (_, state) = self.tree.locate(key, &guard);
            match state.find(key, key_hash(key), &self.tree.commits).0 {
                Lookup::Found(Found { payload: Payload::Large(large), .. }) => large.share(),
                _ => return Ok(()),
            }
        };
        let is_apart = large.len() > compared.locked_bytes_max || large.is_on_ssd();
        if is_apart && large.len() == wanted.len() as u64 {
            let mut value = Vec::new();
            self.tree.read_large(key, &large, &mut value)?;
            let (wanted, is_same) = (wanted.as_ptr().addr(), value == wanted);
            compared.outcomes.push(Outcome { large, wanted, is_same });
        }
        Ok(())
    }
}
