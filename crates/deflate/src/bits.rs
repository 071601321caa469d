//! Writing bits, lowest first, into bounded memory.

/// Bytes that a target has beyond its limit, because the writer stores whole words.
pub(crate) const SLACK_BYTES: usize = 8;

/// Writes bits to the beginning of a target.
pub(crate) struct BitWriter<'a> {
    target: &'a mut [u8],
    at: usize,
    word: u64,
    filled: u32,
}

impl<'a> BitWriter<'a> {
    /// A writer to a target that is [`SLACK_BYTES`] longer than the permitted output.
    pub(crate) fn new(target: &'a mut [u8]) -> BitWriter<'a> {
        BitWriter { target, at: 0, word: 0, filled: 0 }
    }

    /// Adds bits, of which those above `count` are zero. No more than 56 may be added between two calls of `flush`.
    #[inline]
    pub(crate) fn put(&mut self, bits: u64, count: u32) {
        debug_assert!(bits >> count == 0 && self.filled + count < 64);
        self.word |= bits << self.filled;
        self.filled += count;
    }

    /// Makes room for 56 bits. `false` if the target is full; the written bytes are then useless.
    #[inline]
    #[must_use]
    pub(crate) fn flush(&mut self) -> bool {
        let Some(target) = self.target.get_mut(self.at..self.at + SLACK_BYTES) else { return false };
        target.copy_from_slice(&self.word.to_le_bytes());
        self.at += (self.filled / 8) as usize;
        self.word >>= self.filled & !7;
        self.filled &= 7;
        true
    }

    /// Fills the last byte with zeros.
    pub(crate) fn align(&mut self) {
        self.filled = self.filled.next_multiple_of(8);
    }

    /// Bits written so far.
    pub(crate) fn bits(&self) -> usize {
        8 * self.at + self.filled as usize
    }

    /// Writes whole bytes, after `align` and `flush`.
    #[must_use]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> bool {
        debug_assert_eq!(self.filled, 0);
        let end = self.at + bytes.len();
        if end + SLACK_BYTES > self.target.len() {
            return false;
        }
        self.target[self.at..end].copy_from_slice(bytes);
        self.at = end;
        true
    }

    /// Fills the last byte and returns the bytes written, or nothing if they are too many.
    pub(crate) fn finish(mut self) -> Option<usize> {
        self.align();
        let fits = self.flush() && self.at + SLACK_BYTES <= self.target.len();
        fits.then_some(self.at)
    }
}
