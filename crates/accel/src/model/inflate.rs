//! The inflater: strict, with the accelerator's errors, and resumable through the state's bytes alone.

use super::header::{self, Words};
use super::input::{Bits, Dry, Early, split_early};
use super::tables::{Found, Table};
use crate::aecs::{DecompressState, HISTORY_BYTES, Parser, words_of};
use crate::aecs::{fixed_distance_lengths, fixed_literal_lengths};
use crate::completion::ErrorCode;

const LENGTH_BASE: [u16; 29] = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
    227, 258,
];
const LENGTH_EXTRA: [u8; 29] =
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCE_BASE: [u16; 30] = [
    1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073,
    4097, 6145, 8193, 12289, 16385, 24577,
];

/// Why the inflater stopped before a block did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Dry,
    Full,
    Error(ErrorCode),
}

impl From<Dry> for Stop {
    fn from(Dry: Dry) -> Stop {
        Stop::Dry
    }
}

impl From<ErrorCode> for Stop {
    fn from(error: ErrorCode) -> Stop {
        Stop::Error(error)
    }
}

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// At the end of a block.
    pub(super) stop: bool,
    /// Only the end of the last block counts as one.
    pub(super) final_only: bool,
}

/// The reason why the inflater stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The stream ended, or a block at which the inflater had to stop.
    Block,
    /// The input is used up.
    Dry,
    /// There is more output than was allowed.
    Full,
}

struct Codes {
    words: Words,
    literals: Table,
    distances: Table,
}

impl Codes {
    fn new() -> Codes {
        Codes { words: ([0; 288], [0; 32]), literals: Table::new(), distances: Table::new() }
    }

    fn set(&mut self, words: Words) -> bool {
        self.words = words;
        self.literals.build(&words.0) & self.distances.build(&words.1)
    }
}

/// An inflater. Between two jobs it keeps only memory for reuse.
pub(super) struct Inflater {
    fixed: Box<Codes>,
    own: Box<Codes>,
    /// The bytes of a state that `own` was built from.
    own_bytes: Vec<u8>,
    is_fixed: bool,
    scratch: Table,
    early: Vec<Early>,
    /// History, then output.
    window: Vec<u8>,
    history: usize,
    parser: Parser,
    stored: usize,
    /// Length and distance of a match whose bytes are to come.
    pending: (usize, usize),
    /// Set if the last symbol ended a block: whether that was the last block. Not set inside a block.
    ended: Option<bool>,
}

impl Inflater {
    pub(super) fn new() -> Inflater {
        let mut fixed = Box::new(Codes::new());
        let words = (words_of(&fixed_literal_lengths()), words_of(&fixed_distance_lengths()));
        let (Ok(literals), Ok(distances)) = words else { unreachable!("the fixed codes are codes") };
        let is_code = fixed.set((literals, distances));
        debug_assert!(is_code);
        Inflater {
            fixed,
            own: Box::new(Codes::new()),
            own_bytes: Vec::new(),
            is_fixed: true,
            scratch: Table::new(),
            early: Vec::new(),
            window: Vec::new(),
            history: 0,
            parser: Parser::Header,
            stored: 0,
            pending: (0, 0),
            ended: None,
        }
    }

    /// Begins a job, with the state that it reads, if any.
    pub(super) fn begin(&mut self, state: Option<&DecompressState>) -> Result<(), ErrorCode> {
        self.window.clear();
        self.early.clear();
        (self.history, self.stored, self.pending, self.ended) = (0, 0, (0, 0), None);
        self.parser = Parser::Header;
        let Some(state) = state else { return Ok(()) };
        self.parser = state.parser().ok_or(ErrorCode::BadState)?;
        if !split_early(state.input(), &mut self.early) {
            return Err(ErrorCode::BadState);
        }
        let (older, newer) = state.history();
        self.window.extend_from_slice(older);
        self.window.extend_from_slice(newer);
        self.history = self.window.len();
        self.stored = state.stored_bytes() as usize;
        self.pending = ((state.pending_match() & 0x1FF) as usize, (state.pending_match() >> 16) as usize);
        let is_sound = self.stored <= 0xFFFF
            && self.pending.0 <= 258
            && (self.pending.0 == 0 || (1..=HISTORY_BYTES.min(self.history)).contains(&self.pending.1));
        match self.parser {
            _ if !is_sound => Err(ErrorCode::BadState),
            Parser::Token { .. } => self.load_codes(state),
            Parser::Ended => Err(ErrorCode::NoProgress),
            _ => Ok(()),
        }
    }

