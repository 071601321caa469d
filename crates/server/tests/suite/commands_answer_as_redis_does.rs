//! Clients match on Redis's replies byte for byte. A different error word becomes another exception, and a wrong type
//! becomes a crash in a client library. So the same requests go to a real Redis and to this server, and every reply
//! must be the same bytes.

use std::time::{Duration, Instant};

use crate::support::{Connection, RealRedis, TestServer};

on_every_backend!(replies_are_the_same, pipelines_and_inline_commands_are_the_same);

/// One request per line, words separated by blanks; `~` stands for an empty argument.
const REQUESTS: &str = "
PING
ping hello
PING a b
ECHO hello
ECHO
ECHO a b
SELECT 0
SELECT 16
SELECT x
SELECT -1
SELECT
SELECT 99999999999
GET
GET a b
GET missing
SET
SET k
SET k v
get k
SET k v2 NX
GET k
SET k v3 XX
GET k
SET fresh v XX
SET fresh v NX
SET k v4 GET
SET other v GET
SET other w NX GET
SET third w NX GET
SET third x XX GET
SET k v NX XX
SET k v XX NX
SET k v EX
SET k v EX 0
SET k v EX -1
SET k v EX x
SET k v EX 9223372036854775807
SET k v PX 9223372036854775807
SET k v EX 10 PX 10
SET k v EX 10 KEEPTTL
SET k v KEEPTTL EX 10
SET k v KEEPTTL KEEPTTL
SET k v nonsense
SET k v EX 10 EX 10
SET k v ~
SET k v EX 100
TTL k
SET k w KEEPTTL
TTL k
SET k w
TTL k
SET k w PX 100000
TTL k
SET k w EXAT 33177117420
SET k w PXAT 33177117420000
SET k w EXAT 0
SET k w EXAT 1
GET k
EXISTS k
SET k w EX 50 NX
TTL k
SET k w EX 50 NX
TTL missing
PTTL missing
TTL
TTL a b
PTTL fresh
PERSIST k
PERSIST k
PERSIST missing
TTL k
EXPIRE k 100
TTL k
EXPIRE k 200 NX
EXPIRE k 200 XX
TTL k
EXPIRE k 100 GT
EXPIRE k 300 GT
TTL k
EXPIRE k 400 LT
EXPIRE k 250 LT
TTL k
EXPIRE fresh 10 GT
EXPIRE fresh 10 XX
EXPIRE fresh 1000 LT
EXPIRE fresh 1000 NX GT
EXPIRE fresh 1000 GT LT
EXPIRE fresh 2000 XX GT
EXPIRE fresh 1000 foo
EXPIRE fresh x
EXPIRE fresh 1.5
EXPIRE fresh 9223372036854775807
EXPIRE fresh -9223372036854775808
EXPIRE missing 10
EXPIRE missing x
EXPIRE missing
EXPIRE fresh 0
EXISTS fresh
SET fresh v
EXPIRE fresh -1
EXISTS fresh
SET fresh v
EXPIRE fresh -5 NX
EXISTS fresh
MSET a 1 b 2 a 3
MSET
MSET a
MSET a 1 b
MSET a 1 b 2 c
GET a
MGET a b missing a
MGET
DEL a b missing a
DEL
EXISTS a k k missing
EXISTS
MSET a 10 b text c -9223372036854775808 d 9223372036854775807 e 007 f 1.5
INCR a
INCR a
DECR a
INCR b
DECR b
DECR c
INCR c
INCR d
INCR e
INCR f
INCR counter
DECR counter
DECR counter
GET counter
INCR
INCR a b
INCRBY a 5
INCRBY a -7
INCRBY a x
INCRBY a
INCRBY b 1
INCRBY d 1
INCRBY new1 9223372036854775807
DECRBY a 2
DECRBY a -9223372036854775808
DECRBY c 9223372036854775807
DECRBY a x
SETEX k 100 v
TTL k
SETEX k 0 v
SETEX k x v
SETEX k 10
SETEX k 9223372036854775807 v
PSETEX k 100000 v
TTL k
PSETEX k -1 v
PEXPIRE k 200000
TTL k
PEXPIRE k x
PEXPIRE k 9223372036854775807
EXPIREAT k 33177117420
TTL missing
EXPIREAT k x
PEXPIREAT k 33177117420000 GT
PEXPIREAT k 33177117420000 NX
PEXPIREAT k 1
GET k
UNLINK a missing
UNLINK
SET a 1
SET ttl 5 EX 100
INCR ttl
TTL ttl
APPEND ttl x
TTL ttl
APPEND new hello
APPEND new ~
APPEND new world
GET new
APPEND new
STRLEN new
STRLEN missing
STRLEN
TYPE new
TYPE missing
TYPE
SET empty ~
GET empty
STRLEN empty
EXISTS empty
DBSIZE
DBSIZE x
SCAN
SCAN x
SCAN 0 MATCH
SCAN 0 COUNT 0
SCAN 0 COUNT x
SCAN 0 COUNT -1
SCAN 0 FOO bar
SCAN 0 MATCH nothing* COUNT 1000
SCAN 0 MATCH new COUNT 1000
SCAN 0 TYPE hash COUNT 1000
SCAN 0 MATCH new TYPE string COUNT 1000
FLUSHALL x
FLUSHALL ASYNC x
FLUSHALL SYNC
FLUSHALL async
FLUSHDB x
FLUSHDB
DBSIZE
CONFIG GET save
CONFIG GET appendonly
CONFIG GET nothinglikethis
CONFIG GET maxmemory
CONFIG GET databasez database
CONFIG
CONFIG GET
CONFIG FOO
CONFIG FOO bar
CLIENT
CLIENT GETNAME
CLIENT SETNAME me
CLIENT GETNAME
CLIENT SETNAME
CLIENT SETNAME a b
CLIENT ID x
CLIENT GETNAME x
CLIENT FOO
CLIENT FOO a b c
COMMAND COUNT x
COMMAND INFO nothing
COMMAND FOO
HELLO 4
HELLO x
HELLO 2 FOO
HELLO 2 SETNAME
HELLO 2 AUTH default
HELLO 2 AUTH nobody secret
FOO
FOO bar baz
foo a b c d e f g h i j k l m n o p q r s t u v w x y z
averyveryveryveryveryverylongcommandname x
SHUTDOWN FOO
SHUTDOWN ABORT
SHUTDOWN NOSAVE SAVE
SHUTDOWN NOSAVE ABORT
SET k v
GET k
QUIT
";

