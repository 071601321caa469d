//! Names of what an evaluation leaves behind where SIGKILL ends it, so that the next one can remove it: files and
//! folders on media, control groups, and processes below a shell.
//!
//! 1. The name of each file, folder and group tells the process that made it: the boot of the machine, the PID
//!    namespace, the number and the begin of the process. Such a name is a remain once that process has ended.
//! 2. A program of the user's gets a variable with the evaluation and with its group of processes, which all that it
//!    starts inherits. A process in that group whose evaluation has ended is a remain.
//!
//! Only this boot and this PID namespace tell whether a process has ended. So names of other ones are left alone, as on
//! a medium that machines share, and so are files of other users.

use std::fs;
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

/// How the name of something of this kind begins that this process makes.
pub(crate) fn name(kind: &str) -> String {
    let maker = boot_and_namespace().zip(number_in_stat(std::process::id(), BEGAN));
    let maker = maker.map(|(place, began)| format!("{place}.{}.{began}", std::process::id()));
    format!("{PREFIX}{kind}-{}-", maker.as_deref().unwrap_or("unknown"))
}

/// Whether a name tells a process that has ended.
fn is_remain(name: &str) -> bool {
    let maker = || {
        let (_kind, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let (place, process) = rest.split_once('-')?.0.rsplit_once('.').and_then(|(rest, began)| {
            let (place, pid) = rest.rsplit_once('.')?;
            Some((place.to_owned(), (pid.parse().ok()?, began.parse().ok()?)))
        })?;
        (Some(place) == boot_and_namespace()).then_some(process)
    };
    maker().is_some_and(|(pid, began)| has_ended(pid, began))
}

/// This boot of this machine and this PID namespace.
fn boot_and_namespace() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let namespace: String = namespace.to_str()?.chars().filter(char::is_ascii_digit).collect();
    Some(format!("{}.{namespace}", boot.get(..8)?))
}

/// A new folder, which is removed in the end.
#[derive(Debug)]
pub(crate) struct FreshFolder {
    folder: TempDir,
}

impl FreshFolder {
    /// Makes a folder of this kind in another one.
    pub(crate) fn new(parent: &Path, kind: &str) -> io::Result<Self> {
        Ok(FreshFolder { folder: tempfile::Builder::new().prefix(&name(kind)).tempdir_in(parent)? })
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
    removed.extend(groups.filter(|path| end_group(path)).map(shown));
    let others = folders.iter().flat_map(|place| left_in(place));
    removed.extend(others.filter(|path| remove(path).is_ok()).map(shown));
    let all = removed.join(", ");
    (!all.is_empty()).then(|| format!("removed what an evaluation that was killed had left: {all}"))
}

/// Files and folders of this user that evaluations have left in a folder.
fn left_in(place: &Path) -> Vec<PathBuf> {
    let own_user = fs::metadata("/proc/self").map(|own| own.st_uid()).ok();
    let left = |entry: fs::DirEntry| {
        let is_named = entry.file_name().to_str().is_some_and(is_remain);
        // A link has metadata of its own here, and is left alone.
        let found = entry.metadata().ok().filter(|found| is_named && (found.is_file() || found.is_dir()))?;
        (Some(found.st_uid()) == own_user).then(|| entry.path())
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
        let has_ended = u32::try_from(evaluation).is_ok_and(|pid| has_ended(pid, began));
        has_ended && pid != std::process::id() && number_in_stat(pid, GROUP) == Some(group)
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

/// Whether the process that had this number and began then is gone. One that cannot be looked at is not.
fn has_ended(pid: u32, began: u64) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(_) => number_in_stat(pid, BEGAN).is_some_and(|now| now != began),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn number_in_stat(pid: u32, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(field)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    use super::*;

    /// The name of something that a process made which began a tick later, and so is not there.
    fn name_of_an_ended_one(kind: &str) -> String {
        let began = number_in_stat(std::process::id(), BEGAN).unwrap();
        name(kind).replace(&format!(".{began}-"), &format!(".{}-", began + 1))
    }

    /// A link may lead anywhere.
    #[test]
    fn only_what_ended_processes_have_made_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let left = path(&(name_of_an_ended_one("run") + "left"));
        fs::create_dir_all(left.join("database")).unwrap();
        let raw = path(&name_of_an_ended_one("raw"));
        fs::write(&raw, "raw").unwrap();
        let group = path("groups").join(name_of_an_ended_one("group"));
        fs::create_dir_all(&group).unwrap();
        let kept = FreshFolder::new(place.path(), "run").unwrap();
        let other_boot = name_of_an_ended_one("raw").replace(&boot_and_namespace().unwrap(), "00000000.1");
        let others =
            [&other_boot, "ziptier-eval-raw-1", "ziptier-eval-raw-unknown-", "ziptier-of-another"].map(path);
        others.iter().for_each(|other| fs::write(other, "").unwrap());
        let link = path(&name_of_an_ended_one("link"));
        std::os::unix::fs::symlink(&others[3], &link).unwrap();

        let removed = [group, left, raw];
        let groups = left_in(&path("groups"));
        assert!(groups.iter().all(|group| end_group(group)) && groups.len() == 1);
        let found = left_in(place.path());
        assert!(found.iter().all(|path| remove(path).is_ok()) && found.len() == 2, "{found:?}");
        assert!(removed.iter().all(|path| !path.exists()), "{found:?}");
        assert!(others.iter().chain([&link]).all(|path| path.exists()) && kept.path().exists(), "{found:?}");
        assert!(left_in(&path("none")).is_empty());
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
        let own = std::process::id();
        let own_variable = format!("ZIPTIER_TEST_OF_REMAINS_{own}");
        let began = number_in_stat(own, BEGAN).unwrap();
        let started = |began: u64| {
            let script = format!("export {own_variable}=\"{own} {began} $$\"; sleep 600 & echo; wait");
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
            ended += end_left_processes(&own_variable);
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
