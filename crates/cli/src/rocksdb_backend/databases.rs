//! Databases by name: folders beside that of the database which every client begins with.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ziptier_server::{BackendError, Chosen, DatabaseName, Databases, ListedDatabase};

use super::RocksDbBackend;
use super::opening::{DEFAULT_NAME, Error, Settings};
use crate::rocksdb_target::Compression;

/// Databases that are open at a time, beside that which every client begins with. Each has files and memtables.
pub(super) const OPEN_MAX: usize = 16;
/// Folders in which RocksDB has begun a database, open or closed. `ZT.DB.LIST` reads and answers them all.
const FOLDERS_MAX: usize = 1_000;
/// Bytes of a client's own words in an error, as in the server's. No compression has a longer name.
const QUOTED_BYTES_MAX: usize = 128;

/// A database that is open, or that a thread opens or closes at the moment.
enum Slot {
    Open(Arc<RocksDbBackend>),
    Changing,
}

/// The databases by name.
pub(super) struct Named {
    settings: Settings,
    /// Held for moments only: every client's turn may need it.
    slots: Mutex<BTreeMap<String, Slot>>,
    /// The holder makes a database, unless there are too many.
    making: Mutex<()>,
    /// A thread that syncs all logs shares it. A database that closes has it alone until its own log is synced. So no
    /// reply to its former users leaves before that.
    syncing: RwLock<()>,
}

fn refused<T>(words: String) -> Result<T, BackendError> {
    Err(BackendError::Refused(words))
}

impl Named {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, slots: Mutex::default(), making: Mutex::default(), syncing: RwLock::default() }
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `each` with all open databases. Nobody opens or closes one meanwhile.
    pub(super) fn for_each(&self, mut each: impl FnMut(&RocksDbBackend)) {
        for slot in self.slots().values() {
            if let Slot::Open(database) = slot {
                each(database);
            }
        }
    }

    /// All open databases. None of them can be closed as long as somebody has the list.
    fn all_open(&self) -> Vec<Arc<RocksDbBackend>> {
        let is_open = |slot: &Slot| match slot {
            Slot::Open(database) => Some(Arc::clone(database)),
            Slot::Changing => None,
        };
        self.slots().values().filter_map(is_open).collect()
    }

    /// Syncs the logs of all open databases, behind one that fails, too.
    pub(super) fn sync(&self) -> Result<(), BackendError> {
        // The list goes before the lock.
        let _syncing = self.syncing.read().unwrap_or_else(PoisonError::into_inner);
        let mut synced = Ok(());
        for database in self.all_open() {
            synced = synced.and(database.log.sync());
        }
        synced
    }

    /// Flushes the memtables of all open databases.
    pub(super) fn flush(&self) -> Result<(), BackendError> {
        self.all_open().iter().try_for_each(|database| database.database.flush().map_err(super::refused))
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

    /// Opens a database whose name is claimed, or makes it.
    fn open_claimed(&self, name: &str, compression: Option<&Compression>) -> Result<RocksDbBackend, Error> {
        let dir = &self.settings.dir;
        let open = || RocksDbBackend::open_named(&self.settings, name, compression);
        if is_begun(&dir.join(name)) {
            return open();
        }
        // A new database counts from RocksDB's first file on.
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        check_number(FOLDERS_MAX, dir)?;
        open()
    }
}

/// The names in `dir` that databases may have.
fn names_in(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        if DatabaseName::new(name.as_bytes()).is_some() {
            names.push(name);
        }
    }
    Ok(names)
}

