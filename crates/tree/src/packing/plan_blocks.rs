//! Planning a pack of leaves whose values are packed in blocks: packing merged records, and cutting between blocks.
//!
//! A block all of whose records stay, with none between them, is copied as it lies, if its generation stays, too. Only
//! the others are unpacked.

use std::sync::Arc;

use super::cut::Uncut;
use super::fill_blocks::fill_first_body;
use super::gather::{Gathered, Origin, Spans};
use super::open_blocks::{OldBlock, Opened, old_blocks, open_blocks};
use super::revise_blocks::{finish_blocks, pack_block};
use super::{Goal, PackedScratch, Packer, Pieces, Planner, Scratch};
use crate::blocks::{BLOCK_RECORDS_MAX, BlockCoding, Effort};
use crate::body::{Block, Blocks, Entry};
use crate::coding::Coding;
use crate::form::Form;
use crate::leaf::LeafState;
use crate::merge::Merged;
use crate::record::Kind;

/// The blocks of a leaf, some of them unpacked.
struct OldLeaf<'a> {
    blocks: Vec<OldBlock<'a>>,
    values: Spans,
}

impl<'a> OldLeaf<'a> {
    /// The block of the body's record at `place`, if it is copied as it lies.
    fn copied(&self, place: Option<usize>) -> Option<Block<'a>> {
        let place = place?;
        let behind = self.blocks.partition_point(|old| old.block.first <= place);
        let old = self.blocks[..behind].last()?;
        (!old.is_opened).then_some(old.block)
    }

    /// Where the value of the body's record at `place` lies, if it was unpacked.
    fn span(&self, place: Option<usize>) -> Option<(usize, usize)> {
        *self.values.get(place?)?
    }
}

impl Planner<'_> {
    /// As [`Planner::plan_gathered`], for bodies whose values are packed with `coding`.
    pub(super) fn plan_packed(
        &self,
        gathered: Gathered<'_>,
        coding: &Arc<BlockCoding>,
        goal: Goal,
        scratch: &mut Scratch,
        meanwhile: &mut dyn FnMut(),
    ) -> Pieces {
        let leaves = gathered.leaves;
        let packer = scratch.packer(goal, coding);
        let Scratch { builder, packed: packed_scratch, .. } = scratch;
        let PackedScratch { blocks, raw, contents, spans, .. } = packed_scratch;
        raw.clear();
        let mut pieces = Pieces::default();
        let mut open = |merged| self.open_leaf(merged, coding, goal, (raw, spans), &mut pieces);
        let old: Vec<_> = leaves.iter().map(&mut open).collect();
        let (fill, loose) = (gathered.fills(), gathered.loose());
        let Gathered { mut entries, origins, .. } = gathered;
        let target = Coding::Blocks(coding.clone());
        let references = self.recode_larges(&entries, &origins, |_| true, Some(&target), &mut pieces);
        references.iter().for_each(|(index, reference)| entries[*index].payload = reference);
        // Dense blocks may stand beside copied ones that are not.
        if goal.keeps_form() {
            pieces.loose = loose;
        }

        blocks.clear();
        let mut run: Vec<&[u8]> = Vec::with_capacity(self.tree.limits.records_max);
        let mut index = 0;
        while let Some(Origin { leaf, place }) = origins.get(index).copied() {
            if let Some(block) = old[leaf].copied(place) {
                pack_run(&mut run, packer, blocks, contents, &mut pieces);
                blocks.copy(block);
                index += block.count;
            } else {
                run.push(take_value(&mut entries[index], old[leaf].span(place), raw));
                index += 1;
            }
        }
        pack_run(&mut run, packer, blocks, contents, &mut pieces);
        finish_blocks(packer, blocks, &mut pieces, meanwhile);
        let quiet = leaves.iter().all(|merged| !merged.state.is_unsettled());
        if leaves.len() > 1 && quiet {
            let packer = Packer { coding, effort: Effort::Dense };
            fill_first_body(&entries, packer, self.tree.limits, &mut pieces, packed_scratch);
        }
        let uncut =
            Uncut { entries: &entries, blocks: Some(&packed_scratch.blocks), limits: self.tree.limits };
        pieces.bodies = uncut.cut(fill, builder);
        pieces.form = Form::of(Some(target));
        pieces
    }

    /// Unpacks blocks of a leaf, and counts what changes: all blocks if the coding changes, otherwise small ones and
    /// those whose records change. The values come behind what is in `raw`.
    fn open_leaf<'a>(
        &self,
        merged: &Merged<'a>,
        coding: &Arc<BlockCoding>,
        goal: Goal,
        (raw, found): (&mut Vec<u8>, &mut Vec<(usize, usize)>),
        pieces: &mut Pieces,
    ) -> OldLeaf<'a> {
        let stays = goal.keeps_form() && is_coded_with(merged.state, coding);
        let mut blocks = old_blocks(&merged.state.body, &merged.edits);
        for old in &mut blocks {
            old.is_opened |= !stays || old.block.raw_bytes() < coding.block_bytes(Effort::Fast) / 2;
        }
        let Opened { values, unpacked, damaged } = open_blocks(merged.state, &blocks, raw, found);
        self.tree.stats.damaged.add(damaged);
        pieces.blocks_unpacked += unpacked;
        pieces.count(merged, &values);
        OldLeaf { blocks, values }
    }
}

