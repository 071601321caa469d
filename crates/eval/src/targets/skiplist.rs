//! `skiplist`: crossbeam's lock-free ordered map, every key and value a box of its own.

use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use crossbeam_skiplist::SkipMap;

use crate::target::{Answers, Config, Records, Target, TargetError};

/// An uncompressed lock-free ordered map.
///
/// `SkipMap::insert` replaces by removing and inserting, and readers see the gap. So an existing entry's value is
/// replaced in place under a lock of its own.
#[derive(Debug, Default)]
pub struct SkipListTarget {
    map: SkipMap<Box<[u8]>, RwLock<Box<[u8]>>>,
}

fn copy(cell: &RwLock<Box<[u8]>>, value: &mut Vec<u8>) {
    value.clear();
    value.extend_from_slice(&cell.read().unwrap_or_else(PoisonError::into_inner));
}

impl Target for SkipListTarget {
    type Batch = Answers;

    fn open(_: &Config) -> Result<Self, TargetError> {
        Ok(Self::default())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        let entry = self.map.get(key);
        match &entry {
            Some(entry) => copy(entry.value(), value),
            None => value.clear(),
        }
        Ok(entry.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        batch.clear();
        for key in keys {
            match self.map.get(*key) {
                Some(entry) => {
                    batch.push(Some(&entry.value().read().unwrap_or_else(PoisonError::into_inner)));
                }
                None => batch.push(None),
            }
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        loop {
            let Some(entry) = self.map.get(key) else {
                let entry = self.map.get_or_insert(key.into(), RwLock::new(value.into()));
                if **entry.value().read().unwrap_or_else(PoisonError::into_inner) == *value {
                    return Ok(());
                }
                continue;
            };
            {
                let mut old = entry.value().write().unwrap_or_else(PoisonError::into_inner);
                if old.len() == value.len() {
                    old.copy_from_slice(value);
                } else {
                    *old = value.into();
                }
            }
            if !entry.is_removed() {
                return Ok(());
            }
        }
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        Ok(self.map.remove(key).is_some())
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        for entry in self.map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).take(limit) {
            records.push(entry.key(), &entry.value().read().unwrap_or_else(PoisonError::into_inner));
        }
        Ok(())
    }
}
