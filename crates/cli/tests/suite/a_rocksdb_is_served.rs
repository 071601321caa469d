//! `ziptier serve --backend rocksdb`. A client sees the same commands in front of both backends: a reply that differs,
//! or an option that one of them ignores, would be found only in production.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use fastrand::Rng;

use crate::support::{self, Client, Server, rocksdb, serve};

fn command(dir: &Path, more: &[&str]) -> Option<Command> {
    let mut command = serve();
    command.args(rocksdb()?).arg("--dir").arg(dir).args(more);
    Some(command)
}

fn start(dir: &Path, more: &[&str]) -> Option<Server> {
    Some(Server::start(&mut command(dir, more)?))
}

/// Both backends, each on a folder of its own.
fn both(folder: &Path) -> Option<[Server; 2]> {
    let rocksdb = start(&folder.join("rocksdb"), &[])?;
    Some([rocksdb, Server::start(serve().arg("--dir").arg(folder.join("store")))])
}

/// One command per line. Every one has the same reply in front of either backend.
const ALIKE: &str = "
SET k v
GET k
GET missing
SET k w NX
SET k w XX
SET k x GET
SET k y KEEPTTL
GETSET k z
GETDEL k
GETDEL k
SETNX k 1
SETNX k 2
INCR k
INCRBY k 40
DECR k
DECRBY k 2
INCRBYFLOAT k 0.5
INCR k
APPEND text hello
APPEND text world
STRLEN text
STRLEN missing
GETRANGE text 1 -2
SUBSTR text 0 3
SETRANGE text 5 W
SETRANGE fresh 3 x
GETEX text
GETEX text PERSIST
MSET a 1 b 2 a 3
MGET a missing b
MSETNX c 1 a 2
MSETNX c 1 d 2
DEL a missing
UNLINK b
EXISTS c d c missing
TOUCH c missing
TYPE c
TYPE missing
TTL c
PTTL missing
EXPIRETIME c
PERSIST c
EXPIRE missing 10
EXPIRE d -1
EXISTS d
RENAME c e
RENAME missing e
RENAMENX e f
RENAMENX f f
COPY f g
COPY f g
COPY f h REPLACE
OBJECT ENCODING f
KEYS *
KEYS f*
SCAN 0 COUNT 100
SCAN 0 MATCH f* COUNT 100
DBSIZE
ZT.RANGE - +
ZT.RANGE [f (h LIMIT 1
ZT.BATCH SET f 2 DEL g SET i 3
ZT.RANGE (f +
SELECT 0
SELECT 1
SAVE
FLUSHDB
DBSIZE
SET k v
FLUSHALL
KEYS *
CONFIG SET maxmemory 512mb
CONFIG GET maxmemory
CONFIG GET appendfsync
";

#[test]
fn both_backends_answer_alike() {
    let folder = tempfile::tempdir().unwrap();
    let Some(servers) = both(folder.path()) else { return };
    let script = ALIKE.trim_start();
    let [rocksdb, store] = servers.each_ref().map(|server| server.ask(script.as_bytes()));
    assert!(store.contains("elloworl"), "{store}");
    assert_eq!(rocksdb, store);
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn what_rocksdb_cannot_do_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = start(folder.path(), &[]) else { return };
    let expiry =
        "-ERR the backend rocksdb keeps no expiries; set the key without one, or serve --backend store\r\n";
    assert_eq!(server.ask(b"SET k v\r\n"), "+OK\r\n");
    for line in [
        "SET k w EX 100",
        "SET k w PX 100 NX GET",
        "SET new w PX 100 NX",
        "SETEX k 100 w",
        "PSETEX k 100 w",
        "EXPIRE k 100",
        "PEXPIRE k 100 NX",
        "EXPIREAT k 33177117420",
        "PEXPIREAT k 33177117420000",
        "GETEX k EX 100",
    ] {
        let refused = if line.ends_with("100 NX GET") { "$1\r\nv\r\n" } else { expiry };
        assert_eq!(server.ask(format!("{line}\r\n").as_bytes()), refused, "{line}");
    }
    for (line, words) in [
        ("RANDOMKEY", "draws no keys at random"),
        ("BGSAVE", "SAVE flushes now"),
        ("CONFIG SET maxmemory-policy allkeys-s3fifo", "evicts no keys"),
    ] {
        let said = server.ask(format!("{line}\r\n").as_bytes());
        assert!(said.starts_with("-ERR ") && said.contains(words), "{line}: {said}");
    }
    assert_eq!(server.ask(b"MGET k new\r\nTTL k\r\n"), "*2\r\n$1\r\nv\r\n$-1\r\n:-1\r\n");
    server.stop();
}

/// A cursor of `SCAN` holds a key, and long ones of one client would push out those of others.
#[test]
fn keys_have_the_same_bounds_in_front_of_both() {
    let folder = tempfile::tempdir().unwrap();
    let Some(servers) = both(folder.path()) else { return };
    let longest = vec![b'k'; 65_536];
    let longer = [&longest[..], b"k"].concat();
    let mut clients = servers.each_ref().map(Server::connect);
    let mut said = |words: &[&[u8]]| {
        let [rocksdb, store] = clients.each_mut().map(|client| client.reply(words).unwrap());
        assert!(rocksdb == store, "{}", String::from_utf8_lossy(words[0]));
        String::from_utf8(rocksdb).unwrap()
    };
    assert_eq!(said(&[b"SET", &longest, b"v"]), "+OK\r\n");
    for key in [&longer[..], b""] {
        let requests: [&[&[u8]]; 8] = [
            &[b"SET", key, b"v"],
            &[b"SETNX", key, b"v"],
            &[b"APPEND", key, b"v"],
            &[b"INCR", key],
            &[b"MSET", b"other", b"v", key, b"v"],
            &[b"MSETNX", b"other", b"v", key, b"v"],
            &[b"RENAME", &longest, key],
            &[b"COPY", &longest, key],
        ];
        for words in requests {
            assert!(said(words).starts_with("-ERR the key "), "{}", String::from_utf8_lossy(words[0]));
        }
    }
    assert_eq!(said(&[b"DBSIZE"]), ":1\r\n");
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn options_of_the_other_backend_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let refused = |mut command: Command| {
        let output = command.output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("ziptier serve: ") && said.lines().count() == 1, "{said}");
        said
    };
    let mut with_store = serve();
    with_store.args(["--compression", "builtin-zstd"]);
    assert!(refused(with_store).contains("--compression belongs to --backend rocksdb"));
    let mut nowhere = serve();
    nowhere.args(["--backend", "rocksdb", "--rocksdb-library", "/no/such/librocksdb.so"]);
    assert!(refused(nowhere).contains("--backend rocksdb needs a folder"));
    let mut missing = serve();
    missing.args(["--backend", "rocksdb", "--rocksdb-library", "/no/such/librocksdb.so", "--dir"]).arg(&dir);
    assert!(refused(missing).contains("RocksDB is not installed (/no/such/librocksdb.so"));
    for (more, words) in [
        (&["--codec", "zstd"][..], "--codec belongs to --backend store"),
        (&["--maxmemory-policy", "allkeys-s3fifo"], "--maxmemory-policy allkeys-s3fifo belongs"),
        (&["--ssd", "8MiB"], "--ssd belongs"),
        (&["--compression", "lz77"], "there is no compression lz77; say one of builtin-zstd,"),
    ] {
        let Some(command) = command(&dir, more) else { return };
        let said = refused(command);
        assert!(said.contains(words), "{more:?}: {said}");
    }
    assert!(!dir.exists());
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("other"), b"of somebody else").unwrap();
    let said = refused(command(&dir, &[]).unwrap());
    assert!(said.contains("is not empty and has no folder default"), "{said}");
}

#[test]
fn a_stop_closes_the_database_and_a_start_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    for (round, (durability, compression)) in
        [("always", "builtin-zstd"), ("everysec", "builtin-lz4"), ("no", "builtin-none")]
            .into_iter()
            .enumerate()
    {
        let Some(server) = start(folder.path(), &["--durability", durability, "--compression", compression])
        else {
            return;
        };
        assert!(server.said.contains(&format!("compression {compression}")), "{}", server.said);
        assert!(server.said.contains(&format!("durability {durability} (")), "{}", server.said);
        assert_eq!(server.ask(b"DBSIZE\r\n"), format!(":{round}\r\n"));
        assert_eq!(server.ask(format!("SET key:{round} v\r\n").as_bytes()), "+OK\r\n");
        // RocksDB tells no bytes of keys and values, so each byte counts as one.
        assert_eq!(server.ask(format!("MEMORY USAGE key:{round}\r\n").as_bytes()), ":6\r\n");
        let info = server.ask(b"INFO persistence\r\nINFO codec\r\n");
        let syncs = info.lines().find_map(|line| line.strip_prefix("log_syncs:")).unwrap();
        // A reply in `always` has waited for one. In `everysec` the first one comes at some time.
        if durability != "everysec" {
            assert_eq!(syncs != "0", durability == "always", "{durability}: {info}");
        }
        assert!(info.contains(&format!("codec:{compression}\r")), "{info}");
        let again = command(folder.path(), &[]).unwrap().output().unwrap();
        let said = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(!again.status.success() && said.contains("is open already in another process; "), "{said}");
        server.stop();
    }
}

