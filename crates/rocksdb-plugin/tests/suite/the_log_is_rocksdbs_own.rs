//! RocksDB writes with the log of ziptier. After the writer is killed, RocksDB without ziptier finds every acknowledged
//! record, in each of its modes of recovery. Readers of a log that is being written see all of it and nothing else. A
//! full disk is an error.
//!
//! RocksDB is the library that its makers publish; the programs are compiled here. `ZIPTIER_ROUNDS` asks for more kills
//! of each kind of log.

use std::path::Path;
use std::process::{Command, Output};

use ziptier_testing::count;

use crate::support::log::{
    ABSOLUTE, POINT_IN_TIME, REFUSED, SKIP, TOLERATE, Writer, check, copy, logs, program, said, text,
    whole_bytes,
};

fn run(arguments: &[&str]) -> Output {
    program("wal.cc", arguments).output().unwrap()
}

/// Whether a record takes many pages of the log, between which a kill may tear it; as its value in `log_records.h`.
fn is_long(record: u64) -> bool {
    (record + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).is_multiple_of(97)
}

/// Whether a log ends in a part of a record.
fn is_torn(log: &Path) -> bool {
    std::fs::read(log).unwrap()[whole_bytes(log)..].iter().any(|byte| *byte != 0)
}

/// Kills a writer over and over, and each time opens copies of what it left in all modes. Two of them ask for a log
/// without a torn record.
fn kills(folder: &Path, recycle: usize, rounds: u64) {
    // There the head of a record is stored behind all else, which a long one has no room for.
    let is_mapped = folder.starts_with("/dev/shm");
    let dir = folder.join("db");
    std::fs::create_dir_all(dir.join("wal")).unwrap();
    let mut count = 0;
    let mut random = fastrand::Rng::with_seed(recycle as u64);
    let options = format!("recycle_log_file_num={recycle}");
    for round in 0..rounds {
        // Far enough now and then for several log files.
        let more = if round % 3 == 2 { random.u64(3000..6000) } else { random.u64(1..300) };
        count = Writer::start(&dir, &options, count).kill_after(count + more);
        let newest = logs(&dir.join("wal")).pop().unwrap();
        let (mut found, mut refused) = (0, None);
        for mode in [TOLERATE, ABSOLUTE, POINT_IN_TIME, SKIP] {
            let copied = folder.join("copy");
            copy(&dir, &copied);
            let output = check(&copied, &copied.join("wal"), mode, count);
            std::fs::remove_dir_all(&copied).unwrap();
            match output.status.code() {
                Some(0) => found = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap(),
                // RocksDB does not use files again in this mode: what a former log left behind the end may look like
                // damage.
                Some(REFUSED) if mode == ABSOLUTE && recycle > 0 => {}
                // The others drop it.
                Some(REFUSED) if mode == TOLERATE || mode == ABSOLUTE => refused = Some(said(&output)),
                _ => panic!("round {round}, {mode}: {}", said(&output)),
            }
        }
        // The first that is missing is the one that was being written.
        let may_refuse = is_torn(&newest) && (is_long(found) || !is_mapped);
        assert!(may_refuse || refused.is_none(), "round {round}, behind record {found}: {refused:?}");
        count = found;
    }
}

#[test]
fn what_a_killed_writer_acknowledged_is_there_for_rocksdb_alone() {
    let mut folders = vec![tempfile::tempdir().unwrap()];
    folders.extend(tempfile::tempdir_in("/dev/shm"));
    for folder in &folders {
        for recycle in [0, 3] {
            // The third goes far enough for several log files.
            kills(&folder.path().join(recycle.to_string()), recycle, count("ZIPTIER_ROUNDS", 3));
        }
    }
}

/// Each log begins with the length of the one before, which a recovery compares with the length of its file.
#[test]
fn logs_that_name_the_length_of_the_one_before_are_all_there_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    std::fs::create_dir_all(dir.join("wal")).unwrap();
    // Nothing is written to SST files, so that all logs stay, but for the newest not closed.
    let options = "track_and_verify_wals=true;write_buffer_size=262144;max_write_buffer_number=32;\
                   min_write_buffer_number_to_merge=31";
    let count = Writer::start(&dir, options, 0).kill_after(1500);
    let logs = std::fs::read_dir(dir.join("wal")).unwrap().count();
    assert!(logs > 2, "{logs} logs");
    let output = check(&dir, &dir.join("wal"), &format!("{options};{POINT_IN_TIME}"), count);
    assert!(output.status.success(), "{}", said(&output));
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
        ziptier_testing::not_run("mount", "a full disk needs a user who may mount a tmpfs");
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
    let output = run(&["write", text(&dir), text(wal_dir), "ziptier", "", "0"]);
    assert!(output.status.success(), "{}", said(&output));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = lines.lines().filter(|line| line.parse::<u64>().is_ok()).count();
    assert!(lines.contains("refused") && lines.contains("the disk is full") && count > 100, "{lines}");
    let output = check(&dir, wal_dir, POINT_IN_TIME, count as u64);
    assert!(output.status.success(), "{}", said(&output));
}
