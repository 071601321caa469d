//! Planning a pack of leaves whose values are packed in blocks: merging, packing and cutting between blocks.
//!
//! A block all of whose records stay, with none between them, is copied as it lies, if its generation stays, too. Only
//! the others are unpacked.

use std::sync::Arc;

use super::fill_blocks::fill_first_body;
use super::plan::separator;
use super::revise_blocks::{finish_blocks, pack_block};
use super::{Goal, PackedScratch, Packer, Pieces, Scratch, raw_len};
use crate::blocks::{BLOCK_RECORDS_MAX, BlockCoding, Effort, ReadAhead, spans};
use crate::body::{BLOCKS_MAX, Blocks, Body, BodyLimits, Builder, Entry};
use crate::coding::Coding;
use crate::core::Core;
use crate::leaf::LeafState;
use crate::merge::{Merged, Newest, merge};
use crate::record::{Kind, array};

/// The origin of an entry.
#[derive(Clone, Copy)]
enum Origin {
    Landing,
    /// A record of the body of leaf `leaf`.
    Body {
        leaf: usize,
        record: usize,
    },
}

/// The blocks of one leaf in a pack.
struct Old {
    /// By block: it must be unpacked.
    opened: Vec<bool>,
    /// By record of an opened block: where its value lies; `None` if that is lost.
    values: Vec<Option<(usize, usize)>>,
}

