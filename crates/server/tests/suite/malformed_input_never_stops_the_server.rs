//! Every client that reaches the port may send anything. A request that crashes the server takes every client's cache
//! with it, and one that hangs a worker a part of them. A request whose announced length is reserved takes the
//! machine's memory.
//!
//! 100,000 generated inputs go to one server, or `ZIPTIER_INPUTS`, a quarter of them to one that asks for a password.
//! After some inputs the connection is closed. A well-behaved client stays connected all the time and is still served.
//! No input may keep an event loop turning: its rounds are counted. `ZIPTIER_SEED` repeats a run.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ziptier_server::Password;
use ziptier_testing::until;

use crate::support;
use crate::support::map_backend::MapBackend;
use crate::support::{Connection, Info, TestServer, request};

on_every_backend!(
    generated_input_is_survived,
    splits_at_every_byte_change_nothing,
    announced_lengths_hold_no_memory
);

/// Inputs per backend.
fn inputs() -> usize {
    ziptier_testing::count("ZIPTIER_INPUTS", 100_000)
}

/// Inputs that a connection sees, on average: most leave it in order, or in the middle of a request.
const INPUTS_PER_CONNECTION: usize = 8;
/// Rounds of the event loops for each input: it comes in up to eight pieces, and the connection opens and closes.
const CYCLES_PER_INPUT: u64 = 16;
/// Connections at a time; those of the first thread go to the server with a password.
const THREADS: usize = 4;

/// A small generator of well-spread numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    fn bytes(&mut self, len_max: usize) -> Vec<u8> {
        let len = self.below(len_max + 1);
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// However they are damaged, none becomes a command that removes all keys.
const NAMES: &[&str] = &[
    "GET", "SET", "MGET", "MSET", "DEL", "EXISTS", "INCR", "DECR", "APPEND", "STRLEN", "EXPIRE", "TTL",
    "PTTL", "PERSIST", "TYPE", "SCAN", "DBSIZE", "ECHO", "PING", "HELLO", "CLIENT", "CONFIG", "COMMAND",
    "INFO", "SELECT", "QUIT", "COPY", "RENAME", "RENAMENX", "AUTH", "MULTI", "EXEC", "OBJECT", "MEMORY",
    "STRLENX", "nothing", "", "POST", "Host:",
];

const WORDS: &[&[u8]] = &[
    b"k",
    b"",
    b"0",
    b"-1",
    b"EX",
    b"PX",
    b"NX",
    b"XX",
    b"GET",
    b"KEEPTTL",
    b"MATCH",
    b"COUNT",
    b"TYPE",
    b"*a*b*c*",
    b"[",
    b"\\",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"99999999999999999999",
    b"SETNAME",
    b"AUTH",
    b"default",
    b"sesame",
    b"REPLACE",
    b"DB",
    b"ENCODING",
    b"USAGE",
    b"SAMPLES",
    b"3",
    b"2",
    b"LIST",
    b"INFO",
    b"GETNAME",
    b"DOCS",
    b"\r\n",
    b"\0\xff\xfe",
    b"memory",
    b"GT",
];

const NUMBERS: &[&str] = &[
    "-1",
    "-0",
    "-",
    "",
    "0",
    "1",
    "2",
    "3",
    "00",
    "+1",
    " 1",
    "1 ",
    "1048576",
    "1048577",
    "536870912",
    "536870913",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "99999999999999999999999999",
    "-9223372036854775808",
    "0x10",
    "1e3",
    "1\0",
    "\n",
];

/// A request that is well-formed whatever it says.
fn sound_request(random: &mut Random) -> Vec<u8> {
    let mut args = vec![random.pick(NAMES).as_bytes().to_vec()];
    for _ in 0..random.below(6) {
        args.push(if random.below(4) == 0 { random.bytes(40) } else { random.pick(WORDS).to_vec() });
    }
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    request(&args)
}

