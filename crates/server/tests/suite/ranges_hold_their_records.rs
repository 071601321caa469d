//! `ZT.RANGE` reads the records between two keys. A range that misses a record, or tells one twice, gives a client
//! wrong data without an error. So the server and a `BTreeMap` get the same random commands, and must agree.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ziptier::{Clock, CodecChoice, Options};
use ziptier_server::{Backend, BackendError, Patience, StoreBackend};
use ziptier_testing::{count, seed};

use crate::support::gated_backend::GatedBackend;
use crate::support::{Connection, TestServer, request};

on_every_backend!(
    random_ranges_agree_with_a_map,
    ends_are_those_of_redis,
    long_ranges_come_whole_beside_other_clients,
    batches_are_written_whole,
);

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Few keys, of which many share a beginning, so that most ranges have some.
fn random_key(random: &mut Rng) -> Vec<u8> {
    (0..random.usize(1..5)).map(|_| *random.choice(b"ab\x00\xff-+(").unwrap()).collect()
}

fn random_end(random: &mut Rng, open: &str) -> (Vec<u8>, Bound<Vec<u8>>) {
    let key = random_key(random);
    match random.u8(..5) {
        0 => (open.into(), Bound::Unbounded),
        1 | 2 => ([b"(", &key[..]].concat(), Bound::Excluded(key)),
        _ => ([b"[", &key[..]].concat(), Bound::Included(key)),
    }
}

/// The reply that a map gives.
fn expected(map: &Map, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>, limit: usize) -> Vec<u8> {
    let is_in = |key: &Vec<u8>| {
        let above = match from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        above
            && match to {
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
                Bound::Unbounded => true,
            }
    };
    let words: Vec<&[u8]> = map
        .iter()
        .filter(|(key, _)| is_in(key))
        .take(limit)
        .flat_map(|(key, value)| [key.as_slice(), value])
        .collect();
    // An array of bulk strings is what a request is, too.
    request(&words)
}

fn random_ranges_agree_with_a_map(server: &TestServer) {
    let seed = seed();
    let (mut random, mut map, mut connection) = (Rng::with_seed(seed), Map::new(), server.connect());
    for step in 0..count("ZIPTIER_RANGES", 3_000) {
        let key = random_key(&mut random);
        match random.u8(..6) {
            0 => {
                connection.ask(&[b"DEL", &key]);
                map.remove(&key);
            }
            1 | 2 => {
                // At times a large value.
                let len = if random.u8(..50) == 0 { 5_000 } else { random.usize(..100) };
                let value = vec![random.u8(..); len];
                assert_eq!(connection.ask(&[b"SET", &key, &value]), b"+OK\r\n");
                map.insert(key, value);
            }
            _ => {
                let (from, to) = (random_end(&mut random, "-"), random_end(&mut random, "+"));
                let limit = random.usize(..6);
                let (reply, limit) = match random.bool() {
                    true => (connection.ask(&[b"ZT.RANGE", &from.0, &to.0]), usize::MAX),
                    false => {
                        let digits = limit.to_string();
                        let words: &[&[u8]] = &[b"ZT.RANGE", &from.0, &to.0, b"LIMIT", digits.as_bytes()];
                        (connection.ask(words), limit)
                    }
                };
                let expected = expected(&map, &from.1, &to.1, limit);
                assert!(reply == expected, "seed {seed}, step {step}: {from:?} to {to:?}, limit {limit}");
            }
        }
    }
}

