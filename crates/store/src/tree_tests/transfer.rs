//! Renames and copies in a store with a log.

use std::sync::Arc;

use ziptier_media::testing::RecordingDisk;
use ziptier_tree::batch::{Batch, Condition, Need, Transferred};

use crate::{CodecChoice, DiskHandle, DurableOptions, Options, Store};

fn options() -> Options {
    Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() }
}

#[test]
fn a_large_value_is_read_for_the_log_alone_and_if_that_is_granted() {
    let large = vec![7; 300_000];
    for has_log in [false, true] {
        let durable = has_log.then(|| {
            let disk = DiskHandle(Arc::new(RecordingDisk::new()));
            DurableOptions { disk, ..DurableOptions::new("/data") }
        });
        let store = Store::open(Options { durable, ..options() }).unwrap();
        store.put(b"large", &large).unwrap();
        store.put(b"small", &[7; 2000]).unwrap();
        for keep_source in [true, false] {
            let mut needs = Vec::new();
            let mut moved = |source: &[u8], target: &[u8], grants: bool| {
                let moved = store.transfer(source, target, keep_source, true, |need| {
                    needs.push(need);
                    grants
                });
                moved.unwrap()
            };
            assert_eq!(moved(b"small", b"small too", false), Transferred::Done);
            assert_eq!(moved(b"small too", b"small", false), Transferred::Done);
            let expected = if has_log { Transferred::NotGranted } else { Transferred::Done };
            assert_eq!(moved(b"large", b"target", false), expected);
            assert_eq!(store.get(b"target").unwrap().is_none(), has_log);
            let source: &[u8] = if has_log { b"large" } else { b"target" };
            assert_eq!(moved(source, b"large too", true), Transferred::Done);
            assert_eq!(moved(b"large too", b"large", true), Transferred::Done);
            assert_eq!(store.get(b"large").unwrap(), Some(large.clone()));
            assert_eq!(needs, vec![Need::Bytes(300_000); if has_log { 3 } else { 0 }]);
            store.delete(b"target").unwrap();
        }
    }
}

#[test]
fn what_batches_renames_and_copies_write_and_log_is_counted() {
    let disk = DiskHandle(Arc::new(RecordingDisk::new()));
    let durable = Some(DurableOptions { disk, ..DurableOptions::new("/data") });
    let store = Store::open(Options { durable, ..options() }).unwrap();
    let counts = || {
        let stats = store.stats();
        (stats.writes, stats.written_bytes, stats.logged_bytes)
    };
    let batch = Batch::new().put(b"source", b"value").delete(b"x").require(b"source", Condition::Absent);
    assert_eq!((store.write(&batch), counts()), (Ok(true), (2, 12, 12)));
    assert_eq!(store.copy(b"source", b"copy", true), Ok(Transferred::Done));
    assert_eq!(counts(), (3, 21, 21));
    assert_eq!(store.rename(b"source", b"name", true), Ok(Transferred::Done));
    assert_eq!(counts(), (5, 36, 36));
}
