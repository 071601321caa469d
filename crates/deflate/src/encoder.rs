//! The encoder: segments of at most 16 KiB are parsed and written one after the other.

use crate::bits::{BitWriter, SLACK_BYTES};
use crate::codes::{Codes, Costs};
use crate::dictionary::Dictionary;
use crate::entries::{self, Entries, PARTS};
use crate::header::Header;
use crate::huffman::limited_lengths;
use crate::matches::{HASH_BITS, Heads, HistoryIndex, SEGMENT_BYTES, Window};
use crate::parse::{Deep, Greedy, Optimal, Sink, Token};
use crate::shared::SharedCodes;
use crate::symbols::{
    DISTANCES, DISTANCES_ANY, END_OF_BLOCK, LENGTH_EXTRA, LITERALS, distance_symbol, length_symbol,
};
use crate::tables::DISTANCE_BITS;
use crate::{Huffman, PART_END};

/// Speed against size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// The newest match is taken if it costs less than its literals.
    Fast,
    /// The same, unless a longer one begins at the next byte.
    Lazy,
    /// Several earlier places are looked at for the longest match.
    Deep,
    /// The cheapest sequence of literals and matches, among the newest matches at each byte.
    Dense,
    /// The cheapest sequence there is.
    Densest,
}

impl Level {
    /// Every level, the fastest first.
    pub const ALL: &[Level] = &[Level::Fast, Level::Lazy, Level::Deep, Level::Dense, Level::Densest];
}

/// The most bytes of a stored part, less than a stored block may hold.
const _: () = assert!(SEGMENT_BYTES < 1 << 16);

/// Encodes blocks with a dictionary. It holds 30 KiB, and up to 64 KiB more after a block with codes of its own. The
/// level [`Deep`](Level::Deep) takes 72 KiB besides, the dense levels up to 240 KiB.
pub struct Encoder<'a> {
    dictionary: &'a Dictionary,
    level: Level,
    window: Window,
    /// Whether the window begins with the dictionary's history.
    has_history: bool,
    heads: Box<Heads>,
    deep: Option<Deep>,
    optimal: Option<Optimal>,
    parsed: Parsed,
    /// The entry points of the last stream, if it was one block with its own codes.
    entries: Option<Entries>,
}

