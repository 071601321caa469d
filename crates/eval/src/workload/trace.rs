//! Traces: files of the requests that a cache or a store once got, in two formats.
//!
//! | format | fields of a line |
//! |---|---|
//! | ziptier's own, with the first line `ziptier-trace 1` | seconds, operation, key, bytes of the value, seconds to live; between spaces or tabs, the last two only where there are any |
//! | Twitter's cache traces | timestamp, key, key size, value size, client, operation, TTL; between commas, which a key may have, too |
//!
//! A trace may be longer than memory, so it is read line by line. A length is compared with its limit before anything
//! is allocated for it. The first line that is cut or malformed ends the trace; the sentence names its line and field.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Bytes of the longest line.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the longest key.
const KEY_BYTES_MAX: usize = 65_535;
const OWN_FORMAT: &[u8] = b"ziptier-trace";
const OWN_VERSION: &[u8] = b"1";
const NS_PER_SEC: u64 = 1_000_000_000;
/// More seconds are no time: 300 years.
const SECONDS_MAX: u64 = 10_000_000_000;
/// How a frame of zstd begins.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What a request asks of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// To read a value.
    Get,
    /// To put a value.
    Set,
    /// To put a value if the key has none.
    Add,
    /// To put a value if the key has one.
    Replace,
    /// To make a value longer.
    Extend,
    /// To change a value, and not its length.
    Count,
    /// To remove a key.
    Delete,
    /// Something that no target can do.
    Other,
}

/// The operations that traces have.
pub const OPERATIONS: [(&str, Call); 15] = [
    ("get", Call::Get),
    ("gets", Call::Get),
    ("set", Call::Set),
    ("add", Call::Add),
    ("replace", Call::Replace),
    ("cas", Call::Replace),
    ("append", Call::Extend),
    ("prepend", Call::Extend),
    ("incr", Call::Count),
    ("decr", Call::Count),
    ("delete", Call::Delete),
    ("touch", Call::Other),
    ("gat", Call::Other),
    ("gats", Call::Other),
    ("flush_all", Call::Other),
];

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Nanoseconds of the trace's clock.
    pub time_ns: u64,
    /// Its place in [`OPERATIONS`].
    pub operation: usize,
    /// Any bytes.
    pub key: &'a [u8],
    /// Bytes of the value, as far as the trace tells.
    pub value_bytes: u32,
    /// Seconds that the value is to live; 0 for ever.
    pub lifetime_sec: u64,
    /// Whether the trace says that the key had another length than the one that it gives.
    pub is_key_altered: bool,
}

/// The format of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Ours.
    Own,
    /// Twitter's.
    Twitter,
}

/// Names of the fields of each format.
const OWN_FIELDS: [&str; 5] = ["seconds", "operation", "key", "bytes of the value", "seconds to live"];
const TWITTER_FIELDS: [&str; 7] =
    ["timestamp", "key", "key size", "value size", "client", "operation", "TTL"];

impl Layout {
    fn fields(self) -> &'static [&'static str] {
        match self {
            Layout::Own => &OWN_FIELDS,
            Layout::Twitter => &TWITTER_FIELDS,
        }
    }

    /// The nanoseconds within which all requests have one timestamp.
    pub fn tick_ns(self) -> u64 {
        match self {
            Layout::Own => 1,
            Layout::Twitter => NS_PER_SEC,
        }
    }

    /// The request in a line without its end.
    ///
    /// # Errors
    /// The number of the field at fault, from 0 on, and what is wrong with it.
    pub fn parse(self, line: &[u8], value_bytes_max: u32) -> Result<Request<'_>, (usize, String)> {
        match self {
            Layout::Own => own(line, value_bytes_max),
            Layout::Twitter => twitter(line, value_bytes_max),
        }
    }
}

fn own(line: &[u8], value_bytes_max: u32) -> Result<Request<'_>, (usize, String)> {
    let mut fields = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty());
    let mut field = |at: usize| fields.next().ok_or_else(|| (at, "it is missing".to_owned()));
    let time_ns = time(field(0)?).map_err(|what| (0, what))?;
    let operation = operation(field(1)?).map_err(|what| (1, what))?;
    let key = field(2).and_then(|key| checked_key(key, 2))?;
    let writes = matches!(OPERATIONS[operation].1, Call::Set | Call::Add | Call::Replace | Call::Extend);
    let value_bytes = match field(3) {
        Err(_) if !writes => 0,
        given => length(given?, value_bytes_max).map_err(|what| (3, what))?,
    };
    let lifetime_sec =
        field(4).map_or(Ok(0), |given| number(given, SECONDS_MAX).map_err(|what| (4, what)))?;
    match fields.next() {
        Some(more) => Err((5, format!("a line has at most 5 fields, and `{}` follows", shown(more)))),
        None => Ok(Request { time_ns, operation, key, value_bytes, lifetime_sec, is_key_altered: false }),
    }
}

