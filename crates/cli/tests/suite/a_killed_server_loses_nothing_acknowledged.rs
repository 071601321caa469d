//! The server is killed (SIGKILL) during writes by several clients and started again on the same folder. An audit
//! compares the numbers that the clients wrote. In every durability, all acknowledged or read values are there, whole,
//! and no others.
//!
//! Once with all in memory, once with most of the data on SSD, which was read and written when the server was killed,
//! and once with RocksDB behind the server.
//!
//! `ZIPTIER_KILLS` gives the number of rounds, 20 by default; a fifth of them with most data on SSD, and half of them
//! with RocksDB.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Client, Server, rocksdb, serve, ziptier};

const CLIENTS: u64 = 4;
/// Keys of a client that are set, with values of all lengths.
const KEYS: u64 = 24;
/// Rounds after which a fresh folder is taken, so that logs stay short.
const ROUNDS_PER_FOLDER: u64 = 50;

fn start(dir: &Path, durability: &str, more: &[&str]) -> Server {
    let mut command = serve();
    command.args(["--threads", "2", "--durability", durability, "--dir"]).arg(dir).args(more);
    // A killed server reports nothing.
    let server = Server::start(command.stderr(Stdio::inherit()));
    assert!(server.said.contains(&format!("durability {durability}")), "{}", server.said);
    server
}

/// A key's numbers: the newest that was sent, and the newest that was acknowledged or read.
#[derive(Default)]
struct Numbers {
    sent: AtomicU64,
    safe: AtomicU64,
}

impl Numbers {
    fn next(&self) -> u64 {
        self.sent.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn is_safe(&self, number: u64) {
        self.safe.fetch_max(number, Ordering::SeqCst);
    }

    /// After an audit: what is there now is the truth.
    fn start_at(&self, number: u64) {
        self.sent.store(number, Ordering::SeqCst);
        self.safe.store(number, Ordering::SeqCst);
    }

    fn check(&self, what: &str, found: u64) {
        let (safe, sent) = (self.safe.load(Ordering::SeqCst), self.sent.load(Ordering::SeqCst));
        assert!((safe..=sent).contains(&found), "{what} has {found}: {safe} is safe, {sent} was sent");
    }
}

/// The writes of a client: keys that are set, a key that is set and deleted in turn, a counter, and two keys that are
/// always set together.
#[derive(Default)]
struct Owned {
    set: [Numbers; KEYS as usize],
    deleted: Numbers,
    counted: Numbers,
    pair: Numbers,
}

/// The one value that belongs to a number: at times large, mostly short.
fn value(number: u64) -> Vec<u8> {
    let len = if number % 97 == 13 { 300_000 } else { (number * 37) % 700 };
    let mut value = format!("{number}|").into_bytes();
    value.extend((0..len).map(|at| (number.wrapping_mul(31) + at) as u8));
    value
}

/// The number of a value, which must be whole.
fn number(key: &str, found: &[u8]) -> u64 {
    let digits = found.split(|&byte| byte == b'|').next().unwrap();
    let number = String::from_utf8_lossy(digits).parse().unwrap_or_else(|_| panic!("{key} is damaged"));
    assert!(found == value(number), "{key} is damaged at number {number}");
    number
}

/// Writes in pipelines until the server is gone.
fn write(client: u64, port: u16, owned: &Owned, acknowledged: &AtomicU64) -> io::Result<()> {
    let mut connection = Client::connect(port)?;
    for round in 0.. {
        let mut waiting: Vec<(&Numbers, u64)> = Vec::new();
        for step in 0..1 + (round * 7 + client) % 12 {
            let (numbers, kind) = match (round + step) % 8 {
                5 => (&owned.deleted, 1),
                6 => (&owned.counted, 2),
                7 => (&owned.pair, 3),
                _ => (&owned.set[((round * 5 + step) % KEYS) as usize], 0),
            };
            let number = numbers.next();
            let bytes = value(number);
            match kind {
                0 => {
                    let key = format!("{client}:set:{}", (round * 5 + step) % KEYS);
                    connection.request(&[b"SET", key.as_bytes(), &bytes]);
                }
                1 if number.is_multiple_of(2) => {
                    connection.request(&[b"DEL", format!("{client}:deleted").as_bytes()])
                }
                1 => connection.request(&[b"SET", format!("{client}:deleted").as_bytes(), &bytes]),
                2 => connection.request(&[b"INCR", format!("{client}:counted").as_bytes()]),
                _ => {
                    let keys = [format!("{client}:pair:a"), format!("z{client}:pair:b")];
                    connection.request(&[b"MSET", keys[0].as_bytes(), &bytes, keys[1].as_bytes(), &bytes]);
                }
            }
            waiting.push((numbers, number));
        }
        connection.send()?;
        for (numbers, number) in waiting {
            let reply = connection.line()?;
            assert!(reply.starts_with(['+', ':']), "{reply}");
            numbers.is_safe(number);
            acknowledged.fetch_add(1, Ordering::SeqCst);
        }
    }
    Ok(())
}

/// Reads what others write, which must not vanish either.
fn read(port: u16, all: &[Owned], stop: &AtomicBool) -> io::Result<()> {
    let mut connection = Client::connect(port)?;
    for round in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let (client, slot) = (round % CLIENTS, round * 11 % KEYS);
        let key = format!("{client}:set:{slot}");
        if let Some(found) = connection.get(&key)? {
            all[client as usize].set[slot as usize].is_safe(number(&key, &found));
        }
    }
    Ok(())
}

