//! Clients of a server meet at the same keys with SET, INCRBY, MSET, MSETNX, GETSET, GETDEL, RENAME, COPY and expiries.
//! A checker looks for an order of all commands that explains every reply; a real Redis passes, too.
//! `ZIPTIER_HISTORIES` says how many histories each server records at least, and `ZIPTIER_SEED` with which seed the
//! first begins.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ziptier::{Options, SsdOptions};
use ziptier_histories::{Answer, Call, Client, KEYS, Loss, record};
use ziptier_server::StoreBackend;
use ziptier_testing::{count, seed};

use crate::support::{Connection, PATIENCE, RealRedis, TestServer, request};

const CLIENTS: usize = 4;
/// With the reads at the end, a history has 200 calls.
const CALLS: usize = 48;
/// Histories of each of our own servers in CI.
const HISTORIES: u64 = 50;
/// Neighbours of the keys of an MSET: they lengthen the time between its first record and its last.
const NEIGHBOURS: usize = 24;

struct WireClient {
    connection: Connection,
    history: u64,
}

impl WireClient {
    fn key(&self, key: usize) -> String {
        format!("{key}:{:08}", self.history)
    }

    fn ask(&mut self, words: &[String]) -> String {
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        String::from_utf8(self.connection.ask(&words)).unwrap()
    }
}

/// `+OK`, `:1` and `:0`, and a missing source.
fn done(reply: &str) -> Answer {
    match reply {
        "+OK\r\n" | ":1\r\n" => Answer::Done(true),
        ":0\r\n" => Answer::Done(false),
        _ if reply.starts_with("-ERR no such key") => Answer::Done(false),
        _ => panic!("{reply:?} says neither yes nor no"),
    }
}

/// A number, as an integer or as a bulk string.
fn number(reply: &str) -> Answer {
    let text = match reply.strip_prefix(':') {
        Some(integer) => integer,
        None if reply == "$-1\r\n" => return Answer::Value(None),
        None => reply.split("\r\n").nth(1).unwrap_or_else(|| panic!("{reply:?} is no number")),
    };
    Answer::Value(Some(text.trim_end().parse().unwrap_or_else(|_| panic!("{reply:?} is no number"))))
}

/// Seconds that are left, as whether there is an expiry.
fn has_expiry(reply: &str) -> Answer {
    match reply {
        ":-2\r\n" => Answer::Value(None),
        ":-1\r\n" => Answer::Value(Some(0)),
        _ => Answer::Value(Some(1)),
    }
}

impl Client for WireClient {
    fn call(&mut self, call: &Call) -> Answer {
        let words = |text: String| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let key = |key: &usize| self.key(*key);
        let transfer = |command: &str, source: &usize, target: &usize| {
            format!("{command} {} {}", key(source), key(target))
        };
        let (request, read): (Vec<String>, fn(&str) -> Answer) = match call {
            Call::Get(k) => (words(format!("GET {}", key(k))), number),
            Call::HasExpiry(k) => (words(format!("TTL {}", key(k))), has_expiry),
            Call::Put(k, value) => (words(format!("SET {} {value}", key(k))), done),
            Call::PutNew(k, value) => (words(format!("SETNX {} {value}", key(k))), done),
            Call::Swap(k, value) => (words(format!("GETSET {} {value}", key(k))), number),
            Call::Take(k) => (words(format!("GETDEL {}", key(k))), number),
            Call::Add(k, added) => (words(format!("INCRBY {} {added}", key(k))), number),
            Call::Delete(k) => (words(format!("DEL {}", key(k))), done),
            Call::Expire(k) => (words(format!("EXPIRE {} 1000000", key(k))), done),
            Call::Persist(k) => (words(format!("PERSIST {}", key(k))), done),
            Call::ExpireNow(k) => (words(format!("PEXPIREAT {} 1", key(k))), done),
            Call::PutAll(puts) => {
                let mut request = words("MSET".to_owned());
                for (k, value) in puts {
                    request.extend([key(k), value.to_string()]);
                    for neighbour in 0..NEIGHBOURS {
                        request
                            .extend([format!("{}.{neighbour}", key(k)), format!("a neighbour of {value}")]);
                    }
                }
                (request, done)
            }
            Call::PutAllNew(puts) => {
                let puts = puts.iter().flat_map(|(k, value)| [key(k), value.to_string()]);
                (words("MSETNX".to_owned()).into_iter().chain(puts).collect(), done)
            }
            Call::Rename { source, target, replace: true } => {
                (words(transfer("RENAME", source, target)), done)
            }
            Call::Rename { source, target, replace: false } => {
                (words(transfer("RENAMENX", source, target)), done)
            }
            Call::Copy { source, target, replace } => {
                let mut request = words(transfer("COPY", source, target));
                request.extend(replace.then(|| "REPLACE".to_owned()));
                (request, done)
            }
        };
        let reply = self.ask(&request);
        if reply.starts_with("-OOM") { Answer::Refused } else { read(&reply) }
    }
}

