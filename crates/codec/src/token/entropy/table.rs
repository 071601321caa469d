//! The tables by which codes are read.

use super::contexts::{CONTEXTS_MAX, Contexts};
use super::lengths::limited;
use crate::token::BITS;

/// No prefix code is longer: so many bits decide about a step. Tables of 11 bits for 16 contexts take 128 KiB, which
/// stays in the second cache.
pub(super) const CODE_BITS_MAX: u32 = 11;

/// Steps of all contexts.
const STEPS: usize = CONTEXTS_MAX << CODE_BITS_MAX;

/// The most bits that a token takes: an escape and a number.
pub(super) const TOKEN_BITS_MAX: u32 = CODE_BITS_MAX + *BITS.end();

/// What the next bits say: a token, whose number stands in another list, or an escape.
///
/// | bits | field |
/// |---|---|
/// | 0 to 4 | bits of the code, and of the number behind an escape |
/// | 5 | set for an escape |
/// | 7 to 14 | [state](State) behind a token |
///
/// A step has two bytes, so the steps of a context that comes often may stay in the first cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step(u16);

impl Step {
    const ESCAPES: u16 = 1 << 5;

    /// Of a token, with the state behind it.
    fn token(code_bits: u8, state: State) -> Step {
        Step(u16::from(code_bits) | state.0)
    }

    /// Of an escape, whose number has `number_bits`.
    fn escape(code_bits: u32, number_bits: u32) -> Step {
        Step((code_bits + number_bits) as u16 | Step::ESCAPES)
    }

    /// The bits of the code, and of the number behind an escape.
    #[inline]
    pub(super) fn bits(self) -> u32 {
        u32::from(self.0 & 31)
    }

    #[inline]
    pub(super) fn escapes(self) -> bool {
        self.0 & Step::ESCAPES != 0
    }

    #[inline]
    pub(super) fn state(self) -> State {
        State(self.0)
    }
}

/// Where a token is read: the context in bits 11 to 14, and in bits 7 to 10 how many bits the escape's code has there.
/// Other bits say nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct State(u16);

const _: () = assert!(CONTEXTS_MAX == 16 && CODE_BITS_MAX == 11);

impl State {
    /// The context's place is that of its first step.
    const CONTEXT: u16 = (CONTEXTS_MAX as u16 - 1) << CODE_BITS_MAX;
    const ESCAPE_SHIFT: u32 = 7;

    fn new(context: u8, escape_bits: u8) -> State {
        State::of(context << 4 | escape_bits)
    }

    /// As a list of states has it.
    #[inline]
    fn of(byte: u8) -> State {
        State(u16::from(byte) << State::ESCAPE_SHIFT)
    }

    fn byte(self) -> u8 {
        (self.0 >> State::ESCAPE_SHIFT) as u8
    }

    #[inline]
    fn first_step(self) -> usize {
        usize::from(self.0 & State::CONTEXT)
    }

    pub(super) fn context(self) -> usize {
        self.first_step() >> CODE_BITS_MAX
    }

    #[inline]
    fn escape_bits(self) -> u32 {
        u32::from(self.0 >> State::ESCAPE_SHIFT & 15)
    }
}

/// A symbol of a code: a token, or the escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) token: Option<u16>,
    /// Bits of its code.
    pub(super) bits: u8,
}

