//! Measures the cost of hostile clients on a real server: `attacks ZIPTIER [NAME [PART]]` starts `ZIPTIER serve` for
//! each attack, on this machine alone. It prints the server's peak of anonymous memory beside its limit, and the
//! longest wait of a client with small requests. NAME selects attacks by a part of their names. PART divides the bytes
//! that they send, for a quick trial.
//!
//! After all rows the program fails if the memory or a wait of any row was above its bound. The figures depend on the
//! machine; tests check what must not depend on it.

#![allow(clippy::unwrap_used, reason = "a measurement that can't go on should stop")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time that a client with its own requests may wait for others.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Files that the server and this program have open beside connections.
const OTHER_FILES: u64 = 300;

type Attack = fn(&Server);

/// The needs of a row beside its attack.
#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    /// So many connections at a time.
    Connections(usize),
    Folder,
}

/// Name, memory limit in MiB, needs, attack.
const ATTACKS: &[(&str, u64, Needs, Attack)] = &[
    ("GETEX of 200 MB, 8 clients", 1024, Needs::Nothing, |server| {
        whole_values(server, 200_000_000, &[b"GETEX", b"huge", b"PERSIST"]);
    }),
    ("GETEX of 400 MB, 8 clients", 1024, Needs::Nothing, |server| {
        whole_values(server, 400_000_000, &[b"GETEX", b"huge", b"PERSIST"]);
    }),
    ("SET NX GET of 200 MB, 8 clients", 1024, Needs::Nothing, |server| {
        whole_values(server, 200_000_000, &[b"SET", b"huge", b"v", b"NX", b"GET"]);
    }),
    ("SETRANGE to 300 MB, 8 clients", 1024, Needs::Nothing, ranges),
    ("COPY of 400 MB, 8 clients, with a folder", 1024, Needs::Folder, copies),
    ("APPEND to 100 MB beside a written neighbour", 1024, Needs::Nothing, append),
    ("10,000 unfinished requests of 5,440 arguments", 64, Needs::Connections(10_000), unfinished),
    ("5,000 unfinished bulks of 32 KB", 64, Needs::Connections(5_000), unfinished_bulks),
    ("1,000 readers of 1 MB that never read", 64, Needs::Connections(1_000), |server| readers(server, 1_000)),
    ("10,000 readers of 1 MB that never read", 64, Needs::Connections(10_000), |server| {
        readers(server, 10_000);
    }),
    ("39 readers of values of 10 MB that are overwritten", 512, Needs::Nothing, overwritten),
    ("4,000 clients with names of 3 KiB, 40 lists of them", 64, Needs::Connections(4_040), names),
    ("MSET of 500,000 pairs, 4 clients", 256, Needs::Nothing, |server| many_pairs(server, "MSET")),
    ("MSETNX of 500,000 pairs, 4 clients", 512, Needs::Nothing, |server| many_pairs(server, "MSETNX")),
    ("MSET of 500,000 pairs beside SETs of the same keys", 512, Needs::Nothing, same_keys),
    ("COMMAND DOCS of 1,000,000 names", 64, Needs::Nothing, documents),
    ("KEYS of 100,000 keys, pattern of 3 KB and class of 1 MB", 256, Needs::Nothing, patterns),
    ("MSET and DEL of 500,000 keys, EXISTS of 1,000,000", 512, Needs::Nothing, many_keys),
    ("FLUSHALL of 2,000,000 keys", 512, Needs::Nothing, flush),
    ("INFO and DBSIZE beside writes, 2,000,000 keys", 512, Needs::Nothing, counts),
];

/// One in so many of everything is sent.
static PART: OnceLock<usize> = OnceLock::new();

fn part(count: usize) -> usize {
    (count / PART.get().copied().unwrap_or(1)).max(1)
}

/// A running `ziptier serve`.
struct Server {
    child: Child,
    address: SocketAddr,
    _folder: Option<tempfile::TempDir>,
}

