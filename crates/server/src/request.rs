//! Requests out of bytes: the protocol's arrays of bulk strings, and inline commands for people who type.
//!
//! [`Parser`] reads a buffer that the connection owns and hands out arguments as ranges of it, so a request costs no
//! allocation. The parser remembers its position: a request that arrives byte by byte is scanned once, not once per
//! byte. It checks every announced length against [`REQUEST_BYTES_MAX`] and related limits first, and never reserves
//! memory for it.

mod ahead;
mod discard;
mod owned;

use std::fmt;

pub(crate) use ahead::Announced;
pub(crate) use discard::Discard;
pub(crate) use owned::{OwnedArgs, Taken};

use crate::inline;
use crate::integer::strict_i64;

/// Longest bulk string: 512 MiB.
pub const BULK_BYTES_MAX: usize = 512 << 20;
/// Most arguments of one request.
pub const ARGUMENTS_MAX: usize = 1 << 20;
/// Longest inline command, line end included: 64 KiB.
pub const INLINE_BYTES_MAX: usize = 64 << 10;
/// Longest request, framing included: 1 GiB. It also keeps offsets within 32 bits.
pub const REQUEST_BYTES_MAX: usize = 1 << 30;

/// Most arguments, and longest one, of clients that have not sent the password: Redis's.
const ARGUMENTS_MAX_STRANGER: i64 = 10;
const BULK_BYTES_MAX_STRANGER: i64 = 16 << 10;

/// Longest decimal i64 with its sign.
const NUMBER_BYTES_MAX: usize = 20;

/// The reason why the bytes are no request. The connection answers with it and closes, because the framing is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count after `*` is no number, or above [`ARGUMENTS_MAX`].
    MultibulkLength,
    /// The length after `$` is no number, negative, or above what a request may hold.
    BulkLength,
    /// A client that has not sent the password announces more than 10 arguments.
    StrangerMultibulkLength,
    /// A client that has not sent the password announces an argument of more than 16 KiB.
    StrangerBulkLength,
    /// An argument starts with another byte than `$`.
    ExpectedBulk(u8),
    /// A bulk string is not followed by CR LF.
    ExpectedLineEnd,
    /// An inline command is longer than [`INLINE_BYTES_MAX`].
    InlineTooLong,
    /// An inline command opens a quote and never closes it.
    UnbalancedQuotes,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::MultibulkLength => f.write_str("invalid multibulk length"),
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::StrangerMultibulkLength => f.write_str("unauthenticated multibulk length"),
            Self::StrangerBulkLength => f.write_str("unauthenticated bulk length"),
            Self::ExpectedBulk(got) => write!(f, "expected '$', got '{}'", char::from(*got)),
            Self::ExpectedLineEnd => f.write_str("expected CRLF after a bulk string"),
            Self::InlineTooLong => f.write_str("too big inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// A range of a request's text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// `start..end`, both at most [`REQUEST_BYTES_MAX`].
    pub(crate) fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= REQUEST_BYTES_MAX);
        Self { start: start as u32, end: end as u32 }
    }
}

/// The arguments of one request, command name first; never empty.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    text: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// How many there are, the name included.
    #[expect(clippy::len_without_is_empty, reason = "a request has at least its name")]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Bytes of the request so far, its framing included.
    pub(crate) fn text_len(&self) -> usize {
        self.spans.last().map_or(0, |last| last.end as usize)
    }

    /// Argument `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.text[span.start as usize..span.end as usize])
    }

    /// Argument `index`.
    ///
    /// # Panics
    ///
    /// If there are fewer; commands check their arity first.
    pub fn at(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        &self.text[span.start as usize..span.end as usize]
    }

    /// The arguments from `first` on.
    pub fn from(&self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let text = self.text;
        let spans = self.spans.get(first..).unwrap_or_default();
        spans.iter().map(move |span| &text[span.start as usize..span.end as usize])
    }
}

