//! `btreemap-inline`: the standard library's ordered map behind one reader-writer lock, keys within its nodes and every value a box.

use std::collections::BTreeMap;
use std::sync::RwLock;

use crate::keys::Key;
use crate::target::{Answers, Config, Records, Target, TargetError};
use crate::targets::{fixed, read, write};

/// An uncompressed ordered map for keys of one length, which wait for no allocation of their own.
#[derive(Debug, Default)]
pub struct BTreeMapInlineTarget {
    map: RwLock<BTreeMap<Key, Box<[u8]>>>,
}

impl Target for BTreeMapInlineTarget {
    type Batch = Answers;

    fn open(_: &Config) -> Result<Self, TargetError> {
        Ok(Self::default())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let key = fixed(key)?;
        let map = read(&self.map);
        let found = map.get(key);
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(&self, keys: &[Key], batch: &mut Answers) -> Result<(), TargetError> {
        batch.clear();
        let map = read(&self.map);
        for key in keys {
            batch.push(map.get(key).map(|value| &**value));
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        let key = fixed(key)?;
        let mut map = write(&self.map);
        match map.get_mut(key) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            Some(old) => *old = value.into(),
            None => {
                map.insert(*key, value.into());
            }
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        Ok(write(&self.map).remove(fixed(key)?).is_some())
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        let map = read(&self.map);
        for (key, value) in map.range(*fixed(from)?..).take(limit) {
            records.push(key, value);
        }
        Ok(())
    }
}
