//! A disk fails at some operation. The log returns the failure, refuses further work, and keeps its earlier promises.
//! The same checks must catch a disk that lies about syncs, or they would prove nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use ziptier_media::disk::{Disk, DiskError};
use ziptier_media::log::{Keeper, Log, LogError, LogOptions};
use ziptier_media::testing::{FailingDisk, Fault, PausingDisk, RecordingDisk};
use ziptier_testing::count;

use crate::scenario;
use crate::scenario::{DIR, OPTIONS, Promise, at, check, payload, recover};

/// Images of a power cut at each failure, unless `ZIPTIER_IMAGES` says otherwise.
const IMAGES: usize = 12;

/// Runs up to the failure, and checks all states of the disk after a kill or a power cut.
fn fail_at(fault: Fault, nth: u64) -> bool {
    let recording = RecordingDisk::new();
    let disk = FailingDisk::new(Arc::new(recording.clone()), fault, nth);
    let mut promises: Vec<Promise> = Vec::new();
    let result = scenario::run(Arc::new(disk.clone()), || recording.position(), &mut promises);
    if !disk.has_failed() {
        return false;
    }
    match fault {
        // A short write is continued; a full disk may cost a spare file only.
        Fault::ShortWrite => assert_eq!(result, Ok(())),
        _ => drop(result),
    }
    scenario::go_on(&recording.killed(), &promises, nth, 12);
    // The power is cut at the failure: the first image has everything, the second nothing that was not synced.
    for image in recording.images().sample_from(recording.position(), nth, count("ZIPTIER_IMAGES", IMAGES)) {
        recover(image, &promises);
    }
    true
}

#[test]
fn any_failed_operation_keeps_all_promises() {
    for fault in [Fault::Io, Fault::Full, Fault::TooManyFiles, Fault::ShortWrite, Fault::LyingSync] {
        let count = (0..).take_while(|&nth| fail_at(fault, nth)).count();
        assert!(count > 20, "{fault:?} hit {count} operations");
    }
}

/// A sync failed, the process ended, and the next one reads from the system's memory what the medium may not have.
#[test]
fn what_a_failed_sync_lost_is_not_promised_after_a_restart() {
    for nth in 0.. {
        let recording = RecordingDisk::new();
        recording.fail_sync_forgetfully(nth);
        let mut promises: Vec<Promise> = Vec::new();
        if scenario::run(Arc::new(recording.clone()), || recording.position(), &mut promises).is_ok() {
            assert!(nth > 60, "{nth} syncs");
            return;
        }
        scenario::go_on(&recording.killed(), &promises, nth, 40);
    }
}

#[test]
fn after_a_failed_sync_nothing_is_promised_although_syncs_succeed_again() {
    let recording = RecordingDisk::new();
    let log = Log::open(Arc::new(recording.clone()), Path::new(DIR), OPTIONS).unwrap().into_log().unwrap();
    drop(log);
    let replay = |disk: Arc<dyn Disk>| check(disk, OPTIONS).unwrap().0;
    for nth in 0.. {
        let disk = FailingDisk::new(Arc::new(recording.copy()), Fault::LyingSync, nth);
        let Ok(log) = replay(Arc::new(disk.clone())).into_log() else { continue };
        let lsn = log.append(&[&payload(1)]).unwrap();
        let Err(error) = log.sync(lsn) else {
            assert!(nth > 0 && !disk.has_failed());
            break;
        };
        assert!(error.to_string().contains("input/output error"), "{error}");
        for refused in [log.sync(lsn), log.write(lsn + 1), log.append(&[b"x"]).map(drop), log.seal()] {
            if lsn == log.last_lsn() && refused.is_ok() {
                // Rewriting the same bytes changes nothing.
                continue;
            }
            assert!(matches!(refused, Err(LogError::Poisoned { .. })), "{refused:?}");
        }
        assert_eq!(log.durable_lsn(), 0);
    }
}

