//! Bounds on the bytes of keys, of values, and of the parts of large values.

/// The largest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The largest value, in bytes.
pub const VALUE_BYTES_MAX: u64 = 512 << 20;

/// Values up to this many bytes live in their leaf.
pub const INLINE_BYTES_MAX: usize = 2048;

/// Raw bytes of a chunk: what a read at an offset decodes at most beyond what it was asked for.
pub const CHUNK_BYTES: usize = 64 << 10;
