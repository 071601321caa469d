//! A process of its own for every run, so that no run inherits another's memory, caches of the allocator or CPU time.
//!
//! The child is the same program with a hidden command. It reads a request (a [`RunSpec`] or a [`BypassSpec`]) as JSON
//! from standard input. It reports its phases on standard error, and writes the figures as JSON to standard output.
//!
//! Such JSON is written by `json!` and read by `from_slice`, as in all of this crate. Each other way would compile all
//! types of a request and an answer once more.
//!
//! The kernel kills a child whose parent ends, however that ends. The kernel goes by the parent's thread, so a thread
//! that starts a child also waits for it. A program that a child turns into, such as a server, is killed likewise. It
//! leads a group of processes, so that what it starts can be ended with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bench::confine::{Folders, Groups};
use crate::bench::remains::{FreshFolder, mark};
use crate::error::Error;
use crate::medium::ceiling::{Ceiling, CeilingSpec, raw_ceiling};
use crate::meters::Meters;
use crate::run::measurement::Measurement;
use crate::run::spec::RunSpec;
use crate::servers::process::children_of;
use crate::suites::bypass::{BypassSeries, BypassSpec};
use crate::target::registry::Registry;

/// Lines of standard error that begin with this tell the phase of the run; all others are kept for the log.
const PHASE: &str = "phase: ";

/// How to start the child of a run.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Its arguments: those that lead to [`serve_child`].
    pub arguments: Vec<String>,
}

/// What a child is to do, and for whom.
#[derive(Serialize, Deserialize)]
struct Order {
    parent: u32,
    what: What,
}

#[derive(Serialize, Deserialize)]
enum What {
    Figures(Request),
    /// Become this program.
    Program(Vec<String>),
}

impl Order {
    fn bytes(what: What) -> Vec<u8> {
        json!(Order { parent: std::process::id(), what }).to_string().into_bytes()
    }
}

#[derive(Serialize, Deserialize)]
enum Request {
    Run(Box<RunSpec>),
    Bypass(Box<BypassSpec>),
    /// What a raw medium does under the limits of a run.
    Ceiling(Box<CeilingSpec>, Box<RunSpec>),
}

impl Request {
    fn spec(&self) -> &RunSpec {
        match self {
            Request::Run(run) | Request::Ceiling(_, run) => run,
            Request::Bypass(bypass) => &bypass.run,
        }
    }

    fn spec_mut(&mut self) -> &mut RunSpec {
        match self {
            Request::Run(run) | Request::Ceiling(_, run) => run,
            Request::Bypass(bypass) => &mut bypass.run,
        }
    }
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Measured(Box<Measurement>),
    Bypassed(Box<BypassSeries>),
    Reached(Ceiling),
    Failed { sentence: String, status: u8 },
}

/// Does one run on behalf of a parent process: reads the run from standard input and answers on standard output; or
/// becomes the program that the parent names. Returns the exit status.
///
/// `raise_open_files` allows this process as many open files as the system lets it have, and returns how many that are.
/// A run has a connection for each thread, or more. Programs keep the limit that the user has set.
pub fn serve_child(registry: &Registry, meters: &Meters, raise_open_files: fn() -> u64) -> u8 {
    let answer = match ordered() {
        Err(reason) => Answer::Failed {
            sentence: format!("this command is started by the benchmark itself: {reason}"),
            status: 2,
        },
        Ok(What::Program(words)) => return become_program(&words),
        Ok(What::Figures(request)) => {
            raise_open_files();
            match measure(&request, registry, meters) {
                Ok(answer) => answer,
                Err(error) => Answer::Failed { sentence: error.to_string(), status: error.exit_status() },
            }
        }
    };
    let mut out = std::io::stdout().lock();
    let sent = out.write_all(json!(answer).to_string().as_bytes()).and_then(|()| out.flush());
    u8::from(sent.is_err())
}

/// The order of the parent, with which this process ends from now on.
fn ordered() -> Result<What, String> {
    set_pdeathsig(Signal::SIGKILL).map_err(|error| error.to_string())?;
    let mut order = Vec::new();
    std::io::stdin().read_to_end(&mut order).map_err(|error| error.to_string())?;
    let Order { parent, what } = serde_json::from_slice(&order).map_err(|error| error.to_string())?;
    match parent_id() == parent {
        true => Ok(what),
        // It ended before the kernel was told to watch it.
        false => Err("the benchmark has ended".into()),
    }
}

/// Returns the exit status of a shell that finds no such program.
fn become_program(words: &[String]) -> u8 {
    const NOT_FOUND: u8 = 127;
    if let Some((program, arguments)) = words.split_first() {
        let mut command = Command::new(program);
        mark(&mut command, parent_id());
        let error = command.args(arguments).stdin(Stdio::null()).exec();
        eprintln!("cannot start {program}: {error}");
    }
    NOT_FOUND
}

