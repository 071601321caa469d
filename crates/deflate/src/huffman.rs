//! Canonical Huffman codes of limited length (RFC 1951, section 3.2.2).

use crate::error::Fault;

/// No code of DEFLATE is longer.
pub(crate) const BITS_MAX: usize = 15;

/// The most symbols of an alphabet: literals and lengths, with the two that only the fixed code has.
pub(crate) const SYMBOLS_MAX: usize = 288;

/// Sets the length of each symbol's code from its count. Symbols with count 0 get no code.
///
/// The lengths are those of a Huffman code. Lengths above `bits_max` are cut to it, and others grow until the code is
/// complete. A single symbol gets one bit. Source of the method: Moffat and Katajainen, "In-place calculation of
/// minimum-redundancy codes" (1995).
pub(crate) fn limited_lengths(counts: &[u32], bits_max: usize, lengths: &mut [u8]) {
    lengths.fill(0);
    let mut order = [0u64; SYMBOLS_MAX];
    let mut used = 0;
    for (symbol, &count) in counts.iter().enumerate() {
        order[used] = u64::from(count) << 16 | symbol as u64;
        used += usize::from(count > 0);
    }
    let order = &mut order[..used];
    order.sort_unstable();
    match *order {
        [] => return,
        [only] => {
            lengths[only as usize & 0xFFFF] = 1;
            return;
        }
        _ => {}
    }
    let mut depths = [0u32; SYMBOLS_MAX];
    let depths = &mut depths[..used];
    depths.iter_mut().zip(&*order).for_each(|(depth, &item)| *depth = (item >> 16) as u32);
    minimum_redundancy(depths);
    let mut of_length = [0u32; BITS_MAX + 1];
    depths.iter().for_each(|&depth| of_length[(depth as usize).min(bits_max)] += 1);
    make_complete(&mut of_length, bits_max);
    // The rarest symbols come first, and get the longest codes.
    let mut rarest = order.iter();
    for length in (1..=bits_max).rev() {
        for &item in rarest.by_ref().take(of_length[length] as usize) {
            lengths[item as usize & 0xFFFF] = length as u8;
        }
    }
}

/// Replaces ascending counts by the depths of their leaves in a Huffman tree, descending.
fn minimum_redundancy(counts: &mut [u32]) {
    let used = counts.len();
    counts[0] += counts[1];
    let (mut root, mut leaf) = (0, 2);
    // Weights of inner nodes, replaced by their parents as these are made.
    for next in 1..used - 1 {
        let mut weight = 0;
        for _ in 0..2 {
            if leaf >= used || (root < next && counts[root] < counts[leaf]) {
                weight += counts[root];
                counts[root] = next as u32;
                root += 1;
            } else {
                weight += counts[leaf];
                leaf += 1;
            }
        }
        counts[next] = weight;
    }
    // Parents of inner nodes to depths of inner nodes.
    counts[used - 2] = 0;
    for node in (0..used - 2).rev() {
        counts[node] = counts[counts[node] as usize] + 1;
    }
    // Depths of inner nodes to depths of leaves.
    let (mut available, mut depth) = (1, 0);
    let mut node = used as isize - 2;
    let mut target = used as isize - 1;
    while available > 0 {
        let mut inner = 0;
        while node >= 0 && counts[node as usize] == depth {
            inner += 1;
            node -= 1;
        }
        for _ in inner..available {
            counts[target as usize] = depth;
            target -= 1;
        }
        available = 2 * inner;
        depth += 1;
    }
}

/// Lengthens codes until those that were cut to `bits_max` have room.
fn make_complete(of_length: &mut [u32], bits_max: usize) {
    let mut taken: u32 = (1..=bits_max).map(|length| of_length[length] << (bits_max - length)).sum();
    while taken > 1 << bits_max {
        of_length[bits_max] -= 1;
        let shorter = (1..bits_max).rev().find(|&length| of_length[length] > 0);
        let shorter = shorter.expect("a code of so few symbols has shorter ones");
        of_length[shorter] -= 1;
        of_length[shorter + 1] += 2;
        taken -= 1;
    }
}

/// Calls `each` with the symbols that have a code, and its length. Most have none: eight are looked at together.
#[inline(always)]
fn for_each_used(lengths: &[u8], mut each: impl FnMut(usize, usize)) {
    for (eight, first) in lengths.chunks(8).zip((0..).step_by(8)) {
        let mut word = [0; 8];
        word[..eight.len()].copy_from_slice(eight);
        // No length has its highest bit set, and adding 127 sets that of all but zeros.
        let mut used = (u64::from_le_bytes(word) + 0x7F7F_7F7F_7F7F_7F7F) & 0x8080_8080_8080_8080;
        while used != 0 {
            let at = used.trailing_zeros() as usize / 8;
            each(first + at, usize::from(word[at] & 15));
            used &= used - 1;
        }
    }
}

