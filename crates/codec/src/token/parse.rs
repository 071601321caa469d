//! From the bytes of values to token numbers.
//!
//! All numbers are equally wide, so the best parse has the fewest tokens. The fast parse takes the longest token
//! everywhere. That is not optimal, because a shorter one may let a much longer one follow. The dense parse compares
//! two tokens at each position, the longest and the next shorter one, and takes the one that reaches further together
//! with the longest token after it. On text, tables and markup it needs 1 to 5 % fewer bytes than the fast parse.
//! (Comparing four tokens saves up to 0.9 % more, and takes two to three times as long.)
//!
//! A walk down the trie is a chain of loads, each of which waits for the one before. So several pieces are parsed side
//! by side, a few steps of each in turn. In a large group the pieces are values. A value of a small group is cut into
//! pieces: each is parsed from its first byte on, beyond its end until it comes to the begin of a token of a later
//! piece. From there on both parses are the same, and the tokens before the meeting are followed by those after it.
//! (They meet after one to five tokens on average.)

use super::TOKEN_BYTES_MAX;
use super::matcher::{Matcher, Node, Token};
use crate::scratch::trim;
use std::collections::TryReserveError;
use std::hint::select_unpredictable;

/// Pieces that are parsed side by side.
const LANES: usize = 8;

/// Steps down the trie that each walk takes in a turn.
const STEPS: usize = 3;

/// Bytes of a piece of a cut value: of shorter ones too many are parsed twice, until they meet.
const PIECE_BYTES: usize = 48;
const PIECE_BYTES_MAX: usize = 512;

/// Bytes that a walk may read behind the end of a value: a token may begin at its last byte, and another one behind it.
const PADDING: usize = 2 * TOKEN_BYTES_MAX + STEPS;

/// No token begins here.
const UNMARKED: u16 = u16::MAX;

/// Scratch of the parse, kept from group to group.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The values, each with padding behind it.
    padded: Vec<u8>,
    /// The numbers of each piece.
    numbers: Vec<u16>,
    pieces: Vec<Piece>,
    /// For each byte of a cut stretch, whether a token begins there: its piece and its index in it.
    marks: Vec<u16>,
    /// The numbers of a cut value.
    joined: Vec<u16>,
}

/// A part of a value, or a whole one.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    /// Where it begins in `padded`, where the next piece of the value begins, and where the value ends.
    start: usize,
    stop: usize,
    end: usize,
    /// Where its numbers begin, and how many there are.
    numbers: usize,
    count: usize,
    /// Where its parse ended: at the end of the value, or at the begin of a later piece's token.
    met: usize,
}