#[test]
fn clients_that_count_together_lose_no_count() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = start(folder.path(), &["--threads", "4", "--durability", "no"]) else { return };
    let (clients, counts) = (4, 2_000);
    std::thread::scope(|scope| {
        for _ in 0..clients {
            let mut client = server.connect();
            scope.spawn(move || {
                for _ in 0..counts {
                    client.request(&[b"INCR", b"counted"]);
                    client.request(&[b"MSET", b"one", b"1", b"other", b"2"]);
                }
                client.send().unwrap();
                (0..2 * counts).for_each(|_| assert!(client.line().unwrap().starts_with([':', '+'])));
            });
        }
    });
    assert_eq!(server.ask(b"GET counted\r\n"), format!("$4\r\n{}\r\n", clients * counts));
}

fn random_word(random: &mut Rng) -> Vec<u8> {
    (0..random.usize(1..4)).map(|_| *random.choice(b"abc\x00\xff").unwrap()).collect()
}

fn random_request(random: &mut Rng) -> Vec<Vec<u8>> {
    let mut word = || random_word(random);
    let (a, b, c, d) = (word(), word(), word(), word());
    let number = random.i64(-5..100).to_string().into_bytes();
    let large = vec![b'v'; random.usize(0..6_000)];
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
    let (from, to) = ([b"[", &a[..]].concat(), [b"(", &b[..]].concat());
    match random.u8(..18) {
        0 => words(&[b"SET", &a, &b]),
        1 => words(&[b"SET", &a, &large]),
        2 => words(&[b"DEL", &a, &b]),
        3 => words(&[b"MSET", &a, &b, &c, &d]),
        4 => words(&[b"MSETNX", &a, &b, &c, &d]),
        5 => words(&[b"APPEND", &a, &large]),
        6 => words(&[b"SETRANGE", &a, b"7", &b]),
        7 => words(&[b"INCRBY", &a, &number]),
        8 => words(&[b"SET", &a, &number]),
        9 => words(&[b"RENAME", &a, &b]),
        10 => words(&[b"COPY", &a, &b, b"REPLACE"]),
        11 => words(&[b"GETSET", &a, &b]),
        12 => words(&[b"SET", &a, &b, b"NX", b"GET"]),
        13 => words(&[b"ZT.BATCH", b"SET", &a, &b, b"DEL", &c, b"SET", &d, &a]),
        14 => words(&[b"ZT.RANGE", &from, &to, b"LIMIT", &number]),
        15 => words(&[b"MGET", &a, &b, &c, &d]),
        16 => words(&[b"GETRANGE", &a, b"1", b"20"]),
        _ => words(&[b"STRLEN", &a]),
    }
}

