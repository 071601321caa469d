//! A file on a DAX file system or on tmpfs, written by stores into a mapping. On DAX a write needs no system call, and
//! a fence makes it durable. On tmpfs there is nothing to sync, and a store costs a tenth of a write.
//!
//! For files that have their full length before they are written, such as segments of the log. Writes beyond that
//! length go through the file. Reads go through the file, too: on a damaged medium they return an error, where a load
//! would kill the process.

use super::real::RealFile;
use super::{DiskError, DiskFile};
use crate::mapping::{self, Mapping};
use crate::persist::{Domain, Persistence};
use parking_lot::Mutex;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// See the module.
pub(super) struct MappedFile {
    file: RealFile,
    persistence: Persistence,
    state: Mutex<State>,
}

/// State that only one thread at a time may read and change.
struct State {
    mapping: Mapping,
    /// Bytes of the mapping that the file backs. A store beyond them would kill the process.
    backed_bytes: u64,
    /// Whether a write went through the file. A fence does not make such a write durable.
    changed_in_file: bool,
}

impl MappedFile {
    /// Maps a file, if stores into it become durable without a system call. Otherwise returns the file.
    pub(super) fn new(file: RealFile) -> Result<MappedFile, RealFile> {
        let Ok(found) = file.file().metadata() else { return Err(file) };
        // A store into a hole makes the file system allocate, and kills the process if there is no space.
        if found.len() == 0 || found.blocks() * 512 < found.len() {
            return Err(file);
        }
        let Ok((mapping, is_dax)) = Mapping::of_file(file.file(), found.len() as usize) else {
            return Err(file);
        };
        let persistence = if is_dax {
            let Ok(own) = file.file().try_clone() else { return Err(file) };
            let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
            Persistence::of_dax(own, Domain::of_device(Path::new("/sys"), major, minor))
        } else if mapping::is_on_tmpfs(file.file()) {
            Persistence::of_tmpfs()
        } else {
            return Err(file);
        };
        if is_dax && !persistence.is_immediate() {
            return Err(file);
        }
        Ok(MappedFile::of(file, mapping, persistence))
    }

    /// Maps the first `bytes` bytes in the way that the file was mapped first. Writes to bytes that cannot be mapped go
    /// through the file.
    fn map(&self, bytes: u64) -> io::Result<Mapping> {
        if self.persistence.is_immediate() {
            Mapping::of_dax_file(self.file.file(), bytes as usize)
        } else {
            Mapping::of_file(self.file.file(), bytes as usize).map(|(mapping, _)| mapping)
        }
    }

    fn of(file: RealFile, mapping: Mapping, persistence: Persistence) -> MappedFile {
        let backed_bytes = mapping.bytes() as u64;
        MappedFile {
            file,
            persistence,
            state: Mutex::new(State { mapping, backed_bytes, changed_in_file: false }),
        }
    }
}

impl DiskFile for MappedFile {
    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.file.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError> {
        let mut state = self.state.lock();
        let room = state.backed_bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
        if room == 0 {
            state.changed_in_file = true;
            return self.file.write_at(offset, bytes);
        }
        // SAFETY: the bytes lie in the mapping and in the file, and nobody else writes there: the lock is held. Nobody
        // reads through the mapping.
        unsafe { self.persistence.copy(state.mapping.at(offset as usize), &bytes[..room]) };
        // Only the thread that stored can wait for its stores, and another thread may call sync.
        self.persistence.drain();
        Ok(room)
    }

