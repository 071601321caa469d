//! A dictionary of blocks as bytes: an [envelope].
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
use crate::envelope::{self, Refusal};
use crate::format::Format;

/// Bytes of canned codes: four bits for each of the 286 + 24 symbols.
pub(super) const CODES_BYTES: usize = 155;
#[cfg(feature = "deflate")]
const _: () = assert!(CODES_BYTES == ziptier_deflate::CannedLengths::BYTES);

const SIGNATURE: &[u8; 4] = b"zblk";

/// The fields of a stored dictionary, its content not yet checked.
pub(super) struct Stored<'a> {
    pub(super) format: Format,
    pub(super) generation: u32,
    pub(super) content: &'a [u8],
    pub(super) codes: Option<&'a [u8; CODES_BYTES]>,
}

pub(super) fn to_bytes(format: Format, generation: u32, content: &[u8], codes: &[u8]) -> Vec<u8> {
    let (extra, count) = (codes.len() as u16, content.len() as u32);
    envelope::seal(SIGNATURE, format.number(), extra, generation, count, |bytes| {
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(codes);
    })
}

pub(super) fn parse(bytes: &[u8]) -> Result<Stored<'_>, DictionaryError> {
    let stored = envelope::open(SIGNATURE, bytes).map_err(|refusal| match refusal {
        Refusal::Signature => DictionaryError::NotADictionary,
        Refusal::Version { version } => DictionaryError::Version { version },
        Refusal::Checksum { stored, computed } => DictionaryError::Checksum { stored, computed },
    })?;
    let number = stored.own;
    let format = Format::from_number(number)
        .filter(|&format| Dictionary::content_bytes_max(format) > 0)
        .ok_or(DictionaryError::Format { number })?;
    let (content, codes) = match usize::from(stored.extra) {
        0 => (stored.content, None),
        CODES_BYTES if format == Format::Deflate => match stored.content.split_last_chunk() {
            Some((content, codes)) => (content, Some(codes)),
            None => return Err(DictionaryError::Reserved { value: stored.extra }),
        },
        _ => return Err(DictionaryError::Reserved { value: stored.extra }),
    };
    let stated = stored.count as usize;
    if content.len() != stated {
        return Err(DictionaryError::Length { max: stated, found: content.len() });
    }
    Ok(Stored { format, generation: stored.generation, content, codes })
}
