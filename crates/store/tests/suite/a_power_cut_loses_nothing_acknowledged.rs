//! A store whose power is cut: at every step of several threads' writes, with what was not synced lost, torn, or out of
//! order, it comes back with all that was acknowledged, with batches whole, and with nothing that was never written.

use std::sync::Arc;

use ziptier::{Durability, Store};
use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};
use ziptier_testing::{count, seed};

use crate::durable_scenario::{History, Write, check, options, recorded, recover};

fn recover_images(durability: Durability, seed: u64, images: usize) {
    let (disk, histories) = recorded(durability, seed, 3, 60);
    for (number, image) in disk.images().sample(seed, images).enumerate() {
        recover(&image, &histories, durability, number as u64);
    }
}

#[test]
fn every_acknowledged_write_is_there_whatever_the_power_cut_left() {
    for run in 0..4 {
        recover_images(Durability::Always, 4 * seed() + run, count("ZIPTIER_IMAGES", 600) / 4);
    }
}

#[test]
fn without_waiting_for_the_disk_the_state_is_still_one_that_was() {
    recover_images(Durability::Everysec, 10, 300);
    recover_images(Durability::No, 11, 300);
}

/// The comparison must notice a disk that only pretends to sync.
#[test]
#[should_panic(expected = "is none of")]
fn a_disk_that_never_syncs_is_noticed() {
    let recording = RecordingDisk::new();
    let disk = FailingDisk::new(Arc::new(recording.clone()), Fault::NoSync, 8);
    let store = Store::open(options(Arc::new(disk), Durability::Always)).unwrap();
    let mut history = History::default();
    for step in 0..60 {
        history.make(&store, Write::of(1, 0, step), &|| recording.position()).unwrap();
    }
    for image in recording.images().sample(1, 500) {
        check(&image.disk, image.position, std::slice::from_ref(&history), Durability::Always, &image.what);
    }
}

/// Emptying is no single step: keys go leaf by leaf. Once it is acknowledged, none comes back.
#[test]
fn what_was_emptied_stays_empty() {
    let disk = RecordingDisk::new();
    let store = Store::open(options(Arc::new(disk.clone()), Durability::Always)).unwrap();
    for n in 0..400u32 {
        store.put(&n.to_be_bytes(), &[n as u8; 60]).unwrap();
    }
    let filled = disk.position();
    store.clear().unwrap();
    let emptied = disk.position();
    store.put(b"new", b"life").unwrap();
    let put = disk.position();
    for image in disk.images().sample(3, 600).filter(|image| image.position >= filled) {
        let store = Store::open(options(Arc::new(image.disk.clone()), Durability::Always)).unwrap();
        let new = u64::from(store.get(b"new").unwrap().is_some());
        assert!(image.position < put || new == 1, "{}", image.what);
        assert!(image.position < emptied || store.len() == new, "{}", image.what);
        assert!(store.range(..).all(|record| {
            record.is_ok_and(|(key, value)| key == b"new" || (value.len() == 60 && value[0] == key[3]))
        }));
    }
}
