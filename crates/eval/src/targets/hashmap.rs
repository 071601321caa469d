//! `hashmap`: the standard library's hash map behind one reader-writer lock, keys in its table and every value a box.
//!
//! It has no order: a scan looks at every key, as it would in any store without one.

use std::collections::HashMap;
use std::sync::RwLock;

use crate::keys::Key;
use crate::target::{Answers, Config, Records, Target, TargetError};
use crate::targets::{fixed, read, write};

/// An uncompressed map without an order.
#[derive(Debug, Default)]
pub struct HashMapTarget {
    map: RwLock<HashMap<Key, Box<[u8]>>>,
}

impl Target for HashMapTarget {
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
        let mut found: Vec<_> = map.iter().filter(|(key, _)| key.as_slice() >= from).collect();
        if limit > 0 && limit < found.len() {
            found.select_nth_unstable_by_key(limit, |(key, _)| **key);
            found.truncate(limit);
        }
        found.sort_unstable_by_key(|(key, _)| **key);
        for (key, value) in found.into_iter().take(limit) {
            records.push(key, value);
        }
        Ok(())
    }
}
