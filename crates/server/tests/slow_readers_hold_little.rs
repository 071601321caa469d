//! A client that asks and never reads makes replies pile up; ten thousand idle ones must cost next to nothing.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::map_backend::MapBackend;
use support::{PATIENCE, TestServer, request};

on_every_backend!(
    replies_that_nobody_takes_are_bounded,
    a_pipeline_may_be_sent_whole_before_it_is_read,
    idle_connections_hold_no_buffers
);

fn client_bytes(server: &TestServer) -> u64 {
    let info = server.connect().text("INFO memory");
    let line = info.lines().find_map(|line| line.strip_prefix("mem_clients_normal:"));
    line.unwrap().parse().unwrap()
}

fn replies_that_nobody_takes_are_bounded(server: &TestServer) {
    let value = vec![b'v'; 100_000];
    server.connect().ask(&[b"SET", b"value", &value]);
    let mut greedy = server.connect();
    greedy.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let batch = request(&[b"GET", b"value"]).repeat(10_000);
    // A gigabyte of replies is asked for; the server stops reading long before.
    let mut stopped = false;
    for _ in 0..50 {
        match greedy.stream.write_all(&batch) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                stopped = true;
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(stopped, "the server took every request");
    let held = client_bytes(server);
    assert!(held < 200 << 20, "one client holds {held} bytes");
    drop(greedy);
    let start = Instant::now();
    while client_bytes(server) > 0 {
        assert!(start.elapsed() < PATIENCE, "the client is gone and its replies are not");
    }
}

fn a_pipeline_may_be_sent_whole_before_it_is_read(server: &TestServer) {
    let value = vec![b'v'; 300];
    let mut connection = server.connect();
    connection.ask(&[b"SET", b"value", &value]);
    // 30 MB of replies wait while 3 MB of requests are sent.
    connection.send(&request(&[b"GET", b"value"]).repeat(100_000));
    let mut replies = vec![0; 100_000 * (300 + 8)];
    connection.stream.read_exact(&mut replies).unwrap();
    assert!(replies.ends_with(b"vvv\r\n"));
    assert_eq!(connection.text("PING"), "+PONG\r\n");
}

fn idle_connections_hold_no_buffers(server: &TestServer) {
    let mut connections: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for connection in &mut connections {
        connection.send(&request(&[b"SET", b"key", &[b'v'; 100_000]]));
        connection.send(&request(&[b"GET", b"key"]).repeat(20));
    }
    for connection in &mut connections {
        (0..21).for_each(|_| drop(connection.reply()));
    }
    let start = Instant::now();
    while client_bytes(server) > 0 {
        assert!(start.elapsed() < PATIENCE, "idle connections hold {} bytes", client_bytes(server));
    }
}

#[test]
fn unfinished_requests_of_all_clients_are_bounded_together() {
    let server = TestServer::start_with(Arc::new(MapBackend::default()), |config| {
        config.client_bytes_max = 16 << 20;
    });
    let mut senders: Vec<_> = (0..8).map(|_| server.connect()).collect();
    let value = vec![b'v'; 6 << 20];
    for sender in &mut senders {
        sender.send(format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${}\r\n", value.len()).as_bytes());
        sender.send(&value);
    }
    // All but the line ends have been sent. What is too much has been dropped as it came.
    let held = client_bytes(&server);
    assert!(held < 40 << 20, "unfinished requests hold {held} bytes");
    let mut refused = 0;
    for sender in &mut senders {
        sender.send(b"\r\n");
        let reply = sender.reply();
        refused += usize::from(reply == b"-OOM command not allowed when used memory > 'maxmemory'.\r\n");
        assert!(reply == b"+OK\r\n" || reply.starts_with(b"-OOM"), "{:?}", String::from_utf8_lossy(&reply));
        assert_eq!(sender.text("PING"), "+PONG\r\n", "the connection is out of order");
    }
    assert!((1..8).contains(&refused), "{refused} of 8 were refused");
    // Whoever is small is served.
    assert_eq!(server.connect().text("SET small value"), "+OK\r\n");
}

#[test]
fn one_client_too_many_is_told_so() {
    let server = TestServer::start_with(Arc::new(MapBackend::default()), |config| config.clients_max = 3);
    let mut served: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for connection in &mut served {
        assert_eq!(connection.text("PING"), "+PONG\r\n");
    }
    assert_eq!(server.connect().rest(), b"-ERR max number of clients reached\r\n");
    drop(served.pop());
    let start = Instant::now();
    loop {
        let mut connection = server.connect();
        let _ = connection.stream.write_all(b"PING\r\n");
        let mut reply = [0; 7];
        if connection.stream.read_exact(&mut reply).is_ok() && &reply == b"+PONG\r\n" {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "a place that became free is not given away");
    }
}
