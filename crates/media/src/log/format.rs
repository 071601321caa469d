//! The bytes of a segment: its header and its entries. `docs/FORMATS.md` draws them.

use super::Lsn;

/// Bytes in front of the first record: a page, so that writing a record never touches the header.
pub(super) const HEADER_BYTES: u64 = 4096;

/// Bytes in front of a record's payload, and of a seal.
pub(super) const ENTRY_HEADER_BYTES: usize = 20;

/// The offset of the LSN in an entry's header.
pub(super) const ENTRY_LSN_AT: usize = 8;

const SIGNATURE: [u8; 8] = *b"ziptrlog";
/// The format that is written.
pub(super) const VERSION: u32 = 2;
/// The oldest version that this code reads. Its entries hold LSNs unmasked.
const VERSION_MIN: u32 = 1;
const HEADER_CRC_AT: usize = HEADER_BYTES as usize - 4;
/// The length field of a seal.
const SEAL_LENGTH: u32 = u32::MAX;

/// The contents of a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) version: u32,
    /// Bytes of the file while it is in use. A shorter file was finished.
    pub(super) segment_bytes: u64,
    /// The number of the segment. Each use of a file has another number.
    pub(super) number: u64,
    /// Seeds the checksums and hides the LSNs, so that no client can store a value that looks like a record.
    pub(super) salt: u64,
    /// The LSN of its first record.
    pub(super) first_lsn: Lsn,
}

/// The reason why the first bytes of a file are no header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// Another kind of file, or another version: the finding.
    Foreign(String),
    /// Some byte differs from what was written.
    Damaged,
}

impl SegmentHeader {
    /// The header of no segment, in which no record has room.
    pub(super) fn none(first_lsn: Lsn) -> SegmentHeader {
        SegmentHeader { version: VERSION, segment_bytes: 0, number: 0, salt: 0, first_lsn }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        bytes[0..8].copy_from_slice(&SIGNATURE);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.salt.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first_lsn.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
        bytes[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `bytes` are the first [`HEADER_BYTES`] of the file, or fewer if the file is shorter.
    pub(super) fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderFault> {
        let is_whole = bytes.len() == HEADER_BYTES as usize
            && le_u32(&bytes[HEADER_CRC_AT..]) == crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
        if is_whole && bytes[0..8] != SIGNATURE {
            return Err(HeaderFault::Foreign("its signature is another one".to_string()));
        }
        let version = if is_whole { le_u32(&bytes[8..12]) } else { 0 };
        if is_whole && !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(HeaderFault::Foreign(format!(
                "it has version {version}, this program reads versions {VERSION_MIN} to {VERSION}"
            )));
        }
        let header = SegmentHeader {
            version,
            segment_bytes: if is_whole { le_u64(&bytes[16..24]) } else { 0 },
            number: if is_whole { le_u64(&bytes[24..32]) } else { 0 },
            salt: if is_whole { le_u64(&bytes[32..40]) } else { 0 },
            first_lsn: if is_whole { le_u64(&bytes[40..48]) } else { 0 },
        };
        let is_sound = header.segment_bytes > HEADER_BYTES && (1..=Lsn::MAX / 2).contains(&header.first_lsn);
        if is_sound { Ok(header) } else { Err(HeaderFault::Damaged) }
    }

    /// The mask that entry headers combine with the LSN by exclusive or.
    ///
    /// Payloads come from clients, and a search behind damage looks at every byte. A client that does not know the salt
    /// cannot write bytes that look like a header with a likely LSN. Headers from another use of the file do not look
    /// like one, either.
    pub(super) fn lsn_mask(&self) -> u64 {
        if self.version == 1 { 0 } else { mixed(self.salt ^ mixed(self.number)) }
    }
}

/// The mixer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every bit of the result depends on every bit of the
/// number.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// The header in front of a record's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryHeader {
    /// Bytes of the payload; `None` for a seal.
    pub(super) length: Option<u32>,
    /// The number of LSNs that were not durable when this entry was appended, its own included.
    pub(super) unsynced: u32,
    pub(super) lsn: Lsn,
    pub(super) crc: u32,
}

impl EntryHeader {
    /// A header whose checksum covers a payload with the CRC32C `payload_crc`, the header and the segment.
    pub(super) fn new(
        length: Option<u32>,
        unsynced: u32,
        lsn: Lsn,
        segment: &SegmentHeader,
        payload_crc: u32,
    ) -> Self {
        let mut header = EntryHeader { length, unsynced, lsn, crc: 0 };
        header.crc = header.checksum(segment, payload_crc);
        header
    }

