//! The program as its users run it: servers that end with their test, and clients of theirs.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ziptier_testing::HANG;

/// The path of the program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ziptier");

/// The program, whatever the environment says.
pub(crate) fn ziptier() -> Command {
    at(PROGRAM.as_ref())
}

/// A copy of the program, whatever the environment says.
fn at(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ZIPTIER_") {
            command.env_remove(name);
        }
    }
    command
}

/// The program with these arguments, at its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    ziptier().args(arguments).output().unwrap()
}

/// What it prints with these arguments, if all goes well.
pub(crate) fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The sentence that refuses these arguments, or a file that they name.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count(), output.stdout.len()), (Some(2), 1, 0), "{said}");
    said
}

/// Whether something comes true before the wait counts as a hang. For a test that has to end what it started, whatever
/// comes of it.
pub(crate) fn comes_true(mut is_true: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !is_true() && began.elapsed() < HANG {
        std::thread::sleep(Duration::from_millis(20));
    }
    is_true()
}

/// A server on any port unless it is told another, what it prints in pipes.
pub(crate) fn serve() -> Command {
    serve_at(PROGRAM.as_ref())
}

/// As [`serve`], by a copy of the program.
pub(crate) fn serve_at(program: &Path) -> Command {
    let mut command = at(program);
    command.arg("serve").env("ZIPTIER_PORT", "0").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Arguments that serve RocksDB; nothing where RocksDB is not installed.
pub(crate) fn rocksdb() -> Option<Vec<String>> {
    let library = std::env::var("ZIPTIER_ROCKSDB_LIBRARY").unwrap_or_default();
    if !Path::new(&library).exists() {
        ziptier_testing::not_run("rocksdb", "run make setup-rocksdb, and set ZIPTIER_ROCKSDB_LIBRARY");
        return None;
    }
    Some(["--backend", "rocksdb", "--rocksdb-library", &library].map(str::to_owned).to_vec())
}

/// A running server, killed with this.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// The lines that it printed when it was ready.
    pub(crate) said: String,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.as_mut().unwrap());
        let mut said = String::new();
        reader.read_line(&mut said).unwrap();
        // It prints all at once.
        said += &String::from_utf8_lossy(reader.buffer());
        let address = said.split_once("listens on ").and_then(|(_, rest)| rest.split_whitespace().next());
        let port = address.and_then(|address| address.rsplit_once(':')?.1.parse().ok());
        let port = port.unwrap_or_else(|| {
            let mut errors = String::new();
            child.stderr.as_mut().map(|stderr| stderr.read_to_string(&mut errors));
            panic!("no address in {said:?}: {errors}")
        });
        Self { child, said, port }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.port).unwrap()
    }

    /// The replies to some inline commands, or to requests, over a connection of their own.
    pub(crate) fn ask(&self, requests: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.write_all(requests).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut replies = String::new();
        stream.read_to_string(&mut replies).unwrap();
        replies
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Waits until it has ended; what it printed since it was ready.
    pub(crate) fn end(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.child.stdout.as_mut().map(|pipe| pipe.read_to_end(&mut stdout).unwrap());
        self.child.stderr.as_mut().map(|pipe| pipe.read_to_end(&mut stderr).unwrap());
        Output { status: self.child.wait().unwrap(), stdout, stderr }
    }

    /// Ends it cleanly.
    pub(crate) fn stop(self) {
        assert_eq!(self.ask(b"SHUTDOWN\r\n"), "");
        assert!(self.end().status.success());
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection, whose requests are gathered until they are sent.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    requests: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(port: u16) -> io::Result<Self> {
        Self::to((Ipv4Addr::LOCALHOST, port).into())
    }

    pub(crate) fn to(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANG))?;
        Ok(Self { stream: BufReader::new(stream), requests: Vec::new() })
    }

    pub(crate) fn request(&mut self, words: &[&[u8]]) {
        self.requests.extend(format!("*{}\r\n", words.len()).into_bytes());
        for word in words {
            self.requests.extend(format!("${}\r\n", word.len()).into_bytes());
            self.requests.extend_from_slice(word);
            self.requests.extend_from_slice(b"\r\n");
        }
    }

    pub(crate) fn send(&mut self) -> io::Result<()> {
        let requests = std::mem::take(&mut self.requests);
        self.stream.get_mut().write_all(&requests)
    }

    /// A line of a reply, without its end.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The bytes of a reply; `None` for none.
    pub(crate) fn bulk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let header = self.line()?;
        let len: i64 = header.strip_prefix('$').unwrap_or_else(|| panic!("{header}")).parse().unwrap();
        let Ok(len) = usize::try_from(len) else { return Ok(None) };
        let mut bytes = vec![0; len + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(len);
        Ok(Some(bytes))
    }

    /// The reply to a request, as it stands on the wire.
    pub(crate) fn reply(&mut self, words: &[&[u8]]) -> io::Result<Vec<u8>> {
        self.request(words);
        self.send()?;
        let mut reply = Vec::new();
        let mut elements = 1;
        while elements > 0 {
            elements -= 1;
            let line = self.line()?;
            reply.extend_from_slice(line.as_bytes());
            reply.extend_from_slice(b"\r\n");
            let number: i64 = line[1..].parse().unwrap_or(0);
            match line.as_bytes()[0] {
                b'*' => elements += number.max(0),
                b'$' if number >= 0 => {
                    let before = reply.len();
                    reply.resize(before + number as usize + 2, 0);
                    self.stream.read_exact(&mut reply[before..])?;
                }
                _ => {}
            }
        }
        Ok(reply)
    }

    /// The reply to a request that gets one line.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> io::Result<String> {
        self.request(words);
        self.send()?;
        self.line()
    }

    pub(crate) fn get(&mut self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.request(&[b"GET", key.as_bytes()]);
        self.send()?;
        self.bulk()
    }

    /// A page of `INFO`.
    pub(crate) fn info(&mut self, section: &str) -> io::Result<String> {
        self.request(&[b"INFO", section.as_bytes()]);
        self.send()?;
        Ok(String::from_utf8(self.bulk()?.unwrap()).unwrap())
    }
}
