//! A process that writes a database with ziptier's log, and checks of what it left.

use super::{compiled, plugin, stock};
use std::convert::Infallible;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use ziptier_rocksdb::wal::Walk;

/// RocksDB's modes of recovery.
pub(crate) const TOLERATE: &str = "wal_recovery_mode=kTolerateCorruptedTailRecords";
pub(crate) const ABSOLUTE: &str = "wal_recovery_mode=kAbsoluteConsistency";
pub(crate) const POINT_IN_TIME: &str = "wal_recovery_mode=kPointInTimeRecovery";
pub(crate) const SKIP: &str = "wal_recovery_mode=kSkipAnyCorruptedRecords";

/// The exit code of a check for a database that does not open.
pub(crate) const REFUSED: i32 = 3;

/// A program with the plugin.
pub(crate) fn program(source: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(compiled(source));
    command.env("LD_PRELOAD", plugin()).args(arguments);
    command
}

/// A check by RocksDB alone.
pub(crate) fn check(dir: &Path, wal_dir: &Path, options: &str, count: u64) -> Output {
    stock(&compiled("wal.cc"), &["check", text(dir), text(wal_dir), options, &count.to_string()])
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

/// The logs of a database, the oldest first.
pub(crate) fn logs(wal_dir: &Path) -> Vec<PathBuf> {
    let mut logs: Vec<PathBuf> = fs::read_dir(wal_dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    logs
}

/// Bytes of a log up to the end of the last batch that is there as a whole.
pub(crate) fn whole_bytes(log: &Path) -> usize {
    let bytes = fs::read(log).unwrap();
    let number: u64 = text(Path::new(log.file_stem().unwrap())).parse().unwrap();
    let read = |at: u64, into: &mut [u8]| {
        let rest = &bytes[bytes.len().min(at as usize)..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok::<_, Infallible>(count)
    };
    let Ok(whole) = Walk::new(number as u32).advance(read);
    whole as usize
}

/// A writer, of which each line acknowledges a record.
pub(crate) struct Writer {
    process: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    acknowledged: u64,
}

impl Writer {
    /// Puts records from a number on, with the logs in `wal`.
    pub(crate) fn start(dir: &Path, options: &str, from: u64) -> Writer {
        Writer::start_flushing(dir, options, from, 0)
    }

    /// The same; after so many records, unless they are none, it flushes and thus begins another log.
    pub(crate) fn start_flushing(dir: &Path, options: &str, from: u64, flush_every: u64) -> Writer {
        let wal_dir = dir.join("wal");
        let arguments = ["write", text(dir), text(&wal_dir), "ziptier", options, &from.to_string()];
        let mut command = program("wal.cc", &arguments);
        command.env("FLUSH_EVERY", flush_every.to_string());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Writer { process, lines, acknowledged: 0 }
    }

    /// Waits until so many records are acknowledged; the number of those that are known to be.
    pub(crate) fn wait_for(&mut self, count: u64) -> u64 {
        while self.acknowledged < count && self.goes_on() {}
        self.acknowledged
    }

    /// Kills it once so many records are acknowledged; the number of all that were.
    pub(crate) fn kill_after(mut self, count: u64) -> u64 {
        self.wait_for(count);
        self.process.kill().unwrap();
        while self.goes_on() {}
        self.process.wait().unwrap();
        self.acknowledged
    }

    fn goes_on(&mut self) -> bool {
        let Some(Ok(line)) = self.lines.next() else { return false };
        self.acknowledged = line.parse::<u64>().unwrap_or_else(|_| panic!("the writer said {line}")) + 1;
        true
    }
}

impl Drop for Writer {
    /// A failed test leaves no process behind.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