impl Server {
    fn start(ziptier: &str, mib: u64, needs: Needs) -> Self {
        let folder = matches!(needs, Needs::Folder).then(|| tempfile::tempdir().unwrap());
        let mut command = std::process::Command::new(ziptier);
        command.args(["serve", "--port", "0", "--memory", &format!("{mib}MiB"), "--threads", "2"]);
        command.args(["--max-clients", "10100"]);
        folder.iter().for_each(|folder| _ = command.arg("--dir").arg(folder.path().join("data")));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("ziptier starts");
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address = first.split_ascii_whitespace().find_map(|word| word.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {first:?}"));
        Self { child, address, _folder: folder }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).expect("the server accepts");
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::with_capacity(4096, stream) }
    }

    fn connect_all(&self, clients: usize) -> Vec<Client> {
        (0..part(clients)).map(|_| self.connect()).collect()
    }

    /// Sends a request, and prints the first line of the reply and the time that it took.
    fn show(&self, args: &[&[u8]]) {
        let start = Instant::now();
        let reply = self.connect().ask(args);
        let name = String::from_utf8_lossy(args[0]);
        println!("  {name} {} after {:.3} s", reply.trim(), start.elapsed().as_secs_f64());
    }

    /// Two million keys.
    fn fill(&self) {
        for prefix in ["one", "two", "few", "all"] {
            let mut client = self.connect();
            client.send(&keyed("MSET", prefix, 500_000, true));
            client.line();
        }
        self.show(&[b"DBSIZE"]);
    }

    fn anonymous_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that gives up quietly: the server may close.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// The first line of the reply, whose bulk is read and dropped.
    fn ask(&mut self, args: &[&[u8]]) -> String {
        if self.send(&request(args)) { self.line() } else { String::new() }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let _ = self.stream.read_line(&mut line);
        if let Some(Ok(len)) = line.strip_prefix('$').map(|len| len.trim().parse::<u64>()) {
            let _ = std::io::copy(&mut self.stream.by_ref().take(len + 2), &mut std::io::sink());
        }
        line
    }
}

fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// `name` with `count` keys that begin with `prefix`, and values if they are wanted.
fn keyed(name: &str, prefix: &str, count: usize, with_values: bool) -> Vec<u8> {
    let count = part(count);
    let mut bytes = format!("*{}\r\n", 1 + count * (1 + usize::from(with_values))).into_bytes();
    bytes.extend_from_slice(format!("${}\r\n{name}\r\n", name.len()).as_bytes());
    for number in 0..count {
        bytes.extend_from_slice(format!("${}\r\n{prefix}:{number:07}\r\n", prefix.len() + 8).as_bytes());
        if with_values {
            bytes.extend_from_slice(b"$1\r\nv\r\n");
        }
    }
    bytes
}

fn side_by_side(clients: usize, work: impl Fn(usize) + Sync) {
    let work = &work;
    thread::scope(|scope| (0..clients).for_each(|client| drop(scope.spawn(move || work(client)))));
}

/// Makes a value of about `bytes` bytes by sending only its last byte.
fn make_huge(server: &Server, bytes: usize) {
    server.show(&[b"SETRANGE", b"huge", part(bytes).to_string().as_bytes(), b"x"]);
}

fn whole_values(server: &Server, bytes: usize, command: &[&[u8]]) {
    make_huge(server, bytes);
    side_by_side(8, |_| drop(server.connect().ask(command)));
}

fn ranges(server: &Server) {
    side_by_side(8, |_| make_huge(server, 300_000_000));
}

fn copies(server: &Server) {
    make_huge(server, 400_000_000);
    side_by_side(8, |client| server.show(&[b"COPY", b"huge", format!("copy:{client}").as_bytes()]));
}

