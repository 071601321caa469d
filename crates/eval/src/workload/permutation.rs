//! A shuffle without a table: a bijection of `0..len` computed from a few multiplications.
//!
//! Loads in random order, scrambled Zipf ranks and value offsets all need "every number once, in no order". A shuffled
//! array of five million entries would cost 20 MB and a cache miss per step; this costs some nanoseconds. It is no
//! cipher: do not use it for unpredictable numbers.

/// A fixed, seeded bijection of `0..len`.
///
/// Numbers are mixed within the next power of two, and mixed again until they fall below `len` (cycle walking, Black
/// and Rogaway 2002). That takes fewer than two rounds on average.
#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    len: u64,
    mask: u64,
    shift: u32,
    odd_a: u64,
    odd_b: u64,
    add: u64,
}

impl Permutation {
    /// The bijection of `0..len` that belongs to `seed`; `len` is at least 1.
    pub(crate) fn new(len: u64, seed: u64) -> Self {
        assert!(len > 0, "a permutation has at least one element");
        let bits = 64 - (len - 1).leading_zeros();
        Permutation {
            len,
            mask: if bits == 0 { 0 } else { u64::MAX >> (64 - bits) },
            shift: (bits / 2).max(1),
            odd_a: mix64(seed) | 1,
            odd_b: mix64(seed ^ 0x5851_f42d_4c95_7f2d) | 1,
            add: mix64(seed ^ 0x1405_7b7e_f767_814f),
        }
    }

    /// The image of `index` (below `len`).
    #[inline]
    pub(crate) fn at(&self, index: u64) -> u64 {
        let mut x = index;
        loop {
            x ^= x >> self.shift;
            x = x.wrapping_mul(self.odd_a).wrapping_add(self.add) & self.mask;
            x ^= x >> self.shift;
            x = x.wrapping_mul(self.odd_b) & self.mask;
            x ^= x >> self.shift;
            if x < self.len {
                return x;
            }
        }
    }
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection of 64-bit numbers that mixes every bit.
#[inline]
pub(crate) fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The inverse of [`mix64`].
#[inline]
pub(crate) fn unmix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    x ^ (x >> 30) ^ (x >> 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_appears_once() {
        for len in [1, 2, 3, 5, 64, 100, 1000, 4096, 4097] {
            for seed in [0, 1, 99] {
                let permutation = Permutation::new(len, seed);
                let mut seen = vec![false; len as usize];
                for index in 0..len {
                    let there = permutation.at(index) as usize;
                    assert!(
                        !std::mem::replace(&mut seen[there], true),
                        "len {len} seed {seed} index {index}"
                    );
                }
            }
        }
    }

    #[test]
    fn neighbours_are_scattered() {
        let permutation = Permutation::new(50_000, 7);
        let near = (1..50_000).filter(|&i| permutation.at(i).abs_diff(permutation.at(i - 1)) < 500).count();
        assert!(
            near < 2_500,
            "{near} of 50,000 neighbours stayed within 1 %: a random order has about 1,000"
        );
    }

    #[test]
    fn mixing_can_be_undone() {
        for i in 0..10_000u64 {
            let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert_eq!(unmix64(mix64(x)), x);
        }
    }
}
