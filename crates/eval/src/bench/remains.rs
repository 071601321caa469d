//! Names and locks of what an evaluation leaves behind where SIGKILL ends it, so that the next one can remove it: files
//! and folders on media, control groups, and processes below a shell.
//!
//! 1. Each file, folder and group has a name that begins with [`PREFIX`], and the evaluation keeps a lock of it. The
//!    kernel gives the lock back however the evaluation ends. A name without a lock is a remain.
//! 2. A program of the user's gets a variable with the evaluation and with its group of processes, which all that it
//!    starts inherits. A process in that group whose evaluation has ended is a remain.
//!
//! A lock holds across containers. Numbers of processes do not, so processes of another PID namespace are left alone.
//! Files of other users are left alone, too, and so is all on file systems without locks.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::servers::process::pids;

/// How the names of all that an evaluation makes begin.
pub(crate) const PREFIX: &str = "ziptier-eval-";
/// Tells a program which evaluation has started it, when that began, and the group of processes that it leads.
const VARIABLE: &str = "ZIPTIER_EVALUATION";
/// The longest wait for a process that was killed.
const END_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Locks a file, a folder or a control group that this process has just made, until the lock is dropped. Nothing where
/// the file system has no locks.
///
/// # Errors
/// It cannot be opened, or another evaluation has taken it for a remain before it was locked.
pub(crate) fn hold(path: &Path) -> io::Result<Option<File>> {
    let file = File::open(path)?;
    match file.try_lock() {
        Ok(()) if path.exists() => Ok(Some(file)),
        Err(TryLockError::Error(_)) => Ok(None),
        Ok(()) | Err(TryLockError::WouldBlock) => {
            Err(io::Error::other("another evaluation has just removed it; begin again"))
        }
    }
}

/// A new folder, which is removed in the end.
#[derive(Debug)]
pub(crate) struct FreshFolder {
    folder: TempDir,
    _lock: Option<File>,
}

