//! A value of 100 MB takes longer to send than thousands of small ones. The clients that share its worker must not
//! wait for it, and the value must be one value, even when somebody replaces it while it is on its way.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod support;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use support::map_backend::MapBackend;
use support::{TestServer, request};
use ziptier_server::StoreBackend;

on_every_backend!(
    large_values_come_back_whole,
    a_value_replaced_on_its_way_stays_one_value,
    large_values_in_mget_and_pipelines_keep_their_order
);

/// Text that compresses, and differs everywhere.
fn value(len: usize, seed: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 32);
    let mut number = seed;
    while bytes.len() < len {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend_from_slice(format!("line {seed} {number:08x}\n").as_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn large_values_come_back_whole(server: &TestServer) {
    let mut connection = server.connect();
    // Around the sizes where reading, streaming and the store change their ways.
    for len in [2047, 2049, 32_700, 65_535, 65_536, 262_143, 262_144, 262_145, 1 << 20, (3 << 20) + 17] {
        let value = value(len, len as u32);
        assert_eq!(connection.ask(&[b"SET", b"large", &value]), b"+OK\r\n");
        assert!(connection.ask(&[b"GET", b"large"]) == bulk(&value), "{len}");
        assert_eq!(connection.ask(&[b"STRLEN", b"large"]), format!(":{len}\r\n").as_bytes());
        assert_eq!(connection.ask(&[b"APPEND", b"large", b"!"]), format!(":{}\r\n", len + 1).as_bytes());
    }
}

fn a_value_replaced_on_its_way_stays_one_value(server: &TestServer) {
    let (old, new) = (value(24 << 20, 1), value(24 << 20, 2));
    let mut writer = server.connect();
    writer.ask(&[b"SET", b"large", &old]);
    let mut reader = server.connect();
    reader.send(&request(&[b"GET", b"large"]));
    // The reply has begun, and the socket's buffers can't hold all of it.
    let mut first = [0; 11];
    reader.stream.read_exact(&mut first).unwrap();
    writer.ask(&[b"SET", b"large", &new]);
    writer.ask(&[b"DEL", b"large"]);
    let mut rest = vec![0; bulk(&old).len() - first.len()];
    reader.stream.read_exact(&mut rest).unwrap();
    assert!([&first[..], &rest].concat() == bulk(&old));
}

fn large_values_in_mget_and_pipelines_keep_their_order(server: &TestServer) {
    let mut connection = server.connect();
    let (large, small) = (value(700_000, 3), value(100, 4));
    connection.ask(&[b"MSET", b"large", &large, b"small", &small]);
    let mut expected = b"*7\r\n".to_vec();
    for part in [bulk(&small), b"$-1\r\n".to_vec(), bulk(&large), bulk(&large), bulk(&small), bulk(&large)] {
        expected.extend_from_slice(&part);
    }
    expected.extend_from_slice(b"$-1\r\n");
    let keys = [&b"MGET"[..], b"small", b"missing", b"large", b"large", b"small", b"large", b"missing"];
    let pipeline =
        [request(&keys), request(&[b"GET", b"large"]), request(&[b"PING"]), request(&keys)].concat();
    connection.send(&pipeline);
    assert!(connection.reply() == expected);
    assert!(connection.reply() == bulk(&large));
    assert_eq!(connection.reply(), b"+PONG\r\n");
    assert!(connection.reply() == expected);

    // Values that add up to far more than is held at a time.
    let many: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain([&b"large"[..]; 200]).collect();
    let reply = connection.ask(&many);
    assert_eq!(reply.len(), 6 + 200 * bulk(&large).len());
}

/// Answers that a client gets while a large value is on its way to another of the same worker: those between the first
/// byte and the middle, for what is left then is far more than the buffers of sockets hold.
fn answers_beside_a_transfer(server: &TestServer, reply_len: usize) -> usize {
    let (mut bystander, mut reader) = (server.connect(), server.connect());
    let (has_begun, is_half_there) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rest = vec![0; reply_len];
            reader.send(&request(&[b"GET", b"large"]));
            let (first, middle) = (1, reply_len / 2);
            for (range, reached) in [(0..first, &has_begun), (first..middle, &is_half_there)] {
                // Told in any case, or the bystander would go on for ever.
                let outcome = reader.stream.read_exact(&mut rest[range]);
                reached.store(true, SeqCst);
                outcome.unwrap();
            }
            reader.stream.read_exact(&mut rest[middle..]).unwrap();
        });
        let mut answers = 0;
        while !is_half_there.load(SeqCst) {
            let counts = has_begun.load(SeqCst);
            assert_eq!(bystander.text("GET small"), "$5\r\nvalue\r\n");
            answers += usize::from(counts && !is_half_there.load(SeqCst));
        }
        answers
    })
}

#[test]
fn others_are_served_while_100_mb_leave() {
    let map: Arc<dyn ziptier_server::Backend> = Arc::new(MapBackend::default());
    let store = Arc::new(StoreBackend::open(ziptier::Options::default()).unwrap());
    for (backend, name) in [(map, "map"), (store, "store")] {
        let server = TestServer::start_with(backend, |config| config.threads = 1);
        let large = value(100 << 20, 5);
        server.connect().ask(&[b"SET", b"large", &large]);
        server.connect().text("SET small value");
        // A machine that has no time for the bystander may give it none during some transfers. Where replies are sent in
        // one go it gets none during any.
        let len = bulk(&large).len();
        assert!(
            (0..100).any(|_| answers_beside_a_transfer(&server, len) > 8),
            "{name}: hardly an answer during any of 100 transfers"
        );
    }
}
