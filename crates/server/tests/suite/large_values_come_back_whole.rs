//! A large value is sent in pieces between other clients' requests, as `sockets_are_looked_at_between_steps.rs` tests.
//! The pieces must be those of one value, even when another client replaces the value meanwhile.

use std::io::Read;
use std::sync::Arc;

use crate::support::gated_backend::GatedBackend;
use crate::support::{TestServer, request};

on_every_backend!(
    large_values_come_back_whole,
    a_value_replaced_on_its_way_stays_one_value,
    large_values_in_mget_and_pipelines_keep_their_order,
    commands_that_read_and_change_answer_with_the_whole_value
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

fn commands_that_read_and_change_answer_with_the_whole_value(server: &TestServer) {
    let mut connection = server.connect();
    for len in [0, 99, 101, 2048, 2049, 262_144, 262_145, (3 << 20) + 17] {
        let (old, new) = (value(len, 6), value(len + 1, 7));
        connection.ask(&[b"SET", b"large", &old]);
        let commands: [(&[&[u8]], &[u8]); 7] = [
            (&[b"GETEX", b"large", b"PERSIST"], &old),
            (&[b"GETEX", b"large", b"EX", b"1000"], &old),
            (&[b"SET", b"large", b"other", b"NX", b"GET"], &old),
            (&[b"GETSET", b"large", &new], &old),
            (&[b"SET", b"large", &old, b"XX", b"GET"], &new),
            (&[b"SETRANGE", b"large", b"0", b""], b""),
            (&[b"GETDEL", b"large"], &old),
        ];
        for (command, expected) in commands {
            let reply = connection.ask(command);
            let is_length = command[0] == b"SETRANGE";
            let expected = if is_length { format!(":{len}\r\n").into_bytes() } else { bulk(expected) };
            assert!(reply == expected, "{} of {len}", String::from_utf8_lossy(command[0]));
        }
        assert_eq!(connection.text("GETDEL large"), "$-1\r\n");
    }
    let long = [&b"0".repeat(3000)[..], b"1"].concat();
    connection.ask(&[b"SET", b"number", &long]);
    assert!(connection.text("INCR number").starts_with("-ERR value is not an integer"));
    assert_eq!(connection.text("INCRBYFLOAT number 1.5"), "$3\r\n2.5\r\n");
    connection.ask(&[b"SET", b"number", &value(1 << 20, 8)]);
    assert!(connection.text("INCRBYFLOAT number 1").starts_with("-ERR value is not a valid float"));
    assert!(connection.text("INCR number").starts_with("-ERR value is not an integer"));
}

/// The value would be gone, and no client would have it.
#[test]
fn a_value_that_cannot_be_read_is_not_changed() {
    let backend = Arc::new(GatedBackend::default());
    let gate = backend.gate();
    let server = TestServer::start_with(backend, |_| {});
    let mut connection = server.connect();
    let old = value(3000, 9);
    assert_eq!(connection.ask(&[b"SET", b"key", &old]), b"+OK\r\n");
    gate.fail_reads_from(0);
    for command in ["GETDEL key", "GETSET key new", "SET key new GET", "GETEX key PX 1"] {
        assert_eq!(connection.text(command), "-ERR made by a test\r\n", "{command}");
        assert_eq!(connection.text("STRLEN key"), ":3000\r\n", "{command}");
        assert_eq!(connection.text("TTL key"), ":-1\r\n", "{command}");
    }
    assert!(connection.ask(&[b"GET", b"key"]) == bulk(&old));
}

/// Such a value is sent in pieces. Its key was changed before the first of them was read.
#[test]
fn a_value_of_several_pieces_that_cannot_be_read_is_not_changed() {
    let backend = Arc::new(GatedBackend::default());
    let gate = backend.gate();
    let server = TestServer::start_with(backend, |_| {});
    let mut connection = server.connect();
    assert_eq!(connection.ask(&[b"SET", b"key", &value(600_000, 10)]), b"+OK\r\n");
    assert_eq!(connection.text("PEXPIREAT key 9999999999999"), ":1\r\n");
    // The last piece alone.
    gate.fail_reads_from(599_999);
    let changes = ["GETDEL key", "GETSET key new", "SET key new GET"];
    let expiries = ["GETEX key PXAT 1", "GETEX key PXAT 9999999999998", "GETEX key PERSIST"];
    for command in changes.into_iter().chain(expiries) {
        assert_eq!(connection.text(command), "-ERR made by a test\r\n", "{command}");
        assert_eq!(connection.text("STRLEN key"), ":600000\r\n", "{command}");
        assert_eq!(connection.text("PEXPIRETIME key"), ":9999999999999\r\n", "{command}");
    }
}