/// The neighbour lies in the same leaf.
fn append(server: &Server) {
    make_huge(server, 100_000_000);
    let done = AtomicBool::new(false);
    let written = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.connect();
            let requests = request(&[b"SET", b"huge:neighbour", b"value"]).repeat(100);
            while !done.load(Relaxed) && writer.send(&requests) {
                (0..100).for_each(|_| drop(writer.line()));
                written.fetch_add(100, Relaxed);
            }
        });
        (0..4).for_each(|_| server.show(&[b"APPEND", b"huge", b"x"]));
        done.store(true, Relaxed);
    });
    println!("  beside {} SETs", written.load(Relaxed));
}

fn unfinished(server: &Server) {
    let beginning = [&b"*5450\r\n$3\r\nDEL\r\n"[..], &b"$0\r\n\r\n".repeat(5440)].concat();
    let mut clients = server.connect_all(10_000);
    clients.iter_mut().for_each(|client| _ = client.send(&beginning));
    thread::sleep(Duration::from_secs(2));
}

fn unfinished_bulks(server: &Server) {
    let beginning = [&b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$32768\r\n"[..], &[b'v'; 32_000]].concat();
    let mut clients = server.connect_all(5_000);
    clients.iter_mut().for_each(|client| _ = client.send(&beginning));
    thread::sleep(Duration::from_secs(2));
}

fn readers(server: &Server, clients: usize) {
    server.show(&[b"SET", b"value", &vec![b'v'; 1 << 20]]);
    let requests = request(&[b"GET", b"value"]).repeat(20);
    let mut clients = server.connect_all(clients);
    clients.iter_mut().for_each(|client| _ = client.send(&requests));
    thread::sleep(Duration::from_secs(2));
}

/// Each reader has another version of the value before it, in a cache that evicts.
fn overwritten(server: &Server) {
    server.show(&[b"CONFIG", b"SET", b"maxmemory-policy", b"allkeys-s3fifo"]);
    let mut filler = server.connect();
    filler.send(&keyed("MSET", "key", 100_000, true));
    filler.line();
    server.show(&[b"DBSIZE"]);
    let value = vec![b'v'; part(10_000_000)];
    let mut readers = Vec::new();
    for _ in 0..39 {
        if !server.connect().ask(&[b"SET", b"value", &value]).starts_with("+OK") {
            break;
        }
        let mut reader = server.connect();
        reader.send(&request(&[b"GET", b"value"]));
        // The beginning of the reply is there, so the reply has begun.
        let _ = reader.stream.get_ref().peek(&mut [0]);
        readers.push(reader);
    }
    println!("  {} readers", readers.len());
    thread::sleep(Duration::from_secs(1));
    server.show(&[b"DBSIZE"]);
}

fn names(server: &Server) {
    let name = [b'n'; 1000];
    let mut clients = server.connect_all(4000);
    for client in &mut clients {
        client.ask(&[b"CLIENT", b"SETNAME", &name]);
        client.ask(&[b"CLIENT", b"SETINFO", b"lib-name", &name]);
        client.ask(&[b"CLIENT", b"SETINFO", b"lib-ver", &name]);
    }
    let mut askers = server.connect_all(40);
    askers.iter_mut().for_each(|client| _ = client.send(b"CLIENT LIST\r\n"));
    thread::sleep(Duration::from_secs(2));
}

fn many_pairs(server: &Server, name: &str) {
    side_by_side(4, |number| {
        let mut client = server.connect();
        client.send(&keyed(name, ["one", "two", "few", "all"][number], 500_000, true));
        println!("  {}", client.line().trim());
    });
}

fn same_keys(server: &Server) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..8 {
            let (done, key) = (&done, format!("one:{:07}", part(500_000) / 8 * number));
            scope.spawn(move || {
                let mut client = server.connect();
                while !done.load(Relaxed) {
                    client.ask(&[b"SET", key.as_bytes(), b"v"]);
                }
            });
        }
        for _ in 0..4 {
            let mut client = server.connect();
            client.send(&keyed("MSET", "one", 500_000, true));
            println!("  {}", client.line().trim());
        }
        done.store(true, Relaxed);
    });
}

