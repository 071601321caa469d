//! A list of requests shows what its author thought of. So thousands of random ones, from fixed seeds, go to a real
//! Redis and to this server: wrong arity, texts that are nearly numbers, overflows, ranges from both ends, missing
//! and expired keys. Every reply must be the same bytes, and from time to time every key must be the same.
//!
//! Known differences, and how they are met here:
//!
//! - A store may refuse empty keys and keys above 64 KiB: none are sent.
//! - `KEYS` and `SCAN` come in key order, `RANDOMKEY` is random: what they find is compared, not its order.
//! - Times that are left, and moments that were given relative to now, differ by the time between two servers.
//! - The store keeps expiries in 48 bits, so that later ones become the year 10889.
//! - `OBJECT` and `MEMORY USAGE` tell of another implementation: only the kind of the reply is compared.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod support;

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use support::{Connection, RealRedis, TestServer};

on_every_backend!(thousands_of_random_commands_are_answered_alike, the_table_of_commands_is_that_of_redis);

const COMMANDS_PER_ROUND: usize = 4000;
/// Each with a seed of its own; the variable `ROUNDS` asks for more.
const ROUNDS: u64 = 6;
/// Seconds from which on expiries are alike: 8,800 years, and about as many before the store's limit.
const HORIZON_S: i64 = 278_000_000_000;

type Request = Vec<Vec<u8>>;

/// How replies may differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compare {
    Bytes,
    /// Integers up to so much apart.
    Within(i64),
    /// The elements of an array, in any order.
    Elements,
    /// The first byte.
    Kind,
}

struct Generator {
    random: Rng,
}

/// Times from now are all far apart, so that a millisecond more or less decides nothing.
const TIMES: &[&str] =
    &["0", "-1", "x", "", "1.5", " 10", "9223372036854775807", "-9223372036854775808", "9223372036854775"];

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "-3",
    "10",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "007",
    "+1",
    " 1",
    "1 ",
    "1.0",
    "",
    "-",
    "x",
    "-0",
    "4294967296",
    "123456789012345678901",
];

const FLOATS: &[&str] = &[
    "0",
    "1",
    "-1",
    "0.1",
    "3.0e3",
    "1e-5",
    "1e17",
    "1e18",
    "-1e20",
    "5.0e-324",
    "1e308",
    "1e4000",
    "-1e4000",
    "1e5000",
    "inf",
    "-inf",
    "nan",
    "0x10",
    "0x1.8p3",
    ".5",
    "5.",
    ".",
    "1e",
    "",
    " 1",
    "1 ",
    "+2",
    "--2",
    "1.7976931348623157e308",
    "0.30000000000000004",
    "123456789.987654321",
    "1e-4950",
    "1e-5000",
    "99999999999999999999999999",
    "0.00000000000000001",
    "0.000000000000000005",
    "0.000000000000000015",
    "18446744073709551615.5",
    "Infinity",
    "1_000",
    "1,5",
];

const PATTERNS: &[&str] = &[
    "*",
    "key:*",
    "key:?",
    "key:[0-4]",
    "key:[^0-4]",
    "k*y:1",
    "",
    "?",
    "*1*",
    "[k]ey:[9-0]",
    "\\key:2",
    "key:\\?",
    "nothing*",
    "key:1",
    "k[",
    "*[0",
    "**:**",
    "key:[\\]1]",
];