/// The parser's position in the current request.
#[derive(Debug, Default)]
pub struct Parser {
    /// First byte of the current request in the buffer.
    start: usize,
    /// First byte not understood yet.
    position: usize,
    /// How far an inline command has been searched for its end.
    searched: usize,
    /// Arguments that the current request still lacks.
    missing: usize,
    /// Length of the argument at `position`, once its header has been read.
    bulk: Option<usize>,
    /// The request that ends at `position` has been handed out.
    complete: bool,
    /// The client has not sent the password: requests are small.
    is_restricted: bool,
    /// And it was an inline command.
    inline_is_current: bool,
    spans: Vec<Span>,
    /// Text of an inline command with its quotes and escapes resolved.
    inline: Vec<u8>,
}

impl Parser {
    /// Sets whether later requests must be small, as those of strangers.
    pub(crate) fn restrict(&mut self, is_restricted: bool) {
        self.is_restricted = is_restricted;
    }

    /// The next complete request of `input`, or `None` when more bytes are needed.
    ///
    /// `input` must start with the bytes of the call before, less what [`Parser::release`] took away.
    ///
    /// # Errors
    ///
    /// If the bytes can never become a request. The parser must not be used on the same stream again.
    pub fn next<'a>(&'a mut self, input: &'a [u8]) -> Result<Option<Args<'a>>, ProtocolError> {
        if self.complete {
            self.begin(self.position);
        }
        loop {
            if self.missing == 0 {
                let Some(&first) = input.get(self.position) else { return Ok(None) };
                if first != b'*' {
                    if !self.read_inline(input)? {
                        return Ok(None);
                    }
                    if self.spans.is_empty() {
                        self.begin(self.position);
                        continue;
                    }
                    (self.complete, self.inline_is_current) = (true, true);
                    return Ok(Some(Args { text: &self.inline, spans: &self.spans }));
                }
                let Some((count, next)) = number_line(input, self.position + 1)
                    .map_err(|NoNumber| ProtocolError::MultibulkLength)?
                else {
                    return Ok(None);
                };
                if count > ARGUMENTS_MAX as i64 {
                    return Err(ProtocolError::MultibulkLength);
                }
                if self.is_restricted && count > ARGUMENTS_MAX_STRANGER {
                    return Err(ProtocolError::StrangerMultibulkLength);
                }
                self.position = next;
                if count <= 0 {
                    self.begin(next);
                    continue;
                }
                self.missing = count as usize;
            }
            if !self.read_bulks(input)? {
                return Ok(None);
            }
            (self.complete, self.inline_is_current) = (true, false);
            return Ok(Some(Args { text: &input[self.start..], spans: &self.spans }));
        }
    }

