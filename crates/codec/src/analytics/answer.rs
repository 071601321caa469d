//! The answer of an executor, beside the output.

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Elements of the output: bits, integers, or indices.
    pub count: u32,
    /// Bytes that were appended.
    pub bytes: usize,
    /// The figures counted on the way.
    pub aggregates: Aggregates,
}

/// The figures counted on the way, for the output in its nominal form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregates {
    /// The figures of a bit vector, also if the output is its indices.
    Bits {
        /// How many bits are set.
        ones: u32,
        /// The index of the first one.
        first: Option<u32>,
        /// The index of the last one.
        last: Option<u32>,
    },
    /// Of integers.
    Integers {
        /// The smallest one, 0 if there is none.
        min: u32,
        /// The largest one, 0 if there is none.
        max: u32,
        /// The sum modulo 2^32, the range of a device's counter.
        sum: u32,
    },
}
