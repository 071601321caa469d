//! Requests and replies of RESP, the protocol of Redis, version 2.

pub(crate) mod connections;
#[cfg(test)]
pub(crate) mod served;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

/// A server that is silent for this long hangs.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(120);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Redis's own bound for a value.
const VALUE_BYTES_MAX: usize = 512 << 20;
/// A status, a number or an error is shorter.
const LINE_BYTES_MAX: usize = 64 << 10;
const CLOSED: &str = "it closed the connection";
const BUFFER_BYTES: usize = 16 << 10;
/// The variable from which redis-cli takes a password, too.
pub(crate) const PASSWORD: &str = "REDISCLI_AUTH";

/// Appends a GET to `out`.
#[inline]
pub(crate) fn get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
    value(key, out);
}

/// Appends a SET to `out`.
#[inline]
pub(crate) fn set(key: &[u8], bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
    value(key, out);
    value(bytes, out);
}

/// Appends any request to `out`.
pub(crate) fn request(parts: &[&[u8]], out: &mut Vec<u8>) {
    header(b'*', parts.len(), out);
    for part in parts {
        value(part, out);
    }
}

/// Appends a value as RESP writes it, in requests and in replies.
pub(crate) fn value(bytes: &[u8], out: &mut Vec<u8>) {
    header(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn header(kind: u8, number: usize, out: &mut Vec<u8>) {
    let digit = |unit: usize| b'0' + (number / unit % 10) as u8;
    match number {
        // Most keys and values have fewer bytes than a thousand.
        0..=9 => out.extend_from_slice(&[kind, digit(1), b'\r', b'\n']),
        10..=99 => out.extend_from_slice(&[kind, digit(10), digit(1), b'\r', b'\n']),
        100..=999 => out.extend_from_slice(&[kind, digit(100), digit(10), digit(1), b'\r', b'\n']),
        _ => {
            out.push(kind);
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// A reply. Arrays are not among them: no request of this crate is answered by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply<B> {
    /// `OK` and its like.
    Status(B),
    /// A refusal, such as `ERR unknown command`.
    Error(B),
    Integer(i64),
    Value(B),
    /// There is no such key.
    Nothing,
}

impl<B> Reply<B> {
    fn map<C>(self, of: impl FnOnce(B) -> C) -> Reply<C> {
        match self {
            Reply::Status(bytes) => Reply::Status(of(bytes)),
            Reply::Error(bytes) => Reply::Error(of(bytes)),
            Reply::Integer(number) => Reply::Integer(number),
            Reply::Value(bytes) => Reply::Value(of(bytes)),
            Reply::Nothing => Reply::Nothing,
        }
    }
}

impl Reply<&[u8]> {
    /// The sentence for a reply that the request cannot have, which begins with "it".
    pub(crate) fn unexpected(&self, request: &str) -> String {
        match self {
            Reply::Error(words) => format!("it refused {request}: {}", String::from_utf8_lossy(words)),
            Reply::Status(words) => format!("it answered {request} with {}", String::from_utf8_lossy(words)),
            Reply::Integer(number) => format!("it answered {request} with the number {number}"),
            Reply::Value(bytes) => format!("it answered {request} with a value of {} bytes", bytes.len()),
            Reply::Nothing => format!("it answered {request} with nothing"),
        }
    }
}

/// A reply by the places of its bytes, and its whole length.
type Found = (Reply<Range<usize>>, usize);

/// The first reply in `bytes`, or nothing while it is not whole. The error is a sentence that begins with "it".
fn parse(bytes: &[u8]) -> Result<Option<Found>, String> {
    let within = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = within.iter().position(|byte| *byte == b'\r') else {
        return match within.len() < LINE_BYTES_MAX {
            true => Ok(None),
            false => Err(format!("it answered with a line of more than {LINE_BYTES_MAX} bytes")),
        };
    };
    let (line, after) = (1..end, end + 2);
    let garbled = || format!("it answered with `{}`, which is no RESP", bytes[..end.min(40)].escape_ascii());
    match bytes.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(garbled()),
    }
    match bytes[0] {
        b'+' => Ok(Some((Reply::Status(line), after))),
        b'-' => Ok(Some((Reply::Error(line), after))),
        b':' => {
            let digits = std::str::from_utf8(&bytes[line]).map_err(|_| garbled())?;
            Ok(Some((Reply::Integer(digits.parse().map_err(|_| garbled())?), after)))
        }
        b'$' if bytes[line.clone()] == *b"-1" => Ok(Some((Reply::Nothing, after))),
        b'$' => {
            let value = after..after + length(&bytes[line]).ok_or_else(garbled)?;
            match bytes.get(value.end..value.end + 2) {
                None => Ok(None),
                Some(b"\r\n") => Ok(Some((Reply::Value(value.clone()), value.end + 2))),
                Some(_) => Err("it answered with a value that is longer than announced".into()),
            }
        }
        _ => Err(garbled()),
    }
}

/// The length that a value's line announces.
fn length(digits: &[u8]) -> Option<usize> {
    let longer = |length: usize, byte: &u8| {
        let digit = usize::from(byte.wrapping_sub(b'0'));
        Some(10 * length + digit).filter(|length| digit <= 9 && *length <= VALUE_BYTES_MAX)
    };
    digits.iter().try_fold(0, longer).filter(|_| !digits.is_empty())
}

/// A database of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint {
    pub(crate) socket: SocketAddr,
    pub(crate) database: u32,
}

impl Endpoint {
    /// A connection to it. The error is a sentence.
    pub(crate) fn connect(&self) -> Result<Connection, String> {
        let mut connection = Connection::open(self.socket).map_err(|error| {
            format!("no server answers at {}: {error}; start one, or name its address", self.socket)
        })?;
        if let Ok(password) = std::env::var(PASSWORD) {
            done("AUTH", connection.ask(&[b"AUTH", password.as_bytes()])?)?;
        }
        if self.database != 0 {
            done("SELECT", connection.ask(&[b"SELECT", self.database.to_string().as_bytes()])?)?;
        }
        Ok(connection)
    }
}

/// Whether a request was done. Every other answer is an error.
pub(crate) fn done(request: &str, reply: Reply<&[u8]>) -> Result<(), String> {
    match reply {
        Reply::Status(b"OK") => Ok(()),
        other => Err(other.unexpected(request)),
    }
}

/// Replies that have come over a connection, and the bytes of all that nobody has forgotten.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Bytes of replies that were read lie before those in `unread`, and room lies behind them.
    bytes: Vec<u8>,
    unread: Range<usize>,
}

impl Inbox {
    /// Room for bytes that come.
    fn room(&mut self) -> &mut [u8] {
        if self.unread.end == self.bytes.len() {
            // The bytes that have come decide about room, never the announced ones.
            self.bytes.resize(BUFFER_BYTES.max(2 * self.bytes.len()), 0);
        }
        &mut self.bytes[self.unread.end..]
    }

    /// Takes in so many bytes, which came into the room.
    fn came(&mut self, bytes: usize) {
        self.unread.end += bytes;
    }

    /// The next reply, by the places of its bytes; nothing while it is not whole. The bytes stay there until the inbox
    /// forgets them.
    fn next_reply(&mut self) -> Result<Option<Reply<Range<usize>>>, String> {
        let start = self.unread.start;
        let Some((reply, length)) = parse(&self.bytes[self.unread.clone()])? else { return Ok(None) };
        self.unread.start += length;
        Ok(Some(reply.map(|place| start + place.start..start + place.end)))
    }

    /// A reply with the bytes at its places.
    fn at(&self, reply: Reply<Range<usize>>) -> Reply<&[u8]> {
        reply.map(|place| &self.bytes[place])
    }

    /// Whether nothing has come that nobody has forgotten.
    fn is_empty(&self) -> bool {
        self.unread.end == 0
    }

    /// Forgets the replies, all of which were read, so that their memory takes others.
    fn forget(&mut self) -> Result<(), String> {
        if !self.unread.is_empty() {
            return Err("it answered more than it was asked".into());
        }
        self.unread = 0..0;
        Ok(())
    }
}

/// A connection that waits for its replies. Every error is a sentence that begins with "it".
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    requests: Vec<u8>,
    replies: Inbox,
    hangs: bool,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        Self::patient(address, SILENCE_MAX)
    }

    /// A connection to a server that may be silent for so long.
    pub(crate) fn patient(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream, requests: Vec::new(), replies: Inbox::default(), hangs: false })
    }

    /// Whether the server was silent for too long.
    pub(crate) fn hangs(&self) -> bool {
        self.hangs
    }

    /// The requests that go together, for more of them.
    pub(crate) fn requests(&mut self) -> &mut Vec<u8> {
        &mut self.requests
    }

    /// Adds a request to those that go together.
    pub(crate) fn add(&mut self, parts: &[&[u8]]) {
        request(parts, &mut self.requests);
    }

    /// Sends what was added.
    pub(crate) fn send(&mut self) -> Result<(), String> {
        let sent = self.stream.write_all(&self.requests);
        self.requests.clear();
        sent.map_err(|error| self.failed("take a request", &error))
    }

    /// Waits for the next reply.
    pub(crate) fn reply(&mut self) -> Result<Reply<&[u8]>, String> {
        let reply = self.place()?;
        Ok(self.at(reply))
    }

    /// Waits for the next reply, and tells the places of its bytes. They stay there until the connection forgets them.
    pub(crate) fn place(&mut self) -> Result<Reply<Range<usize>>, String> {
        loop {
            if let Some(reply) = self.replies.next_reply()? {
                return Ok(reply);
            }
            self.receive()?;
        }
    }

    /// A reply with the bytes at its places.
    pub(crate) fn at(&self, reply: Reply<Range<usize>>) -> Reply<&[u8]> {
        self.replies.at(reply)
    }

    /// Forgets the replies, all of which were read, so that their memory takes others.
    pub(crate) fn forget(&mut self) -> Result<(), String> {
        self.replies.forget()
    }

    /// Forgets the replies likewise, and exchanges the memory with their bytes for other memory.
    pub(crate) fn swap(&mut self, memory: &mut Vec<u8>) -> Result<(), String> {
        self.forget()?;
        std::mem::swap(&mut self.replies.bytes, memory);
        Ok(())
    }

    /// The connection itself. No reply is under way.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Sends one request and waits for its reply.
    pub(crate) fn ask(&mut self, parts: &[&[u8]]) -> Result<Reply<&[u8]>, String> {
        self.add(parts);
        self.send()?;
        self.reply()
    }

    fn receive(&mut self) -> Result<(), String> {
        match self.stream.read(self.replies.room()) {
            Ok(0) => Err(CLOSED.into()),
            Ok(got) => {
                self.replies.came(got);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.failed("answer", &error)),
        }
    }

    fn failed(&mut self, what: &str, error: &io::Error) -> String {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                self.hangs = true;
                silent(what, SILENCE_MAX)
            }
            _ => failed(what, error),
        }
    }
}

