//! Operators change limits of a server that they cannot restart. A half-made change, or one that is shown and not in
//! force, is worse than none.

use std::sync::Arc;

use ziptier_server::{Backend, StoreBackend};
use ziptier_testing::until;

use crate::support;
use crate::support::map_backend::MapBackend;
use crate::support::{Connection, RealRedis, TestServer, differences};

/// One request per line; `~` stands for an empty argument, `_` for a blank in one.
const REQUESTS: &str = "CONFIG SET
CONFIG SET foo
CONFIG SET foo bar
CONFIG SET timeout
CONFIG SET timeout 10 foo
CONFIG SET timeout 10 foo bar
CONFIG GET timeout
CONFIG SET timeout 10 timeout 20
CONFIG SET timeout 10 TIMEOUT 20
CONFIG SET timeout x
CONFIG SET timeout ~
CONFIG SET timeout -1
CONFIG SET timeout 010
CONFIG SET timeout +5
CONFIG SET timeout 99999999999999
CONFIG SET timeout 9223372036854775808
CONFIG SET timeout 2147483648
CONFIG GET timeout
CONFIG SET TIMEOUT 5000 tcp-keepalive 7
CONFIG GET timeout
CONFIG GET tcp-keepalive
CONFIG SET tcp-keepalive -1
CONFIG SET databases 10
CONFIG SET io-threads 99
CONFIG SET maxmemory x
CONFIG SET maxmemory 100mb
CONFIG GET maxmemory
CONFIG SET maxmemory 1gb
CONFIG GET maxmemory
CONFIG SET maxmemory 900M timeout x
CONFIG GET maxmemory
CONFIG SET maxmemory 1.5gb
CONFIG SET maxmemory -1
CONFIG SET maxmemory 1tb
CONFIG SET maxmemory ~
CONFIG GET maxmemory
CONFIG SET maxmemory-policy noeviction
CONFIG SET maxmemory-policy NOEVICTION
CONFIG SET maxclients 0
CONFIG SET maxclients 4294967296
CONFIG SET maxclients x
CONFIG SET maxclients 200
CONFIG GET maxclients
CONFIG GET client-output-buffer-limit
CONFIG SET client-output-buffer-limit x
CONFIG SET client-output-buffer-limit ~
CONFIG SET client-output-buffer-limit normal_1_2
CONFIG SET client-output-buffer-limit normal_x_1_1
CONFIG SET client-output-buffer-limit normal_1_1_x
CONFIG SET client-output-buffer-limit normal_-1_0_0
CONFIG SET client-output-buffer-limit normal_1_1_-1
CONFIG SET client-output-buffer-limit other_1_2_3
CONFIG SET client-output-buffer-limit master_1_2_3
CONFIG GET client-output-buffer-limit
CONFIG SET client-output-buffer-limit slave_1_2_3_pubsub_4_5_6
CONFIG SET client-output-buffer-limit replica_1gb_2_3
CONFIG SET client-output-buffer-limit NORMAL_2gb_1gb_60
CONFIG GET client-output-buffer-limit
CONFIG SET save ~
CONFIG SET appendonly no
CONFIG SET protected-mode yes
CONFIG GET requirepass
CONFIG SET requirepass ~
CONFIG RESETSTAT
CONFIG RESETSTAT x
CONFIG REWRITE
CONFIG REWRITE x
CONFIG HELP
CONFIG HELP x
CONFIG GET a b timeout TIMEOUT time*
CLIENT HELP x
CLIENT KILL
CLIENT KILL 1.2.3.4:5
CLIENT KILL ID
CLIENT KILL ID x
CLIENT KILL ID 0
CLIENT KILL ID 999999
CLIENT KILL ID 999999 FOO
CLIENT KILL ID 999999 FOO x
CLIENT KILL TYPE x
CLIENT KILL TYPE x ID 1
CLIENT KILL TYPE pubsub ID 999999
CLIENT KILL ID 999999 SKIPME maybe
CLIENT KILL ID 999999 SKIPME no
CLIENT KILL USER nobody
CLIENT KILL USER nobody ID 1
CLIENT KILL ADDR 1.2.3.4:5 ID 1
CLIENT KILL LADDR 1.2.3.4:5 SKIPME no
COMMAND HELP x
OBJECT HELP x
TIME x";

#[test]
fn replies_are_those_of_redis() {
    let redis = RealRedis::start();
    let server = TestServer::start();
    let (mut theirs, mut ours) = (Connection::to(redis.address), server.connect());
    let different = differences(&mut theirs, &mut ours, REQUESTS, |_| false);
    assert!(different.is_empty(), "{different}");
}

