//! Which bytes of a far medium are free: chunks, and slots in chunks, kept in DRAM and rebuilt when a medium is opened.
//!
//! Small blocks take slots of the next size class, four classes to a doubling. At most a fifth of a slot is idle up to
//! 56 KiB, a third above. Blocks above half a chunk take whole chunks. The lowest chunk with a free slot is filled
//! first, so that the higher chunks empty and serve other classes.

use std::collections::BTreeSet;
use std::ops::Range;

use super::layout::{BLOCK_HEAD_BYTES, CHUNK_BYTES, CHUNK_HEAD_BYTES, ChunkUse};

/// Sizes of slots, heads of blocks included, in ascending order.
pub(super) const SLOT_SIZES: [u32; CLASSES] = slot_sizes();
const SLOT_BYTES_MAX: usize = SLOT_SIZES[CLASSES - 1] as usize;
const CLASSES: usize = 45;
/// The numbers of equal parts of a chunk that give the largest slots.
const PARTS: [u32; 3] = [4, 3, 2];

/// Four to a doubling from 32 bytes to 56 KiB, in multiples of 16; then parts of a chunk.
const fn slot_sizes() -> [u32; CLASSES] {
    let mut sizes = [0; CLASSES];
    let (mut at, mut size) = (0, 32u32);
    while at < CLASSES - PARTS.len() {
        sizes[at] = size;
        at += 1;
        let step = (1 << (31 - size.leading_zeros())) / 4;
        size += if step < 16 { 16 } else { step };
    }
    let mut part = 0;
    while part < PARTS.len() {
        sizes[at + part] = (CHUNK_BYTES - CHUNK_HEAD_BYTES) as u32 / PARTS[part] / 16 * 16;
        part += 1;
    }
    sizes
}

/// The largest slot that a block may take, if no slot of its own size class is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// At most twice the size. For callers that can make room: an oversized slot serves no other block until its block
    /// is freed.
    Close,
    /// Any slot. For callers that have no other place.
    Any,
}

impl Fit {
    /// The classes whose slots a block of class `fitting` may take.
    fn classes(self, fitting: usize) -> Range<usize> {
        let slot_bytes = SLOT_SIZES.get(fitting).copied().unwrap_or(u32::MAX);
        match self {
            Fit::Close => fitting..SLOT_SIZES.partition_point(|&size| size <= slot_bytes.saturating_mul(2)),
            Fit::Any => fitting..CLASSES,
        }
    }
}

/// The place for a new block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// The offset of its head.
    pub(super) offset: usize,
    /// The chunk that has just got a use. The caller writes its head first.
    pub(super) opened: Option<(usize, ChunkUse)>,
}

/// Free and used space.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Space {
    chunks: Vec<Chunk>,
    free: BTreeSet<usize>,
    /// One for each class.
    partial: Vec<Partial>,
    used_bytes: u64,
}

/// The chunks of a class that have at least one free slot.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct Partial {
    chunks: BTreeSet<usize>,
    /// Free slots of all of them.
    free_slots: usize,
    /// How many have no block at all.
    empty: usize,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
enum Chunk {
    /// The head of the medium, or a later part of an extent.
    Taken,
    Free,
    Slots(Slots),
    Extent {
        chunks: usize,
    },
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Slots {
    class: usize,
    used: usize,
    /// One bit a slot, set when used.
    bits: Box<[u64]>,
}

impl Space {
    /// `chunks` chunks, all free except the chunk of the head.
    pub(super) fn new(chunks: usize) -> Space {
        let mut space = Space {
            chunks: Vec::new(),
            free: BTreeSet::new(),
            partial: (0..CLASSES).map(|_| Partial::default()).collect(),
            used_bytes: 0,
        };
        space.chunks.push(Chunk::Taken);
        space.chunks.resize_with(chunks, || Chunk::Free);
        space.free.extend(1..chunks);
        space
    }

