//! From the bytes of a value to token numbers.
//!
//! All numbers are equally wide, so the best parse has the fewest tokens. Taking the longest token everywhere is not
//! optimal, because a shorter one may let a much longer one follow. Of the tokens at a position, the parse takes the
//! one that reaches furthest together with the longest token after it. On text and tables the result is within about 1
//! % of the optimum.

use super::TOKEN_BYTES_MAX;
use super::decode::Table;
use super::greedy::Greedy;
use super::matcher::{Matcher, window_bytes};
use std::hint::select_unpredictable;

/// Positions that are looked up side by side.
const LANES: usize = 4;

/// Shorter tokens that are tried at every position, the longest ones first. More gain less than 1 %.
const ALTERNATIVES: usize = 3;

/// How much time a parse may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// The longest token everywhere: for bytes that are written now and may be written again soon.
    Fast,
    /// Nearly the fewest tokens, in four times the time: for bytes that stay.
    #[default]
    Dense,
}

/// Scratch for encoding: one per thread, for any dictionary, so that no call allocates once it has grown.
#[derive(Debug, Default)]
pub struct Encoder {
    /// The value, and zeros behind it, so that a window can be loaded at every position.
    padded: Vec<u8>,
    /// For every position the longest token that begins there.
    longest: Vec<u16>,
    /// The lengths of these tokens.
    lengths: Vec<u8>,
    numbers: Vec<u16>,
    greedy: Greedy,
    /// The numbers of all rows of a block.
    joined: Vec<u16>,
}

impl Encoder {
    /// An encoder that has allocated nothing yet.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Bytes of heap that the scratch holds: about six per byte of the longest value, and three per byte of the largest
    /// fast group.
    pub fn memory_bytes(&self) -> usize {
        self.padded.capacity()
            + self.lengths.capacity()
            + (self.longest.capacity() + self.numbers.capacity() + self.joined.capacity()) * size_of::<u16>()
            + self.greedy.memory_bytes()
    }

    /// An empty list that has grown before, for numbers of several values.
    pub(super) fn take_joined(&mut self) -> Vec<u16> {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined
    }

    /// Keeps the list for the next block.
    pub(super) fn give_back_joined(&mut self, joined: Vec<u16>) {
        self.joined = joined;
    }

    /// The token numbers of a value.
    pub(super) fn parse(&mut self, table: &Table, matcher: &Matcher, value: &[u8]) -> &[u16] {
        self.padded.clear();
        self.padded.extend_from_slice(value);
        self.padded.extend_from_slice(&[0; TOKEN_BYTES_MAX + LANES]);
        self.find_longest(table, matcher, value.len());
        self.choose(table, matcher, value.len());
        &self.numbers
    }

    /// The token numbers of each value of a group, by the fast parse.
    pub(super) fn parse_fast(
        &mut self,
        table: &Table,
        matcher: &Matcher,
        values: &[&[u8]],
    ) -> impl Iterator<Item = &[u16]> {
        self.greedy.parse(table, matcher, values)
    }

    fn find_longest(&mut self, table: &Table, matcher: &Matcher, len: usize) {
        // Whole groups of lanes; what is found past the end is cut off.
        self.longest.clear();
        self.lengths.clear();
        let groups = self.padded.windows(window_bytes(LANES)).step_by(LANES);
        for bytes in groups.take(len.div_ceil(LANES)) {
            let found = matcher.longest::<LANES>(bytes);
            self.longest.extend_from_slice(&found);
            self.lengths.extend(found.map(|number| table.length(number) as u8));
        }
        self.longest.truncate(len);
        self.lengths.truncate(len);
        // No token reaches past the end, whatever the padding looks like.
        let ends = self.longest.iter_mut().zip(&mut self.lengths).rev();
        for (left, (number, length)) in (1..TOKEN_BYTES_MAX as u8).zip(ends) {
            while *length > left {
                *number = matcher.shorter(*number);
                *length = table.length(*number) as u8;
            }
        }
        // The end of the value counts like a longest token; a token cannot reach further than this.
        self.lengths.extend_from_slice(&[TOKEN_BYTES_MAX as u8; TOKEN_BYTES_MAX]);
    }

    fn choose(&mut self, table: &Table, matcher: &Matcher, len: usize) {
        self.numbers.clear();
        let mut at = 0;
        while at < len {
            let next = &self.lengths[at..at + TOKEN_BYTES_MAX + 1];
            let mut best = self.longest[at];
            let mut length = usize::from(next[0]);
            let mut reach = length + usize::from(next[length & 31]);
            let mut candidate = best;
            for _ in 0..ALTERNATIVES {
                // A single byte is its own alternative, and no better than itself.
                candidate = matcher.shorter(candidate);
                let candidate_length = table.length(candidate);
                let candidate_reach = candidate_length + usize::from(next[candidate_length & 31]);
                let better = candidate_reach > reach;
                best = select_unpredictable(better, candidate, best);
                length = select_unpredictable(better, candidate_length, length);
                reach = select_unpredictable(better, candidate_reach, reach);
            }
            self.numbers.push(best);
            at += length;
        }
    }
}
