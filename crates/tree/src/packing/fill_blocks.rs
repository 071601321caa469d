//! Filling a packed body to the byte: the block that does not fit is cut in two.
//!
//! A body is cut between blocks, and a block of 4 KiB is a quarter of a body. Bodies that end with a whole block are
//! spread over many of the allocator's classes. Each class has rounding of its own, and gaps once bodies were moved.

use std::ops::Range;

use super::cut::Uncut;
use super::open_blocks::unpack;
use super::revise_blocks::{finish_blocks, pack_evenly};
use super::{PackedScratch, Packer, Pieces};
use crate::blocks::ReadAhead;
use crate::body::{Blocks, BodyLimits, Builder, Entry};

/// Cuts the first packed block that does not fit a full body beside the blocks before it. As many of its records as fit
/// stay in the body. The rest joins the block behind it.
pub(super) fn fill_first_body(
    entries: &[Entry<'_>],
    packer: Packer<'_>,
    limits: BodyLimits,
    pieces: &mut Pieces,
    scratch: &mut PackedScratch,
) {
    let PackedScratch { blocks, filled, raw, contents, spans: found, .. } = scratch;
    if entries.is_empty() {
        return;
    }
    let uncut = Uncut { entries, blocks: Some(blocks), limits };
    let first = uncut.fitting(0, 0);
    let used = uncut.size(&first);
    let (count, to) = (first.records.end, first.units.end);
    if to == blocks.len() {
        return;
    }
    let room = limits.bytes_full.saturating_sub(used);
    let each = used / count + 1;
    let records = limits.records_full.saturating_sub(count).min(blocks.count(to) - 1);
    let mut taken = (room / each).min(records);
    if taken == 0 {
        return;
    }
    let end = unpack_range(blocks, to..blocks.len().min(to + 2), packer, raw, found);
    pieces.blocks_unpacked += (end - to) as u64;
    if end == to {
        return;
    }
    let values: Vec<&[u8]> = found.iter().map(|(start, end)| &raw[*start..*end]).collect();
    loop {
        filled.clear();
        filled.copy_blocks(blocks, 0, to);
        pack_evenly(&values[..taken], packer, filled, contents, pieces);
        finish_blocks(packer, filled, pieces, &mut || ());
        let bytes = Builder::size(&entries[..count + taken], Some(filled.all()));
        if bytes <= limits.bytes_full {
            break;
        }
        let over = (bytes - limits.bytes_full).div_ceil(each);
        taken = taken.saturating_sub(over);
        if taken == 0 {
            return;
        }
    }
    pack_evenly(&values[taken..], packer, filled, contents, pieces);
    finish_blocks(packer, filled, pieces, &mut || ());
    filled.copy_blocks(blocks, end, blocks.len());
    std::mem::swap(blocks, filled);
}

/// Unpacks the blocks of a range up to the first one that is empty or damaged: the end of those that were unpacked.
/// `found` has the ranges of their values in `raw`.
fn unpack_range(
    blocks: &Blocks,
    range: Range<usize>,
    packer: Packer<'_>,
    raw: &mut Vec<u8>,
    found: &mut Vec<(usize, usize)>,
) -> usize {
    raw.clear();
    found.clear();
    let ahead = ReadAhead::of(packer.coding, range.clone().map(|index| blocks.frame(index)));
    let mut is_unpacked = |index: &usize| {
        let frame = blocks.frame(*index);
        !frame.is_empty() && unpack(&ahead, packer.coding, frame, blocks.count(*index), raw, found)
    };
    range.clone().find(|index| !is_unpacked(index)).unwrap_or(range.end)
}
