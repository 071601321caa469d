//! Errors of dictionaries of blocks.

use crate::format::Format;
use std::fmt;

/// The error of training a dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainError {
    /// The format knows no dictionaries of blocks.
    Format {
        /// The format.
        format: Format,
    },
    /// A dictionary of this size is too small to be of use.
    Size {
        /// Bytes asked for.
        max_bytes: usize,
        /// The least that makes sense.
        min_bytes: usize,
    },
    /// There are too few samples, or they have nothing in common.
    Samples {
        /// How many there are.
        samples: usize,
        /// Their bytes.
        bytes: usize,
        /// The trainer's message.
        reason: &'static str,
    },
    /// The program was built without the format.
    NotBuilt {
        /// The format.
        format: Format,
    },
    /// The trained dictionary does not load.
    Unusable,
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot train dictionary of blocks: ")?;
        match self {
            TrainError::Format { format } => write!(f, "format {format} has none"),
            TrainError::Size { max_bytes, min_bytes } => {
                write!(f, "{max_bytes} bytes allowed, at least {min_bytes} are needed")
            }
            TrainError::Samples { samples, bytes, reason } => {
                write!(
                    f,
                    "{samples} samples of {bytes} bytes together give none ({reason}): give more of them"
                )
            }
            TrainError::NotBuilt { format } => format.write_not_built(f),
            TrainError::Unusable => write!(f, "the library refuses what it trained"),
        }
    }
}

impl std::error::Error for TrainError {}

/// The error of making or loading a dictionary of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DictionaryError {
    /// The bytes do not begin with the signature.
    NotADictionary,
    /// This release does not read the version.
    Version {
        /// The version stored.
        version: u8,
    },
    /// The format is unknown, or has no dictionaries of blocks.
    Format {
        /// The format's number.
        number: u8,
    },
    /// The reserved field is not zero.
    Reserved {
        /// The value found.
        value: u16,
    },
    /// The checksum disagrees.
    Checksum {
        /// The checksum stored.
        stored: u32,
        /// The checksum of the bytes that were given.
        computed: u32,
    },
    /// The content is empty, too long for the format, or not as long as its header says.
    Length {
        /// The most bytes allowed, or the length that the header states.
        max: usize,
        /// The bytes there are.
        found: usize,
    },
    /// The program was built without the format.
    NotBuilt {
        /// The format.
        format: Format,
    },
    /// The content begins like a dictionary of the library, but the library refuses it.
    Refused {
        /// The format.
        format: Format,
    },
}

impl fmt::Display for DictionaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot load dictionary of blocks: ")?;
        match self {
            DictionaryError::NotADictionary => write!(f, "the bytes do not begin with its signature"),
            DictionaryError::Version { version } => {
                write!(f, "its version is {version}, this release reads version 1")
            }
            DictionaryError::Format { number } => write!(f, "format number {number} has none"),
            DictionaryError::Reserved { value } => write!(f, "the reserved field is {value}, not 0"),
            DictionaryError::Checksum { stored, computed } => {
                write!(f, "damaged: checksum {stored:#010x} stored, {computed:#010x} computed")
            }
            DictionaryError::Length { max, found } => {
                write!(f, "its content has {found} bytes, {max} at most were expected")
            }
            DictionaryError::NotBuilt { format } => format.write_not_built(f),
            DictionaryError::Refused { format } => write!(f, "the library of format {format} refuses it"),
        }
    }
}

impl std::error::Error for DictionaryError {}