/// The sentence for an error of a connection.
fn failed(what: &str, error: &io::Error) -> String {
    match error.kind() {
        // A server that ends with requests unread resets the connection.
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => CLOSED.into(),
        _ => format!("it did not {what}: {error}"),
    }
}

/// The sentence for a server that was silent for so long.
fn silent(what: &str, patience: Duration) -> String {
    format!("it did not {what} for {} s", patience.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::servers::whole;

    #[test]
    fn a_request_is_an_array_of_values() {
        let mut out = Vec::new();
        request(&[b"SET", b"key", b"a\r\nb"], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn requests_of_known_commands_are_like_any() {
        for length in [0, 9, 10, 16, 99, 100, 128, 999, 1_000, 12_345] {
            let (key, bytes) = (vec![b'k'; length], vec![b'v'; length + 1]);
            let (mut known, mut any) = (Vec::new(), Vec::new());
            get(&key, &mut known);
            set(&key, &bytes, &mut known);
            request(&[b"GET", &key], &mut any);
            request(&[b"SET", &key, &bytes], &mut any);
            assert_eq!(known, any);
            let mut written = Vec::new();
            value(&key, &mut written);
            assert_eq!(written, [format!("${length}\r\n").as_bytes(), &key[..], &b"\r\n"[..]].concat());
        }
    }

    #[test]
    fn every_kind_of_reply_is_read_and_no_part_of_one() {
        for (bytes, expected) in [
            (&b"+OK\r\n"[..], Reply::Status(&b"OK"[..])),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b":-12\r\n", Reply::Integer(-12)),
            (b"$5\r\na\r\nbc\r\n", Reply::Value(b"a\r\nbc")),
            (b"$0\r\n\r\n", Reply::Value(b"")),
            (b"$-1\r\n", Reply::Nothing),
        ] {
            assert_eq!(whole(bytes, parse).map(|place| &bytes[place]), expected);
        }
    }

    #[test]
    fn what_is_no_reply_is_told() {
        let long = [b'+'; LINE_BYTES_MAX];
        for (bytes, expected) in [
            (&b"HTTP/1.1 400\r\n"[..], "`HTTP/1.1 400`, which is no RESP"),
            (b"\r\n", "which is no RESP"),
            (b":1x\r\n", "`:1x`"),
            (b"+OK\rOK\r\n", "`+OK`, which is no RESP"),
            (b"$-2\r\n", "`$-2`"),
            (b"$\r\n", "`$`"),
            (b"$1/\r\n", "`$1/`"),
            (b"$536870913\r\n", "`$536870913`"),
            (b"$9223372036854775807\r\n", "no RESP"),
            (b"$1\r\nabc", "longer than announced"),
            (&long, "a line of more than"),
        ] {
            let told = parse(bytes).unwrap_err();
            assert!(told.starts_with("it ") && told.contains(expected), "{told}");
        }
    }

    #[test]
    fn no_bytes_break_the_parser() {
        let alphabet = b"+-:$*0129\r\nab\0\xff";
        let mut state = ziptier_testing::seed();
        for _ in 0..200_000 {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize
            };
            let bytes: Vec<u8> = (0..next() % 24).map(|_| alphabet[next() % alphabet.len()]).collect();
            if let Ok(Some((_, length))) = parse(&bytes) {
                assert!((1..=bytes.len()).contains(&length));
            }
        }
    }

    /// A connection to a server that sends `bytes` in pieces of this length, and hangs up.
    fn connected(bytes: Vec<u8>, piece: usize) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            // The client hangs up once it has read what it needs.
            let _ = bytes.chunks(piece).try_for_each(|piece| stream.write_all(piece));
        });
        Connection::open(address).unwrap()
    }

    /// The server has not read the request, and so the connection is reset.
    #[test]
    fn a_server_that_ends_with_a_request_unread_has_closed_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        connection.add(&[b"PING"]);
        connection.send().unwrap();
        stream.peek(&mut [0]).unwrap();
        drop(stream);
        assert_eq!(connection.reply().unwrap_err(), CLOSED);
    }

    #[test]
    fn replies_of_any_length_come_whole_from_any_pieces() {
        let long: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let mut bytes = b"+OK\r\n:7\r\n".to_vec();
        value(&long, &mut bytes);
        bytes.extend_from_slice(b"$-1\r\n");
        for piece in [3, 1_000, usize::MAX] {
            let mut connection = connected(bytes.clone(), piece);
            assert_eq!(connection.reply(), Ok(Reply::Status(&b"OK"[..])));
            assert_eq!(connection.reply(), Ok(Reply::Integer(7)));
            assert_eq!(connection.reply(), Ok(Reply::Value(&long[..])));
            assert_eq!(connection.reply(), Ok(Reply::Nothing));
            assert_eq!(connection.reply().unwrap_err(), "it closed the connection");
        }
    }
}