    /// Bytes that blocks take, with heads and the idle part of slots.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Room for a block of `len` bytes, or `None` if no free stretch holds it.
    pub(super) fn allocate(&mut self, len: usize) -> Option<Room> {
        let needed = len.checked_add(BLOCK_HEAD_BYTES)?;
        if needed > SLOT_BYTES_MAX {
            return self.allocate_extent(needed);
        }
        let class = class_of(needed);
        let mut opened = None;
        let chunk = match self.partial[class].chunks.first() {
            Some(&chunk) => chunk,
            None => {
                let chunk = self.take_chunks(1)?;
                opened = Some((chunk, ChunkUse::Slots(SLOT_SIZES[class])));
                self.open_slots(chunk, class);
                chunk
            }
        };
        Some(Room { offset: self.take_slot(chunk, class), opened })
    }

    /// Room in a slot of a larger class, if no other is free.
    pub(super) fn allocate_larger(&mut self, len: usize, fit: Fit) -> Option<Room> {
        let fitting = class_of(len.checked_add(BLOCK_HEAD_BYTES)?);
        let (class, chunk) =
            fit.classes(fitting).find_map(|class| Some((class, *self.partial[class].chunks.first()?)))?;
        Some(Room { offset: self.take_slot(chunk, class), opened: None })
    }

    /// Whether `blocks` blocks of `len` bytes each, at most half a chunk, find room, in larger slots if necessary.
    pub(super) fn has_room(&self, len: usize, blocks: usize, fit: Fit) -> bool {
        let fitting = class_of(len.saturating_add(BLOCK_HEAD_BYTES));
        if fitting == CLASSES {
            return false;
        }
        let empty: usize = self.partial.iter().map(|partial| partial.empty).sum();
        let in_larger = |class: usize| {
            let partial = &self.partial[class];
            partial.free_slots - partial.empty * slots_in_chunk(class)
        };
        let larger: usize = fit.classes(fitting).map(in_larger).sum();
        (self.free.len() + empty) * slots_in_chunk(fitting) + larger >= blocks
    }

    /// Gives back the block whose head begins at `offset`. Returns the first chunk and the number of chunks that have
    /// become free, if any. The caller clears their heads before the next allocation.
    pub(super) fn free(&mut self, offset: usize) -> Option<(usize, usize)> {
        let number = offset / CHUNK_BYTES;
        match &mut self.chunks[number] {
            Chunk::Slots(slots) => {
                let class = slots.class;
                let slot = (offset % CHUNK_BYTES - CHUNK_HEAD_BYTES) / SLOT_SIZES[class] as usize;
                slots.bits[slot / 64] &= !(1 << (slot % 64));
                slots.used -= 1;
                let empty = slots.used == 0;
                self.used_bytes -= u64::from(SLOT_SIZES[class]);
                let partial = &mut self.partial[class];
                partial.chunks.insert(number);
                partial.free_slots += 1;
                partial.empty += usize::from(empty);
                // One empty chunk stays with its class, so that putting and freeing one block does not open a chunk
                // each time.
                (empty && partial.chunks.len() > 1).then(|| (self.close_slots(number, class), 1))
            }
            Chunk::Extent { chunks } => {
                let chunks = *chunks;
                for part in number..number + chunks {
                    self.chunks[part] = Chunk::Free;
                    self.free.insert(part);
                }
                self.used_bytes -= (chunks * CHUNK_BYTES) as u64;
                Some((number, chunks))
            }
            Chunk::Taken | Chunk::Free => unreachable!("a block lies in a chunk that is used"),
        }
    }

    /// Takes over a chunk of slots from an opened medium, all free; `None` if there is no such class.
    pub(super) fn adopt_slots(&mut self, chunk: usize, slot_bytes: u32) -> Option<usize> {
        let class = SLOT_SIZES.binary_search(&slot_bytes).ok()?;
        self.free.remove(&chunk);
        self.open_slots(chunk, class);
        Some(slots_in_chunk(class))
    }

    /// Marks a slot of a chunk that was taken over as used.
    pub(super) fn adopt_block(&mut self, chunk: usize, slot: usize) {
        self.mark_used(chunk, slot);
    }

    /// Takes over an extent from an opened medium.
    pub(super) fn adopt_extent(&mut self, chunk: usize, chunks: usize) {
        for part in chunk..chunk + chunks {
            self.free.remove(&part);
            self.chunks[part] = Chunk::Taken;
        }
        self.chunks[chunk] = Chunk::Extent { chunks };
        self.used_bytes += (chunks * CHUNK_BYTES) as u64;
    }