/// Counts how often a record is refused and can be appended again, when each refusable operation in turn fails. Such
/// operations make a segment, go to it, or write.
fn refusals(fault: Fault, is_told: impl Fn(&DiskError) -> bool) -> usize {
    let recording = RecordingDisk::new();
    let refused = AtomicU64::new(0);
    let told = |outcome: Result<u64, LogError>| match outcome {
        Err(LogError::Disk(error)) if is_told(&error) => {
            refused.fetch_add(1, Ordering::Relaxed);
            None
        }
        outcome => Some(outcome.unwrap()),
    };
    for nth in 0..60 {
        let disk = FailingDisk::new(Arc::new(recording.copy()), fault, nth);
        let Ok(mut replay) = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS) else { continue };
        assert_eq!(replay.next_record(), Ok(None));
        let Ok(log) = replay.into_log() else { continue };
        while !disk.has_failed() || log.last_lsn() == 0 {
            let before = log.last_lsn();
            let lsn = told(log.append(&[&payload(before + 1)])).unwrap_or_else(|| {
                assert_eq!(log.last_lsn(), before);
                assert!(log.refusal().is_some());
                // There is room again.
                log.append(&[&payload(before + 1)]).unwrap()
            });
            assert_eq!((lsn, log.refusal()), (before + 1, None));
            if told(log.write(lsn).map(|()| lsn)).is_none() {
                log.write(lsn).unwrap();
            }
        }
        assert_eq!(log.failure(), None, "{fault:?} at {nth}");
        let last = log.last_lsn();
        log.sync(last).unwrap();
        drop(log);
        let (replay, first) = check(Arc::new(disk), OPTIONS).unwrap();
        assert_eq!((first, replay.next_lsn()), (1, last + 1), "{fault:?} at {nth}");
    }
    refused.into_inner() as usize
}

#[test]
fn a_full_disk_refuses_records_and_poisons_nothing() {
    let refusals = refusals(Fault::Full, |error| matches!(error, DiskError::Full { .. }));
    assert!(refusals > 20, "{refusals} refusals");
}

#[test]
fn too_many_open_files_refuse_a_record_and_poison_nothing() {
    let refusals = refusals(Fault::TooManyFiles, |error| matches!(error, DiskError::TooManyFiles { .. }));
    assert!(refusals > 5, "{refusals} refusals");
}

/// A log of six records, of a process that was killed.
fn unsealed() -> RecordingDisk {
    let recording = RecordingDisk::new();
    let log = Log::open(Arc::new(recording.clone()), Path::new(DIR), OPTIONS).unwrap().into_log().unwrap();
    (1..=6).for_each(|lsn| assert_eq!(log.append(&[&payload(lsn)]), Ok(lsn)));
    log.write(6).unwrap();
    recording
}

/// The log on `disk`; `None` if it cannot be opened.
fn opened(disk: &FailingDisk) -> Option<Log> {
    let (replay, _) = check(Arc::new(disk.clone()), OPTIONS).ok()?;
    replay.into_log().ok()
}

/// The segment that a start begins has no room at some operation, and then the log is stopped.
#[test]
fn a_stop_on_a_full_disk_seals_the_log_where_it_ends() {
    let recording = unsealed();
    let mut refused = 0;
    for nth in 0.. {
        let copy = recording.copy();
        let disk = FailingDisk::new(Arc::new(copy.clone()), Fault::Full, nth);
        let Some(log) = opened(&disk) else { continue };
        refused += u64::from(log.refusal().is_some());
        if log.seal().is_err() {
            log.seal().unwrap();
        }
        drop(log);
        let (replay, _) = check(Arc::new(copy), OPTIONS).unwrap();
        assert!(replay.is_sealed() && replay.next_lsn() == 7, "full at operation {nth}");
        if !disk.has_failed() {
            break;
        }
    }
    assert!(refused > 2, "{refused}");
}

/// A disk refuses to cut the sealed segment, the process ends, and the next one seals the log again without room for a
/// new segment.
#[test]
fn a_log_that_was_sealed_and_not_cut_is_sealed_again() {
    let recording = unsealed();
    let mut refused = 0;
    for nth in 0.. {
        let copy = recording.copy();
        let disk = FailingDisk::new(Arc::new(copy.clone()), Fault::Full, nth);
        let Some(log) = opened(&disk) else { continue };
        refused += u64::from(log.seal().is_err());
        drop(log);
        for path in copy.paths().iter().filter(|path| path.to_string_lossy().contains("spare-")) {
            copy.remove(path).unwrap();
        }
        let full = FailingDisk::that_fills(Arc::new(copy.clone()));
        full.set_full(true);
        let log = check(Arc::new(full), OPTIONS).unwrap().0.into_log().unwrap();
        log.seal().unwrap();
        drop(log);
        let (replay, _) = check(Arc::new(copy), OPTIONS).unwrap();
        assert!(replay.is_sealed() && replay.next_lsn() == 7, "full at operation {nth}");
        if !disk.has_failed() {
            break;
        }
    }
    assert!(refused > 0);
}

