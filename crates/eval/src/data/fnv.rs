//! YCSB's hash of a number, and back: FNV-1a in 64 bits of its little-endian bytes, without the sign.
//!
//! A step of FNV-1a is `state = (state ^ byte) * PRIME`, and the prime is 2^40 + 435. Without its lowest byte, a state
//! is a sum in which each byte before has a term of its own: byte `c` of the state before gives `435 * c / 256` and a
//! multiple of 2^32. The next step multiplies that by 435 again. So the low 32 bits have the first three bytes of a
//! number as the digits of a number system, and four bytes can be read from a hash without a search.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;
/// Undoes a multiplication by the prime.
const INVERSE: u64 = {
    let mut inverse = PRIME;
    let mut step = 0;
    // Each step of Newton's doubles the bits that are right, of which there are three at the begin.
    while step < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(PRIME.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
};
/// The low part of the prime: the weight of a digit that is one step old.
const LOW: u64 = 435;

/// The hash of a number.
#[inline]
pub(crate) fn hash64(number: u64) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    (number.to_le_bytes().into_iter().fold(OFFSET, mix) as i64).unsigned_abs()
}

/// The number below 2^32 with this hash; one of them if two have it.
pub(crate) fn unhash64(hash: u64) -> Option<u64> {
    [hash, hash.wrapping_neg()].into_iter().find_map(|signed| {
        let number = four_bytes(signed)?;
        (hash64(number) == hash).then_some(number)
    })
}

/// The first four bytes of a number whose other bytes are 0, from the state at its end.
fn four_bytes(state: u64) -> Option<u64> {
    let before = |state: u64| state.wrapping_mul(INVERSE);
    let last = (0..5).fold(state, |state, _| before(state));
    // What the offset alone would have left of the three states.
    let mut base = OFFSET >> 8;
    (0..3).for_each(|_| base = base.wrapping_mul(PRIME));
    let sum = (last >> 8).wrapping_sub(base) & u64::from(u32::MAX);
    let digits = [sum / (LOW * LOW), sum / LOW % LOW, sum % LOW];
    let byte = |digit: u64| (digit * 256).div_ceil(LOW);
    let mut states = OFFSET;
    let mut number = 0;
    for (at, low) in digits.map(byte).into_iter().chain([last & 0xff]).enumerate() {
        if low > 0xff {
            return None;
        }
        number |= ((states & 0xff) ^ low) << (8 * at);
        states = (states & !0xff | low).wrapping_mul(PRIME);
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_can_be_read_from_its_hash() {
        let spread = (0..200_000u64).map(|step| step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
        for number in (0..100_000).chain(spread).chain(u64::from(u32::MAX) - 1_000..1 << 32) {
            assert_eq!(unhash64(hash64(number)), Some(number));
        }
        // Numbers that are no hashes of four bytes.
        assert_eq!([0, 1, hash64(1 << 32), u64::MAX].map(unhash64), [None; 4]);
    }
}
