//! Opens any bytes as the files of a log, with headers and checksums corrected or not. A replay must end with records
//! or a named error. A salvage must end and leave a log that takes new records.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ziptier_media::log::{Log, LogError, LogOptions};
use ziptier_media::testing::RecordingDisk;

const DIR: &str = "/log";

/// A log of two segments, the first finished and the second sealed or not.
fn whole(is_sealed: bool) -> RecordingDisk {
    let disk = RecordingDisk::new();
    let options = LogOptions { segment_bytes: 8192, ..LogOptions::default() };
    let log =
        Log::open(Arc::new(disk.clone()), Path::new(DIR), options).expect("empty").into_log().expect("new");
    for lsn in 1..=12 {
        log.append(&[&[lsn as u8; 500]]).expect("room");
        if lsn % 3 == 0 {
            log.sync(lsn).expect("memory");
        }
    }
    if is_sealed {
        log.seal().expect("memory")
    } else {
        log.write(12).expect("memory")
    }
    disk
}

fuzz_target!(|input: (bool, bool, Vec<(bool, u16, Vec<u8>)>, u16)| {
    let (is_sealed, puts_headers_right, changes, cut) = input;
    let disk = whole(is_sealed);
    let paths: Vec<PathBuf> =
        disk.paths().into_iter().filter(|path| path.to_string_lossy().contains("log-")).collect();
    for (is_second, at, bytes) in changes {
        let path = &paths[usize::from(is_second)];
        let mut contents = disk.contents(path).expect("listed");
        for (into, byte) in contents.iter_mut().skip(usize::from(at) % 8192).zip(bytes) {
            *into = byte;
        }
        if puts_headers_right && contents.len() >= 4096 {
            let crc = crc32c::crc32c(&contents[..4092]);
            contents[4092..4096].copy_from_slice(&crc.to_le_bytes());
        }
        disk.put(path, contents);
    }
    if cut > 0 {
        let mut contents = disk.contents(&paths[1]).expect("listed");
        contents.truncate(usize::from(cut));
        disk.put(&paths[1], contents);
    }
    for salvage in [false, true] {
        let options = LogOptions { segment_bytes: 8192, salvage, ..LogOptions::default() };
        let replayed = (|| {
            let mut replay = Log::open(Arc::new(disk.copy()), Path::new(DIR), options)?;
            let mut last = 0;
            while let Some(record) = replay.next_record()? {
                assert!(record.lsn > last);
                last = record.lsn;
            }
            let log = replay.into_log()?;
            let lsn = log.append(&[b"more"])?;
            assert!(lsn > last);
            log.sync(lsn)
        })();
        match replayed {
            // No salvage sets a segment of another version aside.
            Ok(()) | Err(LogError::Foreign { .. }) => {}
            Err(LogError::Damaged { .. }) if !salvage => {}
            Err(error) => panic!("{error}"),
        }
    }
});