/// A disk refuses to cut the last segment, and a checkpoint needs none of its records.
#[test]
fn a_segment_that_waits_to_be_cut_is_not_used_again() {
    let recording = unsealed();
    let mut refused = 0;
    for nth in 0.. {
        let copy = recording.copy();
        let disk = FailingDisk::new(Arc::new(copy.clone()), Fault::Full, nth);
        let Some(log) = opened(&disk) else { continue };
        if !disk.has_failed() {
            break;
        }
        refused += 1;
        log.drop_before(7).unwrap();
        for lsn in 7..=60 {
            assert_eq!(log.append(&[&payload(lsn)]), Ok(lsn));
            log.sync(lsn).unwrap();
            let (replay, _) = check(Arc::new(copy.killed()), OPTIONS).unwrap();
            assert_eq!(replay.next_lsn(), lsn + 1, "full at operation {nth}");
        }
    }
    assert!(refused > 2, "{refused}");
}

/// A log whose last two segments have their full size: the disk refused to cut the first one, and the process ended.
fn with_two_uncut_segments() -> RecordingDisk {
    let recording = unsealed();
    let is_uncut = |copy: &RecordingDisk, path: &PathBuf| {
        let bytes = copy.contents(path).map_or(0, |bytes| bytes.len() as u64);
        path.to_string_lossy().contains("log-") && bytes == OPTIONS.segment_bytes
    };
    let refused_at = |nth| {
        let copy = recording.copy();
        drop(opened(&FailingDisk::new(Arc::new(copy.clone()), Fault::Full, nth))?);
        let uncut = copy.paths().iter().filter(|path| is_uncut(&copy, path)).count();
        (uncut == 2).then(|| copy.killed())
    };
    (0..100).find_map(refused_at).expect("a start cuts the segment before the last")
}

/// The next start meets a full disk, too, which refuses each operation in turn: the cut is one of them.
#[test]
fn a_start_that_may_not_cut_the_segment_before_the_last_goes_on() {
    let recording = with_two_uncut_segments();
    let mut starts = 0;
    for nth in 0.. {
        let copy = recording.copy();
        let disk = FailingDisk::new(Arc::new(copy.clone()), Fault::Full, nth);
        let Ok((replay, _)) = check(Arc::new(disk.clone()), OPTIONS) else { continue };
        match replay.into_log() {
            Err(error) => assert!(!error.to_string().contains("cannot cut"), "{error}"),
            Ok(log) => {
                starts += 1;
                let appended = log.append(&[&payload(7)]).or_else(|_| log.append(&[&payload(7)]));
                assert_eq!(appended, Ok(7), "full at operation {nth}");
                log.sync(7).or_else(|_| log.sync(7)).unwrap();
            }
        }
        for image in copy.images().sample_from(0, nth, count("ZIPTIER_IMAGES", IMAGES)) {
            let what = format!("full at operation {nth}, {}", image.what);
            let (replay, first) =
                check(Arc::new(image.disk), OPTIONS).unwrap_or_else(|error| panic!("{error}: {what}"));
            assert!(first == 1 && replay.next_lsn() >= 7, "{what}");
        }
        if !disk.has_failed() {
            break;
        }
    }
    assert!(starts > 2, "{starts}");
}

/// A checkpoint has all records of the segment before the last one.
#[test]
fn a_segment_that_is_not_needed_is_cut_after_an_interrupted_step() {
    let disk = Arc::new(with_two_uncut_segments());
    let mut replay = Log::open(disk.clone(), Path::new(DIR), OPTIONS).unwrap();
    replay.start_at(7).unwrap();
    assert_eq!(replay.next_record(), Ok(None));
    let log = replay.into_log().unwrap();
    assert_eq!(log.append(&[&payload(7)]), Ok(7));
    log.sync(7).unwrap();
    drop(log);
    let (replay, first) = check(disk, OPTIONS).unwrap();
    assert_eq!((first, replay.next_lsn()), (1, 8));
}

