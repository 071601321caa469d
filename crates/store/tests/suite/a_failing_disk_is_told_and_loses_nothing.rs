//! A disk that fails at its n-th operation, for every n: the store says so, refuses what it cannot keep, still answers,
//! and what it had acknowledged is there when it is opened again.

use std::path::Path;
use std::sync::Arc;

use ziptier::{Durability, Error, Options, SsdOptions, Store};
use ziptier_media::disk::Disk;
use ziptier_media::log::LogError;
use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};

use crate::durable_scenario::{History, Write, check, contents, options};

const STEPS: u64 = 40;

/// Lives through the scenario on a disk that fails at its `nth` operation. Whether it came to that.
fn live(fault: Fault, nth: u64, durability: Durability) -> bool {
    let recording = RecordingDisk::new();
    let disk = FailingDisk::new(Arc::new(recording.clone()), fault, nth);
    live_on(Arc::new(disk.clone()), &recording, &|| disk.has_failed(), &format!("{fault:?}"), nth, durability)
}

fn live_on(
    disk: Arc<dyn Disk>,
    recording: &RecordingDisk,
    has_failed: &dyn Fn() -> bool,
    fault: &str,
    nth: u64,
    durability: Durability,
) -> bool {
    let what = format!("{fault} at operation {nth}");
    let mut history = History::default();
    let outcome = Store::open(options(disk, durability)).and_then(|store| {
        let outcome = (0..STEPS)
            .try_for_each(|step| history.make(&store, Write::of(nth, 0, step), &|| recording.position()));
        if outcome.is_ok() {
            assert_eq!(contents(&store, 0), history.contents(), "{what}");
            return store.close();
        }
        // Nothing more is taken, for the reason that came first.
        let stats = store.durable_stats().unwrap();
        let poisoned = LogError::Poisoned { first: stats.failure.unwrap() };
        assert_eq!(store.put(b"0/refused", b""), Err(Error::Log(poisoned.clone())), "{what}");
        // What is there is told, unless it may not be durable and that was promised.
        if durability == Durability::Always && stats.durable_lsn < stats.last_lsn {
            assert_eq!(store.get(b"0/refused"), Err(Error::Log(poisoned.clone())), "{what}");
            assert_eq!(store.range(..).collect::<Vec<_>>(), [Err(Error::Log(poisoned.clone()))], "{what}");
            assert_eq!(store.range(..).next_back(), Some(Err(Error::Log(poisoned))), "{what}");
        } else {
            assert!(!contents(&store, 0).contains_key(&b"0/refused"[..]));
        }
        outcome
    });
    if let Err(error) = outcome {
        assert!(has_failed(), "{what}: {error:?}");
        assert!(!error.to_string().contains('\n'));
    }
    let histories = std::slice::from_ref(&history);
    for image in recording.images().sample(nth, 12) {
        check(&image.disk, image.position, histories, durability, &format!("{what}: {}", image.what));
    }
    go_on(&recording.killed(), histories, nth, durability, &what);
    has_failed()
}

/// The process was killed, and another one goes on with what the system has: what that one has seen is durable from
/// then on.
fn go_on(disk: &RecordingDisk, histories: &[History], nth: u64, durability: Durability, what: &str) {
    let start = disk.position();
    let store = check(disk, start, histories, durability, what);
    let (seen, open) = (contents(&store, 0), disk.position());
    drop(store);
    for image in disk.images().sample_from(start, nth, 8) {
        let what = format!("{what}, killed, opened: {}", image.what);
        let again = check(&image.disk, start, histories, durability, &what);
        assert!(image.position < open || contents(&again, 0) == seen, "{what}");
    }
}

fn live_through(fault: Fault, durability: Durability) {
    let survived = (0..10_000).find(|&nth| !live(fault, nth, durability));
    assert!(survived.is_some_and(|count| count > 10), "{survived:?}");
}

#[test]
fn an_error_at_any_operation() {
    live_through(Fault::Io, Durability::Always);
}

#[test]
fn a_full_disk_at_any_operation() {
    live_through(Fault::Full, Durability::Always);
}

