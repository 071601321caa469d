//! Servers under test: started on a port of their own on the loopback, watched through `/proc`, and ended by their
//! process id.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::servers::port::Port;
use crate::servers::quiet::{Processes, Quiet};
use crate::servers::resp::{Connection, Reply, SILENCE_MAX};

/// A program that serves RESP, and its arguments; `{port}` among them stands for the port.
#[derive(Debug, Clone)]
pub struct ServerProgram {
    /// As printed in the results.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// The longest time until a server's first answer.
const START_MAX: Duration = Duration::from_secs(60);
/// The longest wait for one answer until then, in which nobody looks at signals.
const LOOK: Duration = Duration::from_secs(1);
/// `times` in `/proc/PID/stat` are in hundredths of a second on every Linux that Rust runs on.
const TICKS_PER_SEC: f64 = 100.0;
/// The share of a processor below which a server is quiet in a second.
const QUIET_SHARE: f64 = 0.02;

/// A server that runs; it ends when this is dropped.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    child: Child,
    _port: Port,
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended by itself is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory of a server's process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ServerMemory {
    pub(crate) rss_bytes: u64,
    /// The server's own figure; nothing if it tells none.
    pub(crate) used_bytes: Option<u64>,
}

impl Server {
    pub(crate) fn start(program: &ServerProgram, stop: &AtomicBool) -> Result<Self, Error> {
        let fail = |source| Error::Io { action: "start", path: program.program.clone(), source };
        let held = Port::held().map_err(fail)?;
        let port = held.address.port().to_string();
        let child = Command::new(&program.program)
            .args(program.arguments.iter().map(|argument| argument.replace("{port}", &port)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(fail)?;
        let mut server = Server { name: program.name.clone(), address: held.address, child, _port: held };
        server.wait_until_it_answers(stop)?;
        Ok(server)
    }

    fn wait_until_it_answers(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let began = Instant::now();
        // One that still reads what it has on disk answers with an error.
        while self.ask(&[b"PING"], LOOK).as_deref() != Some("PONG") {
            // A terminal interrupts the server, too.
            if stop.load(Ordering::Relaxed) {
                return Err(self.failed("it was told to stop".into()));
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failed(format!("it ended at its start ({status})")));
            }
            if began.elapsed() > START_MAX {
                return Err(self.failed("it did not answer a PING with a PONG".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub(crate) fn failed(&self, sentence: String) -> Error {
        Error::Run { run: self.name.clone(), sentence, status: 1 }
    }

    /// The words or the value that answer a request; nothing where none come in time.
    fn ask(&self, request: &[&[u8]], patience: Duration) -> Option<String> {
        match Connection::patient(self.address, patience).ok()?.ask(request).ok()? {
            Reply::Status(bytes) | Reply::Value(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// Refuses a server that brings keys along: a benchmark would count them, and write over some.
    pub(crate) fn check_empty(&self) -> Result<(), Error> {
        let mut connection =
            Connection::open(self.address).map_err(|error| self.failed(format!("it is gone: {error}")))?;
        match connection.ask(&[b"DBSIZE"]).map_err(|sentence| self.failed(sentence))? {
            Reply::Integer(0) => Ok(()),
            Reply::Integer(keys) => {
                let sentence = format!(
                    "it has {keys} keys at its start, and a benchmark measures its own keys alone; take away \
                     ZIPTIER_DIR, or the file dump.rdb of this folder"
                );
                Err(Error::Run { run: self.name.clone(), sentence, status: 2 })
            }
            other => Err(self.failed(other.unexpected("DBSIZE"))),
        }
    }

    /// Its memory now, unless it has ended: a process that is no more takes none.
    pub(crate) fn memory(&self) -> Result<ServerMemory, Error> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let rss_bytes = crate::meters::rss_of(&status);
        if rss_bytes == 0 {
            return Err(self.failed("it has ended".into()));
        }
        let info = self.ask(&[b"INFO", b"memory"], SILENCE_MAX).unwrap_or_default();
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(ServerMemory { rss_bytes, used_bytes: used.and_then(|used| used.trim().parse().ok()) })
    }

    /// Waits until it has done nothing for so many seconds; returns for how long that was. A wait that was told to stop
    /// leaves out work that was put off.
    pub(crate) fn wait_until_quiet(&self, seconds: usize, stop: &AtomicBool) -> Result<f64, Error> {
        let quiet = Quiet { share: QUIET_SHARE, period: Duration::from_secs(1), periods: seconds };
        let (waited_sec, _) = quiet.wait_for(self, stop);
        match stop.load(Ordering::Relaxed) {
            true => Err(self.failed("it was told to stop".into())),
            false => Ok(waited_sec),
        }
    }
}

impl Processes for Server {
    fn cpu_sec(&self) -> f64 {
        cpu_sec_of(self.child.id()).unwrap_or(0.0)
    }

    fn is_busy(&self) -> bool {
        is_busy(self.child.id())
    }
}

/// Whether a thread of a process is ready to run, or waits for a disk. The thread that asks does not count.
fn is_busy(pid: u32) -> bool {
    let asks = nix::unistd::gettid().to_string();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    threads.filter_map(Result::ok).filter(|thread| thread.file_name() != *asks).any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with(['R', 'D']))
    })
}

/// Whether a process is busy, or one that descends from it.
pub(crate) fn is_tree_busy(root: u32) -> bool {
    tree_of(root).is_some_and(|tree| tree.iter().any(|(pid, _)| is_busy(*pid)))
}

/// Whether a process that descends from another one is busy.
pub(crate) fn is_busy_below(root: u32) -> bool {
    tree_of(root).is_some_and(|tree| tree[1..].iter().any(|(pid, _)| is_busy(*pid)))
}

/// CPU seconds of all threads of a process so far; nothing if there is no such process.
pub(crate) fn cpu_sec_of(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(cpu_sec_in(&stat))
}

/// All processes.
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// A process and all that descend from it: their CPU seconds so far, with those of children that have ended, and their
/// resident bytes. Nothing if the process has ended.
pub(crate) fn work_of_tree(root: u32) -> Option<(f64, u64)> {
    Some(work_of(&tree_of(root)?))
}

/// The children of a process.
pub(crate) fn children_of(process: &str) -> impl Iterator<Item = i32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    threads.filter_map(Result::ok).flat_map(|thread| {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
    })
}

/// The same of all that descend from a process, without itself. A daemon leaves the tree of its parent once that has
/// ended.
pub(crate) fn work_below(root: u32) -> Option<(f64, u64)> {
    let mut tree = tree_of(root)?;
    // Its children that have ended and were waited for are in its own line alone.
    let (_, stat) = tree.remove(0);
    let (cpu_sec, rss_bytes) = work_of(&tree);
    Some((cpu_sec + ended_cpu_sec_in(&stat), rss_bytes))
}

/// A process and all that descend from it, each with its line of `/proc/PID/stat`. It stands first.
fn tree_of(root: u32) -> Option<Vec<(u32, String)>> {
    let stat_of = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let mut others: Vec<(u32, String)> = pids().filter_map(|pid| Some((pid, stat_of(pid)?))).collect();
    let mut tree: Vec<(u32, String)> = others.extract_if(.., |(pid, _)| *pid == root).collect();
    tree.first()?;
    let mut known = 0;
    while known < tree.len() {
        let parent = tree[known].0;
        tree.extend(others.extract_if(.., |(_, stat)| parent_in(stat) == Some(parent)));
        known += 1;
    }
    Some(tree)
}

fn work_of(tree: &[(u32, String)]) -> (f64, u64) {
    let rss_bytes = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        crate::meters::rss_of(&status.unwrap_or_default())
    };
    let cpu_sec = tree.iter().map(|(_, stat)| cpu_sec_in(stat) + ended_cpu_sec_in(stat)).sum();
    (cpu_sec, tree.iter().map(|(pid, _)| rss_bytes(pid)).sum())
}

/// The parent in a line of `/proc/PID/stat`.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// User and system time of children that have ended and were waited for, in a line of `/proc/PID/stat`.
fn ended_cpu_sec_in(stat: &str) -> f64 {
    ticks_in(stat, 13)
}

/// User and system time in a line of `/proc/PID/stat`; the name of the program, in parentheses, may have spaces.
fn cpu_sec_in(stat: &str) -> f64 {
    ticks_in(stat, 11)
}

/// Seconds of the two times from a field behind the name on.
fn ticks_in(stat: &str, field: usize) -> f64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(field).take(2);
    times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SEC
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn times_are_read_behind_any_name() {
        let stat = "77 (a b) c) S 1 77 77 0 -1 4194304 100 0 0 0 250 31 9 9 20 0 5 0 1234 5 6";
        assert_eq!(cpu_sec_in(stat), 2.81);
        assert_eq!((ended_cpu_sec_in(stat), parent_in(stat)), (0.18, Some(1)));
        assert_eq!(cpu_sec_in(""), 0.0);
        assert_eq!(cpu_sec_of(u32::MAX), None);
    }

    /// Both the program that the shell started and the one that has ended count. Each works until a file is there.
    #[test]
    fn the_work_of_a_tree_is_that_of_all_its_processes() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let busy = |name: &str| format!("while [ ! -e {} ]; do :; done", file(name).display());
        let script = format!("sh -c '{}'; sh -c '{}; echo; read line'; true", busy("first"), busy("second"));
        let mut shell = Command::new("sh");
        let mut child =
            shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let own = child.id();
        let running = || pids().find(|pid| parent_in(&stat(*pid)) == Some(own));
        let has_worked = || running().and_then(cpu_sec_of).is_some_and(|sec| sec > 0.04);
        ziptier_testing::until("the first one has worked", has_worked);
        std::fs::write(file("first"), "").unwrap();
        ziptier_testing::until("the first one has ended", || ended_cpu_sec_in(&stat(own)) > 0.02);
        ziptier_testing::until("the second one has worked", has_worked);
        std::fs::write(file("second"), "").unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let running = running().unwrap();
        // Neither takes time from here.
        let is_asleep =
            |pid: &u32| stat(*pid).rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
        ziptier_testing::until("both wait", || [own, running].iter().all(is_asleep));
        let (all_sec, rss_bytes) = work_of_tree(own).unwrap();
        let (running_sec, ended_sec) = (cpu_sec_of(running).unwrap(), ended_cpu_sec_in(&stat(own)));
        assert!(running_sec > 0.02 && ended_sec > 0.02 && rss_bytes > 100_000, "{running_sec} {ended_sec}");
        let parts_sec = cpu_sec_in(&stat(own)) + running_sec + ended_sec;
        assert!((all_sec - parts_sec).abs() < 0.001, "{all_sec} {parts_sec}");
        let (below_sec, below_bytes) = work_below(own).unwrap();
        assert!((below_sec - running_sec - ended_sec).abs() < 0.001, "{below_sec}");
        assert!((1..rss_bytes).contains(&below_bytes), "{below_bytes} of {rss_bytes}");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(work_of_tree(own), None);
    }

    fn stat(pid: u32) -> String {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()
    }

    /// The asking thread is running, so it is left out.
    #[test]
    fn a_process_is_busy_if_any_thread_of_it_is_but_for_the_one_that_asks() {
        let own = std::process::id();
        ziptier_testing::until("the other threads sleep", || !is_busy(own));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            ziptier_testing::until("one works", || is_busy(own));
            stop.store(true, Ordering::Relaxed);
        });
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        ziptier_testing::until("a child works", || is_busy_below(own));
        assert!(is_tree_busy(own));
        child.kill().unwrap();
        // Nobody has waited for it.
        ziptier_testing::until("none works", || !is_tree_busy(own));
        child.wait().unwrap();
    }

    fn server(program: &str, argument: &str) -> Server {
        let child = Command::new(program).arg(argument).spawn().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Server { name: "server".into(), address, child, _port: Port::held().unwrap() }
    }

    #[test]
    fn a_wait_that_is_stopped_is_no_rest() {
        let idle = server("sleep", "600");
        assert!(idle.wait_until_quiet(0, &AtomicBool::new(false)).is_ok());
        let told = idle.wait_until_quiet(3, &AtomicBool::new(true)).unwrap_err().to_string();
        assert!(told.contains("it was told to stop"), "{told}");
    }

    #[test]
    fn a_start_that_is_stopped_is_no_silence() {
        let mut ended = server("true", "");
        ended.child.wait().unwrap();
        for mut starting in [server("sleep", "600"), ended] {
            let told = starting.wait_until_it_answers(&AtomicBool::new(true)).unwrap_err().to_string();
            assert!(told.contains("it was told to stop"), "{told}");
        }
    }

    #[test]
    fn a_server_that_has_ended_has_no_figures() {
        // Nobody answers at its address, so its own figure is missing. Some kernels count the first pages late.
        let silent = server("sleep", "600");
        ziptier_testing::until("it has memory", || silent.memory().is_ok_and(|memory| memory.rss_bytes > 0));
        assert_eq!(silent.memory().unwrap().used_bytes, None);
        let mut ended = server("true", "");
        ended.child.wait().unwrap();
        let told = ended.memory().unwrap_err().to_string();
        assert!(told.contains("it has ended"), "{told}");
    }

    /// A wait for its first connection alone would outlast the longest start.
    #[test]
    fn a_server_that_takes_connections_before_it_answers_is_asked_again() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut starting = server("sleep", "600");
        starting.address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let _silent = listener.accept();
            for mut stream in listener.incoming().flatten() {
                let mut request = *b"*1\r\n$4\r\nPING\r\n";
                let _ = stream.read_exact(&mut request).and_then(|()| stream.write_all(b"+PONG\r\n"));
            }
        });
        starting.wait_until_it_answers(&AtomicBool::new(false)).unwrap();
    }

    #[test]
    fn a_server_that_does_not_start_is_named() {
        let program = |name: &str| ServerProgram {
            name: "none".into(),
            program: name.into(),
            arguments: vec!["{port}".into()],
        };
        let said = |name| Server::start(&program(name), &AtomicBool::new(false)).err().unwrap().to_string();
        assert!(said("/no/such/server").starts_with("cannot start /no/such/server: "));
        assert!(said("/bin/false").contains("it ended at its start"));
    }
}