impl Core {
    pub(super) fn plan_packed<'a>(
        &self,
        leaves: &'a [(&'a LeafState, Newest<'a>)],
        coding: &Arc<BlockCoding>,
        goal: Goal,
        scratch: &mut Scratch,
        meanwhile: &mut dyn FnMut(),
    ) -> Pieces {
        let target = Coding::Blocks(coding.clone());
        let mut pieces = Pieces { coding: Some(target.clone()), ..Pieces::default() };
        let mut entries: Vec<(Entry<'a>, Origin)> = Vec::with_capacity(self.limits.records_max + 16);
        let mut dropped: Vec<(usize, usize)> = Vec::new();
        let mut old: Vec<Old> = Vec::with_capacity(leaves.len());
        let (mut fresh, mut fresh_at_end) = (0, 0);
        let evicts = leaves.iter().all(|(_, newest)| newest.is_weighed);
        for (leaf, (state, newest)) in leaves.iter().enumerate() {
            let body = &state.body;
            let stays = goal == Goal::Keep && is_coded_with(state, coding);
            let small = |index| body.block(index).raw_bytes() < coding.block_bytes(Effort::Fast) / 2;
            let mut opened: Vec<bool> = (0..body.blocks()).map(|index| !stays || small(index)).collect();
            let mut open = |record: Option<usize>| {
                if let (true, Some(record)) = (body.is_packed(), record) {
                    opened[body.block_of(record)] = true;
                }
            };
            pieces.evicted += newest.evicted;
            let mut last = None;
            let mut inserted = false;
            merge(body, &newest.pending, newest.expired_by_ms, |merged| match merged {
                Merged::Kept(record, entry) => {
                    if evicts {
                        pieces.marks.push(newest.mark(record));
                    }
                    if std::mem::take(&mut inserted) && last.is_none() {
                        open(Some(record));
                    }
                    last = Some(record);
                    entries.push((entry, Origin::Body { leaf, record }));
                    fresh_at_end = 0;
                }
                Merged::Fresh(entry, mark) => {
                    if evicts {
                        pieces.marks.push(mark);
                    }
                    open(last);
                    inserted = true;
                    pieces.records += 1;
                    pieces.logical_bytes +=
                        (entry.key.len() as u64 + raw_len(entry.kind, entry.payload, None)) as i64;
                    entries.push((entry, Origin::Landing));
                    fresh += 1;
                    fresh_at_end += 1;
                }
                Merged::Dropped(record) => {
                    open(Some(record));
                    dropped.push((leaf, record));
                }
                Merged::Expired(pending) => {
                    if pending.kind == Kind::Large {
                        pieces.released.push(array(pending.value));
                    }
                }
            });
            pieces.released.extend(newest.shadowed.iter().map(|reference| array(reference)));
            old.push(Old { opened, values: Vec::new() });
        }

        let packer = scratch.packer(goal, coding);
        let Scratch { builder, packed: packed_scratch, .. } = scratch;
        let PackedScratch { blocks, raw, contents, spans, .. } = packed_scratch;
        raw.clear();
        for ((state, _), old) in leaves.iter().zip(&mut old) {
            self.open_blocks(state, old, raw, spans, &mut pieces);
        }
        for (leaf, record) in dropped {
            self.count_dropped(leaves[leaf].0, record, &old[leaf], &mut pieces);
        }

        // References of large values that are coded anew, in the order of their records.
        let mut references: Vec<[u8; 8]> = Vec::new();
        for (entry, origin) in &entries {
            if let (Origin::Body { .. }, Kind::Large) = (origin, entry.kind) {
                let recoded = self.recode_reference(entry.payload, Some(&target), &mut pieces);
                references.push(recoded.unwrap_or_else(|| array(entry.payload)));
            }
        }

        // Dense blocks may stand beside copied ones that are not.
        if goal != Goal::Recode {
            pieces.loose = leaves.iter().map(|(state, _)| usize::from(state.loose)).sum::<usize>();
        }
        blocks.clear();
        let mut run: Vec<&[u8]> = Vec::with_capacity(self.limits.records_max);
        let mut packed: Vec<Entry<'_>> = Vec::with_capacity(entries.len());
        let mut references = references.iter();
        let mut copied = 0;
        for (mut entry, origin) in entries {
            let block = match origin {
                Origin::Body { leaf, record } if leaves[leaf].0.body.is_packed() => {
                    let body = &leaves[leaf].0.body;
                    Some(body.block_of(record))
                        .filter(|block| !old[leaf].opened[*block])
                        .map(|block| (body, block))
                }
                _ => None,
            };
            let mut value: &[u8] = &[];
            match (entry.kind, origin) {
                (Kind::Raw, _) => {
                    value = entry.payload;
                    entry.kind = Kind::Packed;
                    entry.payload = &[];
                }
                (Kind::Large, Origin::Body { .. }) => {
                    entry.payload = references.next().expect("every large value was looked at");
                }
                (Kind::Packed, Origin::Body { leaf, record }) if block.is_none() => {
                    match old[leaf].values[record] {
                        Some((start, end)) => value = &raw[start..end],
                        None => entry.kind = Kind::Lost,
                    }
                }
                _ => {}
            }
            packed.push(entry);
            match block {
                // The other records of a block that is copied follow its first.
                Some(_) if copied > 0 => copied -= 1,
                Some((body, block)) => {
                    pack_run(&mut run, packer, blocks, contents, &mut pieces);
                    blocks.copy(body.block(block));
                    copied = body.block(block).count - 1;
                }
                None => run.push(value),
            }
        }
        pack_run(&mut run, packer, blocks, contents, &mut pieces);
        finish_blocks(packer, blocks, &mut pieces, meanwhile);
        // Neighbours are taken together to fill the left one, and a load in key order leaves full bodies behind.
        let fill = leaves.len() > 1 || 2 * fresh_at_end > fresh;
        let quiet = leaves.iter().all(|(state, _)| !state.is_unsettled());
        if leaves.len() > 1 && quiet {
            let packer = Packer { coding, effort: Effort::Dense };
            fill_first_body(&packed, packer, self.limits, &mut pieces, packed_scratch);
        }
        pieces.bodies = cut(&packed, &packed_scratch.blocks, fill, self.limits, builder);
        pieces
    }

    /// Unpacks the blocks of a leaf that must be.
    fn open_blocks(
        &self,
        state: &LeafState,
        old: &mut Old,
        raw: &mut Vec<u8>,
        found: &mut Vec<(usize, usize)>,
        pieces: &mut Pieces,
    ) {
        let body = &state.body;
        let Some(coding) = state.coding.as_ref().and_then(Coding::blocks) else { return };
        let opened = (0..body.blocks()).filter(|index| old.opened[*index]);
        let ahead = ReadAhead::of(coding, opened.map(|index| body.block(index).frame));
        for index in 0..body.blocks() {
            let block = body.block(index);
            if !old.opened[index] || block.frame.is_empty() {
                let value = old.opened[index].then_some((0, 0));
                old.values.extend(std::iter::repeat_n(value, block.count));
                continue;
            }
            pieces.blocks_unpacked += 1;
            let base = raw.len();
            found.clear();
            let unpacked = ahead.append(coding, block.frame, raw).is_ok();
            if unpacked && spans(&raw[base..], block.count, base, found) {
                old.values.extend(found.iter().copied().map(Some));
            } else {
                self.stats.damaged.raise();
                old.values.extend(std::iter::repeat_n(None, block.count));
            }
        }
    }

    /// Counts a record that goes away.
    fn count_dropped(&self, state: &LeafState, index: usize, old: &Old, pieces: &mut Pieces) {
        let record = state.body.record(index);
        let value_bytes = match record.tag.kind() {
            Kind::Packed => old.values[index].map_or(0, |(start, end)| (end - start) as u64),
            kind => raw_len(kind, record.payload, None),
        };
        pieces.records -= 1;
        pieces.logical_bytes -= (state.body.prefix().len() + record.suffix.len()) as i64 + value_bytes as i64;
        if record.tag.kind() == Kind::Large {
            pieces.released.push(array(record.payload));
        }
    }
}

