//! `exec:COMMAND`: any data access function, in a process that the shell starts.
//!
//! The protocol is in `docs/benchmarks.md`. One process serves all threads of a run, since a store that lives in a
//! process cannot be shared by several. The threads write their requests one after the other and read the replies in
//! that order, so the function always has requests of all threads before it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::servers::adopted::{Reaper, is_child_busy, work_of_child};
use crate::servers::function::{Fault, Function, PIPELINE_MAX, unexpected};
use crate::servers::listening::RESTLESS;
use crate::servers::quiet::{Processes, Quiet};
use crate::servers::replies::{Hello, Reply};
use crate::servers::resp::SILENCE_MAX;
use crate::target::{Answers, Config, Records, Target, TargetError, Work};
use crate::workload::mix::Operation;

/// The name of the target in lists: any command behind it is meant.
pub(crate) const NAME: &str = "exec:COMMAND";
const SCHEME: &str = "exec:";
/// A function that makes its files when all keys are there may be silent for so many times as long.
const LOADED_PATIENCE: u32 = 10;

/// A running function.
#[derive(Debug)]
pub struct ExecTarget {
    command: String,
    function: Function,
    /// It waits for processes that the function leaves behind.
    _reaper: Option<Reaper>,
    hello: Hello,
    /// Whether keys are loaded, by LOAD if the function has that.
    is_loading: AtomicBool,
    /// Resident bytes of its processes when it was opened.
    opened_rss_bytes: u64,
    /// Whether it has told the bytes that hold its data.
    tells_held: AtomicBool,
    /// Whether it was not quiet in time.
    is_restless: AtomicBool,
    /// Bytes that had been read from the medium, and received, when all keys were loaded.
    loaded_read_bytes: AtomicU64,
    loaded_received_bytes: AtomicU64,
}

/// The command in a target's name. The error is a sentence that begins with "it".
fn command(target: &str) -> Result<&str, String> {
    match target.strip_prefix(SCHEME).map(str::trim) {
        None | Some("") => Err(format!("it names no command; give {NAME}, such as {SCHEME}./function.py")),
        Some(command) => Ok(command),
    }
}

/// Appends a request: a line with the lengths of its parts, and the parts.
fn request(word: &str, parts: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(word.as_bytes());
    for part in parts {
        out.extend_from_slice(format!(" {}", part.len()).as_bytes());
    }
    out.push(b'\n');
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// The first refusal of several replies.
fn first(refusal: Option<Fault>) -> Result<(), Fault> {
    refusal.map_or(Ok(()), Err)
}

impl ExecTarget {
    /// A request whose reply says whether it is done.
    fn done(&self, word: &str, parts: &[&[u8]]) -> Result<bool, TargetError> {
        let mut out = Vec::new();
        request(word, parts, &mut out);
        self.function.ask(&out, |replies| replies.done(word))
    }

    /// The word that stores a value now.
    fn storing(&self) -> &'static str {
        match self.is_loading.load(Ordering::Acquire) && self.hello.has("LOAD") {
            true => "LOAD",
            false => "PUT",
        }
    }

    fn stat(&self) -> Option<(Option<u64>, Option<u64>)> {
        self.hello.has("STAT").then_some(())?;
        let stat = self.function.ask(b"STAT\n", |replies| match replies.next()? {
            Reply::Stat { read, held } => Ok((read, held)),
            other => Err(unexpected("STAT", &other)),
        });
        stat.ok()
    }

    fn read_bytes(&self) -> Option<u64> {
        self.stat()?.0
    }

    fn cpu_sec(&self) -> Option<f64> {
        work_of_child(self.function.pid()).map(|(cpu_sec, _)| cpu_sec)
    }
}

impl Target for ExecTarget {
    type Batch = Answers;

    const CHECKED_AT_ONCE: usize = 64;
    const LOADED_AT_ONCE: usize = 64;

    fn check(config: &Config) -> Result<(), TargetError> {
        command(&config.target)?;
        if config.instances > 1 {
            return Err("it is one function; leave out --instances".into());
        }
        Ok(config.options.take_only(&[])?)
    }

