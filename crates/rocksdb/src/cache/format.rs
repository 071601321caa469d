//! Bytes in segment files; `docs/FORMATS.md` has them field by field.

use super::claim::Signature;
use super::index::UNIT_BYTES;

/// Bytes before the first entry. Every write begins and ends at a multiple of this.
pub(super) const PAGE_BYTES: usize = 4096;

/// Bytes of an entry before its key.
pub(super) const ENTRY_HEADER_BYTES: usize = 24;

pub(super) const SIGNATURE: Signature = *b"ziptrblk";
const VERSION: u32 = 1;
/// Bytes of the header that its checksum covers.
const HEADER_CRC_AT: usize = 40;
const ENTRY_MAGIC: [u8; 4] = *b"zblk";

/// The header of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) slot: u32,
    /// Bytes of the file.
    pub(super) segment_bytes: u64,
    /// Ascends with every segment that was begun.
    pub(super) sequence: u64,
    /// Drawn anew whenever the file is used again, so that its former entries fail their check.
    pub(super) salt: u64,
}

/// Why a file's first bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// Whole, and of this version.
    Version(u32),
    Damaged,
}

impl Header {
    pub(super) fn encode(&self, page: &mut [u8]) {
        page.fill(0);
        page[..8].copy_from_slice(&SIGNATURE);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[12..16].copy_from_slice(&self.slot.to_le_bytes());
        page[16..24].copy_from_slice(&self.segment_bytes.to_le_bytes());
        page[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        page[32..40].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&page[..HEADER_CRC_AT]);
        page[HEADER_CRC_AT..HEADER_CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }

    pub(super) fn decode(page: &[u8]) -> Result<Header, HeaderFault> {
        let is_whole = page.len() >= HEADER_CRC_AT + 4
            && page[..8] == SIGNATURE
            && u32_at(page, HEADER_CRC_AT) == crc32c::crc32c(&page[..HEADER_CRC_AT]);
        match is_whole {
            false => Err(HeaderFault::Damaged),
            true if u32_at(page, 8) != VERSION => Err(HeaderFault::Version(u32_at(page, 8))),
            true => Ok(Header {
                slot: u32_at(page, 12),
                segment_bytes: u64_at(page, 16),
                sequence: u64_at(page, 24),
                salt: u64_at(page, 32),
            }),
        }
    }
}

/// How an entry's bytes are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Packing {
    Raw = 0,
    Lz4 = 1,
    Zstd = 2,
}

/// One entry, with its bytes packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) key: &'a [u8],
    pub(super) kind: Kind,
    pub(super) packing: Packing,
    pub(super) raw_bytes: u32,
    pub(super) packed: &'a [u8],
}

/// RocksDB's numbers for a block, opaque here, which it gets back with the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kind {
    /// `CompressionType` of the bytes, 0 for uncompressed ones.
    pub compression: u8,
    /// `CacheTier` that they come from.
    pub tier: u8,
    /// `CacheEntryRole`, or 255 where it is not told.
    pub role: u8,
}

/// Bytes of an entry with such a key and so many packed bytes.
pub(super) fn entry_bytes(key_bytes: usize, packed_bytes: usize) -> usize {
    (ENTRY_HEADER_BYTES + key_bytes + packed_bytes).next_multiple_of(UNIT_BYTES)
}

impl<'a> Entry<'a> {
    /// The entry, without the checksum that [`seal`] gives it where it lies.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&ENTRY_MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.packed.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.raw_bytes.to_le_bytes());
        let Kind { compression, tier, role } = self.kind;
        let key_bytes = self.key.len() as u8;
        out.extend_from_slice(&[compression, tier, role, self.packing as u8, key_bytes, 0, 0, 0]);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.packed);
        out.resize(start + (out.len() - start).next_multiple_of(UNIT_BYTES), 0);
    }

    /// The entry at the start of `bytes` and its length, if the entry is whole and lies at its own place.
    pub(super) fn decode(bytes: &'a [u8], salt: u64, offset: usize) -> Option<(Entry<'a>, usize)> {
        if bytes.len() < ENTRY_HEADER_BYTES || bytes[..4] != ENTRY_MAGIC {
            return None;
        }
        let (packed_bytes, key_bytes) = (u32_at(bytes, 8) as usize, usize::from(bytes[20]));
        let length = entry_bytes(key_bytes, packed_bytes);
        let entry = bytes.get(..length)?;
        if u32_at(entry, 4) != checksum(&entry[8..], salt, offset) {
            return None;
        }
        let packing = match entry[19] {
            0 => Packing::Raw,
            1 => Packing::Lz4,
            2 => Packing::Zstd,
            _ => return None,
        };
        let (key, packed) = entry[ENTRY_HEADER_BYTES..][..key_bytes + packed_bytes].split_at(key_bytes);
        let kind = Kind { compression: entry[16], tier: entry[17], role: entry[18] };
        Some((Entry { key, kind, packing, raw_bytes: u32_at(entry, 12), packed }, length))
    }
}