    /// Reads arguments until the request is whole (`true`) or the input ends (`false`).
    fn read_bulks(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        while self.missing > 0 {
            let len = match self.bulk {
                Some(len) => len,
                None => match input.get(self.position) {
                    None => return Ok(false),
                    Some(b'$') => {
                        let Some((len, next)) = number_line(input, self.position + 1)
                            .map_err(|NoNumber| ProtocolError::BulkLength)?
                        else {
                            return Ok(false);
                        };
                        let fits = (0..=BULK_BYTES_MAX as i64).contains(&len)
                            && next - self.start + len as usize + 2 <= REQUEST_BYTES_MAX;
                        if !fits {
                            return Err(ProtocolError::BulkLength);
                        }
                        if self.is_restricted && len > BULK_BYTES_MAX_STRANGER {
                            return Err(ProtocolError::StrangerBulkLength);
                        }
                        self.position = next;
                        len as usize
                    }
                    Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
                },
            };
            let end = self.position + len;
            match input.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::ExpectedLineEnd),
                None => {
                    self.bulk = Some(len);
                    return Ok(false);
                }
            }
            self.bulk = None;
            self.spans.push(Span::new(self.position - self.start, end - self.start));
            self.position = end + 2;
            self.missing -= 1;
        }
        Ok(true)
    }

    /// Reads one inline command into `inline` and `spans`; `false` when its line end is missing.
    fn read_inline(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        let from = self.searched.max(self.start);
        let Some(offset) = memchr::memchr(b'\n', &input[from..]) else {
            self.searched = input.len();
            let too_long = input.len() - self.start >= INLINE_BYTES_MAX;
            return if too_long { Err(ProtocolError::InlineTooLong) } else { Ok(false) };
        };
        let end = from + offset;
        if end - self.start >= INLINE_BYTES_MAX {
            return Err(ProtocolError::InlineTooLong);
        }
        let line = &input[self.start..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line, &mut self.inline, &mut self.spans).ok_or(ProtocolError::UnbalancedQuotes)?;
        self.position = end + 1;
        Ok(true)
    }

    fn begin(&mut self, start: usize) {
        self.start = start;
        self.position = start;
        self.searched = start;
        self.complete = false;
        self.spans.clear();
    }

    /// Bytes at the front of the buffer that no coming call needs.
    pub fn consumed(&self) -> usize {
        if self.complete { self.position } else { self.start }
    }

    /// Whether nothing of an unfinished request has been understood yet.
    pub fn is_idle(&self) -> bool {
        self.complete || (self.missing == 0 && self.position == self.start)
    }

    /// Tells the parser that the caller has dropped the first [`Parser::consumed`] bytes of the buffer.
    pub fn release(&mut self) {
        if self.complete {
            self.begin(0);
        } else {
            self.position -= self.start;
            self.searched = self.searched.saturating_sub(self.start);
            self.start = 0;
        }
    }

    /// Takes the last returned request out of the parser. The next call continues behind it.
    pub(crate) fn take(&mut self) -> Taken {
        debug_assert!(self.complete);
        let (start, end) = (self.start, self.position);
        let is_inline = self.inline_is_current;
        let inline = is_inline.then(|| std::mem::take(&mut self.inline));
        Taken { start, end, spans: std::mem::take(&mut self.spans), inline }
    }

    /// Gives back memory that an unfinished request does not need.
    pub(crate) fn fit(&mut self) {
        self.spans.shrink_to(2 * self.spans.len());
        if self.missing > 0 || self.complete {
            self.inline = Vec::new();
        }
    }

    /// The length of the buffer at which the arriving argument is whole, if known.
    pub fn bytes_wanted(&self) -> Option<usize> {
        self.bulk.map(|len| self.position + len + 2)
    }

    /// Forgets everything and gives back memory beyond a small request's.
    pub fn reset(&mut self) {
        self.begin(0);
        self.missing = 0;
        self.bulk = None;
        self.spans.shrink_to(64);
        self.inline.clear();
        self.inline.shrink_to(1 << 10);
    }

    /// Bytes of memory held.
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.spans.capacity() * size_of::<Span>() + self.inline.capacity()
    }
}

/// The line is no number.
struct NoNumber;

