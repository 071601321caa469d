//! Bits of input: first those of the state's accumulator, then those of source 1.

/// The input has no more bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dry;

/// Up to 8 bits of the accumulator, and how many.
pub(super) type Early = (u8, u8);

#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    early: &'a [Early],
    bytes: &'a [u8],
    at: usize,
    /// Bits of `bytes` that count.
    all: usize,
    word: u64,
    filled: u32,
}

/// Splits the words of an accumulator. `false` if one states more than 64 bits.
pub(super) fn split_early(words: impl Iterator<Item = (u64, u8)>, early: &mut Vec<Early>) -> bool {
    early.clear();
    for (word, bits) in words {
        if bits > 64 {
            return false;
        }
        early.extend((0..bits).step_by(8).map(|shift| {
            let count = (bits - shift).min(8);
            ((word >> shift) as u8 & (0xFF >> (8 - count)), count)
        }));
    }
    true
}

impl<'a> Bits<'a> {
    pub(super) fn new(early: &'a [Early], bytes: &'a [u8], ignored: usize) -> Bits<'a> {
        let all = (8 * bytes.len()).saturating_sub(ignored);
        Bits { early, bytes, at: 0, all, word: 0, filled: 0 }
    }

    /// Makes at least 56 bits available, or all there are.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        if self.filled > 55 {
            return;
        }
        // The last two bytes may have bits that do not count.
        if self.early.is_empty()
            && self.at + 10 <= self.bytes.len()
            && let Some(chunk) = self.bytes[self.at..].first_chunk::<8>()
        {
            let taken = (63 - self.filled) / 8;
            self.word |= (u64::from_le_bytes(*chunk) & (u64::MAX >> (64 - 8 * taken))) << self.filled;
            self.at += taken as usize;
            self.filled += 8 * taken;
        } else {
            self.refill_slowly();
        }
    }

    #[cold]
    fn refill_slowly(&mut self) {
        while self.filled <= 56 {
            let (byte, count) = if let Some((&first, rest)) = self.early.split_first() {
                self.early = rest;
                first
            } else if 8 * self.at < self.all {
                let count = (self.all - 8 * self.at).min(8) as u8;
                self.at += 1;
                (self.bytes[self.at - 1] & (0xFF >> (8 - count)), count)
            } else {
                return;
            };
            self.word |= u64::from(byte) << self.filled;
            self.filled += u32::from(count);
        }
    }

    /// The next bits; those that are not [`available`](Self::available) are 0.
    #[inline]
    pub(super) fn word(&self) -> u64 {
        self.word
    }

    #[inline]
    pub(super) fn available(&self) -> u32 {
        self.filled
    }

    #[inline]
    pub(super) fn take(&mut self, bits: u32) {
        self.word >>= bits;
        self.filled -= bits;
    }

    /// Takes a number of at most 32 bits.
    pub(super) fn number(&mut self, bits: u32) -> Result<u32, Dry> {
        self.refill();
        if self.filled < bits {
            return Err(Dry);
        }
        let number = self.word & ((1 << bits) - 1);
        self.take(bits);
        Ok(number as u32)
    }

    /// Drops bits until a byte of source 1 begins, or would have begun before it.
    pub(super) fn align(&mut self) {
        self.refill();
        let early: u32 = self.early.iter().map(|&(_, count)| u32::from(count)).sum();
        let pulled = self.all.min(8 * self.at) as u32;
        // If bits at the end do not count, the byte may be missing.
        self.take(((self.filled + early).wrapping_sub(pulled) % 8).min(self.filled));
    }

    /// Bytes of source 1 that were taken.
    pub(super) fn taken(&self) -> usize {
        self.at
    }

    /// Takes at most so many whole bytes.
    pub(super) fn copy(&mut self, bytes: usize, out: &mut Vec<u8>) -> usize {
        let mut copied = 0;
        while copied < bytes && (self.filled > 0 || !self.early.is_empty()) {
            if self.filled < 8 {
                self.refill_slowly();
            }
            if self.filled < 8 {
                return copied;
            }
            out.push(self.word as u8);
            self.take(8);
            copied += 1;
        }
        if self.filled > 0 {
            return copied;
        }
        let whole = (self.all / 8).saturating_sub(self.at).min(bytes - copied);
        out.extend_from_slice(&self.bytes[self.at..self.at + whole]);
        self.at += whole;
        copied + whole
    }

    /// The bits that were not taken. With `all`, bits of source 1 that were not yet pulled are included. `None` if they
    /// are more than an accumulator holds.
    pub(super) fn rest(mut self, all: bool) -> Option<Vec<(u64, u8)>> {
        let mut words = Vec::new();
        if !all {
            (self.bytes, self.all, self.at) = (&[], 0, 0);
        }
        loop {
            if self.filled < 32 {
                self.refill();
            }
            if self.filled == 0 {
                break;
            }
            if words.len() == 32 {
                return None;
            }
            words.push((self.word & (u64::MAX >> (64 - self.filled.min(64))), self.filled as u8));
            (self.word, self.filled) = (0, 0);
        }
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_in_order_and_end_where_they_should() {
        let mut early = Vec::new();
        assert!(split_early([(0b101, 3), (0x1FF, 9)].into_iter(), &mut early));
        let mut bits = Bits::new(&early, &[0xAB, 0xCD, 0x3F], 3);
        assert_eq!(bits.number(12), Ok(0xFFD));
        assert_eq!(bits.number(16), Ok(0xCDAB));
        assert_eq!((bits.number(6), bits.number(5), bits.number(1)), (Err(Dry), Ok(0x1F), Err(Dry)));
        assert!(!split_early([(0, 65)].into_iter(), &mut early));
    }

    #[test]
    fn what_was_not_taken_comes_back() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut bits = Bits::new(&[], &bytes, 0);
        assert_eq!(bits.number(20), Ok(0x20100));
        let mut again = Vec::new();
        assert!(split_early(bits.rest(true).unwrap().into_iter(), &mut again));
        let mut again = Bits::new(&again, &[], 0);
        assert_eq!((again.number(4), again.number(8), again.number(8)), (Ok(0), Ok(3), Ok(4)));
        let (taken, rest) = (bits.taken(), bits.rest(false).unwrap());
        let held: usize = rest.iter().map(|word| usize::from(word.1)).sum();
        assert_eq!(8 * taken - 20, held);
        let bytes = [7; 300];
        assert!(Bits::new(&[], &bytes, 0).rest(true).is_none());
    }

    #[test]
    fn bytes_are_copied_after_any_bits() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut bits = Bits::new(&[], &bytes, 0);
        bits.number(3).unwrap();
        bits.align();
        let mut out = Vec::new();
        assert_eq!(bits.copy(50, &mut out), 50);
        assert_eq!(out, bytes[1..51]);
        assert_eq!(bits.copy(70, &mut out), 49);
        assert_eq!(bits.copy(1, &mut out), 0);
    }
}