    /// The checksum over the payload, the header without its checksum, and the salt and number of this use of the
    /// segment.
    pub(super) fn checksum(&self, segment: &SegmentHeader, payload_crc: u32) -> u32 {
        let mut covered = [0; 32];
        covered[..16].copy_from_slice(&self.encode(segment)[..16]);
        covered[16..24].copy_from_slice(&segment.number.to_le_bytes());
        covered[24..].copy_from_slice(&segment.salt.to_le_bytes());
        crc32c::crc32c_append(payload_crc, &covered)
    }

    pub(super) fn encode(&self, segment: &SegmentHeader) -> [u8; ENTRY_HEADER_BYTES] {
        let mut bytes = [0; ENTRY_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.length.unwrap_or(SEAL_LENGTH).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.unsynced.to_le_bytes());
        bytes[ENTRY_LSN_AT..16].copy_from_slice(&(self.lsn ^ segment.lsn_mask()).to_le_bytes());
        bytes[16..20].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ENTRY_HEADER_BYTES], segment: &SegmentHeader) -> EntryHeader {
        let length = le_u32(&bytes[0..4]);
        EntryHeader {
            length: (length != SEAL_LENGTH).then_some(length),
            unsynced: le_u32(&bytes[4..8]),
            lsn: le_u64(&bytes[ENTRY_LSN_AT..16]) ^ segment.lsn_mask(),
            crc: le_u32(&bytes[16..20]),
        }
    }

    /// Bytes of the payload.
    pub(super) fn payload_bytes(&self) -> usize {
        self.length.map_or(0, |length| length as usize)
    }

    /// Bytes of header and payload.
    pub(super) fn entry_bytes(&self) -> u64 {
        (ENTRY_HEADER_BYTES + self.payload_bytes()) as u64
    }

    /// The newest LSN that was durable when this entry was appended.
    pub(super) fn durable_lsn(&self) -> Lsn {
        self.lsn.saturating_sub(u64::from(self.unsynced))
    }
}

/// The name of the segment file with this number.
pub(super) fn segment_name(number: u64) -> String {
    format!("log-{number:016x}")
}

/// The name of a segment that was set aside.
pub(super) fn unread_name(number: u64) -> String {
    format!("unread-{number:016x}")
}

/// The name of a spare file.
pub(super) fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}")
}

/// The number behind a prefix in a file's name.
pub(super) fn number_of(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

fn le_u32(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[..4]);
    u32::from_le_bytes(word)
}

fn le_u64(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: SegmentHeader =
        SegmentHeader { version: VERSION, segment_bytes: 8192, number: 7, salt: 99, first_lsn: 12 };

    #[test]
    fn a_header_comes_back_and_no_flipped_bit_passes() {
        let mut bytes = SEGMENT.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(SEGMENT));
        for at in 0..bytes.len() {
            bytes[at] ^= 1 << (at % 8);
            assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFault::Damaged), "byte {at}");
            bytes[at] ^= 1 << (at % 8);
        }
        assert_eq!(SegmentHeader::decode(&bytes[..100]), Err(HeaderFault::Damaged));
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = SEGMENT.encode();
        bytes[8] = 9;
        let crc = crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
        bytes[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        let reason = "it has version 9, this program reads versions 1 to 2".to_string();
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFault::Foreign(reason)));
    }

    #[test]
    fn the_checksum_knows_its_segment() {
        let payload_crc = crc32c::crc32c(b"payload");
        let former = SegmentHeader { version: 1, ..SEGMENT };
        for segment in [SEGMENT, former] {
            let entry = EntryHeader::new(Some(7), 3, 20, &segment, payload_crc);
            assert_eq!(EntryHeader::decode(&entry.encode(&segment), &segment), entry);
        }
        let entry = EntryHeader::new(Some(7), 3, 20, &SEGMENT, payload_crc);
        assert_eq!(
            EntryHeader::new(Some(7), 3, 20, &former, payload_crc).encode(&former)[8..16],
            [20, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(entry.durable_lsn(), 17);
        let next = SegmentHeader { number: 8, ..SEGMENT };
        assert_ne!(entry.checksum(&next, payload_crc), entry.crc);
        assert!(
            EntryHeader::decode(&entry.encode(&SEGMENT), &next).lsn > 1 << 32,
            "it looks like no entry elsewhere"
        );
        let salted = SegmentHeader { salt: 100, ..SEGMENT };
        assert_ne!(entry.checksum(&salted, payload_crc), entry.crc);
    }

    #[test]
    fn names_have_sixteen_digits() {
        assert_eq!(number_of(&segment_name(258), "log-"), Some(258));
        assert_eq!(number_of("log-12", "log-"), None);
        assert_eq!(number_of("spare-0000000000000001", "log-"), None);
    }
}