fn documents(server: &Server) {
    let mut args = vec![&b"COMMAND"[..], b"DOCS"];
    args.resize(2 + part(1_000_000), b"get");
    let mut client = server.connect();
    client.send(&request(&args));
    thread::sleep(Duration::from_secs(2));
    let mut taken = client.stream.get_ref().take(200_000_000);
    client.stream.get_ref().set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let _ = std::io::copy(&mut taken, &mut std::io::sink());
}

fn patterns(server: &Server) {
    let mut client = server.connect();
    client.send(&keyed("MSET", "key", 100_000, true));
    client.line();
    for pattern in
        [[&b"*"[..], &b"k*".repeat(1500), b"x"].concat(), [&b"*["[..], &vec![b'k'; 1 << 20], b"]b"].concat()]
    {
        println!("  {}", client.ask(&[b"KEYS", &pattern]).trim());
        println!("  {}", client.ask(&[b"SCAN", b"0", b"MATCH", &pattern, b"COUNT", b"100000"]).trim());
        // The cursor and the keys of the last reply.
        client = server.connect();
    }
}

fn many_keys(server: &Server) {
    let mut client = server.connect();
    for (name, count, with_values) in
        [("MSET", 500_000, true), ("EXISTS", 1_000_000, false), ("DEL", 500_000, false)]
    {
        client.send(&keyed(name, "key", count, with_values));
        println!("  {name} {}", client.line().trim());
    }
}

fn flush(server: &Server) {
    server.fill();
    server.show(&[b"FLUSHALL"]);
    server.show(&[b"DBSIZE"]);
}

fn counts(server: &Server) {
    server.fill();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.connect();
            for number in (0u32..).take_while(|_| !done.load(Relaxed)) {
                writer.ask(&[
                    b"SET",
                    format!("new:{:08x}", number.wrapping_mul(0x9e37_79b9)).as_bytes(),
                    b"value",
                ]);
            }
        });
        let mut client = server.connect();
        for command in [&b"INFO"[..], b"DBSIZE"] {
            let mut longest = Duration::ZERO;
            for _ in 0..50 {
                let start = Instant::now();
                client.ask(&[command]);
                longest = longest.max(start.elapsed());
            }
            println!("  {} takes at most {longest:?}", String::from_utf8_lossy(command));
        }
        done.store(true, Relaxed);
    });
}