fn is_coded_with(state: &LeafState, coding: &Arc<BlockCoding>) -> bool {
    state.form.blocks().is_some_and(|own| Arc::ptr_eq(own, coding))
}

/// Takes the value of an entry that goes into a block. `span` says where an unpacked one lies in `raw`.
fn take_value<'v, 'a: 'v>(entry: &mut Entry<'a>, span: Option<(usize, usize)>, raw: &'v [u8]) -> &'v [u8] {
    match (entry.kind, span) {
        (Kind::Raw, _) => {
            entry.kind = Kind::Packed;
            std::mem::take(&mut entry.payload)
        }
        (Kind::Packed, Some((start, end))) => &raw[start..end],
        (Kind::Packed, None) => {
            entry.kind = Kind::Lost;
            &[]
        }
        _ => &[],
    }
}

/// Packs the values of consecutive records and empties `run`.
fn pack_run(
    run: &mut Vec<&[u8]>,
    packer: Packer<'_>,
    blocks: &mut Blocks,
    contents: &mut Vec<u8>,
    pieces: &mut Pieces,
) {
    pieces.loose += packer.loose(run.len());
    let mut rest = run.as_slice();
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |value: &&&[u8]| {
            bytes += value.len();
            bytes <= packer.block_bytes()
        };
        let count = rest.iter().take(BLOCK_RECORDS_MAX).take_while(fits).count().max(1);
        let (values, behind) = rest.split_at(count);
        pack_block(values, packer, blocks, contents, pieces);
        rest = behind;
    }
    run.clear();
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(any(miri, shuttle))))]
mod tests {
    use crate::Error;
    use crate::alone::Alone;
    use crate::codec_options::CodecChoice;
    use crate::leaf::LeafState;
    use crate::record::PutMeta;

    fn value(n: u32) -> Vec<u8> {
        format!("{n}: a value that lies in a block with others; ").repeat(3).into_bytes()
    }

    #[test]
    fn a_damaged_block_is_an_error_until_its_keys_are_written_again() {
        let alone = Alone::new(CodecChoice::Zstd);
        let get = |n: u32| {
            let mut found = Vec::new();
            alone.read(&n.to_be_bytes(), &mut found).map(|meta| meta.map(|_| found))
        };
        let put = |n: u32| alone.put(&n.to_be_bytes(), &value(n), PutMeta::default());
        (0..30).for_each(|n| put(n).unwrap());
        alone.settle();
        {
            let guard = alone.tree.pin();
            let (leaf, state) = alone.tree.locate(&[], &guard);
            let damaged = LeafState { body: state.body.with_flipped_bit(20, 3), ..state.clone() };
            assert!(leaf.publish(state, damaged, &guard));
        }
        let lost: Vec<u32> = (0..30).filter(|n| get(*n).is_err()).collect();
        assert!((1..30).contains(&lost.len()), "{lost:?}");
        let error = get(lost[0]).unwrap_err();
        assert!(matches!(&error, Error::Damaged { reason, .. } if reason.contains("checksum")), "{error}");

        put(lost[0]).unwrap();
        alone.settle();
        assert_eq!(get(lost[0]), Ok(Some(value(lost[0]))));
        for n in 0..30 {
            match get(n) {
                Ok(found) => assert_eq!(found, Some(value(n))),
                Err(error) => {
                    assert!(lost[1..].contains(&n), "{n}");
                    assert!(error.to_string().contains("write it again"), "{error}");
                }
            }
        }
        lost.iter().for_each(|n| put(*n).unwrap());
        alone.settle();
        (0..30).for_each(|n| assert_eq!(get(n), Ok(Some(value(n)))));
        assert_eq!(alone.tree.ranges().count_keys(), 30);
    }
}
