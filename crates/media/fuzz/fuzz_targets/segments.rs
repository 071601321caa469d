//! Opens any bytes as a segment file, with its header corrected or not, and reads any places in it. Reads must give
//! bodies or named errors, and never a body whose checksum does not cover its place.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use ziptier_media::segments::{Place, Purpose, SegmentOptions, Segments};
use ziptier_media::testing::RecordingDisk;

const OPTIONS: SegmentOptions =
    SegmentOptions { segment_bytes: 65536, write_bytes: 4096, limit_bytes: 1 << 20, read_threads: 0 };

fuzz_target!(|input: (bool, Vec<(u16, Vec<u8>)>, Vec<(u32, u32)>, u16)| {
    let (is_closed, changes, places, cut) = input;
    let disk = RecordingDisk::new();
    let dir = Path::new("/ssd");
    let open = || Segments::open(Arc::new(disk.clone()), dir, OPTIONS);
    let segments = open().expect("empty");
    for i in 1..40u8 {
        segments.append(&[i; 300], Purpose::New).expect("room");
    }
    if is_closed { segments.close() } else { segments.sync() }.expect("memory");
    drop(segments);
    let path = disk.paths()[0].clone();
    let mut contents = disk.contents(&path).expect("listed");
    for (at, bytes) in changes {
        for (into, byte) in contents.iter_mut().skip(usize::from(at)).zip(bytes) {
            *into = byte;
        }
    }
    if cut > 0 {
        contents.truncate(usize::from(cut));
    }
    disk.put(&path, contents);
    let Ok(segments) = open() else { return };
    for (offset, bytes) in places {
        for offset in [offset, 4096 + offset % 40 * 312] {
            let _ = segments.read(Place { segment: 1, offset, bytes });
            if let Ok(body) = segments.read(Place { segment: 1, offset, bytes: bytes % 600 }) {
                assert_eq!(body.len() as u32, bytes % 600);
            }
        }
    }
    let mut blocks = segments.blocks(1).expect("opened");
    while let Ok(Some((place, body))) = blocks.next_block() {
        assert_eq!(segments.read(place).as_deref(), Ok(body));
    }
});