/// The symbols of a code in canonical order.
pub(crate) struct Canonical {
    /// How many codes have each length.
    pub(crate) of_length: [u16; BITS_MAX + 1],
    /// Symbols by length, then by number; the first `used` are set.
    pub(crate) symbols: [u16; SYMBOLS_MAX],
    /// Symbols that have a code.
    pub(crate) used: usize,
}

impl Canonical {
    /// Sorts the symbols of a code. `over` is the fault of too many short codes, `incomplete` that of too few. A single
    /// code of one bit, or none at all, is valid.
    pub(crate) fn new(lengths: &[u8], over: Fault, incomplete: Fault) -> Result<Canonical, Fault> {
        let mut of_length = [0u16; BITS_MAX + 1];
        for_each_used(lengths, |_, length| of_length[length] += 1);
        let mut starts = [0u16; BITS_MAX + 2];
        let mut left = 1i32;
        for length in 1..=BITS_MAX {
            left = 2 * left - i32::from(of_length[length]);
            if left < 0 {
                return Err(over);
            }
            starts[length + 1] = starts[length] + of_length[length];
        }
        let used = usize::from(starts[BITS_MAX + 1]);
        if left > 0 && used != usize::from(of_length[1]) {
            return Err(incomplete);
        }
        let mut symbols = [0u16; SYMBOLS_MAX];
        for_each_used(lengths, |symbol, length| {
            symbols[usize::from(starts[length])] = symbol as u16;
            starts[length] += 1;
        });
        Ok(Canonical { of_length, symbols, used })
    }

    /// Calls `each` with symbol, length and code of all symbols in order. The code's first bit is its lowest, as it
    /// stands in a stream.
    #[inline]
    pub(crate) fn for_each(&self, mut each: impl FnMut(usize, usize, usize)) {
        let (mut code, mut at) = (0u32, 0);
        for length in 1..=BITS_MAX {
            code <<= 1;
            for _ in 0..self.of_length[length] {
                let reversed = code.reverse_bits() >> (32 - length);
                each(usize::from(self.symbols[at]), length, reversed as usize);
                at += 1;
                code += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(counts: &[u32], bits_max: usize) -> Vec<u8> {
        let mut lengths = vec![0; counts.len()];
        limited_lengths(counts, bits_max, &mut lengths);
        lengths
    }

    #[test]
    fn frequent_symbols_have_short_codes() {
        assert_eq!(lengths(&[5, 9, 12, 13, 16, 45], 15), [4, 4, 3, 3, 3, 1]);
        assert_eq!(lengths(&[0, 3, 0], 15), [0, 1, 0]);
        assert_eq!(lengths(&[1, 0, 1], 15), [1, 0, 1]);
        assert_eq!(lengths(&[0, 0], 15), [0, 0]);
    }

    #[test]
    fn limits_are_kept_and_codes_complete() {
        let mut fibonacci = [1u32; 30];
        (2..30).for_each(|i| fibonacci[i] = fibonacci[i - 1] + fibonacci[i - 2]);
        for bits_max in [5, 7, 8, 11, 15] {
            let lengths = lengths(&fibonacci, bits_max);
            assert!(lengths.iter().all(|&length| (1..=bits_max).contains(&usize::from(length))));
            let taken: u32 = lengths.iter().map(|&length| 1 << (15 - length)).sum();
            assert_eq!(taken, 1 << 15);
        }
        let many: Vec<u32> = (0..286).map(|i| i * i * i + 1).collect();
        let taken: u32 = lengths(&many, 9).iter().map(|&length| 1 << (15 - length)).sum();
        assert_eq!(taken, 1 << 15);
    }

    #[test]
    fn faulty_codes_are_named() {
        let check = |lengths: &[u8]| {
            Canonical::new(lengths, Fault::OverSubscribed, Fault::Incomplete).map(|code| code.used).err()
        };
        assert_eq!(check(&[1, 1, 1]), Some(Fault::OverSubscribed));
        assert_eq!(check(&[1, 2]), Some(Fault::Incomplete));
        assert_eq!(check(&[2]), Some(Fault::Incomplete));
        assert_eq!([check(&[0, 1]), check(&[0, 0]), check(&[1, 2, 2])], [None; 3]);
    }
}