fn input(random: &mut Random) -> Vec<u8> {
    match random.below(9) {
        0 => random.bytes(200),
        1 => sound_request(random),
        // Cut short.
        2 => {
            let mut bytes = sound_request(random);
            bytes.truncate(random.below(bytes.len()));
            bytes
        }
        // Some bytes changed, dropped or doubled.
        3 => {
            let mut bytes = [sound_request(random), sound_request(random)].concat();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = random.next() as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, bytes[at]),
                }
            }
            bytes
        }
        // A number that is none, or too large, where a count or a length belongs.
        4 => format!("*{}\r\n$3\r\nGET\r\n$1\r\nk\r\n", random.pick(NUMBERS)).into_bytes(),
        5 => format!("*2\r\n$3\r\nGET\r\n${}\r\nk\r\n", random.pick(NUMBERS)).into_bytes(),
        // Arrays in arrays, and the other types that only replies have.
        6 => {
            let mut bytes = b"*2\r\n".repeat(1 + random.below(300));
            bytes.extend_from_slice(random.pick(&[
                &b"$1\r\na\r\n"[..],
                b":1\r\n",
                b"+OK\r\n",
                b"%1\r\n",
                b"~0\r\n",
            ]));
            bytes
        }
        // Inline commands with odd blanks and quotes.
        7 => {
            let mut bytes = random.pick(NAMES).as_bytes().to_vec();
            for _ in 0..random.below(6) {
                bytes.extend_from_slice(random.pick(&[
                    &b" "[..],
                    b"\"",
                    b"'",
                    b"\\x4",
                    b"\\",
                    b"\t",
                    b"\r",
                    b"\0",
                ]));
                bytes.extend_from_slice(random.pick(WORDS));
            }
            bytes.extend_from_slice(random.pick(&[&b"\r\n"[..], b"\n", b"", b"\r"]));
            bytes
        }
        // A long line without an end, or line ends alone.
        _ => {
            let byte = random.pick(&[&b"a"[..], b"\r", b"\n", b" ", b"*", b"$", b"1"]);
            let mut bytes = byte.repeat(random.below(2000));
            bytes.insert(0, *random.pick(&[&b'*', &b'$', &b'x', &b'\n']));
            bytes
        }
    }
}

fn seed() -> u64 {
    std::env::var("ZIPTIER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_cafe)
}

/// A connection, as soon as the system has a port to spare: closed ones keep theirs for a while.
fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = None;
    until("the system has a port to spare", || {
        match TcpStream::connect(address) {
            Ok(connected) => stream = Some(connected),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {}
            Err(error) => panic!("the server does not accept: {error}"),
        }
        stream.is_some()
    });
    stream.unwrap()
}

/// Sends `count` inputs, some on a connection.
fn attack(address: SocketAddr, seed: u64, count: usize) {
    let mut random = Random(seed | 1);
    let mut left = count;
    while left > 0 {
        let mut stream = connect(address);
        stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
        stream.set_write_timeout(Some(support::PATIENCE)).unwrap();
        loop {
            let bytes = input(&mut random);
            left = left.saturating_sub(1);
            let pieces = if random.below(8) == 0 { 1 + random.below(8) } else { 1 };
            // The server may close in the middle: that is an answer.
            let sent = bytes.chunks(bytes.len() / pieces + 1).try_for_each(|piece| stream.write_all(piece));
            if left == 0 || sent.is_err() || random.below(INPUTS_PER_CONNECTION) == 0 {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
        if let Err(error) = read_to_end(&mut stream) {
            panic!("some input before the last {left} of seed {seed} hangs the server: {error}");
        }
    }
}

/// Reads to the end of the stream: a server that hangs would run into the timeout.
fn read_to_end(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut received = [0; 64 << 10];
    loop {
        match stream.read(&mut received) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
}

/// A server under attack, and the client that is served meanwhile.
struct Watched<'a> {
    server: &'a TestServer,
    password: Option<&'static str>,
    bystander: Connection,
    cycles_before: u64,
    asked: u64,
}

impl<'a> Watched<'a> {
    fn new(server: &'a TestServer, password: Option<&'static str>) -> Self {
        let mut bystander = client(server, password);
        assert_eq!(bystander.text("SET untouched value"), "+OK\r\n");
        let cycles_before = server.info(&mut bystander).field("eventloop_cycles");
        Self { server, password, bystander, cycles_before, asked: 0 }
    }

    fn ask(&mut self) {
        assert_eq!(self.bystander.text("GET untouched"), "$5\r\nvalue\r\n");
        self.asked += 1;
    }

    /// After so many inputs.
    fn check(&mut self, inputs: usize) {
        let cycles = self.server.info(&mut self.bystander).field("eventloop_cycles") - self.cycles_before;
        assert!(
            cycles <= CYCLES_PER_INPUT * inputs as u64 + 10 * self.asked,
            "{cycles} rounds for {inputs} inputs and {} requests",
            self.asked
        );
        assert_eq!(client(self.server, self.password).text("GET untouched"), "$5\r\nvalue\r\n");
        assert_eq!(connections_left(client(self.server, self.password)), 2);
    }
}

/// A client that may do everything.
fn client(server: &TestServer, password: Option<&str>) -> Connection {
    let mut client = server.connect();
    if let Some(password) = password {
        assert_eq!(client.text(&format!("AUTH {password}")), "+OK\r\n");
    }
    client
}

fn generated_input_is_survived(server: &TestServer) {
    let guarded = TestServer::start_with(Arc::new(MapBackend::default()), |config| {
        config.password = Some(Password::new(b"sesame").unwrap());
    });
    let share = inputs() / THREADS;
    let mut watched = [Watched::new(&guarded, Some("sesame")), Watched::new(server, None)];
    let attackers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let address = watched[thread.min(1)].server.address;
            thread::spawn(move || attack(address, seed() + 7919 * thread as u64, share))
        })
        .collect();
    while attackers.iter().any(|attacker| !attacker.is_finished()) {
        watched.iter_mut().for_each(Watched::ask);
        thread::sleep(Duration::from_millis(2));
    }
    attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
    watched
        .iter_mut()
        .zip([share, (THREADS - 1) * share])
        .for_each(|(watched, inputs)| watched.check(inputs));
}

