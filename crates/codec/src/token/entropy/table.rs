//! The tables by which codes are read.

use super::contexts::{CONTEXTS_MAX, Contexts};
use super::lengths::limited;
use crate::token::BITS;

/// No prefix code is longer: so many bits decide about an entry. Tables of 11 bits for 16 contexts take 128 KiB, which
/// stays in the second cache.
pub(super) const CODE_BITS_MAX: u32 = 11;

/// Entries of all contexts.
const ENTRIES: usize = CONTEXTS_MAX << CODE_BITS_MAX;

/// The most bits that a token takes: an escape and a number.
pub(super) const TOKEN_BITS_MAX: u32 = CODE_BITS_MAX + *BITS.end();

/// What the next bits say: a token and the state behind it, or an escape.
///
/// | bits | field |
/// |---|---|
/// | 0 to 4 | bits of the code, and of the number behind an escape |
/// | 7 | set for an escape |
/// | 8 to 23 | number of the token |
/// | 24 to 31 | state behind the token |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u32);

impl Entry {
    const ESCAPES: u32 = 1 << 7;

    /// Of a token. The state behind it is not known yet.
    fn token(number: u16, code_bits: u32) -> Entry {
        Entry(code_bits | u32::from(number) << 8)
    }

    /// Of an escape, whose number has `number_bits`.
    fn escape(code_bits: u32, number_bits: u32) -> Entry {
        Entry((code_bits + number_bits) | Entry::ESCAPES)
    }

    /// The same token with the state behind it.
    fn before(self, state: State) -> Entry {
        Entry(self.0 | u32::from(state.0) << 24)
    }

    /// The bits of the code, and of the number behind an escape.
    #[inline]
    pub(super) fn bits(self) -> u32 {
        self.0 & 31
    }

    #[inline]
    pub(super) fn escapes(self) -> bool {
        self.0 & Entry::ESCAPES != 0
    }

    #[inline]
    pub(super) fn number(self) -> u16 {
        (self.0 >> 8) as u16
    }

    #[inline]
    pub(super) fn state(self) -> State {
        State((self.0 >> 24) as u8)
    }
}

/// Where a token is read: its context in the upper four bits, and how many bits the escape's code has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(u8);

const _: () = assert!(CONTEXTS_MAX <= 16 && CODE_BITS_MAX <= 15);

impl State {
    fn new(context: u8, escape_bits: u8) -> State {
        State(context << 4 | escape_bits)
    }

    #[inline]
    pub(super) fn context(self) -> usize {
        usize::from(self.0 >> 4)
    }

    #[inline]
    fn escape_bits(self) -> u32 {
        u32::from(self.0 & 15)
    }
}

/// A symbol of a code: a token, or the escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) token: Option<u16>,
    /// Bits of its code.
    pub(super) bits: u8,
}

/// The entries of all contexts, and the states behind all tokens.
pub(super) struct Table {
    /// By context and by the next [`CODE_BITS_MAX`] bits.
    entries: Box<[Entry; ENTRIES]>,
    /// Behind each number, up to 2^bits.
    states: Box<[State]>,
    /// Where a value begins.
    first: State,
    /// Of a number behind an escape.
    number_bits: u32,
}

impl Table {
    /// Makes a code for each context.
    pub(super) fn new(contexts: &Contexts, number_bits: u32) -> Table {
        let codes = contexts.weights.iter().map(|weights| code(weights, number_bits));
        Table::with_codes(&contexts.of_token, number_bits, codes)
    }

    /// Lays out a complete code for each context, whose symbols ascend by length. `contexts` are those behind each
    /// token, and the last one is where a value begins.
    pub(super) fn with_codes(
        contexts: &[u8],
        number_bits: u32,
        codes: impl IntoIterator<Item = Vec<Symbol>>,
    ) -> Table {
        let (&first, of_token) = contexts.split_last().expect("values begin in a context");
        let mut entries = Box::new([Entry::escape(0, number_bits); ENTRIES]);
        let mut escape_bits = [0; CONTEXTS_MAX];
        let rows = entries.chunks_mut(1 << CODE_BITS_MAX);
        for ((row, escape_bits), code) in rows.zip(&mut escape_bits).zip(codes) {
            fill(row, &code, number_bits);
            let escape = code.iter().find(|symbol| symbol.token.is_none());
            *escape_bits = escape.map_or(0, |symbol| symbol.bits);
        }
        // Only now the escapes of all contexts are known.
        let state = |context: u8| State::new(context, escape_bits[usize::from(context)]);
        let first = state(first);
        let mut states: Vec<State> = of_token.iter().map(|&context| state(context)).collect();
        states.resize(1 << number_bits, first);
        for entry in entries.iter_mut().filter(|entry| !entry.escapes()) {
            *entry = entry.before(states[usize::from(entry.number())]);
        }
        Table { entries, states: states.into(), first, number_bits }
    }

