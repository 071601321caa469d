//! Finding earlier bytes that repeat.

use crate::WINDOW_BYTES;
use crate::symbols::LENGTH_MAX;

/// Bytes that are compressed at a time.
pub(crate) const SEGMENT_BYTES: usize = 16 << 10;

/// Bytes behind the segment that may be compared.
const PADDING_BYTES: usize = 16;

pub(crate) const HASH_BITS: u32 = 12;

/// Positions by hash.
pub(crate) type Heads = [u16; 1 << HASH_BITS];

/// The index that a dictionary prepares: the last and the earlier positions of each hash in its history.
pub(crate) struct HistoryIndex {
    pub(crate) heads_of_3: Box<Heads>,
    pub(crate) heads_of_4: Box<Heads>,
    pub(crate) chain: Box<[u16; WINDOW_BYTES]>,
}

impl HistoryIndex {
    pub(crate) fn new(history: &[u8]) -> HistoryIndex {
        let mut index = HistoryIndex {
            heads_of_3: Box::new([0; 1 << HASH_BITS]),
            heads_of_4: Box::new([0; 1 << HASH_BITS]),
            chain: Box::new([0; WINDOW_BYTES]),
        };
        let start = WINDOW_BYTES - history.len();
        for (at, bytes) in history.windows(4).enumerate() {
            let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let at = start + at;
            index.heads_of_4[hash_of_4(word)] = at as u16;
            let head = &mut index.heads_of_3[hash_of_3(word)];
            index.chain[at] = *head;
            *head = at as u16;
        }
        index
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.heads_of_3) + size_of_val(&*self.heads_of_4) + size_of_val(&*self.chain)
    }
}

#[inline(always)]
pub(crate) fn hash_of_3(word: u32) -> usize {
    ((word << 8).wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize
}

#[inline(always)]
pub(crate) fn hash_of_4(word: u32) -> usize {
    (word.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize
}

/// History, a segment, and padding: what is compared.
pub(crate) struct Window {
    bytes: Box<[u8; WINDOW_BYTES + SEGMENT_BYTES + PADDING_BYTES]>,
    /// The start of the history.
    pub(crate) first: usize,
    /// The end of the segment.
    pub(crate) end: usize,
}

impl Window {
    pub(crate) fn new() -> Window {
        let bytes = vec![0; WINDOW_BYTES + SEGMENT_BYTES + PADDING_BYTES].into_boxed_slice();
        let bytes = bytes.try_into().expect("the window has the length of its type");
        Window { bytes, first: WINDOW_BYTES, end: WINDOW_BYTES }
    }

    pub(crate) fn set_history(&mut self, history: &[u8]) {
        self.first = WINDOW_BYTES - history.len();
        self.bytes[self.first..WINDOW_BYTES].copy_from_slice(history);
    }

    /// Makes the end of the segment the history.
    pub(crate) fn slide(&mut self) {
        let kept = self.end - WINDOW_BYTES;
        self.bytes.copy_within(kept..self.end, 0);
        self.first = self.first.saturating_sub(kept);
    }

    pub(crate) fn set_segment(&mut self, raw: &[u8]) {
        self.end = WINDOW_BYTES + raw.len();
        self.bytes[WINDOW_BYTES..self.end].copy_from_slice(raw);
    }

    pub(crate) fn history(&self) -> &[u8] {
        &self.bytes[self.first..WINDOW_BYTES]
    }

    pub(crate) fn segment(&self) -> &[u8] {
        &self.bytes[WINDOW_BYTES..self.end]
    }

    #[inline(always)]
    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.bytes[at]
    }

    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    #[inline(always)]
    fn double_word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    /// The number of equal bytes at `from` and `at` (the greater one), at most the longest match and up to the
    /// segment's end.
    #[inline(always)]
    pub(crate) fn common(&self, from: usize, at: usize) -> usize {
        let most = (self.end - at).min(LENGTH_MAX);
        let mut length = 0;
        while length < most {
            let difference = self.double_word(from + length) ^ self.double_word(at + length);
            if difference != 0 {
                return (length + (difference.trailing_zeros() / 8) as usize).min(most);
            }
            length += 8;
        }
        most
    }
}
