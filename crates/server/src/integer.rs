//! Decimal integers as the protocol writes them: no sign but `-`, no leading zeros, no blanks.
//!
//! Lengths, counters and options all follow this one rule, so that `SET n 007` stays text for `INCR`.

/// The value of `text`, if it is written exactly as [`i64`] prints it.
pub(crate) fn strict_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        // 19 digits fit a u64 whatever they are; 20 never fit an i64.
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value = 0u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

#[cfg(test)]
mod tests {
    use super::strict_i64;

    #[test]
    fn accepts_what_i64_prints_and_nothing_else() {
        for value in [0, 1, -1, 42, 1_000_000_007, i64::MAX, i64::MIN] {
            assert_eq!(strict_i64(value.to_string().as_bytes()), Some(value));
        }
        for text in ["", "-", "-0", "00", "007", "+1", " 1", "1 ", "1.0", "9223372036854775808"] {
            assert_eq!(strict_i64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(strict_i64(b"-9223372036854775809"), None);
        assert_eq!(strict_i64(b"18446744073709551617"), None);
    }
}
