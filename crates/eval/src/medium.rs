//! A storage medium as bytes at places: a regular file or a block device, read by `pread` and written by `pwrite` past
//! the page cache.
//!
//! A medium with data of somebody else is opened for writing only if the caller says that nobody needs them. A file
//! that was made here is removed in the end.

pub(crate) mod ceiling;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, posix_fallocate};
use nix::sys::stat::{major, minor};

/// Bytes of a block, unless the device has larger ones. Direct reads and writes begin and end at blocks.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// What may happen to the bytes of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Only if the medium is new or empty.
    Write,
    /// Also if it has data: nobody needs them.
    Overwrite,
}

/// What is left of a medium in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// It was made here, and is removed.
    Nothing,
    /// It becomes an empty file again.
    EmptyFile,
    /// It keeps what was written last.
    Data,
}

/// An open medium.
#[derive(Debug)]
pub(crate) struct Medium {
    file: File,
    path: PathBuf,
    found: Found,
    is_direct: bool,
    block_bytes: usize,
    bytes: u64,
}

/// What lies at a path, unless this access to it is refused in a sentence that begins with "it".
fn find(path: &Path, access: Access) -> Result<Found, String> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(format!("it cannot look at {}: {error}", path.display())),
    };
    let kind = metadata.file_type();
    let is_protected = access == Access::Write;
    match metadata.len() {
        _ if kind.is_block_device() && is_protected => Err(format!(
            "{} is a device, whose data a benchmark would write over; add +overwrite if nobody needs them",
            path.display()
        )),
        _ if kind.is_block_device() => Ok(Found::Data),
        _ if !kind.is_file() => Err(format!("{} is neither a file nor a block device", path.display())),
        0 => Ok(Found::EmptyFile),
        bytes if is_protected => Err(format!(
            "{} has {bytes} bytes, which a benchmark would write over; name a file that is not there, or add \
             +overwrite if nobody needs them",
            path.display()
        )),
        _ => Ok(Found::Data),
    }
}

/// Opens what is there past the page cache, or through it where the file system refuses that; whether it is past it.
fn open_direct(path: &Path, writes: bool, flags: OFlag) -> io::Result<(File, bool)> {
    let open =
        |flags: OFlag| OpenOptions::new().read(true).write(writes).custom_flags(flags.bits()).open(path);
    let is_direct = |file: &File| match file.read_at(&mut Aligned::new(BLOCK_BYTES), 0) {
        Err(error) if is_refusal(&error) => Ok(false),
        other => other.map(|_| true),
    };
    match open(flags | OFlag::O_DIRECT) {
        Ok(file) if is_direct(&file)? => return Ok((file, true)),
        Err(error) if !is_refusal(&error) => return Err(error),
        _ => {}
    }
    Ok((open(flags)?, false))
}

fn is_refusal(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EINVAL as i32)
}

/// The unit in which a block device is read and written; nothing for a file.
fn device_block_bytes(file: &File) -> Option<usize> {
    let metadata = file.metadata().ok().filter(|metadata| metadata.file_type().is_block_device())?;
    let folder = format!("/sys/dev/block/{}:{}", major(metadata.rdev()), minor(metadata.rdev()));
    // A partition has the queue of the disk above it.
    let read = |queue: &str| fs::read_to_string(format!("{folder}/{queue}/logical_block_size"));
    read("queue").or_else(|_| read("../queue")).ok()?.trim().parse().ok()
}

impl Medium {
    /// Checks whether a medium may be opened, and opens nothing. The error is a sentence.
    pub(crate) fn check(path: &Path, access: Access) -> Result<(), String> {
        find(path, access).map(drop)
    }

    /// Opens a medium for so many bytes. A file gets them, and a device must have them. What is only read is taken as
    /// it is. The error is a sentence.
    pub(crate) fn open(path: &Path, bytes: u64, access: Access) -> Result<Self, String> {
        let found = find(path, access)?;
        let said = |what: &str, error: io::Error| format!("it cannot {what} {}: {error}", path.display());
        if found == Found::Nothing {
            let made = OpenOptions::new().write(true).create_new(true).open(path);
            made.map_err(|error| said("make", error))?;
        }
        // Nobody else, such as a mounted file system, may use a device that is opened exclusively.
        let is_device = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
        let writes = access != Access::Read;
        let flags = if is_device && writes { OFlag::O_EXCL } else { OFlag::empty() };
        let opened = open_direct(path, writes, flags).map_err(|error| said("open", error));
        let (file, is_direct) = opened.inspect_err(|_| remove(path, found))?;
        let block_bytes = device_block_bytes(&file).unwrap_or(BLOCK_BYTES).max(BLOCK_BYTES);
        let mut medium = Medium { file, path: path.to_owned(), found, is_direct, block_bytes, bytes: 0 };
        if writes && !is_device && bytes > 0 {
            medium.grow(bytes)?;
        }
        medium.bytes = medium.file.seek(SeekFrom::End(0)).map_err(|error| said("measure", error))?;
        match medium.bytes < bytes && writes {
            true => Err(format!("{} has {} bytes, and {bytes} are needed", path.display(), medium.bytes)),
            false => Ok(medium),
        }
    }

