//! One walk through the samples that joins pairs of tokens.

use super::{TOKEN_BYTES_MAX, tokens_max};

/// The number of times the walk checks the pace of new tokens.
const ADJUSTMENTS: usize = 512;

/// The samples in an order without a trend, the same for the same seed.
pub(super) fn shuffled<'a>(samples: &[&'a [u8]], seed: u64) -> Vec<&'a [u8]> {
    let mut samples = samples.to_vec();
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    for last in (1..samples.len()).rev() {
        // Knuth's MMIX generator; its upper bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        samples.swap(last, ((state >> 33) % (last as u64 + 1)) as usize);
    }
    samples
}

/// Adds joined pairs to `tokens` until there are `tokens_max`, or the samples end.
///
/// A pair is joined when it has been met `threshold` times. The threshold follows the pace, so that the room lasts
/// until the samples end.
pub(super) fn merge(samples: &[&[u8]], tokens: &mut Vec<Vec<u8>>, tokens_max: usize) {
    let total: usize = samples.iter().map(|sample| sample.len()).sum();
    let step = (total / ADJUSTMENTS).max(1);
    let mut trie = Trie::of(tokens, tokens_max);
    let mut pairs = PairCounts::new();
    let mut threshold = 2_u16;
    let (mut scanned, mut next, mut tokens_before) = (0, step, tokens.len());
    for sample in samples {
        let mut previous: Option<(u32, usize)> = None;
        let mut at = 0;
        while at < sample.len() {
            let (token, length) = trie.longest(&sample[at..]);
            let end = at + length;
            let mut last = (token, length);
            if let Some((before, before_length)) = previous
                && before_length + length <= TOKEN_BYTES_MAX
                && pairs.meet(before, token, threshold)
            {
                let joined = &sample[at - before_length..end];
                if trie.insert(joined, tokens.len() as u32) {
                    last = (tokens.len() as u32, joined.len());
                    tokens.push(joined.to_vec());
                    if tokens.len() >= tokens_max {
                        return;
                    }
                }
            }
            previous = Some(last);
            at = end;
        }
        scanned += sample.len();
        if scanned >= next {
            next = scanned + step;
            let grown = tokens.len() - tokens_before;
            tokens_before = tokens.len();
            // Tokens that may appear per step from here on. The threshold changes only if the pace is half as many
            // again, or a third less.
            let pace = (tokens_max - tokens.len()) * step / total.saturating_sub(scanned).max(step);
            if grown * 2 > pace * 3 {
                threshold += 1;
            } else if grown * 3 < pace * 2 && threshold > 2 {
                threshold -= 1;
            }
        }
    }
}

/// The number of `tokens`, from the first, that have at most `nodes_max` prefixes together with the single bytes.
pub(super) fn tokens_within(tokens: &[Vec<u8>], nodes_max: usize) -> usize {
    let mut trie = Trie::of(&[], tokens.len());
    for (index, token) in tokens.iter().enumerate() {
        trie.insert(token, index as u32);
        if trie.nodes as usize > nodes_max {
            return index;
        }
    }
    tokens.len()
}

/// Slots for edges that a trie begins with for each token that it may have.
const SLOTS_PER_TOKEN: usize = 4;

/// A trie that grows, its edges in one hash table. The nodes 0 to 255 are the single bytes, as are the tokens.
struct Trie {
    edges: Vec<Edge>,
    /// Nodes, the single bytes among them.
    nodes: u32,
}

/// An edge: in the upper 28 bits the node that it leaves and its byte, in the 20 bits below the node that it leads to,
/// and in the lowest 16 the token that ends there, or 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Edge(u64);

impl Edge {
    /// An empty slot: no trie has so many nodes.
    const NONE: Edge = Edge(u64::MAX);
    const TOKEN: u32 = 16;
    const CHILD: u32 = 20;
    const NODES_MAX: usize = tokens_max(16) * (TOKEN_BYTES_MAX - 1) + 256;

    fn new(key: u32, child: u32) -> Edge {
        Edge(u64::from(key) << (Edge::TOKEN + Edge::CHILD) | u64::from(child) << Edge::TOKEN)
    }

    #[inline]
    fn key(self) -> u32 {
        (self.0 >> (Edge::TOKEN + Edge::CHILD)) as u32
    }

    #[inline]
    fn child(self) -> u32 {
        (self.0 >> Edge::TOKEN) as u32 & ((1 << Edge::CHILD) - 1)
    }

    #[inline]
    fn token(self) -> u32 {
        u32::from(self.0 as u16)
    }
}

// The last node and byte stand for no key, and no token of several bytes has the number 0.
const _: () = assert!(Edge::NODES_MAX < (1 << Edge::CHILD) - 1 && tokens_max(16) <= 1 << Edge::TOKEN);