    fn load_codes(&mut self, state: &DecompressState) -> Result<(), ErrorCode> {
        self.is_fixed = false;
        if self.own_bytes == state.code_bytes() {
            return Ok(());
        }
        self.own_bytes.clear();
        let words = state.code_words().ok_or(ErrorCode::BadState)?;
        if !self.own.set(words) {
            return Err(ErrorCode::BadState);
        }
        self.own_bytes.extend_from_slice(state.code_bytes());
        Ok(())
    }

    /// The bits of the state's accumulator and of source 1.
    pub(super) fn input<'a>(early: &'a [Early], source: &'a [u8], ignored: usize) -> Bits<'a> {
        Bits::new(early, source, ignored)
    }

    /// Takes the accumulator's bits out, for [`input`](Self::input).
    pub(super) fn take_early(&mut self) -> Vec<Early> {
        std::mem::take(&mut self.early)
    }

    /// The output since the beginning or the last [`forget`](Self::forget).
    pub(super) fn output(&self) -> &[u8] {
        &self.window[self.history..]
    }

    /// Keeps only the part of the output to which later matches may refer.
    pub(super) fn forget(&mut self) {
        let kept = self.window.len().min(HISTORY_BYTES);
        self.window.drain(..self.window.len() - kept);
        self.history = kept;
    }

    /// Whether the last thing that was read ended a block that counts.
    pub(super) fn has_ended(&self, rules: Rules) -> bool {
        self.ended.is_some_and(|is_final| is_final || !rules.final_only)
    }

    /// Whether the stream has ended.
    pub(super) fn is_over(&self) -> bool {
        self.parser == Parser::Ended
    }

    /// Whether the header of a block comes next.
    pub(super) fn is_at_header(&self) -> bool {
        self.parser == Parser::Header
    }

    /// Decodes until it has to stop, with at most `bytes_max` bytes of output.
    pub(super) fn run(
        &mut self,
        bits: &mut Bits<'_>,
        bytes_max: usize,
        rules: Rules,
    ) -> Result<End, ErrorCode> {
        let limit = self.history + bytes_max;
        loop {
            let stop = match self.parser {
                Parser::Ended => return Ok(End::Block),
                Parser::Header => self.header(bits),
                Parser::Stored { is_final } => self.stored(bits, limit, is_final),
                Parser::Token { is_final } => self.tokens(bits, limit, is_final),
            };
            match stop {
                Err(Stop::Dry) => return Ok(End::Dry),
                Err(Stop::Full) => return Ok(End::Full),
                Err(Stop::Error(error)) => return Err(error),
                Ok(()) => {}
            }
            if rules.stop && self.ended.is_some() && self.has_ended(rules) {
                return Ok(End::Block);
            }
        }
    }

    /// Reads a header whole, or takes no bit.
    fn header(&mut self, bits: &mut Bits<'_>) -> Result<(), Stop> {
        let mut ahead = *bits;
        let is_final = ahead.number(1)? == 1;
        self.parser = match ahead.number(2)? {
            0 => {
                ahead.align();
                let lengths = ahead.number(32)?;
                if lengths >> 16 != !lengths & 0xFFFF {
                    return Err(ErrorCode::StoredLength.into());
                }
                self.stored = (lengths & 0xFFFF) as usize;
                Parser::Stored { is_final }
            }
            1 => {
                self.is_fixed = true;
                Parser::Token { is_final }
            }
            2 => {
                let words = header::read(&mut ahead, &mut self.scratch)?;
                (self.is_fixed, self.own_bytes) = (false, Vec::new());
                if !self.own.set(words) {
                    return Err(ErrorCode::LiteralsOverSubscribed.into());
                }
                Parser::Token { is_final }
            }
            _ => return Err(ErrorCode::BlockType.into()),
        };
        self.ended = None;
        *bits = ahead;
        Ok(())
    }

    fn end_block(&mut self, is_final: bool) {
        self.ended = Some(is_final);
        self.parser = if is_final { Parser::Ended } else { Parser::Header };
    }

    fn stored(&mut self, bits: &mut Bits<'_>, limit: usize, is_final: bool) -> Result<(), Stop> {
        let room = limit - self.window.len();
        let wanted = self.stored.min(room);
        let copied = bits.copy(wanted, &mut self.window);
        self.stored -= copied;
        match self.stored {
            0 => {
                self.end_block(is_final);
                Ok(())
            }
            _ if copied < wanted => Err(Stop::Dry),
            _ => Err(Stop::Full),
        }
    }

