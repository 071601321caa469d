//! Every flipped bit of a sealed log is damage and named as such. A salvage returns the whole records and lists the
//! rest.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ziptier_media::disk::Disk;
use ziptier_media::log::{Log, LogError, LogOptions, Lsn, Replay};
use ziptier_media::testing::{FailingDisk, RecordingDisk};

use crate::scenario::{DIR, OPTIONS, check, payload};

const RECORDS: u64 = 60;

/// A log of six records of 120 bytes, four of which later ones knew to be durable.
fn unsealed() -> RecordingDisk {
    let disk = RecordingDisk::new();
    let log = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS).unwrap().into_log().unwrap();
    for lsn in 1..=4 {
        log.append(&[&[lsn as u8; 100]]).unwrap();
        log.sync(lsn).unwrap();
    }
    for lsn in 5..=6 {
        log.append(&[&[lsn as u8; 100]]).unwrap();
        log.write(lsn).unwrap();
    }
    disk
}

/// A sealed log of several segments.
fn sealed() -> RecordingDisk {
    let disk = RecordingDisk::new();
    let log = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS).unwrap().into_log().unwrap();
    for lsn in 1..=RECORDS {
        log.append(&[&payload(lsn)]).unwrap();
        if lsn % 5 == 0 {
            log.sync(lsn).unwrap();
        }
    }
    log.seal().unwrap();
    assert_eq!(log.append(&[b"late"]), Err(LogError::Sealed));
    disk
}

#[test]
fn every_flipped_bit_of_a_sealed_log_is_named() {
    let disk = sealed();
    let mut bytes = 0;
    for path in disk.paths().iter().filter(|path| path.to_string_lossy().contains("log-")) {
        let whole = disk.contents(path).unwrap();
        for at in 0..whole.len() {
            // A header has many zeros; the format's own test flips each of its bytes.
            if at < 4000 && at % 50 > 0 && at > 64 {
                continue;
            }
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            disk.put(path, flipped);
            match check(Arc::new(disk.clone()), OPTIONS) {
                Err(LogError::Damaged { path: named, offset, .. }) => {
                    assert_eq!(named, *path, "byte {at}");
                    assert!(offset <= at as u64);
                }
                other => panic!("byte {at} of {}: {:?}", path.display(), other.map(|_| ())),
            }
            bytes += 1;
        }
        disk.put(path, whole);
    }
    assert!(bytes > 15_000, "{bytes} bytes");
    assert!(check(Arc::new(disk), OPTIONS).unwrap().0.is_sealed());
}

#[test]
fn a_missing_short_or_long_file_is_named() {
    let disk = sealed();
    let paths: Vec<_> =
        disk.paths().into_iter().filter(|path| path.to_string_lossy().contains("log-")).collect();
    assert!(paths.len() > 2);
    for (i, path) in paths.iter().enumerate() {
        let whole = disk.contents(path).unwrap();
        for changed in
            [whole[..whole.len() - 1].to_vec(), whole[..4096].to_vec(), [&whole[..], &[0]].concat()]
        {
            disk.put(path, changed);
            assert!(matches!(check(Arc::new(disk.clone()), OPTIONS), Err(LogError::Damaged { .. })));
        }
        disk.put(path, whole);
        let without = disk.copy();
        ziptier_media::disk::Disk::remove(&without, path).unwrap();
        let found = check(Arc::new(without), OPTIONS);
        if i > 0 {
            assert!(matches!(found, Err(LogError::Damaged { .. })), "{}", path.display());
        } else {
            // As after a checkpoint; the caller knows which records it needs.
            assert!(found.unwrap().1 > 1);
        }
    }
    let mut replay = Log::open(Arc::new(disk), Path::new(DIR), OPTIONS).unwrap();
    replay.start_at(RECORDS + 5).unwrap();
    let error = replay.next_record().map(drop).unwrap_err();
    assert!(error.to_string().contains("ends before record"), "{error}");
}

