//! A client that may only SET stored values that look like the log's own entries; segments were used again with these
//! values in them, and the next start after a kill took the log for damaged.

use std::sync::Arc;

use ziptier::{CodecChoice, Store};
use ziptier_media::testing::RecordingDisk;

use crate::durable::{contents, options};

/// Headers of entries as a client can forge them: long records, appended when all before was durable, with the numbers
/// that come next.
fn forged(next_lsn: u64, length: u32) -> Vec<u8> {
    let header = |ahead: u64| {
        let lsn = next_lsn + ahead;
        [&length.to_le_bytes()[..], &1_u32.to_le_bytes(), &lsn.to_le_bytes(), &[0x5A; 4]].concat()
    };
    (0..1000).flat_map(header).collect()
}

#[test]
fn a_start_after_a_kill_takes_values_for_what_they_are() {
    for (bytes, length) in [(20_000, 24_000), (20_000, 6_000), (3_000, 24_000)] {
        let disk = RecordingDisk::new();
        let store = Store::open(options(Arc::new(disk.clone()), CodecChoice::None)).unwrap();
        for round in 0..6 {
            for n in 0..200_000 / bytes {
                // INFO tells it to every client.
                let lsn = store.durable_stats().unwrap().last_lsn;
                let value = forged(lsn + 1, length);
                store.put(format!("key:{n:04}").as_bytes(), &value[..bytes]).unwrap();
            }
            store.checkpoint().unwrap();
            store.put(b"after", format!("checkpoint {round}").as_bytes()).unwrap();
            let killed = Store::open(options(Arc::new(disk.copy()), CodecChoice::None)).unwrap();
            assert_eq!(contents(&killed), contents(&store), "{bytes} bytes, {length} forged, round {round}");
        }
    }
}
