//! What hostile clients cost a real server: `attacks ZIPTIER [NAME]` starts `ZIPTIER serve` for each attack, on this machine alone, and
//! prints the most anonymous memory it had beside its limit, and the longest wait of a client that only asks for `PING` and a small value.
//!
//! The figures are for people: they depend on the machine, and tests hold what must not depend on it.

#![allow(clippy::unwrap_used, reason = "a measurement that can't go on should stop")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

type Attack = fn(&Server);

/// Name, memory limit in MiB, what is done.
const ATTACKS: &[(&str, u64, Attack)] = &[
    ("GETEX of 200 MB, 8 clients", 1024, |server| whole_values(server, &[b"GETEX", b"huge", b"PERSIST"])),
    ("SET NX GET of 200 MB, 8 clients", 1024, |server| {
        whole_values(server, &[b"SET", b"huge", b"v", b"NX", b"GET"]);
    }),
    ("SETRANGE to 300 MB, 8 clients", 1024, ranges),
    ("4,000 unfinished requests of 5,440 arguments", 64, unfinished),
    ("1,000 readers of 1 MB that never read", 64, readers),
    ("4,000 clients with names of 3 KiB, 40 lists of them", 64, names),
    ("MSET of 500,000 pairs, 4 clients", 256, many_pairs),
    ("COMMAND DOCS of 1,000,000 names", 64, documents),
    ("KEYS of 100,000 keys, pattern of 3 KB and class of 1 MB", 256, patterns),
    ("MSET and DEL of 500,000 keys, EXISTS of 1,000,000", 512, many_keys),
    ("INFO and DBSIZE beside writes, 1,000,000 keys", 512, counts),
];

/// A running `ziptier serve`.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(ziptier: &str, mib: u64) -> Self {
        let mut child = Command::new(ziptier)
            .args(["serve", "--port", "0", "--memory", &format!("{mib}MiB"), "--threads", "2"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("ziptier starts");
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address = first.split_ascii_whitespace().find_map(|word| word.parse().ok());
        Self { child, address: address.unwrap_or_else(|| panic!("no address in {first:?}")) }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).expect("the server accepts");
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
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

/// `name` with `count` keys, and values if they are wanted.
fn keyed(name: &str, count: usize, with_values: bool) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", 1 + count * (1 + usize::from(with_values))).into_bytes();
    bytes.extend_from_slice(format!("${}\r\n{name}\r\n", name.len()).as_bytes());
    for number in 0..count {
        bytes.extend_from_slice(format!("$11\r\nkey:{number:07}\r\n").as_bytes());
        if with_values {
            bytes.extend_from_slice(b"$1\r\nv\r\n");
        }
    }
    bytes
}

fn side_by_side(clients: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| (0..clients).for_each(|_| drop(scope.spawn(&work))));
}

fn whole_values(server: &Server, command: &[&[u8]]) {
    println!("  {}", server.connect().ask(&[b"SETRANGE", b"huge", b"200000000", b"x"]).trim());
    side_by_side(8, || drop(server.connect().ask(command)));
}

fn ranges(server: &Server) {
    side_by_side(8, || {
        println!("  {}", server.connect().ask(&[b"SETRANGE", b"huge", b"300000000", b"x"]).trim())
    });
}

fn unfinished(server: &Server) {
    let beginning = [&b"*5450\r\n$3\r\nDEL\r\n"[..], &b"$0\r\n\r\n".repeat(5440)].concat();
    let mut clients: Vec<_> = (0..4000).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| _ = client.send(&beginning));
    thread::sleep(Duration::from_secs(2));
}

fn readers(server: &Server) {
    println!("  {}", server.connect().ask(&[b"SET", b"value", &vec![b'v'; 1 << 20]]).trim());
    let requests = request(&[b"GET", b"value"]).repeat(20);
    let mut clients: Vec<_> = (0..1000).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| _ = client.send(&requests));
    thread::sleep(Duration::from_secs(2));
}

fn names(server: &Server) {
    let name = [b'n'; 1000];
    let mut clients: Vec<_> = (0..4000).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask(&[b"CLIENT", b"SETNAME", &name]);
        client.ask(&[b"CLIENT", b"SETINFO", b"lib-name", &name]);
        client.ask(&[b"CLIENT", b"SETINFO", b"lib-ver", &name]);
    }
    let mut askers: Vec<_> = (0..40).map(|_| server.connect()).collect();
    askers.iter_mut().for_each(|client| _ = client.send(b"CLIENT LIST\r\n"));
    thread::sleep(Duration::from_secs(2));
}

fn many_pairs(server: &Server) {
    let command = keyed("MSET", 500_000, true);
    side_by_side(4, || {
        let mut client = server.connect();
        client.send(&command);
        println!("  {}", client.line().trim());
    });
}

fn documents(server: &Server) {
    let mut args = vec![&b"COMMAND"[..], b"DOCS"];
    args.resize(1_000_000, b"get");
    let mut client = server.connect();
    client.send(&request(&args));
    thread::sleep(Duration::from_secs(2));
    let mut taken = client.stream.get_ref().take(200_000_000);
    client.stream.get_ref().set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let _ = std::io::copy(&mut taken, &mut std::io::sink());
}

fn patterns(server: &Server) {
    let mut client = server.connect();
    client.send(&keyed("MSET", 100_000, true));
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
        client.send(&keyed(name, count, with_values));
        println!("  {name} {}", client.line().trim());
    }
}

fn counts(server: &Server) {
    server.connect().send(&keyed("MSET", 500_000, true));
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

/// The most memory while `attack` goes on, and the longest wait of somebody else.
fn watched(server: &Server, attack: Attack) -> (u64, Duration) {
    let done = AtomicBool::new(false);
    let mut bystander = server.connect();
    bystander.ask(&[b"SET", b"small", b"value"]);
    thread::scope(|scope| {
        let meter = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Relaxed) {
                most = most.max(server.anonymous_bytes());
                thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let waiter = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !done.load(Relaxed) {
                for command in [&[&b"PING"[..]][..], &[b"GET", b"small"]] {
                    let start = Instant::now();
                    if bystander.ask(command).is_empty() {
                        println!("  the bystander was disconnected");
                        return Duration::MAX;
                    }
                    longest = longest.max(start.elapsed());
                }
                thread::sleep(Duration::from_millis(1));
            }
            longest
        });
        attack(server);
        done.store(true, Relaxed);
        (meter.join().unwrap(), waiter.join().unwrap())
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let ziptier = arguments.next().expect("usage: attacks ZIPTIER [NAME]");
    let wanted = arguments.next().unwrap_or_default();
    ziptier_server::raise_open_files();
    let mut failed = false;
    for (name, mib, attack) in ATTACKS.iter().filter(|(name, ..)| name.contains(&wanted)) {
        let server = Server::start(&ziptier, *mib);
        let (most, longest) = watched(&server, *attack);
        let bound = (mib << 20) + (mib << 20) / 20 + (32 << 20);
        failed |= most > bound;
        println!(
            "{name}: at most {:.0} MiB of {mib}, longest wait of another client {:.1} ms{}",
            most as f64 / f64::from(1 << 20),
            longest.as_secs_f64() * 1000.0,
            if most > bound { ": TOO MUCH" } else { "" }
        );
    }
    std::process::exit(i32::from(failed));
}