/// Clients that the server knows, once it has noticed that others went.
fn connections_left(mut connection: Connection) -> usize {
    let mut count = 0;
    until("the server has noticed that clients went", || {
        count = connection.text("CLIENT LIST").matches(" addr=").count();
        count <= 2
    });
    count
}

fn splits_at_every_byte_change_nothing(server: &TestServer) {
    let stream = [
        request(&[b"SET", b"split", b"va\r\nlue"]),
        request(&[b"GET", b"split"]),
        b"ECHO 'in line'\r\n".to_vec(),
        request(&[b"FOO"]),
        b"*1\r\n$4\r\nPONG".to_vec(),
    ]
    .concat();
    let expected = b"+OK\r\n$7\r\nva\r\nlue\r\n$7\r\nin line\r\n\
        -ERR unknown command 'FOO', with args beginning with: \r\n";
    let mut asking = server.connect();
    // Every question counts, too.
    let question_bytes = request(&[b"INFO", b"stats"]).len() as u64;
    let mut read_bytes = || Info(asking.text("INFO stats")).field("total_net_input_bytes");
    for split in 0..=stream.len() {
        let mut connection = server.connect();
        let mut awaited_bytes = read_bytes() + split as u64;
        connection.send(&stream[..split]);
        until("the server has read the first part alone", || {
            awaited_bytes += question_bytes;
            read_bytes() == awaited_bytes
        });
        connection.send(&stream[split..]);
        connection.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(connection.rest(), expected, "split at {split}");
    }
    let mut connection = server.connect();
    for byte in &stream {
        connection.send(&[*byte]);
    }
    connection.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(connection.rest(), expected);
}

fn announced_lengths_hold_no_memory(server: &TestServer) {
    let mut asking = server.connect();
    let liars: Vec<Connection> = (0..200)
        .map(|_| {
            let mut liar = server.connect();
            liar.send(b"*1048576\r\n$3\r\nSET\r\n$536870912\r\nbeginning");
            liar
        })
        .collect();
    server.wait_for(&mut asking, "the unfinished requests are counted", |info| {
        let held = info.field("mem_clients_normal");
        assert!(held < 200 * 1024, "200 unfinished requests of some bytes hold {held}");
        held > 200 * 30
    });
    drop(liars);
    server.wait_for(&mut asking, "closed connections count no more", |info| {
        info.field("mem_clients_normal") == 0
    });
}