#[test]
fn help_has_lines() {
    let server = TestServer::start();
    let mut connection = server.connect();
    for command in ["CONFIG", "CLIENT", "COMMAND", "OBJECT", "MEMORY"] {
        let help = connection.text(&format!("{command} HELP"));
        let first = format!("+{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n");
        assert!(help.contains(&first) && help.ends_with("+HELP\r\n+    Prints this help.\r\n"), "{help}");
    }
}

#[test]
fn policies_that_are_not_there_are_named() {
    let server = TestServer::start_store();
    let mut connection = server.connect();
    let refused = connection.text("CONFIG SET maxmemory-policy allkeys-lru");
    assert!(refused.contains("one of the following: noeviction, allkeys-s3fifo\r\n"), "{refused}");
    assert_eq!(connection.text("CONFIG SET maxmemory-policy noeviction"), "+OK\r\n");
}

/// A full server is told to evict, and to stop.
#[test]
fn another_policy_is_in_force_at_once() {
    let options = ziptier::Options { memory_limit_bytes: Some(1 << 20), ..ziptier::Options::default() };
    let server = TestServer::start_with(Arc::new(StoreBackend::open(options).unwrap()), |_| {});
    let mut connection = server.connect();
    let mut number = 0u32;
    let mut fill = |connection: &mut Connection, most: u32| {
        let until = number.saturating_add(most);
        while number < until {
            number += 1;
            let reply = connection.ask(&[b"SET", number.to_string().as_bytes(), &[b'v'; 300]]);
            match reply.as_slice() {
                b"+OK\r\n" => {}
                refused => return refused.starts_with(b"-OOM "),
            }
        }
        false
    };
    let tells = |connection: &mut Connection, policy: &str| {
        let reply = format!("*2\r\n$16\r\nmaxmemory-policy\r\n${}\r\n{policy}\r\n", policy.len());
        assert_eq!(connection.text("CONFIG GET maxmemory-policy"), reply);
        let info = connection.text("INFO");
        assert!(info.contains(&format!("\r\nmaxmemory_policy:{policy}\r\n")), "{info}");
        server.info(connection).field("evicted_keys")
    };
    assert!(fill(&mut connection, u32::MAX));
    assert_eq!(tells(&mut connection, "noeviction"), 0);
    for _ in 0..2 {
        assert_eq!(connection.text("CONFIG SET maxmemory-policy AllKeys-S3FIFO timeout 0"), "+OK\r\n");
        assert!(!fill(&mut connection, 2000));
        let evicted = tells(&mut connection, "allkeys-s3fifo");
        assert!(evicted > 0);
        let refused = connection.text("CONFIG SET maxmemory-policy noeviction timeout x");
        assert!(refused.starts_with("-ERR CONFIG SET failed"), "{refused}");
        assert!(!fill(&mut connection, 100));
        assert_eq!(connection.text("CONFIG SET maxmemory-policy noeviction"), "+OK\r\n");
        let evicted = tells(&mut connection, "noeviction");
        assert!(fill(&mut connection, u32::MAX));
        assert_eq!(tells(&mut connection, "noeviction"), evicted);
    }
}

/// Counters of the SSD are not the codec's.
#[test]
fn the_ssd_has_a_section_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let ssd = Some(ziptier::SsdOptions { path: Some(folder.path().to_owned()), limit_bytes: 64 << 20 });
    let store = StoreBackend::open(ziptier::Options { ssd, ..ziptier::Options::default() }).unwrap();
    let server = TestServer::start_with(Arc::new(store), |_| {});
    let mut connection = server.connect();
    let section = connection.text("INFO ssd");
    assert!(section.contains("\r\n# SSD\r\nssd_limit_bytes:67108864\r\n"), "{section}");
    assert!(!connection.text("INFO codec").contains("ssd"));
    let page = connection.text("INFO");
    assert!(page.contains("\r\n\r\n# SSD\r\nssd_limit_bytes:"), "{page}");
    // Nor does a server without one have it.
    let server = TestServer::start_store();
    let mut connection = server.connect();
    assert_eq!(connection.text("INFO ssd"), "$0\r\n\r\n");
    let page = connection.text("INFO");
    assert!(!page.contains("# SSD") && !page.contains("\r\n\r\n\r\n# "), "{page}");
}

