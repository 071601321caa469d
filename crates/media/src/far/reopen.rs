//! Finding the blocks of a medium again.
//!
//! The walk goes from chunk head to chunk head and from slot to slot, so that it looks for heads only where heads were
//! written, never among the bytes of blocks. It changes nothing on the medium.
//!
//! The store opens its far memory empty, and so without a walk. The walk is how a test reads back the blocks that were
//! acknowledged before a machine died.

use super::layout::{BLOCK_HEAD_BYTES, CHUNK_BYTES, CHUNK_HEAD_BYTES, ChunkUse, block_checksum};
use super::space::{SLOT_SIZES, Space, slot_offset};
use crate::mapping::Mapping;

/// The findings of a walk.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) space: Space,
    /// Offset of the bytes and length of each whole block, in the order of the medium.
    pub(super) blocks: Vec<(usize, usize)>,
    /// Offsets of heads, of chunks and blocks, that do not match their checksum.
    pub(super) unreadable: Vec<u64>,
    /// Extents without a whole block, as first chunk and number of chunks. They are free once their heads are cleared.
    pub(super) hollow: Vec<(usize, usize)>,
}

/// Walks over the whole medium, at the speed at which its used bytes are read.
pub(super) fn walk(mapping: &Mapping, id: u64) -> Found {
    let chunks = mapping.bytes() / CHUNK_BYTES;
    let mut found =
        Found { space: Space::new(chunks), blocks: Vec::new(), unreadable: Vec::new(), hollow: Vec::new() };
    let mut chunk = 1;
    while chunk < chunks {
        let start = chunk * CHUNK_BYTES;
        // SAFETY: the medium is being opened; nobody else has it.
        let head = unsafe { mapping.slice(start, 16) }.try_into().expect("sixteen bytes");
        match ChunkUse::decode(head, id, chunk) {
            Some(ChunkUse::Free) => {}
            Some(ChunkUse::Slots(slot_bytes)) => found.slots(mapping, id, chunk, slot_bytes),
            Some(ChunkUse::Extent(parts)) => {
                chunk += found.extent(mapping, id, chunk, parts as usize);
                continue;
            }
            None => found.unreadable.push(start as u64),
        }
        chunk += 1;
    }
    found
}

impl Found {
    fn slots(&mut self, mapping: &Mapping, id: u64, chunk: usize, slot_bytes: u32) {
        let Some(slots) = self.space.adopt_slots(chunk, slot_bytes) else {
            self.unreadable.push((chunk * CHUNK_BYTES) as u64);
            return;
        };
        let class = SLOT_SIZES.binary_search(&slot_bytes).expect("the space has just found it");
        for slot in 0..slots {
            if self.block(mapping, id, slot_offset(chunk, class, slot), slot_bytes as usize) {
                self.space.adopt_block(chunk, slot);
            }
        }
    }

    /// Returns how many chunks to go on by.
    fn extent(&mut self, mapping: &Mapping, id: u64, chunk: usize, parts: usize) -> usize {
        let room = parts.saturating_mul(CHUNK_BYTES).saturating_sub(CHUNK_HEAD_BYTES);
        let start = chunk * CHUNK_BYTES;
        if parts == 0 || parts > (mapping.bytes() - start) / CHUNK_BYTES {
            self.unreadable.push(start as u64);
            return 1;
        }
        if self.block(mapping, id, start + CHUNK_HEAD_BYTES, room) {
            self.space.adopt_extent(chunk, parts);
        } else {
            self.hollow.push((chunk, parts));
        }
        parts
    }

    /// Reads the head at `offset` of a slot of `room` bytes, and returns whether a whole block is there.
    fn block(&mut self, mapping: &Mapping, id: u64, offset: usize, room: usize) -> bool {
        // SAFETY: as in `walk`.
        let head = unsafe { mapping.slice(offset, BLOCK_HEAD_BYTES) };
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        if word(0) == 0 {
            return false;
        }
        let len = word(0) - 1;
        let start = offset + BLOCK_HEAD_BYTES;
        if len <= (room - BLOCK_HEAD_BYTES) as u64 {
            // SAFETY: as in `walk`.
            let bytes = unsafe { mapping.slice(start, len as usize) };
            if block_checksum(id, start, bytes) == word(8) {
                self.blocks.push((start, len as usize));
                return true;
            }
        }
        self.unreadable.push(offset as u64);
        false
    }
}
