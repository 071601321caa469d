//! A read that fails on the medium shows that a file is damaged. A read that the system refuses shows nothing about the
//! file, and must never be taken for damage.

use std::io;
use std::path::Path;
use std::sync::Arc;
use ziptier_media::disk::{Caching, Disk, DiskError, read_good_at};
use ziptier_media::testing::{FailingDisk, RecordingDisk};

const PATH: &str = "/d/file";

/// The error of Linux with this number.
fn error(operation: &'static str, number: i32) -> DiskError {
    DiskError::new(operation, Path::new(PATH), &io::Error::from_raw_os_error(number))
}

#[test]
fn only_a_failure_of_the_medium_is_damage() {
    // EIO, EBADMSG, EUCLEAN, ENODATA.
    for number in [5, 74, 117, 61] {
        for operation in ["open", "look at", "read"] {
            let reason = error(operation, number).unreadable().unwrap();
            assert!(reason.starts_with("it cannot be read: ") && !reason.contains(PATH), "{reason}");
        }
        assert_eq!(error("write", number).unreadable(), None);
        assert_eq!(error("sync", number).unreadable(), None);
    }
    // ENOENT, EACCES, EPERM, ENFILE, EMFILE, ENOMEM, EAGAIN, ENOSPC, EROFS.
    for number in [2, 13, 1, 23, 24, 12, 11, 28, 30] {
        assert_eq!(error("open", number).unreadable(), None, "error {number}");
    }
}

#[test]
fn whole_pages_before_a_bad_one_are_read() {
    let recording = RecordingDisk::new();
    recording.put(Path::new(PATH), (0..20_000_u32).map(|at| (at / 100) as u8).collect());
    for (offset, bad, good) in [
        (0, 9_000..9_001, Ok(8192)),
        (100, 9_000..9_001, Ok(8092)),
        (8_192, 9_000..9_001, Err(())),
        (12_288, 9_000..9_001, Ok(7_712)),
        (0, 0..u64::MAX, Err(())),
        (0, 30_000..u64::MAX, Ok(20_000)),
    ] {
        let disk = FailingDisk::with_bad_bytes(Arc::new(recording.clone()), |_| true, bad);
        let file = disk.open(Path::new(PATH), Caching::Cached).unwrap();
        let mut bytes = vec![0; 25_000];
        let read = read_good_at(&*file, offset, &mut bytes);
        assert_eq!(read.clone().map_err(|_| ()), good, "from byte {offset}");
        let is_right = |(at, byte): (usize, &u8)| *byte == ((at as u64 + offset) / 100) as u8;
        assert!(bytes[..read.unwrap_or(0)].iter().enumerate().all(is_right));
    }
}
