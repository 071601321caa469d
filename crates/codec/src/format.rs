//! The names of the formats. A format defines the bytes, whichever engine makes them.
//!
//! The format is recorded with the bytes. The *engine* (see [`crate::block`]) may change between writing and reading.

use std::fmt;
use std::str::FromStr;

/// A format of stored bytes.
///
/// ```
/// use ziptier_codec::format::Format;
/// assert_eq!("token".parse(), Ok(Format::Token));
/// assert_eq!(Format::None.to_string(), "none");
/// let error = "tokne".parse::<Format>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown format \"tokne\": choose one of none, token, lz4, zstd, deflate");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Format {
    /// The bytes themselves.
    None,
    /// A run of token numbers from a shared dictionary, each value alone: see [`crate::token`].
    Token,
    /// Blocks of LZ4, without its frame: see [`crate::block::lz4`].
    Lz4,
    /// Blocks of Zstandard, each a frame without the fields that the store knows: see [`crate::block::zstd`].
    Zstd,
    /// Raw DEFLATE (RFC 1951) with a window of at most 4 KiB: see [`crate::block::libdeflate`] and
    /// [`crate::block::zlib`].
    Deflate,
}

impl Format {
    /// Every format, in the order in which they are listed to people.
    pub const ALL: &[Format] = &[Format::None, Format::Token, Format::Lz4, Format::Zstd, Format::Deflate];

    /// Whether this program can read and write the format: the blocks of each are a Cargo feature of its name.
    pub fn is_built(self) -> bool {
        match self {
            Format::None | Format::Token => true,
            Format::Lz4 => cfg!(feature = "lz4"),
            Format::Zstd => cfg!(feature = "zstd"),
            Format::Deflate => cfg!(feature = "deflate"),
        }
    }

    pub(crate) fn write_not_built(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the program was built without format {self}: build it with the feature {self} of ziptier")
    }

    /// The name that is used on every surface: options, tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Format::None => "none",
            Format::Token => "token",
            Format::Lz4 => "lz4",
            Format::Zstd => "zstd",
            Format::Deflate => "deflate",
        }
    }

    /// The number that stands for the format in stored bytes. It never changes.
    pub fn number(self) -> u8 {
        match self {
            Format::None => 0,
            Format::Token => 1,
            Format::Lz4 => 2,
            Format::Zstd => 3,
            Format::Deflate => 4,
        }
    }

    /// The format of a stored number.
    pub fn from_number(number: u8) -> Option<Format> {
        Format::ALL.iter().copied().find(|format| format.number() == number)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Format::ALL.iter().copied().find(|format| format.name() == name);
        found.ok_or_else(|| UnknownFormat { name: name.to_owned() })
    }
}

/// The error of parsing a [`Format`] from a name that none has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFormat {
    name: String,
}

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
        write!(f, "unknown format {:?}: choose one of {}", self.name, names.join(", "))
    }
}

impl std::error::Error for UnknownFormat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for &format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
    }

    #[test]
    fn numbers_stay_what_they_are() {
        let numbers: Vec<_> = Format::ALL.iter().map(|format| (format.number(), format.name())).collect();
        assert_eq!(numbers, [(0, "none"), (1, "token"), (2, "lz4"), (3, "zstd"), (4, "deflate")]);
        assert_eq!(Format::from_number(4), Some(Format::Deflate));
        assert_eq!(Format::from_number(5), None);
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let error = "Token".parse::<Format>().unwrap_err().to_string();
        assert!(error.contains("\"Token\"") && error.contains("none, token"), "{error}");
    }
}
