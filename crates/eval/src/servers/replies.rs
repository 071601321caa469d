//! Replies of a data access function, lines with lengths and the bytes behind them: the reader's half of the protocol
//! in `docs/benchmarks.md`.

use std::ops::Range;

/// A line is shorter, the sentence of an error included.
pub const LINE_BYTES_MAX: usize = 4096;
/// A key or a value is not longer.
pub const PART_BYTES_MAX: usize = 512 << 20;
/// The first words of a hello: the name and the version of the protocol.
const GREETING: [&str; 2] = ["ziptier", "1"];

/// The requests that a function may have, by the words of its hello.
pub const REQUESTS: [&str; 6] = ["GET", "PUT", "DEL", "SCAN", "LOAD", "STAT"];

/// What a function says of itself first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    requests: Vec<&'static str>,
    /// Bytes that a value must contain for its record to be among those of a scan.
    pub filter: Option<Vec<u8>>,
}

impl Hello {
    /// Reads the line, without its end. The error is a sentence that begins with "it".
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let said = || String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        let text = std::str::from_utf8(line).map_err(|_| format!("it greets with `{}`", said()))?;
        let mut words = text.split_whitespace();
        if !GREETING.iter().all(|word| words.next() == Some(word)) {
            let like = GREETING.join(" ");
            return Err(format!(
                "it greets with `{}`, and `{like} GET PUT` or the like was expected",
                said()
            ));
        }
        let mut hello = Hello::default();
        for word in words {
            match (word.strip_prefix("WHERE="), REQUESTS.iter().find(|known| **known == word)) {
                (Some(filter), _) if !filter.is_empty() => hello.filter = Some(filter.into()),
                (_, Some(known)) => hello.requests.push(known),
                _ => {
                    let known = REQUESTS.join(", ");
                    return Err(format!("its greeting has the word `{word}`; known: {known}, WHERE=TEXT"));
                }
            }
        }
        Ok(hello)
    }

    /// Whether it has this request.
    pub fn has(&self, request: &str) -> bool {
        self.requests.contains(&request)
    }

    /// Its requests, in its own order.
    pub fn requests(&self) -> String {
        self.requests.join(" ")
    }
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<B> {
    /// Done.
    Done,
    /// There is no such key.
    Nothing,
    /// The value of a key.
    Value(B),
    /// A key and its value: one of a scan.
    Record(B, B),
    /// A scan has no more records.
    End,
    /// Bytes that the function has read from its medium, and bytes that hold its data, as far as it tells.
    Stat {
        /// So far.
        read: Option<u64>,
        /// Now.
        held: Option<u64>,
    },
    /// A refusal in words.
    Error(B),
}

impl<B> Reply<B> {
    /// The same with other bytes.
    pub fn map<C>(self, of: impl Fn(B) -> C) -> Reply<C> {
        match self {
            Reply::Done => Reply::Done,
            Reply::Nothing => Reply::Nothing,
            Reply::Value(bytes) => Reply::Value(of(bytes)),
            Reply::Record(key, value) => Reply::Record(of(key), of(value)),
            Reply::End => Reply::End,
            Reply::Stat { read, held } => Reply::Stat { read, held },
            Reply::Error(bytes) => Reply::Error(of(bytes)),
        }
    }

    /// Its first word.
    pub fn word(&self) -> &'static str {
        match self {
            Reply::Done => "OK",
            Reply::Nothing => "NONE",
            Reply::Value(_) => "VALUE",
            Reply::Record(..) => "RECORD",
            Reply::End => "END",
            Reply::Stat { .. } => "STAT",
            Reply::Error(_) => "ERR",
        }
    }
}

/// The first line in `bytes`, without its end, and the length with it; nothing while it is not whole. The error is a
/// sentence that begins with "it".
pub fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, String> {
    let within = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    match within.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some((&bytes[..end], end + 1))),
        None if within.len() < LINE_BYTES_MAX => Ok(None),
        None => Err(format!("it answered with a line of more than {LINE_BYTES_MAX} bytes")),
    }
}

/// A reply by the places of its bytes, and its whole length.
pub type Found = (Reply<Range<usize>>, usize);

