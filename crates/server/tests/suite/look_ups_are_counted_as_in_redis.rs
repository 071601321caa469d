//! Operators judge a cache by its hit ratio, and compare the ratio with that of the Redis before. A server that counts
//! the look-ups of other commands shows another ratio for the same clients. So the same requests go to a real Redis and
//! to this server, and each request must change `keyspace_hits` and `keyspace_misses` by as much.

use std::thread::sleep;
use std::time::Duration;

use crate::support::{Connection, RealRedis, TestServer, look_ups};

on_every_backend!(each_request_counts_as_in_redis, as_many_look_ups_count_on_another_thread);

/// One request per line, words separated by blanks; `~` stands for an empty argument. Before each, `text`, `number` and
/// `expired` are set, and `expired` is so.
const REQUESTS: &str = "
GET text
GET missing
GET expired
MGET text missing expired text
STRLEN text
STRLEN missing
GETRANGE text 0 1
GETRANGE missing 0 1
GETRANGE text x 1
SUBSTR missing 0 1
EXISTS text missing expired text
TOUCH text missing
TYPE text
TYPE missing
TTL text
TTL missing
PTTL text
PTTL missing
EXPIRETIME text
EXPIRETIME missing
PEXPIRETIME text
PEXPIRETIME missing
OBJECT ENCODING text
OBJECT ENCODING missing
OBJECT REFCOUNT expired
OBJECT FREQ text
OBJECT HELP
MEMORY USAGE text
MEMORY USAGE missing
GETEX text
GETEX missing
GETEX text PERSIST
GETEX missing PERSIST
GETEX text EX 100
GETEX missing EX 100
GETEX text EXAT 1
GETEX text EX 0
GETEX missing EX 0
GETEX text EX x
GETEX text NX
GETDEL text
GETDEL expired
GETSET text v
GETSET missing v
SET text v
SET missing v
SET text v NX
SET missing v XX
SET text v KEEPTTL
SET text v GET
SET missing v GET
SET text v NX GET
SET expired v NX GET
SET missing v XX GET
SET text v EX 100 GET
SET text v EX 0 GET
SETNX text v
SETEX text 100 v
PSETEX missing 100000 v
MSET text v missing v
MSETNX text v missing v
MSETNX missing v other v
APPEND text v
APPEND missing v
SETRANGE text 1 v
SETRANGE missing 1 v
SETRANGE text 1 ~
INCR number
INCR text
INCR missing
DECRBY number 2
INCRBYFLOAT number 1.5
INCRBYFLOAT missing 1.5
EXPIRE text 100
EXPIRE missing 100
EXPIRE text 100 NX
PEXPIREAT text 1
PERSIST text
PERSIST missing
DEL text missing
UNLINK text expired
RENAME text other
RENAME missing other
RENAME text text
RENAMENX text number
RENAMENX missing other
COPY text other
COPY missing other
COPY text number
COPY text number REPLACE
COPY expired number REPLACE
COPY text text
SCAN 0
SCAN 0 MATCH t*
SCAN 0 MATCH t* TYPE string
KEYS *
RANDOMKEY
DBSIZE
";

/// The change of the counters by one request.
fn counted(connection: &mut Connection, args: &[&[u8]]) -> [u64; 2] {
    let before = look_ups(connection);
    connection.ask(args);
    let after = look_ups(connection);
    [after[0] - before[0], after[1] - before[1]]
}

fn each_request_counts_as_in_redis(server: &TestServer) {
    let redis = RealRedis::start();
    let mut both = [Connection::to(redis.address), server.connect()];
    let mut different = Vec::new();
    for line in REQUESTS.lines().filter(|line| !line.is_empty()) {
        for connection in &mut both {
            connection.text("FLUSHALL");
            connection.text("MSET text value number 5");
            connection.text("SET expired v PX 1");
        }
        sleep(Duration::from_millis(5));
        let words = line.split(' ').map(|word| if word == "~" { "" } else { word });
        let args: Vec<&[u8]> = words.map(str::as_bytes).collect();
        let [theirs, ours] = both.each_mut().map(|connection| counted(connection, &args));
        if theirs != ours {
            different.push(format!("{line}: hits and misses {theirs:?} in Redis, {ours:?} here"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(look_ups(&mut both[1]).iter().all(|&count| count > 10), "the counters move");
}

/// Long requests run apart, and large values are sent in pieces.
fn as_many_look_ups_count_on_another_thread(server: &TestServer) {
    let redis = RealRedis::start();
    let large = vec![b'v'; 600_000];
    let keys = ["missing", "text", "large"].map(str::as_bytes).repeat(800);
    let long = |name: &'static str| [&[name.as_bytes()][..], &keys].concat();
    let requests: [&[&[u8]]; 8] = [
        &long("EXISTS"),
        &long("MGET")[..50],
        &[b"GET", b"large"],
        &[b"GETRANGE", b"large", b"0", b"500000"],
        &[b"COPY", b"large", b"other"],
        &[b"SET", b"large", &large, b"GET"],
        &[b"GETSET", b"missing", &large],
        &[b"GETDEL", b"large"],
    ];
    for request in requests {
        let [theirs, ours] = [Connection::to(redis.address), server.connect()].map(|mut connection| {
            connection.text("FLUSHALL");
            connection.text("SET text v");
            connection.ask(&[b"SET", b"large", &large]);
            counted(&mut connection, request)
        });
        assert_eq!(theirs, ours, "{}", String::from_utf8_lossy(request[0]));
        assert_ne!(theirs, [0, 0], "{}", String::from_utf8_lossy(request[0]));
    }
}
