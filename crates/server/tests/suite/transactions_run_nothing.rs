//! Client libraries send MULTI, commands and EXEC in one go and read the reply to EXEC. A server without transactions
//! must not have run the commands when it refuses EXEC.

use crate::support::{Connection, RealRedis, TestServer, differences, request};

on_every_backend!(nothing_runs_from_multi_on, each_connection_has_its_own_state);

fn pipeline(connection: &mut Connection, lines: &[&str]) -> Vec<String> {
    let words = |line: &str| request(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    let requests: Vec<u8> = lines.iter().flat_map(|line| words(line)).collect();
    connection.send(&requests);
    lines.iter().map(|_| String::from_utf8(connection.reply()).unwrap()).collect()
}

fn nothing_runs_from_multi_on(server: &TestServer) {
    let mut connection = server.connect();
    connection.text("SET kept v");
    let leave = [
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ("DISCARD", "+OK\r\n"),
        ("RESET", "+RESET\r\n"),
        (
            "EXEC now",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n",
        ),
    ];
    for (leave, reply) in leave {
        let replies = pipeline(
            &mut connection,
            &[
                "MULTI", "SET k v", "DEL kept", "GET kept", "FLUSHALL", "PING", "MULTI", "WATCH k", "FOO",
                leave,
            ],
        );
        for refused in &replies[..9] {
            assert!(refused.starts_with("-ERR "), "{replies:?}");
        }
        assert_eq!(replies[9], reply);
        assert_eq!(connection.text("GET kept"), "$1\r\nv\r\n");
        assert_eq!(connection.text("EXISTS k"), ":0\r\n");
        assert_eq!(connection.text("EXEC"), "-ERR EXEC without MULTI\r\n");
    }
    assert!(connection.text("WATCH k").starts_with("-ERR WATCH is not supported"));
    assert_eq!(pipeline(&mut connection, &["MULTI", "QUIT"])[1], "+OK\r\n");
    assert_eq!(connection.rest(), b"");
}

fn each_connection_has_its_own_state(server: &TestServer) {
    let (mut one, mut other) = (server.connect(), server.connect());
    assert!(one.text("MULTI").starts_with("-ERR MULTI is not supported"));
    assert_eq!(other.text("SET k other"), "+OK\r\n");
    assert!(one.text("SET k one").starts_with("-ERR not run"));
    drop(one);
    assert_eq!(other.text("GET k"), "$5\r\nother\r\n");
    assert_eq!(other.text("DISCARD"), "-ERR DISCARD without MULTI\r\n");
}

/// Replies that do not concern transactions are those of Redis.
const ALIKE: &str = "EXEC
DISCARD
UNWATCH
UNWATCH x
WATCH
MULTI x
EXEC x
RESET
SET k v
MULTI
MULTI
WATCH k
GET
FOO
SHUTDOWN ABORT
SAVE
EXEC
EXEC
MULTI
DISCARD
DISCARD
MULTI
RESET
EXEC
GET k
COMMAND INFO nothing";

#[test]
fn replies_are_those_of_redis() {
    let (redis, server) = (RealRedis::start(), TestServer::start());
    let (mut theirs, mut ours) = (Connection::to(redis.address), server.connect());
    // Redis accepts the first of two.
    let mut multis = 0;
    let unlike = |line: &str| {
        multis += usize::from(line == "MULTI");
        line == "MULTI" && multis != 2
    };
    let different = differences(&mut theirs, &mut ours, ALIKE, unlike);
    assert!(different.is_empty(), "{different}");
}
