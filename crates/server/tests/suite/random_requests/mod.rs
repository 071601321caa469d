//! Random requests: mostly sound, often nearly so.

use fastrand::Rng;

pub(crate) type Request = Vec<Vec<u8>>;

/// How replies may differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Bytes,
    /// Integers apart by the time that passed between the servers.
    Seconds,
    Milliseconds,
    /// The elements of an array, in any order.
    Elements,
    /// The first byte.
    Kind,
}

/// Draws requests.
pub(crate) struct Generator {
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
    /// The same requests for the same seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Rng::with_seed(seed) }
    }

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

    /// A request, and how replies to it may differ.
    pub(crate) fn request(&mut self) -> (Request, Compare) {
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
            "TTL" | "EXPIRETIME" => Compare::Seconds,
            "PTTL" | "PEXPIRETIME" => Compare::Milliseconds,
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
