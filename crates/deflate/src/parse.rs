//! Cutting a segment into literals and matches.

use crate::WINDOW_BYTES;
use crate::codes::Costs;
use crate::matches::{HASH_BITS, Heads, HistoryIndex, SEGMENT_BYTES, Window, hash_of_3, hash_of_4};
use crate::symbols::{LENGTH_MAX, LENGTH_MIN, distance_symbol};

/// A literal below 65,536, or a match: its length from bit 16 on, its distance below.
pub(crate) type Token = u32;

/// Takes literals and matches in their order. `false` means that the sink is full.
pub(crate) trait Sink {
    fn literal(&mut self, literal: u8) -> bool;
    fn repeat(&mut self, length: usize, distance: usize) -> bool;
}

/// The parse that looks at the newest earlier place only.
pub(crate) struct Greedy<'a> {
    pub(crate) window: &'a Window,
    /// Last positions of runs of four bytes.
    pub(crate) heads: &'a mut Heads,
    pub(crate) costs: &'a Costs,
}

/// The assumed cost of literals beyond the first four.
const MORE_LITERAL_BITS: u32 = 5;

/// A match of this length is taken without a search at the next byte.
const LAZY_LENGTH_MAX: usize = 16;

impl Greedy<'_> {
    pub(crate) fn parse<const LAZY: bool>(mut self, sink: &mut impl Sink) -> bool {
        let end = self.window.end;
        let last = (end.saturating_sub(4)).max(WINDOW_BYTES - 1);
        let mut at = WINDOW_BYTES;
        while at <= last {
            let (mut length, mut from) = self.longest(at);
            if length == 0 {
                if !sink.literal(self.window.byte(at)) {
                    return false;
                }
                at += 1;
                continue;
            }
            while LAZY && length < LAZY_LENGTH_MAX && at < last {
                let next = self.longest(at + 1);
                if next.0 <= length {
                    break;
                }
                if !sink.literal(self.window.byte(at)) {
                    return false;
                }
                (length, from) = next;
                at += 1;
            }
            if !sink.repeat(length, at - from) {
                return false;
            }
            self.enter(at, length, LAZY);
            at += length;
        }
        (at..end).all(|at| sink.literal(self.window.byte(at)))
    }

    /// Enters the position, and gives length and place of a match that is worth its bits; 0 if there is none.
    #[inline(always)]
    fn longest(&mut self, at: usize) -> (usize, usize) {
        let word = self.window.word(at);
        let head = &mut self.heads[hash_of_4(word)];
        let from = usize::from(std::mem::replace(head, at as u16));
        let least = self.window.first.max(1).max(at.saturating_sub(WINDOW_BYTES));
        // The position itself is there when it was entered already.
        if from < least || from >= at || self.window.word(from) != word {
            return (0, 0);
        }
        let length = self.window.common(from, at);
        if length < 7 && !self.pays(at, length, at - from) {
            return (0, 0);
        }
        (length, from)
    }

    /// Whether a short match costs less than its literals.
    #[inline(always)]
    fn pays(&self, at: usize, length: usize, distance: usize) -> bool {
        let literals: u32 =
            (at..at + 4).map(|at| u32::from(self.costs.literals[usize::from(self.window.byte(at))])).sum();
        let more = (length - 4) as u32 * MORE_LITERAL_BITS;
        let symbol = distance_symbol(distance);
        let bits = self.costs.lengths[length - LENGTH_MIN] + self.costs.distances[symbol];
        literals + more > u32::from(bits)
    }

    /// Enters positions inside a match: some of them at the fast level.
    #[inline(always)]
    fn enter(&mut self, at: usize, length: usize, all: bool) {
        if all {
            for inside in at + 1..at + length {
                self.heads[hash_of_4(self.window.word(inside))] = inside as u16;
            }
        } else {
            for inside in [at + 1, at + length - 1] {
                self.heads[hash_of_4(self.window.word(inside))] = inside as u16;
            }
        }
    }
}

/// Positions of a window, each with the one before it that has the same hash.
type Chain = [u16; WINDOW_BYTES + SEGMENT_BYTES];

/// The parse that looks at several earlier places, and takes the longest match unless a better one begins at the next
/// byte.
pub(crate) struct Deep {
    /// Last positions of runs of four bytes, by a hash of [`DEEP_HASH_BITS`].
    heads: Box<[u16; 1 << DEEP_HASH_BITS]>,
    chain: Box<Chain>,
}

