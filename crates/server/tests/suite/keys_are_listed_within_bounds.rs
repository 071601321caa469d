//! `KEYS` over many keys is the classic way to take a Redis's memory. Here it gives up before its reply takes the
//! memory that others need. `sockets_are_looked_at_between_steps.rs` tests that other clients are served meanwhile.

use std::sync::Arc;

use ziptier_server::StoreBackend;

use crate::support::{TestServer, request};

const KEYS: usize = 100_000;

fn filled(client_bytes_max: usize) -> TestServer {
    let store = StoreBackend::open(ziptier::Options::default()).unwrap();
    let server = TestServer::start_with(Arc::new(store), |config| {
        config.threads = 1;
        config.client_bytes_max = Some(client_bytes_max);
    });
    let mut connection = server.connect();
    for base in (0..KEYS).step_by(1000) {
        let sets =
            (base..base + 1000).flat_map(|n| request(&[b"SET", format!("key:{n:07}").as_bytes(), b"v"]));
        connection.send(&sets.collect::<Vec<u8>>());
        (0..1000).for_each(|_| assert_eq!(connection.reply(), b"+OK\r\n"));
    }
    server
}

#[test]
fn all_keys_are_listed_once() {
    let server = filled(64 << 20);
    let mut lister = server.connect();
    lister.send(&request(&[b"KEYS", b"*"]));
    let listed = lister.bytes(format!("*{KEYS}\r\n").len() + KEYS * "$11\r\nkey:0000000\r\n".len());
    let expected = (0..KEYS).flat_map(|number| format!("$11\r\nkey:{number:07}\r\n").into_bytes());
    assert!(listed.into_iter().eq(format!("*{KEYS}\r\n").into_bytes().into_iter().chain(expected)));
    // A pattern that begins with plain text looks at the keys that do.
    assert_eq!(lister.text("KEYS key:000001?").matches("key:").count(), 10);
}

#[test]
fn a_list_that_takes_too_much_is_refused() {
    let server = filled(1 << 20);
    let mut connection = server.connect();
    let refusal = connection.text("KEYS *");
    assert!(
        refusal.starts_with("-ERR the keys found so far") && refusal.ends_with("use SCAN\r\n"),
        "{refusal}"
    );
    assert_eq!(connection.text("KEYS key:0000001"), "*1\r\n$11\r\nkey:0000001\r\n");
    let info = connection.text("INFO memory");
    let held = info.lines().find_map(|line| line.strip_prefix("mem_clients_normal:")).unwrap();
    assert!(held.parse::<u64>().unwrap() < 1 << 20, "{held}");
}
