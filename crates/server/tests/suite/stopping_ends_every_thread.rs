//! A server that is told to stop must stop, with clients connected, idle or in the middle of a request.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ziptier::{DiskHandle, DurableOptions, Options};
use ziptier_media::testing::PausingDisk;
use ziptier_server::{Backend, Config, Save, Saving, ServeError, Server, StoreBackend};

use crate::support::gated_backend::GatedBackend;
use crate::support::map_backend::MapBackend;
use crate::support::{TestServer, many, request};

#[test]
fn shutdown_closes_every_connection_and_returns() {
    let server = TestServer::start();
    let mut idle = server.connect();
    idle.text("PING");
    let mut unfinished = server.connect();
    unfinished.send(b"*2\r\n$3\r\nGET\r\n$5\r\nab");
    let mut last = server.connect();
    last.send(b"PING\r\nSHUTDOWN NOSAVE\r\nPING\r\n");
    assert_eq!(last.rest(), b"+PONG\r\n");
    assert_eq!(idle.rest(), b"");
    assert_eq!(unfinished.rest(), b"");
    server.join().unwrap();
}

/// A client whose `MSET` a thread of its own ran got no reply, and did not know whether its records were there.
#[test]
fn requests_on_threads_of_their_own_are_answered_at_a_stop() {
    let backend = Arc::new(GatedBackend::default());
    let gate = backend.gate();
    let server = TestServer::start_with(backend, |_| {});
    let args: Vec<_> = (0..2000).map(|number| format!("key:{number}")).collect();
    let args: Vec<&[u8]> =
        [&b"MSET"[..]].into_iter().chain(args.iter().map(|word| word.as_bytes())).collect();
    let (mut last, mut clients) = (server.connect(), [(); 5].map(|()| server.connect()));
    gate.close("write");
    let (long, question) = (request(&args), request(&[b"INFO"]));
    let mut awaited_bytes = server.info(&mut last).field("total_net_input_bytes");
    for client in &mut clients {
        client.send(&long);
        awaited_bytes += long.len() as u64;
        // A worker hands a request over in the turn that reads its end. Three requests run, and two wait for a thread.
        server.wait_for(&mut last, "the request has been read", |info| {
            awaited_bytes += question.len() as u64;
            info.field("total_net_input_bytes") == awaited_bytes
        });
    }
    // A thread that has taken a request may begin with it only after a stop, and then refuses it.
    ziptier_testing::until("three requests run", || {
        gate.calls().iter().filter(|&&call| call == "write").count() == 3
    });
    // A stop has the store end whatever its calls wait for.
    last.send(b"SHUTDOWN\r\n");
    assert_eq!(last.rest(), b"");
    let replies = clients.map(|mut client| String::from_utf8(client.rest()).unwrap());
    server.join().unwrap();
    let run = replies.iter().filter(|reply| *reply == "+OK\r\n").count();
    let refused =
        replies.iter().filter(|reply| reply.starts_with("-ERR the server stops and has not run")).count();
    assert_eq!((run, refused), (3, 2), "{replies:?}");
}

/// The other threads end as at any stop, and the server tells of the panic after that.
#[test]
fn a_long_command_that_panics_holds_up_no_stop() {
    let backend = Arc::new(GatedBackend::default());
    let gate = backend.gate();
    let server = TestServer::start_with(backend.clone(), |_| {});
    let (mut last, mut client) = (server.connect(), server.connect());
    gate.close("write");
    gate.panic_in("write");
    client.send(&[&many("MSET")[..], b"PING\r\n"].concat());
    gate.wait();
    // A stop has the store let the call go on.
    last.send(b"SHUTDOWN\r\n");
    assert_eq!(last.rest(), b"");
    assert_eq!(client.rest(), b"");
    assert!(matches!(server.join(), Err(ServeError::WorkerPanicked)));
    assert_eq!(Arc::strong_count(&backend), 1, "a thread goes on");
}

