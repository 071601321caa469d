//! `KEYS` over many keys is the classic way to stop a Redis for everyone. Here it works in steps, and gives up before
//! its reply takes the memory that others need.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use support::{TestServer, request};
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

#[test]
fn others_are_served_while_all_keys_are_listed() {
    let server = filled(64 << 20);
    let mut lister = server.connect();
    let mut other = server.connect();
    let start = Instant::now();
    let listed = lister.text("KEYS *");
    let alone = start.elapsed();
    assert!(listed.starts_with(&format!("*{KEYS}\r\n")));
    assert_eq!(listed.matches("key:").count(), KEYS);

    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                assert_eq!(lister.text("KEYS *").len(), listed.len());
            }
            done.store(true, Relaxed);
        });
        let (mut answers, mut slowest) = (0, Duration::ZERO);
        while !done.load(Relaxed) {
            let start = Instant::now();
            assert_eq!(other.text("GET key:0000001"), "$1\r\nv\r\n");
            slowest = slowest.max(start.elapsed());
            answers += 1;
        }
        println!("{answers} answers, the slowest after {slowest:?}; KEYS alone takes {alone:?}");
        assert!(answers > 10, "{answers} answers during three lists");
    });
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
