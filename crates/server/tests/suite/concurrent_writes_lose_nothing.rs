//! Threads bring bugs such as counters that miss an increment, and pairs that are seen half-written. Clients on
//! different workers write the same keys here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use ziptier_server::StoreBackend;

use crate::support::map_backend::MapBackend;
use crate::support::{TestServer, request};

on_every_backend!(
    increments_and_appends_add_up,
    set_if_absent_has_one_winner,
    keys_that_are_passed_around_stay_one_each,
    pairs_are_seen_whole,
    odd_keys_are_refused_or_kept
);

fn increments_and_appends_add_up(server: &TestServer) {
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut connection = server.connect();
                let both = [request(&[b"INCR", b"counter"]), request(&[b"APPEND", b"log", b"x"])].concat();
                for _ in 0..20 {
                    connection.send(&both.repeat(50));
                    (0..100).for_each(|_| assert_eq!(connection.reply()[0], b':'));
                }
            });
        }
    });
    let mut connection = server.connect();
    assert_eq!(connection.text("GET counter"), "$4\r\n8000\r\n");
    assert_eq!(connection.text("STRLEN log"), ":8000\r\n");
}

fn set_if_absent_has_one_winner(server: &TestServer) {
    let winners: usize = thread::scope(|scope| {
        let contenders: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = server.connect();
                    // No lock expires before the last contender has asked for it.
                    let lock =
                        |number: usize| connection.text(&format!("SET lock:{number} me NX EX 1000000"));
                    (0..200).map(lock).filter(|reply| reply == "+OK\r\n").count()
                })
            })
            .collect();
        contenders.into_iter().map(|contender| contender.join().unwrap()).sum()
    });
    assert_eq!(winners, 200);
}

fn keys_that_are_passed_around_stay_one_each(server: &TestServer) {
    const TOKENS: usize = 20;
    const PLACES: u64 = 100;
    let mut connection = server.connect();
    for token in 0..TOKENS {
        // Some are too large for a leaf.
        let value = format!("token {token} ").repeat(if token % 4 == 0 { 3000 } else { 3 });
        connection.ask(&[b"SET", format!("place:{token}").as_bytes(), value.as_bytes()]);
    }
    let taken: usize = thread::scope(|scope| {
        let movers: Vec<_> = (0..6u64)
            .map(|seed| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut connection = server.connect();
                    let mut taken = 0;
                    for number in 0..1500 {
                        let (from, to) = (random.u64(..PLACES), random.u64(..PLACES));
                        let reply = connection.text(&format!("RENAMENX place:{from} place:{to}"));
                        assert!(reply.starts_with(':') || reply == "-ERR no such key\r\n", "{reply}");
                        if number % 300 == 0 {
                            let token = connection.ask(&[b"GETDEL", format!("place:{from}").as_bytes()]);
                            taken += usize::from(token != b"$-1\r\n");
                        }
                    }
                    taken
                })
            })
            .collect();
        movers.into_iter().map(|mover| mover.join().unwrap()).sum()
    });
    let mut left: Vec<Vec<u8>> = (0..PLACES)
        .map(|place| connection.ask(&[b"GET", format!("place:{place}").as_bytes()]))
        .filter(|reply| reply != b"$-1\r\n")
        .collect();
    assert_eq!(left.len() + taken, TOKENS, "{taken} were taken out");
    left.sort_unstable();
    left.dedup();
    assert_eq!(left.len() + taken, TOKENS, "some key is there twice");

    let winners: usize = thread::scope(|scope| {
        let contenders: Vec<_> = (0..6)
            .map(|me| {
                scope.spawn(move || {
                    let mut connection = server.connect();
                    let claim =
                        |n: usize| connection.text(&format!("MSETNX a:{n} {me} b:{n} {me} c:{} {me}", n % 7));
                    (0..50).map(claim).filter(|reply| reply == ":1\r\n").count()
                })
            })
            .collect();
        contenders.into_iter().map(|contender| contender.join().unwrap()).sum()
    });
    // Only the first seven find the third key free.
    assert_eq!(winners, 7);
    assert_eq!(connection.text("EXISTS a:0 b:0 a:6 b:6 a:7 b:7"), ":4\r\n");
}

