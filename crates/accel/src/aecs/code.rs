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

/// The codes of symbols whose code has a length that is not 0, and 0 for the others; the first bit is the highest. A code
/// may be incomplete. Lengths may be given for two symbols more than the alphabet has, as the fixed codes have them.
pub(crate) fn codes_of<const N: usize>(lengths: &[u8]) -> Result<[u16; N], CodeLengthError> {
    if lengths.len() > N + 2 {
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
    let mut codes = [0; N];
    for (code, &length) in codes.iter_mut().zip(lengths) {
        if length > 0 {
            let next = &mut next[usize::from(length)];
            *code = *next as u16;
            *next += 1;
        }
    }
    Ok(codes)
}

/// Lengths of the fixed code for literals and lengths (RFC 1951, section 3.2.6), with the two symbols that mean nothing.
pub fn fixed_literal_lengths() -> [u8; LITERALS + 2] {
    std::array::from_fn(|symbol| match symbol {
        0..144 => 8,
        144..256 => 9,
        256..280 => 7,
        _ => 8,
    })
}

/// Lengths of the fixed code for distances, with the two symbols that mean nothing.
pub fn fixed_distance_lengths() -> [u8; DISTANCES + 2] {
    [5; DISTANCES + 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_rfc() {
        // The example of section 3.2.2: A to H.
        assert_eq!(
            codes_of::<8>(&[3, 3, 3, 3, 3, 2, 4, 4]),
            Ok([0b010, 0b011, 0b100, 0b101, 0b110, 0b00, 0b1110, 0b1111])
        );
        let fixed = codes_of::<LITERALS>(&fixed_literal_lengths()).unwrap();
        assert_eq!(
            [fixed[0], fixed[144], fixed[256], fixed[280]],
            [0b0011_0000, 0b1_1001_0000, 0, 0b1100_0000]
        );
        assert_eq!(codes_of::<3>(&[1, 1, 1]), Err(CodeLengthError::OverSubscribed));
        assert_eq!(codes_of::<1>(&[16]), Err(CodeLengthError::TooLong));
        assert_eq!(codes_of::<1>(&[2; 4]), Err(CodeLengthError::TooManySymbols));
    }
}
