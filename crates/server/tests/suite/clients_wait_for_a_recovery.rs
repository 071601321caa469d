//! A recovering server says so, as Redis does. Clients that could not even connect would take it for dead. The test
//! holds the recovery, so nothing here depends on time.

use std::sync::Arc;
use std::thread::JoinHandle;

use ziptier_server::{Backend, Config, ExpectedStore, Opener, Password, ServeError, Server, Stopper};

use crate::support::map_backend::MapBackend;
use crate::support::{Connection, Info, RealRedis, differences};

/// A server whose store the test holds back.
struct Loading {
    address: std::net::SocketAddr,
    opener: Opener,
    stopper: Stopper,
    running: JoinHandle<Result<(), ServeError>>,
}

impl Loading {
    fn start(adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.port = 0;
        config.threads = 2;
        adjust(&mut config);
        let server = Server::listen(config).unwrap();
        let (address, opener, stopper) = (server.address(), server.opener(), server.stopper());
        Self { address, opener, stopper, running: std::thread::spawn(move || server.run()) }
    }

    fn stop(self) {
        self.stopper.stop();
        self.running.join().unwrap().unwrap();
    }
}

#[test]
fn a_connection_goes_on_when_the_store_is_there() {
    let loading = Loading::start(|config| config.memory_limit_bytes = Some(1 << 30));
    let mut connection = Connection::to(loading.address);
    let refused = "-LOADING Redis is loading the dataset in memory\r\n";
    for line in ["GET k", "SET k v", "PING", "DBSIZE", "FLUSHALL", "SCAN 0", "SAVE", "MGET a b c", "KEYS *"] {
        assert_eq!(connection.text(line), refused, "{line}");
    }
    loading.opener.progress(25, 100);
    let info = connection.text("INFO");
    assert!(
        info.contains("\r\nloading:1\r\n") && info.contains("\r\nloading_loaded_perc:25.00\r\n"),
        "{info}"
    );
    // A pipeline of large values is refused without a look at memory.
    let value = vec![b'v'; 1 << 20];
    assert_eq!(connection.ask(&[b"SET", b"k", &value]), refused.as_bytes());
    connection.text("CLIENT SETNAME early");
    assert_eq!(connection.text("CONFIG SET timeout 5000"), "+OK\r\n");

    let backend = Arc::new(MapBackend::default());
    backend.put(b"k", b"recovered", None).unwrap();
    loading.opener.open(backend);
    assert_eq!(connection.text("GET k"), "$9\r\nrecovered\r\n");
    assert_eq!(connection.text("CLIENT GETNAME"), "$5\r\nearly\r\n");
    let info = connection.text("INFO");
    assert!(info.contains("\r\nloading:0\r\n") && !info.contains("loading_start_time"), "{info}");
    assert!(connection.text("CONFIG GET timeout").contains("5000"));
    loading.stop();
}

/// An operator who looks at a server that loads must not take it for one without a folder.
#[test]
fn settings_of_the_store_are_told_while_it_loads() {
    let expected = |durability: Option<&str>, evicts| {
        Loading::start(|config| {
            config.expected_store = ExpectedStore { durability: durability.map(str::to_owned), evicts };
        })
    };
    let loading = expected(Some("always"), true);
    let mut connection = Connection::to(loading.address);
    let info = connection.text("INFO");
    for field in ["loading:1", "aof_enabled:1", "durability:always", "maxmemory_policy:allkeys-s3fifo"] {
        assert!(info.contains(&format!("\r\n{field}\r\n")), "{field}: {info}");
    }
    let settings = connection.text("CONFIG GET append* maxmemory-policy");
    for words in ["appendonly\r\n$3\r\nyes\r\n", "appendfsync\r\n$6\r\nalways\r\n", "allkeys-s3fifo"] {
        assert!(settings.contains(words), "{words}: {settings}");
    }
    let started_ms = Info(info).field("started_unix_ms");
    assert_eq!(connection.text("LASTSAVE"), format!(":{}\r\n", started_ms / 1000));
    loading.stop();

    let loading = expected(None, false);
    let mut connection = Connection::to(loading.address);
    let info = connection.text("INFO");
    assert!(info.contains("\r\naof_enabled:0\r\n") && info.contains("maxmemory_policy:noeviction"), "{info}");
    assert!(connection.text("LASTSAVE").starts_with("-ERR there is no folder"));
    loading.stop();
}

#[test]
fn strangers_stay_strangers_while_it_loads() {
    let loading = Loading::start(|config| config.password = Some(Password::new(b"sesame").unwrap()));
    let mut connection = Connection::to(loading.address);
    assert_eq!(connection.text("GET k"), "-NOAUTH Authentication required.\r\n");
    assert_eq!(connection.text("SHUTDOWN NOSAVE"), "-NOAUTH Authentication required.\r\n");
    assert_eq!(connection.text("AUTH sesame"), "+OK\r\n");
    assert!(connection.text("GET k").starts_with("-LOADING "));
    loading.stop();
}

#[test]
fn a_recovery_can_be_broken_off() {
    let loading = Loading::start(|_| {});
    let mut connection = Connection::to(loading.address);
    connection.send(b"SHUTDOWN SAVE\r\n");
    assert_eq!(connection.rest(), b"");
    loading.running.join().unwrap().unwrap();
}

#[test]
fn what_was_set_while_it_loads_stays() {
    let loading = Loading::start(|config| config.clients_max = 5);
    let mut connection = Connection::to(loading.address);
    assert!(connection.text("CONFIG GET maxclients").contains("$1\r\n5\r\n"));
    assert_eq!(connection.text("CONFIG SET maxclients 7 maxmemory 3gb"), "+OK\r\n");
    loading.opener.open(Arc::new(MapBackend::default()));
    assert!(connection.text("CONFIG GET maxclients").contains("$1\r\n7\r\n"));
    assert!(connection.text("CONFIG GET maxmemory").contains("3221225472"));
    loading.stop();
}

const REQUESTS: &str = "PING
PING a b
ECHO hello
SELECT 0
SELECT 16
GET k
GET
SET k v
MGET a b
DEL a
DBSIZE
SCAN 0
KEYS *
FLUSHALL
TYPE k
OBJECT ENCODING k
MEMORY USAGE k
SAVE
BGSAVE
TIME x
AUTH x
CLIENT GETNAME
CLIENT SETNAME me
CLIENT GETNAME
CLIENT FOO
CONFIG GET timeout
CONFIG SET timeout x
CONFIG FOO
COMMAND FOO
FOO
MULTI x
EXEC
EXEC x
DISCARD
UNWATCH
HELLO 9
SHUTDOWN FOO
RESET
CLIENT GETNAME
QUIT";

#[test]
fn replies_are_those_of_redis() {
    let redis = RealRedis::start_loading();
    let loading = Loading::start(|_| {});
    let (mut theirs, mut ours) = (Connection::to(redis.address), Connection::to(loading.address));
    assert!(theirs.text("INFO persistence").contains("\r\nloading:1\r\n"));
    let different = differences(&mut theirs, &mut ours, REQUESTS, |_| false);
    assert!(different.is_empty(), "{different}");
    loading.stop();
}
