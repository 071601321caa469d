//! Blocks that fell out of memory are served from the cache's files after the process ended, however it did, and are
//! right.
//!
//! The failure to guard against: a damaged or foreign block that a database takes for its own, and a cache whose
//! trouble becomes the database's.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

use crate::support::{compiled, complaint, plugin, printed, stock, with_plugin};

const CAPACITY: u64 = 16 << 20;

struct Database {
    folder: TempDir,
}

impl Database {
    /// A database of 20,000 records of 256 bytes.
    fn filled() -> Database {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let database = Database { folder };
        printed(database.run("fill", &[]));
        database
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn secondary(&self) -> String {
        format!("cache=id=ziptier;path={};capacity={CAPACITY};admission=all", self.cache().display())
    }

    fn run(&self, command: &str, more: &[&str]) -> std::process::Output {
        let dir = self.folder.path().join("db");
        with_plugin(&compiled("cached.cc"), &[&[command, dir.to_str().unwrap()], more].concat())
    }

    /// Reads all records, which checks them.
    fn read(&self, more: &[&str]) -> Reads {
        Reads(printed(self.run("read", &[&[self.secondary().as_str()], more].concat())))
    }
}

/// A process's report of its reads.
struct Reads(String);

impl Reads {
    /// The figure behind a name, in the last line that has it.
    fn figure(&self, name: &str) -> u64 {
        let line = self.0.lines().rev().find(|line| line.split(' ').any(|word| word == name));
        let mut words = line.unwrap_or_else(|| panic!("no {name} in {}", self.0)).split(' ');
        words.find(|word| *word == name);
        words.next().unwrap().parse().unwrap()
    }

    /// Checks that at least 99 of 100 blocks came from the cache.
    fn needed_no_files(&self) {
        let (hits, from_sst) = (self.figure("hits"), self.figure("from_sst"));
        assert!(hits > 1000 && from_sst * 99 <= hits, "{}", self.0);
    }
}

fn files(cache: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(cache).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn after_a_clean_end() {
    let database = Database::filled();
    database.read(&["warm=1"]).needed_no_files();
    let again = database.read(&[]);
    again.needed_no_files();
    assert_eq!(again.figure("cache_restored_from_index"), 1);
    assert_eq!(again.figure("cache_damaged"), 0);
}

#[test]
fn after_a_kill() {
    let database = Database::filled();
    let killed = database.run("read", &[&database.secondary(), "warm=1", "end=kill"]);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(9));
    let again = database.read(&[]);
    again.needed_no_files();
    assert_eq!(again.figure("cache_restored_from_index"), 0);
}

/// The folder of a cache is any name that the system takes, as every other path of RocksDB's.
#[test]
fn a_folder_whose_name_is_no_text() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let name = OsStr::from_bytes(b"cache-\xff");
    let mut options = OsString::from("cache=id=ziptier;path=");
    options.push(folder.path().join(name));
    options.push(format!(";capacity={CAPACITY}"));
    let mut program = Command::new(compiled("cached.cc"));
    program.args([OsStr::new("hold"), folder.path().as_os_str(), &options]).env("LD_PRELOAD", plugin());
    assert_eq!(printed(program.output().unwrap()), "open\n");
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, [name]);
}

#[test]
fn by_a_string_where_only_strings_can_be_set() {
    let database = Database::filled();
    let block_cache = format!(
        "block_cache=id=ziptier://;memory=256K;path={};capacity={CAPACITY};admission=all;codec=zstd",
        database.cache().display()
    );
    printed(database.run("read", &[&block_cache, "warm=1"]));
    Reads(printed(database.run("read", &[&block_cache]))).needed_no_files();
    // A folder that cannot be used: the database does without, and says so.
    let blocked = database.run("read", &[&block_cache.replace("/cache;", "/db;")]);
    assert!(blocked.status.success());
    let told = String::from_utf8(blocked.stderr).unwrap();
    assert!(told.contains("holds a database"), "{told}");
}

#[test]
fn blocks_of_files_by_the_older_interface() {
    let database = Database::filled();
    let persistent =
        format!("persistent=path={};capacity={CAPACITY};admission=all", database.cache().display());
    let needed_no_files = |reads: &Reads| {
        let (hits, misses) = (reads.figure("persistent_hits"), reads.figure("persistent_misses"));
        assert!(hits > 1000 && misses * 99 <= hits, "{}", reads.0);
        assert_eq!(reads.figure("cache_damaged"), 0);
    };
    let first = Reads(printed(database.run("read", &[&persistent, "warm=1"])));
    needed_no_files(&first);
    assert!(first.figure("stats_hits") > 1000 && first.0.contains("codec=none;admission=all"), "{}", first.0);
    needed_no_files(&Reads(printed(database.run("read", &[&persistent]))));
    // After a kill.
    let killed = database.run("read", &[&persistent, "end=kill"]);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(9));
    needed_no_files(&Reads(printed(database.run("read", &[&persistent]))));
    // In one folder with blocks as they are in memory, whose keys are the same.
    let secondary = database.secondary() + ";codec=none";
    for _ in 0..2 {
        Reads(printed(database.run("read", &[&persistent, &secondary, "warm=1"]))).needed_no_files();
    }
    // Damage is a miss.
    for path in files(&database.cache()) {
        let mut bytes = fs::read(&path).unwrap();
        let is_segment = path.file_name().is_some_and(|name| name != "index");
        bytes.iter_mut().skip(5000).step_by(9973).filter(|_| is_segment).for_each(|byte| *byte ^= 4);
        fs::write(path, bytes).unwrap();
    }
    let damaged = Reads(printed(database.run("read", &[&persistent])));
    assert!(damaged.figure("cache_damaged") > 10 && damaged.figure("persistent_hits") > 100, "{}", damaged.0);
    for (options, part) in [
        ("persistent=capacity=1G", "path=DIR"),
        ("persistent=path=/tmp/x;colour=blue", "colour"),
        ("persistent=path=/tmp/x;capacity=many", "capacity"),
    ] {
        let told = complaint(database.run("read", &[options]));
        assert!(told.contains(part) && told.lines().count() == 1, "{options}: {told}");
    }
}

