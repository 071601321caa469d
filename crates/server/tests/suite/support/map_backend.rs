//! A test double of a store: an ordered map behind one lock. It keeps every promise of the trait and nothing else.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use ziptier_server::backend::{Borrowed, Change, EachRecord, Grant};
use ziptier_server::{
    Backend, BackendError, MemoryUse, Meta, Old, Operation, Patience, Transfer, Transferred, Update,
    ValueReader,
};

/// Values up to this size are read to be changed.
const WHOLE_BYTES_MAX: usize = 100;

/// Value and expiry.
type Entry = (Vec<u8>, Option<u64>);
type Map = BTreeMap<Vec<u8>, Entry>;

/// The map.
#[derive(Default)]
pub(crate) struct MapBackend {
    map: RwLock<Map>,
    /// Refuses writes once keys and values hold more.
    limit_bytes: Option<u64>,
    /// Room in the buffer that a worker gave for the last value.
    pub(crate) buffer_bytes: AtomicUsize,
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

fn meta((value, expires_at_ms): &Entry) -> Meta {
    Meta { len: value.len() as u64, expires_at_ms: *expires_at_ms }
}

fn opened(entry: &Entry) -> (Old<'_>, Meta) {
    match entry.0.len() {
        0..=WHOLE_BYTES_MAX => (Old::Whole(&entry.0), meta(entry)),
        _ => (Old::Large(Box::new(entry.0.clone())), meta(entry)),
    }
}

fn is_alive((_, expires_at_ms): &Entry) -> bool {
    expires_at_ms.is_none_or(|moment| moment > now_ms())
}

fn logical_bytes(map: &Map) -> u64 {
    map.iter().map(|(key, (value, _))| (key.len() + value.len()) as u64).sum()
}

impl MapBackend {
    pub(crate) fn with_limit(limit_bytes: u64) -> Self {
        Self { limit_bytes: Some(limit_bytes), ..Self::default() }
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_limit(&self, map: &Map, more: usize) -> Result<(), BackendError> {
        match self.limit_bytes {
            Some(limit) if logical_bytes(map) + more as u64 > limit => Err(BackendError::MemoryLimit),
            _ => Ok(()),
        }
    }
}

impl Backend for MapBackend {
    fn get_into(
        &self,
        key: &[u8],
        bytes_max: usize,
        value: &mut Vec<u8>,
    ) -> Result<Option<Meta>, BackendError> {
        self.buffer_bytes.store(value.capacity(), Relaxed);
        value.clear();
        let map = self.read();
        let found = map.get(key).filter(|entry| is_alive(entry));
        if let Some((stored, _)) = found.filter(|(stored, _)| stored.len() <= bytes_max) {
            value.extend_from_slice(stored);
        }
        Ok(found.map(meta))
    }

