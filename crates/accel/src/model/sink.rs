//! Bits of output, the first one lowest.

#[derive(Default)]
pub(super) struct BitSink {
    bytes: Vec<u8>,
    word: u64,
    filled: u32,
}

impl BitSink {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.word, self.filled) = (0, 0);
    }

    /// Adds at most 32 bits, of which those above `count` are 0.
    #[inline]
    pub(super) fn put(&mut self, bits: u64, count: u32) {
        self.word |= bits << self.filled;
        self.filled += count;
        if self.filled >= 32 {
            self.bytes.extend_from_slice(&(self.word as u32).to_le_bytes());
            self.word >>= 32;
            self.filled -= 32;
        }
    }

    /// Adds bits of bytes.
    pub(super) fn put_bytes(&mut self, bytes: &[u8], bits: usize) {
        for (i, &byte) in bytes[..bits.div_ceil(8)].iter().enumerate() {
            let count = (bits - 8 * i).min(8) as u32;
            self.put(u64::from(byte) & ((1 << count) - 1), count);
        }
    }

    /// Fills the last unit of so many bits with zeros.
    pub(super) fn align(&mut self, unit: usize) {
        let missing = self.bits().next_multiple_of(unit) - self.bits();
        self.put(0, missing as u32);
    }

    pub(super) fn bits(&self) -> usize {
        8 * self.bytes.len() + self.filled as usize
    }

    /// All whole units of so many bits (8 or 16) as bytes, and the bits behind them, fewer than a unit.
    pub(super) fn finish(&mut self, unit: usize) -> (&mut [u8], u64, usize) {
        while self.filled >= 8 {
            self.bytes.push(self.word as u8);
            self.word >>= 8;
            self.filled -= 8;
        }
        if unit == 16 && self.bytes.len() % 2 == 1 {
            self.word = self.word << 8 | u64::from(self.bytes.pop().unwrap_or(0));
            self.filled += 8;
        }
        (&mut self.bytes, self.word, self.filled as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_bytes() {
        let mut sink = BitSink::default();
        sink.put(0b101, 3);
        sink.put_bytes(&[0xFF, 0xFF], 9);
        assert_eq!(sink.bits(), 12);
        let (bytes, rest, bits) = sink.finish(8);
        assert_eq!((&*bytes, rest, bits), (&[0xFD][..], 0xF, 4));
        sink.put(0x1234_5678, 32);
        sink.align(8);
        assert_eq!(sink.finish(8).0, [0xFD, 0x8F, 0x67, 0x45, 0x23, 0x01]);
        sink.put(1, 1);
        assert_eq!((sink.finish(16).0.len(), sink.finish(16).1), (6, 1));
        sink.put(0, 8);
        let (bytes, rest, bits) = sink.finish(16);
        assert_eq!((bytes.len(), rest, bits), (6, 1, 9));
    }
}