fn pairs_are_seen_whole(server: &TestServer) {
    server.connect().text("MSET pair:left 0 pair:right 0");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.connect();
            for number in 1..3000 {
                writer.text(&format!("MSET pair:left {number} pair:right {number}"));
            }
            done.store(true, Relaxed);
        });
        let mut reader = server.connect();
        let number = |reply: String| reply.split("\r\n").nth(1).unwrap().parse::<u32>().unwrap();
        while !done.load(Relaxed) {
            // The second read is never older than the first, whichever half it reads.
            let left = number(reader.text("GET pair:left"));
            let right = number(reader.text("GET pair:right"));
            let again = number(reader.text("GET pair:left"));
            assert!(left <= right && right <= again, "{left} {right} {again}");
        }
    });
}

fn odd_keys_are_refused_or_kept(server: &TestServer) {
    let mut connection = server.connect();
    for key in [vec![b'k'; 64 << 10], b"\0\r\n\xff".to_vec(), vec![b' ']] {
        assert_eq!(connection.ask(&[b"SET", &key, b"value"]), b"+OK\r\n");
        assert_eq!(connection.ask(&[b"GET", &key]), b"$5\r\nvalue\r\n");
        assert_eq!(connection.ask(&[b"DEL", &key]), b":1\r\n");
    }
    // A store may refuse these, in one sentence and for every command alike.
    for key in [Vec::new(), vec![b'k'; (64 << 10) + 1]] {
        let kept = connection.ask(&[b"SET", &key, b"1"]) == b"+OK\r\n";
        let commands: [&[&[u8]]; 7] = [
            &[b"GET", &key],
            &[b"INCR", &key],
            &[b"EXISTS", &key],
            &[b"DEL", &key],
            &[b"EXPIRE", &key, b"10"],
            &[b"MSET", b"other", b"value", &key, b"value"],
            &[b"TYPE", &key],
        ];
        for command in commands {
            let reply = connection.ask(command);
            assert_eq!(reply.starts_with(b"-ERR the key "), !kept, "{:?}", String::from_utf8_lossy(&reply));
        }
        assert_eq!(connection.text("EXISTS other") == ":1\r\n", kept, "half a batch was written");
        assert_eq!(connection.ask(&[b"MGET", &key])[..5] == *b"*1\r\n-", !kept);
        connection.text("FLUSHALL");
    }
}

#[test]
fn writes_beyond_the_limit_are_refused_and_reads_go_on() {
    let map: Arc<dyn ziptier_server::Backend> = Arc::new(MapBackend::with_limit(2 << 20));
    let options = ziptier::Options { memory_limit_bytes: Some(2 << 20), ..ziptier::Options::default() };
    let store = Arc::new(StoreBackend::open(options).unwrap());
    for backend in [map, store] {
        let server = TestServer::start_with(backend, |_| {});
        let mut connection = server.connect();
        let mut random = 1u64;
        let mut refused = 0;
        for number in 0..10_000 {
            // Nothing that a codec could make smaller.
            let value: Vec<u8> = (0..100)
                .flat_map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    ((random >> 33) as u32).to_le_bytes()
                })
                .collect();
            let reply = connection.ask(&[b"SET", format!("key:{number}").as_bytes(), &value]);
            if reply != b"+OK\r\n" {
                assert_eq!(reply, b"-OOM command not allowed when used memory > 'maxmemory'.\r\n");
                refused += 1;
                if refused > 10 {
                    break;
                }
            }
        }
        assert!(refused > 10, "everything fitted");
        assert_eq!(server.info(&mut connection).field("refused_writes"), refused);
        assert_eq!(connection.text("EXISTS key:0"), ":1\r\n");
        assert_eq!(connection.text("STRLEN key:0"), ":400\r\n");
        assert_eq!(connection.text("CONFIG GET maxmemory"), "*2\r\n$9\r\nmaxmemory\r\n$7\r\n2097152\r\n");
        // Both or neither.
        let reply = connection.text("MSET a 1 b 2");
        let expected = if reply == "+OK\r\n" { ":2\r\n" } else { ":0\r\n" };
        assert_eq!(connection.text("EXISTS a b"), expected, "{reply}");
        assert!(reply == "+OK\r\n" || reply.starts_with("-OOM"), "{reply}");
        assert_eq!(connection.text("FLUSHALL"), "+OK\r\n");
        // There is room for one of them, and not for both.
        let large = vec![b'v'; 3 << 20];
        let reply = connection.ask(&[b"MSET", b"a", b"1", b"b", &large]);
        assert_eq!(reply, b"-OOM command not allowed when used memory > 'maxmemory'.\r\n");
        assert_eq!(connection.text("EXISTS a b"), ":0\r\n");
    }
}
