//! A packed body with a few records replaced, added or removed: blocks with changes are packed anew, all others are
//! copied as they lie.

use super::open_blocks::{OldBlock, old_blocks, open_blocks};
use super::{PackedScratch, Packer, Pieces, emptied};
use crate::blocks::{BLOCK_RECORDS_MAX, Effort, lay_out};
use crate::body::{Block, Blocks, Edit};
use crate::merge::Merged;
use crate::record::Kind;

/// The blocks of a leaf with `edits`, which are the changes of `merged`. Their values are raw and go into blocks here.
/// `None` when that needs a plan.
pub(super) fn revise_blocks<'s>(
    merged: &Merged<'_>,
    packer: Packer<'_>,
    edits: &mut [Edit<'_>],
    pieces: &mut Pieces,
    scratch: &'s mut PackedScratch,
    meanwhile: &mut dyn FnMut(),
) -> Option<&'s Blocks> {
    let body = &merged.state.body;
    if !body.is_packed() {
        return None;
    }
    let PackedScratch { blocks, raw, contents, spans, fresh: kept_fresh, values: kept_values, .. } = scratch;
    let old_blocks = old_blocks(body, edits);
    raw.clear();
    let opened = open_blocks(merged.state, &old_blocks, raw, spans);
    if opened.damaged > 0 {
        return None;
    }
    pieces.blocks_unpacked = opened.unpacked;
    pieces.count(merged, &opened.values);
    // The edits' values, empty where there is none to be packed.
    let mut fresh = emptied(std::mem::take(kept_fresh));
    fresh.extend(edits.iter_mut().map(|edit| match &mut edit.entry {
        Some(entry) if entry.kind == Kind::Raw => {
            entry.kind = Kind::Packed;
            std::mem::take(&mut entry.payload)
        }
        _ => &[],
    }));
    blocks.clear();
    for OldBlock { block, edits: own, is_opened } in old_blocks {
        if !is_opened {
            blocks.copy(block);
            continue;
        }
        let Block { first, count, .. } = block;
        let old = opened.values[first..first + count].iter().flatten().map(|(start, end)| &raw[*start..*end]);
        let mut values = emptied(std::mem::take(kept_values));
        revise_values(first, old, &edits[own.clone()], &fresh[own], &mut values);
        pieces.loose += packer.loose(values.len());
        pack_evenly(&values, packer, blocks, contents, pieces);
        *kept_values = emptied(values);
    }
    finish_blocks(packer, blocks, pieces, meanwhile);
    *kept_fresh = emptied(fresh);
    Some(blocks)
}

/// Appends the values of a block after `edits`, which bring the `fresh` ones. The `old` ones are the block's, whose
/// first record is `first`.
fn revise_values<'v>(
    first: usize,
    mut old: impl Iterator<Item = &'v [u8]>,
    edits: &[Edit<'_>],
    fresh: &[&'v [u8]],
    values: &mut Vec<&'v [u8]>,
) {
    let mut from = first;
    for (edit, value) in edits.iter().zip(fresh) {
        values.extend(old.by_ref().take(edit.place - from));
        if edit.replaces {
            old.next();
        }
        values.extend(edit.entry.map(|_| value));
        from = edit.end();
    }
    values.extend(old);
}

/// Packs `values` as one block, or as equal ones if they are too many: a block may grow by half before it is split.
pub(super) fn pack_evenly(
    values: &[&[u8]],
    packer: Packer<'_>,
    blocks: &mut Blocks,
    contents: &mut Vec<u8>,
    pieces: &mut Pieces,
) {
    let bytes: usize = values.iter().map(|value| value.len()).sum();
    let fits = values.len() <= BLOCK_RECORDS_MAX && bytes <= packer.block_bytes() * 3 / 2;
    if fits || values.len() <= 1 {
        if !values.is_empty() {
            pack_block(values, packer, blocks, contents, pieces);
        }
        return;
    }
    let mut half = 0;
    let mut left = 0;
    if bytes > packer.block_bytes() {
        while left < values.len() - 1 && (left == 0 || half + values[left].len() <= bytes / 2) {
            half += values[left].len();
            left += 1;
        }
    } else {
        left = values.len() / 2;
    }
    for part in [&values[..left], &values[left..]] {
        pack_evenly(part, packer, blocks, contents, pieces);
    }
}

/// Waits for the blocks that a device packs, with other work meanwhile.
pub(super) fn finish_blocks(
    packer: Packer<'_>,
    blocks: &mut Blocks,
    pieces: &mut Pieces,
    meanwhile: &mut dyn FnMut(),
) {
    if !blocks.has_begun() {
        return;
    }
    if packer.coding.goes_on(packer.effort) {
        meanwhile();
    }
    let bytes = blocks.fill_in(|begun| packer.coding.finish_pack(packer.effort, begun));
    pieces.coded_bytes += bytes as u64;
}

/// Packs one block, or begins to, if a device does it: see [`finish_blocks`].
pub(super) fn pack_block(
    values: &[&[u8]],
    packer: Packer<'_>,
    blocks: &mut Blocks,
    contents: &mut Vec<u8>,
    pieces: &mut Pieces,
) {
    if lay_out(values, contents) {
        pieces.coded_raw_bytes += values.iter().map(|value| value.len() as u64).sum::<u64>();
        match packer.effort {
            Effort::Fast => pieces.blocks_packed_fast += 1,
            Effort::Dense => pieces.blocks_packed_dense += 1,
        }
        if packer.coding.packs_in_batches(packer.effort) {
            return blocks.push_begun(packer.coding.begin_pack(packer.effort, contents), values.len());
        }
        let before = blocks.frames.len();
        packer.coding.pack(packer.effort, contents, &mut blocks.frames);
        pieces.coded_bytes += (blocks.frames.len() - before) as u64;
    }
    blocks.push(values.len());
}
