use super::super::LogFile;
use super::*;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// A record of a batch, as RocksDB writes it.
fn record(number: u32, content: &[u8]) -> Vec<u8> {
    let mut checked = vec![5];
    checked.extend(number.to_le_bytes());
    checked.extend(content);
    let check = crc32c::crc32c(&checked).rotate_right(15).wrapping_add(0xa282_ead8);
    [&check.to_le_bytes()[..], &(content.len() as u16).to_le_bytes(), &checked].concat()
}

/// A reader of a file that another process may write.
fn of_another_process(path: &Path) -> LogReader {
    let follower = Follower::new(path).unwrap();
    LogReader {
        file: File::open(path).unwrap(),
        path: path.to_path_buf(),
        end: End::Followed(Mutex::new(follower)),
    }
}

fn read(reader: &LogReader, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4000];
    let found = reader.read(offset, &mut bytes).unwrap();
    bytes.truncate(found);
    bytes
}

#[test]
fn a_log_is_followed_to_its_last_whole_batch_from_before_its_beginning_to_behind_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("000007.log");
    fs::write(&path, []).unwrap();
    let reader = of_another_process(&path);
    assert!(read(&reader, 0).is_empty());
    let log = LogFile::begin(&path).unwrap();
    assert!(read(&reader, 0).is_empty() && reader.bytes().unwrap() == 0);
    let first = record(7, b"first");
    log.append(&first).unwrap();
    assert_eq!(read(&reader, 0), first);
    let second = record(7, &[2; 3000]);
    log.append(&second[..2000]).unwrap();
    // A follower sees whole batches, the writer sees all appended bytes.
    assert_eq!(read(&reader, 0), first);
    assert_eq!(LogReader::open(&path).unwrap().bytes().unwrap(), first.len() as u64 + 2000);
    log.append(&second[2000..]).unwrap();
    assert_eq!(read(&reader, first.len() as u64), second);
    assert_eq!(of_another_process(&path).bytes().unwrap(), (first.len() + second.len()) as u64);
    log.close().unwrap();
    assert_eq!(read(&reader, first.len() as u64), second);
    assert!(read(&reader, (first.len() + second.len()) as u64).is_empty());
}

/// Later readers report a torn record, as RocksDB expects. For followers it is no part of the log.
#[test]
fn a_log_that_nobody_writes_is_all_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("000007.log");
    fs::write(folder.path().join("CURRENT"), []).unwrap();
    let mut torn = record(7, b"whole");
    let whole = torn.len();
    torn.extend(&record(7, &[1; 100])[..50]);
    torn.extend([0; 1000]);
    fs::write(&path, &torn).unwrap();
    let claim = Claim::lay(&path, 7).unwrap();
    let follower = of_another_process(&path);
    assert_eq!((read(&follower, 0), follower.bytes().unwrap()), (torn[..whole].to_vec(), whole as u64));
    drop(claim);
    // A follower continues, also with newly found logs, until a database is locked for its recovery.
    for follower in [follower, of_another_process(&path)] {
        assert_eq!((read(&follower, 0), follower.bytes().unwrap()), (torn[..whole].to_vec(), whole as u64));
    }
    // Not another database, wherever it has its logs.
    let other = tempfile::tempdir().unwrap();
    stop_following(other.path());
    let follower = of_another_process(&path);
    assert_eq!((read(&follower, 0), follower.bytes().unwrap()), (torn[..whole].to_vec(), whole as u64));
    stop_following(folder.path());
    let later = of_another_process(&path);
    assert_eq!((read(&later, 0), later.bytes().unwrap()), (torn.clone(), torn.len() as u64));
}

/// Logs may lie in a folder of their own, whose database is not known: it is followed as long as somebody writes there.
#[test]
fn a_folder_of_logs_alone_is_followed_while_somebody_writes_there() {
    let (folder, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("000007.log");
    let torn = [&record(7, b"whole")[..], &record(7, &[1; 100])[..50]].concat();
    let whole = record(7, b"whole").len() as u64;
    fs::write(&path, &torn).unwrap();
    let claim = Claim::lay(&path, 7).unwrap();
    assert_eq!(of_another_process(&path).bytes().unwrap(), whole);
    stop_following(database.path());
    let id = id_of(&fs::metadata(folder.path()).unwrap());
    assert!(FOLLOWED.lock().as_ref().unwrap().contains_key(&id), "somebody writes there");
    drop(claim);
    stop_following(database.path());
    assert_eq!(of_another_process(&path).bytes().unwrap(), torn.len() as u64);
}

fn is_followed(folder: &Path) -> bool {
    let id = id_of(&fs::metadata(folder).unwrap());
    FOLLOWED.lock().as_ref().is_some_and(|folders| folders.contains_key(&id))
}

/// A process that reads its own logs would otherwise hide a torn record from a later recovery.
#[test]
fn a_process_does_not_follow_its_own_logs() {
    let folder = tempfile::tempdir().unwrap();
    let (former, path) = (folder.path().join("000007.log"), folder.path().join("000009.log"));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for path in [&former, &path] {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    let Some(reader) = LogReader::open(path) else { continue };
                    reader.bytes().unwrap();
                    read(&reader, 0);
                }
            });
        }
        for _ in 0..250 {
            fs::write(&former, []).unwrap();
            let early = of_another_process(&former);
            let log = LogFile::begin(&former).unwrap();
            log.append(&record(7, b"bytes")).unwrap();
            assert_eq!(read(&early, 0), record(7, b"bytes"));
            log.close().unwrap();
            LogFile::reuse(&former, &path).unwrap().close().unwrap();
            if is_followed(folder.path()) {
                break;
            }
        }
        is_done.store(true, Relaxed);
    });
    assert!(!is_followed(folder.path()));
}

#[test]
fn a_file_that_is_used_again_is_the_new_log_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (former, path) = (folder.path().join("000007.log"), folder.path().join("000009.log"));
    fs::write(&former, []).unwrap();
    let log = LogFile::begin(&former).unwrap();
    log.append(&record(7, &[1; 2000])).unwrap();
    let (followed, unread) = (of_another_process(&former), of_another_process(&former));
    assert_eq!(read(&followed, 0), record(7, &[1; 2000]));
    log.close().unwrap();
    assert_eq!(read(&unread, 0), record(7, &[1; 2000]));
    let log = LogFile::reuse(&former, &path).unwrap();
    for reader in [&followed, &unread] {
        assert!(read(reader, 0).is_empty() && read(reader, 2000).is_empty() && reader.bytes().unwrap() == 0);
    }
    let reader = of_another_process(&path);
    assert!(read(&reader, 0).is_empty() && reader.bytes().unwrap() == 0);
    log.append(&record(9, b"new")).unwrap();
    assert_eq!(read(&reader, 0), record(9, b"new"));
}

#[test]
fn what_is_no_log_is_left_to_rocksdb() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy.log");
    fs::write(&path, b"bytes").unwrap();
    assert!(LogReader::open(&path).is_none() && LogReader::open(&folder.path().join("000001.log")).is_none());
}
