//! The store of a running server, and its stand-in while a recovery is under way.
//!
//! A server listens before its store is there, so that clients hear `LOADING` instead of a refused connection. Every
//! command that needs the store is refused until then. A stand-in without keys answers what is still asked, such as the
//! figures of `INFO`. It tells the settings that the store will have.

use std::ops::{Bound, Deref};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::backend::{
    Backend, BackendError, Change, EachRecord, Grant, MemoryUse, Meta, Operation, Patience, Transfer,
    Transferred, ValueReader,
};
use crate::config::ExpectedStore;

/// A store that comes when it is open.
pub(crate) struct Opened {
    until_then: NotYet,
    store: OnceLock<Arc<dyn Backend>>,
    /// How far the recovery has come.
    pub(crate) done_bytes: AtomicU64,
    /// Bytes of the whole recovery.
    pub(crate) all_bytes: AtomicU64,
}

impl Opened {
    /// Before the store is there. The server has run since `started_unix_ms`.
    pub(crate) fn expecting(expected: ExpectedStore, started_unix_ms: u64) -> Self {
        Self {
            until_then: NotYet { expected, started_unix_ms },
            store: OnceLock::new(),
            done_bytes: AtomicU64::new(0),
            all_bytes: AtomicU64::new(0),
        }
    }

    /// Whether the store is not there yet.
    pub(crate) fn is_loading(&self) -> bool {
        self.store.get().is_none()
    }

    /// Lets commands reach the store. Only the first store is taken.
    pub(crate) fn set(&self, store: Arc<dyn Backend>) {
        let _ = self.store.set(store);
    }

    /// Notes how far the recovery has come.
    pub(crate) fn progress(&self, done_bytes: u64, all_bytes: u64) {
        self.done_bytes.store(done_bytes, Relaxed);
        self.all_bytes.store(all_bytes, Relaxed);
    }
}

impl Deref for Opened {
    type Target = dyn Backend;

    fn deref(&self) -> &Self::Target {
        match self.store.get() {
            Some(store) => &**store,
            None => &self.until_then,
        }
    }
}

/// A store that holds nothing and takes nothing.
struct NotYet {
    expected: ExpectedStore,
    started_unix_ms: u64,
}

fn refused<T>() -> Result<T, BackendError> {
    Err(BackendError::Refused("the store is not open yet".into()))
}

impl Backend for NotYet {
    fn get_into(&self, _: &[u8], _: usize, value: &mut Vec<u8>) -> Result<Option<Meta>, BackendError> {
        value.clear();
        refused()
    }

    fn open_value(&self, _: &[u8]) -> Result<Option<Box<dyn ValueReader>>, BackendError> {
        refused()
    }

    fn meta(&self, _: &[u8]) -> Result<Option<Meta>, BackendError> {
        refused()
    }

    fn is_settled(&self) -> bool {
        false
    }

    fn put(&self, _: &[u8], _: &[u8], _: Option<u64>) -> Result<(), BackendError> {
        refused()
    }

    fn set_expiry(&self, _: &[u8], _: Option<u64>) -> Result<bool, BackendError> {
        refused()
    }

    fn delete(&self, _: &[u8]) -> Result<bool, BackendError> {
        refused()
    }

    fn update(&self, _: &[u8], _: &mut Change<'_>) -> Result<(), BackendError> {
        refused()
    }

    fn transfer(
        &self,
        _: &[u8],
        _: &[u8],
        _: Transfer,
        _: &mut Grant<'_>,
    ) -> Result<Transferred, BackendError> {
        refused()
    }

    fn write(&self, _: &[Operation<'_>]) -> Result<bool, BackendError> {
        refused()
    }

    fn keys_from(
        &self,
        _: &[u8],
        _: usize,
        _: Patience,
        _: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Vec<u8>>, BackendError> {
        refused()
    }

    fn records(
        &self,
        _: Bound<&[u8]>,
        _: Bound<&[u8]>,
        _: Patience,
        _: &mut EachRecord<'_>,
    ) -> Result<Option<Vec<u8>>, BackendError> {
        refused()
    }

    fn random_key(&self, _: Patience) -> Result<Option<Vec<u8>>, BackendError> {
        refused()
    }

    fn count(&self) -> Result<u64, BackendError> {
        refused()
    }

    fn clear(&self) -> Result<(), BackendError> {
        refused()
    }

    /// As Redis, which takes its start for a save until there is one.
    fn last_save_ms(&self) -> Option<u64> {
        self.expected.durability.as_ref().map(|_| self.started_unix_ms)
    }

    fn persistence(&self) -> Vec<(&'static str, String)> {
        self.expected.durability.iter().map(|durability| ("durability", durability.clone())).collect()
    }

    fn evicts(&self) -> bool {
        self.expected.evicts
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse::default()
    }

    fn codec(&self) -> String {
        "none yet".into()
    }

    fn counters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
