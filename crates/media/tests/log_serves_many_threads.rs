//! Many threads append, write and sync at once, while another drops what is old: no record is lost, doubled or out of order.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use ziptier_media::disk::RealDisk;
use ziptier_media::log::{Keeper, Log, LogOptions};

#[test]
fn threads_lose_nothing_beside_a_keeper_that_syncs() {
    append_by_many_threads(Some(Duration::from_millis(5)));
}

#[test]
fn threads_share_syncs_and_lose_nothing() {
    let syncs = append_by_many_threads(None);
    assert!(syncs < 400, "{syncs} syncs, though 300 records of 1,200 waited for one");
}

/// The syncs of eight threads that append 1,200 records, of which 300 wait to be durable, and of a keeper.
fn append_by_many_threads(sync_every: Option<Duration>) -> u64 {
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
    stats.syncs
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
