//! A dictionary as bytes: an [envelope].
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | signature `ztok` |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | bits, 10 to 16 |
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
use crate::envelope::{self, CHECKSUM_BYTES, HEADER_BYTES, Refusal};

const SIGNATURE: &[u8; 4] = b"ztok";

/// A dictionary read from bytes, each token checked on its own.
pub(super) struct Stored<'a> {
    pub(super) bits: u32,
    pub(super) generation: u32,
    pub(super) tokens: Vec<&'a [u8]>,
}

pub(super) fn to_bytes(table: &Table, generation: u32) -> Vec<u8> {
    let count = table.tokens() as u32;
    envelope::seal(SIGNATURE, table.bits() as u8, 0, generation, count, |bytes| append_tokens(table, bytes))
}

/// A checksum that identifies the content of a dictionary: its width and its tokens, but not its generation.
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
    let stored = envelope::open(SIGNATURE, bytes).map_err(|refusal| match refusal {
        Refusal::Signature => DictionaryError::NotADictionary,
        Refusal::Version { version } => DictionaryError::Version { version },
        Refusal::Checksum { stored, computed } => DictionaryError::Checksum { stored, computed },
    })?;
    let bits = u32::from(stored.own);
    if !super::BITS.contains(&bits) {
        return Err(DictionaryError::Field { name: "the width of token numbers", value: bits.into() });
    }
    if stored.extra != 0 {
        return Err(DictionaryError::Field { name: "the reserved field", value: stored.extra.into() });
    }
    let count = stored.count as usize;
    if !(256..=tokens_max(bits)).contains(&count) {
        return Err(DictionaryError::Field { name: "the number of tokens", value: count as u64 });
    }
    let wrong_length = |content_bytes| DictionaryError::Length {
        expected: HEADER_BYTES + content_bytes + CHECKSUM_BYTES,
        found: bytes.len(),
    };
    let (lengths, mut rest) = stored.content.split_at_checked(count).ok_or_else(|| wrong_length(count))?;
    if let Some(&length) = lengths.iter().find(|&&length| !(1..=TOKEN_BYTES_MAX as u8).contains(&length)) {
        return Err(DictionaryError::Field { name: "the length of a token", value: length.into() });
    }
    let total: usize = lengths.iter().map(|&length| usize::from(length)).sum();
    if rest.len() != total {
        return Err(wrong_length(count + total));
    }
    let tokens = lengths
        .iter()
        .map(|&length| {
            let (token, after) = rest.split_at(length.into());
            rest = after;
            token
        })
        .collect();
    Ok(Stored { bits, generation: stored.generation, tokens })
}
