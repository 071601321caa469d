//! Replies in RESP2 and RESP3, appended to one output buffer.
//!
//! The two protocols differ in nulls, maps, sets and verbatim text; commands say what they mean, and the writer
//! spells it for the client's version.

use crate::refusal::Refusal;

/// Memory that is not worth a copy.
const FIT_BYTES: usize = 4 << 10;

/// Bytes for one client, of which a part may have left already, and a part may have to wait.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// Bytes before this may leave.
    released: usize,
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Bytes that may leave now.
    pub(crate) fn sendable(&self) -> &[u8] {
        &self.bytes[self.sent..self.released]
    }

    /// Whether something has to wait.
    pub(crate) fn is_held(&self) -> bool {
        self.released < self.bytes.len()
    }

    /// Gives back memory of what was sent, if that is most of it.
    pub(crate) fn fit(&mut self) {
        let unsent = self.bytes.len() - self.sent;
        if self.bytes.capacity() > 2 * unsent + FIT_BYTES {
            self.bytes.drain(..self.sent);
            (self.sent, self.released) = (0, self.released - self.sent);
            self.bytes.shrink_to_fit();
        }
    }

    /// Adds what `other` has unsent.
    pub(crate) fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else {
            self.bytes.extend_from_slice(other.unsent());
        }
    }

    /// Lets everything leave.
    pub(crate) fn release(&mut self) {
        self.released = self.bytes.len();
    }

    /// Drops the bytes that have to wait.
    pub(crate) fn drop_held(&mut self) {
        self.bytes.truncate(self.released);
    }

    /// Marks the first `count` sendable bytes as sent.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            (self.sent, self.released) = (0, 0);
        } else if self.sent >= 1 << 20 && self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.released -= self.sent;
            self.sent = 0;
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Empties the buffer and keeps at most `capacity_max` bytes of it.
    pub(crate) fn recycle(&mut self, capacity_max: usize) {
        self.bytes.clear();
        (self.sent, self.released) = (0, 0);
        if self.bytes.capacity() > capacity_max {
            self.bytes.shrink_to(capacity_max);
        }
    }
}

/// Writes replies for one client at a time.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) output: Output,
    /// The client has asked for RESP3.
    pub(crate) resp3: bool,
}

impl Reply {
    fn header(&mut self, kind: u8, number: i64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        let out = &mut self.output.bytes;
        out.push(kind);
        out.extend_from_slice(digits);
        out.extend_from_slice(b"\r\n");
    }

    /// Bytes that are a reply already.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.output.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// `text` holds no line end.
    pub(crate) fn simple(&mut self, text: &str) {
        self.raw(b"+");
        self.raw(text.as_bytes());
        self.raw(b"\r\n");
    }

    pub(crate) fn error(&mut self, refusal: &Refusal) {
        self.raw(b"-");
        // A line end within would break the framing: Redis writes blanks, too.
        let one_line = |byte: u8| if byte == b'\r' || byte == b'\n' { b' ' } else { byte };
        self.output.bytes.extend(refusal.0.iter().copied().map(one_line));
        self.raw(b"\r\n");
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    pub(crate) fn bulk(&mut self, value: &[u8]) {
        self.output.bytes.reserve(value.len() + 16);
        self.bulk_header(value.len() as u64);
        self.raw(value);
        self.raw(b"\r\n");
    }

    /// Announces a bulk string whose bytes and line end follow.
    pub(crate) fn bulk_header(&mut self, len: u64) {
        self.header(b'$', len as i64);
    }

    pub(crate) fn null(&mut self) {
        self.raw(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    pub(crate) fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// Announces `len` pairs.
    pub(crate) fn map(&mut self, len: usize) {
        if self.resp3 { self.header(b'%', len as i64) } else { self.array(2 * len) }
    }

    pub(crate) fn set(&mut self, len: usize) {
        if self.resp3 { self.header(b'~', len as i64) } else { self.array(len) }
    }

    /// Text for people, which RESP3 marks as such.
    pub(crate) fn text(&mut self, text: &str) {
        self.text_header(text.len());
        self.raw(text.as_bytes());
        self.raw(b"\r\n");
    }

    /// Announces text of `len` bytes, which follow, and a line end.
    pub(crate) fn text_header(&mut self, len: usize) {
        if self.resp3 {
            self.header(b'=', len as i64 + 4);
            self.raw(b"txt:");
        } else {
            self.bulk_header(len as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp3: bool, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply { resp3, ..Reply::default() };
        write(&mut reply);
        String::from_utf8(reply.output.unsent().to_vec()).unwrap()
    }

    #[test]
    fn versions_differ_where_they_should() {
        assert_eq!(written(false, Reply::null), "$-1\r\n");
        assert_eq!(written(true, Reply::null), "_\r\n");
        assert_eq!(written(false, |r| r.map(2)), "*4\r\n");
        assert_eq!(written(true, |r| r.map(2)), "%2\r\n");
        assert_eq!(written(false, |r| r.text("ab")), "$2\r\nab\r\n");
        assert_eq!(written(true, |r| r.text("ab")), "=6\r\ntxt:ab\r\n");
        assert_eq!(written(true, |r| r.bulk(b"ab")), "$2\r\nab\r\n");
        assert_eq!(written(true, |r| r.integer(-7)), ":-7\r\n");
    }

    #[test]
    fn errors_stay_on_one_line() {
        let refusal = Refusal::fixed("ERR a\r\nb");
        assert_eq!(written(false, |r| r.error(&refusal)), "-ERR a  b\r\n");
    }

    #[test]
    fn output_forgets_what_was_sent() {
        let mut output = Output { bytes: vec![7; 3 << 20], sent: 0, released: 0 };
        assert!(output.is_held() && output.sendable().is_empty());
        output.release();
        output.bytes.push(8);
        assert_eq!(output.sendable().len(), 3 << 20);
        output.advance(10);
        output.advance(2 << 20);
        assert_eq!((output.sendable().len(), output.unsent().len()), ((1 << 20) - 10, (1 << 20) - 9));
        output.drop_held();
        assert!(!output.is_held());
        output.advance(1 << 19);
        output.fit();
        let left = (1 << 19) - 10;
        assert_eq!((output.sendable().len(), output.unsent().len()), (left, left));
        assert!(output.held_bytes() < left + FIT_BYTES);
        output.advance(left);
        assert!(output.is_empty());
        output.recycle(1 << 10);
        assert!(output.held_bytes() <= 1 << 10);
    }
}
