//! `btreemap`: the standard library's ordered map behind one reader-writer lock, every key and value a box of its own.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::keys::Key;
use crate::target::{Answers, Config, Records, Target, TargetError};

type Map = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// An uncompressed ordered map.
#[derive(Debug, Default)]
pub struct BTreeMapTarget {
    map: RwLock<Map>,
}

impl BTreeMapTarget {
    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for BTreeMapTarget {
    type Batch = Answers;

    fn open(_: &Config) -> Result<Self, TargetError> {
        Ok(Self::default())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let map = self.read();
        let found = map.get(key);
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(&self, keys: &[Key], batch: &mut Answers) -> Result<(), TargetError> {
        batch.clear();
        let map = self.read();
        for key in keys {
            batch.push(map.get(key.as_slice()).map(|value| &**value));
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        let mut map = self.write();
        match map.get_mut(key) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            Some(old) => *old = value.into(),
            None => {
                map.insert(key.into(), value.into());
            }
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        Ok(self.write().remove(key).is_some())
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        let map = self.read();
        for (key, value) in map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).take(limit) {
            records.push(key, value);
        }
        Ok(())
    }
}