fn audit(port: u16, all: &[Owned]) {
    let mut connection = Client::connect(port).unwrap();
    let mut get = |key: &str| connection.get(key).unwrap();
    for (client, owned) in all.iter().enumerate() {
        let mut check = |key: String, numbers: &Numbers| {
            let found = get(&key).map_or(0, |found| number(&key, &found));
            numbers.check(&key, found);
            numbers.start_at(found);
            found
        };
        for (slot, numbers) in owned.set.iter().enumerate() {
            check(format!("{client}:set:{slot}"), numbers);
        }
        let first = check(format!("{client}:pair:a"), &owned.pair);
        assert_eq!(check(format!("z{client}:pair:b"), &owned.pair), first, "half of an MSET");
        let key = format!("{client}:counted");
        let counted = get(&key).map_or(0, |digits| String::from_utf8(digits).unwrap().parse().unwrap());
        owned.counted.check(&key, counted);
        owned.counted.start_at(counted);
        // Odd numbers are set, even ones mean that the key is deleted.
        let key = format!("{client}:deleted");
        let deleted = &owned.deleted;
        match get(&key) {
            Some(found) => {
                let found = number(&key, &found);
                deleted.check(&key, found);
                deleted.start_at(found);
            }
            None => {
                let (safe, sent) = (deleted.safe.load(Ordering::SeqCst), deleted.sent.load(Ordering::SeqCst));
                let even = safe.next_multiple_of(2);
                assert!(even <= sent, "{key} is gone: {safe} is safe, {sent} was sent");
                deleted.start_at(even);
            }
        }
    }
}

/// How many servers are killed.
fn rounds_wanted() -> u64 {
    std::env::var("ZIPTIER_KILLS").map_or(20, |text| text.parse().unwrap())
}

/// Says how far a long run has come.
fn tell(round: u64, rounds: u64) {
    if round > 0 && round.is_multiple_of(50) {
        println!("{round} of {rounds} rounds");
    }
}

#[test]
fn a_kill_loses_nothing_that_was_acknowledged_or_read() {
    kill_in_rounds(rounds_wanted(), &[]);
}

#[test]
fn a_kill_of_a_served_rocksdb_loses_nothing() {
    let Some(rocksdb) = rocksdb() else { return };
    kill_in_rounds(rounds_wanted() / 2, &rocksdb.iter().map(String::as_str).collect::<Vec<_>>());
}

fn kill_in_rounds(rounds: u64, options: &[&str]) {
    let mut folder = tempfile::tempdir().unwrap();
    let mut all: Vec<Owned> = Vec::new();
    let (mut audited, mut kills) = (0, 0);
    for round in 0..rounds {
        if round % ROUNDS_PER_FOLDER == 0 {
            folder = tempfile::tempdir().unwrap();
            all = (0..CLIENTS).map(|_| Owned::default()).collect();
        }
        tell(round, rounds);
        let durability = ["always", "everysec", "no"][round as usize % 3];
        let mut server = start(folder.path(), durability, options);
        let port = server.port;
        audit(port, &all);
        let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let kill_at = 100 + round * 7919 % 1500;
        std::thread::scope(|scope| {
            let (all, acknowledged, stop) = (&all, &acknowledged, &stop);
            for (client, owned) in (0..).zip(all) {
                scope.spawn(move || write(client, port, owned, acknowledged).unwrap_err());
            }
            scope.spawn(move || read(port, all, stop));
            while acknowledged.load(Ordering::SeqCst) < kill_at {
                assert_eq!(server.child.try_wait().unwrap(), None, "the server ended by itself");
                // A thread that spins would take a processor from the server.
                std::thread::sleep(Duration::from_millis(1));
            }
            server.kill();
            stop.store(true, Ordering::SeqCst);
        });
        audited += acknowledged.into_inner();
        kills += 1;
    }
    let server = start(folder.path(), "always", options);
    audit(server.port, &all);
    println!("{kills} kills, {audited} acknowledged writes, none lost");
}