fn ends_are_those_of_redis(server: &TestServer) {
    let mut connection = server.connect();
    connection.text("MSET a 1 b 2 c 3");
    let mut range = |words: &str| connection.text(&format!("ZT.RANGE {words}"));
    assert_eq!(range("[b +"), "*4\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\nc\r\n$1\r\n3\r\n");
    assert_eq!(range("(a (c"), "*2\r\n$1\r\nb\r\n$1\r\n2\r\n");
    assert_eq!(range("- + limit 1"), "*2\r\n$1\r\na\r\n$1\r\n1\r\n");
    for empty in ["+ -", "+ +", "- -", "[c [b", "- + LIMIT 0", "(c +"] {
        assert_eq!(range(empty), "*0\r\n", "{empty}");
    }
    let not_an_end = "-ERR min or max not valid string range item\r\n";
    for (wrong, refusal) in [
        ("a +", not_an_end),
        ("- b", not_an_end),
        ("- + LIMIT", "-ERR syntax error\r\n"),
        ("- + COUNT 1", "-ERR syntax error\r\n"),
        ("- + LIMIT x", "-ERR value is not an integer or out of range\r\n"),
        ("- + LIMIT -1", "-ERR LIMIT is negative\r\n"),
        ("-", "-ERR wrong number of arguments for 'zt.range' command\r\n"),
    ] {
        assert_eq!(range(wrong), refusal, "{wrong}");
    }
}

/// Several steps, values of several pieces among them.
fn long_ranges_come_whole_beside_other_clients(server: &TestServer) {
    let (mut connection, mut map) = (server.connect(), Map::new());
    for number in 0..3_000u32 {
        let len = if number % 1_000 == 500 { 700_000 } else { 200 };
        let (key, value) = (format!("key:{number:05}").into_bytes(), vec![number as u8; len]);
        assert_eq!(connection.ask(&[b"SET", &key, &value]), b"+OK\r\n");
        map.insert(key, value);
    }
    connection.send(&request(&[b"ZT.RANGE", b"-", b"+"]));
    assert_eq!(server.connect().text("PING"), "+PONG\r\n");
    let whole = expected(&map, &Bound::Unbounded, &Bound::Unbounded, usize::MAX);
    assert!(connection.bytes(whole.len()) == whole);
    let from = Bound::Included(b"key:01000".to_vec());
    let part = expected(&map, &from, &Bound::Unbounded, 1_500);
    connection.send(&request(&[b"ZT.RANGE", b"[key:01000", b"+", b"LIMIT", b"1500"]));
    assert!(connection.bytes(part.len()) == part);
}

fn batches_are_written_whole(server: &TestServer) {
    let mut connection = server.connect();
    assert_eq!(connection.text("ZT.BATCH SET a 1 SET b 2 del a SET c 3 DEL missing"), "+OK\r\n");
    assert_eq!(connection.text("MGET a b c"), "*3\r\n$-1\r\n$1\r\n2\r\n$1\r\n3\r\n");
    for wrong in ["ZT.BATCH SET a", "ZT.BATCH SET a 1 DEL", "ZT.BATCH GET a", "ZT.BATCH DEL b x"] {
        let reply = connection.text(wrong);
        assert_eq!(reply, "-ERR syntax error\r\n", "{wrong}");
    }
    assert_eq!(connection.text("MGET a b c"), "*3\r\n$-1\r\n$1\r\n2\r\n$1\r\n3\r\n");
    // Large enough for another thread.
    let (mut words, value) = (Vec::<&[u8]>::new(), vec![b'v'; 300_000]);
    words.extend([&b"ZT.BATCH"[..], b"DEL", b"b", b"SET", b"large", &value]);
    assert_eq!(connection.ask(&words), b"+OK\r\n");
    assert_eq!(connection.text("EXISTS b large"), ":1\r\n");
}

/// The walk comes to such a value, and opens it by its key after that.
#[test]
fn a_large_value_that_is_deleted_before_it_is_opened_is_left_out() {
    let backend = Arc::new(GatedBackend::default());
    let gate = backend.gate();
    let server = TestServer::start_with(backend.clone(), |_| {});
    let (mut connection, large) = (server.connect(), vec![b'v'; 300 << 10]);
    let records: [(&[u8], &[u8]); 4] = [(b"a", b"1"), (b"b", &large), (b"c", b"3"), (b"d", b"4")];
    for (key, value) in records {
        assert_eq!(connection.ask(&[b"SET", key, value]), b"+OK\r\n");
    }
    gate.close("open_value");
    connection.send(b"ZT.RANGE - + LIMIT 2\r\n");
    gate.wait();
    assert_eq!(backend.delete(b"b"), Ok(true));
    gate.open();
    assert!(connection.reply() == request(&[b"a", b"1", b"c", b"3"]));
}

