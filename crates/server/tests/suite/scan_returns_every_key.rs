//! `SCAN` promises that a key which exists throughout is returned, whatever is written and deleted meanwhile. Backups
//! and migrations rely on it.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use ziptier::{CodecChoice, Options, SsdOptions};
use ziptier_server::StoreBackend;

use crate::support;
use crate::support::{Connection, TestServer};

on_every_backend!(
    keys_that_stay_are_returned_once_while_others_come_and_go,
    scans_side_by_side_do_not_disturb_each_other,
    abandoned_scans_end_nobody_elses,
    patterns_and_counts_are_honoured,
    unknown_cursors_are_refused
);

/// Runs one step; returns the next cursor and the keys.
fn step(connection: &mut Connection, cursor: &str, options: &str) -> (String, Vec<String>) {
    parsed(&connection.text(&format!("SCAN {cursor} {options}")))
}

/// The cursor and the keys of a reply.
fn parsed(reply: &str) -> (String, Vec<String>) {
    let mut lines = reply.split("\r\n").filter(|line| !line.starts_with(['*', '$']) && !line.is_empty());
    let cursor = lines.next().unwrap().to_owned();
    (cursor, lines.map(str::to_owned).collect())
}

fn scan(connection: &mut Connection, options: &str) -> HashMap<String, usize> {
    scan_with(connection, options, |_| ())
}

fn scan_with(
    connection: &mut Connection,
    options: &str,
    mut before_step: impl FnMut(usize),
) -> HashMap<String, usize> {
    let mut seen = HashMap::new();
    let mut cursor = "0".to_owned();
    for number in 0.. {
        before_step(number);
        let (next, keys) = step(connection, &cursor, options);
        for key in keys {
            *seen.entry(key).or_default() += 1;
        }
        if next == "0" {
            return seen;
        }
        cursor = next;
    }
    seen
}

fn fill(connection: &mut Connection, name: &str, count: usize) {
    for number in 0..count {
        connection.text(&format!("SET {name}:{number:05} value-of-{number}"));
    }
}

fn keys_that_stay_are_returned_once_while_others_come_and_go(server: &TestServer) {
    let mut connection = server.connect();
    fill(&mut connection, "stay", 3000);
    fill(&mut connection, "go", 3000);
    let (done, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut writer = server.connect();
            let mut number = 0;
            while !done.load(Relaxed) {
                written.store(number, Relaxed);
                writer.text(&format!("DEL go:{:05}", number % 3000));
                writer.text(&format!("SET new:{:05} value", number % 5000));
                writer.text(&format!("SET stay:{:05} rewritten", number % 3000));
                number += 1;
            }
        });
        for count in [1, 7, 100, 1000] {
            // Something is written between every two steps, but for walks of thousands of them.
            let seen = scan_with(&mut connection, &format!("COUNT {count}"), |step| {
                let before = written.load(Relaxed);
                let is_awaited = step < 100 || step % 100 == 0;
                while is_awaited && written.load(Relaxed) == before && !writing.is_finished() {
                    thread::yield_now();
                }
            });
            let stayed =
                (0..3000).filter(|number| seen.get(&format!("stay:{number:05}")) == Some(&1)).count();
            assert_eq!(stayed, 3000, "COUNT {count}");
            assert!(seen.values().all(|&times| times == 1));
        }
        done.store(true, Relaxed);
    });
}

fn scans_side_by_side_do_not_disturb_each_other(server: &TestServer) {
    let mut connection = server.connect();
    fill(&mut connection, "key", 500);
    let mut cursors = vec!["0".to_owned(); 20];
    let mut found = vec![0; 20];
    while cursors.iter().any(|cursor| cursor != "done") {
        for (cursor, found) in cursors.iter_mut().zip(&mut found).filter(|(cursor, _)| *cursor != "done") {
            let (next, keys) = step(&mut connection, cursor, "COUNT 30");
            // A client that lost the reply asks again and gets the same keys.
            assert_eq!(step(&mut connection, cursor, "COUNT 30").1, keys);
            *found += keys.len();
            *cursor = if next == "0" { "done".to_owned() } else { next };
        }
    }
    assert!(found.iter().all(|&found| found == 500), "{found:?}");
}

