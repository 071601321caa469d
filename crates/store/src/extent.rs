//! Where bytes lie in the files of a medium.

/// A run of bytes in a segment file. The files that gave an extent find its bytes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Extent {
    /// The number of the file.
    pub(crate) segment: u64,
    /// The offset in the file.
    pub(crate) offset: u32,
    /// Its bytes.
    pub(crate) bytes: u32,
}
