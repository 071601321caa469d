//! Ten thousand clients that each send a little and stay, or ask and never read, took the machine's memory: 737 MiB at
//! a limit of 64. All memory that clients make the server hold comes from one budget. When the budget is used up, the
//! server refuses requests, and disconnects the clients that hold most.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ziptier_server::Backend;
use ziptier_testing::until;

use crate::support::gated_backend::GatedBackend;
use crate::support::map_backend::MapBackend;
use crate::support::{Connection, TestServer, request};

const BUDGET: u64 = 4 << 20;
/// Bytes that a connection may hold outside the budget.
const FREE: u64 = 512;

fn started(budget: u64) -> TestServer {
    TestServer::start_with(Arc::new(MapBackend::default()), |config| {
        config.client_bytes_max = Some(budget as usize)
    })
}

const REFUSED: &[u8] = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";

fn is_refused(reply: &[u8]) -> bool {
    reply == REFUSED
}

/// Whether the server has closed the connection.
fn is_closed(connection: &mut Connection) -> bool {
    use std::io::Write;
    let sent = connection.stream.write_all(b"PING\r\n");
    sent.is_err() || connection.try_reply().is_none()
}

#[test]
fn small_requests_that_are_never_finished() {
    let server = started(BUDGET);
    let mut bystander = server.connect();
    assert_eq!(bystander.text("SET small value"), "+OK\r\n");
    let before = server.info(&mut bystander).field("total_net_input_bytes");
    // 34 KiB each, and as much again for where the arguments lie: five times the budget.
    let beginning = [&b"*5450\r\n$3\r\nDEL\r\n"[..], &b"$0\r\n\r\n".repeat(5440)].concat();
    let mut first = server.connect();
    first.send(&beginning);
    server.wait_for(&mut bystander, "where the arguments lie counts for nothing", |info| {
        info.field("mem_clients_normal") >= 2 * beginning.len() as u64
    });
    let before = before + beginning.len() as u64;
    let clients = 300;
    let mut senders: Vec<_> = (0..clients).map(|_| server.connect()).collect();
    for sender in &mut senders {
        use std::io::Write;
        // One that holds most may go before all of this has left.
        let _ = sender.stream.write_all(&beginning);
    }
    let mut asked_bytes = 0;
    server.wait_for(&mut bystander, "every request has come or its client has gone", |info| {
        let held = info.field("mem_clients_normal");
        assert!(held <= BUDGET + clients * FREE, "{held}");
        asked_bytes += request(&[b"INFO"]).len() as u64;
        let read_bytes = info.field("total_net_input_bytes") - before - asked_bytes;
        let gone_bytes = info.field("evicted_clients") * beginning.len() as u64;
        read_bytes + gone_bytes >= clients * beginning.len() as u64
    });
    assert_eq!(bystander.text("GET small"), "$5\r\nvalue\r\n");
    // The clients that held most were disconnected. Otherwise no client could send a large request again.
    assert!(server.info(&mut bystander).field("evicted_clients") > 0);
    let large = vec![b'v'; 1 << 20];
    until("those who stay lock nobody out", || {
        server.connect().ask(&[b"SET", b"large", &large]) == b"+OK\r\n"
    });
    let (mut closed, mut refused, mut served) = (0, 0, 0);
    for sender in &mut senders {
        use std::io::Write;
        let sent = sender.stream.write_all(&b"$1\r\nk\r\n".repeat(9));
        match sent.ok().and_then(|()| sender.try_reply()) {
            None => closed += 1,
            Some(reply) if is_refused(&reply) => refused += 1,
            Some(reply) => served += usize::from(reply == b":0\r\n"),
        }
    }
    assert!(closed > 0 && refused > 0, "{closed} closed, {refused} refused, {served} served");
    assert_eq!(closed + refused + served, clients as usize);
}

