//! A disk in memory that remembers every operation.

use super::failing::input_output_error;
use super::images::Images;
use crate::disk::{Caching, DirLock, Disk, DiskError, DiskFile, OpenDir};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) type FileId = u64;

/// An operation that changes something, or makes a change durable.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Create {
        path: PathBuf,
        file: FileId,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        file: FileId,
    },
    Remove {
        path: PathBuf,
    },
    Write {
        file: FileId,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    SetLen {
        file: FileId,
        len: u64,
    },
    CreateDir {
        path: PathBuf,
    },
    SyncData {
        file: FileId,
    },
    SyncDir {
        dir: PathBuf,
    },
    /// A failed sync of a file: no later sync makes the earlier writes durable.
    Forget {
        file: FileId,
    },
}

/// Names and contents at one moment. A copy is cheap until the copy changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Contents {
    /// Folders that were made through this disk. Files may lie in other folders, too.
    pub(super) dirs: BTreeSet<PathBuf>,
    pub(super) names: BTreeMap<PathBuf, FileId>,
    pub(super) files: BTreeMap<FileId, Arc<Vec<u8>>>,
}

impl Contents {
    /// Applies the operation. Syncs change nothing.
    pub(super) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create { path, file } => {
                self.names.insert(path.clone(), *file);
                self.files.entry(*file).or_default();
            }
            Operation::Rename { from, to, file } => {
                // The old name may belong to another file by now, if operations in between were lost.
                if self.names.get(from) == Some(file) {
                    self.names.remove(from);
                }
                self.names.insert(to.clone(), *file);
            }
            Operation::Remove { path } => drop(self.names.remove(path)),
            Operation::Write { file, offset, bytes } => self.write(*file, *offset as usize, bytes),
            Operation::SetLen { file, len } => self.bytes_mut(*file).resize(*len as usize, 0),
            Operation::CreateDir { path } => drop(self.dirs.insert(path.clone())),
            Operation::SyncData { .. } | Operation::SyncDir { .. } | Operation::Forget { .. } => {}
        }
    }

    pub(super) fn write(&mut self, file: FileId, offset: usize, bytes: &[u8]) {
        let contents = self.bytes_mut(file);
        if contents.len() < offset + bytes.len() {
            contents.resize(offset + bytes.len(), 0);
        }
        contents[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn bytes_mut(&mut self, file: FileId) -> &mut Vec<u8> {
        Arc::make_mut(self.files.entry(file).or_default())
    }
}

#[derive(Debug, Default)]
struct State {
    /// The contents when the recording began, all of them durable.
    start: Contents,
    now: Contents,
    trace: Vec<Operation>,
    next_file: FileId,
    locked: BTreeSet<PathBuf>,
    /// Syncs of files before the failing one.
    syncs_left: Option<u64>,
}

impl State {
    fn record(&mut self, operation: Operation) {
        self.now.apply(&operation);
        self.trace.push(operation);
    }
}

/// A disk in memory that records every operation, so that [`RecordingDisk::images`] can rebuild the states that a power
/// cut may leave.
///
/// Folders need not be made. A made folder is durable when the folder above it is synced. Clones share the disk.
#[derive(Debug, Clone, Default)]
pub struct RecordingDisk {
    state: Arc<Mutex<State>>,
}

impl RecordingDisk {
    /// An empty disk.
    pub fn new() -> RecordingDisk {
        RecordingDisk::default()
    }

    pub(super) fn with_contents(contents: Contents) -> RecordingDisk {
        let next_file = contents.files.keys().max().map_or(0, |file| file + 1);
        let state = State { start: contents.clone(), now: contents, next_file, ..State::default() };
        RecordingDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Operations so far. Every image at this or a later position must hold everything acknowledged by now.
    pub fn position(&self) -> usize {
        self.state.lock().trace.len()
    }

    /// The states that a power cut may leave, at every position of the operations so far.
    pub fn images(&self) -> Images {
        let state = self.state.lock();
        Images::new(state.start.clone(), state.trace.clone())
    }

    /// A new disk with the present state, as after a kill: nothing is locked, and unsynced writes may still be lost.
    /// Later operations of the killed process go to this disk only.
    pub fn killed(&self) -> RecordingDisk {
        self.killed_at(self.position())
    }

    /// As [`RecordingDisk::killed`], after the first `position` operations. Successful and failed syncs count.
    pub fn killed_at(&self, position: usize) -> RecordingDisk {
        let state = self.state.lock();
        let (start, trace) = (state.start.clone(), state.trace[..position].to_vec());
        let mut now = start.clone();
        trace.iter().for_each(|operation| now.apply(operation));
        let killed = State { start, now, trace, next_file: state.next_file, ..State::default() };
        RecordingDisk { state: Arc::new(Mutex::new(killed)) }
    }

    /// Lets the `nth` sync of a file from now on (from 0) fail and lose some of the file's unsynced writes. The lost
    /// bytes can be read until the power is cut, and no later sync makes them durable. Linux's file systems behave like
    /// this when a device fails (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020).
    pub fn fail_sync_forgetfully(&self, nth: u64) {
        self.state.lock().syncs_left = Some(nth);
    }

    /// Whether the sync that was to fail has come.
    pub fn has_forgotten(&self) -> bool {
        self.state.lock().trace.iter().any(|operation| matches!(operation, Operation::Forget { .. }))
    }

    /// The same contents on another disk, all of them durable, with nothing locked.
    pub fn copy(&self) -> RecordingDisk {
        RecordingDisk::with_contents(self.state.lock().now.clone())
    }

    /// All files, by name.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state.lock().now.names.keys().cloned().collect()
    }

    /// Bytes of a file.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let file = state.now.names.get(path)?;
        state.now.files.get(file).map(|bytes| bytes.to_vec())
    }

    /// Replaces a file's bytes, or makes the file, without recording it.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) {
        let State { now, next_file, .. } = &mut *self.state.lock();
        let file = *now.names.entry(path.to_path_buf()).or_insert_with(|| {
            *next_file += 1;
            *next_file - 1
        });
        now.files.insert(file, Arc::new(bytes));
    }
}

