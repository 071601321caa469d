//! The reader of a value in pieces, so that the server need not hold a large value whole.

use super::BackendError;

/// A value as it was at opening, however often its key is written meanwhile.
///
/// The server sends values above a few hundred KiB through it, piece by piece between other clients' requests.
pub trait ValueReader: Send {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether the value has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the store holds only for readers of this value, because no key has it any more. Each of
    /// several readers returns its share.
    fn own_bytes(&self) -> usize {
        0
    }

    /// Appends bytes `offset..offset + len` to `out`; both ends lie within the value.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be read. The server then closes the connection, because the reply has begun.
    fn read_at(&mut self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), BackendError>;
}

/// A whole value in memory is the simplest reader.
impl ValueReader for Vec<u8> {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&mut self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), BackendError> {
        Borrowed(self).read_at(offset, len, out)
    }
}

/// A whole value in somebody else's memory.
#[derive(Debug, Clone, Copy)]
pub struct Borrowed<'a>(pub &'a [u8]);

impl ValueReader for Borrowed<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&mut self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), BackendError> {
        let from = offset as usize;
        let bytes = self.0.get(from..from + len);
        out.extend_from_slice(
            bytes.ok_or_else(|| BackendError::Refused("read beyond a value's end".into()))?,
        );
        Ok(())
    }
}
