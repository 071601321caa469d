//! A checkpoint syncs the log up to its end before its manifest is in force, but the records that were written
//! meanwhile do not know that. A damaged one among them is damage, not the torn tail of a crash: the start is refused
//! and leaves the folder as it was, and a salvage loses that record alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ziptier::{CodecChoice, Damage, Durability, Error, Options, Store};
use ziptier_media::disk::Disk;
use ziptier_media::log::LogError;
use ziptier_media::testing::{PausingDisk, RecordingDisk};

use crate::durable::{DIR, options, value};

/// Records before the checkpoint, during it, and after it.
const BEFORE: u64 = 30;
const DURING: u64 = 11;
const AFTER: u64 = 5;
const DURABLE_LSN: u64 = BEFORE + DURING;
const LAST_LSN: u64 = DURABLE_LSN + AFTER;

/// The key that record `lsn` puts.
fn key(lsn: u64) -> Vec<u8> {
    format!("key:{lsn:04}").into_bytes()
}

/// Writes records with these numbers. Those after the checkpoint are large: their images begin segments of their own.
fn put(store: &Store, lsns: std::ops::RangeInclusive<u64>) {
    let bytes = |lsn| if lsn > DURABLE_LSN { 20_000 } else { 20 };
    lsns.for_each(|lsn| store.put(&key(lsn), &value(lsn, bytes(lsn))).unwrap());
}

/// No record knows of another that was durable when it was appended.
fn unsynced(disk: impl Disk + 'static, salvage: bool) -> Options {
    let mut options = options(Arc::new(disk), CodecChoice::None);
    let durable = options.durable.as_mut().unwrap();
    (durable.durability, durable.salvage) = (Durability::No, salvage);
    durable.log.segment_bytes = 512 << 10;
    options
}

/// What a kill leaves after a checkpoint during which records were written, and just before the next one is in force.
fn killed() -> [RecordingDisk; 2] {
    let disk = PausingDisk::new();
    let store = Store::open(unsynced(disk.clone(), false)).unwrap();
    put(&store, 1..=BEFORE);
    let checkpoint = || store.checkpoint().unwrap();
    disk.during("/data/segments", checkpoint, || put(&store, BEFORE + 1..=DURABLE_LSN));
    let stats = store.durable_stats().unwrap();
    assert_eq!((stats.last_lsn, stats.durable_lsn), (DURABLE_LSN, DURABLE_LSN));
    put(&store, DURABLE_LSN + 1..=LAST_LSN);
    let after = disk.recording().copy();
    let before_next = disk.during(DIR, checkpoint, || disk.recording().copy());
    assert!(before_next.paths().len() > after.paths().len(), "images that no manifest names");
    [after, before_next]
}

/// The log's one segment, and where its entries begin, that of the first record first.
fn log_of(disk: &RecordingDisk) -> (PathBuf, Vec<usize>) {
    let path = disk.paths().into_iter().find(|path| path.to_string_lossy().contains("/log/log-")).unwrap();
    let bytes = disk.contents(&path).unwrap();
    let mut offsets = vec![4096];
    for _ in 0..LAST_LSN {
        let at = *offsets.last().unwrap();
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        offsets.push(at + 20 + length as usize);
    }
    (path, offsets)
}

fn files(disk: &RecordingDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.contents(&path).unwrap())).collect()
}

/// A start is refused, twice, and changes nothing; a check finds the same damage, which is returned.
fn refused(disk: &RecordingDisk) -> Damage {
    let before = files(disk);
    let refuse = || match Store::open(unsynced(disk.clone(), false)).map(drop) {
        Err(Error::Log(LogError::Damaged { path, offset, reason })) => Damage { path, offset, reason },
        other => panic!("{other:?}"),
    };
    let damage = refuse();
    assert_eq!(refuse(), damage);
    let found = ziptier::check(unsynced(disk.clone(), false).durable.as_ref().unwrap()).unwrap();
    assert_eq!(found.damages.first(), Some(&damage), "{:?}", found.damages);
    assert!(files(disk) == before, "a refused start has changed the folder");
    damage
}

