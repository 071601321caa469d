//! A packed body with a few records replaced, added or removed: blocks with changes are packed anew, all others are
//! copied as they lie.

use super::{PackedScratch, Packer, Pieces, emptied};
use crate::blocks::{BLOCK_RECORDS_MAX, Effort, lay_out, spans};
use crate::body::{Blocks, Body, Builder, Edit};
use crate::core::Core;
use crate::record::Kind;

impl Core {
    /// `body` with `edits`, whose values are raw and go into blocks here; `None` when that needs a plan.
    pub(super) fn revise_packed(
        &self,
        body: &Body,
        packer: Packer<'_>,
        edits: &mut [Edit<'_>],
        pieces: &mut Pieces,
        scratch: &mut PackedScratch,
        builder: &mut Builder,
    ) -> Option<Body> {
        if !body.is_packed() {
            return None;
        }
        // The edits' values, empty where there is none to be packed.
        let PackedScratch {
            blocks, raw, contents, spans: old, fresh: kept_fresh, values: kept_values, ..
        } = scratch;
        let mut fresh = emptied(std::mem::take(kept_fresh));
        fresh.extend(edits.iter_mut().map(|edit| match &mut edit.entry {
            Some(entry) if entry.kind == Kind::Raw => {
                entry.kind = Kind::Packed;
                std::mem::take(&mut entry.payload)
            }
            _ => &[],
        }));
        blocks.clear();
        let mut next = 0;
        // The first block since the last one with changes.
        let mut unchanged = 0;
        for index in 0..body.blocks() {
            let block = body.block(index);
            let end = block.first + block.count;
            let before = next;
            // What is inserted between two blocks goes to the first of them.
            let belongs = |edit: &Edit<'_>| edit.place < end || (edit.place == end && !edit.replaces);
            while next < edits.len() && belongs(&edits[next]) {
                next += 1;
            }
            if before == next {
                continue;
            }
            blocks.copy_run(body, unchanged, index);
            unchanged = index + 1;
            raw.clear();
            old.clear();
            pieces.blocks_unpacked += 1;
            if block.frame.is_empty() {
                old.resize(block.count, (0, 0));
            } else if packer.coding.unpack(block.frame, raw).is_err() || !spans(raw, block.count, 0, old) {
                return None;
            }
            let mut values = emptied(std::mem::take(kept_values));
            let mut from = block.first;
            for (edit, value) in edits[before..next].iter().zip(&fresh[before..next]) {
                let kept = &old[from - block.first..edit.place - block.first];
                values.extend(kept.iter().map(|(start, end)| &raw[*start..*end]));
                if edit.replaces {
                    let (start, end) = old[edit.place - block.first];
                    pieces.logical_bytes -= (end - start) as i64;
                }
                if edit.entry.is_some() {
                    values.push(value);
                }
                from = edit.place + usize::from(edit.replaces);
            }
            values.extend(old[from - block.first..].iter().map(|(start, end)| &raw[*start..*end]));
            pieces.loose += packer.loose(values.len());
            pack_evenly(&values, packer, blocks, contents, pieces);
            *kept_values = emptied(values);
        }
        blocks.copy_run(body, unchanged, body.blocks());
        pack_deferred(packer, blocks, pieces);
        *kept_fresh = emptied(fresh);
        body.revised(edits, Some(blocks), self.limits, &mut builder.bytes)
    }
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

/// Packs the blocks that were left for one batch.
pub(super) fn pack_deferred(packer: Packer<'_>, blocks: &mut Blocks, pieces: &mut Pieces) {
    let bytes = blocks.fill_in(|contents| packer.coding.pack_batch(packer.effort, contents));
    pieces.coded_bytes += bytes as u64;
}

/// Packs one block, or leaves it for [`pack_deferred`].
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
            return blocks.defer(contents, values.len());
        }
        let before = blocks.frames.len();
        packer.coding.pack(packer.effort, contents, &mut blocks.frames);
        pieces.coded_bytes += (blocks.frames.len() - before) as u64;
    }
    blocks.push(values.len());
}
