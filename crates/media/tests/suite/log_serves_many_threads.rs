//! Many threads append, write and sync at once, while another thread drops old records: no record is lost, doubled or
//! out of order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use ziptier_media::disk::{Caching, DirLock, Disk, DiskError, DiskFile, OpenDir, RealDisk};
use ziptier_media::log::{Keeper, Log, LogOptions};
use ziptier_media::testing::RecordingDisk;

#[test]
fn threads_lose_nothing_beside_a_keeper_that_syncs() {
    append_by_many_threads(Some(Duration::from_millis(5)));
}

#[test]
fn threads_lose_nothing_without_one() {
    append_by_many_threads(None);
}

/// A disk whose first sync of a file's data, once it is asked for, lasts until the test lets it end.
struct HeldSync {
    disk: RecordingDisk,
    hold: Arc<Hold>,
}

#[derive(Default)]
struct Hold {
    next: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

struct HeldFile {
    file: Arc<dyn DiskFile>,
    hold: Arc<Hold>,
}

impl DiskFile for HeldFile {
    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.file.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError> {
        self.file.write_at(offset, bytes)
    }

    fn preallocate(&self, len: u64) -> Result<(), DiskError> {
        self.file.preallocate(len)
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        let next = self.hold.next.lock().unwrap().take();
        if let Some((begun, end)) = next {
            begun.send(()).unwrap();
            end.recv().unwrap();
        }
        self.file.sync_data()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Disk for HeldSync {
    fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.disk.create_dir(dir)
    }

    fn create(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        Ok(Arc::new(HeldFile { file: self.disk.create(path, caching)?, hold: self.hold.clone() }))
    }

    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        Ok(Arc::new(HeldFile { file: self.disk.open(path, caching)?, hold: self.hold.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        self.disk.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.disk.sync_dir(dir)
    }

    fn open_dir(&self, dir: &Path) -> Result<Box<dyn OpenDir>, DiskError> {
        self.disk.open_dir(dir)
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, DiskError> {
        self.disk.lock_dir(dir)
    }
}

/// Seven records that come while the sync of an eighth lasts share the next one.
#[test]
fn threads_share_a_sync() {
    let hold = Arc::new(Hold::default());
    let disk = HeldSync { disk: RecordingDisk::new(), hold: hold.clone() };
    let log =
        Log::open(Arc::new(disk), Path::new("/log"), LogOptions::default()).unwrap().into_log().unwrap();
    let before = log.stats().syncs;
    let ((begun, has_begun), (end, ended)) = (channel(), channel());
    *hold.next.lock().unwrap() = Some((begun, ended));
    std::thread::scope(|scope| {
        let first = log.append(&[b"first"]).unwrap();
        scope.spawn({
            let log = &log;
            move || log.sync(first).unwrap()
        });
        has_begun.recv().unwrap();
        let others: Vec<_> = (0..7).map(|_| log.append(&[b"other"]).unwrap()).collect();
        for lsn in others {
            let log = &log;
            scope.spawn(move || log.sync(lsn).unwrap());
        }
        end.send(()).unwrap();
    });
    assert_eq!((log.durable_lsn(), log.stats().syncs - before), (8, 2));
}

/// Eight threads append 1,200 records, of which 300 wait to be durable, beside a keeper.
fn append_by_many_threads(sync_every: Option<Duration>) {
    let folder = tempfile::tempdir().unwrap();
    let options = LogOptions { segment_bytes: 32 << 10, buffer_bytes: 8 << 10, ..LogOptions::default() };
    let open = || Log::open(Arc::new(RealDisk), folder.path(), options).unwrap();
    let log = Arc::new(open().into_log().unwrap());
    let keeper = Keeper::start(log.clone(), sync_every).unwrap();
    let appended = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (log, appended) = (&log, &appended);
            scope.spawn(move || {
                for i in 0..150u64 {
                    let payload =
                        [thread.to_le_bytes(), i.to_le_bytes()].concat().repeat(1 + (i % 20) as usize);
                    log.wait_for_room().unwrap();
                    let lsn = log.append(&[&payload]).unwrap();
                    assert!(appended.lock().unwrap().insert(lsn, payload).is_none());
                    match (thread + i) % 4 {
                        0 => log.sync(lsn).unwrap(),
                        1 => log.write(lsn).unwrap(),
                        _ => {}
                    }
                    if thread == 0 && i % 50 == 49 {
                        log.drop_before(lsn / 2).unwrap();
                    }
                }
            });
        }
    });
    drop(keeper);
    // The first thread may have ended before there was a segment to drop.
    log.drop_before(log.stats().last_lsn / 2).unwrap();
    log.seal().unwrap();
    let stats = log.stats();
    assert_eq!((stats.records, stats.last_lsn, stats.durable_lsn), (1200, 1200, 1200));
    drop(log);

    let appended = appended.into_inner().unwrap();
    let mut replay = open();
    let mut lsn = replay.first_lsn();
    assert!(lsn > 1);
    while let Some(record) = replay.next_record().unwrap() {
        assert_eq!(record.lsn, lsn);
        assert_eq!(record.payload, appended[&lsn]);
        lsn += 1;
    }
    assert_eq!(lsn, 1201);
    assert!(replay.is_sealed() && replay.torn_tail().is_none());
    let (done, total) = replay.progress();
    assert_eq!(done, total);
}

#[test]
fn replay_begins_where_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let options = LogOptions { segment_bytes: 8 << 10, first_lsn: 100, ..LogOptions::default() };
    let open = || Log::open(Arc::new(RealDisk), folder.path(), options).unwrap();
    let log = open().into_log().unwrap();
    for lsn in 100..200u64 {
        assert_eq!(log.append(&[&lsn.to_le_bytes(), &[7; 200]]), Ok(lsn));
    }
    log.sync(199).unwrap();
    drop(log);
    for start in [0, 100, 137, 199, 200] {
        let mut replay = open();
        match replay.start_at(start) {
            Ok(()) => {}
            Err(error) => {
                assert!(start < 100 && error.to_string().contains("begins at record 100"));
                continue;
            }
        }
        for lsn in start..200 {
            let record = replay.next_record().unwrap().unwrap();
            assert_eq!((record.lsn, &record.payload[..8]), (lsn, &lsn.to_le_bytes()[..]));
        }
        assert_eq!(replay.next_record(), Ok(None));
        // The same again in a log that ends right there.
        drop(replay);
    }
    assert!(open().into_log().is_err_and(|error| error.to_string().contains("not replayed")));
}

/// A long record is appended under locks that other threads wait for. The buffer may never be empty while other threads
/// append.
#[test]
fn a_record_above_the_bound_waits_for_nothing() {
    let options = LogOptions { segment_bytes: 1 << 20, buffer_bytes: 4 << 10, ..LogOptions::default() };
    let disk = Arc::new(RecordingDisk::new());
    let log = Log::open(disk, Path::new("/log"), options).unwrap().into_log().unwrap();
    let written_bytes = log.stats().written_bytes;
    log.append(&[b"short"]).unwrap();
    log.append(&[&[7; 16 << 10]]).unwrap();
    assert_eq!(log.stats().written_bytes, written_bytes, "nobody had to write");
    // Now the bound is exceeded, and the next record waits.
    log.append(&[b"short"]).unwrap();
    assert!(log.stats().written_bytes > written_bytes + (16 << 10));
    log.seal().unwrap();
}
