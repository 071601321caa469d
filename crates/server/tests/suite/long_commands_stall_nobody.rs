//! One client's `DEL` of a million keys stopped every other client of its worker for two seconds, and `SAVE` for as
//! long as the disk took. Here the store blocks the work of a long command, and another client of the only worker is
//! served nevertheless. `sockets_are_looked_at_between_steps.rs` tests work that stays on the worker.

use ziptier_testing::until;

use crate::support::gated_backend::started;
use crate::support::{Connection, many, request};

#[test]
fn others_are_served_while_a_long_command_runs() {
    let (server, gate) = started();
    let (mut long, mut other) = (server.connect(), server.connect());
    let large = vec![b'v'; 300 << 10];
    assert_eq!(long.text("SET small value"), "+OK\r\n");
    let cases: [(&'static str, Vec<u8>, &[u8]); 14] = [
        ("put", request(&[b"SET", b"large", &large]), b"+OK\r\n"),
        ("updated", request(&[b"APPEND", b"large", b"!"]), b":307201\r\n"),
        ("updated", request(&[b"SETRANGE", b"new", b"300000", b"!"]), b":300001\r\n"),
        ("write", many("MSET"), b"+OK\r\n"),
        ("write", many("MSETNX"), b":0\r\n"),
        ("meta", many("EXISTS"), b":1000\r\n"),
        ("meta", many("TOUCH"), b":1000\r\n"),
        ("len", request(&[b"DBSIZE"]), b":1003\r\n"),
        ("delete", many("DEL"), b":1000\r\n"),
        ("delete", many("UNLINK"), b":0\r\n"),
        ("set_eviction", request(&[b"CONFIG", b"SET", b"maxmemory-policy", b"allkeys-s3fifo"]), b"+OK\r\n"),
        ("save", request(&[b"SAVE"]), b"+OK\r\n"),
        ("clear", request(&[b"FLUSHALL"]), b"+OK\r\n"),
        ("clear", request(&[b"FLUSHDB", b"ASYNC"]), b"+OK\r\n"),
    ];
    for (method, command, expected) in cases {
        gate.close(method);
        // Requests behind a long command wait for its reply.
        long.send(&[&command[..], b"PING\r\n"].concat());
        gate.wait();
        assert_eq!(other.text("PING"), "+PONG\r\n", "{method}");
        if method != "clear" {
            assert_eq!(other.text("GET small"), "$5\r\nvalue\r\n", "{method}");
        }
        gate.open();
        assert_eq!(long.reply(), expected, "{method}");
        assert_eq!(long.reply(), b"+PONG\r\n", "{method}");
    }
    // INFO does not count: it says what is known.
    assert_eq!(other.text("SET small value"), "+OK\r\n");
    gate.close("len");
    assert!(other.text("INFO keyspace").contains("db0:keys=17"));
    gate.open();
}

#[test]
fn a_request_of_some_milliseconds_waits_for_none_of_seconds() {
    let (server, gate) = started();
    let mut other = server.connect();
    let large = vec![b'v'; 300 << 10];
    for (method, long) in [("write", many("MSET")), ("clear", request(&[b"FLUSHALL"]))] {
        gate.close(method);
        let mut waiting: Vec<_> = (0..6).map(|_| server.connect()).collect();
        waiting.iter_mut().for_each(|client| client.send(&long));
        until("all threads for long requests are taken", || {
            gate.calls().iter().filter(|&&call| call == method).count() >= 3
        });
        assert_eq!(other.ask(&[b"SET", b"large", &large]), b"+OK\r\n");
        assert_eq!(other.text("APPEND large !"), ":307201\r\n");
        other.send(&many("EXISTS"));
        assert!(other.reply().starts_with(b":"));
        assert!(other.text("CLIENT LIST").contains("addr="));
        assert_eq!(gate.calls().iter().filter(|&&call| call == method).count(), 3);
        gate.open();
        waiting.iter_mut().for_each(|client| assert_eq!(client.reply(), b"+OK\r\n"));
    }
}

#[test]
fn a_write_to_keys_that_a_long_one_has_waits_on_a_thread_of_its_own() {
    let (server, gate) = started();
    let mut other = server.connect();
    assert_eq!(other.text("SET small value"), "+OK\r\n");
    gate.close("put");
    let mut long = server.connect();
    long.send(&request(&[b"SET", b"large", &vec![b'v'; 300 << 10]]));
    gate.wait();
    let mut waiting = server.connect();
    waiting.send(b"SET small new\r\nGET small\r\n");
    until("both writes wait", || {
        assert_eq!(other.text("GET small"), "$5\r\nvalue\r\n");
        gate.calls().iter().filter(|&&call| call == "put").count() == 2
    });
    gate.open();
    assert_eq!(long.reply(), b"+OK\r\n");
    assert_eq!((waiting.reply(), waiting.reply()), (b"+OK\r\n".to_vec(), b"$3\r\nnew\r\n".to_vec()));
}

/// All pieces of a value are read before its key is changed, and then again for the reply.
#[test]
fn a_long_value_is_read_apart_before_its_key_is_changed() {
    let (server, gate) = started();
    let (mut long, mut other) = (server.connect(), server.connect());
    let old = vec![b'v'; 600_000];
    for command in ["GETDEL large", "GETSET large new", "SET large new GET", "GETEX large EX 1000"] {
        assert_eq!(long.ask(&[b"SET", b"large", &old]), b"+OK\r\n");
        gate.close("read_at");
        long.send(format!("{command}\r\nPING\r\n").as_bytes());
        gate.wait();
        assert_eq!(other.text("PING"), "+PONG\r\n", "{command}");
        gate.open();
        assert!(long.reply() == [b"$600000\r\n", &old[..], b"\r\n"].concat(), "{command}");
        assert_eq!(long.reply(), b"+PONG\r\n", "{command}");
    }
}

#[test]
fn a_worker_waits_for_no_other_write_of_several_keys() {
    let (server, gate) = started();
    let mut other = server.connect();
    assert_eq!(other.text("SET small value"), "+OK\r\n");
    gate.close("write");
    let mut long = server.connect();
    long.send(&many("MSET"));
    gate.wait();
    let cases = [("MSET a 1 b 2", "GET b", "$1\r\n2\r\n"), ("RENAME small moved", "GET small", "$-1\r\n")];
    let waiting = cases.map(|(write, read, expected)| {
        let mut client = server.connect();
        client.send(format!("{write}\r\n{read}\r\n").as_bytes());
        (client, expected)
    });
    until("both wait on threads of their own", || {
        assert_eq!(other.text("GET small"), "$5\r\nvalue\r\n");
        gate.calls().iter().filter(|&&call| call == "write").count() == 3
    });
    gate.open();
    assert_eq!(long.reply(), b"+OK\r\n");
    for (mut client, expected) in waiting {
        assert_eq!(client.reply(), b"+OK\r\n");
        assert_eq!(client.reply(), expected.as_bytes());
    }
    assert_eq!(other.text("MSETNX a 1 c 2"), ":0\r\n");
}

#[test]
fn a_client_that_goes_while_its_command_runs_leaves_nothing_behind() {
    let (server, gate) = started();
    let mut other = server.connect();
    for _ in 0..3 {
        gate.close("delete");
        let mut gone = server.connect();
        gone.send(&many("DEL"));
        gate.wait();
        drop(gone);
        // Another client may have its slot by then.
        let mut next = server.connect();
        assert_eq!(next.text("PING"), "+PONG\r\n");
        gate.open();
        assert_eq!(next.text("ECHO mine"), "$4\r\nmine\r\n");
    }
    server.wait_for(&mut other, "requests of clients that have gone are given back", |info| {
        info.field("mem_clients_normal") == 0
    });
    // A killed one goes at once, and its request stays until it has run.
    gate.close("delete");
    let mut killed = server.connect();
    let id = killed.text("CLIENT ID").trim_start_matches(':').trim().to_owned();
    let request_bytes = many("DEL").len() as u64;
    killed.send(&many("DEL"));
    gate.wait();
    assert_eq!(other.text(&format!("CLIENT KILL ID {id}")), ":1\r\n");
    assert_eq!(killed.rest(), b"");
    let held = server.info(&mut other).field("mem_clients_normal");
    assert!(held >= request_bytes, "{held} of {request_bytes}");
    gate.open();
    server.wait_for(&mut other, "the request of a killed client is given back", |info| {
        info.field("mem_clients_normal") == 0
    });
    gate.close("save");
    let mut last = server.connect();
    last.send(&request(&[b"SAVE"]));
    gate.wait();
    // A stop waits for threads that run something, and has the store end it.
    other.send(b"SHUTDOWN NOSAVE\r\n");
    assert_eq!(other.rest(), b"");
    server.join().unwrap();
}

/// RocksDB has a value's length only with the value: 1,023 keys of 512 MiB would take minutes.
#[test]
fn a_worker_leaves_a_command_that_reads_many_long_values() {
    let (server, gate) = started();
    let mut other = server.connect();
    assert_eq!(other.text("MSET a 1 b 2 c 3 d 4"), "+OK\r\n");
    gate.read_to_look(200 << 10);
    let mut long = server.connect();
    for (method, command, expected) in
        [("meta", "EXISTS a none b c d a", ":5\r\n"), ("delete", "DEL a none b c d a", ":4\r\n")]
    {
        // The worker looks at two keys. Another thread goes on behind them.
        gate.close_behind(2, method);
        long.send(format!("{command}\r\nPING\r\n").as_bytes());
        gate.wait();
        assert_eq!(other.text("PING"), "+PONG\r\n", "{command}");
        gate.open();
        assert_eq!(long.reply(), expected.as_bytes(), "{command}");
        assert_eq!(long.reply(), b"+PONG\r\n", "{command}");
    }
    // Nothing is left for the next command.
    assert_eq!(long.text("EXISTS none a"), ":0\r\n");
    assert_eq!(long.text("SET a 1"), "+OK\r\n");
    assert_eq!(long.text("EXISTS a"), ":1\r\n");
}

/// Flushes of RocksDB may fall behind in the middle of a command.
#[test]
fn a_worker_leaves_a_command_whose_next_delete_may_wait() {
    let (server, gate) = started();
    let (mut long, mut other) = (server.connect(), server.connect());
    assert_eq!(other.text("MSET a 1 b 2"), "+OK\r\n");
    gate.stop_behind_a_look();
    gate.close_behind(1, "delete");
    long.send(b"DEL a b none\r\n");
    gate.wait();
    assert_eq!(other.text("PING"), "+PONG\r\n");
    gate.open();
    assert_eq!(long.reply(), b":2\r\n");
}

/// RocksDB reads the whole value at each look-up, and the values of all keys of a group.
#[test]
fn long_values_of_a_group_are_looked_up_once() {
    const KEYS: usize = 16;
    let (server, gate) = started();
    let mut reader = server.connect();
    let value = vec![b'v'; 300 << 10];
    let keys: Vec<Vec<u8>> = (0..KEYS as u8).map(|number| vec![b'a' + number]).collect();
    keys.iter().for_each(|key| assert_eq!(reader.ask(&[b"SET", key, &value]), b"+OK\r\n"));
    // It forgets earlier calls.
    gate.close("none");
    let words: Vec<&[u8]> = [&b"MGET"[..]].into_iter().chain(keys.iter().map(Vec::as_slice)).collect();
    assert!(reader.ask(&words) == request(&[&value[..]; KEYS]));
    // The first one also tells that they are long.
    let expected = [&["get_into"][..], &["open_value"; KEYS]].concat();
    let look_ups: Vec<_> = gate.calls().into_iter().filter(|call| expected.contains(call)).collect();
    assert_eq!(look_ups, expected);
}

/// A pipeline of `STRLEN` of the longest value would hold the worker for as long.
#[test]
fn a_client_that_reads_very_long_values_goes_on_apart() {
    let (server, gate) = started();
    let mut other = server.connect();
    assert_eq!(other.text("MSET a 1 b 2"), "+OK\r\n");
    gate.read_to_look(20 << 20);
    for (method, command) in [
        ("meta", "STRLEN a"),
        ("get_into", "OBJECT ENCODING a"),
        ("meta", "MEMORY USAGE a"),
        ("records", "ZT.RANGE - +"),
    ] {
        let mut long = server.connect();
        let expected = long.text(command);
        for _ in 0..2 {
            // These look at no value, and tell nothing of the next command.
            assert_eq!(long.text("PING"), "+PONG\r\n", "{command}");
            assert_eq!(long.text("SET b 2"), "+OK\r\n", "{command}");
            gate.close(method);
            long.send(format!("{command}\r\n").as_bytes());
            gate.wait();
            assert_eq!(other.text("PING"), "+PONG\r\n", "{command}");
            gate.open();
            assert_eq!(long.reply(), expected.as_bytes(), "{command}");
        }
    }
    // Commands that look at no value stay on the worker. Here they would wait for a thread.
    let mut long = server.connect();
    assert_eq!(long.text("STRLEN a"), ":1\r\n");
    gate.close("clear");
    let mut clients = [(); 3].map(|()| server.connect());
    clients.iter_mut().for_each(|client| client.send(b"FLUSHALL\r\n"));
    until("all threads for long requests are taken", || {
        gate.calls().iter().filter(|&&call| call == "clear").count() == 3
    });
    assert_eq!(long.text("PING"), "+PONG\r\n");
    assert_eq!(long.text("SET b 2"), "+OK\r\n");
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.reply(), b"+OK\r\n"));
}

