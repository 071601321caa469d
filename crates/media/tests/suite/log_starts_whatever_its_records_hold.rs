//! Records are bytes of clients, and reused segments keep their old bytes. Behind the end of an unsealed log, replay
//! looks for entries that prove damage. Bytes that only look like entries must neither prove damage nor end the search.

use std::path::Path;
use std::sync::Arc;
use ziptier_media::log::{Log, LogError, LogOptions, Lsn};
use ziptier_media::testing::RecordingDisk;

const DIR: &str = "/data/log";
const SEGMENT_BYTES: u64 = 64 << 10;
const OPTIONS: LogOptions =
    LogOptions { segment_bytes: SEGMENT_BYTES, buffer_bytes: 1 << 20, first_lsn: 1, salvage: false };

/// The header of an entry as any client can write it: `length`, unsynced, LSN, and a wrong checksum.
fn forged(length: u32, lsn: Lsn) -> Vec<u8> {
    [&length.to_le_bytes()[..], &1_u32.to_le_bytes(), &lsn.to_le_bytes(), &[7; 4]].concat()
}

/// Everything that a log holds, by LSN.
fn replayed(disk: &RecordingDisk) -> Vec<(Lsn, Vec<u8>)> {
    let mut replay = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS).unwrap();
    let mut records = Vec::new();
    while let Some(record) = replay.next_record().unwrap() {
        records.push((record.lsn, record.payload.to_vec()));
    }
    replay.into_log().unwrap();
    records
}

#[test]
fn segments_full_of_forged_headers_are_used_again_and_the_log_starts() {
    for length in [20_000, 8_000, 0] {
        let disk = RecordingDisk::new();
        let log = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS).unwrap().into_log().unwrap();
        let values = 40;
        // LSNs that come soon. Any client can guess them from the newest LSN.
        let value: Vec<u8> =
            (0..2500).flat_map(|at| forged(length, values + 2 + at % 100)).take(20_000).collect();
        for lsn in 1..=values {
            assert_eq!(log.append(&[&value]), Ok(lsn));
            log.sync(lsn).unwrap();
            log.drop_before(lsn).unwrap();
        }
        log.append(&[b"the last one"]).unwrap();
        log.sync(values + 1).unwrap();
        drop(log);
        let records = replayed(&disk.copy());
        assert_eq!(records.last(), Some(&(values + 1, b"the last one".to_vec())));
    }
}

/// The remains of a write that was torn hold what clients wrote, too.
#[test]
fn a_torn_write_of_forged_headers_is_a_torn_tail() {
    let disk = RecordingDisk::new();
    let log = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS).unwrap().into_log().unwrap();
    log.append(&[b"durable"]).unwrap();
    log.sync(1).unwrap();
    let start = disk.position();
    let value: Vec<u8> = (0..2500).flat_map(|at| forged(20_000, 3 + at % 100)).collect();
    log.append(&[&value]).unwrap();
    log.write(2).unwrap();
    for image in disk.images().sample_from(start, 1, 200) {
        let records = replayed(&image.disk);
        assert_eq!(records[0], (1, b"durable".to_vec()), "{}", image.what);
        assert!(records.len() <= 2);
    }
}

/// If clients could end the search early, replay would take damage for a torn tail and drop acknowledged records.
#[test]
fn forged_headers_do_not_hide_that_a_record_is_damaged() {
    let disk = RecordingDisk::new();
    let log = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS).unwrap().into_log().unwrap();
    let value: Vec<u8> = (0..1000).flat_map(|at| forged(20_000, 1 + at % 100)).collect();
    for record in [&value[..], b"was appended when the first was durable"] {
        let lsn = log.append(&[record]).unwrap();
        log.sync(lsn).unwrap();
    }
    drop(log);
    let path = Path::new(DIR).join("log-0000000000000001");
    let mut bytes = disk.contents(&path).unwrap();
    bytes[4096 + 20_000] ^= 1;
    disk.put(&path, bytes);
    let mut replay = Log::open(Arc::new(disk), Path::new(DIR), OPTIONS).unwrap();
    let found = replay.next_record();
    assert!(matches!(found, Err(LogError::Damaged { .. })), "{found:?}");
}

/// A segment of version 1, which holds LSNs unmasked.
fn former_segment(records: &[&[u8]], rest: &[u8]) -> Vec<u8> {
    let (number, salt) = (1_u64, 99_u64);
    let mut bytes = vec![0; 4096];
    bytes[..8].copy_from_slice(b"ziptrlog");
    bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
    for (at, field) in [(16, SEGMENT_BYTES), (24, number), (32, salt), (40, 1)] {
        bytes[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&bytes[..4092]);
    bytes[4092..].copy_from_slice(&checksum.to_le_bytes());
    for (lsn, record) in (1_u64..).zip(records) {
        let head =
            [&(record.len() as u32).to_le_bytes()[..], &1_u32.to_le_bytes(), &lsn.to_le_bytes()].concat();
        let covered = [*record, &head, &number.to_le_bytes(), &salt.to_le_bytes()].concat();
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&crc32c::crc32c(&covered).to_le_bytes());
        bytes.extend_from_slice(record);
    }
    bytes.extend_from_slice(rest);
    bytes.resize(SEGMENT_BYTES as usize, 0);
    bytes
}

#[test]
fn a_log_of_version_1_starts_whatever_lies_behind_its_end() {
    let forged: Vec<u8> = (0..2000).flat_map(|at| forged(20_000, 4 + at % 100)).collect();
    for rest in [&[][..], &forged] {
        let disk = RecordingDisk::new();
        let path = Path::new(DIR).join("log-0000000000000001");
        disk.put(&path, former_segment(&[b"one", b"two"], rest));
        let records = vec![(1, b"one".to_vec()), (2, b"two".to_vec())];
        assert_eq!(replayed(&disk), records);
        // It goes on in a segment of this version.
        let mut replay = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS).unwrap();
        while replay.next_record().unwrap().is_some() {}
        let log = replay.into_log().unwrap();
        log.append(&[b"three"]).unwrap();
        log.seal().unwrap();
        let records = [records, vec![(3, b"three".to_vec())]].concat();
        assert_eq!(replayed(&disk.copy()), records);
    }
    // Damage that a later record proves is still damage.
    let disk = RecordingDisk::new();
    let mut bytes = former_segment(&[b"one", b"two", b"three"], &[]);
    bytes[4096 + 21] ^= 1;
    disk.put(&Path::new(DIR).join("log-0000000000000001"), bytes);
    let mut replay = Log::open(Arc::new(disk), Path::new(DIR), OPTIONS).unwrap();
    assert!(replay.next_record().is_err());
}
