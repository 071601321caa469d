//! RocksDB with the log of ziptier: a writer is killed, and RocksDB without ziptier finds every record it acknowledged, in each of
//! its modes of recovery; readers of a log that is being written see all of it and nothing else; a full disk is an error.
//!
//! RocksDB is the library that its makers publish; the programs are compiled here.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

/// Values of RocksDB's `WALRecoveryMode`.
const MODES: [(&str, &str); 4] =
    [("0", "tolerate corrupted tails"), ("1", "absolute"), ("2", "point in time"), ("3", "skip corrupted")];

/// The exit code of a check for a database that does not open.
const REFUSED: i32 = 3;

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let include = PathBuf::from(
        std::env::var_os("ROCKSDB_INCLUDE_DIR").expect("ROCKSDB_INCLUDE_DIR, as the Makefile sets it"),
    );
    let library = include.parent().unwrap();
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("wal");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/wal.cc");
    let compiled = Command::new("g++")
        .args(["-std=c++20", "-O1", "-fno-rtti", "-pthread"])
        .arg(format!("-isystem{}", include.display()))
        .arg(source)
        .arg(format!("-L{}", library.display()))
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .args(["-lrocksdb", "-ldl", "-o"])
        .arg(&program)
        .status();
    assert!(compiled.unwrap().success(), "the program does not compile");
    program
});

/// The plugin that was built with this test, beside it.
fn plugin() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let found = deps.join("libziptier_rocksdb_plugin.so");
    assert!(found.exists(), "looked for the plugin at {}, found none", found.display());
    found
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(&*PROGRAM);
    command.env("ZIPTIER_PLUGIN", plugin()).args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A writer, of which each line acknowledges a record.
struct Writer {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Writer {
    fn start(dir: &Path, recycle: usize, from: u64) -> Writer {
        let (recycle, from) = (recycle.to_string(), from.to_string());
        let wal_dir = dir.join("wal");
        let arguments = ["write", text(dir), text(&wal_dir), "ziptier", &recycle, &from];
        let mut process = program(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Writer { process, lines }
    }

    /// Kills it once so many records are acknowledged; the number of all that were.
    fn kill_after(mut self, count: u64) -> u64 {
        let mut killed = false;
        let mut records = 0;
        while let Some(Ok(line)) = self.lines.next() {
            records = line.parse::<u64>().unwrap_or_else(|_| panic!("the writer said {line}")) + 1;
            if records >= count && !killed {
                self.process.kill().unwrap();
                killed = true;
            }
        }
        self.process.wait().unwrap();
        records
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

/// Kills a writer over and over, and each time opens copies of what it left in all modes; the number of refusals.
fn kills(folder: &Path, recycle: usize, rounds: u64) -> u64 {
    let dir = folder.join("db");
    std::fs::create_dir_all(dir.join("wal")).unwrap();
    let (mut count, mut refusals) = (0, 0);
    let mut random = fastrand::Rng::with_seed(recycle as u64);
    for round in 0..rounds {
        // Far enough now and then for several log files.
        let more = if round % 3 == 2 { random.u64(3000..6000) } else { random.u64(1..300) };
        count = Writer::start(&dir, recycle, count).kill_after(count + more);
        let mut found = 0;
        for (mode, name) in MODES {
            let copied = folder.join("copy");
            copy(&dir, &copied);
            let output = run(&["check", text(&copied), text(&copied.join("wal")), mode, &count.to_string()]);
            std::fs::remove_dir_all(&copied).unwrap();
            match output.status.code() {
                Some(0) => found = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap(),
                // A record that was torn; these modes ask for a file without one. The others drop it.
                Some(REFUSED) if mode == "0" || mode == "1" => refusals += 1,
                _ => panic!("round {round}, {name}: {}", said(&output)),
            }
        }
        count = found;
    }
    refusals
}

#[test]
fn what_a_killed_writer_acknowledged_is_there_for_rocksdb_alone() {
    let mut folders = vec![tempfile::tempdir().unwrap()];
    folders.extend(tempfile::tempdir_in("/dev/shm"));
    let mut refusals = 0;
    for folder in &folders {
        for recycle in [0, 3] {
            refusals += kills(&folder.path().join(recycle.to_string()), recycle, 6);
        }
    }
    // A kill in the midst of a write is rare: some nanoseconds of each record.
    assert!(refusals <= 2, "{refusals} of 48 databases were refused for a torn record");
}

#[test]
fn the_log_is_followed_and_copied_while_it_is_written() {
    let mut folders = vec![tempfile::tempdir().unwrap()];
    folders.extend(tempfile::tempdir_in("/dev/shm"));
    for folder in &folders {
        let output = run(&["tail", text(&folder.path().join("db"))]);
        assert!(output.status.success(), "{}", said(&output));
        let said = said(&output);
        let on_tmpfs = folder.path().starts_with("/dev/shm");
        assert!(!on_tmpfs || said.contains("wal_durable_by tmpfs"), "{said}");
        assert!(said.contains("wal_durable_by ") && said.contains("wal_files "), "{said}");
    }
}

/// A file system in memory, gone with this.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(mib: usize) -> Option<Mounted> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={mib}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Mounted(folder));
        }
        eprintln!("NOT RUN: a full disk; no file system can be mounted here");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_a_status_and_loses_nothing() {
    let Some(mounted) = Mounted::new(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (dir, wal_dir) = (folder.path().join("db"), mounted.0.path());
    let output = run(&["write", text(&dir), text(wal_dir), "ziptier", "0", "0"]);
    assert!(output.status.success(), "{}", said(&output));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = lines.lines().filter(|line| line.parse::<u64>().is_ok()).count();
    assert!(lines.contains("refused") && lines.contains("the disk is full") && count > 100, "{lines}");
    let output = run(&["check", text(&dir), text(wal_dir), "2", &count.to_string()]);
    assert!(output.status.success(), "{}", said(&output));
}