impl Trie {
    fn of(tokens: &[Vec<u8>], tokens_max: usize) -> Trie {
        let slots = (tokens_max * SLOTS_PER_TOKEN).next_power_of_two();
        let mut trie = Trie { edges: vec![Edge::NONE; slots], nodes: 256 };
        for (number, token) in tokens.iter().enumerate() {
            trie.insert(token, number as u32);
        }
        trie
    }

    #[inline]
    fn slot(&self, node: u32, byte: u8) -> usize {
        let mask = self.edges.len() - 1;
        let key = node << 8 | u32::from(byte);
        let mut slot = (u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 30) as usize & mask;
        while self.edges[slot].key() != key && self.edges[slot] != Edge::NONE {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Whether the token is new.
    fn insert(&mut self, token: &[u8], number: u32) -> bool {
        let mut node = u32::from(token[0]);
        let mut last = None;
        for &byte in &token[1..] {
            let mut slot = self.slot(node, byte);
            if self.edges[slot] == Edge::NONE {
                self.edges[slot] = Edge::new(node << 8 | u32::from(byte), self.nodes);
                self.nodes += 1;
                if self.nodes as usize * 8 > self.edges.len() * 5 {
                    self.grow();
                    slot = self.slot(node, byte);
                }
            }
            node = self.edges[slot].child();
            last = Some(slot);
        }
        let Some(slot) = last else { return false };
        let new = self.edges[slot].token() == 0;
        if new {
            self.edges[slot].0 |= u64::from(number);
        }
        new
    }

    fn grow(&mut self) {
        let twice = self.edges.len() * 2;
        for edge in std::mem::replace(&mut self.edges, vec![Edge::NONE; twice]) {
            if edge != Edge::NONE {
                let slot = self.slot(edge.key() >> 8, edge.key() as u8);
                self.edges[slot] = edge;
            }
        }
    }

    /// The longest token that `bytes`, which are not empty, begin with.
    #[inline]
    fn longest(&self, bytes: &[u8]) -> (u32, usize) {
        let mut node = u32::from(bytes[0]);
        let mut found = (node, 1);
        for (index, &byte) in bytes.iter().enumerate().take(TOKEN_BYTES_MAX).skip(1) {
            let edge = self.edges[self.slot(node, byte)];
            if edge == Edge::NONE {
                break;
            }
            node = edge.child();
            if edge.token() != 0 {
                found = (edge.token(), index + 1);
            }
        }
        found
    }
}

/// Pairs of tokens that are counted at a time, as a power of two: 1 MiB of counts.
const PAIR_SLOT_BITS: u32 = 18;
/// Bytes of these counts.
pub(super) const PAIR_COUNTS_BYTES: usize = size_of::<(u16, u16)>() << PAIR_SLOT_BITS;

/// Counts of the pairs of tokens that were met, in a table of fixed size.
///
/// A tag tells the pairs of one slot apart. A pair that finds another one in its slot lowers the count of that pair,
/// and takes the slot at zero. So a frequent pair keeps its slot, and rare pairs replace each other (Misra and Gries,
/// "Finding repeated elements", 1982). The sample may have any size. The ratio of seven corpora stayed within 0.2 % of
/// the ratio with exact counts.
struct PairCounts(Box<[(u16, u16)]>);

impl PairCounts {
    fn new() -> PairCounts {
        PairCounts(vec![(0, 0); 1 << PAIR_SLOT_BITS].into_boxed_slice())
    }

    /// Counts one more meeting, and returns whether the count reached `threshold`. The count then begins again at zero.
    #[inline]
    fn meet(&mut self, first: u32, second: u32, threshold: u16) -> bool {
        let key = u64::from(first) << 32 | u64::from(second);
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let tag = (hash >> 16) as u16;
        let (held, count) = &mut self.0[(hash >> (u64::BITS - PAIR_SLOT_BITS)) as usize];
        if *held == tag {
            *count += 1;
        } else if *count > 1 {
            *count -= 1;
            return false;
        } else {
            (*held, *count) = (tag, 1);
        }
        let is_met = *count >= threshold;
        if is_met {
            *count = 0;
        }
        is_met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_pair_is_found_among_ten_times_as_many_rare_ones_as_there_are_slots() {
        let mut pairs = PairCounts::new();
        let mut found = 0;
        for round in 0..100 {
            found += u32::from(pairs.meet(7, 9, 50));
            let rare = (0..(10 << PAIR_SLOT_BITS) / 100).map(|n| (1000 + n, 70_000 + round));
            let met = rare.filter(|(first, second)| pairs.meet(*first, *second, 50)).count();
            assert_eq!(met, 0, "a pair that was met once was found in round {round}");
        }
        assert!(found >= 1, "a pair that was met a hundred times was not found");
    }
}