fn measure(request: &Request, registry: &Registry, meters: &Meters) -> Result<Answer, Error> {
    let spec = request.spec();
    // The work of a function's daemons counts for it. Where the kernel refuses, that of its other processes alone does.
    let _ = set_child_subreaper(true);
    if let Some(set) = cpu_set(&spec.cpus) {
        sched_setaffinity(Pid::from_raw(0), &set).map_err(|error| {
            Error::invalid(
                "--cpus",
                format!("{:?}", spec.cpus),
                format!("the system refuses these processors: {error}"),
            )
        })?;
    }
    let target = registry.find(&spec.target)?;
    let progress = |phase: &str| eprintln!("{PHASE}{phase}");
    Ok(match request {
        Request::Ceiling(ceiling, _) => {
            progress("measuring the raw medium");
            Answer::Reached(raw_ceiling(ceiling)?)
        }
        Request::Run(run) => Answer::Measured(Box::new(target.run(run, meters, &progress)?)),
        Request::Bypass(bypass) => Answer::Bypassed(Box::new(target.run_bypass(bypass, meters, &progress)?)),
    })
}

/// Whether somebody has interrupted this process.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Interrupts what this process measures: kills the processes that it has started, and all that descend from these. A
/// caller goes on calling until this process ends, since another run may begin meanwhile.
pub fn interrupt() {
    IS_INTERRUPTED.store(true, Ordering::Relaxed);
    kill_children_of("self");
}

fn kill_children_of(process: &str) {
    for child in children_of(process) {
        // Nobody finds its own children once it is gone, and a function of the user's may not heed the end of its
        // input.
        kill_children_of(&child.to_string());
        // One that has just ended needs no signal, and only a program of the user's leads a group.
        let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        let _ = killpg(Pid::from_raw(child), Signal::SIGKILL);
    }
}

/// The error of work that ended early: [`Error::Interrupted`] if somebody has interrupted this process. `kept` tells
/// the part that is kept.
pub fn or_interrupted(error: Error, kept: &'static str) -> Error {
    if IS_INTERRUPTED.load(Ordering::Relaxed) { Error::Interrupted { kept } } else { error }
}

/// The set of these processors; nothing for an empty list or a processor that cannot be.
pub(crate) fn cpu_set(cpus: &[usize]) -> Option<CpuSet> {
    let there = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_CONF).ok().flatten().unwrap_or(1);
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= there as usize {
            return None;
        }
        set.set(cpu).ok()?;
    }
    (!cpus.is_empty()).then_some(set)
}

/// Refuses processors that this machine does not have.
pub(crate) fn check_cpus(what: &'static str, mut cpus: impl Iterator<Item = usize>) -> Result<(), Error> {
    let there = std::thread::available_parallelism().map_or(1, usize::from);
    match cpus.find(|&cpu| cpu_set(&[cpu]).is_none()) {
        Some(cpu) => {
            let expected = format!("this machine has {there} processors, from 0 on");
            Err(Error::invalid(what, cpu.to_string(), expected))
        }
        None => Ok(()),
    }
}

