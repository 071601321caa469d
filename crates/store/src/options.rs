//! What a store is opened with.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The smallest memory limit a store accepts: below this its own structures would crowd out the data.
pub const MEMORY_LIMIT_BYTES_MIN: u64 = 1 << 20;

/// The largest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The largest value, in bytes.
pub const VALUE_BYTES_MAX: u64 = 512 << 20;

/// How bodies are coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecChoice {
    /// Every body takes the form that a measured trade of bytes against nanoseconds gives it.
    #[default]
    Auto,
    /// Bodies stay raw.
    None,
    /// Values are coded by tokens wherever that saves a byte, and hot leaves are not heated.
    Token,
}

impl FromStr for CodecChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            "token" => Ok(Self::Token),
            _ => Err(Error::UnknownCodec { name: name.to_owned() }),
        }
    }
}

impl fmt::Display for CodecChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Token => "token",
        })
    }
}

/// How to open a [`Store`](crate::Store). `Options::default()` serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory the store may hold, as [`MemoryUse::total_bytes`](crate::MemoryUse::total_bytes) counts
    /// them; `None` means no limit. At the limit writes are refused, and nothing is lost.
    pub memory_limit_bytes: Option<u64>,
    /// How bodies are coded.
    pub codec: CodecChoice,
    /// Bytes of a leaf's landing, 256 to 65,536: larger means fewer merges and more uncompressed bytes.
    pub landing_bytes: usize,
    /// Threads that settle, recode, heat, train dictionaries and, with `background_packing`, pack; 0 leaves
    /// everything but packs to [`Store::settle`](crate::Store::settle).
    pub background_threads: usize,
    /// Whether full landings are packed by the background threads. Otherwise the writer that fills one packs it:
    /// its bytes are in that core's cache, so that a write costs about half the CPU time.
    pub background_packing: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_limit_bytes: None,
            codec: CodecChoice::Auto,
            landing_bytes: 768,
            background_threads: 1,
            background_packing: false,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(limit_bytes) = self.memory_limit_bytes
            && limit_bytes < MEMORY_LIMIT_BYTES_MIN
        {
            return Err(Error::LimitTooSmall { limit_bytes, min_bytes: MEMORY_LIMIT_BYTES_MIN });
        }
        if !(256..=65_536).contains(&self.landing_bytes) {
            return Err(Error::LandingOutOfRange { bytes: self.landing_bytes });
        }
        if self.background_threads > 64 {
            return Err(Error::TooManyThreads { threads: self.background_threads });
        }
        Ok(())
    }
}