fn twitter(line: &[u8], value_bytes_max: u32) -> Result<Request<'_>, (usize, String)> {
    let missing = |at: usize| (at, "it is missing".to_owned());
    let (first, rest) = split_once(line).ok_or_else(|| missing(1))?;
    let time_ns = time(first).map_err(|what| (0, what))?;
    // The key may have commas, so its end is found from behind.
    let mut fields = rest.rsplitn(6, |byte| *byte == b',');
    let mut from_behind = [&[][..]; 6];
    for (at, field) in from_behind.iter_mut().enumerate() {
        *field = fields.next().ok_or_else(|| missing(at + 1))?;
    }
    let [lifetime, name, _client, value_bytes, key_bytes, key] = from_behind;
    let key = checked_key(key, 1)?;
    let key_bytes = number(key_bytes, u64::from(u32::MAX)).map_err(|what| (2, what))?;
    Ok(Request {
        time_ns,
        key,
        is_key_altered: key_bytes != key.len() as u64,
        value_bytes: length(value_bytes, value_bytes_max).map_err(|what| (3, what))?,
        operation: operation(name).map_err(|what| (5, what))?,
        lifetime_sec: number(lifetime, SECONDS_MAX).map_err(|what| (6, what))?,
    })
}

fn split_once(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b',')?;
    Some((&line[..at], &line[at + 1..]))
}

/// The beginning of a field, to be shown to a user.
fn shown(field: &[u8]) -> String {
    const SHOWN: usize = 40;
    let more = if field.len() > SHOWN { "..." } else { "" };
    format!("{}{more}", field[..field.len().min(SHOWN)].escape_ascii())
}

fn checked_key(key: &[u8], at: usize) -> Result<&[u8], (usize, String)> {
    match key.len() {
        1..=KEY_BYTES_MAX => Ok(key),
        0 => Err((at, "it is empty".into())),
        bytes => Err((at, format!("it has {bytes} bytes, and a key has at most {KEY_BYTES_MAX}"))),
    }
}

fn operation(name: &[u8]) -> Result<usize, String> {
    let found = OPERATIONS.iter().position(|(known, _)| known.as_bytes() == name);
    let known = || OPERATIONS.map(|(name, _)| name).join(", ");
    found.ok_or_else(|| format!("`{}` is no operation; known: {}", shown(name), known()))
}

/// A whole number up to `max`.
fn number(field: &[u8], max: u64) -> Result<u64, String> {
    let text = std::str::from_utf8(field).ok().filter(|text| !text.starts_with('+'));
    let found = text.and_then(|text| text.parse::<u64>().ok()).filter(|number| *number <= max);
    found.ok_or_else(|| format!("`{}` is no whole number up to {max}", shown(field)))
}

fn length(field: &[u8], max: u32) -> Result<u32, String> {
    let bytes = number(field, u64::from(u32::MAX))?;
    match u32::try_from(bytes) {
        Ok(bytes) if bytes <= max => Ok(bytes),
        _ => Err(format!("values are cut from a corpus of {max} bytes, and {bytes} are more")),
    }
}

/// Nanoseconds of a number of seconds, which may have decimals.
fn time(field: &[u8]) -> Result<u64, String> {
    const DECIMALS: usize = 9;
    let wrong =
        || format!("`{}` is no number of seconds up to {SECONDS_MAX}, such as 12 or 12.345", shown(field));
    let point = field.iter().position(|byte| *byte == b'.');
    let (whole, decimals) = point.map_or((field, &[][..]), |at| (&field[..at], &field[at + 1..]));
    let seconds = number(whole, SECONDS_MAX).map_err(|_| wrong())?;
    if point.is_some() && decimals.is_empty() || !decimals.iter().all(u8::is_ascii_digit) {
        return Err(wrong());
    }
    let digits = decimals.iter().chain(std::iter::repeat(&b'0')).take(DECIMALS);
    let ns = digits.fold(0, |ns, digit| ns * 10 + u64::from(digit - b'0'));
    Ok(seconds * NS_PER_SEC + ns)
}

/// A trace that is read from its begin.
pub struct Trace<R> {
    reader: R,
    layout: Layout,
    /// The line that was read last, and its number.
    line: Vec<u8>,
    number: u64,
    /// Whether nobody has got that line yet.
    is_ahead: bool,
    value_bytes_max: u32,
}

/// The bytes of a trace in a file.
pub(crate) type TraceFile = Trace<Box<dyn BufRead + Send>>;

