//! A data access function in a process of its own: requests go to its standard input, replies come from its standard
//! output.
//!
//! 1. A thread writes its requests, under a lock, and draws the next ticket.
//! 2. The threads read the replies in the order of their tickets, so many requests are under way at a time.
//! 3. A function that ends, answers what is no reply, or is silent for too long has ended for good: every later request
//!    has the same error.
//! 4. A function that closes a pipe has as long to end as it has for a reply, so that its status and words can be told.
//! 5. In the end the function sees the end of its input, and has a second. Then its whole process group is killed.
//!
//! Pipes hold 64 KiB. The requests that one thread writes before it reads a reply must be fewer, or their replies must
//! be ([`PIPELINE_MAX`]).

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::servers::adopted;
use crate::servers::replies::{self, Hello, Reply};
use crate::target::{Gone, TargetError};

/// Requests that a thread writes before it reads their replies.
pub(crate) const PIPELINE_MAX: usize = 128;
const BUFFER_BYTES: usize = 16 << 10;
/// The end of standard error that is kept, and the part of it that a sentence has.
const WORDS_BYTES: usize = 4096;
const WORDS_CHARS: usize = 300;
/// The most bytes that Linux lets a pipe have, unless root allows more.
const PIPE_BYTES_MAX: usize = 1 << 20;
const GRACE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);

/// The reason why a request has no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The function refused it, and every reply was read.
    Refused(String),
    /// What follows can't be understood. The sentence begins with "it".
    Broken(String),
}

/// A running function.
#[derive(Debug)]
pub(crate) struct Function {
    pid: u32,
    patience: Duration,
    /// The time to end in once there is no more to do.
    grace: Duration,
    child: Mutex<Option<Child>>,
    requests: Mutex<Requests>,
    replies: Mutex<Replies>,
    turn: Condvar,
    ended: OnceLock<String>,
    words: Words,
    /// Bytes of all replies.
    received_bytes: AtomicU64,
}

#[derive(Debug)]
struct Requests {
    pipe: Option<File>,
    ticket: u64,
}