#[test]
fn too_many_open_files_at_any_operation() {
    live_through(Fault::TooManyFiles, Durability::Always);
}

#[test]
fn too_many_open_files_refuse_one_checkpoint_and_none_after_it() {
    let mut refused = 0;
    for nth in 0..10_000 {
        let recording = RecordingDisk::new();
        let disk = FailingDisk::new(Arc::new(recording.clone()), Fault::TooManyFiles, nth);
        let Ok(store) = Store::open(options(Arc::new(disk.clone()), Durability::Always)) else { continue };
        // That may be refused, too.
        let _ = store.put(b"key", b"value");
        refused += u32::from(store.checkpoint().is_err());
        if !disk.has_failed() {
            break;
        }
        store.put(b"key", b"newer").unwrap();
        store.checkpoint().unwrap_or_else(|error| panic!("after operation {nth}: {error}"));
        drop(store);
        let again = Store::open(options(Arc::new(recording.copy()), Durability::Always)).unwrap();
        assert_eq!(again.get(b"key"), Ok(Some(b"newer".to_vec())), "after operation {nth}");
    }
    assert!(refused > 3, "{refused}");
}

/// Both of its manifests have their names, and the folder could not be synced. The next checkpoint says the same of the
/// log and names other images, since a leaf went to SSD meanwhile. A start with a manifest of each took the second one
/// for a copy of the first, and kept nothing for it.
#[test]
fn a_start_between_a_refused_checkpoint_and_the_next_one_makes_both_manifests_alike() {
    let with_ssd = |disk: Arc<dyn Disk>| {
        let ssd = Some(SsdOptions { path: None, limit_bytes: 64 << 20 });
        Options { ssd, ..options(disk, Durability::Always) }
    };
    let manifests = |disk: &RecordingDisk| {
        ["MANIFEST", "MANIFEST.copy"].map(|name| disk.contents(&Path::new("/data").join(name)))
    };
    let mut left = 0;
    for nth in 0..10_000 {
        let recording = RecordingDisk::new();
        let disk = FailingDisk::new(Arc::new(recording.clone()), Fault::TooManyFiles, nth);
        let Ok(store) = Store::open(with_ssd(Arc::new(disk.clone()))) else { continue };
        let is_put = store.put(b"key", b"value").is_ok();
        let before = manifests(&recording);
        let is_refused = store.checkpoint().is_err();
        if !disk.has_failed() {
            break;
        }
        if !is_put || !is_refused || manifests(&recording) == before {
            continue;
        }
        left += 1;
        assert_eq!(store.send_to_ssd(|| true), Ok(1));
        let start = recording.position();
        store.checkpoint().unwrap();
        for position in start..recording.position() {
            let killed = recording.killed_at(position);
            let store = Store::open(with_ssd(Arc::new(killed.clone()))).unwrap();
            assert_eq!(store.get(b"key"), Ok(Some(b"value".to_vec())), "killed at {position}");
            let [one, copy] = manifests(&killed);
            assert!(one.is_some() && one == copy, "killed at {position}");
        }
    }
    assert!(left > 0, "no refused checkpoint left its manifests");
}

#[test]
fn a_write_cut_short_at_any_operation() {
    live_through(Fault::ShortWrite, Durability::Always);
}

#[test]
fn a_sync_that_fails_and_then_pretends() {
    live_through(Fault::LyingSync, Durability::Always);
}

/// What a failed sync has lost can be read until the power is cut.
#[test]
fn a_sync_that_fails_and_forgets() {
    for durability in [Durability::Always, Durability::No] {
        let fails = |nth: &u64| {
            let disk = RecordingDisk::new();
            disk.fail_sync_forgetfully(*nth);
            live_on(
                Arc::new(disk.clone()),
                &disk,
                &|| disk.has_forgotten(),
                "a forgetful sync",
                *nth,
                durability,
            )
        };
        let count = (0..10_000).take_while(fails).count();
        assert!(count > 5, "{count}");
    }
}

#[test]
fn an_error_at_any_operation_of_a_store_that_does_not_wait() {
    live_through(Fault::Io, Durability::No);
}