/// A client that had sent more requests behind a long one got no reply to them, and did not know whether they had run.
#[test]
fn requests_behind_a_long_command_are_refused_at_a_stop() {
    let refused =
        "-ERR the server stops and has not run this request; send it again once the server is back\r\n";
    let words: Vec<String> = (0..6_000).map(|number| format!("key:{number:05}")).collect();
    let load: Vec<&[u8]> =
        [&b"MSET"[..]].into_iter().chain(words.iter().map(|word| word.as_bytes())).collect();
    for (method, command, reply) in [
        ("len", "DBSIZE", ":3000\r\n"),
        // This one has found some keys, and says nothing before it has found all.
        ("keys_from", "KEYS *", refused),
    ] {
        let backend = Arc::new(GatedBackend::default());
        let gate = backend.gate();
        let server = TestServer::start_with(backend, |_| {});
        let (mut last, mut client) = (server.connect(), server.connect());
        assert_eq!(client.ask(&load), b"+OK\r\n");
        gate.slow_walks();
        gate.close(method);
        // They arrive together.
        client.send(format!("{command}\r\nSET a 1\r\nGET a\r\nGET").as_bytes());
        gate.wait();
        last.send(b"SHUTDOWN\r\n");
        assert_eq!(last.rest(), b"");
        let replies = String::from_utf8(client.rest()).unwrap();
        server.join().unwrap();
        assert_eq!(replies, format!("{reply}{refused}{refused}"), "{command}");
    }
}

#[test]
fn addresses_that_cannot_be_had_are_named() {
    let bind = |adjust: &dyn Fn(&mut Config)| {
        let mut config = Config::default();
        config.port = 0;
        adjust(&mut config);
        Server::bind(config, Arc::new(MapBackend::default())).map(|server| server.address())
    };
    let taken = bind(&|_| {}).unwrap();
    assert!(taken.ip().is_loopback() && taken.port() != 0);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(matches!(bind(&|config| config.port = port), Err(ServeError::AddressInUse { .. })));
    let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    assert!(matches!(bind(&|config| config.bind = everywhere), Err(ServeError::NotLoopback { .. })));
    assert!(matches!(bind(&|config| config.threads = 0), Err(ServeError::NoThreads)));
    bind(&|config| (config.bind, config.protected_mode) = (everywhere, false)).unwrap();
}

/// The checkpoint that is under way when `SHUTDOWN SAVE` arrives lacks the newest writes. A second one has
/// them.
#[test]
fn shutdown_save_makes_a_checkpoint_after_one_that_is_under_way() {
    let disk = PausingDisk::new();
    let mut durable = DurableOptions::new("/data");
    durable.disk = DiskHandle(Arc::new(disk.clone()));
    durable.log.segment_bytes = 1 << 20;
    let options = Options { durable: Some(durable), ..Options::default() };
    let backend = Arc::new(StoreBackend::open(options.clone()).unwrap());
    let server = TestServer::start_with(backend.clone(), |config| config.threads = 1);
    let mut last = server.connect();
    assert_eq!(last.text("SET a 1"), "+OK\r\n");
    let saving = || assert_eq!(backend.save(Save::Make), Ok(Saving::Done));
    disk.during("/data/segments", saving, || {
        assert_eq!(last.text("SET b 2"), "+OK\r\n");
        assert_eq!(last.text("SAVE"), "-ERR Background save already in progress\r\n");
        last.send(b"SHUTDOWN SAVE\r\n");
        // The one worker has read that by its second round.
        let mut other = server.connect();
        assert_eq!([(); 3].map(|()| other.text("PING")), ["+PONG\r\n"; 3]);
    });
    assert_eq!(last.rest(), b"");
    server.join().unwrap();
    let stats = backend.store().checkpoint_stats().unwrap();
    assert_eq!((stats.checkpoints, stats.start_lsn), (2, 3));
}

#[test]
fn a_stopped_backend_saves_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let durable = Some(DurableOptions::new(folder.path()));
    let backend = StoreBackend::open(Options { durable, ..Options::default() }).unwrap();
    assert_eq!(backend.save(Save::Make), Ok(Saving::Done));
    backend.stop();
    assert!(backend.save(Save::Make).is_err());
    backend.close().unwrap();
}

/// A count may read all of an SSD.
#[test]
fn a_stopped_backend_counts_no_more_leaves() {
    let backend = StoreBackend::open(Options { background_threads: 0, ..Options::default() }).unwrap();
    backend.put(b"key", b"value", None).unwrap();
    assert_eq!(backend.count(), Ok(1));
    backend.stop();
    assert!(backend.count().unwrap_err().to_string().starts_with("the server stops"));
}