/// Replies in the order of the requests.
#[derive(Debug)]
pub(crate) struct Replies {
    pipe: File,
    pub(crate) patience: Duration,
    turn: u64,
    received_bytes: u64,
    /// Received bytes are those in `unread`.
    bytes: Vec<u8>,
    unread: Range<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Function {
    /// Starts a command of the shell and reads its hello. The error is a sentence that begins with "it".
    pub(crate) fn start(command: &str, patience: Duration) -> Result<(Self, Hello), String> {
        Self::start_with(command, patience, GRACE)
    }

    fn start_with(command: &str, patience: Duration, grace: Duration) -> Result<(Self, Hello), String> {
        let piped = || Stdio::piped();
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).process_group(0).stdin(piped()).stdout(piped()).stderr(piped());
        let mut child =
            adopted::start(&mut shell).map_err(|error| format!("it cannot be started: {error}"))?;
        let taken = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let ((stdin, stdout), stderr) = taken.expect("all three are pipes");
        let function = Function {
            pid: child.id(),
            patience,
            grace,
            child: Mutex::new(Some(child)),
            requests: Mutex::new(Requests { pipe: Some(pipe(stdin)?), ticket: 0 }),
            replies: Mutex::new(Replies {
                pipe: pipe(stdout)?,
                patience,
                turn: 0,
                received_bytes: 0,
                bytes: vec![0; BUFFER_BYTES],
                unread: 0..0,
            }),
            turn: Condvar::new(),
            ended: OnceLock::new(),
            words: Words::of(pipe(stderr)?),
            received_bytes: AtomicU64::new(0),
        };
        let hello = lock(&function.replies).hello();
        let hello = hello.map_err(|found| function.end("its start", &found).to_string())?;
        Ok((function, hello))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Writes requests and lets `read` read all of their replies.
    pub(crate) fn ask<R>(
        &self,
        requests: &[u8],
        read: impl FnOnce(&mut Replies) -> Result<R, Fault>,
    ) -> Result<R, TargetError> {
        let asked = || {
            let line = requests.split(|byte| *byte == b'\n').next().unwrap_or_default();
            format!("`{}`", String::from_utf8_lossy(line))
        };
        if let Some(reason) = self.ended.get() {
            return Err(Gone(reason.clone()).into());
        }
        let ticket = {
            let mut pipe = lock(&self.requests);
            pipe.write(requests, self.patience).map_err(|found| self.end(&asked(), &found))?;
            pipe.ticket += 1;
            pipe.ticket - 1
        };
        let mut replies = lock(&self.replies);
        while replies.turn != ticket && self.ended.get().is_none() {
            // A thread that ends the function holds no lock of the replies.
            let waited = self.turn.wait_timeout(replies, LOOK);
            replies = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(reason) = self.ended.get() {
            return Err(Gone(reason.clone()).into());
        }
        let answer = read(&mut replies);
        replies.turn += 1;
        self.received_bytes.store(replies.received_bytes, Ordering::Relaxed);
        let answer = answer.map_err(|fault| match fault {
            Fault::Refused(sentence) => sentence.into(),
            Fault::Broken(found) => self.end(&asked(), &found),
        });
        drop(replies);
        self.turn.notify_all();
        answer
    }

    /// Ends the function because of what was found, and says so now and ever after.
    fn end(&self, asked: &str, found: &str) -> TargetError {
        let reason = self.ended.get_or_init(|| {
            let patience = if found == ENDED { self.patience } else { Duration::ZERO };
            let status = lock(&self.child).take().and_then(|child| reap(child, patience));
            let found = match status {
                None if found == ENDED => {
                    format!("it closed a pipe and went on for {} s", patience.as_secs_f64())
                }
                Some(status) => format!("{found} ({status})"),
                None => found.to_owned(),
            };
            let words = self.words.last().map(|words| format!("; its last words: {words}"));
            format!("after {asked} {found}{}", words.unwrap_or_default())
        });
        self.turn.notify_all();
        Gone(reason.clone()).into()
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        lock(&self.requests).pipe = None;
        if let Some(child) = lock(&self.child).take() {
            let _ = reap(child, self.grace);
        }
    }
}

/// No more comes from a function, or it takes no more. Its process may go on.
const ENDED: &str = "it ended";

/// A pipe that never blocks, so that a function that hangs is noticed.
fn pipe(end: impl Into<OwnedFd>) -> Result<File, String> {
    let file = File::from(end.into());
    let set = fcntl(&file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
    set.map(|_| file).map_err(|error| format!("it has a pipe that blocks: {error}"))
}

/// Waits until a pipe is ready; the error is a sentence that begins with "it".
fn wait_for(pipe: &File, ready: PollFlags, patience: Duration) -> Result<(), String> {
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(pipe.as_fd(), ready)], timeout) {
        Ok(0) => Err(format!("it was silent for {} s", patience.as_secs_f64())),
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(format!("it cannot be waited for: {error}")),
    }
}

/// Waits until the process has ended, for a time, and kills what is left of its group. Returns its status if it ended
/// by itself.
fn reap(child: Child, grace: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    // The process stays a zombie meanwhile, so that nobody else gets its number.
    let has_ended = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with('Z'))
    };
    while !has_ended() && began.elapsed() < grace {
        thread::sleep(LOOK);
    }
    let by_itself = has_ended();
    // A group without processes but the zombie has nothing to kill.
    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
    adopted::wait(child).ok().filter(|_| by_itself)
}

impl Requests {
    fn write(&mut self, mut bytes: &[u8], patience: Duration) -> Result<(), String> {
        let pipe = self.pipe.as_mut().ok_or(ENDED)?;
        while !bytes.is_empty() {
            match pipe.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait_for(pipe, PollFlags::POLLOUT, patience)?;
                }
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(ENDED.into()),
                Err(error) => return Err(format!("it did not take a request: {error}")),
            }
        }
        Ok(())
    }
}

impl Replies {
    /// Waits for the next reply. A refusal is a reply, too.
    pub(crate) fn next(&mut self) -> Result<Reply<&[u8]>, Fault> {
        loop {
            let start = self.unread.start;
            let parsed = replies::parse(&self.bytes[self.unread.clone()]).map_err(Fault::Broken)?;
            if let Some((reply, length)) = parsed {
                self.unread.start += length;
                return Ok(reply.map(|place| &self.bytes[start + place.start..start + place.end]));
            }
            self.receive().map_err(Fault::Broken)?;
        }
    }

    /// The reply to a request that is done or not, and has nothing to say: whether it is done.
    pub(crate) fn done(&mut self, request: &str) -> Result<bool, Fault> {
        match self.next()? {
            Reply::Done => Ok(true),
            Reply::Nothing => Ok(false),
            other => Err(unexpected(request, &other)),
        }
    }

