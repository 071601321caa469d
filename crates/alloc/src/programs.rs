//! Finds the programs that run with the library, and says of another program why it cannot be served.
//!
//! For the command alone: this module allocates, and reads `/proc`.

mod executable;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, os::fd::OwnedFd};

use core::sync::atomic::Ordering::Relaxed;

use crate::configuration::{Configuration, Mistake};
use crate::page::{AttachError, SharedPage};
pub use executable::Linkage;

/// What `/proc/PID/fd` and `/proc/PID/maps` call the file of a page.
const PAGE_NAME: &str = "/memfd:ziptier-alloc (deleted)";
/// The name of the library in `LD_PRELOAD` and in `/proc/PID/maps`.
const LIBRARY_NAME: &str = "libziptier_alloc";

/// A running program with the library.
#[derive(Debug)]
pub struct Program {
    /// Its process.
    pub pid: u32,
    /// The name that the kernel has for it.
    pub name: String,
    page: SharedPage,
    /// Another descriptor of the page's file, for locks.
    file: File,
}

/// A process that the command cannot show or change. `Display` writes the sentence.
#[derive(Debug)]
pub struct Obstacle {
    /// The process.
    pub pid: u32,
    name: String,
    /// Why.
    pub reason: Reason,
}

/// Why the command cannot show or change a process.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// There is no process of that number.
    NoProcess,
    /// It runs no program: it is a thread of the kernel, or has ended and waits for its parent.
    NoExecutable,
    /// Only its user and root may look at it.
    NoPermission,
    /// It runs without the library, which it could have.
    NotPreloaded,
    /// Its environment names the library, and the loader did not load it.
    NotLoaded,
    /// Its executable cannot have the library.
    CannotPreload(Linkage),
    /// It has the library and closed the file of the page, or was forked and has not ticked.
    FileClosed,
    /// It has the page of its parent: it was forked and has not ticked.
    PageOfParent(u32),
    /// Its page cannot be used.
    Page(AttachError),
    /// The system refuses.
    System(io::Error),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if !self.name.is_empty() {
            write!(f, " ({})", self.name)?;
        }
        match &self.reason {
            Reason::NoProcess => f.write_str(": there is no such process"),
            Reason::NoExecutable => {
                f.write_str(" runs no program: it is a thread of the kernel, or has ended")
            }
            Reason::NoPermission => {
                f.write_str(" belongs to another user: run this command as that user, or as root")
            }
            Reason::NotPreloaded => f.write_str(
                " runs without the library: start it again with LD_PRELOAD set to libziptier_alloc.so, or by ziptier \
                 alloc run",
            ),
            Reason::NotLoaded => f.write_str(
                " has LD_PRELOAD set to the library, and the loader did not load it: its stderr says why; the loader \
                 ignores LD_PRELOAD for a program with more rights than its user has",
            ),
            Reason::CannotPreload(linkage) => write!(f, " cannot be served: {linkage}"),
            Reason::FileClosed => f.write_str(
                " runs with the library and has closed the file by which the command finds its page, or was forked and \
                 has allocated too little since: run this command as root",
            ),
            Reason::PageOfParent(parent) => write!(
                f,
                " was forked and shares the page of process {parent} until it has allocated some memory: ask for that \
                 process"
            ),
            Reason::Page(error) => write!(f, " cannot be shown: {error}"),
            Reason::System(error) => write!(f, " cannot be looked at: {error}"),
        }
    }
}

impl core::error::Error for Obstacle {}

/// A change that a program did not take.
#[derive(Debug)]
pub enum ChangeError<'a> {
    /// The text is wrong.
    Mistake(Mistake<'a>),
    /// The system refused to lock the page.
    System(io::Error),
}

impl fmt::Display for ChangeError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::Mistake(mistake) => mistake.fmt(f),
            ChangeError::System(error) => write!(f, "the page cannot be locked: {error}"),
        }
    }
}

impl core::error::Error for ChangeError<'_> {}

