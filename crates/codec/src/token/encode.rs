//! [`Encoder`]: the scratch of encoding, and the efforts.

use super::matcher::Matcher;
use super::parse::{Farthest, Longest, Parser};
use crate::scratch::trim;
use std::collections::TryReserveError;

/// How much time a parse may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// The longest token everywhere: for bytes that are written now and may be written again soon.
    Fast,
    /// Nearly the fewest tokens, in twice the time: for bytes that stay.
    #[default]
    Dense,
}

/// Scratch for encoding: one per thread, for any dictionary, so that no call allocates once it has grown. A buffer that
/// a long value or a long group makes larger than a MiB is given back.
#[derive(Debug, Default)]
pub struct Encoder {
    parser: Parser,
    /// The numbers of all rows of a block.
    joined: Vec<u16>,
}

impl Encoder {
    /// An encoder that has allocated nothing yet.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Bytes of heap that the scratch holds: about three per byte of the largest group and 150 per value of it, or up
    /// to five per byte of the longest value and 80 KB for cutting it.
    pub fn memory_bytes(&self) -> usize {
        self.parser.memory_bytes() + self.joined.capacity() * size_of::<u16>()
    }

    /// An empty list that has grown before, for numbers of several values.
    pub(super) fn take_joined(&mut self) -> Vec<u16> {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined
    }

    /// Keeps the list for the next block, unless a long block has used it.
    pub(super) fn give_back_joined(&mut self, mut joined: Vec<u16>) {
        trim(&mut joined);
        self.joined = joined;
    }

    /// Gets all memory that [`parse`](Self::parse) takes for these values, or says that it was refused.
    pub(super) fn try_reserve(&mut self, values: &[&[u8]]) -> Result<(), TryReserveError> {
        self.parser.try_reserve(values)
    }

    /// Gives the token numbers of each value to `take`.
    pub(super) fn parse(
        &mut self,
        matcher: &Matcher,
        effort: Effort,
        values: &[&[u8]],
        take: impl FnMut(&[u16]),
    ) {
        match effort {
            Effort::Fast => self.parser.parse::<Longest>(matcher, values, take),
            Effort::Dense => self.parser.parse::<Farthest>(matcher, values, take),
        }
        self.parser.trim();
    }
}
