//! Cuts a block of RocksDB into rows, so that the token encoder codes several rows at once and finds common beginnings.
//!
//! A data block is entries and then restart points, four bytes each, and their number. An entry is three varints (bytes
//! shared with the key before, other bytes of the key, bytes of the value), the rest of the key, and the value. Rows
//! are cut before and after each value. Any other block is cut into equal pieces. Rows are only a hint to the encoder:
//! any cut decodes to the same bytes.

use std::collections::TryReserveError;

/// Bytes of a row of an unknown block.
const PIECE_BYTES: usize = 512;

/// Cuts `block` into rows, which together are the block.
///
/// # Errors
///
/// The memory for the rows was refused.
pub fn cut<'a>(block: &'a [u8], rows: &mut Vec<&'a [u8]>) -> Result<(), TryReserveError> {
    rows.clear();
    let rest = match entries_end(block) {
        Some(end) => cut_entries(block, end, rows)?.unwrap_or(block),
        None => block,
    };
    rows.try_reserve(rest.len().div_ceil(PIECE_BYTES))?;
    rows.extend(rest.chunks(PIECE_BYTES));
    Ok(())
}

/// The end of the entries of a block. `None` if this is no block of entries.
fn entries_end(block: &[u8]) -> Option<usize> {
    let footer_at = block.len().checked_sub(4)?;
    // The two highest bits say how the block is indexed.
    let restarts = u32::from_le_bytes(block[footer_at..].try_into().ok()?) & 0x3fff_ffff;
    footer_at.checked_sub(restarts as usize * 4)
}

/// Cuts the entries, and returns the rest. `None` (and no row) if this is no block of entries.
fn cut_entries<'a>(
    block: &'a [u8],
    entries_end: usize,
    rows: &mut Vec<&'a [u8]>,
) -> Result<Option<&'a [u8]>, TryReserveError> {
    let mut at = 0;
    while at < entries_end {
        let parsed = parse_entry(&block[..entries_end], at);
        let Some((value_at, end)) = parsed else {
            rows.clear();
            return Ok(None);
        };
        rows.try_reserve(2)?;
        rows.push(&block[at..value_at]);
        if end > value_at {
            rows.push(&block[value_at..end]);
        }
        at = end;
    }
    Ok(Some(&block[entries_end..]))
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
