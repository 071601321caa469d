//! A dictionary of blocks as bytes.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | signature `zblk` |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | number of the format, as in a frame |
//! | 6 | 2 | bytes of canned codes, c: 0 or, for `deflate`, 155 |
//! | 8 | 4 | generation |
//! | 12 | 4 | bytes of content, n |
//! | 16 | n | content |
//! | 16 + n | c | canned codes, four bits for the length of each symbol, literals and lengths first |
//! | 16 + n + c | 4 | CRC32C of everything before |
//!
//! Numbers are little-endian.

use super::{Dictionary, DictionaryError};
use crate::checksum::crc32c;
use crate::format::Format;
use ziptier_deflate::CannedLengths;

const SIGNATURE: &[u8; 4] = b"zblk";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 4;

/// What was stored, its content not yet looked at.
pub(super) struct Stored<'a> {
    pub(super) format: Format,
    pub(super) generation: u32,
    pub(super) content: &'a [u8],
    pub(super) codes: Option<&'a [u8; CannedLengths::BYTES]>,
}

pub(super) fn to_bytes(format: Format, generation: u32, content: &[u8], codes: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + content.len() + codes.len() + CHECKSUM_BYTES);
    bytes.extend_from_slice(SIGNATURE);
    bytes.extend_from_slice(&[VERSION, format.number()]);
    bytes.extend_from_slice(&(codes.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(codes);
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
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
    let number = bytes[5];
    let format = Format::from_number(number)
        .filter(|&format| Dictionary::content_bytes_max(format) > 0)
        .ok_or(DictionaryError::Format { number })?;
    let code_bytes = u16::from_le_bytes([bytes[6], bytes[7]]);
    let (content, codes) = match usize::from(code_bytes) {
        0 => (&body[HEADER_BYTES..], None),
        CannedLengths::BYTES if format == Format::Deflate => match body[HEADER_BYTES..].split_last_chunk() {
            Some((content, codes)) => (content, Some(codes)),
            None => return Err(DictionaryError::Reserved { value: code_bytes }),
        },
        _ => return Err(DictionaryError::Reserved { value: code_bytes }),
    };
    let generation = le_u32(bytes, 8);
    let stated = le_u32(bytes, 12) as usize;
    if content.len() != stated {
        return Err(DictionaryError::Length { max: stated, found: content.len() });
    }
    Ok(Stored { format, generation, content, codes })
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
