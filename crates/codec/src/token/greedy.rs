//! The fast parse: the longest token everywhere, several values side by side.
//!
//! A greedy walk reads one position per token, not every position, but each step waits for the one before it. So the
//! parse walks several values of a group at once, and their steps overlap. On text it takes a quarter of the time of
//! the parse in [`super::encode`] and needs about 3 % more tokens.

use super::TOKEN_BYTES_MAX;
use super::decode::Table;
use super::matcher::Matcher;

/// Values that are parsed side by side, in a large group and in a small one. (12 are no faster than 8; a lane without a
/// value costs as much as one with a value.)
const LANES: usize = 8;
const FEW_LANES: usize = 4;

/// Scratch of the fast parse, kept from group to group.
#[derive(Debug, Default)]
pub(super) struct Greedy {
    /// All values, zeros behind each, so that a walk from any position stays within.
    padded: Vec<u8>,
    /// The numbers of each value, from where it starts in `padded`: a value has no more tokens than bytes.
    numbers: Vec<u16>,
    /// Start in `padded` and numbers of each value.
    values: Vec<(usize, usize)>,
}

/// A value that is being parsed.
#[derive(Clone, Copy, Default)]
struct Lane {
    value: usize,
    at: usize,
    end: usize,
    number_at: usize,
}

impl Greedy {
    /// Bytes of heap that the scratch holds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.padded.capacity()
            + self.numbers.capacity() * size_of::<u16>()
            + self.values.capacity() * size_of::<(usize, usize)>()
    }

    /// The token numbers of each value, in the order of `values`.
    pub(super) fn parse(
        &mut self,
        table: &Table,
        matcher: &Matcher,
        values: &[&[u8]],
    ) -> impl Iterator<Item = &[u16]> {
        self.padded.clear();
        self.values.clear();
        for value in values {
            self.values.push((self.padded.len(), 0));
            self.padded.extend_from_slice(value);
            self.padded.extend_from_slice(&[0; TOKEN_BYTES_MAX]);
        }
        self.numbers.resize(self.padded.len().max(self.numbers.len()), 0);
        // A lane without a value walks along some zeros.
        let idle = self.padded.len();
        self.padded.extend_from_slice(&[0; TOKEN_BYTES_MAX]);
        match values.len() < LANES {
            true => self.walk::<FEW_LANES>(table, matcher, values, idle),
            false => self.walk::<LANES>(table, matcher, values, idle),
        }
        self.values.iter().map(|&(start, count)| &self.numbers[start..start + count])
    }

    fn walk<const N: usize>(&mut self, table: &Table, matcher: &Matcher, values: &[&[u8]], idle: usize) {
        let mut next = 0;
        let mut lanes = [Lane { at: idle, ..Lane::default() }; N];
        let mut busy = 0;
        for lane in &mut lanes {
            busy += usize::from(self.begin(values, &mut next, lane));
        }
        while busy > 0 {
            let found = matcher.longest_at(&self.padded, lanes.map(|lane| lane.at));
            for (lane, mut number) in lanes.iter_mut().zip(found) {
                if lane.at == idle {
                    continue;
                }
                let mut length = table.length(number);
                while length > lane.end - lane.at {
                    number = matcher.shorter(number);
                    length = table.length(number);
                }
                self.numbers[lane.number_at] = number;
                lane.number_at += 1;
                lane.at += length;
                if lane.at == lane.end {
                    let (start, count) = &mut self.values[lane.value];
                    *count = lane.number_at - *start;
                    if !self.begin(values, &mut next, lane) {
                        lane.at = idle;
                        busy -= 1;
                    }
                }
            }
        }
    }

    /// Gives `lane` the next value that is not empty; `false` when there is none.
    fn begin(&self, values: &[&[u8]], next: &mut usize, lane: &mut Lane) -> bool {
        while let Some(value) = values.get(*next) {
            let index = *next;
            *next += 1;
            if !value.is_empty() {
                let at = self.values[index].0;
                *lane = Lane { value: index, at, end: at + value.len(), number_at: at };
                return true;
            }
        }
        false
    }
}
