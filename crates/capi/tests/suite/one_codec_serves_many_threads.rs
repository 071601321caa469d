//! A host such as the JVM calls one codec from all of its threads. Contexts that two threads shared would mix their
//! blocks up.

use std::thread;

use ziptier_capi::status::ziptier_status::*;

use crate::support::{CODECS, codec_of, records};

const THREADS: usize = 8;
const ROUNDS: usize = 200;

#[test]
fn threads_get_their_own_blocks_back() {
    for row in CODECS {
        let codec = codec_of(row);
        let records = records(2000);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (codec, records) = (&codec, &records);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let start = (thread * ROUNDS + round) % (records.len() - 40);
                        let raw = records[start..start + 1 + round % 40].concat();
                        let packed = codec.packed(&raw);
                        assert_eq!(codec.decompress_exact(&packed, raw.len()), (ZIPTIER_OK, raw.clone()));
                        assert_eq!(codec.decompress(&packed, raw.len()).2, raw);
                    }
                });
            }
        });
        // A frame of a block that does not shrink needs no call, and a model leaves empty blocks to the CPU.
        if !row.0.iter().any(|(name, _)| ["frame", "model"].contains(name)) {
            let calls = (THREADS * ROUNDS) as u64;
            assert_eq!(codec.counter("compress_calls"), calls, "{row:?}");
            assert_eq!(codec.counter("decompress_calls"), 2 * calls, "{row:?}");
            assert_eq!(codec.counter("faults"), 0, "{row:?}");
        }
    }
}
