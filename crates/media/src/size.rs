//! Numbers of bytes as people write them, with a unit.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
///
/// ```
/// use ziptier_media::size::ByteSize;
///
/// assert_eq!("64MiB".parse(), Ok(ByteSize(64 << 20)));
/// assert_eq!(ByteSize(64 << 20).to_string(), "64 MiB");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// Names of units; the longer ones first, because the shorter ones end them.
const UNITS: [(&str, u64); 13] = [
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.trim().to_ascii_uppercase();
        let unit = UNITS.iter().find_map(|(name, scale)| upper.strip_suffix(name).map(|rest| (rest, *scale)));
        let (digits, scale) = unit.unwrap_or((&upper, 1));
        let bytes = digits.trim_end().parse::<u64>().ok().and_then(|count| count.checked_mul(scale));
        bytes
            .map(ByteSize)
            .ok_or_else(|| "write a whole number of bytes, such as 512MiB, 2GB or 1000000".to_owned())
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 64 MB is 62500 KiB, too, which nobody writes.
        const SHOWN: [(&str, u64); 5] =
            [("GiB", 1 << 30), ("MiB", 1 << 20), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KiB", 1 << 10)];
        for (name, scale) in SHOWN {
            if self.0 >= scale && self.0.is_multiple_of(scale) {
                return write!(f, "{} {name}", self.0 / scale);
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::ByteSize;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("64MiB", 64 << 20),
            ("64 mib", 64 << 20),
            ("1GB", 1_000_000_000),
            ("1g", 1 << 30),
            ("12B", 12),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5GB", "1XB", "99999999999TB", "1 2"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        assert_eq!(ByteSize(64 << 20).to_string(), "64 MiB");
        assert_eq!(ByteSize(64_000_000).to_string(), "64 MB");
        assert_eq!(ByteSize(100 << 10).to_string(), "100 KiB");
        assert_eq!(ByteSize(1_000_001).to_string(), "1000001 bytes");
    }
}
