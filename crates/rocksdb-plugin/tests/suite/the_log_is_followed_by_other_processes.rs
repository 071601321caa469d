//! Another process reads a database while it is written with ziptier's log. A secondary with the plugin sees every
//! acknowledged record. It does so across new and reused log files, when the writer is killed, and when it is started
//! again. So does a process that opens the database read-only. A process that recovers the database gets the same
//! errors about damage from a killed writer as from RocksDB alone.
//!
//! RocksDB is the library that its makers publish; the programs are compiled here.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::support::log::{
    ABSOLUTE, POINT_IN_TIME, SKIP, Writer, check, copy, logs, program, said, text, whole_bytes,
};

/// Blocks of a log, and what may be left over at the end of each.
const BLOCK_BYTES: usize = 32 << 10;
const BLOCK_END_BYTES: usize = 11;

/// RocksDB's secondary does not go along with compactions that remove files under it.
const NO_COMPACTION: &str =
    "disable_auto_compactions=true;level0_slowdown_writes_trigger=1000;level0_stop_writes_trigger=1000";

/// A secondary instance in a process of its own.
struct Secondary {
    process: Child,
    questions: ChildStdin,
    answers: std::io::Lines<BufReader<ChildStdout>>,
}

impl Secondary {
    fn start(dir: &Path, own: &Path) -> Secondary {
        let wal_dir = dir.join("wal");
        let arguments = ["secondary", text(dir), text(&wal_dir), "ziptier", "", text(own)];
        let mut process =
            program("follow.cc", &arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let questions = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut secondary = Secondary { process, questions, answers };
        secondary.answer();
        secondary
    }

    /// The number of records that it sees, once it has caught up with `count`, or has tried long enough.
    fn catch_up(&mut self, count: u64) -> u64 {
        writeln!(self.questions, "{count}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> u64 {
        let answer = self.answers.next().expect("the secondary hung and was ended, or failed").unwrap();
        answer.parse().unwrap_or_else(|_| panic!("the secondary said {answer}"))
    }
}

impl Drop for Secondary {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A database on the disk, and one on tmpfs where there is one.
fn databases() -> Vec<(tempfile::TempDir, PathBuf)> {
    let mut folders = vec![tempfile::tempdir().unwrap()];
    folders.extend(tempfile::tempdir_in("/dev/shm"));
    let begin = |folder: tempfile::TempDir| {
        let dir = folder.path().join("db");
        fs::create_dir_all(dir.join("wal")).unwrap();
        (folder, dir)
    };
    folders.into_iter().map(begin).collect()
}

fn is_followed_until_after_a_kill(options: &str) {
    for (folder, dir) in databases() {
        let options = format!("{options};{NO_COMPACTION}");
        let mut writer = Writer::start_flushing(&dir, &options, 0, 500);
        writer.wait_for(20);
        let mut secondary = Secondary::start(&dir, &folder.path().join("own"));
        for round in 1..=12 {
            let count = writer.wait_for(round * 150);
            let found = secondary.catch_up(count);
            assert!(found >= count, "{found} of {count} records while they are written, {options}");
        }
        // Three flushes at least have changed logs by now.
        assert!(!logs(&dir.join("wal"))[0].ends_with("000004.log"), "no change of logs");
        // The secondary has to open logs that no process writes any more.
        let count = writer.kill_after(2750);
        let found = secondary.catch_up(count);
        assert!(found == count || found == count + 1, "{found} of {count} records after a kill, {options}");
        let mut writer = Writer::start_flushing(&dir, &options, found, 500);
        for round in 1..=3 {
            let count = writer.wait_for(found + round * 200);
            let seen = secondary.catch_up(count);
            assert!(seen >= count, "{seen} of {count} records of the next writer, {options}");
        }
    }
}

#[test]
fn a_secondary_sees_what_is_acknowledged() {
    is_followed_until_after_a_kill("recycle_log_file_num=0");
}

/// RocksDB's secondary hangs where it meets a record of a former log, so it must never meet one.
#[test]
fn a_secondary_sees_what_is_acknowledged_in_files_that_are_used_again() {
    is_followed_until_after_a_kill("recycle_log_file_num=3");
}

#[test]
fn a_secondary_sees_what_is_acknowledged_in_packed_logs() {
    is_followed_until_after_a_kill("recycle_log_file_num=3;wal_compression=kZSTD");
}

#[test]
fn a_log_that_is_written_is_whole_for_who_opens_it_read_only() {
    for (_folder, dir) in databases() {
        for recycle in [0, 3] {
            let dir = dir.with_extension(recycle.to_string());
            let wal_dir = dir.join("wal");
            fs::create_dir_all(&wal_dir).unwrap();
            let options =
                format!("recycle_log_file_num={recycle};{NO_COMPACTION};write_buffer_size=1073741824");
            let mut writer = Writer::start(&dir, &options, 0);
            for round in 1..=3 {
                let count = writer.wait_for(round * 300);
                // The mode that takes no record for half written.
                let arguments = ["glance", text(&dir), text(&wal_dir), "ziptier", ABSOLUTE];
                let output = program("follow.cc", &arguments).output().unwrap();
                let said = said(&output);
                let mut lines = said.lines();
                let found = lines.next().and_then(|line| line.parse::<u64>().ok());
                assert!(found.is_some_and(|found| found >= count), "{count} records: {said}");
                let told: Vec<u64> =
                    lines.flat_map(|line| line.split(' ').skip(1)).map(|n| n.parse().unwrap()).collect();
                let bytes_of_file = fs::metadata(&logs(&wal_dir)[0]).unwrap().len();
                // Listed, and asked for by name a moment later.
                assert!(
                    matches!(*told, [listed, asked] if 0 < listed && listed <= asked && asked <= bytes_of_file),
                    "{said}"
                );
            }
        }
    }
}

/// For a recovery, a torn record inside a log is not its end.
#[test]
fn damage_that_a_killed_writer_left_is_told_as_rocksdb_tells_it() {
    for (folder, dir) in databases() {
        let count =
            Writer::start(&dir, &format!("write_buffer_size=1073741824;{NO_COMPACTION}"), 0).kill_after(500);
        let wal_dir = dir.join("wal");
        let mut random = fastrand::Rng::with_seed(1);
        let mut refusals = 0;
        for round in 0..6 {
            let damaged = folder.path().join("damaged");
            copy(&dir, &damaged);
            let log = &logs(&damaged.join("wal"))[0];
            let mut bytes = fs::read(log).unwrap();
            // Behind the last record that is whole there may be a part of one, which RocksDB drops without a word.
            let end = whole_bytes(log) - BLOCK_END_BYTES;
            let draw = || random.usize(..end);
            let mut places =
                std::iter::once(end - 100).skip(round.min(1)).chain(std::iter::repeat_with(draw));
            let at = places.find(|at| at % BLOCK_BYTES < BLOCK_BYTES - BLOCK_END_BYTES).unwrap();
            bytes[at] ^= 0x10;
            fs::write(log, &bytes).unwrap();
            for mode in [ABSOLUTE, POINT_IN_TIME, SKIP] {
                let recovered = folder.path().join("recovered");
                let outcome = |options: &str, with_plugin: bool| {
                    copy(&damaged, &recovered);
                    let wal_dir = recovered.join("wal");
                    let output = if with_plugin {
                        let arguments =
                            ["check", text(&recovered), text(&wal_dir), options, &count.to_string()];
                        program("wal.cc", &arguments).output().unwrap()
                    } else {
                        check(&recovered, &wal_dir, options, count)
                    };
                    fs::remove_dir_all(&recovered).unwrap();
                    (output.status.code(), said(&output))
                };
                let by_rocksdb = outcome(mode, false);
                assert_eq!(
                    outcome(&format!("env=ziptier;{mode}"), true),
                    by_rocksdb,
                    "byte {at} of {}",
                    wal_dir.display()
                );
                refusals += usize::from(by_rocksdb.1.contains("Corruption"));
            }
            fs::remove_dir_all(&damaged).unwrap();
        }
        assert!(refusals >= 6, "only {refusals} of 18 recoveries told of damage");
    }
}
