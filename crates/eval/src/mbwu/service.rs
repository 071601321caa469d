//! The server of a platform, which runs for one round: its own data, within the platform's limits.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::bench::confine::{Confinement, Groups};
use crate::bench::process::{Launcher, cpu_set};
use crate::error::Error;
use crate::servers::listening::{address_of, host_and_port};

/// The longest time until a server takes connections.
const START_MAX: Duration = Duration::from_secs(60);
/// The longest time that it may take to end.
const END_MAX: Duration = Duration::from_secs(30);
/// What stands for the folder of a round in its words.
const FOLDER: &str = "{folder}";

/// A server that runs; it ends with this.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    groups: Groups,
    _folder: TempDir,
}

impl Service {
    /// Starts a server by its words, with a fresh folder on the medium for `{folder}` among them, and waits until
    /// something listens at the address of `target`, such as `redis://10.0.0.7:6379`.
    ///
    /// The server is killed when this thread ends, so that it does not outlive an evaluation that is killed. One that a
    /// shell has started ends with this alone.
    pub(crate) fn start(
        launcher: &Launcher,
        words: &[String],
        target: &str,
        cpus: &[usize],
        confinement: &Confinement,
    ) -> Result<Self, Error> {
        let failed = |action, path: PathBuf, source| Error::Io { action, path, source };
        let parent = confinement.folders().first().cloned().unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new().prefix("ziptier-server-").tempdir_in(&parent);
        let folder = folder.map_err(|source| failed("make a folder in", parent, source))?;
        let (host, port) = target
            .split_once("://")
            .map(|(_, rest)| rest.split('/').next().unwrap_or(rest))
            .ok_or_else(|| {
                Error::invalid("work.server", target, "its target has no address; give redis://HOST:PORT")
            })
            .and_then(|host| {
                host_and_port(host, 6379).map_err(|reason| Error::invalid("work.server", target, reason))
            })?;
        let address =
            address_of(&host, port).map_err(|reason| Error::invalid("work.server", target, reason))?;
        if TcpStream::connect(address).is_ok() {
            let expected = "a server listens there already; end it, or give another address";
            return Err(Error::invalid("work.server", target, expected));
        }
        let place = folder.path().display().to_string();
        let words: Vec<String> = words.iter().map(|word| word.replace(FOLDER, &place)).collect();
        if words.is_empty() {
            return Err(Error::invalid("work.server", "", "give a command"));
        }
        let groups = Groups::of(confinement)?;
        let child = on_processors(cpus, || launcher.program(&words, &groups))??;
        let mut service = Service { child, groups, _folder: folder };
        let (began, run) = (Instant::now(), words.join(" "));
        while TcpStream::connect(address).is_err() {
            let sentence = match service.why_ended() {
                Some(why) => format!("at its start, it {why}"),
                None if began.elapsed() > START_MAX => {
                    format!("nothing listens at {address} after {} s", START_MAX.as_secs())
                }
                None => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            return Err(Error::Run { run, sentence, status: 1 });
        }
        Ok(service)
    }

    /// Why it runs no more, such as `ended (exit status: 1)`.
    pub(crate) fn why_ended(&mut self) -> Option<String> {
        let ended = || Some(format!("ended ({})", self.child.try_wait().ok()??));
        self.groups.killed_for_memory().or_else(ended)
    }

    /// Sends a signal to the server and all that it has started; whether one of them is there.
    fn signal(&self, signal: Option<Signal>) -> bool {
        killpg(Pid::from_raw(self.child.id() as i32), signal).is_ok()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may still have something to write, and is killed only if that takes long.
        self.signal(Some(Signal::SIGTERM));
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) || self.signal(None) {
            if began.elapsed() > END_MAX {
                self.signal(Some(Signal::SIGKILL));
                let _ = self.child.wait();
                return;
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

    fn refused(words: &[&str], target: &str) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let launcher = Launcher { program: "/no/such/program".into(), arguments: vec![] };
        Service::start(&launcher, &words, target, &[], &Confinement::default()).unwrap_err().to_string()
    }

    #[test]
    fn a_server_that_cannot_serve_is_told() {
        // A port that nobody has now.
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).unwrap();
        let target = format!("redis://{free}");
        assert!(refused(&["true"], &target).contains("cannot start /no/such/program"));
        assert!(refused(&[], &target).contains("give a command"));
        assert!(refused(&["true"], "btreemap").contains("its target has no address"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = format!("redis://{}", listener.local_addr().unwrap());
        assert!(refused(&["true"], &taken).contains("a server listens there already"));
    }

    #[test]
    fn a_process_inherits_its_processors_and_this_thread_keeps_its_own() {
        let own = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let output = on_processors(&[0], || {
            Command::new("grep").args(["Cpus_allowed_list", "/proc/self/status"]).output()
        });
        let said = String::from_utf8(output.unwrap().unwrap().stdout).unwrap();
        assert_eq!(said.split_whitespace().last(), Some("0"));
        assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), own);
    }
}
