//! A server in this process, a plain connection to it, and the outside programs that the tests need.

pub(crate) mod gated_backend;
pub(crate) mod map_backend;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use map_backend::MapBackend;
use ziptier::{DurableOptions, Options};
use ziptier_server::{Backend, Config, ServeError, Server, Stopper, StoreBackend};
use ziptier_testing::{until, until_seen};

/// How long a test waits before it says that something hangs.
pub(crate) const PATIENCE: Duration = ziptier_testing::HANG;

/// Runs each test function once per backend: the double, the store, and a store whose replies wait for its log.
macro_rules! on_every_backend {
    ($($test:ident),* $(,)?) => {
        mod on_the_map {
            $(#[test] fn $test() { super::$test(&$crate::support::TestServer::start()); })*
        }
        mod on_the_store {
            $(#[test] fn $test() { super::$test(&$crate::support::TestServer::start_store()); })*
        }
        mod on_a_durable_store {
            $(#[test] fn $test() { super::$test(&$crate::support::TestServer::start_durable()); })*
        }
    };
}

/// A server on a free port, stopped when dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
    /// Removed when the server has ended.
    folder: Option<tempfile::TempDir>,
}

impl TestServer {
    /// Whether it keeps what it holds in a folder.
    #[allow(dead_code, reason = "not every test asks")]
    pub(crate) fn is_durable(&self) -> bool {
        self.folder.is_some()
    }

    /// Two workers in front of the test double.
    pub(crate) fn start() -> Self {
        Self::start_with(Arc::new(MapBackend::default()), |_| {})
    }

    /// Two workers in front of a store with its default options.
    pub(crate) fn start_store() -> Self {
        let store = StoreBackend::open(Options::default()).expect("a store opens");
        Self::start_with(Arc::new(store), |_| {})
    }

    /// Two workers in front of a store with a folder.
    pub(crate) fn start_durable() -> Self {
        Self::start_durable_with(Options::default())
    }

    /// Two workers in front of a store with a folder and with other options.
    pub(crate) fn start_durable_with(options: Options) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut durable = DurableOptions::new(folder.path());
        durable.log.segment_bytes = 1 << 20;
        let options = Options { durable: Some(durable), ..options };
        let store = StoreBackend::open(options).expect("a store opens");
        let mut server = Self::start_with(Arc::new(store), |_| {});
        server.folder = Some(folder);
        server
    }

    pub(crate) fn start_with(backend: Arc<dyn Backend>, adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.port = 0;
        config.threads = 2;
        adjust(&mut config);
        let server = Server::bind(config, backend).expect("a free port on the loopback address");
        let (address, stopper) = (server.address(), server.stopper());
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { address, stopper, thread, folder: None }
    }

    /// The page of `INFO`.
    pub(crate) fn info(&self, connection: &mut Connection) -> Info {
        Info(connection.text("INFO"))
    }

    /// Asks for `INFO` until `is_so`; `what` says what that is.
    #[track_caller]
    pub(crate) fn wait_for(&self, connection: &mut Connection, what: &str, is_so: impl FnMut(&Info) -> bool) {
        until_seen(what, || self.info(connection), is_so);
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::to(self.address)
    }

    pub(crate) fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Waits for the server to end by itself.
    pub(crate) fn join(mut self) -> Result<(), ServeError> {
        self.thread.take().expect("joined once").join().expect("no panic")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !std::thread::panicking() {
                outcome.expect("no panic").expect("a clean stop");
            }
        }
    }
}

/// Look-ups that found a value and that found none, as the server of `connection` counts them.
pub(crate) fn look_ups(connection: &mut Connection) -> [u64; 2] {
    let info = Info(connection.text("INFO stats"));
    ["keyspace_hits", "keyspace_misses"].map(|name| info.field(name))
}

/// The page of `INFO`.
#[derive(Debug)]
pub(crate) struct Info(pub String);

impl Info {
    pub(crate) fn field(&self, name: &str) -> u64 {
        let mut lines = self.0.lines();
        let value = lines.find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }
}

