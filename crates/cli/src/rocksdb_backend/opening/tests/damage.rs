//! Damage in RocksDB's log, and records that a kill left incomplete.

use std::fs;

use super::*;

/// The folder as a kill leaves it behind three writes. `damage` gets the bytes of the log.
fn killed(damage: impl FnOnce(&mut Vec<u8>)) -> Option<(tempfile::TempDir, Options)> {
    let (folder, backend) = opened(Durability::Always)?;
    for key in [b"first", b"other", b"third"] {
        backend.put(key, &[b'v'; 1_000], None).unwrap();
    }
    let (open, dir) = (backend.database.folder(), folder.path().join("killed"));
    let copy = dir.join(DEFAULT_NAME);
    fs::create_dir_all(&copy).unwrap();
    for entry in fs::read_dir(open).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    let logs = fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path());
    let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let log = logs.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(&log).unwrap();
    assert!(bytes.len() > 3_000, "{} bytes", bytes.len());
    damage(&mut bytes);
    fs::write(&log, bytes).unwrap();
    Some((folder, options(dir, Durability::Always)?))
}

/// RocksDB's usual mode would drop the damaged write and the one behind it, both acknowledged, and say nothing.
#[test]
fn a_damaged_log_is_refused_and_salvaged_up_to_the_damage() {
    let Some((_folder, options)) = killed(|log| {
        let middle = log.len() / 2;
        log[middle] ^= 1;
    }) else {
        return;
    };
    let dir = options.dir.clone();
    let told = RocksDbBackend::open(options).err().unwrap().to_string();
    assert!(told.contains("killed/default is damaged (") && told.contains("--salvage then starts"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    let again = super::options(dir, Durability::Always).unwrap();
    let salvaged = RocksDbBackend::open(Options { salvage: true, ..again }).unwrap();
    assert_eq!(salvaged.count(), Ok(1));
    assert!(salvaged.meta(b"first").unwrap().is_some());
}

/// The write was under way, and nobody has its reply.
#[test]
fn a_record_that_a_kill_left_incomplete_is_dropped() {
    let Some((_folder, options)) = killed(|log| log.truncate(log.len() - 5)) else { return };
    let backend = RocksDbBackend::open(options).unwrap();
    assert_eq!(backend.count(), Ok(2));
    assert_eq!(backend.meta(b"third"), Ok(None));
}
