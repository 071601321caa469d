//! Errors of blocks.

use crate::format::Format;
use std::fmt;

/// The error of packing or unpacking a block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// The bytes are not a block of this format and length.
    Damaged {
        /// The expected format.
        format: Format,
        /// The position of the damage, in bytes from the beginning of the input.
        position: usize,
        /// The fault, in a few words.
        what: &'static str,
    },
    /// The checksum of a frame disagrees.
    Checksum {
        /// The checksum stored.
        stored: u32,
        /// The checksum of the bytes that were given.
        computed: u32,
    },
    /// The block would be longer than the caller allows.
    TooLong {
        /// Bytes of the block.
        raw_bytes: usize,
        /// Bytes that the caller allows.
        max_bytes: usize,
    },
    /// The frame has another format than this engine reads.
    WrongFormat {
        /// The number of the format in the frame.
        found: u8,
        /// The format that the engine reads.
        engine: Format,
    },
    /// The engine cannot work: no device, no permission, or a fault that a retry does not cure.
    Engine {
        /// The engine's name.
        engine: &'static str,
        /// The attempt and the finding.
        reason: String,
    },
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockError::Damaged { format, position, what } => {
                write!(f, "cannot unpack block of format {format}: {what} at byte {position}")
            }
            BlockError::Checksum { stored, computed } => {
                write!(f, "cannot unpack block: checksum {stored:#010x} stored, {computed:#010x} computed")
            }
            BlockError::TooLong { raw_bytes, max_bytes } => {
                write!(f, "cannot unpack block: it has {raw_bytes} bytes, {max_bytes} are allowed")
            }
            BlockError::WrongFormat { found, engine } => {
                write!(
                    f,
                    "cannot unpack block: it has format number {found}, this engine reads {engine} and none"
                )
            }
            BlockError::Engine { engine, reason } => write!(f, "engine {engine}: {reason}"),
        }
    }
}

impl std::error::Error for BlockError {}
