//! Reads arbitrary bytes as a trace, whole and in pieces. Both ways must give the same requests and the same fault,
//! and requests that are written again in ziptier's own format must be read as the same.
//!
//! The first byte chooses the size of the pieces. If it is odd, the first line of ziptier's own format comes first.

#![no_main]

use std::io::{BufRead, BufReader, Read};

use libfuzzer_sys::fuzz_target;
use ziptier_eval::trace::{OPERATIONS, Trace};

const VALUE_BYTES_MAX: u32 = 100_000;
const FIRST_LINE: &[u8] = b"ziptier-trace 1\n";

/// Time, operation, key, bytes of the value, lifetime.
type Owned = (u64, usize, Vec<u8>, u32, u64);

fn requests(reader: impl BufRead) -> (Vec<Owned>, Option<String>) {
    let mut found = Vec::new();
    let mut trace = match Trace::of(reader, VALUE_BYTES_MAX) {
        Ok(trace) => trace,
        Err(told) => return (found, Some(told)),
    };
    loop {
        match trace.read() {
            Ok(None) => return (found, None),
            Err(told) => return (found, Some(told)),
            Ok(Some(request)) => {
                assert!(!request.key.is_empty() && request.value_bytes <= VALUE_BYTES_MAX);
                let (time, operation) = (request.time_ns, request.operation);
                let (value_bytes, lifetime) = (request.value_bytes, request.lifetime_sec);
                found.push((time, operation, request.key.to_vec(), value_bytes, lifetime));
            }
        }
    }
}

/// Hands out a few bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.1.min(out.len()).min(self.0.len());
        out[..bytes].copy_from_slice(&self.0[..bytes]);
        self.0 = &self.0[bytes..];
        Ok(bytes)
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let input = if first % 2 == 1 { [FIRST_LINE, rest].concat() } else { rest.to_vec() };
    let (whole, fault) = requests(&input[..]);
    let piece = usize::from(first / 2 % 16) + 1;
    let pieces = requests(BufReader::with_capacity(piece, Pieces(&input, piece)));
    assert_eq!(pieces, (whole.clone(), fault.clone()));
    if let Some(told) = fault {
        assert!(told.starts_with("line ") && !told.contains('\n'), "{told}");
    }

    let mut again = FIRST_LINE.to_vec();
    // Our own format has no key with white space in it.
    let is_plain = |key: &[u8]| !key.iter().any(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    let plain: Vec<Owned> = whole.into_iter().filter(|(_, _, key, ..)| is_plain(key)).collect();
    for (time_ns, operation, key, value_bytes, lifetime) in &plain {
        let name = OPERATIONS[*operation].0;
        let (seconds, ns) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        again.extend_from_slice(format!("{seconds}.{ns:09} {name} ").as_bytes());
        again.extend_from_slice(key);
        again.extend_from_slice(format!("\t{value_bytes} {lifetime}\n").as_bytes());
    }
    assert_eq!(requests(&again[..]), (plain, None));
});
