//! A log that is read.

use super::live::{self, FileId, Length, id_of};
use super::{Walk, number_of};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ziptier_media::disk::{Claim, DiskError};

/// Reads a log's file as far as it is the log, whoever writes it.
pub struct LogReader {
    file: File,
    path: PathBuf,
    end: End,
}

enum End {
    /// This process writes the log.
    Known(Arc<Length>),
    /// Another one may.
    Followed(Mutex<Follower>),
}

impl LogReader {
    /// Opens a log. None if the file cannot be opened. None also if its name has no number and this process does not
    /// write it: then it is no log of ziptier.
    pub fn open(path: &Path) -> Option<LogReader> {
        let file = File::open(path).ok()?;
        let end = match live::length_in(&file.metadata().ok()?) {
            Some(length) => End::Known(length),
            None => End::Followed(Mutex::new(Follower::new(path)?)),
        };
        Some(LogReader { file, path: path.to_path_buf(), end })
    }

    /// Reads bytes from an offset on: as many as there is room for, or as the log has so far.
    ///
    /// # Errors
    ///
    /// The errors of the disk.
    pub fn read(&self, offset: u64, target: &mut [u8]) -> Result<usize, DiskError> {
        let found = match &self.end {
            End::Known(length) => read_before(&self.file, length.bytes(), offset, target),
            End::Followed(follower) => follower.lock().read(&self.file, offset, target),
        };
        found.map_err(|error| DiskError::new("read", &self.path, &error))
    }

    /// Bytes that the log has so far.
    ///
    /// # Errors
    ///
    /// The errors of the disk.
    pub fn bytes(&self) -> Result<u64, DiskError> {
        let found = match &self.end {
            End::Known(length) => Ok(length.bytes()),
            End::Followed(follower) => follower.lock().bytes(&self.file),
        };
        found.map_err(|error| DiskError::new("measure", &self.path, &error))
    }
}

/// The folders in which this process has seen another one write a log, and their paths.
static FOLLOWED: Mutex<Option<HashMap<FileId, PathBuf>>> = Mutex::new(None);

/// A file that every folder of a database has.
const NAME_OF_CURRENT: &str = "CURRENT";

/// Ends the following of a database's logs. Logs without a writer that are opened from now on are all of their files.
///
/// For a process that locks the database in `dir` and recovers it. Its logs lie in `dir`, or in a folder that is no
/// database. Such folders are no longer followed, unless a process still writes there, which then belongs to another
/// database. Other databases are followed as before.
pub fn stop_following(dir: &Path) {
    let locked = fs::metadata(dir).ok().map(|found| id_of(&found));
    if let Some(folders) = &mut *FOLLOWED.lock() {
        folders.retain(|folder, path| {
            Some(*folder) != locked && (path.join(NAME_OF_CURRENT).exists() || has_writer(path))
        });
    }
}

/// Whether somebody writes a log in a folder.
fn has_writer(folder: &Path) -> bool {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    let logs = files.filter(|path| number_of(path).is_some()).filter_map(|path| File::open(path).ok());
    logs.into_iter().any(|log| Claim::is_laid(&log, 0..=u32::MAX))
}

/// A process's knowledge of a log that it does not write itself.
struct Follower {
    number: u32,
    folder: FileId,
    folder_path: PathBuf,
    /// Set once a process was seen to write the log, or another log in its folder. It stays set when the writer is
    /// gone: a torn record, or the rest of a former log, is no part of the followed log.
    is_followed: bool,
    /// The walk over a followed log, from the first read on for which there was memory.
    walk: Option<Walk>,
}

/// The claim on the file of a log.
enum Writer {
    Nobody,
    OfThis,
    /// RocksDB reuses the files of logs that it no longer needs.
    OfALaterOne,
}

impl Follower {
    /// None if the file's name has no number, or no folder is there.
    fn new(path: &Path) -> Option<Follower> {
        let number = number_of(path)?;
        let folder_path = path.parent()?.to_path_buf();
        let folder = id_of(&fs::metadata(&folder_path).ok()?);
        // A folder may have been renamed since, or its number be another folder's by now.
        let mut followed = FOLLOWED.lock();
        let known = followed.as_mut().and_then(|folders| folders.get_mut(&folder));
        let is_followed = known.map(|path| path.clone_from(&folder_path)).is_some();
        Some(Follower { number, folder, folder_path, is_followed, walk: None })
    }

    fn read(&mut self, file: &File, offset: u64, target: &mut [u8]) -> io::Result<usize> {
        loop {
            let found = match self.walk()? {
                None => read_full_at(file, offset, target)?,
                Some(walk) => {
                    let wanted = offset.saturating_add(target.len() as u64);
                    read_before(file, end_of(walk, file, wanted)?, offset, target)?
                }
            };
            if let Some(found) = self.accepted(file, found) {
                return Ok(found);
            }
        }
    }

    fn bytes(&mut self, file: &File) -> io::Result<u64> {
        loop {
            let found = match self.walk()? {
                None => file.metadata()?.len(),
                Some(walk) => end_of(walk, file, u64::MAX)?,
            };
            if let Some(found) = self.accepted(file, found) {
                return Ok(found);
            }
        }
    }

    /// The walk, if the log is followed. Without memory for the walk nothing of the log can be read.
    fn walk(&mut self) -> io::Result<Option<&mut Walk>> {
        if self.is_followed && self.walk.is_none() {
            self.walk = Some(Walk::try_new(self.number).ok_or(ErrorKind::OutOfMemory)?);
        }
        Ok(self.walk.as_mut())
    }

    /// The part of the just found bytes that belongs to the log; `None` if a walk must look again. Claims are checked
    /// after the bytes, because a claim is laid before the file gets room or the bytes of a later log.
    fn accepted<T: Default>(&mut self, file: &File, found: T) -> Option<T> {
        match self.writer(file) {
            Writer::OfALaterOne => Some(T::default()),
            Writer::OfThis if !self.is_followed => {
                // This process may have begun the log since.
                if live::is_claimed_elsewhere(file, self.number) {
                    FOLLOWED.lock().get_or_insert_default().insert(self.folder, self.folder_path.clone());
                }
                self.is_followed = true;
                None
            }
            Writer::OfThis | Writer::Nobody => Some(found),
        }
    }

    fn writer(&self, file: &File) -> Writer {
        if !Claim::is_laid(file, self.number..=u32::MAX) {
            Writer::Nobody
        } else if self.number < u32::MAX && Claim::is_laid(file, self.number + 1..=u32::MAX) {
            Writer::OfALaterOne
        } else {
            Writer::OfThis
        }
    }
}

/// The end of a log. Walks on unless `wanted` bytes are known to be there.
fn end_of(walk: &mut Walk, file: &File, wanted: u64) -> io::Result<u64> {
    if walk.whole_bytes() >= wanted {
        return Ok(walk.whole_bytes());
    }
    walk.advance(|offset, target| read_full_at(file, offset, target))
}

/// Reads what lies before `end`.
fn read_before(file: &File, end: u64, offset: u64, target: &mut [u8]) -> io::Result<usize> {
    let count = end.saturating_sub(offset).min(target.len() as u64) as usize;
    read_full_at(file, offset, &mut target[..count])
}

/// Reads until the target is full or the file ends.
fn read_full_at(file: &File, offset: u64, target: &mut [u8]) -> io::Result<usize> {
    let mut found = 0;
    while found < target.len() {
        match file.read_at(&mut target[found..], offset + found as u64) {
            Ok(0) => break,
            Ok(count) => found += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
