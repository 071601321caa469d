//! TLS keeps passwords and data from others on the network. A port that answers without a handshake, takes any
//! certificate, or falls over at bytes that are no TLS, would be worse than none.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use fastrand::Rng;
use tempfile::TempDir;
use ziptier_server::{AuthClients, Config, StoreBackend, Tls, TlsFiles};
use ziptier_testing::until;

use crate::client_libraries_work::python;
use crate::support::{Connection, Info, TestServer, program};

fn openssl(folder: &Path, line: &str) {
    let output = program("openssl").args(line.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, and a server and a client with certificates of it. A second client signed its certificate itself.
fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (dir, new) = (folder.path(), "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj");
    std::fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
    for name in ["ca", "stranger"] {
        openssl(dir, &format!("req -x509 -days 2 {new} /CN={name} -keyout {name}.key -out {name}.crt"));
    }
    for name in ["server", "client"] {
        openssl(dir, &format!("req {new} /CN={name} -keyout {name}.key -out {name}.csr"));
        let signed = "-CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names";
        openssl(dir, &format!("x509 -req -in {name}.csr {signed} -out {name}.crt"));
    }
    folder
}

fn files(folder: &Path) -> TlsFiles {
    let [cert, key, ca] = ["server.crt", "server.key", "ca.crt"].map(|name| folder.join(name));
    TlsFiles { cert, key, ca_cert: Some(ca) }
}

/// A server with a port for TLS alone.
fn start(folder: &Path, clients: AuthClients) -> TestServer {
    start_with(folder, clients, |_| {})
}

fn start_with(folder: &Path, clients: AuthClients, adjust: impl FnOnce(&mut Config)) -> TestServer {
    let store = StoreBackend::open(ziptier::Options::default()).unwrap();
    let tls = Tls::load(0, &files(folder), clients).unwrap();
    TestServer::start_with(Arc::new(store), |config| {
        (config.tls, config.plain) = (Some(tls), false);
        adjust(config);
    })
}

fn cli(server: &TestServer, folder: &Path, words: &[&str]) -> Output {
    let mut command: Command = program("redis-cli");
    command.args(["-p", &server.port(), "--tls"]).args(words).current_dir(folder);
    command.output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn redis_cli_asks_over_tls() {
    let folder = certificates();
    let server = start(folder.path(), AuthClients::No);
    let ask = |words: &[&str]| cli(&server, folder.path(), &[&["--cacert", "ca.crt"], words].concat());
    assert_eq!(printed(&ask(&["set", "k", "v"])), "OK\n");
    assert_eq!(printed(&ask(&["-3", "mget", "k", "missing"])), "v\n\n");
    assert_eq!(printed(&ask(&["config", "get", "tls-port"])), format!("tls-port\n{}\n", server.port()));
    assert_eq!(printed(&ask(&["config", "get", "port"])), "port\n0\n");
    // It does not take a server whose certificate nobody that it knows has signed.
    let other = cli(&server, folder.path(), &["--cacert", "stranger.crt", "ping"]);
    assert!(!other.status.success() && printed(&other).is_empty(), "{other:?}");
    // Without a handshake there is no answer: an alert of TLS, and the end.
    let mut plain = server.connect();
    plain.send(b"PING\r\n");
    let answer = plain.rest();
    assert!(answer.first().is_none_or(|&kind| kind == 21) && answer.len() < 10, "{answer:?}");
}

#[test]
fn clients_show_the_certificates_that_are_asked_for() {
    let folder = certificates();
    let own = ["--cacert", "ca.crt", "--cert", "client.crt", "--key", "client.key", "ping"];
    let strange = ["--cacert", "ca.crt", "--cert", "stranger.crt", "--key", "stranger.key", "ping"];
    let none = ["--cacert", "ca.crt", "ping"];
    for (clients, let_in) in [
        (AuthClients::Yes, [true, false, false]),
        (AuthClients::Optional, [true, false, true]),
        (AuthClients::No, [true, true, true]),
    ] {
        let server = start(folder.path(), clients);
        let answers =
            [&own[..], &strange, &none].map(|words| printed(&cli(&server, folder.path(), words)) == "PONG\n");
        assert_eq!(answers, let_in, "{clients:?}");
    }
}

/// Large values, long pipelines and threads, by redis-py, over both versions of TLS.
const SCRIPT: &str = "
import sys, ssl, threading, redis
version = {'2': ssl.TLSVersion.TLSv1_2, '3': ssl.TLSVersion.TLSv1_3}
patience = {'socket_timeout': None, 'socket_connect_timeout': None}
def connect(minor):
    tls = {'ssl': True, 'ssl_ca_certs': 'ca.crt', 'ssl_min_version': version[minor]}
    return redis.Redis(port=int(sys.argv[1]), **tls, **patience)
context = ssl.create_default_context(cafile='ca.crt')
context.maximum_version = ssl.TLSVersion.TLSv1_2
db = connect('3')
large = bytes(range(256)) * 20_000
assert db.set('large', large) and db.get('large') == large
assert db.mget(['large', 'missing', 'large']) == [large, None, large]
def work(number):
    db = connect('2')
    for step in range(10):
        pipe = db.pipeline(transaction=False)
        for key in range(500):
            pipe.set(f'{number}:{key}', f'{step:02}' * 100).get(f'{number}:{key}')
        assert pipe.execute()[1::2] == [f'{step:02}'.encode() * 100] * 500
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert db.dbsize() == 2001 and len(db.keys('*')) == 2001
import socket
plain = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
old = context.wrap_socket(plain, server_hostname='localhost')
old.sendall(b'PING\\r\\n' * 20_000 + b'QUIT\\r\\n')
answer = b''
while chunk := old.recv(65536):
    answer += chunk
assert answer == b'+PONG\\r\\n' * 20_000 + b'+OK\\r\\n', len(answer)
print('done')
";

#[test]
fn redis_py_moves_much_over_tls() {
    let folder = certificates();
    let server = start(folder.path(), AuthClients::No);
    let output = python().args(["-c", SCRIPT, &server.port()]).current_dir(folder.path()).output().unwrap();
    assert_eq!(printed(&output), "done\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn bytes_that_are_no_tls_hurt_nobody() {
    let folder = certificates();
    let server = start(folder.path(), AuthClients::No);
    let mut random = Rng::with_seed(ziptier_testing::seed());
    let hello = {
        // The first bytes of a real client.
        let mut first = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
        first.extend((0..600).map(|_| random.u8(..)));
        first
    };
    for round in 0..ziptier_testing::count("ZIPTIER_GARBAGE", 300) {
        let mut connection = server.connect();
        let mut bytes =
            if round % 2 == 0 { hello.clone() } else { (0..700).map(|_| random.u8(..)).collect() };
        let place = random.usize(..bytes.len());
        bytes[place] = random.u8(..);
        bytes.truncate(random.usize(1..=bytes.len()));
        // The server may have closed the connection meanwhile.
        let _ = connection.stream.write_all(&bytes);
        let _ = connection.stream.shutdown(std::net::Shutdown::Write);
        let answer = connection.rest();
        assert!(answer.is_empty() || answer[0] == 21 || answer[0] == 22, "round {round}: {answer:?}");
    }
    let ask = |words: &[&str]| cli(&server, folder.path(), &[&["--cacert", "ca.crt"], words].concat());
    assert_eq!(printed(&ask(&["ping"])), "PONG\n");
    until("only the client that asks is left", || {
        printed(&ask(&["info", "clients"])).contains("connected_clients:1\r\n")
    });
}

/// A client that begins a handshake and never ends it goes as any silent client.
#[test]
fn a_handshake_that_never_ends_is_idle() {
    let folder = certificates();
    let server = start_with(folder.path(), AuthClients::No, |config| config.timeout_s = 1);
    let mut connection = server.connect();
    connection.send(&[0x16, 3, 1, 2, 0, 1]);
    assert_eq!(connection.rest(), b"");
    // One that stands still for a second goes likewise.
    until("a client is served", || {
        printed(&cli(&server, folder.path(), &["--cacert", "ca.crt", "ping"])) == "PONG\n"
    });
}

/// Clients that never end their handshake hold memory of the server, and it counts.
#[test]
fn handshakes_count_in_the_budget() {
    let folder = certificates();
    let server = start_with(folder.path(), AuthClients::No, |config| config.client_bytes_max = Some(1 << 20));
    // The client that asks may be disconnected, too.
    let held = || {
        let info = Info(printed(&cli(&server, folder.path(), &["--cacert", "ca.crt", "info"])));
        let is_whole = info.0.contains("mem_clients_normal") && info.0.contains("evicted_clients");
        is_whole.then(|| [info.field("mem_clients_normal"), info.field("evicted_clients")])
    };
    let begin = |_| {
        let mut connection = server.connect();
        connection.send(&[0x16, 3, 1, 2, 0]);
        connection
    };
    let few: Vec<Connection> = (0..10).map(begin).collect();
    until("ten handshakes are held", || held().is_some_and(|[bytes, _]| bytes > 10 * (16 << 10)));
    let many: Vec<Connection> = (0..100).map(begin).collect();
    until("clients are disconnected", || held().is_some_and(|[_, evicted]| evicted > 20));
    until("what is left fits", || held().is_some_and(|[bytes, _]| bytes <= 1 << 20));
    drop((few, many));
}

#[test]
fn files_that_do_not_fit_are_told() {
    let folder = certificates();
    let dir = folder.path();
    let refused = |change: &dyn Fn(&mut TlsFiles), clients| {
        let mut files = files(dir);
        change(&mut files);
        Tls::load(0, &files, clients).unwrap_err().to_string()
    };
    let missing = refused(&|files| files.cert = dir.join("nothing"), AuthClients::No);
    assert!(
        missing.starts_with("could not read the certificate from ") && missing.contains("nothing"),
        "{missing}"
    );
    let empty = refused(&|files| files.cert = dir.join("names"), AuthClients::No);
    assert!(empty.ends_with("names: it has no certificate in PEM"), "{empty}");
    let no_key = refused(&|files| files.key = dir.join("server.crt"), AuthClients::No);
    assert!(no_key.starts_with("could not read the private key from "), "{no_key}");
    let other = refused(&|files| files.key = dir.join("client.key"), AuthClients::No);
    assert!(other.starts_with("could not use --tls-cert-file with --tls-key-file: "), "{other}");
    let nobody = refused(&|files| files.ca_cert = None, AuthClients::Yes);
    assert!(nobody.ends_with("name --tls-ca-cert-file, or say --tls-auth-clients no"), "{nobody}");
}
