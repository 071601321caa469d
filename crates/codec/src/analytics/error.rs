//! Why a request has no answer.

use std::fmt;

/// The error of an analytic operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnalyticsError {
    /// Elements have 1 to 32 bits.
    Width {
        /// The requested width.
        bits: u32,
    },
    /// The indices to extract are not in the column, or out of order.
    Range {
        /// First index.
        first: u32,
        /// Last index.
        last: u32,
        /// Elements of the column.
        count: u32,
    },
    /// A mask for a selection must have a bit for each element.
    MaskCount {
        /// Bits of the mask.
        bits: u32,
        /// Elements of the column.
        count: u32,
    },
    /// The mask has fewer bytes than its stated bits need.
    MaskTooShort {
        /// Bytes that the bits take.
        bytes_needed: u32,
    },
    /// The column has fewer bytes than its stated elements need, or decompresses to fewer.
    SourceTooShort {
        /// Bytes that the elements take.
        bytes_needed: u64,
    },
    /// The mask asks for more elements than the column has.
    TooFewElements {
        /// Bits that are set in the mask.
        ones: u32,
        /// Elements of the column.
        count: u32,
    },
    /// Elements of the output, or indices of ones, need more bits than requested.
    OutputTooNarrow {
        /// Bits of an element of the output.
        bits: u32,
    },
    /// The output would be longer than the caller allows.
    OutputFull {
        /// Bytes that the caller allows.
        bytes_max: usize,
    },
    /// The bytes are not a raw DEFLATE stream, or not of this length.
    Damaged {
        /// The position of the damage, in bytes from the beginning of the input.
        position: usize,
        /// The fault, in a few words.
        what: String,
    },
    /// The executor cannot work: its queue is lost, the job is larger than it takes, or its hardware failed.
    Executor {
        /// The executor's name.
        name: String,
        /// The attempt and the finding.
        reason: String,
    },
}

impl fmt::Display for AnalyticsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnalyticsError::Width { bits } => write!(f, "elements of {bits} bits: give 1 to 32"),
            AnalyticsError::Range { first, last, count } => {
                write!(f, "cannot extract elements {first} to {last} of a column of {count}")
            }
            AnalyticsError::MaskCount { bits, count } => {
                write!(f, "a mask of {bits} bits does not fit a column of {count} elements")
            }
            AnalyticsError::MaskTooShort { bytes_needed } => {
                write!(f, "the mask is too short: its bits take {bytes_needed} bytes")
            }
            AnalyticsError::SourceTooShort { bytes_needed } => {
                write!(f, "the column is too short: its elements take {bytes_needed} bytes")
            }
            AnalyticsError::TooFewElements { ones, count } => {
                write!(f, "the mask has {ones} ones, the column {count} elements")
            }
            AnalyticsError::OutputTooNarrow { bits } => {
                write!(f, "elements of the output do not fit {bits} bits")
            }
            AnalyticsError::OutputFull { bytes_max } => {
                write!(f, "the output does not fit {bytes_max} bytes")
            }
            AnalyticsError::Damaged { position, what } => {
                write!(f, "cannot decompress the column: {what} at byte {position}")
            }
            AnalyticsError::Executor { name, reason } => write!(f, "executor {name}: {reason}"),
        }
    }
}

impl std::error::Error for AnalyticsError {}
