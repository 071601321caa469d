//! Runs a log through every operation once, and holds the model for comparing its records.

use std::path::Path;
use std::sync::Arc;
use ziptier_media::disk::Disk;
use ziptier_media::log::{Log, LogError, LogOptions, Lsn, Replay};
use ziptier_media::testing::RecordingDisk;

pub(crate) const DIR: &str = "/data/log";

/// The smallest segments, so that a few records fill them.
pub(crate) const OPTIONS: LogOptions =
    LogOptions { segment_bytes: 8192, buffer_bytes: 3000, first_lsn: 1, salvage: false };

/// The one payload that a record with this LSN can have: up to 900 bytes, and at times more than a segment.
pub(crate) fn payload(lsn: Lsn) -> Vec<u8> {
    let mixed = lsn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let length =
        if lsn % 41 == 40 { 9000 } else { mixed >> 40 & 511 } + if lsn.is_multiple_of(7) { 400 } else { 0 };
    (0..length).map(|i| (mixed >> (i % 56)) as u8 ^ i as u8).collect()
}

/// The promise at a position: records up to `synced` are there, beginning at `dropped` or earlier, and none behind
/// `appended`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Promise {
    pub(crate) position: usize,
    pub(crate) synced: Lsn,
    pub(crate) dropped: Lsn,
    pub(crate) appended: Lsn,
    pub(crate) sealed: bool,
}

/// Opens and replays a log, and checks all records against [`payload`]. Returns the first LSN and the LSN behind the
/// last record.
pub(crate) fn check(disk: Arc<dyn Disk>, options: LogOptions) -> Result<(Replay, Lsn), LogError> {
    let mut replay = Log::open(disk, Path::new(DIR), options)?;
    let first = replay.first_lsn();
    let mut expected = first;
    while let Some(record) = replay.next_record()? {
        assert_eq!(record.lsn, expected, "order");
        assert_eq!(record.payload, payload(record.lsn), "record {}", record.lsn);
        expected += 1;
    }
    assert_eq!(replay.next_lsn(), expected);
    Ok((replay, first))
}

/// Appends, writes, syncs, goes through several segments, drops some, and stops in one of three ways. It does all this
/// twice and notes every promise. Ends at the first error.
pub(crate) fn run(
    disk: Arc<dyn Disk>,
    position: impl Fn() -> usize,
    promises: &mut Vec<Promise>,
) -> Result<(), LogError> {
    let mut promise = Promise::default();
    for round in 0..3u64 {
        let (replay, _) = check(disk.clone(), OPTIONS)?;
        let log = replay.into_log()?;
        assert!(log.last_lsn() >= promise.synced, "lost {promise:?}, ends at {}", log.last_lsn());
        promise.sealed = false;
        for step in 0..60u64 {
            let lsn = log.last_lsn() + 1;
            // Replay may find an appended record even if the append was never acknowledged.
            promise.appended = lsn;
            promises.push(promise);
            let bytes = payload(lsn);
            let (left, right) = bytes.split_at(bytes.len() / 3);
            assert_eq!(log.append(&[left, right])?, lsn);
            match (step * 7 + round) % 11 {
                0..4 => log.sync(lsn)?,
                4..6 => log.write(lsn)?,
                _ => {}
            }
            promise.synced = promise.synced.max(log.durable_lsn());
            promise.position = position();
            promises.push(promise);
            if step % 25 == 24 {
                promise.dropped = lsn - 10;
                promises.push(promise);
                log.drop_before(promise.dropped)?;
            }
        }
        if round == 1 {
            log.seal()?;
            (promise.synced, promise.sealed) = (log.last_lsn(), true);
        } else {
            // The process is killed when the system has records that the medium may lack. The next round reads those
            // records, so they must stay.
            log.write(log.last_lsn())?;
        }
        promise.position = position();
        promises.push(promise);
    }
    Ok(())
}

/// The promise in force at a position: the last one made by then, widened by the operations since.
pub(crate) fn at(promises: &[Promise], position: usize) -> Promise {
    promises.iter().rfind(|promise| promise.position <= position).copied().unwrap_or_default()
}

/// The whole run on a disk that remembers it.
pub(crate) fn recorded() -> (RecordingDisk, Vec<Promise>) {
    let disk = RecordingDisk::new();
    let mut promises = Vec::new();
    run(Arc::new(disk.clone()), || disk.position(), &mut promises).unwrap();
    (disk, promises)
}

/// Recovers the state that a killed process left, appends and checkpoints. Then the power is cut, at the kill or later.
pub(crate) fn go_on(disk: &RecordingDisk, promises: &[Promise], seed: u64, images: usize) {
    let (start, made) = (disk.position(), at(promises, disk.position()));
    let what = format!("killed before operation {start} ({made:?})");
    let (replay, _) =
        check(Arc::new(disk.clone()), OPTIONS).unwrap_or_else(|error| panic!("{error}: {what}"));
    let next = replay.next_lsn();
    assert!(next > made.synced && next <= made.appended + 1, "{next}: {what}");
    let log = replay.into_log().unwrap_or_else(|error| panic!("{error}: {what}"));
    let mut promises = vec![Promise { position: start, appended: next + 1, sealed: false, ..made }];
    for lsn in next..=next + 1 {
        assert_eq!(log.append(&[&payload(lsn)]), Ok(lsn));
        log.sync(lsn).unwrap();
        let before = promises[promises.len() - 1];
        promises.push(Promise { position: disk.position(), synced: lsn, ..before });
    }
    let before = promises[promises.len() - 1];
    promises.push(Promise { dropped: next + 1, ..before });
    log.drop_before(next + 1).unwrap();
    drop(log);
    for image in disk.images().sample_from(start, seed, images) {
        recover(image, &promises);
    }
}

/// Recovers one image, compares it with the promise, appends, cuts the power and recovers again.
pub(crate) fn recover(image: ziptier_media::testing::CrashImage, promises: &[Promise]) {
    let made = at(promises, image.position);
    let what = format!("{} ({made:?})", image.what);
    let disk = Arc::new(image.disk);
    let (replay, first) = check(disk.clone(), OPTIONS).unwrap_or_else(|error| panic!("{error}: {what}"));
    let next = replay.next_lsn();
    assert!(next > made.synced, "lost records from {next} on: {what}");
    assert!(next <= made.appended + 1, "invented records up to {next}: {what}");
    assert!(first <= made.dropped.max(1), "dropped records before {first}: {what}");
    if made.sealed && image.position == made.position {
        assert!(replay.is_sealed(), "{what}");
    }
    let log = replay.into_log().unwrap_or_else(|error| panic!("{error}: {what}"));
    let lsn = log.append(&[&payload(next)]).unwrap();
    assert_eq!(lsn, next, "{what}");
    log.sync(lsn).unwrap();
    drop(log);
    let (replay, _) = check(disk, OPTIONS).unwrap_or_else(|error| panic!("{error}, recovered: {what}"));
    assert_eq!(replay.next_lsn(), lsn + 1, "{what}");
}
