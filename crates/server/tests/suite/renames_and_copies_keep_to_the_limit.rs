//! `COPY` of a value of 400 MB to eight keys took eight copies beyond the memory limit, because a store with a log
//! reads the value to log it. Here the store announces such a read, and blocks it meanwhile.

use std::sync::Arc;

use crate::support::TestServer;
use crate::support::gated_backend::GatedBackend;

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
