//! All keys at once are removed.

use super::*;

/// A walk would pass them all, on a thread that other clients wait for.
#[test]
fn removed_keys_leave_the_memtable() {
    let Some((_folder, backend)) = opened(Durability::No) else { return };
    for number in 0..1_000 {
        backend.put(format!("key:{number}").as_bytes(), b"value", None).unwrap();
    }
    let entries = || backend.database.property_number(c"rocksdb.num-entries-active-mem-table");
    assert_eq!(entries(), Some(1_000));
    backend.clear().unwrap();
    assert_eq!(entries(), Some(0));
    assert_eq!(backend.keys_from(b"", 10, Patience::Brief, &mut |_| {}), Ok(None));
}

/// A full disk takes no new files, and the log that is open still has room.
#[test]
fn keys_that_are_gone_are_no_failure_where_no_file_can_be_made() {
    let Some((folder, backend)) = opened(Durability::No) else { return };
    backend.put(b"key", b"value", None).unwrap();
    let dir = folder.path().join("databases");
    std::fs::rename(dir.join(DEFAULT_NAME), dir.join("moved")).unwrap();
    backend.clear().unwrap();
    assert_eq!(backend.meta(b"key"), Ok(None));
    assert!(backend.database.flush().is_err());
}

/// The next start would bring keys back that a client takes for gone.
#[test]
fn a_log_that_fails_while_keys_are_removed_is_told() {
    let Some((_folder, backend)) = opened(Durability::No) else { return };
    backend.put(b"key", b"value", None).unwrap();
    let last = backend.locks.hold_last();
    let free = (0..u32::MAX).map(u32::to_be_bytes).find(|key| !backend.locks.is_held(key)).unwrap();
    let told = std::thread::scope(|scope| {
        let clearing = scope.spawn(|| backend.clear());
        // The log was whole when the command began.
        ziptier_testing::until("all other locks are taken", || backend.locks.is_held(&free));
        backend.log.fail();
        drop(last);
        clearing.join().unwrap()
    });
    assert!(told.unwrap_err().to_string().contains("RocksDB's log has failed (made by a test)"));
    assert_eq!(backend.meta(b"key"), Ok(None));
}