    fn open(config: &Config) -> Result<Self, TargetError> {
        Self::check(config)?;
        let command = command(&config.target)?.to_owned();
        let (function, hello) = Function::start(&command, SILENCE_MAX)?;
        if !hello.has("GET") || !(hello.has("PUT") || hello.has("LOAD")) {
            let has = hello.requests();
            return Err(format!("it has {has}, and needs GET, and PUT or LOAD to take the keys").into());
        }
        Ok(ExecTarget {
            command,
            opened_rss_bytes: work_of_child(function.pid()).map_or(0, |(_, rss_bytes)| rss_bytes),
            function,
            _reaper: Reaper::start(),
            hello,
            is_loading: AtomicBool::new(true),
            tells_held: AtomicBool::new(false),
            is_restless: AtomicBool::new(false),
            loaded_read_bytes: AtomicU64::new(0),
            loaded_received_bytes: AtomicU64::new(0),
        })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let mut out = Vec::with_capacity(2 * key.len());
        request("GET", &[key], &mut out);
        self.function.ask(&out, |replies| match replies.next()? {
            Reply::Value(found) => {
                value.extend_from_slice(found);
                Ok(true)
            }
            Reply::Nothing => Ok(false),
            other => Err(unexpected("GET", &other)),
        })
    }

    /// A pipeline of GETs.
    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        batch.clear();
        let mut out = Vec::new();
        for keys in keys.chunks(PIPELINE_MAX) {
            out.clear();
            keys.iter().for_each(|key| request("GET", &[key], &mut out));
            self.function.ask(&out, |replies| {
                let mut refusal = None;
                for _ in keys {
                    match replies.next()? {
                        Reply::Value(found) => batch.push(Some(found)),
                        Reply::Nothing => batch.push(None),
                        other => match unexpected("GET", &other) {
                            Fault::Broken(found) => return Err(Fault::Broken(found)),
                            refused => refusal = refusal.or(Some(refused)),
                        },
                    }
                }
                first(refusal)
            })?;
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        let word = self.storing();
        match self.done(word, &[key, value])? {
            true => Ok(()),
            false => Err(format!("it answered {word} with NONE").into()),
        }
    }