#[test]
fn another_version_is_refused_by_name() {
    let disk = sealed();
    let path = disk.paths()[0].clone();
    let mut bytes = disk.contents(&path).unwrap();
    bytes[8] = 3;
    let crc = crc32c::crc32c(&bytes[..4092]);
    bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
    disk.put(&path, bytes);
    for salvage in [false, true] {
        let options = LogOptions { salvage, ..OPTIONS };
        let error = check(Arc::new(disk.clone()), options).err().unwrap();
        assert!(
            error.to_string().ends_with("it has version 3, this program reads versions 1 to 2"),
            "{error}"
        );
    }
}

#[test]
fn a_salvage_returns_what_is_whole_and_lists_the_rest() {
    let disk = sealed();
    let salvage = LogOptions { salvage: true, ..OPTIONS };
    let paths: Vec<_> =
        disk.paths().into_iter().filter(|path| path.to_string_lossy().contains("log-")).collect();
    let second = disk.contents(&paths[1]).unwrap();
    // A byte of a record, of a header, of a seal; and a whole file.
    for (path, at) in
        [(&paths[1], 4096 + 700), (&paths[1], 20), (paths.last().unwrap(), usize::MAX), (&paths[1], 0)]
    {
        let damaged = disk.copy();
        let mut bytes = disk.contents(path).unwrap();
        let at = at.min(bytes.len() - 1);
        bytes[at] ^= 1;
        damaged.put(path, bytes);
        let mut replay = Log::open(Arc::new(damaged.clone()), Path::new(DIR), salvage).unwrap();
        let mut lsns = Vec::new();
        while let Some(record) = replay.next_record().unwrap() {
            assert_eq!(record.payload, payload(record.lsn));
            lsns.push(record.lsn);
        }
        assert!(lsns.is_sorted());
        let missing = RECORDS - lsns.len() as u64;
        let skipped = &replay.skipped()[0];
        assert_eq!(&skipped.path, path);
        match at {
            4796 => assert_eq!((missing, skipped.next_lsn - skipped.first_lsn), (1, 1)),
            // The file that cannot be read, and the records that it had.
            20 | 0 => {
                let gap = &replay.skipped()[1];
                assert_eq!(missing, gap.next_lsn - gap.first_lsn);
                assert!(missing > 5 && replay.skipped().len() == 2);
            }
            _ => assert_eq!(missing, 0),
        }
        // The log goes on, and is whole again once the damaged part is dropped.
        let log = replay.into_log().unwrap();
        assert_eq!(log.append(&[&payload(RECORDS + 1)]), Ok(RECORDS + 1));
        log.drop_before(RECORDS + 1).unwrap();
        log.seal().unwrap();
        let (replay, first) = check(Arc::new(damaged), OPTIONS).unwrap();
        assert_eq!((first, replay.next_lsn()), (RECORDS + 1, RECORDS + 2));
    }
    assert_eq!(disk.contents(&paths[1]).unwrap(), second);
}

#[test]
fn damage_in_an_unsealed_log_is_told_from_a_torn_tail() {
    let disk = unsealed();
    let path = disk.paths().into_iter().find(|path| path.to_string_lossy().contains("log-")).unwrap();
    let whole = disk.contents(&path).unwrap();
    for record in 1..=6_u64 {
        let offset = 4096 + (record - 1) * 120;
        let mut bytes = whole.clone();
        bytes[offset as usize + 50] ^= 1;
        disk.put(&path, bytes);
        let mut replay = Log::open(Arc::new(disk.copy()), Path::new(DIR), OPTIONS).unwrap();
        let end = loop {
            match replay.next_record() {
                Ok(Some(_)) => {}
                other => break other.map(drop),
            }
        };
        // Record 5 was appended when 4 was durable, so a damaged 4 is damage; a damaged 5 or 6 may never have been
        // synced.
        if record <= 4 {
            assert!(
                matches!(end, Err(LogError::Damaged { offset: o, .. }) if o == offset),
                "record {record}"
            );
        } else {
            let tail = replay.torn_tail().unwrap();
            assert_eq!((tail.offset, tail.bytes), (offset, (7 - record) * 120));
            assert_eq!(replay.next_lsn(), record);
        }
    }
}