    fn hello(&mut self) -> Result<Hello, String> {
        loop {
            let bytes = &self.bytes[self.unread.clone()];
            if let Some((line, length)) = replies::line(bytes)? {
                let hello = Hello::parse(line);
                self.unread.start += length;
                return hello;
            }
            self.receive()?;
        }
    }
    fn receive(&mut self) -> Result<(), String> {
        if self.unread.is_empty() {
            self.unread = 0..0;
        }
        if self.unread.end == self.bytes.len() {
            self.bytes.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        if self.unread.end == self.bytes.len() {
            // What has come decides about room, never what was announced.
            self.bytes.resize(2 * self.bytes.len(), 0);
        }
        match self.pipe.read(&mut self.bytes[self.unread.end..]) {
            Ok(0) => Err(ENDED.into()),
            Ok(got) => {
                self.unread.end += got;
                self.received_bytes += got as u64;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_for(&self.pipe, PollFlags::POLLIN, self.patience)
            }
            Err(error) => Err(format!("it did not answer: {error}")),
        }
    }
}

/// The fault of a reply that the request cannot have.
pub(crate) fn unexpected(request: &str, reply: &Reply<&[u8]>) -> Fault {
    match reply {
        Reply::Error(words) => {
            Fault::Refused(format!("it refused {request}: {}", String::from_utf8_lossy(words)))
        }
        other => Fault::Broken(format!("it answered {request} with {}", other.word())),
    }
}

/// The end of all that a process writes to standard error, which a thread reads, so that the process never waits.
#[derive(Debug)]
struct Words(Arc<Said>);

#[derive(Debug)]
struct Said {
    /// It never blocks.
    pipe: File,
    end: Mutex<Vec<u8>>,
}

impl Words {
    fn of(pipe: File) -> Self {
        let said = Arc::new(Said { pipe, end: Mutex::default() });
        let reader = Arc::clone(&said);
        thread::spawn(move || {
            while reader.take() {
                // A pipe that cannot be waited for is read again and again.
                let _ = poll(&mut [PollFd::new(reader.pipe.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
            }
        });
        Words(said)
    }

    /// The last line that is not empty. All that a process has said lies in the pipe once the process has ended, so
    /// this waits for nobody: neither for the thread nor for a daemon that still holds the pipe.
    fn last(&self) -> Option<String> {
        self.0.take();
        let end = lock(&self.0.end);
        let text = String::from_utf8_lossy(&end);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().take(WORDS_CHARS).collect())
    }
}

impl Said {
    /// Takes what the pipe has, but no more than it can have at a time. Whether more may come.
    fn take(&self) -> bool {
        let mut end = lock(&self.end);
        let (mut part, mut taken) = ([0; WORDS_BYTES], 0);
        while taken < PIPE_BYTES_MAX {
            match (&self.pipe).read(&mut part) {
                Ok(0) => return false,
                Ok(got) => {
                    taken += got;
                    end.extend_from_slice(&part[..got]);
                    let before = end.len().saturating_sub(WORDS_BYTES);
                    end.drain(..before);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A script that has no time in the end, and all that it needs before.
    fn start(script: &str) -> Result<(Function, Hello), String> {
        Function::start_with(script, PATIENCE, Duration::ZERO)
    }

    fn impatient(script: &str) -> Function {
        let mut function = started(script);
        function.patience = Duration::from_millis(200);
        lock(&function.replies).patience = function.patience;
        function
    }

    fn started(script: &str) -> Function {
        start(script).unwrap().0
    }

    fn told(function: &Function) -> String {
        let error = function.ask(b"GET 3\nkey", |replies| replies.done("GET")).unwrap_err();
        assert!(error.is::<Gone>(), "{error}");
        error.to_string()
    }

    fn is_alive(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
    }

    #[test]
    fn one_that_does_not_greet_is_told() {
        for (script, expected) in [
            (
                "echo ERROR: no such table >&2; exit 3",
                "it ended (exit status: 3); its last words: ERROR: no such table",
            ),
            ("/no/such/program", "it ended (exit status: 127); its last words: "),
            ("echo Python 3; sleep 600", "it greets with `Python 3`"),
            ("yes | tr -d '\\n'", "it answered with a line of more than 4096 bytes"),
        ] {
            let told = start(script).unwrap_err();
            assert!(told.starts_with("after its start ") && told.contains(expected), "{told}");
        }
    }

    #[test]
    fn one_that_ends_or_babbles_has_ended_for_good() {
        for (after_hello, expected) in [
            (
                "read line; echo out of disk >&2; exit 5",
                "after `GET 3` it ended (exit status: 5); its last words: out of disk",
            ),
            (
                "read line; echo Traceback; sleep 600",
                "after `GET 3` it answered `Traceback`, which is no reply",
            ),
            ("read line; echo VALUE 3; printf abc; sleep 600", "after `GET 3` it answered GET with VALUE"),
            ("exec <&-; exit 0", "after `GET 3` it ended (exit status: 0)"),
            (
                "read line; exec >&-; sleep 0.2; echo out of disk >&2; exit 5",
                "after `GET 3` it ended (exit status: 5); its last words: out of disk",
            ),
        ] {
            let function = started(&format!("echo ziptier 1 GET; {after_hello}"));
            let first = told(&function);
            assert_eq!(first, expected);
            assert_eq!(told(&function), first, "it has ended for good");
        }
    }

    #[test]
    fn one_that_closes_its_output_and_goes_on_is_killed_in_the_end() {
        let mut function = started("echo ziptier 1 GET; echo busy >&2; exec >&-; sleep 600");
        function.patience = Duration::from_millis(200);
        assert_eq!(
            told(&function),
            "after `GET 3` it closed a pipe and went on for 0.2 s; its last words: busy"
        );
        assert!(!is_alive(&function.pid().to_string()));
    }

    /// A wait for the daemon's end of the pipe would never end: the daemon goes when the function is dropped.
    #[test]
    fn a_daemon_that_keeps_standard_error_holds_up_no_words() {
        let daemon = "exec 3<&0; (setsid cat <&3 >/dev/null &)";
        let script = format!("echo ziptier 1 GET; read line; {daemon}; echo out of disk >&2; exit 5");
        let forever = Duration::from_secs(1_000_000);
        let (function, _) = Function::start_with(&script, PATIENCE, forever).unwrap();
        assert_eq!(told(&function), "after `GET 3` it ended (exit status: 5); its last words: out of disk");
    }

    #[test]
    fn one_that_hangs_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let script = format!("sleep 600 & echo $! $$ > {}; echo ziptier 1 GET; sleep 600", pids.display());
        let function = impatient(&script);
        let pids = fs::read_to_string(&pids).unwrap();
        assert!(pids.split(' ').all(is_alive), "{pids}");
        assert_eq!(told(&function), "after `GET 3` it was silent for 0.2 s");
        // A process that is no child of this one ends some time after its signal.
        ziptier_testing::until("all have ended", || !pids.split(' ').any(is_alive));
        // One that takes no requests, however many there are.
        let function = impatient("echo ziptier 1 GET; sleep 600");
        let error = function.ask(&[b'x'; 1 << 20], |replies| replies.done("GET")).unwrap_err();
        assert!(error.to_string().contains("it was silent for 0.2 s"), "{error}");
    }

    #[test]
    fn one_that_is_no_longer_needed_ends_by_itself_or_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let tidy = folder.path().join("tidy");
        let mut last = started(&format!("echo ziptier 1 GET; cat; touch {}", tidy.display()));
        last.grace = PATIENCE;
        drop(last);
        assert!(tidy.exists());
        let mut stubborn = started("echo ziptier 1 GET; while :; do sleep 600; done");
        stubborn.grace = Duration::from_millis(100);
        let pid = stubborn.pid().to_string();
        drop(stubborn);
        assert!(!is_alive(&pid));
    }

    #[test]
    fn threads_get_the_replies_to_their_own_requests() {
        // Answers each request by its own key, after the wrong number of bytes in a piece.
        let script = "echo ziptier 1 GET; \
                      while read word length; do read key; echo \"VALUE ${#key}\"; printf %s \"$key\"; done";
        let function = started(script);
        thread::scope(|scope| {
            for thread in 0..4 {
                let function = &function;
                scope.spawn(move || {
                    for number in 0..200 {
                        let key = format!("{thread}-{number}");
                        let request = format!("GET {}\n{key}\n", key.len() + 1);
                        let is_own = function.ask(request.as_bytes(), |replies| match replies.next()? {
                            Reply::Value(value) => Ok(value == key.as_bytes()),
                            other => Err(unexpected("GET", &other)),
                        });
                        assert!(is_own.unwrap());
                    }
                });
            }
        });
        assert!(function.received_bytes() > 800 * 8);
    }

    #[test]
    fn a_refusal_is_no_end() {
        let function = started("echo ziptier 1 GET; while read line; do echo ERR no such column; done");
        for _ in 0..2 {
            let error = function.ask(b"GET 0\n", |replies| replies.done("GET")).unwrap_err();
            assert!(!error.is::<Gone>());
            assert_eq!(error.to_string(), "it refused GET: no such column");
        }
    }
}