impl Parser {
    /// Bytes of heap that the scratch holds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.padded.capacity()
            + (self.numbers.capacity() + self.marks.capacity() + self.joined.capacity()) * size_of::<u16>()
            + self.pieces.capacity() * size_of::<Piece>()
    }

    /// Gives the memory back that a long value or a long group took.
    pub(super) fn trim(&mut self) {
        trim(&mut self.padded);
        trim(&mut self.numbers);
        trim(&mut self.pieces);
        trim(&mut self.joined);
    }

    /// Gets all memory that [`parse`](Self::parse) takes for these values, or says that it was refused.
    pub(super) fn try_reserve(&mut self, values: &[&[u8]]) -> Result<(), TryReserveError> {
        let bytes = values.iter().map(|value| value.len());
        if values.len() >= LANES {
            let sum: usize = bytes.sum();
            try_room(&mut self.padded, sum + values.len() * PADDING)?;
            try_room(&mut self.pieces, values.len())?;
            return try_room(&mut self.numbers, sum + 1);
        }
        let longest = bytes.max().unwrap_or(0);
        let stretch = longest.min(LANES * PIECE_BYTES_MAX);
        try_room(&mut self.padded, longest + PADDING)?;
        try_room(&mut self.joined, longest)?;
        try_room(&mut self.pieces, LANES)?;
        try_room(&mut self.marks, stretch + TOKEN_BYTES_MAX)?;
        try_room(&mut self.numbers, LANES * (stretch + TOKEN_BYTES_MAX) + 1)
    }

    /// Gives the token numbers of each value to `take`, in the order of `values`.
    pub(super) fn parse<W: Walk>(
        &mut self,
        matcher: &Matcher,
        values: &[&[u8]],
        mut take: impl FnMut(&[u16]),
    ) {
        if values.len() < LANES {
            return values.iter().for_each(|value| take(self.parse_cut::<W>(matcher, value)));
        }
        self.padded.clear();
        self.padded.reserve(values.iter().map(|value| value.len() + PADDING).sum());
        self.pieces.clear();
        let mut numbers = 0;
        for value in values {
            let start = self.padded.len();
            let end = start + value.len();
            self.padded.extend_from_slice(value);
            self.padded.extend_from_slice(&[0; PADDING]);
            self.pieces.push(Piece { start, stop: end, end, numbers, ..Piece::default() });
            numbers += value.len();
        }
        self.walk::<W, false>(matcher, numbers);
        for piece in &self.pieces {
            take(&self.numbers[piece.numbers..][..piece.count]);
        }
    }

    /// The token numbers of one value.
    fn parse_cut<W: Walk>(&mut self, matcher: &Matcher, value: &[u8]) -> &[u16] {
        self.joined.clear();
        self.padded.clear();
        self.padded.reserve(value.len() + PADDING);
        self.padded.extend_from_slice(value);
        self.padded.extend_from_slice(&[0; PADDING]);
        let mut at = 0;
        while at < value.len() {
            at = self.parse_stretch::<W>(matcher, at, value.len());
        }
        &self.joined
    }

    /// Appends the numbers of a stretch of the value, from the begin of a token on. Returns where the next one begins.
    fn parse_stretch<W: Walk>(&mut self, matcher: &Matcher, at: usize, end: usize) -> usize {
        let pieces = (end - at).div_ceil(PIECE_BYTES).min(LANES);
        let piece_bytes = (end - at).div_ceil(pieces).min(PIECE_BYTES_MAX);
        let stop = end.min(at + piece_bytes * LANES);
        self.pieces.clear();
        let mut numbers = 0;
        for start in (at..stop).step_by(piece_bytes) {
            let piece =
                Piece { start, stop: stop.min(start + piece_bytes), end, numbers, ..Piece::default() };
            // No piece is parsed beyond the last one's end and a token more.
            numbers += stop - start + TOKEN_BYTES_MAX;
            self.pieces.push(piece);
        }
        self.marks.clear();
        self.marks.resize(stop - at + TOKEN_BYTES_MAX, UNMARKED);
        self.walk::<W, true>(matcher, numbers);
        // From meeting to meeting.
        let (mut piece, mut from) = (0, 0);
        loop {
            let Piece { numbers, count, met, .. } = self.pieces[piece];
            self.joined.extend_from_slice(&self.numbers[numbers + from..numbers + count]);
            if met >= stop {
                return met;
            }
            (piece, from) = unmark(self.marks[met - at]);
        }
    }

    /// Parses all pieces, with room for so many numbers.
    fn walk<W: Walk, const CUT: bool>(&mut self, matcher: &Matcher, numbers: usize) {
        // One more, because a walk that has not ended writes its number, too.
        if self.numbers.len() < numbers + 1 {
            self.numbers.resize(numbers + 1, 0);
        }
        let mut turns = Turns {
            matcher,
            bytes: &self.padded,
            numbers: &mut self.numbers,
            pieces: &mut self.pieces,
            marks: &mut self.marks,
            next: 0,
        };
        turns.run::<W, CUT>();
    }
}

/// Makes room for so many elements in all.
fn try_room<T>(scratch: &mut Vec<T>, count: usize) -> Result<(), TryReserveError> {
    scratch.try_reserve(count.saturating_sub(scratch.len()))
}

/// Bits of a mark that are an index.
const INDEX_BITS: u32 = 13;

// The last piece and index stand for no token.
const _: () =
    assert!(LANES << INDEX_BITS <= 1 << u16::BITS && LANES * PIECE_BYTES_MAX < (1 << INDEX_BITS) - 1);

/// The piece and the index in it that a mark stands for.
fn unmark(mark: u16) -> (usize, usize) {
    (usize::from(mark) >> INDEX_BITS, usize::from(mark) & ((1 << INDEX_BITS) - 1))
}

/// The search for the token at a position, which goes on for a few steps at a time.
///
/// # Safety
///
/// Of all functions: `at` lies at most one token behind the end of a value in `bytes`, which [`PADDING`] follows on.
pub(super) trait Walk: Copy {
    /// The search for the token at `at`.
    unsafe fn begin(matcher: &Matcher, bytes: &[u8], at: usize) -> Self;

    /// Goes on for [`STEPS`].
    unsafe fn advance(&mut self, matcher: &Matcher, bytes: &[u8]);

    /// The token of this position, and whether the search has ended.
    fn outcome(&self, matcher: &Matcher, at: usize, end: usize) -> (Token, bool);

    /// One of two searches, without a branch: field by field, so that they stay in registers.
    fn select(is_one: bool, one: Self, other: Self) -> Self;