#[test]
fn readers_that_never_read() {
    // A crowded server makes little of each reply: 40 readers may fit into 4 MiB.
    let budget = BUDGET / 4;
    let server = started(budget);
    let mut bystander = server.connect();
    assert_eq!(bystander.ask(&[b"SET", b"value", &vec![b'v'; 200_000]]), b"+OK\r\n");
    // More than the system's buffers of a connection take.
    let requests = request(&[b"GET", b"value"]).repeat(200);
    let mut readers: Vec<_> = (0..40).map(|_| server.connect()).collect();
    readers.iter_mut().for_each(|reader| reader.send(&requests));
    server.wait_for(&mut bystander, "five readers are disconnected", |info| {
        let held = info.field("mem_clients_normal");
        assert!(held <= budget + budget / 8 + 41 * FREE, "{held}");
        info.field("evicted_clients") >= 5
    });
    assert_eq!(bystander.text("STRLEN value"), ":200000\r\n");
    assert!(!is_closed(&mut bystander), "the one that holds nothing went");
    drop(readers);
    server.wait_for(&mut bystander, "replies of clients that went are given back", |info| {
        info.field("mem_clients_normal") == 0
    });
}

#[test]
fn replies_much_longer_than_their_requests() {
    let server = started(BUDGET);
    let (mut bystander, mut asker) = (server.connect(), server.connect());
    let one = asker.text("COMMAND DOCS get").strip_prefix("*2\r\n").unwrap().repeat(100_000);
    let mut args = vec![&b"COMMAND"[..], b"DOCS"];
    args.resize(100_002, b"get");
    asker.send(&request(&args));
    for _ in 0..100 {
        let held = server.info(&mut bystander).field("mem_clients_normal");
        assert!(held <= BUDGET, "{held}");
    }
    let expected = ["*200000\r\n", &one].concat();
    assert!(asker.bytes(expected.len()) == expected.as_bytes());
    let one = asker.text("COMMAND INFO get").strip_prefix("*1\r\n").unwrap().repeat(100_000);
    args[1] = b"INFO";
    args.push(b"nothing");
    asker.send(&request(&args));
    let expected = ["*100001\r\n", &one, "$-1\r\n"].concat();
    assert!(asker.bytes(expected.len()) == expected.as_bytes());
    let long = vec![b'x'; 1 << 20];
    let refused: [&[&[u8]]; 3] = [&[b"HELLO", b"3", &long], &[b"CLIENT", b"SETINFO", &long, b"v"], &[&long]];
    for args in refused {
        let refusal = asker.ask(args);
        assert!(refusal.starts_with(b"-ERR") && refusal.len() < 500, "{}", refusal.len());
    }
    assert!(asker.ask(&[b"KEYS", &[&b"*"[..], &long].concat()]).starts_with(b"-ERR the pattern has"));
    assert!(
        asker.ask(&[b"SCAN", b"0", b"MATCH", &[&b"*"[..], &long].concat()]).starts_with(b"-ERR the pattern")
    );
}

#[test]
fn names_count_and_so_does_their_list() {
    let server = started(1 << 20);
    let name = [b'n'; 1000];
    let mut clients: Vec<_> = (0..250).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&[b"CLIENT", b"SETNAME", &name]), b"+OK\r\n");
        assert_eq!(client.ask(&[b"CLIENT", b"SETINFO", b"lib-name", &name]), b"+OK\r\n");
        assert_eq!(client.ask(&[b"CLIENT", b"SETINFO", b"lib-ver", &name]), b"+OK\r\n");
    }
    let mut asker = server.connect();
    // A turn counts what its client holds after the replies have left.
    server.wait_for(&mut asker, "names count", |info| info.field("mem_clients_normal") >= 250 * 3000);
    // 750 KB more are not there.
    assert!(is_refused(&asker.ask(&[b"CLIENT", b"LIST"])));
    clients.truncate(100);
    server.wait_for(&mut asker, "clients that went are closed, and their names given back", |info| {
        info.field("connected_clients") == 101 && info.field("mem_clients_normal") <= 101 * 3100
    });
    let list = asker.text("CLIENT LIST");
    assert_eq!((list.matches(" addr=").count(), list.matches(&"n".repeat(1000)).count()), (101, 300));
}

