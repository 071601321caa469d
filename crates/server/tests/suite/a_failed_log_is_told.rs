//! The sync of a disk fails under a server. The server tells writers that the fate of their writes is not known, and
//! answers no lost write with `OK`. It refuses further writes with the reason, and also reads, which might return lost
//! writes. INFO shows the failure.

use std::sync::Arc;

use ziptier::{DiskHandle, Durability, DurableOptions, Options};
use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};
use ziptier_server::StoreBackend;
use ziptier_testing::until;

use crate::support::gated_backend::GatedBackend;
use crate::support::{TestServer, request};

/// A server with segments of its log of so many bytes, whose disk fails at its `nth` sync; `None` if that is before it
/// is open.
fn start(nth: u64, segment_bytes: u64) -> Option<(TestServer, FailingDisk)> {
    let disk = FailingDisk::new(Arc::new(RecordingDisk::new()), Fault::LyingSync, nth);
    let mut durable = DurableOptions::new("/data");
    durable.durability = Durability::Always;
    durable.log.segment_bytes = segment_bytes;
    durable.disk = DiskHandle(Arc::new(disk.clone()));
    let store = StoreBackend::open(Options { durable: Some(durable), ..Options::default() }).ok()?;
    Some((TestServer::start_with(Arc::new(store), |_| {}), disk))
}

#[test]
fn nobody_is_told_ok_for_what_may_be_lost() {
    let mut failed = 0;
    for nth in 0..12 {
        let Some((server, disk)) = start(nth, 64 << 10) else { continue };
        let mut reader = server.connect();
        let failed_before = failed;
        for n in 0..20 {
            let mut writer = server.connect();
            writer.send(format!("SET key {n}\r\nSET other {n}\r\n").as_bytes());
            let reply = writer.reply();
            if reply == b"+OK\r\n" {
                assert_eq!(writer.reply(), b"+OK\r\n");
                assert_eq!(reader.text("GET other"), format!("${}\r\n{n}\r\n", n.to_string().len()));
                continue;
            }
            let said = String::from_utf8(reply).unwrap();
            assert!(said.starts_with("-ERR whether the last writes are kept is not known: "), "{said}");
            assert!(said.contains("made by a test"), "{said}");
            assert_eq!(writer.rest(), b"", "the connection is closed");
            assert!(disk.has_failed());
            failed += 1;
            break;
        }
        if failed > failed_before {
            let said = server.connect().text("SET key again");
            assert!(said.starts_with("-ERR") && said.contains("made by a test"), "{said}");
            let looks = ["OBJECT ENCODING key", "MEMORY USAGE key"];
            for read in ["GET key", "MGET other none", "EXISTS key", "SCAN 0"].into_iter().chain(looks) {
                let mut reader = server.connect();
                let said = reader.text(read);
                assert!(
                    said.starts_with("-ERR whether the last writes are kept is not known: "),
                    "{read}: {said}"
                );
                assert_eq!(reader.rest(), b"", "the connection is closed");
            }
            assert_eq!(server.connect().text("PING"), "+PONG\r\n");
            let info = server.connect().text("INFO persistence");
            assert!(info.contains("aof_last_write_status:err") && info.contains("made by a test"), "{info}");
        }
    }
    assert!(failed > 0);
}

/// A long reply goes on while a write is lost. It must not end with the value of that write.
#[test]
fn a_long_reply_has_no_value_that_may_be_lost() {
    const KEYS: usize = 16;
    const VALUE_BYTES: usize = 1 << 20;
    // A segment has room for all, so that a write syncs once.
    let (server, disk) = start(u64::MAX, 64 << 20).unwrap();
    let mut writer = server.connect();
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key{number}")).collect();
    let old = vec![b'-'; VALUE_BYTES];
    keys.iter().for_each(|key| assert_eq!(writer.ask(&[b"SET", key.as_bytes(), &old]), b"+OK\r\n"));
    let mut reader = server.connect();
    let words: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain(keys.iter().map(String::as_bytes)).collect();
    reader.send(&request(&words));
    reader.bytes(VALUE_BYTES);
    // The log may sync a new segment at that moment, and this fails in place of the write.
    let lost = (b'a'..=b'z').find(|&letter| {
        disk.fail_after(0);
        writer.ask(&[b"SET", keys[KEYS - 1].as_bytes(), &vec![letter; VALUE_BYTES]]) != b"+OK\r\n"
    });
    let lost = lost.expect("a write fails");
    assert!(disk.has_failed());
    let rest = reader.rest();
    let is_new = rest.windows(16).any(|bytes| bytes == [lost; 16]);
    assert!(!is_new, "the reply has the value of a write whose fate is not known");
    let is_error = rest.windows(4).any(|bytes| bytes == b"-ERR");
    assert!(!is_error, "an error stands within a value");
}