#[test]
fn what_the_caller_knows_to_be_durable_is_no_torn_tail() {
    let disk = unsealed();
    let path = disk.paths().into_iter().find(|path| path.to_string_lossy().contains("log-")).unwrap();
    let whole = disk.contents(&path).unwrap();
    for (record, durable_lsn) in [(5, 5), (5, 6), (6, 6), (7, 7), (7, 9)] {
        let offset = 4096 + (record - 1) * 120;
        let mut bytes = whole.clone();
        bytes[offset as usize + 50] ^= 1;
        disk.put(&path, bytes);
        let open = |salvage| {
            let options = LogOptions { salvage, ..OPTIONS };
            let mut replay = Log::open(Arc::new(disk.copy()), Path::new(DIR), options).unwrap();
            replay.expect_durable(durable_lsn);
            replay
        };
        let mut replay = open(false);
        let error = std::iter::from_fn(|| replay.next_record().map(|record| record.map(drop)).transpose())
            .find_map(Result::err);
        assert!(
            matches!(
                &error,
                Some(LogError::Damaged { path: named, offset: at, .. }) if (named, *at) == (&path, offset)
            ),
            "record {record}: {error:?}"
        );
        let mut replay = open(true);
        let mut lsns = Vec::new();
        while let Some(record) = replay.next_record().unwrap() {
            lsns.push(record.lsn);
        }
        assert_eq!(lsns, (1..=6).filter(|lsn| *lsn != record).collect::<Vec<_>>());
        assert_eq!((replay.skipped().len(), replay.torn_tail()), (1, None));
        // No number is given out twice.
        assert_eq!(replay.into_log().unwrap().last_lsn(), durable_lsn.max(6));
    }
}

/// The disk with bytes of one file that cannot be read.
fn with_bad_bytes(disk: &RecordingDisk, path: &Path, bad: Range<u64>) -> Arc<FailingDisk> {
    let path = path.to_path_buf();
    Arc::new(FailingDisk::with_bad_bytes(Arc::new(disk.clone()), move |other| other == path, bad))
}

fn log_files(disk: &RecordingDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.to_string_lossy().contains("log-")).collect()
}

/// The findings of a salvage. It checks that each record is as it was appended.
fn salvage(disk: Arc<FailingDisk>) -> (Replay, Vec<Lsn>) {
    let options = LogOptions { salvage: true, ..OPTIONS };
    let mut replay = Log::open(disk, Path::new(DIR), options).unwrap();
    let mut lsns = Vec::new();
    while let Some(record) = replay.next_record().unwrap() {
        assert_eq!(record.payload, payload(record.lsn));
        lsns.push(record.lsn);
    }
    assert!(lsns.is_sorted());
    (replay, lsns)
}

#[test]
fn what_cannot_be_read_is_damage_of_its_page_alone() {
    let disk = sealed();
    let mut seen = 0;
    for path in log_files(&disk) {
        let bytes = disk.contents(&path).unwrap().len() as u64;
        for page in (0..bytes).step_by(4096) {
            let failing = with_bad_bytes(&disk.copy(), &path, page..page + 512);
            match check(failing.clone(), OPTIONS) {
                Err(LogError::Damaged { path: named, offset, reason }) => {
                    assert!(named == path && offset <= page, "{offset} of {}", named.display());
                    assert!(reason.contains("cannot be read"), "{reason}");
                }
                other => panic!("page {page} of {}: {:?}", path.display(), other.map(|_| ())),
            }
            let (replay, lsns) = salvage(failing);
            let skipped = &replay.skipped()[0];
            assert!(skipped.path == path && skipped.reason.contains("cannot be read"), "{skipped:?}");
            // Without its header no record of a file can be verified.
            let lost: Vec<Lsn> = (1..=RECORDS).filter(|lsn| !lsns.contains(lsn)).collect();
            let lost_bytes: usize = lost.iter().map(|lsn| payload(*lsn).len()).sum();
            assert!(page == 0 || lost_bytes < 4096 + 2 * 1000 || lost.contains(&40), "{lost:?}");
            assert!(lost.is_empty() || lost[lost.len() - 1] - lost[0] < lost.len() as u64);
            // The log goes on.
            assert!(replay.into_log().is_ok());
            seen += lost.len();
        }
    }
    assert!(seen > RECORDS as usize, "{seen}");
}

