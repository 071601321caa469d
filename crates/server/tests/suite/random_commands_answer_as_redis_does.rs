//! A fixed list of requests covers only the cases of its author. So thousands of random requests, from fixed seeds, go
//! to a real Redis and to this server. They have wrong arity, texts that are nearly numbers, overflows, ranges from
//! both ends, missing and expired keys. Every reply must be the same bytes. From time to time every key must be the
//! same, and so must the number of look-ups that found a value, and that found none.
//!
//! Known differences, and how they are met here:
//!
//! - A store may refuse empty keys and keys above 64 KiB: none are sent.
//! - `KEYS` and `SCAN` come in key order, `RANDOMKEY` is random: what they find is compared, not its order.
//! - Times that are left, and moments that were given relative to now, differ by the time between two servers.
//! - The store keeps expiries in 48 bits, so that later ones become the year 10889.
//! - `OBJECT` and `MEMORY USAGE` tell of another implementation: only the kind of the reply is compared.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ziptier_testing::count;

use crate::random_requests::{Compare, Generator, Request};
use crate::support::{Connection, RealRedis, TestServer, look_ups};

on_every_backend!(thousands_of_random_commands_are_answered_alike, the_table_of_commands_is_that_of_redis);

const COMMANDS_PER_ROUND: usize = 4000;
/// Each with a seed of its own, half of them in RESP2 and half in RESP3; `ZIPTIER_ROUNDS` asks for more.
const ROUNDS: u64 = 2;
/// Seconds from which on expiries are alike: 8,800 years, and about as many before the store's limit.
const HORIZON_S: i64 = 278_000_000_000;

fn integer(reply: &[u8]) -> Option<i64> {
    std::str::from_utf8(reply).ok()?.strip_prefix(':')?.trim_end().parse().ok()
}

/// The elements of a flat array or set of strings, in order of their bytes.
fn elements(reply: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = reply;
    let line = |rest: &mut &[u8]| {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let text = std::str::from_utf8(rest.get(1..end)?).ok()?.to_owned();
        *rest = &rest[end + 2..];
        Some(text)
    };
    let count: usize = line(&mut rest)?.parse().ok()?;
    let mut found = Vec::new();
    for _ in 0..count {
        let len: usize = line(&mut rest)?.parse().ok()?;
        found.push(rest.get(..len)?.to_vec());
        rest = &rest[len + 2..];
    }
    found.sort_unstable();
    Some(found)
}

/// Whether replies differ no more than they may when each request reaches both servers within `lag`.
fn alike(theirs: &[u8], ours: &[u8], compare: Compare, lag: Duration) -> bool {
    // The second server also got the time later. So moments and remaining times may differ by this much, and each
    // server reads its clock in milliseconds.
    let lag_ms = lag.as_millis() as i64 + 2;
    let are_near = |slack, horizon| match (integer(theirs), integer(ours)) {
        (Some(a), Some(b)) => a > 0 && b > 0 && ((a - b).abs() <= slack || (a > horizon && b > horizon)),
        _ => false,
    };
    theirs == ours
        || match compare {
            Compare::Bytes => false,
            // It is rounded.
            Compare::Seconds => are_near(lag_ms / 1000 + 1, HORIZON_S),
            Compare::Milliseconds => are_near(lag_ms, HORIZON_S * 1000),
            Compare::Elements => elements(theirs).is_some() && elements(theirs) == elements(ours),
            Compare::Kind => theirs[0] == ours[0] && theirs[0] != b'-',
        }
}