    /// Frees every chunk without blocks that a class still holds, and returns them; their heads are to be cleared.
    pub(super) fn close_empty(&mut self) -> Vec<usize> {
        let mut closed = Vec::new();
        for class in 0..CLASSES {
            if self.partial[class].empty == 0 {
                continue;
            }
            let empty =
                |&chunk: &usize| matches!(&self.chunks[chunk], Chunk::Slots(slots) if slots.used == 0);
            let chunks: Vec<usize> = self.partial[class].chunks.iter().copied().filter(empty).collect();
            closed.extend(chunks.into_iter().map(|chunk| self.close_slots(chunk, class)));
        }
        closed
    }

    /// Takes the first free slot of a chunk that has one.
    fn take_slot(&mut self, chunk: usize, class: usize) -> usize {
        let Chunk::Slots(slots) = &mut self.chunks[chunk] else { unreachable!("partial chunks hold slots") };
        let slot = slots.first_free().expect("a partial chunk has a free slot");
        self.mark_used(chunk, slot);
        slot_offset(chunk, class, slot)
    }

    fn allocate_extent(&mut self, needed: usize) -> Option<Room> {
        let chunks = needed.checked_add(CHUNK_HEAD_BYTES)?.div_ceil(CHUNK_BYTES);
        let first = self.take_chunks(chunks)?;
        self.adopt_extent(first, chunks);
        let opened = Some((first, ChunkUse::Extent(chunks as u32)));
        Some(Room { offset: first * CHUNK_BYTES + CHUNK_HEAD_BYTES, opened })
    }

    /// The first of `chunks` neighbouring free chunks, now taken.
    fn take_chunks(&mut self, chunks: usize) -> Option<usize> {
        let (mut first, mut next) = (0, 0);
        for &chunk in &self.free {
            if chunk != next {
                first = chunk;
            }
            next = chunk + 1;
            if next - first == chunks {
                break;
            }
        }
        if next - first < chunks {
            return None;
        }
        for chunk in first..next {
            self.free.remove(&chunk);
        }
        Some(first)
    }

    fn open_slots(&mut self, chunk: usize, class: usize) {
        let bits = vec![0; slots_in_chunk(class).div_ceil(64)].into_boxed_slice();
        self.chunks[chunk] = Chunk::Slots(Slots { class, used: 0, bits });
        let partial = &mut self.partial[class];
        partial.chunks.insert(chunk);
        partial.free_slots += slots_in_chunk(class);
        partial.empty += 1;
    }

    /// Takes a chunk without blocks from its class.
    fn close_slots(&mut self, chunk: usize, class: usize) -> usize {
        let partial = &mut self.partial[class];
        partial.chunks.remove(&chunk);
        partial.free_slots -= slots_in_chunk(class);
        partial.empty -= 1;
        self.chunks[chunk] = Chunk::Free;
        self.free.insert(chunk);
        chunk
    }

