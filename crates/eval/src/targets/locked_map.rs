//! A map of the standard library behind one reader-writer lock, as a target.
//!
//! Every value is a box. A put of the same length overwrites it in place, so that updates cost no allocation.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::data::keys::{KEY_BYTES, Key};
use crate::target::{Answers, Config, Records, Target, TargetError};

/// The operations that the target needs of a map, in which maps differ.
pub trait Map: Default + Send + Sync {
    /// A key as the map is asked for it.
    type Key: ?Sized;

    /// The key of these bytes, if the map can hold it.
    fn key(bytes: &[u8]) -> Result<&Self::Key, TargetError>;

    /// The value of a key.
    fn value(&self, key: &Self::Key) -> Option<&[u8]>;

    /// The value of a key, to be changed.
    fn value_mut(&mut self, key: &Self::Key) -> Option<&mut Box<[u8]>>;

    /// Adds a key that is not there.
    fn add(&mut self, key: &Self::Key, value: Box<[u8]>);

    /// Removes a key; whether it was there.
    fn take(&mut self, key: &Self::Key) -> bool;

    /// Appends up to `limit` records in key order, from `from` on.
    fn scan(&self, from: &Self::Key, limit: usize, records: &mut Records);
}

/// A map behind a lock.
#[derive(Debug, Default)]
pub struct LockedMapTarget<M> {
    map: RwLock<M>,
}

impl<M> LockedMapTarget<M> {
    fn read(&self) -> RwLockReadGuard<'_, M> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, M> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Map> Target for LockedMapTarget<M> {
    type Batch = Answers;

    fn open(_: &Config) -> Result<Self, TargetError> {
        Ok(Self::default())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let key = M::key(key)?;
        let map = self.read();
        let found = map.value(key);
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(&self, keys: &[Key], batch: &mut Answers) -> Result<(), TargetError> {
        batch.clear();
        let map = self.read();
        for key in keys {
            batch.push(map.value(M::key(key)?));
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        let key = M::key(key)?;
        let mut map = self.write();
        match map.value_mut(key) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            Some(old) => *old = value.into(),
            None => map.add(key, value.into()),
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        let key = M::key(key)?;
        Ok(self.write().take(key))
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        self.read().scan(M::key(from)?, limit, records);
        Ok(())
    }
}

/// Makes a map whose keys lie in place a [`Map`], with a function that scans it. The standard library's maps share
/// names of methods, but no trait.
macro_rules! keys_in_place {
    ($map:ty, $scan:path) => {
        impl $crate::targets::locked_map::Map for $map {
            type Key = $crate::data::keys::Key;

            fn key(bytes: &[u8]) -> Result<&Self::Key, $crate::target::TargetError> {
                $crate::targets::locked_map::fixed(bytes)
            }

            fn value(&self, key: &Self::Key) -> Option<&[u8]> {
                self.get(key).map(|value| &**value)
            }

            fn value_mut(&mut self, key: &Self::Key) -> Option<&mut Box<[u8]>> {
                self.get_mut(key)
            }

            fn add(&mut self, key: &Self::Key, value: Box<[u8]>) {
                self.insert(*key, value);
            }

            fn take(&mut self, key: &Self::Key) -> bool {
                self.remove(key).is_some()
            }

            fn scan(&self, from: &Self::Key, limit: usize, records: &mut $crate::target::Records) {
                $scan(self, from, limit, records);
            }
        }
    };
}
pub(super) use keys_in_place;

/// The key as a map keeps it in place.
pub(super) fn fixed(key: &[u8]) -> Result<&Key, TargetError> {
    key.try_into().map_err(|_| {
        format!("it keeps keys of {KEY_BYTES} bytes in place, and one of {} came", key.len()).into()
    })
}
