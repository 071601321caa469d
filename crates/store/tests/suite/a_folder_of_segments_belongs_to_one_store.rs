//! Two stores that are told to keep their segments in one folder: the second must be refused before it claims the
//! folder, or the first one's next start is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use ziptier::{CodecChoice, Error, Options, SsdOptions, Store, dump, restore};
use ziptier_media::disk::{Disk, DiskError, RealDisk};
use ziptier_media::log::LogError;
use ziptier_media::testing::RecordingDisk;

use crate::durable::{flip_bits, options};

const SEGMENTS: &str = "/ssd/segments";

fn on(disk: &RecordingDisk, dir: &str) -> Options {
    let mut options = options(Arc::new(disk.clone()), CodecChoice::None);
    let durable = options.durable.as_mut().unwrap();
    durable.dir = dir.into();
    let ssd = SsdOptions { path: Some(SEGMENTS.into()), limit_bytes: 8 << 20 };
    Options { ssd: Some(ssd), ..options }
}

fn is_locked<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Log(LogError::Disk(DiskError::Locked { path }))) if path == Path::new(SEGMENTS))
}

/// What a store does between its look at the folder and its claim is done by nobody else: the folder is locked by then.
#[test]
fn a_folder_that_another_store_holds_is_not_claimed() {
    let disk = RecordingDisk::new();
    // The other store has the folder, and has not said so yet.
    let lock = disk.lock_dir(Path::new(SEGMENTS)).unwrap();
    assert!(is_locked(Store::open(on(&disk, "/data/b"))));
    let claim = Path::new(SEGMENTS).join("STORE");
    assert_eq!(disk.contents(&claim), None, "the folder was claimed without its lock");
    drop(lock);
    let first = Store::open(on(&disk, "/data/a")).unwrap();
    first.put(b"key", b"value").unwrap();
    let claimed = disk.contents(&claim);
    assert!(Store::open(on(&disk, "/data/b")).is_err());
    assert_eq!(disk.contents(&claim), claimed);
    first.checkpoint().unwrap();
    drop(first);
    assert_eq!(Store::open(on(&disk, "/data/a")).unwrap().get(b"key").unwrap().unwrap(), b"value");
}

#[test]
fn a_restore_locks_the_folder_that_it_fills() {
    let disk = RecordingDisk::new();
    let store = Store::open(options(Arc::new(disk.clone()), CodecChoice::None)).unwrap();
    store.put(b"key", b"value").unwrap();
    let mut stream = Vec::new();
    dump(&options(Arc::new(disk.clone()), CodecChoice::None).durable.unwrap(), &mut stream).unwrap();
    let mut into = on(&disk, "/data/c").durable.unwrap();
    into.segments_dir = Some(SEGMENTS.into());
    let lock = disk.lock_dir(Path::new(SEGMENTS)).unwrap();
    assert!(is_locked(restore(&into, &mut &*stream)));
    drop(lock);
    restore(&into, &mut &*stream).unwrap();
    assert_eq!(Store::open(on(&disk, "/data/c")).unwrap().get(b"key").unwrap().unwrap(), b"value");
}

/// The folder of segments no longer says whose it is. The manifest does, however the path is spelled.
#[test]
fn a_salvage_takes_the_folder_of_the_manifest_by_any_path() {
    let folder = tempfile::tempdir().unwrap();
    let [ssd, link, other] = ["ssd", "link", "other"].map(|name| folder.path().join(name));
    let on = |path: &Path| {
        let mut options = options(Arc::new(RealDisk), CodecChoice::None);
        options.durable.as_mut().unwrap().dir = folder.path().join("store");
        let ssd = SsdOptions { path: Some(path.to_path_buf()), limit_bytes: 8 << 20 };
        Options { ssd: Some(ssd), ..options }
    };
    let salvaging = |path: &Path| {
        let mut options = on(path);
        options.durable.as_mut().unwrap().salvage = true;
        options
    };
    let store = Store::open(on(&ssd)).unwrap();
    store.put(b"key", b"value").unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    flip_bits(&ssd.join("STORE"), 14, 100);
    symlink(&ssd, &link).unwrap();
    fs::create_dir(&other).unwrap();
    fs::copy(ssd.join("STORE"), other.join("STORE")).unwrap();
    assert!(Store::open(on(&link)).is_err());
    let refused = Store::open(salvaging(&other)).err().unwrap().to_string();
    assert!(refused.contains("STORE is damaged") && refused.contains(&*ssd.to_string_lossy()), "{refused}");
    let store = Store::open(salvaging(&link)).unwrap();
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
    assert!(store.recovered().unwrap().skipped[0].contains("STORE"));
}