    /// The search at `at`, behind the token that was found.
    unsafe fn behind(&self, matcher: &Matcher, bytes: &[u8], at: usize, token: Token) -> Self;
}

/// The fast parse: the longest token.
#[derive(Clone, Copy)]
pub(super) struct Longest {
    node: Node,
    /// The position behind it; anywhere if the walk has ended.
    next: usize,
}

impl Walk for Longest {
    #[inline(always)]
    unsafe fn begin(matcher: &Matcher, bytes: &[u8], at: usize) -> Self {
        debug_assert!(at < bytes.len());
        // SAFETY: padding follows.
        Longest { node: matcher.first(unsafe { *bytes.get_unchecked(at) }), next: at + 1 }
    }

    #[inline(always)]
    unsafe fn advance(&mut self, matcher: &Matcher, bytes: &[u8]) {
        debug_assert!(self.next + STEPS <= bytes.len());
        let mut node = self.node;
        for step in 0..STEPS {
            // SAFETY: no walk from a begin goes on for more steps than the longest token has bytes, but for the rest of
            // a turn, and padding is longer than that.
            node = matcher.child(node, unsafe { *bytes.get_unchecked(self.next + step) });
        }
        (self.node, self.next) = (node, self.next + STEPS);
    }

    #[inline(always)]
    fn outcome(&self, matcher: &Matcher, _: usize, _: usize) -> (Token, bool) {
        (matcher.token(self.node), self.node.is_end())
    }

    #[inline(always)]
    fn select(is_one: bool, one: Self, other: Self) -> Self {
        Longest {
            node: Node::select(is_one, one.node, other.node),
            next: select_unpredictable(is_one, one.next, other.next),
        }
    }

    #[inline(always)]
    unsafe fn behind(&self, matcher: &Matcher, bytes: &[u8], at: usize, _: Token) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::begin(matcher, bytes, at) }
    }
}

/// The dense parse: the longest token, or the next shorter one if that reaches further together with what follows.
#[derive(Clone, Copy)]
pub(super) struct Farthest {
    longest: Token,
    shorter: Token,
    behind_longest: Longest,
    behind_shorter: Longest,
}

impl Farthest {
    #[inline(always)]
    unsafe fn of(matcher: &Matcher, bytes: &[u8], at: usize, longest: Token) -> Self {
        let shorter = matcher.shorter(longest);
        // SAFETY: the caller's promise; both begin a token behind `at` at most.
        let behind = |token: Token| unsafe { Longest::begin(matcher, bytes, at + token.length()) };
        Farthest { longest, shorter, behind_longest: behind(longest), behind_shorter: behind(shorter) }
    }
}

impl Walk for Farthest {
    unsafe fn begin(matcher: &Matcher, bytes: &[u8], at: usize) -> Self {
        let window = bytes[at..].first_chunk().expect("padding follows on each value");
        // SAFETY: the caller's promise.
        unsafe { Farthest::of(matcher, bytes, at, matcher.longest(window)) }
    }

    #[inline(always)]
    unsafe fn advance(&mut self, matcher: &Matcher, bytes: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            self.behind_longest.advance(matcher, bytes);
            self.behind_shorter.advance(matcher, bytes);
        }
    }

    #[inline(always)]
    fn outcome(&self, _: &Matcher, at: usize, end: usize) -> (Token, bool) {
        let (after_longest, after_shorter) = (self.behind_longest.node, self.behind_shorter.node);
        // Nothing reaches further than a token to the end.
        let is_last = at + self.longest.length() >= end;
        let reach = self.longest.length() + after_longest.length();
        let reach = select_unpredictable(is_last, usize::MAX, reach);
        let is_shorter_better = self.shorter.length() + after_shorter.length() > reach;
        let token = Token::select(is_shorter_better, self.shorter, self.longest);
        (token, after_longest.is_end() & after_shorter.is_end())
    }

    #[inline(always)]
    fn select(is_one: bool, one: Self, other: Self) -> Self {
        Farthest {
            longest: Token::select(is_one, one.longest, other.longest),
            shorter: Token::select(is_one, one.shorter, other.shorter),
            behind_longest: Longest::select(is_one, one.behind_longest, other.behind_longest),
            behind_shorter: Longest::select(is_one, one.behind_shorter, other.behind_shorter),
        }
    }

    #[inline(always)]
    unsafe fn behind(&self, matcher: &Matcher, bytes: &[u8], at: usize, token: Token) -> Self {
        let is_longest = token == self.longest;
        let node = Node::select(is_longest, self.behind_longest.node, self.behind_shorter.node);
        // SAFETY: the caller's promise.
        unsafe { Farthest::of(matcher, bytes, at, matcher.token(node)) }
    }
}

