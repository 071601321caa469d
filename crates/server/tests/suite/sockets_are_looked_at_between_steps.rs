//! A pipeline of a thousand short requests held its worker for seconds, and so did a reply of many pieces. Here the
//! worker looks at its other sockets between any two steps of work. `long_commands_stall_nobody.rs` tests commands that
//! other threads run.

use std::sync::Arc;

use ziptier::{CodecChoice, Options, SsdOptions};
use ziptier_server::{Backend, StoreBackend};

use crate::support;
use crate::support::gated_backend::started;
use crate::support::map_backend::MapBackend;
use crate::support::{TestServer, many, request, wait_for_arrivals};

#[test]
fn all_sockets_are_looked_at_between_a_few_long_turns() {
    const CLIENTS: u64 = 100;
    const GETS: u64 = 20;
    let (server, gate) = started();
    let mut asking = server.connect();
    let value = vec![b'v'; 100_000];
    asking.ask(&[b"SET", b"value", &value]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    let count = |info: support::Info| (info.field("keyspace_hits"), info.field("eventloop_cycles"));
    let before = count(server.info(&mut asking));
    // The only worker is held up until all have asked.
    gate.close("get_into");
    asking.send(&request(&[b"GET", b"none"]));
    gate.wait();
    for client in &mut clients {
        client.send(&request(&[b"GET", b"value"]).repeat(GETS as usize));
    }
    wait_for_arrivals(&clients);
    gate.open();
    assert_eq!(asking.reply(), b"$-1\r\n");
    let reply = [b"$100000\r\n", &value[..], b"\r\n"].concat();
    for client in &mut clients {
        (0..GETS).for_each(|_| assert!(client.bytes(reply.len()) == reply));
    }
    let after = count(server.info(&mut asking));
    let (served, looks) = (after.0 - before.0, after.1 - before.1);
    assert_eq!(served, CLIENTS * GETS);
    // A turn has two replies of this size, and at most 16 of them come between two looks.
    assert!(served <= looks * 2 * 16, "{served} replies, {looks} looks");
}

#[test]
fn sockets_are_looked_at_between_pieces_of_a_large_reply() {
    const PIECES: usize = 64;
    let (server, _gate) = started();
    let mut reader = server.connect();
    let value = vec![b'v'; PIECES * (256 << 10)];
    assert_eq!(reader.ask(&[b"SET", b"large", &value]), b"+OK\r\n");
    let before = server.info(&mut reader).field("eventloop_cycles");
    assert!(reader.ask(&[b"GET", b"large"]).len() > value.len());
    let looks = server.info(&mut reader).field("eventloop_cycles") - before;
    // A turn has two pieces at most, however many the socket would take.
    assert!(looks >= PIECES as u64 / 2, "{looks} looks");
}

#[test]
fn clients_with_short_turns_go_before_newcomers() {
    let (server, gate) = started();
    let (mut asking, mut bystander) = (server.connect(), server.connect());
    let mut newcomers: Vec<_> = (0..100).map(|_| server.connect()).collect();
    server.wait_for(&mut bystander, "all have come", |info| info.field("connected_clients") == 102);
    let before = server.info(&mut bystander).field("total_net_input_bytes");
    gate.close("get_into");
    asking.send(&request(&[b"GET", b"none"]));
    gate.wait();
    let unfinished = [&b"*1000\r\n$3\r\nDEL\r\n"[..], &b"$0\r\n\r\n".repeat(900)].concat();
    for newcomer in &mut newcomers {
        newcomer.send(&unfinished);
    }
    wait_for_arrivals(&newcomers);
    bystander.send(&request(&[b"INFO"]));
    bystander.wait_for_arrival();
    gate.open();
    let info = support::Info(String::from_utf8_lossy(&bystander.reply()).into_owned());
    let read_bytes = info.field("total_net_input_bytes") - before;
    // Sixteen of those who wait come between two looks at the sockets.
    assert!(read_bytes < 32 * unfinished.len() as u64, "{read_bytes} bytes were read before");
}

#[test]
fn keys_are_walked_between_other_clients_requests() {
    let (server, gate) = started();
    let (mut lister, mut other) = (server.connect(), server.connect());
    let pairs: Vec<String> =
        (0..100_000).flat_map(|number| [format!("key:{number:06}"), String::new()]).collect();
    let args: Vec<&[u8]> =
        [&b"MSET"[..]].into_iter().chain(pairs.iter().map(|word| word.as_bytes())).collect();
    assert_eq!(lister.ask(&args), b"+OK\r\n");
    assert_eq!(other.text("PING"), "+PONG\r\n");

    // The first step waits until the other one's request has arrived, so it is there when the step ends.
    gate.close("keys_from");
    lister.send(&request(&[b"KEYS", b"*"]));
    gate.wait();
    other.send(&request(&[b"GET", b"key:000001"]));
    other.wait_for_arrival();
    gate.open();
    assert_eq!(other.reply(), b"$0\r\n\r\n");
    let listed = lister.bytes(9 + 100_000 * 17);
    assert!(listed.starts_with(b"*100000\r\n$10\r\nkey:000000\r\n"));
    assert!(listed.ends_with(b"key:099999\r\n"));
    let calls = gate.calls();
    let before = calls.iter().position(|&call| call == "get_into").unwrap();
    // A turn, out of many.
    assert!(before <= 40 && calls.len() > 150, "{before} of {} steps came first", calls.len());
}

#[test]
fn all_sockets_are_looked_at_between_long_values_that_are_read() {
    const LOOKS: u64 = 100;
    let (server, gate) = started();
    let (mut asking, mut looking) = (server.connect(), server.connect());
    assert_eq!(asking.text("SET a 1"), "+OK\r\n");
    gate.read_to_look(200 << 10);
    let before = server.info(&mut asking).field("eventloop_cycles");
    // The only worker is held up until all have come.
    gate.close("get_into");
    asking.send(&request(&[b"GET", b"none"]));
    gate.wait();
    looking.send(&request(&[b"STRLEN", b"a"]).repeat(LOOKS as usize));
    looking.wait_for_arrival();
    gate.open();
    assert_eq!(asking.reply(), b"$-1\r\n");
    (0..LOOKS).for_each(|_| assert_eq!(looking.reply(), b":1\r\n"));
    let cycles = server.info(&mut asking).field("eventloop_cycles") - before;
    assert!(cycles >= LOOKS, "{cycles} looks at the sockets");
}

/// A pipeline of a thousand such requests is read at once, and held the worker for seconds.
#[test]
fn all_sockets_are_looked_at_between_short_requests_of_much_work() {
    let (gated, gate) = started();
    // COPY says that it reads so much for a log.
    gate.read(100 << 10);
    let counting = TestServer::start_with(Arc::new(MapBackend::default()), |config| config.threads = 1);
    let pairs: Vec<String> =
        (0..10_000).flat_map(|number| [format!("key:{number:05}"), "v".into()]).collect();
    let load: Vec<&[u8]> =
        [&b"MSET"[..]].into_iter().chain(pairs.iter().map(|word| word.as_bytes())).collect();
    let mut client = gated.connect();
    assert_eq!(client.ask(&load), b"+OK\r\n");
    assert_eq!(client.ask(&[b"SET", b"long", &vec![b'v'; 100 << 10]]), b"+OK\r\n");
    // No number is so large.
    assert_eq!(client.ask(&[b"SET", b"digits", &[b'1'; 5000]]), b"+OK\r\n");
    // Clients for CLIENT KILL to look at.
    let mut others: Vec<_> = (0..100).map(|_| counting.connect()).collect();
    others.iter_mut().for_each(|other| assert_eq!(other.text("PING"), "+PONG\r\n"));
    for (server, command, count) in [
        (&gated, "SCAN 0 MATCH *x COUNT 10000", 100),
        // No key is behind that.
        (&gated, "ZT.RANGE [x +", 200),
        (&gated, "GETRANGE long 0 0", 100),
        (&gated, "APPEND long x", 100),
        (&gated, "SETRANGE long 0 x", 100),
        (&gated, "COPY key:00000 copy REPLACE", 100),
        (&gated, "INCRBYFLOAT digits 1", 100),
        (&counting, "DBSIZE", 400),
        (&counting, "INFO keyspace", 400),
        (&counting, "CLIENT KILL ID 999999", 2000),
    ] {
        let mut client = server.connect();
        let before = server.info(&mut client).field("eventloop_cycles");
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        client.send(&request(&words).repeat(count));
        (0..count).for_each(|_| drop(client.reply()));
        let looks = server.info(&mut client).field("eventloop_cycles") - before;
        assert!(looks >= 15, "{command}: {looks} looks at the sockets");
    }
}

/// Each look-up reads a whole image. A pipeline of a thousand of them held the worker for as many reads.
#[test]
fn all_sockets_are_looked_at_between_look_ups_on_an_ssd() {
    const KEYS: u32 = 1000;
    let folder = tempfile::tempdir().unwrap();
    let store = StoreBackend::open(Options {
        ssd: Some(SsdOptions { path: Some(folder.path().to_owned()), limit_bytes: 64 << 20 }),
        codec: CodecChoice::None,
        background_threads: 0,
        ..Options::default()
    });
    let store = store.unwrap();
    let key = |number: u32| format!("key:{number:04}").into_bytes();
    (0..2 * KEYS).for_each(|number| store.put(&key(number), &[7; 200], None).unwrap());
    store.store().send_to_ssd(|| true).unwrap();
    assert!(store.store().ssd().unwrap().leaves > 0);
    let server = TestServer::start_with(Arc::new(store), |config| config.threads = 1);
    let mut client = server.connect();
    // A record that is read twice is copied to memory.
    for (command, first) in [("EXISTS", 0), ("GET", KEYS)] {
        let before = server.info(&mut client).field("eventloop_cycles");
        let look_up = |number| request(&[command.as_bytes(), &key(number)]);
        client.send(&(first..first + KEYS).flat_map(look_up).collect::<Vec<_>>());
        (0..KEYS).for_each(|_| drop(client.reply()));
        let looks = server.info(&mut client).field("eventloop_cycles") - before;
        assert!(looks >= 15, "{command}: {looks} looks at the sockets");
    }
}

/// An MGET of short values on an SSD reads an image for each of them. All of these reads were one step of the worker.
#[test]
fn all_sockets_are_looked_at_between_groups_of_keys_that_read_much() {
    const KEYS: usize = 1000;
    let (server, gate) = started();
    let mut client = server.connect();
    assert_eq!(client.text("SET a 1"), "+OK\r\n");
    gate.read_to_look(20 << 10);
    let before = server.info(&mut client).field("eventloop_cycles");
    let words = [&[&b"MGET"[..]][..], &[&b"a"[..]; KEYS]].concat();
    assert!(client.ask(&words) == request(&[&b"1"[..]; KEYS]));
    let looks = server.info(&mut client).field("eventloop_cycles") - before;
    assert!(looks >= 15, "{looks} looks at the sockets");
}

/// Each group of keys may read many images from an SSD. A SCAN of 16,384 keys read all of theirs in one step.
#[test]
fn a_scan_ends_early_where_its_keys_read_much() {
    let (server, gate) = started();
    let mut client = server.connect();
    client.send(&many("MSET"));
    assert_eq!(client.reply(), b"+OK\r\n");
    gate.read_to_look(200 << 10);
    // It forgets earlier calls.
    gate.close("none");
    assert!(client.text("SCAN 0 COUNT 1000").starts_with("*2\r\n"));
    assert_eq!(gate.calls().iter().filter(|&&call| call == "keys_from").count(), 1);
}

#[test]
fn a_large_value_leaves_between_other_clients_requests() {
    let (server, gate) = started();
    let (mut reader, mut other) = (server.connect(), server.connect());
    let large = vec![b'v'; 32 << 20];
    assert_eq!(reader.ask(&[b"SET", b"large", &large]), b"+OK\r\n");
    assert_eq!(other.text("SET small value"), "+OK\r\n");
    gate.close("read_at");
    reader.send(&request(&[b"GET", b"large"]));
    gate.wait();
    other.send(&request(&[b"GET", b"small"]));
    other.wait_for_arrival();
    gate.open();
    assert_eq!(other.reply(), b"$5\r\nvalue\r\n");
    assert_eq!(reader.reply().len(), large.len() + 13);
    let calls = gate.calls();
    let before = calls.iter().rposition(|&call| call == "get_into").unwrap();
    assert!(before <= 20 && calls.len() > 120, "{before} of {} pieces came first", calls.len());
}

#[test]
fn a_range_reads_a_large_value_between_other_clients_requests() {
    let (server, gate) = started();
    let (mut reader, mut other) = (server.connect(), server.connect());
    let large = vec![b'v'; 16 << 20];
    assert_eq!(other.text("MSET a first small value"), "+OK\r\n");
    assert_eq!(reader.ask(&[b"SET", b"large", &large]), b"+OK\r\n");
    let records = [&b"a"[..], b"first", b"large", &large, b"small", b"value"];
    for (limit, words) in [("2", &records[..4]), ("9", &records)] {
        gate.close("records");
        reader.send(&request(&[b"ZT.RANGE", b"-", b"+", b"LIMIT", limit.as_bytes()]));
        gate.wait();
        other.send(&request(&[b"GET", b"small"]));
        other.wait_for_arrival();
        gate.open();
        assert_eq!(other.reply(), b"$5\r\nvalue\r\n");
        assert!(reader.reply() == request(words));
        let calls = gate.calls();
        let before = calls.iter().rposition(|&call| call == "get_into").unwrap();
        assert!(before <= 20 && calls.len() > 60, "{before} of {} steps came first", calls.len());
    }
}