fn is_coded_with(state: &LeafState, coding: &Arc<BlockCoding>) -> bool {
    state.coding.as_ref().and_then(Coding::blocks).is_some_and(|own| Arc::ptr_eq(own, coding))
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

/// Cuts sorted entries between their blocks into bodies, at least one, each with the lowest key that its leaf is to
/// own. With `fill` the bodies are full ones and a rest. Otherwise they are of like size, if one body is not enough.
fn cut(
    entries: &[Entry<'_>],
    blocks: &Blocks,
    fill: bool,
    limits: BodyLimits,
    builder: &mut Builder,
) -> Vec<(Vec<u8>, Body)> {
    if entries.is_empty() {
        return vec![(Vec::new(), Body::empty())];
    }
    let all = blocks.len();
    if !fill
        && entries.len() <= limits.records_max
        && all <= BLOCKS_MAX
        && Builder::size_packed(entries, blocks, 0, all) <= limits.bytes_max
    {
        return vec![(Vec::new(), builder.build_packed(entries, blocks, 0, all))];
    }
    let mut bodies = Vec::new();
    let (mut start, mut from) = (0, 0);
    while from < all {
        let rest = &entries[start..];
        let (mut count, mut to) = fitting(rest, blocks, from, limits);
        if !fill {
            let alike = rest.len().div_ceil(rest.len().div_ceil(count));
            while to > from + 1 && count - blocks.count(to - 1) >= alike {
                to -= 1;
                count -= blocks.count(to);
            }
        }
        let low = if start == 0 { Vec::new() } else { separator(entries[start - 1].key, rest[0].key) };
        bodies.push((low, builder.build_packed(&rest[..count], blocks, from, to)));
        start += count;
        from = to;
    }
    bodies
}

/// The most leading blocks from `from` on, at least one, that fit a full body: their entries, and where they end.
pub(super) fn fitting(
    entries: &[Entry<'_>],
    blocks: &Blocks,
    from: usize,
    limits: BodyLimits,
) -> (usize, usize) {
    let mut best = (blocks.count(from), from + 1);
    let (mut low, mut high) = (from + 1, blocks.len().min(from + BLOCKS_MAX));
    while low <= high {
        let middle = (low + high) / 2;
        let count = (from..middle).map(|index| blocks.count(index)).sum::<usize>();
        let fits = count <= limits.records_full
            && Builder::size_packed(&entries[..count], blocks, from, middle) <= limits.bytes_full;
        if fits {
            best = (count, middle);
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    best
}

// The C libraries do not run under Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {

    use crate::Error;
    use crate::core::Core;
    use crate::leaf::LeafState;
    use crate::options::{CodecChoice, Options};
    use crate::record::PutMeta;

    fn value(n: u32) -> Vec<u8> {
        format!("{n}: a value that lies in a block with others; ").repeat(3).into_bytes()
    }

    #[test]
    fn a_damaged_block_is_an_error_until_its_keys_are_written_again() {
        let options = Options { codec: CodecChoice::Zstd, background_threads: 0, ..Options::default() };
        let core = Core::new(&options);
        let get = |n: u32| {
            let mut found = Vec::new();
            core.read(&n.to_be_bytes(), &mut found).map(|meta| meta.map(|_| found))
        };
        let put = |n: u32| core.put(&n.to_be_bytes(), &value(n), PutMeta::default());
        (0..30).for_each(|n| put(n).unwrap());
        core.settle();
        {
            let guard = core.pin();
            let (leaf, state) = core.locate(&[], &guard);
            let damaged = LeafState { body: state.body.with_flipped_bit(20, 3), ..state.clone() };
            assert!(leaf.publish(state, damaged, &guard));
        }
        let lost: Vec<u32> = (0..30).filter(|n| get(*n).is_err()).collect();
        assert!((1..30).contains(&lost.len()), "{lost:?}");
        let error = get(lost[0]).unwrap_err();
        assert!(matches!(&error, Error::Damaged { reason, .. } if reason.contains("checksum")), "{error}");

        put(lost[0]).unwrap();
        core.settle();
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
        core.settle();
        (0..30).for_each(|n| assert_eq!(get(n), Ok(Some(value(n)))));
        assert_eq!(core.count_keys(), 30);
    }
}