impl Launcher {
    /// Does a run in a child process. Tells its phases to `progress`; returns the figures and what else the child said.
    pub(crate) fn run(
        &self,
        spec: &RunSpec,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(Measurement, String), Error> {
        match self.ask(Request::Run(Box::new(spec.clone())), progress)? {
            (Answer::Measured(measurement), said) => Ok((*measurement, said)),
            (_, said) => Err(no_result(spec, "it answered something else".into(), &said)),
        }
    }

    /// Does a bypass run in a child process, in the same way.
    pub(crate) fn bypass(
        &self,
        spec: &BypassSpec,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(BypassSeries, String), Error> {
        match self.ask(Request::Bypass(Box::new(spec.clone())), progress)? {
            (Answer::Bypassed(series), said) => Ok((*series, said)),
            (_, said) => Err(no_result(&spec.run, "it answered something else".into(), &said)),
        }
    }

    /// Measures what a raw medium does, in a child process with the limits of `run`.
    pub(crate) fn ceiling(
        &self,
        spec: &CeilingSpec,
        run: &RunSpec,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Ceiling, Error> {
        match self.ask(Request::Ceiling(Box::new(spec.clone()), Box::new(run.clone())), progress)? {
            (Answer::Reached(ceiling), _) => Ok(ceiling),
            (_, said) => Err(no_result(run, "it answered something else".into(), &said)),
        }
    }

    /// Starts a program in these control groups, which is killed when this thread ends. It leads a group of processes.
    pub(crate) fn program(&self, words: &[String], groups: &Groups, stderr: Stdio) -> Result<Child, Error> {
        let start_failed = |source| Error::Io { action: "start", path: self.program.clone(), source };
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr)
            .process_group(0);
        let mut child = command.spawn().map_err(start_failed)?;
        let stdin = child.stdin.take();
        if let Err(error) = groups.take(child.id()) {
            // It waits for its order and ends without one.
            drop(stdin);
            let _ = child.wait();
            return Err(error);
        }
        if let Some(mut stdin) = stdin {
            // A child that died already has an exit status that says so.
            let _ = stdin.write_all(&Order::bytes(What::Program(words.to_vec())));
        }
        Ok(child)
    }

    /// The child's answer, unless it is a failure, and what else it said.
    fn ask(&self, mut request: Request, progress: &mut dyn FnMut(&str)) -> Result<(Answer, String), Error> {
        let spec = &request.spec().clone();
        let start_failed = |source| Error::Io { action: "start", path: self.program.clone(), source };
        let mut command = Command::new(&self.program);
        if let Some(library) = &spec.preload {
            command.env("LD_PRELOAD", library);
        }
        // They are removed in the end, also when the child was killed.
        let scratch = spec.confinement.folders().iter().map(|folder| {
            FreshFolder::new(folder, "run").map_err(|source| Error::Io {
                action: "make a folder in",
                path: folder.clone(),
                source,
            })
        });
        let scratch = scratch.collect::<Result<Vec<FreshFolder>, Error>>()?;
        if let Some(first) = scratch.first() {
            command.env("TMPDIR", first.path());
            let own = scratch.iter().map(|folder| folder.path().to_owned()).collect();
            request.spec_mut().confinement.folder = Some(Folders::Several(own));
        }
        // So are those of a run without such folders. Most write none, and go on where no folder can be made.
        let usual = scratch.is_empty().then(|| FreshFolder::new(&std::env::temp_dir(), "run"));
        let usual = usual.and_then(Result::ok);
        if let Some(usual) = &usual {
            command.env("TMPDIR", usual.path());
        }
        let groups = Groups::of(&spec.confinement)?;
        let mut child = command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start_failed)?;
        if let Err(error) = groups.take(child.id()) {
            // It waits for its request and ends without one.
            drop(child.stdin.take());
            let _ = child.wait();
            return Err(error);
        }
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let request = Order::bytes(What::Figures(request));
        if let Some(mut stdin) = stdin {
            // A child that died already says so below, better than a broken pipe would.
            let _ = stdin.write_all(&request);
        }
        let answer = std::thread::spawn(move || {
            let mut answer = Vec::new();
            // An incomplete output is no answer, and counts as none below.
            let _ = stdout.map(|mut stdout| stdout.read_to_end(&mut answer));
            answer
        });
        let mut said = String::new();
        // A library may say anything. A child whose words nobody reads any more ends with its next one.
        let lines = stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).split(b'\n'));
        for line in lines.map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if let Some(phase) = line.strip_prefix(PHASE) {
                progress(phase);
            }
            said += &line;
            said.push('\n');
        }
        let status = child.wait().map_err(start_failed)?;
        let answer = answer.join().unwrap_or_default();
        match serde_json::from_slice(&answer) {
            Ok(Answer::Failed { sentence, status }) => Err(Error::Run { run: spec.name(), sentence, status }),
            Ok(answer) => Ok((answer, said)),
            Err(_) => {
                let why = groups.killed_for_memory().unwrap_or_else(|| status.to_string());
                Err(no_result(spec, why, &said))
            }
        }
    }
}

fn no_result(spec: &RunSpec, status: String, said: &str) -> Error {
    let last: Vec<&str> = said.lines().filter(|line| !line.starts_with(PHASE)).collect();
    let last_words = match last.len() {
        0 => String::new(),
        lines => format!(": {}", last[lines.saturating_sub(3)..].join(" / ")),
    };
    Error::Process { run: spec.name(), status, last_words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_says_no_text_is_heard_to_its_end() {
        let answer = r#"{"Failed":{"sentence":"it is full","status":2}}"#;
        // More than a pipe holds, so that the child notices if nobody reads.
        let script = format!(
            "cat > /dev/null; printf '\\377\\n' >&2; head -c 1000000 /dev/zero >&2; echo >&2; \
             echo 'phase: last' >&2; echo '{answer}'"
        );
        let launcher = Launcher { program: "sh".into(), arguments: vec!["-c".into(), script] };
        let mut phases = Vec::new();
        let told = launcher.run(&RunSpec::new("null", "log"), &mut |phase| phases.push(phase.to_owned()));
        assert_eq!(told.unwrap_err().to_string(), "null: it is full");
        assert_eq!(phases, ["last"]);
    }

    /// A database that a killed run left would fill the disk, or memory where `TMPDIR` lies in it.
    #[test]
    fn the_files_of_a_run_that_was_killed_are_removed() {
        let script =
            "cat > /dev/null; echo > \"${TMPDIR:?}/left\"; ls \"$TMPDIR/left\" >&2; kill -9 $$".to_owned();
        let launcher = Launcher { program: "sh".into(), arguments: vec!["-c".into(), script] };
        let told = launcher.run(&RunSpec::new("null", "log"), &mut |_| {}).unwrap_err().to_string();
        let left = told.rsplit(": ").next().unwrap();
        assert!(left.ends_with("/left") && !std::path::Path::new(left).exists(), "{told}");
    }
}
