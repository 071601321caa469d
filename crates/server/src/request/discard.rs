//! Drops the rest of a request without room as it arrives, so that the connection stays usable.

use super::{BULK_BYTES_MAX, Parser, ProtocolError, number_line};

/// The rest of a request that is read and dropped, so that the next request is still understood.
#[derive(Debug)]
pub(crate) struct Discard {
    /// Arguments still to come, the one that is arriving included.
    missing: usize,
    /// Bytes still to come of the argument that is arriving, its line end included.
    left: Option<usize>,
}

impl Discard {
    /// Continues with `input`. Returns the number of consumed bytes, and whether the request ended.
    ///
    /// # Errors
    ///
    /// When the bytes can never become a request.
    pub(crate) fn feed(&mut self, input: &[u8]) -> Result<(usize, bool), ProtocolError> {
        let mut at = 0;
        while self.missing > 0 {
            if let Some(left) = self.left {
                let skipped = left.min(input.len() - at);
                at += skipped;
                if skipped < left {
                    self.left = Some(left - skipped);
                    return Ok((at, false));
                }
                self.left = None;
                self.missing -= 1;
                continue;
            }
            match input.get(at) {
                None => return Ok((at, false)),
                Some(b'$') => {}
                Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
            }
            match number_line(input, at + 1) {
                Ok(None) => return Ok((at, false)),
                Ok(Some((len, next))) if (0..=BULK_BYTES_MAX as i64).contains(&len) => {
                    self.left = Some(len as usize + 2);
                    at = next;
                }
                _ => return Err(ProtocolError::BulkLength),
            }
        }
        Ok((at, true))
    }
}

impl Parser {
    /// Gives the current request up. Returns the position in the buffer and the rest that is still to come. None if no
    /// part of a request was parsed yet, or if it is an inline command.
    pub(crate) fn abandon(&mut self) -> Option<(usize, Discard)> {
        if self.missing == 0 || self.complete {
            return None;
        }
        let discard = Discard { missing: self.missing, left: self.bulk.map(|len| len + 2) };
        let position = self.position;
        self.reset();
        Some((position, discard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_dropped_to_its_end() {
        let dropped = b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$30\r\n012345678901234567890123456789\r\n$2\r\nNX\r\n";
        let input = [&dropped[..], b"*1\r\n$4\r\nPING\r\n"].concat();
        for given_up in 5..dropped.len() {
            let mut parser = Parser::default();
            assert!(parser.next(&input[..given_up]).unwrap().is_none());
            let (position, mut discard) = parser.abandon().unwrap();
            for piece in [1, 3, 1000] {
                let mut discard = Discard { ..discard };
                let (mut at, mut end) = (position, given_up);
                loop {
                    let (done, whole) = discard.feed(&input[at..end]).unwrap();
                    at += done;
                    if whole {
                        break;
                    }
                    end = (end + piece).min(input.len());
                }
                assert_eq!(at, dropped.len(), "{given_up} {piece}");
            }
            assert!(discard.feed(b"x").is_err() || discard.left.is_some());
        }
    }
}