/// Whether two replies are the remaining seconds of one time that both servers were given within `passed`. They must be
/// equal if `passed` is less than half a second.
fn are_left_alike(theirs: &[u8], ours: &[u8], passed: Duration) -> bool {
    let seconds = |reply| String::from_utf8_lossy(reply).strip_prefix(':')?.trim_end().parse::<u64>().ok();
    let (Some(theirs), Some(ours)) = (seconds(theirs), seconds(ours)) else { return false };
    // Both round to the nearest second; each has the time to the millisecond.
    u128::from(theirs.abs_diff(ours)) <= (passed.as_millis() + 500) / 1000
}

fn replies_are_the_same(server: &TestServer) {
    let redis = RealRedis::start();
    for resp3 in [false, true] {
        let mut theirs = Connection::to(redis.address);
        let mut ours = server.connect();
        let began = Instant::now();
        theirs.text("FLUSHALL");
        ours.text("FLUSHALL");
        if resp3 {
            theirs.text("HELLO 3");
            ours.text("HELLO 3");
        }
        let mut different = Vec::new();
        // This Redis keeps nothing on disk. Its replies about persistence are compared only with a server that keeps
        // nothing on disk, either.
        let differs = |line: &str| server.is_durable() && line == "CONFIG GET appendonly";
        for line in REQUESTS.lines().filter(|line| !line.is_empty() && !differs(line)) {
            let words = line.split(' ').map(|word| if word == "~" { "" } else { word });
            let args: Vec<&[u8]> = words.map(str::as_bytes).collect();
            let (theirs, ours) = (theirs.ask(&args), ours.ask(&args));
            let is_left = line.starts_with("TTL ") && are_left_alike(&theirs, &ours, began.elapsed());
            if theirs != ours && !is_left {
                let text = String::from_utf8_lossy;
                different.push(format!("{line}\n  Redis {:?}\n  here  {:?}", text(&theirs), text(&ours)));
            }
        }
        assert!(different.is_empty(), "RESP3 {resp3}:\n{}", different.join("\n"));
        assert_eq!(ours.rest(), b"");
    }
}

/// Whole streams of bytes, after which the connection is half-closed: all replies must be the same.
const STREAMS: &[&[u8]] = &[
    b"PING\r\n",
    b"PING\n",
    b"  PING  \r\n\r\n\nECHO 'a b'\r\nECHO \"\\x41\\n\"\r\n",
    b"SET inline \"quoted value\"\r\nGET inline\r\nfoo bar\r\n",
    b"ECHO 'open\r\nPING\r\n",
    b"ECHO \"a\"b\r\nPING\r\n",
    b"*1\r\n$4\r\nPING\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n",
    b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n",
    b"*x\r\n*1\r\n$4\r\nPING\r\n",
    b"*2147483648\r\n",
    b"*1\r\n:4\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$x\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$4\r\nPING\r\n*1\r\nx\r\n",
    b"*2\r\n$3\r\nGET\r\n*1\r\n",
    b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"*3\r\n$3\r\nfoo\r\n$3\r\na\0b\r\n$4\r\nx\r\ny\r\n",
    b"*2\r\n$5\r\nf\r\noo\r\n$1\r\na\r\n",
];

fn pipelines_and_inline_commands_are_the_same(server: &TestServer) {
    let redis = RealRedis::start();
    for stream in STREAMS {
        let [theirs, ours] = [redis.address, server.address].map(|address| {
            let mut connection = Connection::to(address);
            connection.send(stream);
            connection.stream.shutdown(std::net::Shutdown::Write).unwrap();
            String::from_utf8_lossy(&connection.rest()).into_owned()
        });
        assert_eq!(theirs, ours, "{:?}", String::from_utf8_lossy(stream));
    }
}