    fn preallocate(&self, len: u64) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        state.changed_in_file = true;
        self.file.preallocate(len)?;
        if len > state.backed_bytes
            && let Ok(mapping) = self.map(len)
        {
            (state.mapping, state.backed_bytes) = (mapping, len);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        state.backed_bytes = state.backed_bytes.min(len);
        state.changed_in_file = true;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        if state.changed_in_file {
            self.file.sync_data()?;
            state.changed_in_file = false;
        }
        Ok(())
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn is_mapped(&self) -> bool {
        true
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    fn durable_after(&self) -> String {
        self.persistence.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{read_full_at, write_all_at};
    use std::fs::File;

    const BYTES: u64 = 64 << 10;

    /// A file of the page cache, mapped as if it were persistent memory.
    #[cfg(not(miri))]
    fn mapped(file: File) -> MappedFile {
        use std::os::fd::AsFd;
        let own = file.as_fd().try_clone_to_owned().unwrap().into();
        let (mapping, _) = Mapping::of_file(&file, BYTES as usize).unwrap();
        let file = RealFile::of(file, Path::new("mapped"));
        MappedFile::of(file, mapping, Persistence::of_dax(own, Domain::MemoryController))
    }

    #[test]
    #[cfg(not(miri))]
    fn a_mapped_file_is_a_file() {
        let (ours, theirs) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        ours.set_len(BYTES).unwrap();
        theirs.set_len(BYTES).unwrap();
        let files: [&dyn DiskFile; 2] = [&mapped(ours), &RealFile::of(theirs, Path::new("file"))];
        let mut random = fastrand::Rng::with_seed(7);
        for n in 0..3000 {
            // Up to twice the length, so that writes cross the end of the file. The end moves, too.
            let (offset, len) = (random.u64(..2 * BYTES), random.usize(..5000));
            match random.u8(..20) {
                0 => files.map(|file| file.set_len(offset).unwrap()),
                1 => files.map(|file| file.preallocate(offset.max(1)).unwrap()),
                2 => files.map(|file| file.sync_data().unwrap()),
                _ => files.map(|file| write_all_at(file, offset, &vec![n as u8; len]).unwrap()),
            };
            let read = files.map(|file| {
                let mut bytes = vec![0; 3 * BYTES as usize];
                let count = read_full_at(file, 0, &mut bytes).unwrap();
                assert_eq!(Ok(count as u64), file.len());
                bytes
            });
            assert!(read[0] == read[1], "after step {n}");
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn where_there_is_no_dax_and_where_there_are_holes_a_file_stays_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for allocated in [false, true] {
            let path = folder.path().join(format!("{allocated}"));
            let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
            file.set_len(BYTES).unwrap();
            if allocated {
                std::os::unix::fs::FileExt::write_all_at(&file, &[1; BYTES as usize], 0).unwrap();
            }
            let back = MappedFile::new(RealFile::of(file, &path)).err().unwrap();
            assert_eq!((back.len(), back.durable_after()), (Ok(BYTES), "fdatasync".to_owned()));
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn a_file_on_tmpfs_grows_with_its_mapping() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
            return ziptier_testing::not_run("tmpfs", "mount one at /dev/shm");
        };
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; BYTES as usize], 0).unwrap();
        let file = MappedFile::new(RealFile::of(file, Path::new("tmpfs"))).ok().unwrap();
        assert!(file.durable_after().starts_with("tmpfs"));
        file.preallocate(2 * BYTES).unwrap();
        assert_eq!(file.state.lock().backed_bytes, 2 * BYTES);
        write_all_at(&file, BYTES - 3, &[2; 6]).unwrap();
        let mut read = [0; 8];
        assert_eq!(read_full_at(&file, BYTES - 4, &mut read), Ok(8));
        assert_eq!(read, [1, 2, 2, 2, 2, 2, 2, 0]);
    }

    /// The stores themselves, on memory of the test's own.
    #[test]
    fn stores_stay_where_they_belong() {
        let file = tempfile::tempfile().unwrap();
        let persistence = Persistence::of_dax(file.try_clone().unwrap(), Domain::Caches);
        let file =
            MappedFile::of(RealFile::of(file, Path::new("heap")), Mapping::of_heap(&[0; 300]), persistence);
        assert_eq!(file.write_at(100, &[7; 50]), Ok(50));
        assert_eq!(file.write_at(250, &[8; 90]), Ok(50), "the rest lies beyond the mapping");
        let state = file.state.lock();
        // SAFETY: nobody writes any more.
        let bytes = unsafe { state.mapping.slice(0, 300) };
        let counted = [0, 7, 8].map(|wanted| bytes.iter().filter(|byte| **byte == wanted).count());
        assert_eq!(counted, [200, 50, 50]);
        assert_eq!((bytes[99], bytes[100], bytes[149], bytes[150], bytes[250]), (0, 7, 7, 0, 8));
    }
}
