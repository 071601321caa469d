//! Cuts a block of RocksDB into rows, so that the token encoder codes several rows at once and finds common beginnings.
//!
//! A data block is entries and then restart points, four bytes each, and their number. An entry is three varints (bytes
//! shared with the key before, other bytes of the key, bytes of the value), the rest of the key, and the value. Rows
//! are cut before and after each value. Any other block is cut into equal pieces. Rows are only a hint to the encoder:
//! any cut decodes to the same bytes.

/// Bytes of a row of an unknown block.
const PIECE_BYTES: usize = 512;

/// Cuts `block` into rows, which together are the block.
pub fn cut<'a>(block: &'a [u8], rows: &mut Vec<&'a [u8]>) {
    rows.clear();
    let rest = cut_entries(block, rows).unwrap_or(block);
    rows.extend(rest.chunks(PIECE_BYTES));
}

/// Cuts the entries, and returns the rest. `None` (and no row) if this is no block of entries.
fn cut_entries<'a>(block: &'a [u8], rows: &mut Vec<&'a [u8]>) -> Option<&'a [u8]> {
    let footer_at = block.len().checked_sub(4)?;
    // The two highest bits say how the block is indexed.
    let restarts = u32::from_le_bytes(block[footer_at..].try_into().ok()?) & 0x3fff_ffff;
    let entries_end = footer_at.checked_sub(restarts as usize * 4)?;
    let mut at = 0;
    while at < entries_end {
        let parsed = parse_entry(&block[..entries_end], at);
        let Some((value_at, end)) = parsed else {
            rows.clear();
            return None;
        };
        rows.push(&block[at..value_at]);
        if end > value_at {
            rows.push(&block[value_at..end]);
        }
        at = end;
    }
    Some(&block[entries_end..])
}

/// The start and the end of the value of the entry at `at`.
fn parse_entry(entries: &[u8], at: usize) -> Option<(usize, usize)> {
    let (_shared, at) = varint(entries, at)?;
    let (key_bytes, at) = varint(entries, at)?;
    let (value_bytes, at) = varint(entries, at)?;
    let value_at = at.checked_add(key_bytes as usize)?;
    let end = value_at.checked_add(value_bytes as usize)?;
    (end <= entries.len()).then_some((value_at, end))
}

/// A little-endian number of seven bits a byte, and where it ends.
pub(crate) fn varint(bytes: &[u8], mut at: usize) -> Option<(u32, usize)> {
    let mut number = 0u64;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(at)?;
        at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((u32::try_from(number).ok()?, at));
        }
    }
    None
}