impl Generator {
    fn choose<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.random.usize(..texts.len())]
    }

    fn key(&mut self) -> Vec<u8> {
        match self.random.u8(..40) {
            0 => b"\0bin\r\n\xff".to_vec(),
            1 => vec![b'L'; 300],
            2 => b"missing".to_vec(),
            _ => format!("key:{}", self.random.u8(..10)).into_bytes(),
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.random.u8(..3) {
            0 => self.choose(INTEGERS).into(),
            1 => self.random.i64(-50..50).to_string().into(),
            _ => self.random.i64(..).to_string().into(),
        }
    }

    fn float(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        match random.u8(..5) {
            0 => self.choose(FLOATS).into(),
            1 => format!("{}", random.f64() * 1000.0 - 500.0).into(),
            2 => format!("{}.{}e{}", random.i32(-99..99), random.u32(..), random.i32(-30..30)).into(),
            3 => format!("{}", f64::from_bits(random.u64(..))).into(),
            _ => format!("{}.{:02}", random.i32(-999..999), random.u8(..100)).into(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.u8(..12) {
            0..3 => self.integer(),
            3 | 4 => self.float(),
            5 => Vec::new(),
            6 => (0..self.random.usize(..80)).map(|_| self.random.u8(..)).collect(),
            7 => vec![b'v'; self.random.usize(..5000)],
            8 if self.random.u8(..8) == 0 => vec![b'L'; 300_000],
            _ => format!("some text {}", self.random.u8(..20)).into_bytes(),
        }
    }

    /// A time relative to now, or none at all.
    fn span(&mut self, milliseconds: bool) -> Vec<u8> {
        if self.random.u8(..4) == 0 {
            return self.choose(TIMES).into();
        }
        let seconds = self.random.i64(1000..100_000_000);
        (if milliseconds { seconds * 1000 } else { seconds }).to_string().into()
    }

    /// A Unix time, or none at all.
    fn moment(&mut self, milliseconds: bool) -> Vec<u8> {
        match self.random.u8(..8) {
            0 => self.choose(TIMES).into(),
            1 => b"1000".into(),
            _ => {
                let seconds = self.random.i64(2_000_000_000..9_000_000_000);
                (if milliseconds { seconds * 1000 } else { seconds }).to_string().into()
            }
        }
    }

    fn place(&mut self) -> Vec<u8> {
        match self.random.u8(..6) {
            0 => self.integer(),
            _ => self.random.i64(-12..12).to_string().into(),
        }
    }

    /// An option that takes a time, and its time.
    fn expiry(&mut self, request: &mut Request) {
        let option = self.choose(&["EX", "px", "EXAT", "Pxat"]);
        request.push(option.into());
        let milliseconds = option.to_ascii_uppercase().starts_with('P');
        request.push(if option.len() == 2 { self.span(milliseconds) } else { self.moment(milliseconds) });
    }

    fn pairs(&mut self, request: &mut Request) {
        for _ in 0..self.random.usize(1..6) {
            request.push(self.key());
            request.push(self.value());
        }
    }

    fn keys(&mut self, request: &mut Request) {
        for _ in 0..self.random.usize(1..20) {
            request.push(self.key());
        }
    }

    fn request(&mut self) -> (Request, Compare) {
        const NAMES: &[&str] = &[
            "GET",
            "SET",
            "SET",
            "SET",
            "MGET",
            "MSET",
            "MSETNX",
            "DEL",
            "UNLINK",
            "EXISTS",
            "TOUCH",
            "INCR",
            "DECR",
            "INCRBY",
            "DECRBY",
            "INCRBYFLOAT",
            "INCRBYFLOAT",
            "SETEX",
            "PSETEX",
            "SETNX",
            "GETSET",
            "GETEX",
            "GETEX",
            "GETDEL",
            "GETRANGE",
            "SUBSTR",
            "SETRANGE",
            "SETRANGE",
            "APPEND",
            "STRLEN",
            "EXPIRE",
            "PEXPIRE",
            "EXPIREAT",
            "PEXPIREAT",
            "TTL",
            "PTTL",
            "EXPIRETIME",
            "PEXPIRETIME",
            "PERSIST",
            "TYPE",
            "KEYS",
            "RENAME",
            "RENAMENX",
            "COPY",
            "DBSIZE",
            "OBJECT",
            "MEMORY",
            "FLUSHDB",
            "ECHO",
        ];
        let name = self.choose(NAMES);
        let mut request: Request = vec![name.into()];
        let r = &mut request;
        let mut compare = Compare::Bytes;
        match name {
            "MGET" | "DEL" | "UNLINK" | "EXISTS" | "TOUCH" => self.keys(r),
            "MSET" | "MSETNX" => self.pairs(r),
            "SET" => {
                r.extend([self.key(), self.value()]);
                for _ in 0..self.random.u8(..3) {
                    match self.random.u8(..3) {
                        0 => self.expiry(r),
                        _ => r.push(
                            self.choose(&["NX", "xx", "GET", "KEEPTTL", "PERSIST", "EX", "nonsense"]).into(),
                        ),
                    }
                }
            }
            "GETEX" => {
                r.push(self.key());
                match self.random.u8(..6) {
                    0 => {}
                    1 => r.push(b"PERSIST".into()),
                    2 => r.push(self.choose(&["KEEPTTL", "EX", "x"]).into()),
                    3 => {
                        self.expiry(r);
                        self.expiry(r);
                    }
                    _ => self.expiry(r),
                }
            }
            "INCRBY" | "DECRBY" => r.extend([self.key(), self.integer()]),
            "INCRBYFLOAT" => r.extend([self.key(), self.float()]),
            "SETEX" | "PSETEX" => r.extend([self.key(), self.span(name == "PSETEX"), self.value()]),
            "SETNX" | "GETSET" | "APPEND" => r.extend([self.key(), self.value()]),
            "GETRANGE" | "SUBSTR" => r.extend([self.key(), self.place(), self.place()]),
            "SETRANGE" => {
                // Between these lie values that take long to make.
                let offsets = &[
                    "-1",
                    "x",
                    "536870912",
                    "536870911111",
                    "9223372036854775807",
                    "-9223372036854775808",
                    "",
                ];
                let offset = match self.random.u8(..4) {
                    0 => self.choose(offsets).into(),
                    _ => self.random.u32(..3000).to_string().into(),
                };
                r.extend([self.key(), offset, self.value()]);
            }
            "EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT" => {
                let milliseconds = name.starts_with('P');
                let time =
                    if name.ends_with("AT") { self.moment(milliseconds) } else { self.span(milliseconds) };
                r.extend([self.key(), time]);
                for _ in 0..self.random.u8(..3) {
                    r.push(self.choose(&["NX", "XX", "gt", "LT", "x"]).into());
                }
            }
            "KEYS" => {
                r.push(self.choose(PATTERNS).into());
                compare = Compare::Elements;
            }
            "RENAME" | "RENAMENX" => r.extend([self.key(), self.key()]),
            "COPY" => {
                r.extend([self.key(), self.key()]);
                for _ in 0..self.random.u8(..3) {
                    match self.random.u8(..4) {
                        0 => r.extend([
                            b"DB".to_vec(),
                            self.choose(&["0", "0", "1", "-1", "x", "99999999999"]).into(),
                        ]),
                        1 => r.push(self.choose(&["DB", "x"]).into()),
                        _ => r.push(b"REPLACE".into()),
                    }
                }
            }
            "OBJECT" => {
                let words = ["ENCODING", "IDLETIME", "REFCOUNT", "FREQ", "NOTHING", "ENCODING"];
                r.extend([self.choose(&words).into(), self.key()]);
                compare = Compare::Kind;
            }
            "MEMORY" => {
                r.extend([self.choose(&["USAGE", "usage", "NOTHING"]).into(), self.key()]);
                if self.random.bool() {
                    r.push(b"SAMPLES".into());
                    r.push(self.integer());
                }
                compare = Compare::Kind;
            }
            "DBSIZE" => {}
            "FLUSHDB" => {
                // Rare enough for keys to gather.
                if self.random.u8(..8) > 0 {
                    *r = vec![b"DBSIZE".into()];
                }
            }
            _ => r.push(self.key()),
        }
        compare = match name {
            "TTL" | "EXPIRETIME" => Compare::Within(3),
            "PTTL" | "PEXPIRETIME" => Compare::Within(3000),
            _ => compare,
        };
        match self.random.u8(..60) {
            0 => {
                request.pop();
                request.extend(request.is_empty().then(|| b"GET".to_vec()));
            }
            1 => request.push(self.choose(&["x", "10", "-1", "NX", "key:1", "ä"]).into()),
            2 => request[0].make_ascii_lowercase(),
            _ => {}
        }
        (request, compare)
    }
}

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

fn alike(theirs: &[u8], ours: &[u8], compare: Compare) -> bool {
    theirs == ours
        || match compare {
            Compare::Bytes => false,
            Compare::Within(slack) => match (integer(theirs), integer(ours)) {
                (Some(a), Some(b)) => {
                    let horizon = HORIZON_S * if slack > 1000 { 1000 } else { 1 };
                    a > 0 && b > 0 && ((a - b).abs() <= slack || (a > horizon && b > horizon))
                }
                _ => false,
            },
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
}

impl Pair {
    fn ask(&mut self, request: &[Vec<u8>], compare: Compare) -> (Vec<u8>, Vec<u8>) {
        let args: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let replies = (self.theirs.ask(&args), self.ours.ask(&args));
        self.lately.push_back(shown(request));
        if self.lately.len() > 8 {
            self.lately.pop_front();
        }
        if !alike(&replies.0, &replies.1, compare) {
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
            self.ask(&[b"PEXPIRETIME".to_vec(), key], Compare::Within(3000));
        }
        self.ask_text("DBSIZE", Compare::Bytes);
        let drawn = self.ours.text("RANDOMKEY");
        match drawn.strip_prefix('$').map(|rest| rest.starts_with("-1")) {
            Some(false) => {
                let key = drawn.split_once("\r\n").unwrap().1.trim_end_matches("\r\n").to_owned();
                if key.is_ascii() && !key.contains('\r') {
                    assert_eq!(self.theirs.text(&format!("EXISTS {key}")), ":1\r\n", "{key:?} was drawn");
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
    let rounds = std::env::var("ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    for seed in 0..rounds {
        let mut generator = Generator { random: Rng::with_seed(seed) };
        let mut pair = Pair {
            theirs: Connection::to(redis.address),
            ours: server.connect(),
            lately: VecDeque::new(),
            different: Vec::new(),
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
        let count = pair.different.len();
        pair.different.truncate(10);
        assert!(count == 0, "seed {seed}: {count} differences\n{}", pair.different.join("\n\n"));
    }
}

fn the_table_of_commands_is_that_of_redis(server: &TestServer) {
    let redis = RealRedis::start();
    let (mut theirs, mut ours) = (Connection::to(redis.address), server.connect());
    let names = elements(ours.text("COMMAND LIST").as_bytes()).unwrap();
    assert!(names.len() > 50);
    for name in names {
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
