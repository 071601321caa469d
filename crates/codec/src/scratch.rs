//! Memory that codecs keep between two calls.

/// A context keeps no more scratch than this.
pub(crate) const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Gives the memory back that a long block took.
pub(crate) fn trim<T>(scratch: &mut Vec<T>) {
    if scratch.capacity() * size_of::<T>() > SCRATCH_BYTES_MAX {
        *scratch = Vec::new();
    }
}