/// A store that copies a value for its reader, as RocksDB does: a value beyond the budget is refused before its reply
/// begins.
#[test]
fn a_value_that_only_its_reader_would_hold_is_refused() {
    let backend = Arc::new(GatedBackend::default());
    backend.put(b"long", &vec![b'l'; 32 << 20], None).unwrap();
    let gate = backend.gate();
    let server = TestServer::start_with(backend, |config| config.client_bytes_max = Some(BUDGET as usize));
    let mut client = server.connect();
    let value = vec![b'v'; 1 << 20];
    assert_eq!(client.ask(&[b"SET", b"key", &value]), b"+OK\r\n");
    gate.own(BUDGET as usize + 1);
    assert!(is_refused(&client.ask(&[b"GET", b"key"])));
    assert!(is_refused(&client.ask(&[b"GETRANGE", b"key", b"0", b"-1"])));
    // A refused command has changed nothing.
    for command in [&[&b"GETDEL"[..], b"key"][..], &[b"GETSET", b"key", b""], &[b"SET", b"key", b"", b"GET"]]
    {
        assert!(is_refused(&client.ask(command)));
        assert_eq!(client.ask(&[b"STRLEN", b"key"]), format!(":{}\r\n", value.len()).into_bytes());
    }
    // Other keys of an MGET are answered.
    let reply = client.ask(&[b"MGET", b"none", b"key", b"none"]);
    assert!(reply == [b"*3\r\n$-1\r\n", REFUSED, b"$-1\r\n"].concat(), "{} bytes", reply.len());
    // Two in a row, which are not held at the same time.
    gate.own(BUDGET as usize * 6 / 10);
    client.send(&request(&[b"GET", b"key"]).repeat(2));
    for _ in 0..2 {
        assert_eq!(client.reply().len(), value.len() + 12);
    }
    // Two of one reply. The step that ends the first opens the second, for the first ends with a short piece.
    let odd = vec![b'o'; (1 << 20) + 1000];
    assert_eq!(client.ask(&[b"SET", b"odd", &odd]), b"+OK\r\n");
    let bulk = [b"$1049576\r\n", &odd[..], b"\r\n"].concat();
    assert!(client.ask(&[b"MGET", b"odd", b"odd"]) == [b"*2\r\n", &bulk[..], &bulk[..]].concat());
    // Another client reads nothing of a value that the system's buffers do not take.
    let mut reader = server.connect();
    reader.send(&request(&[b"GET", b"long"]));
    server.wait_for(&mut client, "the other one's value is held", |info| {
        info.field("mem_clients_normal") >= BUDGET * 6 / 10
    });
    assert!(is_refused(&client.ask(&[b"GET", b"key"])));
    assert_eq!(server.info(&mut client).field("evicted_clients"), 0);
    drop(reader);
    server.wait_for(&mut client, "the other one has gone", |info| info.field("mem_clients_normal") == 0);
    assert_eq!(client.ask(&[b"GET", b"key"]).len(), value.len() + 12);
}

#[test]
fn a_value_is_taken_or_refused_however_it_arrives() {
    let server = started(BUDGET);
    let mut client = server.connect();
    for (len, is_taken) in [
        (1 << 20, true),
        ((1 << 20) + 1, true),
        (2 << 20, true),
        (3 << 20, true),
        ((4 << 20) - 4096, true),
        (4 << 20, false),
        (5 << 20, false),
    ] {
        for piece in [40_000, 300_000, 1_500_000, usize::MAX] {
            let request = request(&[b"SET", b"key", &vec![b'v'; len]]);
            for part in request.chunks(piece) {
                client.send(part);
                if piece < usize::MAX {
                    // The part has been read, or will be with a later one.
                    assert_eq!(server.connect().text("PING"), "+PONG\r\n");
                }
            }
            let reply = client.reply();
            let is_expected = if is_taken { reply == b"+OK\r\n" } else { is_refused(&reply) };
            assert!(is_expected, "{len} bytes in pieces of {piece}: {}", String::from_utf8_lossy(&reply));
        }
    }
}

