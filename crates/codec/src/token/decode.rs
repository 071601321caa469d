//! The hot path: from token numbers to the bytes of a value.
//!
//! The table is padded to 2^bits entries, so that every number of the width is in range. Entries past the last token
//! have the length 0, and one test after the loop finds whether any was met. Every token is copied as 16 bytes,
//! whatever its length, and the next copy overwrites the excess.

use super::{CHECK_BYTES, TOKEN_BYTES_MAX};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// One token, padded with zeros.
#[derive(Clone, Copy, Default)]
#[repr(align(16))]
pub(super) struct Entry(pub(super) [u8; TOKEN_BYTES_MAX]);

/// The tokens of a dictionary, laid out for decoding.
pub(super) struct Table {
    entries: Box<[Entry]>,
    /// The encoder's index has them, too.
    lengths: Arc<[u8]>,
    tokens: usize,
    bits: u32,
}

/// The result of a pass over the numbers.
pub(super) struct Pass {
    /// Bytes of the value.
    pub(super) raw_bytes: usize,
    /// Whether every number named a token.
    pub(super) valid: bool,
}

impl Table {
    /// Lays out `tokens`, which are in the order of their numbers.
    ///
    /// # Panics
    ///
    /// If there are more than 2^bits tokens, or one is empty or longer than 16 bytes. The callers have checked both.
    pub(super) fn new<'a>(tokens: impl ExactSizeIterator<Item = &'a [u8]>, bits: u32) -> Table {
        assert!(super::BITS.contains(&bits) && tokens.len() <= 1 << bits);
        let count = tokens.len();
        let mut entries = vec![Entry::default(); 1 << bits].into_boxed_slice();
        let mut lengths = vec![0u8; 1 << bits];
        for ((entry, length), token) in entries.iter_mut().zip(&mut lengths).zip(tokens) {
            assert!((1..=TOKEN_BYTES_MAX).contains(&token.len()));
            entry.0[..token.len()].copy_from_slice(token);
            *length = token.len() as u8;
        }
        Table { entries, lengths: lengths.into(), tokens: count, bits }
    }

    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// The bytes of a token.
    #[inline]
    pub(super) fn token(&self, number: usize) -> &[u8] {
        &self.entries[number].0[..usize::from(self.lengths[number])]
    }

    /// A key that sorts tokens as their bytes do.
    #[inline]
    pub(super) fn sort_key(&self, number: usize) -> (u128, u8) {
        (u128::from_be_bytes(self.entries[number].0), self.lengths[number])
    }

    /// The lengths of all tokens, and 0 up to 2^bits.
    pub(super) fn lengths(&self) -> Arc<[u8]> {
        self.lengths.clone()
    }

    /// The length of a token in bytes.
    #[inline]
    pub(super) fn length(&self, number: u16) -> usize {
        usize::from(self.lengths[usize::from(number)])
    }

    /// The bytes of a token with zeros behind them, and their number. A number without a token has no bytes.
    #[inline]
    pub(super) fn padded(&self, number: u16) -> (&[u8; TOKEN_BYTES_MAX], usize) {
        (&self.entries[usize::from(number)].0, self.length(number))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        Table::memory_bytes_expected(self.bits)
    }

    pub(super) fn memory_bytes_expected(bits: u32) -> usize {
        (size_of::<Entry>() + 1) << bits
    }

    /// The length of a value of `count` numbers, without its bytes.
    pub(super) fn measure(&self, coded: &[u8], count: usize) -> Pass {
        let payload = &coded[..coded.len() - CHECK_BYTES];
        let mut pass = Pass { raw_bytes: 0, valid: true };
        let mut add = |number: usize| {
            let length = self.lengths[number];
            pass.raw_bytes += usize::from(length);
            pass.valid &= length != 0;
        };
        let bits = self.bits as usize;
        let mut position = 0;
        // Four numbers lie in one word. Groups begin at bit 0 or at bit 4 of a byte; the latter have at most 60 bits.
        while position + 4 <= count
            && let Some(word) = coded[position * bits / 8..].first_chunk()
        {
            let word = u64::from_le_bytes(*word) >> (position * bits % 8);
            (0..4).for_each(|i| add((word >> (i * bits)) as usize & ((1 << bits) - 1)));
            position += 4;
        }
        (position..count)
            .for_each(|position| add(super::numbers::get(payload, position, self.bits) as usize));
        pass
    }

    /// The room in which the copies of a value of `raw_bytes` stay: the last one may reach past the end.
    #[inline]
    pub(super) fn spare_bytes(raw_bytes: usize) -> usize {
        raw_bytes + TOKEN_BYTES_MAX
    }

    /// Writes the value to the start of `target`, as far as there is room, and measures the rest.
    ///
    /// No byte behind `target` is written, whatever `coded` holds, even if another thread changes `coded` meanwhile. A
    /// target with [`Table::spare_bytes`] of 16 bytes per number is fastest.
    ///
    /// # Safety
    ///
    /// `coded` holds exactly `count` numbers and a check.
    pub(super) unsafe fn decode(&self, coded: &[u8], count: usize, target: &mut [MaybeUninit<u8>]) -> Pass {
        if target.len() < Table::spare_bytes(count * TOKEN_BYTES_MAX) {
            return self.decode_in_pieces(coded, count, target);
        }
        // SAFETY: the caller's promise, and there is room for 16 bytes per number.
        unsafe { self.decode_roomily(coded, count, target.as_mut_ptr().cast()) }
    }

    /// [`Table::decode`] for any room: as many numbers at a time as have room for 16 bytes each.
    #[inline(never)]
    fn decode_in_pieces(&self, coded: &[u8], count: usize, target: &mut [MaybeUninit<u8>]) -> Pass {
        /// Near the end of the target, this many numbers go through a buffer.
        const BUFFERED: usize = 128;
        let mut buffer = [MaybeUninit::uninit(); (BUFFERED + 1) * TOKEN_BYTES_MAX];
        let (mut all, mut done) = (Pass { raw_bytes: 0, valid: true }, 0);
        while done < count {
            let room = target.get_mut(all.raw_bytes..).unwrap_or_default();
            // Eight numbers end at the end of a byte, whatever their width.
            let roomy = (room.len() / TOKEN_BYTES_MAX).saturating_sub(1) & !7;
            let numbers = roomy.max(BUFFERED).min(count - done);
            let start = done * self.bits as usize / 8;
            let piece = &coded[start..start + super::numbers::coded_len(numbers, self.bits)];
            let is_roomy = numbers <= roomy;
            let start = if is_roomy { room.as_mut_ptr() } else { buffer.as_mut_ptr() };
            // SAFETY: the piece holds so many numbers and two bytes more. Room or buffer have 16 bytes for each number
            // and for the last copy.
            let pass = unsafe { self.decode_roomily(piece, numbers, start.cast()) };
            if !is_roomy {
                let kept = pass.raw_bytes.min(room.len());
                room[..kept].copy_from_slice(&buffer[..kept]);
            }
            done += numbers;
            all = Pass { raw_bytes: all.raw_bytes + pass.raw_bytes, valid: all.valid && pass.valid };
        }
        all
    }

    /// [`Table::decode`] with room to spare.
    ///
    /// # Safety
    ///
    /// `coded` holds exactly `count` numbers and two bytes more. [`Table::spare_bytes`] of 16 bytes per number may be
    /// written at `start`.
    #[inline]
    pub(super) unsafe fn decode_roomily(&self, coded: &[u8], count: usize, start: *mut u8) -> Pass {
        // SAFETY: the caller's promise, passed on; `self.bits` names the instance.
        unsafe {
            match self.bits {
                10 => self.decode_width::<10>(coded, count, start),
                11 => self.decode_width::<11>(coded, count, start),
                12 => self.decode_width::<12>(coded, count, start),
                13 => self.decode_width::<13>(coded, count, start),
                14 => self.decode_width::<14>(coded, count, start),
                15 => self.decode_width::<15>(coded, count, start),
                _ => self.decode_width::<16>(coded, count, start),
            }
        }
    }

    /// [`Table::decode_roomily`] for one width, which the compiler turns into constant shifts.
    ///
    /// # Safety
    ///
    /// As for [`Table::decode_roomily`], and `BITS` is the width of this table.
    unsafe fn decode_width<const BITS: usize>(&self, coded: &[u8], count: usize, start: *mut u8) -> Pass {
        debug_assert_eq!(coded.len(), super::numbers::coded_len(count, BITS as u32));
        debug_assert!(self.entries.len() == 1 << BITS && self.lengths.len() == 1 << BITS);
        let mask = (1u64 << BITS) - 1;
        let entries = self.entries.as_ptr();
        let lengths = self.lengths.as_ptr();
        let mut raw_bytes = 0usize;
        // Length 0 wraps around to a byte with its high bit set; no length of a token does.
        let mut invalid = 0u8;

        // `keep` is all ones for a number of the value, and zero for an extra number from a wide load.
        let mut copy = |number: u64, keep: u8| {
            let number = (number & mask) as usize;
            // SAFETY: `number` is below 2^BITS, the length of both tables. The store ends at most 16 bytes after the
            // bytes written so far, which the caller allows: `raw_bytes` grows by at most 16 bytes for each of the
            // value's own numbers.
            unsafe {
                let length = *lengths.add(number);
                start.add(raw_bytes).cast::<[u8; 16]>().write_unaligned((*entries.add(number)).0);
                invalid |= length.wrapping_sub(1) & keep;
                raw_bytes += usize::from(length & keep);
            }
        };

        if let Some(last_word) = coded.len().checked_sub(8) {
            // Groups of four numbers, each within one word; the last group may be partly filled and is apart.
            let full = count.saturating_sub(1) / 4;
            let word_at = |at: usize| {
                // SAFETY: `at + 8 <= coded.len()`, see the two uses.
                u64::from_le(unsafe { coded.as_ptr().add(at).cast::<u64>().read_unaligned() })
            };
            for group in 0..full {
                let bit = group * 4 * BITS;
                // At least five numbers and a check begin at this bit: 50 bits and 2 bytes, more than a word.
                let word = word_at(bit / 8) >> (bit % 8);
                copy(word, 0xff);
                copy(word >> BITS, 0xff);
                copy(word >> (2 * BITS), 0xff);
                copy(word >> (3 * BITS), 0xff);
            }
            let bit = full * 4 * BITS;
            let rest = count - full * 4;
            // The word that ends with the value, shifted to where the group begins.
            let at = (bit / 8).min(last_word);
            let word = word_at(at) >> (bit - at * 8);
            for i in 0..4 {
                copy(word >> (i * BITS), 0u8.wrapping_sub(u8::from(i < rest)));
            }
        } else {
            let payload = &coded[..coded.len() - CHECK_BYTES];
            for position in 0..count {
                copy(u64::from(super::numbers::get(payload, position, BITS as u32)), 0xff);
            }
        }
        Pass { raw_bytes, valid: invalid & 0x80 == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::numbers;

    /// A value that another thread makes longer between two looks at it is, for the decoder, a value without room.
    #[test]
    fn a_value_that_is_longer_than_its_room_stays_within_it() {
        const BEHIND: [u8; 1024] = [0xA5; 1024];
        let tokens: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte; usize::from(byte % 16) + 1]).collect();
        for bits in crate::token::BITS {
            let table = Table::new(tokens.iter().map(Vec::as_slice), bits);
            for count in [1, 8, 33, 127, 128, 129, 300] {
                let all: Vec<u16> = (0..count).map(|number| (number * 89 % 256) as u16).collect();
                let value: Vec<u8> =
                    all.iter().flat_map(|&number| table.token(number.into())).copied().collect();
                let mut coded = Vec::new();
                numbers::pack(&all, bits, &mut coded);
                coded.extend_from_slice(&[0; CHECK_BYTES]);
                for room in [0, 1, value.len() / 2, value.len() - 1, value.len(), 17 * count, 16 * count + 16]
                {
                    let memory = [vec![0; room], BEHIND.to_vec()].concat();
                    let mut memory: Vec<_> = memory.into_iter().map(MaybeUninit::new).collect();
                    // SAFETY: `coded` holds so many numbers and a check.
                    let pass = unsafe { table.decode(&coded, count, &mut memory[..room]) };
                    assert_eq!((pass.raw_bytes, pass.valid), (value.len(), true));
                    // SAFETY: all of it was initialised.
                    let memory: Vec<u8> = memory.iter().map(|byte| unsafe { byte.assume_init() }).collect();
                    assert!(
                        memory.ends_with(&BEHIND),
                        "{count} numbers of {bits} bits, room for {room} bytes"
                    );
                    let kept = room.min(value.len());
                    assert_eq!(memory[..kept], value[..kept], "{count} numbers of {bits} bits");
                }
            }
        }
    }
}
