//! The names of the formats: what the bytes are, whoever makes them.
//!
//! A format is recorded with what was written in it. Who does the work (an *engine*, see [`crate::block`]) may change
//! between writing and reading.

use std::fmt;
use std::str::FromStr;

/// A format of stored bytes.
///
/// ```
/// use ziptier_codec::format::Format;
/// assert_eq!("token".parse(), Ok(Format::Token));
/// assert_eq!(Format::None.to_string(), "none");
/// let error = "tokne".parse::<Format>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown format \"tokne\": choose one of none, token");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Format {
    /// The bytes themselves.
    None,
    /// A run of token numbers from a shared dictionary, each value alone: see [`crate::token`].
    Token,
}

impl Format {
    /// Every format, in the order in which they are listed to people.
    pub const ALL: &[Format] = &[Format::None, Format::Token];

    /// The name that is used on every surface: options, tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Format::None => "none",
            Format::Token => "token",
        }
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
    fn unknown_names_list_the_known_ones() {
        let error = "Token".parse::<Format>().unwrap_err().to_string();
        assert!(error.contains("\"Token\"") && error.contains("none, token"), "{error}");
    }
}