    fn mark_used(&mut self, chunk: usize, slot: usize) {
        let Chunk::Slots(slots) = &mut self.chunks[chunk] else {
            unreachable!("slots are marked in chunks of slots")
        };
        slots.bits[slot / 64] |= 1 << (slot % 64);
        slots.used += 1;
        let class = slots.class;
        let partial = &mut self.partial[class];
        partial.free_slots -= 1;
        partial.empty -= usize::from(slots.used == 1);
        if slots.used == slots_in_chunk(class) {
            partial.chunks.remove(&chunk);
        }
        self.used_bytes += u64::from(SLOT_SIZES[class]);
    }
}

impl Slots {
    fn first_free(&self) -> Option<usize> {
        let word = self.bits.iter().position(|&bits| bits != u64::MAX)?;
        Some(word * 64 + self.bits[word].trailing_ones() as usize)
    }
}

/// The first class whose slots have at least this many bytes, heads of blocks included.
fn class_of(needed_bytes: usize) -> usize {
    SLOT_SIZES.partition_point(|&size| (size as usize) < needed_bytes)
}

fn slots_in_chunk(class: usize) -> usize {
    (CHUNK_BYTES - CHUNK_HEAD_BYTES) / SLOT_SIZES[class] as usize
}

/// The offset of slot `slot` in a chunk of the class.
pub(super) fn slot_offset(chunk: usize, class: usize, slot: usize) -> usize {
    chunk * CHUNK_BYTES + CHUNK_HEAD_BYTES + slot * SLOT_SIZES[class] as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend_and_leave_at_most_a_third_idle() {
        assert!(SLOT_SIZES.windows(2).all(|pair| pair[0] < pair[1]), "{SLOT_SIZES:?}");
        assert!(SLOT_SIZES.iter().all(|size| size % 16 == 0));
        for pair in SLOT_SIZES.windows(2).filter(|pair| pair[0] >= 64) {
            assert!(f64::from(pair[0]) / f64::from(pair[1]) > 0.66, "{pair:?}");
        }
    }

    #[test]
    fn a_full_space_says_so_and_every_byte_comes_back() {
        for len in [0, 1, 100, 5000, 75_000, 150_000, 3 * CHUNK_BYTES - 80] {
            let mut space = Space::new(8);
            let mut rooms = Vec::new();
            while let Some(room) = space.allocate(len) {
                rooms.push(room.offset);
            }
            rooms.sort_unstable();
            assert!(
                rooms.windows(2).all(|pair| pair[1] - pair[0] >= len + BLOCK_HEAD_BYTES),
                "blocks of {len} overlap"
            );
            assert!(
                rooms.iter().all(
                    |&offset| offset >= CHUNK_BYTES && offset + BLOCK_HEAD_BYTES + len <= 8 * CHUNK_BYTES
                )
            );
            let held = rooms.len() * len.max(1);
            assert!(held * 2 > 6 * CHUNK_BYTES || len < 32, "{held} bytes held in blocks of {len}");
            for &offset in &rooms {
                space.free(offset);
            }
            space.close_empty();
            assert_eq!((space.used_bytes(), space.free.len()), (0, 7), "blocks of {len}");
        }
    }

    #[test]
    fn an_emptied_chunk_serves_another_class() {
        let mut space = Space::new(2);
        let room = space.allocate(100).unwrap();
        assert!(space.allocate(1000).is_none());
        space.free(room.offset);
        assert_eq!(space.close_empty(), [1]);
        assert!(space.allocate(1000).is_some());
        assert!(space.allocate(100).is_none());
        assert!(space.allocate_larger(2000, Fit::Any).is_none());
        assert!(space.allocate_larger(100, Fit::Any).is_some());
    }

    #[test]
    fn a_close_fit_takes_slots_of_twice_the_size_at_most() {
        for len in [200, 1000, 10_000, 100_000] {
            let mut space = Space::new(2);
            assert!(space.allocate(len).is_some());
            let fits = |space: &Space, less: usize| {
                let found = space.clone().allocate_larger(less, Fit::Close).is_some();
                assert_eq!(found, space.has_room(less, 1, Fit::Close), "{less} beside {len}");
                assert!(space.has_room(less, 1, Fit::Any));
                found
            };
            assert!(
                (0..=len).filter(|less| fits(&space, *less)).all(|less| (less + 16) * 25 > (len + 16) * 10)
            );
            assert!(fits(&space, len / 10 * 7) && !fits(&space, len / 4), "{len}");
        }
    }

    #[test]
    fn room_is_found_where_it_was_said_to_be() {
        let sizes = [(1000, 100), (100, 1000), (5000, 6000), (6000, 5000), (100, 150)];
        for ((len, other_len), fit) in
            sizes.into_iter().flat_map(|pair| [(pair, Fit::Close), (pair, Fit::Any)])
        {
            let mut space = Space::new(3);
            let others: Vec<usize> = std::iter::from_fn(|| Some(space.allocate(other_len)?.offset)).collect();
            assert!(!space.has_room(len, 1, fit), "{len}");
            for kept in [10, 1, 0] {
                let mut space = space.clone();
                others.iter().skip(kept).for_each(|&offset| {
                    space.free(offset);
                });
                let counted = (0..).take_while(|&blocks| space.has_room(len, blocks + 1, fit)).count();
                space.close_empty();
                let put = || space.allocate(len).or_else(|| space.allocate_larger(len, fit));
                assert_eq!(
                    std::iter::from_fn(put).count(),
                    counted,
                    "{len} among {other_len}, {kept}, {fit:?}"
                );
            }
        }
        assert!(!Space::new(3).has_room(CHUNK_BYTES, 1, Fit::Any));
    }
}