/// Which keys a salvage does not find; what it skipped names `path`.
fn lost_by_salvage(disk: &RecordingDisk, path: &Path) -> Vec<u64> {
    let store = Store::open(unsynced(disk.clone(), true)).unwrap();
    let skipped = &store.recovered().unwrap().skipped;
    assert!(skipped.len() == 1 && skipped[0].contains(&*path.to_string_lossy()), "{skipped:?}");
    let is_lost = |lsn: &u64| store.get(&key(*lsn)).unwrap().is_none();
    let lost = (1..=LAST_LSN).filter(is_lost).collect();
    put(&store, LAST_LSN + 1..=LAST_LSN + 1);
    store.checkpoint().unwrap();
    drop(store);
    let again = Store::open(unsynced(disk.clone(), false)).unwrap();
    assert_eq!(
        (1..=LAST_LSN + 1).filter(|lsn| again.get(&key(*lsn)).unwrap().is_none()).collect::<Vec<_>>(),
        lost
    );
    lost
}

#[test]
fn a_flipped_bit_is_damage_and_costs_a_salvage_one_record() {
    for killed in killed() {
        let (path, offsets) = log_of(&killed);
        for lsn in BEFORE - 5..=LAST_LSN {
            let offset = offsets[lsn as usize - 1];
            let disk = killed.copy();
            let mut bytes = killed.contents(&path).unwrap();
            bytes[offset + 22] ^= 0x10;
            disk.put(&path, bytes);
            if lsn > DURABLE_LSN {
                // Nobody knows that it was ever durable.
                let store = Store::open(unsynced(disk, false)).unwrap();
                let tail = store.recovered().unwrap().torn_tail.clone().unwrap();
                assert_eq!((tail.path, tail.offset), (path.clone(), offset as u64));
                assert_eq!(store.len(), lsn - 1);
                continue;
            }
            let damage = refused(&disk);
            assert_eq!((damage.path, damage.offset), (path.clone(), offset as u64), "{}", damage.reason);
            // What the checkpoint began with is in its images.
            let expected = if lsn <= BEFORE { vec![] } else { vec![lsn] };
            assert_eq!(lost_by_salvage(&disk, &path), expected);
        }
    }
}

#[test]
fn a_lost_end_is_damage_and_its_numbers_are_not_given_out_again() {
    let [killed, _] = killed();
    let (path, offsets) = log_of(&killed);
    let first_lost = DURABLE_LSN - 3;
    let offset = offsets[first_lost as usize - 1];
    let mut bytes = killed.contents(&path).unwrap();
    bytes[offset..].fill(0);
    killed.put(&path, bytes);
    let damage = refused(&killed);
    assert_eq!((damage.path, damage.offset), (path.clone(), offset as u64), "{}", damage.reason);
    let copy = killed.copy();
    let store = Store::open(unsynced(copy, true)).unwrap();
    assert_eq!(store.durable_stats().unwrap().last_lsn, DURABLE_LSN);
    drop(store);
    assert_eq!(lost_by_salvage(&killed, &path), (first_lost..=LAST_LSN).collect::<Vec<_>>());
}

#[test]
fn a_log_without_any_file_is_damage() {
    let disk = RecordingDisk::new();
    let store = Store::open(unsynced(disk.clone(), false)).unwrap();
    put(&store, 1..=BEFORE);
    store.checkpoint().unwrap();
    // The images have all of its records, but there may have been later ones.
    let quiet = disk.copy();
    let [written_to, _] = killed();
    for (disk, durable_lsn) in [(quiet, BEFORE), (written_to, DURABLE_LSN)] {
        let of_the_log = disk.paths().into_iter().filter(|path| path.starts_with("/data/log"));
        of_the_log.for_each(|path| disk.remove(&path).unwrap());
        let damage = refused(&disk);
        assert_eq!(damage.path, Path::new("/data/log"), "{}", damage.reason);
        let store = Store::open(unsynced(disk, true)).unwrap();
        assert_eq!(store.durable_stats().unwrap().last_lsn, durable_lsn);
        assert_eq!(store.len(), BEFORE);
    }
}
