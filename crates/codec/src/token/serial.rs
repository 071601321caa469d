//! A dictionary as bytes.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | signature `ztok` |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | bits, 12 to 16 |
//! | 6 | 2 | zero |
//! | 8 | 4 | generation |
//! | 12 | 4 | number of tokens, n |
//! | 16 | n | length of each token, 1 to 16 |
//! | 16 + n | sum of the lengths | the tokens, one after the other |
//! | end - 4 | 4 | CRC32C of everything before |
//!
//! Numbers are little-endian.

use super::decode::Table;
use super::error::DictionaryError;
use super::{TOKEN_BYTES_MAX, tokens_max};
use crate::checksum::crc32c;

const SIGNATURE: &[u8; 4] = b"ztok";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 4;

/// A dictionary read from bytes, each token checked on its own.
pub(super) struct Stored<'a> {
    pub(super) bits: u32,
    pub(super) generation: u32,
    pub(super) tokens: Vec<&'a [u8]>,
}

pub(super) fn to_bytes(table: &Table, generation: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + table.tokens() * 8);
    bytes.extend_from_slice(SIGNATURE);
    bytes.extend_from_slice(&[VERSION, table.bits() as u8, 0, 0]);
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&(table.tokens() as u32).to_le_bytes());
    append_tokens(table, &mut bytes);
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// What sets the content of a dictionary apart from any other: its width and its tokens, but not its generation.
pub(super) fn fingerprint(table: &Table) -> u32 {
    let mut bytes = vec![table.bits() as u8];
    append_tokens(table, &mut bytes);
    crc32c(&bytes)
}

fn append_tokens(table: &Table, bytes: &mut Vec<u8>) {
    bytes.extend((0..table.tokens()).map(|number| table.token(number).len() as u8));
    for number in 0..table.tokens() {
        bytes.extend_from_slice(table.token(number));
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Stored<'_>, DictionaryError> {
    if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES || &bytes[..4] != SIGNATURE {
        return Err(DictionaryError::NotADictionary);
    }
    if bytes[4] != VERSION {
        return Err(DictionaryError::Version { version: bytes[4] });
    }
    let (body, stored) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    let stored = le_u32(stored, 0);
    let computed = crc32c(body);
    if stored != computed {
        return Err(DictionaryError::Checksum { stored, computed });
    }
    // A checksum stops damage, not malice: everything below is checked as well.
    let bits = u32::from(bytes[5]);
    if !super::BITS.contains(&bits) {
        return Err(DictionaryError::Field { name: "the width of token numbers", value: bits.into() });
    }
    if bytes[6..8] != [0, 0] {
        return Err(DictionaryError::Field {
            name: "the reserved field",
            value: u64::from(bytes[6]) | u64::from(bytes[7]) << 8,
        });
    }
    let generation = le_u32(bytes, 8);
    let count = le_u32(bytes, 12) as usize;
    if !(256..=tokens_max(bits)).contains(&count) {
        return Err(DictionaryError::Field { name: "the number of tokens", value: count as u64 });
    }
    let wrong_length = |expected| DictionaryError::Length { expected, found: bytes.len() };
    let lengths = body
        .get(HEADER_BYTES..HEADER_BYTES + count)
        .ok_or_else(|| wrong_length(HEADER_BYTES + count + CHECKSUM_BYTES))?;
    if let Some(&length) = lengths.iter().find(|&&length| !(1..=TOKEN_BYTES_MAX as u8).contains(&length)) {
        return Err(DictionaryError::Field { name: "the length of a token", value: length.into() });
    }
    let total: usize = lengths.iter().map(|&length| usize::from(length)).sum();
    if body.len() != HEADER_BYTES + count + total {
        return Err(wrong_length(HEADER_BYTES + count + total + CHECKSUM_BYTES));
    }
    let mut rest = &body[HEADER_BYTES + count..];
    let tokens = lengths
        .iter()
        .map(|&length| {
            let (token, after) = rest.split_at(length.into());
            rest = after;
            token
        })
        .collect();
    Ok(Stored { bits, generation, tokens })
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
