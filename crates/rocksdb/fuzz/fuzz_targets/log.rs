//! Walks any bytes as a log that another process writes. A walk must end within the bytes and never see less as they
//! grow. Many steps must see as much as one.
//!
//! Records get correct checks, the log's number and correct lengths, unless the input asks for others.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::convert::Infallible;
use ziptier_rocksdb::wal::Walk;

const NUMBER: u32 = 7;
const BLOCK_BYTES: usize = 32 << 10;
const BYTES_MAX: usize = 8 * BLOCK_BYTES;

#[derive(Debug, Arbitrary)]
enum Piece {
    Any(Vec<u8>),
    Record { kind: u8, number: Option<u32>, length: Option<u16>, check: Option<u32>, content: Vec<u8>, times: u8 },
    Zeros(u16),
    /// Zeros up to so many bytes before the end of the block.
    ToBlockEnd(u8),
}

#[derive(Debug, Arbitrary)]
struct Input {
    pieces: Vec<Piece>,
    steps: Vec<u16>,
}

fn record(kind: u8, number: Option<u32>, length: Option<u16>, check: Option<u32>, content: &[u8]) -> Vec<u8> {
    let mut checked = vec![kind];
    if matches!(kind, 5..=8 | 11 | 131) {
        checked.extend(number.unwrap_or(NUMBER).to_le_bytes());
    }
    checked.extend(content);
    let check = check.unwrap_or_else(|| crc32c::crc32c(&checked).rotate_right(15).wrapping_add(0xa282_ead8));
    [&check.to_le_bytes()[..], &length.unwrap_or(content.len() as u16).to_le_bytes(), &checked].concat()
}

fn bytes_of(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Any(any) => bytes.extend(any),
            Piece::Record { kind, number, length, check, content, times } => {
                let record = record(*kind, *number, *length, *check, content);
                (0..=*times).for_each(|_| bytes.extend(&record));
            }
            Piece::Zeros(count) => bytes.extend(vec![0; usize::from(*count)]),
            Piece::ToBlockEnd(left) => {
                let gap = BLOCK_BYTES - bytes.len() % BLOCK_BYTES;
                bytes.extend(vec![0; gap.saturating_sub(usize::from(*left))]);
            }
        }
        bytes.truncate(BYTES_MAX);
    }
    bytes
}

fn advance(walk: &mut Walk, bytes: &[u8]) -> u64 {
    let read = |offset: u64, target: &mut [u8]| {
        let left = bytes.get(offset as usize..).unwrap_or_default();
        let count = left.len().min(target.len());
        target[..count].copy_from_slice(&left[..count]);
        Ok::<_, Infallible>(count)
    };
    walk.advance(read).unwrap_or_else(|never| match never {})
}

fuzz_target!(|input: Input| {
    let bytes = bytes_of(&input.pieces);
    let mut walk = Walk::new(NUMBER);
    let (mut shown, mut end) = (0, 0);
    for step in &input.steps {
        shown = (shown + usize::from(*step)).min(bytes.len());
        let found = advance(&mut walk, &bytes[..shown]);
        assert!(end <= found && found <= shown as u64);
        end = found;
    }
    let end = advance(&mut walk, &bytes);
    assert_eq!(end, advance(&mut Walk::new(NUMBER), &bytes));
    // Bytes behind the whole part of a log must not matter.
    let mut room = bytes[..end as usize].to_vec();
    room.resize(room.len() + 2 * BLOCK_BYTES, 0);
    assert_eq!(end, advance(&mut Walk::new(NUMBER), &room));
});
