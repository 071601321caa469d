//! Decimal integers as the protocol writes them: no sign but `-`, no leading zeros, no blanks. And bytes as settings
//! write them.
//!
//! Lengths, counters and options all follow the first rule, so that `SET n 007` stays text for `INCR`.

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

/// A number of bytes as Redis writes it: 100, 100b, 1k (1000), 1kb (1024) and so on; nothing is 0.
pub(crate) fn bytes_said(value: &[u8]) -> Option<u64> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = value.split_at(digits);
    let scale = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let number = if value.is_empty() { "0" } else { std::str::from_utf8(number).ok()? };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::{bytes_said, strict_i64};

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

    #[test]
    fn bytes_are_read_as_redis_reads_it() {
        for (text, bytes) in [
            ("", Some(0)),
            ("0", Some(0)),
            ("100", Some(100)),
            ("10b", Some(10)),
            ("1k", Some(1_000)),
            ("1Kb", Some(1_024)),
            ("1M", Some(1_000_000)),
            ("3mb", Some(3 << 20)),
            ("2G", Some(2_000_000_000)),
            ("2gb", Some(2 << 30)),
            ("1tb", None),
            ("1MiB", None),
            ("1.5gb", None),
            ("-1", None),
            ("gb", None),
            ("99999999999999999999", None),
            ("99999999999999gb", None),
        ] {
            assert_eq!(bytes_said(text.as_bytes()), bytes, "{text}");
        }
    }
}
