//! A file that says, while it is written, under which number.
//!
//! A claim is a lock on one byte far behind the end of any file. It belongs to the open file and so ends with the process, however
//! that ends; it follows the file through renames, and any process that may read the file may ask for it. Nobody is kept from
//! anything by it.

use super::DiskError;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The byte of number 0; files end long before.
const BYTE_OF_ZERO: i64 = 1 << 62;

/// A claim on a file, until it is dropped or the process ends. A child that is forked and runs no other program has it, too.
#[derive(Debug)]
pub struct Claim {
    _file: File,
}

impl Claim {
    /// Claims a file under a number, beside the claims that it has.
    ///
    /// On a file system without locks nobody sees the claim.
    ///
    /// # Errors
    ///
    /// The file can't be opened.
    pub fn lay(path: &Path, number: u32) -> Result<Claim, DiskError> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(|error| DiskError::new("open", path, &error))?;
        let _ = ask(&file, libc::F_OFD_SETLK, number..=number);
        Ok(Claim { _file: file })
    }

    /// Whether anybody, in this process or another, claims a file under one of these numbers.
    pub fn is_laid(file: &File, numbers: RangeInclusive<u32>) -> bool {
        !numbers.is_empty()
            && ask(file, libc::F_OFD_GETLK, numbers).is_ok_and(|found| found.l_type != libc::F_UNLCK as i16)
    }
}

/// Sets or looks for a lock on the bytes of these numbers: what the system made of the question.
fn ask(file: &File, command: libc::c_int, numbers: RangeInclusive<u32>) -> io::Result<libc::flock> {
    let (first, last) = (i64::from(*numbers.start()), i64::from(*numbers.end()));
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: BYTE_OF_ZERO + first,
        l_len: last - first + 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and both commands take a `flock`, which lives through the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) } {
        0 => Ok(lock),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_seen_under_its_number_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let (path, renamed) = (folder.path().join("file"), folder.path().join("renamed"));
        std::fs::write(&path, b"bytes").unwrap();
        let claim = Claim::lay(&path, 7).unwrap();
        std::fs::rename(&path, &renamed).unwrap();
        let file = File::open(&renamed).unwrap();
        let is_laid = |numbers| Claim::is_laid(&file, numbers);
        assert!(is_laid(7..=7) && is_laid(0..=u32::MAX) && !is_laid(0..=6) && !is_laid(8..=u32::MAX));
        let later = Claim::lay(&renamed, u32::MAX).unwrap();
        drop(claim);
        assert!(!is_laid(7..=7) && is_laid(8..=u32::MAX));
        drop(later);
        assert!(!is_laid(0..=u32::MAX));
        assert!(Claim::lay(&path, 7).is_err(), "a claim on no file");
    }
}
