//! If a server kept its limit only by its own count, and not by the system's, the kernel would kill it one day with all
//! its data. So this test fills servers from several connections until they refuse.
//!
//! The memory that the kernel gives a server at a moment depends on the machine, so only `make soak` measures it.
//! `ZIPTIER_SOAK=1` makes the servers larger and measures them. The server's own tests cover its reaction to a meter,
//! with a meter of their own.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use ziptier_testing::until;

use crate::support::{Server, serve};

/// Whether the kernel is asked.
fn soaks() -> bool {
    std::env::var_os("ZIPTIER_SOAK").is_some()
}

/// The limit of a server in CI: with room for the largest values and for far memory, or for small records alone.
const LARGE_MIB: u64 = 32;
const SMALL_MIB: u64 = 24;

const REFUSAL: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
const CLIENTS: u64 = 6;
/// Requests that a client sends at once, unless their values are large.
const PIPELINE: usize = 16;

/// A server with a limit.
struct Limited {
    server: Server,
    limit_bytes: u64,
}

impl Limited {
    fn start(mib_in_ci: u64) -> Self {
        Self::start_with(mib_in_ci, &[])
    }

    fn start_with(mib_in_ci: u64, arguments: &[&str]) -> Self {
        let limit_bytes = if soaks() { 64 } else { mib_in_ci } << 20;
        let mut command = serve();
        command.args(["--memory", &limit_bytes.to_string(), "--threads", "2"]).args(arguments);
        Self { server: Server::start(command.stderr(Stdio::inherit())), limit_bytes }
    }

    fn anonymous_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Runs `work`. In a soak, checks that the server never had more memory than its limit and one part in `part` of
    /// it. Returns the most of the last second.
    fn watched(&self, name: &str, part: u64, work: impl FnOnce()) -> Option<u64> {
        if !soaks() {
            work();
            return None;
        }
        let (most, lately) = self.most_and_lately(work);
        println!("{name}: at most {:.1} MiB, then {:.1} MiB", mib(most), mib(lately));
        assert!(most <= self.limit_bytes + self.limit_bytes / part, "{name}: {:.1} MiB", mib(most));
        Some(lately)
    }

    fn most_and_lately(&self, work: impl FnOnce()) -> (u64, u64) {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let (mut most, mut lately) = (0, VecDeque::new());
                loop {
                    let (is_last, bytes) = (done.load(Relaxed), self.anonymous_bytes());
                    most = most.max(bytes);
                    lately.push_back((Instant::now(), bytes));
                    while lately.front().is_some_and(|(at, _)| at.elapsed() > Duration::from_secs(1)) {
                        lately.pop_front();
                    }
                    if is_last {
                        return (most, lately.iter().map(|(_, bytes)| *bytes).fold(bytes, u64::max));
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            });
            // The watcher must end even when the work fails.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            done.store(true, Relaxed);
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            watcher.join().unwrap()
        })
    }
}

/// Bytes that no codec makes smaller, or words that one does.
fn value(seed: u64, len: usize, words: bool) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words_of = ["lorem ", "ipsum ", "dolor ", "sit ", "amet ", "consectetur ", "adipiscing ", "elit "];
    let mut value = Vec::with_capacity(len + 16);
    while value.len() < len {
        match words {
            true => value.extend_from_slice(words_of[next() as usize % 8].as_bytes()),
            false => value.extend_from_slice(&next().to_le_bytes()),
        }
    }
    value.truncate(len);
    value
}