/// Keys of the filling, several times what memory holds.
const FILL_KEYS: u64 = 36_000;
const FILL_BYTES: usize = 800;
/// Requests that a client of the filling sends at once.
const PIPELINE: usize = 32;
/// The server's memory is mostly its program and its buffers.
const SMALL: [&str; 4] = ["--memory", "24MiB", "--ssd", "512MiB"];

/// Bytes that do not compress, of a version of a key.
fn noise(key: u64, version: u64) -> Vec<u8> {
    let mut state = (key << 20 ^ version).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..FILL_BYTES / 8).flat_map(|_| next()).collect()
}

/// Sets keys in pipelines, from `version` of each on, and notes what was acknowledged, until the server is gone or all
/// are answered. A busy disk may refuse some for want of memory.
fn fill(
    port: u16,
    keys: impl Iterator<Item = u64>,
    version: u64,
    noted: &[AtomicU64],
    answered: &AtomicU64,
) -> io::Result<()> {
    let mut connection = Client::connect(port)?;
    let keys: Vec<u64> = keys.collect();
    for group in keys.chunks(PIPELINE) {
        for key in group {
            connection.request(&[b"SET", format!("fill:{key:08}").as_bytes(), &noise(*key, version)]);
        }
        connection.send()?;
        for key in group {
            let reply = connection.line()?;
            if reply == "+OK" {
                noted[*key as usize].store(version, Ordering::SeqCst);
            } else {
                assert!(reply.starts_with("-OOM "), "{reply}");
            }
            answered.fetch_add(1, Ordering::SeqCst);
        }
    }
    Ok(())
}

/// Every key has the version that was acknowledged, or the one that was under way.
fn audit_fill(port: u16, newest: u64, noted: &[AtomicU64]) {
    let mut connection = Client::connect(port).unwrap();
    for (first, group) in (0..).step_by(PIPELINE).zip(noted.chunks(PIPELINE)) {
        let keys = first..first + group.len() as u64;
        for key in keys.clone() {
            connection.request(&[b"GET", format!("fill:{key:08}").as_bytes()]);
        }
        connection.send().unwrap();
        for (key, version) in keys.zip(group) {
            let safe = version.load(Ordering::SeqCst);
            let found = connection.bulk().unwrap();
            let now = match &found {
                None => Some(0),
                Some(found) => (1..=newest).rev().find(|version| *found == noise(key, *version)),
            };
            let is_right = now.is_some_and(|now| now >= safe);
            assert!(is_right, "fill:{key:08} had version {safe} before the kill, and has {now:?}");
            version.store(now.unwrap_or(0), Ordering::SeqCst);
        }
    }
}

#[test]
fn a_kill_with_most_data_on_ssd_loses_nothing() {
    let rounds = rounds_wanted() / 5;
    let folder = tempfile::tempdir().unwrap();
    let noted: Vec<AtomicU64> = (0..FILL_KEYS).map(|_| AtomicU64::new(0)).collect();
    for round in 1..=rounds {
        tell(round, rounds);
        let durability = ["always", "everysec", "no"][round as usize % 3];
        let server = start(folder.path(), durability, &SMALL);
        let port = server.port;
        audit_fill(port, round - 1, &noted);
        let answered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (noted, answered) = (&noted, &answered);
            let mut fillers = Vec::new();
            // Both write all keys of theirs in an order that is not that of the leaves.
            for rest in [0, 1] {
                let keys = (0..FILL_KEYS / 2).map(move |n| 2 * (n * 7919 % (FILL_KEYS / 2)) + rest);
                fillers.push(scope.spawn(move || fill(port, keys, round, noted, answered)));
            }
            // Later each time.
            let enough = FILL_KEYS * (round % 5) / 5;
            let is_enough = || answered.load(Ordering::SeqCst) >= enough;
            while !is_enough() {
                let goes_on = fillers.iter().any(|filler| !filler.is_finished());
                assert!(goes_on || is_enough(), "nobody writes any more in round {round}");
                std::thread::sleep(Duration::from_millis(1));
            }
            server.kill();
        });
        let set = noted.iter().filter(|noted| noted.load(Ordering::SeqCst) == round).count() as u64;
        assert!(set >= answered.into_inner() / 2, "more than half of all writes were refused");
    }
    let server = start(folder.path(), "always", &SMALL);
    audit_fill(server.port, rounds, &noted);
    let info = server.connect().info("ssd").unwrap();
    assert!(info.contains("ssd_leaves:") && !info.contains("ssd_leaves:0\r"), "{info}");
    server.kill();
    let checked = ziptier().arg("check").arg(folder.path()).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
