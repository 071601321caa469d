//! The common layout of stored dictionaries of all kinds: a header, and a checksum at the end.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | signature of the kind |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | the kind's own: a width, or a format |
//! | 6 | 2 | the kind's own, too; zero where it has no use for it |
//! | 8 | 4 | generation |
//! | 12 | 4 | how much there is: bytes, or tokens |
//! | 16 | | content |
//! | end - 4 | 4 | CRC32C of everything before |
//!
//! Numbers are little-endian.

use crate::checksum::crc32c;

const VERSION: u8 = 1;
pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// The fields of the header, and the content behind it. Only the checksum has been verified, which stops damage, not
/// malice.
pub(crate) struct Envelope<'a> {
    pub(crate) own: u8,
    pub(crate) extra: u16,
    pub(crate) generation: u32,
    pub(crate) count: u32,
    pub(crate) content: &'a [u8],
}

/// Why bytes are no envelope.
pub(crate) enum Refusal {
    Signature,
    Version { version: u8 },
    Checksum { stored: u32, computed: u32 },
}

/// Lays out an envelope; `content` appends its content.
pub(crate) fn seal(
    signature: &[u8; 4],
    own: u8,
    extra: u16,
    generation: u32,
    count: u32,
    content: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + count as usize + usize::from(extra) + CHECKSUM_BYTES);
    bytes.extend_from_slice(signature);
    bytes.extend_from_slice(&[VERSION, own]);
    bytes.extend_from_slice(&extra.to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    content(&mut bytes);
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Opens an envelope. Any bytes may be given.
pub(crate) fn open<'a>(signature: &[u8; 4], bytes: &'a [u8]) -> Result<Envelope<'a>, Refusal> {
    if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES || &bytes[..4] != signature {
        return Err(Refusal::Signature);
    }
    if bytes[4] != VERSION {
        return Err(Refusal::Version { version: bytes[4] });
    }
    let (body, stored) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    let stored = le_u32(stored, 0);
    let computed = crc32c(body);
    if stored != computed {
        return Err(Refusal::Checksum { stored, computed });
    }
    Ok(Envelope {
        own: bytes[5],
        extra: u16::from_le_bytes([bytes[6], bytes[7]]),
        generation: le_u32(bytes, 8),
        count: le_u32(bytes, 12),
        content: &body[HEADER_BYTES..],
    })
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