/// Neighbours of all keys come and go, and strangers fill what room there is; then checkpoints are asked for.
fn churn(connection: &mut Connection, random: &mut fastrand::Rng, saves: bool) {
    let mut requests = Vec::new();
    for _ in 0..64 {
        let neighbour =
            format!("{}:{:08}/{}", random.usize(..KEYS), random.u32(..400), random.u8(..8)).into_bytes();
        let value = [b'.'; 200];
        match random.u8(..4) {
            0 => requests.extend(request(&[b"DEL", &neighbour])),
            1 => requests.extend(request(&[b"SET", &random.u16(..).to_le_bytes(), &value])),
            _ => requests.extend(request(&[b"SET", &neighbour, &value[..random.usize(..200)]])),
        }
    }
    if saves {
        requests.extend(request(&[b"BGSAVE"]));
    }
    connection.send(&requests);
    (0..64 + usize::from(saves)).for_each(|_| drop(connection.reply()));
}

struct EndsWhenDropped<'a>(&'a AtomicBool);

impl Drop for EndsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Records `histories`, and further ones until `has_done` returns that the server has done its purpose.
fn check(
    address: SocketAddr,
    loss: Loss,
    histories: u64,
    saves: bool,
    has_done: impl Fn(&mut Connection) -> bool,
) {
    let (histories, first) = (count("ZIPTIER_HISTORIES", histories), seed());
    let done = AtomicBool::new(false);
    let mut overlapping = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = Connection::to(address);
            let mut random = fastrand::Rng::with_seed(first);
            while !done.load(Ordering::Relaxed) {
                churn(&mut connection, &mut random, saves);
            }
        });
        // Ends the other thread even if a history is refused.
        let _ends = EndsWhenDropped(&done);
        let mut connection = Connection::to(address);
        let mut clients: Vec<_> =
            (0..CLIENTS).map(|_| WireClient { connection: Connection::to(address), history: 0 }).collect();
        let mut enough = None;
        for history in first.. {
            if history - first >= histories {
                // A disk that is slow may hold up a checkpoint for as long as thousands of histories take.
                let enough = *enough.get_or_insert_with(Instant::now);
                if has_done(&mut connection) {
                    println!("{} histories", history - first);
                    break;
                }
                assert!(enough.elapsed() < PATIENCE, "the server does not do what it is there for");
            }
            clients.iter_mut().for_each(|client| client.history = history);
            let recorded = record(history, &mut clients, CALLS);
            recorded.check(loss).unwrap_or_else(|error| panic!("{error}"));
            overlapping += recorded.overlapping();
        }
    });
    assert!(overlapping > 0, "no command of any history met another one");
}

/// Histories of one of our own servers, which must have counted something under all of these names in the end.
fn check_own(server: &TestServer, loss: Loss, saves: bool, counted: &[&str]) {
    check(server.address, loss, HISTORIES, saves, |connection| {
        let info = server.info(connection);
        counted.iter().all(|name| info.field(name) > 0)
    });
}

#[test]
fn a_store_in_memory() {
    check_own(&TestServer::start_store(), Loss::Never, false, &["splits", "packs_foreground"]);
}

#[test]
fn a_store_with_a_folder() {
    check_own(&TestServer::start_durable(), Loss::Never, false, &["splits", "log_last_lsn"]);
}

#[test]
fn a_store_with_a_folder_and_an_ssd_that_is_saved_all_the_time() {
    let ssd = Some(SsdOptions { path: None, limit_bytes: 64 << 20 });
    let options = Options { ssd, memory_limit_bytes: Some(1 << 20), ..Options::default() };
    let server = TestServer::start_durable_with(options);
    check_own(&server, Loss::Never, true, &["sent_to_ssd", "reads_below", "checkpoints"]);
}

#[test]
fn a_cache_that_evicts() {
    let options = Options { eviction: true, memory_limit_bytes: Some(1 << 20), ..Options::default() };
    let server = TestServer::start_with(Arc::new(StoreBackend::open(options).unwrap()), |_| {});
    check_own(&server, Loss::Evicted, false, &["evicted_keys"]);
}

#[test]
fn a_real_redis() {
    check(RealRedis::start().address, Loss::Never, 40, false, |_| true);
}