fn shown(request: &[Vec<u8>]) -> String {
    let words = request.iter().map(|word| match word.len() {
        0..200 => format!("{:?}", String::from_utf8_lossy(word)),
        len => format!("({len} bytes)"),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Both servers, what was asked of them lately, and what they answered differently.
struct Pair {
    theirs: Connection,
    ours: Connection,
    lately: VecDeque<String>,
    different: Vec<String>,
    /// The longest that a request took to be answered by both, one behind the other.
    lag: Duration,
}

impl Pair {
    fn ask(&mut self, request: &[Vec<u8>], compare: Compare) -> (Vec<u8>, Vec<u8>) {
        let args: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let asked = Instant::now();
        let replies = (self.theirs.ask(&args), self.ours.ask(&args));
        self.lag = self.lag.max(asked.elapsed());
        self.lately.push_back(shown(request));
        if self.lately.len() > 8 {
            self.lately.pop_front();
        }
        if !alike(&replies.0, &replies.1, compare, self.lag) {
            let text = |reply: &[u8]| String::from_utf8_lossy(&reply[..reply.len().min(300)]).into_owned();
            let lately: Vec<_> = self.lately.iter().map(String::as_str).collect();
            self.different.push(format!(
                "{}\n  Redis {:?}\n  here  {:?}",
                lately.join("\n"),
                text(&replies.0),
                text(&replies.1)
            ));
            // One difference must not cause more.
            self.lately.clear();
            for connection in [&mut self.theirs, &mut self.ours] {
                connection.text("FLUSHALL");
            }
        }
        replies
    }

    fn ask_text(&mut self, line: &str, compare: Compare) -> (Vec<u8>, Vec<u8>) {
        let request: Request = line.split(' ').map(Into::into).collect();
        self.ask(&request, compare)
    }

    /// Both have the same keys with the same values and expiries.
    fn check_state(&mut self) {
        let (_, reply) = self.ask_text("KEYS *", Compare::Elements);
        for key in elements(&reply).unwrap_or_default() {
            self.ask(&[b"GET".to_vec(), key.clone()], Compare::Bytes);
            self.ask(&[b"STRLEN".to_vec(), key.clone()], Compare::Bytes);
            self.ask(&[b"PEXPIRETIME".to_vec(), key], Compare::Milliseconds);
        }
        self.ask_text("DBSIZE", Compare::Bytes);
        let (theirs, ours) = (look_ups(&mut self.theirs), look_ups(&mut self.ours));
        if theirs != ours {
            self.different.push(format!("hits and misses\n  Redis {theirs:?}\n  here  {ours:?}"));
        }
        let drawn = self.ours.text("RANDOMKEY");
        match drawn.strip_prefix('$').map(|rest| rest.starts_with("-1")) {
            Some(false) => {
                let key = drawn.split_once("\r\n").unwrap().1.trim_end_matches("\r\n").to_owned();
                if key.is_ascii() && !key.contains('\r') {
                    let (theirs, _) = self.ask_text(&format!("EXISTS {key}"), Compare::Bytes);
                    assert_eq!(theirs, b":1\r\n", "{key:?} was drawn");
                }
            }
            _ => drop(self.ask_text("RANDOMKEY", Compare::Bytes)),
        }
    }

    /// A key that expires, and a command that meets it after that.
    fn check_expired(&mut self, generator: &mut Generator) {
        let key = b"key:1".to_vec();
        self.ask(
            &[b"SET".to_vec(), key.clone(), b"5".to_vec(), b"PX".to_vec(), b"10".to_vec()],
            Compare::Bytes,
        );
        std::thread::sleep(Duration::from_millis(25));
        loop {
            let (mut request, compare) = generator.request();
            if request.len() > 1 && ![&b"MGET"[..], b"KEYS", b"FLUSHDB", b"DBSIZE"].contains(&&request[0][..])
            {
                request[1] = key.clone();
                self.ask(&request, compare);
                break;
            }
        }
        self.ask(&[b"DEL".to_vec(), key], Compare::Bytes);
    }
}

fn thousands_of_random_commands_are_answered_alike(server: &TestServer) {
    let redis = RealRedis::start();
    for seed in 0..count("ZIPTIER_ROUNDS", ROUNDS) {
        let mut generator = Generator::new(seed);
        let mut pair = Pair {
            theirs: Connection::to(redis.address),
            ours: server.connect(),
            lately: VecDeque::new(),
            different: Vec::new(),
            lag: Duration::ZERO,
        };
        pair.ask_text("FLUSHALL", Compare::Bytes);
        if seed % 2 == 1 {
            pair.theirs.text("HELLO 3");
            pair.ours.text("HELLO 3");
        }
        for number in 1..=COMMANDS_PER_ROUND {
            let (request, compare) = generator.request();
            pair.ask(&request, compare);
            // Redis counts a key that was written with a past expiry until somebody looks at it.
            if request[0].eq_ignore_ascii_case(b"SET") && request.len() > 2 {
                pair.ask(&[b"GET".to_vec(), request[1].clone()], Compare::Bytes);
            }
            if number % 100 == 0 {
                pair.check_expired(&mut generator);
            }
            if number % 250 == 0 {
                pair.check_state();
            }
        }
        let differences = pair.different.len();
        pair.different.truncate(10);
        assert!(differences == 0, "seed {seed}: {differences} differences\n{}", pair.different.join("\n\n"));
    }
}

fn the_table_of_commands_is_that_of_redis(server: &TestServer) {
    let redis = RealRedis::start();
    let (mut theirs, mut ours) = (Connection::to(redis.address), server.connect());
    let names = elements(ours.text("COMMAND LIST").as_bytes()).unwrap();
    assert!(names.len() > 50);
    // Redis knows nothing of those.
    for name in names.into_iter().filter(|name| !name.starts_with(b"zt.")) {
        let name = String::from_utf8(name).unwrap();
        let ask = format!("COMMAND INFO {name}");
        let (theirs, ours) = (theirs.text(&ask), ours.text(&ask));
        // Name, arity, flags and places of keys; what refines them is left out here.
        let described = ours.strip_suffix("*0\r\n*0\r\n*0\r\n*0\r\n").unwrap();
        assert!(theirs.starts_with(described), "{theirs}\n{ours}");
    }
    for line in [
        "COMMAND GETKEYS GET a",
        "COMMAND GETKEYS MSET a 1 b 2",
        "COMMAND GETKEYS MGET a b c",
        "COMMAND GETKEYS RENAME a b",
        "COMMAND GETKEYS COPY a b REPLACE",
        "COMMAND GETKEYS SET a b EX 10",
        "COMMAND GETKEYS OBJECT ENCODING a",
        "COMMAND GETKEYS MEMORY USAGE a",
        "COMMAND GETKEYS GET",
        "COMMAND GETKEYS GET a b",
        "COMMAND GETKEYS PING",
        "COMMAND GETKEYS NOTHING a",
        "COMMAND GETKEYS",
        "COMMAND LIST FILTERBY PATTERN getr*",
        "COMMAND LIST FILTERBY MODULE none",
        "COMMAND LIST FILTERBY",
        "COMMAND LIST x",
        "COMMAND COUNT x",
        "COMMAND DOCS nothing",
        "COMMAND INFO nothing",
    ] {
        assert_eq!(theirs.text(line), ours.text(line), "{line}");
    }
}