impl TraceFile {
    /// Opens a file, packed by zstd or not.
    ///
    /// # Errors
    /// The file cannot be read, or does not begin like a trace. The sentence names the line.
    pub(crate) fn open(path: &Path, value_bytes_max: u32) -> Result<Self, String> {
        let mut file =
            BufReader::with_capacity(1 << 16, File::open(path).map_err(|error| error.to_string())?);
        let is_packed = file.fill_buf().is_ok_and(|begin| begin.starts_with(&ZSTD_MAGIC));
        let reader: Box<dyn BufRead + Send> = match is_packed {
            true => {
                let unpacked = zstd::Decoder::with_buffer(file).map_err(|error| error.to_string())?;
                Box::new(BufReader::with_capacity(1 << 16, unpacked))
            }
            false => Box::new(file),
        };
        Trace::of(reader, value_bytes_max)
    }
}

impl<R: BufRead> Trace<R> {
    /// The trace that these bytes are.
    ///
    /// # Errors
    /// The bytes do not begin like a trace.
    pub fn of(reader: R, value_bytes_max: u32) -> Result<Self, String> {
        let layout = Layout::Twitter;
        let mut trace =
            Trace { reader, layout, line: Vec::new(), number: 0, is_ahead: false, value_bytes_max };
        if !trace.advance()? {
            return Err(
                "line 1: it is empty; a trace begins with `ziptier-trace 1`, or is one of Twitter's".into()
            );
        }
        let mut words = trace.line.split(|byte| *byte == b' ');
        match (words.next(), words.next()) {
            (Some(OWN_FORMAT), Some(OWN_VERSION)) => trace.layout = Layout::Own,
            (Some(OWN_FORMAT), version) => {
                let version = shown(version.unwrap_or_default());
                return Err(format!(
                    "line 1, field 2 (version): it is `{version}`, and this program knows 1"
                ));
            }
            _ => trace.is_ahead = true,
        }
        if trace.is_ahead && layout.parse(&trace.line, value_bytes_max).is_err_and(|(at, _)| at < 2) {
            let told = trace.request().err().unwrap_or_default();
            return Err(format!("{told}; a trace begins with `ziptier-trace 1`, or is one of Twitter's"));
        }
        Ok(trace)
    }

