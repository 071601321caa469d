//! A disk that holds an operation while a test does something else.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use parking_lot::Mutex;

use super::RecordingDisk;
use crate::disk::{Caching, DirLock, Disk, DiskError, DiskFile, OpenDir};

/// A disk that waits once before it makes a file in a folder, or locks that folder.
#[derive(Clone)]
pub struct PausingDisk {
    disk: RecordingDisk,
    pause: Arc<Mutex<Option<Pause>>>,
}

struct Pause {
    dir: PathBuf,
    begun: Sender<()>,
    /// Ends when the sender goes.
    ended: Receiver<()>,
}

impl PausingDisk {
    /// A disk that has nothing.
    #[expect(clippy::new_without_default, reason = "no test makes one by default")]
    pub fn new() -> Self {
        Self { disk: RecordingDisk::new(), pause: Arc::default() }
    }

    /// The disk below, which holds the written bytes.
    pub fn recording(&self) -> &RecordingDisk {
        &self.disk
    }

    /// Runs `meanwhile` when `work`, in another thread, is about to make a file in `dir`, or to lock `dir`.
    ///
    /// # Panics
    ///
    /// `work` makes no file there, and does not lock the folder.
    pub fn during<T>(
        &self,
        dir: impl Into<PathBuf>,
        work: impl FnOnce() + Send,
        meanwhile: impl FnOnce() -> T,
    ) -> T {
        let ((begun, has_begun), (end, ended)) = (channel(), channel());
        *self.pause.lock() = Some(Pause { dir: dir.into(), begun, ended });
        thread::scope(|scope| {
            scope.spawn(move || {
                work();
                // If `work` came to no pause, this drops the sender, so that the receiver does not wait in vain.
                drop(self.pause.lock().take());
            });
            has_begun.recv().expect("a file is made in the folder, or the folder is locked");
            // The sender is dropped even after a panic.
            let _ends: Sender<()> = end;
            meanwhile()
        })
    }

    fn pause_at(&self, dir: Option<&Path>) {
        let pause = self.pause.lock().take_if(|pause| dir == Some(&pause.dir));
        if let Some(Pause { begun, ended, .. }) = pause {
            begun.send(()).expect("the other thread waits for it");
            ended.iter().for_each(drop);
        }
    }
}

impl Disk for PausingDisk {
    fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.disk.create_dir(dir)
    }

    fn create(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.pause_at(path.parent());
        self.disk.create(path, caching)
    }

    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.disk.open(path, caching)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        self.disk.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.disk.sync_dir(dir)
    }

    fn open_dir(&self, dir: &Path) -> Result<Box<dyn OpenDir>, DiskError> {
        self.disk.open_dir(dir)
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, DiskError> {
        self.pause_at(Some(dir));
        self.disk.lock_dir(dir)
    }
}