/// One error stands for all replies that would have said too much. The reply to a request behind them, which ran on
/// another thread meanwhile, must not pass for one of theirs.
#[test]
fn nothing_follows_the_error_that_stands_for_several_replies() {
    const GETS: usize = 200;
    const KEYS: usize = 2000;
    let backend = Arc::new(GatedBackend::default());
    let gate = backend.gate();
    let server = TestServer::start_with(backend, |config| config.threads = 1);
    let (mut slow, mut other) = (server.connect(), server.connect());
    let value = vec![b'v'; 200 << 10];
    assert_eq!(server.connect().ask(&[b"SET", b"value", &value]), b"+OK\r\n");
    // It reads nothing, so the error waits behind these values.
    slow.send(&request(&[b"GET", b"value"]).repeat(GETS));
    server.wait_for(&mut other, "all values wait", |info| {
        info.field("keyspace_hits") == GETS as u64 && info.field("mem_clients_normal") > 1 << 20
    });
    gate.fail_log();
    gate.close("meta");
    let long = request(&[&[&b"EXISTS"[..]][..], &[&b"none"[..]; KEYS]].concat());
    slow.send(&[&request(&[b"SET", b"a", b"1"])[..], &request(&[b"SET", b"b", b"2"]), &long].concat());
    gate.wait();
    let mut round = || assert_eq!(other.text("PING"), "+PONG\r\n");
    // The first one may be answered in the round in which the worker tells of the log.
    (0..2).for_each(|_| round());
    gate.open();
    until("the long request has run", || gate.calls().iter().filter(|&&call| call == "meta").count() == KEYS);
    (0..2).for_each(|_| round());
    let expected = [b"$204800\r\n", &value[..], b"\r\n"].concat();
    (0..GETS).for_each(|_| assert!(slow.bytes(expected.len()) == expected));
    let said = String::from_utf8(slow.reply()).unwrap();
    assert!(said.starts_with("-ERR whether the last writes are kept is not known: "), "{said}");
    assert_eq!(slow.rest(), b"");
}

/// Each database has a log of its own. Clients of one whose log is whole lose nothing.
#[test]
fn a_failed_log_is_told_to_the_clients_of_its_database() {
    const LOST: &str = "-ERR whether the last writes are kept is not known: made by a test\r\n";
    let other = Arc::new(GatedBackend::default());
    other.gate().fail_log();
    let server = TestServer::start_with(Arc::new(GatedBackend::beside(other)), |_| {});
    let mut client = server.connect();
    let long = vec![b'v'; 300 << 10];
    assert_eq!(client.text("SET key value"), "+OK\r\n");
    assert_eq!(client.text("GET key"), "$5\r\nvalue\r\n");
    // Another thread runs this one.
    assert_eq!(client.ask(&[b"SET", b"long", &long]), b"+OK\r\n");
    // A client that leaves the other database has written there.
    let writes = ["SET key value\r\n", "SET key value\r\nZT.DB.USE default\r\n"];
    // These errors tell of a value.
    let looks = [
        "GET key\r\n",
        "INCR key\r\n",
        "INCRBYFLOAT key 1\r\n",
        "RENAME none key\r\n",
        "GETEX key EX -1\r\n",
        "OBJECT FREQ key\r\n",
    ];
    for lost in writes.into_iter().chain(looks).chain(["FLUSHALL\r\n"]) {
        let mut client = server.connect();
        assert_eq!(client.text("ZT.DB.USE other"), "+OK\r\n");
        client.send(lost.as_bytes());
        assert_eq!(String::from_utf8(client.rest()).unwrap(), LOST, "{lost}");
    }
    let mut client = server.connect();
    assert_eq!(client.text("ZT.DB.USE other"), "+OK\r\n");
    assert_eq!(client.ask(&[b"SET", b"long", &long]), LOST.as_bytes());
    assert_eq!(server.connect().text("FLUSHALL"), LOST);
}

/// Some databases were clear then, and the error did not say which ones were not.
#[test]
fn a_database_that_refuses_keeps_no_other_one_from_being_cleared() {
    let other = Arc::new(GatedBackend::default());
    let gate = other.gate();
    let backend = GatedBackend::beside(other);
    backend.gate().keep_keys();
    let server = TestServer::start_with(Arc::new(backend), |_| {});
    let mut client = server.connect();
    for database in ["default", "other"] {
        assert_eq!(client.text(&format!("ZT.DB.USE {database}")), "+OK\r\n");
        assert_eq!(client.text("SET key value"), "+OK\r\n");
    }
    assert_eq!(
        client.text("FLUSHALL"),
        "-ERR these databases may keep their keys: default: made by a test\r\n"
    );
    assert_eq!(client.text("EXISTS key"), ":0\r\n");
    assert_eq!(client.text("ZT.DB.USE default"), "+OK\r\n");
    assert_eq!(client.text("EXISTS key"), ":1\r\n");
    gate.keep_keys();
    assert_eq!(
        client.text("FLUSHALL"),
        "-ERR these databases may keep their keys: default: made by a test; other: made by a test\r\n"
    );
}