type Command = (&'static str, &'static [&'static [u8]]);

/// The requests that a bystander repeats.
const SMALL: &[Command] = &[
    ("PING", &[b"PING"]),
    ("GET", &[b"GET", b"by:small"]),
    ("MSET of two keys", &[b"MSET", b"by:small", b"value", b"by:source", b"value"]),
    ("RENAME", &[b"RENAME", b"by:source", b"by:target"]),
];
/// The requests of a second bystander. It holds as much as an attacker meanwhile, and may be disconnected for that.
const LARGE: &[Command] = &[("SET of 300 KB", &[b"SET", b"by:large", &[b'v'; 300_000]])];

/// A client beside an attack. A refusal is an answer.
#[derive(Default)]
struct Bystander {
    /// The longest waits, for each of its commands.
    longest: Vec<Duration>,
    disconnected: usize,
}

impl Bystander {
    fn watch(server: &Server, commands: &[Command], done: &AtomicBool) -> Self {
        let mut seen = Self { longest: vec![Duration::ZERO; commands.len()], disconnected: 0 };
        let mut client = server.connect();
        while !done.load(Relaxed) {
            for ((_, command), longest) in commands.iter().zip(&mut seen.longest) {
                let start = Instant::now();
                if client.ask(command).is_empty() {
                    seen.disconnected += 1;
                    client = server.connect();
                }
                *longest = start.elapsed().max(*longest);
            }
            thread::sleep(Duration::from_millis(1));
        }
        seen
    }

    /// The waits in words, and those above `wait_max`.
    fn tell(
        &self,
        name: &str,
        commands: &[Command],
        wait_max: Duration,
        broken: &mut Vec<String>,
    ) -> Vec<String> {
        let tell = |((command, _), wait): (&Command, &Duration)| {
            let wait_ms = wait.as_secs_f64() * 1000.0;
            if *wait > wait_max {
                broken.push(format!("{name}: {command} waited for {wait_ms:.0} ms"));
            }
            format!("{command} {wait_ms:.1} ms")
        };
        commands.iter().zip(&self.longest).map(tell).collect()
    }
}

/// Runs `attack`, and returns the most memory meanwhile and the observations of the bystanders.
fn watched(server: &Server, attack: Attack) -> (u64, [Bystander; 2]) {
    // The bystanders' keys lie between others, in leaves that no attack writes to.
    for prefix in ["by:0", "by:z"] {
        let mut client = server.connect();
        client.send(&keyed("MSET", prefix, 5_000, true));
        client.line();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let meter = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Relaxed) {
                most = most.max(server.anonymous_bytes());
                thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let bystanders =
            [SMALL, LARGE].map(|commands| scope.spawn(|| Bystander::watch(server, commands, &done)));
        attack(server);
        done.store(true, Relaxed);
        (meter.join().unwrap(), bystanders.map(|bystander| bystander.join().unwrap()))
    })
}

/// Runs one attack and prints its row. Returns the figures that were above their bounds.
fn row(ziptier: &str, (name, mib, needs, attack): (&str, u64, Needs, Attack)) -> Vec<String> {
    let server = Server::start(ziptier, mib, needs);
    let (most, [small, large]) = watched(&server, attack);
    let mut broken = Vec::new();
    let bound = (mib << 20) + (mib << 20) / 20 + (32 << 20);
    let most_mib = most as f64 / f64::from(1 << 20);
    if most > bound {
        broken.push(format!("{name}: {most_mib:.0} MiB of {mib}"));
    }
    if small.disconnected > 0 {
        broken.push(format!("{name}: a client with small requests was disconnected"));
    }
    // Among a thousand clients that all move as much, a large request waits for its share of the processor.
    let wait_max_large = if matches!(needs, Needs::Connections(_)) { Duration::MAX } else { WAIT_MAX };
    let waits = [
        small.tell(name, SMALL, WAIT_MAX, &mut broken),
        large.tell(name, LARGE, wait_max_large, &mut broken),
    ]
    .concat();
    let cut = match large.disconnected {
        0 => String::new(),
        times => format!(", which was disconnected {times} times"),
    };
    println!("{name}: at most {most_mib:.0} MiB of {mib}; longest waits: {}{cut}", waits.join(", "));
    broken
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let ziptier = arguments.next().expect("usage: attacks ZIPTIER [NAME [PART]]");
    let wanted = arguments.next().unwrap_or_default();
    PART.get_or_init(|| arguments.next().map_or(1, |part| part.parse().expect("PART is a number")));
    // The server may have as many.
    let files = ziptier_server::raise_open_files();
    let (mut broken, mut skipped) = (Vec::new(), Vec::new());
    for attack in ATTACKS.iter().filter(|(name, ..)| name.contains(&wanted)) {
        let (name, _, needs, _) = attack;
        match needs {
            Needs::Connections(count) if part(*count) as u64 + OTHER_FILES > files => skipped.push(name),
            _ => broken.extend(row(&ziptier, *attack)),
        }
    }
    for name in skipped {
        println!("SKIPPED, since the limit on open files is {files}: {name}");
    }
    for broken in &broken {
        println!("TOO MUCH: {broken}");
    }
    std::process::exit(i32::from(!broken.is_empty()));
}