/// The first reply in `bytes`; nothing while it is not whole. The error is a sentence that begins with "it".
pub fn parse(bytes: &[u8]) -> Result<Option<Found>, String> {
    let Some((line, start)) = line(bytes)? else { return Ok(None) };
    let garbled =
        || format!("it answered `{}`, which is no reply", line[..line.len().min(60)].escape_ascii());
    if let Some(words) = line.strip_prefix(b"ERR ") {
        return Ok(Some((Reply::Error(line.len() - words.len()..line.len()), start)));
    }
    let text = std::str::from_utf8(line).map_err(|_| garbled())?;
    let mut words = text.split(' ');
    let word = words.next().unwrap_or_default();
    if word == "STAT" {
        return stat(words).map(|stat| Some((stat, start))).ok_or_else(garbled);
    }
    let lengths = words.map(length).collect::<Option<Vec<usize>>>().ok_or_else(garbled)?;
    let (reply, end) = match (word, lengths.as_slice()) {
        ("OK", []) => (Reply::Done, start),
        ("NONE", []) => (Reply::Nothing, start),
        ("END", []) => (Reply::End, start),
        ("VALUE", [value]) => (Reply::Value(start..start + value), start + value),
        ("RECORD", [key, value]) => {
            let (middle, end) = (start + key, start + key + value);
            (Reply::Record(start..middle, middle..end), end)
        }
        _ => return Err(garbled()),
    };
    Ok((end <= bytes.len()).then_some((reply, end)))
}

/// A number of bytes that a reply may announce.
fn length(word: &str) -> Option<usize> {
    word.parse().ok().filter(|length| *length <= PART_BYTES_MAX)
}

/// `read=N` and `held=N`, in any order.
fn stat<'a>(words: impl Iterator<Item = &'a str>) -> Option<Reply<Range<usize>>> {
    let (mut read, mut held) = (None, None);
    for word in words {
        let (name, number) = word.split_once('=')?;
        match name {
            "read" => read = Some(number.parse().ok()?),
            "held" => held = Some(number.parse().ok()?),
            _ => return None,
        }
    }
    Some(Reply::Stat { read, held })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::whole;

    #[test]
    fn a_hello_lists_requests_and_a_filter() {
        let hello = Hello::parse(b"ziptier 1 GET LOAD SCAN WHERE=level=error").unwrap();
        assert!(hello.has("GET") && hello.has("LOAD") && !hello.has("PUT"));
        assert_eq!(
            (hello.filter.as_deref(), hello.requests().as_str()),
            (Some(&b"level=error"[..]), "GET LOAD SCAN")
        );
        for (line, expected) in [
            (&b"Python 3.11"[..], "it greets with `Python 3.11`, and `ziptier 1 GET PUT`"),
            (b"ziptier 2 GET", "was expected"),
            (b"ziptier 1 GET FLUSH", "the word `FLUSH`; known: GET, PUT"),
            (b"ziptier 1 WHERE=", "the word `WHERE=`"),
            (b"\xff", "it greets with"),
        ] {
            let told = Hello::parse(line).unwrap_err();
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn every_kind_of_reply_is_read_and_no_part_of_one() {
        for (bytes, expected) in [
            (&b"OK\n"[..], Reply::Done),
            (b"NONE\n", Reply::Nothing),
            (b"VALUE 4\na\n\nb", Reply::Value(&b"a\n\nb"[..])),
            (b"VALUE 0\n", Reply::Value(b"")),
            (b"RECORD 2 1\nk\nv", Reply::Record(b"k\n", b"v")),
            (b"END\n", Reply::End),
            (b"STAT read=12 held=7\n", Reply::Stat { read: Some(12), held: Some(7) }),
            (b"STAT\n", Reply::Stat { read: None, held: None }),
            (b"ERR no disk\n", Reply::Error(b"no disk")),
        ] {
            assert_eq!(whole(bytes, parse).map(|place| &bytes[place]), expected);
        }
    }

    #[test]
    fn what_is_no_reply_is_told() {
        let long = [b'E'; LINE_BYTES_MAX];
        for (bytes, expected) in [
            (
                &b"Traceback (most recent call last):\n"[..],
                "`Traceback (most recent call last):`, which is no reply",
            ),
            (b"\n", "which is no reply"),
            (b"OK 1\n", "`OK 1`"),
            (b"VALUE\n", "`VALUE`"),
            (b"VALUE -1\n", "`VALUE -1`"),
            (b"VALUE 536870913\n", "`VALUE 536870913`"),
            (b"RECORD 1\n", "`RECORD 1`"),
            (b"STAT wrote=1\n", "`STAT wrote=1`"),
            (b"\xff\n", "`\\xff`"),
            (&long, "a line of more than"),
        ] {
            let told = parse(bytes).unwrap_err();
            assert!(told.starts_with("it ") && told.contains(expected), "{told}");
        }
    }
}