impl Program {
    /// The program of a process.
    ///
    /// # Errors
    ///
    /// Why it cannot be shown.
    pub fn of(pid: u32) -> Result<Program, Obstacle> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default().trim_end().to_string();
        match Program::attach(pid, &folder, &name) {
            Ok(program) => Ok(program),
            Err(reason) => Err(Obstacle { pid, name: printable(&name), reason }),
        }
    }

    /// Every program with the library that this user may see, those whose library has another version of the page, and
    /// the number of processes that this user may not look at.
    pub fn all() -> (Vec<Program>, Vec<Obstacle>, usize) {
        let (mut programs, mut others, mut hidden) = (Vec::new(), Vec::new(), 0);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            let folder = PathBuf::from(format!("/proc/{pid}"));
            match find_pages(&folder) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => hidden += 1,
                Ok(pages) if !pages.is_empty() => match Program::of(pid) {
                    Ok(program) => programs.push(program),
                    Err(other) if matches!(other.reason, Reason::Page(AttachError::Version { .. })) => {
                        others.push(other);
                    }
                    // It has just ended, or was forked and shares the page of its parent.
                    Err(_) => {}
                },
                _ => {}
            }
        }
        programs.sort_unstable_by_key(|program| program.pid);
        others.sort_unstable_by_key(|other| other.pid);
        (programs, others, hidden)
    }

    fn attach(pid: u32, folder: &Path, name: &str) -> Result<Program, Reason> {
        if !folder.exists() {
            return Err(Reason::NoProcess);
        }
        let own = pid_inside(folder).unwrap_or(pid);
        let mut reason = None;
        for path in find_pages(folder).map_err(|error| reason_of(error, folder))? {
            match open_page(&path, folder) {
                Ok((page, file)) if page.pid.load(Relaxed) == own => {
                    return Ok(Program { pid, name: printable(name), page, file });
                }
                // A child has descriptors of its parent's page, too, if a bare system call made it.
                Ok((page, _)) => reason = Some(Reason::PageOfParent(page.pid.load(Relaxed))),
                Err(why) => reason = Some(why),
            }
        }
        Err(reason.unwrap_or_else(|| reason_without_page(folder)))
    }

    /// Its page.
    pub fn page(&self) -> &SharedPage {
        &self.page
    }

    /// The options that it was last told, as far as a running program takes them.
    pub fn wanted(&self) -> Configuration {
        self.page.wanted.load(&Configuration::DEFAULT).unwrap_or(Configuration::DRAM_ONLY)
    }

    /// Tells it to change its options, and returns the number that [`Page::applied`](crate::page::Page::applied) has
    /// when it has done so.
    ///
    /// # Errors
    ///
    /// The text is wrong, or the page cannot be locked.
    pub fn change<'a>(&self, text: &'a str) -> Result<u64, ChangeError<'a>> {
        self.file.lock().map_err(ChangeError::System)?;
        let mut configuration = self.wanted();
        let changed = configuration.change(text.as_bytes()).map(|()| self.page.want(&configuration));
        self.file.unlock().map_err(ChangeError::System)?;
        changed.map_err(ChangeError::Mistake)
    }

    /// How its executable comes to its allocator.
    ///
    /// # Errors
    ///
    /// The executable cannot be read.
    pub fn linkage(&self) -> io::Result<Linkage> {
        Linkage::read(&mut File::open(format!("/proc/{}/exe", self.pid))?)
    }
}

/// The pages among the open files of a process, or, where it is root who asks, among its mappings.
fn find_pages(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for folder in [folder.join("fd"), folder.join("map_files")] {
        let entries = match folder.read_dir() {
            Err(_) if folder.ends_with("map_files") => break,
            entries => entries?,
        };
        let paths = entries.flatten().map(|entry| entry.path());
        pages.extend(
            paths.filter(|path| fs::read_link(path).is_ok_and(|target| target == Path::new(PAGE_NAME))),
        );
        if !pages.is_empty() {
            break;
        }
    }
    Ok(pages)
}

/// A page, and another descriptor of its file.
fn open_page(path: &Path, folder: &Path) -> Result<(SharedPage, File), Reason> {
    let open = || File::options().read(true).write(true).open(path);
    let (file, mapped) =
        open().and_then(|file| Ok((file, open()?))).map_err(|error| reason_of(error, folder))?;
    Ok((SharedPage::attach(OwnedFd::from(mapped)).map_err(Reason::Page)?, file))
}

fn reason_of(error: io::Error, folder: &Path) -> Reason {
    match error.kind() {
        ErrorKind::PermissionDenied => Reason::NoPermission,
        ErrorKind::NotFound if !folder.exists() => Reason::NoProcess,
        _ => Reason::System(error),
    }
}

fn reason_without_page(folder: &Path) -> Reason {
    let mut executable = match File::open(folder.join("exe")) {
        Ok(executable) => executable,
        Err(error) if error.kind() == ErrorKind::NotFound => return Reason::NoExecutable,
        Err(error) => return reason_of(error, folder),
    };
    match Linkage::read(&mut executable) {
        Ok(Linkage::Dynamic) => {}
        Ok(linkage) => return Reason::CannotPreload(linkage),
        Err(error) => return Reason::System(error),
    }
    let maps = fs::read_to_string(folder.join("maps")).unwrap_or_default();
    if maps.contains(PAGE_NAME) {
        return Reason::FileClosed;
    }
    let environment = fs::read(folder.join("environ")).unwrap_or_default();
    let is_named = environment.split(|&byte| byte == 0).any(|variable| {
        let value = variable.strip_prefix(b"LD_PRELOAD=");
        value.is_some_and(|value| String::from_utf8_lossy(value).contains(LIBRARY_NAME))
    });
    if is_named { Reason::NotLoaded } else { Reason::NotPreloaded }
}

/// The number that a process has inside its innermost name space.
fn pid_inside(folder: &Path) -> Option<u32> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}
