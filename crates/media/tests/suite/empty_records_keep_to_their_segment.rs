//! A record of no bytes needs room for its header. Without that room the header ran over the end of the segment, and
//! the log did not open again.

use std::path::Path;
use std::sync::Arc;
use ziptier_media::log::{Log, Replay};
use ziptier_media::testing::RecordingDisk;

use crate::scenario::{DIR, OPTIONS};

const RECORDS: u64 = 1000;

/// Records of a log, each of which has the length that `bytes` says.
fn count(replay: &mut Replay, bytes: impl Fn(u64) -> usize) -> u64 {
    let mut count = 0;
    while let Some(record) = replay.next_record().unwrap() {
        count += 1;
        assert_eq!((record.lsn, record.payload.len()), (count, bytes(count)));
    }
    count
}

#[test]
fn empty_records_go_on_in_the_next_segment() {
    // Empty records alone, and behind records that leave any number of bytes.
    for longest in 1..60 {
        let bytes = |lsn: u64| lsn as usize % longest;
        let disk = RecordingDisk::new();
        let open = |disk| Log::open(Arc::new(disk), Path::new(DIR), OPTIONS).unwrap();
        let log = open(disk.clone()).into_log().unwrap();
        for lsn in 1..=RECORDS {
            assert_eq!(log.append(&[&vec![7; bytes(lsn)]]), Ok(lsn));
        }
        log.sync(RECORDS).unwrap();
        // As a kill leaves it, and sealed.
        assert_eq!(count(&mut open(disk.copy()), bytes), RECORDS);
        log.seal().unwrap();
        drop(log);
        let mut replay = open(disk.clone());
        assert_eq!(count(&mut replay, bytes), RECORDS);
        assert!(replay.is_sealed());
        for path in disk.paths() {
            assert!(disk.contents(&path).unwrap().len() as u64 <= OPTIONS.segment_bytes);
        }
    }
}