/// RocksDB passes deleted keys one by one, in whatever number, until a compaction drops them.
#[test]
fn walks_over_many_deleted_keys_run_on_threads_of_their_own() {
    let (server, gate) = started();
    let (mut walker, mut other) = (server.connect(), server.connect());
    assert_eq!(other.text("MSET a 1 b 2"), "+OK\r\n");
    gate.slow_walks();
    for (method, command, expected) in [
        ("keys_from", "SCAN 0", "*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        ("keys_from", "KEYS *", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        ("records", "ZT.RANGE - +", "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n"),
    ] {
        gate.close(method);
        // Requests behind a walk wait for its reply.
        walker.send(format!("{command}\r\nPING\r\n").as_bytes());
        gate.wait();
        assert_eq!(other.text("GET a"), "$1\r\n1\r\n", "{command}");
        gate.open();
        assert_eq!(walker.reply(), expected.as_bytes(), "{command}");
        assert_eq!(walker.reply(), b"+PONG\r\n", "{command}");
    }
    gate.close("random_key");
    walker.send(b"RANDOMKEY\r\n");
    gate.wait();
    assert_eq!(other.text("GET a"), "$1\r\n1\r\n");
    gate.open();
    assert!(matches!(&walker.reply()[..], b"$1\r\na\r\n" | b"$1\r\nb\r\n"));
    // A client that goes meanwhile leaves nothing behind.
    gate.close("keys_from");
    let mut gone = server.connect();
    gone.send(b"KEYS *\r\n");
    gate.wait();
    drop(gone);
    gate.open();
    server.wait_for(&mut other, "the reply of a client that has gone is given back", |info| {
        info.field("mem_clients_normal") == 0
    });
}

/// Cursors of closed connections are kept for others, and there is room for few: for 255 at a key of this length.
#[test]
fn a_cursor_that_its_client_never_got_is_forgotten() {
    let (server, gate) = started();
    let mut other = server.connect();
    assert_eq!(other.ask(&[b"MSET", b"a", b"1", &vec![b'b'; 64 << 10], b"2"]), b"+OK\r\n");
    gate.slow_walks();
    gate.close("keys_from");
    let mut gone = server.connect();
    let id = gone.text("CLIENT ID").trim_start_matches(':').trim().to_owned();
    gone.send(b"SCAN 0 COUNT 1\r\n");
    gate.wait();
    assert_eq!(other.text(&format!("CLIENT KILL ID {id}")), ":1\r\n");
    assert_eq!(gone.rest(), b"");
    gate.open();
    server.wait_for(&mut other, "the reply of a client that has gone is given back", |info| {
        info.field("mem_clients_normal") == 0
    });
    let scan = |client: &mut Connection| {
        let reply = client.text("SCAN 0 COUNT 1");
        reply.lines().nth(2).expect("a cursor").to_owned()
    };
    let first = scan(&mut other);
    for _ in 1..128 {
        scan(&mut other);
    }
    let mut last = server.connect();
    let first_of_last = scan(&mut last);
    for _ in 1..128 {
        scan(&mut last);
    }
    // The 256th ends the oldest scan of the last client. Beside a lost one, the 255th would end that of the other.
    assert!(other.text(&format!("SCAN {first} COUNT 1")).starts_with("*2\r\n"));
    assert_eq!(last.text(&format!("SCAN {first_of_last} COUNT 1")), "-ERR invalid cursor\r\n");
}

/// Each step of these replies is made on another thread, and the findings come back each time.
#[test]
fn long_replies_come_whole_from_threads_of_their_own() {
    let (server, gate) = started();
    let mut walker = server.connect();
    let pairs: Vec<String> = (0..3_000).flat_map(|number| [format!("key:{number:05}"), "v".into()]).collect();
    let pairs: Vec<&[u8]> = pairs.iter().map(|word| word.as_bytes()).collect();
    let load: Vec<&[u8]> = [&b"MSET"[..]].into_iter().chain(pairs.iter().copied()).collect();
    assert_eq!(walker.ask(&load), b"+OK\r\n");
    gate.slow_walks();
    let keys: Vec<&[u8]> = pairs.iter().copied().step_by(2).collect();
    assert!(walker.ask(&[b"KEYS", b"*"]) == request(&keys));
    assert!(walker.ask(&[b"ZT.RANGE", b"-", b"+"]) == request(&pairs));
    assert!(walker.ask(&[b"ZT.RANGE", b"[key:01000", b"(key:02000"]) == request(&pairs[2_000..4_000]));
}

/// A store with a folder whose DRAM and SSD are full makes room by a checkpoint, and a write waits for that.
#[test]
fn a_write_that_may_wait_for_room_waits_on_a_thread_of_its_own() {
    let (server, gate) = started();
    let mut other = server.connect();
    assert_eq!(other.text("MSET small value gone value"), "+OK\r\n");
    gate.run_short();
    gate.close("put");
    let mut waiting = server.connect();
    waiting.send(b"SET small new\r\nGET small\r\n");
    gate.wait();
    assert_eq!(other.text("GET small"), "$5\r\nvalue\r\n");
    // A delete needs no room.
    assert_eq!(other.text("DEL gone"), ":1\r\n");
    gate.open();
    assert_eq!((waiting.reply(), waiting.reply()), (b"+OK\r\n".to_vec(), b"$3\r\nnew\r\n".to_vec()));
}

/// RocksDB stops all writers while its compactions are behind, those that delete, too.
#[test]
fn a_delete_that_may_wait_waits_on_a_thread_of_its_own() {
    let (server, gate) = started();
    let mut other = server.connect();
    assert_eq!(other.text("MSET small value gone value"), "+OK\r\n");
    gate.stop_writers();
    gate.close("delete");
    let mut waiting = server.connect();
    waiting.send(b"DEL gone\r\nGET gone\r\n");
    gate.wait();
    assert_eq!(other.text("GET small"), "$5\r\nvalue\r\n");
    gate.open();
    assert_eq!((waiting.reply(), waiting.reply()), (b":1\r\n".to_vec(), b"$-1\r\n".to_vec()));
}