    /// Takes a file that was made here out of its folder, so that nothing is left however this process ends.
    pub(crate) fn unnamed(mut self) -> Self {
        if self.found == Found::Nothing {
            remove(&self.path, self.found);
            self.found = Found::EmptyFile;
        }
        self
    }

    /// Reserves room, so that a full disk is told at once.
    fn grow(&self, bytes: u64) -> Result<(), String> {
        let length = i64::try_from(bytes).map_err(|_| format!("{bytes} bytes are too many for a file"))?;
        posix_fallocate(&self.file, 0, length).map_err(|error| {
            format!("{} cannot have the {bytes} bytes that are needed: {}", self.path.display(), error.desc())
        })
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Direct reads and writes begin and end at a multiple of this.
    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Whether it was made here, so that nothing is in it yet.
    pub(crate) fn is_new(&self) -> bool {
        self.found != Found::Data
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// How it is read and written, in words.
    pub(crate) fn way(&self) -> &'static str {
        match self.is_direct {
            true => "past the page cache",
            false => "THROUGH THE PAGE CACHE, for its file system refuses O_DIRECT",
        }
    }

    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.file.read_exact_at(bytes, at).map_err(|error| format!("it cannot be read at {at}: {error}"))
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.file.write_all_at(bytes, at).map_err(|error| format!("it cannot be written at {at}: {error}"))
    }

    /// Waits until all that was written is durable.
    pub(crate) fn sync(&self) -> Result<(), String> {
        self.file.sync_data().map_err(|error| format!("it cannot be synced: {error}"))
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        remove(&self.path, self.found);
        if self.found == Found::EmptyFile {
            // What is left is no more than zeros or the benchmark's own bytes.
            let _ = self.file.set_len(0);
        }
    }
}

fn remove(path: &Path, found: Found) {
    if found == Found::Nothing {
        // A file that somebody else has removed meanwhile is gone already.
        let _ = fs::remove_file(path);
    }
}

/// Bytes that begin at a block, as direct reads and writes need them.
#[derive(Debug)]
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    pub(crate) fn new(length: usize) -> Self {
        let bytes = vec![0; length + BLOCK_BYTES];
        let start = bytes.as_ptr().align_offset(BLOCK_BYTES);
        Aligned { bytes, start, length }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_somebody_else_is_refused_and_keeps_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("accounts");
        fs::write(&path, "a user's").unwrap();
        let told = Medium::open(&path, 1 << 20, Access::Write).unwrap_err();
        assert!(told.contains("accounts has 8 bytes") && told.contains("+overwrite"), "{told}");
        assert_eq!(Medium::check(&path, Access::Write).unwrap_err(), told);
        assert_eq!(fs::read(&path).unwrap(), b"a user's");
        drop(Medium::open(&path, 1 << 20, Access::Overwrite).unwrap());
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            1 << 20,
            "what was there stays, for it was not made here"
        );
        let told = Medium::open(folder.path(), 1, Access::Overwrite).unwrap_err();
        assert!(told.contains("neither a file nor a block device"), "{told}");
    }

    #[test]
    fn what_was_made_is_removed_and_what_was_empty_is_empty_again() {
        let folder = tempfile::tempdir().unwrap();
        for (name, is_left) in [("new", false), ("empty", true)] {
            let path = folder.path().join(name);
            if is_left {
                fs::write(&path, "").unwrap();
            }
            let medium = Medium::open(&path, 8192, Access::Write).unwrap();
            assert!(medium.bytes() == 8192 && medium.is_new());
            let mut block = Aligned::new(BLOCK_BYTES);
            block.fill(7);
            medium.write(4096, &block).unwrap();
            block.fill(0);
            medium.read(4096, &mut block).unwrap();
            assert!(block.iter().all(|byte| *byte == 7));
            drop(medium);
            assert_eq!(fs::metadata(&path).ok().map(|metadata| metadata.len()), is_left.then_some(0));
        }
    }

    #[test]
    fn a_file_without_a_name_is_read_and_written_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let medium = Medium::open(&path, 8192, Access::Write).unwrap().unnamed();
        assert!(!path.exists() && medium.is_new());
        let mut block = Aligned::new(BLOCK_BYTES);
        block.fill(7);
        medium.write(4096, &block).unwrap();
        block.fill(0);
        medium.read(4096, &mut block).unwrap();
        assert!(block.iter().all(|byte| *byte == 7));
        fs::write(&path, "a user's").unwrap();
        drop(medium);
        assert_eq!(fs::read(&path).unwrap(), b"a user's");
        // What somebody else has made keeps its name.
        drop(Medium::open(&path, 8192, Access::Overwrite).unwrap().unnamed());
        assert!(path.exists());
    }

    /// Files of the kernel are read through it alone.
    #[test]
    fn a_file_system_without_direct_reads_is_read_through_the_page_cache() {
        let (file, is_direct) = open_direct(Path::new("/proc/self/comm"), false, OFlag::empty()).unwrap();
        assert!(!is_direct && file.read_at(&mut [0; 16], 0).unwrap() > 0);
    }

    #[test]
    fn room_that_no_disk_has_is_refused_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        let told = Medium::open(&path, 1 << 60, Access::Write).unwrap_err();
        assert!(told.contains("cannot have the 1152921504606846976 bytes"), "{told}");
        assert!(!path.exists());
    }
}
