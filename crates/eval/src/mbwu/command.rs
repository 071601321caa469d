//! A program of the user's that a round starts: a server, or a command that prepares the medium.

use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::bench::confine::{Confinement, Groups};
use crate::bench::process::{Launcher, cpu_set};
use crate::bench::remains::FreshFolder;
use crate::error::Error;

/// The longest time that it may take to end.
const END_MAX: Duration = Duration::from_secs(30);
/// What stands for a fresh folder in its words.
pub(crate) const FOLDER: &str = "{folder}";

/// A program that runs; it ends with this, and so does all that it has started.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its words, parted by spaces.
    pub(crate) line: String,
    child: Child,
    groups: Groups,
    _folder: Option<FreshFolder>,
}

/// A new folder of this kind in another one.
pub(crate) fn fresh_folder(parent: &Path, kind: &str) -> Result<FreshFolder, Error> {
    FreshFolder::new(parent, kind).map_err(|source| Error::Io {
        action: "make a folder in",
        path: parent.to_owned(),
        source,
    })
}

impl Running {
    /// Starts a program by its words, with a folder for `{folder}` among them, which is removed in the end.
    ///
    /// The program is killed when this thread ends, so that it does not outlive an evaluation that is killed. One that
    /// a shell has started ends with this, and otherwise at the start of the next evaluation.
    pub(crate) fn start(
        launcher: &Launcher,
        words: &[String],
        folder: Option<FreshFolder>,
        cpus: &[usize],
        confinement: &Confinement,
        stderr: Stdio,
    ) -> Result<Self, Error> {
        let place = folder.as_ref().map(|folder| folder.path().display().to_string());
        let filled = |word: &String| match &place {
            Some(place) => word.replace(FOLDER, place),
            None => word.clone(),
        };
        let words: Vec<String> = words.iter().map(filled).collect();
        let groups = Groups::of(confinement)?;
        let child = on_processors(cpus, || launcher.program(&words, &groups, stderr))??;
        Ok(Running { line: words.join(" "), child, groups, _folder: folder })
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Why it runs no more, such as `ended (exit status: 1)`.
    pub(crate) fn why_ended(&mut self) -> Option<String> {
        let ended = || Some(format!("ended ({})", self.child.try_wait().ok()??));
        self.groups.killed_for_memory().or_else(ended)
    }

    /// Sends a signal to the program and all that it has started; whether one of them is there.
    fn signal(&self, signal: Option<Signal>) -> bool {
        killpg(Pid::from_raw(self.child.id() as i32), signal).is_ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may still have something to write, and is killed only if that takes long.
        self.signal(Some(Signal::SIGTERM));
        let (mut began, mut is_killed) = (Instant::now(), false);
        while matches!(self.child.try_wait(), Ok(None)) || self.signal(None) {
            if began.elapsed() > END_MAX {
                if is_killed {
                    return;
                }
                // A killed process needs a processor to end.
                self.signal(Some(Signal::SIGKILL));
                (began, is_killed) = (Instant::now(), true);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Does something with the processors of this thread limited, which a process that it starts inherits.
fn on_processors<R>(cpus: &[usize], start: impl FnOnce() -> R) -> Result<R, Error> {
    let Some(wanted) = cpu_set(cpus) else { return Ok(start()) };
    let set = |set: &CpuSet| sched_setaffinity(Pid::from_raw(0), set);
    let own = sched_getaffinity(Pid::from_raw(0));
    set(&wanted).map_err(|error| {
        Error::invalid(
            "work.cpus",
            format!("{cpus:?}"),
            format!("the system refuses these processors: {error}"),
        )
    })?;
    let done = start();
    if let Ok(own) = own {
        let _ = set(&own);
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::servers::listening::own_processor_numbers;

    #[test]
    fn a_process_inherits_its_processors_and_this_thread_keeps_its_own() {
        let own = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let first = own_processor_numbers().unwrap()[0];
        let output = on_processors(&[first], || {
            Command::new("grep").args(["Cpus_allowed_list", "/proc/self/status"]).output()
        });
        let said = String::from_utf8(output.unwrap().unwrap().stdout).unwrap();
        assert_eq!(said.split_whitespace().last(), Some(&*first.to_string()));
        assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), own);
    }
}
