//! A client that asks and never reads makes replies pile up. Ten thousand idle clients must cost next to nothing.

use std::io::{Read, Write};
use std::sync::Arc;

use ziptier_testing::until;

use crate::support::map_backend::MapBackend;
use crate::support::{TestServer, request};

on_every_backend!(
    replies_that_nobody_takes_are_bounded,
    a_pipeline_may_be_sent_whole_before_it_is_read,
    idle_connections_hold_no_buffers
);

fn replies_that_nobody_takes_are_bounded(server: &TestServer) {
    let value = vec![b'v'; 100_000];
    let mut asking = server.connect();
    asking.ask(&[b"SET", b"value", &value]);
    let mut greedy = server.connect();
    // 300 MB of replies are asked for, far more than the buffers of sockets hold.
    greedy.send(&request(&[b"GET", b"value"]).repeat(3000));
    server.wait_for(&mut asking, "replies wait", |info| info.field("mem_clients_normal") > 32 << 20);
    for _ in 0..300 {
        let info = server.info(&mut asking);
        let (held, served) = (info.field("mem_clients_normal"), info.field("keyspace_hits"));
        assert!(held < 140 << 20, "one client holds {held} bytes");
        assert!(served < 2500, "{served} requests were served before a reply was taken");
    }
    let reply = [b"$100000\r\n", &value[..], b"\r\n"].concat();
    for _ in 0..3000 {
        assert!(greedy.bytes(reply.len()) == reply);
    }
    server.wait_for(&mut asking, "replies that were taken are given back", |info| {
        info.field("mem_clients_normal") == 0
    });
}

/// One worker gives its clients turns, so each answer to one of them means another turn of the one that takes no
/// replies.
#[test]
fn who_takes_no_replies_is_served_no_more_however_many_turns_come() {
    let server = TestServer::start_with(Arc::new(MapBackend::default()), |config| config.threads = 1);
    let (mut asking, mut greedy) = (server.connect(), server.connect());
    asking.ask(&[b"SET", b"value", &vec![b'v'; 100_000]]);
    greedy.send(&request(&[b"GET", b"value"]).repeat(3000));
    for _ in 0..1000 {
        let served = server.info(&mut asking).field("keyspace_hits");
        assert!(served < 2500, "{served} requests were served before a reply was taken");
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
    server.wait_for(&mut server.connect(), "idle connections hold no memory", |info| {
        info.field("mem_clients_normal") == 0
    });
}

#[test]
fn lists_that_wait_to_be_sent_count_for_the_limit_of_a_client() {
    let server = TestServer::start_with(Arc::new(MapBackend::default()), |config| {
        config.output_limits = "normal 1mb 0 0".parse().unwrap();
    });
    let mut client = server.connect();
    let keys: Vec<Vec<u8>> = (0..4).map(|number| vec![b'0' + number; 400_000]).collect();
    for key in &keys {
        assert_eq!(client.ask(&[b"SET", key, b"value"]), b"+OK\r\n");
    }
    // A value that is sent in pieces is the store's, however long.
    let value = vec![b'v'; 4 << 20];
    assert_eq!(client.ask(&[b"SET", b"value", &value]), b"+OK\r\n");
    assert_eq!(client.ask(&[b"GET", b"value"]).len(), value.len() + 12);
    assert_eq!(client.ask(&[b"KEYS", b"0*"]).len(), 4 + 9 + 400_000 + 2);
    client.send(&request(&[b"KEYS", b"*"]));
    assert_eq!(client.rest(), b"");
}

#[test]
fn unfinished_requests_of_all_clients_are_bounded_together() {
    let server = TestServer::start_with(Arc::new(MapBackend::default()), |config| {
        config.client_bytes_max = Some(16 << 20);
    });
    let mut senders: Vec<_> = (0..8).map(|_| server.connect()).collect();
    let value = vec![b'v'; 6 << 20];
    for sender in &mut senders {
        sender.send(format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${}\r\n", value.len()).as_bytes());
        sender.send(&value);
    }
    // All but the line ends have been sent. What is too much has been dropped as it came.
    let held = server.info(&mut server.connect()).field("mem_clients_normal");
    assert!(held <= (16 << 20) + 8 * 512, "unfinished requests hold {held} bytes");
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
    until("a place that became free is given away", || {
        let mut connection = server.connect();
        let _ = connection.stream.write_all(b"PING\r\n");
        let mut reply = [0; 7];
        connection.stream.read_exact(&mut reply).is_ok() && &reply == b"+PONG\r\n"
    });
}