/// A client that begins scans and never continues, on one connection or on many, costs no other client a position.
fn abandoned_scans_end_nobody_elses(server: &TestServer) {
    let mut connection = server.connect();
    fill(&mut connection, "key", 60);
    let mut cursor = "0".to_owned();
    let mut found = 0;
    let mut hostile = server.connect();
    for round in 0.. {
        let (next, keys) = step(&mut connection, &cursor, "COUNT 10");
        found += keys.len();
        if next == "0" {
            break;
        }
        cursor = next;
        // A client with a pool goes on elsewhere.
        if round % 2 == 1 {
            connection = server.connect();
        }
        let abandoned = support::request(&[b"SCAN", b"0", b"COUNT", b"1"]);
        hostile.send(&abandoned.repeat(9_000));
        (0..9_000).for_each(|_| drop(hostile.reply()));
        for _ in 0..20 {
            let mut short = server.connect();
            short.send(&abandoned.repeat(20));
            (0..20).for_each(|_| drop(short.reply()));
        }
    }
    assert_eq!(found, 60);
}

fn patterns_and_counts_are_honoured(server: &TestServer) {
    let mut connection = server.connect();
    fill(&mut connection, "a", 300);
    fill(&mut connection, "b", 300);
    for (options, expected) in [
        ("MATCH a:*", 300),
        ("MATCH a:0000?", 10),
        ("MATCH *:00001", 2),
        ("MATCH [ab]:0000[1-3] COUNT 1000", 6),
        ("MATCH b:00007", 1),
        ("MATCH b", 0),
        ("MATCH zzz*", 0),
        ("MATCH A*", 0),
        ("TYPE string", 600),
        ("TYPE hash", 0),
        ("COUNT 100000", 600),
    ] {
        assert_eq!(scan(&mut connection, options).len(), expected, "{options}");
    }
    let (_, keys) = step(&mut connection, "0", "COUNT 25");
    assert_eq!(keys.len(), 25);
}

fn unknown_cursors_are_refused(server: &TestServer) {
    let mut connection = server.connect();
    assert_eq!(connection.text("SCAN 17"), "-ERR invalid cursor\r\n");
    assert_eq!(connection.text("SCAN 18446744073709551616"), "-ERR invalid cursor\r\n");
}

/// Flips a bit in every so many bytes of the segment files in a folder.
fn damage_segments(folder: &Path) {
    for entry in std::fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        let bytes = path.metadata().expect("it is there").len();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("it is there");
        // Shorter files are none of segments.
        for at in (20_000..bytes).step_by(60_000) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("it has that byte");
            file.write_all_at(&[byte[0] ^ 1], at).expect("it can be written");
        }
    }
}

/// A client could not come to the keys behind.
#[test]
fn a_scan_goes_on_behind_keys_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let ssd = Some(SsdOptions { path: Some(folder.path().to_owned()), limit_bytes: 16 << 20 });
    let options = Options { ssd, codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    let backend = Arc::new(StoreBackend::open(options).unwrap());
    let store = backend.store();
    let keys: Vec<String> = (0..4_000).map(|number| format!("key:{number:05}")).collect();
    keys.iter().for_each(|key| store.put(key.as_bytes(), &[7; 100]).unwrap());
    store.settle().unwrap();
    // A full buffer goes to the file.
    while store.send_to_ssd(|| true).unwrap() > 0 && store.ssd().unwrap().written_bytes < 600 << 10 {
        store.bring_from_ssd(|| true);
    }
    damage_segments(folder.path());
    let server = TestServer::start_with(backend.clone(), |_| {});
    let mut connection = server.connect();
    let (mut cursor, mut found, mut refusals) = ("0".to_owned(), HashSet::new(), 0);
    loop {
        let reply = connection.text(&format!("SCAN {cursor} COUNT 1000"));
        cursor = match reply.strip_prefix("-ERR ") {
            // Nothing lies behind the last keys.
            Some(refusal) => {
                refusals += 1;
                let behind = refusal.split_once("; SCAN ").and_then(|(_, behind)| behind.split(' ').next());
                behind.unwrap_or("0").to_owned()
            }
            None => {
                let (next, keys) = parsed(&reply);
                found.extend(keys);
                next
            }
        };
        if cursor == "0" {
            break;
        }
    }
    assert!(refusals > 0 && refusals < keys.len() / 10, "{refusals} refusals");
    for key in &keys {
        assert_eq!(found.contains(key), store.get(key.as_bytes()).is_ok(), "{key}");
    }
}
