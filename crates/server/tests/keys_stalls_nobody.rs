//! `KEYS` over many keys is the classic way to stop a Redis for everyone. Here it works in steps, and gives up before
//! its reply takes the memory that others need.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod support;

use std::sync::Arc;

use support::{Connection, TestServer, request};
use ziptier_server::StoreBackend;

const KEYS: usize = 300_000;

/// One worker, so that everybody waits for whoever holds it.
fn filled(client_bytes_max: usize) -> TestServer {
    let store = StoreBackend::open(ziptier::Options::default()).unwrap();
    let server = TestServer::start_with(Arc::new(store), |config| {
        config.threads = 1;
        config.client_bytes_max = client_bytes_max;
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

/// Answers that `other` gets before the first byte of a list is there.
fn answers_before_the_list(lister: &mut Connection, other: &mut Connection, list_len: usize) -> usize {
    lister.send(&request(&[b"KEYS", b"*"]));
    let mut answers = 0;
    loop {
        assert_eq!(other.text("GET key:0000001"), "$1\r\nv\r\n");
        lister.stream.set_nonblocking(true).unwrap();
        let is_there = lister.stream.peek(&mut [0]).is_ok();
        lister.stream.set_nonblocking(false).unwrap();
        if is_there {
            break;
        }
        answers += 1;
    }
    assert_eq!(lister.reply().len(), list_len);
    answers
}

#[test]
fn others_are_served_while_all_keys_are_listed() {
    let server = filled(64 << 20);
    let mut lister = server.connect();
    let mut other = server.connect();
    let listed = lister.text("KEYS *");
    assert!(listed.starts_with(&format!("*{KEYS}\r\n")));
    assert_eq!(listed.matches("key:").count(), KEYS);

    // Where keys are listed in one go, the other one gets an answer or two before that begins, however often this is
    // tried; a machine that is busy may give it as few now and then.
    assert!(
        (0..100).any(|_| answers_before_the_list(&mut lister, &mut other, listed.len()) > 10),
        "hardly an answer before any of 100 lists"
    );
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