/// The records of a server, by one range.
fn all(client: &mut Client) -> BTreeMap<Vec<u8>, Vec<u8>> {
    client.request(&[b"ZT.RANGE", b"-", b"+"]);
    client.send().unwrap();
    let words: usize = client.line().unwrap()[1..].parse().unwrap();
    (0..words / 2).map(|_| (client.bulk().unwrap().unwrap(), client.bulk().unwrap().unwrap())).collect()
}

#[test]
fn random_commands_are_answered_alike() {
    let folder = tempfile::tempdir().unwrap();
    let Some(servers) = both(folder.path()) else { return };
    let seed = ziptier_testing::seed();
    let mut random = Rng::with_seed(seed);
    let mut clients = servers.each_ref().map(support::Server::connect);
    for step in 0..ziptier_testing::count("ZIPTIER_REQUESTS", 5_000) {
        let request = random_request(&mut random);
        let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let [rocksdb, store] = clients.each_mut().map(|client| client.reply(&words).unwrap());
        assert!(rocksdb == store, "seed {seed}, step {step}: {request:?}\n{rocksdb:?}\n{store:?}");
        if step % 500 == 499 {
            let [rocksdb, store] = clients.each_mut().map(all);
            assert!(!store.is_empty() && rocksdb == store, "seed {seed}, step {step}");
        }
    }
}