/// A client that sends bytes and cuts replies apart.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Sends one request and returns its reply as it stands on the wire.
    pub(crate) fn ask(&mut self, args: &[&[u8]]) -> Vec<u8> {
        self.send(&request(args));
        self.reply()
    }

    /// The same in text.
    pub(crate) fn text(&mut self, line: &str) -> String {
        let args: Vec<&[u8]> = line.split_ascii_whitespace().map(str::as_bytes).collect();
        String::from_utf8_lossy(&self.ask(&args)).into_owned()
    }

    /// The next whole reply.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        let reply = self.try_reply();
        reply.unwrap_or_else(|| panic!("closed after {:?}", String::from_utf8_lossy(&self.received)))
    }

    /// The next whole reply; `None` if the server has closed the connection.
    pub(crate) fn try_reply(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = reply_end(&self.received, 0) {
                return Some(self.received.drain(..end).collect());
            }
            // Each read clears the buffer, and most replies are short.
            let mut buffer = [0; 8 << 10];
            let count = match self.stream.read(&mut buffer) {
                // A signal of the system, such as that of a file at its limit, may come to any thread.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => 0,
                read => read.expect("a reply in time"),
            };
            if count == 0 {
                return None;
            }
            self.received.extend_from_slice(&buffer[..count]);
        }
    }

    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.received);
        self.received = bytes.split_off(bytes.len().min(count));
        let begun = bytes.len();
        bytes.resize(count, 0);
        self.stream.read_exact(&mut bytes[begun..]).expect("a reply in time");
        bytes
    }

    /// The system's row of the server's end of this connection, in the columns of `/proc/net/tcp`. The table changes
    /// while it is read, so that a row may be missing.
    pub(crate) fn servers_end(&self) -> Option<Vec<String>> {
        self.servers_end_in(&connections_of_system())
    }

    fn servers_end_in(&self, table: &str) -> Option<Vec<String>> {
        let (server, client) = (self.stream.peer_addr().unwrap(), self.stream.local_addr().unwrap());
        let port = |address: SocketAddr| format!(":{:04X}", address.port());
        let rows = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        let mut ours = rows.filter(|row| row[1].ends_with(&port(server)) && row[2].ends_with(&port(client)));
        ours.next().map(|row| row.into_iter().map(str::to_owned).collect())
    }

    /// Waits until something that was sent lies at the server's end and waits to be read.
    #[track_caller]
    pub(crate) fn wait_for_arrival(&self) {
        wait_for_arrivals(std::slice::from_ref(self));
    }

    /// Everything until the server closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        match self.stream.read_to_end(&mut self.received) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the server keeps the connection open: {error}"),
        }
        std::mem::take(&mut self.received)
    }
}

/// The system takes milliseconds for its table, however few connections there are.
fn connections_of_system() -> String {
    std::fs::read_to_string("/proc/net/tcp").unwrap()
}

/// Waits until something that each connection sent lies at the server's end and waits to be read.
#[track_caller]
pub(crate) fn wait_for_arrivals(connections: &[Connection]) {
    // Bytes to send and bytes to read.
    let is_there = |row: Vec<String>| !row[4].ends_with(":00000000");
    let mut awaited: Vec<_> = connections.iter().collect();
    until("the requests have arrived", || {
        let table = connections_of_system();
        awaited.retain(|connection| !connection.servers_end_in(&table).is_some_and(is_there));
        awaited.is_empty()
    });
}

/// A request in RESP.
pub(crate) fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A request of `name` and more arguments than a worker runs at once.
pub(crate) fn many(name: &str) -> Vec<u8> {
    let args: Vec<String> = (0..2000).map(|number| format!("key:{number}")).collect();
    let args: Vec<&[u8]> =
        [name.as_bytes()].into_iter().chain(args.iter().map(|key| key.as_bytes())).collect();
    request(&args)
}

