//! Clients that requested a large value and never read the reply kept the value in the store after it was overwritten.
//! 39 such clients emptied a cache. Such values count as held by their readers.

use std::sync::Arc;

use ziptier::{CodecChoice, Options};
use ziptier_server::StoreBackend;

use crate::support::{Connection, TestServer, request};

const MIB: u64 = 1 << 20;
/// More than the system takes of a reply that nobody reads.
const VALUE_BYTES: u64 = 12 * MIB;
const BUDGET: u64 = 32 * MIB;

#[test]
fn old_values_count_as_held_by_those_who_read_them() {
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    let backend = Arc::new(StoreBackend::open(options).unwrap());
    let server = TestServer::start_with(backend.clone(), |config| {
        config.client_bytes_max = Some(BUDGET as usize);
        // It is measured often, and there is room for everything.
        config.memory_limit_bytes = Some(64 << 30);
    });
    let mut owner = server.connect();
    let value = vec![b'v'; VALUE_BYTES as usize];
    for key in [b"a", b"b", b"c", b"d"] {
        assert_eq!(owner.ask(&[b"SET", key, &value]), b"+OK\r\n");
    }
    let reader_of = |key: &[u8]| -> Connection {
        let mut reader = server.connect();
        reader.send(&request(&[b"GET", key]));
        assert_eq!(reader.bytes(11), format!("${VALUE_BYTES}\r\n").as_bytes());
        reader
    };
    let held = |owner: &mut Connection| server.info(owner).field("mem_clients_normal");
    let delete = |owner: &mut Connection, key: &str| {
        assert_eq!(owner.text(&format!("DEL {key}")), ":1\r\n");
        backend.store().settle().unwrap();
    };

    // Two who read one value, one each for the others.
    let readers = [b"a", b"a", b"b", b"c"].map(|key| reader_of(key));
    server.wait_for(&mut owner, "nothing but pieces is held", |info| {
        info.field("mem_clients_normal") < 2 * MIB
    });
    for (key, values) in [("a", 1), ("b", 2)] {
        delete(&mut owner, key);
        server.wait_for(&mut owner, "the value is counted", |info| {
            info.field("mem_clients_normal") >= values * VALUE_BYTES - VALUE_BYTES / 2
        });
        assert!(held(&mut owner) < values * VALUE_BYTES + 2 * MIB, "more than once");
    }
    assert_eq!(server.info(&mut owner).field("evicted_clients"), 0);
    delete(&mut owner, "c");
    server.wait_for(&mut owner, "a reader for whose value there is no room goes", |info| {
        info.field("evicted_clients") == 1
    });
    server.wait_for(&mut owner, "its value is free", |info| {
        info.field("large_bytes") < 4 * VALUE_BYTES - VALUE_BYTES / 2
    });
    assert_eq!(owner.text("STRLEN d"), format!(":{VALUE_BYTES}\r\n"));
    drop(readers);
    server.wait_for(&mut owner, "all is given back", |info| {
        info.field("mem_clients_normal") == 0 && info.field("large_bytes") < 2 * VALUE_BYTES
    });
}