    fn tokens(&mut self, bits: &mut Bits<'_>, limit: usize, is_final: bool) -> Result<(), Stop> {
        if self.pending.0 > 0 {
            self.repeat(limit)?;
        }
        let codes = if self.is_fixed { &self.fixed } else { &self.own };
        loop {
            bits.refill();
            while self.window.len() < limit
                && let Some((literal, taken)) = codes.literals.literal(bits.word(), bits.available())
            {
                bits.take(taken);
                self.window.push(literal);
            }
            bits.refill();
            let (word, available) = (bits.word(), bits.available());
            let (symbol, mut taken) = found(&codes.literals, word, available, ErrorCode::UndefinedLiteral)?;
            if symbol < 256 {
                if self.window.len() == limit {
                    return Err(Stop::Full);
                }
                bits.take(taken);
                self.window.push(symbol as u8);
                continue;
            }
            if symbol == 256 {
                bits.take(taken);
                self.end_block(is_final);
                return Ok(());
            }
            let at = symbol - 257;
            let (Some(&base), Some(&extra)) = (LENGTH_BASE.get(at), LENGTH_EXTRA.get(at)) else {
                return Err(ErrorCode::BadLength.into());
            };
            let mut extra_bits = |count: u32| {
                let value = (word >> taken & ((1 << count) - 1)) as usize;
                taken += count;
                if taken > available { Err(Stop::Dry) } else { Ok(value) }
            };
            let length = usize::from(base) + extra_bits(u32::from(extra))?;
            let rest = word >> taken;
            let (symbol, code_bits) =
                found(&codes.distances, rest, available - taken, ErrorCode::UndefinedDistance)?;
            taken += code_bits;
            let base = *DISTANCE_BASE.get(symbol).ok_or(ErrorCode::BadDistance)?;
            let extra = (symbol / 2).saturating_sub(1) as u32;
            let distance = usize::from(base) + (word >> taken & ((1 << extra) - 1)) as usize;
            taken += extra;
            if taken > available {
                return Err(Stop::Dry);
            }
            if distance > HISTORY_BYTES {
                return Err(ErrorCode::BadDistance.into());
            }
            if distance > self.window.len() {
                return Err(ErrorCode::BeforeStart.into());
            }
            bits.take(taken);
            let begin = self.window.len() - distance;
            if length <= distance && self.window.len() + length <= limit {
                self.window.extend_from_within(begin..begin + length);
            } else {
                self.pending = (length, distance);
                copy_pending(&mut self.window, &mut self.pending, limit)?;
            }
        }
    }

    fn repeat(&mut self, limit: usize) -> Result<(), Stop> {
        copy_pending(&mut self.window, &mut self.pending, limit)
    }

    /// Writes the position at which it stopped into a state. `None` if the accumulator cannot hold the rest of the
    /// input.
    pub(super) fn save(&self, bits: &Bits<'_>, is_dry: bool, state: &mut DecompressState) -> Option<()> {
        state.set_parser(self.parser);
        state.set_stored_bytes(self.stored as u32);
        state.set_pending_match(self.pending.0 as u32 | (self.pending.1 as u32) << 16);
        if matches!(self.parser, Parser::Token { .. }) {
            let codes = if self.is_fixed { &self.fixed } else { &self.own };
            state.set_code_words(&codes.words.0, &codes.words.1);
        }
        state.set_history(&self.window);
        state.clear_input();
        for (word, count) in bits.rest(is_dry)? {
            let has_room = state.push_input(word, count);
            debug_assert!(has_room, "no more words are left than there is room for");
        }
        Some(())
    }
}

fn copy_pending(window: &mut Vec<u8>, pending: &mut (usize, usize), limit: usize) -> Result<(), Stop> {
    let (length, distance) = *pending;
    let copied = length.min(limit - window.len());
    for _ in 0..copied {
        window.push(window[window.len() - distance]);
    }
    pending.0 -= copied;
    if pending.0 > 0 { Err(Stop::Full) } else { Ok(()) }
}

#[inline]
fn found(table: &Table, word: u64, available: u32, undefined: ErrorCode) -> Result<(usize, u32), Stop> {
    match table.find(word, available) {
        Found::Symbol { symbol, bits } => Ok((symbol, bits)),
        Found::Undefined => Err(undefined.into()),
        Found::Dry => Err(Stop::Dry),
    }
}