/// The end of the reply that starts at `at`, if it is whole.
fn reply_end(bytes: &[u8], at: usize) -> Option<usize> {
    let line_end = at + bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    let number = || std::str::from_utf8(&bytes[at + 1..line_end]).unwrap().parse::<i64>().unwrap();
    let body = line_end + 2;
    let elements = match bytes[at] {
        b'$' | b'=' if number() >= 0 => {
            let end = body + number() as usize + 2;
            return (bytes.len() >= end).then_some(end);
        }
        b'*' | b'~' | b'>' => number().max(0),
        b'%' => 2 * number(),
        b'+' | b'-' | b':' | b'$' | b'_' | b'#' | b',' | b'(' => 0,
        other => panic!("no reply starts with {:?}", char::from(other)),
    };
    (0..elements).try_fold(body, |at, _| reply_end(bytes, at))
}

/// An outside program, or a failure that says how to get it.
pub(crate) fn program(name: &str) -> Command {
    let found =
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    let package = match name {
        "redis-server" => "redis-server",
        "openssl" => "openssl",
        "python3" => "python3 python3-venv",
        "node" | "npm" => "nodejs npm",
        _ => "redis-tools",
    };
    assert!(found, "{name} is missing; install it with: apt-get install -y {package}");
    Command::new(name)
}

/// Asks both the same lines, of words between blanks: `~` is an empty argument, and `_` a blank in one. Tells which
/// replies differ, except to lines that are `unlike` each other by nature.
pub(crate) fn differences(
    theirs: &mut Connection,
    ours: &mut Connection,
    lines: &str,
    mut unlike: impl FnMut(&str) -> bool,
) -> String {
    let mut different = Vec::new();
    for line in lines.lines() {
        let words =
            line.split(' ').map(|word| if word == "~" { String::new() } else { word.replace('_', " ") });
        let words: Vec<String> = words.collect();
        let args: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let (theirs, ours) = (theirs.ask(&args), ours.ask(&args));
        if !unlike(line) && theirs != ours {
            let text = String::from_utf8_lossy;
            different.push(format!("{line}\n  Redis {:?}\n  here  {:?}", text(&theirs), text(&ours)));
        }
    }
    different.join("\n")
}

/// A real Redis on a free port, killed when dropped.
pub(crate) struct RealRedis {
    pub(crate) address: SocketAddr,
    child: Child,
    /// Removed when the server has ended.
    folder: Option<tempfile::TempDir>,
}

impl RealRedis {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with_password(password: &str) -> Self {
        let redis = Self::start();
        let set = format!("CONFIG SET requirepass {password}");
        assert_eq!(Connection::to(redis.address).text(&set), "+OK\r\n");
        redis
    }

    /// One that is loading its data, and will be for minutes: it waits a millisecond for each of 100,000 keys.
    pub(crate) fn start_loading() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().to_str().expect("a path in UTF-8").to_owned();
        let first = Self::start_with(&["--dir", dir.as_str()]);
        let mut connection = Connection::to(first.address);
        for group in 0..100 {
            let words = (0..1000).flat_map(|key| [format!("key:{group}:{key}"), format!("value of {key}")]);
            let words: Vec<String> = ["MSET".to_owned()].into_iter().chain(words).collect();
            let args: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            assert_eq!(connection.ask(&args), b"+OK\r\n");
        }
        assert_eq!(connection.text("SAVE"), "+OK\r\n");
        drop(first);
        let slow = ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"];
        let mut loading = Self::start_with(&[&["--dir", dir.as_str()][..], &slow[..]].concat());
        loading.folder = Some(folder);
        loading
    }

    fn start_with(options: &[&str]) -> Self {
        let address = ziptier_testing::free_address();
        let mut child = program("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", &address.ip().to_string()])
            .args(["--save", "", "--appendonly", "no", "--databases", "1"])
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("redis-server listens", || {
            assert_eq!(child.try_wait().unwrap(), None, "redis-server has ended");
            TcpStream::connect(address).is_ok()
        });
        Self { address, child, folder: None }
    }
}

impl Drop for RealRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder below the target directory for what a test needs to keep.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}