/// The steps of all contexts, and the states behind all tokens.
pub(super) struct Table {
    /// By context and by the next [`CODE_BITS_MAX`] bits.
    steps: Box<[Step; STEPS]>,
    /// The tokens of the steps.
    numbers: Box<[u16; STEPS]>,
    /// Bytes of the states behind each number, up to 2^bits.
    states: Box<[u8]>,
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
        let codes: Vec<Vec<Symbol>> = codes.into_iter().collect();
        let escape_bits: Vec<u8> = codes.iter().map(|code| escape_bits(code)).collect();
        let state = |context: u8| State::new(context, escape_bits[usize::from(context)]);
        let first = state(first);
        let mut states: Vec<u8> = of_token.iter().map(|&context| state(context).byte()).collect();
        states.resize(1 << number_bits, first.byte());
        let mut steps = Box::new([Step::escape(0, number_bits); STEPS]);
        let mut numbers = Box::new([0; STEPS]);
        for (context, code) in codes.iter().enumerate() {
            let row = context << CODE_BITS_MAX..(context + 1) << CODE_BITS_MAX;
            let step = |symbol: &Symbol| match symbol.token {
                Some(token) => Step::token(symbol.bits, State::of(states[usize::from(token)])),
                None => Step::escape(symbol.bits.into(), number_bits),
            };
            fill(&mut steps[row.clone()], &mut numbers[row], code, step);
        }
        Table { steps, numbers, states: states.into(), first, number_bits }
    }

    /// The symbols of a context's code, in the order of their codes.
    pub(super) fn code(&self, context: usize) -> Vec<Symbol> {
        let mut symbols: Vec<(u32, Symbol)> =
            self.codes(context).map(|(symbol, code)| (code.reverse_bits(), symbol)).collect();
        symbols.sort_unstable_by_key(|&(code, _)| code);
        symbols.into_iter().map(|(_, symbol)| symbol).collect()
    }

    /// The step for the next bits, and the number of its token.
    #[inline]
    pub(super) fn step(&self, state: State, word: u64) -> (Step, u16) {
        let at = state.first_step() | (word as usize & ((1 << CODE_BITS_MAX) - 1));
        (self.steps[at], self.numbers[at])
    }

    /// The number in the next bits if they are an escape, and the state behind it.
    #[inline]
    pub(super) fn escaped(&self, state: State, word: u64) -> (u16, State) {
        let number = (word >> state.escape_bits()) as usize & (self.states.len() - 1);
        (number as u16, State::of(self.states[number]))
    }

    /// The state behind a token.
    #[inline]
    pub(super) fn state(&self, number: u16) -> State {
        State::of(self.states[usize::from(number)])
    }

    pub(super) fn first(&self) -> State {
        self.first
    }

    pub(super) fn number_bits(&self) -> u32 {
        self.number_bits
    }

    /// The codes of a context: each symbol with the bits that choose it.
    pub(super) fn codes(&self, context: usize) -> impl Iterator<Item = (Symbol, u32)> {
        let symbol = move |bits: u32| {
            let at = context << CODE_BITS_MAX | bits as usize;
            match self.steps[at] {
                step if step.escapes() => {
                    Symbol { token: None, bits: (step.bits() - self.number_bits) as u8 }
                }
                step => Symbol { token: Some(self.numbers[at]), bits: step.bits() as u8 },
            }
        };
        (0..1 << CODE_BITS_MAX)
            .map(move |bits| (symbol(bits), bits))
            .filter(|&(symbol, bits)| bits >> symbol.bits == 0)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.steps) + size_of_val(&*self.numbers) + self.states.len()
    }
}

/// Bits of the escape in a code, 0 if the code has none.
fn escape_bits(code: &[Symbol]) -> u8 {
    let escape = code.iter().find(|symbol| symbol.token.is_none());
    escape.map_or(0, |symbol| symbol.bits)
}

/// Lays out a context's complete code, whose symbols ascend by length, and the step of each symbol.
fn fill(steps: &mut [Step], numbers: &mut [u16], code: &[Symbol], step_of: impl Fn(&Symbol) -> Step) {
    let mut next = 0u32;
    for symbol in code {
        let (step, number) = (step_of(symbol), symbol.token.unwrap_or(0));
        // Codes are counted from their highest bit, and read from their lowest.
        let first = next.reverse_bits() >> (32 - CODE_BITS_MAX);
        for at in (first as usize..1 << CODE_BITS_MAX).step_by(1 << symbol.bits) {
            (steps[at], numbers[at]) = (step, number);
        }
        next += 1 << (CODE_BITS_MAX - u32::from(symbol.bits));
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
    let best = tried.min_by_key(|&(bits, _)| bits).map(|(_, code): (u64, Vec<Symbol>)| code);
    let mut code = best.unwrap_or_default();
    // Of one length, numbers that ascend pack best.
    code.sort_unstable_by_key(|symbol| (symbol.bits, symbol.token.is_none(), symbol.token));
    code
}