/// The next segment's file is made ahead, and has no record.
#[test]
fn a_spare_file_that_cannot_be_made_costs_no_record() {
    let mut failed = 0;
    for nth in 0.. {
        let recording = RecordingDisk::new();
        let disk = FailingDisk::new(Arc::new(recording), Fault::Io, nth);
        let Ok(replay) = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS) else { continue };
        let Ok(log) = replay.into_log() else { continue };
        if disk.has_failed() {
            continue;
        }
        let prepared = log.prepare_segment();
        if !disk.has_failed() {
            break;
        }
        let error = prepared.unwrap_err().to_string();
        if error.contains("cannot sync") {
            // A disk that has failed to sync one file may fail on the next one.
            assert!(log.failure().is_some());
            continue;
        }
        failed += 1;
        assert_eq!(log.failure(), None);
        for lsn in 1..=30 {
            assert_eq!(log.append(&[&payload(lsn)]), Ok(lsn));
        }
        log.seal().unwrap();
    }
    assert!(failed > 2, "{failed}");
}

/// As before, and the disk tells only at a sync that it is full.
#[test]
fn a_spare_file_without_room_at_its_sync_costs_no_record() {
    for nth in 0.. {
        let disk = FailingDisk::new(Arc::new(RecordingDisk::new()), Fault::FullAtSync, nth);
        let Ok(log) = check(Arc::new(disk.clone()), OPTIONS).and_then(|(replay, _)| replay.into_log()) else {
            continue;
        };
        if disk.has_failed() {
            continue;
        }
        let prepared = log.prepare_segment();
        assert!(matches!(prepared, Err(LogError::Disk(DiskError::Full { .. }))), "{prepared:?}");
        assert_eq!(log.failure(), None);
        (1..=30).for_each(|lsn| assert_eq!(log.append(&[&payload(lsn)]), Ok(lsn)));
        return log.seal().unwrap();
    }
}

/// The log is sealed while an append makes the file for its record.
#[test]
fn a_segment_that_was_made_in_vain_stays_a_spare_one() {
    let disk = PausingDisk::new();
    let log = check(Arc::new(disk.clone()), OPTIONS).unwrap().0.into_log().unwrap();
    let refused = || while log.append(&[&[7; 1000]]) != Err(LogError::Sealed) {};
    disk.during(DIR, refused, || log.seal().unwrap());
    let spares = || {
        let paths = disk.recording().paths();
        paths.iter().filter(|path| path.to_string_lossy().contains("spare-")).count()
    };
    let before = spares();
    log.prepare_segment().unwrap();
    assert_eq!((before, spares()), (1, 1));
}

/// Two appends make the file for the next segment, and the disk has room for one of these files.
#[test]
fn a_record_that_another_append_made_room_for_is_not_refused() {
    let pausing = PausingDisk::new();
    let disk = FailingDisk::that_fills(Arc::new(pausing.clone()));
    let log = check(Arc::new(disk.clone()), OPTIONS).unwrap().0.into_log().unwrap();
    let append = || log.append(&[&[7; 1000]]);
    (1..=3).for_each(|lsn| assert_eq!(append(), Ok(lsn)));
    log.write(3).unwrap();
    let mut waited = None;
    let appends_too = || {
        assert_eq!(append(), Ok(4));
        disk.set_full(true);
    };
    pausing.during(DIR, || waited = Some(append()), appends_too);
    assert_eq!((waited, log.refusal()), (Some(Ok(5)), None));
    disk.set_full(false);
    log.sync(5).unwrap();
}

/// A disk had no room for a record that was appended already, as one with a quota or with copies on write may. The
/// keeper goes on once there is room.
#[test]
fn a_keeper_outlives_a_full_disk() {
    let disk = FailingDisk::that_fills(Arc::new(RecordingDisk::new()));
    let options = LogOptions { buffer_bytes: 1 << 20, ..OPTIONS };
    let log = Arc::new(check(Arc::new(disk.clone()), options).unwrap().0.into_log().unwrap());
    // The second segment waits to be begun.
    let mut lsn = 0;
    for _ in 0..2 * OPTIONS.segment_bytes / 1000 {
        lsn = log.append(&[&[7; 1000]]).unwrap();
    }
    disk.set_full(true);
    let refused = log.write(lsn);
    assert!(matches!(refused, Err(LogError::Disk(DiskError::Full { .. }))), "{refused:?}");
    let _keeper = Keeper::start(log.clone(), Some(Duration::from_millis(5))).unwrap();
    // Time for some refusals. A busy machine can only make them fewer.
    std::thread::sleep(Duration::from_millis(200));
    disk.set_full(false);
    ziptier_testing::until("the keeper has synced the log", || log.durable_lsn() == lsn);
    assert_eq!(log.failure(), None);
}

