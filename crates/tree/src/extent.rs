//! Where bytes lie in the files of a medium.

/// A run of bytes in a segment file. The medium that made an extent finds the bytes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The number of the file.
    pub segment: u64,
    /// The offset in the file.
    pub offset: u32,
    /// Bytes of the contents, without the medium's head.
    pub bytes: u32,
}
