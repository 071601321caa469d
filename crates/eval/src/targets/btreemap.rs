//! `btreemap`: the standard library's ordered map behind one reader-writer lock, every key and value a box of its own.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::locked_map::{LockedMapTarget, Map};
use crate::target::{Records, TargetError};

/// An uncompressed ordered map.
pub type BTreeMapTarget = LockedMapTarget<BTreeMap<Box<[u8]>, Box<[u8]>>>;

impl Map for BTreeMap<Box<[u8]>, Box<[u8]>> {
    type Key = [u8];

    fn key(bytes: &[u8]) -> Result<&[u8], TargetError> {
        Ok(bytes)
    }

    fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.get(key).map(|value| &**value)
    }

    fn value_mut(&mut self, key: &[u8]) -> Option<&mut Box<[u8]>> {
        self.get_mut(key)
    }

    fn add(&mut self, key: &[u8], value: Box<[u8]>) {
        self.insert(key.into(), value);
    }

    fn take(&mut self, key: &[u8]) -> bool {
        self.remove(key).is_some()
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) {
        for (key, value) in self.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).take(limit) {
            records.push(key, value);
        }
    }
}