fn error(operation: &'static str, path: &Path, kind: io::ErrorKind) -> DiskError {
    DiskError::new(operation, path, &kind.into())
}

impl Disk for RecordingDisk {
    fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let Some(parent) = dir.parent() else { return Ok(()) };
        if !self.state.lock().now.dirs.contains(dir) {
            self.create_dir(parent)?;
            self.state.lock().record(Operation::CreateDir { path: dir.to_path_buf() });
        }
        self.sync_dir(parent)
    }

    fn create(&self, path: &Path, _caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        let mut state = self.state.lock();
        if state.now.names.contains_key(path) {
            return Err(error("create", path, io::ErrorKind::AlreadyExists));
        }
        let file = state.next_file;
        state.next_file += 1;
        state.record(Operation::Create { path: path.to_path_buf(), file });
        Ok(Arc::new(RecordingFile { state: self.state.clone(), file, path: path.to_path_buf() }))
    }

    fn open(&self, path: &Path, _caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        let state = self.state.lock();
        let file = *state.now.names.get(path).ok_or_else(|| error("open", path, io::ErrorKind::NotFound))?;
        Ok(Arc::new(RecordingFile { state: self.state.clone(), file, path: path.to_path_buf() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let file =
            *state.now.names.get(from).ok_or_else(|| error("rename", from, io::ErrorKind::NotFound))?;
        state.record(Operation::Rename { from: from.to_path_buf(), to: to.to_path_buf(), file });
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        if !state.now.names.contains_key(path) {
            return Err(error("remove", path, io::ErrorKind::NotFound));
        }
        state.record(Operation::Remove { path: path.to_path_buf() });
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        let state = self.state.lock();
        let inside = state.now.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_string())).collect())
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.state.lock().record(Operation::SyncDir { dir: dir.to_path_buf() });
        Ok(())
    }

    fn open_dir(&self, dir: &Path) -> Result<Box<dyn OpenDir>, DiskError> {
        Ok(Box::new(RecordingDir { disk: self.clone(), path: dir.to_path_buf() }))
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, DiskError> {
        if !self.state.lock().locked.insert(dir.to_path_buf()) {
            return Err(DiskError::Locked { path: dir.to_path_buf() });
        }
        Ok(Box::new(RecordingLock { state: self.state.clone(), dir: dir.to_path_buf() }))
    }
}

struct RecordingDir {
    disk: RecordingDisk,
    path: PathBuf,
}

impl OpenDir for RecordingDir {
    fn sync_names(&self) -> Result<(), DiskError> {
        self.disk.sync_dir(&self.path)
    }
}

#[derive(Debug)]
struct RecordingLock {
    state: Arc<Mutex<State>>,
    dir: PathBuf,
}

impl DirLock for RecordingLock {}

impl Drop for RecordingLock {
    fn drop(&mut self) {
        self.state.lock().locked.remove(&self.dir);
    }
}

struct RecordingFile {
    state: Arc<Mutex<State>>,
    file: FileId,
    path: PathBuf,
}

impl RecordingFile {
    fn len_in(&self, state: &State) -> u64 {
        state.now.files.get(&self.file).map_or(0, |bytes| bytes.len() as u64)
    }
}

impl DiskFile for RecordingFile {
    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.len_in(&self.state.lock()))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let state = self.state.lock();
        let bytes = state.now.files.get(&self.file).map_or(&[][..], |bytes| bytes);
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError> {
        self.state.lock().record(Operation::Write { file: self.file, offset, bytes: bytes.into() });
        Ok(bytes.len())
    }

    fn preallocate(&self, len: u64) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        if self.len_in(&state) < len {
            state.record(Operation::SetLen { file: self.file, len });
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.state.lock().record(Operation::SetLen { file: self.file, len });
        Ok(())
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let left = state.syncs_left;
        state.syncs_left = left.and_then(|left| left.checked_sub(1));
        if left == Some(0) {
            state.record(Operation::Forget { file: self.file });
            return Err(DiskError::new("sync", &self.path, &input_output_error()));
        }
        state.record(Operation::SyncData { file: self.file });
        Ok(())
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
