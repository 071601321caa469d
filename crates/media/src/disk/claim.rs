//! Marks a file, while a process writes it, with a number that other processes can read.
//!
//! A claim is a lock on one byte far behind the end of any file. The lock belongs to the open file, which children do
//! not inherit, so it ends with the process. It follows the file through renames. Any process that may read the file
//! can look for the lock. A claim keeps nobody from using the file.

use super::DiskError;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// The byte of number 0, far behind the end of any file.
const BYTE_OF_ZERO: i64 = 1 << 62;

/// A claim on a file, until the claim is dropped or the process ends. A forked child does not have the claim.
#[derive(Debug)]
pub struct Claim {
    file: File,
    number: u32,
    slot: Option<&'static AtomicI32>,
}

impl Claim {
    /// Claims a file under a number, in addition to existing claims.
    ///
    /// On a file system without locks no process sees the claim.
    ///
    /// # Errors
    ///
    /// The file can't be opened.
    pub fn lay(path: &Path, number: u32) -> Result<Claim, DiskError> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(|error| DiskError::new("open", path, &error))?;
        let slot = children::keep_from(file.as_raw_fd());
        let _ = ask(&file, libc::F_OFD_SETLK, libc::F_WRLCK, number..=number);
        Ok(Claim { file, number, slot })
    }

    /// Whether this or another process claims a file under one of these numbers.
    pub fn is_laid(file: &File, numbers: RangeInclusive<u32>) -> bool {
        !numbers.is_empty()
            && ask(file, libc::F_OFD_GETLK, libc::F_WRLCK, numbers)
                .is_ok_and(|found| found.l_type != libc::F_UNLCK as i16)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = ask(&self.file, libc::F_OFD_SETLK, libc::F_UNLCK, self.number..=self.number);
        if let Some(slot) = self.slot {
            slot.store(children::NONE, Ordering::Release);
        }
    }
}

/// Replaces claimed files in forked children. Otherwise a child would keep the lock alive after its parent has ended.
mod children {
    use super::*;

    /// More claims than a process has open logs. Children inherit the claims beyond this number.
    static FILES: [AtomicI32; 1024] = [const { AtomicI32::new(NONE) }; 1024];
    /// The file that children get instead, once the fork handler is installed.
    static NOTHING: OnceLock<Option<File>> = OnceLock::new();
    pub(super) const NONE: RawFd = -1;

    /// Withholds an open file from children that are forked from now on, until its slot is empty again.
    pub(super) fn keep_from(file: RawFd) -> Option<&'static AtomicI32> {
        NOTHING.get_or_init(|| {
            let nothing = File::open("/dev/null").ok()?;
            // SAFETY: the handler is a function of this library, which glibc forgets when the library is unloaded.
            let is_known = unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0;
            is_known.then_some(nothing)
        });
        let takes = |slot: &&AtomicI32| {
            slot.compare_exchange(NONE, file, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        FILES.iter().find(takes)
    }

    /// Runs in a new child, where no lock may be taken and nothing allocated.
    extern "C" fn in_child() {
        let Some(Some(nothing)) = NOTHING.get() else { return };
        for slot in &FILES {
            let file = slot.load(Ordering::Acquire);
            if file != NONE {
                // SAFETY: `dup3` is allowed in a forked child. The number still names an open file, as its owner
                // expects.
                unsafe { libc::dup3(nothing.as_raw_fd(), file, libc::O_CLOEXEC) };
            }
        }
    }
}

/// Sets or looks for a lock on the bytes of these numbers, and returns the system's answer.
fn ask(
    file: &File,
    command: libc::c_int,
    kind: libc::c_int,
    numbers: RangeInclusive<u32>,
) -> io::Result<libc::flock> {
    let (first, last) = (i64::from(*numbers.start()), i64::from(*numbers.end()));
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: BYTE_OF_ZERO + first,
        l_len: last - first + 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and both commands take a `flock`, which lives
    // through the call.
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

    #[test]
    fn a_child_does_not_keep_the_claim_of_a_process_that_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"bytes").unwrap();
        let claim = Claim::lay(&path, 7).unwrap();
        // SAFETY: the child only waits, which any child may.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            }
        }
        let file = File::open(&path).unwrap();
        let was_laid = Claim::is_laid(&file, 7..=7);
        // Closes the file as the end of a process does, without unlocking it.
        let copied = claim.file.as_raw_fd();
        let nothing = File::open("/dev/null").unwrap();
        // SAFETY: the number stays that of an open file.
        unsafe { libc::dup3(nothing.as_raw_fd(), copied, libc::O_CLOEXEC) };
        // The child's handler may still be running or waiting for a processor.
        let is_gone = (0..60_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            !Claim::is_laid(&file, 7..=7)
        });
        let is_alive = std::path::Path::new(&format!("/proc/{child}")).exists();
        // SAFETY: the child is ours, and nobody has waited for it.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(was_laid && is_gone && is_alive);
    }
}