/// With 12 bits, half of the candidates in a block of 4 KiB have another hash, which takes 46 instead of 41 us.
const DEEP_HASH_BITS: u32 = 14;

/// Places that are looked at for each position.
const DEEP_PLACES: usize = 12;

/// From this length on, the search ends.
const DEEP_LENGTH_MAX: usize = 32;

impl Deep {
    pub(crate) fn new() -> Deep {
        let heads = vec![0; 1 << DEEP_HASH_BITS].into_boxed_slice();
        Deep {
            heads: heads.try_into().expect("the heads have the length of their type"),
            chain: empty_chain(),
        }
    }

    /// Gives the segment to `sink`; `false` if that is full.
    pub(crate) fn parse(&mut self, window: &Window, costs: &Costs, sink: &mut impl Sink) -> bool {
        self.heads.fill(0);
        for at in window.first.max(1)..WINDOW_BYTES {
            self.enter(window.word(at), at);
        }
        let last = window.end.saturating_sub(4).max(WINDOW_BYTES - 1);
        let mut at = WINDOW_BYTES;
        while at <= last {
            let (mut length, mut from) = self.longest(window, costs, at, 0, DEEP_PLACES);
            if length == 0 {
                if !sink.literal(window.byte(at)) {
                    return false;
                }
                at += 1;
                continue;
            }
            let mut entered = at + 1;
            while length < DEEP_LENGTH_MAX && at < last {
                let next = self.longest(window, costs, at + 1, length - 1, DEEP_PLACES / 2);
                entered = at + 2;
                if !is_better(next.0, at + 1 - next.1, length, at - from) {
                    break;
                }
                if !sink.literal(window.byte(at)) {
                    return false;
                }
                (length, from) = next;
                at += 1;
            }
            if !sink.repeat(length, at - from) {
                return false;
            }
            at += length;
            (entered..at.min(last + 1)).for_each(|inside| {
                self.enter(window.word(inside), inside);
            });
        }
        (at..window.end).all(|at| sink.literal(window.byte(at)))
    }

    /// Enters a position, and gives the last one with the same hash.
    #[inline(always)]
    fn enter(&mut self, word: u32, at: usize) -> usize {
        let hash = (word.wrapping_mul(0x9E37_79B1) >> (32 - DEEP_HASH_BITS)) as usize;
        let from = std::mem::replace(&mut self.heads[hash], at as u16);
        self.chain[at] = from;
        usize::from(from)
    }

    /// Enters the position, and returns length and place of the longest match. The match must be longer than `length`
    /// and worth its bits; otherwise the length is 0.
    #[inline(always)]
    fn longest(
        &mut self,
        window: &Window,
        costs: &Costs,
        at: usize,
        length: usize,
        places: usize,
    ) -> (usize, usize) {
        let word = window.word(at);
        let mut from = self.enter(word, at);
        let least = window.first.max(1).max(at.saturating_sub(WINDOW_BYTES));
        let mut best = (length.max(LENGTH_MIN), 0);
        for _ in 0..places {
            if from < least {
                break;
            }
            // A longer match agrees in the four bytes that end behind the best length.
            if window.word(from + best.0 - 3) == window.word(at + best.0 - 3) && window.word(from) == word {
                let found = window.common(from, at);
                if found > best.0 {
                    best = (found, from);
                    if found >= DEEP_LENGTH_MAX {
                        break;
                    }
                }
            }
            from = usize::from(self.chain[from]);
        }
        let found = best.1 != 0 && (best.0 >= 7 || pays(window, costs, at, best.0, at - best.1));
        if found { best } else { (0, 0) }
    }
}

/// Whether a match at the next byte is worth a literal: longer, or not much longer and much nearer.
fn is_better(next: usize, next_distance: usize, length: usize, distance: usize) -> bool {
    if next == 0 {
        return false;
    }
    let nearer = distance.ilog2() as i32 - next_distance.ilog2() as i32;
    4 * (next as i32 - length as i32) + nearer > 2
}

/// Whether a match of up to six bytes costs less than its literals.
#[inline(always)]
fn pays(window: &Window, costs: &Costs, at: usize, length: usize, distance: usize) -> bool {
    let literals: u32 =
        (at..at + length).map(|at| u32::from(costs.literals[usize::from(window.byte(at))])).sum();
    let bits = costs.lengths[length - LENGTH_MIN] + costs.distances[distance_symbol(distance)];
    literals > u32::from(bits)
}

fn empty_heads() -> Box<Heads> {
    Box::new([0; 1 << HASH_BITS])
}