/// A start without `--ssd` of a store that has leaves there lifts the limit, and 2^64 - 1 bytes would be a puzzle.
#[test]
fn an_ssd_without_a_limit_shows_none() {
    let folder = tempfile::tempdir().unwrap();
    let durable = Some(ziptier::DurableOptions::new(folder.path()));
    let ssd = Some(ziptier::SsdOptions { path: None, limit_bytes: 64 << 20 });
    let limited =
        ziptier::Options { durable, memory_limit_bytes: Some(2 << 20), ..ziptier::Options::default() };
    let backend = StoreBackend::open(ziptier::Options { ssd, ..limited.clone() }).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..6000_u32 {
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(1000).collect();
        backend.put(&number.to_be_bytes(), &value, None).unwrap();
    }
    assert!(backend.store().ssd().unwrap().leaves > 0);
    backend.close().unwrap();
    let server = TestServer::start_with(Arc::new(StoreBackend::open(limited).unwrap()), |_| {});
    let mut connection = server.connect();
    assert_eq!(server.info(&mut connection).field("ssd_limit_bytes"), 0);
    assert!(server.info(&mut connection).field("ssd_leaves") > 0);
}

#[test]
fn eviction_is_refused_beside_an_ssd() {
    let folder = tempfile::tempdir().unwrap();
    let ssd = Some(ziptier::SsdOptions { path: Some(folder.path().to_owned()), limit_bytes: 64 << 20 });
    let options = ziptier::Options { ssd, ..ziptier::Options::default() };
    let server = TestServer::start_with(Arc::new(StoreBackend::open(options).unwrap()), |_| {});
    let mut connection = server.connect();
    let refused = connection.text("CONFIG SET maxmemory-policy allkeys-s3fifo");
    let words = "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - ";
    assert!(refused.starts_with(words) && refused.contains("keeps nothing on SSD"), "{refused}");
    assert!(connection.text("CONFIG GET maxmemory-policy").contains("\r\nnoeviction\r\n"));
    assert_eq!(connection.text("CONFIG SET maxmemory-policy noeviction"), "+OK\r\n");
}

/// The store of a server that was started without a limit gets one, and loses it again.
#[test]
fn a_new_memory_limit_is_in_force_at_once() {
    let store = StoreBackend::open(ziptier::Options::default()).unwrap();
    let server = TestServer::start_with(Arc::new(store), |_| {});
    let mut connection = server.connect();
    let value = vec![b'v'; 1 << 20];
    assert_eq!(connection.ask(&[b"SET", b"a", &value]), b"+OK\r\n");
    assert_eq!(connection.text("CONFIG SET maxmemory 1mb"), "+OK\r\n");
    assert!(connection.text("INFO memory").contains("\r\nmaxmemory:1048576\r\n"));
    let refused = connection.ask(&[b"SET", b"b", &value]);
    assert!(refused.starts_with(b"-OOM "), "{}", String::from_utf8_lossy(&refused));
    assert_eq!(connection.text("CONFIG SET maxmemory 0"), "+OK\r\n");
    assert!(connection.text("INFO memory").contains("\r\nmaxmemory:0\r\n"));
    assert_eq!(connection.ask(&[b"SET", b"b", &value]), b"+OK\r\n");
}

#[test]
fn fewer_clients_are_let_in_from_now_on() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!(second.text("PING"), "+PONG\r\n");
    assert_eq!(first.text("CONFIG SET maxclients 2"), "+OK\r\n");
    assert_eq!(server.connect().rest(), b"-ERR max number of clients reached\r\n");
    assert!(first.text("INFO clients").contains("\r\nmaxclients:2\r\n"));
    assert_eq!(first.text("CONFIG SET maxclients 3"), "+OK\r\n");
    assert_eq!(server.connect().text("PING"), "+PONG\r\n");
    let refused = first.text("CONFIG SET maxclients 4294967295");
    assert!(refused.contains("The operating system is not able to handle"), "{refused}");
}

#[test]
fn counters_begin_anew() {
    let server = TestServer::start();
    let mut connection = server.connect();
    connection.text("GET missing");
    connection.text("FOO");
    assert!(connection.text("INFO stats").contains("keyspace_misses:1\r\n"));
    assert_eq!(connection.text("CONFIG RESETSTAT"), "+OK\r\n");
    let stats = connection.text("INFO stats");
    for zero in ["keyspace_misses:0\r\n", "total_error_replies:0\r\n", "total_connections_received:0\r\n"] {
        assert!(stats.contains(zero), "{stats}");
    }
}

