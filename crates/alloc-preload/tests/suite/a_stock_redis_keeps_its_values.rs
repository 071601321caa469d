//! An unmodified redis-server with the library keeps its values, counts its memory, and saves snapshots that a
//! redis-server without the library loads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use ziptier_testing::until;

use crate::support::{page_of, with_library};

/// A server on a port of its own, which ends with this value.
pub(crate) struct Redis {
    process: Child,
    pub(crate) port: u16,
    connection: BufReader<TcpStream>,
    _held: Port,
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A port of the loopback that no other program gets: a socket that never listens has it. A server that allows itself
/// to take a used address, as Redis does, listens there all the same.
pub(crate) struct Port {
    pub(crate) number: u16,
    _socket: OwnedFd,
}

impl Port {
    pub(crate) fn new() -> Port {
        // SAFETY: the socket is new and nobody else's. The calls read and write local variables of the sizes that they
        // are told. All zeros is a valid address.
        unsafe {
            let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            assert!(socket >= 0);
            let socket = OwnedFd::from_raw_fd(socket);
            let (fd, yes) = (socket.as_raw_fd(), 1_i32);
            let len = size_of::<i32>() as libc::socklen_t;
            let set =
                libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, (&raw const yes).cast(), len);
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::AF_INET as libc::sa_family_t;
            address.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
            let mut len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            let bound = libc::bind(fd, (&raw const address).cast(), len);
            let named = libc::getsockname(fd, (&raw mut address).cast(), &mut len);
            assert_eq!([set, bound, named], [0; 3]);
            Port { number: u16::from_be(address.sin_port), _socket: socket }
        }
    }
}

impl Redis {
    /// With the library and `options`, or without it. `None` where there is no redis-server.
    pub(crate) fn start(folder: &Path, options: Option<&str>, more: &[&str]) -> Option<Redis> {
        Redis::start_program("redis-server", folder, options, more)
    }

    /// The same with another server of the protocol.
    pub(crate) fn start_program(
        program: &str,
        folder: &Path,
        options: Option<&str>,
        more: &[&str],
    ) -> Option<Redis> {
        let mut command = match options {
            Some(options) => with_library(program, options),
            None => Command::new(program),
        };
        let held = Port::new();
        let port = held.number;
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(folder);
        let Ok(process) = command.args(more).stdout(Stdio::null()).spawn() else {
            ziptier_testing::not_run(program, &format!("install {program}"));
            return None;
        };
        let mut found = None;
        until("redis-server listens", || {
            found = TcpStream::connect(("127.0.0.1", port)).ok();
            found.is_some()
        });
        Some(Redis { process, port, connection: BufReader::new(found.unwrap()), _held: held })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Begins a snapshot and stops its child, whose number it returns. A child that has ended before its signal came
    /// makes another snapshot.
    fn stopped_snapshot(&mut self) -> i32 {
        let pid = self.pid();
        let mut stopped = None;
        until("a snapshot's child stands still", || {
            if self.info("persistence", "rdb_bgsave_in_progress") == 0 {
                self.ask(&["BGSAVE"]);
            }
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            stopped = children.trim().parse::<i32>().ok().filter(|&child| {
                // SAFETY: the call takes numbers. The child is this server's. A wrong number would be that of a process
                // that the server has waited for since, and the kernel gives numbers in turn.
                unsafe { libc::kill(child, libc::SIGSTOP) };
                let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
            });
            stopped.is_some()
        });
        stopped.unwrap()
    }

    /// What the library tells of DRAM and of far memory.
    fn live_bytes(&self) -> [f64; 2] {
        page_of(self.pid()).told.media.each_ref().map(|medium| medium.live_bytes.load(Relaxed) as f64)
    }

    pub(crate) fn send(&mut self, words: &[&[u8]]) {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).bytes());
            request.extend_from_slice(word);
            request.extend(b"\r\n");
        }
        self.connection.get_mut().write_all(&request).unwrap();
    }

    pub(crate) fn reply(&mut self) -> Vec<u8> {
        let mut line = String::new();
        self.connection.read_line(&mut line).unwrap();
        let line = line.trim_end();
        assert!(!line.starts_with('-'), "{line}");
        let Some(len) = line.strip_prefix('$') else { return line.into() };
        let mut value = vec![0; len.parse::<usize>().unwrap() + 2];
        self.connection.read_exact(&mut value).unwrap();
        value.truncate(value.len() - 2);
        value
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&words);
        String::from_utf8(self.reply()).unwrap()
    }

    /// A number of `INFO`.
    pub(crate) fn info(&mut self, section: &str, name: &str) -> u64 {
        let [number] = self.info_of(section, [name]);
        number
    }

    /// Numbers of one page of `INFO`.
    fn info_of<const N: usize>(&mut self, section: &str, names: [&str; N]) -> [u64; N] {
        let info = self.ask(&["INFO", section]);
        names.map(|name| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap().parse().unwrap()
        })
    }

    /// Waits until Redis has looked at its allocator since this call began. Redis does so ten times a second, and tells
    /// the last figures in between. The value that this adds makes the next ones differ.
    fn wait_for_figures(&mut self) {
        let before = self.info("memory", "allocator_allocated");
        assert_eq!(self.ask(&["SET", "more", &"x".repeat(256 << 10)]), "+OK");
        until("Redis has looked at its allocator", || self.info("memory", "allocator_allocated") != before);
    }

    /// Sets `key:0` and so on, in pipelines.
    pub(crate) fn set_all(&mut self, keys: usize, value: impl Fn(usize) -> Vec<u8>) {
        for first in (0..keys).step_by(100) {
            let now = first..keys.min(first + 100);
            now.clone().for_each(|key| self.send(&[b"SET", format!("key:{key}").as_bytes(), &value(key)]));
            now.for_each(|_| assert_eq!(self.reply(), b"+OK"));
        }
    }

    /// The number of keys that have another value.
    pub(crate) fn differing(&mut self, keys: usize, value: impl Fn(usize) -> Vec<u8>) -> usize {
        let mut differing = 0;
        for first in (0..keys).step_by(100) {
            let now = first..keys.min(first + 100);
            now.clone().for_each(|key| self.send(&[b"GET", format!("key:{key}").as_bytes()]));
            differing += now.filter(|&key| self.reply() != value(key)).count();
        }
        differing
    }
}

