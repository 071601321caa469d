//! Numbers as bytes.
//!
//! Not for a row of fields that may be anything: `fields` reads those.

/// The first `N` bytes.
#[inline]
pub fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// Appends `value` as a little-endian base-128 number of at most five bytes.
pub fn write_varint(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads what [`write_varint`] wrote, and what lies behind it.
#[inline]
pub(crate) fn read_varint(bytes: &[u8]) -> (u32, &[u8]) {
    let first = bytes[0];
    if first < 0x80 {
        return (u32::from(first), &bytes[1..]);
    }
    let mut value = 0;
    let mut at = 0;
    loop {
        let byte = bytes[at];
        value |= u32::from(byte & 0x7f) << (7 * at);
        at += 1;
        if byte < 0x80 {
            return (value, &bytes[at..]);
        }
    }
}

/// As [`read_varint`], of bytes that may be anything.
pub(crate) fn checked_varint(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some((u32::try_from(value).ok()?, &bytes[index + 1..]));
        }
    }
    None
}