/// A worker that passed all of them would serve nobody meanwhile.
#[test]
fn walks_over_many_deleted_keys_leave_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = start(folder.path(), &["--threads", "1", "--durability", "no"]) else { return };
    let mut client = server.connect();
    let left = ["key:05000", "key:12000", "key:19999"];
    let keys: Vec<String> = (0..20_000).map(|number| format!("key:{number:05}")).collect();
    for keys in keys.chunks(500) {
        let pairs = keys.iter().flat_map(|key| [key.as_bytes(), b"value"]);
        client.request(&[&b"MSET"[..]].into_iter().chain(pairs).collect::<Vec<_>>());
        let gone = keys.iter().map(String::as_str).filter(|key| !left.contains(key)).map(str::as_bytes);
        client.request(&[&b"DEL"[..]].into_iter().chain(gone).collect::<Vec<_>>());
        client.send().unwrap();
        assert_eq!(client.line().unwrap(), "+OK");
        assert!(client.line().unwrap().starts_with(':'));
    }
    let bulks = |words: &[&str]| -> String {
        let each = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n", words.len()) + &each.collect::<String>()
    };
    for (line, expected) in [
        ("SCAN 0", format!("*2\r\n$1\r\n0\r\n{}", bulks(&left))),
        ("KEYS *", bulks(&left)),
        ("KEYS key:1*", bulks(&left[1..])),
        ("ZT.RANGE [key:05000 +", bulks(&["key:05000", "value", "key:12000", "value", "key:19999", "value"])),
        ("ZT.RANGE - + LIMIT 1", bulks(&["key:05000", "value"])),
    ] {
        let cut = cut_walks(&server);
        assert_eq!(server.ask(format!("{line}\r\n").as_bytes()), expected, "{line}");
        assert!(cut_walks(&server) > cut, "{line}");
    }
    server.stop();
}

/// Walks that ended on a worker and went on elsewhere.
fn cut_walks(server: &Server) -> u64 {
    let info = server.ask(b"INFO codec\r\n");
    let count = info.lines().find_map(|line| line.strip_prefix("rocksdb_cut_walks:"));
    count.unwrap().trim().parse().unwrap()
}
