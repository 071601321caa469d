//! `ziptier serve --dir`: the first line, INFO, and every obstacle to a start. Each obstacle gives one sentence and
//! leaves the folder unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support;
use crate::support::Server;

/// How long the checkpoint of a stop may walk.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

fn serve(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = support::serve();
    command.arg("--dir").arg(dir).args(arguments);
    command
}

fn start(dir: &Path, arguments: &[&str]) -> Server {
    Server::start(&mut serve(dir, arguments))
}

fn refused(dir: &Path, arguments: &[&str]) -> String {
    let before = files(dir);
    let output = serve(dir, arguments).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(output.stdout, b"");
    assert_eq!(files(dir), before);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("ziptier serve: ") && said.lines().count() == 1, "{said}");
    said
}

/// Names and contents, of the log as well.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in [dir.to_owned(), dir.join("log")] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_file() {
                files.insert(entry.path().display().to_string(), fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

#[test]
fn a_clean_stop_and_a_start_say_what_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let server = start(&dir, &[]);
    assert!(server.said.contains("durability everysec (fdatasync once a second)"), "{}", server.said);
    assert!(server.said.contains("recovered 0 keys, 0 records of 0 bytes in the log\n"), "{}", server.said);
    assert_eq!(server.ask(b"MSET a 1 b 2\r\nSET c 3\r\n"), "+OK\r\n+OK\r\n");
    let info = server.ask(b"INFO persistence\r\n");
    for field in [
        "aof_enabled:1",
        "durability:everysec",
        "log_last_lsn:2",
        "aof_last_write_status:ok",
        "log_failure:\r",
    ] {
        assert!(info.contains(field), "{field}: {info}");
    }
    server.stop();

    let server = start(&dir, &["--durability", "always"]);
    assert!(server.said.contains("durability always (fdatasync before replies)"), "{}", server.said);
    assert!(server.said.contains("recovered 3 keys after a clean stop, 2 records of"), "{}", server.said);
    assert!(
        server.said.ends_with("in the log; expired keys count until they are swept\n"),
        "{}",
        server.said
    );
    assert!(!server.said.contains("torn tail"), "{}", server.said);
    assert_eq!(server.ask(b"GET b\r\nDBSIZE\r\n"), "$1\r\n2\r\n:3\r\n");
    assert_eq!(server.ask(b"FLUSHALL\r\n"), "+OK\r\n");
    let info = server.ask(b"INFO persistence\r\n");
    assert!(info.contains("log_durable_lsn:3") && info.contains("log_syncs:1"), "{info}");
    server.stop();
}

#[test]
fn saving_is_as_redis_has_it_and_a_clean_stop_leaves_nothing_to_replay() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let server = start(&dir, &["--durability", "no"]);
    let integer = |reply: String| reply.trim_end().trim_start_matches(':').parse::<u64>().unwrap();
    let opened = integer(server.ask(b"LASTSAVE\r\n"));
    assert_eq!(server.ask(b"SET a 1\r\nSAVE\r\n"), "+OK\r\n+OK\r\n");
    assert!(integer(server.ask(b"LASTSAVE\r\n")) >= opened);
    assert_eq!(server.ask(b"SET b 2\r\nBGSAVE\r\n"), "+OK\r\n+Background saving started\r\n");
    let info = || server.ask(b"INFO persistence\r\n");
    while info().contains("rdb_bgsave_in_progress:1") {
        std::thread::yield_now();
    }
    let page = info();
    for field in ["rdb_saves:2\r", "rdb_changes_since_last_save:0\r", "rdb_last_bgsave_status:ok"] {
        assert!(page.contains(field), "{field}: {page}");
    }
    assert_eq!(server.ask(b"SAVE x\r\nBGSAVE x\r\n").matches("-ERR").count(), 2);
    let settings = server.ask(b"CONFIG GET append*\r\n");
    assert!(settings.contains("appendonly\r\n$3\r\nyes") && settings.contains("$2\r\nno"), "{settings}");
    // More than a sixteenth of what makes a checkpoint due.
    let value = "v".repeat(5 << 20);
    let bytes = value.len();
    server.ask(format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${bytes}\r\n{value}\r\n").as_bytes());
    let stopping = Instant::now();
    server.stop();
    // A stop gives up a checkpoint whose walk takes longer.
    let replayed = if stopping.elapsed() < STOP_TIME_MAX { "0 records" } else { "" };
    let server = start(&dir, &[]);
    let expected = format!("recovered 3 keys after a clean stop, {replayed}");
    assert!(server.said.contains(&expected), "{}", server.said);
    server.ask(b"SET c 3\r\nSHUTDOWN SAVE\r\n");
    assert!(server.end().status.success());
    let server = start(&dir, &[]);
    assert!(server.said.contains("recovered 4 keys after a clean stop, 0 records"), "{}", server.said);
    server.ask(b"SET d 4\r\n");
    server.kill();
    let server = start(&dir, &[]);
    assert!(server.said.contains("recovered 5 keys after a crash, 1 records"), "{}", server.said);
    // A checkpoint leaves nothing to replay, and the crash is told all the same.
    assert_eq!(server.ask(b"SAVE\r\n"), "+OK\r\n");
    server.kill();
    let server = start(&dir, &[]);
    assert!(server.said.contains("recovered 5 keys after a crash, 0 records"), "{}", server.said);
    server.stop();
}

