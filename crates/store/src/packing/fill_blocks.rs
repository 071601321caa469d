//! Filling a packed body to the byte: the block that does not fit is cut in two.
//!
//! A body is cut between blocks, and one of 4 KiB is a quarter of it. Bodies that end where a block happens to end are spread
//! over many of the allocator's classes, each with rounding of its own and, once they were moved, with gaps.

use super::plan_blocks::fitting;
use super::revise_blocks::{pack_deferred, pack_evenly};
use super::{PackedScratch, Packer, Pieces};
use crate::blocks::spans;
use crate::body::{BodyLimits, Builder, Entry};

/// Cuts the first of the packed blocks that does not fit a full body with those before it, so that as many of its records
/// fit as can. What is left of it goes with the block behind it.
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
    let (count, to) = fitting(entries, blocks, 0, limits);
    if to == blocks.len() {
        return;
    }
    let used = Builder::size_packed(&entries[..count], blocks, 0, to);
    let room = limits.bytes_full.saturating_sub(used);
    let each = used / count + 1;
    let records = limits.records_full.saturating_sub(count).min(blocks.count(to) - 1);
    let mut taken = (room / each).min(records);
    if taken == 0 {
        return;
    }
    raw.clear();
    found.clear();
    let mut end = to;
    for index in to..blocks.len().min(to + 2) {
        let (base, before, frame) = (raw.len(), found.len(), blocks.frame(index));
        let is_read = !frame.is_empty()
            && packer.coding.unpack(frame, raw).is_ok()
            && spans(&raw[base..], blocks.count(index), base, found);
        if !is_read {
            found.truncate(before);
            break;
        }
        pieces.blocks_unpacked += 1;
        end = index + 1;
    }
    if end == to {
        return;
    }
    let values: Vec<&[u8]> = found.iter().map(|(start, end)| &raw[*start..*end]).collect();
    loop {
        filled.clear();
        filled.copy_blocks(blocks, 0, to);
        pack_evenly(&values[..taken], packer, filled, contents, pieces);
        pack_deferred(packer, filled, pieces);
        let bytes = Builder::size_packed(&entries[..count + taken], filled, 0, filled.len());
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
    pack_deferred(packer, filled, pieces);
    filled.copy_blocks(blocks, end, blocks.len());
    std::mem::swap(blocks, filled);
}