impl FreshFolder {
    /// Makes a folder of this kind in another one.
    pub(crate) fn new(parent: &Path, kind: &str) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("{PREFIX}{kind}-")).tempdir_in(parent)?;
        let lock = hold(folder.path())?;
        Ok(FreshFolder { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Has a program that this process is about to become, and all that it starts, name the evaluation.
pub(crate) fn mark(program: &mut Command, evaluation: u32) {
    if let Some(began) = number_in_stat(evaluation, BEGAN) {
        program.env(VARIABLE, format!("{evaluation} {began} {}", std::process::id()));
    }
}

/// Ends the processes that evaluations have left, and removes their control groups below `groups` and all of theirs in
/// `folders`. Returns a line that tells it; nothing if there was nothing.
pub(crate) fn remove_remains(groups: &[PathBuf], folders: &[PathBuf]) -> Option<String> {
    let mut removed = match end_left_processes(VARIABLE) {
        0 => Vec::new(),
        1 => vec!["a process".to_owned()],
        ended => vec![format!("{ended} processes")],
    };
    let shown = |path: PathBuf| path.display().to_string();
    let groups = groups.iter().flat_map(|place| left_in(place));
    removed.extend(groups.filter(|(path, _)| end_group(path)).map(|(path, _)| shown(path)));
    let others = folders.iter().flat_map(|place| left_in(place));
    removed.extend(others.filter(|(path, _)| remove(path).is_ok()).map(|(path, _)| shown(path)));
    let all = removed.join(", ");
    (!all.is_empty()).then(|| format!("removed what an evaluation that was killed had left: {all}"))
}

/// Files and folders of this user that evaluations have left in a folder, each with its lock.
fn left_in(place: &Path) -> Vec<(PathBuf, File)> {
    let own_user = fs::metadata("/proc/self").map(|own| own.st_uid()).ok();
    let left = |entry: fs::DirEntry| {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // A link has metadata of its own here, and is left alone.
        let found = entry.metadata().ok().filter(|found| is_named && (found.is_file() || found.is_dir()))?;
        let file = (Some(found.st_uid()) == own_user).then(|| File::open(entry.path()).ok()).flatten()?;
        file.try_lock().is_ok().then(|| (entry.path(), file))
    };
    let entries = fs::read_dir(place).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(left).collect()
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Ends all processes of a control group, and removes the group; whether that is done.
fn end_group(folder: &Path) -> bool {
    let began = Instant::now();
    while fs::remove_dir(folder).is_err() {
        if began.elapsed() > END_MAX {
            return false;
        }
        let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        // A process of another PID namespace is shown as 0, which stands for this process's own group.
        let processes = processes.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0);
        processes.for_each(end);
        sleep(LOOK_EVERY);
    }
    true
}

fn end(pid: i32) {
    // One that has just ended needs no signal.
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Ends the processes that evaluations have left, by the variable of this name. Returns how many they were.
fn end_left_processes(variable: &str) -> usize {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace("self");
    let is_near = |pid: u32| own.is_some() && namespace(&pid.to_string()) == own;
    let left = || pids().filter(|pid| is_near(*pid) && is_left(*pid, variable)).collect::<Vec<u32>>();
    let (began, found) = (Instant::now(), left());
    let mut running = found.clone();
    while !running.is_empty() && began.elapsed() < END_MAX {
        running.iter().for_each(|pid| end(*pid as i32));
        sleep(LOOK_EVERY);
        running = left();
    }
    found.len()
}

fn is_left(pid: u32, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    marked(&environment, variable).is_some_and(|[evaluation, began, group]| {
        let evaluation = u32::try_from(evaluation).ok().and_then(|pid| number_in_stat(pid, BEGAN));
        evaluation != Some(began) && number_in_stat(pid, GROUP) == Some(group)
    })
}

/// The numbers of the variable in the environment of a process.
fn marked(environment: &[u8], variable: &str) -> Option<[u64; 3]> {
    let value = environment.split(|byte| *byte == 0).find_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once('=')?;
        (name == variable).then_some(value)
    })?;
    let numbers = value.split(' ').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
    numbers.try_into().ok()
}

/// Fields of `/proc/PID/stat` behind the name of the program.
const GROUP: usize = 2;
/// When the process began, in ticks since the machine did. No other process of its number has that.
const BEGAN: usize = 19;

fn number_in_stat(pid: u32, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(field)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    use super::*;

    /// The kernel gives locks back. A link may lead anywhere.
    #[test]
    fn only_what_nobody_holds_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let left = path("ziptier-eval-run-left");
        fs::create_dir_all(left.join("database")).unwrap();
        fs::write(path("ziptier-eval-raw-1"), "raw").unwrap();
        fs::create_dir(path("groups")).unwrap();
        fs::create_dir(path("groups/ziptier-eval-1-0")).unwrap();
        let kept = FreshFolder::new(place.path(), "run").unwrap();
        fs::write(path("ziptier-eval-raw-2"), "raw").unwrap();
        let held = hold(&path("ziptier-eval-raw-2")).unwrap();
        fs::write(path("ziptier-of-another"), "").unwrap();
        std::os::unix::fs::symlink(path("ziptier-of-another"), path("ziptier-eval-link")).unwrap();
        let told = remove_remains(&[path("groups")], &[place.path().to_owned(), path("none")]).unwrap();
        let paths = ["groups/ziptier-eval-1-0", "ziptier-eval-run-left", "ziptier-eval-raw-1"].map(path);
        assert!(paths.iter().all(|path| told.contains(&path.display().to_string())), "{told}");
        assert!(paths.iter().all(|path| !path.exists()), "{told}");
        let others = ["ziptier-eval-raw-2", "ziptier-of-another", "ziptier-eval-link"].map(path);
        assert!(others.iter().all(|path| path.exists()) && kept.path().exists(), "{told}");
        drop(held);
        assert!(left_in(place.path()).iter().any(|(path, _)| path.ends_with("ziptier-eval-raw-2")));
    }

    #[test]
    fn a_name_that_another_evaluation_has_taken_is_told() {
        let place = tempfile::tempdir().unwrap();
        let taken = File::open(place.path()).unwrap();
        taken.lock().unwrap();
        let told = hold(place.path()).unwrap_err().to_string();
        assert!(told.contains("begin again"), "{told}");
    }

    #[test]
    fn a_mark_is_read_among_other_variables() {
        let environment = b"HOME=/root\0ZIPTIER_EVALUATION=7 123 9\0\xff=1\0";
        assert_eq!(marked(environment, VARIABLE), Some([7, 123, 9]));
        assert_eq!(marked(environment, "ZIPTIER"), None);
        assert_eq!(marked(b"ZIPTIER_EVALUATION=7 123\0ZIPTIER_EVALUATIONS=1 2 3\0", VARIABLE), None);
    }

    /// A process below a shell does not end with it. Others of this machine have another variable.
    #[test]
    fn what_a_shell_has_started_ends_once_its_evaluation_has() {
        const OWN_VARIABLE: &str = "ZIPTIER_TEST_OF_REMAINS";
        let own = std::process::id();
        let began = number_in_stat(own, BEGAN).unwrap();
        let started = |began: u64| {
            let script = format!("export {OWN_VARIABLE}=\"{own} {began} $$\"; sleep 600 & echo; wait");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).process_group(0).stdout(Stdio::piped());
            let mut child = shell.spawn().unwrap();
            let mut line = [0];
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            child
        };
        let mut of_this_process = started(began);
        // As if another process had the number of an evaluation that has ended.
        let mut of_an_ended_one = started(began + 1);
        let mut ended = 0;
        ziptier_testing::until("the remain is found", || {
            ended += end_left_processes(OWN_VARIABLE);
            ended > 0
        });
        assert_eq!(ended, 1);
        of_an_ended_one.wait().unwrap();
        assert!(of_this_process.try_wait().unwrap().is_none());
        let group = Pid::from_raw(of_this_process.id() as i32);
        nix::sys::signal::killpg(group, Signal::SIGKILL).unwrap();
        of_this_process.wait().unwrap();
    }
}
