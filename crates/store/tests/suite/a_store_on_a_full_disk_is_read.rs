//! A disk that is full when a store is started: its owner needs to read it most then, and could not even do that. It is
//! read, refuses writes with the reason, and takes them when there is room again.

use std::sync::Arc;

use ziptier::{Batch, CodecChoice, Error, Store};
use ziptier_media::disk::{Disk, DiskError};
use ziptier_media::log::LogError;
use ziptier_media::testing::{FailingDisk, RecordingDisk};

use crate::durable;
use crate::durable::{contents, options, value};

fn is_full<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let is_told = matches!(&outcome, Err(Error::Log(LogError::Disk(DiskError::Full { .. }))));
    assert!(is_told, "{outcome:?}");
}

/// A store that was killed or stopped, without the files that its log keeps for later: a disk that is full has none.
fn left(is_stopped: bool, lacks_a_copy: bool) -> (RecordingDisk, durable::Contents) {
    let disk = RecordingDisk::new();
    let store = Store::open(options(Arc::new(disk.clone()), CodecChoice::Auto)).unwrap();
    for n in 0..400 {
        store.put(format!("key:{n:04}").as_bytes(), &value(n, 300)).unwrap();
        if n == 200 {
            store.checkpoint().unwrap();
        }
    }
    let before = contents(&store);
    let left = if is_stopped {
        store.close().unwrap();
        disk.copy()
    } else {
        disk.copy()
    };
    let goes = |path: &str| path.contains("spare-") || (lacks_a_copy && path.ends_with("MANIFEST.copy"));
    for path in left.paths().into_iter().filter(|path| goes(&path.to_string_lossy())) {
        left.remove(&path).unwrap();
    }
    (left.copy(), before)
}

#[test]
fn a_start_on_a_full_disk_reads_everything_and_writes_when_there_is_room() {
    for (is_stopped, lacks_a_copy) in [(false, false), (true, false), (false, true)] {
        let (disk, before) = left(is_stopped, lacks_a_copy);
        let full = FailingDisk::that_fills(Arc::new(disk.clone()));
        full.set_full(true);
        let store = Store::open(options(Arc::new(full.clone()), CodecChoice::Auto)).unwrap();
        let stats = store.durable_stats().unwrap();
        assert!(
            stats.refusal.is_some_and(|refusal| refusal.contains("the disk is full")),
            "a refused start is told"
        );
        assert_eq!(stats.failure, None);
        assert_eq!(contents(&store), before);
        is_full(store.put(b"new", b"value"));
        is_full(store.delete(b"key:0000"));
        is_full(store.write(&Batch::new().put(b"new", b"value")));
        assert!(store.checkpoint().is_err());
        assert_eq!(contents(&store), before);
        // Stopped and started again on the full disk.
        drop(store);
        let store = Store::open(options(Arc::new(full.clone()), CodecChoice::Auto)).unwrap();
        assert_eq!(contents(&store), before);
        // Room comes back, and nobody starts anything anew.
        full.set_full(false);
        store.put(b"new", b"value").unwrap();
        assert_eq!(store.durable_stats().unwrap().refusal, None);
        store.checkpoint().unwrap();
        store.delete(b"key:0000").unwrap();
        let mut after = before.clone();
        after.insert(b"new".to_vec(), (b"value".to_vec(), None, 0));
        after.remove(&b"key:0000"[..]);
        assert_eq!(contents(&store), after);
        let killed = Store::open(options(Arc::new(disk.copy()), CodecChoice::Auto)).unwrap();
        assert_eq!(contents(&killed), after);
        drop(store);
        assert_eq!(contents(&Store::open(options(Arc::new(disk.copy()), CodecChoice::Auto)).unwrap()), after);
    }
}
