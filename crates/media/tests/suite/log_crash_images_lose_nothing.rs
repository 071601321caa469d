//! A power cut comes between any two operations of a log, and unsynced writes are lost, torn and reordered. Replay must
//! return every record whose sync returned, in order, and invent none. The second power cut comes while the log
//! recovers from the first.

use std::sync::Arc;
use ziptier_media::log::Log;
use ziptier_testing::{count, seed};

use crate::scenario;

/// Images in CI; the example `crash_images` takes more, and so does `ZIPTIER_IMAGES`.
const IMAGES: usize = 5_000;

#[test]
fn every_synced_record_survives_every_image() {
    let (disk, promises) = scenario::recorded();
    for image in disk.images().sample(seed(), count("ZIPTIER_IMAGES", IMAGES)) {
        scenario::recover(image, &promises);
    }
}

#[test]
fn a_power_cut_during_recovery_loses_nothing() {
    let (disk, promises) = scenario::recorded();
    for image in disk.images().sample(2, 400) {
        let made = scenario::at(&promises, image.position);
        let (replay, _) = scenario::check(Arc::new(image.disk.clone()), scenario::OPTIONS).unwrap();
        replay.into_log().unwrap();
        for second in image.disk.images().sample(3, 20) {
            let what = format!("{}, then {}", image.what, second.what);
            let (replay, _) = scenario::check(Arc::new(second.disk), scenario::OPTIONS)
                .unwrap_or_else(|error| panic!("{error}: {what}"));
            assert!(replay.next_lsn() > made.synced && replay.next_lsn() <= made.appended + 1, "{what}");
        }
    }
}

/// A run of few operations, so that all its images can be tested.
#[test]
fn a_short_run_survives_all_its_images() {
    let disk = ziptier_media::testing::RecordingDisk::new();
    let options = scenario::OPTIONS;
    let replay = Log::open(Arc::new(disk.clone()), std::path::Path::new(scenario::DIR), options).unwrap();
    let log = replay.into_log().unwrap();
    let start = disk.position();
    let mut promises = Vec::new();
    for lsn in 1..=6 {
        promises.push((disk.position(), lsn, log.durable_lsn()));
        log.append(&[&scenario::payload(lsn)[..20]]).unwrap();
        log.write(lsn).unwrap();
        if lsn % 3 == 0 {
            log.sync(lsn).unwrap();
        }
    }
    let mut count = 0;
    for image in disk.images().all_from(start) {
        let &(_, appended, synced) = promises.iter().rfind(|promise| promise.0 <= image.position).unwrap();
        let mut replay =
            Log::open(Arc::new(image.disk), std::path::Path::new(scenario::DIR), options).unwrap();
        let mut last = 0;
        while let Some(record) = replay.next_record().unwrap() {
            assert_eq!(record.payload, &scenario::payload(record.lsn)[..20]);
            assert_eq!(record.lsn, last + 1);
            last = record.lsn;
        }
        assert!(last >= synced && last <= appended, "{last}, synced {synced}: {}", image.what);
        count += 1;
    }
    assert!(count > 500, "{count} images");
}
