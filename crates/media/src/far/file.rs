//! Far memory in a file: found or made, locked, really allocated, and mapped.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, retry_on_intr};

use super::error::FarError;
use super::layout::{CHUNK_BYTES, FoundHead, HEAD_BYTES, HEAD_OFFSETS, Head, VERSION};
use super::{FarKind, MIN_BYTES};
use crate::disk::in_pieces;
use crate::mapping::{self, Mapping};
use crate::persist::{Domain, Persistence};

/// A medium that is ready for use. A file is locked, allocated, mapped, and begins with a valid head.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) mapping: Mapping,
    pub(super) persistence: Persistence,
    pub(super) kind: FarKind,
    pub(super) head: Head,
}

/// Opens the far file at `path`, or makes it where there is none or an empty one.
pub(super) fn open(
    path: &Path,
    capacity_bytes: u64,
    require_dax: bool,
    sysfs: &Path,
) -> Result<OpenFile, FarError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The lock of the folder is held until the file itself is locked. Of two processes that make the same file, one
    // finds the other's file.
    let folder = File::open(parent).map_err(failed("open the folder of", path))?;
    retry_on_intr(|| rustix::fs::flock(&folder, FlockOperation::LockExclusive))
        .map_err(|errno| failed("lock the folder of", path)(errno.into()))?;
    let asked = Asked { path, capacity_bytes, require_dax, sysfs };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(asked.not_a_file("a folder")),
        Ok(found) if !found.is_file() => Err(asked.not_a_file("a device, a pipe or a socket")),
        Ok(found) if found.len() > 0 => asked.open_existing(),
        Ok(_) => asked.create(&folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => asked.create(&folder),
        Err(source) => Err(failed("look at", path)(source)),
    }
}

struct Asked<'a> {
    path: &'a Path,
    capacity_bytes: u64,
    require_dax: bool,
    sysfs: &'a Path,
}

