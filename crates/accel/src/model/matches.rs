//! The match finder: greedy, in a window of 4 KiB, with the same effort for every job.

use crate::aecs::HISTORY_BYTES;

const HASH_BITS: u32 = 12;
const LENGTH_MIN: usize = 4;
const LENGTH_MAX: usize = 258;

/// Earlier positions that are looked at for each match.
const EFFORT: usize = 8;

/// Positions of earlier bytes. The numbers continue from job to job, so that positions of earlier jobs are too far away
/// to match.
pub(super) struct Matches {
    heads: Box<[u32; 1 << HASH_BITS]>,
    before: Box<[u32; HISTORY_BYTES]>,
    base: u32,
}

impl Matches {
    pub(super) fn new() -> Matches {
        Matches { heads: Box::new([0; 1 << HASH_BITS]), before: Box::new([0; HISTORY_BYTES]), base: 1 }
    }

    /// Splits a source: calls `each` with a length of 0 and a literal, or with the length and distance of a match.
    pub(super) fn parse(&mut self, source: &[u8], mut each: impl FnMut(usize, usize)) {
        if u64::from(self.base) + source.len() as u64 + 2 * HISTORY_BYTES as u64 > u64::from(u32::MAX) {
            *self = Matches::new();
        }
        let mut at = 0;
        while at < source.len() {
            let (length, distance) = self.longest(source, at);
            let step = if length >= LENGTH_MIN {
                each(length, distance);
                length
            } else {
                each(0, usize::from(source[at]));
                1
            };
            (at..at + step).for_each(|at| self.enter(source, at));
            at += step;
        }
        self.base += (source.len() + HISTORY_BYTES) as u32;
    }

    fn hash(source: &[u8], at: usize) -> Option<usize> {
        let bytes: [u8; 4] = source.get(at..at + 4)?.try_into().ok()?;
        Some((u32::from_le_bytes(bytes).wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize)
    }

    fn enter(&mut self, source: &[u8], at: usize) {
        if let Some(hash) = Matches::hash(source, at) {
            let position = self.base + at as u32;
            self.before[position as usize % HISTORY_BYTES] = self.heads[hash];
            self.heads[hash] = position;
        }
    }

    fn longest(&self, source: &[u8], at: usize) -> (usize, usize) {
        let Some(hash) = Matches::hash(source, at) else { return (0, 0) };
        let position = self.base + at as u32;
        let (mut best, mut distance) = (0, 0);
        let mut candidate = self.heads[hash];
        for _ in 0..EFFORT {
            let away = position.wrapping_sub(candidate) as usize;
            if away == 0 || away > HISTORY_BYTES.min(at) {
                break;
            }
            let length = common(&source[at - away..], &source[at..]);
            if length > best {
                (best, distance) = (length, away);
            }
            let next = self.before[candidate as usize % HISTORY_BYTES];
            if next >= candidate {
                break;
            }
            candidate = next;
        }
        (best, distance)
    }
}

/// The number of bytes that two slices share at their beginnings, at most the longest match.
fn common(earlier: &[u8], later: &[u8]) -> usize {
    let length_max = later.len().min(LENGTH_MAX);
    let (earlier, later) = (&earlier[..length_max], &later[..length_max]);
    let (words, later_words) = (earlier.as_chunks::<8>().0, later.as_chunks::<8>().0);
    for (i, (word, later)) in words.iter().zip(later_words).enumerate() {
        let differing = u64::from_le_bytes(*word) ^ u64::from_le_bytes(*later);
        if differing != 0 {
            return 8 * i + differing.trailing_zeros() as usize / 8;
        }
    }
    let done = 8 * words.len();
    done + earlier[done..].iter().zip(&later[done..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(matches: &mut Matches, source: &[u8]) -> usize {
        let (mut out, mut tokens) = (Vec::new(), 0);
        matches.parse(source, |length, value| {
            tokens += 1;
            if length == 0 {
                out.push(value as u8);
            } else {
                assert!((LENGTH_MIN..=LENGTH_MAX).contains(&length) && (1..=HISTORY_BYTES).contains(&value));
                (0..length).for_each(|_| out.push(out[out.len() - value]));
            }
        });
        assert!(out == source);
        tokens
    }

    #[test]
    fn tokens_make_up_the_source() {
        let mut matches = Matches::new();
        let text: Vec<u8> = (0..3000u32).flat_map(|i| format!("{} ", i * i % 771).into_bytes()).collect();
        let first = expand(&mut matches, &text);
        assert!(first < text.len() / 3);
        assert_eq!(expand(&mut matches, &text), first, "a job does not depend on the one before");
        assert!(expand(&mut matches, &[7; 1000]) <= 6);
        assert_eq!(expand(&mut matches, b"abc"), 3);
        assert_eq!(expand(&mut matches, b""), 0);
        matches.base = u32::MAX - 20_000;
        assert_eq!(expand(&mut matches, &text), first);
        assert_eq!(expand(&mut matches, &text), first);
    }
}
