//! Which blocks of a packed body a pack unpacks, and their values. All other blocks are copied as they lie.

use std::ops::Range;

use super::gather::Spans;
use crate::blocks::{BlockCoding, ReadAhead, spans};
use crate::body::{Block, Body, Edit};
use crate::leaf::LeafState;

/// A block of a body that another body takes the place of.
pub(super) struct OldBlock<'b> {
    pub(super) block: Block<'b>,
    /// Which of the edits are the block's.
    pub(super) edits: Range<usize>,
    /// Whether the block is unpacked.
    pub(super) is_opened: bool,
}

/// The blocks of a body. Those whose records change are to be unpacked.
pub(super) fn old_blocks<'b>(body: &'b Body, edits: &[Edit<'_>]) -> Vec<OldBlock<'b>> {
    let mut next = 0;
    let old_block = |block: Block<'b>| {
        let (before, end) = (next, block.first + block.count);
        // A record that is inserted between two blocks goes to the first of them.
        let belongs = |edit: &&Edit<'_>| edit.place < end || (edit.place == end && !edit.replaces);
        next += edits[before..].iter().take_while(belongs).count();
        let is_opened = !edits[before..next].iter().all(Edit::touches);
        OldBlock { block, edits: before..next, is_opened }
    };
    body.each_block().map(old_block).collect()
}

/// The values of blocks that were unpacked.
#[derive(Default)]
pub(super) struct Opened {
    /// By record of the body: where its value lies in the scratch. `None` in a block that is damaged or was not opened.
    pub(super) values: Spans,
    /// Blocks that an engine unpacked, or found to be damaged.
    pub(super) unpacked: u64,
    /// Blocks that are damaged.
    pub(super) damaged: u64,
}

/// Unpacks those `blocks` of a leaf that are to be, behind what is in `raw`.
pub(super) fn open_blocks(
    state: &LeafState,
    blocks: &[OldBlock<'_>],
    raw: &mut Vec<u8>,
    found: &mut Vec<(usize, usize)>,
) -> Opened {
    let mut opened = Opened { values: Spans::with_capacity(state.body.len()), ..Opened::default() };
    let Some(coding) = state.form.blocks() else { return opened };
    let frames = blocks.iter().filter(|old| old.is_opened).map(|old| old.block.frame);
    let ahead = ReadAhead::of(coding, frames);
    for OldBlock { block, is_opened, .. } in blocks {
        if !is_opened || block.frame.is_empty() {
            opened.values.extend(std::iter::repeat_n(is_opened.then_some((0, 0)), block.count));
            continue;
        }
        opened.unpacked += 1;
        found.clear();
        if unpack(&ahead, coding, block.frame, block.count, raw, found) {
            opened.values.extend(found.iter().copied().map(Some));
        } else {
            opened.damaged += 1;
            opened.values.extend(std::iter::repeat_n(None, block.count));
        }
    }
    opened
}

/// Unpacks a block of `count` values behind what is in `raw`, and appends their ranges to `found`. `false` if the block
/// is damaged.
pub(super) fn unpack(
    ahead: &ReadAhead,
    coding: &BlockCoding,
    frame: &[u8],
    count: usize,
    raw: &mut Vec<u8>,
    found: &mut Vec<(usize, usize)>,
) -> bool {
    let base = raw.len();
    ahead.append(coding, frame, raw).is_ok() && spans(&raw[base..], count, base, found)
}
