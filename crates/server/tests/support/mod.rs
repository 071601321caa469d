//! A server in this process, a plain connection to it, and the outside programs that the tests need.

#![allow(dead_code, unreachable_pub, reason = "every test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

pub mod map_backend;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use map_backend::MapBackend;
use ziptier::{DurableOptions, Options};
use ziptier_server::{Backend, Config, ServeError, Server, Stopper, StoreBackend};

/// How long a test waits for bytes before it fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs each test function once per backend: the double, the store, and a store whose replies wait for its log.
#[macro_export]
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
pub struct TestServer {
    pub address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
    /// Removed when the server has ended.
    folder: Option<tempfile::TempDir>,
}

impl TestServer {
    /// Whether it keeps what it holds in a folder.
    #[allow(dead_code, reason = "not every test asks")]
    pub fn is_durable(&self) -> bool {
        self.folder.is_some()
    }

    /// Two workers in front of the test double.
    pub fn start() -> Self {
        Self::start_with(Arc::new(MapBackend::default()), |_| {})
    }

    /// Two workers in front of a store with its default options.
    pub fn start_store() -> Self {
        let store = StoreBackend::open(Options::default()).expect("a store opens");
        Self::start_with(Arc::new(store), |_| {})
    }

    /// Two workers in front of a store with a folder.
    pub fn start_durable() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut durable = DurableOptions::new(folder.path());
        durable.log.segment_bytes = 1 << 20;
        let options = Options { durable: Some(durable), ..Options::default() };
        let store = StoreBackend::open(options).expect("a store opens");
        let mut server = Self::start_with(Arc::new(store), |_| {});
        server.folder = Some(folder);
        server
    }

    pub fn start_with(backend: Arc<dyn Backend>, adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.port = 0;
        config.threads = 2;
        adjust(&mut config);
        let server = Server::bind(config, backend).expect("a free port on the loopback address");
        let (address, stopper) = (server.address(), server.stopper());
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { address, stopper, thread, folder: None }
    }

    pub fn connect(&self) -> Connection {
        Connection::to(self.address)
    }

    pub fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Waits for the server to end by itself.
    pub fn join(mut self) -> Result<(), ServeError> {
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

/// A client that sends bytes and cuts replies apart.
pub struct Connection {
    pub stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Sends one request and returns its reply as it stands on the wire.
    pub fn ask(&mut self, args: &[&[u8]]) -> Vec<u8> {
        self.send(&request(args));
        self.reply()
    }

    /// The same in text.
    pub fn text(&mut self, line: &str) -> String {
        let args: Vec<&[u8]> = line.split_ascii_whitespace().map(str::as_bytes).collect();
        String::from_utf8_lossy(&self.ask(&args)).into_owned()
    }

    /// The next whole reply.
    pub fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(end) = reply_end(&self.received, 0) {
                return self.received.drain(..end).collect();
            }
            let mut buffer = [0; 64 << 10];
            let count = match self.stream.read(&mut buffer) {
                // A signal of the system, such as that of a file at its limit, may come to any thread.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.expect("a reply in time"),
            };
            assert_ne!(count, 0, "closed after {:?}", String::from_utf8_lossy(&self.received));
            self.received.extend_from_slice(&buffer[..count]);
        }
    }

    /// Everything until the server closes.
    pub fn rest(&mut self) -> Vec<u8> {
        match self.stream.read_to_end(&mut self.received) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the server keeps the connection open: {error}"),
        }
        std::mem::take(&mut self.received)
    }
}

/// A request in RESP.
pub fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Where the reply that starts at `at` ends, if it is whole.
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
pub fn program(name: &str) -> Command {
    let found =
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    let package = match name {
        "redis-server" => "redis-server",
        "python3" => "python3 python3-venv",
        "node" | "npm" => "nodejs npm",
        _ => "redis-tools",
    };
    assert!(found, "{name} is missing; install it with: apt-get install -y {package}");
    Command::new(name)
}

/// A real Redis on a free port, killed when dropped.
pub struct RealRedis {
    pub address: SocketAddr,
    child: Child,
}

impl RealRedis {
    pub fn start() -> Self {
        // Somebody may take the port before Redis does; then the next one will do.
        for _ in 0..5 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut child = program("redis-server")
                .args(["--port", &free.port().to_string(), "--save", "", "--appendonly", "no"])
                .args(["--bind", "127.0.0.1", "--databases", "1"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let deadline = Instant::now() + PATIENCE;
            while Instant::now() < deadline && child.try_wait().unwrap().is_none() {
                if TcpStream::connect(free).is_ok() {
                    return Self { address: free, child };
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
        }
        panic!("redis-server does not start");
    }
}

impl Drop for RealRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder below the target directory for what a test needs to keep.
pub fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}
