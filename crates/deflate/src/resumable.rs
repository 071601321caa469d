//! The decoder that can stop after any byte of its input or output, and resume.
//!
//! The decoder takes each byte of the input only when needed, so that it stops right behind the stream. For whole
//! blocks [`Decoder`](crate::Decoder) is several times as fast.

use crate::dictionary::Dictionary;
use crate::error::{DecodeError, Fault};
use crate::header::{BitSource, HeaderReader};
use crate::shared::SharedCodes;
use crate::tables::{
    DISTANCE_BITS, LITERAL_BITS, NO_DISTANCE, NoDistance, Special, Tables, is_special, match_length,
};
use crate::{Huffman, WINDOW_BYTES};

/// Decodes a stream that comes in pieces.
///
/// ```
/// use ziptier_deflate::{Dictionary, Encoder, Huffman, Level, ResumableDecoder, Status};
///
/// let dictionary = Dictionary::new(b"");
/// let mut packed = Vec::new();
/// Encoder::new(&dictionary, Level::Lazy).compress(Huffman::Fixed, b"piece by piece", &mut packed, 100);
///
/// let mut decoder = ResumableDecoder::new(&dictionary, Huffman::Fixed);
/// let (mut raw, mut read) = (Vec::new(), 0);
/// loop {
///     let mut piece = [0; 5];
///     let progress = decoder.decode(&packed[read..], &mut piece)?;
///     read += progress.read;
///     raw.extend_from_slice(&piece[..progress.written]);
///     if progress.status == Status::Done {
///         break;
///     }
/// }
/// assert_eq!((&raw[..], read), (&b"piece by piece"[..], packed.len()));
/// # Ok::<(), ziptier_deflate::DecodeError>(())
/// ```
#[derive(Clone)]
pub struct ResumableDecoder<'a> {
    dictionary: &'a Dictionary,
    state: State,
    is_last: bool,
    codes: Codes,
    own: Option<Box<Tables>>,
    header: Option<Box<HeaderReader>>,
    word: u64,
    filled: u32,
    /// Bytes of the input taken so far.
    taken: usize,
    history: Box<[u8; WINDOW_BYTES]>,
    /// The position of the next byte in the history, which is a ring.
    at: usize,
    /// Bytes of the history that there are.
    known: usize,
}

/// The progress in the pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that were taken.
    pub read: usize,
    /// Bytes of the output that were written.
    pub written: usize,
    /// The reason of the stop.
    pub status: Status,
}

/// Why decoding stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// All input was taken and the stream goes on.
    NeedsInput,
    /// The output is full and there are more bytes.
    NeedsOutput,
    /// The stream has ended.
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    BlockHeader,
    StoredLengths,
    Stored {
        left: usize,
    },
    OwnHeader,
    Symbol,
    /// Of a match, whose length has been read.
    Distance {
        length: usize,
    },
    Copy {
        length: usize,
        distance: usize,
    },
    Done,
}

#[derive(Debug, Clone, Copy)]
enum Codes {
    Fixed,
    Own,
    Canned,
}

/// The pieces at hand.
struct Pieces<'p> {
    input: &'p [u8],
    read: usize,
    word: u64,
    filled: u32,
    output: &'p mut [u8],
    written: usize,
}

impl BitSource for Pieces<'_> {
    #[inline]
    fn word(&self) -> u64 {
        self.word
    }

    #[inline]
    fn available(&self) -> u32 {
        self.filled
    }

    #[inline]
    fn pull(&mut self) -> bool {
        let Some(&byte) = self.input.get(self.read) else { return false };
        self.word |= u64::from(byte) << self.filled;
        self.filled += 8;
        self.read += 1;
        true
    }

    #[inline]
    fn take(&mut self, bits: u32) {
        self.word >>= bits;
        self.filled -= bits;
    }
}