/// A start writes the last records again, and must pass the page that cannot be read.
#[test]
fn a_bad_page_among_the_last_records_keeps_no_salvage_from_starting() {
    let disk = RecordingDisk::new();
    let options = LogOptions { segment_bytes: 64 << 10, ..OPTIONS };
    let log = Log::open(Arc::new(disk.clone()), Path::new(DIR), options).unwrap().into_log().unwrap();
    (1..=39).for_each(|lsn| assert_eq!(log.append(&[&payload(lsn)]), Ok(lsn)));
    log.sync(39).unwrap();
    let disk = disk.copy();
    let path = log_files(&disk).remove(0);
    for page in [4096, 8192] {
        let failing = with_bad_bytes(&disk.copy(), &path, page..page + 512);
        let salvage = LogOptions { salvage: true, ..options };
        let mut replay = Log::open(failing, Path::new(DIR), salvage).unwrap();
        let mut found = 0;
        while let Some(record) = replay.next_record().unwrap() {
            assert_eq!(record.payload, payload(record.lsn));
            found += 1;
        }
        assert!((20..39).contains(&found), "{found} records");
        let log = replay.into_log().unwrap();
        assert_eq!(log.append(&[b"more"]), Ok(40));
    }
}

#[test]
fn nothing_is_cut_off_where_the_end_of_a_log_cannot_be_read() {
    let disk = RecordingDisk::new();
    let log = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS).unwrap().into_log().unwrap();
    for lsn in 1..=6 {
        log.append(&[&payload(lsn)]).unwrap();
    }
    log.sync(6).unwrap();
    let disk = disk.copy();
    let path = log_files(&disk).remove(0);
    let whole = disk.contents(&path).unwrap();
    let bad = with_bad_bytes(&disk, &path, 4096..u64::MAX);
    assert!(matches!(check(bad.clone(), OPTIONS), Err(LogError::Damaged { offset: 4096, .. })));
    let (replay, lsns) = salvage(bad);
    assert!(lsns.is_empty() && replay.torn_tail().is_none());
    drop(replay.into_log().unwrap());
    assert!(disk.contents(&path).unwrap() == whole);
}

/// The process of a salvage ended before it appended a record.
#[test]
fn no_start_after_a_salvage_cuts_off_an_end_that_could_not_be_read() {
    let disk = RecordingDisk::new();
    let log = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS).unwrap().into_log().unwrap();
    (1..=6).for_each(|lsn| assert_eq!(log.append(&[&payload(lsn)]), Ok(lsn)));
    log.sync(6).unwrap();
    let disk = disk.copy();
    let path = log_files(&disk).remove(0);
    let whole = disk.contents(&path).unwrap();
    let bad = with_bad_bytes(&disk, &path, 4096..u64::MAX);
    drop(salvage(bad.clone()).0.into_log().unwrap());
    assert_eq!(log_files(&disk).len(), 2);
    // The bytes are still bad, or can be read again.
    let disks: [Arc<dyn Disk>; 2] = [bad.clone(), Arc::new(disk.clone())];
    for disk in disks {
        let refused = check(disk, OPTIONS).map(|_| ());
        assert!(
            matches!(&refused, Err(LogError::Damaged { path: named, .. }) if *named == path),
            "{refused:?}"
        );
    }
    drop(salvage(bad).0.into_log().unwrap());
    assert!(disk.contents(&path).unwrap() == whole);
}

#[test]
fn a_segment_that_cannot_be_read_is_set_aside_until_a_start_without_salvage() {
    let sealed = sealed();
    for (at, path) in log_files(&sealed).iter().enumerate().take(2) {
        for page in [0, 4096] {
            let disk = sealed.copy();
            let (replay, _) = salvage(with_bad_bytes(&disk, path, page..page + 512));
            let log = replay.into_log().unwrap();
            log.append(&[b"behind"]).unwrap();
            log.drop_before(log.last_lsn()).unwrap();
            log.seal().unwrap();
            let number = path.file_name().unwrap().to_string_lossy().replace("log-", "unread-");
            let aside = path.with_file_name(number);
            assert!(disk.contents(&aside) == sealed.contents(path), "{at}: {:?}", disk.paths());
            assert!(disk.contents(path).is_none());
            let mut replay = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS).unwrap();
            while replay.next_record().unwrap().is_some() {}
            drop(replay.into_log().unwrap());
            assert!(disk.contents(&aside).is_none());
        }
    }
}
