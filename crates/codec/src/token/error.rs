//! Errors of dictionaries and coded values.

use std::fmt;

/// The error of training a dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainError {
    /// Token numbers of this width are not supported.
    Bits {
        /// The width asked for.
        bits: u32,
    },
    /// The tokens found have no index. Only crafted samples can cause this.
    Unindexable,
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainError::Bits { bits } => {
                write!(f, "cannot train a token dictionary of {bits} bits: choose 10 to 16")
            }
            TrainError::Unindexable => write!(f, "cannot train a token dictionary: its tokens have no index"),
        }
    }
}

impl std::error::Error for TrainError {}

/// The error of loading a stored dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DictionaryError {
    /// The bytes do not begin like a token dictionary.
    NotADictionary,
    /// A version that this release does not know.
    Version {
        /// The version found.
        version: u8,
    },
    /// The bytes end before the dictionary does, or go on after it.
    Length {
        /// Bytes that the header promises.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// The checksum disagrees: the bytes are damaged.
    Checksum {
        /// The checksum stored.
        stored: u32,
        /// The checksum of the bytes that were given.
        computed: u32,
    },
    /// A field has a value that no dictionary has.
    Field {
        /// Which field.
        name: &'static str,
        /// The value found.
        value: u64,
    },
    /// One of the 256 single bytes is no token, so that not every value could be coded.
    MissingByte {
        /// The byte that is missing.
        byte: u8,
    },
    /// Two tokens have the same bytes.
    Duplicate {
        /// The number of the second one.
        token: usize,
    },
    /// The encoder's index of the tokens would have more slots than there are. Only crafted tokens, which share no
    /// beginnings, need so many.
    TooLarge {
        /// Slots that the tokens need.
        slots: usize,
        /// Slots that an index may have.
        slots_max: usize,
    },
}

impl fmt::Display for DictionaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot load token dictionary: ")?;
        match self {
            DictionaryError::NotADictionary => write!(f, "the bytes do not begin with its signature"),
            DictionaryError::Version { version } => {
                write!(f, "its version is {version}, this release reads version 1")
            }
            DictionaryError::Length { expected, found } => {
                write!(f, "{expected} bytes expected, {found} found")
            }
            DictionaryError::Checksum { stored, computed } => {
                write!(f, "damaged: checksum {stored:#010x} stored, {computed:#010x} computed")
            }
            DictionaryError::Field { name, value } => write!(f, "{name} is {value}, out of range"),
            DictionaryError::MissingByte { byte } => write!(f, "no token for the single byte {byte:#04x}"),
            DictionaryError::Duplicate { token } => write!(f, "token {token} repeats an earlier one"),
            DictionaryError::TooLarge { slots, slots_max } => {
                write!(f, "the index of its tokens takes {slots} slots, of {slots_max} that it may have")
            }
        }
    }
}

impl std::error::Error for DictionaryError {}

/// The error of loading stored codes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodesError {
    /// The bytes do not begin like codes.
    NotCodes,
    /// A version that this release does not know.
    Version {
        /// The version found.
        version: u8,
    },
    /// The checksum disagrees: the bytes are damaged.
    Checksum {
        /// The checksum stored.
        stored: u32,
        /// The checksum of the bytes that were given.
        computed: u32,
    },
    /// The codes are those of another dictionary.
    OtherDictionary,
    /// The bytes end before the codes do, or go on after them.
    Length,
    /// The bits behind the last context are not zero.
    Padding,
    /// The code of a context is incomplete, has more than one escape or none, or names a token that the dictionary does
    /// not have.
    NoCode {
        /// The context.
        context: usize,
    },
}

impl fmt::Display for CodesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot load codes of tokens: ")?;
        match self {
            CodesError::NotCodes => write!(f, "the bytes do not begin with their signature"),
            CodesError::Version { version } => {
                write!(f, "their version is {version}, this release reads version 1")
            }
            CodesError::Checksum { stored, computed } => {
                write!(f, "damaged: checksum {stored:#010x} stored, {computed:#010x} computed")
            }
            CodesError::OtherDictionary => write!(f, "they are those of another dictionary"),
            CodesError::Length => write!(f, "their length is wrong"),
            CodesError::Padding => write!(f, "the bits behind the last context are not zero"),
            CodesError::NoCode { context } => write!(f, "context {context} has no complete code"),
        }
    }
}

impl std::error::Error for CodesError {}

/// The error of decoding a value: the bytes are damaged, hostile, or of another dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// No value has a coded form of this length.
    Length {
        /// Coded bytes that were given.
        coded_bytes: usize,
    },
    /// The check disagrees with the coded bytes or with the dictionary.
    Check {
        /// The check stored.
        stored: u16,
        /// The check of the bytes that were given.
        computed: u16,
    },
    /// The bits that fill the last byte are not zero.
    Padding,
    /// A token number that the dictionary does not have.
    Token {
        /// Its place in the run of token numbers, from 0.
        position: usize,
        /// The number.
        number: u32,
    },
    /// The value is entropy-coded, and the dictionary was given no codes.
    NoCodes,
    /// The value is longer than the caller allows.
    TooLong {
        /// Bytes of the value.
        raw_bytes: usize,
        /// Bytes that the caller allows.
        max_bytes: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot decode token-coded value: ")?;
        match self {
            DecodeError::Length { coded_bytes } => {
                write!(f, "{coded_bytes} bytes are no whole number of tokens and a check")
            }
            DecodeError::Check { stored, computed } => {
                write!(
                    f,
                    "check {stored:#06x} stored, {computed:#06x} computed: damaged, or another dictionary's"
                )
            }
            DecodeError::Padding => write!(f, "the last bits are not zero"),
            DecodeError::Token { position, number } => {
                write!(f, "token {position} has the number {number}, which the dictionary lacks")
            }
            DecodeError::NoCodes => write!(f, "it is entropy-coded, and the dictionary has no codes"),
            DecodeError::TooLong { raw_bytes, max_bytes } => {
                write!(f, "it has {raw_bytes} bytes, {max_bytes} are allowed")
            }
        }
    }
}

impl std::error::Error for DecodeError {}