/// A stop on a full disk, a start on it, and room in the end.
#[test]
fn a_log_on_a_full_disk_is_read_and_goes_on_when_there_is_room() {
    for (is_sealed, is_stopped_again) in [(false, false), (false, true), (true, false), (true, true)] {
        let recording = RecordingDisk::new();
        let open = |disk: &FailingDisk| check(Arc::new(disk.clone()), OPTIONS).unwrap().0.into_log();
        let log = open(&FailingDisk::that_fills(Arc::new(recording.clone()))).unwrap();
        for lsn in 1..=20 {
            log.append(&[&payload(lsn)]).unwrap();
        }
        log.sync(15).unwrap();
        log.write(20).unwrap();
        if is_sealed {
            log.seal().unwrap();
        }
        drop(log);
        for path in recording.paths() {
            if path.to_string_lossy().contains("spare-") {
                recording.remove(&path).unwrap();
            }
        }
        let disk = FailingDisk::that_fills(Arc::new(recording.killed()));
        disk.set_full(true);
        let log = open(&disk).unwrap();
        assert_eq!((log.last_lsn(), log.durable_lsn()), (20, 20));
        assert!(log.refusal().is_some_and(|refusal| refusal.contains("the disk is full")));
        let refused = log.append(&[&payload(21)]);
        assert!(matches!(refused, Err(LogError::Disk(DiskError::Full { .. }))), "{refused:?}");
        log.sync(20).unwrap();
        assert_eq!(log.failure(), None);
        let (log, disk) = if is_stopped_again {
            log.seal().unwrap();
            drop(log);
            let (replay, _) = check(Arc::new(disk.clone()), OPTIONS).unwrap();
            assert!(replay.is_sealed() && replay.next_lsn() == 21);
            (replay.into_log().unwrap(), disk)
        } else {
            (log, disk)
        };
        disk.set_full(false);
        log.prepare_segment().unwrap();
        assert_eq!(log.refusal(), None);
        assert_eq!(log.append(&[&payload(21)]), Ok(21));
        log.seal().unwrap();
        drop(log);
        let (replay, first) = check(Arc::new(disk), OPTIONS).unwrap();
        assert_eq!((first, replay.next_lsn(), replay.is_sealed()), (1, 22, true));
    }
}

#[test]
fn segments_that_cannot_be_dropped_for_too_many_open_files_are_dropped_later() {
    for nth in 0.. {
        let recording = RecordingDisk::new();
        let log =
            Log::open(Arc::new(recording.clone()), Path::new(DIR), OPTIONS).unwrap().into_log().unwrap();
        while log.stats().allocated_bytes < 5 * OPTIONS.segment_bytes {
            log.append(&[&payload(log.last_lsn() + 1)]).unwrap();
        }
        log.seal().unwrap();
        drop(log);
        let disk = FailingDisk::new(Arc::new(recording), Fault::TooManyFiles, nth);
        let Some(log) = opened(&disk) else { continue };
        if disk.has_failed() {
            continue;
        }
        let dropped = log.drop_before(log.last_lsn() + 1);
        if !disk.has_failed() {
            return;
        }
        if let Err(error) = dropped {
            assert!(matches!(error, LogError::Disk(DiskError::TooManyFiles { .. })), "{error}");
            assert_eq!(log.failure(), None);
            log.drop_before(log.last_lsn() + 1).unwrap();
        }
        let lsn = log.append(&[b"on it goes"]).unwrap();
        log.sync(lsn).unwrap();
    }
}

/// The checks catch a disk whose syncs do nothing.
#[test]
fn a_disk_that_never_syncs_is_caught() {
    let recording = RecordingDisk::new();
    let disk = FailingDisk::new(Arc::new(recording.clone()), Fault::NoSync, 0);
    let mut promises = Vec::new();
    scenario::run(Arc::new(disk), || recording.position(), &mut promises).unwrap();
    let is_lost = |image: ziptier_media::testing::CrashImage| {
        let made = at(&promises, image.position);
        check(Arc::new(image.disk), OPTIONS).map_or(true, |(replay, _)| replay.next_lsn() <= made.synced)
    };
    assert!(recording.images().sample(1, 500).any(is_lost));
}