/// A client that asks for everything does not get what nobody has room for.
#[test]
fn a_range_that_takes_too_much_is_refused() {
    let store = StoreBackend::open(ziptier::Options::default()).unwrap();
    let server = TestServer::start_with(Arc::new(store), |config| config.client_bytes_max = Some(1 << 20));
    let mut connection = server.connect();
    for number in 0..2_000 {
        connection.ask(&[b"SET", format!("key:{number:05}").as_bytes(), &[b'v'; 1_000]]);
    }
    let refusal = connection.text("ZT.RANGE - +");
    assert!(
        refusal.starts_with("-ERR the records found so far have") && refusal.ends_with("use LIMIT\r\n"),
        "{refusal}"
    );
    assert_eq!(connection.text("ZT.RANGE [key:00007 + LIMIT 1").matches("key:00007").count(), 1);
    assert!(held_by_clients(&mut connection) < 1 << 20);
}

fn held_by_clients(connection: &mut Connection) -> u64 {
    let info = connection.text("INFO memory");
    let held = info.lines().find_map(|line| line.strip_prefix("mem_clients_normal:")).unwrap();
    held.parse().unwrap()
}

/// A store whose keys have all expired, in many leaves, but for a few.
fn expired(lasting: &[Vec<u8>]) -> Arc<StoreBackend> {
    let clock = Clock::manual(1_700_000_000_000);
    let options = Options {
        codec: CodecChoice::None,
        background_threads: 0,
        clock: clock.clone(),
        ..Options::default()
    };
    let store = StoreBackend::open(options).unwrap();
    let expires_at_ms = Some(clock.now_ms() + 1_000);
    (0..60_000u32).for_each(|n| store.put(&n.to_be_bytes(), &[7; 100], expires_at_ms).unwrap());
    lasting.iter().for_each(|key| store.put(key, b"value", None).unwrap());
    clock.advance(Duration::from_secs(2));
    Arc::new(store)
}

/// A worker passed all leaves up to the next record in one step.
#[test]
fn ranges_over_expired_keys_take_several_steps() {
    let lasting = [0u32, 30_000, u32::MAX].map(|n| [&n.to_be_bytes()[..], b"lasts"].concat());
    let store = expired(&lasting);
    let (mut steps, mut found, mut from) = (0, Vec::new(), Bound::<Vec<u8>>::Unbounded);
    loop {
        let start = from.as_ref().map(Vec::as_slice);
        let place = store.records(start, Bound::Unbounded, Patience::Brief, &mut |key, _| {
            found.push(key.to_vec());
            Ok(true)
        });
        steps += 1;
        let Some(place) = place.unwrap() else { break };
        from = Bound::Included(place);
    }
    assert!(steps >= 3, "{steps} steps");
    assert_eq!(found, lasting);
    let server = TestServer::start_with(store, |_| ());
    let words: Vec<&[u8]> = lasting.iter().flat_map(|key| [&key[..], b"value"]).collect();
    assert!(server.connect().ask(&[b"ZT.RANGE", b"-", b"+"]) == request(&words));
}

/// A worker looked at all leaves for a key, and a stop waited for that.
#[test]
fn a_key_is_drawn_apart_where_many_have_expired() {
    let store = expired(&[]);
    assert_eq!(store.random_key(Patience::Brief), Err(BackendError::TakesLong));
    assert_eq!(store.random_key(Patience::Endless), Ok(None));
    let server = TestServer::start_with(store.clone(), |_| ());
    assert_eq!(server.connect().text("RANDOMKEY"), "$-1\r\n");
    store.stop();
    assert!(store.random_key(Patience::Endless).is_err());
}