/// Gives an entry its checksum for the place where it comes to lie.
pub(super) fn seal(entry: &mut [u8], salt: u64, offset: usize) {
    let crc = checksum(&entry[8..], salt, offset);
    entry[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(content: &[u8], salt: u64, offset: usize) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&salt.to_le_bytes());
    place[8..].copy_from_slice(&(offset as u64).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), content)
}

/// Visits every whole entry of a segment, one after the other. Behind a damaged entry, continues wherever another one
/// begins.
///
/// `bytes` are those from `offset` on. Returns the offset behind the last entry.
pub(super) fn walk(
    bytes: &[u8],
    salt: u64,
    offset: usize,
    mut each: impl FnMut(&Entry<'_>, usize, usize),
) -> usize {
    let (mut at, mut end) = (0, 0);
    while at + ENTRY_HEADER_BYTES <= bytes.len() {
        match Entry::decode(&bytes[at..], salt, offset + at) {
            Some((entry, length)) => {
                each(&entry, offset + at, length);
                at += length;
                end = at;
            }
            None => at += UNIT_BYTES,
        }
    }
    offset + end
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// The name of the segment file in a slot.
pub(super) fn segment_name(slot: u32) -> String {
    format!("blocks-{slot:05}")
}

/// The slot in a file's name.
pub(super) fn slot_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("blocks-")?;
    digits.parse().ok().filter(|&slot| segment_name(slot) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(key: &'a [u8], packed: &'a [u8]) -> Entry<'a> {
        let kind = Kind { compression: 7, tier: 1, role: 2 };
        Entry { key, kind, packing: Packing::Raw, raw_bytes: packed.len() as u32, packed }
    }

    #[test]
    fn no_flipped_bit_of_an_entry_or_header_passes() {
        let (mut bytes, written) = (Vec::new(), entry(b"sixteen bytes...", b"some block"));
        written.encode(&mut bytes);
        seal(&mut bytes, 9, 4096);
        assert_eq!(Entry::decode(&bytes, 9, 4096), Some((written, 64)));
        assert_eq!(Entry::decode(&bytes, 8, 4096), None);
        assert_eq!(Entry::decode(&bytes, 9, 4112), None);
        for at in 0..bytes.len() * 8 {
            bytes[at / 8] ^= 1 << (at % 8);
            assert_eq!(Entry::decode(&bytes, 9, 4096), None, "bit {at}");
            bytes[at / 8] ^= 1 << (at % 8);
        }
        let header = Header { slot: 3, segment_bytes: 1 << 20, sequence: 12, salt: 77 };
        let mut page = [0; PAGE_BYTES];
        header.encode(&mut page);
        assert_eq!(Header::decode(&page), Ok(header));
        for at in 0..(HEADER_CRC_AT + 4) * 8 {
            page[at / 8] ^= 1 << (at % 8);
            assert_eq!(Header::decode(&page), Err(HeaderFault::Damaged), "bit {at}");
            page[at / 8] ^= 1 << (at % 8);
        }
    }

    #[test]
    fn a_walk_goes_on_behind_damage() {
        let mut bytes = Vec::new();
        for i in 0..20_u8 {
            let (start, packed) = (bytes.len(), vec![i; usize::from(i) * 11]);
            entry(&[i; 16], &packed).encode(&mut bytes);
            seal(&mut bytes[start..], 5, 4096 + start);
        }
        bytes.resize(bytes.len() + 500, 0);
        let keys = |bytes: &[u8]| {
            let mut keys = Vec::new();
            walk(bytes, 5, 4096, |entry, _, _| keys.push(entry.key[0]));
            keys
        };
        assert_eq!(keys(&bytes), (0..20).collect::<Vec<_>>());
        bytes[9] ^= 0x40; // a length
        bytes[300] ^= 1;
        assert_eq!(keys(&bytes).len(), 18);
        assert!(keys(&[]).is_empty());
    }

    #[test]
    fn names() {
        assert_eq!(slot_of(&segment_name(7)), Some(7));
        assert_eq!(slot_of(&segment_name(65_534)), Some(65_534));
        assert_eq!(slot_of("blocks-7"), None);
        assert_eq!(slot_of("CURRENT"), None);
    }
}