#[test]
fn killed_clients_are_gone_and_others_stay() {
    let server = TestServer::start_with(Arc::new(MapBackend::default()), |config| config.threads = 3);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let ids: Vec<String> = clients.iter_mut().map(|client| client.text("CLIENT ID")).collect();
    let id = |index: usize| ids[index].trim_start_matches(':').trim_end().to_owned();
    let killed = format!("CLIENT KILL ID {}", id(1));
    assert_eq!(clients[0].text(&killed), ":1\r\n");
    assert_eq!(clients[1].rest(), b"");
    assert_eq!(clients[0].text(&killed), ":0\r\n");
    assert!(!clients[0].text("CLIENT LIST").contains(&format!("id={} ", id(1))));
    let address = clients[2].stream.local_addr().unwrap();
    assert_eq!(clients[0].text(&format!("CLIENT KILL {address}")), "+OK\r\n");
    assert_eq!(clients[2].rest(), b"");
    // The others, but not the one that asks.
    assert_eq!(clients[0].text("CLIENT KILL TYPE normal SKIPME yes"), ":1\r\n");
    assert_eq!(clients[3].rest(), b"");
    assert_eq!(clients[0].text("PING"), "+PONG\r\n");
    assert_eq!(clients[0].text(&format!("CLIENT KILL ID {} SKIPME no", id(0))), ":1\r\n");
    assert_eq!(clients[0].rest(), b"");
}

#[test]
fn clients_are_listed_as_is_asked() {
    let server = TestServer::start();
    // Each is asked before the next one comes, so the IDs ascend.
    let connected = |_| {
        let mut client = server.connect();
        let id = client.text("CLIENT ID").trim_start_matches(':').trim_end().to_owned();
        (client, id)
    };
    let (mut clients, ids): (Vec<_>, Vec<String>) = (0..3).map(connected).unzip();
    let mut listed = |asked: &str| -> Vec<String> {
        let page = clients[0].text(asked);
        let lines = page.lines().filter_map(|line| line.strip_prefix("id="));
        lines.map(|line| line[..line.find(' ').unwrap()].to_owned()).collect()
    };
    assert_eq!(listed("CLIENT LIST"), ids);
    assert_eq!(listed("CLIENT LIST TYPE normal"), ids);
    assert_eq!(listed("client list id 4711"), [""; 0]);
    assert_eq!(listed("CLIENT LIST TYPE pubsub"), [""; 0]);
    assert_eq!(
        listed(&format!("CLIENT LIST ID {} 4711 {} {}", ids[2], ids[0], ids[2])),
        [&*ids[0], &*ids[2]]
    );
    for (asked, refused) in [
        ("CLIENT LIST ID 0", "Invalid client ID"),
        ("CLIENT LIST ID 1 x", "Invalid client ID"),
        ("CLIENT LIST TYPE x", "Unknown client type 'x'"),
        ("CLIENT LIST ID", "syntax error"),
        ("CLIENT LIST 5", "syntax error"),
    ] {
        let told = clients[0].text(asked);
        assert!(told.starts_with("-ERR") && told.contains(refused), "{asked}: {told}");
    }
}

/// A client that does not read goes once it is owed more than the limit; without a limit it waits.
#[test]
fn slow_readers_go_where_a_limit_says_so() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let value = vec![b'v'; 200 << 10];
    assert_eq!(connection.ask(&[b"SET", b"k", &value]), b"+OK\r\n");
    assert_eq!(
        connection.ask(&[b"CONFIG", b"SET", b"client-output-buffer-limit", b"normal 2mb 0 0"]),
        b"+OK\r\n"
    );
    let mut slow = server.connect();
    let id = slow.text("CLIENT ID").trim_start_matches(':').trim_end().to_owned();
    // More than both sockets' buffers take.
    slow.send(&support::request(&[b"GET", b"k"]).repeat(200));
    let listed = |connection: &mut Connection| connection.text("CLIENT LIST").contains(&format!("id={id} "));
    until("the slow client has gone", || !listed(&mut connection));
    assert_eq!(connection.text("PING"), "+PONG\r\n");
}

/// The system watches every connection for peers that vanish.
#[test]
fn connections_are_kept_alive_as_is_said() {
    let server = TestServer::start();
    let timer = |connection: &Connection| {
        let mut timer = String::new();
        // Timer 1 watches what the peer has not acknowledged yet.
        until("the peer has acknowledged everything", || {
            timer = connection.servers_end().map_or(String::new(), |row| row[5].clone());
            !timer.is_empty() && !timer.starts_with("01:")
        });
        timer
    };
    let mut first = server.connect();
    first.text("PING");
    // Timer 2 is that of keepalive.
    assert!(timer(&first).starts_with("02:"), "{}", timer(&first));
    first.text("CONFIG SET tcp-keepalive 0");
    let mut second = server.connect();
    second.text("PING");
    assert!(timer(&second).starts_with("00:"), "{}", timer(&second));
}