impl Asked<'_> {
    /// The file has another name until it is whole, so that a crash leaves no half-made file.
    fn create(&self, folder: &File) -> Result<OpenFile, FarError> {
        let unfinished = self.unfinished_path();
        let _ = fs::remove_file(&unfinished);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)
            .map_err(failed("create", self.path))?;
        let made = self.fill(file).and_then(|made| {
            fs::rename(&unfinished, self.path).map_err(failed("create", self.path))?;
            folder.sync_all().map_err(failed("sync the folder of", self.path))?;
            Ok(made)
        });
        if made.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        made
    }

    fn fill(&self, file: File) -> Result<OpenFile, FarError> {
        self.lock(&file)?;
        let head = Head { id: random(), capacity_bytes: self.capacity_bytes, sealed: false };
        self.check_room(&file, 0)?;
        let made = self.map(&file, head)?;
        self.allocate(&file, 0)?;
        file.sync_all().map_err(FarError::Sync)?;
        write_head(&made.mapping, &made.persistence, &made.head)?;
        Ok(made)
    }

    fn open_existing(&self) -> Result<OpenFile, FarError> {
        let file =
            OpenOptions::new().read(true).write(true).open(self.path).map_err(failed("open", self.path))?;
        self.lock(&file)?;
        let head = self.read_head(&file)?;
        let length_bytes = file.metadata().map_err(failed("look at", self.path))?.len();
        if length_bytes < head.capacity_bytes {
            let recorded_bytes = head.capacity_bytes;
            return Err(FarError::Truncated { path: self.path.into(), length_bytes, recorded_bytes });
        }
        if self.capacity_bytes < head.capacity_bytes {
            let (found_bytes, asked_bytes) = (head.capacity_bytes, self.capacity_bytes);
            return Err(FarError::WouldShrink { path: self.path.into(), found_bytes, asked_bytes });
        }
        self.check_room(&file, length_bytes)?;
        let mut opened = self.map(&file, head)?;
        self.allocate(&file, length_bytes)?;
        if self.capacity_bytes > head.capacity_bytes {
            file.sync_all().map_err(FarError::Sync)?;
            opened.head.capacity_bytes = self.capacity_bytes;
            write_head(&opened.mapping, &opened.persistence, &opened.head)?;
        }
        Ok(opened)
    }

    fn lock(&self, file: &File) -> Result<(), FarError> {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(Errno::WOULDBLOCK) => Err(FarError::InUse { path: self.path.into() }),
            Err(errno) => Err(failed("lock", self.path)(errno.into())),
        }
    }

    fn read_head(&self, file: &File) -> Result<Head, FarError> {
        let mut copies = [FoundHead::Foreign; 2];
        for (copy, offset) in copies.iter_mut().zip(HEAD_OFFSETS) {
            let mut bytes = [0; HEAD_BYTES];
            match file.read_exact_at(&mut bytes, offset as u64) {
                Ok(()) => *copy = Head::decode(&bytes),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                Err(source) => return Err(failed("read", self.path)(source)),
            }
        }
        let path = self.path.to_path_buf();
        match Head::of_copies(copies) {
            FoundHead::Whole(head)
                if head.capacity_bytes >= MIN_BYTES && head.capacity_bytes % CHUNK_BYTES as u64 == 0 =>
            {
                Ok(head)
            }
            FoundHead::OtherVersion(version) => Err(FarError::Version { path, version, known: VERSION }),
            FoundHead::Whole(_) | FoundHead::Foreign => Err(FarError::Foreign { path }),
        }
    }

    /// Maps the file without touching it, and finds the kind of its medium.
    fn map(&self, file: &File, head: Head) -> Result<OpenFile, FarError> {
        let (mapping, dax) =
            Mapping::of_file(file, self.capacity_bytes as usize).map_err(failed("map", self.path))?;
        let kind = if dax { FarKind::Dax } else { kind_without_dax(file) };
        if self.require_dax && !dax {
            return Err(FarError::NotDax { place: self.path.display().to_string(), found: kind.to_string() });
        }
        let own = file.try_clone().map_err(failed("map", self.path))?;
        let persistence = if dax {
            let device = file.metadata().map_err(failed("look at", self.path))?.dev();
            let domain = Domain::of_device(self.sysfs, rustix::fs::major(device), rustix::fs::minor(device));
            Persistence::of_dax(own, domain)
        } else {
            Persistence::of_page_cache(own)
        };
        Ok(OpenFile { mapping, persistence, kind, head })
    }

    /// Refuses a length for which the file system has no room. The check comes before any allocation, because some file
    /// systems fill up before they refuse.
    fn check_room(&self, file: &File, length_bytes: u64) -> Result<(), FarError> {
        let needed_bytes = self.capacity_bytes.saturating_sub(length_bytes);
        let space = rustix::fs::fstatvfs(file).map_err(|errno| failed("look at", self.path)(errno.into()))?;
        let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        if needed_bytes > free_bytes {
            return Err(FarError::NoRoom { path: self.path.into(), needed_bytes, free_bytes });
        }
        Ok(())
    }

    /// Allocates every byte of the medium, so that no access to the mapping fails for lack of space.
    fn allocate(&self, file: &File, length_bytes: u64) -> Result<(), FarError> {
        let allocate = |at, count| rustix::fs::fallocate(file, FallocateFlags::empty(), at, count);
        match in_pieces(self.capacity_bytes, allocate) {
            Ok(()) => Ok(()),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => {
                let _ = file.set_len(length_bytes);
                self.check_room(file, length_bytes)?;
                Err(failed("allocate", self.path)(errno.into()))
            }
            Err(errno) => Err(failed("allocate", self.path)(errno.into())),
        }
    }

    fn unfinished_path(&self) -> PathBuf {
        let mut name = std::ffi::OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".unfinished");
        self.path.with_file_name(name)
    }

    fn not_a_file(&self, found: &'static str) -> FarError {
        FarError::NotAFile { path: self.path.into(), found }
    }
}

/// Writes both copies of the head, one durable before the other begins.
pub(super) fn write_head(mapping: &Mapping, persistence: &Persistence, head: &Head) -> Result<(), FarError> {
    for offset in HEAD_OFFSETS {
        let target = mapping.at(offset);
        // SAFETY: the copies lie in chunk 0, which holds nothing else. Only the opener of the medium writes them, and
        // later the holder of the lock of its space.
        unsafe {
            persistence.copy(target, &head.encode());
            persistence.sync_range(target, HEAD_BYTES).map_err(FarError::Sync)?;
        }
    }
    Ok(())
}

fn kind_without_dax(file: &File) -> FarKind {
    if mapping::is_on_tmpfs(file) { FarKind::Tmpfs } else { FarKind::File }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FarError {
    let path = path.to_path_buf();
    move |source| FarError::File { action, path, source }
}

/// From the keys that the standard library draws for its hash maps.
pub(super) fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}
