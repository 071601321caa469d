//! A server that other machines reach is only as safe as its password. A client that has not sent the password can run
//! nothing and holds next to no memory. No reply contains the password. Every reply is compared with a real Redis.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ziptier_server::{Config, Password, ServeError, Server};

use crate::support::map_backend::MapBackend;
use crate::support::{Connection, RealRedis, TestServer, differences, request};

fn guarded() -> TestServer {
    TestServer::start_with(Arc::new(MapBackend::default()), |config| {
        config.password = Some(Password::new(b"sesame").unwrap());
    })
}

/// Sessions, one connection each, `~` for an empty argument. The last one changes the password.
const SESSIONS: [&str; 3] = [
    "PING
GET k
SET k v
QUIET bar
CLIENT GETNAME
CLIENT
GET
INFO
CONFIG GET requirepass
COMMAND COUNT
FLUSHALL
SHUTDOWN NOSAVE
AUTH
AUTH wrong
AUTH sesam
AUTH sesame1
AUTH ~
AUTH default wrong
AUTH nobody sesame
AUTH a b c
HELLO
HELLO 3
HELLO 2 SETNAME x
HELLO 9
HELLO x
HELLO 2 AUTH default wrong
HELLO 2 AUTH default
HELLO 2 AUTH default wrong FOO
RESET
RESET x
MULTI
SET k v
EXEC
EXEC x
DISCARD
WATCH k
TIME
TIME x
AUTH sesame
GET k
MULTI x
CLIENT SETNAME me
AUTH wrong
CLIENT GETNAME
RESET
CLIENT GETNAME
AUTH default sesame
CLIENT GETNAME
QUIT",
    "PING
HELLO 2 SETNAME x AUTH default sesame
CLIENT GETNAME
CONFIG GET requirepass
QUIT now",
    "HELLO 2 AUTH default wrong SETNAME y
AUTH sesame
CONFIG SET requirepass
CONFIG SET requirepass other timeout x
CONFIG GET requirepass
CONFIG SET requirepass other
PING
AUTH sesame
AUTH other
RESET
PING
AUTH other
CONFIG SET requirepass ~
CONFIG GET requirepass
AUTH x
AUTH default x
AUTH nobody x
HELLO 2 AUTH default x FOO
RESET
PING",
];

#[test]
fn replies_are_those_of_redis() {
    let (redis, server) = (RealRedis::start_with_password("sesame"), guarded());
    for session in SESSIONS {
        let (mut theirs, mut ours) = (Connection::to(redis.address), server.connect());
        // HELLO's fields name the server.
        let unlike = |line: &str| line.contains("AUTH default sesame") && line.starts_with("HELLO");
        let different = differences(&mut theirs, &mut ours, session, unlike);
        assert!(different.is_empty(), "{different}");
    }
}

/// Bytes of strangers, after which the connection is half-closed.
#[test]
fn strangers_may_announce_as_little_as_in_redis() {
    let (redis, server) = (RealRedis::start_with_password("sesame"), guarded());
    let long = vec![b'x'; 16 << 10];
    let eleven: Vec<&[u8]> = [&b"MGET"[..]].into_iter().chain([&b"k"[..]; 10]).collect();
    for stream in [
        b"*11\r\n$4\r\nPING\r\n".to_vec(),
        b"*2\r\n$4\r\nECHO\r\n$16385\r\n".to_vec(),
        [request(&[b"ECHO", &long]), request(&[b"PING"])].concat(),
        [request(&[b"AUTH", b"sesame"]), request(&eleven), request(&[b"ECHO", &[&long[..], b"x"].concat()])]
            .concat(),
        [request(&[b"AUTH", b"wrong"]), request(&eleven)].concat(),
        [&b"PING "[..], &long, b"\r\nPING\r\n"].concat(),
        b"PING\r\nAUTH sesame\r\nPING\r\nRESET\r\nPING\r\n".to_vec(),
    ] {
        let [theirs, ours] = [redis.address, server.address].map(|address| {
            let mut connection = Connection::to(address);
            connection.send(&stream);
            connection.stream.shutdown(std::net::Shutdown::Write).unwrap();
            String::from_utf8_lossy(&connection.rest()).into_owned()
        });
        assert_eq!(theirs, ours, "{:?}", String::from_utf8_lossy(&stream[..stream.len().min(100)]));
    }
}

#[test]
fn no_reply_tells_the_password() {
    let server = guarded();
    let mut connection = server.connect();
    let mut told = String::new();
    for line in ["AUTH sesame1", "AUTH default sesame x", "HELLO 2 AUTH nobody sesame", "EXEC sesame"] {
        told += &connection.text(line);
    }
    connection.text("AUTH sesame");
    let long = "sesame".repeat(100);
    for line in [
        "INFO everything",
        "CLIENT LIST",
        "CLIENT INFO",
        "CONFIG GET *memory*",
        "COMMAND DOCS auth",
        "CONFIG SET timeout sesame",
        "CONFIG SET requirepass sesame timeout x",
        "CONFIG SET maxmemory-policy sesame",
        &format!("CONFIG SET requirepass {long}"),
    ] {
        told += &connection.text(line);
    }
    assert!(!told.contains("sesame"), "{told}");
    assert!(told.contains("the password has 600 bytes"), "{told}");
}

#[test]
fn a_server_for_other_machines_needs_a_password_and_keeps_it() {
    let start = |password: Option<&[u8]>| {
        let mut config = Config::default();
        config.port = 0;
        config.bind = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        config.password = password.map(|password| Password::new(password).unwrap());
        Server::bind(config, Arc::new(MapBackend::default()))
    };
    let refused = start(None).map(|_| ()).unwrap_err();
    assert!(matches!(refused, ServeError::NotLoopback { .. }));
    assert!(refused.to_string().contains("--requirepass"), "{refused}");
    let server = start(Some(b"sesame")).unwrap();
    let (address, stopper) = (server.address(), server.stopper());
    let running = std::thread::spawn(move || server.run());
    let mut connection = Connection::to((Ipv4Addr::LOCALHOST, address.port()).into());
    assert_eq!(connection.text("AUTH sesame"), "+OK\r\n");
    let refused = connection.ask(&[b"CONFIG", b"SET", b"requirepass", b""]);
    assert!(String::from_utf8_lossy(&refused).contains("protected mode"), "{refused:?}");
    assert!(connection.text("CONFIG GET requirepass").contains("sesame"));
    stopper.stop();
    running.join().unwrap().unwrap();
}

/// Errors that a stranger has not read wait in the stranger's own socket, not in this process.
#[test]
fn strangers_that_read_nothing_hold_next_to_nothing() {
    let server = guarded();
    let mut reader = server.connect();
    reader.text("AUTH sesame");
    let mut strangers: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for stranger in &mut strangers {
        stranger.stream.set_nonblocking(true).unwrap();
    }
    // Until no socket takes any more, twice in a row.
    let mut full = 0;
    while full < 2 {
        let mut sent = 0;
        for stranger in &mut strangers {
            let pings = b"PING\r\n".repeat(10_000);
            sent += std::io::Write::write(&mut stranger.stream, &pings).unwrap_or(0);
        }
        // A round trip lets the workers read what has come.
        reader.text("PING");
        full = if sent == 0 { full + 1 } else { 0 };
    }
    let info = reader.text("INFO memory");
    let held = info.lines().find_map(|line| line.strip_prefix("mem_clients_normal:")).unwrap();
    let held: usize = held.trim().parse().unwrap();
    // Unread input of at most one read, and replies of one KiB.
    assert!(held <= 3 * (72 << 10), "{held} bytes");
}
