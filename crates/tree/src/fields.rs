//! Reads fields out of bytes that may be anything: a field that is not there is `None`.

use crate::numbers::checked_varint;

/// Why bytes of a file cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// They are damaged: the expectation and the finding.
    Damaged(String),
    /// They are whole, and of another version than this program reads. No salvage may leave them out.
    Version(String),
}

impl From<String> for FormatError {
    fn from(reason: String) -> Self {
        Self::Damaged(reason)
    }
}

impl From<&str> for FormatError {
    fn from(reason: &str) -> Self {
        Self::Damaged(reason.to_owned())
    }
}

impl From<FormatError> for String {
    fn from(fault: FormatError) -> Self {
        match fault {
            FormatError::Damaged(reason) | FormatError::Version(reason) => reason,
        }
    }
}

/// The rest of some bytes.
#[derive(Clone, Copy, Debug)]
pub struct FieldReader<'a>(pub &'a [u8]);

impl<'a> FieldReader<'a> {
    /// Takes the next `count` bytes; `None` if fewer are left, and then takes none.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Takes one byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// Takes a little-endian number of 2 bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes a little-endian number of 4 bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes a little-endian number of 8 bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A little-endian base-128 number below 2^32.
    pub fn varint(&mut self) -> Option<u32> {
        let (value, rest) = checked_varint(self.0)?;
        self.0 = rest;
        Some(value)
    }

    /// Bytes behind their number, which is a varint.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let count = self.varint()?;
        self.bytes(count as usize)
    }

    /// Whether no byte is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
