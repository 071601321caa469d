//! Lengths of prefix codes that are limited to so many bits.

/// The lengths of an optimal prefix code whose codes have at most `bits_max` bits, for symbols of ascending weights.
/// They descend. A single symbol gets a code of 0 bits.
///
/// The method is package-merge: L. Larmore and D. Hirschberg, "A fast algorithm for optimal length-limited Huffman
/// codes" (1990). It takes `bits_max` passes over the symbols.
///
/// # Panics
///
/// If so many symbols have no such code: there may be at most 2^`bits_max`.
pub(super) fn limited(weights: &[u64], bits_max: u32) -> Vec<u8> {
    assert!(weights.len() <= 1 << bits_max, "{} symbols have no codes of {bits_max} bits", weights.len());
    debug_assert!(weights.is_sorted());
    let mut lists: Vec<Vec<bool>> = Vec::new();
    let mut packages: Vec<u64> = Vec::new();
    for _ in 0..bits_max {
        let (list, is_symbol) = merged(weights, &packages);
        packages = list.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
        lists.push(is_symbol);
    }
    let mut lengths = vec![0; weights.len()];
    let mut taken = (2 * weights.len()).saturating_sub(2);
    for is_symbol in lists.iter().rev() {
        let symbols = is_symbol[..taken].iter().filter(|&&is_symbol| is_symbol).count();
        lengths[..symbols].iter_mut().for_each(|length| *length += 1);
        taken = 2 * (taken - symbols);
    }
    lengths
}

/// Both lists as one that ascends, and whether each of its weights is a symbol's.
fn merged(symbols: &[u64], packages: &[u64]) -> (Vec<u64>, Vec<bool>) {
    let (mut symbols, mut packages) = (symbols.iter().peekable(), packages.iter().peekable());
    std::iter::from_fn(|| match (symbols.peek(), packages.peek()) {
        (Some(symbol), Some(package)) if symbol > package => packages.next().map(|&package| (package, false)),
        (Some(_), _) => symbols.next().map(|&symbol| (symbol, true)),
        (None, _) => packages.next().map(|&package| (package, false)),
    })
    .unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_a_huffman_code_where_it_is_short_enough() {
        assert_eq!(limited(&[], 11), []);
        assert_eq!(limited(&[7], 11), [0]);
        assert_eq!(limited(&[1, 1], 11), [1, 1]);
        assert_eq!(limited(&[1, 1, 2, 4, 8], 11), [4, 4, 3, 2, 1]);
    }

    #[test]
    fn a_limit_costs_the_least_that_it_must() {
        // Without the limit the lengths are 5, 5, 4, 3, 2 and 1.
        assert_eq!(limited(&[1, 1, 2, 4, 8, 16], 4), [4, 4, 4, 4, 2, 1]);
        assert_eq!(limited(&[1, 1, 2, 4, 8, 16], 3), [3, 3, 3, 3, 2, 2]);
        assert_eq!(limited(&[1, 2, 4, 8, 16, 32, 64, 128], 3), [3; 8]);
    }

    #[test]
    fn every_code_is_complete() {
        let mut random = fastrand::Rng::with_seed(5);
        for symbols in (2..200).step_by(3) {
            let mut weights: Vec<u64> = (0..symbols).map(|_| 1 << random.u32(0..30)).collect();
            weights.sort_unstable();
            for bits_max in [8, 11, 15] {
                let lengths = limited(&weights, bits_max);
                let taken: u64 = lengths.iter().map(|&length| 1 << (bits_max - u32::from(length))).sum();
                assert_eq!(taken, 1 << bits_max, "{symbols} symbols, {bits_max} bits");
                assert!(lengths.is_sorted_by(|one, other| one >= other));
            }
        }
    }
}
