//! A disk that fails at some operation: the log says so, refuses further work, and what it promised before is kept. A disk that
//! lies about syncs must be caught by the same checks, or they would prove nothing.

#![allow(clippy::unwrap_used)]

mod scenario;

use scenario::{DIR, OPTIONS, Promise, at, check, payload, recover};
use std::path::Path;
use std::sync::Arc;
use ziptier_media::disk::{Disk, DiskError};
use ziptier_media::log::{Log, LogError};
use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};

/// A run that ends at the failure, and all that the disk may hold after a kill or a power cut.
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
    // The process is killed: everything that was written is there.
    let made = at(&promises, recording.position());
    let (replay, _) = check(Arc::new(recording.copy()), OPTIONS)
        .unwrap_or_else(|error| panic!("{error}: {fault:?} at {nth}, {made:?}"));
    assert!(replay.next_lsn() > made.synced && replay.next_lsn() <= made.appended + 1);
    // The power is cut at the failure.
    for image in recording.images().sample(nth, 400).skip(397) {
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
                // Writing what is written already is no work.
                continue;
            }
            assert!(matches!(refused, Err(LogError::Poisoned { .. })), "{refused:?}");
        }
        assert_eq!(log.durable_lsn(), 0);
    }
}

/// How often an append is refused, but can be done again, when each operation in turn fails that may refuse.
fn refusals(fault: Fault, is_told: impl Fn(&DiskError) -> bool) -> usize {
    let recording = RecordingDisk::new();
    let mut refusals = 0;
    // The operations that fail are those of making a segment: every one of them, in turn.
    for nth in 0..60 {
        let disk = FailingDisk::new(Arc::new(recording.copy()), fault, nth);
        let Ok(replay) = Log::open(Arc::new(disk.clone()), Path::new(DIR), OPTIONS) else { continue };
        let mut replay = replay;
        assert_eq!(replay.next_record(), Ok(None));
        let Ok(log) = replay.into_log() else { continue };
        while !disk.has_failed() {
            let before = log.last_lsn();
            match log.append(&[&payload(before + 1)]) {
                Ok(_) => {}
                Err(LogError::Disk(error)) if is_told(&error) && log.write(before).is_ok() => {
                    assert_eq!(log.last_lsn(), before);
                    // There is room again.
                    assert_eq!(log.append(&[&payload(before + 1)]), Ok(before + 1));
                    log.sync(before + 1).unwrap();
                    refusals += 1;
                }
                Err(_) => break,
            }
        }
    }
    refusals
}

#[test]
fn a_full_disk_refuses_before_a_record_has_a_number_and_recovers() {
    let refusals = refusals(Fault::Full, |error| matches!(error, DiskError::Full { .. }));
    assert!(refusals > 5, "{refusals} refusals");
}

#[test]
fn too_many_open_files_refuse_a_record_and_poison_nothing() {
    let refusals = refusals(Fault::TooManyFiles, |error| matches!(error, DiskError::TooManyFiles { .. }));
    assert!(refusals > 5, "{refusals} refusals");
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
        let Ok(log) = check(Arc::new(disk.clone()), OPTIONS).and_then(|(replay, _)| replay.into_log()) else {
            continue;
        };
        if disk.has_failed() {
            continue;
        }
        let dropped = log.drop_before(log.last_lsn() + 1);
        if !disk.has_failed() {
            return;
        }
        if let Err(error) = dropped {
            assert!(matches!(error, LogError::Disk(DiskError::TooManyFiles { .. })), "{error}");
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