/// As with `2>&1 | head`, or when the journal of the system has ended.
#[test]
fn a_salvage_goes_on_if_nobody_reads_what_it_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let server = start(&dir, &[]);
    assert_eq!(server.ask(b"SET a 1\r\nSET b 2\r\n"), "+OK\r\n+OK\r\n");
    server.stop();
    let logs = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let log = logs.filter(|path| path.to_string_lossy().contains("/log-")).min().unwrap();
    fs::OpenOptions::new().write(true).open(log).unwrap().write_all_at(&[0xff], 4096 + 25).unwrap();
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    let salvaged = Server::start(serve(&dir, &["--salvage"]).stderr(unread));
    assert!(salvaged.said.contains("recovered 1 keys"), "{}", salvaged.said);
    salvaged.stop();
}

#[test]
fn without_a_folder_there_is_nothing_to_save_to() {
    let server = Server::start(&mut support::serve());
    for request in ["SAVE", "BGSAVE", "LASTSAVE", "SHUTDOWN SAVE"] {
        let said = server.ask(format!("{request}\r\n").as_bytes());
        assert!(said.starts_with("-ERR there is no folder"), "{request}: {said}");
    }
    server.stop();
}

#[test]
fn what_prevents_a_start_is_said_in_one_sentence_and_nothing_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let server = start(&dir, &[]);
    server.ask(b"SET a 1\r\nSET b 2\r\n");
    let locked = serve(&dir, &[]).output().unwrap();
    let said = String::from_utf8(locked.stderr).unwrap();
    assert!(said.contains("is open already") && said.lines().count() == 1, "{said}");
    server.stop();

    let segment = |start: &str| {
        let names = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(start)).min().unwrap()
    };
    let first = segment("log-");
    let sound = fs::read(&first).unwrap();
    // A bit of a record, the version of a segment, the signature.
    for (at, byte, words) in
        [(4096 + 25, 0xff, "is damaged at byte 4096"), (8, 9, "version 9"), (0, b'x', "cannot be read")]
    {
        let file = fs::OpenOptions::new().write(true).open(&first).unwrap();
        let mut bytes = sound.clone();
        bytes[at] = byte;
        // Another version has a sound header of its own.
        let check = ziptier_codec::checksum::crc32c(&bytes[..4092]).to_le_bytes();
        bytes[4092..4096].copy_from_slice(&check);
        file.write_all_at(&bytes, 0).unwrap();
        let said = refused(&dir, &[]);
        assert!(said.contains(words) && said.contains("log-"), "{said}");
        file.write_all_at(&sound, 0).unwrap();
    }
    let mut bytes = sound.clone();
    bytes[4096 + 25] = 0xff;
    fs::write(&first, &bytes).unwrap();
    let salvaged = start(&dir, &["--salvage"]);
    assert!(salvaged.said.contains("recovered 1 keys"), "{}", salvaged.said);
    salvaged.stop();

    let foreign = folder.path().join("home");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letter.txt"), "dear").unwrap();
    assert!(refused(&foreign, &[]).contains("letter.txt is no file of a store"));

    let file = folder.path().join("file");
    fs::write(&file, "no folder").unwrap();
    assert!(refused(&file, &[]).contains("file"));

    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    // Only root can give a folder away.
    if chown(&other, Some(65_534), None).is_ok() {
        assert!(refused(&other, &[]).contains("belongs to user 65534"));
    }
}

