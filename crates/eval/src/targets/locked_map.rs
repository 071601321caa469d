//! A map of the standard library behind one reader-writer lock, as a target.
//!
//! Every value is a box. A put of the same length overwrites it in place, so that updates cost no allocation.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::data::keys::KEY_BYTES;
use crate::target::{Answers, Config, Records, Target, TargetError};

/// The operations that the target needs of a map, in which maps differ.
pub trait Map: Default + Send + Sync {
    /// A key as the map is asked for it.
    type Key: ?Sized;

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

/// A map that is opened for the keys of a run.
pub trait OpenedMap: Map<Key = [u8]> {
    /// An empty map for keys of this length, or of any.
    fn for_keys(bytes: Option<usize>) -> Self;
}

/// A map behind a lock.
#[derive(Debug)]
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

impl<M: OpenedMap> Target for LockedMapTarget<M> {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        let bytes = config.oracles.first().and_then(|oracle| oracle.keys().bytes());
        Ok(LockedMapTarget { map: RwLock::new(M::for_keys(bytes)) })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let map = self.read();
        let found = map.value(key);
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        batch.clear();
        let map = self.read();
        keys.iter().for_each(|key| batch.push(map.value(key)));
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        let mut map = self.write();
        match map.value_mut(key) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            Some(old) => *old = value.into(),
            None => map.add(key, value.into()),
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        Ok(self.write().take(key))
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        self.read().scan(from, limit, records);
        Ok(())
    }
}

/// A key in a table, without an allocation of its own.
pub(super) type InPlace = [u8; KEY_BYTES];

/// A map with keys of the usual length in its table, or one with a box for each key of another length.
#[derive(Debug)]
pub enum Keyed<I, B> {
    /// All keys have the usual length.
    InPlace(I),
    /// Keys have another length, or several.
    Boxed(B),
}

impl<I: Default, B> Default for Keyed<I, B> {
    fn default() -> Self {
        Keyed::InPlace(I::default())
    }
}

impl<I: Map<Key = InPlace>, B: Map<Key = [u8]>> OpenedMap for Keyed<I, B> {
    fn for_keys(bytes: Option<usize>) -> Self {
        match bytes {
            Some(KEY_BYTES) => Keyed::InPlace(I::default()),
            _ => Keyed::Boxed(B::default()),
        }
    }
}

impl<I: Map<Key = InPlace>, B: Map<Key = [u8]>> Map for Keyed<I, B> {
    type Key = [u8];

    #[inline]
    fn value(&self, key: &[u8]) -> Option<&[u8]> {
        match self {
            Keyed::InPlace(map) => map.value(key.try_into().ok()?),
            Keyed::Boxed(map) => map.value(key),
        }
    }

    #[inline]
    fn value_mut(&mut self, key: &[u8]) -> Option<&mut Box<[u8]>> {
        match self {
            Keyed::InPlace(map) => map.value_mut(key.try_into().ok()?),
            Keyed::Boxed(map) => map.value_mut(key),
        }
    }

    fn add(&mut self, key: &[u8], value: Box<[u8]>) {
        match self {
            Keyed::InPlace(map) => {
                map.add(key.try_into().expect("all keys of the run have one length"), value)
            }
            Keyed::Boxed(map) => map.add(key, value),
        }
    }

    fn take(&mut self, key: &[u8]) -> bool {
        match self {
            Keyed::InPlace(map) => key.try_into().is_ok_and(|key| map.take(key)),
            Keyed::Boxed(map) => map.take(key),
        }
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) {
        match self {
            Keyed::InPlace(map) => {
                from.try_into().into_iter().for_each(|from| map.scan(from, limit, records))
            }
            Keyed::Boxed(map) => map.scan(from, limit, records),
        }
    }
}

/// Makes a map of the standard library a [`Map`], with the form of its keys, how one is made of its bytes, and a
/// function that scans. The library's maps share names of methods, but no trait.
macro_rules! map {
    ($map:ident, $key:ty, $kept:ty, $keep:expr, $scan:path) => {
        impl $crate::targets::locked_map::Map for $map<$kept, Box<[u8]>> {
            type Key = $key;

            #[inline]
            fn value(&self, key: &$key) -> Option<&[u8]> {
                self.get(key).map(|value| &**value)
            }

            #[inline]
            fn value_mut(&mut self, key: &$key) -> Option<&mut Box<[u8]>> {
                self.get_mut(key)
            }

            fn add(&mut self, key: &$key, value: Box<[u8]>) {
                self.insert($keep(key), value);
            }

            fn take(&mut self, key: &$key) -> bool {
                self.remove(key).is_some()
            }

            fn scan(&self, from: &$key, limit: usize, records: &mut $crate::target::Records) {
                $scan(self, from, limit, records);
            }
        }
    };
}
pub(super) use map;
