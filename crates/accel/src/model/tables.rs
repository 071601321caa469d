//! Look-ups for decoding, from the code words of a state.

/// Longer codes are searched for.
const LOOKUP_BITS: u32 = 10;

/// An entry of a longer code. An ordinary one is a symbol, and the bits of its code from bit 9 on; 0 is no code.
const LONGER: u16 = u16::MAX;

/// The meaning of the next bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Symbol {
        symbol: usize,
        bits: u32,
    },
    /// No code begins like this.
    Undefined,
    /// The input ends before a code does.
    Dry,
}

#[derive(Clone)]
pub(super) struct Table {
    entries: Box<[u16; 1 << LOOKUP_BITS]>,
    /// Bits, code (first bit highest) and symbol of codes that are longer, in that order.
    longer: Vec<(u32, u16, u16)>,
    bits_max: u32,
}

impl Table {
    pub(super) fn new() -> Table {
        Table { entries: Box::new([0; 1 << LOOKUP_BITS]), longer: Vec::new(), bits_max: 0 }
    }

    /// Builds a table of code words. `false` if a code is the beginning of another one.
    #[must_use]
    pub(super) fn build(&mut self, words: &[u32]) -> bool {
        self.entries.fill(0);
        self.longer.clear();
        self.bits_max = 0;
        let mut is_code = true;
        for (symbol, &word) in words.iter().enumerate() {
            let (bits, code) = (word >> 15 & 15, word & 0x7FFF);
            if bits == 0 || code >> bits != 0 {
                is_code &= bits == 0;
                continue;
            }
            self.bits_max = self.bits_max.max(bits);
            let reversed = (code.reverse_bits() >> (32 - bits)) as usize;
            if bits > LOOKUP_BITS {
                self.longer.push((bits, code as u16, symbol as u16));
                let entry = &mut self.entries[reversed & ((1 << LOOKUP_BITS) - 1)];
                is_code &= *entry == 0 || *entry == LONGER;
                *entry = LONGER;
            } else {
                for entry in self.entries[reversed..].iter_mut().step_by(1 << bits) {
                    is_code &= *entry == 0;
                    *entry = symbol as u16 | (bits as u16) << 9;
                }
            }
        }
        self.longer.sort_unstable();
        is_code
    }

    /// The literal that comes next and the bits of its code, if it is one with a short code.
    #[inline]
    pub(super) fn literal(&self, word: u64, available: u32) -> Option<(u8, u32)> {
        let entry = self.entries[word as usize & ((1 << LOOKUP_BITS) - 1)];
        let bits = u32::from(entry >> 9);
        (entry & 256 == 0 && bits != 0 && bits <= available).then_some((entry as u8, bits))
    }

    #[inline]
    pub(super) fn find(&self, word: u64, available: u32) -> Found {
        let entry = self.entries[word as usize & ((1 << LOOKUP_BITS) - 1)];
        let bits = u32::from(entry >> 9);
        if entry != 0 && entry != LONGER && bits <= available {
            return Found::Symbol { symbol: usize::from(entry & 511), bits };
        }
        self.find_longer(word, available)
    }

    #[cold]
    fn find_longer(&self, word: u64, available: u32) -> Found {
        for bits in LOOKUP_BITS + 1..=self.bits_max.min(available) {
            let code = ((word as u32).reverse_bits() >> (32 - bits)) as u16;
            let place = self.longer.partition_point(|&(b, c, _)| (b, c) < (bits, code));
            if let Some(&(b, c, symbol)) = self.longer.get(place)
                && (b, c) == (bits, code)
            {
                return Found::Symbol { symbol: usize::from(symbol), bits };
            }
        }
        if available < self.bits_max { Found::Dry } else { Found::Undefined }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aecs::{fixed_literal_lengths, words_of};

    #[test]
    fn every_code_is_found() {
        let mut long = [15u8; 288];
        (1..=14).for_each(|bits| long[usize::from(bits)] = bits);
        long[2..].iter_mut().skip(14).for_each(|length| *length = 0);
        let mut table = Table::new();
        for lengths in [fixed_literal_lengths(), long] {
            let words = words_of::<288>(&lengths).unwrap();
            assert!(table.build(&words));
            for (symbol, &word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
                let bits = word >> 15;
                let stream = u64::from((word & 0x7FFF).reverse_bits() >> (32 - bits));
                assert_eq!(table.find(stream, bits), Found::Symbol { symbol, bits });
                assert_eq!(table.find(stream, bits - 1), Found::Dry);
            }
        }
    }

    #[test]
    fn codes_that_begin_one_another_are_refused() {
        let mut table = Table::new();
        assert!(!table.build(&[1 << 15, 2 << 15 | 1]));
        assert!(!table.build(&[1 << 15, 12 << 15 | 3]));
        assert!(!table.build(&[1 << 15 | 2]));
        assert!(table.build(&[1 << 15]));
        assert_eq!(table.find(1, 20), Found::Undefined);
        assert!(table.build(&[]));
        assert_eq!(table.find(1, 20), Found::Undefined);
    }
}