/// Whether RocksDB has begun a database in `folder`. An open that ends before that, or a crash, leaves an empty folder.
pub(super) fn is_begun(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Refuses one more database in `dir`, in which there may be so many.
fn check_number(folders_max: usize, dir: &Path) -> Result<(), Error> {
    if names_in(dir)?.iter().filter(|name| is_begun(&dir.join(name))).count() < folders_max {
        return Ok(());
    }
    let dir = dir.display();
    Err(format!(
        "{dir} has {folders_max} databases, the most there may be; delete folders of closed ones that nobody needs"
    )
    .into())
}

/// The compression that options choose; nothing if they name none.
fn compression(options: &[(&[u8], &[u8])]) -> Result<Option<Compression>, BackendError> {
    let mut chosen = None;
    for (option, value) in options {
        if !option.eq_ignore_ascii_case(b"compression") {
            return refused("a database has one option, COMPRESSION".into());
        }
        let name = String::from_utf8_lossy(&value[..value.len().min(QUOTED_BYTES_MAX)]);
        chosen = Some(Compression::named(&name).map_err(BackendError::Refused)?);
    }
    Ok(chosen)
}

impl Databases for Named {
    fn open(&self, name: DatabaseName<'_>, options: &[(&[u8], &[u8])]) -> Result<(), BackendError> {
        let compression = compression(options)?;
        let name = name.as_str();
        self.claim(name)?;
        let opened = self.open_claimed(name, compression.as_ref());
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

    /// The log is synced while nobody else syncs all logs. So replies to former users wait for it as well. A database
    /// whose log fails stays open, so that they learn of that.
    fn close(&self, name: DatabaseName<'_>) -> Result<(), BackendError> {
        let name = name.as_str();
        let syncing = self.syncing.write().unwrap_or_else(PoisonError::into_inner);
        let mut slots = self.slots();
        match slots.get(name) {
            _ if name == DEFAULT_NAME => return refused(format!("the database {name} is always open")),
            None => return refused(format!("the database {name} is not open")),
            Some(Slot::Changing) => return refused(format!("the database {name} is being opened or closed")),
            Some(Slot::Open(database)) if Arc::strong_count(database) > 1 || database.memtable.is_read() => {
                return refused(format!(
                    "the database {name} is in use, or is being saved; clients leave it by ZT.DB.USE or RESET"
                ));
            }
            Some(Slot::Open(_)) => {}
        }
        let Some(Slot::Open(database)) = slots.insert(name.to_owned(), Slot::Changing) else { return Ok(()) };
        drop(slots);
        if let Err(failure) = database.log.sync() {
            self.slots().insert(name.to_owned(), Slot::Open(database));
            return Err(failure);
        }
        drop(syncing);
        // This takes as long as running compactions need to stop.
        drop(database);
        self.slots().remove(name);
        Ok(())
    }

    fn list(&self) -> Result<Vec<ListedDatabase>, BackendError> {
        let dir = &self.settings.dir;
        let failed = |error| BackendError::Refused(format!("could not read {}: {error}", dir.display()));
        let mut list = BTreeMap::new();
        for name in names_in(dir).map_err(failed)? {
            // RocksDB's file with the name of the manifest.
            if dir.join(&name).join("CURRENT").exists() {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// A name of 512 MiB that is no text would be copied four times, each time with three bytes for one.
    #[test]
    fn an_error_shows_the_beginning_of_a_long_name() {
        let long = vec![0xff; 1 << 20];
        let told = compression(&[(&b"Compression"[..], &long[..])]).err().unwrap().to_string();
        assert!(told.starts_with("there is no compression \u{fffd}") && told.len() < 4_000, "{told}");
        assert!(compression(&[(&b"Compression"[..], &b"builtin-zstd"[..])]).unwrap().is_some());
    }

    /// A client that makes databases for ever would fill the disk's table of files, and each list would be longer.
    #[test]
    fn there_are_only_so_many_databases() {
        let dir = tempfile::tempdir().unwrap();
        let begin = |name: &str| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("LOG"), "").unwrap();
        };
        ["default", "one", "other"].into_iter().for_each(begin);
        let told = check_number(3, dir.path()).unwrap_err().to_string();
        assert!(told.contains("has 3 databases, the most there may be"), "{told}");
        std::fs::remove_dir_all(dir.path().join("one")).unwrap();
        check_number(3, dir.path()).unwrap();
        // None of these is a database.
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        std::fs::write(dir.path().join("file"), "text").unwrap();
        begin("no.name");
        check_number(3, dir.path()).unwrap();
    }
}