    /// The symbols of a context's code, in the order of their codes.
    pub(super) fn code(&self, context: usize) -> Vec<Symbol> {
        let mut symbols: Vec<(u32, Symbol)> = self
            .codes(context)
            .map(|(entry, code)| {
                let token = (!entry.escapes()).then_some(entry.number());
                (code.reverse_bits(), Symbol { token, bits: self.code_bits(entry) as u8 })
            })
            .collect();
        symbols.sort_unstable_by_key(|&(code, _)| code);
        symbols.into_iter().map(|(_, symbol)| symbol).collect()
    }

    /// The entry for the next bits.
    #[inline]
    pub(super) fn entry(&self, state: State, word: u64) -> Entry {
        let bits = word as usize & ((1 << CODE_BITS_MAX) - 1);
        self.entries[state.context() << CODE_BITS_MAX | bits]
    }

    /// The number in the next bits if they are an escape, and the state behind it.
    #[inline]
    pub(super) fn escaped(&self, state: State, word: u64) -> (u16, State) {
        let number = (word >> state.escape_bits()) as usize & ((1 << self.number_bits) - 1);
        (number as u16, self.states[number])
    }

    /// The state behind a token.
    #[inline]
    pub(super) fn state(&self, number: u16) -> State {
        self.states[usize::from(number)]
    }

    pub(super) fn first(&self) -> State {
        self.first
    }

    pub(super) fn number_bits(&self) -> u32 {
        self.number_bits
    }

    /// The codes of a context: each entry with the bits that choose it.
    pub(super) fn codes(&self, context: usize) -> impl Iterator<Item = (Entry, u32)> {
        let entries = &self.entries[context << CODE_BITS_MAX..][..1 << CODE_BITS_MAX];
        entries.iter().copied().zip(0..).filter(|&(entry, at)| at >> self.code_bits(entry) == 0)
    }

    /// Bits of an entry's code.
    pub(super) fn code_bits(&self, entry: Entry) -> u32 {
        entry.bits() - if entry.escapes() { self.number_bits } else { 0 }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.entries) + size_of_val(&*self.states)
    }
}

/// Lays out a context's complete code, whose symbols ascend by length.
fn fill(entries: &mut [Entry], code: &[Symbol], number_bits: u32) {
    let mut next = 0u32;
    for symbol in code {
        let code_bits = u32::from(symbol.bits);
        let entry = match symbol.token {
            Some(token) => Entry::token(token, code_bits),
            None => Entry::escape(code_bits, number_bits),
        };
        // Codes are counted from their highest bit, and read from their lowest.
        let first = next.reverse_bits() >> (32 - CODE_BITS_MAX);
        (first as usize..1 << CODE_BITS_MAX).step_by(1 << code_bits).for_each(|at| entries[at] = entry);
        next += 1 << (CODE_BITS_MAX - code_bits);
    }
}

/// A code for tokens of these weights: symbols of ascending lengths.
fn code(weights: &[f32], number_bits: u32) -> Vec<Symbol> {
    /// Weights become whole numbers of this many parts.
    const PARTS: f32 = 64.0;
    let mut tokens: Vec<(u64, u16)> =
        weights.iter().zip(0..).map(|(&weight, token)| ((weight * PARTS) as u64, token)).collect();
    tokens.sort_unstable_by_key(|&(weight, token)| (std::cmp::Reverse(weight), token));
    // Rare tokens that have codes of their own make the codes of others longer. So several numbers are tried.
    let with_codes = (4..=CODE_BITS_MAX).map(|bits| ((1 << bits) - 1).min(tokens.len()));
    let tried = with_codes.map(|kept| {
        let (kept, escaped) = tokens.split_at(kept);
        let escaped = escaped.iter().map(|&(weight, _)| weight).sum::<u64>().max(1);
        let mut symbols: Vec<(u64, Option<u16>)> =
            kept.iter().map(|&(weight, token)| (weight, Some(token))).collect();
        symbols.push((escaped, None));
        symbols.sort_by_key(|&(weight, _)| weight);
        let ascending: Vec<u64> = symbols.iter().map(|&(weight, _)| weight).collect();
        let lengths = limited(&ascending, CODE_BITS_MAX);
        let coded: u64 =
            ascending.iter().zip(&lengths).map(|(weight, &length)| weight * u64::from(length)).sum();
        let code =
            symbols.iter().zip(lengths).rev().map(|(&(_, token), bits)| Symbol { token, bits }).collect();
        (coded + escaped * u64::from(number_bits), code)
    });
    tried.min_by_key(|&(bits, _)| bits).map(|(_, code): (u64, Vec<Symbol>)| code).unwrap_or_default()
}