    /// A pipeline of PUTs.
    fn multi_put(&self, records: &[(&[u8], &[u8])]) -> Result<(), TargetError> {
        let word = self.storing();
        let mut out = Vec::new();
        for records in records.chunks(PIPELINE_MAX) {
            out.clear();
            records.iter().for_each(|(key, value)| request(word, &[key, value], &mut out));
            self.function.ask(&out, |replies| {
                let mut refusal = None;
                for _ in records {
                    match replies.done(word) {
                        Ok(true) => {}
                        Ok(false) => return Err(unexpected(word, &Reply::Nothing)),
                        Err(Fault::Refused(said)) => refusal = refusal.or(Some(Fault::Refused(said))),
                        Err(broken) => return Err(broken),
                    }
                }
                first(refusal)
            })?;
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        self.done("DEL", &[key])
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        let mut out = format!("SCAN {} {limit}\n", from.len()).into_bytes();
        out.extend_from_slice(from);
        self.function.ask(&out, |replies| {
            for _ in 0..limit {
                match replies.next()? {
                    Reply::Record(key, value) => records.push(key, value),
                    Reply::End => return Ok(()),
                    other => return Err(unexpected("SCAN", &other)),
                }
            }
            match replies.next()? {
                Reply::End => Ok(()),
                Reply::Record(..) => {
                    Err(Fault::Broken(format!("it answered SCAN with more than {limit} records")))
                }
                other => Err(unexpected("SCAN", &other)),
            }
        })
    }

    fn filter(&self) -> Option<&[u8]> {
        self.hello.filter.as_deref()
    }

    fn refuses(&self, operation: Operation) -> Option<String> {
        let (word, share) = match operation {
            Operation::Read => ("GET", "read"),
            Operation::Write => ("PUT", "write"),
            Operation::Insert => ("PUT", "insert"),
            // All functions have GET.
            Operation::ReadModifyWrite => ("PUT", "rmw"),
            Operation::Delete => ("DEL", "delete"),
            Operation::Scan => ("SCAN", "scan"),
        };
        (!self.hello.has(word))
            .then(|| format!("it has {} and no {word}; leave {share} out of --mix", self.hello.requests()))
    }

    fn loaded(&self) -> Result<(), TargetError> {
        if self.hello.has("LOAD") && self.is_loading.swap(false, Ordering::AcqRel) {
            self.function.ask(b"LOADED\n", |replies| {
                let usual = replies.patience;
                replies.patience = usual * LOADED_PATIENCE;
                let done = replies.done("LOADED");
                replies.patience = usual;
                done
            })?;
        }
        self.rest()?;
        self.loaded_read_bytes.store(self.read_bytes().unwrap_or(0), Ordering::Relaxed);
        self.loaded_received_bytes.store(self.function.received_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Resident memory counts from the opening on. A function that makes its files late tells their bytes late, and
    /// these less the memory that it had until then would be no size of anything.
    fn held_bytes(&self) -> Option<u64> {
        let told = self.stat().and_then(|(_, held)| held);
        if told.is_some() || self.tells_held.load(Ordering::Relaxed) {
            self.tells_held.store(true, Ordering::Relaxed);
            return told;
        }
        let (_, rss_bytes) = work_of_child(self.function.pid())?;
        Some(rss_bytes.saturating_sub(self.opened_rss_bytes))
    }

    fn work(&self) -> Work {
        Work::Servers(self.cpu_sec())
    }

    fn rest(&self) -> Result<(), TargetError> {
        let (_, is_quiet) = Quiet::BETWEEN_WINDOWS.wait_for(self, &AtomicBool::new(false));
        self.is_restless.fetch_or(!is_quiet, Ordering::Relaxed);
        Ok(())
    }

    fn describe(&self) -> String {
        let received = self.function.received_bytes() - self.loaded_received_bytes.load(Ordering::Relaxed);
        let filter =
            self.filter().map(|filter| format!(", scans of values with `{}`", filter.escape_ascii()));
        let medium = self.read_bytes().map_or_else(
            || "it does not tell what it read from its medium".into(),
            |read| {
                let read = read.saturating_sub(self.loaded_read_bytes.load(Ordering::Relaxed));
                let each = received as f64 / read.max(1) as f64;
                format!(
                    "it read {read} bytes from its medium, so it sent {each:.3} bytes for each that it read"
                )
            },
        );
        format!(
            "`{}` has {}{}; since all keys were loaded it sent {received} bytes, and {medium}{}",
            self.command,
            self.hello.requests(),
            filter.unwrap_or_default(),
            if self.is_restless.load(Ordering::Relaxed) { RESTLESS } else { "" }
        )
    }
}

impl Processes for ExecTarget {
    fn cpu_sec(&self) -> f64 {
        ExecTarget::cpu_sec(self).unwrap_or(0.0)
    }

    fn is_busy(&self) -> bool {
        is_child_busy(self.function.pid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(command: &str) -> Result<ExecTarget, String> {
        let config = Config { target: format!("{SCHEME}{command}"), ..Config::default() };
        ExecTarget::open(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn what_no_function_can_do_is_refused_before_anything_is_loaded() {
        assert!(opened(" ").unwrap_err().contains("it names no command"));
        let config = Config { target: "exec:x".into(), instances: 2, ..Config::default() };
        assert!(ExecTarget::check(&config).unwrap_err().to_string().contains("--instances"));
        assert_eq!(
            opened("echo ziptier 1 GET SCAN; cat").unwrap_err(),
            "it has GET SCAN, and needs GET, and PUT or LOAD to take the keys"
        );
        let selecting = opened("echo ziptier 1 LOAD GET; cat").unwrap();
        let refused = |operation| selecting.refuses(operation);
        assert_eq!(refused(Operation::Read), None);
        assert_eq!(
            refused(Operation::Write).as_deref(),
            Some("it has LOAD GET and no PUT; leave write out of --mix")
        );
    }

    #[test]
    fn bytes_that_are_told_late_are_not_put_beside_resident_memory() {
        let script = "echo ziptier 1 GET PUT STAT; read line; echo STAT read=0; read line; echo STAT held=4711; \
                      read line; echo STAT read=9; cat";
        let late = opened(script).unwrap();
        let rss_bytes = late.opened_rss_bytes;
        let held = [(); 3].map(|()| late.held_bytes());
        assert!(held[0].is_some_and(|grown| grown < rss_bytes), "{held:?} {rss_bytes}");
        assert_eq!(held[1..], [Some(4711), None]);
    }

    #[test]
    fn too_many_records_are_noticed() {
        let script = "echo ziptier 1 GET PUT SCAN; read line; for i in 1 2 3; do echo RECORD 1 0; printf $i; done; cat";
        let mut records = Records::default();
        let told = opened(script).unwrap().scan(b"k", 2, &mut records).unwrap_err().to_string();
        assert_eq!(told, "after `SCAN 1 2` it answered SCAN with more than 2 records");
    }
}
