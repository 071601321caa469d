//! A sample of a store's own values, which a dictionary is trained on.

/// A sample has one value for so many of its bytes at most: the lists of small values would take more than they do.
pub(super) const SAMPLE_BYTES_PER_VALUE: usize = 32;
/// Of a value, at most this much goes into a sample.
pub(crate) const SAMPLE_VALUE_BYTES_MAX: usize = 4096;

/// Values one behind the other: as many allocations as values would take more than the values.
pub struct Sample {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Sample {
    /// One with room for about so many bytes.
    pub(crate) fn with_room(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes + SAMPLE_VALUE_BYTES_MAX),
            ends: Vec::with_capacity(bytes / SAMPLE_BYTES_PER_VALUE),
        }
    }

    /// Whether it has so many bytes, or as many values as they may have.
    pub(crate) fn is_full(&self, bytes: usize) -> bool {
        self.bytes.len() >= bytes || self.ends.len() >= bytes / SAMPLE_BYTES_PER_VALUE
    }

    /// Takes a value, unless it is empty.
    pub(crate) fn take(&mut self, value: &[u8]) {
        if !value.is_empty() {
            self.bytes.extend_from_slice(value);
            self.ends.push(self.bytes.len());
        }
    }

    /// The values, in the order in which they were taken.
    pub(crate) fn values(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}
