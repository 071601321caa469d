//! Keys of the examples that measure, and places of their values.

/// The key of a number.
pub(crate) fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut left = n;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    key
}

/// The finaliser of MurmurHash3.
pub(crate) fn scattered(n: u64) -> u64 {
    let n = (n ^ n >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let n = (n ^ n >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    n ^ n >> 33
}
