//! Databases by name: folders beside that of the database which every client begins with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ziptier_server::{BackendError, Chosen, DatabaseName, Databases, ListedDatabase};

use super::RocksDbBackend;
use super::opening::{DEFAULT_NAME, Settings};
use crate::rocksdb_target::Compression;

/// Databases that are open at a time, beside that which every client begins with. Each has files and memtables.
pub(super) const OPEN_MAX: usize = 16;

/// A database that is open, or that a thread opens or closes at the moment.
enum Slot {
    Open(Arc<RocksDbBackend>),
    Changing,
}

/// The databases by name.
pub(super) struct Named {
    settings: Settings,
    slots: Mutex<BTreeMap<String, Slot>>,
}

fn refused<T>(words: String) -> Result<T, BackendError> {
    Err(BackendError::Refused(words))
}

impl Named {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, slots: Mutex::default() }
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `each` with all open databases, and lets none be closed meanwhile.
    pub(super) fn for_each(
        &self,
        mut each: impl FnMut(&RocksDbBackend) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.slots().values().try_for_each(|slot| match slot {
            Slot::Open(database) => each(database),
            Slot::Changing => Ok(()),
        })
    }

    /// Takes the name for a database that is to be opened.
    fn claim(&self, name: &str) -> Result<(), BackendError> {
        let mut slots = self.slots();
        match slots.get(name) {
            _ if name == DEFAULT_NAME => refused(format!("the database {name} is always open")),
            Some(Slot::Open(_)) => refused(format!("the database {name} is open already")),
            Some(Slot::Changing) => refused(format!("the database {name} is being opened or closed")),
            None if slots.len() >= OPEN_MAX => refused(format!(
                "{OPEN_MAX} databases are open, the most there may be; close one by ZT.DB.CLOSE"
            )),
            None => {
                slots.insert(name.to_owned(), Slot::Changing);
                Ok(())
            }
        }
    }
}

/// The compression that options choose; nothing if they name none.
fn compression(options: &[(&[u8], &[u8])]) -> Result<Option<Compression>, BackendError> {
    let mut chosen = None;
    for (option, value) in options {
        let (option, value) = (String::from_utf8_lossy(option), String::from_utf8_lossy(value));
        if !option.eq_ignore_ascii_case("compression") {
            return refused("a database has one option, COMPRESSION".into());
        }
        chosen = Some(Compression::named(&value).map_err(BackendError::Refused)?);
    }
    Ok(chosen)
}

impl Databases for Named {
    fn open(&self, name: DatabaseName<'_>, options: &[(&[u8], &[u8])]) -> Result<(), BackendError> {
        let compression = compression(options)?;
        let name = name.as_str();
        self.claim(name)?;
        let opened = RocksDbBackend::open_named(&self.settings, name, compression.as_ref());
        let mut slots = self.slots();
        match opened {
            Ok(database) => {
                slots.insert(name.to_owned(), Slot::Open(Arc::new(database)));
                Ok(())
            }
            Err(error) => {
                slots.remove(name);
                refused(error.to_string())
            }
        }
    }

    /// The log is synced while nobody else can ask for a sync of all. So replies to former users wait for it as well.
    fn close(&self, name: DatabaseName<'_>) -> Result<(), BackendError> {
        let name = name.as_str();
        let mut slots = self.slots();
        let database = match slots.get(name) {
            _ if name == DEFAULT_NAME => return refused(format!("the database {name} is always open")),
            None => return refused(format!("the database {name} is not open")),
            Some(Slot::Changing) => return refused(format!("the database {name} is being opened or closed")),
            Some(Slot::Open(database)) if Arc::strong_count(database) > 1 => {
                return refused(format!(
                    "the database {name} is in use; clients leave it by ZT.DB.USE or RESET"
                ));
            }
            Some(Slot::Open(database)) => database,
        };
        let synced = database.log.sync();
        let closing = slots.insert(name.to_owned(), Slot::Changing);
        drop(slots);
        // This takes as long as running compactions need to stop.
        drop(closing);
        self.slots().remove(name);
        synced
    }

    fn list(&self) -> Result<Vec<ListedDatabase>, BackendError> {
        let dir = &self.settings.dir;
        let failed = |error| BackendError::Refused(format!("could not read {}: {error}", dir.display()));
        let mut list = BTreeMap::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().into_string().unwrap_or_default();
            // RocksDB's file with the name of the manifest.
            if DatabaseName::new(name.as_bytes()).is_some() && entry.path().join("CURRENT").exists() {
                list.insert(name, false);
            }
        }
        list.insert(DEFAULT_NAME.to_owned(), true);
        for (name, slot) in &*self.slots() {
            list.insert(name.clone(), matches!(slot, Slot::Open(_)));
        }
        Ok(list.into_iter().map(|(name, is_open)| ListedDatabase { name, is_open }).collect())
    }

    fn find(&self, name: DatabaseName<'_>) -> Result<Chosen, BackendError> {
        match self.slots().get(name.as_str()) {
            _ if name.as_str() == DEFAULT_NAME => Ok(None),
            Some(Slot::Open(database)) => Ok(Some(Arc::clone(database) as _)),
            Some(Slot::Changing) | None => {
                refused(format!("the database {} is not open; open it by ZT.DB.OPEN", name.as_str()))
            }
        }
    }
}