/// 40 to 4,000 bytes that name the key and the round.
fn value(key: usize, round: usize) -> Vec<u8> {
    let text = format!("value {round} of key {key}; ");
    let bytes = 40 + key * 2654435761 % 3961;
    text.bytes().cycle().take(bytes).collect()
}

#[test]
fn and_tells_its_memory() {
    const KEYS: usize = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let Some(mut redis) = Redis::start(folder.path(), Some("ratio=1:3"), &[]) else { return };
    (0..3).for_each(|round| redis.set_all(KEYS, |key| value(key, round)));
    assert_eq!(redis.differing(KEYS, |key| value(key, 2)), 0);
    redis.wait_for_figures();
    let names = ["used_memory", "allocator_allocated", "allocator_active", "allocator_resident"];
    let [used, allocated, active, resident] = redis.info_of("memory", names).map(|bytes| bytes as f64);
    assert!((0.9..1.2).contains(&(allocated / used)), "{allocated} bytes allocated for {used}");
    assert!(allocated <= active && active <= resident && resident < 2.0 * used);
    assert!(redis.ask(&["MEMORY", "MALLOC-STATS"]).contains("___ Begin jemalloc statistics ___"));
    assert_eq!(redis.ask(&["MEMORY", "PURGE"]), "+OK");
    let said = redis.ask(&["MEMORY", "DOCTOR"]);
    assert!(said.contains("Sam") && !said.contains("High allocator"), "{said}");
    let media = redis.live_bytes();
    assert!((2.7..3.3).contains(&(media[1] / media[0])), "{media:?}");
    assert!((0.9..1.2).contains(&((media[0] + media[1]) / used)), "{media:?}, {used}");
}

#[test]
#[ignore = "three servers; make test-alloc runs it"]
fn beside_two_others_with_other_ratios_and_budgets() {
    const KEYS: usize = 60_000;
    const BUDGET: f64 = 32.0 * 1048576.0;
    let folder = tempfile::tempdir().unwrap();
    let start = |options| Redis::start(folder.path(), Some(options), &[]);
    let all = ["ratio=1:3", "ratio=1:1", "ratio=3:1,dram-limit=32MiB"].map(start);
    let [Some(mut third), Some(mut half), Some(mut limited)] = all else { return };
    std::thread::scope(|scope| {
        for redis in [&mut third, &mut half, &mut limited] {
            scope.spawn(|| (0..2).for_each(|round| redis.set_all(KEYS, |key| value(key, round))));
        }
    });
    let within = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.05;
    let [three, one] = [&third, &half].map(|redis| redis.live_bytes()[1] / redis.live_bytes()[0]);
    let dram = limited.live_bytes()[0];
    assert!(within(three, 3.0) && within(one, 1.0) && within(dram, BUDGET), "{three} {one} {dram}");
}

#[test]
fn in_snapshots() {
    const KEYS: usize = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let Some(mut redis) = Redis::start(folder.path(), Some("ratio=1:3"), &["--rdb-key-save-delay", "100"])
    else {
        return;
    };
    redis.set_all(KEYS, |key| value(key, 1));
    // The child waits while all values are overwritten, in place and anew.
    let child = redis.stopped_snapshot();
    redis.set_all(KEYS, |key| value(key, 2));
    assert_eq!(redis.info("persistence", "rdb_bgsave_in_progress"), 1, "the snapshot was ready too soon");
    // SAFETY: the call takes numbers. The child stands still, so its number is its own.
    assert_eq!(unsafe { libc::kill(child, libc::SIGCONT) }, 0);
    until("the snapshot is saved", || redis.info("persistence", "rdb_bgsave_in_progress") == 0);
    assert_eq!(redis.differing(KEYS, |key| value(key, 2)), 0);
    drop(redis);
    let mut plain = Redis::start(folder.path(), None, &[]).unwrap();
    until("the snapshot is loaded", || plain.info("persistence", "loading") == 0);
    assert_eq!(plain.ask(&["DBSIZE"]), format!(":{KEYS}"));
    assert_eq!(plain.differing(KEYS, |key| value(key, 1)), 0);
}