/// Sends requests in one go, many at a time; the replies, one behind the other.
fn ask_all(server: &Server, requests: impl Iterator<Item = String>) -> Vec<String> {
    let requests: Vec<String> = requests.collect();
    let replies = requests.chunks(500).map(|some| server.ask(some.concat().as_bytes()));
    replies.flat_map(|replies| replies.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Saves, once no checkpoint of the server's own is under way any more.
fn save(server: &Server) {
    let saved = std::iter::repeat_with(|| server.ask(b"SAVE\r\n"))
        .inspect(|_| std::thread::yield_now())
        .find(|saved| !saved.contains("already in progress"));
    assert_eq!(saved.as_deref(), Some("+OK\r\n"));
}

#[test]
fn a_cache_comes_back_within_its_limit_without_what_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let policy = ["--maxmemory-policy", "allkeys-s3fifo", "--codec", "none", "--memory"];
    let refusal = serve(&dir, &[&policy[..], &["64MiB", "--ssd", "1GiB"]].concat()).output().unwrap();
    let said = String::from_utf8(refusal.stderr).unwrap();
    assert!(said.contains("a store that evicts keeps nothing on SSD") && said.lines().count() == 1, "{said}");
    assert!(!dir.exists());

    let keys = 60_000;
    let value = |n: usize, version: usize| format!("{n:08}.{version}.").repeat(90);
    let mut server = start(&dir, &[&policy[..], &["48MiB"]].concat());
    for version in 0..2 {
        let puts = (0..keys).map(|n| format!("SET key:{n:08} {}\r\n", value(n, version)));
        assert!(ask_all(&server, puts).iter().all(|reply| reply == "+OK"));
        save(&server);
    }
    let deletes = (0..keys).step_by(4).map(|n| format!("DEL key:{n:08}\r\n"));
    assert!(ask_all(&server, deletes).iter().any(|reply| reply == ":0"), "nothing was evicted");
    for (round, memory) in ["48MiB", "48MiB", "28MiB"].into_iter().enumerate() {
        let before = ask_all(&server, (0..keys).map(|n| format!("STRLEN key:{n:08}\r\n")));
        let before = before.iter().filter(|len| *len != ":0").count();
        // A crash, then a clean stop.
        if round == 1 {
            server.kill();
        } else {
            server.stop();
        }
        server = start(&dir, &[&policy[..], &[memory]].concat());
        let mut after = 0;
        let mut lines = ask_all(&server, (0..keys).map(|n| format!("GET key:{n:08}\r\n"))).into_iter();
        for n in 0..keys {
            if lines.next().unwrap() != "$-1" {
                let found = lines.next().unwrap();
                assert!(n % 4 > 0 && found == value(n, 1), "{n} says {found}");
                after += 1;
            }
        }
        assert!(after > before / 4, "{after} of {before} keys came back in round {round}");
    }
    server.stop();
}

/// A typing error in a path would fill the wrong disk.
#[test]
fn a_folder_that_ssd_names_is_made_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new").join("ssd");
    let ssd = format!("64MiB:{}", path.display());
    let start = || Server::start(support::serve().args(["--ssd", &ssd]));
    let made = format!("; made the folder {}\n", path.display());
    let server = start();
    assert!(server.said.contains(&made), "{}", server.said);
    server.stop();
    let server = start();
    assert!(server.said.contains("SSD: 64 MiB") && !server.said.contains("made"), "{}", server.said);
}

/// "Is open already" would have an operator look for another process.
#[test]
fn the_folder_of_the_store_is_no_folder_for_the_ssd() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let ssd = format!("64MiB:{}", dir.display());
    let said = refused(&dir, &["--ssd", &ssd]);
    assert!(said.contains("its folder is that of the store"), "{said}");
    start(&dir, &[]).stop();
    let said = refused(&dir, &["--ssd", &format!("{ssd}/")]);
    assert!(said.contains("its folder is that of the store"), "{said}");
}

/// An operator who leaves `--backend rocksdb` out would find no key.
#[test]
fn a_folder_of_rocksdb_is_no_folder_for_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    fs::create_dir_all(dir.join("default")).unwrap();
    fs::write(dir.join("default/CURRENT"), "MANIFEST-000005\n").unwrap();
    let said = refused(&dir, &[]);
    assert!(said.contains("say --backend rocksdb"), "{said}");
}
