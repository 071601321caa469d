//! Which blocks of a packed body a pack unpacks, and their values. All other blocks are copied as they lie.

use std::ops::Range;

use super::gather::Spans;
use crate::blocks::{ReadAhead, spans};
use crate::body::{Body, Edit};
use crate::coding::Coding;
use crate::leaf::LeafState;

/// The blocks whose records change, and which of the edits are theirs.
pub(super) fn changes(body: &Body, edits: &[Edit<'_>]) -> Vec<(usize, Range<usize>)> {
    let mut changes = Vec::with_capacity(edits.len());
    let mut next = 0;
    let mut end = 0;
    for index in 0..body.blocks() {
        end += body.block(index).count;
        let before = next;
        // A record that is inserted between two blocks goes to the first of them.
        let belongs = |edit: &Edit<'_>| edit.place < end || (edit.place == end && !edit.replaces);
        while next < edits.len() && belongs(&edits[next]) {
            next += 1;
        }
        if !edits[before..next].iter().all(Edit::touches) {
            changes.push((index, before..next));
        }
    }
    changes
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

/// Unpacks the blocks of a leaf that `is_opened` names, behind what is in `raw`.
pub(super) fn open_blocks(
    state: &LeafState,
    is_opened: &[bool],
    raw: &mut Vec<u8>,
    found: &mut Vec<(usize, usize)>,
) -> Opened {
    let body = &state.body;
    let mut opened = Opened::default();
    let Some(coding) = state.coding.as_ref().and_then(Coding::blocks) else { return opened };
    let frames = (0..body.blocks()).filter(|index| is_opened[*index]).map(|index| body.block(index).frame);
    let ahead = ReadAhead::of(coding, frames);
    for (block, is_opened) in (0..body.blocks()).map(|index| body.block(index)).zip(is_opened) {
        if !is_opened || block.frame.is_empty() {
            opened.values.extend(std::iter::repeat_n(is_opened.then_some((0, 0)), block.count));
            continue;
        }
        opened.unpacked += 1;
        let base = raw.len();
        found.clear();
        let is_unpacked = ahead.append(coding, block.frame, raw).is_ok();
        if is_unpacked && spans(&raw[base..], block.count, base, found) {
            opened.values.extend(found.iter().copied().map(Some));
        } else {
            opened.damaged += 1;
            opened.values.extend(std::iter::repeat_n(None, block.count));
        }
    }
    opened
}
