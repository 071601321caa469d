//! Canonical Huffman codes (RFC 1951, section 3.2.2) from the lengths of their symbols.

use std::fmt;

/// Symbols for literals, the end of a block and lengths.
pub const LITERALS: usize = 286;

/// Symbols for distances.
pub const DISTANCES: usize = 30;

/// The longest code.
pub const BITS_MAX: usize = 15;

/// Why lengths make no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeLengthError {
    /// More symbols than the alphabet has.
    TooManySymbols,
    /// A code of more than 15 bits.
    TooLong,
    /// More short codes than fit.
    OverSubscribed,
    /// Header bits that do not fit into the output accumulator, which holds 256 bytes.
    HeaderTooLong,
}

impl fmt::Display for CodeLengthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CodeLengthError::TooManySymbols => "more code lengths than symbols",
            CodeLengthError::TooLong => "a code of more than 15 bits",
            CodeLengthError::OverSubscribed => "more short codes than fit",
            CodeLengthError::HeaderTooLong => "the header does not fit into the output accumulator",
        })
    }
}

impl std::error::Error for CodeLengthError {}

/// The code words of symbols, 0 for those without a code. A code may be incomplete.
pub(crate) fn words_of<const N: usize>(lengths: &[u8]) -> Result<[u32; N], CodeLengthError> {
    if lengths.len() > N {
        return Err(CodeLengthError::TooManySymbols);
    }
    let mut of_length = [0u32; BITS_MAX + 2];
    for &length in lengths {
        *of_length[..=BITS_MAX].get_mut(usize::from(length)).ok_or(CodeLengthError::TooLong)? += 1;
    }
    of_length[0] = 0;
    let mut next = [0u32; BITS_MAX + 2];
    for length in 1..=BITS_MAX {
        if next[length] + of_length[length] > 1 << length {
            return Err(CodeLengthError::OverSubscribed);
        }
        next[length + 1] = (next[length] + of_length[length]) << 1;
    }
    let mut words = [0; N];
    for (word, &length) in words.iter_mut().zip(lengths) {
        if length > 0 {
            let next = &mut next[usize::from(length)];
            *word = *next | u32::from(length) << 15;
            *next += 1;
        }
    }
    Ok(words)
}

/// Lengths of the fixed code for literals and lengths (RFC 1951, section 3.2.6), with the two unused symbols.
pub fn fixed_literal_lengths() -> [u8; LITERALS + 2] {
    std::array::from_fn(|symbol| match symbol {
        0..144 => 8,
        144..256 => 9,
        256..280 => 7,
        _ => 8,
    })
}

/// Lengths of the fixed code for distances, with the two unused symbols.
pub fn fixed_distance_lengths() -> [u8; DISTANCES + 2] {
    [5; DISTANCES + 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_rfc() {
        // The example of section 3.2.2: A to H.
        let codes = words_of::<8>(&[3, 3, 3, 3, 3, 2, 4, 4]).unwrap().map(|word| word & 0x7FFF);
        assert_eq!(codes, [0b010, 0b011, 0b100, 0b101, 0b110, 0b00, 0b1110, 0b1111]);
        let fixed =
            words_of::<288>(&fixed_literal_lengths()).unwrap().map(|word| (word & 0x7FFF, word >> 15));
        assert_eq!([fixed[0], fixed[144]], [(0b0011_0000, 8), (0b1_1001_0000, 9)]);
        assert_eq!([fixed[256], fixed[280]], [(0, 7), (0b1100_0000, 8)]);
        assert_eq!(words_of::<3>(&[1, 1, 1]), Err(CodeLengthError::OverSubscribed));
        assert_eq!(words_of::<1>(&[16]), Err(CodeLengthError::TooLong));
        assert_eq!(words_of::<1>(&[1, 1]), Err(CodeLengthError::TooManySymbols));
    }
}
