//! The values of options, from text: numbers, bytes, ratios, nodes.

use super::{NodeSet, Ratio};

/// Units of bytes; the longer names first, because the shorter ones end them.
const UNITS: [(&[u8], u64); 13] = [
    (b"kib", 1 << 10),
    (b"mib", 1 << 20),
    (b"gib", 1 << 30),
    (b"tib", 1 << 40),
    (b"kb", 1_000),
    (b"mb", 1_000_000),
    (b"gb", 1_000_000_000),
    (b"tb", 1_000_000_000_000),
    (b"k", 1 << 10),
    (b"m", 1 << 20),
    (b"g", 1 << 30),
    (b"t", 1 << 40),
    (b"b", 1),
];

/// A whole number, without a sign.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(text).ok()?;
    text.parse().ok().filter(|_| is_number)
}

/// A number of bytes, with or without a unit.
pub(super) fn bytes(text: &[u8]) -> Option<u64> {
    let unit = UNITS.iter().find(|(name, _)| {
        text.len() > name.len() && text[text.len() - name.len()..].eq_ignore_ascii_case(name)
    });
    let (name, scale) = unit.unwrap_or(&(b"", 1));
    number(text[..text.len() - name.len()].trim_ascii_end())?.checked_mul(*scale)
}

/// A number of bytes, or `none` for no limit.
pub(super) fn limit(text: &[u8]) -> Option<u64> {
    if text.eq_ignore_ascii_case(b"none") { Some(u64::MAX) } else { bytes(text) }
}

/// `yes` or `no`.
pub(super) fn yes(text: &[u8]) -> Option<bool> {
    match text {
        b"yes" => Some(true),
        b"no" => Some(false),
        _ => None,
    }
}

/// Two parts, with a colon or white space between them.
pub(super) fn ratio(text: &[u8]) -> Option<Ratio> {
    let colon = text.iter().position(|&byte| byte == b':');
    let middle = colon.or(text.iter().position(u8::is_ascii_whitespace))?;
    let part = |text: &[u8]| number(text.trim_ascii()).filter(|&part| part <= Ratio::PART_MAX.into());
    Ratio::of_word(part(&text[..middle])? << 32 | part(&text[middle + 1..])?)
}

/// Nodes and ranges of nodes, with `+` or commas between them: `1`, `1+3`, `2-5`.
pub(super) fn nodes(text: &[u8]) -> Option<NodeSet> {
    let mut nodes = NodeSet::default();
    for range in text.split(|byte| matches!(byte, b'+' | b',')) {
        let mut ends = range.splitn(2, |&byte| byte == b'-');
        let first = number(ends.next()?.trim_ascii())?;
        let last = ends.next().map_or(Some(first), |last| number(last.trim_ascii()))?;
        if first > last || last >= NodeSet::NODES.into() {
            return None;
        }
        (first..=last).for_each(|node| nodes.insert(node as u32));
    }
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_with_and_without_units() {
        let read =
            [("0", 0), ("64", 64), ("4KiB", 4096), ("4k", 4096), ("1 mb", 1_000_000), ("2GB", 2_000_000_000)];
        for (text, expected) in read {
            assert_eq!(bytes(text.as_bytes()), Some(expected), "{text}");
        }
        for text in ["", "k", "-1", "+1", "1.5GB", "1XB", "1 2", "16777216TiB", "18446744073709551616"] {
            assert_eq!(bytes(text.as_bytes()), None, "{text}");
        }
        assert_eq!(limit(b"none"), Some(u64::MAX));
        assert_eq!(limit(b"1k"), Some(1024));
    }

    #[test]
    fn ratios_have_two_parts() {
        for (text, dram, far) in [("1:3", 1, 3), ("1 3", 1, 3), ("0:1", 0, 1), ("65535 : 1", 65535, 1)] {
            assert_eq!(ratio(text.as_bytes()), Some(Ratio { dram, far }), "{text}");
        }
        for text in ["", "1", "1:", ":1", "0:0", "1:65536", "1:3:2", "1/3", "-1:3", "1.5:1", "4294967296:1"] {
            assert_eq!(ratio(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn nodes_are_numbers_and_ranges() {
        let found = |text: &str| nodes(text.as_bytes()).map(|set| set.iter().collect::<std::vec::Vec<_>>());
        assert_eq!(found("1"), Some([1].into()));
        assert_eq!(found("1+3-5"), Some([1, 3, 4, 5].into()));
        assert_eq!(found("1023, 0"), Some([0, 1023].into()));
        for text in ["", "1+", "5-3", "1024", "-1", "a", "0-18446744073709551615"] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