impl<'a> Encoder<'a> {
    /// An encoder of blocks that refer to this dictionary.
    pub fn new(dictionary: &'a Dictionary, level: Level) -> Encoder<'a> {
        let optimal = match level {
            Level::Fast | Level::Lazy | Level::Deep => None,
            Level::Dense => Some(Optimal::new(6)),
            Level::Densest => Some(Optimal::new(256)),
        };
        let deep = (level == Level::Deep).then(Deep::new);
        let heads = Box::new([0; 1 << HASH_BITS]);
        let (window, parsed) = (Window::new(), Parsed { tokens: Vec::new(), counts: Counts::new() });
        Encoder { dictionary, level, window, has_history: false, heads, deep, optimal, parsed, entries: None }
    }

    /// Appends the compressed block to `out` and returns its length, at most `max_bytes`. If the block would be longer,
    /// the encoder stops early and leaves `out` unchanged.
    ///
    /// # Panics
    ///
    /// If canned codes are asked for and the dictionary has none.
    pub fn compress(
        &mut self,
        huffman: Huffman,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Option<usize> {
        self.compress_in_parts(huffman, raw, 1, out, max_bytes)
    }

    /// As [`Encoder::compress`], in parts of the same length, of which the last may be shorter. No part refers to bytes
    /// of another. Behind each part but the last stands an empty stored block, which ends with [`PART_END`] at the end
    /// of a byte. So a decoder may begin at every part, and one that does not know the parts reads them as one stream.
    ///
    /// # Panics
    ///
    /// If `parts` is 0, or above 1 with a history or canned codes.
    ///
    /// [`PART_END`]: crate::PART_END
    pub fn compress_in_parts(
        &mut self,
        huffman: Huffman,
        raw: &[u8],
        parts: usize,
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Option<usize> {
        let is_plain = self.dictionary.history().is_empty() && huffman != Huffman::Canned;
        assert!(parts == 1 || parts > 1 && is_plain, "only a plain stream has parts");
        let start = out.len();
        // No code of a byte is longer than 15 bits. A part has a header and an end, of less than 64 bytes together.
        let ends = parts.min(raw.len().max(1)).saturating_mul(64);
        let bound = raw.len().saturating_mul(2).saturating_add(ends);
        out.resize(start + max_bytes.min(bound) + SLACK_BYTES, 0);
        let length = self.write(huffman, raw, parts, BitWriter::new(&mut out[start..]));
        out.truncate(start + length.unwrap_or(0));
        length
    }

    /// As [`Encoder::compress`] with the block's own codes, and with entry points behind the stream if they pay.
    /// [`PartsDecoder`] reads such a stream, and so does every decoder that stops at the end of the stream.
    ///
    /// [`PartsDecoder`]: crate::PartsDecoder
    pub fn compress_with_trailer(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Option<usize> {
        let length = self.compress(Huffman::Dynamic, raw, out, max_bytes)?;
        let with_trailer = length + entries::TRAILER_BYTES;
        match self.entries {
            Some(entries) if with_trailer <= max_bytes => {
                out.extend_from_slice(&entries.to_bytes());
                Some(with_trailer)
            }
            _ => Some(length),
        }
    }

    /// As [`Encoder::compress`] with the block's own codes, and with entry points in front if they pay. Every decoder
    /// reads such a stream, and [`PartsDecoder`] its parts side by side.
    ///
    /// [`PartsDecoder`]: crate::PartsDecoder
    pub fn compress_with_preamble(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Option<usize> {
        let start = out.len();
        let length = self.compress(Huffman::Dynamic, raw, out, max_bytes)?;
        let with_preamble = length + entries::PREAMBLE_BYTES;
        match self.entries.and_then(|entries| entries.to_preamble(raw.len())) {
            Some(preamble) if with_preamble <= max_bytes => {
                out.splice(start..start, preamble);
                Some(with_preamble)
            }
            _ => Some(length),
        }
    }

    fn write(
        &mut self,
        huffman: Huffman,
        raw: &[u8],
        parts: usize,
        mut target: BitWriter<'_>,
    ) -> Option<usize> {
        self.entries = None;
        let part_bytes = raw.len().div_ceil(parts);
        let mut left = raw;
        loop {
            let (part, rest) = left.split_at(left.len().min(part_bytes));
            let is_only = part.len() == raw.len() && raw.len() <= SEGMENT_BYTES;
            self.write_part(huffman, part, rest.is_empty(), is_only, &mut target)?;
            left = rest;
            if left.is_empty() {
                break;
            }
            end_part(&mut target)?;
        }
        target.finish()
    }

    /// Writes a part without its end.
    fn write_part(
        &mut self,
        huffman: Huffman,
        part: &[u8],
        is_last: bool,
        is_only: bool,
        target: &mut BitWriter<'_>,
    ) -> Option<()> {
        let dictionary = self.dictionary;
        let shared = match huffman {
            Huffman::Canned => Some(dictionary.canned()),
            Huffman::Fixed => Some(SharedCodes::fixed()),
            Huffman::Dynamic => None,
        };
        if huffman == Huffman::Fixed {
            target.put(0b010 | u64::from(is_last), 3);
        }
        let mut left = part;
        loop {
            let (segment, rest) = left.split_at(left.len().min(SEGMENT_BYTES));
            let slid = self.enter(segment, left.len() == part.len());
            let index = slid.as_ref().unwrap_or(dictionary.index());
            match shared {
                Some(shared) => self.write_shared(target, shared, index)?,
                None => self.write_own(target, index, is_last && rest.is_empty(), is_only)?,
            }
            left = rest;
            if left.is_empty() {
                break;
            }
        }
        if let Some(shared) = shared {
            shared.codes.put_literal(target, END_OF_BLOCK);
        }
        Some(())
    }

    /// Puts a segment behind its history, and returns the history's index if it is not the dictionary's.
    fn enter(&mut self, segment: &[u8], is_first: bool) -> Option<HistoryIndex> {
        if !is_first {
            self.has_history = false;
            self.window.slide();
        } else if !std::mem::replace(&mut self.has_history, true) {
            self.window.set_history(self.dictionary.history());
        }
        self.window.set_segment(segment);
        (!is_first).then(|| HistoryIndex::new(self.window.history()))
    }

    /// Cuts the segment into tokens for `sink`. `false` if `sink` is full.
    fn parse(&mut self, index: &HistoryIndex, costs: &Costs, sink: &mut impl Sink) -> bool {
        match (&mut self.deep, &mut self.optimal) {
            (Some(deep), _) => deep.parse(&self.window, costs, sink),
            (_, Some(optimal)) => optimal.parse(&self.window, index, costs, sink),
            (None, None) => {
                self.heads.copy_from_slice(&*index.heads_of_4);
                let greedy = Greedy { window: &self.window, heads: &mut self.heads, costs };
                if self.level == Level::Fast {
                    greedy.parse::<false>(sink)
                } else {
                    greedy.parse::<true>(sink)
                }
            }
        }
    }

    fn write_shared(
        &mut self,
        target: &mut BitWriter<'_>,
        shared: &SharedCodes,
        index: &HistoryIndex,
    ) -> Option<()> {
        let mut sink = Writing { target, codes: &shared.codes };
        self.parse(index, &shared.costs, &mut sink).then_some(())
    }

    /// How often each symbol occurs in a block, parsed for these costs.
    pub(crate) fn counts(&mut self, raw: &[u8], costs: &Costs) -> &Counts {
        let index = self.enter(&raw[..raw.len().min(SEGMENT_BYTES)], true);
        debug_assert!(index.is_none());
        self.parse_tokens(self.dictionary.index(), costs);
        &self.parsed.counts
    }

    fn parse_tokens(&mut self, index: &HistoryIndex, costs: &Costs) {
        let mut parsed = Parsed { tokens: std::mem::take(&mut self.parsed.tokens), counts: Counts::new() };
        parsed.tokens.clear();
        self.parse(index, costs, &mut parsed);
        parsed.counts.literals[END_OF_BLOCK] += 1;
        self.parsed = parsed;
    }

    /// Writes the segment as a block with codes of its own, fixed ones or none, whatever is shortest.
    fn write_own(
        &mut self,
        target: &mut BitWriter<'_>,
        index: &HistoryIndex,
        is_last: bool,
        is_only: bool,
    ) -> Option<()> {
        let fixed = SharedCodes::fixed();
        let canned = self.dictionary.codes().map(|_| &self.dictionary.canned().costs);
        self.parse_tokens(index, canned.unwrap_or(&fixed.costs));
        if self.level >= Level::Dense {
            // The codes are known only now.
            let (literals, distances) = self.parsed.counts.lengths();
            self.parse_tokens(index, &Costs::new(&literals, &distances));
        }
        let Parsed { tokens, counts } = &self.parsed;
        let mut tokens = &tokens[..];
        let (literals, distances) = counts.lengths();
        let header = Header::new(&literals, &distances);
        let own_bits = header.bits + counts.bits(&Costs::new(&literals, &distances), literals[END_OF_BLOCK]);
        let fixed_bits = counts.bits(&fixed.costs, 7);
        let is_last = u64::from(is_last);
        let raw = self.window.segment();
        if 8 * raw.len() + 32 + 7 < own_bits.min(fixed_bits) {
            target.put(is_last, 3);
            target.align();
            target.put(raw.len() as u64 | (!raw.len() as u64 & 0xFFFF) << 16, 32);
            return (target.flush() && target.bytes(raw)).then_some(());
        }
        let own;
        let codes = if fixed_bits <= own_bits {
            target.put(is_last | 1 << 1, 3);
            &fixed.codes
        } else {
            target.put(is_last | 2 << 1, 3);
            header.write(target).then_some(())?;
            own = Codes::new(&literals, &distances);
            if is_only {
                let matches: u32 = counts.distances.iter().sum();
                self.entries = Entries::divide(tokens.len() + matches as usize);
            }
            &own
        };
        if let Some(entries) = self.entries {
            (tokens, self.entries) = write_parts(target, codes, tokens, entries)?;
        }
        let fits = write_tokens(target, codes, tokens);
        codes.put_literal(target, END_OF_BLOCK);
        (fits && target.flush()).then_some(())
    }
}

/// Writes the empty stored block that ends a part.
fn end_part(target: &mut BitWriter<'_>) -> Option<()> {
    target.flush().then_some(())?;
    target.put(0, 3);
    target.align();
    target.put(u32::from_le_bytes(PART_END).into(), 32);
    target.flush().then_some(())
}

/// Writes all parts but the last. Returns the tokens of the last part, and the entry points unless a part is too long.
fn write_parts<'t>(
    target: &mut BitWriter<'_>,
    codes: &Codes,
    mut tokens: &'t [Token],
    mut entries: Entries,
) -> Option<(&'t [Token], Option<Entries>)> {
    let (mut steps, mut are_short) = (0, true);
    for part in 1..PARTS {
        let begun = target.bits();
        let in_part = tokens.iter().take_while(|&&token| {
            let goes_on = steps < entries.begin(part);
            steps += if goes_on { 1 + usize::from(token >> 16 != 0) } else { 0 };
            goes_on
        });
        let (of_part, rest) = tokens.split_at(in_part.count());
        write_tokens(target, codes, of_part).then_some(())?;
        are_short &= entries.pass(part, steps, target.bits() - begun);
        tokens = rest;
    }
    Some((tokens, are_short.then_some(entries)))
}

fn write_tokens(target: &mut BitWriter<'_>, codes: &Codes, tokens: &[Token]) -> bool {
    tokens.iter().all(|&token| {
        codes.put_token(target, token);
        target.flush()
    })
}

/// A sink that writes tokens at once.
struct Writing<'a, 'b> {
    target: &'a mut BitWriter<'b>,
    codes: &'a Codes,
}

impl Sink for Writing<'_, '_> {
    #[inline(always)]
    fn literal(&mut self, literal: u8) -> bool {
        self.codes.put_literal(self.target, usize::from(literal));
        self.target.flush()
    }

    #[inline(always)]
    fn repeat(&mut self, length: usize, distance: usize) -> bool {
        self.codes.put_match(self.target, length, distance);
        self.target.flush()
    }
}

/// A parsed segment. Symbols are counted during the parse, when the kind of each token is known.
struct Parsed {
    tokens: Vec<Token>,
    counts: Counts,
}

impl Sink for Parsed {
    #[inline(always)]
    fn literal(&mut self, literal: u8) -> bool {
        self.counts.literals[usize::from(literal)] += 1;
        self.tokens.push(literal.into());
        true
    }

    #[inline(always)]
    fn repeat(&mut self, length: usize, distance: usize) -> bool {
        self.counts.literals[257 + length_symbol(length)] += 1;
        self.counts.distances[distance_symbol(distance)] += 1;
        self.tokens.push((length << 16 | distance) as Token);
        true
    }
}

/// How often each symbol occurs.
#[derive(Clone)]
pub(crate) struct Counts {
    pub(crate) literals: [u32; LITERALS],
    pub(crate) distances: [u32; DISTANCES],
}

impl Counts {
    pub(crate) fn new() -> Counts {
        Counts { literals: [0; LITERALS], distances: [0; DISTANCES] }
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn add(&mut self, others: &Counts) {
        self.literals.iter_mut().zip(&others.literals).for_each(|(count, other)| *count += other);
        self.distances.iter_mut().zip(&others.distances).for_each(|(count, other)| *count += other);
    }

    /// The lengths of codes for these counts: as short as one look-up of a decoder.
    fn lengths(&self) -> ([u8; LITERALS], [u8; DISTANCES_ANY]) {
        let (mut literals, mut distances) = ([0; LITERALS], [0; DISTANCES_ANY]);
        limited_lengths(&self.literals, entries::LITERAL_BITS, &mut literals);
        limited_lengths(&self.distances, DISTANCE_BITS, &mut distances);
        (literals, distances)
    }

    /// Bits of a block, without its header.
    fn bits(&self, costs: &Costs, end_of_block: u8) -> usize {
        let literals = self.literals[..END_OF_BLOCK].iter().zip(costs.literals);
        let literals: usize = literals.map(|(&count, cost)| count as usize * usize::from(cost)).sum();
        let lengths = self.literals[257..].iter().zip(&costs.length_symbols).zip(LENGTH_EXTRA);
        let lengths: usize =
            lengths.map(|((&count, &bits), extra)| count as usize * usize::from(bits + extra)).sum();
        let distances = self.distances.iter().zip(costs.distances);
        let distances: usize = distances.map(|(&count, cost)| count as usize * usize::from(cost)).sum();
        literals + lengths + distances + usize::from(end_of_block)
    }
}
