//! The bytes of a far medium: its head, the heads of chunks, the heads of blocks. `docs/FORMATS.md` draws them.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The unit of space for a size class or for one large block. Chunk 0 holds the head of the medium.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// Version of this layout; in version 1 a chunk had a mebibyte.
pub(super) const VERSION: u32 = 2;
/// Bytes of the head of the medium.
pub(super) const HEAD_BYTES: usize = 64;
/// The two copies of the head lie in different pages, so that a torn write spoils one.
pub(super) const HEAD_OFFSETS: [usize; 2] = [0, 4096];
/// Bytes before the first block of a chunk.
pub(super) const CHUNK_HEAD_BYTES: usize = 64;
/// Bytes before the bytes of a block.
pub(super) const BLOCK_HEAD_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"ZIPTFAR\0";

/// The head of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// A random number in the seed of every checksum. Bytes of another medium, or of an earlier use of this one, never
    /// pass as its own.
    pub(super) id: u64,
    /// Bytes of the medium.
    pub(super) capacity_bytes: u64,
    /// Whether the medium was closed in order. If so, a block with a wrong checksum is damage and not a torn write.
    pub(super) sealed: bool,
}

/// The state of the bytes at a head's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundHead {
    Whole(Head),
    OtherVersion(u32),
    Foreign,
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.capacity_bytes.to_le_bytes());
        bytes[32] = u8::from(self.sealed);
        let checksum = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEAD_BYTES]) -> FoundHead {
        if bytes[..8] != MAGIC {
            return FoundHead::Foreign;
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if word(56) != xxh3_64(&bytes[..56]) {
            return FoundHead::Foreign;
        }
        let version = word(8) as u32;
        if version != VERSION || (word(8) >> 32) as usize != CHUNK_BYTES {
            return FoundHead::OtherVersion(version);
        }
        FoundHead::Whole(Head { id: word(16), capacity_bytes: word(24), sealed: bytes[32] != 0 })
    }

    /// The head according to its two copies. If a crash came between the writes of both, the copy that promises more
    /// counts.
    pub(super) fn of_copies(copies: [FoundHead; 2]) -> FoundHead {
        match copies {
            [FoundHead::Whole(one), FoundHead::Whole(other)] => FoundHead::Whole(Head {
                capacity_bytes: one.capacity_bytes.max(other.capacity_bytes),
                sealed: one.sealed && other.sealed,
                ..one
            }),
            [FoundHead::Whole(one), _] | [_, FoundHead::Whole(one)] => {
                FoundHead::Whole(Head { sealed: false, ..one })
            }
            [FoundHead::OtherVersion(version), _] | [_, FoundHead::OtherVersion(version)] => {
                FoundHead::OtherVersion(version)
            }
            [FoundHead::Foreign, FoundHead::Foreign] => FoundHead::Foreign,
        }
    }
}

/// The use of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkUse {
    Free,
    /// Blocks in slots of this many bytes each, heads included.
    Slots(u32),
    /// One block in this many chunks, of which this chunk is the first.
    Extent(u32),
}

impl ChunkUse {
    /// The first 16 bytes of chunk `number`.
    pub(super) fn encode(self, id: u64, number: usize) -> [u8; 16] {
        let (kind, size) = match self {
            ChunkUse::Free => return [0; 16],
            ChunkUse::Slots(bytes) => (1u32, bytes),
            ChunkUse::Extent(chunks) => (2, chunks),
        };
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&size.to_le_bytes());
        let checksum = xxh3_64_with_seed(&bytes[..8], seed(id, number * CHUNK_BYTES));
        bytes[8..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The use that the head of chunk `number` states; `None` if its checksum does not match.
    pub(super) fn decode(bytes: &[u8; 16], id: u64, number: usize) -> Option<ChunkUse> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let found = match (word(0), word(4)) {
            (0, 0) => ChunkUse::Free,
            (1, bytes) => ChunkUse::Slots(bytes),
            (2, chunks) => ChunkUse::Extent(chunks),
            _ => return None,
        };
        (found.encode(id, number) == *bytes).then_some(found)
    }
}

/// The head of a block: its length plus one, so that zero says *empty*, and the checksum.
pub(super) fn block_head(id: u64, offset: usize, bytes: &[u8]) -> [u8; BLOCK_HEAD_BYTES] {
    let mut head = [0; BLOCK_HEAD_BYTES];
    head[..8].copy_from_slice(&(bytes.len() as u64 + 1).to_le_bytes());
    head[8..].copy_from_slice(&block_checksum(id, offset, bytes).to_le_bytes());
    head
}

/// Checksum of the block whose bytes begin at `offset`. The length is part of the seed.
pub(super) fn block_checksum(id: u64, offset: usize, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, seed(id, offset) ^ (bytes.len() as u64).rotate_left(40))
}

/// The seed of every checksum: this medium, this place.
fn seed(id: u64, offset: usize) -> u64 {
    id.wrapping_add((offset as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back_and_no_flipped_bit_passes() {
        let head = Head { id: 0x1234_5678_9abc_def0, capacity_bytes: 1 << 40, sealed: true };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), FoundHead::Whole(head));
        let used = ChunkUse::Slots(4096).encode(head.id, 7);
        assert_eq!(ChunkUse::decode(&used, head.id, 7), Some(ChunkUse::Slots(4096)));
        assert_eq!(ChunkUse::decode(&used, head.id, 8), None);
        assert_eq!(ChunkUse::decode(&[0; 16], head.id, 7), Some(ChunkUse::Free));
        for bit in 0..HEAD_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&flipped), FoundHead::Foreign, "bit {bit}");
        }
        for bit in 0..128 {
            let mut flipped = used;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ChunkUse::decode(&flipped, head.id, 7), None, "bit {bit}");
        }
    }

    #[test]
    fn two_copies_make_one_head() {
        let small = Head { id: 1, capacity_bytes: 4 << 20, sealed: true };
        let large = Head { capacity_bytes: 8 << 20, ..small };
        let open = |head: Head| FoundHead::Whole(Head { sealed: false, ..head });
        assert_eq!(
            Head::of_copies([FoundHead::Whole(small), FoundHead::Whole(large)]),
            FoundHead::Whole(large)
        );
        assert_eq!(Head::of_copies([open(small), FoundHead::Whole(small)]), open(small));
        assert_eq!(Head::of_copies([FoundHead::Foreign, FoundHead::Whole(small)]), open(small));
        assert_eq!(
            Head::of_copies([FoundHead::OtherVersion(9), FoundHead::Foreign]),
            FoundHead::OtherVersion(9)
        );
        assert_eq!(Head::of_copies([FoundHead::Foreign; 2]), FoundHead::Foreign);
    }
}