/// The rest of a value that was dropped arrives together with a request that runs on a thread of its own. Nothing of
/// the value may be taken for that request.
#[test]
fn what_is_left_of_a_dropped_value_is_no_request() {
    let server = started(BUDGET);
    let mut bystander = server.connect();
    let keys: Vec<String> = (0..1_100).map(|number| format!("key{number}")).collect();
    let mut delete: Vec<&[u8]> = vec![b"DEL"];
    delete.extend(keys.iter().map(|key| key.as_bytes()));
    for (apart, expected) in [
        (request(&[b"CLIENT", b"LIST"]), &b"$"[..]),
        (request(&[b"FLUSHALL"]), b"+OK"),
        (request(&delete), b":1"),
    ] {
        assert_eq!(bystander.text("SET key1 value"), "+OK\r\n");
        let mut awaited_bytes = server.info(&mut bystander).field("total_net_input_bytes");
        let mut connection = server.connect();
        let value = vec![b'x'; 8_000_000];
        let set = request(&[b"SET", b"large", &value]);
        let (begin, tail) = set.split_at(set.len() - 1_000);
        connection.send(begin);
        awaited_bytes += begin.len() as u64;
        server.wait_for(&mut bystander, "the beginning has come", |info| {
            // Every question counts, too.
            awaited_bytes += request(&[b"INFO"]).len() as u64;
            info.field("total_net_input_bytes") == awaited_bytes
        });
        // The name of a command where one of the requests that follow has its own.
        let mut tail = tail.to_vec();
        tail[8..16].copy_from_slice(b"SHUTDOWN");
        connection.send(&[&tail, &apart[..]].concat());
        assert!(is_refused(&connection.reply()));
        let reply = connection.reply();
        assert!(reply.starts_with(expected), "{}", String::from_utf8_lossy(&reply[..reply.len().min(200)]));
    }
    assert_eq!(bystander.text("GET key1"), "$-1\r\n");
}

/// A worker makes lists of keys in a buffer. If it kept the room of the largest list, it would hold that room for ever.
#[test]
fn a_worker_gives_back_what_a_long_list_took() {
    let backend = Arc::new(MapBackend::default());
    let server = TestServer::start_with(backend.clone(), |config| config.threads = 1);
    let mut client = server.connect();
    let key = vec![b'k'; 1 << 20];
    assert_eq!(client.ask(&[b"SET", &key, b"value"]), b"+OK\r\n");
    assert!(client.text("SCAN 0").len() > key.len());
    assert_eq!(client.text("GET missing"), "$-1\r\n");
    let kept = backend.buffer_bytes.load(Relaxed);
    assert!(kept <= 256 << 10, "{kept} bytes are kept");
}

/// An `MSET` of many small pairs takes many times its text while it runs. If the server admitted it by its text alone,
/// it would exceed the limit.
#[test]
fn writes_of_many_keys_are_promised_what_they_take_before_they_begin() {
    const MIB: u64 = 1 << 20;
    let args: Vec<Vec<u8>> = (0..200_000).map(|n| format!("{n:06}").into_bytes()).collect();
    let many = |name: &'static [u8], count: usize| -> Vec<u8> {
        let args = args[..count].iter().map(Vec::as_slice);
        request(&[name].into_iter().chain(args).collect::<Vec<_>>())
    };
    let ask = |limit_bytes: u64, request: &[u8]| {
        let server = TestServer::start_with(Arc::new(MapBackend::default()), |config| {
            config.memory_limit_bytes = Some(limit_bytes);
        });
        let mut client = server.connect();
        client.send(request);
        let reply = client.reply();
        // All or nothing.
        (reply, client.text("DBSIZE"))
    };
    // 64 MB for the arguments, beside what the process has.
    for name in [&b"MSET"[..], b"MSETNX"] {
        let (reply, keys) = ask(64 * MIB, &many(name, 200_000));
        assert!(is_refused(&reply), "{}", String::from_utf8_lossy(&reply));
        assert_eq!(keys, ":0\r\n");
    }
    // A request as long that needs no room, a short one, and a server with room.
    assert_eq!(ask(64 * MIB, &many(b"EXISTS", 200_000)).0, b":0\r\n");
    assert_eq!(ask(64 * MIB, &many(b"MSET", 200)), (b"+OK\r\n".to_vec(), ":100\r\n".to_owned()));
    let roomy = ask(1024 * MIB, &many(b"MSET", 200_000));
    assert_eq!(roomy, (b"+OK\r\n".to_vec(), ":100000\r\n".to_owned()));
}