#[test]
fn first_timers_are_turned_away() {
    let database = Database::filled();
    let ghost = database.secondary().replace("admission=all", "admission=ghost");
    let first = Reads(printed(database.run("read", &[&ghost])));
    assert!(first.figure("cache_turned_away") > 1000);
    assert!(first.figure("from_sst") > first.figure("cache_turned_away"));
    printed(database.run("read", &[&ghost, "warm=1"]));
    Reads(printed(database.run("read", &[&ghost]))).needed_no_files();
}

/// The keys of blobs are new in each process: on files they would only take the room of blocks that are found again.
#[test]
fn values_in_blob_files_are_left_out() {
    let database = Database::filled();
    printed(database.run("fill", &["blob=1", "records=21000"]));
    let with_blobs = database.read(&["blob=1", "records=21000"]);
    assert!(with_blobs.figure("cache_stored") > 10, "{}", with_blobs.0);
    // Blocks, which hold many records; each blob would be an entry.
    assert!(with_blobs.figure("cache_stored") < 3000, "{}", with_blobs.0);
}

#[test]
fn flipped_bits_are_never_returned() {
    let database = Database::filled();
    database.read(&["warm=1"]);
    let sound: Vec<_> =
        files(&database.cache()).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut damaged_entries = 0;
    for round in 0..8 {
        for (path, bytes) in &sound {
            let mut bytes = bytes.clone();
            // Every second round leaves the index, so that flips in entries are met by reading them.
            let is_spared = path.ends_with("LOCK") || (round % 2 == 0 && path.ends_with("index"));
            for _ in 0..if is_spared { 0 } else { 40 } {
                let first = if round == 7 { 0 } else { 4096.min(bytes.len() / 2) };
                let at = first + random(bytes.len() - first);
                bytes[at] ^= 1 << random(8);
            }
            fs::write(path, bytes).unwrap();
        }
        // It compares every value.
        let reads = database.read(&[]);
        damaged_entries += reads.figure("cache_damaged");
        assert!(round == 7 || reads.figure("cache_hits") > 1000, "round {round}: {}", reads.0);
    }
    assert!(damaged_entries > 50, "{damaged_entries}");
}

#[test]
fn the_capacity_holds_on_disk() {
    let database = Database::filled();
    let small = database.secondary().replace(&CAPACITY.to_string(), "8388608") + ";codec=none";
    printed(database.run("fill", &["records=60000"]));
    for _ in 0..2 {
        printed(database.run("read", &[&small, "records=60000"]));
        let bytes: u64 = files(&database.cache()).iter().map(|path| path.metadata().unwrap().len()).sum();
        assert!(bytes <= 8 << 20, "{bytes}");
    }
}

#[test]
fn a_second_process_is_told_in_a_sentence() {
    let database = Database::filled();
    let mut holder = Command::new(compiled("cached.cc"))
        .args(["hold", "-", &database.secondary()])
        .env("LD_PRELOAD", plugin())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = [0; 5];
    holder.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
    assert_eq!(&word, b"open\n");
    let told = complaint(database.run("read", &[&database.secondary()]));
    assert!(told.contains("is open already") && told.lines().count() == 1, "{told}");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    database.read(&[]);
}

#[test]
fn what_cannot_be_is_told_in_a_sentence() {
    let database = Database::filled();
    fs::write(database.folder.path().join("file"), "").unwrap();
    let secondary = database.secondary();
    for (options, part) in [
        ("cache=id=ziptier;capacity=1G", "path=DIR"),
        (&secondary.replace("/cache;", "/file;"), "cannot create"),
        (&secondary.replace(&CAPACITY.to_string(), "1000"), "8388608"),
        (&(secondary.clone() + ";codec=gzip"), "lz4, zstd, none"),
        (&(secondary.clone() + ";colour=blue"), "colour"),
    ] {
        let told = complaint(database.run("read", &[options]));
        assert!(told.contains(part) && told.lines().count() == 1, "{options}: {told}");
    }
    // Without the plugin there is no such cache, and the database is as it was.
    let dir = database.folder.path().join("db");
    let told = complaint(stock(&compiled("cached.cc"), &["read", dir.to_str().unwrap(), &secondary]));
    assert!(told.contains("SecondaryCache"), "{told}");
    printed(stock(&compiled("cached.cc"), &["read", dir.to_str().unwrap()]));
}
