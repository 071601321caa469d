//! Memtables of many databases, and their flushes.

use super::*;

/// Where they hold nearly all that memtables may, RocksDB flushes the database that is written to, at each write.
#[test]
fn idle_databases_are_flushed_first() {
    let Some((_folder, backend)) = opened(Durability::No) else { return };
    let databases = backend.databases().unwrap();
    for number in 0..6 {
        let text = format!("database-{number}");
        let name = DatabaseName::new(text.as_bytes()).unwrap();
        databases.open(name, &[]).unwrap();
        let database = databases.find(name).unwrap().unwrap();
        // A third of what one memtable may hold, and a sixth of what all may.
        for key in 0..250_u32 {
            database.put(&key.to_be_bytes(), &[0; 4_000], None).unwrap();
        }
    }
    let mut entries = Vec::new();
    backend.for_each(|database| {
        let property = database.database.property_number(c"rocksdb.num-entries-active-mem-table");
        entries.push(property.unwrap());
    });
    // The last one is whole, though all of them are more than memtables may take.
    assert_eq!((entries.len(), entries.last()), (7, Some(&250)), "{entries:?}");
    assert!(entries.iter().sum::<u64>() <= 750, "{entries:?}");
}

#[test]
fn databases_that_hold_little_are_not_flushed() {
    let Some((_folder, backend)) = opened(Durability::No) else { return };
    let databases = backend.databases().unwrap();
    for number in 0..12 {
        let text = format!("database-{number}");
        let name = DatabaseName::new(text.as_bytes()).unwrap();
        databases.open(name, &[]).unwrap();
        databases.find(name).unwrap().unwrap().put(b"key", &[0; 4_000], None).unwrap();
    }
    backend.put(b"key", b"value", None).unwrap();
    assert!(backend.memory.unflushed_share() < 0.25, "{}", backend.memory.unflushed_share());
}

/// Its memtables stay in memory, and the others have to do with the rest.
#[test]
fn a_database_that_cannot_be_flushed_hinders_no_other() {
    let Some((folder, backend)) = opened(Durability::No) else { return };
    let (databases, name) = (backend.databases().unwrap(), DatabaseName::new(b"other").unwrap());
    databases.open(name, &[]).unwrap();
    let other = databases.find(name).unwrap().unwrap();
    other.put(b"key", b"value", None).unwrap();
    for key in 0..250_u32 {
        backend.put(&key.to_be_bytes(), &[0; 4_000], None).unwrap();
    }
    let dir = folder.path().join("databases");
    std::fs::rename(dir.join(DEFAULT_NAME), dir.join("moved")).unwrap();
    backend.memory.set_bytes(1 << 20);
    other.put(b"more", b"value", None).unwrap();
    assert!(other.meta(b"more").unwrap().is_some());
    assert!(backend.put(b"more", b"value", None).is_err());
}

/// While flushes are slow, memtables of many databases would hold more than RocksDB's memory.
#[test]
fn writes_wait_for_a_flush_while_memtables_are_full() {
    let Some((_folder, backend)) = opened(Durability::No) else { return };
    for key in 0..250_u32 {
        backend.put(&key.to_be_bytes(), &[0; 4_000], None).unwrap();
    }
    assert!(!backend.may_wait_for_room(true));
    backend.memory.set_bytes(1 << 20);
    assert!(backend.may_wait_for_room(true) && backend.may_wait_for_room(false));
    backend.put(b"key", b"value", None).unwrap();
    assert_eq!(backend.database.sst_files(), 1);
    // RocksDB may free a flushed memtable a little later.
    ziptier_testing::until("there is room", || !backend.may_wait_for_room(true));
    assert_eq!(backend.count(), Ok(251));
}
