//! Errors of compressed blocks.

use std::fmt;

/// The error of decompressing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// The position of the fault, in bytes from the beginning of the input.
    pub position: usize,
    /// The fault.
    pub fault: Fault,
}

/// The fault of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The input ends inside the stream.
    InputEnds,
    /// Bytes follow after the stream.
    BytesAfterEnd,
    /// The output would be longer than the caller allows.
    OutputTooLong,
    /// A block of the fourth type, which does not exist.
    BlockType,
    /// The two lengths of a stored block disagree.
    StoredLength,
    /// A header states more than 286 codes for literals and lengths, or more than 30 for distances.
    TooManyCodes,
    /// A header repeats the length before the first one, or beyond the last one.
    Repeat,
    /// A code has more symbols than fit.
    OverSubscribed,
    /// A code has fewer symbols than it must.
    Incomplete,
    /// A code cannot end the block.
    NoEndOfBlock,
    /// Bits that are no literal or length.
    Symbol,
    /// Bits that are no distance.
    Distance,
    /// A distance beyond the window of 4 KiB.
    BeyondWindow,
    /// A distance to before the beginning of the data and of the history.
    BeforeStart,
}

impl Fault {
    /// The fault in a few words.
    pub fn what(self) -> &'static str {
        match self {
            Fault::InputEnds => "the input ends",
            Fault::BytesAfterEnd => "bytes after the last block",
            Fault::OutputTooLong => "more bytes than allowed",
            Fault::BlockType => "an unknown type of block",
            Fault::StoredLength => "lengths of a stored block that disagree",
            Fault::TooManyCodes => "too many codes",
            Fault::Repeat => "a repeated code length out of place",
            Fault::OverSubscribed => "an over-subscribed code",
            Fault::Incomplete => "an incomplete code",
            Fault::NoEndOfBlock => "no code for the end of the block",
            Fault::Symbol => "an undefined literal or length",
            Fault::Distance => "an undefined distance",
            Fault::BeyondWindow => "a distance beyond the window",
            Fault::BeforeStart => "a distance to before the start",
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot decompress deflate block: {} at byte {}", self.fault.what(), self.position)
    }
}

impl std::error::Error for DecodeError {}
