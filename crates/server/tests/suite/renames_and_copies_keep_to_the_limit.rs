//! `COPY` of a value of 400 MB to eight keys took eight copies beyond the memory limit, because a store with a log
//! reads the value to log it. Here the store announces such a read, and blocks it meanwhile.

use std::sync::Arc;

use crate::support::TestServer;
use crate::support::gated_backend::GatedBackend;
use crate::support::map_backend::MapBackend;

const REFUSED: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

#[test]
fn what_a_copy_reads_is_promised_before_it_is_read() {
    let backend = Arc::new(GatedBackend::default());
    let gate = backend.gate();
    // An eighth of it stays free, and this process has less than 200 MB.
    let server = TestServer::start_with(backend, |config| {
        (config.threads, config.memory_limit_bytes) = (1, Some(1 << 30));
    });
    let (mut first, mut other) = (server.connect(), server.connect());
    assert_eq!(other.text("SET huge value"), "+OK\r\n");
    gate.read(600 << 20);
    gate.close("transfer");
    first.send(b"COPY huge k1 REPLACE\r\n");
    gate.wait();
    // The worker is free, and there is no room for another one.
    assert_eq!(other.text("COPY huge k2 REPLACE"), REFUSED);
    assert_eq!(other.text("RENAME huge k3"), REFUSED);
    assert_eq!(other.text("RENAMENX huge k3"), REFUSED);
    assert_eq!(other.text("EXISTS huge k1 k2 k3"), ":1\r\n");
    gate.open();
    assert_eq!(first.reply(), b":1\r\n");
    assert_eq!(other.text("COPY huge k2"), ":1\r\n");
    assert_eq!(other.text("COPY huge k2"), ":0\r\n");
    assert_eq!(other.text("RENAME huge k3"), "+OK\r\n");
    gate.read(2 << 30);
    assert_eq!(other.text("RENAME k3 k4"), REFUSED);
}

/// The server copies the value of a conditional write.
#[test]
fn what_a_conditional_write_copies_is_promised_before_it_is_copied() {
    // Twice as much as this fits beside the process, three times does not.
    const PIECES: usize = 330;
    let server = TestServer::start_with(Arc::new(MapBackend::default()), |config| {
        (config.threads, config.memory_limit_bytes) = (1, Some(1 << 30));
        config.client_bytes_max = Some(1 << 29);
    });
    let mut client = server.connect();
    let piece = vec![b'v'; 1 << 20];
    let mut ask = |before: &str, after: &str| {
        client.send(before.as_bytes());
        client.send(format!("${}\r\n", PIECES * piece.len()).as_bytes());
        (0..PIECES).for_each(|_| client.send(&piece));
        client.send(b"\r\n");
        client.send(after.as_bytes());
        client.reply()
    };
    let key = "$3\r\nkey\r\n";
    for (before, after) in [
        ("*4\r\n$3\r\nSET\r\n", "$2\r\nNX\r\n"),
        ("*4\r\n$3\r\nSET\r\n", "$3\r\nGET\r\n"),
        ("*3\r\n$5\r\nSETNX\r\n", ""),
        ("*3\r\n$6\r\nGETSET\r\n", ""),
    ] {
        assert_eq!(ask(&[before, key].concat(), after), REFUSED.as_bytes(), "{before}{after}");
    }
    assert_eq!(ask(&["*3\r\n$3\r\nSET\r\n", key].concat(), ""), b"+OK\r\n");
}
