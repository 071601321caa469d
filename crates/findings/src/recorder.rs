//! Copies what examinations of a machine read into a folder, so that the machine can be looked at from elsewhere.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// An attribute of the kernel has a page at most. One byte more tells that a file is longer.
const FILE_BYTES_MAX: u64 = 4097;

/// A folder that gets the parts of a machine that its callers name, by the paths that they have on the machine.
///
/// What is not there is left out. An error stops the recording, and [`Recorder::finish`] returns it.
#[derive(Debug)]
pub struct Recorder {
    root: PathBuf,
    target: PathBuf,
    result: io::Result<()>,
}

impl Recorder {
    /// Records what lies below `root` in the new folder `target`.
    ///
    /// # Errors
    /// The folder is there already, or cannot be made.
    pub fn create(root: &Path, target: &Path) -> io::Result<Recorder> {
        fs::create_dir(target)?;
        Ok(Recorder { root: root.to_owned(), target: target.to_owned(), result: Ok(()) })
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// The first thing that could not be written.
    pub fn finish(self) -> io::Result<()> {
        self.result
    }

    /// Where a path of the recording lies on the machine.
    pub fn source(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Records a folder without what is in it. Returns the names in it, sorted.
    pub fn folder(&mut self, path: &str) -> Vec<String> {
        let Ok(entries) = self.source(path).read_dir() else { return Vec::new() };
        let target = self.target.join(path);
        self.attempt(|| fs::create_dir_all(target));
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Records a small file as it is.
    pub fn file(&mut self, path: &str) {
        let mut bytes = Vec::new();
        let read =
            File::open(self.source(path)).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        if read.is_ok() {
            self.write(path, &bytes);
        }
    }

    /// Records of a text file what `keep` makes of its lines.
    pub fn lines(&mut self, path: &str, mut keep: impl FnMut(&str) -> Option<String>) {
        let Ok(text) = fs::read_to_string(self.source(path)) else { return };
        let kept: Vec<String> = text.lines().filter_map(|line| Some(keep(line)? + "\n")).collect();
        self.write(path, kept.concat().as_bytes());
    }

    /// Records that a file is there, as an empty one: with the name of the file that it is a link to.
    pub fn presence(&mut self, path: &str) {
        let Ok(file) = self.source(path).canonicalize() else { return };
        let name = file.file_name().unwrap_or_default();
        let beside = Path::new(path).with_file_name(name);
        self.write(&beside.to_string_lossy(), &[]);
        let target = self.target.join(path);
        if !target.exists() {
            self.attempt(|| symlink(name, target));
        }
    }

    /// Records a device node as an empty file with its permissions. Others may read and write the file if `is_open`.
    pub fn node(&mut self, path: &str, is_open: bool) {
        let Ok(metadata) = self.source(path).metadata() else { return };
        let others = if is_open { 0o006 } else { 0 };
        self.write(path, &[]);
        let target = self.target.join(path);
        let mode = metadata.permissions().mode() & 0o7777 | others;
        self.attempt(|| fs::set_permissions(target, fs::Permissions::from_mode(mode)));
    }

    /// Records a link to a driver, of which only the name counts.
    pub fn driver(&mut self, path: &str) {
        let Ok(driver) = self.source(path).canonicalize() else { return };
        let Some(name) = driver.file_name() else { return };
        let target = self.target.join(path);
        self.attempt(|| {
            fs::create_dir_all(target.with_file_name("drivers").join(name))?;
            symlink(Path::new("drivers").join(name), target)
        });
    }

    fn write(&mut self, path: &str, bytes: &[u8]) {
        let target = self.target.join(path);
        self.attempt(|| {
            fs::create_dir_all(target.parent().unwrap_or(&target))?;
            fs::write(target, bytes)
        });
    }

    fn attempt(&mut self, work: impl FnOnce() -> io::Result<()>) {
        if self.result.is_ok() {
            self.result = work();
        }
    }
}
