//! Runs the parser of a function's replies on arbitrary bytes, whole and in pieces. Both ways must give the same
//! replies and the same error, and what is written again as it was read must be read as the same.
//!
//! The first byte chooses the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ziptier_eval::replies::{Hello, Reply, parse};

type Replies = Vec<Reply<Vec<u8>>>;

fn replies(input: &[u8], piece: usize) -> (Replies, Option<String>) {
    let (mut buffer, mut found) = (Vec::new(), Vec::new());
    for part in input.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            match parse(&buffer) {
                Ok(Some((reply, length))) => {
                    found.push(reply.map(|place| buffer[place].to_vec()));
                    assert!((1..=buffer.len()).contains(&length));
                    buffer.drain(..length);
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(error.starts_with("it "), "{error}");
                    return (found, Some(error));
                }
            }
        }
    }
    (found, None)
}

fn write(reply: &Reply<Vec<u8>>, out: &mut Vec<u8>) {
    out.extend_from_slice(reply.word().as_bytes());
    match reply {
        Reply::Done | Reply::Nothing | Reply::End => out.push(b'\n'),
        Reply::Value(value) => {
            out.extend_from_slice(format!(" {}\n", value.len()).as_bytes());
            out.extend_from_slice(value);
        }
        Reply::Record(key, value) => {
            out.extend_from_slice(format!(" {} {}\n", key.len(), value.len()).as_bytes());
            out.extend_from_slice(&[&key[..], value].concat());
        }
        Reply::Stat { read, held } => {
            for (name, number) in [("read", read), ("held", held)] {
                if let Some(number) = number {
                    out.extend_from_slice(format!(" {name}={number}").as_bytes());
                }
            }
            out.push(b'\n');
        }
        Reply::Error(words) => {
            out.push(b' ');
            out.extend_from_slice(words);
            out.push(b'\n');
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, input)) = data.split_first() else { return };
    let whole = replies(input, input.len().max(1));
    assert_eq!(replies(input, usize::from(first % 32) + 1), whole);

    let mut again = Vec::new();
    whole.0.iter().for_each(|reply| write(reply, &mut again));
    assert_eq!(replies(&again, again.len().max(1)), (whole.0, None));

    if let Ok(hello) = Hello::parse(input) {
        let again = Hello::parse(format!("ziptier 1 {}", hello.requests()).as_bytes());
        assert_eq!(again.map(|again| again.requests()), Ok(hello.requests()));
    }
});