/// The number on the line at `at`, and where the next line starts; `None` when the line is not whole.
fn number_line(input: &[u8], at: usize) -> Result<Option<(i64, usize)>, NoNumber> {
    let line = input.get(at..).unwrap_or_default();
    // Nearly every header is one to three digits.
    let mut value = 0i64;
    for (index, &byte) in line.iter().take(NUMBER_BYTES_MAX + 1).enumerate() {
        match byte {
            b'0'..=b'9' => value = value.wrapping_mul(10).wrapping_add(i64::from(byte - b'0')),
            b'-' if index == 0 => {}
            b'\r' => {
                let Some(&end) = line.get(index + 1) else { return Ok(None) };
                let plain = index <= 18 && line[0].wrapping_sub(b'1') < 9;
                let value = if plain { Some(value) } else { strict_i64(&line[..index]) };
                return match value {
                    Some(value) if end == b'\n' => Ok(Some((value, at + index + 2))),
                    _ => Err(NoNumber),
                };
            }
            _ => return Err(NoNumber),
        }
    }
    if line.len() > NUMBER_BYTES_MAX { Err(NoNumber) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All requests of `input`, fed in pieces of `piece` bytes.
    fn requests(input: &[u8], piece: usize) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
        let mut parser = Parser::default();
        let mut buffer = Vec::new();
        let mut found = Vec::new();
        for part in input.chunks(piece) {
            buffer.extend_from_slice(part);
            while let Some(args) = parser.next(&buffer)? {
                found.push(args.from(0).map(<[u8]>::to_vec).collect());
            }
            buffer.drain(..parser.consumed());
            parser.release();
        }
        Ok(found)
    }

    #[test]
    fn every_split_gives_the_same_requests() {
        let input = b"*2\r\n$3\r\nGET\r\n$4\r\nk\r\n1\r\n*0\r\n*-1\r\nset a \"b\\x41\\n\"\r\n\r\nPING\n\
            *3\r\n$3\r\nSET\r\n$0\r\n\r\n$12\r\nhello\r\nworld\r\n";
        let whole = requests(input, input.len()).unwrap();
        assert_eq!(whole.len(), 4);
        assert_eq!(whole[0], [b"GET".to_vec(), b"k\r\n1".to_vec()]);
        assert_eq!(whole[1], [b"set".to_vec(), b"a".to_vec(), b"bA\n".to_vec()]);
        for piece in 1..input.len() {
            assert_eq!(requests(input, piece).unwrap(), whole, "pieces of {piece}");
        }
    }

    #[test]
    fn bad_framing_is_named() {
        let cases: [(&[u8], ProtocolError); 13] = [
            (b"*x\r\n", ProtocolError::MultibulkLength),
            (b"*1048577\r\n", ProtocolError::MultibulkLength),
            (b"*99999999999999999999999", ProtocolError::MultibulkLength),
            (b"*\r\n", ProtocolError::MultibulkLength),
            (b"*1\rx", ProtocolError::MultibulkLength),
            (b"*1\r\n:1\r\n", ProtocolError::ExpectedBulk(b':')),
            (b"*1\r\n*1\r\n", ProtocolError::ExpectedBulk(b'*')),
            (b"*1\r\n$-1\r\n", ProtocolError::BulkLength),
            (b"*1\r\n$536870913\r\n", ProtocolError::BulkLength),
            (b"*1\r\n$03\r\nGET\r\n", ProtocolError::BulkLength),
            (b"*1\r\n$3\r\nGETxx", ProtocolError::ExpectedLineEnd),
            (b"get \"a\n", ProtocolError::UnbalancedQuotes),
            (b"get \"a\"b\n", ProtocolError::UnbalancedQuotes),
        ];
        for (input, error) in cases {
            for piece in [1, 3, input.len()] {
                assert_eq!(requests(input, piece), Err(error), "{}", String::from_utf8_lossy(input));
            }
        }
        assert_eq!(requests(&vec![b'a'; INLINE_BYTES_MAX], 1000), Err(ProtocolError::InlineTooLong));
    }

    #[test]
    fn announced_lengths_reserve_nothing() {
        let mut parser = Parser::default();
        assert!(matches!(parser.next(b"*1048576\r\n$536870912\r\nx"), Ok(None)));
        assert!(parser.held_bytes() < 1024);
        assert_eq!(parser.bytes_wanted(), Some(22 + (512 << 20) + 2));
    }

    #[test]
    fn two_bulks_may_not_add_up_to_more_than_a_request() {
        let mut input = b"*3\r\n".to_vec();
        let half = REQUEST_BYTES_MAX / 2;
        let mut parser = Parser { start: 0, ..Parser::default() };
        input.extend_from_slice(format!("${half}\r\n").as_bytes());
        assert!(matches!(parser.next(&input), Ok(None)));
        // As if the first half had arrived.
        parser.bulk = None;
        parser.missing = 2;
        parser.position = half + 20;
        input.resize(half + 20, b'x');
        input.extend_from_slice(format!("${half}\r\n").as_bytes());
        assert_eq!(parser.next(&input).unwrap_err(), ProtocolError::BulkLength);
    }
}
