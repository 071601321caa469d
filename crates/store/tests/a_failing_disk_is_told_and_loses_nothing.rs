//! A disk that fails at its n-th operation, for every n: the store says so, refuses what it cannot keep, still answers, and
//! what it had acknowledged is there when it is opened again.

#![allow(clippy::unwrap_used)]
#![cfg(not(miri))]

mod durable_scenario;

use std::sync::Arc;

use durable_scenario::{History, Write, check, contents, options};
use ziptier::{Durability, Error, Store};
use ziptier_media::log::LogError;
use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};

const STEPS: u64 = 40;

/// Lives through the scenario on a disk that fails at its `nth` operation. Whether it came to that.
fn live(fault: Fault, nth: u64, durability: Durability) -> bool {
    let recording = RecordingDisk::new();
    let disk = FailingDisk::new(Arc::new(recording.clone()), fault, nth);
    let mut history = History::default();
    let outcome = Store::open(options(Arc::new(disk.clone()), durability)).and_then(|store| {
        let outcome = (0..STEPS)
            .try_for_each(|step| history.make(&store, Write::of(nth, 0, step), &|| recording.position()));
        if outcome.is_ok() {
            assert_eq!(contents(&store, 0), history.contents(), "{fault:?} {nth}");
            return store.close();
        }
        // Nothing more is taken, for the reason that came first, and what is there is still told.
        let first = store.durable_stats().unwrap().failure.unwrap();
        let refused = store.put(b"0/refused", b"").unwrap_err();
        assert_eq!(refused, Error::Log(LogError::Poisoned { first }), "{fault:?} {nth}");
        assert!(!contents(&store, 0).contains_key(&b"0/refused"[..]));
        outcome
    });
    if let Err(error) = outcome {
        assert!(disk.has_failed(), "{fault:?} {nth}: {error:?}");
        assert!(!error.to_string().contains('\n'));
    }
    let what = format!("{fault:?} at operation {nth}");
    check(&recording.copy(), recording.position(), std::slice::from_ref(&history), durability, &what);
    for image in recording.images().sample(nth, 12) {
        let what = format!("{what}: {}", image.what);
        check(&image.disk, image.position, std::slice::from_ref(&history), durability, &what);
    }
    disk.has_failed()
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
fn a_write_cut_short_at_any_operation() {
    live_through(Fault::ShortWrite, Durability::Always);
}

#[test]
fn a_sync_that_fails_and_then_pretends() {
    live_through(Fault::LyingSync, Durability::Always);
}

#[test]
fn an_error_at_any_operation_of_a_store_that_does_not_wait() {
    live_through(Fault::Io, Durability::No);
}