    fn open_value(&self, key: &[u8]) -> Result<Option<Box<dyn ValueReader>>, BackendError> {
        let map = self.read();
        let found = map.get(key).filter(|entry| is_alive(entry));
        Ok(found.map(|(value, _)| Box::new(value.clone()) as Box<dyn ValueReader>))
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Meta>, BackendError> {
        Ok(self.read().get(key).filter(|entry| is_alive(entry)).map(meta))
    }

    fn put(&self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Result<(), BackendError> {
        let mut map = self.change();
        self.check_limit(&map, key.len() + value.len())?;
        map.insert(key.to_vec(), (value.to_vec(), expires_at_ms));
        Ok(())
    }

    fn set_expiry(&self, key: &[u8], expires_at_ms: Option<u64>) -> Result<bool, BackendError> {
        let mut map = self.change();
        let Some(entry) = map.get_mut(key).filter(|entry| is_alive(entry)) else { return Ok(false) };
        entry.1 = expires_at_ms;
        Ok(true)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, BackendError> {
        Ok(self.change().remove(key).is_some_and(|entry| is_alive(&entry)))
    }

    fn update(&self, key: &[u8], change: &mut Change<'_>) -> Result<(), BackendError> {
        let mut map = self.change();
        let old = map.get(key).filter(|entry| is_alive(entry));
        match change(old.map(opened)) {
            Update::Put { value, expires_at_ms } => {
                self.check_limit(&map, key.len() + value.len())?;
                map.insert(key.to_vec(), (value, expires_at_ms));
            }
            Update::Expire { expires_at_ms } => {
                if let Some(entry) = map.get_mut(key) {
                    entry.1 = expires_at_ms;
                }
            }
            Update::Delete => {
                map.remove(key);
            }
            Update::Keep => {}
        }
        Ok(())
    }

    fn transfer(
        &self,
        source: &[u8],
        target: &[u8],
        how: Transfer,
        _: &mut Grant<'_>,
    ) -> Result<Transferred, BackendError> {
        let mut map = self.change();
        let Some(entry) = map.get(source).filter(|entry| is_alive(entry)).cloned() else {
            return Ok(Transferred::NoSource);
        };
        if !how.replace && map.get(target).is_some_and(is_alive) {
            return Ok(Transferred::TargetExists);
        }
        self.check_limit(&map, target.len() + entry.0.len())?;
        map.insert(target.to_vec(), entry);
        if !how.keep_source {
            map.remove(source);
        }
        Ok(Transferred::Done)
    }

    fn write(&self, operations: &[Operation<'_>]) -> Result<bool, BackendError> {
        let mut map = self.change();
        let mut more = 0;
        for operation in operations {
            match operation {
                Operation::RequireAbsent { key } if map.get(*key).is_some_and(is_alive) => return Ok(false),
                Operation::Put { key, value } => more += key.len() + value.len(),
                _ => {}
            }
        }
        self.check_limit(&map, more)?;
        for operation in operations {
            match operation {
                Operation::Put { key, value } => {
                    map.insert(key.to_vec(), (value.to_vec(), None));
                }
                Operation::Delete { key } => {
                    map.remove(*key);
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn keys_from(
        &self,
        from: &[u8],
        limit: usize,
        _patience: Patience,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Vec<u8>>, BackendError> {
        let map = self.read();
        let range = map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        let mut keys = range.filter(|(_, entry)| is_alive(entry)).map(|(key, _)| key);
        keys.by_ref().take(limit).for_each(|key| each(key));
        Ok(keys.next().cloned())
    }

    fn records(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        _patience: Patience,
        each: &mut EachRecord<'_>,
    ) -> Result<Option<Vec<u8>>, BackendError> {
        let map = self.read();
        let past_end = |key: &[u8]| match to {
            Bound::Included(to) => key > to,
            Bound::Excluded(to) => key >= to,
            Bound::Unbounded => false,
        };
        // The map's own ranges panic if the ends are the wrong way round.
        let range = map.range::<[u8], _>((from, Bound::Unbounded)).take_while(|(key, _)| !past_end(key));
        for (key, entry) in range.filter(|(_, entry)| is_alive(entry)) {
            if !each(key, &mut Borrowed(&entry.0))? {
                break;
            }
        }
        Ok(None)
    }

    fn random_key(&self, _patience: Patience) -> Result<Option<Vec<u8>>, BackendError> {
        let map = self.read();
        let alive = map.iter().filter(|(_, entry)| is_alive(entry));
        let count = alive.clone().count();
        Ok(alive.map(|(key, _)| key.clone()).nth(now_ms() as usize % count.max(1)))
    }

    fn count(&self) -> Result<u64, BackendError> {
        Ok(self.read().values().filter(|entry| is_alive(entry)).count() as u64)
    }

    fn clear(&self) -> Result<(), BackendError> {
        self.change().clear();
        Ok(())
    }

    fn memory(&self) -> MemoryUse {
        let bytes = logical_bytes(&self.read());
        MemoryUse {
            logical_bytes: bytes,
            held_bytes: bytes,
            limit_bytes: self.limit_bytes,
            ..MemoryUse::default()
        }
    }

    fn codec(&self) -> String {
        "none".into()
    }

    fn counters(&self) -> Vec<(&'static str, String)> {
        vec![("codec_trainings", "0".into())]
    }
}