impl<'a> ResumableDecoder<'a> {
    /// A decoder at the beginning of a stream; see [`Decoder::decompress`](crate::Decoder::decompress).
    ///
    /// # Panics
    ///
    /// If canned codes are asked for and the dictionary has none.
    pub fn new(dictionary: &'a Dictionary, huffman: Huffman) -> ResumableDecoder<'a> {
        let is_canned = huffman == Huffman::Canned;
        assert!(!is_canned || dictionary.codes().is_some(), "the dictionary has no canned codes");
        let mut history = Box::new([0; WINDOW_BYTES]);
        let known = dictionary.history().len();
        history[..known].copy_from_slice(dictionary.history());
        ResumableDecoder {
            dictionary,
            state: if is_canned { State::Symbol } else { State::BlockHeader },
            is_last: is_canned,
            codes: if is_canned { Codes::Canned } else { Codes::Fixed },
            own: None,
            header: None,
            word: 0,
            filled: 0,
            taken: 0,
            history,
            at: known % WINDOW_BYTES,
            known,
        }
    }

    /// Decodes until a piece or the stream ends. After [`Status::Done`] it takes and writes nothing more. After an
    /// error it cannot continue.
    pub fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<Progress, DecodeError> {
        let mut pieces = Pieces { input, read: 0, word: self.word, filled: self.filled, output, written: 0 };
        let result = self.run(&mut pieces);
        (self.word, self.filled) = (pieces.word, pieces.filled);
        self.taken += pieces.read;
        match result {
            Ok(status) => Ok(Progress { read: pieces.read, written: pieces.written, status }),
            Err(fault) => Err(DecodeError { position: self.taken, fault }),
        }
    }

    fn run(&mut self, pieces: &mut Pieces<'_>) -> Result<Status, Fault> {
        loop {
            let next = match self.state {
                State::BlockHeader => self.block_header(pieces)?,
                State::StoredLengths => stored_lengths(pieces)?,
                State::OwnHeader => self.own_header(pieces)?,
                State::Symbol => match self.symbol(pieces)? {
                    Some(Symbol::Literal(literal)) if pieces.written < pieces.output.len() => {
                        self.put(pieces, literal);
                        Some(State::Symbol)
                    }
                    Some(Symbol::Literal(_)) => return Ok(Status::NeedsOutput),
                    Some(Symbol::Next(state)) => Some(state),
                    None => None,
                },
                State::Distance { length } => {
                    self.distance(pieces)?.map(|distance| State::Copy { length, distance })
                }
                State::Copy { length: 0, .. } => Some(State::Symbol),
                State::Stored { left: 0 } => Some(self.after_block()),
                State::Copy { .. } | State::Stored { .. } if pieces.written == pieces.output.len() => {
                    return Ok(Status::NeedsOutput);
                }
                State::Copy { length, distance } => {
                    let byte = self.history[(self.at + WINDOW_BYTES - distance) % WINDOW_BYTES];
                    self.put(pieces, byte);
                    Some(State::Copy { length: length - 1, distance })
                }
                State::Stored { left } => pieces.number(8).map(|byte| {
                    self.put(pieces, byte as u8);
                    State::Stored { left: left - 1 }
                }),
                State::Done => return Ok(Status::Done),
            };
            match next {
                Some(state) => self.state = state,
                None => return Ok(Status::NeedsInput),
            }
        }
    }

    fn put(&mut self, pieces: &mut Pieces<'_>, byte: u8) {
        pieces.output[pieces.written] = byte;
        pieces.written += 1;
        self.history[self.at] = byte;
        self.at = (self.at + 1) % WINDOW_BYTES;
        self.known = (self.known + 1).min(WINDOW_BYTES);
    }

    fn after_block(&self) -> State {
        if self.is_last { State::Done } else { State::BlockHeader }
    }

    fn block_header(&mut self, pieces: &mut Pieces<'_>) -> Result<Option<State>, Fault> {
        let Some(header) = pieces.number(3) else { return Ok(None) };
        self.is_last = header & 1 == 1;
        match header >> 1 {
            0 => {
                pieces.take(pieces.filled & 7);
                Ok(Some(State::StoredLengths))
            }
            1 => {
                self.codes = Codes::Fixed;
                Ok(Some(State::Symbol))
            }
            2 => Ok(Some(State::OwnHeader)),
            _ => Err(Fault::BlockType),
        }
    }

    fn own_header(&mut self, pieces: &mut Pieces<'_>) -> Result<Option<State>, Fault> {
        let reader = self.header.get_or_insert_with(|| Box::new(HeaderReader::new()));
        let Some((literals, distances)) = reader.read(pieces)? else { return Ok(None) };
        self.own.get_or_insert_default().build(literals, distances)?;
        self.header = None;
        self.codes = Codes::Own;
        Ok(Some(State::Symbol))
    }

    fn tables(&self) -> &Tables {
        match self.codes {
            Codes::Fixed => &SharedCodes::fixed().single,
            Codes::Canned => &self.dictionary.canned().single,
            Codes::Own => self.own.as_ref().expect("a header was read"),
        }
    }

    /// Reads a symbol with the extra bits of its length. A literal for which there is no room is not taken.
    fn symbol(&mut self, pieces: &mut Pieces<'_>) -> Result<Option<Symbol>, Fault> {
        let tables = self.tables();
        loop {
            let word = pieces.word;
            let mut entry = tables.literals[word as usize & ((1 << LITERAL_BITS) - 1)];
            let mut bits = entry & 63;
            if is_special(entry) && Special::of(entry) == Special::Longer {
                let next = (word >> bits) as usize & ((1 << (entry >> 12 & 15)) - 1);
                entry = tables.literals[(entry >> 16) as usize + next];
                bits += entry & 63;
            }
            let kind = is_special(entry).then(|| Special::of(entry));
            let extra_bits = if kind == Some(Special::Length) { entry >> 12 & 15 } else { 0 };
            if bits + extra_bits > pieces.available() {
                if pieces.pull() {
                    continue;
                }
                return Ok(None);
            }
            let extra = (word >> bits) as usize & ((1 << extra_bits) - 1);
            let found = match kind {
                None if match_length(entry) == 0 => Symbol::Literal((entry >> 8) as u8),
                None => Symbol::Next(State::Distance { length: match_length(entry) }),
                Some(Special::Length) => {
                    Symbol::Next(State::Distance { length: (entry >> 16) as usize + extra })
                }
                Some(Special::End) => Symbol::Next(self.after_block()),
                Some(_) => return Err(Fault::Symbol),
            };
            let is_kept = matches!(found, Symbol::Literal(_)) && pieces.written == pieces.output.len();
            pieces.take(if is_kept { 0 } else { bits + extra_bits });
            return Ok(Some(found));
        }
    }

    fn distance(&mut self, pieces: &mut Pieces<'_>) -> Result<Option<usize>, Fault> {
        let tables = self.tables();
        loop {
            let word = pieces.word;
            let mut entry = tables.distances[word as usize & ((1 << DISTANCE_BITS) - 1)];
            let mut before = 0;
            if entry & NO_DISTANCE != 0 && NoDistance::of(entry) == NoDistance::Longer {
                before = DISTANCE_BITS as u32;
                let next = (word >> before) as usize & ((1 << (entry >> 12 & 15)) - 1);
                entry = tables.distances[(entry >> 16) as usize + next];
            }
            let bits = before + (entry & 63);
            if bits > pieces.available() {
                if pieces.pull() {
                    continue;
                }
                return Ok(None);
            }
            if entry & NO_DISTANCE != 0 {
                let is_far = NoDistance::of(entry) == NoDistance::BeyondWindow;
                return Err(if is_far { Fault::BeyondWindow } else { Fault::Distance });
            }
            let extra = (word & ((1 << bits) - 1)) >> (before + (entry >> 8 & 15));
            let distance = (entry >> 16) as usize + extra as usize;
            pieces.take(bits);
            return if distance <= self.known { Ok(Some(distance)) } else { Err(Fault::BeforeStart) };
        }
    }
}

enum Symbol {
    Literal(u8),
    Next(State),
}

fn stored_lengths(pieces: &mut Pieces<'_>) -> Result<Option<State>, Fault> {
    let Some(lengths) = pieces.number(32) else { return Ok(None) };
    if lengths >> 16 != !lengths & 0xFFFF {
        return Err(Fault::StoredLength);
    }
    Ok(Some(State::Stored { left: lengths & 0xFFFF }))
}