/// Sends `EXISTS` with a key of so many bytes, and keeps its last two bytes back.
fn begin_large(connection: &mut Connection, key_bytes: usize) {
    connection.send(format!("*2\r\n$6\r\nEXISTS\r\n${key_bytes}\r\n").as_bytes());
    let piece = vec![b'k'; 1 << 20];
    for begun in (0..key_bytes).step_by(piece.len()) {
        connection.send(&piece[..piece.len().min(key_bytes - begun)]);
    }
}

fn finish_large(connection: &mut Connection) -> Vec<u8> {
    connection.send(b"\r\n");
    connection.reply()
}

fn is_refused(reply: &[u8]) -> bool {
    reply.starts_with(b"-OOM ")
}

/// An operator lowered `maxmemory`, and clients could hold as much as before.
#[test]
fn what_clients_may_hold_follows_the_memory_limit() {
    // More than a quarter of the lower limit, and more than half of a quarter of the higher one.
    const LARGE: usize = 33 << 20;
    const LOWER_MIB: u64 = 128;
    const HIGHER_MIB: u64 = 240;
    let server = TestServer::start_with(Arc::new(MapBackend::default()), |config| {
        config.memory_limit_bytes = Some(LOWER_MIB << 20);
    });
    let mut operator = server.connect();
    let mut set_limit = |mib: u64| {
        assert_eq!(operator.text(&format!("CONFIG SET maxmemory {mib}mb")), "+OK\r\n");
        let shown = operator.text("CONFIG GET maxmemory-clients");
        assert!(shown.ends_with(&format!("\r\n{}\r\n", mib << 18)), "{shown}");
        let info = server.info(&mut operator);
        assert_eq!(info.field("maxmemory"), mib << 20);
        // The limit of the process is the sum: the store gets what clients leave of it.
        let (store, clients) = (info.field("store_limit_bytes"), info.field("mem_clients_normal"));
        assert!(store + clients <= mib << 20, "{store} for the store beside {clients} for clients");
        clients
    };
    let ask = |key_bytes: usize| {
        let mut client = server.connect();
        begin_large(&mut client, key_bytes);
        finish_large(&mut client)
    };

    assert!(is_refused(&ask(LARGE)), "more than all clients may hold");
    set_limit(HIGHER_MIB);
    assert_eq!(ask(LARGE), b":0\r\n");
    let (mut holder, mut bystander) = (server.connect(), server.connect());
    // A reply leaves before what its request held is given back.
    let wait_for_none = || {
        server.wait_for(&mut server.connect(), "requests that were answered are given back", |info| {
            info.field("mem_clients_normal") == 0
        });
    };
    wait_for_none();
    begin_large(&mut holder, LARGE);
    server.wait_for(&mut bystander, "the request has come", |info| {
        info.field("mem_clients_normal") >= LARGE as u64
    });
    assert!(is_refused(&ask(LARGE)), "two at a time are more than clients may hold");

    // A client that holds more than the new limit keeps its memory, and no other client gets any.
    assert!(set_limit(LOWER_MIB) >= LARGE as u64);
    assert!(is_refused(&ask(1 << 20)));
    assert_eq!(finish_large(&mut holder), b":0\r\n");
    wait_for_none();
    assert_eq!(ask(1 << 20), b":0\r\n");
    assert!(is_refused(&ask(LARGE)));

    set_limit(HIGHER_MIB);
    assert_eq!(ask(LARGE), b":0\r\n");
    // Without a limit clients have what a server has that was started without one.
    assert_eq!(bystander.text("CONFIG SET maxmemory 0"), "+OK\r\n");
    let unlimited = TestServer::start().connect().text("CONFIG GET maxmemory-clients");
    assert_eq!(bystander.text("CONFIG GET maxmemory-clients"), unlimited);
}

/// A program that embeds a server may set the clients' budget. The memory limit then does not determine it.
#[test]
fn a_budget_of_its_own_stays() {
    const BUDGET: usize = 5 << 20;
    let server = TestServer::start_with(Arc::new(MapBackend::default()), |config| {
        config.client_bytes_max = Some(BUDGET);
    });
    let mut operator = server.connect();
    assert_eq!(operator.text("CONFIG SET maxmemory 1gb"), "+OK\r\n");
    let shown = operator.text("CONFIG GET maxmemory-clients");
    assert!(shown.ends_with(&format!("\r\n{BUDGET}\r\n")), "{shown}");
}