/// Every client writes, from record `first` on, until it has been refused often and for some time; returns what was
/// written.
fn fill(server: &Limited, first: u64, len: impl Fn(u64) -> usize + Sync, words: bool) -> Vec<u64> {
    let len = &len;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let numbers = (first + number..).step_by(CLIENTS as usize);
                scope.spawn(move || fill_by_one(server, numbers, len, words))
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

fn fill_by_one(
    server: &Limited,
    mut numbers: impl Iterator<Item = u64>,
    len: impl Fn(u64) -> usize,
    words: bool,
) -> Vec<u64> {
    let mut client = server.server.connect();
    let (mut written, mut refused) = (Vec::new(), 0);
    let mut first_refused = None;
    loop {
        let mut group = vec![numbers.next().expect("numbers do not end")];
        assert!(group[0] < 20_000_000, "the limit never came");
        if len(group[0]) < 10_000 {
            group.extend(numbers.by_ref().take(PIPELINE - 1));
        }
        for &n in &group {
            client.request(&[b"SET", format!("key:{n:09}").as_bytes(), &value(n, len(n), words)]);
        }
        client.send().unwrap();
        let mut now_refused = 0;
        for n in group {
            match client.line().unwrap().as_str() {
                "+OK" => written.push(n),
                refusal => {
                    assert_eq!(refusal, REFUSAL);
                    now_refused += 1;
                }
            }
        }
        if now_refused > 0 {
            // It may be refused for a moment only, while a dictionary is trained.
            refused += now_refused;
            thread::sleep(Duration::from_millis(now_refused));
            let first = first_refused.get_or_insert_with(Instant::now);
            if refused >= 300 && (!soaks() || first.elapsed() > Duration::from_secs(2)) {
                return written;
            }
        }
    }
}

fn filled_reads_deletes_and_fills_again(
    name: &str,
    mib_in_ci: u64,
    len: impl Fn(u64) -> usize + Sync,
    words: bool,
) {
    let server = Limited::start(mib_in_ci);
    let mut written = Vec::new();
    // The limit is used, too. On a busy machine what makes room may take longer than clients go on asking.
    let is_used = (0..20).any(|_| {
        let first = written.iter().max().map_or(0, |last| last + 1);
        let used = server.watched(name, 20, || written.extend(fill(&server, first, &len, words)));
        used.is_none_or(|used| used >= server.limit_bytes / 10 * 8)
    });
    assert!(is_used, "{name}: the limit is not used");

    let mut client = server.server.connect();
    server.watched(name, 20, || {
        for &n in written.iter().step_by(written.len() / 2000 + 1) {
            assert!(
                client.get(&format!("key:{n:09}")).unwrap() == Some(value(n, len(n), words)),
                "{name}: key {n}"
            );
        }
        for group in written.chunks(150) {
            let doomed = group.iter().enumerate().filter(|(index, _)| index % 3 > 0);
            doomed.clone().for_each(|(_, n)| client.request(&[b"DEL", format!("key:{n:09}").as_bytes()]));
            client.send().unwrap();
            doomed.for_each(|_| assert_eq!(client.line().unwrap(), ":1", "{name}"));
        }
    });
    // Freed bytes become available when leaves are idle. That takes a moment, on a busy machine longer.
    let mut refilled = 0;
    until("50 writes fit after two thirds were deleted", || {
        let key = format!("again:{refilled}");
        let reply = client.ask(&[b"SET", key.as_bytes(), &value(refilled, len(refilled), words)]).unwrap();
        refilled += u64::from(reply == "+OK");
        refilled == 50
    });
    let info = client.info("memory").unwrap();
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name} in {info}")).parse::<u64>().unwrap()
    };
    assert_eq!(field("maxmemory"), server.limit_bytes);
    assert!(field("used_memory") > 0 && field("used_memory_rss") >= field("used_memory_rss_anonymous"));
    assert!(field("store_limit_bytes") < server.limit_bytes);
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}

#[test]
fn small_records() {
    filled_reads_deletes_and_fills_again("small words", SMALL_MIB, |_| 100, true);
    filled_reads_deletes_and_fills_again("small noise", SMALL_MIB, |_| 100, false);
}

#[test]
fn records_of_all_sizes() {
    filled_reads_deletes_and_fills_again("all sizes", LARGE_MIB, |n| 10 + (n * 7919 % 5000) as usize, false);
}

#[test]
fn large_values() {
    filled_reads_deletes_and_fills_again(
        "large",
        LARGE_MIB,
        |n| 100_000 + (n * 7919 % 1_000_000) as usize,
        false,
    );
}

#[test]
fn values_that_do_not_fit_are_read_and_refused() {
    let server = Limited::start(LARGE_MIB);
    server.watched("values that do not fit", 20, || {
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.server.connect();
                    let value = value(number, server.limit_bytes as usize / 64 * 50, false);
                    for _ in 0..3 {
                        // It never fits; what was refused leaves the connection in order.
                        let reply =
                            client.ask(&[b"SET", format!("huge:{number}").as_bytes(), &value]).unwrap();
                        assert_eq!(reply, REFUSAL);
                        assert_eq!(client.ask(&[b"PING"]).unwrap(), "+PONG");
                    }
                    assert_eq!(client.ask(&[b"SETRANGE", b"k", b"536870000", b"x"]).unwrap(), REFUSAL);
                    assert_eq!(
                        client.ask(&[b"SET", format!("small:{number}").as_bytes(), b"fits"]).unwrap(),
                        "+OK"
                    );
                });
            }
        });
    });
}

#[test]
fn far_memory_takes_eight_times_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let far = format!("1GiB:{}", folder.path().join("far").display());
    let server = Limited::start_with(LARGE_MIB, &["--far", &far]);
    let records = 8 * server.limit_bytes / 1024;
    let key = |n: u64| format!("key:{:012x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16);
    server.watched("eight times the limit", 33, || {
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (server, key) = (&server, &key);
                scope.spawn(move || {
                    let mut client = server.server.connect();
                    let all: Vec<u64> = (number..records).step_by(CLIENTS as usize).collect();
                    for group in all.chunks(PIPELINE) {
                        for &n in group {
                            let key = key(n);
                            client.request(&[b"SET", key.as_bytes(), &value(n, 1000, false)]);
                            if n % 7 == 0 {
                                client.request(&[b"GET", key.as_bytes()]);
                            }
                        }
                        client.send().unwrap();
                        for &n in group {
                            assert_eq!(client.line().unwrap(), "+OK", "record {n} of {records}");
                            if n % 7 == 0 {
                                assert!(client.bulk().unwrap() == Some(value(n, 1000, false)));
                            }
                        }
                    }
                });
            }
        });
    });
    let mut client = server.server.connect();
    for n in (0..records).step_by(17) {
        assert!(client.get(&key(n)).unwrap() == Some(value(n, 1000, false)), "record {n}");
    }
    let info = client.info("memory").unwrap();
    for field in [
        "far_kind:",
        "far_persistence:no DAX",
        "far_used_bytes:",
        "far_limit_bytes:1073741824",
        "far_body_bytes:",
    ] {
        assert!(info.contains(field), "{field} in {info}");
    }
}