fn empty_chain() -> Box<Chain> {
    let chain = vec![0; WINDOW_BYTES + SEGMENT_BYTES].into_boxed_slice();
    chain.try_into().expect("the chain has the length of its type")
}

/// The parse of least cost.
pub(crate) struct Optimal {
    heads: Box<Heads>,
    chain: Box<Chain>,
    /// For each position of the segment: least cost up to it, and the token that leads there.
    states: Vec<(u32, Token)>,
    /// The tokens, last first.
    traced: Vec<Token>,
    /// Places that are looked at for each position.
    depth: usize,
}

/// From this length on, no other match is searched inside a match.
const NICE_LENGTH: usize = 128;

impl Optimal {
    pub(crate) fn new(depth: usize) -> Optimal {
        Optimal { heads: empty_heads(), chain: empty_chain(), states: Vec::new(), traced: Vec::new(), depth }
    }

    /// Gives the segment to `sink`; `false` if that is full.
    pub(crate) fn parse(
        &mut self,
        window: &Window,
        index: &HistoryIndex,
        costs: &Costs,
        sink: &mut impl Sink,
    ) -> bool {
        let length = window.end - WINDOW_BYTES;
        self.heads.copy_from_slice(&*index.heads_of_3);
        self.chain[..WINDOW_BYTES].copy_from_slice(&*index.chain);
        self.states.clear();
        self.states.resize(length + 1, (u32::MAX, 0));
        self.states[0].0 = 0;
        let mut unsearched = 0;
        // By length: the cheapest distance, as cost and distance.
        let mut best = [(u8::MAX, 0u16); LENGTH_MAX + 1];
        for at in 0..length {
            let cost = self.states[at].0;
            let literal = window.byte(WINDOW_BYTES + at);
            relax(
                &mut self.states[at + 1],
                cost + u32::from(costs.literals[usize::from(literal)]),
                literal.into(),
            );
            if at + LENGTH_MIN > length {
                continue;
            }
            let longest = self.search(window, costs, WINDOW_BYTES + at, &mut best, at >= unsearched);
            let (mut cheapest, targets) = ((u8::MAX, 0), &mut self.states[at..]);
            for length in (LENGTH_MIN..=longest).rev() {
                let found = std::mem::replace(&mut best[length], (u8::MAX, 0));
                if found.0 < cheapest.0 {
                    cheapest = found;
                }
                let cost = cost + u32::from(costs.lengths[length - LENGTH_MIN]) + u32::from(cheapest.0);
                relax(&mut targets[length], cost, (length as u32) << 16 | u32::from(cheapest.1));
            }
            if longest >= NICE_LENGTH {
                unsearched = at + longest;
            }
        }
        self.trace(length);
        self.traced.iter().rev().all(|&token| match (token >> 16) as usize {
            0 => sink.literal(token as u8),
            length => sink.repeat(length, token as usize & 0xFFFF),
        })
    }

    /// Enters the position, and gives the longest match there; `best` has the cheapest distances of some lengths.
    fn search(
        &mut self,
        window: &Window,
        costs: &Costs,
        at: usize,
        best: &mut [(u8, u16); LENGTH_MAX + 1],
        wanted: bool,
    ) -> usize {
        let head = &mut self.heads[hash_of_3(window.word(at))];
        let mut from = usize::from(std::mem::replace(head, at as u16));
        self.chain[at] = from as u16;
        let least = window.first.max(1).max(at.saturating_sub(WINDOW_BYTES));
        let mut longest = LENGTH_MIN - 1;
        let mut left = if wanted { self.depth } else { 0 };
        while from >= least && left > 0 {
            left -= 1;
            let distance = at - from;
            let cost = costs.distances[distance_symbol(distance)];
            let is_cheaper = cost < best[longest].0;
            if is_cheaper || window.byte(from + longest) == window.byte(at + longest) {
                let length = window.common(from, at);
                if length >= LENGTH_MIN && cost < best[length].0 {
                    best[length] = (cost, distance as u16);
                    longest = longest.max(length);
                }
            }
            from = usize::from(self.chain[from]);
        }
        longest
    }

    /// Follows the tokens back from the end.
    fn trace(&mut self, length: usize) {
        self.traced.clear();
        let mut at = length;
        while at > 0 {
            let token = self.states[at].1;
            self.traced.push(token);
            at -= (token as usize >> 16).max(1);
        }
    }
}

#[inline(always)]
fn relax(target: &mut (u32, Token), cost: u32, token: Token) {
    if cost < target.0 {
        *target = (cost, token);
    }
}
