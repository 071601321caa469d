//! The bytes of a segment file: its header and its blocks. `docs/FORMATS.md` draws them.

/// Bytes in front of the first block.
pub(super) const HEADER_BYTES: u64 = 4096;

/// Bytes in front of a body.
pub(super) const BLOCK_HEADER_BYTES: usize = 8;

/// Blocks begin at multiples of this, so that a block's header never lies across padding.
const BLOCK_ALIGNMENT_BYTES: u64 = 8;

/// Padding goes up to a multiple of this.
pub(super) const PAGE_BYTES: u64 = 4096;

const SIGNATURE: [u8; 8] = *b"ziptrseg";
const VERSION: u32 = 1;
const HEADER_CRC_AT: usize = HEADER_BYTES as usize - 4;

/// Bytes that a body takes: header, body, and padding up to the next block.
pub(super) fn block_bytes(body_bytes: usize) -> u64 {
    (BLOCK_HEADER_BYTES + body_bytes) as u64 + block_padding(body_bytes)
}

/// Zeros behind a body.
pub(super) fn block_padding(body_bytes: usize) -> u64 {
    let end = (BLOCK_HEADER_BYTES + body_bytes) as u64;
    end.next_multiple_of(BLOCK_ALIGNMENT_BYTES) - end
}

/// Bytes of the segment that a body needs, whatever the usual size.
pub(super) fn segment_bytes_for(segment_bytes: u64, body_bytes: usize) -> u64 {
    segment_bytes.max((HEADER_BYTES + block_bytes(body_bytes)).next_multiple_of(PAGE_BYTES))
}

/// The header of a segment, a page.
pub(super) fn encode_header(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES as usize];
    bytes[0..8].copy_from_slice(&SIGNATURE);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
    bytes[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Checks that `bytes` are the header of the segment with this number.
pub(super) fn check_header(bytes: &[u8], number: u64) -> Result<(), HeaderFault> {
    if bytes == encode_header(number) {
        return Ok(());
    }
    let is_whole = bytes.len() == HEADER_BYTES as usize
        && bytes[HEADER_CRC_AT..] == crc32c::crc32c(&bytes[..HEADER_CRC_AT]).to_le_bytes();
    if is_whole && bytes[..8] == SIGNATURE && bytes[8..12] != VERSION.to_le_bytes() {
        let found = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        return Err(HeaderFault::Foreign(format!(
            "it has version {found}, this program reads version {VERSION}"
        )));
    }
    if is_whole && bytes[..8] != SIGNATURE {
        return Err(HeaderFault::Foreign("its signature is another one".to_string()));
    }
    Err(HeaderFault::Damaged)
}

/// The reason why the first bytes of a file are no header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// Another kind of file, or another version: the finding.
    Foreign(String),
    /// Some byte differs from what was written.
    Damaged,
}

/// The header of a block: the length of the body, and the CRC32C of the body, its length and its place.
pub(super) fn encode_block_header(number: u64, offset: u64, body: &[u8]) -> [u8; BLOCK_HEADER_BYTES] {
    let length = (body.len() as u32).to_le_bytes();
    let mut covered = [0; 20];
    covered[0..4].copy_from_slice(&length);
    covered[4..12].copy_from_slice(&number.to_le_bytes());
    covered[12..20].copy_from_slice(&offset.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(body), &covered);
    let mut bytes = [0; BLOCK_HEADER_BYTES];
    bytes[..4].copy_from_slice(&length);
    bytes[4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The length that a block's header states.
pub(super) fn block_length(header: &[u8; BLOCK_HEADER_BYTES]) -> u32 {
    u32::from_le_bytes([header[0], header[1], header[2], header[3]])
}

/// The name of the segment file with this number.
pub(super) fn segment_name(number: u64) -> String {
    format!("segment-{number:016x}")
}

/// The number in a file's name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("segment-")?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flipped_bit_of_a_header_passes() {
        let mut bytes = encode_header(7);
        assert_eq!(check_header(&bytes, 7), Ok(()));
        assert_eq!(check_header(&bytes, 8), Err(HeaderFault::Damaged));
        for at in 0..bytes.len() {
            bytes[at] ^= 1 << (at % 8);
            assert_eq!(check_header(&bytes, 7), Err(HeaderFault::Damaged), "byte {at}");
            bytes[at] ^= 1 << (at % 8);
        }
        assert_eq!(check_header(&[], 7), Err(HeaderFault::Damaged));
    }

    #[test]
    fn blocks_are_aligned() {
        assert_eq!(block_bytes(1), 16);
        assert_eq!(block_bytes(8), 16);
        assert_eq!(segment_bytes_for(65536, 100_000), 106_496);
    }
}