/// A piece that is being parsed.
#[derive(Clone, Copy)]
struct Lane<W> {
    walk: W,
    at: usize,
    stop: usize,
    end: usize,
    /// Where the next number goes.
    number: usize,
    /// What is added to that for the mark of a token.
    mark: u16,
    piece: usize,
}

/// The turns of all lanes.
struct Turns<'a> {
    matcher: &'a Matcher,
    bytes: &'a [u8],
    numbers: &'a mut [u16],
    pieces: &'a mut [Piece],
    marks: &'a mut [u16],
    /// The next piece without a lane.
    next: usize,
}

impl Turns<'_> {
    fn run<W: Walk, const CUT: bool>(&mut self) {
        let Some(first) = self.pieces.first().map(|piece| piece.start) else { return };
        // SAFETY: the first piece begins within its value.
        let walk = unsafe { W::begin(self.matcher, self.bytes, first) };
        let mut lanes = [Lane { walk, at: 0, stop: 0, end: 0, number: 0, mark: 0, piece: 0 }; LANES];
        let mut busy = 0;
        while busy < LANES && self.begin(&mut lanes[busy]) {
            busy += 1;
        }
        while busy > 0 {
            for lane in &mut lanes[..busy] {
                // SAFETY: a lane that came to the end of its value got another one, or is no longer busy.
                unsafe { lane.walk.advance(self.matcher, self.bytes) };
            }
            let mut number = 0;
            while number < busy {
                let lane = &mut lanes[number];
                let token = self.take::<W, CUT>(lane, first);
                number += 1;
                // The only branch, and seldom taken: whether a search has ended cannot be predicted.
                if lane.at >= lane.stop && self.has_ended::<W, CUT>(lane, token, first) && !self.begin(lane) {
                    busy -= 1;
                    number -= 1;
                    lanes[number] = lanes[busy];
                }
            }
        }
    }

    /// Takes the token that a lane's search has found, and begins the search for the next one. Returns no token if the
    /// search goes on.
    #[inline(always)]
    fn take<W: Walk, const CUT: bool>(&mut self, lane: &mut Lane<W>, first: usize) -> Token {
        let (token, has_ended) = lane.walk.outcome(self.matcher, lane.at, lane.end);
        debug_assert!(lane.number < self.numbers.len());
        // SAFETY: a piece has room for a number for each of its bytes.
        unsafe { *self.numbers.get_unchecked_mut(lane.number) = token.number() };
        if CUT {
            self.marks[lane.at - first] = (lane.number as u16).wrapping_add(lane.mark);
        }
        let at = lane.at + token.length();
        // SAFETY: the token begins within the value.
        let behind = unsafe { lane.walk.behind(self.matcher, self.bytes, at, token) };
        lane.walk = W::select(has_ended, behind, lane.walk);
        lane.at = select_unpredictable(has_ended, at, lane.at);
        lane.number += usize::from(has_ended);
        Token::select(has_ended, token, Token::default())
    }

    /// Whether a piece ends here: at the end of its value, or where it meets another one.
    #[inline(never)]
    fn has_ended<W: Walk, const CUT: bool>(
        &mut self,
        lane: &mut Lane<W>,
        mut token: Token,
        first: usize,
    ) -> bool {
        if token == Token::default() {
            return false;
        }
        if lane.at > lane.end {
            // The token that reaches too far gives way to the longest one that does not.
            lane.at -= token.length();
            while token.length() > lane.end - lane.at {
                token = self.matcher.shorter(token);
            }
            self.numbers[lane.number - 1] = token.number();
            lane.at += token.length();
            // SAFETY: it lies within the value, or at its end.
            lane.walk = unsafe { W::begin(self.matcher, self.bytes, lane.at) };
        }
        let has_ended = lane.at == lane.end || CUT && lane.at >= lane.stop && self.is_met(lane.at - first);
        if has_ended {
            let piece = &mut self.pieces[lane.piece];
            (piece.count, piece.met) = (lane.number - piece.numbers, lane.at);
        }
        has_ended
    }

    /// Whether a token of another piece begins at a byte of the stretch, or the stretch has ended before.
    fn is_met(&self, at: usize) -> bool {
        at + TOKEN_BYTES_MAX >= self.marks.len() || self.marks[at] != UNMARKED
    }

    /// Gives a lane the next piece that is not empty, if there is one.
    fn begin<W: Walk>(&mut self, lane: &mut Lane<W>) -> bool {
        while let Some(&Piece { start, stop, end, numbers, .. }) = self.pieces.get(self.next) {
            let piece = self.next;
            self.next += 1;
            if start < end {
                // SAFETY: it lies within the value.
                let walk = unsafe { W::begin(self.matcher, self.bytes, start) };
                let mark = ((piece << INDEX_BITS) as u16).wrapping_sub(numbers as u16);
                *lane = Lane { walk, at: start, stop, end, number: numbers, mark, piece };
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::decode::Table;
    use std::collections::BTreeSet;

    /// Tokens over few letters, so that parses that begin at different bytes take long to meet.
    fn tokens(random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
        let letters = [0, b'a', b'b'];
        let long = (0..200)
            .map(|_| (0..random.usize(2..=TOKEN_BYTES_MAX)).map(|_| letters[random.usize(..3)]).collect());
        let distinct: BTreeSet<Vec<u8>> = long.collect();
        (0..=u8::MAX).map(|byte| vec![byte]).chain(distinct).collect()
    }

    fn value(random: &mut fastrand::Rng, tokens: &[Vec<u8>], len: usize) -> Vec<u8> {
        let mut value = Vec::new();
        while value.len() < len {
            value.extend_from_slice(&tokens[random.usize(..tokens.len())]);
            value.push([0, b'a', b'b', b'c'][random.usize(..4)]);
        }
        value.truncate(len);
        value
    }

    fn numbers<W: Walk>(matcher: &Matcher, values: &[&[u8]]) -> Vec<Vec<u16>> {
        let mut all = Vec::new();
        Parser::default().parse::<W>(matcher, values, |numbers| all.push(numbers.to_vec()));
        all
    }

    /// The longest token at each position, one after the other.
    fn longest(tokens: &[Vec<u8>], value: &[u8]) -> Vec<u16> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < value.len() {
            let fits = (0..tokens.len()).filter(|&number| value[at..].starts_with(&tokens[number]));
            let number = fits.max_by_key(|&number| tokens[number].len()).unwrap();
            found.push(number as u16);
            at += tokens[number].len();
        }
        found
    }

    #[test]
    fn what_is_reserved_is_all_that_a_parse_takes() {
        let mut random = fastrand::Rng::with_seed(1);
        let tokens = tokens(&mut random);
        let table = Table::new(tokens.iter().map(Vec::as_slice), 12);
        let matcher = Matcher::new(&table).unwrap();
        let lens: &[usize] = if cfg!(miri) { &[0, 49] } else { &[0, 1, 47, 48, 49, 500, 5_000, 9_001] };
        for &len in lens {
            // Bytes that begin no token but their own are the most numbers.
            for value in [value(&mut random, &tokens, len), vec![b'c'; len]] {
                for count in [1, 2, LANES - 1, LANES, LANES + 1] {
                    let (values, mut parser) = (vec![&value[..]; count], Parser::default());
                    parser.try_reserve(&values).unwrap();
                    let reserved = parser.memory_bytes();
                    parser.parse::<Longest>(&matcher, &values, |_| ());
                    parser.parse::<Farthest>(&matcher, &values, |_| ());
                    assert_eq!(parser.memory_bytes(), reserved, "{count} values of {len} bytes");
                }
            }
        }
    }

    #[test]
    fn values_alone_and_in_groups_give_the_same_numbers() {
        let lens = [0, 1, 15, 23, 24, 25, 200, 5_000, 9_001];
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let tokens = tokens(&mut random);
            let table = Table::new(tokens.iter().map(Vec::as_slice), 12);
            let matcher = Matcher::new(&table).unwrap();
            let values: Vec<Vec<u8>> = lens.iter().map(|&len| value(&mut random, &tokens, len)).collect();
            let values: Vec<&[u8]> =
                values.iter().map(Vec::as_slice).cycle().take(values.len().max(LANES + 1)).collect();
            let fast = numbers::<Longest>(&matcher, &values);
            let dense = numbers::<Farthest>(&matcher, &values);
            for (number, value) in values.iter().enumerate() {
                assert_eq!(numbers::<Longest>(&matcher, &[value]), [fast[number].clone()]);
                assert_eq!(numbers::<Farthest>(&matcher, &[value]), [dense[number].clone()]);
                assert_eq!(fast[number], longest(&tokens, value));
                let bytes: Vec<u8> =
                    dense[number].iter().flat_map(|&number| tokens[usize::from(number)].clone()).collect();
                assert_eq!(bytes, *value);
            }
            let count = |all: &[Vec<u16>]| all.iter().map(Vec::len).sum::<usize>();
            assert!(count(&dense) < count(&fast), "{} and {} tokens", count(&dense), count(&fast));
        }
    }
}
