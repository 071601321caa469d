//! Commands that prepare the medium before a round: one purges it, and another preconditions it.
//!
//! 1. A command runs to its end before the next one starts, and so does all that it has started.
//! 2. A command with `{folder}` runs once for each folder of the work, in their order.
//! 3. The limits of the work are not those of the command. They would keep it from filling a disk in hours.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::bench::confine::Confinement;
use crate::bench::process::Launcher;
use crate::error::Error;
use crate::mbwu::command::{FOLDER, Running, fresh_folder};

fn names_folder(words: &[String]) -> bool {
    words.iter().any(|word| word.contains(FOLDER))
}

/// Runs a command on the media of these folders; on that of temporary files where there is none.
///
/// # Errors
/// The command cannot be started, or fails: the error has its status and the last line of its standard error.
pub(crate) fn prepare(launcher: &Launcher, words: &[String], folders: &[PathBuf]) -> Result<(), Error> {
    let temporary = [std::env::temp_dir()];
    let media = if folders.is_empty() { &temporary[..] } else { folders };
    let times = if names_folder(words) { media.len() } else { 1 };
    media[..times].iter().try_for_each(|medium| run_to_end(launcher, words, medium))
}

fn run_to_end(launcher: &Launcher, words: &[String], medium: &Path) -> Result<(), Error> {
    let failed = |source: io::Error| Error::Io {
        action: "keep the words of a command in",
        path: "memory".into(),
        source,
    };
    // A pipe has no end as long as a daemon of the command holds it, and a file may lie on the medium.
    let said = memfd_create("said", MFdFlags::MFD_CLOEXEC).map_err(|error| failed(error.into()))?;
    // A script that opens /dev/stderr anew truncates what was said, and others go on behind that.
    fcntl(&said, FcntlArg::F_SETFL(OFlag::O_APPEND)).map_err(|error| failed(error.into()))?;
    let mut said = File::from(said);
    let stderr = said.try_clone().map_err(failed)?;
    // A medium that is purged as a whole may have no place for a folder.
    let folder = names_folder(words).then(|| fresh_folder(medium, "medium")).transpose()?;
    let mut running = Running::start(launcher, words, folder, &[], &Confinement::default(), stderr.into())?;
    let line = running.line.clone();
    let status = running.wait().map_err(|source| Error::Io {
        action: "wait for",
        path: line.clone().into(),
        source,
    })?;
    if status.success() {
        return Ok(());
    }
    let mut text = Vec::new();
    said.rewind().and_then(|()| said.read_to_end(&mut text)).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let last = last.map_or(String::new(), |last| format!(": {last}"));
    Err(Error::Run { run: line, sentence: format!("it ended ({status}){last}"), status: 1 })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A launcher whose child is this script, which finds the order on its standard input.
    fn launcher(script: String) -> Launcher {
        Launcher { program: "sh".into(), arguments: vec!["-c".into(), script] }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_command_with_a_folder_runs_on_each_medium_and_another_once() {
        let place = tempfile::tempdir().unwrap();
        let media = ["a", "b"].map(|name| place.path().join(name));
        media.iter().for_each(|medium| fs::create_dir(medium).unwrap());
        let ordered = |given: &[&str]| {
            let log = place.path().join("log");
            let script = format!("cat >> '{0}'; echo >> '{0}'", log.display());
            prepare(&launcher(script), &words(given), &media).unwrap();
            let orders = fs::read_to_string(&log).unwrap();
            fs::remove_file(&log).unwrap();
            orders.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let on_each = ordered(&["fstrim", "{folder}"]);
        assert_eq!(on_each.len(), 2, "{on_each:?}");
        for (order, medium) in on_each.iter().zip(&media) {
            let fresh = medium.join("ziptier-eval-medium-").display().to_string();
            assert!(order.contains(&fresh) && !order.contains("{folder}"), "{order}");
            assert_eq!(fs::read_dir(medium).unwrap().count(), 0, "a folder is left over");
        }
        assert_eq!(ordered(&["blkdiscard", "/dev/x"]).len(), 1);
    }

    #[test]
    fn a_command_that_fails_is_told_with_its_last_words() {
        let told = |script: &str| {
            let script = format!("cat > /dev/null; {script}");
            prepare(&launcher(script), &words(&["fstrim", "/x"]), &[]).unwrap_err().to_string()
        };
        let said = told("echo first >&2; echo last >&2; echo >&2; exit 3");
        assert_eq!(said, "fstrim /x: it ended (exit status: 3): last");
        let anew = told("echo a longer first line >&2; echo last > /dev/stderr; echo >&2; exit 3");
        assert_eq!(anew, said);
        assert_eq!(told("exit 4"), "fstrim /x: it ended (exit status: 4)");
    }

    /// It would take its share of the medium from the round, and holds the standard error of the command.
    #[test]
    fn nothing_of_a_command_runs_on_after_its_end() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("left");
        let script = format!("cat > /dev/null; sleep 600 & echo $! > '{}'", file.display());
        prepare(&launcher(script), &words(&["fill"]), &[]).unwrap();
        let left = fs::read_to_string(&file).unwrap();
        assert!(fs::read_link(format!("/proc/{}/exe", left.trim())).is_err(), "{left}");
    }
}
