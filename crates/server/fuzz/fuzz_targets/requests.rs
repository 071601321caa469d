//! Runs the request parser on arbitrary bytes, whole and in pieces. Both ways must give the same requests and the same
//! error. The parser must use no more memory than the bytes justify, and return every well-formed request as it was
//! written.
//!
//! The first byte chooses the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ziptier_server::request::{Parser, ProtocolError};

type Requests = Vec<Vec<Vec<u8>>>;

fn requests(input: &[u8], piece: usize) -> (Requests, Option<ProtocolError>) {
    let mut parser = Parser::default();
    let mut buffer = Vec::new();
    let mut found = Vec::new();
    for part in input.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            match parser.next(&buffer) {
                Ok(Some(args)) => found.push(args.from(0).map(<[u8]>::to_vec).collect()),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        let consumed = parser.consumed();
        assert!(consumed <= buffer.len());
        buffer.drain(..consumed);
        parser.release();
        assert!(parser.held_bytes() <= 1024 + 16 * input.len());
    }
    (found, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, input)) = data.split_first() else { return };
    let whole = requests(input, input.len().max(1));
    assert_eq!(requests(input, usize::from(first % 32) + 1), whole);

    let mut again = Vec::new();
    for request in &whole.0 {
        again.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
        for arg in request {
            again.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            again.extend_from_slice(arg);
            again.extend_from_slice(b"\r\n");
        }
    }
    assert_eq!(requests(&again, again.len().max(1)), (whole.0, None));
});