    /// The format.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The next request; nothing at the end.
    ///
    /// # Errors
    /// The trace is cut or malformed; the sentence begins with line and field.
    pub fn read(&mut self) -> Result<Option<Request<'_>>, String> {
        loop {
            if !std::mem::take(&mut self.is_ahead) && !self.advance()? {
                return Ok(None);
            }
            let is_comment =
                self.layout == Layout::Own && self.line.first().is_none_or(|first| *first == b'#');
            if !is_comment {
                return self.request().map(Some);
            }
        }
    }

    fn request(&self) -> Result<Request<'_>, String> {
        let parsed = self.layout.parse(&self.line, self.value_bytes_max);
        parsed.map_err(|(at, what)| self.fault(at, &what))
    }

    fn fault(&self, at: usize, what: &str) -> String {
        let name = self.layout.fields().get(at).map(|name| format!(" ({name})")).unwrap_or_default();
        format!("line {}, field {}{name}: {what}", self.number, at + 1)
    }

    /// Reads the next line; false at the end.
    fn advance(&mut self) -> Result<bool, String> {
        self.line.clear();
        self.number += 1;
        let read = (&mut self.reader).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut self.line);
        let cut = match read {
            Ok(0) => return Ok(false),
            Ok(_) if self.line.ends_with(b"\n") => {
                self.line.pop();
                self.line.pop_if(|last| *last == b'\r');
                return Ok(true);
            }
            Ok(bytes) if bytes > LINE_BYTES_MAX => {
                return Err(format!("line {}: it has more than {LINE_BYTES_MAX} bytes", self.number));
            }
            Ok(_) => "the trace is cut: it ends here, within the line".to_owned(),
            Err(error) => format!("the trace is cut or damaged: {error}"),
        };
        let is_between = |byte: &&u8| match self.layout {
            Layout::Own => matches!(byte, b' ' | b'\t'),
            Layout::Twitter => **byte == b',',
        };
        Err(self.fault(self.line.iter().filter(is_between).count(), &cut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 1_000_000;

    /// Time, operation, key, bytes of the value, lifetime.
    type Read = (u64, &'static str, Vec<u8>, u32, u64);

    fn read(text: &[u8]) -> (Vec<Read>, Option<String>) {
        let mut trace = match Trace::of(text, MAX) {
            Ok(trace) => trace,
            Err(told) => return (Vec::new(), Some(told)),
        };
        let mut found = Vec::new();
        loop {
            match trace.read() {
                Ok(None) => return (found, None),
                Err(told) => return (found, Some(told)),
                Ok(Some(request)) => found.push((
                    request.time_ns,
                    OPERATIONS[request.operation].0,
                    request.key.to_vec(),
                    request.value_bytes,
                    request.lifetime_sec,
                )),
            }
        }
    }

    #[test]
    fn both_formats_are_read() {
        let own = b"ziptier-trace 1\n# a comment\n\n0 set a/b 100 60\n0.000001\tget  a/b\r\n1.5 incr n 0\n";
        let expected = vec![
            (0, "set", b"a/b".to_vec(), 100, 60),
            (1_000, "get", b"a/b".to_vec(), 0, 0),
            (1_500_000_000, "incr", b"n".to_vec(), 0, 0),
        ];
        assert_eq!(read(own), (expected, None));
        let twitter = b"0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n3,a,b,c,5,7,9,set,86400\n";
        let expected = vec![
            (0, "get", b"q:q:1:8WTfjZU14ee".to_vec(), 213, 0),
            (3_000_000_000, "set", b"a,b,c".to_vec(), 7, 86_400),
        ];
        assert_eq!(read(twitter), (expected, None));
    }

    #[test]
    fn a_fault_is_told_with_its_line_and_field() {
        let own = |line: &str| read(format!("ziptier-trace 1\n0 get k\n{line}").as_bytes());
        for (line, told) in [
            ("x get k\n", "line 3, field 1 (seconds): `x` is no number of seconds"),
            ("1. get k\n", "line 3, field 1 (seconds): `1.` is no number"),
            ("1 fetch k\n", "line 3, field 2 (operation): `fetch` is no operation; known: get, "),
            ("1 get\n", "line 3, field 3 (key): it is missing"),
            ("1 set k\n", "line 3, field 4 (bytes of the value): it is missing"),
            ("1 set k -1\n", "line 3, field 4 (bytes of the value): `-1` is no whole number"),
            (
                "1 set k 1000001\n",
                "field 4 (bytes of the value): values are cut from a corpus of 1000000 bytes",
            ),
            ("1 set k 1 forever\n", "line 3, field 5 (seconds to live): `forever` is no whole number"),
            ("1 set k 1 2 3\n", "line 3, field 6: a line has at most 5 fields, and `3` follows"),
            ("1 set k 10", "line 3, field 4 (bytes of the value): the trace is cut"),
        ] {
            let (found, fault) = own(line);
            assert_eq!(found.len(), 1, "{line}");
            assert!(fault.as_deref().unwrap().contains(told), "{line}: {fault:?}");
        }
        for (text, told) in [
            ("", "line 1: it is empty"),
            ("ziptier-trace 2\n", "line 1, field 2 (version): it is `2`"),
            ("hello\n", "line 1, field 2 (key): it is missing; a trace begins with `ziptier-trace 1`"),
            ("time,key\n", "line 1, field 1 (timestamp): `time` is no number of seconds"),
            ("1,k,1,2,3,get,0\n1,k,1,2,get,0\n", "line 2, field 7 (TTL): it is missing"),
            ("1,,1,2,3,get,0\n", "line 1, field 2 (key): it is empty"),
            ("1,k,x,2,3,get,0\n", "line 1, field 3 (key size): `x` is no whole number"),
            ("1,k,1,2,3,get,\n", "line 1, field 7 (TTL): `` is no whole number"),
            ("1,k,1,2,3,ge", "line 1, field 6 (operation): the trace is cut"),
        ] {
            let told_now = read(text.as_bytes()).1.unwrap();
            assert!(told_now.contains(told), "{text}: {told_now}");
        }
        let long = [b"ziptier-trace 1\n0 get ", &[b'k'; KEY_BYTES_MAX + 1][..], b"\n"].concat();
        assert!(read(&long).1.unwrap().contains("line 2, field 3 (key): it has 65536 bytes"));
        let endless = [b"ziptier-trace 1\n0 get ", &[b'k'; LINE_BYTES_MAX][..], b"\n"].concat();
        assert_eq!(read(&endless).1.unwrap(), "line 2: it has more than 1048576 bytes");
    }

    #[test]
    fn packed_traces_are_read_and_cut_ones_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packed");
        let text: String = (0..50_000).map(|at| format!("{at} get k{}\n", at * 7919 % 50_000)).collect();
        let packed = zstd::encode_all(format!("ziptier-trace 1\n{text}").as_bytes(), 1).unwrap();
        let count = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let mut trace = TraceFile::open(&path, MAX).unwrap();
            let mut requests = 0;
            loop {
                match trace.read() {
                    Ok(Some(_)) => requests += 1,
                    Ok(None) => return (requests, None),
                    Err(told) => return (requests, Some(told)),
                }
            }
        };
        assert_eq!(count(&packed), (50_000, None));
        let (requests, told) = count(&packed[..packed.len() / 2]);
        assert!((1..50_000).contains(&requests), "{requests}");
        let told = told.unwrap();
        assert!(told.starts_with(&format!("line {}, field ", requests + 2)), "{told}");
        assert!(told.contains("the trace is cut or damaged"), "{told}");
    }
}
